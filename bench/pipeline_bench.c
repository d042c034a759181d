/* SPDX-License-Identifier: Apache-2.0 */
/* A streamed token against the same reads alone and against compute with everything resident,
 * interleaved in one program, at several budgets.
 *
 *   pipeline_bench MODEL [--quick] [--json FILE]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/exec/generate.h"

#define TOKENS_PER_RUN 4U
#define REPEATS_MAX 9
#define BUFFER_BYTES (128 * MIB)

struct budget {
    const char *name;
    uint64_t ram_bytes;
    bool all;
};

static const struct budget budgets[] = {
    {"1.5G", 1536 * MIB, false}, {"4G", 4 * GIB, false}, {"all", 21 * GIB, true}};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

static struct engine_options options_for(const struct budget *b)
{
    return (struct engine_options){
        .ram_bytes = b->ram_bytes, .io_depth = 8, .io_size_bytes = 4 * MIB, .policy = "arc",
        .isa = ISA_AUTO, .io = IO_URING, .context = 64, .chunk = PLAN_AUTO,
        .pin_bytes = b->all ? PLAN_ALL : PLAN_AUTO, .pin_percent = -1,
        .expert_slots = b->all ? PLAN_ALL : PLAN_AUTO, .tile_bytes = PLAN_AUTO,
        .prompt_tokens = 4};
}

static void die(const char *what)
{
    fprintf(stderr, "pipeline_bench: %s: %s\n", what, err_message());
    exit(1);
}

/* Seconds per later token, and how many bytes such a token read. */
static double streamed(struct engine *e, uint64_t *token_bytes)
{
    static const uint32_t prompt[] = {3, 14, 15, 92};
    uint32_t ids[TOKENS_PER_RUN + 1];
    struct generate_request r = {.ids = prompt, .id_count = 4, .gen = TOKENS_PER_RUN + 1};
    struct generate_result out = {.ids = ids};
    struct engine_stats before;
    struct engine_stats after;
    engine_stats(e, &before);
    if (generate(e, &r, &out) < 0) {
        die("generate");
    }
    engine_stats(e, &after);
    *token_bytes = 0;
    for (int i = 0; i < READ_CLASSES; i++) {
        *token_bytes += after.class[i].bytes - before.class[i].bytes;
    }
    *token_bytes /= TOKENS_PER_RUN + 1;
    return (double)out.rest_ns / 1e9 / TOKENS_PER_RUN;
}

/* The reads of one token without compute: every streamed tile in walk order, and after each
 * router the experts of a seeded demand, through the same backend at the same depth and size. */
struct reader {
    struct io *io;
    const struct plan *plan;
    struct io_req *req;
    bool *busy;
    uint32_t depth;
    unsigned char *buffer;
    uint64_t at, bytes;
    bool fixed;
};

static void read_done(struct io_req *req)
{
    *(bool *)req->owner = false;
}

static void read_window(struct reader *r, uint32_t file, uint64_t offset, uint64_t size)
{
    while (size > 0) {
        uint64_t piece = size < r->plan->io_size_bytes ? size : r->plan->io_size_bytes;
        while (io_room(r->io) == 0) {
            io_run(r->io, IO_WAIT_FOREVER);
        }
        uint32_t slot = 0;
        while (r->busy[slot]) {
            slot++;
        }
        r->at = r->at + piece > BUFFER_BYTES ? 0 : r->at;
        r->busy[slot] = true;
        r->req[slot] = (struct io_req){.offset_bytes = offset, .size_bytes = (uint32_t)piece,
                                       .file = file, .target = r->buffer + r->at,
                                       .buffer = r->fixed ? 0 : IO_NO_BUFFER, .done = read_done,
                                       .owner = &r->busy[slot]};
        io_read(r->io, &r->req[slot]);
        io_run(r->io, 0);
        r->at += piece;
        r->bytes += piece;
        offset += piece;
        size -= piece;
    }
}

static void read_experts(struct reader *r, const struct model *model, uint32_t layer,
                         struct rng *rng)
{
    struct extent extents[EXPERT_PARTS];
    uint32_t part_at[EXPERT_PARTS];
    for (uint32_t i = 0; i < model->config.experts_per_token; i++) {
        uint32_t expert = (uint32_t)rng_below(rng, model->config.experts);
        uint32_t count = model_expert_extents(model, layer, expert, extents, part_at);
        for (uint32_t x = 0; x < count; x++) {
            uint64_t begin = align_down(extents[x].offset_bytes, PAGE_BYTES);
            uint64_t end = align_up(extents[x].offset_bytes + extents[x].size_bytes, PAGE_BYTES);
            read_window(r, extents[x].file, begin, end - begin);
        }
    }
}

