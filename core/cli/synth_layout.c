/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/synth_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/nondet.h"

/* A header entry beside its name: dtype, four extents and two offsets at their longest. */
#define ENTRY_BYTES_MAX 192

static int by_file_order(const void *left, const void *right)
{
    const struct synth_tensor *a = left;
    const struct synth_tensor *b = right;
    if (a->dtype != b->dtype) {
        return a->dtype < b->dtype ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

static void add_spec(struct synth_shard *shard, const struct tensor_spec *spec)
{
    struct synth_tensor *tensor = &shard->tensors[shard->tensor_count++];
    *tensor = (struct synth_tensor){.dtype = spec->dtype, .rank = spec->rank, .id = spec->id,
                                    .part = spec->part, .size_bytes = tensor_spec_bytes(spec)};
    memcpy(tensor->name, spec->name, sizeof tensor->name);
    memcpy(tensor->shape, spec->shape, sizeof spec->shape);
}

/* One tensor of another kind of model: what a reader of the text model has to pass over. */
static void add_vision(struct synth_shard *shard)
{
    shard->tensors[shard->tensor_count++] = (struct synth_tensor){
        .name = "vision_tower.patch_embed.proj.weight", .dtype = DTYPE_BF16, .rank = 4,
        .shape = {4, 3, 2, 2}, .id = T_COUNT, .vision = true, .size_bytes = 96};
}

static void add_layer(const struct model_config *c, uint32_t layer, struct synth_shard *shard)
{
    struct tensor_spec spec;
    const uint32_t first = shard->tensor_count;
    for (enum tensor_id id = 0; id < T_LAYER_COUNT; id++) {
        if (inventory_layer_has(c, layer, id)) {
            inventory_tensor(c, layer, id, &spec);
            add_spec(shard, &spec);
        }
    }
    for (uint32_t expert = 0; config_is_moe(c, layer) && expert < c->experts; expert++) {
        for (enum expert_part part = 0; part < EXPERT_PARTS; part++) {
            inventory_expert(c, layer, expert, part, &spec);
            add_spec(shard, &spec);
        }
    }
    qsort(&shard->tensors[first], shard->tensor_count - first, sizeof *shard->tensors,
          by_file_order);
}

static void add_model_level(const struct synth_geometry *geometry, struct synth_shard *shard)
{
    struct tensor_spec spec;
    for (enum tensor_id id = T_EMBED; id < T_COUNT; id++) {
        inventory_tensor(&geometry->config, TENSOR_MODEL_LEVEL, id, &spec);
        add_spec(shard, &spec);
    }
    if (geometry->preset == SYNTH_TINY) {
        add_vision(shard);
    }
    qsort(shard->tensors, shard->tensor_count, sizeof *shard->tensors, by_file_order);
}

/* The layers [*begin, *end) of a shard; none for the last one, which is the model level. */
static void shard_layers(const struct synth_geometry *geometry, uint32_t shard, uint32_t *begin,
                         uint32_t *end)
{
    const uint32_t layers = geometry->config.layers;
    const uint32_t each = geometry->preset == SYNTH_TINY ? 7 : 1;
    *begin = (uint32_t)min_u64((uint64_t)shard * each, layers);
    *end = (uint32_t)min_u64((uint64_t)*begin + each, layers);
}

/* Appends one entry at `at`; returns the new end. */
static char *print_entry(char *at, const struct synth_tensor *tensor, uint64_t begin)
{
    at += sprintf(at, "\"%s\":{\"dtype\":\"%s\",\"shape\":[", tensor->name,
                  dtype_name(tensor->dtype));
    for (uint32_t i = 0; i < tensor->rank; i++) {
        at += sprintf(at, i == 0 ? "%llu" : ",%llu", (unsigned long long)tensor->shape[i]);
    }
    return at + sprintf(at, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
                        (unsigned long long)(begin + tensor->size_bytes));
}

/* Prints the header, then moves the tensors' offsets from the data's start to the file's. */
static void place(struct synth_shard *shard)
{
    uint64_t data_bytes = 0;
    char *json = shard->header + sizeof(uint64_t);
    char *at = json;
    for (uint32_t i = 0; i < shard->tensor_count; i++) {
        *at++ = i == 0 ? '{' : ',';
        at = print_entry(at, &shard->tensors[i], data_bytes);
        shard->tensors[i].offset_bytes = data_bytes;
        data_bytes += shard->tensors[i].size_bytes;
    }
    *at++ = '}';
    shard->json_bytes = (uint64_t)(at - json);
    shard->header_bytes = align_up(sizeof(uint64_t) + shard->json_bytes, 8);
    memset(at, ' ', shard->header_bytes - sizeof(uint64_t) - shard->json_bytes);
    const uint64_t length = shard->header_bytes - sizeof(uint64_t);
    memcpy(shard->header, &length, sizeof length);
    shard->size_bytes = shard->header_bytes + data_bytes;
    for (uint32_t i = 0; i < shard->tensor_count; i++) {
        shard->tensors[i].offset_bytes += shard->header_bytes;
    }
}

/* A cut-down model keeps the released total in its names. */
void synth_shard_name(const struct synth_geometry *geometry, uint32_t shard,
                      char name[SYNTH_FILE_NAME_BYTES])
{
    const uint32_t total = geometry->preset == SYNTH_TINY ? geometry->shard_count : 96;
    snprintf(name, SYNTH_FILE_NAME_BYTES, "model-%05u-of-%06u.safetensors", shard + 1, total);
}

int synth_shard_init(const struct synth_geometry *geometry, uint32_t shard,
                     struct synth_shard *out)
{
    const struct model_config *c = &geometry->config;
    uint32_t begin;
    uint32_t end;
    assert(shard < geometry->shard_count);
    shard_layers(geometry, shard, &begin, &end);
    const size_t room = (size_t)(end - begin) * (T_LAYER_COUNT + c->experts * EXPERT_PARTS) +
                        (T_COUNT - T_LAYER_COUNT) + 1;
    *out = (struct synth_shard){.tensors = malloc(room * sizeof *out->tensors)};
    synth_shard_name(geometry, shard, out->file_name);
    if (out->tensors == NULL) {
        return err_set(ERR_MEMORY, "%s: no memory to lay out its tensors", out->file_name);
    }
    for (uint32_t layer = begin; layer < end; layer++) {
        add_layer(c, layer, out);
    }
    if (begin == end) {
        add_model_level(geometry, out);
    }
    out->header = malloc((size_t)out->tensor_count * (TENSOR_NAME_BYTES + ENTRY_BYTES_MAX) + 32);
    if (out->header == NULL) {
        synth_shard_fini(out);
        return err_set(ERR_MEMORY, "%s: no memory for its header", out->file_name);
    }
    place(out);
    return 0;
}

void synth_shard_fini(struct synth_shard *shard)
{
    free(shard->tensors);
    free(shard->header);
    shard->tensors = NULL;
    shard->header = NULL;
}

static bool is_scale(const struct synth_tensor *tensor)
{
    return tensor->id == T_COUNT && !tensor->vision &&
           (tensor->part == W1_SCALE || tensor->part == W2_SCALE || tensor->part == W3_SCALE);
}

/* Experts are sparse whatever their size: 82,432 of them make even the scales large. */
static bool is_whole(const struct synth_tensor *tensor)
{
    const bool expert = tensor->id == T_COUNT && !tensor->vision;
    return !expert && (tensor->size_bytes < SYNTH_WHOLE_BYTES || tensor->id == T_ROUTER);
}

/* The row that stands for window w of a matrix, or rows when no whole row lies in it. First and
 * last row are among them, so adjoining tensors share pages; the rows between are scattered,
 * so that they meet every place within a head. Equal shapes give equal rows: that is why a scale
 * is cut by the bytes of the matrix it belongs to, 16 of which share a scale byte. */
static uint64_t window_row(const struct synth_tensor *tensor, uint64_t window)
{
    const uint64_t rows = tensor->shape[0];
    const uint64_t row_bytes = is_scale(tensor) ? tensor->shape[1] * 16
                                                : tensor->shape[1] * dtype_bytes(tensor->dtype);
    const uint64_t windows = div_ceil(rows * row_bytes, SYNTH_WINDOW_BYTES);
    if (window >= windows) {
        return rows;
    }
    if (window == 0 || window + 1 == windows) {
        return window == 0 ? 0 : rows - 1;
    }
    const uint64_t low = div_ceil(window * SYNTH_WINDOW_BYTES, row_bytes);
    const uint64_t high = (window + 1) * SYNTH_WINDOW_BYTES / row_bytes;
    assert(low < high);
    return low + rng_mix(window) % (high - low);
}

bool synth_next_range(const struct synth_tensor *tensor, bool sparse, uint64_t *cursor,
                      struct synth_range *range)
{
    if (!sparse || is_whole(tensor)) {
        *range = (struct synth_range){0, tensor->size_bytes / dtype_bytes(tensor->dtype)};
        return (*cursor)++ == 0;
    }
    const uint64_t rows = tensor->shape[0];
    const uint64_t cols = tensor->shape[1];
    const bool by_token = tensor->id == T_EMBED || tensor->id == T_LM_HEAD;
    const uint64_t prefix = by_token ? min_u64(rows, SYNTH_TOKEN_ROWS) : 0;
    assert(tensor->rank == 2);
    if (by_token && *cursor == 0) {
        *cursor = 1;
        *range = (struct synth_range){0, prefix * cols};
        return true;
    }
    uint64_t row;
    do {
        row = window_row(tensor, (*cursor)++ - by_token);
    } while (row < prefix);
    if (row == rows) {
        return false;
    }
    *range = (struct synth_range){row * cols, (row + 1) * cols};
    return true;
}

/* Adds bytes [begin, end) of a file; *page is the first page not yet counted. */
static void count_bytes(struct synth_survey *survey, uint64_t begin, uint64_t end, uint64_t *page)
{
    const uint64_t first = max_u64(begin / PAGE_BYTES, *page);
    *page = max_u64(div_ceil(end, PAGE_BYTES), *page);
    survey->write_bytes += end - begin;
    survey->disk_bytes += (*page - first) * PAGE_BYTES;
}

static void survey_shard(const struct synth_shard *shard, bool sparse,
                         struct synth_survey *survey)
{
    uint64_t page = 0;
    count_bytes(survey, 0, shard->header_bytes, &page);
    for (uint32_t i = 0; i < shard->tensor_count; i++) {
        const struct synth_tensor *tensor = &shard->tensors[i];
        const uint64_t unit = dtype_bytes(tensor->dtype);
        struct synth_range range;
        uint64_t cursor = 0;
        survey->tensor_bytes += tensor->size_bytes;
        while (synth_next_range(tensor, sparse, &cursor, &range)) {
            count_bytes(survey, tensor->offset_bytes + range.begin * unit,
                        tensor->offset_bytes + range.end * unit, &page);
        }
    }
}

int synth_survey_run(const struct synth_geometry *geometry, bool sparse,
                     struct synth_survey *survey)
{
    *survey = (struct synth_survey){0};
    for (uint32_t i = 0; i < geometry->shard_count; i++) {
        struct synth_shard shard;
        TRY(synth_shard_init(geometry, i, &shard));
        survey_shard(&shard, sparse, survey);
        synth_shard_fini(&shard);
    }
    return 0;
}
