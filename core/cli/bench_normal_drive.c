/* SPDX-License-Identifier: Apache-2.0 */
/* What the drives counted themselves, what they can give, and how much of that was used. */
#include "core/cli/bench_print_priv.h"

static void put_refused(const struct bench_page *page)
{
    fprintf(page->out, "refused: ");
    bench_put(page->out, page->refused);
    fprintf(page->out, "\n");
}

static void put_names(const struct bench_page *page)
{
    const struct environment *env = &page->result->environment;
    const char *before = "";
    for (uint32_t i = 0; i < env->device_count; i++) {
        if (environment_lowest(env, i)) {
            fprintf(page->out, "%s%s", before, env->device[i].name);
            before = "+";
        }
    }
}

/* The kernel's counters of the file systems' devices, against what was asked of them. */
static void put_disk(const struct bench_page *page)
{
    const struct bench_job *job = &page->round->job[JOB_INFERENCE];
    const struct environment_counts *c = &job->disk.files;
    char text[FIO_AMOUNT_BYTES];
    double bytes = 512.0 * (double)c->read_sectors;
    fprintf(page->out, "  disk         : ");
    if (!job->disk_known) {
        fprintf(page->out, "no counters of a block device\n");
        return;
    }
    put_names(page);
    fprintf(page->out, " ios=%llu", (unsigned long long)c->read_ios);
    if (c->read_ios > 0) {
        fprintf(page->out, " (%s avg)",
                fio_size(text, 512 * c->read_sectors / c->read_ios));
    }
    fprintf(page->out, " read %s, ", fio_size(text, 512 * c->read_sectors));
    if (page->refused != NULL) {
        fprintf(page->out, "share of requested, util ");
        put_refused(page);
        return;
    }
    fprintf(page->out, "%.1f%% of requested, util=%.1f%%\n",
            job->requested_bytes > 0 ? 100 * bytes / (double)job->requested_bytes : 0,
            bench_job_share(job, (double)c->busy_ms / 1e3));
}

static void put_limits(const struct bench_page *page, uint32_t which)
{
    const struct bench_limit *limits = page->round->limit[which];
    char text[FIO_AMOUNT_BYTES];
    bool any = false;
    for (uint32_t i = 0; i < BENCH_LIMITS; i++) {
        if (limits[i].rate > 0) {
            fprintf(page->out, "%s%ux%s ", any ? ", " : which == 0 ? "  limit before : "
                    : "  limit after  : ", limits[i].depth,
                    fio_size(text, limits[i].chunk_bytes));
            fprintf(page->out, "%s%s", fio_amount(text, limits[i].rate, false, "B/s"),
                    i == page->round->limit_best[which] ? "*" : "");
            any = true;
        }
    }
    fprintf(page->out, "%s", any ? "\n" : "");
}

static void put_share(const struct bench_page *page, const char *name, double rate, double of)
{
    char text[FIO_AMOUNT_BYTES];
    if (rate > 0) {
        fprintf(page->out, "  %s %s", name, fio_amount(text, rate, false, "B/s"));
    }
    if (rate > 0 && of > 0) {
        fprintf(page->out, " (%.0f%%)", 100 * of);
    }
}

static void put_device(const struct bench_page *page)
{
    const struct bench_shares *s = &page->shares;
    char text[3][FIO_AMOUNT_BYTES];
    if (s->limit == 0) {
        fprintf(page->out, "DEVICE  limit not measured");
    } else {
        fprintf(page->out, "DEVICE  limit %s (before %s, after %s, drift %+.1f%%)",
                fio_amount(text[0], s->limit, false, "B/s"),
                s->limit_before > 0 ? fio_amount(text[1], s->limit_before, false, "B/s") : "none",
                s->limit_after > 0 ? fio_amount(text[2], s->limit_after, false, "B/s") : "none",
                100 * s->drift);
    }
    put_share(page, "replay", s->replay, s->of_replay);
    put_share(page, "busy", s->busy, s->of_busy);
    put_share(page, "run", s->run, s->of_run);
    fprintf(page->out, "\n");
    if (s->of_run > 0) {
        fprintf(page->out, "        run %.1f%% of the limit = %.1f%% while busy x busy %.1f%% of "
                "the time\n", 100 * s->of_run, 100 * s->of_busy, 100 * s->disk_busy);
    }
}

void bench_page_drive(const struct bench_page *page)
{
    put_disk(page);
    if (page->refused != NULL) {
        fprintf(page->out, "DEVICE  ");
        put_refused(page);
        return;
    }
    put_limits(page, 0);
    put_limits(page, 1);
    put_device(page);
}
