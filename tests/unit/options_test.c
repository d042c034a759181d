/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <poll.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "cache/policy.h"
#include "core/cli/engine_options.h"
#include "core/cli/options.h"
#include "tests/support/suite.h"

#define TIB (1024 * GIB)

struct target {
    bool loud;
    uint64_t count, size, choice, slots;
    struct option_share share;
    const char *text, *kept;
    struct option_list list;
    double real;
};

static const struct option_row rows[] = {
    {"loud", OPTION_FLAG, offsetof(struct target, loud), NULL, 0, 0, NULL, NULL, "says more"},
    OPTION_GROUP("Measures"),
    {"count", OPTION_COUNT, offsetof(struct target, count), "7", 1, 1000, "auto", "N|auto",
     "how many"},
    {"size", OPTION_SIZE, offsetof(struct target, size), "64K", 4096, 16 * GIB, "auto",
     "SIZE|auto", "how large"},
    {"choice", OPTION_CHOICE, offsetof(struct target, choice), "green", 0, 0, "red|green|blue",
     NULL, "which one"},
    {"slots", OPTION_COUNT, offsetof(struct target, slots), "auto", 0, UINT32_MAX, "all|auto",
     "N|all|auto", "how many slots"},
    {"share", OPTION_SHARE, offsetof(struct target, share), "auto", 0, UINT64_MAX / 4, "all|auto",
     "SIZE|N%|all|auto", "how much of it"},
    {"text", OPTION_TEXT, offsetof(struct target, text), NULL, 0, 0, NULL, "PATH", "a path"},
    {"kept", OPTION_TEXT, offsetof(struct target, kept), NULL, 0, 0, NULL, "PATH", "another"},
    {"list", OPTION_LIST, offsetof(struct target, list), NULL, 0, 0, NULL, "DIR", "one more"},
    {"real", OPTION_REAL, offsetof(struct target, real), "0.75", 500, 2000, NULL, "X", "a share"},
};

static const struct command command = {"paint", "FILE [FILE] [options]", "Paints files.", rows,
                                       countof(rows), 1, 2};

static struct target target;
static const char *positional[2];
static bool help;

/* Parses up to four words after the command's name. The target points into words until the next
 * call. */
static int parse(const char *a, const char *b, const char *c, const char *d)
{
    static char words[5][320];
    const char *const typed[] = {"paint", a, b, c, d};
    char *argv[6] = {0};
    int argc = 0;
    for (size_t i = 0; i < countof(typed) && typed[i] != NULL; i++) {
        snprintf(words[i], sizeof words[i], "%s", typed[i]);
        argv[argc++] = words[i];
    }
    err_clear();
    memset(&target, 0, sizeof target);
    target.kept = "kept";
    positional[0] = positional[1] = NULL;
    return options_parse(&command, &target, argc, argv, positional, &help);
}

static void expect_usage(int rc, const char *part)
{
    ck_assert_msg(rc == ERR_USAGE, "returned %d: %s", rc, err_message());
    ck_assert_msg(strstr(err_message(), part) != NULL, "no '%s' in: %s", part, err_message());
    ck_assert_ptr_null(strchr(err_message(), '\n'));
    ck_assert_ptr_null(strstr(err_message(), "(null)"));
}

static const struct {
    const char *text;
    uint64_t bytes;
} sizes[] = {
    {"0", 0}, {"1", 1}, {"4096", 4096}, {"1K", 1024}, {"1k", 1024}, {"1KiB", 1024},
    {"1kib", 1024}, {"1KIB", 1024}, {"512K", 512 * KIB}, {"3M", 3 * MIB}, {"3m", 3 * MIB},
    {"3MiB", 3 * MIB}, {"16G", 16 * GIB}, {"16gib", 16 * GIB}, {"2T", 2 * TIB},
    {"2TiB", 2 * TIB}, {"1.5G", GIB + GIB / 2}, {"1.25GiB", GIB + GIB / 4}, {"0.5K", 512},
    {"0.25T", TIB / 4}, {"007K", 7 * KIB}, {"16777215T", 16777215 * TIB},
    {"18446744073709551615", UINT64_MAX},
};

