/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a pack: what its manifest says of itself, the source, folders and files; then tensors,
 * tiles and experts; then whether all of the model is there. The text may be hostile: its members
 * stand in one fixed order and nothing is used that was not checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/model/pack_priv.h"

#define MANIFEST_CAP_BYTES (256 * MIB)
#define PATH_BYTES 4096
#define NAME_BYTES 256

typedef unsigned long long ull; /* for messages */

static int read_begin(struct pack_reader *r)
{
    char format[32];
    uint64_t version;
    TRY(pack_take(r, '{'));
    TRY(pack_member(r, "format"));
    TRY(pack_take_text(r, format, sizeof format));
    TRY(pack_member(r, "version"));
    TRY(pack_take_number(r, UINT32_MAX, &version));
    if (strcmp(format, "k3ring-pack") != 0 || version != PACK_VERSION) {
        return err_set(ERR_MODEL, "%s: has format '%s' version %llu, this program reads "
                       "k3ring-pack version %u: pack the source again", r->path, format,
                       (ull)version, PACK_VERSION);
    }
    TRY(pack_member(r, "id"));
    TRY(pack_take_hash(r, &r->pack->id));
    TRY(pack_member(r, "tile_bytes"));
    return pack_take_number(r, PACK_TILE_MAX_BYTES, &r->pack->tile_bytes);
}

static int read_shards(struct pack_reader *r)
{
    struct pack_identity *identity = &r->pack->identity;
    char name[NAME_BYTES];
    bool first = true;
    TRY(pack_take(r, '['));
    while (pack_next_item(r, &first)) {
        if (identity->shard_count == SHARD_COUNT_MAX) {
            return pack_refuse(r, "there are too many shards");
        }
        if ((identity->shard_count & (identity->shard_count - 1)) == 0) {
            size_t capacity = identity->shard_count == 0 ? 1 : 2ULL * identity->shard_count;
            struct pack_shard *larger = realloc(identity->shards, capacity * sizeof *larger);
            if (larger == NULL) {
                return err_set(ERR_MEMORY, "%s: no memory for its list of shards", r->path);
            }
            identity->shards = larger;
        }
        struct pack_shard *shard = &identity->shards[identity->shard_count];
        TRY(pack_take(r, '['));
        TRY(pack_take_text(r, name, sizeof name));
        TRY(pack_next_number(r, UINT64_MAX, &shard->size_bytes));
        TRY(pack_next_hash(r, &shard->hash));
        TRY(pack_take(r, ']'));
        if (name[0] == '\0' || strchr(name, '/') != NULL) {
            return pack_refuse(r, "a shard's name is no file name");
        }
        shard->name = strdup(name);
        if (shard->name == NULL) {
            return err_set(ERR_MEMORY, "%s: no memory for its list of shards", r->path);
        }
        identity->shard_count++;
    }
    return pack_settled(r);
}

static int read_source(struct pack_reader *r)
{
    char path[PATH_BYTES];
    char where[16];
    TRY(pack_member(r, "source"));
    TRY(pack_take_text(r, path, sizeof path));
    r->pack->source = strdup(path);
    if (r->pack->source == NULL) {
        return err_set(ERR_MEMORY, "%s: no memory to read it", r->path);
    }
    TRY(pack_member(r, "config"));
    TRY(pack_take_hash(r, &r->pack->identity.config_hash));
    TRY(pack_member(r, "shards"));
    TRY(read_shards(r));
    TRY(pack_member(r, "experts_in"));
    TRY(pack_take_text(r, where, sizeof where));
    r->pack->experts_in_source = strcmp(where, "source") == 0;
    return r->pack->experts_in_source || strcmp(where, "pack") == 0
               ? 0 : pack_refuse(r, "experts are neither in the pack nor in the source");
}

/* The first is the pack's own folder, whatever it is called now. */
static int read_parts(struct pack_reader *r)
{
    char path[PATH_BYTES];
    bool first = true;
    TRY(pack_member(r, "parts"));
    TRY(pack_take(r, '['));
    while (pack_next_item(r, &first)) {
        TRY(pack_take_text(r, path, sizeof path));
        if (r->part_count == PACK_PARTS_MAX) {
            return pack_refuse(r, "there are too many folders");
        }
        if ((r->part_count == 0) != (path[0] == '\0')) {
            return pack_refuse(r, "only the first folder, and that one, has no name");
        }
        r->parts[r->part_count] = strdup(r->part_count == 0 ? r->model->dir : path);
        if (r->parts[r->part_count] == NULL) {
            return err_set(ERR_MEMORY, "%s: no memory to read it", r->path);
        }
        r->part_count++;
    }
    return pack_settled(r);
}

