/* SPDX-License-Identifier: Apache-2.0 */

/* Packs that lie. The manifest is refused at open, in one line, whatever it claims; counts and
 * escapes inside a tile are looked at when the tile is used. No lie yields a token. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/nondet.h"
#include "core/base/packed.h"
#include "core/cli/pack.h"
#include "tests/support/amount.h"
#include "tests/support/packed.h"
#include "tests/support/suite.h"

#define WATCHDOG_SECONDS 300
#define CUTS AMOUNT(300, 300, 30)
#define FLIPS AMOUNT(1000, 1000, 60)

static struct tiny source;
static struct tiny original; /* a good pack of it */
static struct tiny pack;     /* a copy for each test */
static struct tiny_run run;

static void fresh(void)
{
    tiny_copy(&pack, &original, TINY_MEMORY);
}

static void drop(void)
{
    tiny_remove(&pack);
}

/* Refused as a model, in one line that holds part. */
static void expect_refused(const char *part)
{
    struct model *model = NULL;
    err_clear();
    int rc = model_open(pack.dir, NULL, &model);
    ck_assert_msg(rc == ERR_MODEL, "rc %d: %s", rc, err_message());
    ck_assert_ptr_null(model);
    ck_assert_msg(strstr(err_message(), part) != NULL, "no \"%s\" in: %s", part, err_message());
    ck_assert_ptr_null(strchr(err_message(), '\n'));
}

static void lie(const char *before, const char *after, const char *part)
{
    fresh();
    packed_edit(&pack, before, after);
    expect_refused(part);
    drop();
}

static void lie_about_tile(const struct packed_line *good, const struct packed_line *bad,
                           const char *part)
{
    char text[128];
    packed_print(bad, text);
    lie(good->text, text, part);
}

START_TEST(an_edit_that_changes_nothing_is_accepted)
{
    struct model *model;
    fresh();
    packed_edit(&pack, "\"experts\":[", "\"experts\": [");
    ck_assert_msg(model_open(pack.dir, NULL, &model) == 0, "%s", err_message());
    model_close(model);
    drop();
}
END_TEST

START_TEST(tiles_that_lie_elsewhere_are_refused)
{
    struct packed_line good;
    struct packed_line next;
    packed_find(&original, "lm_head", 0, &good);
    packed_find(&original, "shared_experts.up_proj", 0, &next);
    struct packed_line bad = good;
    bad.offset_bytes += 512;
    lie_about_tile(&good, &bad, "not on a page");
    bad = good;
    bad.offset_bytes += 1ULL << 40;
    lie_about_tile(&good, &bad, "past its file");
    bad.offset_bytes = UINT64_MAX - 4095;
    lie_about_tile(&good, &bad, "past its file");
    bad = good;
    bad.offset_bytes -= PAGE_BYTES;
    lie_about_tile(&good, &bad, "overlaps");
    bad.offset_bytes = next.offset_bytes;
    lie_about_tile(&good, &bad, "overlaps");
    bad.offset_bytes = 0;
    lie_about_tile(&good, &bad, "overlaps");
    bad = good;
    bad.file = 99;
    lie_about_tile(&good, &bad, "of no file");
}
END_TEST

START_TEST(tiles_of_another_size_are_refused)
{
    struct packed_line good;
    packed_find(&original, "lm_head", 0, &good);
    static const int64_t changes[] = {-4096, 1, -1, 1 << 20, -(int64_t)UINT32_MAX};
    for (size_t i = 0; i < countof(changes); i++) {
        struct packed_line bad = good;
        bad.size_bytes += (uint64_t)changes[i];
        lie_about_tile(&good, &bad, "");
    }
    struct packed_line bad = good;
    bad.size_bytes = 0;
    lie_about_tile(&good, &bad, "size");
    bad = good;
    bad.rows = 0;
    lie_about_tile(&good, &bad, "no rows");
    bad.rows = good.rows + 1;
    lie_about_tile(&good, &bad, "");
    bad.rows = good.rows - 1;
    lie_about_tile(&good, &bad, "");
    bad.rows = UINT32_MAX;
    lie_about_tile(&good, &bad, "too many");
}
END_TEST

