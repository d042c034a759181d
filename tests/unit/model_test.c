/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/model/model.h"
#include "tests/support/checkpoint.h"
#include "tests/support/suite.h"

#define PRE "language_model.model."
#define EXPERT(layer, e) PRE "layers." #layer ".block_sparse_moe.experts." #e "."
#define INDEX "model.safetensors.index.json"

#define NORM_TENSOR PRE "norm.weight"

static struct model_config tiny;
static struct fake_model fake;
static char noted[512];

static void note(const char *line)
{
    ck_assert_msg(noted[0] == '\0', "a second note: %s", line);
    snprintf(noted, sizeof noted, "%s", line);
}

static void setup(void)
{
    fake_config_tiny(&tiny);
    fake_init(&fake, &tiny, 3);
    noted[0] = '\0';
}

static void teardown(void)
{
    fake_free(&fake);
}

static int open_with(uint32_t threads, struct model **model)
{
    const struct model_options options = {.threads = threads, .note = note};
    err_clear();
    noted[0] = '\0';
    return model_open(fake.dir, &options, model);
}

static void expect_refusal(const char *part)
{
    ck_assert_msg(fake_refused(&fake, part), "%s", part);
}

static struct model *expect_open(void)
{
    struct model *model = NULL;
    ck_assert_msg(open_with(2, &model) == 0, "%s", err_message());
    return model;
}

/* Every tensor is where the header of its file says. */
static void expect_bound(const struct model *model)
{
    uint64_t total_bytes = 0;
    for (uint32_t shard = 0; shard < fake.shards; shard++) {
        size_t header_bytes = 0;
        uint64_t data_bytes = 0;
        free(fake_header(&fake, shard, &header_bytes, &data_bytes));
        uint64_t at = 8 + header_bytes;
        for (size_t i = 0; i < fake.count; i++) {
            struct tensor_spec spec;
            if (fake.tensors[i].shard != shard) {
                continue;
            }
            if (!inventory_find(&tiny, fake.tensors[i].name, &spec)) {
                at += fake.tensors[i].size_bytes;
                continue;
            }
            struct extent extent = {.file = shard};
            if (spec.id == T_COUNT) {
                extent = model_expert_part(model, spec.layer, spec.expert, spec.part);
            } else {
                const struct tensor_ref *ref = model_tensor(model, spec.layer, spec.id);
                extent = (struct extent){ref->file, ref->offset_bytes, ref->size_bytes};
            }
            ck_assert_uint_eq(extent.file, shard);
            ck_assert_uint_eq(extent.offset_bytes, at);
            ck_assert_uint_eq(extent.size_bytes, fake.tensors[i].size_bytes);
            at += fake.tensors[i].size_bytes;
            total_bytes += extent.size_bytes;
        }
        ck_assert_uint_eq(model->files[shard].size_bytes, at);
    }
    ck_assert_uint_eq(model->total_bytes, total_bytes);
}

START_TEST(every_tensor_is_bound_to_its_place)
{
    fake_write(&fake);
    struct model *model = expect_open();
    ck_assert_uint_eq(model->tensor_count, 1492);
    ck_assert_uint_eq(model->skipped_count, 1);
    ck_assert_uint_eq(model->total_bytes, 4399840 - 96);
    ck_assert_uint_eq(model->file_count, 3);
    ck_assert(!model->synthetic);
    ck_assert_str_eq(noted, "");
    expect_bound(model);
    model_close(model);
}
END_TEST

START_TEST(rows_and_columns_follow_from_the_shape)
{
    fake_write(&fake);
    struct model *model = expect_open();
    const struct tensor_ref *ref = model_tensor(model, 0, T_CONV_K);
    ck_assert(ref->rows == 64 && ref->cols == 4 && ref->dtype == DTYPE_F32);
    ref = model_tensor(model, 0, T_INPUT_NORM);
    ck_assert(ref->rows == 1 && ref->cols == 128 && ref->dtype == DTYPE_BF16);
    ref = model_tensor(model, 12, T_MLP_RES_PROJ);
    ck_assert(ref->rows == 1 && ref->cols == 128);
    ref = model_tensor(model, TENSOR_MODEL_LEVEL, T_LM_HEAD);
    ck_assert(ref->rows == 256 && ref->cols == 128);
    ck_assert_uint_eq(model_tensor(model, 3, T_A_LOG)->size_bytes, 0);
    ck_assert_uint_eq(model_tensor(model, 0, T_ROUTER)->size_bytes, 0);
    model_close(model);
}
END_TEST

