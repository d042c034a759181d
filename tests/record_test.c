/* SPDX-License-Identifier: Apache-2.0 */

/* What `k3ring run --trace` writes: the routing of every position, the same to the byte however a
 * run is made, equal to what the plainest engine and the reference say, and nothing lost or added
 * by drafts or by Ctrl-C. */

#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cache/trace.h"
#include "core/base/json.h"
#include "kernels/kernels.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define RUN "run %s --ids 3,141,59,26,53,58,97,93 --quiet "
#define GEN 80 /* the golden text repeats nothing before, so that nothing would be drafted */
#define POSITIONS (GOLDEN_PROMPT + GEN - 1)
#define MOE (REF_LAYERS - 1)
#define EXPERTS 16U
#define GROUP_BYTES (4 * REF_TOP)
#define SCORED_GROUP_BYTES (2 + 6 * EXPERTS)

static struct tiny tiny, results;
static char path[TINY_PATH_BYTES];

/* From the plainest run, one token a pass. */
static struct truth {
    uint16_t expert[POSITIONS][MOE][REF_TOP];
    float weight[POSITIONS][MOE][REF_TOP];
} truth;

/* The file at path, removed. */
static unsigned char *take_file(size_t *size_bytes)
{
    unsigned char *bytes = tiny_read(&results, "trace", size_bytes);
    unlink(path);
    return bytes;
}

static void find_truth(void)
{
    struct engine_options options = tiny_options(GEN);
    struct engine *e = NULL;
    const float *logits = NULL;
    options.isa = ISA_SCALAR;
    options.io = IO_PREAD;
    options.threads = options.io_depth = 1;
    options.chunk = 1;
    tiny_need(engine_open(&e, tiny.dir, &options) == 0, "engine");
    tiny_need(engine_begin(e, GOLDEN_PROMPT, GEN - 1) == 0, "begin");
    for (uint32_t at = 0; at < POSITIONS; at++) {
        struct engine_trace trace;
        uint32_t id = at < GOLDEN_PROMPT ? (uint32_t)golden_prompt[at] : argmax(logits, REF_VOCAB);
        tiny_need(engine_pass(e, &id, 1, &logits) == 0, "pass");
        engine_trace(e, &trace);
        memcpy(truth.expert[at], trace.route_ids + REF_TOP, sizeof truth.expert[at]);
        memcpy(truth.weight[at], trace.route_weights + REF_TOP, sizeof truth.weight[at]);
    }
    tiny_need(engine_end(e) == 0, "end");
    engine_close(e);
}

static uint32_t word(const unsigned char *bytes)
{
    return (uint32_t)(bytes[0] | bytes[1] << 8);
}

/* Version 1: head and as many positions as there are, each as the truth has it. */
static void check_plain(const unsigned char *bytes, size_t size_bytes)
{
    static const unsigned char head[] = {'K', '3', 'R', 'T', 1, REF_TOP, MOE, 0};
    ck_assert_uint_ge(size_bytes, sizeof head);
    ck_assert_mem_eq(bytes, head, sizeof head);
    for (size_t request = 0; 8 + 4 * request < size_bytes; request++) {
        const unsigned char *at = bytes + 8 + 4 * request;
        size_t group = request / REF_TOP, position = group / MOE;
        ck_assert_uint_eq(word(at), group % MOE);
        if (position < POSITIONS) {
            ck_assert_uint_eq(word(at + 2),
                              truth.expert[position][group % MOE][request % REF_TOP]);
        }
    }
}

static const char *const ways[] = {
    "--chunk 1", "--chunk 3", "", "--threads 3 --pin 0 --expert-slots 10 --cache-policy lar",
    "--draft ngram-fixed", "--draft ngram-fixed --draft-tokens 7 --chunk 3 --io pread",
    "--isa scalar --io sim --tile 4K",
};

START_TEST(the_trace_is_the_routing_of_every_position_however_it_is_run)
{
    size_t size;
    k3ring(RUN "--gen %d --trace %s %s", tiny.dir, GEN, path, ways[_i]);
    expect(0, NULL);
    unsigned char *bytes = take_file(&size);
    ck_assert_uint_eq(size, 8 + POSITIONS * MOE * GROUP_BYTES);
    check_plain(bytes, size);
    free(bytes);
}
END_TEST