static double reads_alone(struct reader *r, const struct model *model)
{
    struct rng rng = rng_seed(1);
    uint64_t begun = nondet_now_ns();
    r->bytes = 0;
    for (uint32_t s = 0; s < r->plan->step_count; s++) {
        const struct plan_step *step = &r->plan->steps[s];
        for (uint32_t i = 0; i < step->tile_count; i++) {
            const struct plan_tile *tile = &r->plan->tiles[step->tile_first + i];
            if (!tile->pinned) {
                read_window(r, tile->file, tile->offset_bytes, tile->window_bytes);
            }
        }
        if (step->kind == STEP_ROUTE && r->plan->cache_slots == 0) {
            read_experts(r, model, step->layer, &rng);
        }
    }
    while (io_in_flight(r->io) > 0) {
        io_run(r->io, IO_WAIT_FOREVER);
    }
    return (double)(nondet_now_ns() - begun) / 1e9;
}

static void open_reader(struct reader *r, const struct engine *e, struct io_files *files)
{
    const struct model *model = engine_model(e);
    const char **paths = calloc(model->file_count, sizeof *paths);
    for (uint32_t i = 0; i < model->file_count; i++) {
        paths[i] = model->files[i].path;
    }
    if (io_files_open(files, paths, NULL, model->file_count) < 0) {
        die("files");
    }
    free(paths);
    r->plan = engine_plan_of(e);
    r->depth = r->plan->request.io_depth;
    struct io_options o = {.engine = IO_URING, .depth = r->depth, .buffer_count = 1};
    if (io_open(&r->io, &o, files) < 0) {
        die("ring");
    }
    r->req = calloc(r->depth, sizeof *r->req);
    r->busy = calloc(r->depth, sizeof *r->busy);
    unsigned char *raw = mmap(NULL, BUFFER_BYTES + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    r->buffer = (unsigned char *)align_up((uint64_t)(uintptr_t)raw, HUGE_PAGE_BYTES);
    madvise(r->buffer, BUFFER_BYTES, MADV_HUGEPAGE);
    memset(r->buffer, 1, BUFFER_BYTES);
    r->fixed = io_register_buffer(r->io, 0, r->buffer, BUFFER_BYTES) == 0;
}

struct row {
    double streamed, reads, compute;
    uint64_t bytes;
};

static void measure(const char *dir, const struct budget *b, double compute, int repeats,
                    struct row *row)
{
    struct engine_options o = options_for(b);
    struct engine *e;
    struct reader r = {0};
    struct io_files files;
    double token[REPEATS_MAX];
    double reads[REPEATS_MAX];
    if (engine_open(&e, dir, &o) < 0) {
        die(b->name);
    }
    open_reader(&r, e, &files);
    streamed(e, &row->bytes); /* loads the pins */
    for (int i = 0; i < repeats; i++) {
        token[i] = streamed(e, &row->bytes);
        reads[i] = b->all ? 0 : reads_alone(&r, engine_model(e));
    }
    row->streamed = median(token, repeats);
    row->reads = median(reads, repeats);
    row->compute = b->all ? row->streamed : compute;
    io_close(r.io);
    io_files_close(&files);
    free(r.req);
    free(r.busy);
    engine_close(e);
}

static void write_json(const char *path, const struct row *rows, int repeats)
{
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        return;
    }
    fprintf(out, "{\"repeats\": %d, \"tokens_per_run\": %u, \"rows\": [", repeats, TOKENS_PER_RUN);
    for (size_t i = 0; i < countof(budgets); i++) {
        fprintf(out, "%s{\"ram\": \"%s\", \"streamed_s\": %.4f, \"reads_alone_s\": %.4f, "
                "\"compute_alone_s\": %.4f, \"bytes_per_token\": %llu}", i > 0 ? ", " : "",
                budgets[i].name, rows[i].streamed, rows[i].reads, rows[i].compute,
                (unsigned long long)rows[i].bytes);
    }
    fprintf(out, "]}\n");
    fclose(out);
}

int main(int argc, char **argv)
{
    const char *dir = NULL;
    const char *json = NULL;
    int repeats = 5;
    struct row rows[countof(budgets)] = {0};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            repeats = 3;
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json = argv[++i];
        } else {
            dir = argv[i];
        }
    }
    if (dir == NULL) {
        fprintf(stderr, "usage: pipeline_bench MODEL [--quick] [--json FILE]\n");
        return 2;
    }
    for (size_t i = countof(budgets); i-- > 0;) {
        measure(dir, &budgets[i], rows[countof(budgets) - 1].streamed, repeats, &rows[i]);
    }
    printf("%-6s %12s %12s %12s %14s %18s\n", "ram", "s/token", "reads alone", "compute",
           "MB per token", "s/token : larger");
    for (size_t i = 0; i < countof(budgets); i++) {
        double larger = rows[i].reads > rows[i].compute ? rows[i].reads : rows[i].compute;
        printf("%-6s %12.3f %12.3f %12.3f %14.1f %18.3f\n", budgets[i].name, rows[i].streamed,
               rows[i].reads, rows[i].compute, (double)rows[i].bytes / 1e6,
               rows[i].streamed / larger);
    }
    if (json != NULL) {
        write_json(json, rows, repeats);
    }
    return 0;
}
