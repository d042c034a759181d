/* SPDX-License-Identifier: Apache-2.0 */

/* Packs as a user meets them: the same tokens in every form, proofs that fail when they should,
 * sources that went away or changed, folders that are not free. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cli/pack.h"
#include "tests/support/packed.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"

#define WATCHDOG_SECONDS 300
#define RUN "--ids 3,141,59,26,53,58,97,93 --gen 4 --quiet"
#define IDS_4 "170 126 66 6\n"

static struct tiny source;  /* never changed by a test */
static struct tiny_run run;

static void expect_golden(const struct tiny *model)
{
    struct engine_options o = tiny_options(GOLDEN_STEPS);
    tiny_generate(model, &o, GOLDEN_STEPS, NULL, &run);
    ck_assert_msg(run.rc == 0, "%s", run.message);
    ck_assert_str_eq(run.hash, TINY_HASH);
}

static uint64_t size_of(const struct tiny *model, const char *name)
{
    char path[TINY_PATH_BYTES];
    struct stat status;
    tiny_path(model, name, path);
    ck_assert_msg(stat(path, &status) == 0, "%s", path);
    return (uint64_t)status.st_size;
}

static void flip(const struct tiny *model, const char *name, uint64_t offset_bytes)
{
    size_t size_bytes;
    unsigned char *bytes = tiny_read(model, name, &size_bytes);
    ck_assert_uint_lt(offset_bytes, size_bytes);
    bytes[offset_bytes] ^= 1;
    tiny_put(model, name, bytes, size_bytes);
    free(bytes);
}

/* ---- the same tokens ---- */

START_TEST(a_pack_makes_the_tokens_of_its_source_in_every_form)
{
    static const struct packed_form forms[] = {
        {.tile_bytes = 0}, {.trunk_only = true}, {.tile_bytes = 4096}, {.tile_bytes = 32768}};
    struct tiny pack;
    packed_make(&pack, &source, TINY_MEMORY, &forms[_i]);
    expect_golden(&pack);
    k3ring("pack --verify %s", pack.dir);
    expect(0, "byte for byte");
    tiny_remove(&pack);
}
END_TEST

START_TEST(a_pack_on_two_drives_makes_the_same_tokens_and_is_read_from_both)
{
    struct tiny pack;
    struct tiny second;
    tiny_folder(&second, TINY_DISK);
    packed_make(&pack, &source, TINY_MEMORY, &(struct packed_form){.second = &second});
    ck_assert_uint_gt(size_of(&second, PACK_TRUNK), 500000);
    ck_assert_uint_gt(size_of(&second, PACK_EXPERTS), 500000);
    ck_assert_uint_gt(size_of(&pack, PACK_EXPERTS), 500000);
    expect_golden(&pack);
    struct engine_options o = tiny_options(GOLDEN_STEPS);
    o.pin_bytes = 0;
    tiny_generate(&pack, &o, GOLDEN_STEPS, NULL, &run);
    ck_assert_str_eq(run.hash, TINY_HASH);
    struct stat here;
    struct stat there;
    ck_assert(stat(pack.dir, &here) == 0 && stat(second.dir, &there) == 0);
    if (here.st_dev == there.st_dev) {
        printf("note: /dev/shm and /tmp are one file system: one queue\n");
    } else {
        ck_assert_uint_eq(run.stats.io.device_max[0], o.io_depth);
        ck_assert_uint_eq(run.stats.io.device_max[1], o.io_depth);
        ck_assert_uint_gt(run.stats.io.in_flight_max, o.io_depth);
    }
    tiny_remove(&pack);
    tiny_remove(&second);
}
END_TEST

START_TEST(shares_divide_the_bytes)
{
    char dirs[3][64];
    struct stat status[2];
    struct tiny top;
    tiny_folder(&top, TINY_MEMORY);
    for (int i = 0; i < 2; i++) {
        snprintf(dirs[i], sizeof dirs[i], "%.50s/%d", top.dir, i);
    }
    k3ring("pack %s %s --to %s --share 3,1 --tile 16K", source.dir, dirs[0], dirs[1]);
    expect(0, "experts");
    for (int i = 0; i < 2; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/" PACK_EXPERTS, dirs[i]);
        ck_assert_int_eq(stat(path, &status[i]), 0);
    }
    double ratio = (double)status[0].st_size / (double)status[1].st_size;
    ck_assert_msg(ratio > 2.8 && ratio < 3.2, "%.2f", ratio);
    for (int i = 0; i < 2; i++) {
        struct tiny part;
        snprintf(part.dir, sizeof part.dir, "%s", dirs[i]);
        tiny_remove(&part);
    }
    tiny_remove(&top);
}
END_TEST