START_TEST(sizes_are_bytes_or_binary_units_in_any_case)
{
    uint64_t bytes = 42;
    err_clear();
    ck_assert_msg(options_size("size", sizes[_i].text, &bytes) == 0, "%s: %s", sizes[_i].text,
                  err_message());
    ck_assert_msg(bytes == sizes[_i].bytes, "%s is %llu", sizes[_i].text,
                  (unsigned long long)bytes);
}
END_TEST

static const char *const bad_sizes[] = {
    "", " ", "K", "KiB", "iB", "1KB", "1MB", "1GB", "1TB", "1kb", "16iB", "16B", "1P", "1E", "1Z",
    "1,5G", "1,000", "+1G", "-1G", "1e9", "1E9", "0x10", "1.5", "1.", "1.G", ".5G", "1.5.5G",
    "1 G", " 1G", "1G ", "1GG", "1KiBK", "1GiBx", "G1", "one", "1.5e3K", "nan", "inf",
    "16777216T", "18446744073709551616", "99999999999999999999999999", "1_000", "1G\t", "\xd9\xa1",
};

START_TEST(whatever_else_is_no_size)
{
    uint64_t bytes;
    err_clear();
    expect_usage(options_size("size", bad_sizes[_i], &bytes), "--size");
}
END_TEST

START_TEST(of_a_size_that_is_none_what_is_wrong_is_said)
{
    static const struct {
        const char *text, *part;
    } wrong[] = {
        {"1GB", "powers of 1000"}, {"1.5kB", "powers of 1000"}, {"1,25G", "a point"},
        {".5G", "a digit goes"}, {"1,000", "a point"}, {"-1", "negative"},
        {"1 G", "between number and unit"},
        {"16777216T", "more than 2^64"}, {"18446744073709551616", "more than 2^64"},
        {"16777216TiB", "more than 2^64"}};
    uint64_t bytes;
    for (size_t i = 0; i < countof(wrong); i++) {
        err_clear();
        expect_usage(options_size("size", wrong[i].text, &bytes), wrong[i].part);
        ck_assert_ptr_nonnull(strstr(err_message(), "16G or 1.5GiB"));
    }
    err_clear();
    expect_usage(options_size("size", "1Gx", &bytes), "'1Gx' is not a size; write");
}
END_TEST

START_TEST(defaults_are_read_like_typed_values)
{
    ck_assert_int_eq(parse("a", NULL, NULL, NULL), 1);
    ck_assert_str_eq(positional[0], "a");
    ck_assert(!target.loud && !help);
    ck_assert_uint_eq(target.count, 7);
    ck_assert_uint_eq(target.size, 64 * KIB);
    ck_assert_uint_eq(target.choice, 1);
    ck_assert_uint_eq(target.slots, OPTION_AUTO);
    ck_assert_uint_eq(target.share.bytes, OPTION_AUTO);
    ck_assert(target.share.percent < 0);
    ck_assert_ptr_null(target.text);
    ck_assert_str_eq(target.kept, "kept");
}
END_TEST

START_TEST(values_follow_a_blank_or_an_equals_sign)
{
    ck_assert_int_eq(parse("--count", "12", "a", NULL), 1);
    ck_assert_uint_eq(target.count, 12);
    ck_assert_int_eq(parse("a", "--count=13", "--loud", NULL), 1);
    ck_assert_uint_eq(target.count, 13);
    ck_assert(target.loud);
    ck_assert_int_eq(parse("--text=x=y", "a", NULL, NULL), 1);
    ck_assert_str_eq(target.text, "x=y");
    ck_assert_int_eq(parse("--text", "--loud", "a", NULL), 1);
    ck_assert_str_eq(target.text, "--loud");
    ck_assert(!target.loud);
    ck_assert_int_eq(parse("--text=", "a", NULL, NULL), 1);
    ck_assert_str_eq(target.text, "");
    ck_assert_int_eq(parse("--count=1", "--count=2", "a", NULL), 1);
    ck_assert_uint_eq(target.count, 2);
}
END_TEST

