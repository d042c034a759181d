/* SPDX-License-Identifier: Apache-2.0 */
#include "io/figures.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/err.h"

uint32_t io_depth_level(uint64_t depth)
{
    uint32_t level = 0;
    while (level < IO_LEVELS - 1 && depth >= 2ULL << level) {
        level++;
    }
    return level;
}

uint32_t io_batch_level(uint64_t count)
{
    uint32_t level = 0;
    while (level < IO_LEVELS - 1 && count > (level == 0 ? 0 : 2ULL << level)) {
        level++;
    }
    return level;
}

static uint32_t flight_level(uint64_t bytes)
{
    uint32_t level = 0;
    while (level < IO_LEVELS - 1 && bytes >= MIB << level) {
        level++;
    }
    return level;
}

static bool chosen(const struct io_record *r, const struct io_slice *slice)
{
    return (slice->label == IO_ANY || r->label == slice->label) &&
           (slice->device == IO_ANY || r->device == slice->device);
}

static bool within(uint64_t at_ns, const struct io_slice *slice)
{
    return at_ns >= slice->from_ns && at_ns < slice->to_ns;
}

static void count_read(const struct io_record *r, struct io_figures *out)
{
    out->repeats += r->repeats;
    out->shorts += r->shorts;
    if (r->res < 0) {
        out->errors++;
        return;
    }
    out->requests++;
    out->bytes += r->size_bytes;
    histogram_add(&out->slat, r->sent_ns - r->begun_ns);
    histogram_add(&out->clat, r->ended_ns - r->sent_ns);
    histogram_add(&out->lat, r->ended_ns - r->begun_ns);
}

/* ---- samples ---- */

static void add_sample(struct io_samples *s, uint64_t amount)
{
    double rate = (double)amount * 1e9 / (double)IO_SAMPLE_NS;
    s->least = s->count == 0 || rate < s->least ? rate : s->least;
    s->most = rate > s->most ? rate : s->most;
    s->sum += rate;
    s->squares += rate * rate;
    s->count++;
}

static void add_samples(struct io_samples *into, const struct io_samples *from)
{
    if (from->count > 0) {
        into->least = into->count == 0 ? from->least : fmin(into->least, from->least);
        into->most = fmax(into->most, from->most);
    }
    into->count += from->count;
    into->sum += from->sum;
    into->squares += from->squares;
}

double io_samples_mean(const struct io_samples *s)
{
    return s->count > 0 ? s->sum / (double)s->count : 0;
}

double io_samples_deviation(const struct io_samples *s)
{
    double mean = io_samples_mean(s);
    double squares = s->squares - mean * s->sum;
    return s->count > 1 ? sqrt(fmax(0, squares) / (double)(s->count - 1)) : 0;
}

/* end: as for count_ends. A last part of less than a sample's time is left out. */
static void sample_rates(const struct io_slice *slice, const struct io_record *const *end,
                         uint32_t count, struct io_figures *out)
{
    uint64_t bytes = 0;
    uint64_t reads = 0;
    uint32_t i = 0;
    if (slice->to_ns == UINT64_MAX) {
        return; /* no end, no rates */
    }
    for (uint64_t at = slice->from_ns; slice->to_ns - at >= IO_SAMPLE_NS; at += IO_SAMPLE_NS) {
        for (; i < count && end[i]->ended_ns > 0 && end[i]->ended_ns < at + IO_SAMPLE_NS; i++) {
            bool good = end[i]->ended_ns >= at && end[i]->res >= 0;
            bytes += good ? end[i]->size_bytes : 0;
            reads += good;
        }
        add_sample(&out->rate, bytes);
        add_sample(&out->iops, reads);
        bytes = reads = 0;
    }
}

/* ---- submits and completions ---- */

/* A hand-over of `count` reads, the first of them r. */
static void count_submit(const struct io_record *r, uint64_t count, struct io_figures *out)
{
    uint64_t took_ns = r->sent_ns - r->begun_ns;
    out->submit[io_batch_level(count)]++;
    if (took_ns > IO_BLOCKED_NS) {
        out->blocked++;
        out->blocked_ns += took_ns;
    }
}

/* begin: the chosen reads in order of begin. */
static void count_submits(const struct io_slice *slice, const struct io_record *const *begin,
                          uint32_t count, struct io_figures *out)
{
    for (uint32_t i = 0, first = 0; i < count; i++) {
        if (i + 1 == count || begin[i + 1]->begun_round != begin[i]->begun_round) {
            if (within(begin[i]->begun_ns, slice) && begin[i]->sent_ns > 0) {
                count_submit(begin[first], i + 1 - first, out);
            }
            first = i + 1;
        }
    }
}

/* end: the same reads in order of end, those that have not ended last. */
static void count_ends(const struct io_slice *slice, const struct io_record *const *end,
                       uint32_t count, struct io_figures *out)
{
    uint64_t together = 0;
    for (uint32_t i = 0; i < count && end[i]->ended_ns > 0; i++) {
        if (!within(end[i]->ended_ns, slice)) {
            continue;
        }
        count_read(end[i], out);
        together++;
        bool last = i + 1 == count || !within(end[i + 1]->ended_ns, slice) ||
                    end[i + 1]->ended_round != end[i]->ended_round;
        if (last) {
            out->complete[io_batch_level(together)]++;
            together = 0;
        }
    }
}

