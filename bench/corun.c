/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/corun.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/corun_priv.h"
#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/exec/engine.h"

/* ---- reads ---- */

static void read_done(struct io_req *req)
{
    struct corun *c = req->owner;
    if (req->res < 0) {
        c->read_error = -req->res;
    }
    c->free_req[c->free_count++] = req;
}

static int read_window(struct corun *c, uint32_t file, uint64_t offset, uint64_t size,
                       unsigned char *target)
{
    while (size > 0) {
        uint64_t piece = min_u64(size, c->plan->io_size_bytes);
        while (io_room(c->io) == 0 || c->free_count == 0) {
            TRY(io_run(c->io, IO_WAIT_FOREVER));
        }
        struct io_req *req = c->free_req[--c->free_count];
        *req = (struct io_req){.offset_bytes = offset, .size_bytes = (uint32_t)piece,
                               .file = file, .target = target,
                               .buffer = c->fixed ? 0 : IO_NO_BUFFER, .done = read_done,
                               .owner = c};
        io_read(c->io, req);
        c->read_bytes += piece;
        target += piece;
        offset += piece;
        size -= piece;
    }
    return 0;
}

static int read_expert(struct corun *c, uint32_t layer, uint32_t expert)
{
    struct extent extents[EXPERT_PARTS];
    uint32_t part_at[EXPERT_PARTS];
    uint32_t count = model_expert_extents(c->model, layer, expert, extents, part_at);
    unsigned char *target = c->slots + c->slot_next++ % c->slot_count * c->plan->slot_bytes;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t begin = align_down(extents[i].offset_bytes, PAGE_BYTES);
        uint64_t end = align_up(extents[i].offset_bytes + extents[i].size_bytes, PAGE_BYTES);
        TRY(read_window(c, extents[i].file, begin, end - begin, target));
        target += end - begin;
    }
    return 0;
}

/* A layer's draw: the first k of a seeded shuffle. */
static int read_experts(struct corun *c, uint32_t layer)
{
    const struct model_config *m = &c->model->config;
    for (uint32_t i = 0; i < m->experts; i++) {
        c->drawn[i] = (uint16_t)i;
    }
    for (uint32_t i = 0; i < m->experts_per_token; i++) {
        uint32_t other = i + (uint32_t)rng_below(c->draw, m->experts - i);
        uint16_t expert = c->drawn[other];
        c->drawn[other] = c->drawn[i];
        TRY(read_expert(c, layer, expert));
    }
    return 0;
}

static int read_token(struct corun *c)
{
    const struct plan *p = c->plan;
    for (uint32_t s = 0; s < p->step_count; s++) {
        const struct plan_step *step = &p->steps[s];
        for (uint32_t i = 0; i < step->tile_count; i++) {
            const struct plan_tile *tile = &p->tiles[step->tile_first + i];
            if (!tile->pinned) {
                TRY(read_window(c, tile->file, tile->offset_bytes, tile->window_bytes,
                                corun_ring_take(c, &c->ring_at, tile->window_bytes)));
            }
        }
        if (step->kind == STEP_ROUTE && !c->cached_experts) {
            TRY(read_experts(c, step->layer));
        }
    }
    return 0;
}

static int read_all(struct corun *c, uint32_t tokens)
{
    for (uint32_t t = 0; t < tokens; t++) {
        c->ring_at = 0;
        TRY(read_token(c));
    }
    while (io_in_flight(c->io) > 0) {
        TRY(io_run(c->io, IO_WAIT_FOREVER));
    }
    return c->read_error == 0 ? 0 : err_set(ERR_IO, "a read failed: %s", strerror(c->read_error));
}

/* ---- both ---- */

static void *computer_main(void *argument)
{
    struct computer *me = argument;
    kernels_thread_init();
    while (!atomic_load(&me->corun->go)) {
        __builtin_ia32_pause();
    }
    corun_compute(me->corun, me->y);
    return NULL;
}

static int start_computers(struct corun *c, uint32_t *started)
{
    atomic_store(&c->go, 0);
    for (*started = 0; *started < c->threads; (*started)++) {
        struct computer *computer = &c->computer[*started];
        if (pthread_create(&computer->thread, NULL, computer_main, computer) != 0) {
            return err_set(ERR_MEMORY, "the system refused a thread");
        }
    }
    return 0;
}

int corun_run(struct corun *c, enum corun_half what, uint32_t tokens, double *seconds,
              uint64_t *bytes)
{
    uint32_t started = 0;
    int rc = 0;
    atomic_store(&c->next, 0);
    c->total = (uint64_t)tokens * c->item_count;
    c->read_bytes = 0;
    if (what & CORUN_COMPUTE) {
        rc = start_computers(c, &started);
    }
    uint64_t begun = nondet_now_ns();
    atomic_store(&c->go, 1);
    if (rc == 0 && (what & CORUN_READS)) {
        rc = read_all(c, tokens);
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(c->computer[i].thread, NULL);
    }
    *seconds = (double)(nondet_now_ns() - begun) / 1e9;
    *bytes = c->read_bytes;
    return rc;
}

/* ---- opening ---- */