/* kv_b, routers and embedding rows are read in ways that know no coding. */
START_TEST(tiles_that_may_not_be_coded_are_refused_when_smaller)
{
    static const char *const names[] = {"kv_b_proj", "block_sparse_moe.gate.weight",
                                        "embed_tokens"};
    for (size_t i = 0; i < countof(names); i++) {
        struct packed_line good;
        packed_find(&original, names[i], 0, &good);
        struct packed_line bad = good;
        bad.size_bytes = packed_tile_bytes(good.rows, 128, 0);
        lie_about_tile(&good, &bad, "neither that of bf16");
    }
}
END_TEST

START_TEST(tiles_twice_or_missing_are_refused)
{
    struct packed_line good;
    char text[512];
    packed_find(&original, "lm_head", 0, &good);
    snprintf(text, sizeof text, "%s,\n%s", good.text, good.text);
    lie(good.text, text, "too many");
    lie(good.text, "", "rows of a matrix are missing");
    packed_find(&original, "layers.0.mlp.down_proj", 0, &good);
    snprintf(text, sizeof text, "\n[\"language_model.model.layers.0.mlp.down_proj.weight\",[%s]],",
             good.text);
    lie(text, "", "lacks tensor language_model.model.layers.0.mlp.down_proj.weight");
    char twice[1024];
    snprintf(twice, sizeof twice, "%s%s", text, text);
    lie(text, twice, "described twice");
    lie("layers.1.self_attn.q_proj.weight", "layers.0.self_attn.q_proj.weight", "twice");
    lie("layers.1.self_attn.q_proj.weight", "layers.77.self_attn.q_proj.weight",
        "not of the model");
    lie("layers.1.self_attn.q_proj.weight", "layers.1.input_layernorm.weight", "");
}
END_TEST

START_TEST(tensors_and_experts_that_lie_are_refused)
{
    lie("\"BF16\",1,128,", "\"BF16\",2,128,", "another form");
    lie("\"BF16\",1,128,", "\"BF16\",1,64,", "another form");
    lie("\"BF16\",1,128,", "\"U8\",1,128,", "another form");
    lie("\"BF16\",1,128,", "\"BF16\",4294967295,4294967295,", "another form");
    lie("\"experts\":[\n", "\"experts\":[[0,4096,\"0000000000000000\"],\n", "overlaps");
    lie("\"experts\":[\n[1,4096,", "\"experts\":[\n[1,99999999999999999999,", "number");
    lie("\"experts\":[\n[1,4096,", "\"experts\":[\n[7,4096,", "of no file");
    lie("\"experts\":[\n[1,4096,", "\"experts\":[\n[1,4097,", "not on a page");
    lie("\"experts_in\":\"pack\"", "\"experts_in\":\"source\"", "more experts");
    lie("\"experts_in\":\"pack\"", "\"experts_in\":\"moon\"", "neither");
}
END_TEST

START_TEST(heads_and_files_that_lie_are_refused)
{
    lie("k3ring-pack", "another-one", "format 'another-one'");
    lie("\"version\":1", "\"version\":2", "version 2");
    lie("\"id\":\"", "\"id\":\"0", "16 hexadecimal digits");
    lie("\"parts\":[\"\"", "\"parts\":[\"/etc\"", "no name");
    lie("\"parts\":[\"\"", "\"parts\":[\"\",\"\"", "no name");
    lie("\"parts\":[\"\"", "\"parts\":[", "of no folder");
    lie("[0,\"trunk.bin\",", "[3,\"trunk.bin\",", "of no folder");
    lie("[0,\"trunk.bin\",", "[0,\"../../etc/passwd\",", "another name");
    lie("[0,\"trunk.bin\",", "[0,\"trunk.bin\",1", "is missing or has not");
    lie("[0,\"trunk.bin\",", "[0,\"experts.bin\",", "");
    lie("\"tensors\":", "\"stuff\":", "'stuff' stands where 'tensors' should");
    lie("\"tile_bytes\":", "\"tile_bytes\":-", "");
}
END_TEST

START_TEST(files_that_were_cut_or_swapped_are_refused)
{
    fresh();
    tiny_truncate(&pack, PACK_TRUNK, -4096);
    expect_refused("is missing or has not");
    drop();
    fresh();
    size_t size_bytes;
    unsigned char *bytes = tiny_read(&pack, PACK_EXPERTS, &size_bytes);
    memset(bytes, 0, PAGE_BYTES);
    tiny_put(&pack, PACK_EXPERTS, bytes, size_bytes);
    free(bytes);
    expect_refused("is not this file of the pack");
    drop();
}
END_TEST

