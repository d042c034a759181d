/* SPDX-License-Identifier: Apache-2.0 */

/* The house rules, held against the whole source tree: `tidy_test [ROOT]`, by default from the
 * current directory. The first half shows that every rule can fail. */

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/suite.h"
#include "tests/support/tidy.h"

#define PATH_BYTES 512

#define EXCEPTIONS_MAX 16

/* A finding that is right as it is. A table ends with a row without a reason. */
struct exception {
    enum tidy_rule rule;
    const char *path; /* the whole path, or how it begins */
    const char *what; /* a part of the finding, "" for any */
    const char *reason;
};

/* An exception that excuses nothing fails the test. */
static const struct exception exceptions[EXCEPTIONS_MAX] = {
    {TIDY_CALL, "core/cli/xdg.c", "getenv", "the user's folders are named there only"},
    {TIDY_CALL, "core/cli/terminal.c", "getenv", "what a terminal takes is known there only"},
    {TIDY_INCLUDE, "", "", NULL},
};

static const char *root = ".";
static struct tidy_report report;

typedef void rule_fn(const char *path, const char *text, struct tidy_report *out);

static int findings(rule_fn *rule, const char *path, const char *text)
{
    report.count = 0;
    rule(path, text, &report);
    return report.count;
}

/* Findings of one file that includes one header. */
static int include_findings(const char *path, const char *header)
{
    char text[PATH_BYTES];
    snprintf(text, sizeof text, "/* text */\n#include \"%s\"\n", header);
    return findings(tidy_includes, path, text);
}

static void may(const char *path, const char *header)
{
    ck_assert_msg(include_findings(path, header) == 0, "%s may include %s", path, header);
}

static void must_not(const char *path, const char *header)
{
    ck_assert_msg(include_findings(path, header) == 1, "%s must not include %s", path, header);
}

START_TEST(knowledge_flows_down)
{
    may("core/cli/main.c", "core/exec/engine.h");
    may("core/cli/cmd_plan.c", "planner/plan.h");
    may("core/cli/cmd_replay.c", "cache/policy.h");
    may("core/cli/cmd_doctor.c", "io/io.h");
    may("core/exec/fetch.c", "kernels/kernels.h");
    may("core/exec/fetch.c", "core/model/model.h");
    may("planner/plan.c", "core/model/config.h");
    may("planner/plan.c", "planner/plan.h");
    may("kernels/ref.c", "core/base/base.h");
    may("core/base/err.c", "core/base/err.h");
    may("tests/unit/io_test.c", "io/io.h");
    may("bench/io_bench.c", "tests/support/golden.h");
    may("io/io.c", "io.h");
}
END_TEST

START_TEST(knowledge_never_flows_up_or_sideways)
{
    must_not("core/cli/main.c", "kernels/kernels.h");
    must_not("core/exec/engine.c", "core/cli/options.h");
    must_not("planner/plan.c", "io/io.h");
    must_not("planner/plan.c", "cache/slab.h");
    must_not("planner/plan.c", "kernels/kernels.h");
    must_not("planner/plan.c", "core/exec/engine.h");
    must_not("cache/slab.c", "io/io.h");
    must_not("cache/slab.c", "core/model/model.h");
    must_not("io/io.c", "cache/slab.h");
    must_not("io/io.c", "planner/plan.h");
    must_not("kernels/ref.c", "core/model/config.h");
    must_not("core/model/model.c", "io/io.h");
    must_not("core/base/json.c", "core/model/config.h");
    must_not("io/io.c", "tests/support/golden.h");
    must_not("core/exec/engine.c", "bench/bench.h");
    must_not("bench/io_bench.c", "tests/unit/x.h");
}
END_TEST

