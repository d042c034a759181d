/* SPDX-License-Identifier: Apache-2.0 */

/* Is the judge any good? The reference must reproduce every published figure, and the judge that
 * is built on it must turn down each of 37 models that are wrong in one place. */

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/golden.h"
#include "tests/support/suite.h"

/* Every visible mistake moves a logit of the last prompt position by at least this much. */
#define VISIBLE_LOGIT 2.9

static struct ref_weights *weights; /* one for the program; forked tests inherit it */
static char why[256];

static void correct_run(struct golden_run *run)
{
    const struct golden_truth *truth = golden_expected(why, sizeof why);
    ck_assert_msg(truth != NULL, "%s", why);
    golden_narrow(truth, run);
}

static void wrong_run(enum mutation mutation, struct golden_run *run)
{
    struct golden_truth *truth = malloc(sizeof *truth);
    ck_assert_ptr_nonnull(truth);
    ck_assert(golden_follow(weights, mutation, truth));
    golden_narrow(truth, run);
    free(truth);
}

static void expect_rejected(struct golden_run *run, const char *part)
{
    ck_assert(!golden_judge(run, why, sizeof why));
    ck_assert_msg(strstr(why, part) != NULL, "rejected for another reason: %s", why);
}

START_TEST(the_generator_gives_the_published_words)
{
    const char *name = "language_model.model.embed_tokens.weight";
    uint64_t seed = ref_name_hash(name);
    ck_assert_uint_eq(seed, 0xdec43c721d10b8a6ULL);
    ck_assert_uint_eq(ref_word(seed, 0), 0xbb99b999d5c5aa3eULL);
    const float *row = ref_weights_embedding(weights, 0);
    ck_assert(row[0] == 0.46484375F && row[1] == 0.625F);
    ck_assert(row[2] == -0.9453125F && row[3] == -0.486328125F);
}
END_TEST

/* The checkpoint has one more tensor, of 96 bytes, that no text model reads. */
START_TEST(the_weights_add_up_to_the_published_checkpoint)
{
    ck_assert_int_eq(ref_weights_tensors(weights), 1493 - 1);
    ck_assert_uint_eq(ref_weights_size_bytes(weights), 4399840 - 96);
}
END_TEST

START_TEST(the_reference_reproduces_every_published_constant)
{
    struct golden_truth *truth = malloc(sizeof *truth);
    ck_assert_ptr_nonnull(truth);
    ck_assert(golden_follow(weights, MUTATION_NONE, truth));
    ck_assert_msg(golden_matches_constants(truth, why, sizeof why), "%s", why);
    free(truth);
}
END_TEST

/* Each kind of constant must be able to fail on its own. */
START_TEST(a_truth_that_misses_one_constant_is_refused)
{
    const struct golden_truth *known = golden_expected(why, sizeof why);
    ck_assert_ptr_nonnull(known);
    struct golden_truth *truth = malloc(sizeof *truth);
    ck_assert_ptr_nonnull(truth);
    double *part[] = {&truth->steps[0][7], &truth->steps[0][209], &truth->steps[0][100],
                      &truth->hmax[12],    &truth->margin_min,    &truth->routing[1].weight[3]};
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++) {
        *truth = *known;
        *part[i] += part[i] == &truth->margin_min ? 1e-3 : 2e-6;
        ck_assert_msg(!golden_matches_constants(truth, why, sizeof why), "part %zu", i);
    }
    *truth = *known;
    truth->ids[15]++;
    ck_assert(!golden_matches_constants(truth, why, sizeof why));
    *truth = *known;
    truth->routing[0].expert[2]++;
    ck_assert(!golden_matches_constants(truth, why, sizeof why));
    free(truth);
}
END_TEST

START_TEST(feeding_the_same_tokens_twice_gives_the_same_bits)
{
    struct reference *a = reference_open(weights, MUTATION_NONE);
    struct reference *b = reference_open(weights, MUTATION_NONE);
    ck_assert(a != NULL && b != NULL);
    for (int i = 0; i < GOLDEN_PROMPT; i++) {
        reference_step(a, golden_prompt[i]);
        reference_step(b, golden_prompt[i]);
    }
    ck_assert_mem_eq(a->logits, b->logits, sizeof a->logits);
    reference_close(a);
    reference_close(b);
}
END_TEST

