/* SPDX-License-Identifier: Apache-2.0 */

/* k3ring verify as a user meets it: whole models, damaged ones, lists of sha256sum good and bad,
 * known figures. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/checkpoint.h"
#include "tests/support/command.h"
#include "tests/support/packed.h"
#include "tests/support/suite.h"

#define WATCHDOG_SECONDS 300
#define HASH_DIGITS 64

static struct tiny source; /* never changed by a test */
static struct tiny copy;   /* a fresh one for each test that asks */

static void fresh(void)
{
    tiny_copy(&copy, &source, TINY_MEMORY);
}

static void drop(void)
{
    tiny_remove(&copy);
}

/* part is on the page. */
static void expect_page(int status, const char *part)
{
    ck_assert_msg(process.status == status, "exit %d, expected %d: %s%s", process.status, status,
                  process.err, process.out);
    ck_assert_msg(strstr(process.out, part) != NULL, "no \"%s\" in: %s", part, process.out);
}

/* A line of the page that begins with mark and what and holds part. */
static void expect_line(const char *mark, const char *what, const char *part)
{
    char begin[64];
    snprintf(begin, sizeof begin, "%-5s %-8s ", mark, what);
    for (const char *at = process.out; at != NULL; at = strchr(at, '\n')) {
        at += *at == '\n';
        size_t length = strcspn(at, "\n");
        if (strncmp(at, begin, strlen(begin)) == 0 &&
            memmem(at, length, part, strlen(part)) != NULL) {
            return;
        }
    }
    ck_abort_msg("no line \"%s..%s\" in: %s", begin, part, process.out);
}

static void write_list(const char *text)
{
    tiny_put(&folder, "sums", text, strlen(text));
}

/* The hash another program finds. */
static void sha256_of(const char *dir, const char *name, char hash[HASH_DIGITS + 1])
{
    process_start(&process, folder.dir, "/usr/bin/sha256sum", "%s/%s", dir, name);
    process_wait(&process);
    tiny_need(process.status == 0, "sha256sum");
    const char *at = process.out[0] == '\\' ? process.out + 1 : process.out;
    snprintf(hash, HASH_DIGITS + 1, "%.64s", at);
}

/* All shards, as sha256sum lists them, with a line in place of `name`'s or behind them all. */
static void list_shards(char *text, size_t text_bytes, const char *separator)
{
    size_t at = 0;
    for (uint32_t i = 0; i < TINY_SHARDS; i++) {
        char hash[HASH_DIGITS + 1];
        sha256_of(source.dir, tiny_shard(i), hash);
        at += (size_t)snprintf(text + at, text_bytes - at, "%s%s%s\n", hash, separator,
                               tiny_shard(i));
    }
}

/* A tensor of no model behind a shard's data, with a gap before it. */
static void append_tensor(uint32_t shard, const char *name, uint32_t gap_bytes,
                          uint32_t size_bytes)
{
    static const unsigned char zeros[4096];
    char entry[256];
    size_t file_bytes;
    unsigned char *bytes = tiny_read(&copy, tiny_shard(shard), &file_bytes);
    uint64_t header_bytes;
    memcpy(&header_bytes, bytes, sizeof header_bytes);
    uint64_t data_bytes = file_bytes - header_bytes - sizeof header_bytes;
    snprintf(entry, sizeof entry, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[%u],\"data_offsets\":"
             "[%llu,%llu]},", name, size_bytes, (unsigned long long)(data_bytes + gap_bytes),
             (unsigned long long)(data_bytes + gap_bytes + size_bytes));
    free(bytes);
    tiny_edit_header(&copy, shard, "{", entry);
    bytes = tiny_read(&copy, tiny_shard(shard), &file_bytes);
    unsigned char *longer = realloc(bytes, file_bytes + gap_bytes + size_bytes);
    tiny_need(longer != NULL, "realloc");
    memcpy(longer + file_bytes, zeros, gap_bytes + size_bytes);
    tiny_put(&copy, tiny_shard(shard), longer, file_bytes + gap_bytes + size_bytes);
    free(longer);
}

