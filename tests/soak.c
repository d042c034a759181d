/* SPDX-License-Identifier: Apache-2.0 */
/* Hours in minutes: many sequences on one engine for each way of having weights, then many engines,
 * on the tiny model. Memory and descriptors must stay where they were, and the first sequence must
 * come out the same at the end and everywhere.
 *
 *   soak [TOKENS]     200000 of them, in sequences of at most 256 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/memory.h"
#include "core/base/nondet.h"
#include "tests/support/tiny.h"

#define SEQUENCE_MOST 256U
#define PROMPT_MOST 48U
#define ENGINES 200U
#define SETTLE 10U            /* looks before which memory may grow: buffers reach their size */
#define LOOKS 100U            /* at each engine of many sequences */
#define PARTS 4U              /* of these looks, after which a line is printed */
#define GROWTH_MOST (2 * MIB) /* of resident memory after that: an allocator's noise */

struct look {
    uint64_t rss_bytes;
    uint32_t descriptors;
};

static struct tiny model;
static uint32_t ids[SEQUENCE_MOST];

static uint32_t descriptors(void)
{
    uint32_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    tiny_need(dir != NULL, "/proc/self/fd");
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}

static struct look look(void)
{
    return (struct look){memory_status("VmRSS:"), descriptors()};
}

static void ck(bool good, const char *what, const struct look *first, const struct look *now)
{
    if (!good) {
        fprintf(stderr, "soak: %s: resident %llu KiB, then %llu; descriptors %u, then %u\n", what,
                (unsigned long long)(first->rss_bytes / KIB),
                (unsigned long long)(now->rss_bytes / KIB), first->descriptors, now->descriptors);
        exit(1);
    }
}

static struct engine_options soak_options(uint64_t seed)
{
    struct rng rng = rng_seed(seed);
    struct engine_options o = tiny_options(SEQUENCE_MOST);
    o.context = SEQUENCE_MOST;
    o.drafts = 4;
    o.threads = 1 + (uint32_t)rng_below(&rng, 3);
    o.io_depth = 1U << rng_below(&rng, 6);
    return o;
}

/* A sequence of its own for each number; returns its tokens. */
static uint32_t run_sequence(struct engine *e, uint64_t number,
                             unsigned char hash[LOGITS_HASH_BYTES])
{
    uint32_t prompt[PROMPT_MOST];
    struct rng rng = rng_seed(number);
    uint32_t count = 1 + (uint32_t)rng_below(&rng, PROMPT_MOST);
    for (uint32_t i = 0; i < count; i++) {
        prompt[i] = (uint32_t)rng_below(&rng, REF_VOCAB);
    }
    struct sample_options sample = sample_greedy();
    sample.temperature = number % 3 == 1 ? 1.0F : 0;
    struct generate_request r = {
        .ids = prompt, .id_count = count, .drafts = number % 2 == 1 ? 4 : 0, .sample = &sample,
        .gen = 1 + (uint32_t)rng_below(&rng, SEQUENCE_MOST - count)};
    struct generate_result out = {.ids = ids};
    tiny_need(generate(e, &r, &out) == 0, err_message());
    memcpy(hash, out.hash, LOGITS_HASH_BYTES);
    return count + out.count;
}

/* Ways of having weights, with their shares of the tokens: reading all takes ten times as long. */
static const struct way {
    const char *name;
    uint32_t percent;
    enum io_engine io;
    uint64_t pin_bytes, expert_slots;
} ways[] = {
    {"all streamed, io_uring", 5, IO_URING, 0, 0},
    {"some pins and a cache, io_uring", 10, IO_URING, MIB, 24},
    {"all streamed, pread", 1, IO_PREAD, 0, 0},
    {"all resident", 84, IO_URING, PLAN_ALL, PLAN_ALL},
};

static void print_look(const struct way *way, uint64_t tokens, const struct look *now)
{
    printf("%s: %llu tokens, resident %llu KiB, %u descriptors\n", way->name,
           (unsigned long long)tokens, (unsigned long long)(now->rss_bytes / KIB),
           now->descriptors);
}

/* One engine makes tokens in many sequences; hash is that of its first. */
static void soak_way(const struct way *way, uint64_t tokens, unsigned char hash[LOGITS_HASH_BYTES])
{
    unsigned char last[LOGITS_HASH_BYTES];
    struct engine_options o = soak_options(1);
    struct look settled = {0};
    struct engine *e;
    uint64_t sequences = 0;
    o.io = way->io;
    o.pin_bytes = way->pin_bytes;
    o.expert_slots = way->expert_slots;
    tiny_need(engine_open(&e, model.dir, &o) == 0, err_message());
    uint64_t made = run_sequence(e, sequences++, hash);
    for (uint64_t step = 1; step <= LOOKS; step++) {
        while (made < tokens * step / LOOKS) {
            made += run_sequence(e, sequences++, last);
        }
        struct look now = look();
        if (step <= SETTLE) {
            settled = now;
        }
        if (step == 1 || step % (LOOKS / PARTS) == 0) {
            print_look(way, made, &now);
        }
        ck(now.rss_bytes <= settled.rss_bytes + GROWTH_MOST, "memory grew", &settled, &now);
        ck(now.descriptors == settled.descriptors, "descriptors leak", &settled, &now);
    }
    run_sequence(e, 0, last);
    tiny_need(memcmp(hash, last, sizeof last) == 0, "the first sequence comes out the same");
    printf("%s: %llu sequences\n", way->name, (unsigned long long)sequences);
    engine_close(e);
}

static void soak_sequences(uint64_t tokens)
{
    unsigned char first[LOGITS_HASH_BYTES], other[LOGITS_HASH_BYTES];
    for (uint32_t i = 0; i < countof(ways); i++) {
        soak_way(&ways[i], tokens * ways[i].percent / 100, i == 0 ? first : other);
        tiny_need(i == 0 || memcmp(first, other, sizeof first) == 0,
                  "each way makes the same of the first sequence");
    }
}

static void soak_engines(void)
{
    unsigned char hash[LOGITS_HASH_BYTES];
    struct look settled = {0};
    for (uint64_t i = 0; i < ENGINES; i++) {
        struct engine_options o = soak_options(i);
        struct engine *e;
        tiny_need(engine_open(&e, model.dir, &o) == 0, err_message());
        run_sequence(e, i, hash);
        engine_close(e);
        struct look now = look();
        if (i < ENGINES / 4) {
            settled.rss_bytes = max_u64(settled.rss_bytes, now.rss_bytes);
            settled.descriptors = now.descriptors;
        }
        ck(now.rss_bytes <= settled.rss_bytes + 2 * GROWTH_MOST, "engines leak memory", &settled,
           &now);
        ck(now.descriptors == settled.descriptors, "engines leak descriptors", &settled, &now);
    }
    printf("%u engines: resident at most %llu KiB\n", ENGINES,
           (unsigned long long)(settled.rss_bytes / KIB));
}

int main(int argc, char **argv)
{
    uint64_t tokens = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000;
    setvbuf(stdout, NULL, _IOLBF, 0);
    tiny_make(&model, TINY_DISK);
    soak_sequences(tokens);
    soak_engines();
    tiny_remove(&model);
    return 0;
}
