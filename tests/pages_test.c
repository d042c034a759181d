/* SPDX-License-Identifier: Apache-2.0 */

/* Manual pages, completions and documents against the option tables: nothing is left out of them,
 * and nothing that is shown there is unknown to the program. */

#include <check.h>
#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/cli/commands.h"
#include "tests/support/process.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define TEXT_BYTES 131072

static char build[512];   /* where the program lies */
static struct tiny files; /* a folder to complete paths in */
static char said[TEXT_BYTES];

/* What a command line of the shell says on both outputs; its exit status is returned. */
__attribute__((format(printf, 1, 2))) static int shell(const char *format, ...)
{
    char line[4096];
    va_list list;
    va_start(list, format);
    int wrote = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    ck_assert(wrote > 0 && (size_t)wrote < sizeof line);
    fflush(NULL);
    FILE *stream = popen(line, "r");
    ck_assert_ptr_nonnull(stream);
    size_t size = fread(said, 1, sizeof said - 1, stream);
    said[size] = '\0';
    int status = pclose(stream);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool installed(const char *program)
{
    bool found = shell("command -v %s 2>&1", program) == 0;
    if (!found) {
        printf("skip: %s is not installed\n", program);
    }
    return found;
}

static struct file_text text_of(const char *path)
{
    struct file_text text;
    ck_assert_msg(file_read(path, TEXT_BYTES, &text) == 0, "%s", err_message());
    return text;
}

static const char *page_path(uint32_t command)
{
    static char path[640];
    bool whole = command == subcommand_count;
    snprintf(path, sizeof path, "%s/man/k3ring%s%s.1", build, whole ? "" : "-",
             whole ? "" : subcommands[command].command->name);
    return path;
}

/* ---- manual ---- */

START_TEST(every_command_has_a_page_with_all_its_options)
{
    const struct command *command = subcommands[_i].command;
    struct file_text page = text_of(page_path((uint32_t)_i));
    static const char *const sections[] = {"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES",
                                           "EXIT STATUS", "SEE ALSO"};
    const char *last = page.text;
    for (size_t i = 0; i < countof(sections); i++) {
        char heading[64];
        snprintf(heading, sizeof heading, ".SH \"%s\"\n", sections[i]);
        const char *at = strstr(page.text, heading);
        ck_assert_msg(at != NULL && at > last, "%s has no %s in its place", command->name,
                      sections[i]);
        last = at;
    }
    for (uint32_t i = 0; i < command->row_count; i++) {
        const struct option_row *row = &command->rows[i];
        char entry[160] = ".TP\n\\fB\\-\\-";
        for (const char *c = row->name; options_shown(row) && *c != '\0'; c++) {
            snprintf(entry + strlen(entry), 8, "%s%c", *c == '-' ? "\\" : "", *c);
        }
        strcat(entry, "\\fR ");
        ck_assert_msg(!options_shown(row) || strstr(page.text, entry) != NULL, "%s: --%s",
                      command->name, row->name);
    }
    file_text_free(&page);
}
END_TEST

START_TEST(the_page_of_the_program_lists_all_commands)
{
    struct file_text page = text_of(page_path(subcommand_count));
    for (uint32_t i = 0; i < subcommand_count; i++) {
        char entry[64];
        snprintf(entry, sizeof entry, "\\fBk3ring\\-%s\\fR(1)\n", subcommands[i].command->name);
        ck_assert_msg(strstr(page.text, entry) != NULL, "%s", entry);
    }
    ck_assert_ptr_nonnull(strstr(page.text, k3ring_version));
    ck_assert_ptr_nonnull(strstr(page.text, k3ring_version_day));
    file_text_free(&page);
}
END_TEST

START_TEST(a_checker_of_manuals_finds_nothing_to_say)
{
    if (installed("mandoc")) {
        int status = shell("mandoc -Tlint -Wwarning %s 2>&1", page_path((uint32_t)_i));
        ck_assert_msg(status == 0 && said[0] == '\0', "%s", said);
    }
}
END_TEST

START_TEST(an_example_looks_as_it_is_typed)
{
    if (installed("mandoc")) {
        ck_assert_int_eq(shell("mandoc -Tascii %s | sed 's/.\\x08//g'", page_path(0)), 0);
        ck_assert_ptr_nonnull(strstr(said, "k3ring run MODEL --prompt 'The capital of France is' "
                                           "--gen 8 --ram 16G\n"));
        ck_assert_ptr_nonnull(strstr(said, "EXIT STATUS"));
        ck_assert_ptr_null(strchr(said, '`'));
    }
}
END_TEST

/* ---- what texts show ---- */

static const struct option_row *row_of(const struct command *command, const char *name,
                                       size_t length)
{
    for (uint32_t i = 0; i < command->row_count; i++) {
        const char *row = command->rows[i].name;
        if (row != NULL && strlen(row) == length && memcmp(row, name, length) == 0) {
            return &command->rows[i];
        }
    }
    return NULL;
}

/* The options behind a command that a text shows, to the end of the command. */
static int check_shown(const char *path, const struct command *command, const char *at)
{
    int found = 0;
    for (; *at != '\0' && strchr("\n`|&;#", *at) == NULL; at++) {
        if (at[0] != ' ' || at[1] != '-' || at[2] != '-' || !islower((unsigned char)at[3])) {
            continue;
        }
        size_t length = strspn(at + 3, "abcdefghijklmnopqrstuvwxyz-0123456789");
        ck_assert_msg(row_of(command, at + 3, length) != NULL ||
                          strncmp(at + 3, "help", length) == 0,
                      "%s shows k3ring %s --%.*s, which there is not", path, command->name,
                      (int)length, at + 3);
        found++;
    }
    return found;
}

static int check_text(const char *path)
{
    int found = 0;
    struct file_text text = text_of(path);
    for (const char *at = text.text; (at = strstr(at, "k3ring ")) != NULL; at++) {
        const char *name = at + strlen("k3ring ");
        size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz");
        for (uint32_t i = 0; i < subcommand_count; i++) {
            const struct command *command = subcommands[i].command;
            if (strlen(command->name) == length && memcmp(command->name, name, length) == 0) {
                found += check_shown(path, command, name + length);
            }
        }
    }
    file_text_free(&text);
    return found;
}

static int check_folder(const char *folder, const char *ending)
{
    int found = 0;
    DIR *dir = opendir(folder);
    ck_assert_msg(dir != NULL, "%s: run the test in the checkout", folder);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot != NULL && strcmp(dot, ending) == 0) {
            char path[512];
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            found += check_text(path);
        }
    }
    closedir(dir);
    return found;
}