static int read_head(const struct pack_reader *r, uint32_t number)
{
    const struct model_file *file = &r->model->files[number];
    struct pack_head head = {.version = 0};
    TRY(file_read_begin(file->path, &head, sizeof head));
    bool good = memcmp(head.magic, PACK_MAGIC, sizeof head.magic) == 0 &&
                head.version == PACK_VERSION && head.file == number && head.id == r->pack->id;
    return good ? 0 : err_set(ERR_MODEL, "%s: is not this file of the pack %s: " PACK_AGAIN,
                              file->path, r->model->dir);
}

static int read_file(struct pack_reader *r)
{
    char name[NAME_BYTES];
    uint64_t part;
    struct model_file *file = &r->model->files[r->model->file_count];
    TRY(pack_take(r, '['));
    TRY(pack_take_number(r, UINT32_MAX, &part));
    TRY(pack_take(r, ','));
    TRY(pack_take_text(r, name, sizeof name));
    TRY(pack_next_number(r, UINT64_MAX, &file->size_bytes));
    TRY(pack_take(r, ']'));
    if (part >= r->part_count ||
        (strcmp(name, PACK_TRUNK) != 0 && strcmp(name, PACK_EXPERTS) != 0)) {
        return pack_refuse(r, "a file is of no folder or has another name than a pack's");
    }
    file->path = path_join(r->parts[part], name);
    if (file->path == NULL) {
        return ERR_MEMORY;
    }
    r->end_bytes[r->model->file_count] = PAGE_BYTES;
    r->model->file_count++;
    struct stat status;
    if (stat(file->path, &status) != 0 || (uint64_t)status.st_size != file->size_bytes ||
        file->size_bytes < PAGE_BYTES || file->size_bytes >= (uint64_t)1 << PART_FILE_SHIFT) {
        return err_set(ERR_MODEL, "%s: is missing or has not the %llu bytes that the manifest "
                       "says: " PACK_AGAIN, file->path, (ull)file->size_bytes);
    }
    return read_head(r, r->model->file_count - 1);
}

static int read_files(struct pack_reader *r)
{
    bool first = true;
    TRY(pack_member(r, "files"));
    TRY(pack_take(r, '['));
    r->model->files = calloc(PACK_FILES_MAX, sizeof *r->model->files);
    if (r->model->files == NULL) {
        return err_set(ERR_MEMORY, "%s: no memory for its list of files", r->path);
    }
    while (pack_next_item(r, &first)) {
        if (r->model->file_count == PACK_FILES_MAX) {
            return pack_refuse(r, "there are too many files");
        }
        TRY(read_file(r));
    }
    return pack_settled(r);
}

/* The last member covers all text before it: an accident in the manifest shows here. */
static int read_end(struct pack_reader *r)
{
    uint64_t found;
    TRY(pack_take(r, ','));
    scan_peek(&r->scan);
    uint64_t expected = XXH3_64bits(r->scan.begin, scan_offset(&r->scan));
    char key[64];
    scan_key(&r->scan, key, sizeof key);
    TRY(pack_take_hash(r, &found));
    TRY(pack_take(r, '}'));
    scan_finish(&r->scan);
    TRY(pack_settled(r));
    if (strcmp(key, "checksum") != 0 || found != expected) {
        return pack_refuse(r, "the manifest's own checksum does not match its text");
    }
    return 0;
}

static int read_all(struct pack_reader *r)
{
    TRY(read_begin(r));
    TRY(read_source(r));
    TRY(read_parts(r));
    TRY(read_files(r));
    TRY(pack_read_tensors(r));
    TRY(pack_read_matrices(r));
    TRY(pack_read_experts(r));
    return read_end(r);
}

