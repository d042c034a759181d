/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/thread.h"
#include "core/model/model_priv.h"

#define THREADS_MAX 64
#define FILE_NONE UINT32_MAX

/* One reading of all files. The tables of the model are written by all workers: expert parts by
 * compare-and-swap, the few other tensors under the lock. */
struct binder {
    struct model *model;
    bool allow_holes;
    atomic_uint next_file;
    atomic_bool failed;
    pthread_mutex_t lock; /* guards model->tensors and the counters of the model */
};

/* One thread's part of it. */
struct worker {
    struct binder *binder;
    struct header header;
    uint32_t file; /* in turn */
    uint64_t tensor_count, skipped_count, total_bytes;
};

static uint64_t level_slot(const struct model_config *c)
{
    return (uint64_t)c->layers * T_LAYER_COUNT;
}

static uint64_t part_slot(const struct model_config *c)
{
    return level_slot(c) + (T_COUNT - T_LAYER_COUNT);
}

uint64_t bind_slot_count(const struct model_config *c)
{
    return part_slot(c) + (uint64_t)(c->layers - c->first_dense) * c->experts * EXPERT_PARTS;
}

uint64_t bind_slot(const struct model_config *c, const struct tensor_place *place)
{
    if (place->id == T_COUNT) {
        const uint64_t expert =
            (uint64_t)(place->layer - c->first_dense) * c->experts + place->expert;
        return part_slot(c) + expert * EXPERT_PARTS + place->part;
    }
    return place->layer == TENSOR_MODEL_LEVEL
               ? level_slot(c) + (place->id - T_LAYER_COUNT)
               : (uint64_t)place->layer * T_LAYER_COUNT + place->id;
}

/* The inverse. False when the slot's layer has no such tensor. */
static bool slot_place(const struct model_config *c, uint64_t slot, struct tensor_place *place)
{
    *place = (struct tensor_place){.layer = TENSOR_MODEL_LEVEL};
    if (slot < level_slot(c)) {
        place->layer = (uint32_t)(slot / T_LAYER_COUNT);
        place->id = (enum tensor_id)(slot % T_LAYER_COUNT);
        return inventory_layer_has(c, place->layer, place->id);
    }
    if (slot < part_slot(c)) {
        place->id = (enum tensor_id)(T_LAYER_COUNT + (slot - level_slot(c)));
        return true;
    }
    const uint64_t part = slot - part_slot(c);
    place->id = T_COUNT;
    place->part = (enum expert_part)(part % EXPERT_PARTS);
    place->expert = (uint32_t)(part / EXPERT_PARTS % c->experts);
    place->layer = (uint32_t)(part / EXPERT_PARTS / c->experts) + c->first_dense;
    return true;
}

/* The file a slot's tensor was found in, or FILE_NONE. */
static uint32_t slot_file(const struct model *model, uint64_t slot)
{
    const uint64_t parts = part_slot(&model->config);
    if (slot < parts) {
        return model->tensors[slot].size_bytes > 0 ? model->tensors[slot].file : FILE_NONE;
    }
    const uint64_t word = model->expert_parts[slot - parts];
    return word == 0 ? FILE_NONE : (uint32_t)(word >> PART_FILE_SHIFT);
}

static int refuse_twice(const struct worker *w, const char *name, uint32_t other)
{
    const struct model_file *files = w->binder->model->files;
    if (other == w->file) {
        return err_set(ERR_MODEL, "%s: tensor %s is described twice", files[other].path, name);
    }
    return err_set(ERR_MODEL, "%s: tensor %s is in both %s and %s: take away the file that does "
                   "not belong to the model, or fetch both and model.safetensors.index.json again",
                   w->binder->model->dir, name, path_name(files[other].path),
                   path_name(files[w->file].path));
}

/* Writes a shape as [a,b,c]. */
static const char *show_shape(char text[128], const uint64_t *shape, uint32_t rank)
{
    size_t used = 0;
    text[used++] = '[';
    for (uint32_t i = 0; i < rank && used < 100; i++) {
        used += (size_t)snprintf(text + used, 128 - used, "%s%llu", i == 0 ? "" : ",",
                                 (unsigned long long)shape[i]);
    }
    snprintf(text + used, 128 - used, "]");
    return text;
}

static bool shape_fits(const struct model_config *c, const struct tensor_spec *spec,
                       const struct header_tensor *tensor)
{
    bool equal = tensor->rank == spec->rank;
    for (uint32_t i = 0; equal && i < spec->rank; i++) {
        equal = tensor->shape[i] == spec->shape[i];
    }
    /* A_log may come without the padding behind the heads. */
    const bool bare = spec->id == T_A_LOG && tensor->rank == 1 && tensor->shape[0] == c->kda_heads;
    return equal || bare;
}

