/* SPDX-License-Identifier: Apache-2.0 */

/* Silent corruption: with --paranoid the same bits, and any flipped bit is found and named, in
 * every class of what is read; without a token made from it. */

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/nondet.h"
#include "core/model/page_sums.h"
#include "tests/support/amount.h"
#include "tests/support/command.h"
#include "tests/support/packed.h"
#include "tests/support/suite.h"

#define WATCHDOG_SECONDS 600
#define RUN "--ids 3,141,59,26,53,58,97,93 --gen 4 --quiet"
#define IDS_4 "170 126 66 6\n"
#define FLIPS AMOUNT(150, 60, 8)
#define STRIDE AMOUNT(1024, 2048, 16384)
#define SEEDS AMOUNT(60, 20, 4)

static struct tiny source; /* never changed by a test */
static struct tiny copy;
static char sums[TINY_PATH_BYTES]; /* of source, and so of a copy of it */
static struct tiny_run run;

static void fresh(void)
{
    tiny_copy(&copy, &source, TINY_MEMORY);
}

static void drop(void)
{
    tiny_remove(&copy);
}

static void flip(const struct tiny *model, const char *name, uint64_t offset_bytes, uint32_t bit)
{
    char path[TINY_PATH_BYTES];
    unsigned char byte = 0;
    tiny_path(model, name, path);
    FILE *file = fopen(path, "r+b");
    tiny_need(file != NULL && fseek(file, (long)offset_bytes, SEEK_SET) == 0 &&
              fread(&byte, 1, 1, file) == 1, path);
    byte = (unsigned char)(byte ^ 1U << bit);
    tiny_need(fseek(file, (long)offset_bytes, SEEK_SET) == 0 &&
              fwrite(&byte, 1, 1, file) == 1 && fclose(file) == 0, path);
}

static uint64_t size_of(const char *path)
{
    struct stat status;
    tiny_need(stat(path, &status) == 0, path);
    return (uint64_t)status.st_size;
}

static struct engine_options checked(const char *by)
{
    struct engine_options o = tiny_options(GOLDEN_STEPS);
    o.paranoid = by;
    return o;
}

/* ---- the same bits ---- */

START_TEST(checked_reads_change_no_bit)
{
    static const struct {
        uint64_t ram, pin, slots, tile, io_size;
        uint32_t depth, threads;
        enum io_engine io;
    } grid[] = {
        {64 * MIB, PLAN_AUTO, PLAN_AUTO, PLAN_AUTO, 4 * MIB, 8, 2, IO_URING},
        {64 * MIB, 0, 0, 4096, 4096, 1, 1, IO_URING},
        {64 * MIB, 0, 20, 16384, 8192, 3, 4, IO_PREAD},
        {64 * MIB, PLAN_ALL, PLAN_ALL, PLAN_AUTO, 4 * MIB, 8, 2, IO_SIM},
        {64 * MIB, 500000, 7, 65536, 16384, 32, 3, IO_URING},
    };
    struct engine_options o = checked(sums);
    o.ram_bytes = grid[_i].ram;
    o.pin_bytes = grid[_i].pin;
    o.expert_slots = grid[_i].slots;
    o.tile_bytes = grid[_i].tile;
    o.io_size_bytes = grid[_i].io_size;
    o.io_depth = grid[_i].depth;
    o.threads = grid[_i].threads;
    o.io = grid[_i].io;
    o.sim.seed = 7;
    tiny_generate(&source, &o, GOLDEN_STEPS, NULL, &run);
    ck_assert_msg(run.rc == 0, "%s", run.message);
    ck_assert_str_eq(run.hash, TINY_HASH);
    ck_assert_uint_gt(run.stats.sums_bytes, 0);
    uint64_t bytes = 0;
    for (int i = 0; i < READ_CLASSES; i++) {
        bytes += run.stats.class[i].bytes;
    }
    ck_assert_uint_ge(run.stats.checked_bytes, bytes - run.stats.discarded_bytes);
}
END_TEST