START_TEST(the_correct_run_is_accepted)
{
    static struct golden_run run;
    correct_run(&run);
    ck_assert_msg(golden_judge(&run, why, sizeof why), "%s", why);
    ck_assert_int_eq(run.measured.ids_equal, GOLDEN_STEPS);
    ck_assert_int_eq(run.measured.routings_equal, GOLDEN_ROUTES);
    ck_assert(run.measured.step_logit < 1e-6 && run.measured.hmax_relative < 1e-6);
    ck_assert(run.measured.weight < 1e-7);
}
END_TEST

START_TEST(a_run_inside_the_tolerances_is_accepted)
{
    static struct golden_run run;
    correct_run(&run);
    run.logits[200] += 9e-4F;
    run.steps[9][17] -= 9e-4F;
    run.hmax[4] *= 1.00009F;
    run.routing[2].weight[1] += 3e-5F;
    ck_assert_msg(golden_judge(&run, why, sizeof why), "%s", why);
    ck_assert(run.measured.logit > 8e-4 && run.measured.step_logit > 8e-4);
    ck_assert(run.measured.hmax_relative > 8e-5 && run.measured.weight > 2e-5);
}
END_TEST

START_TEST(a_visible_mistake_is_rejected)
{
    enum mutation mutation = (enum mutation)_i;
    static struct golden_run run;
    wrong_run(mutation, &run);
    ck_assert_msg(!golden_judge(&run, why, sizeof why), "%s passed", mutation_name(mutation));
    printf("  %-32s max |dlogit| %6.3f, %2d of %d ids\n", mutation_name(mutation),
           run.measured.logit, run.measured.ids_equal, GOLDEN_STEPS);
    ck_assert_msg(run.measured.logit > VISIBLE_LOGIT, "%s moves a logit by only %g",
                  mutation_name(mutation), run.measured.logit);
    ck_assert_int_lt(run.measured.ids_equal, GOLDEN_STEPS);
    ck_assert_msg(strncmp(why, "logits", 6) == 0, "%s", why);
}
END_TEST

START_TEST(dropping_the_renormalisation_is_seen_at_the_router_alone)
{
    static struct golden_run run, right;
    wrong_run(MUTATION_RENORM_DROPPED, &run);
    correct_run(&right);
    expect_rejected(&run, "routing of layer 1: weight 0");
    printf("  %-32s max |dlogit| %.2g, %2d of %d ids\n", mutation_name(MUTATION_RENORM_DROPPED),
           run.measured.logit, run.measured.ids_equal, GOLDEN_STEPS);
    ck_assert(run.measured.step_logit < GOLDEN_LOGIT_TOLERANCE);
    ck_assert(run.measured.logit > 0.0);
    ck_assert(run.measured.hmax_relative < GOLDEN_HMAX_TOLERANCE);
    ck_assert_int_eq(run.measured.ids_equal, GOLDEN_STEPS);
    for (int i = 0; i < GOLDEN_ROUTES; i++) {
        ck_assert_msg(golden_routing_valid(&right.routing[i], why, sizeof why), "%s", why);
        ck_assert(!golden_routing_valid(&run.routing[i], why, sizeof why));
        ck_assert_msg(strstr(why, "sum to") != NULL, "%s", why);
    }
}
END_TEST

START_TEST(the_router_check_refuses_impossible_routings)
{
    const struct golden_routing good = {{3, 0, 15, 7}, {0.25F, 0.25F, 0.25F, 0.25F}};
    struct golden_routing bad;
    ck_assert(golden_routing_valid(&good, why, sizeof why));
    bad = good;
    bad.expert[1] = 3;
    ck_assert(!golden_routing_valid(&bad, why, sizeof why));
    bad = good;
    bad.expert[2] = REF_EXPERTS;
    ck_assert(!golden_routing_valid(&bad, why, sizeof why));
    bad = good;
    bad.weight[0] = 0.5F;
    bad.weight[1] = 0.0F;
    ck_assert(!golden_routing_valid(&bad, why, sizeof why));
    bad = good;
    bad.weight[3] = NAN;
    ck_assert(!golden_routing_valid(&bad, why, sizeof why));
}
END_TEST

START_TEST(one_wrong_logit_of_any_step_is_rejected)
{
    static struct golden_run run;
    correct_run(&run);
    run.logits[255] += 1.1e-3F;
    expect_rejected(&run, "last prompt position");
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        correct_run(&run);
        run.steps[step][step] -= 1.1e-3F;
        expect_rejected(&run, "logits of step");
        ck_assert(run.measured.step_logit > GOLDEN_LOGIT_TOLERANCE);
    }
}
END_TEST