START_TEST(counts_and_sizes_stay_in_their_range)
{
    ck_assert_int_eq(parse("a", "--count=1", NULL, NULL), 1);
    ck_assert_int_eq(parse("a", "--count=1000", NULL, NULL), 1);
    expect_usage(parse("a", "--count=0", NULL, NULL), "from 1 to 1000");
    expect_usage(parse("a", "--count=1001", NULL, NULL), "from 1 to 1000");
    expect_usage(parse("a", "--count=1K", NULL, NULL), "--count");
    expect_usage(parse("a", "--count=1.5", NULL, NULL), "--count");
    expect_usage(parse("a", "--count=-1", NULL, NULL), "--count");
    expect_usage(parse("a", "--count=", NULL, NULL), "--count");
    expect_usage(parse("a", "--count=all", NULL, NULL), "--count");
    ck_assert_int_eq(parse("a", "--size=4K", NULL, NULL), 1);
    ck_assert_int_eq(parse("a", "--size=16G", NULL, NULL), 1);
    expect_usage(parse("a", "--size=4095", NULL, NULL), "outside");
    expect_usage(parse("a", "--size=17G", NULL, NULL), "outside");
    expect_usage(parse("a", "--size=5GB", NULL, NULL), "binary units");
    ck_assert_int_eq(parse("a", "--slots=4294967295", NULL, NULL), 1);
    expect_usage(parse("a", "--slots=4294967296", NULL, NULL), "--slots");
}
END_TEST

START_TEST(reals_are_digits_with_a_point)
{
    static const struct {
        const char *typed;
        double value;
    } good[] = {{"--real=1", 1}, {"--real=0.5", 0.5}, {"--real=.5", 0.5}, {"--real=2.000", 2},
                {"--real=1.9999999", 1.9999999}, {"--real=001.5", 1.5}};
    static const char *const wrong[] = {
        "--real=", "--real=.", "--real=1.", "--real=1..5", "--real=1.2.3", "--real=+1",
        "--real=-1", "--real=1e0", "--real=0x1", "--real=nan", "--real=inf", "--real=NaN",
        "--real= 1", "--real=1 ", "--real=1,5", "--real=one", "--real=1K", "--real=1%",
        "--real=0.4999", "--real=2.0001", "--real=99999999999999999999",
        "--real=1.0000000000000000000000000000000000000000000000000000000000000000000000000",
    };
    ck_assert_int_eq(parse("a", NULL, NULL, NULL), 1);
    ck_assert_double_eq(target.real, 0.75);
    for (size_t i = 0; i < countof(good); i++) {
        ck_assert_msg(parse("a", good[i].typed, NULL, NULL) == 1, "%s", err_message());
        ck_assert_double_eq(target.real, good[i].value);
    }
    for (size_t i = 0; i < countof(wrong); i++) {
        expect_usage(parse("a", wrong[i], NULL, NULL), "is not a number from 0.5 to 2");
    }
    double value;
    ck_assert(options_real("-2.5", 4, true, &value));
    ck_assert_double_eq(value, -2.5);
    ck_assert(!options_real("-2.5", 4, false, &value));
    ck_assert(!options_real("-", 1, true, &value) && !options_real("--1", 3, true, &value));
    ck_assert(options_real("12x", 2, true, &value)); /* no further than it is told */
    ck_assert_double_eq(value, 12);
}
END_TEST

