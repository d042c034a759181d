/* SPDX-License-Identifier: Apache-2.0 */

/* Pictures with a stand-in for gnuplot, then with gnuplot itself where it is installed. With a
 * folder as its argument, leaves pictures of every kind there, to be looked at. */

#include <check.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/cli/picture.h"
#include "tests/support/suite.h"

/* Makes what gnuplot would, from what it is told: -d -e part='..' script. */
#define STAND_IN "#!/bin/sh\neval \"$3\"\nname=${4%.gp}\n" \
                 "echo '<svg>drawn</svg>' >\"$name.svg$part\"\necho png >\"$name.png$part\"\n"

#define USUAL_PATH "/usr/local/bin:/usr/bin:/bin"

static const char *keep; /* a folder for the pictures of every kind */
static char dir[64], tools[64];

static void make_dir(char name[64], const char *template)
{
    snprintf(name, 64, "%s", template);
    ck_assert_ptr_nonnull(mkdtemp(name));
}

/* Files of a folder; removes them, and it, when asked to. */
static int files(const char *folder, bool removing)
{
    int count = 0;
    DIR *stream = opendir(folder);
    for (const struct dirent *e; stream != NULL && (e = readdir(stream)) != NULL;) {
        char full[400];
        snprintf(full, sizeof full, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.') {
            count++;
            ck_assert_int_eq(removing ? remove(full) : 0, 0);
        }
    }
    ck_assert_int_eq(stream != NULL ? closedir(stream) : 0, 0);
    ck_assert_int_eq(removing ? rmdir(folder) : 0, 0);
    return count;
}

static void setup(void)
{
    make_dir(dir, "/tmp/k3ring-picture-XXXXXX");
    make_dir(tools, "/tmp/k3ring-tools-XXXXXX");
    ck_assert_int_eq(setenv("PATH", USUAL_PATH, 1), 0);
    err_clear();
}

static void teardown(void)
{
    ck_assert_int_eq(setenv("PATH", USUAL_PATH, 1), 0);
    files(dir, true);
    files(tools, true);
}

/* A gnuplot of the test's own, or none when text is NULL. */
static void stand_in(const char *text)
{
    char full[128], path[160];
    snprintf(path, sizeof path, "%s:/bin:/usr/bin", tools);
    snprintf(full, sizeof full, "%s/gnuplot", tools);
    FILE *file = text != NULL ? fopen(full, "w") : NULL;
    if (file != NULL) {
        fputs(text, file);
        ck_assert_int_eq(fclose(file), 0);
        ck_assert_int_eq(chmod(full, 0755), 0);
    }
    ck_assert_int_eq(setenv("PATH", text != NULL ? path : tools, 1), 0);
}

static char *content(const char *name)
{
    struct file_text text;
    char full[160];
    snprintf(full, sizeof full, "%s/%s", dir, name);
    ck_assert_msg(file_read(full, 64 * MIB, &text) == 0, "%s", err_message());
    char *copy = strdup(text.text);
    file_text_free(&text);
    return copy;
}

static void expect_part(const char *name, const char *part)
{
    char *text = content(name);
    ck_assert_msg(strstr(text, part) != NULL, "no \"%s\" in %s:\n%s", part, name, text);
    free(text);
}

static const double steps[] = {1, 2, 4, 8, 16}, rates[] = {10, 19, 36, 50, 52},
                    floors[] = {9, 17, 35, 48, 51}, tops[] = {12, 21, 37, 51, 54};

static struct picture simple(void)
{
    return (struct picture){
        .name = "rates", .title = "Rates", .x = {.label = "depth"}, .y = {.label = "GB/s"},
        .series = {{.name = "ours", .kind = PICTURE_LINES, .count = 5, .x = steps, .y = rates}},
        .series_count = 1};
}