START_TEST(private_headers_stay_in_their_folder)
{
    may("io/uring.c", "io/io_priv.h");
    may("tests/support/reference.c", "tests/support/reference_priv.h");
    must_not("core/exec/fetch.c", "io/io_priv.h");
    must_not("core/cli/main.c", "core/exec/exec_priv.h");
    must_not("tests/unit/io_test.c", "io/io_priv.h");
    must_not("tests/unit/x_test.c", "tests/support/reference_priv.h");
}
END_TEST

START_TEST(includes_are_written_from_the_root_and_by_known_folders)
{
    must_not("io/io.c", "../core/base/err.h");
    must_not("newfolder/x.c", "core/base/err.h");
    ck_assert_int_eq(findings(tidy_includes, "io/io.c", "/*\n#include \"cache/slab.h\"\n*/\n"), 0);
    ck_assert_int_eq(findings(tidy_includes, "io/io.c", "#  include \"cache/slab.h\"\n"), 1);
    ck_assert_int_eq(findings(tidy_includes, "io/io.c", "int x;\n#include <liburing.h>\n"), 0);
    ck_assert_int_eq(findings(tidy_includes, "io/io.c", "\n\n#include \"cache/slab.h\"\n"), 1);
    ck_assert_int_eq(report.finding[0].line, 3);
}
END_TEST

/* head, count times line, tail. */
static char *repeat(const char *head, const char *line, int count, const char *tail)
{
    size_t size = strlen(head) + strlen(line) * (size_t)count + strlen(tail) + 1;
    char *text = malloc(size);
    ck_assert_ptr_nonnull(text);
    size_t used = (size_t)sprintf(text, "%s", head);
    for (int i = 0; i < count; i++) {
        used += (size_t)sprintf(text + used, "%s", line);
    }
    snprintf(text + used, size - used, "%s", tail);
    return text;
}

static void expect_size_finding(char *text, int count, enum tidy_rule rule)
{
    ck_assert_int_eq(findings(tidy_sizes, "io/io.c", text), count);
    ck_assert(count == 0 || report.finding[0].rule == rule);
    free(text);
}

START_TEST(files_end_at_600_lines)
{
    expect_size_finding(repeat("", "int x;\n", 600, ""), 0, TIDY_FILE);
    expect_size_finding(repeat("", "int x;\n", 601, ""), 1, TIDY_FILE);
    expect_size_finding(repeat("", "int x;\n", 600, "int y;"), 1, TIDY_FILE);
}
END_TEST

START_TEST(lines_end_at_100_columns_whatever_their_bytes)
{
    expect_size_finding(repeat("", "x", 100, "\n"), 0, TIDY_LINE);
    expect_size_finding(repeat("", "x", 101, "\n"), 1, TIDY_LINE);
    expect_size_finding(repeat("// ", "\xc3\xa9", 97, "\n"), 0, TIDY_LINE);
    expect_size_finding(repeat("// ", "\xc3\xa9", 98, "\n"), 1, TIDY_LINE);
}
END_TEST

/* Head and braces are 3 lines of the function. */
START_TEST(functions_end_at_70_lines)
{
    const char *head = "static int before;\n\nstatic int f(void)\n{\n";
    expect_size_finding(repeat(head, "    x();\n", 67, "}\n"), 0, TIDY_FUNCTION);
    expect_size_finding(repeat(head, "    x();\n", 68, "}\n"), 1, TIDY_FUNCTION);
    ck_assert_int_eq(report.finding[0].line, 3);
    const char *wide = "static int f(int a,\n             int b)\n{\n";
    expect_size_finding(repeat(wide, "    x();\n", 66, "}\n"), 0, TIDY_FUNCTION);
    expect_size_finding(repeat(wide, "    x();\n", 67, "}\n"), 1, TIDY_FUNCTION);
    const char *after = "START_TEST(x)\n{\n}\nEND_TEST\n\n/* a */\nSTART_TEST(y)\n{\n";
    expect_size_finding(repeat(after, "    x();\n", 67, "}\nEND_TEST\n"), 0, TIDY_FUNCTION);
    expect_size_finding(repeat(after, "    x();\n", 68, "}\nEND_TEST\n"), 1, TIDY_FUNCTION);
    const char *later = "int f(void)\n{\n}\n\nint g(void);\nint h(void)\n{\n";
    expect_size_finding(repeat(later, "\n", 68, "}\n"), 1, TIDY_FUNCTION);
    ck_assert_int_eq(report.finding[0].line, 6);
}
END_TEST