static int check_form(const struct worker *w, const struct header_tensor *tensor,
                      const struct tensor_spec *spec, enum dtype *dtype)
{
    char found[128];
    char wanted[128];
    if (!inventory_dtype_fits(spec->id, tensor->dtype, dtype)) {
        return err_set(ERR_MODEL, "%s: tensor %s has dtype %s, expected %s: this is not the "
                       "released form of the weights", w->header.path, tensor->name,
                       tensor->dtype, dtype_name(spec->dtype));
    }
    if (!shape_fits(&w->binder->model->config, spec, tensor)) {
        return err_set(ERR_MODEL, "%s: tensor %s has shape %s but config.json implies %s",
                       w->header.path, tensor->name,
                       show_shape(found, tensor->shape, tensor->rank),
                       show_shape(wanted, spec->shape, spec->rank));
    }
    return 0;
}

static int bind_part(struct worker *w, const struct tensor_place *place,
                     const struct header_tensor *tensor, uint64_t offset_bytes)
{
    struct model *model = w->binder->model;
    uint64_t *word = &model->expert_parts[bind_slot(&model->config, place) -
                                          part_slot(&model->config)];
    uint64_t before = 0;
    const uint64_t after = (uint64_t)w->file << PART_FILE_SHIFT | offset_bytes;
    if (!__atomic_compare_exchange_n(word, &before, after, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED)) {
        return refuse_twice(w, tensor->name, (uint32_t)(before >> PART_FILE_SHIFT));
    }
    return 0;
}

static int bind_matrix(struct worker *w, const struct tensor_place *place,
                       const struct header_tensor *tensor, const struct tensor_ref *ref)
{
    struct model *model = w->binder->model;
    struct tensor_ref *slot = &model->tensors[bind_slot(&model->config, place)];
    pthread_mutex_lock(&w->binder->lock);
    const uint32_t other = slot->size_bytes > 0 ? slot->file : FILE_NONE;
    if (other == FILE_NONE) {
        *slot = *ref;
    }
    pthread_mutex_unlock(&w->binder->lock);
    return other == FILE_NONE ? 0 : refuse_twice(w, tensor->name, other);
}

static int bind_known(struct worker *w, const struct tensor_place *place,
                      const struct header_tensor *tensor)
{
    struct tensor_spec spec;
    struct tensor_ref ref = {.file = w->file};
    inventory_shape(&w->binder->model->config, place, &spec);
    TRY(check_form(w, tensor, &spec, &ref.dtype));
    ref.offset_bytes = w->header.base_bytes + tensor->begin_bytes;
    ref.size_bytes = tensor->end_bytes - tensor->begin_bytes;
    /* The range itself is checked after all entries: keep a wild one out of the tables. */
    if (tensor->end_bytes > w->header.size_bytes) {
        return 0;
    }
    w->tensor_count++;
    w->total_bytes += ref.size_bytes;
    if (place->id == T_COUNT) {
        return bind_part(w, place, tensor, ref.offset_bytes);
    }
    ref.cols = (uint32_t)tensor->shape[tensor->rank - 1];
    ref.rows = tensor->rank == 1 ? 1 : (uint32_t)tensor->shape[0];
    return bind_matrix(w, place, tensor, &ref);
}

/* header_visit */
static int visit(void *context, const struct header *header, const struct header_tensor *tensor,
                 bool *bound)
{
    struct worker *w = context;
    struct tensor_place place;
    *bound = inventory_locate(&w->binder->model->config, tensor->name, &place);
    if (*bound) {
        return bind_known(w, &place, tensor);
    }
    if (inventory_disturbed(tensor->name)) {
        return err_set(ERR_MODEL, "%s: tensor %s has no place in the model config.json describes "
                       "but would change what it computes", header->path, tensor->name);
    }
    w->skipped_count++;
    return 0;
}

static int read_file_of(struct worker *w)
{
    struct model_file *file = &w->binder->model->files[w->file];
    TRY(header_open(&w->header, file->path));
    file->size_bytes = w->header.size_bytes;
    file->header_hash = XXH3_64bits(w->header.text, w->header.text_bytes);
    int rc = header_visit_all(&w->header, visit, w);
    if (rc == 0 && !w->binder->allow_holes) {
        rc = header_check_holes(&w->header);
    }
    header_close(&w->header);
    return rc;
}

/* Takes files until none is left or one failed anywhere; adds its counts to the model. */
static int work(struct binder *binder)
{
    struct worker w = {.binder = binder, .header = {.fd = -1}};
    struct model *model = binder->model;
    int rc = 0;
    while (rc == 0 && !atomic_load(&binder->failed)) {
        w.file = atomic_fetch_add(&binder->next_file, 1);
        if (w.file >= model->file_count) {
            break;
        }
        rc = read_file_of(&w);
    }
    header_free(&w.header);
    if (rc < 0) {
        atomic_store(&binder->failed, true);
    }
    pthread_mutex_lock(&binder->lock);
    model->tensor_count += w.tensor_count;
    model->skipped_count += w.skipped_count;
    model->total_bytes += w.total_bytes;
    pthread_mutex_unlock(&binder->lock);
    return rc;
}

