/* SPDX-License-Identifier: Apache-2.0 */

/* The drive's ceiling: random aligned reads of a fixed size at a fixed depth, over huge-page
 * buffers, for each engine. The files are read in a shuffled order of aligned blocks, so that no
 * block comes twice before all have come once. Then the ring against fio, in turns: same files,
 * size, depth and kind of memory; the ratio is taken pair by pair.
 *
 *   io_bench [--quick] [--pairs] [--json FILE] [FILE...]
 *
 * --pairs: only fio. Without a file a scratch file is made, then removed.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/fio.h"
#include "bench/measure.h"
#include "core/base/err.h"
#include "core/base/nondet.h"
#include "io/io.h"

#define DEPTH_MAX 32U
#define ARENA_BYTES (128 * MIB)
#define REPEATS_MAX 9U
#define PAIR_BYTES (4 * MIB)
#define PAIR_DEPTH 8U
#define SCRATCH_PATH "/tmp/k3ring-io-bench-XXXXXX"

struct block {
    uint64_t offset_bytes;
    uint32_t file;
};

struct bench {
    struct io_files files;
    unsigned char *arena;
    struct block *blocks; /* of the present size, shuffled */
    uint64_t block_count;
    uint64_t next_block;
    uint64_t deadline_ns;
    uint32_t repeats;
    uint64_t repeat_ns;
    uint32_t pairs, pair_ms; /* with fio */
    bool pairs_only;
    cJSON *json;
};

struct result {
    struct figure gb_per_s;
    double latency_us;
    double reads_per_submit;
    const char *note;
};

static struct bench bench;
static struct io *io;
static struct io_req reqs[DEPTH_MAX];
static int first_error;

/* ---- what is read ---- */

static int write_scratch(char *path, uint64_t size_bytes)
{
    int fd = mkstemp(path);
    uint64_t *words = malloc(MIB);
    int failed = fd < 0 || words == NULL;
    struct rng rng = rng_seed(1);
    for (uint64_t at = 0; !failed && at < size_bytes; at += MIB) {
        for (uint64_t i = 0; i < MIB / 8; i++) {
            words[i] = rng_next(&rng); /* no zeros: some drives cheat with them */
        }
        failed = write(fd, words, MIB) != (ssize_t)MIB;
    }
    failed = failed || fsync(fd) != 0;
    if (fd >= 0) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    free(words);
    return failed ? err_set(ERR_OUTPUT, "%s: cannot write a scratch file: %s", path,
                            strerror(errno))
                  : 0;
}

static int make_blocks(uint64_t size_bytes)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < bench.files.count; i++) {
        most += bench.files.file[i].size_bytes / size_bytes;
    }
    free(bench.blocks);
    bench.blocks = malloc(max_u64(most, 1) * sizeof *bench.blocks);
    if (bench.blocks == NULL) {
        return err_set(ERR_MEMORY, "no memory for a list of %llu blocks",
                       (unsigned long long)most);
    }
    bench.block_count = 0;
    for (uint32_t i = 0; i < bench.files.count; i++) {
        uint64_t whole = bench.files.file[i].size_bytes / size_bytes;
        for (uint64_t b = 0; b < whole; b++) {
            bench.blocks[bench.block_count++] = (struct block){b * size_bytes, i};
        }
    }
    struct rng rng = rng_seed(size_bytes);
    for (uint64_t i = bench.block_count; i > 1; i--) {
        uint64_t other = rng_below(&rng, i);
        struct block swap = bench.blocks[i - 1];
        bench.blocks[i - 1] = bench.blocks[other];
        bench.blocks[other] = swap;
    }
    bench.next_block = 0;
    return 0;
}

/* ---- reading ---- */

static void begin_read(struct io_req *req)
{
    const struct block *block = &bench.blocks[bench.next_block++ % bench.block_count];
    req->offset_bytes = block->offset_bytes;
    req->file = block->file;
    io_read(io, req);
}

static void read_on(struct io_req *req)
{
    if (req->res < 0 && first_error == 0) {
        first_error = -req->res;
    }
    if (first_error == 0 && nondet_now_ns() < bench.deadline_ns) {
        begin_read(req);
    }
}

