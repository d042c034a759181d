/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "planner/plan.h"
#include "tests/support/checkpoint.h"
#include "tests/support/paper.h"
#include "tests/support/suite.h"

/* Tensor bytes of the 93 decoder layers without their routed experts, and of lm_head. */
#define K3_TRUNK_BYTES 108811877376ULL
#define K3_HEAD_BYTES 2348810240ULL
#define K3_EXPERT_BYTES 17547264ULL
#define K3_EXPERT_WINDOW_BYTES 17551360ULL

static struct model *k3, *tiny;

static void open_models(void)
{
    struct model_config c;
    fake_config_k3(&c);
    k3 = paper_model(&c);
    fake_config_tiny(&c);
    tiny = paper_model(&c);
}

static void close_models(void)
{
    model_close(k3);
    model_close(tiny);
}

static struct plan_request request_of(uint64_t ram_bytes, uint64_t tile_bytes)
{
    struct plan_request request = paper_request(ram_bytes);
    request.tile_bytes = tile_bytes;
    return request;
}

static struct plan *build(const struct model *model, const struct plan_request *request)
{
    struct plan *plan = NULL;
    err_clear();
    ck_assert_msg(plan_build(model, request, &plan) == 0, "%s", err_message());
    return plan;
}

static const struct {
    bool full;
    uint64_t tile_bytes;
} cuts[] = {{true, PLAN_AUTO}, {true, 1 * MIB}, {true, 16 * MIB}, {true, 100000},
            {false, PLAN_AUTO}, {false, 4096}, {false, 5000}, {false, 8192}, {false, 16 * MIB}};

static struct plan *build_cut(int index, const struct model **model)
{
    *model = cuts[index].full ? k3 : tiny;
    const struct plan_request request = request_of(2 * GIB, cuts[index].tile_bytes);
    return build(*model, &request);
}

/* An assertion of Check costs a write; this one is for loops over a million tiles. */
static void must(bool condition, const char *what)
{
    if (!condition) {
        ck_abort_msg("%s", what);
    }
}

static const struct tensor_ref *matrix_of(const struct model *model, const struct plan_step *step)
{
    uint32_t owner = step->tensor >= T_LAYER_COUNT ? TENSOR_MODEL_LEVEL : step->layer;
    return model_tensor(model, owner, step->tensor);
}

/* Whether the steps that read a tensor hold each of its rows once. */
static void expect_rows_once(const struct plan *plan, const struct model *model, uint32_t layer,
                             enum tensor_id id, uint32_t *at)
{
    const struct tensor_ref *ref =
        model_tensor(model, id >= T_EMBED ? TENSOR_MODEL_LEVEL : layer, id);
    uint64_t rows = 0;
    unsigned char *seen = calloc(ref->rows, 1);
    for (; *at < plan->tile_count; (*at)++) {
        const struct plan_tile *tile = &plan->tiles[*at];
        const struct plan_step *step = &plan->steps[tile->step];
        if (step->layer != layer || step->tensor != id) {
            break;
        }
        must((uint64_t)tile->row_first + tile->row_count <= ref->rows, "rows that are not there");
        for (uint32_t row = 0; row < tile->row_count; row++) {
            must(seen[tile->row_first + row]++ == 0, "a row in two tiles");
            rows++;
        }
    }
    free(seen);
    ck_assert_msg(rows == ref->rows, "layer %u tensor %d: %llu of %u rows", layer, (int)id,
                  (unsigned long long)rows, ref->rows);
}

START_TEST(every_row_of_every_matrix_is_in_exactly_one_tile)
{
    const struct model *model;
    struct plan *plan = build_cut(_i, &model);
    const struct model_config *c = &model->config;
    uint32_t at = 0;
    uint32_t matrices = 0;
    while (at < plan->tile_count) {
        const struct plan_step *step = &plan->steps[plan->tiles[at].step];
        must(!paper_is_small(step->tensor) && step->tensor != T_EMBED, "no matrix of the walk");
        expect_rows_once(plan, model, step->layer, step->tensor, &at);
        matrices++;
    }
    uint32_t expected = 1; /* lm_head */
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        for (enum tensor_id id = 0; id < T_LAYER_COUNT; id++) {
            expected += inventory_layer_has(c, layer, id) && !paper_is_small(id);
        }
    }
    ck_assert_uint_eq(matrices, expected);
    plan_free(plan);
}
END_TEST

