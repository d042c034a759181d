/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/plan.h"

#include <stdlib.h>

#include "core/base/err.h"
#include "planner/planner_priv.h"

uint64_t plan_requests_of(const struct plan *plan, uint64_t window_bytes)
{
    return div_ceil(window_bytes, plan->io_size_bytes);
}

uint32_t plan_ring_tiles(const struct plan *plan)
{
    return (uint32_t)min_u64(plan->tile_count + 1ULL, plan->ring_bytes / PAGE_BYTES + 1);
}

static enum traffic_kind traffic_of(const struct model *model, const struct plan_step *step)
{
    if (step->kind == STEP_HEAD) {
        return TRAFFIC_HEAD;
    }
    switch (step->tensor) {
    case T_DENSE_GATE:
    case T_DENSE_UP:
    case T_DENSE_DOWN:
        return TRAFFIC_DENSE;
    case T_ROUTER:
    case T_LATENT_DOWN:
    case T_LATENT_UP:
    case T_SHARED_GATE:
    case T_SHARED_UP:
    case T_SHARED_DOWN:
        return TRAFFIC_MOE;
    default:
        return model->config.is_mla[step->layer] ? TRAFFIC_MLA : TRAFFIC_KDA;
    }
}

static void count_traffic(const struct model *model, struct plan *plan)
{
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        const struct plan_tile *tile = &plan->tiles[i];
        struct plan_traffic *t = &plan->traffic[traffic_of(model, &plan->steps[tile->step])];
        t->tiles++;
        t->payload_bytes += tile->payload_bytes;
        t->window_bytes += tile->window_bytes;
        if (tile->pinned) {
            t->pinned_tiles++;
            t->pinned_bytes += tile->window_bytes;
        } else {
            t->streamed_tiles++;
            t->streamed_bytes += tile->window_bytes;
            t->streamed_payload_bytes += tile->payload_bytes;
            t->requests += plan_requests_of(plan, tile->window_bytes);
        }
    }
}

int plan_build(const struct model *model, const struct plan_request *request, struct plan **out)
{
    assert(request->io_depth > 0 && request->io_size_bytes % PAGE_BYTES == 0);
    struct plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        return err_set(ERR_MEMORY, "no memory for a plan");
    }
    plan->request = *request;
    plan->request.sequences = plan->request.sequences > 0 ? plan->request.sequences : 1;
    plan->request.head_rows = plan->request.head_rows > 0 ? plan->request.head_rows : 1;
    plan->request.tokens_min = plan->request.tokens_min > 0 ? plan->request.tokens_min : 1;
    int rc = walk_build(model, plan);
    if (rc == 0) {
        rc = budget_split(model, plan);
    }
    if (rc < 0) {
        plan_free(plan);
        return rc;
    }
    if (plan->request.head_rows == PLAN_ROWS_ALL) {
        plan->request.head_rows = plan->chunk;
    }
    count_traffic(model, plan);
    plan_check(plan, model);
    *out = plan;
    return 0;
}

int plan_walk(const struct model *model, uint64_t tile_bytes, struct plan **out)
{
    struct plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        return err_set(ERR_MEMORY, "no memory for a plan");
    }
    plan->request.tile_bytes = tile_bytes;
    int rc = walk_build(model, plan);
    if (rc < 0) {
        plan_free(plan);
        return rc;
    }
    *out = plan;
    return 0;
}

void plan_free(struct plan *plan)
{
    if (plan != NULL) {
        free(plan->steps);
        free(plan->tiles);
        free(plan);
    }
}

static void check_step(const struct plan *plan, const struct model *model, uint32_t index)
{
    const struct plan_step *step = &plan->steps[index];
    for (uint32_t d = 0; d < step->dep_count; d++) {
        assert(step->dep[d] < index);
    }
    uint32_t row = 0;
    for (uint32_t i = 0; i < step->tile_count; i++) {
        const struct plan_tile *tile = &plan->tiles[step->tile_first + i];
        assert(tile->step == index && tile->row_first == row && tile->row_count > 0);
        row += tile->row_count;
    }
    if (step->tile_count > 0) {
        uint32_t owner = step->tensor >= T_LAYER_COUNT ? TENSOR_MODEL_LEVEL : step->layer;
        assert(row == model_tensor(model, owner, step->tensor)->rows);
    }
}

void plan_check(const struct plan *plan, const struct model *model)
{
    uint64_t slice = plan->request.pin_slice_bytes;
    uint64_t pin_end = 0;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        check_step(plan, model, i);
    }
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        const struct plan_tile *tile = &plan->tiles[i];
        assert(tile->offset_bytes % PAGE_BYTES == 0 && tile->window_bytes % PAGE_BYTES == 0);
        assert(tile->skip_bytes + tile->payload_bytes <= tile->window_bytes);
        if (tile->pinned) {
            assert(tile->pin_offset_bytes >= pin_end);
            pin_end = tile->pin_offset_bytes + tile->window_bytes;
            assert(tile->pin_offset_bytes / slice == (pin_end - 1) / slice);
        } else {
            assert(tile->window_bytes <= plan->ring_bytes);
        }
    }
    assert(pin_end == plan->pin_area_bytes);
    assert(plan->account.total <= plan->request.ram_bytes);
}

void plan_pass_reads(const struct plan *plan, bool first, bool first_head, bool head,
                     uint64_t *bytes, uint64_t *requests)
{
    *bytes = 0;
    *requests = 0;
    uint32_t end = head ? plan->tile_count : plan->head_tile_first;
    for (uint32_t i = 0; i < end; i++) {
        const struct plan_tile *tile = &plan->tiles[i];
        bool load = i < plan->head_tile_first ? first : first_head;
        if (!tile->pinned || load) {
            *bytes += tile->window_bytes;
            *requests += plan_requests_of(plan, tile->window_bytes);
        }
    }
}
