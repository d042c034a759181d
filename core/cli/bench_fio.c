/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/bench_fio.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/cli/output.h"

#define PATH_MOST 255U            /* of a token in an iolog */
#define LIMIT_SECONDS 10
#define EXPERT_DEPTH 4
#define HUGE_BYTES (2 * MIB)

struct export {
    const struct bench_result *result;
    const char *prefix;
    char **path;                  /* [files] absolute, as fio can read them */
    uint64_t *size_bytes;         /* whole pages of each */
    uint32_t files;
    uint32_t depth;               /* on all drives together */
    uint64_t largest_bytes;
};

/* ---- paths ---- */

static bool readable_by_fio(const char *path)
{
    return strpbrk(path, " \t\r\n\v\f:\\") == NULL && strlen(path) <= PATH_MOST;
}

static int link_file(const struct export *x, uint32_t index, const char *target, char **out)
{
    char folder[PATH_MAX];
    char base[PATH_MAX];
    size_t length = (size_t)snprintf(folder, sizeof folder, "%s.files", x->prefix);
    if (length >= sizeof folder || (mkdir(folder, 0777) != 0 && errno != EEXIST)) {
        return err_set(ERR_OUTPUT, "--export-fio: %s cannot be made: %s", folder, strerror(errno));
    }
    if (realpath(folder, base) == NULL || !readable_by_fio(base)) {
        return err_set(ERR_OUTPUT, "--export-fio: fio cannot read paths with white space, colons "
                       "or more than %u bytes; give a plain PREFIX", PATH_MOST);
    }
    if (asprintf(out, "%s/%u", base, index) < 0) {
        *out = NULL;
        return err_set(ERR_MEMORY, "no memory for a path");
    }
    unlink(*out);
    return symlink(target, *out) == 0
               ? 0 : err_set(ERR_OUTPUT, "--export-fio: no link %s: %s", *out, strerror(errno));
}

static int find_file(struct export *x, uint32_t index)
{
    char *absolute = realpath(x->result->paths[index], NULL);
    struct stat st;
    if (absolute == NULL || stat(absolute, &st) != 0) {
        free(absolute);
        return err_set(ERR_OUTPUT, "--export-fio: %s is gone: %s", x->result->paths[index],
                       strerror(errno));
    }
    x->size_bytes[index] = align_down((uint64_t)st.st_size, PAGE_BYTES);
    if (readable_by_fio(absolute)) {
        x->path[index] = absolute;
        return 0;
    }
    int rc = link_file(x, index, absolute, &x->path[index]);
    free(absolute);
    return rc;
}

static int open_export(struct export *x)
{
    x->files = x->result->file_count;
    x->path = calloc(x->files, sizeof *x->path);
    x->size_bytes = calloc(x->files, sizeof *x->size_bytes);
    if (x->path == NULL || x->size_bytes == NULL) {
        return err_set(ERR_MEMORY, "no memory for %u paths", x->files);
    }
    for (uint32_t i = 0; i < x->files; i++) {
        TRY(find_file(x, i));
    }
    return 0;
}

static void close_export(struct export *x)
{
    for (uint32_t i = 0; i < x->files && x->path != NULL; i++) {
        free(x->path[i]);
    }
    free(x->path);
    free(x->size_bytes);
}

/* ---- the log ---- */

/* A record as fio may read it: whole pages within the file. False when nothing is left. */
static bool clip(const struct export *x, const struct io_record *r, uint64_t *size_bytes)
{
    uint64_t end = min_u64(r->offset_bytes + r->size_bytes, x->size_bytes[r->file]);
    *size_bytes = end > r->offset_bytes ? end - r->offset_bytes : 0;
    return *size_bytes > 0 && r->begun_ns >= x->result->from_ns && r->begun_ns < x->result->to_ns;
}

/* fio forgets the last reads of a log, as many as its depth less one: small ones stand in. */
static void write_padding(const struct export *x, FILE *out, uint64_t stamp_us)
{
    uint32_t file = 0;
    while (file + 1 < x->files && x->size_bytes[file] == 0) {
        file++;
    }
    for (uint32_t i = 0; i < x->depth; i++) {
        fprintf(out, "%llu %s read 0 %llu\n", (unsigned long long)stamp_us, x->path[file],
                (unsigned long long)PAGE_BYTES);
    }
}