START_TEST(words_stand_for_auto_and_all)
{
    ck_assert_int_eq(parse("a", "--count=auto", "--size=auto", NULL), 1);
    ck_assert_uint_eq(target.count, OPTION_AUTO);
    ck_assert_uint_eq(target.size, OPTION_AUTO);
    ck_assert_int_eq(parse("a", "--slots=all", "--share=all", NULL), 1);
    ck_assert_uint_eq(target.slots, OPTION_ALL);
    ck_assert_uint_eq(target.share.bytes, OPTION_ALL);
    ck_assert(target.share.percent < 0);
    expect_usage(parse("a", "--size=all", NULL, NULL), "--size");
    expect_usage(parse("a", "--slots=AUTO", NULL, NULL), "--slots");
    expect_usage(parse("a", "--slots=aut", NULL, NULL), "--slots");
    expect_usage(parse("a", "--slots=all|auto", NULL, NULL), "--slots");
}
END_TEST

START_TEST(shares_are_sizes_or_percents)
{
    ck_assert_int_eq(parse("a", "--share=3G", NULL, NULL), 1);
    ck_assert_uint_eq(target.share.bytes, 3 * GIB);
    ck_assert(target.share.percent < 0);
    ck_assert_int_eq(parse("a", "--share=0%", NULL, NULL), 1);
    ck_assert(target.share.percent == 0.0);
    ck_assert_int_eq(parse("a", "--share=100%", NULL, NULL), 1);
    ck_assert(target.share.percent == 100.0);
    expect_usage(parse("a", "--share=101%", NULL, NULL), "--share");
    expect_usage(parse("a", "--share=-1%", NULL, NULL), "--share");
    expect_usage(parse("a", "--share=%", NULL, NULL), "--share");
    expect_usage(parse("a", "--share=50%%", NULL, NULL), "--share");
    expect_usage(parse("a", "--share=1G%", NULL, NULL), "--share");
}
END_TEST

START_TEST(choices_are_numbered_in_the_order_of_their_words)
{
    static const char *const typed[] = {"--choice=red", "--choice=green", "--choice=blue"};
    for (size_t i = 0; i < countof(typed); i++) {
        ck_assert_int_eq(parse("a", typed[i], NULL, NULL), 1);
        ck_assert_uint_eq(target.choice, i);
    }
    expect_usage(parse("a", "--choice=pink", NULL, NULL), "red|green|blue");
    expect_usage(parse("a", "--choice=", NULL, NULL), "red|green|blue");
    expect_usage(parse("a", "--choice=re", NULL, NULL), "red|green|blue");
    expect_usage(parse("a", "--choice=red|green", NULL, NULL), "red|green|blue");
}
END_TEST

START_TEST(a_missing_value_is_named_with_its_form)
{
    expect_usage(parse("a", "--count", NULL, NULL), "--count needs a value: N|auto");
    expect_usage(parse("a", "--choice", NULL, NULL), "--choice needs a value: red|green|blue");
    expect_usage(parse("a", "--loud=yes", NULL, NULL), "--loud takes no value");
}
END_TEST

START_TEST(an_unknown_option_is_answered_with_the_nearest)
{
    expect_usage(parse("a", "--cuont=3", NULL, NULL), "did you mean --count?");
    expect_usage(parse("a", "--sizes", "3", NULL), "did you mean --size?");
    expect_usage(parse("a", "--Loud", NULL, NULL), "did you mean --loud?");
    expect_usage(parse("a", "--zebra", NULL, NULL), "no option --zebra; ");
    expect_usage(parse("a", "--=3", NULL, NULL), "no option --");
    expect_usage(parse("a", "-q", NULL, NULL), "what is '-q'?");
    char longest[300];
    memset(longest, 'x', sizeof longest);
    longest[0] = longest[1] = '-';
    longest[sizeof longest - 1] = '\0';
    expect_usage(parse("a", longest, NULL, NULL), "no option --xxx");
}
END_TEST