static int open_ring(struct corun *c)
{
    uint32_t depth = c->plan->request.io_depth;
    struct io_options o = {.engine = IO_URING, .depth = depth, .buffer_count = 1};
    TRY(engine_open_files(c->model, &c->files));
    TRY(io_open(&c->io, &o, &c->files));
    c->fixed = io_register_buffer(c->io, 0, c->ring, (uint64_t)(c->pins - c->ring)) == 0;
    for (uint32_t i = 0; i < depth; i++) {
        c->free_req[c->free_count++] = &c->req[i];
    }
    return 0;
}

/* Patterned weights: small finite numbers in bf16 and MXFP4 alike. */
static void fill(unsigned char *at, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++) {
        at[i] = i % 2 == 0 ? (unsigned char)(i / 2) : 0x3C;
    }
}

static int open_memory(struct corun *c)
{
    const struct plan *p = c->plan;
    c->ring_bytes = max_u64(p->ring_bytes, p->tile_window_max);
    c->slot_count = p->working_slots > 0 ? p->working_slots : 1;
    c->pins_bytes = max_u64(min_u64(p->pin_area_bytes, CORUN_PINS_MAX),
                            max_u64(p->tile_window_max, p->slot_bytes));
    if (c->cached_experts) {
        c->pins_bytes = CORUN_PINS_MAX;
    }
    uint64_t reads = align_up(c->ring_bytes + c->slot_count * p->slot_bytes, HUGE_PAGE_BYTES);
    c->map_bytes = reads + c->pins_bytes + HUGE_PAGE_BYTES;
    void *map = mmap(NULL, c->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                     0);
    if (map == MAP_FAILED) {
        return err_set(ERR_MEMORY, "no memory for %llu bytes of buffers",
                       (unsigned long long)c->map_bytes);
    }
    c->map = map;
    c->ring = (unsigned char *)align_up((uintptr_t)map, HUGE_PAGE_BYTES);
    c->slots = c->ring + c->ring_bytes;
    c->pins = c->ring + reads;
    madvise(c->ring, reads + c->pins_bytes, MADV_HUGEPAGE);
    fill(c->ring, reads + c->pins_bytes);
    return 0;
}

static uint32_t kda_layers(const struct model_config *m)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < m->layers; i++) {
        count += !m->is_mla[i];
    }
    return count;
}

static int open_vectors(struct corun *c)
{
    const struct model_config *m = &c->model->config;
    uint64_t states = (uint64_t)kda_layers(m) * m->kda_heads * m->kda_dim * m->kda_dim;
    uint64_t x = 0;
    for (uint32_t i = 0; i < m->layers * (uint32_t)T_LAYER_COUNT; i++) {
        x = max_u64(x, c->model->tensors[i].cols);
    }
    x = max_u64(x, 4ULL * m->kda_dim + m->hidden);
    c->x = malloc(x * sizeof *c->x);
    c->kda = malloc((states + 1) * sizeof *c->kda);
    c->computer = calloc(c->threads, sizeof *c->computer);
    c->req = calloc(c->plan->request.io_depth, sizeof *c->req);
    c->free_req = calloc(c->plan->request.io_depth, sizeof *c->free_req);
    c->drawn = calloc(m->experts + 1ULL, sizeof *c->drawn);
    c->draw = malloc(sizeof *c->draw);
    bool good = c->x && c->kda && c->computer && c->req && c->free_req && c->drawn && c->draw;
    for (uint32_t i = 0; good && i < c->threads; i++) {
        c->computer[i].corun = c;
        c->computer[i].y = malloc(corun_y_floats(c) * sizeof(float));
        good = c->computer[i].y != NULL;
    }
    if (!good) {
        return err_set(ERR_MEMORY, "no memory for vectors");
    }
    for (uint64_t i = 0; i < x; i++) {
        c->x[i] = 0.25f + (float)(i % 64) / 128.0f;
    }
    for (uint64_t i = 0; i < states; i++) {
        c->kda[i] = 0.125f;
    }
    *c->draw = rng_seed(1);
    return 0;
}

int corun_open(struct corun **out, const struct model *model, const struct plan *plan,
               uint32_t threads, bool cached_experts)
{
    struct corun *c = calloc(1, sizeof *c);
    *out = NULL;
    if (c == NULL || threads > CORUN_THREADS_MAX) {
        free(c);
        return err_set(ERR_MEMORY, "no memory for a co-run of %u threads", threads);
    }
    c->model = model;
    c->plan = plan;
    c->threads = threads;
    c->cached_experts = cached_experts;
    c->kernels = kernels_select(ISA_AUTO);
    int rc = open_vectors(c);
    rc = rc < 0 ? rc : open_memory(c);
    rc = rc < 0 ? rc : open_ring(c);
    rc = rc < 0 ? rc : corun_list(c);
    if (rc < 0) {
        corun_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void corun_close(struct corun *c)
{
    if (c == NULL) {
        return;
    }
    io_close(c->io);
    io_files_close(&c->files);
    for (uint32_t i = 0; c->computer != NULL && i < c->threads; i++) {
        free(c->computer[i].y);
    }
    if (c->map != NULL) {
        munmap(c->map, c->map_bytes);
    }
    free(c->computer);
    free(c->req);
    free(c->free_req);
    free(c->drawn);
    free(c->draw);
    free(c->x);
    free(c->kda);
    free(c->item);
    free(c);
}
