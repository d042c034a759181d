/* SPDX-License-Identifier: Apache-2.0 */
/* What the figures mean, for those who have never read such a report. */
#include <math.h>

#include "core/cli/bench_print_priv.h"

static void put_invalid(const struct bench_page *page)
{
    const struct bench_verdict *v = &page->result->verdict;
    fprintf(page->out, "VERDICT invalid: rates of reads are no figures of the drive and are left "
            "out. Tokens were really made at this speed. Why:\n");
    for (uint32_t i = 0; i < v->invalid; i++) {
        fprintf(page->out, "        - ");
        bench_put(page->out, v->reason[i]);
        fprintf(page->out, "\n");
    }
}

static void put_warnings(const struct bench_page *page)
{
    const struct bench_verdict *v = &page->result->verdict;
    for (uint32_t i = v->invalid; i < v->count; i++) {
        fprintf(page->out, "note    ");
        bench_put(page->out, v->reason[i]);
        fprintf(page->out, "\n");
    }
}

static void put_bound(const struct bench_page *page)
{
    const struct bench_shares *s = &page->shares;
    double io_ms = 1e3 * s->io_s;
    double compute_ms = 1e3 * s->compute_s;
    if (fmin(s->compute_s, s->io_s) >= BENCH_SHORT * fmax(s->compute_s, s->io_s)) {
        fprintf(page->out, "reading and computing are even: a token needs %.1f ms of one and %.1f "
                "ms of the other. A faster drive alone, or faster processors alone, help little.\n",
                io_ms, compute_ms);
    } else if (s->compute_s >= s->io_s) {
        fprintf(page->out, "computing bounds this run: a token needs %.1f ms of it and only %.1f "
                "ms of reading. A faster drive helps little; more or faster processors do.\n",
                compute_ms, io_ms);
    } else {
        fprintf(page->out, "the drive bounds this run: a token needs %.1f ms of reading and only "
                "%.1f ms of computing. Reading less (more memory: --ram) or a faster drive "
                "helps.\n", io_ms, compute_ms);
    }
}

static void put_idle(const struct bench_page *page)
{
    const struct bench_shares *s = &page->shares;
    if (s->disk_busy >= BENCH_SHORT) {
        return;
    }
    fprintf(page->out, "        The drive had nothing to do for %.0f%% of the time: it waited "
            "until the next experts were known, or for computing. Reading further ahead would use "
            "that time.\n", 100 * (1 - s->disk_busy));
}

/* What helps against that depends on what made reads small. */
static void put_small(const struct bench_page *page)
{
    const struct io_figures *f = &page->round->job[JOB_INFERENCE].all;
    uint64_t mean_bytes = f->bytes / f->requests;
    char text[FIO_AMOUNT_BYTES];
    if (mean_bytes < page->point->facts.io_size_bytes / 4) {
        fprintf(page->out, "They are %s on average because so small are the parts of the model: "
                "only more of them in flight help, a larger --io-depth.\n",
                fio_size(text, mean_bytes));
    } else {
        fprintf(page->out, "A larger --io-size or --io-depth, or files in one piece (`k3ring "
                "pack`), may help.\n");
    }
}

static void put_pattern(const struct bench_page *page)
{
    const struct bench_shares *s = &page->shares;
    if (s->of_replay > 0 && s->of_replay < BENCH_SHORT) {
        fprintf(page->out, "        The same reads without any computing reach %.0f%% of the "
                "drive's limit: their sizes and places cost. ", 100 * s->of_replay);
        put_small(page);
    }
    if (s->replay > 0 && s->busy < BENCH_SHORT * s->replay) {
        fprintf(page->out, "        While it was busy the drive gave %.0f%% of what it gives for "
                "the same reads alone: too few reads were in flight at a time, or computing takes "
                "processors and memory from reading. Try a larger --io-depth, or fewer "
                "--threads.\n", 100 * s->busy / s->replay);
    }
}

static void put_cache(const struct bench_page *page)
{
    const struct bench_inference *i = &page->round->inference;
    if (i->repeats == 0) {
        return;
    }
    double kept = (double)i->repeat_hits / (double)i->repeats;
    if (kept < BENCH_SHORT) {
        fprintf(page->out, "        Of the experts asked for again %.0f%% were still in memory; "
                "more --ram would keep more of them.\n", 100 * kept);
    }
}

static void put_projection(const struct bench_page *page)
{
    const struct bench_shares *s = &page->shares;
    const struct bench_inference *i = &page->round->inference;
    double now = bench_metric(page->result, page->round, METRIC_TOKENS);
    if (i->tokens == 0 || s->overlap_tokens_s <= 0) {
        return;
    }
    fprintf(page->out, "        Now %.4g tok/s. If reading and computing hid each other perfectly: "
            "%.4g tok/s; a drive twice as fast and nothing else: %.4g tok/s.\n", now,
            s->overlap_tokens_s, s->faster_tokens_s);
}

void bench_page_words(const struct bench_page *page)
{
    if (page->refused != NULL) {
        put_invalid(page);
    } else if (page->round->inference.tokens == 0) {
        fprintf(page->out, "VERDICT no token was measured: nothing can be said\n");
    } else if (page->round->job[JOB_INFERENCE].all.requests == 0) {
        fprintf(page->out, "VERDICT nothing was read while measuring: all that these tokens needed "
                "was in memory. This is a benchmark of computing; a smaller --ram makes it one of "
                "the drive.\n");
    } else if (page->shares.io_s <= 0) {
        fprintf(page->out, "VERDICT neither a limit nor a replay was measured: how far the drive "
                "was used cannot be said\n");
    } else {
        fprintf(page->out, "VERDICT ");
        put_bound(page);
        put_idle(page);
        put_pattern(page);
        put_cache(page);
        put_projection(page);
    }
    put_warnings(page);
}