START_TEST(windows_are_aligned_and_cover_their_rows_and_nothing_to_spare)
{
    const struct model *model;
    struct plan *plan = build_cut(_i, &model);
    uint64_t largest = 0;
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        const struct plan_tile *tile = &plan->tiles[i];
        const struct tensor_ref *ref = matrix_of(model, &plan->steps[tile->step]);
        uint64_t row_bytes = ref->size_bytes / ref->rows;
        uint64_t begin = ref->offset_bytes + tile->row_first * row_bytes;
        uint32_t used_bytes = tile->skip_bytes + tile->payload_bytes;
        must(tile->file == ref->file, "in another file");
        must(tile->offset_bytes % 4096 == 0 && tile->window_bytes % 4096 == 0, "not aligned");
        must(tile->skip_bytes < 4096 && tile->offset_bytes + tile->skip_bytes == begin,
             "begins elsewhere");
        must(tile->payload_bytes == tile->row_count * row_bytes, "of another size");
        must(used_bytes <= tile->window_bytes && tile->window_bytes - used_bytes < 4096,
             "window too short or too long");
        largest = max_u64(largest, tile->window_bytes);
    }
    ck_assert_uint_eq(largest, plan->tile_window_max);
    plan_free(plan);
}
END_TEST

START_TEST(a_window_exceeds_the_tile_only_for_a_single_row_or_head)
{
    const struct model *model;
    struct plan *plan = build_cut(_i, &model);
    const struct model_config *c = &model->config;
    if (cuts[_i].tile_bytes != PLAN_AUTO) {
        ck_assert_uint_le(plan->tile_bytes, cuts[_i].tile_bytes);
    }
    /* A tile of one page may begin anywhere in one and so touch two. */
    uint64_t most_bytes = max_u64(plan->tile_bytes, 2 * PAGE_BYTES);
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        const struct plan_tile *tile = &plan->tiles[i];
        bool kv_b = plan->steps[tile->step].kind == STEP_KV_B;
        uint32_t unit = kv_b ? c->qk_nope + c->v_head : 1;
        must(tile->window_bytes <= most_bytes || tile->row_count == unit,
             "several rows or heads in a window larger than the tile");
    }
    plan_free(plan);
}
END_TEST

START_TEST(tiles_of_kv_b_are_whole_heads)
{
    const struct model *model;
    struct plan *plan = build_cut(_i, &model);
    const struct model_config *c = &model->config;
    uint32_t head_rows = c->qk_nope + c->v_head;
    uint64_t heads = 0;
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        const struct plan_tile *tile = &plan->tiles[i];
        if (plan->steps[tile->step].tensor == T_KV_B) {
            must(plan->steps[tile->step].kind == STEP_KV_B, "kv_b in another step");
            must(tile->row_first % head_rows == 0 && tile->row_count % head_rows == 0,
                 "part of a head");
            heads += tile->row_count / head_rows;
        }
    }
    uint64_t mla = 0;
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        mla += c->is_mla[layer];
    }
    ck_assert_uint_eq(heads, mla * c->mla_heads);
    plan_free(plan);
}
END_TEST

START_TEST(steps_depend_on_earlier_steps_only)
{
    const struct model *model;
    struct plan *plan = build_cut(_i, &model);
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const struct plan_step *step = &plan->steps[i];
        must(step->dep_count <= STEP_DEPS_MAX, "too many");
        must(i == 0 ? step->dep_count == 0 : step->dep_count > 0, "a step that waits for nothing");
        for (uint32_t d = 0; d < step->dep_count; d++) {
            must(step->dep[d] < i, "a step that waits for a later one");
        }
    }
    ck_assert(plan->steps[0].kind == STEP_EMBED);
    ck_assert(plan->steps[plan->step_count - 1].kind == STEP_HEAD);
    plan_free(plan);
}
END_TEST

static void mark_ancestors(const struct plan *plan, uint32_t step, bool *mark)
{
    for (uint32_t d = 0; d < plan->steps[step].dep_count; d++) {
        uint32_t dep = plan->steps[step].dep[d];
        if (!mark[dep]) {
            mark[dep] = true;
            mark_ancestors(plan, dep, mark);
        }
    }
}