static void edit_index(const char *before, const char *after)
{
    size_t size_bytes;
    char *text = (char *)tiny_read(&copy, "model.safetensors.index.json", &size_bytes);
    char *at = memmem(text, size_bytes, before, strlen(before));
    tiny_need(at != NULL, before);
    size_t tail = size_bytes - (size_t)(at - text) - strlen(before);
    char *edited = malloc(size_bytes + strlen(after));
    tiny_need(edited != NULL, "malloc");
    size_t head = (size_t)(at - text);
    memcpy(edited, text, head);
    memcpy(edited + head, after, strlen(after));
    memcpy(edited + head + strlen(after), at + strlen(before), tail);
    tiny_put(&copy, "model.safetensors.index.json", edited, head + strlen(after) + tail);
    free(edited);
    free(text);
}

/* ---- structure ---- */

START_TEST(a_whole_model_passes_and_its_page_says_what_was_looked_at)
{
    k3ring("verify %s", source.dir);
    expect_page(0, " 0 bad\n");
    expect_line("ok", "config", "13 layers of width 128");
    expect_line("ok", "sizes", "3 shards");
    expect_line("ok", "tensors", "1492 of the model");
    expect_line("ok", "index", "total_size is right");
    ck_assert_str_eq(process.err, "");
}
END_TEST

START_TEST(a_pack_passes)
{
    struct tiny pack;
    packed_make(&pack, &source, TINY_MEMORY, &(struct packed_form){.tile_bytes = 0});
    k3ring("verify %s", pack.dir);
    expect_page(0, "pack --verify");
    expect_line("ok", "pack", source.dir);
    tiny_remove(&pack);
}
END_TEST

START_TEST(what_a_model_is_refused_for_is_on_the_page)
{
    fresh();
    tiny_truncate(&copy, tiny_shard(1), -1);
    k3ring("verify %s", copy.dir);
    expect_page(3, "fetch it again");
    expect_line("BAD", "model", tiny_shard(1));
    drop();
    k3ring("verify /nowhere/at/all");
    expect_page(3, "BAD");
    k3ring("verify");
    expect(2, "usage");
}
END_TEST

START_TEST(an_index_of_another_download_fails)
{
    fresh();
    edit_index("\"total_size\":", "\"total_size\":1");
    k3ring("verify %s", copy.dir);
    expect_page(1, "1 bad");
    expect_line("BAD", "index", "total_size");
    drop();
}
END_TEST

START_TEST(bytes_of_no_tensor_are_told)
{
    fresh();
    append_tensor(1, "vision.extra", 60, 40);
    k3ring("verify %s", copy.dir);
    expect_line("note", "gaps", "60 bytes in 1 places");
    expect_line("BAD", "index", "1 tensors of the shards are not named");
    expect_line("BAD", "index", "total_size");
    ck_assert_int_eq(process.status, 1);
    drop();
}
END_TEST

static void rename_shard(uint32_t shard, const char *to)
{
    char before[TINY_PATH_BYTES];
    char after[TINY_PATH_BYTES];
    tiny_path(&copy, tiny_shard(shard), before);
    tiny_path(&copy, to, after);
    tiny_need(rename(before, after) == 0, after);
}

START_TEST(names_that_say_there_are_more_shards_fail)
{
    char path[TINY_PATH_BYTES];
    fresh();
    for (uint32_t i = 0; i < TINY_SHARDS; i++) {
        char name[64];
        snprintf(name, sizeof name, "model-%05u-of-00004.safetensors", i + 1);
        rename_shard(i, name);
    }
    tiny_path(&copy, "model.safetensors.index.json", path);
    tiny_need(unlink(path) == 0, path);
    k3ring("verify %s", copy.dir);
    expect_page(0, "note  index");
    expect_line("note", "sizes", "say there are 4"); /* synth may leave layers out */
    tiny_path(&copy, MODEL_SYNTH_MARKER, path);
    tiny_need(unlink(path) == 0, path);
    k3ring("verify %s", copy.dir);
    expect_page(1, "1 bad");
    expect_line("BAD", "sizes", "the model has 3: fetch the others");
    drop();
}
END_TEST

START_TEST(a_tensor_of_no_model_in_two_files_fails)
{
    fresh();
    append_tensor(0, "vision.extra", 0, 40);
    append_tensor(2, "vision.extra", 0, 40);
    k3ring("verify %s", copy.dir);
    expect_page(1, "BAD");
    expect_line("BAD", "tensors", "vision.extra");
    drop();
}
END_TEST

