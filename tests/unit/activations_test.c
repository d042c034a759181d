/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>

#include "planner/activations.h"
#include "tests/support/checkpoint.h"
#include "tests/support/suite.h"

static const uint32_t chunks[] = {1, 2, 3, 7, 64, 511, 512};

static void config_of(int index, struct model_config *c)
{
    if (index % 2 == 0) {
        fake_config_k3(c);
    } else {
        fake_config_tiny(c);
    }
}

/* The stage that uses a buffer; 0 is all of them. */
static int stage_of(int buffer)
{
    return buffer <= B_ALWAYS_LAST ? 0 : buffer <= B_KDA_LAST ? 1 : buffer <= B_MLA_LAST ? 2
           : buffer <= B_DENSE_LAST ? 3 : 4;
}

START_TEST(buffers_that_live_together_never_overlap)
{
    struct model_config c;
    struct activations a;
    config_of(_i, &c);
    for (size_t i = 0; i < countof(chunks); i++) {
        activations_layout(&c, chunks[i], &a);
        for (int x = 0; x < B_COUNT; x++) {
            for (int y = 0; y < x; y++) {
                bool together = stage_of(x) == stage_of(y) || stage_of(x) == 0 || stage_of(y) == 0;
                uint64_t x_end = a.offset_bytes[x] + a.width[x] * chunks[i] * 4;
                uint64_t y_end = a.offset_bytes[y] + a.width[y] * chunks[i] * 4;
                bool apart = x_end <= a.offset_bytes[y] || y_end <= a.offset_bytes[x];
                ck_assert_msg(!together || apart, "buffers %d and %d overlap", x, y);
            }
        }
    }
}
END_TEST

START_TEST(buffers_lie_inside_the_block_and_on_cache_lines)
{
    struct model_config c;
    struct activations a;
    config_of(_i, &c);
    for (size_t i = 0; i < countof(chunks); i++) {
        activations_layout(&c, chunks[i], &a);
        ck_assert_uint_eq(a.chunk, chunks[i]);
        uint64_t end = 0;
        for (int b = 0; b < B_COUNT; b++) {
            ck_assert_uint_gt(a.width[b], 0);
            ck_assert_uint_eq(a.offset_bytes[b] % 64, 0);
            uint64_t tokens = b == B_EXPERT_HIDDEN ? 1 : chunks[i];
            end = max_u64(end, a.offset_bytes[b] + a.width[b] * tokens * 4);
        }
        ck_assert_uint_le(end, a.size_bytes);
        ck_assert_uint_lt(a.size_bytes - end, 64);
    }
}
END_TEST

START_TEST(stages_that_never_meet_share_their_bytes)
{
    struct model_config c;
    struct activations a;
    fake_config_k3(&c);
    activations_layout(&c, 8, &a);
    uint64_t sum = 0;
    for (int b = 0; b < B_COUNT; b++) {
        sum += a.width[b] * 8 * 4;
    }
    ck_assert_uint_lt(a.size_bytes, sum * 3 / 4);
}
END_TEST

START_TEST(widths_are_those_of_the_model)
{
    struct model_config c;
    struct activations a;
    fake_config_tiny(&c);
    activations_layout(&c, 1, &a);
    ck_assert_uint_eq(a.blocks, 5); /* at layers 0, 3, 6, 9 and 12 */
    ck_assert_uint_eq(a.width[B_SNAPSHOTS], 5 * 128);
    ck_assert_uint_eq(a.width[B_PREFIX], 128);
    ck_assert_uint_eq(a.width[B_Q], 64);
    ck_assert_uint_eq(a.width[B_BETA], 4);
    ck_assert_uint_eq(a.width[B_F_A], 16);
    ck_assert_uint_eq(a.width[B_KV_A], 40);
    ck_assert_uint_eq(a.width[B_MLA_Q], 6 * 32);
    ck_assert_uint_eq(a.width[B_MLA_O], 96);
    ck_assert_uint_eq(a.width[B_DENSE_UP], 96);
    ck_assert_uint_eq(a.width[B_ROUTER], 16);
    ck_assert_uint_eq(a.width[B_EXPERT_OUT], 4 * 64);
    ck_assert_uint_eq(a.width[B_SHARED_UP], 128);
    fake_config_k3(&c);
    activations_layout(&c, 1, &a);
    ck_assert_uint_eq(a.blocks, 8);
    ck_assert_uint_eq(a.width[B_SNAPSHOTS] * 4, 229376);
}
END_TEST