static int check_whole(const struct model *model)
{
    const struct model_config *c = &model->config;
    for (uint32_t layer = 0; layer <= c->layers; layer++) {
        bool level = layer == c->layers;
        uint32_t first = level ? T_LAYER_COUNT : 0;
        uint32_t end = level ? T_COUNT : T_LAYER_COUNT;
        for (uint32_t id = first; id < end; id++) {
            struct tensor_place place = {.layer = level ? TENSOR_MODEL_LEVEL : layer,
                                         .id = (enum tensor_id)id};
            struct tensor_spec spec;
            if ((level || inventory_layer_has(c, layer, place.id)) &&
                model->tensors[bind_slot(c, &place)].size_bytes == 0) {
                inventory_spec(c, &place, &spec);
                return err_set(ERR_MODEL, "%s/" PACK_MANIFEST ": lacks tensor %s: " PACK_AGAIN,
                               model->dir, spec.name);
            }
        }
    }
    return 0;
}

/* Experts that were left in place: their shards are opened as any checkpoint, and their files
 * follow those of the pack. */
static int borrow_experts(struct model *model, const struct model_options *options)
{
    struct model *source;
    struct stat mine, theirs;
    if (stat(model->dir, &mine) == 0 && stat(model->pack->source, &theirs) == 0 &&
        mine.st_dev == theirs.st_dev && mine.st_ino == theirs.st_ino) {
        return err_set(ERR_MODEL, "%s: names itself as its source: " PACK_AGAIN, model->dir);
    }
    TRY(model_open(model->pack->source, options, &source));
    /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): config_parse() clears the padding */
    if (memcmp(&source->config, &model->config, sizeof source->config) != 0 ||
        source->pack != NULL) {
        model_close(source);
        return err_set(ERR_MODEL, "%s: %s, which holds its experts, is not the checkpoint it was "
                       "packed from: pack again", model->dir, model->pack->source);
    }
    const uint32_t own = model->file_count;
    const uint32_t count = own + source->file_count;
    struct model_file *files = realloc(model->files, count * sizeof *files);
    if (files == NULL) {
        model_close(source);
        return err_set(ERR_MEMORY, "%s: no memory for its list of files", model->dir);
    }
    model->files = files;
    memcpy(&files[own], source->files, source->file_count * sizeof *files);
    model->file_count = count;
    source->file_count = 0; /* the paths are ours now */
    const uint64_t parts = model_part_count(&model->config);
    for (uint64_t i = 0; i < parts; i++) {
        model->expert_parts[i] = source->expert_parts[i] + ((uint64_t)own << PART_FILE_SHIFT);
        model->total_bytes += model->part_bytes[i % EXPERT_PARTS];
    }
    model->tensor_count += parts;
    model_close(source);
    return 0;
}

static int make_pack_tables(struct model *model)
{
    uint64_t slots = model_tensor_slots(&model->config);
    uint64_t experts = model_part_count(&model->config) / EXPERT_PARTS;
    struct model_pack *pack = model->pack;
    pack->ranges = calloc(slots, sizeof *pack->ranges);
    pack->checksums = calloc(slots, sizeof *pack->checksums);
    pack->expert_checksums = calloc(experts + 1, sizeof *pack->expert_checksums);
    if (pack->ranges == NULL || pack->checksums == NULL || pack->expert_checksums == NULL) {
        return err_set(ERR_MEMORY, "%s: no memory for its index", model->dir);
    }
    return 0;
}

static int read_manifest(struct model *model)
{
    struct file_text file;
    struct pack_reader r = {.model = model, .pack = model->pack};
    char *path = path_join(model->dir, PACK_MANIFEST);
    if (path == NULL) {
        return ERR_MEMORY;
    }
    int rc = file_read(path, MANIFEST_CAP_BYTES, &file);
    if (rc == 0) {
        r.path = path;
        r.scan = scan_start(file.text, file.size_bytes);
        rc = model_make_tables(model, false);
        rc = rc < 0 ? rc : make_pack_tables(model);
        rc = rc < 0 ? rc : read_all(&r);
        file_text_free(&file);
    }
    for (uint32_t i = 0; i < r.part_count; i++) {
        free(r.parts[i]);
    }
    free(path);
    return rc;
}

int pack_open(struct model *model, const struct model_options *options)
{
    model->pack = calloc(1, sizeof *model->pack);
    if (model->pack == NULL) {
        return err_set(ERR_MEMORY, "%s: no memory to open it", model->dir);
    }
    TRY(read_manifest(model));
    TRY(check_whole(model));
    TRY(pack_source_check(model));
    return model->pack->experts_in_source ? borrow_experts(model, options) : 0;
}