START_TEST(an_index_that_names_what_is_not_there_fails)
{
    fresh();
    char entry[128];
    snprintf(entry, sizeof entry, "\"weight_map\":{\"vision.gone\":\"%s\",", tiny_shard(0));
    edit_index("\"weight_map\":{", entry);
    k3ring("verify %s", copy.dir);
    expect_page(1, "BAD");
    expect_line("BAD", "index", "vision.gone");
    drop();
}
END_TEST

START_TEST(files_beside_the_model_are_noted)
{
    fresh();
    tiny_put(&copy, "model-00002-of-00003.safetensors.incomplete", "x", 1);
    tiny_put(&copy, "old.safetensors", "x", 1);
    tiny_put(&copy, "README.md", "x", 1);
    k3ring("verify %s", copy.dir);
    expect_page(0, " 0 bad");
    expect_line("note", "folder", "incomplete");
    expect_line("note", "folder", "old.safetensors");
    expect_line("note", "folder", "README.md");
    drop();
}
END_TEST

START_TEST(json_has_what_the_page_has)
{
    k3ring("verify %s --json", source.dir);
    expect_page(0, "\"passed\":");
    ck_assert_ptr_nonnull(strstr(process.out, "\"text_tensors\":"));
    k3ring("verify %s --json %s/out.json --hash", source.dir, folder.dir);
    expect(0, "0 bad");
    size_t size_bytes;
    char *text = (char *)tiny_read(&folder, "out.json", &size_bytes);
    char hash[HASH_DIGITS + 1];
    sha256_of(source.dir, tiny_shard(0), hash);
    ck_assert_ptr_nonnull(memmem(text, size_bytes, hash, HASH_DIGITS));
    free(text);
}
END_TEST

/* ---- lists ---- */

START_TEST(hash_prints_the_list_that_sha256sum_prints)
{
    static char list[1024];
    list_shards(list, sizeof list, "  ");
    k3ring("verify %s --hash", source.dir);
    expect(0, "0 bad");
    ck_assert_str_eq(process.out, list);
    k3ring("verify %s --hash --quiet --threads 1", source.dir);
    expect(0, "");
    ck_assert_str_eq(process.out, list);
    ck_assert_str_eq(process.err, "");
}
END_TEST

START_TEST(a_right_list_passes_in_every_form)
{
    static char list[2048];
    static const char *const separators[] = {"  ", " *"};
    for (size_t i = 0; i < countof(separators); i++) {
        list_shards(list, sizeof list, separators[i]);
        write_list(list);
        k3ring("verify %s --checksums %s/sums", source.dir, folder.dir);
        expect_page(0, " 0 bad");
        expect_line("ok", "sha256", "3 files");
    }
    size_t at = 0;
    for (uint32_t i = 0; i < TINY_SHARDS; i++) { /* another system's: upper case, tags, CR */
        char hash[HASH_DIGITS + 1];
        sha256_of(source.dir, tiny_shard(i), hash);
        for (char *c = hash; *c != '\0'; c++) {
            *c = (char)(*c >= 'a' ? *c - 'a' + 'A' : *c);
        }
        at += (size_t)snprintf(list + at, sizeof list - at, "# a comment\r\n\r\n"
                               "SHA256 (%s/%s) = %s\r\n", source.dir, tiny_shard(i), hash);
    }
    write_list(list);
    k3ring("verify %s --checksums %s/sums", source.dir, folder.dir);
    expect_page(0, "3 files");
}
END_TEST

START_TEST(names_with_backslashes_and_line_breaks_are_understood)
{
    static char list[2048];
    static const char odd[] = "a\\b\nc";
    char hash[HASH_DIGITS + 1];
    fresh();
    tiny_put(&copy, odd, "odd", 3);
    tiny_put(&folder, "odd", "odd", 3);
    list_shards(list, sizeof list, "  ");
    sha256_of(folder.dir, "odd", hash);
    size_t at = strlen(list);
    snprintf(list + at, sizeof list - at, "\\%s *a\\\\b\\nc\n", hash);
    write_list(list);
    k3ring("verify %s --checksums %s/sums", copy.dir, folder.dir);
    expect_page(0, "4 files");
    hash[0] = hash[0] == '0' ? '1' : '0';
    snprintf(list + at, sizeof list - at, "\\%s *a\\\\b\\nc\n", hash);
    write_list(list);
    k3ring("verify %s --checksums %s/sums", copy.dir, folder.dir);
    expect_page(1, "1 bad");
    expect_line("BAD", "sha256", "a\\b?c");
    drop();
}
END_TEST

