/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_ENGINE_H
#define EXEC_ENGINE_H

/* The engine: an open model, a plan in force, a ring with its I/O thread, workers, and the states
 * of one or more sequences. The only place where a slot meets a read and a read meets a kernel.
 *
 * One sequence: engine_open, then for each engine_begin, engine_pass as often as announced,
 * engine_end; then engine_close. Its state stays after engine_end: engine_resume goes on behind it.
 * Several, or drafted tokens: engine_start, engine_run for every pass, engine_end. All calls come
 * from one thread. Tokens depend on weights and ids alone; every option here changes time and
 * memory, never a bit of the output. */

#include <stdio.h>

#include "core/base/err.h"
#include "core/base/histogram.h"
#include "core/base/isa.h"
#include "core/exec/journal.h"
#include "io/io.h"
#include "io/probe.h"
#include "planner/plan.h"

struct kernels;

#define ENGINE_RAM_AUTO UINT64_MAX
#define ENGINE_PLACES_MAX 8
#define ENGINE_PARANOID_PACK "pack" /* by the checksums of a pack's own manifest */

/* Nothing; the experts of every token; also the best TRACE_CANDIDATES and their scores. */
enum engine_routing { ROUTING_NONE, ROUTING_EXPERTS, ROUTING_SCORES };

struct engine_options {
    uint64_t ram_bytes;       /* ceiling of VmHWM, or ENGINE_RAM_AUTO */
    uint32_t io_depth;
    uint64_t io_size_bytes;
    uint64_t ahead_bytes;     /* wish for tiles read ahead, beside what is in flight; 0 = none */
    const char *policy;       /* name in policy_table */
    /* A file of page sums, or ENGINE_PARANOID_PACK: what is read is compared with it before it is
     * used; NULL: not. Outlives the engine. */
    const char *paranoid;
    const char *heat_path;    /* what the policy learned before, if the file exists; or NULL */
    uint32_t threads;         /* workers; 0 = one per processor, fewer when that proves faster */
    enum isa isa;
    enum io_engine io;        /* IO_URING falls back to IO_PREAD with a note */
    struct io_sim_options sim; /* its `threads` follows `stepped` */
    bool stepped;             /* IO_SIM: I/O loop and workers are steps of the calling thread */
    uint32_t context;         /* positions the state has room for, >= 1 */
    uint64_t chunk;           /* tokens per prompt pass, or PLAN_AUTO */
    uint64_t pin_bytes;       /* or PLAN_AUTO, PLAN_ALL */
    double pin_percent;       /* >= 0 overrides */
    enum plan_pin_order pin_order;
    uint64_t expert_slots;    /* or PLAN_AUTO, PLAN_ALL */
    uint64_t tile_bytes;      /* or PLAN_AUTO */
    uint64_t slice_bytes;     /* in which pins and slots become present: a multiple of 2 MiB, at
                               * least a tile; 0 = as many as pay */
    uint32_t prompt_tokens;   /* of the longest prompt to come */
    uint32_t sequences;       /* states side by side; 0 is 1 */
    bool sequences_most;      /* fewer, down to 1, when their states would take over half of ram */
    uint32_t drafts;          /* most drafted tokens of a pass */
    bool logits_all;          /* any token of a pass may want logits, not one of each sequence */
    uint64_t caller_bytes;    /* what the caller keeps: ids, results; part of the account */
    uint64_t caller_token_bytes; /* the same for each token of the vocabulary */
    enum engine_routing routing; /* what engine_routes tells of every token of a pass */
    uint64_t silence_ns;      /* with no read ending for so long the drive is given up; 0 = 600 s */
    struct io_log *log;       /* every read with its times, or NULL; outlives the engine */
    struct journal *journal;  /* what happens inside passes, or NULL; the same */
    void (*note)(const char *line);  /* talk that is not an error; may be NULL */
};

/* Where time and bytes went; classes of weights. */
enum read_class { READ_TRUNK, READ_EXPERTS, READ_EMBED, READ_HEAD, READ_CLASSES };
enum stall_cause { STALL_TRUNK, STALL_EXPERTS, STALL_EMBED, STALL_HEAD, STALL_PAGES,
                   STALL_COMPUTE, STALL_CAUSES };

struct engine_class_stats {
    uint64_t requests, bytes, payload_bytes; /* bytes: aligned windows; payload: weights */
};

struct engine_stats {
    struct engine_class_stats class[READ_CLASSES];
    uint64_t open_bytes;          /* read at open: small tensors */
    uint64_t checked_bytes;       /* compared with checksums, small tensors included */
    uint64_t sums_bytes, sums_requests; /* read of sums for that, in none of the classes */
    uint64_t discarded_bytes;     /* read ahead for passes that were then not made */
    uint64_t stall_ns[STALL_CAUSES]; /* idle time, mean over workers not at rest */
    uint64_t busy_ns;             /* the rest of their time while passes ran, mean over the same */
    uint64_t stall_sum_ns[STALL_CAUSES], busy_sum_ns; /* the same, of all workers together */
    uint64_t passes_ns, workers_ns; /* passes ran; so did workers not at rest, all together */
    uint64_t cache_demands, cache_hits, cache_misses, cache_evictions;
    uint64_t passes, positions;
    uint64_t io_cpu_ns;           /* processor time of the I/O thread; as of the last drain */
    struct io_stats io;
};

