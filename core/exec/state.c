/* SPDX-License-Identifier: Apache-2.0 */
/* The states of the sequences: recurrent matrices and convolution history of the KDA layers, latent
 * cache of the MLA layers. The cache is address space for the whole context; its pages become
 * present in blocks at token borders. Beside them what drafted tokens leave until accepted. */
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

static int errno_of_populate(void *at, uint64_t size_bytes)
{
    return madvise(at, size_bytes, MADV_POPULATE_WRITE) != 0 ? errno : 0;
}

/* Makes whole pages of a range present; without the call (old kernels) they fault in later. */
static int populate(void *base, uint64_t begin, uint64_t end)
{
    uint64_t first = align_down(begin, PAGE_BYTES);
    uint64_t last = align_up(end, PAGE_BYTES);
    if (base != NULL && last > first &&
        errno_of_populate((char *)base + first, last - first) == ENOMEM) {
        return err_set(ERR_MEMORY, "the system refused memory for the sequence's state; give a "
                       "smaller --ram or --context");
    }
    return 0;
}

/* Where each layer's part lies within a sequence's state. */
static void lay_out(struct engine *e)
{
    const struct model_config *c = config_of(e);
    struct sequence_state *s = &e->state;
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        if (c->is_mla[layer]) {
            s->layer_offset[layer] = s->kv_floats;
            s->kv_floats += (uint64_t)e->plan->request.context * (c->kv_lora + c->qk_rope);
        } else {
            s->layer_offset[layer] = s->kda_floats;
            s->kda_floats += c->kda_heads * (head_floats(c) + 3 * conv_floats(c));
        }
    }
}

int state_open(struct engine *e)
{
    const struct model_config *c = config_of(e);
    const struct plan_request *r = &e->plan->request;
    struct sequence_state *s = &e->state;
    s->layer_offset = calloc(c->layers, sizeof *s->layer_offset);
    s->populated = calloc(r->sequences, sizeof *s->populated);
    if (s->layer_offset == NULL || s->populated == NULL) {
        return err_set(ERR_MEMORY, "no memory for %u layers", c->layers);
    }
    lay_out(e);
    s->kda_bytes = s->kda_floats * sizeof(float) * r->sequences;
    s->kv_bytes = s->kv_floats * sizeof(float) * r->sequences;
    s->drafts_bytes = draft_bytes(c) * r->drafts;
    s->kda = map(s->kda_bytes);
    s->kv = map(s->kv_bytes);
    s->drafts = map(s->drafts_bytes);
    if ((s->kda_bytes > 0 && s->kda == NULL) || (s->kv_bytes > 0 && s->kv == NULL) ||
        (s->drafts_bytes > 0 && s->drafts == NULL)) {
        return err_set(ERR_MEMORY, "no address space for %llu bytes of state",
                       (unsigned long long)(s->kda_bytes + s->kv_bytes + s->drafts_bytes));
    }
    TRY(populate(s->drafts, 0, s->drafts_bytes));
    return populate(s->kda, 0, s->kda_bytes);
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
    if (s->drafts != NULL) {
        munmap(s->drafts, s->drafts_bytes);
    }
    free(s->layer_offset);
    free(s->populated);
}

void state_clear(struct engine *e, uint32_t sequence)
{
    struct sequence_state *s = &e->state;
    if (s->kda != NULL) {
        memset(s->kda + sequence * s->kda_floats, 0, s->kda_floats * sizeof *s->kda);
    }
}

int state_reserve(struct engine *e, uint32_t sequence, uint32_t positions)
{
    const struct model_config *c = config_of(e);
    struct sequence_state *s = &e->state;
    uint64_t width = (uint64_t)(c->kv_lora + c->qk_rope) * sizeof(float);
    uint32_t present = s->populated[sequence];
    if (positions <= present) {
        return 0;
    }
    uint32_t upto = (uint32_t)min_u64(align_up(positions, KV_BLOCK_POSITIONS),
                                      e->plan->request.context);
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        if (c->is_mla[layer]) {
            uint64_t base = (sequence * s->kv_floats + s->layer_offset[layer]) * sizeof(float);
            TRY(populate(s->kv, base + present * width, base + upto * width));
        }
    }
    s->populated[sequence] = upto;
    return 0;
}

float *state_kda(const struct engine *e, uint32_t sequence, uint32_t layer, uint32_t head)
{
    const struct sequence_state *s = &e->state;
    return s->kda + sequence * s->kda_floats + s->layer_offset[layer] +
           head * head_floats(config_of(e));
}

float *state_conv(const struct engine *e, uint32_t sequence, uint32_t layer, uint32_t kind,
                  uint32_t head)
{
    const struct model_config *c = config_of(e);
    uint64_t at = ((uint64_t)kind * c->kda_heads + head) * conv_floats(c);
    return state_kda(e, sequence, layer, c->kda_heads) + at;
}

float *state_kv(const struct engine *e, uint32_t sequence, uint32_t layer, uint32_t position)
{
    const struct model_config *c = config_of(e);
    return e->state.kv + sequence * e->state.kv_floats + e->state.layer_offset[layer] +
           (uint64_t)position * (c->kv_lora + c->qk_rope);
}

float *state_draft(const struct engine *e, uint32_t draft, uint32_t layer)
{
    const struct model_config *c = config_of(e);
    uint64_t ordinal = e->state.layer_offset[layer] /
                       (c->kda_heads * (head_floats(c) + 3 * conv_floats(c)));
    return e->state.drafts + draft * draft_bytes(c) / sizeof(float) +
           ordinal * draft_layer_floats(c);
}
