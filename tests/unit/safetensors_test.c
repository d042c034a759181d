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
#define NORM_TENSOR PRE "norm.weight"

static struct model_config tiny;
static struct fake_model fake;

static void setup(void)
{
    fake_config_tiny(&tiny);
    fake_init(&fake, &tiny, 3);
}

static void teardown(void)
{
    fake_free(&fake);
}

static void expect_refusal(const char *part)
{
    ck_assert_msg(fake_refused(&fake, part), "%s", part);
}

static struct model *expect_open(void)
{
    const struct model_options options = {.threads = 2};
    struct model *model = NULL;
    err_clear();
    ck_assert_msg(model_open(fake.dir, &options, &model) == 0, "%s", err_message());
    return model;
}

START_TEST(headers_may_have_any_length_and_data_any_alignment)
{
    static const uint32_t totals[] = {104000, 131071, 131072, 131073, 135001};
    for (size_t i = 0; i < countof(totals); i++) {
        size_t header_bytes = 0;
        uint64_t data_bytes = 0;
        fake.pad_bytes = 0;
        free(fake_header(&fake, 0, &header_bytes, &data_bytes));
        ck_assert_uint_lt(header_bytes + 8, totals[i]);
        fake.pad_bytes = totals[i] - 8 - (uint32_t)header_bytes;
        fake_write(&fake);
        struct model *model = expect_open();
        ck_assert_uint_eq(model->files[0].size_bytes, totals[i] + data_bytes);
        const struct tensor_ref *ref = model_tensor(model, 0, T_A_LOG); /* the file's first */
        ck_assert_uint_eq(ref->offset_bytes, totals[i]);
        model_close(model);
    }
}
END_TEST

START_TEST(files_that_are_no_weights_are_named_for_what_they_are)
{
    static const struct {
        const char *bytes, *part;
    } kinds[] = {
        {"", "is empty (0 bytes)"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:95c2\nsize 2172752\n",
         "is a Git LFS pointer, not the file itself (72 bytes): fetch it"},
        {"<!DOCTYPE html>\n<html><body>401</body></html>\n", "is an HTML page"},
        {"\n  <HTML><head></head></html>", "is an HTML page"},
        {"GGUF\003", "is a GGUF file"},
        {"PK\003\004aaaaaaaaaaaaaaa", "is a zip archive"},
        {"abc", "has only 3 bytes"},
        {"<?xml version='1.0'?><Error/>", "is an XML text"},
        {"<Error><Code>AccessDenied", "is an XML text"},
        {"{\"error\":\"Unauthorized\"}", "is an error of the server"},
        {"HTTP/1.1 403 Forbidden\r\n", "is an answer of a server"},
        {"\x1f\x8b\x08\x02\x03\x04\x05\x06\x07\x08", "is compressed by gzip"},
        {"\x28\xb5\x2f\xfd\x02\x03\x04\x05\x06\x07", "is compressed by zstd"},
        {"\xfd" "7zXZ\x02\x03\x04\x05\x06\x07", "is compressed by xz"},
        {"\x89HDF\r\n\x1a\n\x02\x03\x04", "is an HDF5 file"},
        {"Access denied to this file", "begins with the text 'Access d' (26 bytes)"},
        {"ab\ndefghijkl", "claims a header of"},
        {"\177\177\177\177\177\177\177\177{}", "claims a header of 9187201950435737471 bytes"}};
    fake_write(&fake);
    for (size_t i = 0; i < countof(kinds); i++) {
        fake_put(&fake, "model-00002-of-000003.safetensors", kinds[i].bytes,
                 strlen(kinds[i].bytes));
        expect_refusal(kinds[i].part);
        ck_assert_ptr_nonnull(strstr(err_message(), "model-00002-of-000003.safetensors"));
    }
    fake_put(&fake, "model-00002-of-000003.safetensors", "\2\0\0\0\0\0\0\0[]", 10);
    expect_refusal("does not begin with '{'");
}
END_TEST