/* At the floor: one tile in the ring, one working slot. */
START_TEST(checked_reads_fit_into_the_floor)
{
    struct engine_options o = checked(sums);
    struct model *model;
    struct plan *plan;
    o.ram_bytes = GIB;
    o.expert_slots = 0;
    ck_assert_int_eq(engine_plan(source.dir, &o, &model, &plan), 0);
    uint64_t floor = plan->floor_bytes;
    ck_assert_uint_gt(plan->account.sums, 0);
    plan_free(plan);
    model_close(model);
    o.ram_bytes = floor;
    tiny_generate(&source, &o, GOLDEN_STEPS, NULL, &run);
    ck_assert_msg(run.rc == 0, "%s", run.message);
    ck_assert_str_eq(run.hash, TINY_HASH);
    o.ram_bytes = floor - 4096;
    tiny_generate(&source, &o, GOLDEN_STEPS, NULL, &run);
    ck_assert_int_eq(run.rc, ERR_FIT);
}
END_TEST

START_TEST(no_order_of_events_stands_still)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct engine_options o = checked(sums);
        o.io = IO_SIM;
        o.stepped = true;
        o.sim.seed = seed;
        o.io_depth = (uint32_t)(1 + seed % 4);
        o.io_size_bytes = 4096U << seed % 3;
        o.tile_bytes = 4096U << seed % 4;
        o.pin_bytes = seed % 3 == 0 ? 300000 : 0;
        o.expert_slots = seed % 5;
        tiny_generate(&source, &o, 3, NULL, &run);
        ck_assert_msg(run.rc == 0, "seed %llu: %s", (unsigned long long)seed, run.message);
        ck_assert(tiny_golden_so_far(&run));
    }
}
END_TEST

START_TEST(a_pack_checks_itself_and_makes_the_same_bits)
{
    struct tiny pack;
    packed_make(&pack, &source, TINY_MEMORY, &(struct packed_form){.tile_bytes = 16384});
    struct engine_options o = checked(ENGINE_PARANOID_PACK);
    for (int i = 0; i < 3; i++) {
        o.io = (enum io_engine)i;
        o.pin_bytes = i == 0 ? PLAN_AUTO : 0;
        o.expert_slots = i == 0 ? PLAN_AUTO : 5;
        tiny_generate(&pack, &o, GOLDEN_STEPS, NULL, &run);
        ck_assert_msg(run.rc == 0, "%s", run.message);
        ck_assert_str_eq(run.hash, TINY_HASH);
        ck_assert_uint_gt(run.stats.sums_bytes, 0); /* tiles of the rows, once more */
        ck_assert_uint_gt(run.stats.checked_bytes, MIB);
    }
    k3ring("verify %s --write-checksums %s/pack.sums", pack.dir, folder.dir);
    expect(0, NULL);
    k3ring("run %s " RUN " --paranoid %s/pack.sums", pack.dir, folder.dir);
    expect(0, NULL);
    ck_assert_str_eq(process.out, IDS_4);
    tiny_remove(&pack);
}
END_TEST

/* ---- every class of what is read ---- */

static const char *const classes[] = {
    "language_model.model.embed_tokens.weight", /* row 3, of the prompt */
    "language_model.lm_head.weight",
    "language_model.model.norm.weight",
    "language_model.model.layers.1.self_attn.A_log",
    "language_model.model.layers.5.input_layernorm.weight",
    "language_model.model.layers.5.self_attn.q_conv1d.weight",
    "language_model.model.layers.4.self_attn.o_proj.weight",
    "language_model.model.layers.3.self_attn.kv_b_proj.weight",
    "language_model.model.layers.0.mlp.down_proj.weight",
    "language_model.model.layers.6.block_sparse_moe.gate.weight",
    "language_model.model.layers.6.block_sparse_moe.gate.e_score_correction_bias",
    "language_model.model.layers.1.block_sparse_moe.experts.6.w2.weight_packed",
    "language_model.model.layers.1.block_sparse_moe.experts.6.w1.weight_scale",
};