START_TEST(a_coded_pack_is_smaller_and_its_account_shows_it)
{
    struct tiny pack;
    struct engine_options o = tiny_options(1);
    struct model *models[2];
    struct plan *plans[2];
    packed_make(&pack, &source, TINY_MEMORY, &(struct packed_form){.tile_bytes = 0});
    o.pin_bytes = PLAN_ALL;
    ck_assert_int_eq(engine_plan(source.dir, &o, &models[0], &plans[0]), 0);
    ck_assert_int_eq(engine_plan(pack.dir, &o, &models[1], &plans[1]), 0);
    uint32_t coded = 0;
    for (uint32_t i = 0; i < plans[1]->tile_count; i++) {
        coded += plans[1]->tiles[i].coded;
    }
    ck_assert_uint_gt(coded, plans[1]->tile_count / 5);
    ck_assert_uint_lt(plans[1]->account.pins, plans[0]->account.pins);
    ck_assert_uint_lt(models[1]->pack->stored_bytes, models[1]->pack->raw_bytes);
    for (int i = 0; i < 2; i++) {
        plan_free(plans[i]);
        model_close(models[i]);
    }
    tiny_remove(&pack);
}
END_TEST

START_TEST(a_run_cannot_cut_a_pack_anew)
{
    struct tiny pack;
    packed_make(&pack, &source, TINY_MEMORY, &(struct packed_form){.tile_bytes = 16384});
    k3ring("run %s " RUN " --tile 32K", pack.dir);
    expect_refusal(2, "--tile 16384");
    static const char *const fine[] = {"", "--tile 16K", "--tile auto --io pread"};
    for (size_t i = 0; i < countof(fine); i++) {
        k3ring("run %s " RUN " %s", pack.dir, fine[i]);
        expect(0, "");
        ck_assert_str_eq(process.out, IDS_4);
    }
    tiny_remove(&pack);
}
END_TEST

/* ---- the source ---- */

START_TEST(a_whole_pack_needs_no_source_and_one_of_the_trunk_does)
{
    struct tiny copy;
    struct tiny whole;
    struct tiny trunk;
    tiny_copy(&copy, &source, TINY_MEMORY);
    packed_make(&whole, &copy, TINY_MEMORY, &(struct packed_form){.tile_bytes = 0});
    packed_make(&trunk, &copy, TINY_MEMORY, &(struct packed_form){.trunk_only = true});
    tiny_remove(&copy);
    expect_golden(&whole);
    k3ring("plan %s", whole.dir);
    expect(0, "");
    k3ring("run %s " RUN, trunk.dir);
    expect_refusal(3, "which is gone");
    k3ring("pack --verify %s", whole.dir);
    expect_refusal(1, "cannot be compared");
    tiny_remove(&whole);
    tiny_remove(&trunk);
}
END_TEST

static void change_source(const struct tiny *copy, int how)
{
    char path[TINY_PATH_BYTES];
    if (how == 0) {
        size_t size_bytes;
        unsigned char *text = tiny_read(copy, "config.json", &size_bytes);
        text[size_bytes] = '\n';
        tiny_put(copy, "config.json", text, size_bytes + 1);
        free(text);
    } else if (how == 1) {
        tiny_truncate(copy, tiny_shard(1), 4096);
    } else if (how == 2) {
        tiny_edit_header(copy, 0, "\"BF16\"", "\"BF16\" ");
    } else {
        tiny_path(copy, tiny_shard(2), path);
        tiny_need(unlink(path) == 0, path);
    }
}

START_TEST(a_pack_whose_source_changed_is_refused)
{
    static const bool trunk_only[] = {false, true};
    for (size_t i = 0; i < countof(trunk_only); i++) {
        struct tiny copy;
        struct tiny pack;
        tiny_copy(&copy, &source, TINY_MEMORY);
        packed_make(&pack, &copy, TINY_MEMORY,
                    &(struct packed_form){.trunk_only = trunk_only[i]});
        change_source(&copy, _i);
        k3ring("run %s " RUN, pack.dir);
        if (_i == 3 && !trunk_only[i]) { /* a shard that is gone is not needed */
            ck_assert_str_eq(process.out, IDS_4);
        } else {
            expect_refusal(3, pack.dir);
            ck_assert_msg(strstr(process.err, _i == 3 ? "gone" : "changed since") != NULL, "%s",
                          process.err);
        }
        k3ring("pack --verify %s", pack.dir);
        expect_refusal(1, "");
        tiny_remove(&pack);
        tiny_remove(&copy);
    }
}
END_TEST