static bool closes(enum step_kind kind)
{
    return kind == STEP_ATTN_IN || kind == STEP_MLP_IN || kind == STEP_HEAD_IN;
}

/* Buffers of attention and MLP share their bytes: nothing of one stage may still be at work, nor
 * have been forgotten, when the next begins. */
START_TEST(a_stage_is_over_when_the_next_begins)
{
    const struct model_config *c = &tiny->config;
    const struct plan_request request = request_of(2 * GIB, PLAN_AUTO);
    struct plan *plan = build(tiny, &request);
    bool *mark = calloc(plan->step_count, sizeof *mark);
    uint32_t closed = 0;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        if (closes(plan->steps[i].kind)) {
            memset(mark, 0, plan->step_count * sizeof *mark);
            mark_ancestors(plan, i, mark);
            for (uint32_t before = 0; before < i; before++) {
                if (!mark[before]) {
                    ck_abort_msg("step %u does not wait for step %u", i, before);
                }
            }
            closed++;
        }
    }
    ck_assert_uint_eq(closed, 2 * c->layers + 1);
    free(mark);
    plan_free(plan);
}
END_TEST

START_TEST(every_layer_has_the_steps_of_its_kind)
{
    const struct plan_request request = request_of(2 * GIB, PLAN_AUTO);
    struct plan *plan = build(k3, &request);
    uint32_t count[STEP_HEAD + 1] = {0};
    uint32_t layer = 0;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const struct plan_step *step = &plan->steps[i];
        count[step->kind]++;
        if (step->layer != UINT32_MAX) {
            ck_assert(step->layer == layer || step->layer == layer + 1);
            layer = step->layer;
        }
    }
    ck_assert_uint_eq(layer, 92);
    ck_assert_uint_eq(count[STEP_EMBED], 1);
    ck_assert_uint_eq(count[STEP_ATTN_IN], 93);
    ck_assert_uint_eq(count[STEP_KDA], 69);
    ck_assert_uint_eq(count[STEP_MLA_LATENT], 24);
    ck_assert_uint_eq(count[STEP_KV_B], 24);
    ck_assert_uint_eq(count[STEP_MLP_IN], 93);
    ck_assert_uint_eq(count[STEP_SITU], 93);
    ck_assert_uint_eq(count[STEP_ROUTE], 92);
    ck_assert_uint_eq(count[STEP_SPLIT], 92);
    ck_assert_uint_eq(count[STEP_EXPERTS], 92);
    ck_assert_uint_eq(count[STEP_EXPERT_SUM], 92);
    ck_assert_uint_eq(count[STEP_HEAD_IN], 1);
    ck_assert_uint_eq(count[STEP_HEAD], 1);
    plan_free(plan);
}
END_TEST

/* The model on paper itself: places that are known of the released shards. */
START_TEST(the_paper_model_lies_where_the_released_one_does)
{
    static const struct {
        uint32_t layer;
        uint64_t first_expert, in_page;
    } known[] = {{1, 1268562960, 3088}, {3, 845153232, 976}, {10, 1268568368, 304},
                 {11, 845158632, 2280}, {92, 845158632, 2280}};
    for (size_t i = 0; i < countof(known); i++) {
        struct extent at = model_expert_part(k3, known[i].layer, 0, W1_PACKED);
        ck_assert_uint_eq(at.offset_bytes, known[i].first_expert);
        ck_assert_uint_eq(at.offset_bytes % 4096, known[i].in_page);
        ck_assert_uint_eq(at.file, known[i].layer);
    }
    ck_assert_uint_eq(k3->tensor_count, 497220 - 168);
    ck_assert_uint_eq(k3->total_bytes, 1560860324864ULL - 894717952);
}
END_TEST

/* Tensors of the layers that tiles do not read, from the inventory alone: bytes in the files, and
 * elements. */
static uint64_t small_file_bytes(const struct model_config *c, uint64_t *elements)
{
    uint64_t bytes = 0;
    *elements = 0;
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        for (enum tensor_id id = 0; id < T_LAYER_COUNT; id++) {
            struct tensor_spec spec;
            if (inventory_layer_has(c, layer, id) && paper_is_small(id)) {
                inventory_tensor(c, layer, id, &spec);
                bytes += tensor_spec_bytes(&spec);
                *elements += tensor_spec_bytes(&spec) / dtype_bytes(spec.dtype);
            }
        }
    }
    return bytes;
}

