/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences and passes, from the caller's thread. */
#include <string.h>

#include "core/exec/exec_priv.h"

#define TICK_NS 200000000ULL

static int report_failure(struct engine *e)
{
    return err_set(atomic_load(&e->error), "%s", e->error_text);
}

/* Bytes all announced passes will read, with every expert a miss. */
static uint64_t planned_bytes(const struct engine *e, uint32_t prompt_passes, uint32_t steps)
{
    const struct plan *p = e->plan;
    uint64_t bytes;
    uint64_t requests;
    uint64_t total = 0;
    bool first = e->passes_ever == 0;
    if (prompt_passes > 1) {
        plan_pass_reads(p, first, first, false, &bytes, &requests);
        total += bytes;
        plan_pass_reads(p, false, false, false, &bytes, &requests);
        total += (prompt_passes - 2) * bytes;
    }
    plan_pass_reads(p, first && prompt_passes == 1, first, true, &bytes, &requests);
    total += bytes;
    plan_pass_reads(p, false, false, true, &bytes, &requests);
    const struct model_config *c = config_of(e);
    uint64_t per_layer = min_u64(c->experts, (uint64_t)p->chunk * c->experts_per_token);
    uint64_t prompt_experts = prompt_passes * per_layer * (p->experts_per_pass /
                                                           c->experts_per_token);
    return total + steps * bytes + p->expert_window_bytes *
           (prompt_experts + (uint64_t)steps * p->experts_per_pass);
}

int engine_begin(struct engine *e, uint32_t prompt_tokens, uint32_t steps)
{
    assert(!e->begun && prompt_tokens > 0);
    if (atomic_load(&e->error) != 0) {
        return report_failure(e);
    }
    if ((uint64_t)prompt_tokens + steps > e->plan->request.context) {
        return err_set(ERR_FIT, "%u prompt tokens and %u steps exceed --context %u",
                       prompt_tokens, steps, e->plan->request.context);
    }
    uint32_t prompt_passes = (uint32_t)div_ceil(prompt_tokens, e->plan->chunk);
    state_clear(e);
    TRY(state_reserve(e, (uint32_t)min_u64(prompt_tokens, e->plan->chunk)));
    e->begun = true;
    e->passes_made = 0;
    e->prompt_left = prompt_tokens;
    e->planned_bytes = planned_bytes(e, prompt_passes, steps);
    for (int i = 0; i < READ_CLASSES; i++) {
        e->planned_bytes += atomic_load(&e->class_bytes[i]);
    }
    atomic_store(&e->pass_now, 0);
    atomic_store(&e->pass_head_first, prompt_passes - 1);
    atomic_store(&e->passes_total, prompt_passes + steps);
    if (!e->options.stepped) {
        io_wake(e->io);
    }
    return 0;
}

static void tick(struct engine *e)
{
    if (e->tick != NULL) {
        struct engine_progress p = {.planned_bytes = e->planned_bytes, .pass = e->passes_made,
                                    .passes = atomic_load(&e->passes_total)};
        for (int i = 0; i < READ_CLASSES; i++) {
            p.done_bytes += atomic_load(&e->class_bytes[i]);
        }
        e->tick(e->tick_ctx, &p);
    }
}

static void wait_for(struct engine *e, _Atomic uint32_t *flag)
{
    while (!atomic_load(flag) && atomic_load(&e->error) == 0) {
        if (e->options.stepped) {
            engine_pump(e);
            continue;
        }
        uint32_t key = gate_enter(&e->pass_gate);
        if (atomic_load(flag) || atomic_load(&e->error) != 0) {
            gate_leave(&e->pass_gate);
        } else {
            gate_wait(&e->pass_gate, key, TICK_NS);
        }
        tick(e);
    }
}

int engine_check_ids(const struct engine *e, const char *what, const uint32_t *ids,
                     uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] >= config_of(e)->vocab) {
            return err_set(ERR_USAGE, "%s: id %u (number %u) is not of this model, whose ids run "
                           "from 0 to %u", what, ids[i], i + 1, config_of(e)->vocab - 1);
        }
    }
    return 0;
}

static void start_pass(struct engine *e, const uint32_t *ids, uint32_t count)
{
    memcpy(e->ids, ids, count * sizeof *ids);
    e->tokens = count;
    e->head = e->passes_made >= atomic_load(&e->pass_head_first);
    run_reset(e);
    atomic_store(&e->pass_done, 0);
    atomic_store(&e->pass_now, e->passes_made);
    atomic_store(&e->rows_wanted, 1);
    if (!e->options.stepped) {
        io_wake(e->io);
    }
}

static void finish_pass(struct engine *e, uint32_t count)
{
    e->position += count;
    e->positions_made += count;
    e->prompt_left -= (uint32_t)min_u64(count, e->prompt_left);
    e->passes_made++;
    e->passes_ever++;
}

int engine_pass(struct engine *e, const uint32_t *ids, uint32_t count, const float **logits)
{
    assert(e->begun && count > 0 && count <= e->plan->chunk);
    assert(e->passes_made < atomic_load(&e->passes_total));
    assert(e->prompt_left == 0 ? count == 1 : count == min_u64(e->plan->chunk, e->prompt_left));
    TRY(engine_check_ids(e, "prompt", ids, count));
    TRY(state_reserve(e, e->position + count));
    if (atomic_load(&e->interrupted)) {
        return err_set(ERR_STOPPED, "stopped before pass %u of %u", e->passes_made + 1,
                       atomic_load(&e->passes_total));
    }
    start_pass(e, ids, count);
    wait_for(e, &e->pass_done);
    if (atomic_load(&e->error) != 0) {
        return report_failure(e);
    }
    finish_pass(e, count);
    *logits = e->head ? e->logits : NULL;
    return 0;
}

static void wait_drained(struct engine *e)
{
    if (e->options.stepped) {
        fetch_step(e, true);
        return;
    }
    uint32_t key = gate_enter(&e->pass_gate);
    if (atomic_load(&e->drained) || atomic_load(&e->ring_dead)) {
        gate_leave(&e->pass_gate);
    } else {
        gate_wait(&e->pass_gate, key, TICK_NS);
    }
}

int engine_end(struct engine *e)
{
    if (!e->begun) {
        return 0;
    }
    e->begun = false;
    atomic_store(&e->passes_total, 0);
    atomic_store(&e->drained, 0);
    atomic_store(&e->drain_wanted, 1);
    if (!e->options.stepped) {
        io_wake(e->io);
    }
    /* Also after a failure: the figures belong to the I/O thread until it has drained. */
    while (!atomic_load(&e->drained) && !atomic_load(&e->ring_dead)) {
        wait_drained(e);
    }
    return atomic_load(&e->error) != 0 ? report_failure(e) : io_files_unchanged(&e->files);
}
