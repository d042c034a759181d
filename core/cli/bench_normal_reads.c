/* SPDX-License-Identifier: Apache-2.0 */
/* The reads of the inference job as fio shows a job, then by class, by drive, and by expert. */
#include "core/cli/bench_print_priv.h"
#include "core/cli/report.h"

static void put_iops(const struct bench_page *page, const struct io_figures *f)
{
    char text[FIO_AMOUNT_BYTES];
    fprintf(page->out, "IOPS=%s, BW=",
            page->refused != NULL ? "refused"
                                  : fio_amount(text, bench_per_second(f, f->requests), false, ""));
    bench_put_rate(page, bench_per_second(f, f->bytes));
}

static void put_read(const struct bench_page *page, const struct io_figures *f)
{
    char bytes[FIO_AMOUNT_BYTES];
    fprintf(page->out, "  read: ");
    put_iops(page, f);
    if (page->refused != NULL) {
        fprintf(page->out, ": ");
        bench_put(page->out, page->refused);
        fprintf(page->out, " ");
    }
    fprintf(page->out, "(%s/%llumsec)\n", fio_amount(bytes, (double)f->bytes, true, "B"),
            (unsigned long long)(f->wall_ns / 1000000));
}

/* One line for a part of the reads. */
static void put_part(const struct bench_page *page, const char *kind, const char *name,
                     const struct io_figures *f)
{
    const char *unit_name;
    double unit = fio_unit(&f->lat, &unit_name);
    char bytes[FIO_AMOUNT_BYTES];
    char p99[32];
    if (f->requests == 0) {
        return;
    }
    fprintf(page->out, "  %s %-8s: %s, ", kind, name,
            fio_size(bytes, f->bytes));
    put_iops(page, f);
    fprintf(page->out, ", lat (%s): avg=%.2f, p50=%.0f, p99=%s, max=%.0f\n", unit_name,
            f->lat.mean / unit, bench_percentile(&f->lat, 50) / unit,
            bench_percentile_text(p99, &f->lat, 99, unit, 0), (double)f->lat.most / unit);
}

static void put_parts(const struct bench_page *page, const struct bench_job *job)
{
    uint32_t devices = page->point->facts.devices;
    for (int i = 0; i < READ_CLASSES; i++) {
        put_part(page, "class", report_class_names[i], &job->class[i]);
    }
    for (uint32_t i = 0; i < devices && devices > 1 && job->device != NULL; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", i);
        put_part(page, "drive", name, &job->device[i]);
    }
}

static void put_times(FILE *out, const char *what, const struct histogram *h)
{
    char p99[32];
    fprintf(out, "%s (msec): min=%.2f p50=%.2f p99=%s max=%.2f (%llu)", what,
            (double)h->least / 1e6, bench_percentile(h, 50) / 1e6,
            bench_percentile_text(p99, h, 99, 1e6, 2), (double)h->most / 1e6,
            (unsigned long long)h->count);
}

static void put_experts(const struct bench_page *page)
{
    const struct bench_inference *i = &page->round->inference;
    char bytes[FIO_AMOUNT_BYTES];
    if (i->ready.count > 0) {
        fprintf(page->out, "  expert of %s, ",
                fio_size(bytes, page->result->expert_bytes));
        put_times(page->out, "need->ready", &i->ready);
        fprintf(page->out, "\n");
    }
    if (i->layer_stall.count > 0) {
        put_times(page->out, "  layer stall", &i->layer_stall);
        fprintf(page->out, "\n");
    }
}

static void put_queue(const struct bench_page *page, const struct bench_job *job)
{
    const struct io_figures *f = &job->all;
    char mean[FIO_AMOUNT_BYTES];
    char most[FIO_AMOUNT_BYTES];
    fio_print_levels(page->out, "  IO depths    ", fio_depth_names, f->depth);
    fio_print_levels(page->out, "     submit    ", fio_batch_names, f->submit);
    fio_print_levels(page->out, "     complete  ", fio_batch_names, f->complete);
    fprintf(page->out, "  in flight    : avg=%s, max=%s while busy; offloaded(iou-wrk)=%u, blocked "
            "submit >1msec=%llu (%.1f msec)\n",
            fio_size(mean, (uint64_t)f->flight_bytes_mean),
            fio_size(most, f->flight_bytes_max), job->offloaded,
            (unsigned long long)f->blocked, (double)f->blocked_ns / 1e6);
}

static void put_costs(const struct bench_page *page, const struct bench_job *job)
{
    const struct bench_usage *u = &job->usage;
    double per_gib = bench_metric(page->result, page->round, METRIC_CPU);
    fprintf(page->out, "  cpu          : usr=%3.2f%%, sys=%3.2f%%, ctx=%llu, majf=%llu, minf=%llu",
            bench_job_share(job, u->user_s), bench_job_share(job, u->system_s),
            (unsigned long long)(u->voluntary + u->involuntary),
            (unsigned long long)u->major_faults, (unsigned long long)u->minor_faults);
    if (per_gib == per_gib) {
        fprintf(page->out, "; reading alone %.3f cpu-s/GiB", per_gib);
    }
    fprintf(page->out, "\n  issued reads : total=%llu retries=%llu short=%llu errors=%llu "
            "not logged=%llu\n", (unsigned long long)job->all.requests,
            (unsigned long long)(job->all.repeats - job->all.shorts),
            (unsigned long long)job->all.shorts,
            (unsigned long long)job->all.errors,
            (unsigned long long)page->round->inference.missed);
}

void bench_page_reads(const struct bench_page *page)
{
    const struct bench_job *job = &page->round->job[JOB_INFERENCE];
    const struct io_figures *f = &job->all;
    if (f->requests == 0) {
        fprintf(page->out, "  read: none while measuring\n");
        put_costs(page, job);
        return;
    }
    put_read(page, f);
    fio_print_latency(page->out, "slat", &f->slat);
    fio_print_latency(page->out, "clat", &f->clat);
    fio_print_latency(page->out, "lat", &f->lat);
    fio_print_percentiles(page->out, "clat", &f->clat);
    fio_print_latencies(page->out, &f->clat);
    put_parts(page, job);
    put_experts(page);
    put_queue(page, job);
    put_costs(page, job);
}
