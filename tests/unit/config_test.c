/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/model/config.h"
#include "tests/support/checkpoint.h"
#include "tests/support/suite.h"

static struct model_config tiny;
static struct model_config out;

static void setup(void)
{
    fake_config_tiny(&tiny);
    memset(&out, 0xA5, sizeof out);
    err_clear();
}

static int parse(const char *text)
{
    err_clear();
    return config_parse(text, strlen(text), "config.json", &out);
}

/* The tiny config with the first `from` replaced by `to`. */
static int parse_changed(const char *from, const char *to)
{
    char *text = fake_config_json(&tiny);
    char *at = strstr(text, from);
    ck_assert_msg(at != NULL, "%s", from);
    char *changed = NULL;
    ck_assert_int_gt(asprintf(&changed, "%.*s%s%s", (int)(at - text), text, to,
                              at + strlen(from)), 0);
    const int rc = parse(changed);
    free(changed);
    free(text);
    return rc;
}

static void expect_refusal(const char *from, const char *to, const char *part)
{
    ck_assert_msg(parse_changed(from, to) == ERR_MODEL, "%s -> %s was accepted", from, to);
    ck_assert_msg(strstr(err_message(), part) != NULL, "%s -> %s: %s", from, to, err_message());
    ck_assert_ptr_null(strchr(err_message(), '\n'));
}

static void expect_equal(const struct model_config *a, const struct model_config *b)
{
    ck_assert_uint_eq(a->hidden, b->hidden);
    ck_assert_uint_eq(a->layers, b->layers);
    ck_assert_uint_eq(a->vocab, b->vocab);
    ck_assert_float_eq(a->rms_eps, b->rms_eps);
    ck_assert_float_eq(a->mla_lora_eps, b->mla_lora_eps);
    ck_assert_float_eq(a->situ_beta, b->situ_beta);
    ck_assert_float_eq(a->situ_linear_beta, b->situ_linear_beta);
    ck_assert_uint_eq(a->attnres_block, b->attnres_block);
    ck_assert_uint_eq(a->mla_heads, b->mla_heads);
    ck_assert_uint_eq(a->q_lora, b->q_lora);
    ck_assert_uint_eq(a->kv_lora, b->kv_lora);
    ck_assert_uint_eq(a->qk_nope, b->qk_nope);
    ck_assert_uint_eq(a->qk_rope, b->qk_rope);
    ck_assert_uint_eq(a->v_head, b->v_head);
    ck_assert_uint_eq(a->kda_heads, b->kda_heads);
    ck_assert_uint_eq(a->kda_dim, b->kda_dim);
    ck_assert_uint_eq(a->conv_taps, b->conv_taps);
    ck_assert_float_eq(a->gate_lower_bound, b->gate_lower_bound);
    ck_assert_uint_eq(a->first_dense, b->first_dense);
    ck_assert_uint_eq(a->dense_width, b->dense_width);
    ck_assert_uint_eq(a->experts, b->experts);
    ck_assert_uint_eq(a->experts_per_token, b->experts_per_token);
    ck_assert_uint_eq(a->shared_experts, b->shared_experts);
    ck_assert_uint_eq(a->expert_width, b->expert_width);
    ck_assert_uint_eq(a->latent, b->latent);
    ck_assert(a->latent_norm == b->latent_norm && a->renormalize == b->renormalize);
    ck_assert_float_eq(a->routed_scaling, b->routed_scaling);
    ck_assert_uint_eq(a->context_max, b->context_max);
    ck_assert_int_eq(a->bos, b->bos);
    ck_assert_int_eq(a->eos, b->eos);
    ck_assert_int_eq(a->pad, b->pad);
    ck_assert_mem_eq(a->is_mla, b->is_mla, sizeof a->is_mla);
}

START_TEST(the_released_spelling_gives_every_field)
{
    struct model_config k3;
    fake_config_k3(&k3);
    char *text = fake_config_json(&k3);
    ck_assert_msg(parse(text) == 0, "%s", err_message());
    expect_equal(&out, &k3);
    free(text);
}
END_TEST