START_TEST(a_long_table_is_no_function)
{
    expect_size_finding(repeat("static const int x[] = {\n", "    1,\n", 90, "};\n"), 0,
                        TIDY_FUNCTION);
}
END_TEST

static int calls(const char *path, const char *line)
{
    char text[PATH_BYTES];
    snprintf(text, sizeof text, "void f(void)\n{\n    %s\n}\n", line);
    return findings(tidy_calls, path, text);
}

START_TEST(time_and_chance_come_from_one_file)
{
    static const char *const call[] = {"clock_gettime(CLOCK_MONOTONIC, &t);", "x = time(NULL);",
                                       "x = rand();", "x = random();", "gettimeofday(&t, NULL);"};
    for (size_t i = 0; i < sizeof call / sizeof call[0]; i++) {
        ck_assert_int_eq(calls("core/exec/engine.c", call[i]), 1);
        ck_assert_int_eq(calls("tests/unit/x_test.c", call[i]), 1);
        ck_assert_int_eq(calls("core/base/nondet.c", call[i]), 0);
    }
    ck_assert_int_eq(report.count, 0);
    ck_assert_int_eq(calls("core/exec/engine.c", "runtime(NULL);"), 0);
    ck_assert_int_eq(calls("core/exec/engine.c", "plan->time(x);"), 0);
    ck_assert_int_eq(calls("core/exec/engine.c", "x = a > time (0);"), 1);
    ck_assert_int_eq(report.finding[0].line, 3);
}
END_TEST

START_TEST(the_environment_is_not_read)
{
    ck_assert_int_eq(calls("core/cli/main.c", "getenv(name);"), 1);
    ck_assert_int_eq(calls("tests/unit/x_test.c", "secure_getenv(name);"), 1);
}
END_TEST

START_TEST(the_path_of_a_task_takes_no_lock)
{
    ck_assert_int_eq(calls("core/exec/run.c", "pthread_mutex_lock(&lock);"), 1);
    ck_assert_int_eq(calls("core/exec/workers.c", "sem_wait(&s);"), 1);
    ck_assert_int_eq(calls("cache/slab_ring.c", "pthread_spin_lock(&l);"), 1);
    ck_assert_int_eq(calls("core/exec/engine.c", "pthread_mutex_lock(&lock);"), 0);
}
END_TEST

START_TEST(libraries_do_not_print)
{
    ck_assert_int_eq(calls("io/io.c", "printf(x);"), 1);
    ck_assert_int_eq(calls("core/exec/engine.c", "fprintf(stderr, x);"), 1);
    ck_assert_int_eq(calls("planner/plan.c", "fputs(x, stderr);"), 1);
    ck_assert_int_eq(calls("planner/plan.c", "fprintf(out, x);"), 0);
    ck_assert_int_eq(calls("core/cli/main.c", "fprintf(stderr, x); printf(y);"), 0);
    ck_assert_int_eq(calls("bench/io_bench.c", "printf(x);"), 0);
    ck_assert_int_eq(calls("tests/x_test.c", "printf(x);"), 0);
}
END_TEST

