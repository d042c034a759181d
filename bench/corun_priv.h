/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_CORUN_PRIV_H
#define BENCH_CORUN_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "bench/corun.h"
#include "io/io.h"
#include "kernels/kernels.h"

#define CORUN_PINS_MAX (512 * MIB)
#define CORUN_THREADS_MAX 256

enum item_kind { ITEM_BF16, ITEM_ROUTER, ITEM_KV_B, ITEM_KDA, ITEM_EXPERT };

/* One task's kernel calls. */
struct item {
    enum item_kind kind;
    uint32_t rows, cols;      /* kv_b: heads in rows; KDA: heads in rows */
    const unsigned char *w;
    float *state;             /* KDA */
};

struct computer {
    struct corun *corun;
    pthread_t thread;
    float *y;                 /* this worker's outputs */
};

struct corun {
    const struct model *model;
    const struct plan *plan;
    const struct kernels *kernels;
    uint32_t threads;
    bool cached_experts;
    /* reads */
    struct io_files files;
    struct io *io;
    struct io_req *req;
    struct io_req **free_req;
    uint32_t free_count, slot_next;
    uint64_t ring_at, read_bytes;
    int read_error;
    bool fixed;
    struct rng *draw;
    uint16_t *drawn;          /* [experts]: scratch of a draw without repetition */
    /* memory: ring | slots | pins */
    unsigned char *map, *ring, *slots, *pins;
    uint64_t map_bytes, ring_bytes, pins_bytes;
    uint32_t slot_count;
    /* compute */
    struct item *item;
    uint32_t item_count;
    float *x, *kda;
    struct computer *computer;
    _Atomic uint64_t next;
    _Atomic uint32_t go;
    uint64_t total;
};

/* Places a tile of the ring: the same rule for reads and kernels. */
static inline unsigned char *corun_ring_take(const struct corun *c, uint64_t *at, uint64_t bytes)
{
    if (*at + bytes > c->ring_bytes) {
        *at = 0;
    }
    unsigned char *place = c->ring + *at;
    *at += bytes;
    return place;
}

int corun_list(struct corun *c);                    /* items of a token */
void corun_compute(struct corun *c, float *y);      /* until all items of the run are taken */
uint64_t corun_y_floats(const struct corun *c);     /* outputs one worker needs */

#endif