START_TEST(entries_that_lie_about_their_size_are_refused)
{
    static const struct {
        const char *shape, *offsets, *part;
    } entries[] = {
        {"[4294967296,4294967296]", "[0,0]", "needs more than 2^64 bytes but its range has 0"},
        {"[9223372036854775808]", "[0,0]", "needs more than 2^64 bytes"},
        {"[128]", "[18446744073709551488,128]", "18446744073709551488..128 runs backwards"},
        {"[128]", "[0,255]", "needs 256 bytes but its range has 255"},
        {"[127]", "[0,256]", "needs 254 bytes but its range has 256"},
        {"[128]", "[18446744073709551000,18446744073709551256]", "ends at data byte"},
        {"[0]", "[0,0]", "has shape [0]"},
        {"[-1]", "[0,256]", "whole number was expected"},
        {"[1e3]", "[0,256]", "whole number was expected"},
        {"[128.0]", "[0,256]", "whole number was expected"},
        {"[18446744073709551616]", "[0,256]", "exceeds 64 bits"},
        {"[1,1,1,1,1,1,1,1,128]", "[0,256]", "too many dimensions"},
        {"128", "[0,256]", "a list was expected"},
        {"[128]", "[0]", "comma"},
        {"[128]", "[0,256,512]", "closing bracket"},
        {"[128]", "\"0\"", "a list was expected"},
        {"[128],\"shape\":[128]", "[0,256]", "occurs twice"}};
    for (size_t i = 0; i < countof(entries); i++) {
        struct fake_tensor *tensor = fake_find(&fake, NORM_TENSOR);
        snprintf(tensor->shape, sizeof tensor->shape, "%s", entries[i].shape);
        snprintf(tensor->offsets, sizeof tensor->offsets, "%s", entries[i].offsets);
        fake_write(&fake);
        expect_refusal(entries[i].part);
        ck_assert_ptr_nonnull(strstr(err_message(), NORM_TENSOR));
    }
}
END_TEST

START_TEST(four_hundred_nested_brackets_are_refused_in_a_shape_and_beside_it)
{
    char *deep = fake_find(&fake, NORM_TENSOR)->shape;
    memset(deep, '[', 400);
    deep[400] = '\0';
    fake_write(&fake);
    expect_refusal("whole number was expected");
    deep = fake_find(&fake, NORM_TENSOR)->shape;
    strcpy(deep, "[128],\"more\":");
    memset(deep + strlen(deep), '[', 400);
    deep[13 + 400] = '\0';
    fake_write(&fake);
    expect_refusal("nested too deep");
}
END_TEST

START_TEST(ranges_that_overlap_are_refused)
{
    struct fake_tensor *tensor = fake_find(&fake, NORM_TENSOR);
    strcpy(tensor->offsets, "[64,320]");
    fake_write(&fake);
    expect_refusal("overlap");
}
END_TEST

START_TEST(a_file_one_byte_too_short_or_too_long_is_refused)
{
    static const int steps[] = {-1, 1};
    for (size_t i = 0; i < countof(steps); i++) {
        for (uint32_t shard = 0; shard < 3; shard += 2) {
            struct stat status;
            fake_write(&fake);
            char *path = fake_shard_path(&fake, shard);
            ck_assert_int_eq(stat(path, &status), 0);
            ck_assert_int_eq(truncate(path, status.st_size + steps[i]), 0);
            expect_refusal(path);
            ck_assert_ptr_nonnull(strstr(err_message(), "fetch it again"));
            free(path);
        }
    }
}
END_TEST