START_TEST(every_option_that_documents_show_exists)
{
    ck_assert_int_gt(check_folder("docs/man", ".txt"), 20);
    ck_assert_int_gt(check_folder("docs", ".md"), 20);
    ck_assert_int_gt(check_folder(".", ".md"), 20);
}
END_TEST

/* ---- bash ---- */

/* What bash offers for these words of COMP_WORDS, the last of which is completed: one a line. */
static void complete(const char *words)
{
    int status = shell("bash --norc -c 'source %s/completion/bash; COMP_WORDS=(%s); "
                       "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _k3ring; "
                       "printf \"%%s\\n\" \"${COMPREPLY[@]}\"' 2>&1", build, words);
    ck_assert_msg(status == 0, "%s: %s", words, said);
}

static void expect_offered(const char *words, const char *offered)
{
    complete(words);
    ck_assert_msg(strcmp(said, offered) == 0, "%s: offered\n%s, not\n%s", words, said, offered);
}

START_TEST(bash_completes_commands_options_and_words)
{
    expect_offered("k3ring re", "replay\n");
    expect_offered("k3ring help be", "bench\n");
    expect_offered("k3ring run --io-d", "--io-depth\n");
    expect_offered("k3ring run --cache-policy l", "lar\nlru\nlfu\nlhr\n");
    expect_offered("k3ring run --cache-policy = lh", "lhr\n");
    expect_offered("k3ring run --io =", "uring\npread\nsim\n");
    expect_offered("k3ring run --ram a", "auto\n");
    expect_offered("k3ring run --gen 1", "\n");
    expect_offered("k3ring nothing --r", "\n");
    expect_offered("k3ring bench --output-format json", "json\njson+\n");
}
END_TEST