static int repeat_once(uint64_t size_bytes, uint32_t depth, int32_t buffer, uint64_t time_ns,
                       double *gb_per_s)
{
    uint64_t bytes_before = io_stats(io)->bytes;
    uint64_t begin_ns = nondet_now_ns();
    bench.deadline_ns = begin_ns + time_ns;
    for (uint32_t i = 0; i < depth; i++) {
        reqs[i] = (struct io_req){.size_bytes = (uint32_t)size_bytes,
                                  .target = bench.arena + i * size_bytes,
                                  .buffer = buffer,
                                  .done = read_on};
        begin_read(&reqs[i]);
    }
    while (io_in_flight(io) > 0) {
        TRY(io_run(io, IO_WAIT_FOREVER));
    }
    if (first_error != 0) {
        return err_set(ERR_IO, "a read failed: %s", strerror(first_error));
    }
    uint64_t bytes = io_stats(io)->bytes - bytes_before;
    *gb_per_s = (double)bytes / (double)(nondet_now_ns() - begin_ns);
    return 0;
}

static int measure(enum io_engine engine, uint64_t size_bytes, uint32_t depth,
                   struct result *result)
{
    struct io_options options = {.engine = engine, .depth = depth, .buffer_count = 1};
    TRY(io_open(&io, &options, &bench.files));
    int rc = io_register_buffer(io, 0, bench.arena, ARENA_BYTES);
    int32_t buffer = rc == 0 ? 0 : IO_NO_BUFFER;
    result->note = rc == 0 ? "fixed" : "plain";
    rc = 0;
    for (uint32_t i = 0; i < bench.repeats && rc == 0; i++) {
        double gb_per_s = 0;
        rc = repeat_once(size_bytes, depth, buffer, bench.repeat_ns, &gb_per_s);
        figure_add(&result->gb_per_s, gb_per_s);
    }
    const struct io_stats *stats = io_stats(io);
    result->latency_us = (double)stats->latency_ns_sum / 1e3 / (double)stats->requests;
    result->reads_per_submit = (double)stats->requests / (double)stats->submits;
    io_close(io);
    return rc;
}

/* ---- reporting ---- */

static void row_json(const char *engine, uint64_t size_bytes, uint32_t depth,
                     const struct result *result)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddItemToArray(cJSON_GetObjectItem(bench.json, "rows"), row);
    cJSON_AddStringToObject(row, "engine", engine);
    cJSON_AddNumberToObject(row, "size_bytes", (double)size_bytes);
    cJSON_AddNumberToObject(row, "depth", depth);
    cJSON_AddNumberToObject(row, "latency_us", result->latency_us);
    figure_json(row, "gb_per_s", &result->gb_per_s);
}

static int row(enum io_engine engine, uint64_t size_bytes, uint32_t depth)
{
    struct result result = {.note = ""};
    const char *name = engine == IO_URING ? "io_uring" : "pread";
    int rc = measure(engine, size_bytes, depth, &result);
    if (rc == ERR_RUN) {
        printf("%-9s %7llu %5u   %s\n", name, (unsigned long long)(size_bytes / KIB), depth,
               err_message());
        err_clear();
        return 0;
    }
    TRY(rc);
    printf("%-9s %7llu %5u %8.2f %8.2f %8.2f %10.0f %8.2f  %s\n", name,
           (unsigned long long)(size_bytes / KIB), depth, figure_median(&result.gb_per_s),
           figure_least(&result.gb_per_s), figure_most(&result.gb_per_s), result.latency_us,
           result.reads_per_submit, result.note);
    fflush(stdout);
    row_json(name, size_bytes, depth, &result);
    return 0;
}