START_TEST(four_files_appear_under_their_names)
{
    struct picture p = simple();
    stand_in(STAND_IN);
    ck_assert_int_eq(picture_write(dir, &p), 0);
    expect_part("rates.dat", "\n4 36\n");
    expect_part("rates.gp", "set ylabel 'GB/s'");
    expect_part("rates.svg", "drawn");
    expect_part("rates.png", "png");
    ck_assert_int_eq(files(dir, false), 4);
}
END_TEST

START_TEST(the_folder_is_made)
{
    struct picture p = simple();
    char inside[100], file[160];
    stand_in(STAND_IN);
    snprintf(inside, sizeof inside, "%s/new", dir);
    snprintf(file, sizeof file, "%s/rates.png", inside);
    ck_assert_int_eq(picture_write(inside, &p), 0);
    ck_assert(file_exists(file));
    ck_assert_int_eq(files(inside, true), 4);
}
END_TEST

START_TEST(a_folder_that_cannot_be_is_an_error)
{
    ck_assert_int_eq(picture_folder("/dev/null"), ERR_OUTPUT);
    err_clear();
    ck_assert_int_eq(picture_folder("/nonexistent/x"), ERR_OUTPUT);
    ck_assert_ptr_nonnull(strstr(err_message(), "/nonexistent/x"));
}
END_TEST

START_TEST(without_gnuplot_data_and_script_are_there)
{
    struct picture p = simple();
    stand_in(NULL);
    ck_assert_int_eq(picture_write(dir, &p), 1);
    ck_assert_int_eq(files(dir, false), 2);
    expect_part("rates.gp", "rates.dat");
    ck_assert_ptr_null(picture_svg_inline(dir, "rates"));
    ck_assert_str_eq(err_message(), "");
}
END_TEST

START_TEST(a_gnuplot_that_fails_leaves_no_half_picture)
{
    static const char *const bad[] = {
        "#!/bin/sh\necho part >rates.svg.tmp.1\necho no font >&2\nexit 1\n",
        "#!/bin/sh\neval \"$3\"\necho half >rates.svg$part\nkill -9 $$\n",
        "#!/bin/sh\nexit 0\n"};
    struct picture p = simple();
    stand_in(bad[_i]);
    int rc = picture_write(dir, &p);
    ck_assert_int_eq(rc, _i == 2 ? ERR_OUTPUT : 1);
    ck_assert_int_eq(files(dir, false), _i == 0 ? 3 : 2); /* 0: a file of its own */
}
END_TEST

START_TEST(a_great_deal_of_talk_does_not_block)
{
    struct picture p = simple();
    stand_in("#!/bin/sh\nhead -c 300000 /dev/zero | tr '\\0' x\nexit 3\n");
    ck_assert_int_eq(picture_write(dir, &p), 1);
}
END_TEST

START_TEST(texts_cannot_leave_their_quotes)
{
    struct picture p = simple();
    const char *const names[] = {"100 %d", "it's\n`id`"};
    p.title = "a'; system('touch pwned'); '\nset output 'x'\x01\xff";
    p.series[0].name = "'\\";
    p.x.names = names;
    p.x.name_count = 2;
    stand_in(STAND_IN);
    ck_assert_int_eq(picture_write(dir, &p), 0);
    expect_part("rates.gp",
                "set title 'a''; system(''touch pwned''); '' set output ''x''?" "?' font");
    expect_part("rates.gp", "title '''\\'");
    expect_part("rates.gp", "('100 %%d' 0, 'it''s `id`' 1)");
    expect_part("rates.dat", "# a'; system('touch pwned'); ' set output 'x'??\n");
}
END_TEST

START_TEST(what_is_not_finite_is_a_gap)
{
    static const double y[] = {1, NAN, INFINITY, 4, -INFINITY};
    struct picture p = simple();
    p.series[0].y = y;
    stand_in(STAND_IN);
    ck_assert_int_eq(picture_write(dir, &p), 0);
    expect_part("rates.dat", "1 1\n2 NaN\n4 NaN\n8 4\n16 NaN\n");
}
END_TEST

/* ---- SVG inside HTML ---- */

