/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_ENGINE_OPTIONS_H
#define CLI_ENGINE_OPTIONS_H

/* The options of every command that opens an engine or a plan, as rows for its table. */

#include "core/cli/options.h"
#include "core/exec/engine.h"

struct engine_cli {
    uint64_t ram, io_depth, io_size, policy, threads, isa, io, context, chunk, slots, tile,
        pin_order;
    struct option_share pin;
    uint64_t sim_seed;
    const char *paranoid;
    bool quiet, remeasure;
};

/* In the order of policy_table; a test compares them. */
#define ENGINE_POLICIES "arc|lar|arc-global|lru|lfu|none|lhr"

/* type: the command's struct, with a member `engine` of struct engine_cli. */
#define ENGINE_OPTION_ROWS(type)                                                                  \
    OPTION_GROUP("Memory"),                                                                       \
    ENGINE_RAM_ROW(type),                                                                         \
    ENGINE_MEMORY_ROWS(type),                                                                     \
    ENGINE_POLICY_ROW(type),                                                                      \
    ENGINE_CONTEXT_ROW(type),                                                                     \
    OPTION_GROUP("Reading"),                                                                      \
    ENGINE_READ_ROWS(type),                                                                       \
    ENGINE_TILE_ROWS(type),                                                                       \
    ENGINE_BACKEND_ROW(type),                                                                     \
    ENGINE_PARANOID_ROW(type),                                                                    \
    ENGINE_COMPUTE_ROWS(type)

/* All but the four that `k3ring bench` takes lists of. */
#define ENGINE_UNSWEPT_ROWS(type)                                                                 \
    OPTION_GROUP("Memory and reading of every run"),                                              \
    ENGINE_MEMORY_ROWS(type),                                                                     \
    ENGINE_CONTEXT_ROW(type),                                                                     \
    ENGINE_TILE_ROWS(type),                                                                       \
    ENGINE_BACKEND_ROW(type),                                                                     \
    ENGINE_COMPUTE_ROWS(type)

#define ENGINE_RAM_ROW(type)                                                                      \
    {"ram", OPTION_SIZE, offsetof(type, engine.ram), "auto", 1, UINT64_MAX / 4, "auto",            \
     "SIZE|auto", "hard ceiling of resident memory; auto: 90 % of what is available"}

/* What the plan does with the memory there is. */
#define ENGINE_MEMORY_ROWS(type)                                                                  \
    {"pin", OPTION_SHARE, offsetof(type, engine.pin), "auto", 0, UINT64_MAX / 4, "all|auto",       \
     "SIZE|N%|all|auto", "weights kept resident"},                                                 \
    {"pin-order", OPTION_CHOICE, offsetof(type, engine.pin_order), "spread", 0, 0,                 \
     "spread|prefix", NULL, "which weights that is: spread over the walk, or its first ones"},     \
    {"expert-slots", OPTION_COUNT, offsetof(type, engine.slots), "auto", 0, UINT32_MAX,            \
     "all|auto", "N|all|auto", "expert cache, in slots beyond the working ones"}

#define ENGINE_POLICY_ROW(type)                                                                   \
    {"cache-policy", OPTION_CHOICE, offsetof(type, engine.policy), "arc", 0, 0, ENGINE_POLICIES,   \
     NULL, "which experts stay"}

#define ENGINE_CONTEXT_ROW(type)                                                                  \
    {"context", OPTION_COUNT, offsetof(type, engine.context), "auto", 1, UINT32_MAX, "auto",       \
     "N|auto", "positions to reserve state for; a sequence ends there"}

#define ENGINE_PARANOID_ROW(type)                                                                 \
    {"paranoid", OPTION_TEXT, offsetof(type, engine.paranoid), NULL, 0, 0, NULL, "FILE|pack",      \
     "compare all that is read with FILE of `k3ring verify --write-checksums`, or a pack's own"}

#define ENGINE_READ_ROWS(type)                                                                    \
    {"io-depth", OPTION_COUNT, offsetof(type, engine.io_depth), "8", 1, 1024, "auto", "N|auto",    \
     "reads in flight on each drive; auto: measured once, then remembered"},                       \
    {"io-size", OPTION_SIZE, offsetof(type, engine.io_size), "4M", 4096, 1 * GIB, "auto",          \
     "SIZE|auto", "largest read; lowered when depth x size exceeds the ring; auto: measured"}

#define ENGINE_TILE_ROWS(type)                                                                    \
    {"tile", OPTION_SIZE, offsetof(type, engine.tile), "4M", 4096, 16 * MIB, "auto",               \
     "SIZE|auto", "rows of a matrix read and computed together; auto: measured"},                  \
    {"remeasure", OPTION_FLAG, offsetof(type, engine.remeasure), NULL, 0, 0, NULL, NULL,           \
     "measure the drive for auto even if an earlier result is remembered"}

#define ENGINE_BACKEND_ROW(type)                                                                  \
    {"io", OPTION_CHOICE, offsetof(type, engine.io), "uring", 0, 0, "uring|pread|sim", NULL,       \
     "reading backend; sim is the seeded simulator of the tests"}

#define ENGINE_COMPUTE_ROWS(type)                                                                 \
    OPTION_GROUP("Computing and talk"),                                                           \
    {"threads", OPTION_COUNT, offsetof(type, engine.threads), "auto", 1, 1024, "auto", "N|auto",   \
     "workers, the I/O thread is extra; auto: fewer than processors when that is faster"},         \
    {"isa", OPTION_CHOICE, offsetof(type, engine.isa), "auto", 0, 0, "auto|scalar|avx2|avx512",    \
     NULL, "instruction set of the kernels"},                                                      \
    {"chunk", OPTION_COUNT, offsetof(type, engine.chunk), "auto", 1, 4096, "auto", "N|auto",       \
     "prompt tokens per pass"},                                                                    \
    {"sim-seed", OPTION_COUNT, offsetof(type, engine.sim_seed), "1", 0, UINT64_MAX, NULL, "N",     \
     "order and delays of --io sim"},                                                              \
    ENGINE_QUIET_ROW(type)

#define ENGINE_QUIET_ROW(type)                                                                    \
    {"quiet", OPTION_FLAG, offsetof(type, engine.quiet), NULL, 0, 0, NULL, NULL,                   \
     "no talk on stderr but errors"}

/* Where --io-depth, --io-size and --tile are `auto` until the drive is asked: the defaults. */
#define ENGINE_IO_DEPTH 8U
#define ENGINE_IO_SIZE (4 * MIB)

/* Positions of context: as --context says, else `most` and no more than the model in dir has. */
uint64_t engine_cli_context(const struct engine_cli *cli, const char *dir, uint64_t most);

/* Fills options for a prompt of prompt_tokens that will reach `positions` positions. */
int engine_cli_options(const struct engine_cli *cli, uint32_t prompt_tokens, uint64_t positions,
                       struct engine_options *options);

/* A line of talk on stderr; the note function of engine options. */
void engine_cli_note(const char *line);

#endif