static void write_log(struct export *x, FILE *out)
{
    const struct io_log *log = &x->result->log;
    uint64_t stamp_us = 1;
    fprintf(out, "fio version 3 iolog\n");
    for (uint32_t i = 0; i < x->files; i++) {
        fprintf(out, "1 %s add\n", x->path[i]);
    }
    for (uint32_t i = 0; i < x->files; i++) {
        fprintf(out, "1 %s open\n", x->path[i]);
    }
    for (uint32_t i = 0; i < log->count; i++) {
        const struct io_record *r = &log->record[i];
        uint64_t size_bytes;
        if (clip(x, r, &size_bytes)) {
            stamp_us = 1 + (r->begun_ns - x->result->from_ns) / 1000;
            fprintf(out, "%llu %s read %llu %llu\n", (unsigned long long)stamp_us,
                    x->path[r->file], (unsigned long long)r->offset_bytes,
                    (unsigned long long)size_bytes);
            x->largest_bytes = max_u64(x->largest_bytes, size_bytes);
        }
    }
    write_padding(x, out, stamp_us);
}

/* ---- the jobs ---- */

/* fio's own buffers are scattered over small pages, which a drive reads into more slowly than into
 * ours: huge ones need vm.nr_hugepages. */
static void write_buffers(const struct export *x, FILE *out, uint64_t size_bytes, uint32_t depth)
{
    uint64_t pages = div_ceil(align_up(size_bytes, HUGE_BYTES) * depth, HUGE_BYTES) + 1;
    bool reserved = x->result->environment.system.huge_free_bytes >= pages * HUGE_BYTES;
    fprintf(out, "# Buffers on huge pages, as in k3ring; they need %llu pages of 2 MiB:\n"
            "#   sysctl vm.nr_hugepages=%llu\n%s", (unsigned long long)pages,
            (unsigned long long)pages, reserved ? "" : "# None were reserved, so these lines are "
            "out of force; expect less than k3ring reads.\n");
    fprintf(out, "%siomem=mmaphuge\n%shugepage-size=2m\n", reserved ? "" : "#",
            reserved ? "" : "#");
}

static void write_replay(struct export *x, FILE *out)
{
    fprintf(out, "# The reads of a k3ring run, as fast as they go. fio --readonly FILE\n"
            "# The last %u reads, of 4 KiB, are padding: fio does not count as many.\n"
            "[global]\nioengine=io_uring\ndirect=1\niodepth=%u\nfixedbufs=1\ninvalidate=0\n"
            "thread=1\n", x->depth, x->depth);
    write_buffers(x, out, x->largest_bytes, x->depth);
    fprintf(out, "[replay]\nread_iolog=%s.iolog\nreplay_no_stall=1\n", x->prefix);
}

static void write_timed(struct export *x, FILE *out)
{
    fprintf(out, "# The reads of a k3ring run, one at a time, none before its moment.\n"
            "# fio --readonly FILE\n"
            "# Timed replay with more in flight loses completions or hangs in fio 3.33 to "
            "3.42.\n[global]\nioengine=psync\ndirect=1\ninvalidate=0\nthread=1\n[replay-timed]\n"
            "read_iolog=%s.iolog\n", x->prefix);
}

static void write_names(const struct export *x, FILE *out)
{
    fprintf(out, "filename=");
    const char *colon = "";
    for (uint32_t i = 0; i < x->files; i++) {
        if (x->size_bytes[i] > 0) {
            fprintf(out, "%s%s", colon, x->path[i]);
            colon = ":";
        }
    }
    fprintf(out, "\n");
}

/* The best setting that was measured, or the run's own; in flight on all drives together. */
static struct bench_limit limit_of(const struct bench_result *result)
{
    const struct bench_point_result *p = &result->point[result->logged];
    const struct bench_round *round = &p->round[p->rounds - 1];
    struct bench_limit limit = round->limit[0][round->limit_best[0]];
    if (limit.depth == 0) {
        limit.depth = p->facts.io_depth;
        limit.chunk_bytes = p->facts.io_size_bytes;
    }
    limit.depth *= (uint32_t)max_u64(1, p->facts.devices);
    return limit;
}

