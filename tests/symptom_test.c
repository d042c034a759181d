/* SPDX-License-Identifier: Apache-2.0 */
/* Things that have gone wrong in programs like this one, each tried on the tiny model. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/base/nondet.h"
#include "kernels/kernels.h"
#include "tests/support/amount.h"
#include "tests/support/process.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define WATCHDOG_SECONDS 120
#define GOLDEN_IDS "--ids 3,141,59,26,53,58,97,93"
#define NORM "language_model.model.norm.weight"
#define RSS_LIMIT_KIB 65536

static struct tiny original; /* never changed by a test */
static struct tiny folder;   /* for what programs write */
static struct process process;
static struct tiny_run run;

static void watch(void)
{
    alarm(WATCHDOG_SECONDS);
    tiny_folder(&folder, TINY_MEMORY);
}

static void unwatch(void)
{
    tiny_remove(&folder);
    alarm(0);
}

/* ---- helpers ---- */

static void expect_ids(const struct tiny *tiny, const struct engine_options *o,
                       const int ids[GOLDEN_STEPS])
{
    tiny_generate(tiny, o, GOLDEN_STEPS, NULL, &run);
    ck_assert_msg(run.rc == 0, "rc %d '%s'", run.rc, run.message);
    for (uint32_t i = 0; i < GOLDEN_STEPS; i++) {
        ck_assert_msg(run.ids[i] == (uint32_t)ids[i], "step %u: %u instead of %d", i, run.ids[i],
                      ids[i]);
    }
}

static void expect_golden(const struct tiny *tiny)
{
    struct engine_options o = tiny_options(GOLDEN_STEPS);
    expect_ids(tiny, &o, golden_ids);
    ck_assert_str_eq(run.hash, TINY_HASH);
}

/* Runs the program; the exit status must be as said. */
static void expect_status(int status, const char *arguments)
{
    process_start(&process, folder.dir, process_binary(), "%s", arguments);
    process_wait(&process);
    ck_assert_msg(process.status == status, "'%s': status %d, not %d; it said '%s'", arguments,
                  process.status, status, process.err);
}

static void expect_said(const char *word)
{
    ck_assert_msg(strstr(process.err, word) != NULL, "no '%s' in '%s'", word, process.err);
}

/* The model must be refused with these words, in little memory. */
static void expect_refused(struct tiny *copy, const char *word, const char *other_word)
{
    char line[TINY_PATH_BYTES];
    struct rusage usage;
    snprintf(line, sizeof line, "run %s " GOLDEN_IDS, copy->dir);
    expect_status(3, line);
    expect_said(word);
    expect_said(other_word);
    ck_assert_str_eq(process.out, "");
    getrusage(RUSAGE_CHILDREN, &usage);
#ifndef K3RING_SANITIZED
    ck_assert_int_lt(usage.ru_maxrss, RSS_LIMIT_KIB);
#endif
    tiny_remove(copy);
}

#ifndef K3RING_SANITIZED
static cJSON *json_of(const char *text)
{
    cJSON *root = cJSON_Parse(text);
    ck_assert_msg(root != NULL, "no JSON: '%.200s'", text);
    return root;
}

static double figure(const cJSON *root, const char *object, const char *name)
{
    const cJSON *at = object != NULL ? cJSON_GetObjectItemCaseSensitive(root, object) : root;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(at, name);
    ck_assert_msg(cJSON_IsNumber(item), "no number %s", name);
    return cJSON_GetNumberValue(item);
}
#endif

static struct plan *plan_of(const struct engine_options *o, struct model **model)
{
    struct plan *plan = NULL;
    ck_assert_msg(engine_plan(original.dir, o, model, &plan) == 0, "%s", err_message());
    return plan;
}

/* The least RAM these options do with. */
static uint64_t floor_of(const struct engine_options *o)
{
    struct model *model = NULL;
    struct plan *plan = plan_of(o, &model);
    uint64_t floor_bytes = plan->floor_bytes;
    plan_free(plan);
    model_close(model);
    return floor_bytes;
}

/* ---- one number for all memory ---- */