START_TEST(a_flipped_bit_is_named_in_every_class_of_tensor)
{
    uint32_t shard;
    char wanted[TINY_PATH_BYTES];
    uint64_t at = tiny_find(&source, classes[_i], &shard);
    at += _i == 0 ? 3 * 256 + 100 : 21;
    fresh();
    flip(&copy, tiny_shard(shard), at, (uint32_t)_i % 8);
    k3ring("run %s " RUN " --paranoid %s", copy.dir, sums);
    expect_refusal(1, "is not what");
    snprintf(wanted, sizeof wanted, "%s: the page at byte %llu (", tiny_shard(shard),
             (unsigned long long)(at / PAGE_BYTES * PAGE_BYTES));
    expect(1, wanted);
    expect(1, "fetch this file again");
    k3ring("verify %s --pages %s", copy.dir, sums);
    ck_assert_int_eq(process.status, 1);
    ck_assert_ptr_nonnull(strstr(process.out, "1 pages are not what"));
    drop();
}
END_TEST

START_TEST(a_flipped_bit_anywhere_is_found)
{
    struct rng rng = rng_seed(20);
    uint32_t ran = 0;
    for (int i = 0; i < FLIPS; i++) {
        uint32_t shard = (uint32_t)rng_below(&rng, TINY_SHARDS);
        char path[TINY_PATH_BYTES];
        char name[64];
        fresh();
        tiny_path(&copy, tiny_shard(shard), path);
        snprintf(name, sizeof name, "%s", tiny_shard(shard));
        /* Half of them anywhere, half in headers and their neighbourhood. */
        uint64_t size_bytes = size_of(path);
        uint64_t at = rng_below(&rng, i % 4 == 0 ? min_u64(size_bytes, 20000) : size_bytes);
        flip(&copy, name, at, (uint32_t)rng_below(&rng, 8));
        struct engine_options o = checked(sums);
        tiny_generate(&copy, &o, 2, NULL, &run);
        if (run.rc < 0) {
            ck_assert_msg(strstr(run.message, name) != NULL || run.rc == ERR_MODEL,
                          "byte %llu of %s: %s", (unsigned long long)at, name, run.message);
        } else { /* a page that this run had no use for: an expert not asked for, another row */
            ck_assert(tiny_golden_so_far(&run));
            ran++;
        }
        k3ring("verify %s --pages %s", copy.dir, sums);
        ck_assert_msg(process.status == 1 || process.status == 3, "byte %llu of %s: exit %d: %s",
                      (unsigned long long)at, name, process.status, process.out);
        ck_assert_msg(strstr(process.out, name) != NULL || strstr(process.err, name) != NULL ||
                      process.status == 3, "%s%s", process.out, process.err);
        drop();
    }
    printf("note: %d bits flipped; %u lay where the run read nothing\n", FLIPS, ran);
    ck_assert_uint_lt(ran, FLIPS * 3 / 4);
}
END_TEST

START_TEST(a_flipped_bit_of_a_pack_is_named)
{
    struct packed_line line;
    struct tiny pack;
    static const char *const parts[] = {"lm_head", "shared_experts.up_proj", "embed_tokens",
                                        "kv_b_proj"};
    packed_make(&pack, &source, TINY_MEMORY, &(struct packed_form){.tile_bytes = 16384});
    for (size_t i = 0; i < countof(parts); i++) {
        packed_find(&pack, parts[i], 0, &line);
        flip(&pack, PACK_TRUNK, line.offset_bytes + 800, 3); /* also in row 3 of embed_tokens */
        k3ring("run %s " RUN " --paranoid pack", pack.dir);
        expect_refusal(1, parts[i]);
        expect(1, "pack --verify");
        flip(&pack, PACK_TRUNK, line.offset_bytes + 800, 3);
    }
    for (uint64_t at = PAGE_BYTES; at < 64 * PAGE_BYTES; at += STRIDE) { /* experts of layer 1 */
        flip(&pack, PACK_EXPERTS, at + 7, 0);
    }
    k3ring("run %s " RUN " --paranoid pack", pack.dir);
    expect_refusal(1, "experts.");
    tiny_remove(&pack);
}
END_TEST

