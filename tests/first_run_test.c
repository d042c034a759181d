/* SPDX-License-Identifier: Apache-2.0 */

/* The first hour with the program: what is typed wrongly, what is given in the place of a model,
 * what is missing. Every answer is one line that says what happened, where, and what to do. */

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cli/commands.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"

#define IDS "--ids 3,141,59"
#define NOBODY 65534

static struct tiny tiny;
static struct tiny broken; /* a copy, or a folder, that a test spoils */

static void setup(void)
{
    tiny_folder(&broken, TINY_MEMORY);
}

static void teardown(void)
{
    tiny_remove(&broken);
}

/* And each of the parts is in the line. */
static void expect_advice(int status, const char *what, const char *where, const char *next)
{
    expect_refusal(status, what);
    ck_assert_msg(strstr(process.err, where) != NULL, "no \"%s\" in: %s", where, process.err);
    ck_assert_msg(strstr(process.err, next) != NULL, "no \"%s\" in: %s", next, process.err);
}

static void make_folder(const char *name)
{
    char path[TINY_PATH_BYTES];
    tiny_path(&broken, name, path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
}

/* ---- words ---- */

START_TEST(without_a_word_all_commands_and_a_first_run_are_shown)
{
    k3ring("%s", "");
    expect(2, "A first run:\n  k3ring synth tiny && k3ring run tiny --ids");
    ck_assert_str_eq(process.out, "");
    for (uint32_t i = 0; i < subcommand_count; i++) {
        char line[64];
        snprintf(line, sizeof line, "\n  %-8s ", subcommands[i].command->name);
        ck_assert_msg(strstr(process.err, line) != NULL, "%s is not listed", line);
    }
}
END_TEST

START_TEST(help_of_a_command_is_its_help_option)
{
    const char *name = subcommands[_i].command->name;
    char text[PROCESS_TEXT_BYTES];
    k3ring("help %s", name);
    expect(0, NULL);
    snprintf(text, sizeof text, "%s", process.out);
    k3ring("%s --help", name);
    expect(0, NULL);
    ck_assert_str_eq(process.out, text);
    ck_assert_str_eq(process.err, "");
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        ck_assert_msg(length <= 80, "%zu columns: %.*s", length, (int)length, line);
        line += length + (line[length] == '\n');
    }
}
END_TEST

START_TEST(a_word_that_is_no_command_is_answered_with_what_was_meant)
{
    k3ring("help rnu");
    expect_advice(2, "no command 'rnu'", "did you mean run?", "k3ring --help");
    k3ring("benchmark %s", tiny.dir);
    expect_advice(2, "no command", "did you mean bench?", "k3ring --help");
    k3ring("%s --prompt Hello", tiny.dir);
    expect_advice(2, "is a folder, not a command", tiny.dir, "k3ring run ");
    k3ring("--ram 16G run %s", tiny.dir);
    expect_advice(2, "command comes before its options", "--ram", "k3ring --help");
}
END_TEST

START_TEST(an_option_typed_wrongly_is_answered_with_what_was_meant)
{
    k3ring("run %s " IDS " --RAM 16G", tiny.dir);
    expect_advice(2, "no option --RAM", "did you mean --ram?", "run --help");
    k3ring("run %s " IDS " -ram 16G", tiny.dir);
    expect_advice(2, "what is '-ram'", "two dashes", "--ram SIZE|auto");
    k3ring("run %s " IDS " --ram --quiet", tiny.dir);
    expect_advice(2, "--ram needs a value", "SIZE|auto", "'--quiet' follows");
    k3ring("run %s " IDS " --io-depth 5000", tiny.dir);
    expect_advice(2, "'5000'", "--io-depth", "from 1 to 1024, nor auto");
    k3ring("run %s " IDS " --tile 64M", tiny.dir);
    expect_advice(2, "64M is outside", "--tile", "4K to 16M");
    k3ring("run %s " IDS " --cache-policy ar", tiny.dir);
    expect_advice(2, "'ar'", "--cache-policy", "did you mean arc?");
    k3ring("run %s " IDS " more", tiny.dir);
    expect_advice(2, "what is 'more'", "One word too many", "run --help");
    k3ring("run " IDS);
    expect_advice(2, "MODEL is missing", "usage: k3ring run MODEL", "run --help");
    k3ring("batch %s --out x", tiny.dir);
    expect_advice(2, "IN.jsonl is missing", "usage: k3ring batch MODEL", "batch --help");
}
END_TEST