/* How many drafted tokens the run that just ended kept, and tried. */
static void count_drafts(uint64_t *accepted, uint64_t *drafted)
{
    cJSON *root = json_parse(process.out, strlen(process.out), "report", false);
    ck_assert_msg(root != NULL, "%s", process.out);
    const cJSON *drafts = cJSON_GetObjectItem(root, "drafts");
    ck_assert(json_u64(cJSON_GetObjectItem(drafts, "drafted"), drafted));
    ck_assert(json_u64(cJSON_GetObjectItem(drafts, "accepted"), accepted));
    cJSON_Delete(root);
}

START_TEST(drafts_that_are_kept_are_recorded_once_and_others_never)
{
    static const char *const tries[] = {"", "--draft ngram-fixed --draft-tokens 2",
                                        "--draft ngram-fixed --draft-tokens 9"};
    struct tiny forgetful;
    size_t size, first_size = 0;
    unsigned char *first = NULL;
    tiny_forgetful(&forgetful, &tiny);
    for (size_t i = 0; i < countof(tries); i++) {
        uint64_t accepted, drafted;
        k3ring(RUN "--gen 150 --json - --trace %s %s", forgetful.dir, path, tries[i]);
        expect(0, NULL);
        count_drafts(&accepted, &drafted);
        unsigned char *bytes = take_file(&size);
        if (i == 0) {
            first = bytes;
            first_size = size;
            ck_assert_uint_eq(size, 8 + (GOLDEN_PROMPT + 149) * MOE * GROUP_BYTES);
            continue;
        }
        printf("note: %u of %u drafted tokens kept\n", (unsigned)accepted, (unsigned)drafted);
        ck_assert_uint_gt(accepted, 0);
        ck_assert_uint_lt(accepted, drafted);
        ck_assert_uint_eq(size, first_size);
        ck_assert_mem_eq(bytes, first, size);
        free(bytes);
    }
    free(first);
    tiny_remove(&forgetful);
}
END_TEST

START_TEST(the_trace_is_what_the_reference_routes)
{
    char why[256];
    const struct golden_truth *reference = golden_expected(why, sizeof why);
    ck_assert_msg(reference != NULL, "%s", why);
    for (int i = 0; i < GOLDEN_ROUTES; i++) {
        for (int j = 0; j < REF_TOP; j++) {
            ck_assert_int_eq(truth.expert[GOLDEN_PROMPT - 1][golden_route_layer[i] - 1][j],
                             reference->routing[i].expert[j]);
        }
    }
}
END_TEST

/* ---- scores ---- */