/* The text_config of the released spelling, as the whole file. */
START_TEST(a_text_config_at_the_root_is_the_same_model)
{
    char *text = fake_config_json(&tiny);
    char *inner = strstr(text, "\"text_config\":") + strlen("\"text_config\":");
    ck_assert_msg(config_parse(inner, strlen(inner) - 1, "config.json", &out) == 0, "%s",
                  err_message());
    tiny.bos = tiny.pad = -1; /* given at the root of the released spelling only */
    expect_equal(&out, &tiny);
    free(text);
}
END_TEST

static const char flat[] =
    "{\"hidden_size\":128,\"num_hidden_layers\":13,\"vocab_size\":256,\"rms_norm_eps\":1e-5,"
    "\"situ_beta\":4,\"situ_linear_beta\":25.0,\"attn_res_block_size\":3,"
    "\"num_attention_heads\":6,\"q_lora_rank\":64,\"kv_lora_rank\":32,\"qk_nope_head_dim\":24,"
    "\"qk_rope_head_dim\":8,\"v_head_dim\":16,\"full_attn_layers\":[4,8,12,13],"
    "\"kda_num_heads\":4,\"kda_head_dim\":16,\"head_dim\":72,\"num_heads\":99,"
    "\"short_conv_kernel_size\":4,\"gate_lower_bound\":-5,\"first_k_dense_replace\":1,"
    "\"intermediate_size\":96,\"num_experts\":16,\"num_experts_per_token\":4,"
    "\"num_shared_experts\":2,\"moe_intermediate_size\":64,\"routed_expert_hidden_size\":64,"
    "\"bos_token_id\":0,\"eos_token_id\":2,\"pad_token_id\":255}";

START_TEST(the_flat_spelling_with_its_aliases_is_the_same_model)
{
    ck_assert_msg(parse(flat) == 0, "%s", err_message());
    expect_equal(&out, &tiny);
}
END_TEST

START_TEST(head_sizes_of_the_outer_level_are_not_those_of_linear_attention)
{
    ck_assert_int_eq(parse_changed("\"text_config\":{", "\"text_config\":{\"head_dim\":72,"
                                   "\"num_heads\":3,"), 0);
    ck_assert_uint_eq(out.kda_dim, 16);
    ck_assert_uint_eq(out.kda_heads, 4);
    expect_refusal("\"num_heads\":4,\"head_dim\":16,", "\"num_heads\":4,",
                   "linear_attn_config.head_dim is missing");
}
END_TEST

START_TEST(all_missing_fields_are_listed_in_one_line)
{
    ck_assert_int_eq(parse("{\"model_type\":\"kimi_k3\",\"text_config\":{\"hidden_size\":\"x\"}}"),
                     ERR_MODEL);
    const char *message = err_message();
    ck_assert_ptr_nonnull(strstr(message, "hidden_size must be a whole number; "
                                          "num_hidden_layers is missing; vocab_size is missing"));
    ck_assert_ptr_nonnull(strstr(message, "linear_attn_config.num_heads is missing"));
    ck_assert_ptr_nonnull(strstr(message, "first_k_dense_replace is missing"));
    ck_assert_ptr_null(strchr(message, '\n'));
}
END_TEST

START_TEST(a_list_of_problems_that_is_too_long_says_how_many_are_left_out)
{
    ck_assert_int_eq(parse("{\"model_type\":\"kimi_k3\",\"text_config\":{\"hidden_act\":\"silu\","
                           "\"mla_use_nope\":false,\"mla_use_output_gate\":false,"
                           "\"moe_router_activation_func\":\"softmax\",\"topk_method\":\"greedy\","
                           "\"num_expert_group\":8,\"tie_word_embeddings\":true}}"), ERR_MODEL);
    const char *more = strstr(err_message(), "; and ");
    ck_assert_msg(more != NULL, "%s", err_message());
    ck_assert_int_gt(atoi(more + strlen("; and ")), 0);
    ck_assert_ptr_nonnull(strstr(more, " more"));
}
END_TEST

START_TEST(each_required_field_is_required)
{
    static const char *const names[] = {
        "hidden_size", "num_hidden_layers", "vocab_size", "rms_norm_eps", "activation_situ_beta",
        "activation_situ_linear_beta", "attn_res_block_size", "num_attention_heads",
        "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
        "full_attn_layers", "num_heads", "head_dim", "short_conv_kernel_size",
        "gate_lower_bound", "first_k_dense_replace", "intermediate_size", "num_experts",
        "num_experts_per_token", "num_shared_experts", "moe_intermediate_size",
        "routed_expert_hidden_size"};
    for (size_t i = 0; i < countof(names); i++) {
        char key[64];
        snprintf(key, sizeof key, "\"%s\":", names[i]);
        expect_refusal(key, "\"other\":", names[i]);
    }
}
END_TEST