static void expect_clean(const char *svg, const char *clean)
{
    char *got = picture_svg_clean(svg, strlen(svg), "p");
    ck_assert_ptr_nonnull(got);
    ck_assert_str_eq(got, clean);
    free(got);
}

START_TEST(ids_become_the_pictures_own)
{
    expect_clean("<?xml version='1.0'?>\n<!DOCTYPE svg>\n<svg a=\"1\"><g id='x'/></svg>",
                 "<svg a=\"1\"><g id='p-x'/></svg>");
    expect_clean("<svg><a id=\"y\" xlink:href='#x' href=\"#y\" fill=\"url(#z)\"/></svg>",
                 "<svg><a id=\"p-y\" xlink:href='#p-x' href=\"#p-y\" fill=\"url(#p-z)\"/></svg>");
    expect_clean("<svg><!-- id='x' --><script>bad</script><title>t</title><text>id</text></svg>",
                 "<svg><text>id</text></svg>");
}
END_TEST

START_TEST(what_is_no_svg_is_refused_and_what_is_cut_off_ends)
{
    ck_assert_ptr_null(picture_svg_clean("text", 4, "p"));
    ck_assert_ptr_null(picture_svg_clean("", 0, "p"));
    ck_assert_ptr_null(picture_svg_clean("<sv", 3, "p"));
    expect_clean("<svg><!-- no end", "<svg>");
    expect_clean("<svg id='", "<svg id='p-");
}
END_TEST

/* ---- gnuplot itself ---- */

static bool have_gnuplot(void)
{
    struct picture p = simple();
    if (picture_write(dir, &p) == 0) {
        return true;
    }
    printf("skip: gnuplot is not installed\n");
    return false;
}

/* Draws it and looks at what a reader would see. */
static void expect_drawn(const struct picture *p, const char *seen)
{
    struct stat st;
    char full[160];
    ck_assert_msg(picture_write(dir, p) == 0, "%s: %s", p->title, err_message());
    snprintf(full, sizeof full, "%s/%s.png", dir, p->name);
    ck_assert_int_eq(stat(full, &st), 0);
    ck_assert_int_gt(st.st_size, 1000);
    char *svg = picture_svg_inline(dir, p->name);
    ck_assert_ptr_nonnull(svg);
    ck_assert_msg(strncmp(svg, "<svg", 4) == 0, "%.40s", svg);
    ck_assert_msg(strstr(svg, seen) != NULL, "no %s in %s", seen, svg);
    ck_assert_ptr_null(strstr(svg, "id='gp"));
    free(svg);
}

START_TEST(texts_arrive_as_they_are)
{
    struct picture p = simple();
    const char *const names[] = {"100 %d", "b_{x}", "c`d`", "e\\n", "f\"g"};
    if (!have_gnuplot()) {
        return;
    }
    p.title = "a_b^{c} it's µs `id` \"q\" \\n @x";
    p.series[0].name = "k_1 'x' % \\t";
    p.x.names = names;
    p.x.name_count = 5;
    p.x.low = 0;
    p.x.high = 5;
    expect_drawn(&p, "a_b^{c} it's µs `id` \"q\" \\n @x</text>");
    expect_drawn(&p, "k_1 'x' % \\t</text>");
    expect_drawn(&p, "<text>100 %d</text>");
    expect_drawn(&p, "<text>b_{x}</text>");
    expect_drawn(&p, "<text>c`d`</text>");
}
END_TEST