static void write_limit(struct export *x, FILE *out)
{
    const struct bench_result *result = x->result;
    const struct bench_limit best = limit_of(result);
    fprintf(out, "# What the drive gives for random places with its queue full. fio --readonly "
            "FILE\n[global]\nioengine=io_uring\ndirect=1\nfixedbufs=1\ninvalidate=0\nthread=1\n"
            "rw=randread\nnorandommap=1\nblockalign=4k\ntime_based=1\nruntime=%d\nramp_time=2\n"
            "randseed=%llu\n", LIMIT_SECONDS, (unsigned long long)result->request->seed);
    write_names(x, out);
    uint64_t most = max_u64(best.chunk_bytes * best.depth, result->expert_bytes * EXPERT_DEPTH);
    write_buffers(x, out, most, 1);
    fprintf(out, "[limit]\nbs=%llu\niodepth=%u\n", (unsigned long long)best.chunk_bytes,
            best.depth);
    if (result->expert_bytes > 0) {
        fprintf(out, "[experts]\nstonewall\nbs=%llu\niodepth=%d\n",
                (unsigned long long)result->expert_bytes, EXPERT_DEPTH);
    }
}

/* ---- all of it ---- */

static int write_file(struct export *x, const char *suffix, void (*write)(struct export *, FILE *))
{
    char *path;
    struct output out = {.file = NULL};
    if (asprintf(&path, "%s%s", x->prefix, suffix) < 0) {
        return err_set(ERR_MEMORY, "no memory for a path");
    }
    int rc = output_open(&out, path);
    if (rc == 0) {
        write(x, out.file);
        rc = output_commit(&out);
    }
    output_abandon(&out);
    free(path);
    return rc;
}

/* The folder of a prefix, made absolute, with the prefix's last part behind it. */
static char *absolute_prefix(const char *prefix)
{
    const char *slash = strrchr(prefix, '/');
    char *folder = slash == NULL ? strdup(".")
                                 : strndup(prefix, max_u64(1, (uint64_t)(slash - prefix)));
    char *real = folder != NULL ? realpath(folder, NULL) : NULL;
    char *out = NULL;
    if (real != NULL && asprintf(&out, "%s/%s", real, slash != NULL ? slash + 1 : prefix) < 0) {
        out = NULL;
    }
    free(folder);
    free(real);
    return out;
}

static bool read_nothing(const struct bench_result *result)
{
    const struct bench_point_result *p = &result->point[result->logged];
    return p->rounds == 0 || p->round[p->rounds - 1].job[JOB_INFERENCE].all.requests == 0;
}

int bench_fio_export(const struct bench_result *result, const char *prefix)
{
    char *absolute = absolute_prefix(prefix);
    const struct bench_facts *facts = &result->point[result->logged].facts;
    struct export x = {.result = result, .prefix = absolute, .depth = facts->io_depth *
                       (uint32_t)max_u64(1, facts->devices), .largest_bytes = PAGE_BYTES};
    if (read_nothing(result)) {
        free(absolute);
        return err_set(ERR_OUTPUT, "--export-fio: nothing to export: the measured tokens read "
                       "nothing, all was in memory; a smaller --ram has them read");
    }
    if (absolute == NULL) {
        return err_set(ERR_OUTPUT, "--export-fio: the folder of %s is not there: %s", prefix,
                       strerror(errno));
    }
    int rc = readable_by_fio(absolute) ? open_export(&x)
             : err_set(ERR_OUTPUT, "--export-fio: fio cannot read paths with white space, colons "
                       "or more than %u bytes; give another PREFIX than %s", PATH_MOST, prefix);
    rc = rc == 0 ? write_file(&x, ".iolog", write_log) : rc;
    rc = rc == 0 ? write_file(&x, ".replay.fio", write_replay) : rc;
    rc = rc == 0 ? write_file(&x, ".replay-timed.fio", write_timed) : rc;
    rc = rc == 0 ? write_file(&x, ".limit.fio", write_limit) : rc;
    close_export(&x);
    free(absolute);
    return rc;
}
