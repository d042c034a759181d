/* SPDX-License-Identifier: Apache-2.0 */

/* Pages as text. With a file as its argument, leaves a page with everything there; further
 * arguments are SVG files to show in it. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/cli/html.h"
#include "core/cli/picture.h"
#include "tests/support/suite.h"

static char dir[64], path[128];
static const char *keep; /* where the demonstration stays */
static char **pictures;
static int picture_count;

static void setup(void)
{
    snprintf(dir, sizeof dir, "/tmp/k3ring-html-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/page.html", dir);
    err_clear();
}

static void teardown(void)
{
    unlink(path);
    ck_assert_int_eq(rmdir(dir), 0);
}

/* The page ends, and holds part as often as said. */
static void expect_holds(struct html *page, const char *part, int times)
{
    struct file_text text;
    int found = 0;
    ck_assert_int_eq(html_close(page), 0);
    ck_assert_int_eq(file_read(path, MIB, &text), 0);
    for (const char *at = text.text; (at = strstr(at, part)) != NULL; at++) {
        found++;
    }
    ck_assert_msg(found == times, "%d times, not %d: %s in %s", found, times, part, text.text);
    ck_assert_ptr_nonnull(strstr(text.text, "</html>\n"));
    ck_assert_ptr_null(strstr(text.text, "<script"));
    ck_assert_ptr_null(strstr(text.text, "http://"));
    ck_assert_ptr_null(strstr(text.text, "https://"));
    file_text_free(&text);
}

static struct html begun(const char *title)
{
    struct html page;
    ck_assert_int_eq(html_open(&page, path, title), 0);
    return page;
}

#define HOSTILE "<b>&\"'</b>\x01\xff"
#define HARMLESS "&lt;b&gt;&amp;&quot;&#39;&lt;/b&gt;?" "?"

START_TEST(every_text_is_escaped)
{
    const char *const cells[] = {HOSTILE, NULL};
    struct html page = begun(HOSTILE); /* twice: title and heading */
    html_section(&page, HOSTILE);
    html_paragraph(&page, HOSTILE);
    html_note(&page, HTML_BAD, HOSTILE);
    html_table_begin(&page, HOSTILE, cells, 2, 1);
    html_table_row(&page, cells, HTML_PLAIN);
    html_table_end(&page);
    html_preformatted(&page, HOSTILE);
    html_svg(&page, NULL, HOSTILE);
    expect_holds(&page, HARMLESS, 10);
}
END_TEST

START_TEST(tables_set_text_to_the_left_and_rows_in_their_tone)
{
    const char *const heads[] = {"policy", "GB/s"}, *const row[] = {"arc", "7.1"};
    struct html page = begun("t");
    html_table_begin(&page, NULL, heads, 2, 1);
    html_table_row(&page, row, HTML_GOOD);
    html_table_end(&page);
    expect_holds(&page, "<tr class=\"good\"><td class=\"text\">arc</td><td>7.1</td></tr>", 1);
}
END_TEST

START_TEST(sections_end_where_the_next_begins)
{
    struct html page = begun("t");
    html_section(&page, "one");
    html_section(&page, "two");
    expect_holds(&page, "</section>\n", 2);
}
END_TEST

START_TEST(lines_of_reports_stay_lines)
{
    struct html page = begun("t");
    html_preformatted(&page, "a  b\n\tc\n");
    expect_holds(&page, "<pre>a  b\n\tc\n</pre>", 1);
}
END_TEST

START_TEST(pictures_stand_in_the_page_itself)
{
    struct html page = begun("t");
    html_svg(&page, "<svg id='x'></svg>", "below");
    expect_holds(&page, "<svg id='x'></svg></div>\n<figcaption>below</figcaption>", 1);
}
END_TEST

START_TEST(an_abandoned_page_is_not_there)
{
    struct html page = begun("t"), none = {.columns = 0};
    html_abandon(&page);
    html_abandon(&none);
    ck_assert(!file_exists(path));
    ck_assert_int_eq(html_open(&page, "/nonexistent/page.html", "t"), ERR_OUTPUT);
}
END_TEST