START_TEST(a_folder_without_an_index_is_all_its_shards)
{
    fake.no_index = true;
    fake_write(&fake);
    fake_put(&fake, "._model-00001-of-000003.safetensors", "x", 1);
    fake_put(&fake, "notes.txt", "x", 1);
    struct model *model = expect_open();
    expect_bound(model);
    model_close(model);
}
END_TEST

/* The snapshot folders of a download cache hold links to files elsewhere. */
START_TEST(shards_that_are_links_are_followed)
{
    fake_write(&fake);
    char *path = fake_shard_path(&fake, 1);
    char *blob = fake_path(&fake, "blob-0123");
    ck_assert_int_eq(rename(path, blob), 0);
    ck_assert_int_eq(symlink("blob-0123", path), 0);
    struct model *model = expect_open();
    expect_bound(model);
    model_close(model);
    ck_assert_int_eq(unlink(blob), 0);
    expect_refusal("1 of the 3 shards named by the index is missing or links to nothing, the "
                   "first is model-00002-of-000003.safetensors");
    free(path);
    free(blob);
}
END_TEST

START_TEST(files_with_any_order_of_tensors_are_bound_alike)
{
    /* Dtypes sort the file: a wrong one puts the tensor elsewhere; the order of the header's
     * text is turned round by exchanging ranges of equal size. */
    struct fake_tensor *a = fake_find(&fake, EXPERT(1, 0) "w1.weight_packed");
    struct fake_tensor *b = fake_find(&fake, EXPERT(1, 0) "w3.weight_packed");
    fake_write(&fake);
    struct model *model = expect_open();
    const struct extent first = model_expert_part(model, 1, 0, W1_PACKED);
    const struct extent last = model_expert_part(model, 1, 0, W3_PACKED);
    size_t header_bytes = 0;
    uint64_t data_bytes = 0;
    free(fake_header(&fake, 0, &header_bytes, &data_bytes));
    const uint64_t base = 8 + header_bytes;
    model_close(model);
    a = fake_find(&fake, EXPERT(1, 0) "w1.weight_packed");
    b = fake_find(&fake, EXPERT(1, 0) "w3.weight_packed");
    snprintf(a->offsets, sizeof a->offsets, "[%llu,%llu]",
             (unsigned long long)(last.offset_bytes - base),
             (unsigned long long)(last.offset_bytes - base + last.size_bytes));
    snprintf(b->offsets, sizeof b->offsets, "[%llu,%llu]",
             (unsigned long long)(first.offset_bytes - base),
             (unsigned long long)(first.offset_bytes - base + first.size_bytes));
    fake_write(&fake);
    model = expect_open();
    ck_assert_uint_eq(model_expert_part(model, 1, 0, W1_PACKED).offset_bytes, last.offset_bytes);
    ck_assert_uint_eq(model_expert_part(model, 1, 0, W3_PACKED).offset_bytes, first.offset_bytes);
    model_close(model);
}
END_TEST

START_TEST(a_contiguous_expert_is_one_extent)
{
    fake_write(&fake);
    struct model *model = expect_open();
    struct extent extents[EXPERT_PARTS];
    uint32_t part_at[EXPERT_PARTS];
    ck_assert_uint_eq(model_expert_extents(model, 12, 15, extents, part_at), 1);
    ck_assert_uint_eq(extents[0].size_bytes, 3 * (64 * 32 + 64 * 2));
    ck_assert_uint_eq(extents[0].offset_bytes,
                      model_expert_part(model, 12, 15, W1_PACKED).offset_bytes);
    for (size_t i = 0; i < EXPERT_PARTS; i++) {
        ck_assert_uint_eq(part_at[i], 0);
    }
    model_close(model);
}
END_TEST

