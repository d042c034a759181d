/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/inventory.h"
#include "tests/support/checkpoint.h"
#include "tests/support/suite.h"

static struct model_config k3;
static struct model_config tiny;

static void setup(void)
{
    fake_config_k3(&k3);
    fake_config_tiny(&tiny);
}

static void expect_tensor(uint32_t layer, enum tensor_id id, const char *name, enum dtype dtype,
                          uint32_t rank, uint64_t a, uint64_t b, uint64_t c)
{
    struct tensor_spec spec;
    inventory_tensor(&k3, layer, id, &spec);
    ck_assert_str_eq(spec.name, name);
    ck_assert_int_eq(spec.dtype, dtype);
    ck_assert_uint_eq(spec.rank, rank);
    ck_assert_uint_eq(spec.shape[0], a);
    ck_assert_uint_eq(spec.shape[1], b);
    ck_assert_uint_eq(spec.shape[2], c);
    ck_assert_uint_eq(spec.layer, layer);
    ck_assert_int_eq(spec.id, id);
}

#define LAYER(n) "language_model.model.layers." #n "."

START_TEST(names_and_shapes_of_the_real_model_are_the_released_ones)
{
    expect_tensor(0, T_Q, LAYER(0) "self_attn.q_proj.weight", DTYPE_BF16, 2, 12288, 7168, 1);
    expect_tensor(0, T_G, LAYER(0) "self_attn.g_proj.weight", DTYPE_BF16, 2, 12288, 7168, 1);
    expect_tensor(0, T_CONV_V, LAYER(0) "self_attn.v_conv1d.weight", DTYPE_F32, 3, 12288, 1, 4);
    expect_tensor(0, T_A_LOG, LAYER(0) "self_attn.A_log", DTYPE_F32, 1, 128, 1, 1);
    expect_tensor(0, T_DT_BIAS, LAYER(0) "self_attn.dt_bias", DTYPE_F32, 1, 12288, 1, 1);
    expect_tensor(0, T_DENSE_DOWN, LAYER(0) "mlp.down_proj.weight", DTYPE_BF16, 2, 7168, 33792, 1);
    expect_tensor(92, T_Q_B, LAYER(92) "self_attn.q_b_proj.weight", DTYPE_BF16, 2, 18432, 1536, 1);
    expect_tensor(92, T_KV_A, LAYER(92) "self_attn.kv_a_proj_with_mqa.weight", DTYPE_BF16, 2, 576,
                  7168, 1);
    expect_tensor(92, T_KV_B, LAYER(92) "self_attn.kv_b_proj.weight", DTYPE_BF16, 2, 24576, 512,
                  1);
    expect_tensor(92, T_MLP_RES_PROJ, LAYER(92) "mlp_res_proj.weight", DTYPE_BF16, 2, 1, 7168, 1);
    expect_tensor(1, T_ROUTER_BIAS, LAYER(1) "block_sparse_moe.gate.e_score_correction_bias",
                  DTYPE_F32, 1, 896, 1, 1);
    expect_tensor(1, T_SHARED_UP, LAYER(1) "block_sparse_moe.shared_experts.up_proj.weight",
                  DTYPE_BF16, 2, 6144, 7168, 1);
    expect_tensor(TENSOR_MODEL_LEVEL, T_LM_HEAD, "language_model.lm_head.weight", DTYPE_BF16, 2,
                  163840, 7168, 1);
    expect_tensor(TENSOR_MODEL_LEVEL, T_OUT_RES_PROJ,
                  "language_model.model.output_attn_res_proj.weight", DTYPE_BF16, 2, 1, 7168, 1);
}
END_TEST

START_TEST(the_six_parts_of_a_real_expert_have_the_released_sizes)
{
    static const uint64_t bytes[EXPERT_PARTS] = {5505024, 344064, 5505024,
                                                 344064,  5505024, 344064};
    struct tensor_spec spec;
    for (enum expert_part part = W1_PACKED; part < EXPERT_PARTS; part++) {
        inventory_expert(&k3, 92, 895, part, &spec);
        ck_assert_uint_eq(tensor_spec_bytes(&spec), bytes[part]);
        ck_assert_int_eq(spec.dtype, DTYPE_U8);
    }
    inventory_expert(&k3, 1, 10, W2_SCALE, &spec);
    ck_assert_str_eq(spec.name, LAYER(1) "block_sparse_moe.experts.10.w2.weight_scale");
    ck_assert_uint_eq(spec.shape[0], 3584);
    ck_assert_uint_eq(spec.shape[1], 96);
}
END_TEST

/* The header of a released layer shard follows from its tensors alone, so equal lengths mean
 * that every name, dtype and shape of the layer is right. */