static float real(const unsigned char *bytes)
{
    uint32_t bits = word(bytes) | word(bytes + 2) << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void read_bias(uint32_t moe_layer, float bias[EXPERTS])
{
    char name[160];
    uint32_t shard;
    size_t size;
    snprintf(name, sizeof name, "language_model.model.layers.%u.block_sparse_moe.gate."
             "e_score_correction_bias", moe_layer + 1);
    uint64_t at = tiny_find(&tiny, name, &shard);
    unsigned char *bytes = tiny_read(&tiny, tiny_shard(shard), &size);
    memcpy(bias, bytes + at, EXPERTS * sizeof *bias);
    free(bytes);
}

/* The taken come first; scores fall; less their bias they are in proportion to the weights. */
static void check_scored(const unsigned char *group, const float *bias, uint32_t position,
                         uint32_t layer)
{
    float before = INFINITY;
    uint32_t seen = 0;
    double unit = 0;
    ck_assert_uint_eq(word(group), layer);
    for (uint32_t i = 0; i < EXPERTS; i++) {
        const unsigned char *at = group + 2 + 6 * i;
        uint32_t expert = word(at);
        float score = real(at + 2);
        ck_assert_uint_lt(expert, EXPERTS);
        ck_assert(score <= before);
        seen |= 1U << expert;
        before = score;
        if (i < REF_TOP) {
            double sigmoid = (double)score - (double)bias[expert];
            double share = sigmoid / (double)truth.weight[position][layer][i];
            ck_assert_uint_eq(expert, truth.expert[position][layer][i]);
            unit = i == 0 ? share : unit;
            ck_assert_msg(fabs(share / unit - 1) < 1e-4, "position %u layer %u rank %u: %g, %g",
                          position, layer, i, share, unit);
        }
    }
    ck_assert_uint_eq(seen, (1U << EXPERTS) - 1);
}

START_TEST(scores_are_those_the_choice_was_made_by)
{
    static const unsigned char head[] = {'K', '3', 'R', 'T', 2, REF_TOP, MOE, 0,
                                         EXPERTS, 0, 0, 0, EXPERTS, 0, 0, 0};
    static unsigned char *first;
    size_t size;
    for (size_t way = 0; way < countof(ways); way++) {
        k3ring(RUN "--gen %d --trace-scores --trace %s %s", tiny.dir, GEN, path, ways[way]);
        expect(0, NULL);
        unsigned char *bytes = take_file(&size);
        ck_assert_uint_eq(size, sizeof head + POSITIONS * MOE * SCORED_GROUP_BYTES);
        if (first == NULL) {
            first = bytes;
        } else {
            ck_assert_mem_eq(bytes, first, size);
            free(bytes);
        }
    }
    ck_assert_mem_eq(first, head, sizeof head);
    for (uint32_t layer = 0; layer < MOE; layer++) {
        float bias[EXPERTS];
        read_bias(layer, bias);
        for (uint32_t position = 0; position < POSITIONS; position++) {
            check_scored(first + sizeof head + (position * MOE + layer) * SCORED_GROUP_BYTES, bias,
                         position, layer);
        }
    }
    free(first);
}
END_TEST

START_TEST(recording_moves_no_bit_and_replays)
{
    k3ring(RUN "--gen 16 --json - --trace-scores --trace %s", tiny.dir, path);
    expect(0, NULL);
    ck_assert_ptr_nonnull(strstr(process.out, TINY_HASH));
    k3ring("replay %s --policy lru --slots 192 --model %s --json -", path, tiny.dir);
    expect(0, NULL);
    ck_assert_ptr_nonnull(strstr(process.out, "\"tokens\":\t23"));
    unlink(path);
}
END_TEST

/* ---- ends ---- */

START_TEST(an_interrupted_run_keeps_whole_positions)
{
    size_t size;
    process_start(&process, folder.dir, process_binary(), RUN "--gen 4000 --ram 64M --pin 0 "
                  "--expert-slots 0 --tile 4K --io-depth 1 --draft ngram-fixed --trace %s",
                  tiny.dir, path);
    for (int i = 0; i < 6000; i++) {
        process_peek(&process);
        if (strchr(process.out, ' ') != NULL) {
            break;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    kill(process.pid, SIGINT);
    process_wait(&process);
    expect(130, NULL);
    uint32_t made = 0;
    for (const char *at = process.out; *at != '\0'; at++) {
        made += *at == ' ' || *at == '\n';
    }
    unsigned char *bytes = take_file(&size);
    ck_assert_uint_eq(size, 8 + (size_t)(GOLDEN_PROMPT + made - 1) * MOE * GROUP_BYTES);
    check_plain(bytes, size);
    free(bytes);
}
END_TEST

START_TEST(a_run_that_fails_leaves_no_trace)
{
    k3ring(RUN "--trace %s --dump-logits /dev/full", tiny.dir, path);
    expect(1, "/dev/full");
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

static const struct {
    const char *arguments;
    int status;
    const char *says;
} refused[] = {
    {"--trace-scores", 2, "--trace FILE"},
    {"--trace -", 2, "--trace"},
    {"--trace x --json x", 2, "also another output"},
    {"--trace x --dump-logits x", 2, "also another output"},
    {"--trace /nonexistent/x", 1, "/nonexistent/x"},
    {"--trace /dev/full", 1, "/dev/full"},
};

START_TEST(a_trace_that_cannot_be_written_is_told)
{
    k3ring(RUN "%s", tiny.dir, refused[_i].arguments);
    expect(refused[_i].status, refused[_i].says);
}
END_TEST

static Suite *record_suite(void)
{
    Suite *suite = suite_create("record");
    TCase *tcase = tcase_create("record");
    tcase_set_timeout(tcase, 240);
    tcase_add_loop_test(tcase, the_trace_is_the_routing_of_every_position_however_it_is_run, 0,
                        countof(ways));
    tcase_add_test(tcase, drafts_that_are_kept_are_recorded_once_and_others_never);
    tcase_add_test(tcase, the_trace_is_what_the_reference_routes);
    tcase_add_test(tcase, scores_are_those_the_choice_was_made_by);
    tcase_add_test(tcase, recording_moves_no_bit_and_replays);
    tcase_add_test(tcase, an_interrupted_run_keeps_whole_positions);
    tcase_add_test(tcase, a_run_that_fails_leaves_no_trace);
    tcase_add_loop_test(tcase, a_trace_that_cannot_be_written_is_told, 0, countof(refused));
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    tiny_make(&tiny, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    tiny_folder(&results, TINY_MEMORY);
    tiny_path(&results, "trace", path);
    find_truth();
    int failed = suite_run(record_suite());
    tiny_remove(&tiny);
    tiny_remove(&folder);
    tiny_remove(&results);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
