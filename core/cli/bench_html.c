/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/bench_html.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/cli/bench_pictures.h"
#include "core/cli/html.h"
#include "core/cli/picture.h"

static void put_verdict(struct html *page, const struct bench_result *result)
{
    const struct bench_verdict *v = &result->verdict;
    html_note(page, v->valid ? HTML_GOOD : HTML_BAD,
              v->valid ? "Valid: nothing speaks against these figures being those of the drive."
                       : "Refused: these are no figures of a drive.");
    for (uint32_t i = 0; i < v->count; i++) {
        html_note(page, i < v->invalid ? HTML_BAD : HTML_PLAIN, v->reason[i]);
    }
}

static void put_shares(struct html *page, const struct bench_result *result)
{
    static const char *const heads[] = {"depth", "size KiB", "policy", "RAM GiB", "round",
                                        "tokens/s", "run GB/s", "limit GB/s", "% of limit",
                                        "% busy"};
    html_table_begin(page, NULL, heads, countof(heads), 1U << 2);
    for (uint32_t p = 0; p < result->request->point_count; p++) {
        const struct bench_point_result *point = &result->point[p];
        for (uint32_t k = 0; k < point->rounds; k++) {
            const struct bench_inference *in = &point->round[k].inference;
            char text[countof(heads)][24];
            const char *cells[countof(heads)];
            struct bench_shares s;
            bench_shares(&point->round[k], &s);
            bool valid = result->verdict.invalid == 0;
            double each = in->wall_ns > 0 ? in->tokens / ((double)in->wall_ns / 1e9) : 0;
            const double numbers[] = {
                point->facts.io_depth, (double)point->facts.io_size_bytes / (double)KIB, 0,
                (double)point->facts.ram_bytes / (double)GIB, k + 1.0, each, s.run / 1e9,
                s.limit / 1e9, 100 * s.of_run, 100 * s.disk_busy};
            for (size_t i = 0; i < countof(heads); i++) {
                snprintf(text[i], sizeof text[i], "%.4g", numbers[i]);
                cells[i] = i > 5 && !valid ? "refused" : text[i];
            }
            cells[2] = point->point.policy;
            html_table_row(page, cells, HTML_PLAIN);
        }
    }
    html_table_end(page);
}

static int put_report(struct html *page, const struct bench_result *result)
{
    char *text = NULL;
    size_t size;
    FILE *memory = open_memstream(&text, &size);
    if (memory == NULL) {
        return err_set(ERR_MEMORY, "no memory for the report");
    }
    bench_print(memory, result);
    fclose(memory);
    html_section(page, "Report");
    html_preformatted(page, text);
    free(text);
    return 0;
}

static void put_pictures(struct html *page, const char *folder)
{
    static const char *const captions[] = {
        "Bandwidth, reads in flight and waiting workers over the measured time.",
        "The last measured token: every read, and what each worker did.",
        "How many reads took how long.", "Latency by percentile: each mark is one more nine.",
        "Seconds per token against RAM.", "Every setting: median and range of the rounds."};
    html_section(page, "Pictures");
    for (int i = 0; bench_picture_names[i] != NULL; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s.gp", folder, bench_picture_names[i]);
        if (access(path, R_OK) == 0) {
            char *svg = picture_svg_inline(folder, bench_picture_names[i]);
            html_svg(page, svg, captions[i]);
            free(svg);
        }
    }
}

static int put_environment(struct html *page, const struct bench_result *result)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *environment = root != NULL ? environment_json(root, &result->environment) : NULL;
    char *text = environment != NULL ? cJSON_Print(environment) : NULL;
    cJSON_Delete(root);
    if (text == NULL) {
        return err_set(ERR_MEMORY, "no memory for the environment");
    }
    html_section(page, "Environment");
    html_preformatted(page, text);
    cJSON_free(text);
    return 0;
}

int bench_html(const struct bench_result *result, const char *pictures, const char *path)
{
    struct html page = {.columns = 0};
    TRY(html_open(&page, path, "k3ring bench"));
    html_section(&page, "Verdict");
    put_verdict(&page, result);
    put_shares(&page, result);
    int rc = put_report(&page, result);
    put_pictures(&page, pictures);
    rc = rc == 0 ? put_environment(&page, result) : rc;
    rc = rc == 0 ? html_close(&page) : rc;
    html_abandon(&page);
    return rc;
}

static void remove_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path); /* the two that are no files stay */
    }
    if (dir != NULL) {
        closedir(dir);
    }
    rmdir(folder);
}

int bench_html_alone(const struct bench_result *result, const char *path)
{
    char folder[] = "/tmp/k3ring-pictures-XXXXXX";
    if (mkdtemp(folder) == NULL) {
        return err_set(ERR_OUTPUT, "--html: no folder for pictures under /tmp: %s; give --plot DIR "
                       "as well", strerror(errno));
    }
    int rc = bench_pictures(result, folder);
    rc = rc == 0 ? bench_html(result, folder, path) : rc;
    remove_folder(folder);
    return rc;
}