START_TEST(each_optional_field_has_the_real_models_value_as_default)
{
    static const char *const names[] = {
        "hidden_act", "num_key_value_heads", "mla_use_nope", "mla_use_output_gate", "kda_layers",
        "use_full_rank_gate", "moe_layer_freq", "latent_moe_use_norm", "moe_renormalize",
        "moe_router_activation_func", "routed_scaling_factor", "num_expert_group", "topk_group",
        "topk_method", "num_nextn_predict_layers", "max_position_embeddings",
        "tie_word_embeddings", "quantization_config", "model_type"};
    for (size_t i = 0; i < countof(names); i++) {
        char key[64];
        snprintf(key, sizeof key, "\"%s\":", names[i]);
        ck_assert_msg(parse_changed(key, "\"other\":") == 0, "%s", err_message());
        expect_equal(&out, &tiny);
    }
}
END_TEST

START_TEST(values_that_are_not_supported_are_refused_by_name)
{
    static const char *const changes[][3] = {
        {"\"hidden_act\":\"situ\"", "\"hidden_act\":\"silu\"", "hidden_act"},
        {"\"mla_use_nope\":true", "\"mla_use_nope\":false", "mla_use_nope"},
        {"\"mla_use_output_gate\":true", "\"mla_use_output_gate\":false", "mla_use_output_gate"},
        {"\"use_full_rank_gate\":true", "\"use_full_rank_gate\":false", "use_full_rank_gate"},
        {"\"moe_layer_freq\":1", "\"moe_layer_freq\":2", "moe_layer_freq"},
        {"\"sigmoid\"", "\"softmax\"", "moe_router_activation_func"},
        {"\"num_expert_group\":1", "\"num_expert_group\":8", "num_expert_group"},
        {"\"noaux_tc\"", "\"greedy\"", "topk_method"},
        {"\"num_nextn_predict_layers\":0", "\"num_nextn_predict_layers\":1", "nextn"},
        {"\"tie_word_embeddings\":false,\"text", "\"tie_word_embeddings\":true,\"text", "tie_word"},
        {"\"tie_word_embeddings\":false,\"eos", "\"tie_word_embeddings\":true,\"eos", "tie_word"},
        {"\"num_key_value_heads\":6", "\"num_key_value_heads\":2", "num_key_value_heads"},
        {"\"q_lora_rank\":64", "\"q_lora_rank\":null", "q_lora_rank is null"},
        {"\"attn_res_block_size\":3", "\"attn_res_block_size\":null", "attn_res_block_size"},
        {"\"activation_situ_linear_beta\":25.0", "\"activation_situ_linear_beta\":null", "situ"},
        {"\"gate_lower_bound\":-5.0", "\"gate_lower_bound\":null", "gate_lower_bound"},
        {"\"kimi_k3\"", "\"llama\"", "model_type is 'llama'"},
        {"\"kimi_linear\"", "\"qwen\"", "text_config.model_type is 'qwen'"},
        {"\"compressed-tensors\"", "\"fp8\"", "quant_method"},
        {"\"mxfp4-pack-quantized\"", "\"nvfp4\"", "quantization_config.format"},
        {"\"num_bits\":4", "\"num_bits\":8", "num_bits"},
        {"\"group_size\":32", "\"group_size\":16", "group_size"},
        {"\"type\":\"float\"", "\"type\":\"int\"", "weights.type"},
        {"\"symmetric\":true", "\"symmetric\":false", "symmetric"},
        {"\"torch.uint8\"", "\"torch.float8\"", "scale_dtype"},
        {"\"config_groups\"", "\"groups\"", "config_groups"}};
    for (size_t i = 0; i < countof(changes); i++) {
        expect_refusal(changes[i][0], changes[i][1], changes[i][2]);
    }
}
END_TEST