START_TEST(ram_covers_the_whole_process_over_a_long_run)
{
#ifdef K3RING_SANITIZED
    printf("skip: a sanitizer's own memory cannot be in the account\n");
#else
    static const uint64_t more[] = {MIB, 5 * MIB};
    double pins[countof(more)];
    struct engine_options o = tiny_options(200);
    o.threads = 1;
    o.ram_bytes = GIB;
    uint64_t least = floor_of(&o);
    for (size_t i = 0; i < countof(more); i++) {
        char line[TINY_PATH_BYTES];
        unsigned long long ram = least + more[i];
        snprintf(line, sizeof line, "run %s " GOLDEN_IDS " --gen 200 --threads 1 --ram %llu "
                 "--json -", original.dir, ram);
        expect_status(0, line);
        cJSON *root = json_of(process.out);
        ck_assert_double_le(figure(root, NULL, "peak_rss_bytes"), (double)ram);
        const cJSON *plan = cJSON_GetObjectItemCaseSensitive(root, "plan");
        ck_assert_double_le(figure(plan, "account", "total"), (double)ram);
        pins[i] = figure(plan, "account", "pins");
        cJSON_Delete(root);
    }
    ck_assert_double_lt(pins[0], pins[1]);
#endif
}
END_TEST

/* ---- fewer slots than a chunk demands ---- */

#define LONG_PROMPT 256U

/* A prompt that demands every expert of every layer. */
static void run_long_prompt(struct engine_options o, char hash[65])
{
    struct engine *e = NULL;
    uint32_t ids[LONG_PROMPT];
    uint32_t made[4];
    struct rng rng = rng_seed(5);
    for (uint32_t i = 0; i < LONG_PROMPT; i++) {
        ids[i] = (uint32_t)rng_below(&rng, REF_VOCAB);
    }
    struct generate_request request = {.ids = ids, .id_count = LONG_PROMPT, .gen = countof(made)};
    struct generate_result result = {.ids = made};
    ck_assert_msg(engine_open(&e, original.dir, &o) == 0, "%s", err_message());
    ck_assert_msg(generate(e, &request, &result) == 0, "%s", err_message());
    generate_hash_text(result.hash, hash);
    engine_close(e);
}

START_TEST(a_chunk_that_demands_more_experts_than_slots_completes)
{
    static const char *const policies[] = {"arc", "none", "lru"};
    char expected[65];
    char found[65];
    struct engine_options o = tiny_options(4);
    o.prompt_tokens = LONG_PROMPT;
    o.context = LONG_PROMPT + 4;
    o.chunk = LONG_PROMPT;
    run_long_prompt(o, expected);
    o.ram_bytes = floor_of(&o);
    for (size_t i = 0; i < countof(policies); i++) {
        o.policy = policies[i];
        run_long_prompt(o, found);
        ck_assert_str_eq(found, expected);
    }
}
END_TEST

/* ---- every byte once ---- */

/* What the plan says that a prompt and `later` more passes read of trunk and head. */
static uint64_t planned_bytes(const struct plan *plan, uint32_t later)
{
    uint32_t prompt_passes = (uint32_t)div_ceil(GOLDEN_PROMPT, plan->chunk);
    uint64_t sum = 0;
    for (uint32_t pass = 0; pass < prompt_passes + later; pass++) {
        uint64_t bytes;
        uint64_t requests;
        bool head = pass + 1 >= prompt_passes;
        plan_pass_reads(plan, pass == 0, pass + 1 == prompt_passes, head, &bytes, &requests);
        sum += bytes;
    }
    return sum;
}

static void expect_sums(const struct engine_options *o)
{
    struct model *model = NULL;
    struct plan *plan = plan_of(o, &model);
    tiny_generate(&original, o, 3, NULL, &run);
    ck_assert_msg(run.rc == 0, "%s", run.message);
    const struct engine_stats *s = &run.stats;
    ck_assert_uint_eq(s->class[READ_TRUNK].bytes + s->class[READ_HEAD].bytes,
                      planned_bytes(plan, 2));
    ck_assert_uint_eq(s->cache_hits + s->cache_misses, s->cache_demands);
    ck_assert_uint_eq(s->discarded_bytes, 0);
    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        const struct plan_traffic *t = &plan->traffic[kind];
        ck_assert_uint_eq(t->pinned_bytes + t->streamed_bytes, t->window_bytes);
        ck_assert_uint_eq(t->pinned_tiles + t->streamed_tiles, t->tiles);
    }
    plan_free(plan);
    model_close(model);
}

