/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_PRIV_H
#define EXEC_PRIV_H

/* The engine's inside. Who writes what:
 *
 *   caller's thread  starts and ends passes; resets steps between them
 *   I/O thread       struct fetch, the slab's ring and slots, the cache; tile->data, arrivals
 *   workers          activations; finish tiles, experts and steps
 *   pages threads    make slices of pins and slots present, nothing else
 *
 * A task becomes ready when its counter `pending` reaches zero: one count for its data (none for
 * data already in place), one for its step's inputs. Whoever counts it down to zero pushes it.
 *
 *   tile:  IDLE --fetch begins--> BUSY --last read arrives, step active--> (queued, computed)
 *          --worker finishes--> IDLE (pinned tiles stay loaded: only the step's count remains)
 */

#include <pthread.h>
#include <stdatomic.h>

#include "cache/cache.h"
#include "cache/slab.h"
#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/exec/checks.h"
#include "core/exec/crew.h"
#include "core/exec/engine.h"
#include "core/exec/queue.h"
#include "kernels/kernels.h"

enum task_kind { TASK_TILE, TASK_PART, TASK_EXPERT, TASK_EXPERT_HIDDEN, TASK_CHECK_TILE,
                 TASK_CHECK_EXPERT };

/* kind in the top byte, then step (28 bits), then index (28 bits). An expert's index is its number
 * in the batch and, from bit 16 on, the part of its rows. */
static inline uint64_t task_make(enum task_kind kind, uint32_t step, uint32_t index)
{
    assert(step < 1U << 28 && index < 1U << 28);
    return (uint64_t)kind << 56 | (uint64_t)step << 28 | index;
}

static inline enum task_kind task_kind(uint64_t task)
{
    return (enum task_kind)(task >> 56);
}

static inline uint32_t task_step(uint64_t task)
{
    return (uint32_t)(task >> 28) & 0x0FFFFFFFU;
}

/* The I/O thread may still look at the pass that has just ended when the next is announced, which
 * says what the one after it is. No pass is made without the I/O thread, so it lags no more. */
#define PASS_SLOTS 4U

struct tile_run {
    _Atomic uint32_t pending;
    _Atomic uint32_t busy;     /* data or a read of it is outstanding */
    const unsigned char *data; /* first weight; written before the data's count is taken */
    uint32_t requests_left;    /* fetch only */
    uint32_t ticket;           /* of its check, while that is on the way */
    bool loaded;               /* fetch only: a pinned tile is in place */
};

struct step_run {
    _Atomic uint32_t deps_left;
    _Atomic uint32_t tasks_left;
    uint32_t succ_first, succ_count; /* into engine.succ */
};

/* One distinct expert of the batch being served. Cut in parts, it is first the parts' rows of gate
 * and up, then, when all of those are there, the parts' rows of down. */
struct expert_run {
    _Atomic uint32_t pending;
    _Atomic uint32_t parts_left; /* of the present stage */
    _Atomic uint32_t done;     /* computed for all its tokens */
    uint32_t expert, slot;
    bool hit, keep, retired;
    uint32_t requests_left;    /* fetch only */
    uint32_t ticket;           /* of its check, while that is on the way */
    uint32_t use_first, use_count; /* into batch.use */
    const unsigned char *part[EXPERT_PARTS];
};

struct expert_use {
    uint32_t token, rank;
};

struct batch {
    uint32_t layer, step, tokens;
    uint32_t parts;            /* tasks of an expert per stage; 1 = the expert is one task */
    struct expert_run *run;    /* [capacity] */
    uint32_t count, retired;
    struct expert_use *use;    /* [tokens * k] */
    uint32_t *use_at;          /* fetch's scratch, [experts] */
    _Atomic uint32_t done_count;
    bool open;                 /* fetch only: not every expert is retired */
};

/* One request in flight. */
struct fetch_req {
    struct io_req req;
    struct engine *engine;
    enum read_class class;
    bool flying;
    uint32_t index;            /* tile, expert_run or row */
    uint64_t payload_bytes, begun_ns;
    struct fetch_req *next;    /* free list */
};

/* A tile in the ring, oldest first. */
struct ring_item {
    uint32_t tile, entry;
};