/* What the last pass left for tests and reports; valid until the next pass. */
struct engine_trace {
    const float *layer_max;       /* [layers]: |residual| max after each layer, last token */
    const float *layer_peak;      /* [layers]: the same, the largest of all tokens of the pass */
    const uint16_t *route_ids;    /* [layers][k], last token; rows of dense layers unset */
    const float *route_weights;   /* [layers][k] */
};

/* The routing of all tokens of the last pass, in its order; valid until the next pass. Only with
 * options.routing. The first experts_per_token of a row are those taken. */
struct engine_routes {
    uint32_t layers;              /* MoE layers */
    uint32_t width;               /* experts of a token and layer, best choice first */
    const uint16_t *ids;          /* [tokens][layers][width] */
    const float *scores;          /* choice scores, the same; NULL without ROUTING_SCORES */
};

/* Settings really in force, for reports. */
struct engine_facts {
    const char *isa, *io_engine, *io_features, *policy;
    const char *io_refused;       /* why pread serves in place of the ring, or NULL */
    bool fixed_buffers;
    uint32_t direct_files, files;
    uint32_t devices;             /* the files lie on, each with a queue of its own */
    uint32_t threads;             /* workers there are */
    uint32_t workers;             /* of them compute passes of few tokens */
    char workers_why[96];
    uint64_t slab_mapped_bytes, slab_resident_bytes, slab_huge_bytes; /* 0 once interrupted: not
                                     counted */
    uint64_t ram_bytes;
    uint32_t alignment;           /* the strictest any file asks for, <= PAGE_BYTES */
    struct io_place place[ENGINE_PLACES_MAX]; /* file systems the shards lie on */
    uint32_t place_count;
};

struct engine;

int engine_open(struct engine **out, const char *dir, const struct engine_options *options);

/* The ceiling that ram_bytes of the options stands for: itself, or what ENGINE_RAM_AUTO comes to
 * now. */
uint64_t engine_ram_bytes(uint64_t ram_bytes);
/* NULL is fine. After a drive was given up that ends no read, threads, memory and open files stay
 * as they are until the process ends: the kernel may still write to them. */
void engine_close(struct engine *e);

/* A plan without an engine: the same request engine_open would make. */
int engine_plan(const char *dir, const struct engine_options *options, struct model **model,
                struct plan **plan);
/* The same for a model that is open already, or imagined. */
int engine_plan_model(const struct model *model, const struct engine_options *options,
                      struct plan **plan);

/* Opens the files of a model for reading. ERR_IO, ERR_MEMORY. */
int engine_open_files(const struct model *model, struct io_files *files);

const struct plan *engine_plan_of(const struct engine *e);
const struct model *engine_model(const struct engine *e);
/* Its instruction set, for what is computed from logits. */
const struct kernels *engine_kernels(const struct engine *e);

/* Announces a sequence: prompt tokens come in passes of chunk, then `steps` more passes of one
 * token each. Clears the state. No read is made for a pass beyond these. ERR_FIT when the
 * positions exceed the context. */
int engine_begin(struct engine *e, uint32_t prompt_tokens, uint32_t steps);

/* As engine_begin, but keeps the state of sequence 0 and goes on behind it: the next token has
 * position engine_position(). After an engine_end, whatever ended the sequence before: its length,
 * a stop id, an interrupt at a pass border, drafts kept or not. ERR_FIT when fewer positions are
 * left than announced; nothing has changed then. After a pass that failed in its middle the state
 * is half of two positions: refused with what that pass failed with. */
int engine_resume(struct engine *e, uint32_t prompt_tokens, uint32_t steps);

/* Positions the state of sequence 0 holds: tokens fed to it since it was cleared, drafts that were
 * kept included. A token that was made and not fed is none of them. */
uint32_t engine_position(const struct engine *e);

/* ERR_USAGE when an id is not of the vocabulary; `what` names the list in the message. */
int engine_check_ids(const struct engine *e, const char *what, const uint32_t *ids,
                     uint32_t count);

/* Runs one pass over count tokens (<= chunk). *logits ([vocab], valid until the next pass) is set
 * when this is the last prompt pass or a later one, else NULL. */
int engine_pass(struct engine *e, const uint32_t *ids, uint32_t count, const float **logits);

/* A token of a pass. Tokens of a sequence follow each other, positions ascending by one. */
struct engine_token {
    uint32_t id, position;
    uint32_t sequence; /* < sequences */
    bool draft;        /* tried: leaves the state as it was until engine_accept */
};