START_TEST(the_nearest_name_is_at_most_two_edits_away_or_cut_short)
{
    static const char *const names[] = {"run", "bench", "plan", NULL};
    ck_assert_str_eq(options_nearest("rnu", names, 4, sizeof names[0]), "run");
    ck_assert_str_eq(options_nearest("bnch", names, 4, sizeof names[0]), "bench");
    ck_assert_str_eq(options_nearest("planet", names, 4, sizeof names[0]), "plan");
    ck_assert_str_eq(options_nearest("RUN", names, 4, sizeof names[0]), "run");
    ck_assert_str_eq(options_nearest("benchmark", names, 4, sizeof names[0]), "bench");
    ck_assert_str_eq(options_nearest("pla", names, 4, sizeof names[0]), "plan");
    ck_assert_ptr_null(options_nearest("platter", names, 4, sizeof names[0]));
    ck_assert_ptr_null(options_nearest("runs of luck", names, 0, sizeof names[0]));
    ck_assert_ptr_null(options_nearest("", names, 4, sizeof names[0]));
    ck_assert_ptr_null(options_nearest("x", names, 4, sizeof names[0]));
}
END_TEST

START_TEST(two_dashes_end_the_options)
{
    ck_assert_int_eq(parse("--", "--loud", NULL, NULL), 1);
    ck_assert_str_eq(positional[0], "--loud");
    ck_assert(!target.loud);
    ck_assert_int_eq(parse("--loud", "--", "-x", "--"), 2);
    ck_assert_str_eq(positional[0], "-x");
    ck_assert_str_eq(positional[1], "--");
    ck_assert(target.loud);
    ck_assert_int_eq(parse("--", "--help", NULL, NULL), 1);
    ck_assert(!help);
    ck_assert_int_eq(parse("-", NULL, NULL, NULL), 1);
    ck_assert_str_eq(positional[0], "-");
}
END_TEST

START_TEST(too_few_or_too_many_words_are_refused)
{
    expect_usage(parse(NULL, NULL, NULL, NULL), "usage: k3ring paint FILE");
    expect_usage(parse("--", NULL, NULL, NULL), "usage: k3ring paint FILE");
    expect_usage(parse("a", "b", "c", NULL), "what is 'c'?");
}
END_TEST

START_TEST(help_wins_over_what_is_missing)
{
    ck_assert_int_ge(parse("--help", NULL, NULL, NULL), 0);
    ck_assert(help);
    ck_assert_int_ge(parse("a", "-h", "c", "d"), 0);
    ck_assert(help);
}
END_TEST

START_TEST(help_lists_every_row_with_its_value_and_default)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    options_help(out, &command);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "usage: k3ring paint FILE [FILE] [options]\n"));
    ck_assert_ptr_nonnull(strstr(text, "\n\nMeasures:\n  --count "));
    ck_assert_ptr_nonnull(strstr(text, "SIZE: bytes, or a number with a binary unit"));
    for (size_t i = 0; i < countof(rows); i++) {
        char wanted[80];
        if (rows[i].type == OPTION_HEADING) {
            continue;
        }
        snprintf(wanted, sizeof wanted, "  --%s ", rows[i].name);
        const char *line = strstr(text, wanted);
        ck_assert_msg(line != NULL, "%s not in\n%s", wanted, text);
        const char *what = strstr(line, rows[i].help);
        ck_assert_ptr_nonnull(what);
        snprintf(wanted, sizeof wanted, "[%s]\n", rows[i].fallback ? rows[i].fallback : "");
        bool shown = strncmp(what + strlen(rows[i].help) + 1, wanted, strlen(wanted)) == 0;
        ck_assert(shown == (rows[i].fallback != NULL));
    }
    ck_assert_ptr_nonnull(strstr(text, "--choice red|green|blue"));
    ck_assert_ptr_null(strstr(text, "(null)"));
    free(text);
}
END_TEST