START_TEST(one_wrong_routing_is_rejected)
{
    static struct golden_run run;
    for (int i = 0; i < GOLDEN_ROUTES; i++) {
        correct_run(&run);
        run.routing[i].expert[3] = (run.routing[i].expert[3] + 1) % REF_EXPERTS;
        expect_rejected(&run, "choice 3");
        ck_assert_int_eq(run.measured.routings_equal, GOLDEN_ROUTES - 1);
        correct_run(&run);
        run.routing[i].weight[2] += 6e-5F;
        expect_rejected(&run, "weight 2");
    }
}
END_TEST

START_TEST(two_experts_in_exchanged_order_are_rejected)
{
    static struct golden_run run;
    correct_run(&run);
    int first = run.routing[1].expert[0];
    run.routing[1].expert[0] = run.routing[1].expert[1];
    run.routing[1].expert[1] = first;
    expect_rejected(&run, "routing of layer 3");
}
END_TEST

START_TEST(one_wrong_hmax_is_rejected)
{
    static struct golden_run run;
    for (int layer = 0; layer < REF_LAYERS; layer++) {
        correct_run(&run);
        run.hmax[layer] *= 1.00012F;
        expect_rejected(&run, "hmax of layer");
    }
}
END_TEST

START_TEST(one_wrong_id_is_rejected)
{
    static struct golden_run run;
    for (int i = 0; i < GOLDEN_STEPS; i++) {
        correct_run(&run);
        run.ids[i] ^= 1;
        expect_rejected(&run, "expected");
        ck_assert_int_eq(run.measured.ids_equal, GOLDEN_STEPS - 1);
    }
}
END_TEST

START_TEST(a_value_that_is_not_a_number_is_rejected)
{
    static struct golden_run run;
    correct_run(&run);
    run.steps[3][200] = NAN;
    expect_rejected(&run, "logits of step 3");
    correct_run(&run);
    run.logits[0] = NAN;
    expect_rejected(&run, "last prompt position");
    correct_run(&run);
    run.hmax[5] = NAN;
    expect_rejected(&run, "hmax of layer 5");
    correct_run(&run);
    run.routing[2].weight[0] = NAN;
    expect_rejected(&run, "routing of layer 12");
}
END_TEST

START_TEST(a_run_of_nothing_is_rejected)
{
    static struct golden_run run;
    memset(&run, 0, sizeof run);
    ck_assert(!golden_judge(&run, why, sizeof why));
    ck_assert_int_eq(run.measured.ids_equal, 0);
}
END_TEST

static Suite *reference_suite(void)
{
    Suite *suite = suite_create("reference");
    TCase *reference = tcase_create("reference");
    tcase_add_test(reference, the_generator_gives_the_published_words);
    tcase_add_test(reference, the_weights_add_up_to_the_published_checkpoint);
    tcase_add_test(reference, the_reference_reproduces_every_published_constant);
    tcase_add_test(reference, a_truth_that_misses_one_constant_is_refused);
    tcase_add_test(reference, feeding_the_same_tokens_twice_gives_the_same_bits);
    suite_add_tcase(suite, reference);

    TCase *mistakes = tcase_create("mistakes");
    tcase_set_timeout(mistakes, 60);
    tcase_add_loop_test(mistakes, a_visible_mistake_is_rejected, MUTATION_FIRST,
                        MUTATION_VISIBLE_END);
    tcase_add_test(mistakes, dropping_the_renormalisation_is_seen_at_the_router_alone);
    suite_add_tcase(suite, mistakes);

    TCase *judge = tcase_create("judge");
    tcase_add_test(judge, the_correct_run_is_accepted);
    tcase_add_test(judge, a_run_inside_the_tolerances_is_accepted);
    tcase_add_test(judge, the_router_check_refuses_impossible_routings);
    tcase_add_test(judge, one_wrong_logit_of_any_step_is_rejected);
    tcase_add_test(judge, one_wrong_routing_is_rejected);
    tcase_add_test(judge, two_experts_in_exchanged_order_are_rejected);
    tcase_add_test(judge, one_wrong_hmax_is_rejected);
    tcase_add_test(judge, one_wrong_id_is_rejected);
    tcase_add_test(judge, a_value_that_is_not_a_number_is_rejected);
    tcase_add_test(judge, a_run_of_nothing_is_rejected);
    suite_add_tcase(suite, judge);
    return suite;
}

int main(void)
{
    weights = ref_weights_open();
    if (weights == NULL || golden_expected(why, sizeof why) == NULL) {
        fprintf(stderr, "reference_test: %s\n", weights == NULL ? "no memory" : why);
        ref_weights_close(weights);
        return EXIT_FAILURE;
    }
    int failed = suite_run(reference_suite());
    ref_weights_close(weights);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