START_TEST(every_byte_is_read_once_a_pass_at_every_budget)
{
    struct engine_options o = tiny_options(3);
    uint64_t least = floor_of(&o);
    for (uint64_t step = 0; step < 6; step++) {
        o.ram_bytes = least + step * step * 250 * KIB;
        o.io_depth = step % 2 == 0 ? 1 : 16;
        expect_sums(&o);
    }
}
END_TEST

/* ---- headers ---- */

START_TEST(a_header_of_any_legal_length_is_read)
{
    static const struct {
        uint32_t shard;
        uint64_t base_bytes;
    } cases[] = {{0, 104000}, {0, 131071}, {0, 131072}, {0, 131073}, {0, 1 << 20},
                 {2, 4096}, {2, 65536}, {2, 65537}, {1, 99994}, {1, 100000}};
    struct tiny copy;
    tiny_copy(&copy, &original, TINY_MEMORY);
    if (cases[_i].shard == 1) { /* its header is 99336 bytes as it is */
        tiny_pad_header(&copy, 1, cases[_i].base_bytes);
    } else {
        tiny_pad_header(&copy, cases[_i].shard, cases[_i].base_bytes - 8);
    }
    expect_golden(&copy);
    tiny_remove(&copy);
}
END_TEST
#define HEADER_CASES 10

/* ---- other files in the folder ---- */

static char noted[512];

static void take_note(const char *line)
{
    snprintf(noted, sizeof noted, "%s", line);
}

/* A copy of shard 3 with all its data zero, under another name. */
static void add_stray(const struct tiny *tiny, const char *name)
{
    size_t size_bytes;
    unsigned char *file = tiny_read(tiny, tiny_shard(2), &size_bytes);
    memset(file + size_bytes - 131936, 0, 131936);
    tiny_put(tiny, name, file, size_bytes);
    free(file);
}

START_TEST(a_stray_file_is_ignored_and_named)
{
    static const char *const names[] = {"model.safetensors", "consolidated.safetensors"};
    for (size_t i = 0; i < countof(names); i++) {
        struct tiny copy;
        struct engine_options o = tiny_options(GOLDEN_STEPS);
        tiny_copy(&copy, &original, TINY_MEMORY);
        add_stray(&copy, names[i]);
        o.note = take_note;
        noted[0] = '\0';
        expect_ids(&copy, &o, golden_ids);
        ck_assert_msg(strstr(noted, names[i]) != NULL, "noted '%s'", noted);
        tiny_remove(&copy);
    }
}
END_TEST

START_TEST(a_stray_file_without_an_index_is_refused)
{
    struct tiny copy;
    char index[TINY_PATH_BYTES];
    tiny_copy(&copy, &original, TINY_MEMORY);
    add_stray(&copy, "model.safetensors");
    tiny_path(&copy, "model.safetensors.index.json", index);
    ck_assert_int_eq(unlink(index), 0);
    expect_refused(&copy, "in both", "model.safetensors");
}
END_TEST

START_TEST(what_is_no_safetensors_file_is_named_for_what_it_is)
{
    static const struct {
        const char *text, *word, *size;
    } cases[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:"
         "95c2a1ac000000000000000000000000000000000000000000000000000000e5\nsize 2172752\n",
         "Git LFS pointer", "(132 bytes)"},
        {"<!DOCTYPE html>\n<html><body>401</body></html>\n", "HTML", "(46 bytes)"},
        {"", "empty", "0 bytes"},
        {"GGUF\003", "GGUF", "(5 bytes)"},
    };
    struct tiny copy;
    tiny_copy(&copy, &original, TINY_MEMORY);
    tiny_put(&copy, tiny_shard(1), cases[_i].text, strlen(cases[_i].text));
    expect_refused(&copy, cases[_i].word, cases[_i].size);
    expect_said(tiny_shard(1));
}
END_TEST
#define FOREIGN_CASES 4