/* Without a right checksum any accident shows; it also must not take anything down on the way. */
START_TEST(cut_and_damaged_manifests_are_refused)
{
    size_t size_bytes;
    unsigned char *text = tiny_read(&original, PACK_MANIFEST, &size_bytes);
    unsigned char *bad = malloc(size_bytes);
    struct rng rng = rng_seed(7);
    fresh();
    ck_assert_ptr_nonnull(bad);
    for (int i = 0; i < CUTS + FLIPS; i++) {
        size_t keep = i < CUTS ? rng_below(&rng, size_bytes - 1) : size_bytes;
        memcpy(bad, text, size_bytes);
        if (i >= CUTS) {
            size_t at = rng_below(&rng, size_bytes - 2);
            bad[at] = (unsigned char)(bad[at] ^ (1U << rng_below(&rng, 7)));
        }
        tiny_put(&pack, PACK_MANIFEST, bad, keep);
        expect_refused("");
    }
    drop();
    free(bad);
    free(text);
}
END_TEST

/* ---- inside a tile ---- */

static void run_damaged(uint64_t at, uint32_t value)
{
    size_t size_bytes;
    unsigned char *bytes = tiny_read(&original, PACK_TRUNK, &size_bytes);
    struct engine_options o = tiny_options(2);
    fresh();
    memcpy(bytes + at, &value, sizeof value);
    tiny_put(&pack, PACK_TRUNK, bytes, size_bytes);
    free(bytes);
    tiny_generate(&pack, &o, 2, NULL, &run);
    ck_assert_msg(run.rc == ERR_IO, "rc %d: %s", run.rc, run.message);
    ck_assert_msg(strstr(run.message, "the coded tile at byte") != NULL, "%s", run.message);
    ck_assert_uint_eq(run.count, 0);
    drop();
}

START_TEST(counts_and_escapes_that_lie_end_the_run_without_a_token)
{
    struct packed_line tile;
    packed_find(&original, "layers.0.mlp.gate_proj", 0, &tile);
    uint64_t first = tile.offset_bytes + tile.rows * packed_row_bytes(128);
    uint64_t escapes = first + (tile.rows + 1ULL) * 4;
    uint64_t count = (tile.size_bytes - packed_tile_bytes(tile.rows, 128, 0)) / 4;
    ck_assert_uint_gt(count, 1); /* the source was sprinkled with rare values */
    run_damaged(first, 1);
    run_damaged(first + 4, UINT32_MAX);
    run_damaged(first + 4ULL * tile.rows, (uint32_t)count + 1);
    run_damaged(first + 4ULL * tile.rows, 0);
    run_damaged(escapes, 128U << 8 | 0x3F);
    run_damaged(escapes, UINT32_MAX);
}
END_TEST

static Suite *hostile_suite(void)
{
    Suite *suite = suite_create("hostile packs");
    TCase *tcase = tcase_create("lies");
    tcase_set_timeout(tcase, WATCHDOG_SECONDS);
    tcase_add_test(tcase, an_edit_that_changes_nothing_is_accepted);
    tcase_add_test(tcase, tiles_that_lie_elsewhere_are_refused);
    tcase_add_test(tcase, tiles_of_another_size_are_refused);
    tcase_add_test(tcase, tiles_that_may_not_be_coded_are_refused_when_smaller);
    tcase_add_test(tcase, tiles_twice_or_missing_are_refused);
    tcase_add_test(tcase, tensors_and_experts_that_lie_are_refused);
    tcase_add_test(tcase, heads_and_files_that_lie_are_refused);
    tcase_add_test(tcase, files_that_were_cut_or_swapped_are_refused);
    tcase_add_test(tcase, cut_and_damaged_manifests_are_refused);
    tcase_add_test(tcase, counts_and_escapes_that_lie_end_the_run_without_a_token);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    tiny_make(&source, TINY_MEMORY);
    packed_sprinkle(&source);
    packed_make(&original, &source, TINY_MEMORY, &(struct packed_form){.tile_bytes = 0});
    int failed = suite_run(hostile_suite());
    tiny_remove(&original);
    tiny_remove(&source);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
