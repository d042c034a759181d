/* SPDX-License-Identifier: Apache-2.0 */
/* The report for people, after fio's. */
#include <math.h>
#include <string.h>

#include "core/cli/bench_full.h"
#include "core/cli/bench_print_priv.h"
#include "core/cli/commands.h"
#include "core/cli/report.h"
#include "core/cli/text.h"

void bench_put(FILE *out, const char *text)
{
    text_put(out, text, NULL, 0, false);
}

double bench_percentile(const struct histogram *h, double percent)
{
    return (double)min_u64(h->most, histogram_percentile(h, percent));
}

const char *bench_percentile_text(char text[32], const struct histogram *h, double percent,
                                  double unit, int decimals)
{
    if (histogram_tells(h, percent)) {
        snprintf(text, 32, "%.*f", decimals, bench_percentile(h, percent) / unit);
    } else {
        snprintf(text, 32, "-");
    }
    return text;
}

void bench_put_rate(const struct bench_page *page, double bytes_per_s)
{
    char binary[FIO_AMOUNT_BYTES];
    char decimal[FIO_AMOUNT_BYTES];
    if (page->refused != NULL) {
        fputs("refused", page->out);
        return;
    }
    fprintf(page->out, "%s (%s)", fio_amount(binary, bytes_per_s, true, "B/s"),
            fio_amount(decimal, bytes_per_s, false, "B/s"));
}

/* ---- what was measured on ---- */

static void put_size(FILE *out, const char *before, uint64_t bytes)
{
    char text[FIO_AMOUNT_BYTES];
    fprintf(out, "%s%s", before, fio_size(text, bytes));
}

static void put_settings(const struct bench_page *page)
{
    const struct bench_facts *f = &page->point->facts;
    FILE *out = page->out;
    fprintf(out, "k3ring bench %s  engine=%s(", k3ring_version, f->io_engine);
    bench_put(out, f->io_features);
    fprintf(out, "%s%s) direct=%u/%u depth=%ux", f->io_features[0] != '\0' ? "," : "",
            f->fixed_buffers ? "fixed" : "not fixed", f->direct_files, f->files, f->io_depth);
    put_size(out, "", f->io_size_bytes);
    put_size(out, " (", f->io_depth * f->io_size_bytes);
    fprintf(out, ") cache=%s", f->cache_slots > 0 ? f->policy : "none");
    put_size(out, ":", f->cache_slots * page->result->expert_bytes);
    put_size(out, " pinned=", f->pinned_bytes);
    put_size(out, " ram=", f->ram_bytes);
    fprintf(out, " workers=%u/%u isa=%s seed=%llu\n", f->workers, f->threads, f->isa,
            (unsigned long long)page->result->request->seed);
}

/* What the job before saw first and the last one last. */
static void put_temperature(const struct bench_page *page)
{
    double from = page->round->job[JOB_LIMIT_BEFORE].temperature_c[0];
    double to = page->round->job[JOB_LIMIT_AFTER].temperature_c[1];
    if (page->round->job[JOB_LIMIT_BEFORE].made && !isnan(from)) {
        fprintf(page->out, ", hottest drive %.0f", from);
        if (page->round->job[JOB_LIMIT_AFTER].made && !isnan(to)) {
            fprintf(page->out, "->%.0f", to);
        }
        fprintf(page->out, " C");
    }
}

static void put_drive(FILE *out, const struct environment_device *d)
{
    fprintf(out, "        drive %s", d->name);
    const char *before = " (";
    const char *const parts[][2] = {{"", d->model}, {"fw ", d->firmware}, {"", d->link.speed}};
    for (size_t i = 0; i < countof(parts); i++) {
        if (parts[i][1][0] != '\0') {
            fprintf(out, "%s%s", before, parts[i][0]);
            bench_put(out, parts[i][1]);
            before = ", ";
        }
    }
    if (d->link.width > 0) {
        fprintf(out, " x%u", d->link.width);
    }
    fprintf(out, "%s", before[0] == ',' ? ")" : "");
    if (d->scheduler[0] != '\0') {
        fprintf(out, " sched %s", d->scheduler);
    }
    if (d->max_sectors_kb > 0) {
        fprintf(out, ", max_sectors %u KiB, nr_requests %u", d->max_sectors_kb, d->nr_requests);
    }
    fprintf(out, "\n");
}

