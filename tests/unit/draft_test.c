/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>

#include "core/exec/draft.h"
#include "tests/support/suite.h"

#define PASS_NS 1000000000ULL

START_TEST(nothing_is_proposed_where_nothing_came_before)
{
    struct draft d;
    uint32_t out[DRAFT_TOKENS_MAX];
    const uint32_t fresh[] = {1, 2, 3, 4, 5};
    draft_init(&d, 0.1, true);
    ck_assert_uint_eq(draft_propose(&d, fresh, 5, 4, out), 0);
    ck_assert_uint_eq(draft_propose(&d, fresh, 1, 4, out), 0);
    ck_assert_uint_eq(draft_propose(&d, (const uint32_t[]){7, 7}, 2, 0, out), 0);
}
END_TEST

START_TEST(the_longest_and_then_the_latest_match_is_followed)
{
    struct draft d;
    uint32_t out[DRAFT_TOKENS_MAX];
    const uint32_t longest[] = {1, 2, 3, 9, 3, 8, 1, 2, 3};
    const uint32_t latest[] = {5, 1, 5, 2, 5};
    draft_init(&d, 0.1, true);
    ck_assert_uint_eq(draft_propose(&d, longest, 9, 2, out), 2);
    ck_assert_uint_eq(out[0], 9);
    ck_assert_uint_eq(out[1], 3);
    ck_assert_uint_eq(d.match, 3);
    ck_assert_uint_eq(draft_propose(&d, latest, 5, 1, out), 1);
    ck_assert_uint_eq(out[0], 2);
}
END_TEST

START_TEST(a_loop_is_drafted_past_its_own_end)
{
    struct draft d;
    uint32_t out[DRAFT_TOKENS_MAX];
    const uint32_t loop[] = {4, 5, 6, 4, 5, 6};
    draft_init(&d, 0.1, true);
    ck_assert_uint_eq(draft_propose(&d, loop, 6, 8, out), 8);
    for (uint32_t i = 0; i < 8; i++) {
        ck_assert_uint_eq(out[i], 4 + i % 3);
    }
}
END_TEST

/* What a run of passes looks like when a fixed share of a draft is right. Returns the width that
 * is proposed at the end. */
static uint32_t settle(struct draft *d, uint32_t right_of, double slope, uint32_t passes)
{
    const uint32_t loop[] = {4, 5, 6, 4, 5, 6};
    uint32_t out[DRAFT_TOKENS_MAX];
    uint32_t tried = 0;
    for (uint32_t i = 0; i < passes; i++) {
        tried = draft_propose(d, loop, 6, 8, out);
        uint32_t kept = tried < right_of ? tried : right_of;
        draft_learn(d, tried, kept, (uint64_t)((double)PASS_NS * (1 + tried * slope)));
    }
    return tried;
}

START_TEST(cheap_and_right_drafts_grow_to_all_that_is_allowed)
{
    struct draft d;
    draft_init(&d, 0.5, false);
    draft_learn(&d, 0, 0, PASS_NS);
    ck_assert_uint_eq(settle(&d, 8, 0.02, 100), 8);
    ck_assert_double_lt(d.slope, 0.03);
}
END_TEST

START_TEST(drafts_that_cost_a_pass_each_are_given_up_but_tried_again)
{
    struct draft d;
    uint32_t out[DRAFT_TOKENS_MAX];
    const uint32_t loop[] = {4, 5, 6, 4, 5, 6};
    uint32_t proposals = 0;
    draft_init(&d, 0.05, false);
    draft_learn(&d, 0, 0, PASS_NS);
    settle(&d, 0, 1.0, 200);
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t tried = draft_propose(&d, loop, 6, 8, out);
        ck_assert_uint_le(tried, 1);
        proposals += tried;
        draft_learn(&d, tried, 0, PASS_NS * (1 + tried));
    }
    ck_assert_uint_ge(proposals, 3);
    ck_assert_uint_le(proposals, 5);
}
END_TEST

START_TEST(a_first_pass_that_was_drafted_still_gives_a_base)
{
    struct draft d;
    draft_init(&d, 0.5, false);
    draft_learn(&d, 2, 2, 2 * PASS_NS);
    ck_assert_double_eq(d.base_ns, (double)PASS_NS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("draft");
    TCase *tests = tcase_create("ngram");
    tcase_add_test(tests, nothing_is_proposed_where_nothing_came_before);
    tcase_add_test(tests, the_longest_and_then_the_latest_match_is_followed);
    tcase_add_test(tests, a_loop_is_drafted_past_its_own_end);
    tcase_add_test(tests, cheap_and_right_drafts_grow_to_all_that_is_allowed);
    tcase_add_test(tests, drafts_that_cost_a_pass_each_are_given_up_but_tried_again);
    tcase_add_test(tests, a_first_pass_that_was_drafted_still_gives_a_base);
    suite_add_tcase(suite, tests);
    return suite_run(suite) == 0 ? 0 : 1;
}
