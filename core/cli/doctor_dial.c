/* SPDX-License-Identifier: Apache-2.0 */
/* The RAM dial: what each amount of memory leaves to be read for a token, and how long that takes
 * at the rates that were measured; then what to do next. */
#include <string.h>

#include "core/cli/doctor.h"
#include "core/cli/engine_options.h"
#include "core/cli/text.h"

/* What rows are planned for, as `k3ring plan` has it without options. */
#define PROMPT 3U
#define POSITIONS 19U

#define NO_LIMIT ((uint64_t)1 << 50)
#define VOCAB_OF_PROMPT 20000U /* the ids of the README's prompt are below */

static int plan_at(const struct doctor *d, uint64_t ram, bool all, struct plan **plan)
{
    struct engine_options options = {
        .ram_bytes = ram, .io_depth = ENGINE_IO_DEPTH, .io_size_bytes = ENGINE_IO_SIZE,
        .context = POSITIONS, .prompt_tokens = PROMPT, .chunk = PLAN_AUTO,
        .pin_bytes = all ? PLAN_ALL : PLAN_AUTO, .pin_percent = -1.0,
        .expert_slots = all ? PLAN_ALL : PLAN_AUTO, .tile_bytes = 4 * MIB};
    return engine_plan_model(d->model, &options, plan);
}

static uint64_t experts_of(const struct model_config *c)
{
    return c->layers > c->first_dense ? (uint64_t)(c->layers - c->first_dense) * c->experts : 0;
}

/* Cached experts are taken to be asked for as often as others: real routing prefers some, and a
 * policy keeps those. */
static uint64_t missed_bytes(const struct model_config *c, const struct plan *plan)
{
    uint64_t all = experts_of(c);
    uint64_t asked = plan->experts_per_pass * plan->expert_window_bytes;
    double kept = all > 0 ? (double)min_u64(plan->cache_slots, all) / (double)all : 0;
    return (uint64_t)((double)asked * (1 - kept));
}

static uint64_t computed_bytes(const struct plan *plan)
{
    uint64_t bytes = plan->experts_per_pass * plan->expert_payload_bytes;
    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        bytes += plan->traffic[kind].payload_bytes;
    }
    return bytes;
}

static double seconds(uint64_t bytes, double gbps)
{
    return gbps > 0 ? (double)bytes / 1e9 / gbps : 0;
}

static void fill_row(struct doctor *d, enum doctor_size size, uint64_t ram,
                     const struct plan *plan)
{
    struct doctor_row *row = &d->row[d->row_count++];
    uint64_t requests;
    *row = (struct doctor_row){.size = size, .ram_bytes = ram};
    plan_pass_reads(plan, false, false, true, &row->trunk_bytes, &requests);
    row->expert_bytes = missed_bytes(&d->model->config, plan);
    row->computed_bytes = computed_bytes(plan);
    row->drive_s = seconds(row->trunk_bytes, d->trunk_gbps) +
                   seconds(row->expert_bytes, d->expert_gbps);
    row->memory_s = seconds(row->computed_bytes, d->memory_gbps);
    row->fits = ram <= d->env.system.available_bytes;
}

/* A size that cannot be planned is left out: there is nothing to tell of it. */
static void add_row(struct doctor *d, enum doctor_size size, uint64_t ram)
{
    struct plan *plan;
    if (d->row_count == DOCTOR_ROWS_MAX) {
        return;
    }
    if (plan_at(d, ram, size == DOCTOR_ALL, &plan) < 0) {
        err_clear();
        return;
    }
    fill_row(d, size, ram, plan);
    plan_free(plan);
}

static void check_floor(struct doctor *d, uint64_t floor_bytes)
{
    const struct environment_system *s = &d->env.system;
    double gib = (double)floor_bytes / (double)GIB;
    if (floor_bytes <= s->available_bytes) {
        doctor_say(d, DOCTOR_MEMORY, DOCTOR_OK, NULL, "a run needs at least %.2f GiB", gib);
    } else {
        doctor_forbid(d, DOCTOR_MEMORY, "free memory, or raise the limit of the control group",
                      "a run needs at least %.2f GiB, but %s allows %.2f GiB", gib,
                      s->available_why, (double)s->available_bytes / (double)GIB);
    }
}

/* The largest amount of the dial that this machine can give with a tenth to spare. */
static const struct doctor_row *best_row(const struct doctor *d)
{
    const struct doctor_row *best = NULL;
    for (uint32_t i = 0; i < d->row_count; i++) {
        bool spare = d->row[i].ram_bytes <= d->env.system.available_bytes / 10 * 9;
        best = spare ? &d->row[i] : best;
    }
    return best;
}

static void name_next(struct doctor *d)
{
    char dir[ENVIRONMENT_TEXT_BYTES];
    char ram[32] = "";
    const struct doctor_row *best = best_row(d);
    if (d->dir == NULL) {
        snprintf(d->next, sizeof d->next, "k3ring doctor MODEL");
        return;
    }
    if (best != NULL && best->size == DOCTOR_POWER) {
        snprintf(ram, sizeof ram, " --ram %lluG", (unsigned long long)(best->ram_bytes / GIB));
    }
    text_shell(dir, sizeof dir, d->dir);
    if (doctor_forbidden(d) > 0) {
        snprintf(d->next, sizeof d->next, "k3ring doctor %s", dir);
        return;
    }
    snprintf(d->next, sizeof d->next, "k3ring run %s --ids %s --gen 8%s", dir,
             d->model->config.vocab >= VOCAB_OF_PROMPT ? "1008,10484,318,15383,387"
                                                       : "3,141,59,26,53,58,97,93", ram);
}

int doctor_dial(struct doctor *d)
{
    struct plan *plan;
    TRY(plan_at(d, NO_LIMIT, true, &plan));
    uint64_t all = align_up(plan->account.total, MIB);
    plan_free(plan);
    TRY(plan_at(d, NO_LIMIT, false, &plan));
    uint64_t floor_bytes = plan->floor_bytes;
    plan_free(plan);
    add_row(d, DOCTOR_FLOOR, floor_bytes);
    for (uint64_t ram = GIB; ram < all; ram *= 2) {
        if (ram > floor_bytes) {
            add_row(d, DOCTOR_POWER, ram);
        }
    }
    add_row(d, DOCTOR_ALL, all);
    check_floor(d, floor_bytes);
    name_next(d);
    return 0;
}