static void put_place(FILE *out, const struct environment_place *p)
{
    fprintf(out, "        %u files on %s ", p->files, p->file_system);
    bench_put(out, p->source);
    fprintf(out, ", holes");
    put_size(out, " ", p->holes_bytes);
    fprintf(out, ", compressed %s, encrypted %s\n", p->compressed ? "yes" : "no",
            p->encrypted ? "yes" : "no");
}

static void put_model(const struct bench_page *page)
{
    const struct bench_result *r = page->result;
    const struct bench_facts *f = &page->point->facts;
    FILE *out = page->out;
    fprintf(out, "model   ");
    bench_put(out, r->request->dir);
    put_size(out, "  ", r->model_bytes);
    fprintf(out, " of weights in %u files, %u layers, %u experts%s; a token with nothing in memory "
            "reads", f->files, r->layers, r->experts, r->synthetic ? ", synthetic" : "");
    put_size(out, " ", r->pass_bytes);
    put_temperature(page);
    fprintf(out, "\n");
    for (uint32_t i = 0; i < r->environment.place_count; i++) {
        put_place(out, &r->environment.place[i]);
    }
    for (uint32_t i = 0; i < r->environment.device_count; i++) {
        if (environment_lowest(&r->environment, i)) {
            put_drive(out, &r->environment.device[i]);
        }
    }
}

static void put_limits(const struct bench_page *page)
{
    const struct environment_system *s = &page->result->environment.system;
    const struct bench_facts *f = &page->point->facts;
    FILE *out = page->out;
    if (f->slab_mapped_bytes > 0 && f->slab_resident_bytes > 0) {
        put_size(out, "limits  buffers ", f->slab_mapped_bytes);
        fprintf(out, " (%.0f%% huge pages)",
                100.0 * (double)f->slab_huge_bytes / (double)f->slab_resident_bytes);
    } else {
        fprintf(out, "limits  buffers not counted");
    }
    if (s->memlock_bytes == ENVIRONMENT_UNLIMITED) {
        fprintf(out, ", memlock unlimited");
    } else {
        put_size(out, ", memlock ", s->memlock_bytes);
    }
    put_size(out, ", plan ", f->plan_bytes);
    put_size(out, ", peak ", page->round->inference.peak_bytes);
    fprintf(out, ", alignment %u\n", f->alignment);
}

/* ---- tokens ---- */

static double share(double part, double total)
{
    return total > 0 ? 100 * part / total : 0;
}

/* Percentage of b that a is, or nothing asked. */
static void put_hits(FILE *out, uint64_t hits, uint64_t demands)
{
    if (demands == 0) {
        fprintf(out, " | no experts asked for");
    } else {
        fprintf(out, " | hit %.1f%%", share((double)hits, (double)demands));
    }
}

static void put_decode(const struct bench_page *page)
{
    const struct bench_inference *i = &page->round->inference;
    FILE *out = page->out;
    double wall_s = (double)i->wall_ns / 1e9;
    double stall_s = 0;
    for (int cause = 0; cause < STALL_CAUSES; cause++) {
        stall_s += (double)i->stall_ns[cause] / 1e9;
    }
    if (i->tokens == 0) {
        fprintf(out, "decode  no token was measured\n");
        return;
    }
    fprintf(out, "decode  %u tok in %.3f s = %.4g tok/s | stall %.3f s (%.0f%%) | compute %.3f s",
            i->tokens, wall_s, wall_s > 0 ? i->tokens / wall_s : 0, stall_s,
            share(stall_s, wall_s), (double)i->busy_ns / 1e9);
    put_size(out, " | ", page->round->job[JOB_INFERENCE].all.bytes / i->tokens);
    fprintf(out, "/tok");
    put_hits(out, i->hits, i->demands);
    char p99[32];
    fprintf(out, "\n        token msec: min=%.1f p50=%.1f p99=%s max=%.1f | first token %.3f s\n",
            (double)i->token.least / 1e6, bench_percentile(&i->token, 50) / 1e6,
            bench_percentile_text(p99, &i->token, 99, 1e6, 1),
            (double)i->token.most / 1e6,
            (double)i->first_ns / 1e9);
}

static void put_stalls(const struct bench_page *page)
{
    const struct bench_inference *i = &page->round->inference;
    FILE *out = page->out;
    const char *before = "";
    if (i->tokens == 0) {
        return;
    }
    fprintf(out, "stall   msec per token, mean over workers: ");
    for (int cause = 0; cause < STALL_CAUSES; cause++) {
        if (i->stall_ns[cause] > 0) {
            fprintf(out, "%s%s %.2f", before, report_cause_names[cause],
                    (double)i->stall_ns[cause] / 1e6 / i->tokens);
            before = ", ";
        }
    }
    fprintf(out, "%s\n", before[0] == '\0' ? "none" : "");
}