/* ---- proofs that fail ---- */

START_TEST(any_changed_byte_fails_the_proof)
{
    struct tiny copy;
    struct tiny pack;
    struct packed_line coded;
    tiny_copy(&copy, &source, TINY_MEMORY);
    packed_make(&pack, &copy, TINY_MEMORY, &(struct packed_form){.tile_bytes = 0});
    packed_find(&pack, "lm_head", 0, &coded);
    const uint64_t places[] = {coded.offset_bytes, coded.offset_bytes + coded.size_bytes - 1,
                               PAGE_BYTES};
    for (size_t i = 0; i < countof(places); i++) {
        flip(&pack, PACK_TRUNK, places[i]);
        k3ring("pack --verify %s", pack.dir);
        expect_refusal(1, "checksum");
        flip(&pack, PACK_TRUNK, places[i]);
    }
    flip(&pack, PACK_EXPERTS, size_of(&pack, PACK_EXPERTS) / 2);
    k3ring("pack --verify %s --threads 3", pack.dir);
    expect_refusal(1, "expert");
    flip(&pack, PACK_EXPERTS, size_of(&pack, PACK_EXPERTS) / 2);
    tiny_poke(&copy, "language_model.lm_head.weight", 77, "?", 1);
    k3ring("pack --verify %s", pack.dir);
    expect_refusal(1, "lm_head.weight differs from the source");
    tiny_remove(&pack);
    tiny_remove(&copy);
}
END_TEST

START_TEST(only_a_pack_can_be_proved)
{
    k3ring("pack --verify %s", source.dir);
    expect_refusal(3, "not a pack");
    k3ring("pack --verify %s/nothing", source.dir);
    expect_refusal(3, "nothing");
}
END_TEST

/* ---- folders and words ---- */

START_TEST(nothing_foreign_is_written_over)
{
    struct tiny pack;
    struct tiny other;
    packed_make(&pack, &source, TINY_MEMORY, &(struct packed_form){.tile_bytes = 0});
    k3ring("pack %s %s", source.dir, pack.dir);
    expect_refusal(2, "is a finished pack");
    tiny_folder(&other, TINY_MEMORY);
    tiny_put(&other, "letter.txt", "dear", 4);
    k3ring("pack %s %s", source.dir, other.dir);
    expect_refusal(2, "not empty (letter.txt)");
    k3ring("pack %s %s/new --to %s", source.dir, folder.dir, other.dir);
    expect_refusal(2, "not empty (letter.txt)");
    k3ring("pack %s %s/new --to %s/new", source.dir, folder.dir, folder.dir);
    expect_refusal(2, "given twice");
    k3ring("pack %s %s", source.dir, source.dir);
    expect_refusal(2, "not empty");
    ck_assert_ptr_null(strstr(process.err, "remove")); /* what is there may be a model */
    k3ring("pack %s %s/new", pack.dir, folder.dir);
    expect_refusal(2, "is a pack already");
    char path[TINY_PATH_BYTES];
    tiny_path(&folder, "new", path);
    ck_assert_msg(access(path, F_OK) != 0, "%s was left", path);
    tiny_remove(&other);
    tiny_remove(&pack);
}
END_TEST