START_TEST(an_expert_spread_over_files_is_several_extents_in_order)
{
    fake_find(&fake, EXPERT(1, 2) "w1.weight_packed")->shard = 2;
    fake_find(&fake, EXPERT(1, 2) "w2.weight_scale")->shard = 1;
    fake_write(&fake);
    struct model *model = expect_open();
    struct extent extents[EXPERT_PARTS];
    uint32_t part_at[EXPERT_PARTS];
    const uint32_t count = model_expert_extents(model, 1, 2, extents, part_at);
    ck_assert_uint_eq(count, 3); /* scale w1 and packed w2, w3's two: joined where they touch */
    static const uint32_t file_of_part[EXPERT_PARTS] = {2, 0, 0, 1, 0, 0};
    uint64_t sum_bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum_bytes += extents[i].size_bytes;
        ck_assert(i == 0 || extents[i - 1].file < extents[i].file ||
                  extents[i - 1].offset_bytes < extents[i].offset_bytes);
    }
    ck_assert_uint_eq(sum_bytes, 3 * (64 * 32 + 64 * 2));
    for (uint32_t part = 0; part < EXPERT_PARTS; part++) {
        const struct extent want = model_expert_part(model, 1, 2, (enum expert_part)part);
        const struct extent *in = &extents[part_at[part]];
        ck_assert_uint_eq(want.file, file_of_part[part]);
        ck_assert_uint_eq(in->file, want.file);
        ck_assert_uint_le(in->offset_bytes, want.offset_bytes);
        ck_assert_uint_ge(in->offset_bytes + in->size_bytes, want.offset_bytes + want.size_bytes);
    }
    model_close(model);
}
END_TEST

/* Copies the last shard under another name. */
static void add_stray(const char *name)
{
    size_t header_bytes = 0;
    uint64_t data_bytes = 0;
    char *header = fake_header(&fake, 2, &header_bytes, &data_bytes);
    char *file = calloc(1, 8 + header_bytes + data_bytes);
    ck_assert_ptr_nonnull(file);
    file[0] = (char)(header_bytes & 0xFF);
    file[1] = (char)(header_bytes >> 8);
    memcpy(file + 8, header, header_bytes);
    fake_put(&fake, name, file, 8 + header_bytes + data_bytes);
    free(file);
    free(header);
}

START_TEST(with_an_index_other_shards_are_ignored_with_one_note)
{
    fake_write(&fake);
    add_stray("model.safetensors");
    struct model *model = expect_open();
    ck_assert_str_eq(noted, "model.safetensors is ignored: the index does not name it");
    expect_bound(model);
    model_close(model);
    add_stray("consolidated.safetensors");
    model_close(expect_open());
    ck_assert_str_eq(noted, "consolidated.safetensors and 1 more *.safetensors files are ignored: "
                            "the index does not name them");
}
END_TEST

START_TEST(without_an_index_a_tensor_in_two_files_is_refused_naming_both)
{
    fake.no_index = true;
    fake_write(&fake);
    add_stray("model.safetensors");
    expect_refusal("is in both model-00003-of-000003.safetensors and model.safetensors");
}
END_TEST

START_TEST(a_shard_that_is_missing_is_named)
{
    fake_write(&fake);
    char *path = fake_shard_path(&fake, 1);
    ck_assert_int_eq(unlink(path), 0);
    expect_refusal("the first is model-00002-of-000003.safetensors");
    char *index = fake_path(&fake, INDEX);
    ck_assert_int_eq(unlink(index), 0);
    expect_refusal("of the 1492 tensors of the model are missing: language_model.model.layers.7.");
    free(index);
    free(path);
}
END_TEST

START_TEST(missing_tensors_are_counted_and_the_first_are_named)
{
    fake_remove(&fake, PRE "layers.5.mlp_res_norm.weight");
    fake_remove(&fake, EXPERT(9, 3) "w2.weight_scale");
    fake_write(&fake);
    expect_refusal("2 of the 1492 tensors of the model are missing: "
                   "language_model.model.layers.5.mlp_res_norm.weight, "
                   "language_model.model.layers.9.block_sparse_moe.experts.3.w2.weight_scale");
}
END_TEST

/* Replaces the first `from` of the index by `to`. */
static void change_index(const char *from, const char *to)
{
    char *path = fake_path(&fake, INDEX);
    static char text[400000];
    static char changed[400000];
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *at = strstr(text, from);
    ck_assert_msg(at != NULL, "%s", from);
    const int size = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to,
                              at + strlen(from));
    fake_put(&fake, INDEX, changed, (size_t)size);
    free(path);
}