START_TEST(a_header_cut_short_is_refused)
{
    size_t header_bytes = 0;
    uint64_t data_bytes = 0;
    char *header = fake_header(&fake, 2, &header_bytes, &data_bytes);
    fake_write(&fake);
    for (size_t size = 2; size < header_bytes; size += size < 32 ? 1 : 67) {
        char *file = calloc(1, 8 + size);
        ck_assert_ptr_nonnull(file);
        file[0] = (char)(size & 0xFF);
        file[1] = (char)(size >> 8);
        memcpy(file + 8, header, size);
        if (header[size - 1] != ' ') {
            fake_put(&fake, "model-00003-of-000003.safetensors", file, 8 + size);
            struct model *model = NULL;
            err_clear();
            ck_assert_int_eq(model_open(fake.dir, NULL, &model), ERR_MODEL);
        }
        free(file);
    }
    free(header);
}
END_TEST

START_TEST(metadata_is_skipped_and_unknown_members_too)
{
    fake_add(&fake, "__metadata__", "X", "\"y\"", 0, 2);
    strcpy(fake_find(&fake, "__metadata__")->offsets, "{\"a\":[1.5,\"}\"]}");
    struct fake_tensor *tensor = fake_find(&fake, NORM_TENSOR);
    strcpy(tensor->shape, "[128],\"more\":{\"x\":[1,-2.5]}");
    fake_write(&fake);
    model_close(expect_open());
}
END_TEST

START_TEST(a_tensor_described_twice_is_refused)
{
    fake_add(&fake, NORM_TENSOR, "BF16", "[128]", 256, 2);
    fake.no_index = true;
    fake_write(&fake);
    expect_refusal("tensor " NORM_TENSOR " is described twice");
    fake_remove(&fake, NORM_TENSOR);
    const char *vision = "vision_tower.patch_embed.proj.weight";
    fake_add(&fake, vision, "BF16", "[4,3,2,2]", 96, 2);
    fake_write(&fake);
    expect_refusal("tensor vision_tower.patch_embed.proj.weight is described twice");
    fake_remove(&fake, vision);
    fake_add(&fake, EXPERT(1, 0) "w1.weight_packed", "U8", "[64,32]", 2048, 0);
    fake_write(&fake);
    expect_refusal("experts.0.w1.weight_packed is described twice");
}
END_TEST

START_TEST(other_dtypes_and_shapes_than_the_configs_are_refused)
{
    struct fake_tensor *tensor = fake_find(&fake, PRE "layers.4.self_attn.q_proj.weight");
    strcpy(tensor->dtype, "F16");
    fake_write(&fake);
    expect_refusal("q_proj.weight has dtype F16, expected BF16");
    strcpy(fake_find(&fake, PRE "layers.4.self_attn.q_proj.weight")->dtype, "X99");
    fake_write(&fake);
    expect_refusal("q_proj.weight has dtype X99, expected BF16");
    tensor = fake_find(&fake, PRE "layers.4.self_attn.q_proj.weight");
    strcpy(tensor->dtype, "BF16");
    strcpy(tensor->shape, "[128,64]");
    fake_write(&fake);
    expect_refusal("q_proj.weight has shape [128,64] but config.json implies [64,128]");
    strcpy(fake_find(&fake, PRE "layers.4.self_attn.q_proj.weight")->shape, "[64,128]");
    tensor = fake_find(&fake, PRE "layers.4.self_attn.A_log");
    strcpy(tensor->dtype, "BF16");
    tensor->size_bytes /= 2;
    fake_write(&fake);
    expect_refusal("A_log has dtype BF16, expected F32");
}
END_TEST

