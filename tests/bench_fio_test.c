/* SPDX-License-Identifier: Apache-2.0 */

/* fio itself against what is printed in its manner: whatever its JSON and its terse line have, ours
 * have too, and a tool made for fio's JSON reads ours. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cli/bench.h"
#include "core/cli/output.h"
#include "tests/support/bench_sample.h"
#include "tests/support/process.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define FIO "/usr/bin/fio"
#define CLAT2CSV "/usr/bin/fio_jsonplus_clat2csv"
#define JOB "--name=x --rw=read --bs=64k --size=2m --iodepth=2 --slat_percentiles=1 " \
            "--clat_percentiles=1 --lat_percentiles=1"

static struct tiny folder;
static struct process process;

static bool there(const char *program)
{
    bool found = access(program, X_OK) == 0;
    if (!found) {
        printf("skip: there is no %s here to compare with\n", program);
    }
    return found;
}

static void make_folder(void)
{
    tiny_folder(&folder, TINY_DISK);
}

static void remove_folder(void)
{
    tiny_remove(&folder);
}

/* Runs fio; what it reports is file `name` of the folder. */
static char *fio(const char *name, const char *options)
{
    char path[TINY_PATH_BYTES];
    size_t size;
    tiny_path(&folder, name, path);
    process_start(&process, folder.dir, FIO, "%s %s --directory=%s --output=%s", JOB, options,
                  folder.dir, path);
    process_wait(&process);
    ck_assert_msg(process.status == 0, "fio: %s%s", process.out, process.err);
    return (char *)tiny_read(&folder, name, &size);
}

/* ---- JSON ---- */

/* Objects whose members are values, not words. */
static bool is_map(const char *name)
{
    return strcmp(name, "bins") == 0 || strcmp(name, "job options") == 0;
}

static int kind(const cJSON *item)
{
    return item->type & (cJSON_IsBool(item) ? cJSON_True | cJSON_False : 0xFF);
}

struct comparison {
    uint32_t agree;           /* members */
    char why[256];            /* what is missing, or of another type; or "" */
};

/* Everything of theirs is in ours, with the same type. */
static void cover(const cJSON *theirs, const cJSON *ours, const char *where,
                  struct comparison *out)
{
    for (const cJSON *item = theirs->child; item != NULL && out->why[0] == '\0';
         item = item->next) {
        const cJSON *mine = cJSON_GetObjectItemCaseSensitive(ours, item->string);
        if (mine == NULL || kind(mine) != kind(item)) {
            snprintf(out->why, sizeof out->why, "%s/%s is %s", where, item->string,
                     mine == NULL ? "missing" : "of another type");
            return;
        }
        out->agree++;
        if (cJSON_IsObject(item) && !is_map(item->string)) {
            cover(item, mine, item->string, out);
        }
    }
}

static void expect_cover(const cJSON *theirs, const cJSON *ours, const char *where, uint32_t least)
{
    struct comparison c = {0};
    cover(theirs, ours, where, &c);
    ck_assert_msg(c.why[0] == '\0', "%s", c.why);
    ck_assert_msg(c.agree >= least, "only %u members of %s compared", c.agree, where);
}

/* fio's version is not ours to claim; the arrays are looked at one by one. */
static void compare_top(const cJSON *theirs, const cJSON *ours)
{
    for (const cJSON *item = theirs->child; item != NULL; item = item->next) {
        const cJSON *mine = cJSON_GetObjectItemCaseSensitive(ours, item->string);
        bool own = strcmp(item->string, "fio version") == 0;
        ck_assert_msg(own || (mine != NULL && kind(mine) == kind(item)), "fio has %s",
                      item->string);
    }
    ck_assert_ptr_null(cJSON_GetObjectItem(ours, "fio version"));
}

static const cJSON *first(const cJSON *root, const char *array)
{
    return cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, array), 0);
}

START_TEST(fio_s_json_has_nothing_that_ours_lacks)
{
    if (!there(FIO)) {
        return;
    }
    char *text = fio("theirs", "--ioengine=psync --output-format=json+");
    cJSON *theirs = cJSON_Parse(strchr(text, '{'));
    struct bench_sample *sample = bench_sample_new(1, 1);
    cJSON *ours = bench_json(&sample->result, true);
    ck_assert_msg(theirs != NULL && ours != NULL, "%s", text);
    compare_top(theirs, ours);
    expect_cover(first(theirs, "jobs"), first(ours, "jobs"), "job", 150);
    const cJSON *drive = first(theirs, "disk_util");
    if (drive != NULL) {
        expect_cover(drive, first(ours, "disk_util"), "disk_util", 9);
    } else {
        printf("skip: disk_util is not compared: fio saw no drive below %s\n", folder.dir);
    }
    cJSON_Delete(theirs);
    cJSON_Delete(ours);
    free(text);
    bench_sample_free(sample);
}
END_TEST