/* What help says in a terminal of so many columns. Free it. */
static char *help_in_columns(unsigned short columns)
{
    int master, slave;
    struct winsize size = {.ws_row = 24, .ws_col = columns};
    char *text = calloc(1, 16384);
    size_t used = 0;
    bool ended = false;
    ck_assert_ptr_nonnull(text);
    ck_assert_int_eq(openpty(&master, &slave, NULL, NULL, &size), 0);
    pid_t child = fork(); /* a terminal takes little before somebody reads */
    if (child == 0) {
        FILE *out = fdopen(slave, "w");
        options_help(out, &command);
        fclose(out);
        _exit(0);
    }
    /* The slave stays open here: what was written is lost when the last one closes. */
    struct pollfd readable = {.fd = master, .events = POLLIN};
    while (!ended || poll(&readable, 1, 0) > 0) {
        if (poll(&readable, 1, 20) > 0) {
            ssize_t got = read(master, text + used, 16383 - used);
            used += got > 0 ? (size_t)got : 0;
        }
        ended = ended || waitpid(child, NULL, WNOHANG) == child;
    }
    close(slave);
    close(master);
    return text;
}

START_TEST(help_is_as_wide_as_the_terminal)
{
    static const unsigned short columns[] = {20, 60, 80, 100, 300};
    static const size_t most[] = {48, 60, 80, 100, 100};
    for (size_t i = 0; i < countof(columns); i++) {
        char *text = help_in_columns(columns[i]);
        size_t widest = 0;
        ck_assert_ptr_nonnull(strstr(text, "--list"));
        for (const char *line = text; *line != '\0';) {
            size_t length = strcspn(line, "\r\n");
            widest = length > widest ? length : widest;
            line += length + strspn(line + length, "\r\n");
        }
        ck_assert_msg(widest <= most[i] && widest > most[i] - 20, "%zu of %zu columns:\n%s", widest,
                      most[i], text);
        free(text);
    }
}
END_TEST

START_TEST(an_option_of_tests_is_parsed_and_not_shown)
{
    static const struct option_row secret[] = {
        {"open", OPTION_FLAG, offsetof(struct target, loud), NULL, 0, 0, NULL, NULL, "is told"},
        {"hidden", OPTION_COUNT, offsetof(struct target, count), "1", 0, 9, NULL, "N", NULL}};
    static const struct command hiding = {"hide", "", "Hides.", secret, countof(secret), 0, 0};
    char name[] = "hide", option[] = "--hidden=4";
    char *argv[] = {name, option, NULL};
    char *text = NULL;
    size_t size = 0;
    ck_assert_int_eq(options_parse(&hiding, &target, 2, argv, positional, &help), 0);
    ck_assert_uint_eq(target.count, 4);
    FILE *out = open_memstream(&text, &size);
    options_help(out, &hiding);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "--open"));
    ck_assert_ptr_null(strstr(text, "--hidden"));
    free(text);
}
END_TEST

START_TEST(ranges_are_told_in_the_units_of_their_values)
{
    char text[OPTION_RANGE_BYTES];
    static const struct option_row count = {.type = OPTION_COUNT, .min = 1, .max = 1024},
        any = {.type = OPTION_COUNT, .max = UINT64_MAX}, choice = {.type = OPTION_CHOICE},
        size = {.type = OPTION_SIZE, .min = 4096, .max = 16 * MIB},
        least = {.type = OPTION_SIZE, .min = 1536, .max = UINT64_MAX / 4},
        real = {.type = OPTION_REAL, .min = 50, .max = 2000};
    options_range(&count, text);
    ck_assert_str_eq(text, "1 to 1024");
    options_range(&any, text);
    ck_assert_str_eq(text, "");
    options_range(&choice, text);
    ck_assert_str_eq(text, "");
    options_range(&size, text);
    ck_assert_str_eq(text, "4K to 16M");
    options_range(&least, text);
    ck_assert_str_eq(text, "at least 1536");
    options_range(&real, text);
    ck_assert_str_eq(text, "0.050 to 2");
}
END_TEST

START_TEST(a_message_says_what_may_be_typed_instead)
{
    expect_usage(parse("a", "--count=x", NULL, NULL), "from 1 to 1000, nor auto");
    expect_usage(parse("a", "--count", "--size", "4K"), "needs a value: N|auto; '--size' follows");
    expect_usage(parse("a", "--size=1K", NULL, NULL), "4K to 16G");
    expect_usage(parse("a", "--share=most", NULL, NULL), "SIZE|N%|all|auto");
    expect_usage(parse("a", "--choice=gren", NULL, NULL), "did you mean green?");
    expect_usage(parse("-count", "3", "a", NULL), "two dashes: --count N|auto");
    expect_usage(parse("a", "b", "c", NULL), "One word too many");
    expect_usage(parse("--loud", NULL, NULL, NULL), "FILE is missing");
}
END_TEST