START_TEST(small_tensors_of_a_pack_are_checked)
{
    struct tiny pack;
    packed_make(&pack, &source, TINY_MEMORY, &(struct packed_form){.tile_bytes = 16384});
    size_t size_bytes;
    char *text = (char *)tiny_read(&pack, PACK_MANIFEST, &size_bytes);
    char *at = memmem(text, size_bytes, "layers.2.input_layernorm.weight", 31);
    ck_assert_ptr_nonnull(at);
    unsigned rows, cols, file;
    unsigned long long offset;
    ck_assert_int_eq(sscanf(at + 31, "\",\"BF16\",%u,%u,%u,%llu", &rows, &cols, &file, &offset), 4);
    free(text);
    flip(&pack, PACK_TRUNK, offset + 5, 1);
    k3ring("run %s " RUN " --paranoid pack", pack.dir);
    expect_refusal(1, "layers.2.input_layernorm.weight");
    tiny_remove(&pack);
}
END_TEST

/* ---- sums that are none, or of another ---- */

START_TEST(sums_of_another_model_are_refused)
{
    size_t size_bytes;
    fresh();
    char *text = (char *)tiny_read(&copy, "config.json", &size_bytes);
    char *longer = realloc(text, size_bytes + 1);
    ck_assert_ptr_nonnull(longer);
    longer[size_bytes] = '\n';
    tiny_put(&copy, "config.json", longer, size_bytes + 1);
    free(longer);
    k3ring("run %s " RUN " --paranoid %s", copy.dir, sums);
    expect_refusal(3, "config.json is another");
    drop();
    fresh();
    tiny_edit_header(&copy, 1, "\"BF16\"", "\"BF16\" ");
    k3ring("run %s " RUN " --paranoid %s", copy.dir, sums);
    expect_refusal(3, "has another");
    drop();
}
END_TEST

START_TEST(damaged_sums_are_refused_or_found_out)
{
    size_t size_bytes;
    struct tiny here;
    tiny_folder(&here, TINY_MEMORY);
    unsigned char *bytes = NULL;
    FILE *file = fopen(sums, "rb");
    tiny_need(file != NULL, sums);
    size_bytes = size_of(sums);
    bytes = malloc(size_bytes);
    tiny_need(bytes != NULL && fread(bytes, size_bytes, 1, file) == 1, sums);
    fclose(file);
    for (size_t at = 0; at < sizeof(struct page_sums_head) +
                             TINY_SHARDS * sizeof(struct page_sums_entry); at += 5) {
        bytes[at] ^= 4;
        tiny_put(&here, "bad", bytes, size_bytes);
        bytes[at] ^= 4;
        struct model *model;
        struct page_sums *opened;
        char path[TINY_PATH_BYTES];
        tiny_path(&here, "bad", path);
        err_clear();
        ck_assert_int_eq(model_open(source.dir, NULL, &model), 0);
        ck_assert_int_eq(page_sums_open(path, model, &opened), ERR_MODEL);
        ck_assert_ptr_nonnull(strstr(err_message(), "bad"));
        model_close(model);
    }
    tiny_put(&here, "bad", bytes, size_bytes - 4096);
    k3ring("run %s " RUN " --paranoid %s/bad", source.dir, here.dir);
    expect_refusal(3, "cut or damaged");
    tiny_put(&here, "bad", "{}", 2);
    k3ring("run %s " RUN " --paranoid %s/bad", source.dir, here.dir);
    expect_refusal(3, "no list of page sums");
    k3ring("run %s " RUN " --paranoid %s/absent", source.dir, here.dir);
    expect_refusal(3, "write them again");
    bytes[size_bytes - 4096] ^= 1; /* the first sum of the last file's last page of sums */
    tiny_put(&here, "bad", bytes, size_bytes);
    k3ring("verify %s --pages %s/bad", source.dir, here.dir);
    ck_assert_int_eq(process.status, 1);
    ck_assert_ptr_nonnull(strstr(process.out, "the sums themselves are damaged"));
    free(bytes);
    tiny_remove(&here);
}
END_TEST