START_TEST(names_are_found_beside_the_list_too)
{
    char hash[HASH_DIGITS + 1];
    static char list[2048];
    list_shards(list, sizeof list, "  ");
    tiny_put(&folder, "beside", "x", 1);
    sha256_of(folder.dir, "beside", hash);
    size_t at = strlen(list);
    snprintf(list + at, sizeof list - at, "%s  ./beside", hash); /* no line break at the end */
    write_list(list);
    k3ring("verify %s --checksums %s/sums", source.dir, folder.dir);
    expect_page(0, "4 files");
}
END_TEST

START_TEST(whatever_is_wrong_with_a_list_is_one_line_each)
{
    static char list[4096];
    list_shards(list, sizeof list, "  ");
    static char text[8192];
    snprintf(text, sizeof text,
             "%snot a line\n"
             "%.63s  short\n"
             "%.64s %s\n"
             "%.64s  \n"
             "\\%.64s  bad\\x\n"
             "%.64s  absent.safetensors\n"
             "SHA256 (x) = 12\n",
             list, list, list, "onespace", list, list, list);
    write_list(text);
    k3ring("verify %s --checksums %s/sums", source.dir, folder.dir);
    expect_page(1, "7 bad");
    expect_line("BAD", "list", "line 4 does not begin");
    expect_line("BAD", "list", "line 5 does not begin");
    expect_line("BAD", "list", "line 6 has neither");
    expect_line("BAD", "list", "line 7 names no file");
    expect_line("BAD", "list", "line 8 has a backslash");
    expect_line("BAD", "missing", "absent.safetensors");
    expect_line("BAD", "list", "line 10 has no SHA-256");
    expect_line("ok", "sha256", "3 files");
    expect(1, "7 checks");
}
END_TEST

START_TEST(a_shard_that_is_not_listed_and_one_listed_twice_fail)
{
    static char list[2048];
    list_shards(list, sizeof list, "  ");
    char *second = strchr(list, '\n') + 1;
    second[0] = second[0] == '0' ? '1' : '0';
    write_list(second);
    k3ring("verify %s --checksums %s/sums", source.dir, folder.dir);
    expect_page(1, "2 bad");
    expect_line("BAD", "extra", tiny_shard(0));
    expect_line("BAD", "sha256", tiny_shard(1));
    static char text[4096];
    static char good[2048];
    list_shards(good, sizeof good, "  ");
    snprintf(text, sizeof text, "%s%s", good, second);
    write_list(text);
    k3ring("verify %s --checksums %s/sums", source.dir, folder.dir);
    expect_page(1, "1 bad");
    expect_line("BAD", "list", "another SHA-256");
    write_list("");
    k3ring("verify %s --checksums %s/sums", source.dir, folder.dir);
    expect_page(1, "holds no checksum");
    k3ring("verify %s --checksums /nowhere", source.dir);
    expect_refusal(1, "/nowhere");
}
END_TEST

START_TEST(a_changed_byte_is_found_also_in_a_model_that_is_refused)
{
    static char list[2048];
    list_shards(list, sizeof list, "  ");
    write_list(list);
    fresh();
    unsigned char bad = 0xAA;
    tiny_poke(&copy, "language_model.model.layers.4.self_attn.q_proj.weight", 77, &bad, 1);
    k3ring("verify %s --checksums %s/sums", copy.dir, folder.dir);
    expect_page(1, "1 bad");
    expect_line("BAD", "sha256", "fetch this file again");
    tiny_truncate(&copy, tiny_shard(2), -4096);
    k3ring("verify %s --checksums %s/sums", copy.dir, folder.dir);
    expect_page(3, "3 bad");
    expect_line("BAD", "sha256", tiny_shard(2));
    drop();
}
END_TEST

/* ---- known figures ---- */

