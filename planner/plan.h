/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLANNER_PLAN_H
#define PLANNER_PLAN_H

/* The compiled pass: the order of steps, the tiles they read, what is pinned, and how the RAM is
 * split. A pure function of (geometry, extents, budget, depth, sizes, tokens): no I/O, no clock.
 *
 * A step is one stage of one layer. A matrix step is cut in tiles, blocks of whole rows; each is
 * read, waited for and computed on its own. Other steps work on activations. The expert step is
 * open: which experts it reads is known when the router has run. Steps appear in walk order, and
 * a step depends only on earlier steps. */

#include "core/model/pack.h"
#include "planner/activations.h"

enum step_kind {
    STEP_EMBED,       /* embedding rows -> prefix; reads rows, not tiles */
    STEP_ATTN_IN,     /* close the layer before; AttnRes, norm -> normed */
    STEP_MATRIX,      /* y = W x by tiles */
    STEP_KDA,         /* convolution, decay, recurrence, norm, gate; by heads */
    STEP_MLA_LATENT,  /* q_a and kv_a norms; appends to the cache */
    STEP_KV_B,        /* attention by tiles of whole heads */
    STEP_MLP_IN,      /* close attention; AttnRes, norm -> normed */
    STEP_SITU,        /* gate and up -> activation */
    STEP_ROUTE,       /* router logits -> demand */
    STEP_SPLIT,       /* latent -> the experts' input layout */
    STEP_EXPERTS,     /* open */
    STEP_EXPERT_SUM,  /* in router order, then the latent norm */
    STEP_HEAD_IN,     /* close the last layer; final AttnRes and norm */
    STEP_HEAD         /* lm_head by tiles; only in passes that want logits */
};

#define STEP_DEPS_MAX 6
#define NO_STEP UINT32_MAX

struct plan_step {
    enum step_kind kind;
    uint32_t layer;            /* UINT32_MAX for embed and head */
    enum tensor_id tensor;     /* of matrix steps */
    uint32_t tile_first, tile_count;
    uint32_t dep[STEP_DEPS_MAX];
    uint32_t dep_count;
};

struct plan_tile {
    uint64_t offset_bytes;     /* of the aligned window in the file */
    uint64_t pin_offset_bytes; /* in the pin area, when pinned */
    uint32_t window_bytes;     /* multiple of PAGE_BYTES */
    uint32_t skip_bytes;       /* from window start to the first weight */
    uint32_t payload_bytes;    /* as stored: of a coded tile less than its rows have as bf16 */
    uint32_t file;
    uint32_t step;
    uint32_t row_first, row_count;
    bool pinned;
    bool coded;                /* kernels/packed.h */
};

#define PLAN_AUTO UINT64_MAX
#define PLAN_ALL (UINT64_MAX - 1)
#define PLAN_WORKING_SLOTS 4
#define PLAN_ROWS_ALL UINT32_MAX
#define PLAN_CHUNK_AUTO_MAX 512 /* tokens; larger chunks only when asked for */

/* Which tiles a budget of pins buys. */
enum plan_pin_order {
    PIN_SPREAD,                /* evenly over the walk */
    PIN_PREFIX                 /* the first ones of the walk */
};

struct plan_request {
    uint64_t ram_bytes;
    const char *ram_limit;     /* what allows no more, where nobody gave it; or NULL */
    uint64_t io_size_bytes;    /* largest request, multiple of PAGE_BYTES */
    uint32_t io_depth;         /* on each device */
    uint32_t devices;          /* the model's files lie on; 0 counts as 1 */
    uint64_t ahead_bytes;      /* the ring's wish even where less is in flight; 0 = none */
    uint32_t workers;
    uint64_t tile_bytes;       /* or PLAN_AUTO */
    uint64_t pin_bytes;        /* or PLAN_AUTO, PLAN_ALL */
    double pin_percent;        /* >= 0 overrides pin_bytes */
    enum plan_pin_order pin_order;
    uint64_t expert_slots;     /* beyond the working ones; or PLAN_AUTO, PLAN_ALL */
    uint32_t context;          /* positions */
    uint64_t chunk;            /* tokens per prompt pass, or PLAN_AUTO */
    uint32_t prompt_tokens;    /* chunk auto is never larger, but for tokens_min */
    uint32_t tokens_min;       /* a pass must have room for these; this and the next two: 0 is 1 */
    uint32_t sequences;        /* states kept side by side */
    uint32_t head_rows;        /* tokens of a pass that may want logits; or PLAN_ROWS_ALL, which a
                                  built plan has made the chunk */
    uint32_t drafts;           /* tokens a pass may try without keeping them */
    uint64_t routing_token_bytes; /* what is noted of the routing of a pass's token */
    bool sums;                 /* sums of pages are read with what they cover */
    uint32_t check_tiles;      /* tiles being compared at once; with sums, memory for each */
    uint32_t check_experts;    /* the same of experts */
    uint64_t index_bytes;      /* what the open model keeps */
    uint64_t cache_base_bytes; /* heap of the cache without slots */
    uint64_t cache_slot_bytes; /* heap of the cache per slot */
    uint64_t reserve_bytes;    /* code, libraries, stacks, allocator */
    uint64_t pin_slice_bytes;
};