/* ---- what is no model ---- */

static const char *const readers[] = {"run", "plan", "doctor", "bench", "pack"};

/* The command line of each that reads a model in `broken`, or a path in it. */
static void read_model(const char *command, const char *path)
{
    const char *more = strcmp(command, "run") == 0   ? " " IDS
                       : strcmp(command, "pack") == 0 ? " /nonexistent/out"
                                                       : "";
    k3ring("%s %s/%s%s", command, broken.dir, path, more);
}

START_TEST(a_folder_that_is_not_there_is_named_by_every_command)
{
    for (size_t i = 0; i < countof(readers); i++) {
        read_model(readers[i], "absent");
        expect_advice(3, "there is no such folder", "/absent", "k3ring synth");
    }
}
END_TEST

START_TEST(a_name_of_a_hub_is_answered_with_how_to_download_it)
{
    k3ring("run owner/Model-1 " IDS);
    expect_advice(3, "owner/Model-1: there is no such folder", "hf download owner/Model-1",
                  "give that folder");
    k3ring("run ./owner/Model-1 " IDS);
    expect_advice(3, "there is no such folder", "owner/Model-1", "k3ring synth");
}
END_TEST

START_TEST(an_empty_folder_is_called_empty)
{
    read_model("run", "");
    expect_advice(3, "is an empty folder", broken.dir, "config.json");
    k3ring("run %s --prompt Hello", broken.dir);
    expect_advice(3, "is an empty folder", broken.dir, "config.json");
}
END_TEST

START_TEST(a_folder_above_the_model_is_answered_with_the_one_meant)
{
    char below[TINY_PATH_BYTES];
    make_folder("snapshots");
    make_folder("snapshots/0123abcd");
    tiny_put(&broken, "snapshots/0123abcd/config.json", "{}", 2);
    tiny_path(&broken, "snapshots/0123abcd", below);
    k3ring("run %s " IDS, broken.dir);
    expect_advice(3, "holds no config.json", below, "give that folder");
    k3ring("plan %s/snapshots", broken.dir);
    expect_advice(3, "holds no config.json", below, "give that folder");
}
END_TEST

START_TEST(a_folder_of_other_things_is_answered_with_what_belongs_there)
{
    tiny_put(&broken, "notes.txt", "x", 1);
    k3ring("run %s " IDS, broken.dir);
    expect_advice(3, "holds no config.json", broken.dir, "*.safetensors");
}
END_TEST

START_TEST(gguf_is_named_wherever_it_is_given)
{
    tiny_put(&broken, "k3-q4.gguf", "GGUF\3\0\0\0", 8);
    read_model("run", "k3-q4.gguf");
    expect_advice(3, "is a GGUF file", "/k3-q4.gguf", "safetensors");
    k3ring("run %s " IDS, broken.dir);
    expect_advice(3, "holds GGUF files", broken.dir, "safetensors");
    k3ring("tokenize %s/k3-q4.gguf", broken.dir);
    expect_advice(3, "is a GGUF file (8 bytes)", "/k3-q4.gguf", "safetensors");
}
END_TEST

START_TEST(a_shard_in_place_of_its_folder_is_answered_with_the_folder)
{
    k3ring("run %s/%s " IDS, tiny.dir, tiny_shard(0));
    expect_advice(3, "is not a folder", tiny_shard(0), "give the one it lies in");
    tiny_put(&broken, "alone.bin", "x", 1);
    read_model("run", "alone.bin");
    expect_advice(3, "is not a folder", "alone.bin", "config.json");
}
END_TEST