struct fetch {
    struct fetch_req *pool, *free;
    uint32_t requests;         /* of the pool */
    uint64_t answered_ns;      /* when a read last ended, or none was in flight */
    bool silence_told;
    bool fixed;                /* registered buffers hold */
    bool *slice_known;         /* a slice was registered (or need not be) */
    uint32_t slices_known;
    /* trunk cursor */
    uint32_t pass, tile;
    uint64_t tile_done_bytes;  /* of the window already asked for */
    unsigned char *tile_target;
    bool tile_begun, tile_sums; /* tile_sums: its sums have not been asked for */
    /* ring, in order */
    struct ring_item *ring;
    uint32_t ring_head, ring_count, ring_capacity;
    /* experts */
    uint32_t expert_next;      /* next of the batch to begin */
    bool expert_begun;
    struct extent extent[EXPERT_PARTS]; /* aligned windows */
    uint32_t extent_count, extent_at;
    uint64_t extent_done_bytes;
    bool extent_sums;          /* sums of this window have not been asked for */
    unsigned char *extent_target;
    /* rows */
    uint32_t row_next, rows_left, rows_total;
    bool drain;                /* the sequence is over: issue nothing */
    struct histogram latency[READ_CLASSES];
};

enum { WORKER_WORKS = STALL_CAUSES, WORKER_RESTS, WORKER_DOINGS };

/* One alone makes pages more slowly than a drive reads. */
#define PAGES_THREADS 2U

/* Slices of the slab that are not present yet. */
struct pages {
    uint32_t slot_end, pin_end;    /* slices of slots come before those of pins */
    _Atomic uint32_t slot_next, pin_next;
    _Atomic uint32_t slots_begun;  /* slots that are present or being made so */
    _Atomic uint32_t slots_touched; /* from here on none was ever taken */
    _Atomic uint32_t left;         /* slices */
    pthread_t thread[PAGES_THREADS];
    uint32_t threads;              /* started */
};

struct worker {
    struct engine *engine;
    uint32_t index;            /* rests while it is not below engine.active_workers */
    pthread_t thread;
    float *scratch;
    uint64_t held;             /* stepped mode: popped, not yet run */
    bool holds;
    /* Time inside passes by what was done with it: it waited for a cause, or one of these. */
    _Atomic uint64_t spent_ns[WORKER_DOINGS], since_ns;
    _Atomic uint32_t doing;    /* since since_ns */
    const uint64_t *allocated; /* the allocator's counter of this thread */
};

/* Small tensors of a layer, widened to f32, resident for good. */
struct layer_small {
    float *input_norm, *post_norm;
    float *attn_fold, *mlp_fold;      /* norm * proj of the two AttnRes mixtures */
    float *conv[3];                   /* [width][taps] of q, k, v */
    float *exp_a, *dt_bias, *o_norm;
    float *q_a_norm, *kv_a_norm;
    float *router_bias, *latent_norm;
};

/* State of the sequences, one after the other: f32, sizes of activations.h. */
struct sequence_state {
    float *kda;       /* per KDA layer: [heads][d][d], then conv [3][heads][taps-1][d] */
    float *kv;        /* per MLA layer: [context][kv_lora + rope] */
    float *drafts;    /* per drafted token and KDA layer: conv inputs q, k, v, alpha, beta */
    uint64_t kda_floats, kv_floats;          /* of one sequence */
    uint64_t kda_bytes, kv_bytes, drafts_bytes; /* mapped */
    uint64_t *layer_offset; /* floats into kda or kv of a sequence */
    uint32_t *populated;    /* [sequences] positions of kv whose pages are present */
};

struct engine {
    struct engine_options options;
    struct model *model;
    struct plan *plan;
    const struct kernels *kernels;
    struct slab *slab;
    struct cache *cache;
    struct io_files files;
    struct io *io;                 /* the I/O thread's */
    struct layer_small *small;     /* [layers] */
    float *final_norm, *final_fold;
    float *small_block;
    uint64_t small_floats;         /* of them used */
    struct sequence_state state;
    unsigned char *arena;          /* activations */
    float *head_x, *logits;
    float *scratch_block;

    struct tile_run *tile;
    struct step_run *step;
    uint32_t *succ;
    struct queue ready;
    struct gate work_gate, pass_gate, rest_gate;
    struct batch batch;
    struct fetch fetch;
    struct checks checks;
    struct worker *workers;
    uint32_t worker_count;
    struct crew crew;              /* the caller's thread's */
    _Atomic uint32_t active_workers;
    /* Time inside passes, all together, in one word, so that no thread sees half of a change:
     * twice the sum between passes; while one runs, twice the moment the clock stood at zero, and
     * one. pass_clock_ns() reads it. */
    _Atomic uint64_t pass_clock;
    uint64_t passes_ns;            /* the sum when the last pass ended; the caller's thread's */
    uint64_t active_ns;            /* the same times the workers of each */
    uint64_t pass_begun_bytes;
    pthread_t io_thread;
    bool io_started;
    struct pages pages;
    const uint64_t *io_allocated, *caller_allocated;

