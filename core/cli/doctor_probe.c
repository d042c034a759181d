/* SPDX-License-Identifier: Apache-2.0 */
/* What the drives deliver to reads like those of a run: the trunk's, one window after the other,
 * and the experts', each at some other place. Only data counts: places without holes, and bytes
 * that the system says came from storage. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/memory.h"
#include "core/base/nondet.h"
#include "core/cli/doctor.h"
#include "core/cli/engine_options.h"
#include "core/exec/reader.h"
#include "core/exec/tune.h"

#define PATTERN_NS 1000000000ULL
#define ALL_NS 8000000000ULL     /* of all drives together */
#define TRIES_MAX 4096U
#define EXTENT_BYTES 17551360ULL /* an expert of Kimi K3, in whole pages */
#define DELIVERED_SHARE 0.9      /* less from storage than that: the rest came from memory */
#define LINK_SLACK 1.02

/* The reads of one pattern; next_trunk and next_expert are its steps. */
struct walk {
    const struct io_files *files;
    uint64_t until_ns;
    uint64_t total_bytes, left_bytes; /* of the files; to read at most */
    uint64_t extent_bytes;
    struct rng rng;
    uint32_t file;
    uint64_t offset;     /* trunk: where to look next; expert: inside the extent */
    uint64_t end;        /* expert: of the extent */
};

static bool over(const struct walk *w)
{
    return nondet_now_ns() >= w->until_ns || w->left_bytes < DOCTOR_READ_BYTES;
}

static void take(struct walk *w, uint64_t size, struct reader_read *read)
{
    *read = (struct reader_read){.file = w->file, .offset_bytes = w->offset,
                                 .size_bytes = (uint32_t)size};
    w->offset += size;
    w->left_bytes -= min_u64(w->left_bytes, size);
}

/* To the next whole page that holds data, in this file or a later one. */
static void skip(struct walk *w)
{
    const struct io_file *f = &w->files->file[w->file];
    off_t data = lseek(f->fd, (off_t)(w->offset + PAGE_BYTES), SEEK_DATA);
    w->offset = data >= 0 ? align_up((uint64_t)data, PAGE_BYTES) : f->size_bytes;
}

static bool next_trunk(void *ctx, struct reader_read *read)
{
    struct walk *w = ctx;
    for (uint32_t i = 0; i < TRIES_MAX + w->files->count && !over(w); i++) {
        const struct io_file *f = &w->files->file[w->file];
        if (w->offset + DOCTOR_READ_BYTES > f->size_bytes) {
            w->file = (w->file + 1) % w->files->count;
            w->offset = 0;
        } else if (tune_holds_data(f->fd, w->offset, DOCTOR_READ_BYTES)) {
            take(w, DOCTOR_READ_BYTES, read);
            return true;
        } else {
            skip(w);
        }
    }
    return false;
}

/* A byte of all files by chance, and the whole pages that an expert there would take. */
static void jump(struct walk *w)
{
    uint64_t at = rng_below(&w->rng, w->total_bytes);
    w->file = 0;
    while (at >= w->files->file[w->file].size_bytes) {
        at -= w->files->file[w->file++].size_bytes;
    }
    w->offset = align_down(at, PAGE_BYTES);
    w->end = w->offset + w->extent_bytes;
}

static bool next_expert(void *ctx, struct reader_read *read)
{
    struct walk *w = ctx;
    for (uint32_t i = 0; w->offset == w->end; i++) {
        if (i == TRIES_MAX || over(w)) {
            return false;
        }
        jump(w);
        const struct io_file *f = &w->files->file[w->file];
        if (w->end > f->size_bytes || !tune_holds_data(f->fd, w->offset, w->extent_bytes)) {
            w->offset = w->end;
        }
    }
    take(w, min_u64(DOCTOR_READ_BYTES, w->end - w->offset), read);
    return true;
}

static uint64_t total_of(const struct io_files *files)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < files->count; i++) {
        total += files->file[i].size_bytes;
    }
    return total;
}

/* ---- what may stand as a figure ---- */