START_TEST(numbers_outside_their_range_or_of_the_wrong_type_are_refused)
{
    static const char *const changes[][3] = {
        {"\"hidden_size\":128", "\"hidden_size\":100", "multiple of 32"},
        {"\"hidden_size\":128", "\"hidden_size\":0", "must lie in"},
        {"\"hidden_size\":128", "\"hidden_size\":128.0", "whole number"},
        {"\"hidden_size\":128", "\"hidden_size\":1.28e2", "whole number"},
        {"\"hidden_size\":128", "\"hidden_size\":-128", "whole number"},
        {"\"hidden_size\":128", "\"hidden_size\":\"128\"", "whole number"},
        {"\"hidden_size\":128", "\"hidden_size\":99999999999999999999", "whole number"},
        {"\"hidden_size\":128", "\"hidden_size\":4294967296", "must lie in"},
        {"\"num_hidden_layers\":13", "\"num_hidden_layers\":1025", "must lie in 1..1024"},
        {"\"rms_norm_eps\":1e-05", "\"rms_norm_eps\":0", "strictly between"},
        {"\"rms_norm_eps\":1e-05", "\"rms_norm_eps\":1e-2", "strictly between"},
        {"\"rms_norm_eps\":1e-05", "\"rms_norm_eps\":1e-60", "strictly between"},
        {"\"rms_norm_eps\":1e-05", "\"rms_norm_eps\":\"1e-5\"", "must be a number"},
        {"\"activation_situ_beta\":4.0", "\"activation_situ_beta\":1e39", "activation_situ_beta"},
        {"\"gate_lower_bound\":-5.0", "\"gate_lower_bound\":0", "gate_lower_bound"},
        {"\"routed_scaling_factor\":1.0", "\"routed_scaling_factor\":-1", "routed_scaling"},
        {"\"short_conv_kernel_size\":4", "\"short_conv_kernel_size\":17", "1..16"},
        {"\"num_experts\":16", "\"num_experts\":65537", "num_experts"},
        {"\"num_experts_per_token\":4", "\"num_experts_per_token\":17", "more than num_experts"},
        {"\"first_k_dense_replace\":1", "\"first_k_dense_replace\":14", "first_k_dense_replace"},
        {"\"num_shared_experts\":2", "\"num_shared_experts\":0", "num_shared_experts"},
        {"\"moe_renormalize\":true", "\"moe_renormalize\":1", "true or false"},
        {"\"linear_attn_config\":{", "\"linear_attn_config\":[],\"x\":{", "must be an object"},
        {"\"num_heads\":4,\"head_dim\":16", "\"num_heads\":65536,\"head_dim\":65536", "more than"},
        {"\"text_config\":{", "\"text_config\":7,\"x\":{", "text_config must be an object"}};
    for (size_t i = 0; i < countof(changes); i++) {
        expect_refusal(changes[i][0], changes[i][1], changes[i][2]);
    }
}
END_TEST

START_TEST(the_layer_lists_must_be_one_based_increasing_and_a_partition)
{
    static const char *const changes[][3] = {
        {"[4,8,12,13]", "[]", "empty"},
        {"[4,8,12,13]", "[0,4,8,12]", "from 1 to 13"},
        {"[4,8,12,13]", "[4,8,12,14]", "from 1 to 13"},
        {"[4,8,12,13]", "[4,8,8,13]", "increase strictly"},
        {"[4,8,12,13]", "[8,4,12,13]", "increase strictly"},
        {"[4,8,12,13]", "[4,8,\"12\",13]", "whole numbers"},
        {"[4,8,12,13]", "{\"4\":1}", "list of layer numbers"},
        {"[4,8,12,13]", "[4,8,12]", "layer 13 is in neither"},
        {"[4,8,12,13]", "[1,4,8,12,13]", "layer 1 is in both"},
        {"[1,2,3,5,6,7,9,10,11]", "[1,2,3,5,6,7,9,11]", "layer 10 is in neither"},
        {"[1,2,3,5,6,7,9,10,11]", "[1,2,3,4,5,6,7,9,10,11]", "layer 4 is in both"}};
    for (size_t i = 0; i < countof(changes); i++) {
        expect_refusal(changes[i][0], changes[i][1], changes[i][2]);
    }
}
END_TEST