    /* the pass */
    uint32_t tokens;
    struct engine_token *token;    /* [chunk] */
    _Atomic uint32_t *fault;       /* [chunk] 0, or what was not finite: see engine_token_fault */
    uint32_t draft_first;          /* tokens from here on are drafted */
    uint32_t replay;               /* accepted drafts of the pass before, to be put in the state */
    uint32_t replay_sequence;      /* of this sequence */
    uint32_t *logits_of;           /* [head_rows] */
    uint32_t logits_count;
    uint16_t *route_ids;           /* [chunk][k] of the layer being routed */
    bool head, isolate;            /* lm_head passes by; faults end a sequence only */
    float *layer_max;              /* [layers] */
    _Atomic uint32_t *layer_peaks; /* [layers] bits of floats that are not negative: they sort */
    float *layer_peak;             /* [layers] the same, for who asks */
    uint16_t *trace_ids;           /* [layers][k] */
    float *trace_weights;
    uint32_t noted_width;          /* experts noted of each token and MoE layer; 0 = none */
    uint16_t *noted_ids;           /* [chunk][MoE layers][noted_width] */
    float *noted_scores;           /* the same, or NULL */
    /* announced by the caller's thread, read by the I/O thread */
    _Atomic uint32_t passes_total, pass_now;
    _Atomic uint32_t pass_head[PASS_SLOTS]; /* of pass p at p % slots: lm_head passes by */
    uint32_t passes_made, passes_expected;
    bool begun;
    /* sequence 0 */
    uint32_t position;             /* positions its state holds, with those to be replayed */
    bool torn;                     /* a pass began to change it and did not end well */
    uint32_t prompt_left, steps_left; /* of engine_begin and engine_resume */
    /* mailboxes to the I/O thread */
    _Atomic uint32_t rows_wanted;  /* 1 = a pass waits for its rows */
    _Atomic uint32_t demand_step;  /* STEP_EXPERTS index + 1 of a routed layer; 0 = none */
    _Atomic uint32_t drain_wanted, drained, threads_ready, io_stop, ring_dead;
    _Atomic uint32_t stuck;        /* reads never ended: nothing they touch may be freed */
    _Atomic uint32_t wants_room;   /* I/O thread would read more if tiles were freed ... */
    _Atomic uint32_t wants_slot;   /* ... or experts of the batch computed ... */
    _Atomic uint32_t ring_awaited; /* ... and this one was the last: memory returns in order */
    _Atomic uint32_t waits_pages;  /* ... if a pin slice were present */
    _Atomic uint32_t slot_waits_pages; /* ... if the slice of the next slot were */
    _Atomic uint32_t in_flight[READ_CLASSES]; /* reads */
    _Atomic uint64_t in_flight_bytes, demands, hits; /* for who watches */
    _Atomic uint32_t pass_done, stop, interrupted;
    _Atomic uint32_t busy_workers, open_step;

    pthread_mutex_t error_lock;
    _Atomic int error;             /* first failure */
    char error_text[ERR_MESSAGE_BYTES];
    _Atomic uint64_t class_requests[READ_CLASSES], class_bytes[READ_CLASSES],
        class_payload[READ_CLASSES];
    uint64_t discarded_bytes, open_bytes, positions_made, passes_ever;
    uint64_t io_cpu_ns;            /* these five: copies the I/O thread makes when it drains */
    struct io_stats io_stats;
    struct histogram latency[READ_CLASSES];
    char io_features[128];
    char io_refused[ERR_MESSAGE_BYTES]; /* why pread serves in place of the ring, or "" */
    bool io_fixed;
    struct cache_stats cache_stats;
    struct rng rng;                /* stepped mode */
    uint64_t planned_bytes;
    void (*tick)(void *ctx, const struct engine_progress *p);
    void *tick_ctx;
    uint32_t journal_first;        /* of the batch being served; the I/O thread's */
};

/* engine.c */
void engine_fail(struct engine *e, int code, const char *text); /* first one wins; any thread */