static void refuse(struct doctor_rate *rate, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void refuse(struct doctor_rate *rate, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(rate->why_not, sizeof rate->why_not, format, args);
    va_end(args);
    rate->measured = false;
}

/* What is known before: only drives are measured, and only direct reads measure them. */
static bool may_measure(const struct doctor *d, uint32_t place, struct doctor_rate *rate)
{
    const struct environment_place *p = &d->env.place[place];
    if (p->nature != NATURE_DRIVE) {
        refuse(rate, "reads of %s would measure %s, not a drive", p->file_system,
               p->nature == NATURE_MEMORY ? "memory"
               : p->nature == NATURE_REMOTE ? "another machine or program"
                                            : "what the file system does to the bytes");
        return false;
    }
    if (p->direct_files < p->files) {
        refuse(rate, "%s takes no direct reads: the page cache would be measured", p->file_system);
        return false;
    }
    if (p->top != ENVIRONMENT_NONE && d->env.device[p->top].kind == DEVICE_MEMORY) {
        refuse(rate, "%s is a block device in memory", d->env.device[p->top].name);
        return false;
    }
    return true;
}

/* All that a place lies on. */
static uint32_t below(const struct environment *env, const struct environment_place *place)
{
    uint32_t all = place->others | (place->top != ENVIRONMENT_NONE ? 1U << place->top : 0);
    for (uint32_t round = 0; round < env->device_count; round++) {
        for (uint32_t i = 0; i < env->device_count; i++) {
            all |= (all >> i & 1) != 0 ? env->device[i].below : 0;
        }
    }
    return all;
}

/* The links of all drives below a place; 0 when one of them is not known. */
static uint64_t link_of(const struct environment *env, const struct environment_place *place)
{
    uint32_t all = below(env, place);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < env->device_count; i++) {
        if ((all >> i & 1) != 0 && environment_lowest(env, i)) {
            if (env->device[i].link.bytes_per_s == 0) {
                return 0;
            }
            sum += env->device[i].link.bytes_per_s;
        }
    }
    return sum;
}

struct witness {
    uint64_t process_bytes;
    struct environment_diskstats disk;
};

static void ask_witness(const struct doctor *d, struct witness *w)
{
    w->process_bytes = memory_storage_read_bytes();
    environment_diskstats(&d->env, &w->disk);
}

/* Bytes that storage delivered in between, as the system counts them. */
static uint64_t delivered(const struct witness *from, const struct witness *to)
{
    struct environment_diskstats disk;
    environment_diskstats_since(&from->disk, &to->disk, &disk);
    return max_u64(to->process_bytes - from->process_bytes, disk.files.read_sectors * 512);
}

void doctor_judge(struct doctor *d, uint32_t place, uint64_t from_storage)
{
    struct doctor_rate *rate = &d->rate[place];
    double fastest = rate->trunk_gbps > rate->expert_gbps ? rate->trunk_gbps : rate->expert_gbps;
    double link = (double)link_of(&d->env, &d->env.place[place]) / 1e9;
    rate->measured = true;
    if ((double)from_storage < DELIVERED_SHARE * (double)rate->bytes) {
        refuse(rate, "%.2f GB were read, but only %.2f GB came from storage: the rest is no figure "
               "of a drive", (double)rate->bytes / 1e9, (double)from_storage / 1e9);
    } else if (link > 0 && fastest > link * LINK_SLACK) {
        refuse(rate, "%.2f GB/s is more than its link carries (%.2f GB/s): something before the "
               "drive answers", fastest, link);
    }
}

/* ---- measuring ---- */

/* The files of one device as a set of their own, which owns nothing but its table. */
static int select_files(const struct io_files *all, uint32_t device, struct io_files *out)
{
    *out = (struct io_files){.device_count = 1};
    out->file = calloc(all->count, sizeof *out->file);
    if (out->file == NULL) {
        return err_set(ERR_MEMORY, "no memory for a table of files");
    }
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->file[i].device == device && all->file[i].size_bytes > 0) {
            out->file[out->count] = all->file[i];
            out->file[out->count++].device = 0;
        }
    }
    out->direct_count = out->count;
    return 0;
}

static int run_pattern(struct reader *reader, struct walk *w, reader_next *next, double *gbps,
                       struct doctor_rate *rate)
{
    struct reader_result result;
    TRY(reader_run(reader, next, w, &result));
    uint64_t took_ns = result.ended_ns - result.begun_ns;
    bool cut_short = nondet_now_ns() < w->until_ns;
    rate->bytes += result.bytes;
    if (result.bytes < TUNE_DATA_MIN && cut_short) {
        refuse(rate, "only %.1f MiB in pieces of %.1f MiB hold data: too little to measure",
               (double)result.bytes / (double)MIB, (double)w->extent_bytes / (double)MIB);
        return 0;
    }
    *gbps = took_ns > 0 ? (double)result.bytes / (double)took_ns : 0;
    return 0;
}

static int run_patterns(struct doctor *d, const struct io_files *files, uint32_t place,
                        struct reader *reader)
{
    struct doctor_rate *rate = &d->rate[place];
    struct witness before;
    struct witness after;
    uint64_t ns = min_u64(PATTERN_NS, ALL_NS / (2 * d->env.place_count));
    uint64_t total = total_of(files);
    struct walk w = {.files = files, .total_bytes = total, .left_bytes = total,
                     .extent_bytes = DOCTOR_READ_BYTES, .rng = rng_seed(nondet_now_ns())};
    struct reader_facts facts;
    reader_facts(reader, &facts);
    snprintf(rate->engine, sizeof rate->engine, "%s", facts.io_engine);
    rate->celsius[0] = environment_temperature(&d->env);
    ask_witness(d, &before);
    jump(&w);
    w.until_ns = nondet_now_ns() + ns;
    TRY(run_pattern(reader, &w, next_trunk, &rate->trunk_gbps, rate));
    if (rate->why_not[0] == '\0' && d->model->part_bytes[0] > 0) {
        w.extent_bytes = EXTENT_BYTES;
        w.left_bytes = UINT64_MAX;
        w.end = w.offset;
        w.until_ns = nondet_now_ns() + ns;
        TRY(run_pattern(reader, &w, next_expert, &rate->expert_gbps, rate));
    } else {
        rate->expert_gbps = rate->trunk_gbps;
    }
    ask_witness(d, &after);
    rate->celsius[1] = environment_temperature(&d->env);
    if (rate->why_not[0] == '\0') {
        doctor_judge(d, place, delivered(&before, &after));
    }
    return 0;
}