static int table(bool quick)
{
    static const uint64_t all_sizes[] = {64 * KIB, 256 * KIB, 1 * MIB, 4 * MIB, 16 * MIB};
    static const uint32_t all_depths[] = {1, 4, 8, 16, 32};
    static const uint64_t quick_sizes[] = {1 * MIB, 4 * MIB};
    static const uint32_t quick_depths[] = {8};
    const uint64_t *sizes = quick ? quick_sizes : all_sizes;
    const uint32_t *depths = quick ? quick_depths : all_depths;
    size_t size_count = quick ? countof(quick_sizes) : countof(all_sizes);
    size_t depth_count = quick ? countof(quick_depths) : countof(all_depths);
    printf("engine    size_KiB depth  GB/s_med      min      max  latency_us  per_sub  reads\n");
    for (size_t s = 0; s < size_count; s++) {
        TRY(make_blocks(sizes[s]));
        for (size_t d = 0; d < depth_count && bench.block_count > 0; d++) {
            if (sizes[s] * depths[d] > ARENA_BYTES) {
                continue;
            }
            TRY(row(IO_URING, sizes[s], depths[d]));
            TRY(row(IO_PREAD, sizes[s], depths[d]));
        }
    }
    return 0;
}

/* ---- against fio ---- */

static void pairs_json(const struct figure *ours, const struct figure *theirs,
                       const struct figure *ratio)
{
    double low;
    double high;
    double sure = figure_interval(ratio, &low, &high);
    cJSON *o = cJSON_AddObjectToObject(bench.json, "fio");
    cJSON_AddNumberToObject(o, "size_bytes", (double)PAIR_BYTES);
    cJSON_AddNumberToObject(o, "depth", PAIR_DEPTH);
    figure_json(o, "ours_gb_per_s", ours);
    figure_json(o, "fio_gb_per_s", theirs);
    figure_json(o, "ours_over_fio", ratio);
    cJSON_AddNumberToObject(o, "interval_low", low);
    cJSON_AddNumberToObject(o, "interval_high", high);
    cJSON_AddNumberToObject(o, "interval_percent", sure);
    printf("ours %.2f GB/s, fio %.2f GB/s (medians); ours : fio %.3f, median of %u pairs "
           "(%.3f-%.3f with %.0f%%)\n", figure_median(ours), figure_median(theirs),
           figure_median(ratio), ratio->count, low, high, sure);
}

static int make_pairs(char *const *paths, uint32_t count, int32_t buffer)
{
    struct figure ours = {0};
    struct figure theirs = {0};
    struct figure ratio = {0};
    for (uint32_t i = 0; i < bench.pairs; i++) {
        double fio = 0;
        double own = 0;
        for (uint32_t turn = 0; turn < 2; turn++) {
            if ((turn + i) % 2 == 0) {
                TRY(repeat_once(PAIR_BYTES, PAIR_DEPTH, buffer, bench.pair_ms * 1000000ULL,
                                &own));
            } else {
                fio = fio_read(paths, count, PAIR_BYTES, PAIR_DEPTH, bench.pair_ms, i + 1);
            }
        }
        if (fio <= 0) {
            printf("no pairs with fio: it failed to read these files\n");
            return 0;
        }
        figure_add(&ours, own);
        figure_add(&theirs, fio);
        figure_add(&ratio, own / fio);
    }
    pairs_json(&ours, &theirs, &ratio);
    return 0;
}

static int against_fio(char *const *paths, uint32_t count)
{
    const char *why = fio_begin(PAIR_DEPTH * PAIR_BYTES);
    if (why != NULL) {
        printf("no pairs with fio: %s\n", why);
        cJSON_AddStringToObject(bench.json, "no_fio", why);
        return 0;
    }
    printf("in turns with fio: io_uring, direct, %u x %llu MiB, registered huge pages, %u ms "
           "each\n", PAIR_DEPTH, (unsigned long long)(PAIR_BYTES / MIB), bench.pair_ms);
    struct io_options options = {.engine = IO_URING, .depth = PAIR_DEPTH, .buffer_count = 1};
    int rc = make_blocks(PAIR_BYTES);
    rc = rc < 0 ? rc : io_open(&io, &options, &bench.files);
    if (rc == 0) {
        bool fixed = io_register_buffer(io, 0, bench.arena, ARENA_BYTES) == 0;
        rc = make_pairs(paths, count, fixed ? 0 : IO_NO_BUFFER);
        io_close(io);
    }
    fio_end();
    return rc;
}

