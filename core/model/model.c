/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/model/model_priv.h"

#define THREADS_DEFAULT_MAX 8
#define PART_OFFSET_MASK (((uint64_t)1 << PART_FILE_SHIFT) - 1)

/* From here on the bytes of the shards are compared with what the experts need before tables of
 * that size are made: a config may claim anything. */
#define PARTS_UNCHECKED_MAX ((uint64_t)1 << 20)

uint64_t model_part_count(const struct model_config *c)
{
    return (uint64_t)(c->layers - c->first_dense) * c->experts * EXPERT_PARTS;
}

uint64_t model_tensor_slots(const struct model_config *c)
{
    return (uint64_t)c->layers * T_LAYER_COUNT + (T_COUNT - T_LAYER_COUNT);
}

static int name_files(struct model *model, const struct shard_list *list)
{
    model->files = calloc(list->count, sizeof *model->files);
    if (model->files == NULL) {
        return err_set(ERR_MEMORY, "%s: no memory for its list of files", model->dir);
    }
    for (uint32_t i = 0; i < list->count; i++) {
        model->files[i].path = path_join(model->dir, list->names[i]);
        if (model->files[i].path == NULL) {
            return ERR_MEMORY;
        }
        model->file_count++;
    }
    return 0;
}

static void measure_parts(struct model *model)
{
    for (enum expert_part part = W1_PACKED; part < EXPERT_PARTS; part++) {
        struct tensor_spec spec;
        const struct tensor_place place = {.id = T_COUNT, .part = part};
        inventory_shape(&model->config, &place, &spec);
        model->part_bytes[part] = tensor_spec_bytes(&spec);
    }
}

static int check_volume(const struct model *model)
{
    uint64_t expert_bytes = 0;
    uint64_t have_bytes = 0;
    for (uint32_t part = 0; part < EXPERT_PARTS; part++) {
        expert_bytes += model->part_bytes[part];
    }
    for (uint32_t i = 0; i < model->file_count; i++) {
        struct stat status;
        have_bytes += stat(model->files[i].path, &status) == 0 ? (uint64_t)status.st_size : 0;
    }
    const uint64_t experts = model_part_count(&model->config) / EXPERT_PARTS;
    if (have_bytes / expert_bytes < experts) {
        return err_set(ERR_MODEL, "%s: config.json asks for %llu experts of %llu bytes but all "
                       "shards together have %llu bytes: some are missing or of another model",
                       model->dir, (unsigned long long)experts,
                       (unsigned long long)expert_bytes, (unsigned long long)have_bytes);
    }
    return 0;
}

int model_make_tables(struct model *model, bool check)
{
    const uint64_t parts = model_part_count(&model->config);
    measure_parts(model);
    if (check && parts > PARTS_UNCHECKED_MAX) {
        TRY(check_volume(model));
    }
    model->tensors = calloc(model_tensor_slots(&model->config), sizeof *model->tensors);
    if (parts > 0) {
        model->expert_parts = calloc(parts, sizeof *model->expert_parts);
    }
    if (model->tensors == NULL || (parts > 0 && model->expert_parts == NULL)) {
        return err_set(ERR_MEMORY, "%s: no memory for its index", model->dir);
    }
    return 0;
}

static void note_ignored(const struct model_options *options, const struct shard_list *list)
{
    if (options->note == NULL || list->ignored == 0 || list->first_ignored == NULL) {
        return;
    }
    char line[512];
    if (list->ignored == 1) {
        snprintf(line, sizeof line, "%s is ignored: the index does not name it",
                 list->first_ignored);
    } else {
        snprintf(line, sizeof line, "%s and %u more *.safetensors files are ignored: the index "
                 "does not name them", list->first_ignored, list->ignored - 1);
    }
    options->note(line);
}

static uint32_t thread_count(const struct model_options *options)
{
    if (options->threads > 0) {
        return options->threads;
    }
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return processors < 1 ? 1 : (uint32_t)min_u64((uint64_t)processors, THREADS_DEFAULT_MAX);
}

static int fill(struct model *model, const struct shard_list *list,
                const struct model_options *options)
{
    TRY(name_files(model, list));
    TRY(model_make_tables(model, true));
    TRY(bind_all(model, thread_count(options), options->allow_holes || model->synthetic));
    TRY(bind_check(model, list));
    note_ignored(options, list);
    return 0;
}

/* What an interrupted `k3ring pack` leaves is no model yet. */
static int check_unfinished(const char *dir)
{
    char *journal = path_join(dir, PACK_JOURNAL);
    if (journal == NULL) {
        return ERR_MEMORY;
    }
    char *manifest = path_join(dir, PACK_MANIFEST);
    const bool unfinished = file_exists(journal) && manifest != NULL && !file_exists(manifest);
    free(manifest);
    free(journal);
    return unfinished ? err_set(ERR_MODEL, "%s: is a pack that is not finished: give the same "
                                "k3ring pack command again, it goes on where it was", dir) : 0;
}

