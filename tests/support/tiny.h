/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_TINY_H
#define TESTS_SUPPORT_TINY_H

/* The tiny synthetic model as input of tests: folders that hold it, ways to damage one, and whole
 * runs of an engine over it. Failures of the helpers themselves abort: a test that cannot build
 * its input has nothing to say. */

#include "core/base/err.h"
#include "core/exec/engine.h"
#include "core/exec/generate.h"
#include "tests/support/golden.h"

/* What follows golden_prompt at temperature 3, top-p 0.98, seed 5. For good: a change here is a
 * change of what users get for their seeds. */
#define TINY_SAMPLED "212,19,195,79,87,56,209,228,15,83"

#define TINY_SHARDS 3
#define TINY_PATH_BYTES 512

/* Of the logits of golden_ids after golden_prompt, whatever the machine. */
#define TINY_HASH "8e7d0d2c9695fe75ebd3559182f54adad7a2e88e550e43fe96b3a2648f6dbc43"

struct tiny {
    char dir[256]; /* removed by tiny_remove() */
};

/* Memory: /dev/shm, where there is one, so that a busy drive slows no test down. Disk: /tmp,
 * where reads are direct on most machines. */
enum tiny_place { TINY_MEMORY, TINY_DISK };

/* A condition without which no test can go on. */
void tiny_need(bool condition, const char *what);

void tiny_folder(struct tiny *tiny, enum tiny_place place); /* an empty one */
void tiny_make(struct tiny *tiny, enum tiny_place place);   /* synthesises the model */
void tiny_copy(struct tiny *to, const struct tiny *from, enum tiny_place place);
void tiny_remove(struct tiny *tiny);

const char *tiny_shard(uint32_t shard); /* file name; shard counts from 0 */
void tiny_path(const struct tiny *tiny, const char *name, char path[TINY_PATH_BYTES]);

/* Whole files. tiny_read() returns memory to free(). */
unsigned char *tiny_read(const struct tiny *tiny, const char *name, size_t *size_bytes);
void tiny_put(const struct tiny *tiny, const char *name, const void *bytes, size_t size_bytes);
void tiny_truncate(const struct tiny *tiny, const char *name, int64_t change_bytes);

/* The shard that holds a tensor, and where in that file its data begins. */
uint64_t tiny_find(const struct tiny *tiny, const char *tensor, uint32_t *shard);

/* Overwrites size_bytes of a tensor, at_bytes from its beginning. */
void tiny_poke(const struct tiny *tiny, const char *tensor, uint64_t at_bytes, const void *bytes,
               size_t size_bytes);

/* Copies size_bytes of a tensor to another place in the same tensor. */
void tiny_move(const struct tiny *tiny, const char *tensor, uint64_t to_bytes, uint64_t from_bytes,
               size_t size_bytes);

/* A copy without what attention adds: the next token follows from the last one alone, so that text
 * soon repeats itself and drafts prove right. */
void tiny_forgetful(struct tiny *to, const struct tiny *from);

/* Fills a shard's header with spaces up to header_bytes; the data follows unchanged. */
void tiny_pad_header(const struct tiny *tiny, uint32_t shard, uint64_t header_bytes);

/* Replaces the first occurrence of a text in a shard's header; the header is as long as it then
 * has to be, and the data follows unchanged. */
void tiny_edit_header(const struct tiny *tiny, uint32_t shard, const char *before,
                      const char *after);

/* One run from open to close. */
struct tiny_run {
    int rc;
    char message[ERR_MESSAGE_BYTES]; /* when rc < 0 */
    uint32_t ids[1024];
    uint32_t count;
    char hash[65];
    struct engine_stats stats;       /* when the engine opened */
    uint16_t route[REF_LAYERS][REF_TOP]; /* of the last position; layer 0 unset */
};

/* Two workers and defaults for the rest, with room for the golden prompt and gen tokens. */
struct engine_options tiny_options(uint32_t gen);

/* Generates gen ids from golden_prompt. between, when not NULL, is called with the open engine
 * before the first pass; after_step, when not NULL, after each token. */
struct tiny_events {
    void (*between)(void *ctx);
    void (*after_step)(void *ctx, uint32_t step);
    void *ctx;
};
void tiny_generate(const struct tiny *tiny, const struct engine_options *options, uint32_t gen,
                   const struct tiny_events *events, struct tiny_run *run);

/* Of the logits of one step, short enough to keep many of. */
uint64_t tiny_digest(const float *logits);

/* True when the first ids of a run, all it made, are the golden ones. */
bool tiny_golden_so_far(const struct tiny_run *run);

#endif
