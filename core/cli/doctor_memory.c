/* SPDX-License-Identifier: Apache-2.0 */
/* How fast all processors together read memory: no kernel can compute weights faster than they
 * arrive. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/nondet.h"
#include "core/base/thread.h"
#include "core/cli/doctor.h"

#define BUFFER_BYTES (256 * MIB)
#define MEASURE_NS 250000000ULL
#define BLOCK_WORDS 8192U
#define THREADS_MAX 256U

struct share {
    const uint64_t *word;
    uint64_t count;      /* multiple of BLOCK_WORDS */
    uint64_t until_ns;
    uint64_t bytes;      /* read */
    uint64_t sum;        /* so that reading is not left out */
};

static uint64_t sum_block(const uint64_t *word)
{
    uint64_t sum[8] = {0};
    for (uint32_t i = 0; i < BLOCK_WORDS; i += 8) {
        for (uint32_t k = 0; k < 8; k++) {
            sum[k] += word[i + k];
        }
    }
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

static void *read_share(void *ctx)
{
    struct share *s = ctx;
    uint64_t at = 0;
    while (nondet_now_ns() < s->until_ns) {
        s->sum ^= sum_block(s->word + at);
        s->bytes += BLOCK_WORDS * sizeof(uint64_t);
        at = at + BLOCK_WORDS < s->count ? at + BLOCK_WORDS : 0;
    }
    return NULL;
}

/* Bytes read by all; 0 when no thread could be begun. */
static uint64_t read_all(const uint64_t *words, uint32_t threads)
{
    pthread_t thread[THREADS_MAX];
    static struct share share[THREADS_MAX];
    uint64_t each = align_down(BUFFER_BYTES / sizeof *words / threads, BLOCK_WORDS);
    uint64_t until_ns = nondet_now_ns() + MEASURE_NS;
    uint64_t bytes = 0;
    uint32_t begun = 0;
    for (uint32_t i = 0; i < threads; i++) {
        share[i] = (struct share){.word = words + i * each, .count = each, .until_ns = until_ns};
        if (thread_create(&thread[begun], NULL, read_share, &share[i]) == 0) {
            begun++;
        }
    }
    for (uint32_t i = 0; i < begun; i++) {
        pthread_join(thread[i], NULL);
    }
    for (uint32_t i = 0; i < threads; i++) {
        bytes += share[i].bytes;
    }
    return bytes;
}

double doctor_memory_gbps(uint32_t threads)
{
    uint32_t count = (uint32_t)max_u64(1, min_u64(threads, THREADS_MAX));
    void *buffer = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                        0);
    if (buffer == MAP_FAILED) {
        return 0;
    }
    madvise(buffer, BUFFER_BYTES, MADV_HUGEPAGE); /* as weights lie in huge pages */
    memset(buffer, 1, BUFFER_BYTES);
    uint64_t begun_ns = nondet_now_ns();
    uint64_t bytes = read_all(buffer, count);
    uint64_t took_ns = nondet_now_ns() - begun_ns;
    munmap(buffer, BUFFER_BYTES);
    return took_ns > 0 ? (double)bytes / (double)took_ns : 0;
}
