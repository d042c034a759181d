/* SPDX-License-Identifier: Apache-2.0 */

/* Is the engine right? The tiny model through plan, ring, slab and kernels, judged by the double
 * reference: logits, residuals, routings and ids, on every instruction set of this machine. And
 * one constant that every build on every machine must meet: the hash of all logits. */

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/exec/generate.h"
#include "kernels/kernels.h"
#include "tests/support/golden.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

static const enum isa isas[] = {ISA_SCALAR, ISA_AVX2, ISA_AVX512};
static const char *const isa_names[] = {"scalar", "avx2", "avx512"};

static struct tiny tiny; /* on a drive */
static struct tiny fast; /* in memory, for what reads much */
static char why[256];

static struct engine *open_engine(const char *dir, const struct engine_options *options)
{
    struct engine *e = NULL;
    err_clear();
    int rc = engine_open(&e, dir, options);
    ck_assert_msg(rc == 0, "%s", err_message());
    return e;
}

/* Prompt in one pass, then the golden ids whatever the engine would have chosen. */
static void follow(struct engine *e, struct golden_run *run)
{
    uint32_t ids[GOLDEN_PROMPT];
    const float *logits = NULL;
    for (int i = 0; i < GOLDEN_PROMPT; i++) {
        ids[i] = (uint32_t)golden_prompt[i];
    }
    ck_assert_int_eq(engine_begin(e, GOLDEN_PROMPT, GOLDEN_STEPS - 1), 0);
    ck_assert_msg(engine_pass(e, ids, GOLDEN_PROMPT, &logits) == 0, "%s", err_message());
    ck_assert_ptr_nonnull(logits);
    memcpy(run->logits, logits, sizeof run->logits);
    struct engine_trace trace;
    engine_trace(e, &trace);
    memcpy(run->hmax, trace.layer_max, sizeof run->hmax);
    for (int i = 0; i < GOLDEN_ROUTES; i++) {
        for (int j = 0; j < REF_TOP; j++) {
            int at = golden_route_layer[i] * REF_TOP + j;
            run->routing[i].expert[j] = trace.route_ids[at];
            run->routing[i].weight[j] = trace.route_weights[at];
        }
    }
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        memcpy(run->steps[step], logits, sizeof run->steps[step]);
        run->ids[step] = (int)argmax(logits, REF_VOCAB);
        if (step + 1 < GOLDEN_STEPS) {
            uint32_t id = (uint32_t)golden_ids[step];
            ck_assert_msg(engine_pass(e, &id, 1, &logits) == 0, "%s", err_message());
        }
    }
    ck_assert_int_eq(engine_end(e), 0);
}

static void judge(const char *dir, const struct engine_options *options, const char *name)
{
    static struct golden_run run;
    struct engine *e = open_engine(dir, options);
    struct engine_facts facts;
    ck_assert_int_eq(engine_model(e)->config.vocab, REF_VOCAB);
    ck_assert_int_eq(engine_model(e)->config.layers, REF_LAYERS);
    engine_facts(e, &facts);
    ck_assert_str_eq(facts.isa, name);
    memset(&run, 0, sizeof run);
    follow(e, &run);
    engine_close(e);
    bool good = golden_judge(&run, why, sizeof why);
    const struct golden_measured *m = &run.measured;
    printf("note: %s: logits off by %.3g at the prompt, %.3g over %d steps; |prefix| %.3g "
           "relative; router weights %.3g; %d ids and %d routings equal\n", name, m->logit,
           m->step_logit, GOLDEN_STEPS, m->hmax_relative, m->weight, m->ids_equal,
           m->routings_equal);
    fflush(stdout);
    ck_assert_msg(good, "%s: %s", name, why);
    ck_assert(m->ids_equal == GOLDEN_STEPS && m->routings_equal == GOLDEN_ROUTES);
    for (int i = 0; i < GOLDEN_ROUTES; i++) {
        ck_assert_msg(golden_routing_valid(&run.routing[i], why, sizeof why), "%s: %s", name, why);
    }
}