/* pass.c: nothing of what the state of a sequence holds counts any more. */
void engine_forget(struct engine *e, uint32_t sequence);
/* Whether what the state of sequence 0 holds are whole positions; else why not. */
int state_usable(const struct engine *e);

/* pass.c: a value of a token is not finite after a layer (or in its router). */
enum fault_kind { FAULT_RESIDUAL = 1, FAULT_ROUTER = 2 };
void engine_token_fault(struct engine *e, uint32_t token, enum fault_kind kind, uint32_t layer);

/* pages.c: memory made present while the first pass goes by */
void pages_init(struct engine *e);                /* behind open_slab */
int pages_start(struct engine *e);                /* behind the I/O thread, which is woken */
bool pages_step(struct engine *e);                /* stepped mode: the next slice, if any */
void pages_touched(struct engine *e, uint32_t slot); /* the I/O thread has taken it */
void pages_stop(struct engine *e);

/* run.c: steps and tasks */
int run_init(struct engine *e);
void run_fini(struct engine *e);
void run_reset(struct engine *e);                 /* before a pass */
void run_step_input(struct engine *e, uint32_t step); /* one input of a step is there */
void run_tile_data(struct engine *e, uint32_t tile);  /* the data of a tile is there */
void run_expert_data(struct engine *e, uint32_t index);
void run_task(struct engine *e, struct worker *w, uint64_t task);

/* fetch_ring.c: its ring */
int fetch_open_ring(struct engine *e);            /* on the thread that will own it */
void fetch_close_ring(struct engine *e);
void fetch_register_slices(struct engine *e);     /* those that have become present */
void fetch_copy_figures(struct engine *e);        /* for reports; nobody reads them meanwhile */
void fetch_note(const struct engine *e, const char *line);

/* fetch.c, fetch_expert.c: the I/O thread */
int fetch_init(struct engine *e);
void fetch_fini(struct engine *e);
bool fetch_step(struct engine *e, bool may_wait); /* true when something moved */
void *fetch_thread(void *engine);
void fetch_issue(struct engine *e, enum read_class class, uint32_t index, uint32_t file,
                 uint64_t offset_bytes, uint64_t size_bytes, unsigned char *target,
                 uint64_t payload_bytes);
bool fetch_trunk_idles(struct engine *e);         /* never after a turn: the simulator asserts it */
bool expert_issue(struct engine *e);
bool expert_take_demand(struct engine *e);
bool expert_retire(struct engine *e);
void expert_arrived(struct engine *e, uint32_t index);

/* files.c */
/* Drives the files will lie on, as the ring will count them. */
uint32_t files_devices(const struct model *model, const struct engine_options *o);
/* Checks on the way at once: what is in flight, and what workers compare and are to compare. */
void files_ask_checks(const struct engine_options *o, bool experts, struct plan_request *r);
int files_open(const struct model *model, const struct page_sums *sums, struct io_files *files);

/* checks.c: checked reads; all of it does nothing, or says yes, when they are off */
int checks_open(struct engine *e);                /* behind model_open() */
int checks_place(struct engine *e);               /* behind slab_open() */
void checks_close(struct engine *e);
/* I/O thread: a ticket for a tile or an expert, which checks_room() has said there is. */
bool checks_room(const struct engine *e, bool expert);
uint32_t checks_take(struct engine *e, bool expert);
void checks_drop_tile(struct engine *e, uint32_t tile); /* begun, but never to be whole */
void checks_issue_tile(struct engine *e, enum read_class class, uint32_t tile);
void checks_issue_expert(struct engine *e, uint32_t index, const struct extent *windows,
                         uint32_t number);        /* sums of windows[number] */
void checks_issue_row(struct engine *e, uint32_t token, struct extent window);
void checks_tile_data(struct engine *e, uint32_t tile);     /* all of it has come */
void checks_expert_data(struct engine *e, uint32_t index);
/* Workers. */
void checks_task(struct engine *e, enum task_kind kind, uint32_t index);
bool checks_row(struct engine *e, struct extent row, uint32_t token, const unsigned char *bytes);
/* Reads a small tensor into room, which has two pages more than that takes; *raw: where it is. */
int checks_read_small(struct engine *e, uint32_t layer, enum tensor_id id, unsigned char *room,
                      unsigned char **raw, void *bounce, uint64_t bounce_bytes);

/* Whether a piece of a pack has the checksum of its manifest; if not, the engine has failed. */
bool checks_compare_piece(struct engine *e, struct extent piece, const unsigned char *bytes,
                          uint64_t checksum);

