/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a sequence: recurrent matrices and convolution history of the KDA layers, latent
 * cache of the MLA layers. The cache is address space for the whole context; its pages become
 * present in blocks at token borders. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/exec/exec_priv.h"

#define KV_BLOCK_POSITIONS 64U

static uint64_t head_floats(const struct model_config *c)
{
    return (uint64_t)c->kda_dim * c->kda_dim;
}

static uint64_t conv_floats(const struct model_config *c)
{
    return (uint64_t)(c->conv_taps - 1) * c->kda_dim;
}

static float *map(uint64_t size_bytes)
{
    if (size_bytes == 0) {
        return NULL;
    }
    void *at = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return NULL;
    }
    madvise(at, size_bytes, MADV_DONTFORK);
    return at;
}

/* Makes whole pages of a range present; without the call (old kernels) they fault in later. */
static int populate(void *base, uint64_t begin, uint64_t end)
{
    uint64_t first = align_down(begin, PAGE_BYTES);
    if (end > first && madvise((char *)base + first, align_up(end, PAGE_BYTES) - first,
                               MADV_POPULATE_WRITE) != 0 && errno == ENOMEM) {
        return err_set(ERR_MEMORY, "the system refused memory for the sequence's state; give a "
                       "smaller --ram or --context");
    }
    return 0;
}

int state_open(struct engine *e)
{
    const struct model_config *c = config_of(e);
    struct sequence_state *s = &e->state;
    s->layer_offset = calloc(c->layers, sizeof *s->layer_offset);
    if (s->layer_offset == NULL) {
        return err_set(ERR_MEMORY, "no memory for %u layers", c->layers);
    }
    uint64_t kda = 0;
    uint64_t kv = 0;
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        if (c->is_mla[layer]) {
            s->layer_offset[layer] = kv;
            kv += (uint64_t)e->plan->request.context * (c->kv_lora + c->qk_rope);
        } else {
            s->layer_offset[layer] = kda;
            kda += c->kda_heads * (head_floats(c) + 3 * conv_floats(c));
        }
    }
    s->kda_bytes = kda * sizeof(float);
    s->kv_bytes = kv * sizeof(float);
    s->kda = map(s->kda_bytes);
    s->kv = map(s->kv_bytes);
    if ((kda > 0 && s->kda == NULL) || (kv > 0 && s->kv == NULL)) {
        return err_set(ERR_MEMORY, "no address space for %llu bytes of state",
                       (unsigned long long)(s->kda_bytes + s->kv_bytes));
    }
    return s->kda != NULL ? populate(s->kda, 0, s->kda_bytes) : 0;
}

void state_close(struct engine *e)
{
    struct sequence_state *s = &e->state;
    if (s->kda != NULL) {
        munmap(s->kda, s->kda_bytes);
    }
    if (s->kv != NULL) {
        munmap(s->kv, s->kv_bytes);
    }
    free(s->layer_offset);
}

void state_clear(struct engine *e)
{
    if (e->state.kda != NULL) {
        memset(e->state.kda, 0, e->state.kda_bytes);
    }
    e->position = 0;
}

int state_reserve(struct engine *e, uint32_t positions)
{
    const struct model_config *c = config_of(e);
    struct sequence_state *s = &e->state;
    uint64_t width = (uint64_t)(c->kv_lora + c->qk_rope) * sizeof(float);
    if (positions <= s->populated) {
        return 0;
    }
    uint32_t upto = (uint32_t)min_u64(align_up(positions, KV_BLOCK_POSITIONS),
                                      e->plan->request.context);
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        if (c->is_mla[layer]) {
            uint64_t base = s->layer_offset[layer] * sizeof(float);
            TRY(populate(s->kv, base + s->populated * width, base + upto * width));
        }
    }
    s->populated = upto;
    return 0;
}

float *state_kda(const struct engine *e, uint32_t layer, uint32_t head)
{
    return e->state.kda + e->state.layer_offset[layer] + head * head_floats(config_of(e));
}

float *state_conv(const struct engine *e, uint32_t layer, uint32_t kind, uint32_t head)
{
    const struct model_config *c = config_of(e);
    uint64_t at = c->kda_heads * head_floats(c) +
                  ((uint64_t)kind * c->kda_heads + head) * conv_floats(c);
    return e->state.kda + e->state.layer_offset[layer] + at;
}

float *state_kv(const struct engine *e, uint32_t layer, uint32_t position)
{
    const struct model_config *c = config_of(e);
    return e->state.kv + e->state.layer_offset[layer] +
           (uint64_t)position * (c->kv_lora + c->qk_rope);
}