START_TEST(a_missing_shard_is_counted_and_named)
{
    struct tiny copy;
    char path[TINY_PATH_BYTES];
    tiny_copy(&copy, &tiny, TINY_MEMORY);
    tiny_path(&copy, tiny_shard(1), path);
    ck_assert_int_eq(unlink(path), 0);
    k3ring("run %s " IDS, copy.dir);
    expect_advice(3, "1 of the 3 shards named by the index is missing", tiny_shard(1), "fetch it");
    tiny_remove(&copy);
}
END_TEST

/* A download cache holds links; without the index all shards would be taken. */
START_TEST(a_link_to_no_index_is_told)
{
    struct tiny copy;
    char path[TINY_PATH_BYTES];
    static const char *const targets[][2] = {{"../blobs/absent", "No such file"},
                                             {"model.safetensors.index.json", "symbolic links"}};
    tiny_copy(&copy, &tiny, TINY_MEMORY);
    tiny_path(&copy, "model.safetensors.index.json", path);
    for (size_t i = 0; i < countof(targets); i++) {
        ck_assert_int_eq(unlink(path), 0);
        ck_assert_int_eq(symlink(targets[i][0], path), 0);
        k3ring("run %s " IDS, copy.dir);
        expect_advice(3, targets[i][1], path, "fetch the index again");
    }
    tiny_remove(&copy);
}
END_TEST

static const struct {
    const char *file, *text, *what, *next;
} pointers[] = {
    {"config.json", "version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer",
     "hf download"},
    {"config.json", "<!DOCTYPE html><html></html>", "HTML page", "fetch it again"},
    {"config.json", "", "is empty", "fetch it again"},
    {"config.json", "\xEF\xBB\xBF{}", "byte order mark", "save it as UTF-8"},
    {"model.safetensors.index.json", "\xFF\xFE{", "is UTF-16", "save it as UTF-8"},
    {"model.safetensors.index.json", "<html></html>", "HTML page", "fetch it again"},
    {"model.safetensors.index.json", "version https://git-lfs", "Git LFS pointer", "hf download"},
};

START_TEST(what_a_server_sent_instead_of_a_file_is_named)
{
    struct tiny copy;
    tiny_copy(&copy, &tiny, TINY_MEMORY);
    tiny_put(&copy, pointers[_i].file, pointers[_i].text, strlen(pointers[_i].text));
    k3ring("run %s " IDS, copy.dir);
    expect_advice(3, pointers[_i].what, pointers[_i].file, pointers[_i].next);
    tiny_remove(&copy);
}
END_TEST

START_TEST(text_without_a_tokenizer_is_answered_with_three_ways_out)
{
    k3ring("run %s --prompt Hello", tiny.dir);
    expect_advice(3, "holds no tiktoken.model", "--tokenizer", "--ids");
    k3ring("chat %s", tiny.dir); /* which takes no ids itself */
    expect_advice(3, "holds no tiktoken.model", "--tokenizer", "k3ring run --ids");
}
END_TEST

static void take_over(const char *name, char text[PROCESS_TEXT_BYTES])
{
    size_t size;
    char *said = (char *)tiny_read(&folder, name, &size);
    snprintf(text, PROCESS_TEXT_BYTES, "%.*s", (int)size, said);
    free(said);
}

/* As somebody who may not read, wherever the program lies: it is opened before. */
static void as_nobody(const char *path)
{
    char program[64];
    int status;
    int fd = open(process_binary(), O_PATH);
    ck_assert_int_ge(fd, 0);
    snprintf(program, sizeof program, "/proc/self/fd/%d", fd);
    ck_assert_int_eq(chmod(folder.dir, 0777), 0);
    pid_t child = fork();
    if (child == 0) {
        bool dropped = setgid(NOBODY) == 0 && setuid(NOBODY) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0;
        process_start(&process, folder.dir, program, "run %s " IDS, path);
        process_wait(&process);
        _exit(dropped ? process.status : 99);
    }
    close(fd);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    process.status = WEXITSTATUS(status);
    take_over("out", process.out);
    take_over("err", process.err);
}