static int open_folder(struct model *model, const struct model_options *options)
{
    struct shard_list list;
    TRY(check_unfinished(model->dir));
    TRY(model_folder_check(model->dir));
    TRY(config_load(model->dir, &model->config));
    char *marker = path_join(model->dir, MODEL_SYNTH_MARKER);
    if (marker == NULL) {
        return ERR_MEMORY;
    }
    model->synthetic = file_exists(marker);
    free(marker);
    char *manifest = path_join(model->dir, PACK_MANIFEST);
    if (manifest == NULL) {
        return ERR_MEMORY;
    }
    const bool packed = file_exists(manifest);
    free(manifest);
    if (packed) {
        return pack_open(model, options);
    }
    TRY(shard_list_read(model->dir, &model->config, &list));
    const int rc = fill(model, &list, options);
    shard_list_free(&list);
    return rc;
}

int model_open(const char *dir, const struct model_options *options, struct model **out)
{
    static const struct model_options defaults = {.threads = 0};
    *out = NULL;
    struct model *model = calloc(1, sizeof *model);
    if (model == NULL || (model->dir = strdup(dir)) == NULL) {
        free(model);
        return err_set(ERR_MEMORY, "%s: no memory to open it", dir);
    }
    const int rc = open_folder(model, options == NULL ? &defaults : options);
    if (rc < 0) {
        model_close(model);
        return rc;
    }
    *out = model;
    return 0;
}

void model_close(struct model *model)
{
    if (model == NULL) {
        return;
    }
    for (uint32_t i = 0; i < model->file_count; i++) {
        free(model->files[i].path);
    }
    free(model->files);
    free(model->tensors);
    free(model->expert_parts);
    pack_free(model->pack);
    free(model->dir);
    free(model);
}

const struct tensor_ref *model_tensor(const struct model *model, uint32_t layer,
                                      enum tensor_id id)
{
    assert(id < T_COUNT && (id >= T_EMBED) == (layer == TENSOR_MODEL_LEVEL));
    assert(id >= T_EMBED || layer < model->config.layers);
    const struct tensor_place place = {.layer = layer, .id = id};
    return &model->tensors[bind_slot(&model->config, &place)];
}

struct extent model_expert_part(const struct model *model, uint32_t layer, uint32_t expert,
                                enum expert_part part)
{
    const struct model_config *c = &model->config;
    assert(layer < c->layers && config_is_moe(c, layer));
    assert(expert < c->experts && part < EXPERT_PARTS);
    const uint64_t index = (uint64_t)(layer - c->first_dense) * c->experts + expert;
    const uint64_t word = model->expert_parts[index * EXPERT_PARTS + part];
    return (struct extent){.file = (uint32_t)(word >> PART_FILE_SHIFT),
                           .offset_bytes = word & PART_OFFSET_MASK,
                           .size_bytes = model->part_bytes[part]};
}

static bool comes_before(const struct extent *a, const struct extent *b)
{
    return a->file != b->file ? a->file < b->file : a->offset_bytes < b->offset_bytes;
}

uint32_t model_expert_extents(const struct model *model, uint32_t layer, uint32_t expert,
                              struct extent extents[EXPERT_PARTS], uint32_t part_at[EXPERT_PARTS])
{
    struct extent parts[EXPERT_PARTS];
    uint32_t order[EXPERT_PARTS];
    uint32_t count = 0;
    for (uint32_t part = 0; part < EXPERT_PARTS; part++) { /* insertion sort of six */
        uint32_t at = part;
        parts[part] = model_expert_part(model, layer, expert, (enum expert_part)part);
        while (at > 0 && comes_before(&parts[part], &parts[order[at - 1]])) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = part;
    }
    for (uint32_t i = 0; i < EXPERT_PARTS; i++) {
        const struct extent *next = &parts[order[i]];
        struct extent *last = count == 0 ? NULL : &extents[count - 1];
        if (last != NULL && last->file == next->file &&
            last->offset_bytes + last->size_bytes == next->offset_bytes) {
            last->size_bytes += next->size_bytes;
        } else {
            extents[count++] = *next;
        }
        part_at[order[i]] = count - 1;
    }
    return count;
}

uint64_t model_resident_bytes(const struct model *model)
{
    uint64_t sum_bytes = sizeof *model + strlen(model->dir) + 1 + pack_resident_bytes(model);
    sum_bytes += model->file_count * sizeof *model->files;
    for (uint32_t i = 0; i < model->file_count; i++) {
        sum_bytes += strlen(model->files[i].path) + 1;
    }
    sum_bytes += model_tensor_slots(&model->config) * sizeof *model->tensors;
    return sum_bytes + model_part_count(&model->config) * sizeof *model->expert_parts;
}