/* The manifest could not be read again. */
START_TEST(names_with_control_characters_are_refused)
{
    struct tiny model;
    struct tiny odd;
    char path[TINY_PATH_BYTES];
    char odd_path[TINY_PATH_BYTES];
    tiny_copy(&model, &source, TINY_MEMORY);
    snprintf(odd.dir, sizeof odd.dir, "%.200s\ta", model.dir);
    ck_assert_int_eq(rename(model.dir, odd.dir), 0);
    k3ring("pack %s %s-out", odd.dir, model.dir);
    expect_refusal(2, "control characters");
    k3ring("pack %s %s\tout", source.dir, model.dir);
    expect_refusal(2, "control characters");
    ck_assert_int_eq(rename(odd.dir, model.dir), 0);
    tiny_path(&model, "model.safetensors.index.json", path);
    ck_assert_int_eq(unlink(path), 0); /* shards are then what the folder has */
    tiny_path(&model, tiny_shard(1), path);
    tiny_path(&model, "model-\x7F.safetensors", odd_path);
    ck_assert_int_eq(rename(path, odd_path), 0);
    k3ring("pack %s %s-out", model.dir, model.dir);
    expect_refusal(2, "control characters");
    snprintf(path, sizeof path, "%s-out", model.dir);
    ck_assert_int_ne(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s\tout", model.dir);
    ck_assert_int_ne(access(path, F_OK), 0);
    tiny_remove(&model);
}
END_TEST

START_TEST(wrong_words_are_usage_errors)
{
    k3ring("pack %s", source.dir);
    expect_refusal(2, "MODEL and OUT");
    k3ring("pack %s a b", source.dir);
    expect_refusal(2, "usage");
    k3ring("pack --verify a b");
    expect_refusal(2, "--verify takes the pack alone");
    k3ring("pack --verify a --trunk-only");
    expect_refusal(2, "--verify goes with");
    k3ring("pack %s %s/new --share 1,2", source.dir, folder.dir);
    expect_refusal(2, "--share");
    k3ring("pack %s %s/new --to %s/other --share 0,2", source.dir, folder.dir, folder.dir);
    expect_refusal(2, "--share");
    k3ring("pack %s %s/new --to %s/other --share -1,2", source.dir, folder.dir, folder.dir);
    expect_refusal(2, "--share: '-1,2' is not one number from 1 to");
}
END_TEST

START_TEST(a_pipe_sees_no_progress)
{
    struct tiny top;
    struct tiny pack;
    tiny_folder(&top, TINY_MEMORY);
    snprintf(pack.dir, sizeof pack.dir, "%.200s/p", top.dir);
    k3ring("pack %s %s", source.dir, pack.dir);
    expect(0, "GB of bf16 as");
    ck_assert_ptr_null(strchr(process.err, '\r'));
    ck_assert_str_eq(process.out, "");
    tiny_remove(&pack);
    k3ring("pack %s %s --quiet", source.dir, pack.dir);
    ck_assert_str_eq(process.err, "");
    tiny_remove(&pack);
    tiny_remove(&top);
}
END_TEST

START_TEST(another_config_in_the_pack_is_refused)
{
    struct tiny top, out;
    size_t size;
    tiny_folder(&top, TINY_MEMORY);
    snprintf(out.dir, sizeof out.dir, "%.200s/p", top.dir);
    k3ring("pack %s %s --quiet", source.dir, out.dir);
    expect(0, "");
    char *config = (char *)tiny_read(&out, "config.json", &size);
    char *eps = strstr(config, "1e-05");
    ck_assert_ptr_nonnull(eps);
    eps[0] = '2';
    tiny_put(&out, "config.json", config, size);
    k3ring("run %s --ids 3 --gen 1", out.dir);
    expect_refusal(3, "config.json: is not the one");
    free(config);
    tiny_remove(&out);
    tiny_remove(&top);
}
END_TEST

static Suite *pack_suite(void)
{
    Suite *suite = suite_create("pack");
    TCase *tcase = tcase_create("pack");
    tcase_set_timeout(tcase, WATCHDOG_SECONDS);
    tcase_add_loop_test(tcase, a_pack_makes_the_tokens_of_its_source_in_every_form, 0, 4);
    tcase_add_test(tcase, a_pack_on_two_drives_makes_the_same_tokens_and_is_read_from_both);
    tcase_add_test(tcase, shares_divide_the_bytes);
    tcase_add_test(tcase, a_coded_pack_is_smaller_and_its_account_shows_it);
    tcase_add_test(tcase, a_run_cannot_cut_a_pack_anew);
    tcase_add_test(tcase, a_whole_pack_needs_no_source_and_one_of_the_trunk_does);
    tcase_add_loop_test(tcase, a_pack_whose_source_changed_is_refused, 0, 4);
    tcase_add_test(tcase, any_changed_byte_fails_the_proof);
    tcase_add_test(tcase, only_a_pack_can_be_proved);
    tcase_add_test(tcase, nothing_foreign_is_written_over);
    tcase_add_test(tcase, names_with_control_characters_are_refused);
    tcase_add_test(tcase, wrong_words_are_usage_errors);
    tcase_add_test(tcase, a_pipe_sees_no_progress);
    tcase_add_test(tcase, another_config_in_the_pack_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    tiny_make(&source, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    int failed = suite_run(pack_suite());
    tiny_remove(&source);
    tiny_remove(&folder);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
