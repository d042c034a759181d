/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/histogram.h"

#include <math.h>

#define FINE_BITS 6U /* 64 buckets per power of two */
#define FINE (1U << FINE_BITS)

const double histogram_percentiles[HISTOGRAM_PERCENTILES] = {
    1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99};

uint32_t histogram_bucket(uint64_t value)
{
    if (value < 2 * FINE) {
        return (uint32_t)value;
    }
    uint32_t top = 63U - (uint32_t)__builtin_clzll(value);
    uint32_t dropped = top - FINE_BITS; /* low bits that no bucket tells apart */
    uint64_t bucket = ((uint64_t)(dropped + 1) << FINE_BITS) + ((value >> dropped) & (FINE - 1));
    return (uint32_t)min_u64(bucket, HISTOGRAM_BUCKETS - 1);
}

uint64_t histogram_value(uint32_t bucket)
{
    if (bucket < 2 * FINE) {
        return bucket;
    }
    uint32_t dropped = (bucket >> FINE_BITS) - 1;
    uint64_t base = (uint64_t)1 << (dropped + FINE_BITS);
    uint64_t width = (uint64_t)1 << dropped;
    return base + (bucket % FINE) * width + width / 2;
}

void histogram_add(struct histogram *h, uint64_t value)
{
    double from_mean = (double)value - h->mean;
    h->bucket[histogram_bucket(value)]++;
    h->least = h->count == 0 || value < h->least ? value : h->least;
    h->most = max_u64(h->most, value);
    h->count++;
    h->mean += from_mean / (double)h->count;
    h->squares += from_mean * ((double)value - h->mean);
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    if (from->count == 0) {
        return;
    }
    double n = (double)into->count;
    double m = (double)from->count;
    double apart = from->mean - into->mean;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        into->bucket[i] += from->bucket[i];
    }
    into->least = into->count == 0 ? from->least : min_u64(into->least, from->least);
    into->most = max_u64(into->most, from->most);
    into->mean += apart * m / (n + m);
    into->squares += from->squares + apart * apart * n * m / (n + m);
    into->count += from->count;
}

uint64_t histogram_percentile(const struct histogram *h, double percent)
{
    double wanted = percent / 100.0 * (double)h->count;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS && h->count > 0; i++) {
        seen += h->bucket[i];
        if (h->bucket[i] > 0 && (double)seen >= wanted) {
            return max_u64(h->least, min_u64(h->most, histogram_value(i)));
        }
    }
    return 0;
}

double histogram_deviation(const struct histogram *h)
{
    return h->count > 1 ? sqrt(h->squares / (double)(h->count - 1)) : 0.0;
}

bool histogram_tells(const struct histogram *h, double percent)
{
    return (double)h->count * (100 - percent) >= 100 - 1e-6;
}