static void *work_thread(void *binder)
{
    (void)work(binder); /* its message stays in this thread; binder->failed tells */
    return NULL;
}

static int read_all(struct model *model, uint32_t threads, bool allow_holes)
{
    struct binder binder = {.model = model, .allow_holes = allow_holes,
                            .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t pool[THREADS_MAX];
    uint32_t started = 0;
    atomic_init(&binder.next_file, 0);
    atomic_init(&binder.failed, false);
    /* The calling thread is one of them. Where the system grants fewer, fewer do. */
    while (started + 1 < threads && started < THREADS_MAX &&
           thread_create(&pool[started], NULL, work_thread, &binder) == 0) {
        started++;
    }
    int rc = work(&binder);
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(pool[i], NULL);
    }
    return rc < 0 ? rc : atomic_load(&binder.failed) ? ERR_MODEL : 0;
}

static void forget(struct model *model)
{
    const struct model_config *c = &model->config;
    memset(model->tensors, 0, part_slot(c) * sizeof *model->tensors);
    if (model->expert_parts != NULL) {
        memset(model->expert_parts, 0,
               (bind_slot_count(c) - part_slot(c)) * sizeof *model->expert_parts);
    }
    model->tensor_count = 0;
    model->skipped_count = 0;
    model->total_bytes = 0;
}

int bind_all(struct model *model, uint32_t threads, bool allow_holes)
{
    const uint32_t useful = (uint32_t)min_u64(threads, model->file_count);
    const int rc = read_all(model, useful, allow_holes);
    if (rc == 0 || useful <= 1) {
        return rc;
    }
    /* Which failure came first depends on the threads. Read again in file order, so that the
     * same folder is always refused in the same words. */
    err_clear();
    forget(model);
    return read_all(model, 1, allow_holes);
}

static const char *slot_name(const struct model *model, uint64_t slot, struct tensor_spec *spec)
{
    struct tensor_place place;
    slot_place(&model->config, slot, &place);
    inventory_spec(&model->config, &place, spec);
    return spec->name;
}

static int refuse_place(const struct model *model, const struct shard_list *list, uint64_t slot,
                        uint32_t file)
{
    struct tensor_spec spec;
    const char *name = slot_name(model, slot, &spec);
    if (shard_list_expected(list, slot) == 0) {
        return err_set(ERR_MODEL, "%s: the index does not name tensor %s, which is in %s: index "
                       "and shards are not of one download", model->dir, name,
                       list->names[file]);
    }
    return err_set(ERR_MODEL, "%s: the index places tensor %s in %s but it is in %s: index and "
                   "shards are not of one download", model->dir, name,
                   list->names[shard_list_expected(list, slot) - 1], list->names[file]);
}

static int refuse_missing(const struct model *model, const struct shard_list *list,
                          const uint64_t slots[3], uint64_t count)
{
    char names[3 * TENSOR_NAME_BYTES + 16] = "";
    struct tensor_spec spec;
    size_t used = 0;
    for (size_t i = 0; i < min_u64(count, 3); i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i == 0 ? "" : ", ",
                                 slot_name(model, slots[i], &spec));
    }
    const uint32_t file = list->has_index ? shard_list_expected(list, slots[0]) : 0;
    return err_set(ERR_MODEL, "%s: %llu of the %llu tensors of the model are missing: %s%s%s%s",
                   model->dir, (unsigned long long)count,
                   (unsigned long long)(model->tensor_count + count), names,
                   count > 3 ? " and others" : "",
                   file == 0 ? "; a shard is missing or of another model"
                             : "; the index places the first in ",
                   file == 0 ? "" : list->names[file - 1]);
}

int bind_check(const struct model *model, const struct shard_list *list)
{
    const struct model_config *c = &model->config;
    const uint64_t slots = bind_slot_count(c);
    uint64_t missing[3];
    uint64_t missing_count = 0;
    for (uint64_t slot = 0; slot < slots; slot++) {
        const uint32_t file = slot_file(model, slot);
        struct tensor_place place;
        if (file != FILE_NONE) {
            if (list->has_index && shard_list_expected(list, slot) != file + 1) {
                return refuse_place(model, list, slot, file);
            }
        } else if (slot_place(c, slot, &place)) {
            if (missing_count < countof(missing)) {
                missing[missing_count] = slot;
            }
            missing_count++;
        }
    }
    return missing_count == 0 ? 0 : refuse_missing(model, list, missing, missing_count);
}