START_TEST(bash_offers_every_option_of_a_command)
{
    const struct command *command = subcommands[_i].command;
    char words[64];
    snprintf(words, sizeof words, "k3ring %s --", command->name);
    complete(words);
    for (uint32_t i = 0; i < command->row_count; i++) {
        char line[80];
        snprintf(line, sizeof line, "--%s\n", options_shown(&command->rows[i])
                                                  ? command->rows[i].name : "help");
        ck_assert_msg(strstr(said, line) != NULL, "%s: no %s", command->name, line);
    }
}
END_TEST

START_TEST(bash_completes_folders_and_files_where_they_belong)
{
    char words[512], offered[1024];
    tiny_put(&files, "model report.json", "{}", 2);
    tiny_put(&files, "model.jsonl", "{}", 2);
    char path[TINY_PATH_BYTES];
    tiny_path(&files, "model folder", path);
    ck_assert_int_eq(shell("mkdir '%s'", path), 0);
    snprintf(words, sizeof words, "k3ring run %s/mo", files.dir);
    snprintf(offered, sizeof offered, "%s/model folder\n", files.dir);
    expect_offered(words, offered);
    snprintf(words, sizeof words, "k3ring run x --json %s/model\\ r", files.dir);
    snprintf(offered, sizeof offered, "%s/model report.json\n", files.dir);
    expect_offered(words, offered);
    snprintf(words, sizeof words, "k3ring batch --quiet --gen 4 x %s/model.", files.dir);
    snprintf(offered, sizeof offered, "%s/model.jsonl\n", files.dir);
    expect_offered(words, offered);
    snprintf(words, sizeof words, "k3ring batch --gen = 4 %s/model.", files.dir);
    expect_offered(words, "\n"); /* the first operand is a folder */
}
END_TEST

/* ---- zsh ---- */

START_TEST(zsh_reads_its_completion_and_every_option_is_in_it)
{
    char path[640];
    snprintf(path, sizeof path, "%s/completion/zsh", build);
    struct file_text text = text_of(path);
    ck_assert(strncmp(text.text, "#compdef k3ring\n", 16) == 0);
    for (uint32_t i = 0; i < subcommand_count; i++) {
        for (uint32_t k = 0; k < subcommands[i].command->row_count; k++) {
            const struct option_row *row = &subcommands[i].command->rows[k];
            char entry[80];
            snprintf(entry, sizeof entry, "--%s%s[", options_shown(row) ? row->name : "help",
                     !options_shown(row) || row->type == OPTION_FLAG ? "" : "=");
            ck_assert_msg(strstr(text.text, entry) != NULL, "no %s", entry);
        }
    }
    file_text_free(&text);
    if (installed("zsh")) {
        ck_assert_msg(shell("zsh -n %s 2>&1", path) == 0 && said[0] == '\0', "%s", said);
    }
}
END_TEST

static Suite *pages_suite(void)
{
    Suite *suite = suite_create("pages");
    TCase *manual = tcase_create("manual");
    tcase_set_timeout(manual, 60);
    tcase_add_loop_test(manual, every_command_has_a_page_with_all_its_options, 0,
                        (int)subcommand_count);
    tcase_add_test(manual, the_page_of_the_program_lists_all_commands);
    tcase_add_loop_test(manual, a_checker_of_manuals_finds_nothing_to_say, 0,
                        (int)subcommand_count + 1);
    tcase_add_test(manual, an_example_looks_as_it_is_typed);
    tcase_add_test(manual, every_option_that_documents_show_exists);
    suite_add_tcase(suite, manual);
    TCase *shells = tcase_create("shells");
    tcase_set_timeout(shells, 60);
    tcase_add_test(shells, bash_completes_commands_options_and_words);
    tcase_add_loop_test(shells, bash_offers_every_option_of_a_command, 0, (int)subcommand_count);
    tcase_add_test(shells, bash_completes_folders_and_files_where_they_belong);
    tcase_add_test(shells, zsh_reads_its_completion_and_every_option_is_in_it);
    suite_add_tcase(suite, shells);
    return suite;
}

int main(void)
{
    const char *binary = process_binary();
    if (binary == NULL) {
        fprintf(stderr, "pages_test: there is no k3ring beside the folder of this test\n");
        return EXIT_FAILURE;
    }
    snprintf(build, sizeof build, "%.*s", (int)(strlen(binary) - strlen("/k3ring")), binary);
    tiny_folder(&files, TINY_MEMORY);
    int failed = suite_run(pages_suite());
    tiny_remove(&files);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