START_TEST(the_forward_pass_calls_no_libm)
{
    static const char *const call[] = {"y = expf(x);", "y = tanhf(x);", "y = logf(x);",
                                       "y = exp(x);", "y = pow(x, 2);"};
    for (size_t i = 0; i < sizeof call / sizeof call[0]; i++) {
        ck_assert_int_eq(calls("kernels/ref.c", call[i]), 1);
        ck_assert_int_eq(calls("core/exec/sample.c", call[i]), 1);
        ck_assert_int_eq(calls("planner/plan.c", call[i]), 0);
    }
    ck_assert_int_eq(calls("core/exec/layer.c", "kernels->exp(y, x, n); ops.tanh(y, x, n);"), 0);
    ck_assert_int_eq(calls("kernels/ref.c", "y = fmaf(a, b, c) + sqrtf(d) + math_exp(e);"), 0);
    ck_assert_int_eq(calls("kernels/select.c", "void (*exp)(float *y);"), 0);
}
END_TEST

START_TEST(kernels_take_no_memory_and_no_threads)
{
    ck_assert_int_eq(calls("kernels/ref.c", "p = malloc(8);"), 1);
    ck_assert_int_eq(calls("kernels/ref.c", "p = calloc(1, 8);"), 1);
    ck_assert_int_eq(calls("kernels/ref.c", "p = realloc(p, 8);"), 1);
    ck_assert_int_eq(calls("kernels/ref.c", "pthread_create(&t, 0, f, 0);"), 1);
    ck_assert_int_eq(calls("kernels/ref.c", "thread_create(&t, 0, f, 0);"), 1);
    ck_assert_int_eq(calls("cache/slab.c", "p = malloc(8);"), 0);
}
END_TEST

START_TEST(threads_begin_where_signals_are_held)
{
    ck_assert_int_eq(calls("core/exec/engine.c", "pthread_create(&t, 0, f, 0);"), 1);
    ck_assert_int_eq(calls("core/base/thread.c", "pthread_create(&t, 0, f, 0);"), 0);
    ck_assert_int_eq(calls("core/exec/engine.c", "thread_create(&t, 0, f, 0);"), 0);
}
END_TEST

START_TEST(comments_and_strings_call_nothing)
{
    ck_assert_int_eq(calls("io/io.c", "/* printf(x) */ // rand()"), 0);
    ck_assert_int_eq(calls("io/io.c", "x = \"rand() \\\" time()\";"), 0);
    ck_assert_int_eq(calls("io/io.c", "x = \"a\\\\\"; rand();"), 1);
    ck_assert_int_eq(calls("io/io.c", "c = '\"'; rand(); c = '\"';"), 1);
    ck_assert_int_eq(calls("io/io.c", "x = 1; /* */ rand();"), 1);
}
END_TEST

START_TEST(sources_begin_with_their_license)
{
    const char *good = "/* SPDX-License-Identifier: Apache-2.0 */\nint x;\n";
    ck_assert_int_eq(findings(tidy_license, "io/io.c", good), 0);
    ck_assert_int_eq(findings(tidy_license, "io/io.c", good + 1), 1);
    ck_assert_int_eq(findings(tidy_license, "io/io.c", ""), 1);
}
END_TEST

START_TEST(nothing_is_marked_as_unfinished)
{
    ck_assert_int_eq(findings(tidy_marks, "README.md",
                              "a\n/* TO"
                              "DO: b */\n"),
                     1);
    ck_assert_int_eq(report.finding[0].line, 2);
    ck_assert_int_eq(findings(tidy_marks, "README.md",
                              "FIX"
                              "ME"),
                     1);
    ck_assert_int_eq(findings(tidy_marks, "README.md",
                              "(XX"
                              "X)"),
                     1);
    ck_assert_int_eq(findings(tidy_marks, "README.md", "/tmp/a.XXXXXX methodTODOS"), 0);
}
END_TEST

START_TEST(folders_explain_themselves_briefly)
{
    report.count = 0;
    tidy_folder("io", 40, &report);
    ck_assert_int_eq(report.count, 0);
    tidy_folder("io", -1, &report);
    ck_assert_int_eq(report.count, 1);
    tidy_folder("io", 41, &report);
    ck_assert_int_eq(report.count, 2);
}
END_TEST

