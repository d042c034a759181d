/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/synth_layout.h"
#include "tests/support/suite.h"

#include <check.h>
#include <string.h>

static void k3_geometry(uint32_t layers, uint32_t experts, uint32_t vocab,
                        struct synth_geometry *geometry)
{
    const struct synth_options options = {.preset = SYNTH_K3, .layers = layers,
                                          .experts = experts, .vocab = vocab};
    ck_assert_int_eq(synth_geometry_init(&options, geometry), 0);
}

/* Sizes of the released files. */
static void check_released_size(const struct synth_shard *shard, uint32_t number,
                                uint64_t *expert_bytes)
{
    const uint32_t layer = number - 1;
    const bool mla = layer % 4 == 3 || layer == 92;
    uint64_t size = mla ? 16567507176 : 16990916912;
    uint64_t json = mla ? 823005 : 824100;
    uint64_t expert = mla ? 845158632 : 1268568368;
    if (layer < 10) {
        size = mla ? 16567501776 : 16990911504;
        json = mla ? 817607 : 818696;
        expert = mla ? 845153232 : 1268562960;
    }
    if (number == 1 || number == 94) {
        size = number == 1 ? 2341216112 : 4697664072;
        json = number == 1 ? 2915 : 575;
        expert = 0;
    }
    ck_assert_uint_eq(shard->size_bytes, size);
    ck_assert_uint_eq(shard->json_bytes, json);
    ck_assert_uint_eq(shard->header_bytes, (8 + json + 7) / 8 * 8);
    *expert_bytes = expert;
}

START_TEST(the_full_geometry_has_the_released_file_sizes)
{
    struct synth_geometry geometry;
    uint64_t tensors = 0;
    k3_geometry(0, 0, 0, &geometry);
    ck_assert_uint_eq(geometry.shard_count, 94);
    for (uint32_t i = 0; i < geometry.shard_count; i++) {
        struct synth_shard shard;
        uint64_t expected = 0;
        uint64_t found = 0;
        ck_assert_int_eq(synth_shard_init(&geometry, i, &shard), 0);
        check_released_size(&shard, i + 1, &expected);
        for (uint32_t k = shard.tensor_count; k > 0; k--) {
            found = shard.tensors[k - 1].id == T_COUNT ? shard.tensors[k - 1].offset_bytes : found;
        }
        ck_assert_uint_eq(found, expected);
        tensors += shard.tensor_count;
        synth_shard_fini(&shard);
    }
    ck_assert_uint_eq(tensors, 497052);
}
END_TEST

START_TEST(headers_are_compact_json_in_dtype_then_name_order)
{
    struct synth_geometry geometry;
    struct synth_shard shard;
    const char *start = "{\"language_model.model.layers.1.block_sparse_moe.gate."
                        "e_score_correction_bias\":{\"dtype\":\"F32\",\"shape\":[12],"
                        "\"data_offsets\":[0,48]},\"language_model.model.layers.1.self_attn."
                        "A_log\":{\"dtype\":\"F32\",\"shape\":[128],\"data_offsets\":[48,560]}";
    k3_geometry(4, 12, 512, &geometry);
    ck_assert_int_eq(synth_shard_init(&geometry, 1, &shard), 0);
    ck_assert_str_eq(shard.file_name, "model-00002-of-000096.safetensors");
    ck_assert_int_eq(memcmp(shard.header + 8, start, strlen(start)), 0);
    for (uint32_t i = 1; i < shard.tensor_count; i++) {
        const struct synth_tensor *a = &shard.tensors[i - 1];
        const struct synth_tensor *b = &shard.tensors[i];
        ck_assert(a->dtype < b->dtype || (a->dtype == b->dtype && strcmp(a->name, b->name) < 0));
        ck_assert_uint_eq(a->offset_bytes + a->size_bytes, b->offset_bytes);
    }
    synth_shard_fini(&shard);
}
END_TEST