static int measure(struct doctor *d, uint32_t place)
{
    struct io_files files;
    struct reader *reader = NULL;
    struct reader_options options = {.io = IO_URING, .depth = ENGINE_IO_DEPTH,
                                     .size_max_bytes = DOCTOR_READ_BYTES, .stop = d->stop};
    TRY(select_files(&d->files, place, &files));
    int rc = files.count > 0 ? reader_open(&reader, &files, &options) : 0;
    if (rc == 0 && files.count > 0) {
        rc = run_patterns(d, &files, place, reader);
    }
    reader_close(reader);
    free(files.file);
    return rc;
}

static void say_rate(struct doctor *d, uint32_t place)
{
    const struct doctor_rate *r = &d->rate[place];
    const struct environment_place *p = &d->env.place[place];
    const char *name = p->top != ENVIRONMENT_NONE ? d->env.device[p->top].name : p->file_system;
    char warm[64] = "";
    if (!r->measured) {
        doctor_say(d, DOCTOR_PROBE, DOCTOR_NOTE, NULL, "%s: no figure: %s", name, r->why_not);
        return;
    }
    if (!isnan(r->celsius[0]) && !isnan(r->celsius[1])) {
        snprintf(warm, sizeof warm, "; %.0f to %.0f C", r->celsius[0], r->celsius[1]);
    }
    doctor_say(d, DOCTOR_PROBE, DOCTOR_OK, NULL, "%s: %.2f GB/s in file order, %.2f GB/s at random "
               "experts; %s, direct, %u reads of 4 MiB in flight, %.2f GB read%s", name,
               r->trunk_gbps, r->expert_gbps, r->engine, ENGINE_IO_DEPTH, (double)r->bytes / 1e9,
               warm);
}

/* The drives at the bottom of a place, as bits; a place without any stands for itself. */
static uint64_t drives_of(const struct environment *env, uint32_t place)
{
    uint32_t all = below(env, &env->place[place]);
    uint64_t lowest = 0;
    for (uint32_t i = 0; i < env->device_count; i++) {
        lowest |= environment_lowest(env, i) ? (uint64_t)(all & 1U << i) : 0;
    }
    return lowest != 0 ? lowest : (uint64_t)1 << (ENVIRONMENT_DEVICES_MAX + place);
}

/* Each drive reads its own share of every token, and the slowest of them is waited for; what lies
 * on one drive is read one after the other. */
void doctor_combine(struct doctor *d)
{
    uint64_t total = 0;
    double trunk_s = 0;
    double expert_s = 0;
    for (uint32_t i = 0; i < d->env.place_count; i++) {
        double trunk = 0;
        double expert = 0;
        for (uint32_t k = 0; k < d->env.place_count; k++) {
            const struct doctor_rate *r = &d->rate[k];
            double gb = (double)d->env.place[k].bytes / 1e9;
            if (!r->measured || r->trunk_gbps <= 0 || r->expert_gbps <= 0) {
                return;
            }
            bool shared = (drives_of(&d->env, i) & drives_of(&d->env, k)) != 0;
            trunk += shared ? gb / r->trunk_gbps : 0;
            expert += shared ? gb / r->expert_gbps : 0;
        }
        total += d->env.place[i].bytes;
        trunk_s = fmax(trunk_s, trunk);
        expert_s = fmax(expert_s, expert);
    }
    d->trunk_gbps = trunk_s > 0 ? (double)total / 1e9 / trunk_s : 0;
    d->expert_gbps = expert_s > 0 ? (double)total / 1e9 / expert_s : 0;
}

int doctor_probe(struct doctor *d)
{
    if (d->dir == NULL) {
        doctor_say(d, DOCTOR_PROBE, DOCTOR_NOTE, NULL, "nothing is read: name a MODEL to measure "
                   "the drive it lies on");
        return 0;
    }
    for (uint32_t i = 0; i < d->env.place_count; i++) {
        struct doctor_rate *rate = &d->rate[i];
        int rc = may_measure(d, i, rate) ? measure(d, i) : 0;
        if (rc == ERR_IO) {
            doctor_say(d, DOCTOR_PROBE, DOCTOR_PROBLEM, NULL, "%s", err_message());
            refuse(rate, "a read failed");
            err_clear();
            rc = 0;
        }
        TRY(rc);
        say_rate(d, i);
    }
    doctor_combine(d);
    return 0;
}