/* One part of the scratch: where it begins, and the floats it has to hold. */
struct part {
    uint64_t begin, needed;
};

static int by_begin(const void *a, const void *b)
{
    const struct part *x = a;
    const struct part *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

START_TEST(parts_of_the_scratch_never_overlap)
{
    struct model_config c;
    struct scratch s;
    config_of(_i, &c);
    for (size_t i = 0; i < countof(chunks); i++) {
        scratch_layout(&c, chunks[i], 1000 + chunks[i], true, &s);
        uint64_t tokens = s.expert_tokens;
        ck_assert_uint_ge(tokens, 1);
        ck_assert_uint_le(tokens, chunks[i]);
        struct part parts[] = {
            {s.scores, 1000 + chunks[i]},
            {s.absorbed, c.kv_lora + c.qk_rope},
            {s.context, c.kv_lora},
            {s.hidden_gate, tokens * c.expert_width},
            {s.hidden_up, tokens * c.expert_width},
            {s.gather, tokens * c.latent},
            {s.result, tokens * c.latent},
            {s.kda, 8ULL * c.kda_dim},
            {s.kda_trial, (uint64_t)c.kda_dim * c.kda_dim + 3ULL * (c.conv_taps - 1) * c.kda_dim},
        };
        qsort(parts, countof(parts), sizeof parts[0], by_begin);
        for (size_t p = 0; p < countof(parts); p++) {
            uint64_t limit = p + 1 < countof(parts) ? parts[p + 1].begin : s.size_bytes / 4;
            ck_assert_uint_eq(parts[p].begin % 16, 0);
            ck_assert_uint_le(parts[p].begin + parts[p].needed, limit);
        }
    }
}
END_TEST

START_TEST(state_and_latent_cache_have_their_published_sizes)
{
    struct model_config c;
    fake_config_k3(&c);
    ck_assert_uint_eq(state_bytes(&c), 69ULL * (96 * 128 * 128 + 9 * 12288) * 4);
    ck_assert_uint_eq(kv_bytes(&c, 1), 55296);
    ck_assert_uint_eq(kv_bytes(&c, 1048576), 55296ULL * 1048576);
    fake_config_tiny(&c);
    ck_assert_uint_eq(state_bytes(&c), 9ULL * (4 * 16 * 16 + 9 * 64) * 4);
    ck_assert_uint_eq(kv_bytes(&c, 10), 4 * 40 * 4 * 10);
}
END_TEST

static Suite *activations_suite(void)
{
    TCase *layout = tcase_create("layout");
    tcase_add_loop_test(layout, buffers_that_live_together_never_overlap, 0, 2);
    tcase_add_loop_test(layout, buffers_lie_inside_the_block_and_on_cache_lines, 0, 2);
    tcase_add_test(layout, stages_that_never_meet_share_their_bytes);
    tcase_add_test(layout, widths_are_those_of_the_model);
    tcase_add_loop_test(layout, parts_of_the_scratch_never_overlap, 0, 2);
    tcase_add_test(layout, state_and_latent_cache_have_their_published_sizes);
    Suite *suite = suite_create("activations");
    suite_add_tcase(suite, layout);
    return suite;
}

int main(void)
{
    return suite_run(activations_suite()) == 0 ? 0 : 1;
}