START_TEST(a_token_of_the_real_model_reads_the_published_bytes)
{
    const struct plan_request request = request_of(2 * GIB, PLAN_AUTO);
    struct plan *plan = build(k3, &request);
    uint64_t tiles_payload = 0;
    uint64_t traffic_payload = 0;
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        tiles_payload += plan->tiles[i].payload_bytes;
    }
    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        traffic_payload += plan->traffic[kind].payload_bytes;
    }
    uint64_t elements;
    uint64_t small_bytes = small_file_bytes(&k3->config, &elements);
    ck_assert_uint_eq(tiles_payload + small_bytes, K3_TRUNK_BYTES + K3_HEAD_BYTES);
    elements += 3 * 7168; /* of the model level */
    ck_assert_uint_ge(plan->account.small, elements * 4);
    ck_assert_uint_le(plan->account.small, elements * 4 + elements / 100);
    ck_assert_uint_eq(traffic_payload, tiles_payload);
    ck_assert_uint_eq(plan->traffic[TRAFFIC_HEAD].payload_bytes, K3_HEAD_BYTES);
    ck_assert_uint_eq(plan->traffic[TRAFFIC_DENSE].payload_bytes, 3ULL * 33792 * 7168 * 2);
    ck_assert_uint_eq(plan->experts_per_pass, 16 * 92);
    ck_assert_uint_eq(plan->expert_payload_bytes, K3_EXPERT_BYTES);
    ck_assert_uint_eq(plan->slot_bytes, K3_EXPERT_WINDOW_BYTES);
    ck_assert_uint_eq(plan->expert_window_bytes, K3_EXPERT_WINDOW_BYTES);
    ck_assert_uint_eq(plan->expert_requests,
                      div_ceil(K3_EXPERT_WINDOW_BYTES, plan->io_size_bytes));
    plan_free(plan);
}
END_TEST

START_TEST(scattered_experts_count_every_window_and_every_read)
{
    struct model *scattered = paper_scattered(&tiny->config);
    const struct plan_request request = request_of(1 * GIB, PLAN_AUTO);
    struct plan *plan = build(scattered, &request);
    struct extent extents[EXPERT_PARTS];
    uint32_t part_at[EXPERT_PARTS];
    ck_assert_uint_eq(model_expert_extents(scattered, 1, 0, extents, part_at), EXPERT_PARTS);
    uint64_t largest = 0;
    for (uint32_t layer = 1; layer < 13; layer++) {
        for (uint32_t expert = 0; expert < 16; expert++) {
            uint64_t window = 0;
            for (enum expert_part p = W1_PACKED; p < EXPERT_PARTS; p++) {
                struct extent e = model_expert_part(scattered, layer, expert, p);
                uint64_t end = e.offset_bytes + e.size_bytes;
                window += (end + 4095) / 4096 * 4096 - e.offset_bytes / 4096 * 4096;
            }
            largest = max_u64(largest, window);
        }
    }
    ck_assert_uint_eq(plan->slot_bytes, largest);
    ck_assert_uint_eq(plan->expert_requests, EXPERT_PARTS);
    plan_free(plan);
    model_close(scattered);
}
END_TEST

START_TEST(reads_of_a_pass_are_the_sums_of_its_tiles)
{
    struct plan_request request = request_of(40 * GIB, PLAN_AUTO);
    struct plan *plan = build(k3, &request);
    uint64_t streamed = 0;
    uint64_t pinned = 0;
    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        streamed += plan->traffic[kind].streamed_bytes;
        pinned += plan->traffic[kind].pinned_bytes;
    }
    const struct plan_traffic *head = &plan->traffic[TRAFFIC_HEAD];
    ck_assert_uint_gt(head->pinned_bytes, 0);
    ck_assert_uint_gt(head->streamed_bytes, 0);
    const struct {
        bool first, first_head, head;
        uint64_t bytes;
    } passes[] = {
        {true, true, true, streamed + pinned},
        {true, true, false, streamed + pinned - head->window_bytes},
        {false, false, true, streamed},
        {false, true, true, streamed + head->pinned_bytes},
        {false, false, false, streamed - head->streamed_bytes},
    };
    for (size_t i = 0; i < countof(passes); i++) {
        uint64_t bytes;
        uint64_t requests;
        plan_pass_reads(plan, passes[i].first, passes[i].first_head, passes[i].head, &bytes,
                        &requests);
        ck_assert_uint_eq(bytes, passes[i].bytes);
        ck_assert_uint_ge(requests * plan->io_size_bytes, bytes);
    }
    plan_free(plan);
}
END_TEST