START_TEST(a_shape_or_offset_that_wraps_is_refused)
{
    static const char *const entries[] = {
        "[4294967296,4294967296],\"data_offsets\":[131840,131840]",
        "[128],\"data_offsets\":[18446744073709551488,128]",
        "[128],\"data_offsets\":[131328,131072]",
        "[-1],\"data_offsets\":[131072,131328]",
        "[1e3],\"data_offsets\":[131072,131328]",
        "[128.0],\"data_offsets\":[131072,131328]",
        "[18446744073709551744],\"data_offsets\":[131072,131328]",
    };
    struct tiny copy;
    tiny_copy(&copy, &original, TINY_MEMORY);
    tiny_edit_header(&copy, 2, "[128],\"data_offsets\":[131072,131328]", entries[_i]);
    expect_refused(&copy, tiny_shard(2), "");
}
END_TEST
#define WRAP_CASES 7

START_TEST(a_deeply_nested_shape_is_refused)
{
    struct tiny copy;
    char shape[900];
    memset(shape, '[', 400);
    memset(shape + 400, ']', 400);
    snprintf(shape + 800, sizeof shape - 800, ",\"data_offsets\":[131072,131328]");
    tiny_copy(&copy, &original, TINY_MEMORY);
    tiny_edit_header(&copy, 2, "[128],\"data_offsets\":[131072,131328]", shape);
    expect_refused(&copy, tiny_shard(2), "");
}
END_TEST

/* ---- tails of files ---- */

START_TEST(files_that_end_inside_a_page_are_read_whole)
{
    static const enum io_engine engines[] = {IO_URING, IO_PREAD, IO_SIM};
    static const uint64_t sizes[] = {4096, 64 * KIB, GIB};
    struct tiny copy;
    tiny_copy(&copy, &original, TINY_DISK);
    for (size_t i = 0; i < countof(engines) * countof(sizes); i++) {
        struct engine_options o = tiny_options(GOLDEN_STEPS);
        o.io = engines[i / countof(sizes)];
        o.stepped = o.io == IO_SIM;
        o.io_size_bytes = sizes[i % countof(sizes)];
        o.sim.short_every = 2;
        expect_ids(&copy, &o, golden_ids);
        ck_assert_str_eq(run.hash, TINY_HASH);
        ck_assert_uint_eq(run.stats.discarded_bytes, 0);
    }
    tiny_remove(&copy);
}
END_TEST

/* ---- the same answer ---- */

#define LONG_STEPS AMOUNT(512U, 512U, 96U)

static struct tiny_run long_run;

START_TEST(long_runs_are_the_same_whatever_the_settings)
{
    static const struct {
        uint64_t pin, slots;
        uint32_t threads, depth;
        enum io_engine io;
        uint64_t chunk;
    } cases[] = {
        {0, 0, 2, 4, IO_PREAD, 7},
        {MIB, 30, 3, 64, IO_URING, 1},
        {PLAN_ALL, PLAN_ALL, 1, 1, IO_URING, PLAN_AUTO},
    };
    struct engine_options o = tiny_options(LONG_STEPS);
    tiny_generate(&original, &o, LONG_STEPS, NULL, &long_run);
    ck_assert_msg(long_run.rc == 0, "%s", long_run.message);
    for (size_t i = 0; i < countof(cases); i++) {
        o.pin_bytes = cases[i].pin;
        o.expert_slots = cases[i].slots;
        o.threads = cases[i].threads;
        o.io_depth = cases[i].depth;
        o.io = cases[i].io;
        o.chunk = cases[i].chunk;
        tiny_generate(&original, &o, LONG_STEPS, NULL, &run);
        ck_assert_msg(run.rc == 0, "%s", run.message);
        for (uint32_t step = 0; step < LONG_STEPS; step++) {
            ck_assert_msg(run.ids[step] == long_run.ids[step], "case %zu differs at step %u", i,
                          step);
        }
        ck_assert_str_eq(run.hash, long_run.hash);
    }
}
END_TEST

