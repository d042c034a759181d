/* SPDX-License-Identifier: Apache-2.0 */
/* What tells one checkpoint from another: its config, and the sizes and headers of its shards. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/little.h"
#include "core/model/model_priv.h"

#define CONFIG_CAP_BYTES (16 * MIB)

static int hash_config(const char *dir, uint64_t *hash)
{
    struct file_text file;
    char *path = path_join(dir, "config.json");
    if (path == NULL) {
        return ERR_MEMORY;
    }
    int rc = file_read(path, CONFIG_CAP_BYTES, &file);
    free(path);
    if (rc == 0) {
        *hash = XXH3_64bits(file.text, file.size_bytes);
        file_text_free(&file);
    }
    return rc;
}

static int hash_shard(struct header *header, const char *path, uint64_t *size_bytes,
                      uint64_t *hash)
{
    TRY(header_open(header, path));
    *size_bytes = header->size_bytes;
    *hash = XXH3_64bits(header->text, header->text_bytes);
    header_close(header);
    return 0;
}

int pack_identity_read(const char *dir, const struct model *model, struct pack_identity *out)
{
    *out = (struct pack_identity){.shards = calloc(model->file_count, sizeof *out->shards)};
    if (out->shards == NULL) {
        return err_set(ERR_MEMORY, "%s: no memory for its list of files", dir);
    }
    int rc = hash_config(dir, &out->config_hash);
    for (uint32_t i = 0; rc == 0 && i < model->file_count; i++) {
        const struct model_file *file = &model->files[i];
        struct pack_shard *shard = &out->shards[i];
        *shard = (struct pack_shard){.name = strdup(path_name(file->path)),
                                     .size_bytes = file->size_bytes, .hash = file->header_hash};
        out->shard_count = i + 1;
        rc = shard->name != NULL ? 0 : err_set(ERR_MEMORY, "%s: no memory for its list of files",
                                               dir);
    }
    return rc;
}

void pack_identity_free(struct pack_identity *identity)
{
    for (uint32_t i = 0; identity->shards != NULL && i < identity->shard_count; i++) {
        free(identity->shards[i].name);
    }
    free(identity->shards);
    *identity = (struct pack_identity){.shards = NULL};
}

/* A pack's data file begins with what tells packs apart, a shard with its header, which was hashed
 * when the model was opened. */
static int hash_file(struct header *header, const struct model_file *file, uint64_t *hash)
{
    const char *path = file->path;
    struct pack_head head;
    uint64_t size_bytes;
    if (file->header_hash != 0) {
        *hash = file->header_hash;
        return 0;
    }
    TRY(file_read_begin(path, &head, sizeof head));
    if (memcmp(head.magic, PACK_MAGIC, sizeof head.magic) == 0) {
        *hash = XXH3_64bits(&head, sizeof head);
        return 0;
    }
    return hash_shard(header, path, &size_bytes, hash);
}

int model_identity_read(const struct model *model, struct model_identity *out)
{
    struct header header = {.fd = -1};
    *out = (struct model_identity){.hash = calloc(model->file_count, sizeof *out->hash)};
    if (out->hash == NULL) {
        return err_set(ERR_MEMORY, "%s: no memory for its list of files", model->dir);
    }
    int rc = hash_config(model->dir, &out->config_hash);
    for (uint32_t i = 0; rc == 0 && i < model->file_count; i++) {
        rc = hash_file(&header, &model->files[i], &out->hash[i]);
    }
    header_free(&header);
    return rc;
}

void model_identity_free(struct model_identity *identity)
{
    free(identity->hash);
    identity->hash = NULL;
}

static void add_number(XXH3_state_t *state, uint64_t value)
{
    unsigned char bytes[sizeof value];
    little_put(bytes, value, sizeof bytes);
    XXH3_128bits_update(state, bytes, sizeof bytes);
}

static void add_shard(XXH3_state_t *state, const char *name, uint64_t size_bytes, uint64_t hash)
{
    XXH3_128bits_update(state, name, strlen(name) + 1);
    add_number(state, size_bytes);
    add_number(state, hash);
}

static void add_shards(XXH3_state_t *state, const struct model *model)
{
    if (model->pack != NULL) {
        const struct pack_identity *source = &model->pack->identity;
        for (uint32_t i = 0; i < source->shard_count; i++) {
            add_shard(state, source->shards[i].name, source->shards[i].size_bytes,
                      source->shards[i].hash);
        }
        return;
    }
    for (uint32_t i = 0; i < model->file_count; i++) {
        const struct model_file *file = &model->files[i];
        add_shard(state, path_name(file->path), file->size_bytes, file->header_hash);
    }
}

int model_identity(const struct model *model, unsigned char out[MODEL_IDENTITY_BYTES])
{
    XXH128_canonical_t canonical;
    uint64_t config_hash = 0;
    TRY(hash_config(model->dir, &config_hash));
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL) {
        return err_set(ERR_MEMORY, "%s: no memory for a checksum", model->dir);
    }
    XXH3_128bits_reset(state);
    add_number(state, config_hash);
    add_shards(state, model);
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    memcpy(out, canonical.digest, MODEL_IDENTITY_BYTES);
    XXH3_freeState(state);
    return 0;
}

static int refuse_changed(const struct model *model, const char *what)
{
    return err_set(ERR_MODEL, "%s: was packed from %s, whose %s has changed since: pack again, or "
                   "put the source back", model->dir, model->pack->source, what);
}

static int check_shard(const struct model *model, struct header *header,
                       const struct pack_shard *shard, bool needed)
{
    uint64_t size_bytes = 0;
    uint64_t hash = 0;
    char *path = path_join(model->pack->source, shard->name);
    if (path == NULL) {
        return ERR_MEMORY;
    }
    int rc = 0;
    if (file_exists(path)) {
        rc = hash_shard(header, path, &size_bytes, &hash);
        if (rc == 0 && (size_bytes != shard->size_bytes || hash != shard->hash)) {
            rc = refuse_changed(model, shard->name);
        }
    } else if (needed) {
        rc = err_set(ERR_MODEL, "%s: its experts were left in %s, which is gone: put the source "
                     "back, or pack again without --trunk-only", model->dir, path);
    }
    free(path);
    return rc;
}

int pack_source_check(const struct model *model)
{
    const struct model_pack *pack = model->pack;
    struct header header = {.fd = -1};
    uint64_t hash = pack->identity.config_hash;
    char *config = path_join(pack->source, "config.json");
    if (config == NULL) {
        return ERR_MEMORY;
    }
    uint64_t own = 0;
    int rc = hash_config(model->dir, &own);
    bool there = file_exists(config);
    if (rc == 0 && own != hash) {
        rc = err_set(ERR_MODEL, "%s/config.json: is not the one this pack was made with: copy it "
                     "from %s, or pack again", model->dir, pack->source);
    } else if (rc == 0 && !there && pack->experts_in_source) {
        rc = err_set(ERR_MODEL, "%s: its experts were left in %s, which is gone: put the source "
                     "back, or pack again without --trunk-only", model->dir, pack->source);
    } else if (rc == 0 && there) {
        rc = hash_config(pack->source, &hash);
        rc = rc == 0 && hash != pack->identity.config_hash ? refuse_changed(model, "config.json")
                                                           : rc;
    }
    free(config);
    for (uint32_t i = 0; rc == 0 && i < pack->identity.shard_count; i++) {
        rc = check_shard(model, &header, &pack->identity.shards[i], pack->experts_in_source);
    }
    header_free(&header);
    return rc;
}