static bool have(int isa)
{
    if (kernels_select(isas[isa]) != NULL) {
        return true;
    }
    printf("note: %s: this processor lacks it\n", isa_names[isa]);
    fflush(stdout);
    return false;
}

START_TEST(the_engine_agrees_with_the_double_reference)
{
    struct engine_options options = tiny_options(GOLDEN_STEPS);
    if (have(_i)) {
        options.isa = isas[_i];
        judge(tiny.dir, &options, isa_names[_i]);
    }
}
END_TEST

/* Nothing pinned, nothing cached, every matrix in many tiles. */
START_TEST(a_streaming_engine_agrees_as_well)
{
    struct engine_options options = tiny_options(GOLDEN_STEPS);
    options.isa = ISA_SCALAR;
    options.pin_bytes = options.expert_slots = 0;
    options.tile_bytes = 4 * KIB;
    judge(fast.dir, &options, "scalar");
}
END_TEST

/* Compilers, sanitizers, instruction sets and libc tunables are compared with each other through
 * this constant. */
START_TEST(the_hash_of_all_logits_is_the_one_every_build_must_meet)
{
    uint32_t prompt[GOLDEN_PROMPT];
    uint32_t ids[GOLDEN_STEPS];
    char text[65];
    struct engine_options options = tiny_options(GOLDEN_STEPS);
    if (!have(_i)) {
        return;
    }
    for (int i = 0; i < GOLDEN_PROMPT; i++) {
        prompt[i] = (uint32_t)golden_prompt[i];
    }
    struct generate_request request = {.ids = prompt, .id_count = GOLDEN_PROMPT,
                                       .gen = GOLDEN_STEPS};
    struct generate_result result = {.ids = ids};
    options.isa = isas[_i];
    struct engine *e = open_engine(tiny.dir, &options);
    ck_assert_msg(generate(e, &request, &result) == 0, "%s", err_message());
    engine_close(e);
    for (int i = 0; i < GOLDEN_STEPS; i++) {
        ck_assert_int_eq(ids[i], golden_ids[i]);
    }
    generate_hash_text(result.hash, text);
    ck_assert_str_eq(text, TINY_HASH);
}
END_TEST

/* The judge sees what the engine leaves behind: a wrong prompt must not pass. */
START_TEST(another_prompt_is_rejected)
{
    static struct golden_run run;
    struct engine_options options = tiny_options(GOLDEN_STEPS);
    uint32_t ids[GOLDEN_PROMPT] = {3, 141, 59, 26, 53, 58, 97, 94};
    const float *logits;
    struct engine *e = open_engine(tiny.dir, &options);
    follow(e, &run);
    ck_assert_msg(golden_judge(&run, why, sizeof why), "%s", why);
    ck_assert_int_eq(engine_begin(e, GOLDEN_PROMPT, 0), 0);
    ck_assert_int_eq(engine_pass(e, ids, GOLDEN_PROMPT, &logits), 0);
    memcpy(run.logits, logits, sizeof run.logits);
    ck_assert_int_eq(engine_end(e), 0);
    engine_close(e);
    ck_assert(!golden_judge(&run, why, sizeof why));
}
END_TEST

static Suite *golden_suite(void)
{
    Suite *suite = suite_create("golden");
    TCase *tcase = tcase_create("engine");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, the_engine_agrees_with_the_double_reference, 0,
                        (int)countof(isas));
    tcase_add_test(tcase, a_streaming_engine_agrees_as_well);
    tcase_add_loop_test(tcase, the_hash_of_all_logits_is_the_one_every_build_must_meet, 0,
                        (int)countof(isas));
    tcase_add_test(tcase, another_prompt_is_rejected);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    if (golden_expected(why, sizeof why) == NULL) {
        fprintf(stderr, "golden_test: %s\n", why);
        return EXIT_FAILURE;
    }
    tiny_make(&tiny, TINY_DISK);
    tiny_make(&fast, TINY_MEMORY);
    int failed = suite_run(golden_suite());
    tiny_remove(&tiny);
    tiny_remove(&fast);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