START_TEST(foreign_tensors_are_skipped_unless_they_change_the_computation)
{
    fake_add(&fake, "mm_projector.proj.0.weight", "F8_E4M3", "[3]", 3, 1);
    fake_add(&fake, "something.else", "NEW4", "[5,5]", 7, 1);
    fake_add(&fake, PRE "layers.1.self_attn.rotary_emb.inv_freq", "F32", "[2]", 8, 0);
    fake_add(&fake, EXPERT(1, 0) "w1.weight_shape", "I64", "[2]", 16, 0);
    fake_add(&fake, "vision_tower.patch_embed.proj.bias", "BF16", "[4]", 8, 2);
    fake_write(&fake);
    struct model *model = expect_open();
    ck_assert_uint_eq(model->skipped_count, 6);
    model_close(model);
    static const char *const names[] = {
        PRE "layers.1.self_attn.q_proj.bias", EXPERT(1, 0) "w1.weight",
        EXPERT(1, 16) "w1.weight_scale", "language_model.lm_head.bias",
        PRE "layers.13.input_layernorm.weight", PRE "layers.3.self_attn.A_log",
        PRE "layers.1.self_attn.q_proj.weight_scale"};
    for (size_t i = 0; i < countof(names); i++) {
        fake_add(&fake, names[i], "BF16", "[2]", 4, 0);
        fake_write(&fake);
        expect_refusal("would change what it computes");
        ck_assert_ptr_nonnull(strstr(err_message(), names[i]));
        fake_remove(&fake, names[i]);
    }
}
END_TEST

/* True when the file system tells holes from data. */
static bool holes_show(void)
{
    char *path = fake_path(&fake, "probe");
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    const bool show = fd >= 0 && ftruncate(fd, 1 << 20) == 0 && lseek(fd, 0, SEEK_HOLE) == 0;
    close(fd);
    free(path);
    return show;
}

START_TEST(holes_under_tensors_are_refused_unless_the_folder_is_synthetic)
{
    fake_write(&fake);
    if (!holes_show()) {
        return;
    }
    fake.sparse = true;
    fake_write(&fake);
    expect_refusal("were never written: it looks like a preallocated or interrupted download");
    ck_assert_ptr_nonnull(strstr(err_message(), "model-00001-of-000003.safetensors"));
    const struct model_options options = {.threads = 2, .allow_holes = true};
    struct model *model = NULL;
    ck_assert_int_eq(model_open(fake.dir, &options, &model), 0);
    model_close(model);
    fake_put(&fake, MODEL_SYNTH_MARKER, "x", 1);
    model = expect_open();
    ck_assert(model->synthetic);
    model_close(model);
}
END_TEST

START_TEST(missing_bytes_of_a_hole_are_counted_exactly)
{
    fake_write(&fake);
    if (!holes_show()) {
        return;
    }
    char *path = fake_shard_path(&fake, 0);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    const off_t begin = 1 << 20;
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, 65536) == 0 &&
        lseek(fd, 0, SEEK_HOLE) == begin) {
        expect_refusal("model-00001-of-000003.safetensors: 65536 bytes of its tensors were never");
    }
    close(fd);
    free(path);
}
END_TEST

START_TEST(a_directory_or_pipe_in_the_place_of_a_shard_is_refused)
{
    fake_write(&fake);
    char *path = fake_shard_path(&fake, 1);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    expect_refusal("is not a regular file");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    expect_refusal("is not a regular file");
    ck_assert_int_eq(rmdir(path), 0);
    free(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("safetensors");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, headers_may_have_any_length_and_data_any_alignment);
    tcase_add_test(all, files_that_are_no_weights_are_named_for_what_they_are);
    tcase_add_test(all, entries_that_lie_about_their_size_are_refused);
    tcase_add_test(all, four_hundred_nested_brackets_are_refused_in_a_shape_and_beside_it);
    tcase_add_test(all, ranges_that_overlap_are_refused);
    tcase_add_test(all, a_file_one_byte_too_short_or_too_long_is_refused);
    tcase_add_test(all, a_header_cut_short_is_refused);
    tcase_add_test(all, metadata_is_skipped_and_unknown_members_too);
    tcase_add_test(all, a_tensor_described_twice_is_refused);
    tcase_add_test(all, other_dtypes_and_shapes_than_the_configs_are_refused);
    tcase_add_test(all, foreign_tensors_are_skipped_unless_they_change_the_computation);
    tcase_add_test(all, holes_under_tensors_are_refused_unless_the_folder_is_synthetic);
    tcase_add_test(all, missing_bytes_of_a_hole_are_counted_exactly);
    tcase_add_test(all, a_directory_or_pipe_in_the_place_of_a_shard_is_refused);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