START_TEST(the_tiny_model_makes_its_known_figures)
{
    k3ring("verify %s --golden", source.dir);
    expect_page(0, "figures of the tiny synthetic model");
    ck_assert_ptr_null(strstr(process.out, "BAD"));
    expect_line("ok", "golden", "of the tiny synthetic model");
    ck_assert_ptr_nonnull(strstr(process.out, "|h|max after layer 12"));
    ck_assert_ptr_nonnull(strstr(process.out, "170 126 66 6 37"));
    k3ring("verify %s --golden --json - --chunk 3 --io pread --threads 1 --quiet", source.dir);
    expect_page(0, "\"passed\":\ttrue");
}
END_TEST

START_TEST(weights_that_are_not_the_known_ones_fail)
{
    static const struct {
        const char *tensor, *figure;
    } cases[] = {
        {"language_model.model.layers.12.block_sparse_moe.shared_experts.down_proj.weight",
         "|h|max after layer 12"},
        {"language_model.model.layers.1.self_attn.A_log", "exp(A_log) of layer 1"},
        {"language_model.lm_head.weight", "logit of"},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        fresh();
        for (uint64_t at = 0; at < 16; at += 4) {
            float much = 9.0F; /* as bf16, 9 and 0 */
            tiny_poke(&copy, cases[i].tensor, at, &much, sizeof much);
        }
        k3ring("verify %s --golden", copy.dir);
        expect_page(1, "BAD   golden");
        bool found = false;
        for (const char *at = strstr(process.out, "\nBAD "); at != NULL;
             at = strstr(at + 1, "\nBAD ")) {
            size_t length = strcspn(at + 1, "\n");
            found = found || memmem(at, length, cases[i].figure, strlen(cases[i].figure)) != NULL;
        }
        ck_assert_msg(found, "no figure \"%s\" failed: %s", cases[i].figure, process.out);
        drop();
    }
}
END_TEST

START_TEST(a_model_of_no_table_is_refused)
{
    struct model_config c;
    struct fake_model other;
    fake_config_tiny(&c);
    c.vocab = 512;
    fake_init(&other, &c, 2);
    fake_write(&other);
    k3ring("verify %s --golden", other.dir);
    expect_refusal(3, "Kimi K3 as released");
    fake_free(&other);
}
END_TEST

static Suite *verify_suite(void)
{
    Suite *suite = suite_create("verify");
    TCase *tcase = tcase_create("verify");
    tcase_set_timeout(tcase, WATCHDOG_SECONDS);
    tcase_add_test(tcase, a_whole_model_passes_and_its_page_says_what_was_looked_at);
    tcase_add_test(tcase, a_pack_passes);
    tcase_add_test(tcase, what_a_model_is_refused_for_is_on_the_page);
    tcase_add_test(tcase, an_index_of_another_download_fails);
    tcase_add_test(tcase, bytes_of_no_tensor_are_told);
    tcase_add_test(tcase, names_that_say_there_are_more_shards_fail);
    tcase_add_test(tcase, a_tensor_of_no_model_in_two_files_fails);
    tcase_add_test(tcase, an_index_that_names_what_is_not_there_fails);
    tcase_add_test(tcase, files_beside_the_model_are_noted);
    tcase_add_test(tcase, json_has_what_the_page_has);
    tcase_add_test(tcase, hash_prints_the_list_that_sha256sum_prints);
    tcase_add_test(tcase, a_right_list_passes_in_every_form);
    tcase_add_test(tcase, names_with_backslashes_and_line_breaks_are_understood);
    tcase_add_test(tcase, names_are_found_beside_the_list_too);
    tcase_add_test(tcase, whatever_is_wrong_with_a_list_is_one_line_each);
    tcase_add_test(tcase, a_shard_that_is_not_listed_and_one_listed_twice_fail);
    tcase_add_test(tcase, a_changed_byte_is_found_also_in_a_model_that_is_refused);
    tcase_add_test(tcase, the_tiny_model_makes_its_known_figures);
    tcase_add_test(tcase, weights_that_are_not_the_known_ones_fail);
    tcase_add_test(tcase, a_model_of_no_table_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    if (process_binary() == NULL) {
        fprintf(stderr, "verify_test: build/k3ring is not there\n");
        return EXIT_FAILURE;
    }
    tiny_make(&source, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    int failed = suite_run(verify_suite());
    tiny_remove(&source);
    tiny_remove(&folder);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