static bool same_tile(const struct plan_tile *a, const struct plan_tile *b)
{
    return a->offset_bytes == b->offset_bytes && a->pin_offset_bytes == b->pin_offset_bytes &&
           a->window_bytes == b->window_bytes && a->skip_bytes == b->skip_bytes &&
           a->payload_bytes == b->payload_bytes && a->file == b->file && a->step == b->step &&
           a->row_first == b->row_first && a->row_count == b->row_count &&
           a->pinned == b->pinned;
}

static bool same_step(const struct plan_step *a, const struct plan_step *b)
{
    return a->kind == b->kind && a->tensor == b->tensor && a->layer == b->layer &&
           a->tile_first == b->tile_first && a->tile_count == b->tile_count &&
           a->dep_count == b->dep_count &&
           memcmp(a->dep, b->dep, a->dep_count * sizeof a->dep[0]) == 0;
}

START_TEST(a_plan_is_a_function_of_its_request)
{
    const struct plan_request request = request_of(30 * GIB, PLAN_AUTO);
    struct plan *a = build(k3, &request);
    struct plan *b = build(k3, &request);
    ck_assert_uint_eq(a->tile_count, b->tile_count);
    ck_assert_uint_eq(a->step_count, b->step_count);
    for (uint32_t i = 0; i < a->tile_count; i++) {
        must(same_tile(&a->tiles[i], &b->tiles[i]), "tiles differ");
    }
    for (uint32_t i = 0; i < a->step_count; i++) {
        must(same_step(&a->steps[i], &b->steps[i]), "steps differ");
    }
    ck_assert_mem_eq(&a->account, &b->account, sizeof a->account);
    ck_assert_mem_eq(a->traffic, b->traffic, sizeof a->traffic);
    ck_assert_uint_eq(a->ring_bytes, b->ring_bytes);
    ck_assert_uint_eq(a->floor_bytes, b->floor_bytes);
    ck_assert_uint_eq(a->io_size_bytes, b->io_size_bytes);
    plan_free(a);
    plan_free(b);
}
END_TEST

static Suite *plan_suite(void)
{
    const int cut_count = (int)countof(cuts);
    TCase *walk = tcase_create("walk");
    tcase_set_timeout(walk, 60);
    tcase_add_unchecked_fixture(walk, open_models, close_models);
    tcase_add_loop_test(walk, every_row_of_every_matrix_is_in_exactly_one_tile, 0, cut_count);
    tcase_add_loop_test(walk, windows_are_aligned_and_cover_their_rows_and_nothing_to_spare, 0,
                        cut_count);
    tcase_add_loop_test(walk, a_window_exceeds_the_tile_only_for_a_single_row_or_head, 0,
                        cut_count);
    tcase_add_loop_test(walk, tiles_of_kv_b_are_whole_heads, 0, cut_count);
    tcase_add_loop_test(walk, steps_depend_on_earlier_steps_only, 0, cut_count);
    tcase_add_test(walk, a_stage_is_over_when_the_next_begins);
    tcase_add_test(walk, every_layer_has_the_steps_of_its_kind);
    TCase *figures = tcase_create("figures");
    tcase_set_timeout(figures, 60);
    tcase_add_unchecked_fixture(figures, open_models, close_models);
    tcase_add_test(figures, the_paper_model_lies_where_the_released_one_does);
    tcase_add_test(figures, a_token_of_the_real_model_reads_the_published_bytes);
    tcase_add_test(figures, scattered_experts_count_every_window_and_every_read);
    tcase_add_test(figures, reads_of_a_pass_are_the_sums_of_its_tiles);
    tcase_add_test(figures, a_plan_is_a_function_of_its_request);
    Suite *suite = suite_create("plan");
    suite_add_tcase(suite, walk);
    suite_add_tcase(suite, figures);
    return suite;
}

int main(void)
{
    return suite_run(plan_suite()) == 0 ? 0 : 1;
}