START_TEST(a_full_drive_is_an_error_at_the_end)
{
    struct html page;
    if (access("/dev/full", W_OK) != 0) {
        printf("skip: no /dev/full\n");
        return;
    }
    ck_assert_int_eq(html_open(&page, "/dev/full", "t"), 0);
    ck_assert_int_eq(html_close(&page), ERR_OUTPUT);
}
END_TEST

/* ---- to be looked at ---- */

static void show_pictures(struct html *page)
{
    for (int i = 0; i < picture_count; i++) {
        struct file_text svg;
        char prefix[16];
        snprintf(prefix, sizeof prefix, "p%d", i);
        ck_assert_int_eq(file_read(pictures[i], 64 * MIB, &svg), 0);
        char *clean = picture_svg_clean(svg.text, svg.size_bytes, prefix);
        html_svg(page, clean, pictures[i]);
        free(clean);
        file_text_free(&svg);
    }
}

START_TEST(a_page_with_everything_is_written)
{
    static const char *const heads[] = {"metric", "unit", "median", "95 % of the mean", "p50",
                                        "p95", "p99", "p99.9", "max", "remark"};
    static const char *const row[] = {"tokens_per_second", "tokens/s", "0.0511",
                                      "0.0506..0.0516", "0.0511", "0.0514", "0.0515", "0.0516",
                                      "0.0517", "the drive was at its limit all of the time"};
    struct html page;
    const char *place = keep != NULL ? keep : path;
    ck_assert_int_eq(html_open(&page, place, "k3ring bench: /data/Kimi-K3"), 0);
    html_note(&page, HTML_GOOD, "Valid: the drive was idle before, no throttling, 5 repeats.");
    html_note(&page, HTML_BAD, "INVALID: temperature passed 80 degrees in repeat 3.");
    html_note(&page, HTML_PLAIN, "a-very-long-name-without-any-space/of-a-folder/"
                                 "that-goes-on-and-on-and-on-and-on-and-on-and-on-and-on/model");
    html_section(&page, "Figures");
    html_paragraph(&page, "Reads of a real inference, gated by its compute; medians of repeats.");
    html_table_begin(&page, "All repeats", heads, countof(heads), 1 | 2 | 512);
    html_table_row(&page, row, HTML_PLAIN);
    html_table_row(&page, row, HTML_GOOD);
    html_table_row(&page, row, HTML_BAD);
    html_table_end(&page);
    html_section(&page, "Report");
    html_preformatted(&page, "read: IOPS=1710, BW=6.69GiB/s (7.18GB/s)(134GiB/20.0s)\n"
                             "    clat percentiles (usec): |  1.00th=[  310], 50.00th=[ 4359], "
                             "99.00th=[ 9110], 99.90th=[12000], 99.99th=[13000]\n");
    html_section(&page, "Pictures");
    show_pictures(&page);
    html_svg(&page, NULL, "one that could not be drawn");
    ck_assert_int_eq(html_close(&page), 0);
}
END_TEST

static Suite *html_suite(void)
{
    Suite *suite = suite_create("html");
    TCase *tcase = tcase_create("html");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, every_text_is_escaped);
    tcase_add_test(tcase, tables_set_text_to_the_left_and_rows_in_their_tone);
    tcase_add_test(tcase, sections_end_where_the_next_begins);
    tcase_add_test(tcase, lines_of_reports_stay_lines);
    tcase_add_test(tcase, pictures_stand_in_the_page_itself);
    tcase_add_test(tcase, an_abandoned_page_is_not_there);
    tcase_add_test(tcase, a_full_drive_is_an_error_at_the_end);
    tcase_add_test(tcase, a_page_with_everything_is_written);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    keep = argc > 1 ? argv[1] : NULL;
    pictures = argv + 2;
    picture_count = argc > 2 ? argc - 2 : 0;
    return suite_run(html_suite()) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