/* One pass. Drafted tokens are the last ones, of one sequence, after a token that is none. */
struct engine_work {
    const struct engine_token *token;
    uint32_t count;            /* 1..chunk of the plan */
    const uint32_t *logits_of; /* indices into token, ascending */
    uint32_t logits_count;     /* <= sequences + drafts, but with logits_all; needs head */
    bool head;                 /* lm_head passes by; what the pass before announced as next_head */
    uint32_t later;            /* passes that may still follow: their weights are read ahead */
    bool next_head;            /* of the one right after */
    bool isolate;              /* a non-finite value ends its sequence only: engine_fault */
};

/* How much reading to expect, for progress. */
struct engine_forecast {
    uint32_t prompt_passes, steps;  /* passes of the prompt, passes after it */
    uint32_t prompt_tokens, step_tokens; /* tokens of a pass of each kind */
};

/* Begins work on any sequences. Nothing is read before the first engine_run. */
int engine_start(struct engine *e, const struct engine_forecast *forecast);
/* Clears the state of a sequence, whose next token then has position 0. */
void engine_clear(struct engine *e, uint32_t sequence);
/* Runs a pass. ERR_STOPPED when interrupted before it. Not for use between engine_begin and
 * engine_end. */
int engine_run(struct engine *e, const struct engine_work *work);
/* Logits [vocab] of the row-th entry of the last pass's logits_of; valid until the next pass. */
const float *engine_logits(const struct engine *e, uint32_t row);
/* Keeps the first count drafted tokens of the last pass, as if they had not been drafted. Of use
 * before the next pass, whose first token follows them. */
void engine_accept(struct engine *e, uint32_t count);
/* ERR_IO when a file was written to or cut since it was opened: see engine_end. */
int engine_check_files(const struct engine *e);
/* True when a value of this token of the last pass was not finite: text says where. Only drafted
 * and isolated tokens; others have failed the pass. */
bool engine_fault(const struct engine *e, uint32_t token, char text[ERR_MESSAGE_BYTES]);

/* A pass after the prompt over ids[0], then count - 1 drafted ids (<= drafts). Row
 * i of engine_logits is what follows ids[i]. Then engine_accept. */
int engine_try(struct engine *e, const uint32_t *ids, uint32_t count);

/* Ends the sequence, also before all announced passes were made: drains reads in flight.
 * ERR_IO when a file was written to or cut since it was opened: its tokens cannot be trusted. */
int engine_end(struct engine *e);
/* engine_end for what ended with rc, and what to return then. A file that changed outweighs that a
 * sequence was stopped, since what was made of it is not to be kept, and explains numbers that are
 * none; any other failure is told before it. */
int engine_end_with(struct engine *e, int rc);

void engine_stats(struct engine *e, struct engine_stats *out);
/* Idle and busy time between two looks, both between passes: means over the workers that were not
 * at rest meanwhile. */
void engine_stats_between(const struct engine_stats *from, const struct engine_stats *to,
                          uint64_t stall_ns[STALL_CAUSES], uint64_t *busy_ns);
/* Nanoseconds from asking for a read to its completion, retries included; as of the last
 * engine_end. */
const struct histogram *engine_latency(const struct engine *e, enum read_class class);
/* Memory of pins and of the expert cache becomes present while the first passes go by: whether all
 * of it is. */
bool engine_pages_present(const struct engine *e);
/* Waits until it is; returns early when the engine failed or was interrupted. Not when stepped. */
void engine_pages_wait(const struct engine *e);
void engine_trace(const struct engine *e, struct engine_trace *out);
void engine_routes(const struct engine *e, struct engine_routes *out);
void engine_facts(const struct engine *e, struct engine_facts *out);

/* What the cache policy has learned, for a heat file (cache/heat.h). Between sequences only.
 * ERR_USAGE when the policy learns nothing or the model has no experts. */
int engine_heat_write(struct engine *e, FILE *file);

/* Bytes read so far and bytes the announced passes will have read, experts estimated. Called
 * from inside engine_pass by `tick` about five times a second. */
struct engine_progress {
    uint64_t done_bytes, planned_bytes;
    uint32_t pass, passes;
    uint32_t in_flight;        /* reads */
    uint64_t in_flight_bytes;
    uint64_t demands, hits;    /* experts asked for, and there */
};
void engine_on_tick(struct engine *e, void (*tick)(void *ctx, const struct engine_progress *p),
                    void *ctx);

/* Asks the sequence to stop at its next border: a running pass is finished, the next
 * engine_pass returns ERR_STOPPED. Async-signal-safe. */
void engine_interrupt(struct engine *e);
bool engine_interrupted(const struct engine *e);
/* Takes an interrupt back, so that the next sequence runs. Between sequences. */
void engine_interrupt_clear(struct engine *e);

/* Sum of the allocator's per-thread allocation counters of every engine thread and the caller,
 * or -1 when the build has no such counter. For the no-allocation test. */
int64_t engine_allocated_bytes(const struct engine *e);

#endif