/* The share of the arena that really lies on huge pages, in percent; -1 when not told. */
static int huge_percent(void)
{
    FILE *smaps = fopen("/proc/self/smaps", "r");
    if (smaps == NULL) {
        return -1;
    }
    char line[256];
    bool inside = false;
    long long huge_kib = -1;
    while (huge_kib < 0 && fgets(line, sizeof line, smaps) != NULL) {
        unsigned long long begin;
        unsigned long long end;
        if (sscanf(line, "%llx-%llx ", &begin, &end) == 2) {
            inside = begin <= (uintptr_t)bench.arena && (uintptr_t)bench.arena < end;
        } else if (inside && sscanf(line, "AnonHugePages: %lld kB", &huge_kib) != 1) {
            huge_kib = -1;
        }
    }
    fclose(smaps);
    return huge_kib < 0 ? -1 : (int)(huge_kib * 100 / (long long)(ARENA_BYTES / KIB));
}

static int make_arena(void)
{
    char *map = mmap(NULL, ARENA_BYTES + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        return err_set(ERR_MEMORY, "no memory for %llu MiB of buffers",
                       (unsigned long long)(ARENA_BYTES / MIB));
    }
    bench.arena = (unsigned char *)align_up((uintptr_t)map, HUGE_PAGE_BYTES);
    madvise(bench.arena, ARENA_BYTES, MADV_HUGEPAGE);
    memset(bench.arena, 1, ARENA_BYTES);
    return 0;
}

static int run(char **paths, uint32_t count, bool quick)
{
    TRY(io_files_open(&bench.files, (const char *const *)paths, NULL, count));
    TRY(make_arena());
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += bench.files.file[i].size_bytes;
    }
    printf("%u files, %.2f GB, O_DIRECT on %u; buffers %llu MiB, %d%% huge; "
           "median of %u x %.2f s\n",
           count, (double)bytes / 1e9, bench.files.direct_count,
           (unsigned long long)(ARENA_BYTES / MIB), huge_percent(), bench.repeats,
           (double)bench.repeat_ns / 1e9);
    cJSON_AddArrayToObject(bench.json, "rows");
    if (!bench.pairs_only) {
        TRY(table(quick));
    }
    return against_fio(paths, count);
}

int main(int argc, char **argv)
{
    bool quick = false;
    const char *json = NULL;
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        if (strcmp(argv[at], "--quick") == 0) {
            quick = true;
        } else if (strcmp(argv[at], "--pairs") == 0) {
            bench.pairs_only = true;
        } else if (strcmp(argv[at], "--json") == 0 && at + 1 < argc) {
            json = argv[++at];
        } else {
            fprintf(stderr, "usage: io_bench [--quick] [--pairs] [--json FILE] [FILE...]\n");
            return 2;
        }
    }
    uint32_t count = (uint32_t)(argc - at);
    bench.repeats = quick ? 3 : 5;
    bench.repeat_ns = quick ? 200000000 : 1000000000;
    bench.pairs = quick ? 5 : 15;
    bench.pair_ms = quick ? 250 : 1500;
    bench.json = cJSON_CreateObject();
    if (quick) {
        measure_quick(bench.json, "1 and 4 MiB at depth 8, 3 repeats, 5 short pairs with fio; the "
                      "other sizes and depths are left to the long form");
    }
    char scratch[] = SCRATCH_PATH;
    char *scratch_list[] = {scratch};
    int rc = count > 0 ? 0 : write_scratch(scratch, quick ? 256 * MIB : 2 * GIB);
    if (rc == 0) {
        rc = run(count > 0 ? argv + at : scratch_list, count > 0 ? count : 1, quick);
    }
    if (count == 0) {
        unlink(scratch);
    }
    io_files_close(&bench.files);
    free(bench.blocks);
    if (rc < 0) {
        fprintf(stderr, "io_bench: %s\n", err_message());
    }
    bool written = json == NULL || measure_write(json, bench.json);
    return rc < 0 ? err_exit_status(rc) : !written;
}