START_TEST(headers_and_files_of_the_released_shards_are_rebuilt_to_the_byte)
{
    static const struct {
        uint32_t layer;
        size_t header_bytes;
        uint64_t file_bytes;
    } shards[] = {{0, 2920, 2341216112},    {1, 818696, 16990911504},
                  {3, 817608, 16567501776}, {10, 824104, 16990916912},
                  {92, 823008, 16567507176}};
    for (size_t i = 0; i <= countof(shards); i++) {
        struct fake_model fake = {.config = k3, .shards = 1};
        size_t header_bytes = 0;
        uint64_t data_bytes = 0;
        if (i < countof(shards)) {
            fake_add_layer(&fake, shards[i].layer, 0);
        } else {
            fake_add_level(&fake, 0);
        }
        free(fake_header(&fake, 0, &header_bytes, &data_bytes));
        ck_assert_uint_eq(header_bytes, i < countof(shards) ? shards[i].header_bytes : 576);
        ck_assert_uint_eq(8 + header_bytes + data_bytes,
                          i < countof(shards) ? shards[i].file_bytes : 4697664072);
        fake_free(&fake);
    }
}
END_TEST

START_TEST(every_name_is_found_again_as_the_tensor_it_was_made_for)
{
    struct fake_model fake;
    fake_init(&fake, &tiny, 3);
    uint64_t bytes = 0;
    size_t found = 0;
    for (size_t i = 0; i < fake.count; i++) {
        struct tensor_spec spec;
        struct tensor_spec again;
        if (!inventory_find(&tiny, fake.tensors[i].name, &spec)) {
            ck_assert_str_eq(fake.tensors[i].name, "vision_tower.patch_embed.proj.weight");
            continue;
        }
        if (spec.id == T_COUNT) {
            inventory_expert(&tiny, spec.layer, spec.expert, spec.part, &again);
        } else {
            inventory_tensor(&tiny, spec.layer, spec.id, &again);
        }
        ck_assert_str_eq(again.name, fake.tensors[i].name);
        bytes += tensor_spec_bytes(&spec);
        found++;
    }
    ck_assert_uint_eq(found, 1492);
    ck_assert_uint_eq(bytes + 96, 4399840);
    fake_free(&fake);
}
END_TEST

START_TEST(the_real_model_has_497052_text_tensors)
{
    uint64_t count = T_COUNT - T_LAYER_COUNT;
    for (uint32_t layer = 0; layer < k3.layers; layer++) {
        for (enum tensor_id id = 0; id < T_LAYER_COUNT; id++) {
            count += inventory_layer_has(&k3, layer, id);
        }
        count += config_is_moe(&k3, layer) ? (uint64_t)k3.experts * EXPERT_PARTS : 0;
    }
    ck_assert_uint_eq(count, 497220 - 165 - 3);
}
END_TEST

START_TEST(names_that_are_no_tensor_of_the_config_are_not_found)
{
    static const char *const names[] = {
        "", "language_model.", "language_model.model.layers.", LAYER(13) "input_layernorm.weight",
        LAYER(00) "input_layernorm.weight", LAYER(01) "input_layernorm.weight",
        LAYER(-1) "input_layernorm.weight", LAYER(99999999999999999999) "input_layernorm.weight",
        LAYER(0) "input_layernorm.weight2", LAYER(0) "self_attn.q_a_proj.weight",
        LAYER(3) "self_attn.A_log", LAYER(1) "mlp.up_proj.weight",
        LAYER(0) "block_sparse_moe.experts.0.w1.weight_packed",
        LAYER(1) "block_sparse_moe.experts.16.w1.weight_packed",
        LAYER(1) "block_sparse_moe.experts.0.w1.weight",
        LAYER(1) "block_sparse_moe.experts.0.w4.weight_packed",
        LAYER(1) "block_sparse_moe.experts..w1.weight_packed",
        LAYER(1) "model.norm.weight", "model.norm.weight", "lm_head.weight",
        "language_model.model.lm_head.weight", "vision_tower.encoder.final_layernorm.weight"};
    for (size_t i = 0; i < countof(names); i++) {
        struct tensor_spec spec;
        ck_assert_msg(!inventory_find(&tiny, names[i], &spec), "%s", names[i]);
    }
}
END_TEST

START_TEST(a_config_without_the_latent_norm_has_no_such_tensor)
{
    ck_assert(inventory_layer_has(&tiny, 1, T_LATENT_NORM));
    tiny.latent_norm = false;
    ck_assert(!inventory_layer_has(&tiny, 1, T_LATENT_NORM));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("inventory");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, NULL);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, names_and_shapes_of_the_real_model_are_the_released_ones);
    tcase_add_test(all, the_six_parts_of_a_real_expert_have_the_released_sizes);
    tcase_add_test(all, headers_and_files_of_the_released_shards_are_rebuilt_to_the_byte);
    tcase_add_test(all, every_name_is_found_again_as_the_tensor_it_was_made_for);
    tcase_add_test(all, the_real_model_has_497052_text_tensors);
    tcase_add_test(all, names_that_are_no_tensor_of_the_config_are_not_found);
    tcase_add_test(all, a_config_without_the_latent_norm_has_no_such_tensor);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