START_TEST(what_may_not_be_read_is_named_with_who_must_allow_it)
{
    char path[TINY_PATH_BYTES], file[TINY_PATH_BYTES];
    if (getuid() != 0) {
        printf("skip: only root can become somebody who may not read\n");
        return;
    }
    make_folder("closed");
    tiny_path(&broken, "closed", path);
    tiny_put(&broken, "closed/config.json", "{}", 2);
    ck_assert_int_eq(chmod(broken.dir, 0755), 0);
    as_nobody(path);
    expect_advice(3, "Permission denied", path, "allow this user");
    ck_assert_int_eq(chmod(path, 0755), 0);
    tiny_path(&broken, "closed/config.json", file);
    ck_assert_int_eq(chmod(file, 0), 0);
    as_nobody(path);
    expect_advice(3, "Permission denied", "config.json", "allow this user");
    ck_assert_int_eq(chmod(broken.dir, 0), 0);
    as_nobody(path);
    expect_advice(3, "Permission denied", broken.dir, "let this user");
    ck_assert_int_eq(chmod(broken.dir, 0700), 0);
}
END_TEST

/* ---- too little ---- */

START_TEST(too_little_ram_is_answered_with_how_much_is_needed)
{
    k3ring("run %s " IDS " --ram 1M", tiny.dir);
    expect_advice(4, "needs ", "--ram allows 1048576", "--ram ");
}
END_TEST

static Suite *first_run_suite(void)
{
    Suite *suite = suite_create("first run");
    TCase *words = tcase_create("words");
    tcase_set_timeout(words, 300);
    tcase_add_test(words, without_a_word_all_commands_and_a_first_run_are_shown);
    tcase_add_loop_test(words, help_of_a_command_is_its_help_option, 0, (int)subcommand_count);
    tcase_add_test(words, a_word_that_is_no_command_is_answered_with_what_was_meant);
    tcase_add_test(words, an_option_typed_wrongly_is_answered_with_what_was_meant);
    suite_add_tcase(suite, words);
    TCase *models = tcase_create("models");
    tcase_set_timeout(models, 300);
    tcase_add_checked_fixture(models, setup, teardown);
    tcase_add_test(models, a_folder_that_is_not_there_is_named_by_every_command);
    tcase_add_test(models, a_name_of_a_hub_is_answered_with_how_to_download_it);
    tcase_add_test(models, an_empty_folder_is_called_empty);
    tcase_add_test(models, a_folder_above_the_model_is_answered_with_the_one_meant);
    tcase_add_test(models, a_folder_of_other_things_is_answered_with_what_belongs_there);
    tcase_add_test(models, gguf_is_named_wherever_it_is_given);
    tcase_add_test(models, a_shard_in_place_of_its_folder_is_answered_with_the_folder);
    tcase_add_test(models, a_missing_shard_is_counted_and_named);
    tcase_add_test(models, a_link_to_no_index_is_told);
    tcase_add_loop_test(models, what_a_server_sent_instead_of_a_file_is_named, 0,
                        (int)countof(pointers));
    tcase_add_test(models, text_without_a_tokenizer_is_answered_with_three_ways_out);
    tcase_add_test(models, what_may_not_be_read_is_named_with_who_must_allow_it);
    tcase_add_test(models, too_little_ram_is_answered_with_how_much_is_needed);
    suite_add_tcase(suite, models);
    return suite;
}

int main(void)
{
    if (process_binary() == NULL) {
        fprintf(stderr, "first_run_test: there is no k3ring beside the folder of this test\n");
        return EXIT_FAILURE;
    }
    tiny_make(&tiny, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    int failed = suite_run(first_run_suite());
    tiny_remove(&tiny);
    tiny_remove(&folder);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
