/* SPDX-License-Identifier: Apache-2.0 */
#include "core/exec/journal.h"

#include <stdlib.h>

#include "core/exec/exec_priv.h"

_Static_assert((int)DOING_TILE == (int)TASK_TILE && (int)DOING_PART == (int)TASK_PART &&
                   (int)DOING_EXPERT == (int)TASK_EXPERT &&
                   (int)DOING_EXPERT_HIDDEN == (int)TASK_EXPERT_HIDDEN,
               "a span's doing is the kind of its task");

int journal_open(struct journal *j, uint32_t experts_max, uint32_t workers, uint32_t spans_max,
                 uint32_t waits_max)
{
    *j = (struct journal){.experts_max = experts_max, .workers = workers, .spans_max = spans_max,
                          .waits_max = waits_max};
    j->expert = calloc(experts_max + 1ULL, sizeof *j->expert);
    j->worker = calloc(workers, sizeof *j->worker);
    bool held = j->expert != NULL && j->worker != NULL;
    for (uint32_t i = 0; i < workers && held; i++) {
        j->worker[i].span = calloc(spans_max + 1ULL, sizeof *j->worker[i].span);
        j->worker[i].wait_span = calloc(waits_max + 1ULL, sizeof *j->worker[i].span);
        held = j->worker[i].span != NULL && j->worker[i].wait_span != NULL;
    }
    if (!held) {
        journal_close(j);
        return err_set(ERR_MEMORY, "no memory for a journal of %u experts and %u spans",
                       experts_max, spans_max);
    }
    return 0;
}

void journal_close(struct journal *j)
{
    for (uint32_t i = 0; j->worker != NULL && i < j->workers; i++) {
        free(j->worker[i].span);
        free(j->worker[i].wait_span);
    }
    free(j->worker);
    free(j->expert);
    *j = (struct journal){0};
}

uint64_t journal_bytes(uint32_t experts_max, uint32_t workers, uint32_t spans_max,
                       uint32_t waits_max)
{
    return (experts_max + 1ULL) * sizeof(struct journal_expert) +
           workers * (sizeof(struct journal_worker) +
                      (spans_max + waits_max + 2ULL) * sizeof(struct journal_span));
}

void journal_demand(struct engine *e)
{
    struct journal *j = e->options.journal;
    const struct batch *b = &e->batch;
    if (j == NULL) {
        return;
    }
    uint64_t now_ns = nondet_now_ns();
    e->journal_first = j->expert_count;
    for (uint32_t i = 0; i < b->count; i++) {
        if (j->expert_count == j->experts_max) {
            j->experts_missed += b->count - i;
            break;
        }
        j->expert[j->expert_count++] = (struct journal_expert){
            .needed_ns = now_ns, .ready_ns = b->run[i].hit ? now_ns : 0, .hit = b->run[i].hit,
            .pass = (uint32_t)e->passes_ever, .layer = (uint16_t)b->layer,
            .expert = (uint16_t)b->run[i].expert};
    }
}

void journal_arrival(struct engine *e, uint32_t index)
{
    struct journal *j = e->options.journal;
    if (j != NULL && e->journal_first + index < j->expert_count) {
        j->expert[e->journal_first + index].ready_ns = nondet_now_ns();
    }
}

uint64_t journal_begin(const struct engine *e, enum journal_spans wanted)
{
    const struct journal *j = e->options.journal;
    return j != NULL && atomic_load_explicit(&j->spans, memory_order_relaxed) >= (uint32_t)wanted &&
                   !atomic_load(&e->pass_done)
               ? nondet_now_ns() : 0;
}

static void add_span(struct journal_worker *to, struct journal_span *list, uint32_t *count,
                     uint32_t most, struct journal_span span)
{
    if (*count == most) {
        to->missed++;
    } else {
        list[(*count)++] = span;
    }
}

void journal_end(struct engine *e, const struct worker *w, uint64_t begun_ns, uint32_t step,
                 uint32_t doing)
{
    struct journal *j = e->options.journal;
    if (begun_ns == 0 || w->index >= j->workers) {
        return;
    }
    struct journal_span span = {.begun_ns = begun_ns, .ended_ns = nondet_now_ns(), .step = step,
                                .doing = (uint8_t)doing};
    struct journal_worker *to = &j->worker[w->index];
    if (doing >= DOING_WAIT) {
        histogram_add(&to->wait, span.ended_ns - begun_ns);
        add_span(to, to->wait_span, &to->wait_count, j->waits_max, span);
    }
    if (atomic_load_explicit(&j->spans, memory_order_relaxed) == SPANS_ALL) {
        add_span(to, to->span, &to->count, j->spans_max, span);
    }
}
