/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/scan.h"
#include "tests/support/suite.h"

static struct scan start(const char *text)
{
    return scan_start(text, strlen(text));
}

static bool is_value(const char *text)
{
    struct scan scan = start(text);
    return scan_skip(&scan) && scan_finish(&scan);
}

START_TEST(values_of_every_kind_are_taken)
{
    static const char *const good[] = {
        "0", "-0", "12", "1.5", "-1.5e-05", "1E+9", "true", "false", "null", "\"\"", "[]", "{}",
        " [ 1 , [ ] , { } , null ] ", "{\"a\":{\"b\":[1,2,{\"c\":\"d\"}]},\"e\":[]}",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e4\\uD83D\\uDE00\"", "\t\r\n 1 \n"};
    for (size_t i = 0; i < countof(good); i++) {
        ck_assert_msg(is_value(good[i]), "%s", good[i]);
    }
}
END_TEST

START_TEST(malformed_values_are_faults)
{
    static const char *const bad[] = {
        "", " ", "01", "+1", "1.", ".5", "1e", "1e+", "-", "--1", "1-2", "0x10", "nul", "nulll",
        "True", "NaN", "Infinity", "\"", "\"\\\"", "\"\\x\"", "\"\\u12\"", "\"\\u12G4\"",
        "\"\\uD800\"", "\"\\uD800\\u0041\"", "\"\\uDC00\"", "\"\\u0000\"", "\"a\nb\"", "[", "]",
        "[1", "[1,", "[1,]", "[,1]", "[1 2]", "{", "}", "{\"a\"}", "{\"a\":}", "{\"a\":1,}",
        "{a:1}", "{1:1}", "{\"a\":1]", "[1}", "1 1", "{} {}", "[] x", "'a'", "// c\n1"};
    for (size_t i = 0; i < countof(bad); i++) {
        ck_assert_msg(!is_value(bad[i]), "%s", bad[i]);
    }
}
END_TEST

START_TEST(a_zero_byte_is_a_fault_wherever_it_stands)
{
    static const char inside[] = "{\"a\":1,\0\"b\":2}";
    static const char string[] = "\"a\0b\"";
    static const char behind[] = "1\0";
    struct scan scan = scan_start(inside, sizeof inside - 1);
    ck_assert(!scan_skip(&scan));
    scan = scan_start(string, sizeof string - 1);
    ck_assert(!scan_skip(&scan));
    scan = scan_start(behind, sizeof behind - 1);
    ck_assert(scan_skip(&scan) && !scan_finish(&scan));
}
END_TEST

START_TEST(nesting_is_bounded_exactly_and_without_recursion)
{
    const size_t huge = 4000000;
    char *text = malloc(huge);
    ck_assert_ptr_nonnull(text);
    memset(text, '[', JSON_DEPTH_MAX);
    memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
    struct scan scan = scan_start(text, 2 * (size_t)JSON_DEPTH_MAX);
    ck_assert(scan_skip(&scan) && scan_finish(&scan));
    memset(text, '[', huge);
    scan = scan_start(text, huge);
    ck_assert(!scan_skip(&scan));
    ck_assert_uint_eq(scan_offset(&scan), JSON_DEPTH_MAX);
    free(text);
}
END_TEST

START_TEST(integers_only_refuses_signs_fractions_and_exponents)
{
    static const char *const bad[] = {"[-1]", "[128.0]", "[1e3]", "[1E3]", "[1,2,-0]"};
    for (size_t i = 0; i < countof(bad); i++) {
        struct scan scan = start(bad[i]);
        scan.integers_only = true;
        ck_assert_msg(!scan_skip(&scan), "%s", bad[i]);
    }
    struct scan scan = start("{\"-1.5e3\":[0,12]}");
    scan.integers_only = true;
    ck_assert(scan_skip(&scan));
}
END_TEST

START_TEST(whole_numbers_up_to_64_bits_are_exact)
{
    uint64_t value = 0;
    struct scan scan = start("18446744073709551615");
    ck_assert(scan_u64(&scan, &value) && value == UINT64_MAX);
    scan = start(" 0 ");
    ck_assert(scan_u64(&scan, &value) && value == 0);
    static const char *const bad[] = {"18446744073709551616", "99999999999999999999999", "-1",
                                      "1.0", "1e3", "01", "", "x", "\"1\"", "1+1"};
    for (size_t i = 0; i < countof(bad); i++) {
        scan = start(bad[i]);
        ck_assert_msg(!scan_u64(&scan, &value), "%s", bad[i]);
        ck_assert_ptr_nonnull(scan.fault);
    }
}
END_TEST