START_TEST(poor_data_still_make_a_picture)
{
    static const double none[] = {NAN, NAN}, zero[] = {0, 0, 0, 0, 0}, minus[] = {-1, 0, 2, 3, 9};
    struct picture p = simple();
    if (!have_gnuplot()) {
        return;
    }
    p.series[0].count = 0;
    expect_drawn(&p, "no data");
    p.series[0] = (struct picture_series){.kind = PICTURE_LINES, .count = 2, .x = none, .y = none};
    expect_drawn(&p, "no data");
    for (int kind = PICTURE_LINES; kind <= PICTURE_SPANS; kind++) {
        p = simple();
        p.series[0].kind = (enum picture_kind)kind;
        p.series[0].low = p.series[0].high = p.series[0].y;
        p.series[0].x_end = tops;
        p.y.log = p.x.log = kind != PICTURE_SPANS;
        p.series[0].count = 1;
        expect_drawn(&p, "Rates");
        p.series[0].count = 5;
        p.series[0].y = minus;
        expect_drawn(&p, "Rates");
        p.series[0].y = zero;
        expect_drawn(&p, "Rates");
        p.y.from_zero = true;
        expect_drawn(&p, "Rates");
    }
    p.series_count = 0;
    expect_drawn(&p, "no data");
}
END_TEST

START_TEST(the_script_draws_again_in_its_folder)
{
    struct picture p = simple();
    char command[200], full[160];
    if (!have_gnuplot()) {
        return;
    }
    expect_drawn(&p, "Rates");
    snprintf(full, sizeof full, "%s/rates.svg", dir);
    ck_assert_int_eq(remove(full), 0);
    snprintf(command, sizeof command, "cd %s && gnuplot rates.gp", dir);
    ck_assert_int_eq(system(command), 0);
    expect_part("rates.svg", "Rates</text>");
    expect_part("rates.gp", "'#0072B2'");
}
END_TEST

/* ---- to be looked at ---- */

static void demo_bars(void)
{
    static const char *const names[] = {"trunk", "experts", "embed", "head", "slab pages",
                                        "compute"};
    static const double x[] = {0, 1, 2, 3, 4, 5}, a[] = {1207, 201, 0.1, 93, 0, 42},
                        b[] = {800, 169, 0.3, 80, 3, 18}, low[] = {700, 150, 0.2, 70, 1, 12},
                        high[] = {930, 180, 0.4, 99, 7, 25};
    struct picture p = {
        .name = "bars", .title = "Where a token's time goes",
        .x = {.label = "waiting for", .names = names, .name_count = 6},
        .y = {.label = "time of a token (ms)"},
        .series = {{.name = "depth 8", .kind = PICTURE_BARS, .count = 6, .x = x, .y = a},
                   {.name = "depth 16", .kind = PICTURE_BOXES, .count = 6, .x = x, .y = b,
                    .low = low, .high = high}},
        .series_count = 2};
    expect_drawn(&p, "trunk");
}

static void demo_spans(void)
{
    static const char *const rows[] = {"drive 0", "drive 1", "worker 0", "worker 1"};
    static const double begin[] = {0, 12, 30, 0, 20}, end[] = {10, 28, 55, 18, 50},
                        row[] = {0, 0, 0, 1, 1}, busy[] = {10, 20, 30}, done[] = {19, 29, 60},
                        who[] = {2, 2, 3}, wait[] = {0, 0}, waited[] = {10, 30}, whose[] = {2, 3};
    struct picture p = {
        .name = "spans", .title = "A token as it passes", .x = {.label = "time (ms)"},
        .y = {.names = rows, .name_count = 4},
        .series = {{.name = "trunk read", .kind = PICTURE_SPANS, .count = 5, .x = begin,
                    .x_end = end, .y = row},
                   {.name = "compute", .kind = PICTURE_SPANS, .count = 3, .x = busy,
                    .x_end = done, .y = who},
                   {.name = "wait", .kind = PICTURE_SPANS, .count = 2, .x = wait,
                    .x_end = waited, .y = whose}},
        .series_count = 3};
    expect_drawn(&p, "drive 1");
}