/* Everything that will be resident, in bytes. */
struct plan_account {
    uint64_t reserve, index, schedule, small, state, kv, drafts, routing, activations, scratch,
        rows, sums, ring, working, cached, cache_heap, pins;
    uint64_t total;
};

/* Bytes of one class of weights in a pass with logits. */
struct plan_traffic {
    uint64_t tiles, payload_bytes, window_bytes;
    uint64_t pinned_tiles, pinned_bytes;     /* windows */
    uint64_t streamed_tiles, streamed_bytes, streamed_payload_bytes, requests;
};

enum traffic_kind { TRAFFIC_KDA, TRAFFIC_MLA, TRAFFIC_DENSE, TRAFFIC_MOE, TRAFFIC_HEAD,
                    TRAFFIC_KINDS };

struct plan {
    struct plan_request request;
    struct plan_step *steps;
    uint32_t step_count;
    struct plan_tile *tiles;
    uint32_t tile_count;
    uint32_t head_tile_first;   /* tiles from here on are lm_head's */
    struct activations activations;
    struct scratch scratch;
    struct plan_account account;
    struct plan_traffic traffic[TRAFFIC_KINDS];
    uint64_t floor_bytes;       /* smallest ram that this request fits in */
    uint64_t page_tables_bytes; /* of the RAM, left to the kernel's; not resident, not in account */
    /* in force */
    uint64_t tile_bytes, io_size_bytes, ring_bytes, tile_window_max;
    uint64_t slot_bytes;        /* largest sum of aligned windows of any expert; 0 = no experts */
    uint32_t working_slots, cache_slots;
    uint64_t sums_row_bytes, sums_tile_bytes, sums_expert_bytes; /* most that sums of one take */
    uint64_t row_window_bytes;  /* most an embedding row's window takes */
    uint64_t pin_area_bytes;    /* pins with their padding */
    uint32_t chunk;
    uint32_t experts_per_pass;  /* routed experts one token demands */
    uint64_t expert_window_bytes; /* sum of windows of the largest expert, which stands for all */
    uint64_t expert_payload_bytes;
    uint32_t expert_requests;   /* reads per expert */
};

/* ERR_FIT with the two numbers and the cure when the request does not fit; ERR_USAGE when an
 * override is impossible. The plan is owned by the caller: plan_free. */
int plan_build(const struct model *model, const struct plan_request *request, struct plan **out);
void plan_free(struct plan *plan);

/* Steps and tiles alone, nothing pinned and no RAM split: what a packer goes through. tile_bytes
 * or PLAN_AUTO. Free with plan_free(). ERR_MEMORY. */
int plan_walk(const struct model *model, uint64_t tile_bytes, struct plan **out);

/* Asserts what execution relies on: order, coverage of every row once, no tile across a slice. */
void plan_check(const struct plan *plan, const struct model *model);

/* Streamed bytes (aligned windows) and requests of a pass with or without logits; the first pass
 * also loads the pins. Experts and embedding rows not included. */
void plan_pass_reads(const struct plan *plan, bool first, bool first_head, bool head,
                     uint64_t *bytes, uint64_t *requests);

/* Tiles the ring can hold at most. */
uint32_t plan_ring_tiles(const struct plan *plan);

/* Reads a window of bytes is cut into. */
uint64_t plan_requests_of(const struct plan *plan, uint64_t window_bytes);

/* What the drive and the cores make of a pass. Zero rates leave times out. */
struct plan_rates {
    double device_gbps, compute_gbps; /* 1e9 bytes of weights per second */
};

struct cJSON;
void plan_explain(const struct plan *plan, const struct model *model,
                  const struct plan_rates *rates, char *text, size_t capacity);
struct cJSON *plan_json(const struct plan *plan, const struct model *model,
                        const struct plan_rates *rates);

#endif