START_TEST(sums_go_where_they_are_told_to_and_nowhere_else)
{
    k3ring("verify %s --write-checksums -", source.dir);
    expect_refusal(2, "give a file");
    k3ring("verify %s --write-checksums %s/%s", source.dir, source.dir, tiny_shard(0));
    expect_refusal(2, "is not replaced");
    k3ring("verify %s --write-checksums", source.dir);
    expect(2, "--write-checksums");
    k3ring("verify %s --write-checksums /nowhere/sums", source.dir);
    expect_refusal(1, "/nowhere/sums");
    fresh();
    tiny_put(&folder, "list", "00  x\n", 6); /* bad: nothing is read for sums then */
    k3ring("verify %s --checksums %s/list --write-checksums %s/none", copy.dir, folder.dir,
           folder.dir);
    ck_assert_int_eq(process.status, 1);
    ck_assert_ptr_null(strstr(process.out, "GB/s"));
    char path[TINY_PATH_BYTES];
    tiny_path(&folder, "none", path);
    ck_assert_int_ne(access(path, F_OK), 0);
    DIR *stream = opendir(source.dir);
    for (struct dirent *e; (e = readdir(stream)) != NULL;) {
        ck_assert_ptr_null(strstr(e->d_name, "sums"));
    }
    closedir(stream);
    drop();
}
END_TEST

START_TEST(a_checkpoint_is_no_pack_and_a_bench_takes_no_checks)
{
    struct tiny pack;
    k3ring("run %s " RUN " --paranoid pack", source.dir);
    expect_refusal(2, "--write-checksums");
    k3ring("bench %s --paranoid %s", source.dir, sums);
    expect_refusal(2, "--paranoid");
    packed_make(&pack, &source, TINY_MEMORY, &(struct packed_form){.trunk_only = true});
    k3ring("run %s " RUN " --paranoid pack", pack.dir);
    expect_refusal(2, "experts");
    tiny_remove(&pack);
    k3ring("plan %s --paranoid %s", source.dir, sums);
    expect(0, NULL);
    ck_assert_ptr_nonnull(strstr(process.out, "\n  sums "));
}
END_TEST

static Suite *paranoid_suite(void)
{
    Suite *suite = suite_create("paranoid");
    TCase *tcase = tcase_create("paranoid");
    tcase_set_timeout(tcase, WATCHDOG_SECONDS);
    tcase_add_loop_test(tcase, checked_reads_change_no_bit, 0, 5);
    tcase_add_test(tcase, checked_reads_fit_into_the_floor);
    tcase_add_test(tcase, no_order_of_events_stands_still);
    tcase_add_test(tcase, a_pack_checks_itself_and_makes_the_same_bits);
    tcase_add_loop_test(tcase, a_flipped_bit_is_named_in_every_class_of_tensor, 0,
                        (int)countof(classes));
    tcase_add_test(tcase, a_flipped_bit_anywhere_is_found);
    tcase_add_test(tcase, a_flipped_bit_of_a_pack_is_named);
    tcase_add_test(tcase, small_tensors_of_a_pack_are_checked);
    tcase_add_test(tcase, sums_of_another_model_are_refused);
    tcase_add_test(tcase, damaged_sums_are_refused_or_found_out);
    tcase_add_test(tcase, sums_go_where_they_are_told_to_and_nowhere_else);
    tcase_add_test(tcase, a_checkpoint_is_no_pack_and_a_bench_takes_no_checks);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    if (process_binary() == NULL) {
        fprintf(stderr, "paranoid_test: build/k3ring is not there\n");
        return EXIT_FAILURE;
    }
    tiny_make(&source, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    tiny_path(&folder, "tiny.sums", sums);
    k3ring("verify %s --write-checksums %s", source.dir, sums);
    int failed = process.status != 0;
    if (failed) {
        fprintf(stderr, "paranoid_test: no sums: %s\n", process.err);
    } else {
        failed = suite_run(paranoid_suite());
    }
    tiny_remove(&source);
    tiny_remove(&folder);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