static void put_compute(const struct bench_page *page)
{
    const struct bench_job *job = &page->round->job[JOB_COMPUTE];
    FILE *out = page->out;
    fprintf(out, "compute %.2f msec per token, ", 1e3 * page->shares.compute_s);
    if (page->shares.compute_measured) {
        fprintf(out, "measured with all weights in memory\n");
        return;
    }
    fprintf(out, "the workers' busy time of this run; not measured without reads: ");
    bench_put(out, job->why_not);
    fprintf(out, "\n");
}

/* Jobs that are missing, but for compute, which has its line. */
static void put_missing(const struct bench_page *page)
{
    for (int i = 0; i < BENCH_JOBS; i++) {
        const struct bench_job *job = &page->round->job[i];
        if (!job->made && i != JOB_COMPUTE) {
            fprintf(page->out, "missing %s was not run: ", bench_job_names[i]);
            bench_put(page->out, job->why_not);
            fprintf(page->out, "\n");
        }
    }
}

static void put_rounds(const struct bench_page *page)
{
    const struct bench_point_result *p = page->point;
    if (p->rounds < 2) {
        return;
    }
    fprintf(page->out, "rounds  %u: tok/s", p->rounds);
    for (uint32_t i = 0; i < p->rounds; i++) {
        fprintf(page->out, " %.4g", bench_metric(page->result, &p->round[i], METRIC_TOKENS));
    }
    fprintf(page->out, "; below is round %u, the one in the middle\n",
            (uint32_t)(page->round - p->round) + 1);
}

/* Of a part of the model: what the whole one would do here. */
static void put_full(const struct bench_page *page)
{
    struct bench_full full;
    if (bench_full(page->result, &full)) {
        fprintf(page->out, "full    this is %.1f%% of Kimi K3, and its token %.1f%% of the reads. "
                "At %.2f GB/s%s the full model takes %.1f s per token with nothing in memory "
                "(137.0 GB), %.1f s with all but experts in memory (25.8 GB)\n",
                100 * full.model_share, 100 * full.token_share, full.rate / 1e9,
                full.measured ? "" : ", the drive's limit (these tokens read too little to tell),",
                full.streamed_s, full.experts_s);
    }
}

/* False also when a point has no round, or rounds made different numbers of tokens. */
static bool same_bits(const struct bench_result *r, const unsigned char *hash)
{
    for (uint32_t i = 0; i < r->request->point_count; i++) {
        for (uint32_t k = 0; k < r->point[i].rounds; k++) {
            if (memcmp(r->point[i].round[k].inference.hash, hash, LOGITS_HASH_BYTES) != 0) {
                return false;
            }
        }
        if (r->point[i].rounds == 0) {
            return false;
        }
    }
    return true;
}

/* The same tokens everywhere is what makes points comparable. */
static void put_bits(const struct bench_page *page)
{
    char text[65];
    generate_hash_text(page->round->inference.hash, text);
    fprintf(page->out, "bits    logits %s%s\n", text,
            page->result->request->point_count > 1 &&
                    same_bits(page->result, page->round->inference.hash)
                ? ", the same at every point" : "");
}

static void put_page(const struct bench_page *page)
{
    put_settings(page);
    put_model(page);
    put_limits(page);
    put_rounds(page);
    put_decode(page);
    bench_page_reads(page);
    bench_page_drive(page);
    put_compute(page);
    put_stalls(page);
    put_missing(page);
    bench_page_words(page);
    put_full(page);
    put_bits(page);
    fprintf(page->out, "repeat  ");
    bench_put(page->out, page->result->request->command);
    fprintf(page->out, "\n");
}

void bench_print(FILE *out, const struct bench_result *result)
{
    struct bench_page page = {.out = out, .result = result, .refused = bench_refusal(result)};
    struct bench_choice choice;
    uint32_t shown = 0;
    if (result->request->point_count > 1) {
        bench_page_points(&page);
        shown = bench_choose(result, &choice) ? choice.best : 0;
    }
    page.point = &result->point[shown];
    page.round = bench_middle_round(result, shown);
    if (page.round == NULL) {
        fprintf(out, "k3ring bench %s: no round was completed\n", k3ring_version);
        return;
    }
    bench_shares(page.round, &page.shares);
    put_page(&page);
}