START_TEST(a_source_is_held_to_every_rule)
{
    const char *text = "#include \"cache/slab.h\"\nint x = 1; /* TO"
                       "DO */\nint f(void)\n{\n"
                       "    rand();\n";
    char *whole = repeat(text, "\n", 70, "}\n");
    bool seen[TIDY_README + 1] = {false};
    findings(tidy_source, "io/io.c", whole);
    free(whole);
    for (int i = 0; i < report.count; i++) {
        seen[report.finding[i].rule] = true;
    }
    ck_assert(seen[TIDY_INCLUDE] && seen[TIDY_MARK] && seen[TIDY_CALL] && seen[TIDY_LICENSE]);
    ck_assert(seen[TIDY_FUNCTION]);
    ck_assert_int_eq(report.count, 5);
}
END_TEST

/* NULL when the file cannot be read. */
static char *read_text(const char *path)
{
    char full[PATH_BYTES];
    snprintf(full, sizeof full, "%s/%s", root, path);
    FILE *file = fopen(full, "rb");
    struct stat about;
    if (file == NULL) {
        return NULL;
    }
    ck_assert_int_eq(fstat(fileno(file), &about), 0);
    char *text = calloc(1, (size_t)about.st_size + 1);
    ck_assert_ptr_nonnull(text);
    size_t size = fread(text, 1, (size_t)about.st_size, file);
    fclose(file);
    ck_assert_uint_eq(size, (size_t)about.st_size);
    return text;
}

static bool is_source(const char *path)
{
    return tidy_ends(path, ".c") || tidy_ends(path, ".h");
}

static bool is_text(const char *path)
{
    return tidy_ends(path, ".md") || tidy_ends(path, ".sh") || tidy_ends(path, "Makefile");
}

static void walk_file(const char *path, int *sources)
{
    if (!is_source(path) && !is_text(path)) {
        return;
    }
    char *text = read_text(path);
    ck_assert_msg(text != NULL, "%s cannot be read", path);
    if (is_source(path)) {
        tidy_source(path, text, &report);
        *sources += 1;
    } else {
        tidy_marks(path, text, &report);
    }
    free(text);
}

static void walk_readme(const char *folder)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/README.md", folder);
    char *text = read_text(path);
    tidy_folder(folder, text != NULL ? tidy_count_lines(text) : -1, &report);
    free(text);
}

/* Hidden folders and what a build leaves are not source. Returns the number of C files. */
static int walk(const char *folder)
{
    char full[PATH_BYTES];
    int total = 0, here = 0;
    snprintf(full, sizeof full, "%s/%s", root, folder);
    DIR *dir = opendir(full);
    ck_assert_msg(dir != NULL, "%s cannot be opened", full);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char path[PATH_BYTES];
        struct stat about;
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "build") == 0) {
            continue;
        }
        const char *between = folder[0] != '\0' ? "/" : "";
        int length = snprintf(path, sizeof path, "%s%s%s", folder, between, entry->d_name);
        ck_assert_int_lt(length, PATH_BYTES);
        ck_assert_int_lt(snprintf(full, sizeof full, "%s/%s", root, path), PATH_BYTES);
        if (lstat(full, &about) != 0) {
            continue; /* gone since it was listed */
        }
        if (S_ISDIR(about.st_mode)) {
            total += walk(path);
        } else if (S_ISREG(about.st_mode)) {
            walk_file(path, &here);
        }
    }
    closedir(dir);
    if (here > 0) {
        walk_readme(folder);
    }
    return total + here;
}

/* Index of the first exception that excuses a finding, or -1. */
static int excuse_of(const struct exception *table, const struct tidy_finding *f)
{
    for (int i = 0; table[i].reason != NULL; i++) {
        if (table[i].rule == f->rule &&
            strncmp(f->path, table[i].path, strlen(table[i].path)) == 0 &&
            strstr(f->what, table[i].what) != NULL) {
            return i;
        }
    }
    return -1;
}

