/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/fio_text.h"

#include <math.h>

#define LINE_COLUMNS 73           /* what percentiles of a line may take */
#define SHARE_LEAST 0.1

const char *const fio_step_names[FIO_STEPS_MS] = {"2", "4", "10", "20", "50", "100", "250", "500",
                                                  "750", "1000", "2000", ">=2000"};
const char *const fio_depth_names[IO_LEVELS] = {"1", "2", "4", "8", "16", "32", ">=64"};
const char *const fio_batch_names[IO_LEVELS] = {"0", "4", "8", "16", "32", "64", ">=64"};

static const uint32_t steps[FIO_STEPS_MS] = {2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000,
                                             UINT32_MAX};

const char *fio_amount(char text[FIO_AMOUNT_BYTES], double value, bool binary, const char *unit)
{
    static const char *const prefixes[2][6] = {{"", "k", "M", "G", "T", "P"},
                                               {"", "Ki", "Mi", "Gi", "Ti", "Pi"}};
    uint32_t power = 0;
    while (value >= 10000 && power < 5) {
        value /= binary ? 1024 : 1000;
        power++;
    }
    int decimals = power == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(text, FIO_AMOUNT_BYTES, "%.*f%s%s", decimals, value, prefixes[binary][power], unit);
    return text;
}

const char *fio_size(char text[FIO_AMOUNT_BYTES], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    uint32_t power = 0;
    while (value >= 1024 && power < countof(units) - 1) {
        value /= 1024;
        power++;
    }
    bool whole = value >= 100 || floor(value) == value;
    snprintf(text, FIO_AMOUNT_BYTES, "%.*f%s", whole ? 0 : value >= 10 ? 1 : 2, value,
             units[power]);
    return text;
}

double fio_share(uint64_t part, uint64_t total)
{
    if (part == 0 || total == 0) {
        return 0;
    }
    return fmax(SHARE_LEAST, 100.0 * (double)part / (double)total);
}

static void count_latency(uint64_t value, uint64_t count, uint64_t *table)
{
    uint32_t step = 0;
    while (step < FIO_STEPS_MS - 1 && value >= steps[step]) {
        step++;
    }
    table[step] += count;
}

void fio_latencies(const struct histogram *h, struct fio_latencies *out)
{
    *out = (struct fio_latencies){0};
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t ns = histogram_value(i);
        if (ns < 1000) {
            count_latency(ns, h->bucket[i], out->ns);
        } else if (ns < 1000000) {
            count_latency(ns / 1000, h->bucket[i], out->us);
        } else {
            count_latency(ns / 1000000, h->bucket[i], out->ms);
        }
    }
}

/* ---- lines ---- */

double fio_unit(const struct histogram *h, const char **name)
{
    double deviation = histogram_deviation(h);
    if (h->least > 2000000 && h->most > 99999999 && deviation > 1e6) {
        *name = "msec";
        return 1e6;
    }
    if (h->least > 2000 && h->most > 99999 && deviation > 1e3) {
        *name = "usec";
        return 1e3;
    }
    *name = "nsec";
    return 1;
}

/* fio shows six digits of these. */
static const char *whole(char text[FIO_AMOUNT_BYTES], double value)
{
    if (value < 1e6) {
        snprintf(text, FIO_AMOUNT_BYTES, "%.0f", floor(value));
        return text;
    }
    return fio_amount(text, value, false, "");
}

void fio_print_latency(FILE *out, const char *label, const struct histogram *h)
{
    char least[FIO_AMOUNT_BYTES];
    char most[FIO_AMOUNT_BYTES];
    const char *name;
    double unit = fio_unit(h, &name);
    if (h->count > 0) {
        fprintf(out, "    %4s (%s): min=%5s, max=%5s, avg=%5.02f, stdev=%5.02f\n", label, name,
                whole(least, (double)h->least / unit), whole(most, (double)h->most / unit),
                h->mean / unit, histogram_deviation(h) / unit);
    }
}

/* Percentiles take the larger unit by their ends alone. */
static uint64_t percentile_unit(uint64_t least, uint64_t most, const char **name)
{
    if (least > 2000000 && most > 99999999) {
        *name = "msec";
        return 1000000;
    }
    *name = least > 2000 && most > 99999 ? "usec" : "nsec";
    return (*name)[0] == 'u' ? 1000 : 1;
}

void fio_print_percentiles(FILE *out, const char *label, const struct histogram *h)
{
    const char *name;
    uint64_t most = histogram_percentile(h, histogram_percentiles[HISTOGRAM_PERCENTILES - 1]);
    uint64_t unit = percentile_unit(histogram_percentile(h, histogram_percentiles[0]), most, &name);
    char widest[FIO_AMOUNT_BYTES];
    int width = snprintf(widest, sizeof widest, "%llu",
                         (unsigned long long)div_ceil(most, unit));
    width = width > 5 ? width : 5;
    int per_line = LINE_COLUMNS / (12 + width);
    if (h->count == 0) {
        return;
    }
    fprintf(out, "    %s percentiles (%s):\n", label, name);
    for (int i = 0; i < HISTOGRAM_PERCENTILES; i++) {
        bool last = i == HISTOGRAM_PERCENTILES - 1;
        uint64_t value = div_ceil(histogram_percentile(h, histogram_percentiles[i]), unit);
        char text[FIO_AMOUNT_BYTES] = "-";
        if (histogram_tells(h, histogram_percentiles[i])) {
            snprintf(text, sizeof text, "%llu", (unsigned long long)value);
        }
        fprintf(out, "%s %5.2fth=[%*s]%s", i % per_line == 0 ? "     |" : "",
                histogram_percentiles[i], width, text, last ? "\n" : ",");
        if (!last && i % per_line == per_line - 1) {
            fprintf(out, "\n");
        }
    }
}

static void print_steps(FILE *out, const char *unit, const uint64_t *table, uint32_t count,
                        uint64_t total)
{
    uint32_t shown = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (table[i] == 0) {
            continue;
        }
        if (shown % 5 == 0) {
            fprintf(out, "%s  lat (%s)   : ", shown > 0 ? "\n" : "", unit);
        } else {
            fprintf(out, ", ");
        }
        fprintf(out, "%s=%3.2f%%", fio_step_names[i], 100.0 * (double)table[i] / (double)total);
        shown++;
    }
    fprintf(out, "%s", shown > 0 ? "\n" : "");
}

void fio_print_latencies(FILE *out, const struct histogram *h)
{
    struct fio_latencies l;
    fio_latencies(h, &l);
    print_steps(out, "nsec", l.ns, FIO_STEPS, h->count);
    print_steps(out, "usec", l.us, FIO_STEPS, h->count);
    print_steps(out, "msec", l.ms, FIO_STEPS_MS, h->count);
}

void fio_print_levels(FILE *out, const char *label, const char *const names[IO_LEVELS],
                      const uint64_t levels[IO_LEVELS])
{
    uint64_t total = 0;
    for (int i = 0; i < IO_LEVELS; i++) {
        total += levels[i];
    }
    fprintf(out, "%s: ", label);
    for (int i = 0; i < IO_LEVELS; i++) {
        fprintf(out, "%s%s=%3.1f%%", i > 0 ? ", " : "", names[i], fio_share(levels[i], total));
    }
    fprintf(out, "\n");
}