static const char *lack(const char *theirs, const char *ours)
{
    static struct comparison c;
    cJSON *a = cJSON_Parse(theirs);
    cJSON *b = cJSON_Parse(ours);
    c = (struct comparison){0};
    cover(a, b, "top", &c);
    cJSON_Delete(a);
    cJSON_Delete(b);
    return c.why;
}

START_TEST(the_comparison_notices_what_is_missing)
{
    ck_assert_str_eq(lack("{\"a\":1,\"b\":{\"c\":2}}", "{\"b\":{\"c\":7},\"a\":0}"), "");
    ck_assert_str_eq(lack("{\"a\":1,\"b\":{\"c\":2}}", "{\"a\":1,\"b\":{}}"), "b/c is missing");
    ck_assert_str_eq(lack("{\"a\":1}", "{\"a\":\"1\"}"), "top/a is of another type");
}
END_TEST

START_TEST(fio_s_tool_reads_our_json)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    cJSON *ours = bench_json(&sample->result, true);
    char *text = cJSON_Print(ours);
    char path[TINY_PATH_BYTES];
    size_t size;
    tiny_path(&folder, "ours", path);
    ck_assert_int_eq(output_text(path, text), 0);
    if (there(CLAT2CSV)) {
        /* Not as a program: it asks the PATH for python3, which may lack the tool's modules. */
        process_start(&process, folder.dir, "/usr/bin/python3", "%s %s %s/o.csv", CLAT2CSV, path,
                      folder.dir);
        process_wait(&process);
        ck_assert_msg(process.status == 0, "%s", process.err);
        process_start(&process, folder.dir, "/usr/bin/python3", "%s %s %s/o.csv --validate",
                      CLAT2CSV, path, folder.dir);
        process_wait(&process);
        ck_assert_msg(process.status == 0 && strstr(process.out, "o_job4.csv validated") != NULL,
                      "%s%s", process.out, process.err);
        char *csv = (char *)tiny_read(&folder, "o_job1.csv", &size);
        ck_assert_ptr_nonnull(strstr(csv, "read_clat_ns_count"));
        ck_assert_ptr_nonnull(strstr(csv, ", 200, 1.0, "));
        free(csv);
    }
    free(text);
    cJSON_Delete(ours);
    bench_sample_free(sample);
}
END_TEST

/* ---- terse ---- */

static uint32_t fields(const char *line)
{
    uint32_t n = 1;
    for (; *line != '\n' && *line != '\0'; line++) {
        n += *line == ';';
    }
    return n;
}

/* What is left of a field without its digits: ";1.5%=7" and ";0.1%=93" look alike. */
static void shape(const char *line, uint32_t index, char out[64])
{
    for (; index > 0; index--) {
        line = strchr(line, ';') + 1;
    }
    size_t used = 0;
    for (; *line != ';' && *line != '\n' && used + 1 < 64; line++) {
        bool digit = *line >= '0' && *line <= '9';
        if (!digit || used == 0 || out[used - 1] != '9') {
            out[used++] = digit ? '9' : *line;
        }
    }
    out[used] = '\0';
}

START_TEST(fio_s_terse_line_has_our_fields)
{
    if (!there(FIO)) {
        return;
    }
    char *theirs = fio("line", "--ioengine=null --minimal --terse-version=3");
    struct bench_sample *sample = bench_sample_new(1, 1);
    sample->result.environment.device_count = 0; /* the null engine has none */
    char *ours = bench_sample_text(sample, bench_terse);
    ck_assert_uint_eq(fields(theirs), fields(ours));
    for (uint32_t i = 3; i < fields(theirs); i++) {
        char their_shape[64];
        char our_shape[64];
        shape(theirs, i, their_shape);
        shape(ours, i, our_shape);
        ck_assert_msg(strcmp(their_shape, our_shape) == 0, "field %u: %s, in ours %s", i,
                      their_shape, our_shape);
    }
    free(theirs);
    free(ours);
    bench_sample_free(sample);
}
END_TEST

START_TEST(a_drive_takes_as_many_fields_as_with_fio)
{
    if (!there(FIO)) {
        return;
    }
    char *theirs = fio("line", "--ioengine=psync --minimal --terse-version=3");
    char *null = fio("null", "--ioengine=null --minimal --terse-version=3");
    uint32_t more = fields(theirs) - fields(null);
    if (more == 0) {
        printf("skip: drives are not compared: fio saw none below %s\n", folder.dir);
    }
    ck_assert_uint_eq(more % 9, 0);
    free(theirs);
    free(null);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bench_fio");
    TCase *test = tcase_create("fio");
    tcase_add_unchecked_fixture(test, make_folder, remove_folder);
    tcase_add_test(test, the_comparison_notices_what_is_missing);
    tcase_add_test(test, fio_s_json_has_nothing_that_ours_lacks);
    tcase_add_test(test, fio_s_tool_reads_our_json);
    tcase_add_test(test, fio_s_terse_line_has_our_fields);
    tcase_add_test(test, a_drive_takes_as_many_fields_as_with_fio);
    suite_add_tcase(suite, test);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