/* Time from *at_ns to now_ns, as far as it lies in the slice, was spent with so much in flight. */
static void pass_time(const struct io_slice *slice, uint64_t *at_ns, uint64_t now_ns,
                      uint64_t flight_bytes, double *byte_ns, struct io_figures *out)
{
    uint64_t from_ns = max_u64(*at_ns, slice->from_ns);
    uint64_t to_ns = min_u64(now_ns, slice->to_ns);
    *at_ns = now_ns;
    if (flight_bytes == 0 || from_ns >= to_ns) {
        return;
    }
    out->busy_ns += to_ns - from_ns;
    out->flight_ns[flight_level(flight_bytes)] += to_ns - from_ns;
    out->flight_bytes_max = max_u64(out->flight_bytes_max, flight_bytes);
    *byte_ns += (double)flight_bytes * (double)(to_ns - from_ns);
}

static void sweep(const struct io_slice *slice, const struct io_record *const *begin,
                  const struct io_record *const *end, uint32_t count, struct io_figures *out)
{
    uint64_t at_ns = 0;
    uint64_t flight_bytes = 0;
    uint64_t depth = 0;
    double byte_ns = 0;
    uint32_t b = 0;
    uint32_t e = 0;
    while (b < count) {
        /* An end at the moment of a begin comes first: the place it leaves is taken again. */
        bool ends = e < count && end[e]->ended_ns > 0 && end[e] < begin[b] &&
                    end[e]->ended_ns <= begin[b]->begun_ns;
        const struct io_record *r = ends ? end[e++] : begin[b++];
        pass_time(slice, &at_ns, ends ? r->ended_ns : r->begun_ns, flight_bytes, &byte_ns, out);
        flight_bytes = ends ? flight_bytes - r->size_bytes : flight_bytes + r->size_bytes;
        depth = ends ? depth - 1 : depth + 1;
        if (!ends && within(r->begun_ns, slice)) {
            out->depth[io_depth_level(depth)]++;
        }
    }
    for (; e < count && end[e]->ended_ns > 0; e++) {
        pass_time(slice, &at_ns, end[e]->ended_ns, flight_bytes, &byte_ns, out);
        flight_bytes -= end[e]->size_bytes;
    }
    pass_time(slice, &at_ns, UINT64_MAX, flight_bytes, &byte_ns, out);
    out->flight_bytes_mean = out->busy_ns > 0 ? byte_ns / (double)out->busy_ns : 0;
}

static int by_end(const void *a, const void *b)
{
    const struct io_record *x = *(const struct io_record *const *)a;
    const struct io_record *y = *(const struct io_record *const *)b;
    uint64_t end_x = x->ended_ns - 1; /* none comes last */
    uint64_t end_y = y->ended_ns - 1;
    return end_x != end_y ? (end_x > end_y) - (end_x < end_y) : (x > y) - (x < y);
}

int io_figures(const struct io_log *log, const struct io_slice *slice, struct io_figures *out)
{
    *out = (struct io_figures){.wall_ns = slice->to_ns - slice->from_ns};
    const struct io_record **begin = malloc((log->count + 1ULL) * sizeof(void *));
    const struct io_record **end = malloc((log->count + 1ULL) * sizeof(void *));
    if (begin == NULL || end == NULL) {
        free(begin);
        free(end);
        return err_set(ERR_MEMORY, "no memory for the figures of %u reads", log->count);
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < log->count; i++) {
        if (chosen(&log->record[i], slice)) {
            begin[count] = &log->record[i];
            end[count++] = &log->record[i];
        }
    }
    qsort(end, count, sizeof *end, by_end);
    count_submits(slice, begin, count, out);
    count_ends(slice, end, count, out);
    sample_rates(slice, end, count, out);
    sweep(slice, begin, end, count, out);
    free(begin);
    free(end);
    return 0;
}

static void add_levels(uint64_t into[IO_LEVELS], const uint64_t from[IO_LEVELS])
{
    for (uint32_t i = 0; i < IO_LEVELS; i++) {
        into[i] += from[i];
    }
}

void io_figures_merge(struct io_figures *into, const struct io_figures *from)
{
    double byte_ns = into->flight_bytes_mean * (double)into->busy_ns +
                     from->flight_bytes_mean * (double)from->busy_ns;
    into->wall_ns += from->wall_ns;
    into->requests += from->requests;
    into->bytes += from->bytes;
    into->errors += from->errors;
    into->repeats += from->repeats;
    into->shorts += from->shorts;
    histogram_merge(&into->slat, &from->slat);
    histogram_merge(&into->clat, &from->clat);
    histogram_merge(&into->lat, &from->lat);
    into->busy_ns += from->busy_ns;
    into->flight_bytes_mean = into->busy_ns > 0 ? byte_ns / (double)into->busy_ns : 0;
    into->flight_bytes_max = max_u64(into->flight_bytes_max, from->flight_bytes_max);
    add_levels(into->flight_ns, from->flight_ns);
    add_levels(into->depth, from->depth);
    add_levels(into->submit, from->submit);
    add_levels(into->complete, from->complete);
    into->blocked += from->blocked;
    into->blocked_ns += from->blocked_ns;
    add_samples(&into->rate, &from->rate);
    add_samples(&into->iops, &from->iops);
}