static void demo_sweep(void)
{
    static const double latency[] = {0.1, 0.2, 0.5, 1.6, 9}, bound[] = {55, 55, 55, 55, 55};
    struct picture p = {
        .name = "sweep", .title = "Throughput and latency against depth",
        .x = {.label = "requests in flight", .log = true},
        .y = {.label = "read (GB/s)", .from_zero = true},
        .y2 = {.label = "latency, 99th percentile (ms)", .log = true},
        .series = {{.name = "throughput", .kind = PICTURE_LINES, .count = 5, .x = steps,
                    .y = rates, .low = floors, .high = tops},
                   {.name = "drive's ceiling", .kind = PICTURE_LINES, .reference = true,
                    .count = 5, .x = steps, .y = bound},
                   {.name = "latency", .kind = PICTURE_POINTS, .second = true, .count = 5,
                    .x = steps, .y = latency}},
        .series_count = 3};
    expect_drawn(&p, "drive's ceiling");
}

/* Many points, and more series than colours. */
static void demo_many(void)
{
    static double x[12][400], y[12][400];
    static char names[12][32];
    struct picture p = {.name = "many", .title = "Bandwidth over time", .series_count = 12,
                        .x = {.label = "time (s)"}, .y = {.label = "read (GB/s)"}};
    for (int s = 0; s < 12; s++) {
        snprintf(names[s], sizeof names[s], "series_%d", s);
        for (int i = 0; i < 400; i++) {
            x[s][i] = 0.1 * i;
            y[s][i] = s + sin(0.05 * i * (1 + 0.1 * s));
        }
        p.series[s] = (struct picture_series){
            .name = names[s], .kind = s % 3 == 1 ? PICTURE_STEPS : s % 3 == 2 ? PICTURE_POINTS
            : PICTURE_LINES, .count = 400, .x = x[s], .y = y[s],
            .low = s == 3 || s == 5 ? y[s - 1] : NULL, .high = s == 3 || s == 5 ? y[s] : NULL};
    }
    expect_drawn(&p, "series_11");
}

START_TEST(every_kind_is_drawn)
{
    char own[64];
    if (!have_gnuplot()) {
        return;
    }
    memcpy(own, dir, sizeof own);
    snprintf(dir, sizeof dir, "%s", keep != NULL ? keep : own);
    demo_bars();
    demo_spans();
    demo_sweep();
    demo_many();
    memcpy(dir, own, sizeof dir);
}
END_TEST

START_TEST(names_of_pictures_are_known_wherever_they_are_said)
{
    char path[160];
    char dotted[96];
    snprintf(dotted, sizeof dotted, "%s/.", dir);
    snprintf(path, sizeof path, "%s/latency.svg", dir);
    ck_assert(picture_owns(dir, path) && picture_owns(dotted, path));
    snprintf(path, sizeof path, "%s/page.html", dir);
    ck_assert(!picture_owns(dir, path));
    ck_assert(!picture_owns(dir, "latency.svg"));
    ck_assert(!picture_owns(dir, "/svg"));
}
END_TEST

static Suite *picture_suite(void)
{
    Suite *suite = suite_create("picture");
    TCase *tcase = tcase_create("picture");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, four_files_appear_under_their_names);
    tcase_add_test(tcase, the_folder_is_made);
    tcase_add_test(tcase, names_of_pictures_are_known_wherever_they_are_said);
    tcase_add_test(tcase, a_folder_that_cannot_be_is_an_error);
    tcase_add_test(tcase, without_gnuplot_data_and_script_are_there);
    tcase_add_loop_test(tcase, a_gnuplot_that_fails_leaves_no_half_picture, 0, 3);
    tcase_add_test(tcase, a_great_deal_of_talk_does_not_block);
    tcase_add_test(tcase, texts_cannot_leave_their_quotes);
    tcase_add_test(tcase, what_is_not_finite_is_a_gap);
    tcase_add_test(tcase, ids_become_the_pictures_own);
    tcase_add_test(tcase, what_is_no_svg_is_refused_and_what_is_cut_off_ends);
    tcase_add_test(tcase, texts_arrive_as_they_are);
    tcase_add_test(tcase, poor_data_still_make_a_picture);
    tcase_add_test(tcase, the_script_draws_again_in_its_folder);
    tcase_add_test(tcase, every_kind_is_drawn);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    keep = argc > 1 ? argv[1] : NULL;
    return suite_run(picture_suite()) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