START_TEST(an_index_that_contradicts_the_shards_is_refused)
{
    static const struct {
        const char *from, *to, *part;
    } changes[] = {
        {NORM_TENSOR "\":\"model-00003", NORM_TENSOR "\":\"model-00001",
         "the index places tensor " NORM_TENSOR " in model-00001-of-000003.safetensors but it is "
         "in model-00003-of-000003.safetensors"},
        {NORM_TENSOR, PRE "norm.other", "the index does not name tensor " NORM_TENSOR},
        {"experts.7.w1.weight_packed", "experts.7.w1.weight_pocked", "does not name tensor"},
        {"lm_head.weight\":\"model-00003-of-000003.safetensors",
         "lm_head.weight\":\"model-00004-of-000003.safetensors",
         "1 of the 4 shards named by the index is missing or links to nothing, the first is "
         "model-00004-of-000003.safetensors"},
        {NORM_TENSOR, "language_model.lm_head.weight", "names tensor language_model.lm_head.weight "
                                                       "twice"},
        {"model-00003-of-000003.safetensors", "../model-00003-of-000003.safetensors",
         "is not the name of"},
        {"model-00003-of-000003.safetensors", "pytorch_model.bin", "is not the name of"},
        {"\"weight_map\"", "\"map\"", "weight_map is missing or empty"},
        {"\"weight_map\":{", "\"weight_map\":7,\"x\":{", "an object was expected"},
        {"\"weight_map\":{", "\"weight_map\":{\"a\":1,", "a string was expected"},
        {"}}", "}", "comma or a closing bracket"},
        {"}}", "}} x", "something follows"},
        {"{\"metadata", "<html>{\"metadata", "HTML page"}};
    fake_write(&fake);
    for (size_t i = 0; i < countof(changes); i++) {
        fake_write_index(&fake);
        change_index(changes[i].from, changes[i].to);
        expect_refusal(changes[i].part);
    }
    fake_put(&fake, INDEX, "", 0);
    expect_refusal("is empty");
}
END_TEST

START_TEST(total_size_and_unknown_members_of_the_index_do_not_matter)
{
    fake_write(&fake);
    change_index("\"total_size\":0", "\"total_size\":-1.5e9,\"x\":[{}]");
    model_close(expect_open());
}
END_TEST

START_TEST(norms_and_residual_projections_may_be_f32)
{
    struct fake_tensor *norm = fake_find(&fake, NORM_TENSOR);
    strcpy(norm->dtype, "F32");
    norm->size_bytes *= 2;
    struct fake_tensor *proj = fake_find(&fake, PRE "layers.4.mlp_res_proj.weight");
    strcpy(proj->dtype, "F32");
    proj->size_bytes *= 2;
    struct fake_tensor *o_norm = fake_find(&fake, PRE "layers.4.self_attn.o_norm.weight");
    strcpy(o_norm->dtype, "BF16");
    o_norm->size_bytes /= 2;
    fake_write(&fake);
    struct model *model = expect_open();
    ck_assert_int_eq(model_tensor(model, TENSOR_MODEL_LEVEL, T_NORM)->dtype, DTYPE_F32);
    ck_assert_int_eq(model_tensor(model, 4, T_MLP_RES_PROJ)->dtype, DTYPE_F32);
    ck_assert_int_eq(model_tensor(model, 4, T_O_NORM)->dtype, DTYPE_BF16);
    expect_bound(model);
    model_close(model);
}
END_TEST

START_TEST(a_log_may_come_without_its_padding)
{
    struct fake_tensor *tensor = fake_find(&fake, PRE "layers.4.self_attn.A_log");
    strcpy(tensor->shape, "[4]");
    tensor->size_bytes = 16;
    fake_write(&fake);
    struct model *model = expect_open();
    ck_assert_uint_eq(model_tensor(model, 4, T_A_LOG)->cols, 4);
    ck_assert_uint_eq(model_tensor(model, 5, T_A_LOG)->cols, 16);
    model_close(model);
    tensor = fake_find(&fake, PRE "layers.4.self_attn.A_log");
    strcpy(tensor->shape, "[5]");
    tensor->size_bytes = 20;
    fake_write(&fake);
    expect_refusal("A_log has shape [5] but config.json implies [16]");
}
END_TEST

START_TEST(a_folder_that_is_none_or_is_empty_is_refused)
{
    struct model *model = NULL;
    fake_write(&fake);
    char *path = fake_path(&fake, "config.json");
    err_clear();
    ck_assert_int_eq(model_open(path, NULL, &model), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(err_message(), "is not a folder"));
    free(path);
    err_clear();
    ck_assert_int_eq(model_open("/nonexistent/model", NULL, &model), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(err_message(), "/nonexistent/model: there is no such folder"));
    for (uint32_t shard = 0; shard < 3; shard++) {
        path = fake_shard_path(&fake, shard);
        ck_assert_int_eq(unlink(path), 0);
        free(path);
    }
    path = fake_path(&fake, INDEX);
    ck_assert_int_eq(unlink(path), 0);
    free(path);
    expect_refusal("holds neither model.safetensors.index.json nor any *.safetensors file");
}
END_TEST