START_TEST(the_last_two_layers_of_the_real_model_are_both_mla)
{
    struct model_config k3;
    fake_config_k3(&k3);
    char *text = fake_config_json(&k3);
    ck_assert_int_eq(parse(text), 0);
    free(text);
    uint32_t mla = 0;
    for (uint32_t layer = 0; layer < out.layers; layer++) {
        mla += out.is_mla[layer];
    }
    ck_assert_uint_eq(mla, 24);
    ck_assert(out.is_mla[91] && out.is_mla[92] && !out.is_mla[90] && !out.is_mla[0]);
}
END_TEST

START_TEST(token_ids_of_root_and_text_config_must_agree)
{
    expect_refusal("\"eos_token_id\":2,\"pad", "\"eos_token_id\":3,\"pad", "eos_token_id");
    ck_assert_int_eq(parse_changed("\"eos_token_id\":2,\"pad", "\"eos_token_id\":null,\"pad"), 0);
    ck_assert_int_eq(out.eos, 2);
    ck_assert_int_eq(parse_changed("\"eos_token_id\":2,\"pad", "\"eos_token_id\":[2,7],\"pad"), 0);
    ck_assert_int_eq(out.eos, 2);
    ck_assert_int_eq(parse_changed("\"bos_token_id\":0,", ""), 0);
    ck_assert_int_eq(out.bos, -1);
    expect_refusal("\"bos_token_id\":0", "\"bos_token_id\":\"<s>\"", "bos_token_id");
}
END_TEST

START_TEST(two_spellings_of_one_field_must_agree)
{
    ck_assert_int_eq(parse_changed("\"text_config\":{", "\"text_config\":{\"kda_num_heads\":4,"),
                     0);
    expect_refusal("\"text_config\":{", "\"text_config\":{\"kda_num_heads\":5,", "differ");
    expect_refusal("\"text_config\":{", "\"text_config\":{\"situ_beta\":5,", "differ");
}
END_TEST

START_TEST(keys_are_told_apart_by_case_and_may_not_occur_twice)
{
    ck_assert_int_eq(parse_changed("\"text_config\":{", "\"text_config\":{\"Hidden_Size\":64,"),
                     0);
    ck_assert_uint_eq(out.hidden, 128);
    expect_refusal("\"text_config\":{", "\"text_config\":{\"hidden_size\":128,", "twice");
}
END_TEST

START_TEST(a_folder_without_a_config_or_with_a_pointer_file_is_refused)
{
    struct fake_model fake;
    fake_init(&fake, &tiny, 1);
    fake_write(&fake);
    ck_assert_int_eq(config_load(fake.dir, &out), 0);
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\n";
    fake_put(&fake, "config.json", pointer, strlen(pointer));
    ck_assert_int_eq(config_load(fake.dir, &out), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(err_message(), "Git LFS pointer"));
    char *path = fake_path(&fake, "config.json");
    ck_assert_int_eq(remove(path), 0);
    free(path);
    err_clear();
    ck_assert_int_eq(config_load(fake.dir, &out), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(err_message(), "config.json: cannot open"));
    fake_free(&fake);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, NULL);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, the_released_spelling_gives_every_field);
    tcase_add_test(all, a_text_config_at_the_root_is_the_same_model);
    tcase_add_test(all, the_flat_spelling_with_its_aliases_is_the_same_model);
    tcase_add_test(all, head_sizes_of_the_outer_level_are_not_those_of_linear_attention);
    tcase_add_test(all, all_missing_fields_are_listed_in_one_line);
    tcase_add_test(all, a_list_of_problems_that_is_too_long_says_how_many_are_left_out);
    tcase_add_test(all, each_required_field_is_required);
    tcase_add_test(all, each_optional_field_has_the_real_models_value_as_default);
    tcase_add_test(all, values_that_are_not_supported_are_refused_by_name);
    tcase_add_test(all, numbers_outside_their_range_or_of_the_wrong_type_are_refused);
    tcase_add_test(all, the_layer_lists_must_be_one_based_increasing_and_a_partition);
    tcase_add_test(all, the_last_two_layers_of_the_real_model_are_both_mla);
    tcase_add_test(all, token_ids_of_root_and_text_config_must_agree);
    tcase_add_test(all, two_spellings_of_one_field_must_agree);
    tcase_add_test(all, keys_are_told_apart_by_case_and_may_not_occur_twice);
    tcase_add_test(all, a_folder_without_a_config_or_with_a_pointer_file_is_refused);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