START_TEST(policy_words_are_the_policies_in_their_order)
{
    char words[256] = "";
    for (int i = 0; policy_table[i] != NULL; i++) {
        strcat(strcat(words, i > 0 ? "|" : ""), policy_table[i]->name);
    }
    ck_assert_str_eq(words, ENGINE_POLICIES);
}
END_TEST

START_TEST(a_list_takes_one_more_each_time)
{
    ck_assert_int_eq(parse("--list", "a", "--list=b", "file"), 1);
    ck_assert_uint_eq(target.list.count, 2);
    ck_assert_str_eq(target.list.item[0], "a");
    ck_assert_str_eq(target.list.item[1], "b");
    ck_assert_int_eq(parse("file", NULL, NULL, NULL), 1);
    ck_assert_uint_eq(target.list.count, 0);
    char *many[2 * (OPTION_LIST_MAX + 1) + 2] = {(char *)"paint", (char *)"file"};
    int argc = 2;
    for (uint32_t i = 0; i <= OPTION_LIST_MAX; i++) {
        many[argc++] = (char *)"--list";
        many[argc++] = (char *)"x";
    }
    err_clear();
    ck_assert_int_eq(options_parse(&command, &target, argc - 2, many, positional, &help), 1);
    ck_assert_uint_eq(target.list.count, OPTION_LIST_MAX);
    expect_usage(options_parse(&command, &target, argc, many, positional, &help), "--list");
}
END_TEST

static Suite *options_suite(void)
{
    TCase *values = tcase_create("values");
    tcase_add_loop_test(values, sizes_are_bytes_or_binary_units_in_any_case, 0,
                        (int)countof(sizes));
    tcase_add_loop_test(values, whatever_else_is_no_size, 0, (int)countof(bad_sizes));
    tcase_add_test(values, of_a_size_that_is_none_what_is_wrong_is_said);
    tcase_add_test(values, counts_and_sizes_stay_in_their_range);
    tcase_add_test(values, reals_are_digits_with_a_point);
    tcase_add_test(values, words_stand_for_auto_and_all);
    tcase_add_test(values, shares_are_sizes_or_percents);
    tcase_add_test(values, choices_are_numbered_in_the_order_of_their_words);
    tcase_add_test(values, policy_words_are_the_policies_in_their_order);
    TCase *line = tcase_create("command line");
    tcase_add_test(line, defaults_are_read_like_typed_values);
    tcase_add_test(line, values_follow_a_blank_or_an_equals_sign);
    tcase_add_test(line, a_missing_value_is_named_with_its_form);
    tcase_add_test(line, an_unknown_option_is_answered_with_the_nearest);
    tcase_add_test(line, the_nearest_name_is_at_most_two_edits_away_or_cut_short);
    tcase_add_test(line, a_list_takes_one_more_each_time);
    tcase_add_test(line, two_dashes_end_the_options);
    tcase_add_test(line, too_few_or_too_many_words_are_refused);
    tcase_add_test(line, help_wins_over_what_is_missing);
    tcase_add_test(line, help_lists_every_row_with_its_value_and_default);
    tcase_add_test(line, help_is_as_wide_as_the_terminal);
    tcase_add_test(line, an_option_of_tests_is_parsed_and_not_shown);
    tcase_add_test(line, ranges_are_told_in_the_units_of_their_values);
    tcase_add_test(line, a_message_says_what_may_be_typed_instead);
    Suite *suite = suite_create("options");
    suite_add_tcase(suite, values);
    suite_add_tcase(suite, line);
    return suite;
}

int main(void)
{
    return suite_run(options_suite()) == 0 ? 0 : 1;
}