START_TEST(strings_are_decoded_and_bounded)
{
    char text[16];
    struct scan scan = start("\"plain\" \"\\u00e4\\ud83d\\ude00\" \"a\\nb\" \"\\\"\\\\\\/\"");
    ck_assert(scan_string(&scan, text, sizeof text));
    ck_assert_str_eq(text, "plain");
    ck_assert(scan_string(&scan, text, sizeof text));
    ck_assert_str_eq(text, "\xC3\xA4\xF0\x9F\x98\x80");
    ck_assert(scan_string(&scan, text, sizeof text));
    ck_assert_str_eq(text, "a?b");
    ck_assert(scan_string(&scan, text, sizeof text));
    ck_assert_str_eq(text, "\"\\/");
    scan = start("\"123456789012345\"");
    ck_assert(scan_string(&scan, text, sizeof text));
    scan = start("\"1234567890123456\"");
    ck_assert(!scan_string(&scan, text, sizeof text));
}
END_TEST

/* The fast path looks at eight bytes at once: a special byte must be seen at each position. */
START_TEST(special_bytes_are_seen_at_every_position_of_a_string)
{
    for (size_t length = 1; length < 40; length++) {
        for (size_t at = 0; at < length; at++) {
            char text[64];
            char out[64];
            memset(text, 0xC3, sizeof text);
            text[0] = text[length + 1] = '"';
            struct scan scan = scan_start(text, length + 2);
            ck_assert(scan_string(&scan, out, sizeof out));
            ck_assert_uint_eq(strlen(out), length);
            text[at + 1] = 0x1F;
            scan = scan_start(text, length + 2);
            ck_assert(!scan_string(&scan, out, sizeof out));
            text[at + 1] = '"';
            scan = scan_start(text, length + 2);
            ck_assert(scan_string(&scan, out, sizeof out));
            ck_assert_uint_eq(strlen(out), at);
            text[at + 1] = '\\';
            scan = scan_start(text, length + 2);
            ck_assert(!scan_string(&scan, out, sizeof out));
        }
    }
}
END_TEST

START_TEST(members_are_stepped_through_to_the_closing_bracket)
{
    char key[8];
    uint64_t value = 0;
    uint64_t sum = 0;
    bool first = true;
    struct scan scan = start("{\"a\":1, \"b\" : 20 ,\"c\":300} ");
    ck_assert(scan_expect(&scan, '{'));
    while (scan_next(&scan, '}', &first)) {
        ck_assert(scan_key(&scan, key, sizeof key) && scan_u64(&scan, &value));
        sum += value;
    }
    ck_assert_uint_eq(sum, 321);
    ck_assert(scan_finish(&scan));
    first = true;
    scan = start("{}");
    ck_assert(scan_expect(&scan, '{') && !scan_next(&scan, '}', &first) && scan_finish(&scan));
}
END_TEST

/* The text is not ended by a zero byte: the sanitizers would see a step past its end. */
START_TEST(no_prefix_of_a_text_reads_past_its_end)
{
    static const char text[] = "{\"a\\u00e4\":[1,-2.5e3,true,null],"
                               "\"b\":{\"c\":\"\\ud83d\\ude00\"}}";
    for (size_t size = 0; size < sizeof text - 1; size++) {
        char *copy = malloc(size + (size == 0));
        ck_assert_ptr_nonnull(copy);
        memcpy(copy, text, size);
        struct scan scan = scan_start(copy, size);
        ck_assert(!scan_skip(&scan) || !scan_finish(&scan));
        free(copy);
    }
    ck_assert(is_value(text));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scan");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, values_of_every_kind_are_taken);
    tcase_add_test(all, malformed_values_are_faults);
    tcase_add_test(all, a_zero_byte_is_a_fault_wherever_it_stands);
    tcase_add_test(all, nesting_is_bounded_exactly_and_without_recursion);
    tcase_add_test(all, integers_only_refuses_signs_fractions_and_exponents);
    tcase_add_test(all, whole_numbers_up_to_64_bits_are_exact);
    tcase_add_test(all, strings_are_decoded_and_bounded);
    tcase_add_test(all, special_bytes_are_seen_at_every_position_of_a_string);
    tcase_add_test(all, members_are_stepped_through_to_the_closing_bracket);
    tcase_add_test(all, no_prefix_of_a_text_reads_past_its_end);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