/* checks_row.c: rows of packs. What they take of the heap; room for them, at open; comparing. */
uint64_t checks_row_bytes(const struct model *model, const struct engine_options *o);
int checks_place_row_tile(struct engine *e);
bool checks_packed_row(struct engine *e, struct extent row, const unsigned char *bytes);

static inline bool checks_with_sums(const struct engine *e)
{
    return e->checks.by == CHECKS_SUMS;
}

/* workers.c */
int workers_start(struct engine *e);
void workers_stop(struct engine *e);
void workers_notify(struct engine *e, uint32_t tasks);
void workers_spent(const struct engine *e, uint64_t spent_ns[WORKER_DOINGS]); /* all together */
void workers_activate(struct engine *e, uint32_t count); /* between passes */
void engine_pump(struct engine *e);               /* stepped mode: one seeded step */
const uint64_t *thread_allocated(void);

/* journal.c: all of them do nothing without a journal */
void journal_demand(struct engine *e);            /* the batch has been opened */
void journal_arrival(struct engine *e, uint32_t index);
/* The time when spans of this kind are wanted, else 0, which journal_end() takes for "no". */
uint64_t journal_begin(const struct engine *e, enum journal_spans wanted);
void journal_end(struct engine *e, const struct worker *w, uint64_t begun_ns, uint32_t step,
                 uint32_t doing);

/* compute.c, kda.c, mla.c, mlp.c: what tasks compute */
void compute_tile(struct engine *e, struct worker *w, uint32_t tile);
void compute_part(struct engine *e, struct worker *w, uint32_t step, uint32_t part);
void compute_expert(struct engine *e, struct worker *w, uint32_t index);
void compute_expert_hidden(struct engine *e, struct worker *w, uint32_t index, uint32_t part);
void compute_expert_down(struct engine *e, uint32_t index, uint32_t part);
uint32_t compute_expert_parts(const struct engine *e, uint32_t tokens);
uint32_t compute_parts(const struct engine *e, uint32_t step);
void compute_kv_b(struct engine *e, struct worker *w, uint32_t tile);
void compute_kda(struct engine *e, struct worker *w, uint32_t layer, uint32_t part);
void kda_settle(struct engine *e); /* accepted drafts into the state; between passes */
void compute_mla_latent(struct engine *e, uint32_t layer, uint32_t token);
void compute_attn_in(struct engine *e, uint32_t layer, uint32_t token);
void compute_mlp_in(struct engine *e, uint32_t layer, uint32_t token);
void compute_head_in(struct engine *e, uint32_t token);
void compute_embed(struct engine *e, uint32_t token);
void compute_situ(struct engine *e, uint32_t layer, uint32_t token);
void compute_route(struct engine *e, uint32_t layer, uint32_t token);
void compute_expert_sum(struct engine *e, uint32_t layer, uint32_t token);
#define KDA_PARTS 16U
#define EXPERT_PARTS_MAX 16U

/* resident.c, state.c */
int resident_load(struct engine *e);
/* Of the values of all small tensors: the same in a checkpoint and its pack. */
uint64_t resident_fingerprint(const struct engine *e);
int state_open(struct engine *e);
void state_close(struct engine *e);
void state_clear(struct engine *e, uint32_t sequence);
/* Makes the pages for positions of kv present. */
int state_reserve(struct engine *e, uint32_t sequence, uint32_t positions);
float *state_kda(const struct engine *e, uint32_t sequence, uint32_t layer, uint32_t head);
float *state_conv(const struct engine *e, uint32_t sequence, uint32_t layer, uint32_t kind,
                  uint32_t head);
float *state_kv(const struct engine *e, uint32_t sequence, uint32_t layer, uint32_t position);
float *state_draft(const struct engine *e, uint32_t draft, uint32_t layer);

static inline float *buffer(const struct engine *e, enum buffer_id id, uint32_t token)
{
    const struct activations *a = &e->plan->activations;
    return (float *)(void *)(e->arena + a->offset_bytes[id]) + token * a->width[id];
}

static inline uint64_t pass_clock_ns(const struct engine *e)
{
    uint64_t clock = atomic_load(&e->pass_clock);
    return (clock & 1) != 0 ? nondet_now_ns() - (clock >> 1) : clock >> 1;
}

static inline const struct model_config *config_of(const struct engine *e)
{
    return &e->model->config;
}

#endif