START_TEST(a_cut_model_keeps_widths_layer_kinds_and_ids_in_range)
{
    struct synth_geometry geometry;
    const struct model_config *c = &geometry.config;
    k3_geometry(5, 12, 32768, &geometry);
    ck_assert_uint_eq(geometry.shard_count, 6);
    ck_assert_uint_eq(c->hidden, 7168);
    ck_assert_uint_eq(c->experts_per_token, 12);
    ck_assert(c->is_mla[3] && !c->is_mla[4]);
    ck_assert_int_lt(c->pad, 32768);
    ck_assert_int_lt(c->eos, 32768);
    k3_geometry(0, 0, 0, &geometry);
    ck_assert_int_eq(c->bos, 163584);
    ck_assert_int_eq(c->eos, 163586);
    ck_assert_int_eq(c->pad, 163839);
    ck_assert(c->is_mla[91] && c->is_mla[92] && !c->is_mla[90]);
}
END_TEST

START_TEST(the_sparse_full_geometry_takes_4_to_6_GB)
{
    struct synth_geometry geometry;
    struct synth_survey survey;
    k3_geometry(0, 0, 0, &geometry);
    ck_assert_int_eq(synth_survey_run(&geometry, true, &survey), 0);
    ck_assert_uint_eq(survey.tensor_bytes, 1560860324864 - 894717952);
    ck_assert_uint_ge(survey.disk_bytes, 4000000000);
    ck_assert_uint_le(survey.disk_bytes, 6000000000);
}
END_TEST

static const struct synth_tensor *find_tensor(const struct synth_shard *shard, const char *suffix)
{
    for (uint32_t i = 0; i < shard->tensor_count; i++) {
        const char *name = shard->tensors[i].name;
        if (strcmp(name + strlen(name) - strlen(suffix), suffix) == 0) {
            return &shard->tensors[i];
        }
    }
    ck_abort_msg("no tensor %s", suffix);
    return NULL;
}

START_TEST(embed_and_head_hold_the_same_rows)
{
    struct synth_geometry geometry;
    struct synth_shard top;
    uint64_t cursors[2] = {0, 0};
    struct synth_range range[2] = {{0, 0}, {0, 0}};
    uint64_t rows = 0;
    k3_geometry(4, 8, 0, &geometry);
    ck_assert_int_eq(synth_shard_init(&geometry, 4, &top), 0);
    const struct synth_tensor *embed = find_tensor(&top, "embed_tokens.weight");
    const struct synth_tensor *head = find_tensor(&top, "lm_head.weight");
    while (synth_next_range(embed, true, &cursors[0], &range[0])) {
        ck_assert(synth_next_range(head, true, &cursors[1], &range[1]));
        ck_assert(memcmp(&range[0], &range[1], sizeof range[0]) == 0);
        ck_assert_uint_eq(range[0].begin % 7168, 0);
        ck_assert(rows > 0 || (range[0].begin == 0 && range[0].end == 1024 * 7168));
        rows += (range[0].end - range[0].begin) / 7168;
    }
    ck_assert(!synth_next_range(head, true, &cursors[1], &range[1]));
    ck_assert_uint_ge(rows, 1024 + 163840 * 14336U / (4 * MIB) - 4);
    ck_assert_uint_eq(range[0].end, 163840 * 7168U);
    synth_shard_fini(&top);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("synth layout");
    TCase *layout = tcase_create("layout");
    tcase_add_test(layout, the_full_geometry_has_the_released_file_sizes);
    tcase_add_test(layout, headers_are_compact_json_in_dtype_then_name_order);
    tcase_add_test(layout, a_cut_model_keeps_widths_layer_kinds_and_ids_in_range);
    tcase_add_test(layout, the_sparse_full_geometry_takes_4_to_6_GB);
    tcase_add_test(layout, embed_and_head_hold_the_same_rows);
    tcase_set_timeout(layout, 60);
    suite_add_tcase(suite, layout);
    return suite_run(suite) == 0 ? 0 : 1;
}