static void expect_tie(const struct tiny *copy, const int ids[GOLDEN_STEPS])
{
    static const enum isa isas[] = {ISA_SCALAR, ISA_AVX2, ISA_AVX512};
    static const char *const policies[] = {"arc", "none", "lru"};
    for (size_t i = 0; i < countof(isas); i++) {
        struct engine_options o = tiny_options(GOLDEN_STEPS);
        o.isa = isas[i];
        o.policy = policies[i];
        o.threads = 1 + (uint32_t)i;
        o.chunk = 1 + 3 * i;
        o.expert_slots = 6 * i;
        if (kernels_select(o.isa) != NULL) {
            expect_ids(copy, &o, ids);
        }
    }
}

START_TEST(a_tie_of_logits_goes_to_the_lower_id)
{
    static const int ids[GOLDEN_STEPS] = {20, 98, 160, 144, 58, 191, 176, 196,
                                          238, 69, 75, 147, 133, 169, 23, 116};
    struct tiny copy;
    tiny_copy(&copy, &original, TINY_MEMORY);
    tiny_move(&copy, "language_model.lm_head.weight", 20 * 256, 170 * 256, 256);
    expect_tie(&copy, ids);
    tiny_remove(&copy);
}
END_TEST

START_TEST(a_tie_in_the_router_goes_to_the_lower_expert)
{
    static const int ids[GOLDEN_STEPS] = {170, 88, 117, 35, 150, 182, 241, 142,
                                          19, 127, 107, 46, 83, 39, 178, 138};
    const char *gate = "language_model.model.layers.1.block_sparse_moe.gate.weight";
    const char *bias =
        "language_model.model.layers.1.block_sparse_moe.gate.e_score_correction_bias";
    struct tiny copy;
    tiny_copy(&copy, &original, TINY_MEMORY);
    tiny_move(&copy, gate, 9 * 256, 13 * 256, 256);
    tiny_move(&copy, bias, 9 * 4, 13 * 4, 4);
    expect_tie(&copy, ids);
    tiny_remove(&copy);
}
END_TEST

/* ---- the suite ---- */

static void add_memory(Suite *suite)
{
    TCase *tcase = suite_case(suite, "memory and bytes", WATCHDOG_SECONDS, watch, unwatch);
    tcase_add_test(tcase, ram_covers_the_whole_process_over_a_long_run);
    tcase_add_test(tcase, a_chunk_that_demands_more_experts_than_slots_completes);
    tcase_add_test(tcase, every_byte_is_read_once_a_pass_at_every_budget);
}

static void add_files(Suite *suite)
{
    TCase *tcase = suite_case(suite, "files", WATCHDOG_SECONDS, watch, unwatch);
    tcase_add_loop_test(tcase, a_header_of_any_legal_length_is_read, 0, HEADER_CASES);
    tcase_add_test(tcase, a_stray_file_is_ignored_and_named);
    tcase_add_test(tcase, a_stray_file_without_an_index_is_refused);
    tcase_add_loop_test(tcase, what_is_no_safetensors_file_is_named_for_what_it_is, 0,
                        FOREIGN_CASES);
    tcase_add_loop_test(tcase, a_shape_or_offset_that_wraps_is_refused, 0, WRAP_CASES);
    tcase_add_test(tcase, a_deeply_nested_shape_is_refused);
    tcase_add_test(tcase, files_that_end_inside_a_page_are_read_whole);
}

static void add_answers(Suite *suite)
{
    TCase *tcase = suite_case(suite, "answers", WATCHDOG_SECONDS, watch, unwatch);
    tcase_add_test(tcase, long_runs_are_the_same_whatever_the_settings);
    tcase_add_test(tcase, a_tie_of_logits_goes_to_the_lower_id);
    tcase_add_test(tcase, a_tie_in_the_router_goes_to_the_lower_expert);
}

int main(void)
{
    if (process_binary() == NULL) {
        fprintf(stderr, "build k3ring first: this test runs it\n");
        return EXIT_FAILURE;
    }
    tiny_make(&original, TINY_MEMORY);
    Suite *suite = suite_create("symptoms");
    add_memory(suite);
    add_files(suite);
    add_answers(suite);
    int failed = suite_run(suite);
    tiny_remove(&original);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