START_TEST(a_config_that_asks_for_more_experts_than_any_file_holds_costs_no_memory)
{
    fake_write(&fake);
    struct model_config vast = tiny;
    vast.experts = 65536;
    vast.layers = 900;
    char *text = fake_config_json(&vast);
    fake_put(&fake, "config.json", text, strlen(text));
    free(text);
    expect_refusal("config.json asks for some 353");
    char *path = fake_path(&fake, INDEX);
    ck_assert_int_eq(unlink(path), 0);
    free(path);
    expect_refusal("config.json asks for 58916864 experts");
}
END_TEST

START_TEST(the_index_of_the_tiny_model_is_small_and_counted)
{
    fake_write(&fake);
    struct model *model = expect_open();
    const uint64_t parts = 12 * 16 * EXPERT_PARTS * sizeof(uint64_t);
    const uint64_t refs = (13 * T_LAYER_COUNT + T_COUNT - T_LAYER_COUNT) *
                          sizeof(struct tensor_ref);
    ck_assert_uint_gt(model_resident_bytes(model), parts + refs);
    ck_assert_uint_lt(model_resident_bytes(model), parts + refs + 8192);
    model_close(model);
    model_close(NULL);
}
END_TEST

START_TEST(an_imagined_model_has_the_tensors_of_a_real_one)
{
    struct model *imagined = NULL;
    fake_write(&fake);
    struct model *model = expect_open();
    ck_assert_int_eq(model_imagine(&tiny, &imagined), 0);
    ck_assert_uint_eq(imagined->tensor_count, model->tensor_count);
    ck_assert_uint_eq(imagined->total_bytes, model->total_bytes);
    ck_assert_mem_eq(imagined->part_bytes, model->part_bytes, sizeof model->part_bytes);
    for (size_t i = 0; i < 13 * T_LAYER_COUNT + T_COUNT - T_LAYER_COUNT; i++) {
        ck_assert_uint_eq(imagined->tensors[i].size_bytes, model->tensors[i].size_bytes);
        ck_assert_uint_eq(imagined->tensors[i].rows, model->tensors[i].rows);
        ck_assert_uint_eq(imagined->tensors[i].cols, model->tensors[i].cols);
        ck_assert_int_eq(imagined->tensors[i].dtype, model->tensors[i].dtype);
    }
    struct extent extents[EXPERT_PARTS];
    uint32_t part_at[EXPERT_PARTS];
    ck_assert_uint_eq(model_expert_extents(imagined, 12, 15, extents, part_at), 1);
    ck_assert_uint_eq(extents[0].offset_bytes + extents[0].size_bytes,
                      imagined->files[12].size_bytes);
    model_close(imagined);
    model_close(model);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, every_tensor_is_bound_to_its_place);
    tcase_add_test(all, rows_and_columns_follow_from_the_shape);
    tcase_add_test(all, a_folder_without_an_index_is_all_its_shards);
    tcase_add_test(all, shards_that_are_links_are_followed);
    tcase_add_test(all, files_with_any_order_of_tensors_are_bound_alike);
    tcase_add_test(all, a_contiguous_expert_is_one_extent);
    tcase_add_test(all, an_expert_spread_over_files_is_several_extents_in_order);
    tcase_add_test(all, with_an_index_other_shards_are_ignored_with_one_note);
    tcase_add_test(all, without_an_index_a_tensor_in_two_files_is_refused_naming_both);
    tcase_add_test(all, a_shard_that_is_missing_is_named);
    tcase_add_test(all, missing_tensors_are_counted_and_the_first_are_named);
    tcase_add_test(all, an_index_that_contradicts_the_shards_is_refused);
    tcase_add_test(all, total_size_and_unknown_members_of_the_index_do_not_matter);
    tcase_add_test(all, norms_and_residual_projections_may_be_f32);
    tcase_add_test(all, a_log_may_come_without_its_padding);
    tcase_add_test(all, a_folder_that_is_none_or_is_empty_is_refused);
    tcase_add_test(all, a_config_that_asks_for_more_experts_than_any_file_holds_costs_no_memory);
    tcase_add_test(all, the_index_of_the_tiny_model_is_small_and_counted);
    tcase_add_test(all, an_imagined_model_has_the_tensors_of_a_real_one);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