START_TEST(an_exception_excuses_what_it_names_and_nothing_else)
{
    static const struct exception table[] = {
        {TIDY_CALL, "core/cli/cache_folder.c", "getenv", "the one folder of the user"},
        {TIDY_CALL, "", "", NULL},
    };
    findings(tidy_calls, "core/cli/cache_folder.c", "x = getenv(n); y = rand();");
    ck_assert_int_eq(report.count, 2);
    ck_assert_int_eq(excuse_of(table, &report.finding[0]), 0);
    ck_assert_int_eq(excuse_of(table, &report.finding[1]), -1);
    findings(tidy_calls, "core/cli/main.c", "x = getenv(n);");
    ck_assert_int_eq(excuse_of(table, &report.finding[0]), -1);
}
END_TEST

/* Prints what no exception covers; returns how many. */
static int print_findings(bool *used)
{
    int left = 0;
    for (int i = 0; i < report.count && i < TIDY_FINDINGS_MAX; i++) {
        const struct tidy_finding *f = &report.finding[i];
        int excuse = excuse_of(exceptions, f);
        if (excuse >= 0) {
            used[excuse] = true;
            continue;
        }
        printf("%s:%d: %s: %s\n", f->path, f->line, tidy_rule_name(f->rule), f->what);
        left++;
    }
    fflush(stdout);
    return left;
}

START_TEST(the_source_tree_obeys_the_rules)
{
    bool used[EXCEPTIONS_MAX] = {false};
    report.count = 0;
    int sources = walk("");
    ck_assert_msg(sources > 20, "%s is not the checkout: %d sources; give its path", root, sources);
    int left = print_findings(used);
    ck_assert_int_le(report.count, TIDY_FINDINGS_MAX);
    ck_assert_msg(left == 0, "%d findings, listed above", left);
    for (int i = 0; exceptions[i].reason != NULL; i++) {
        ck_assert_msg(used[i], "unused exception for %s: %s", exceptions[i].path,
                      exceptions[i].reason);
    }
}
END_TEST

static Suite *tidy_suite(void)
{
    Suite *suite = suite_create("tidy");
    TCase *rules = tcase_create("rules");
    tcase_add_test(rules, knowledge_flows_down);
    tcase_add_test(rules, knowledge_never_flows_up_or_sideways);
    tcase_add_test(rules, private_headers_stay_in_their_folder);
    tcase_add_test(rules, includes_are_written_from_the_root_and_by_known_folders);
    tcase_add_test(rules, files_end_at_600_lines);
    tcase_add_test(rules, lines_end_at_100_columns_whatever_their_bytes);
    tcase_add_test(rules, functions_end_at_70_lines);
    tcase_add_test(rules, a_long_table_is_no_function);
    tcase_add_test(rules, time_and_chance_come_from_one_file);
    tcase_add_test(rules, the_environment_is_not_read);
    tcase_add_test(rules, the_path_of_a_task_takes_no_lock);
    tcase_add_test(rules, libraries_do_not_print);
    tcase_add_test(rules, the_forward_pass_calls_no_libm);
    tcase_add_test(rules, kernels_take_no_memory_and_no_threads);
    tcase_add_test(rules, threads_begin_where_signals_are_held);
    tcase_add_test(rules, comments_and_strings_call_nothing);
    tcase_add_test(rules, sources_begin_with_their_license);
    tcase_add_test(rules, nothing_is_marked_as_unfinished);
    tcase_add_test(rules, folders_explain_themselves_briefly);
    tcase_add_test(rules, a_source_is_held_to_every_rule);
    tcase_add_test(rules, an_exception_excuses_what_it_names_and_nothing_else);
    suite_add_tcase(suite, rules);
    TCase *tree = tcase_create("tree");
    tcase_set_timeout(tree, 60);
    tcase_add_test(tree, the_source_tree_obeys_the_rules);
    suite_add_tcase(suite, tree);
    return suite;
}

int main(int argc, char **argv)
{
    root = argc > 1 ? argv[1] : root;
    return suite_run(tidy_suite()) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
