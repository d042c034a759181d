/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest of a finished pack, and the small files that make its folder a model. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/cli/output.h"
#include "core/cli/pack_priv.h"

#define SMALL_CAP_BYTES (64 * MIB)

/* A JSON string. Names hold no control characters: pack_check_name() refused them. */
static void put_text(FILE *f, const char *text)
{
    fputc('"', f);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            fputc('\\', f);
        }
        fputc(*text, f);
    }
    fputc('"', f);
}

static void put_hash(FILE *f, uint64_t hash)
{
    fprintf(f, ",\"%016" PRIx64 "\"]", hash);
}

static void put_source(FILE *f, const char *path, const struct pack_terms *terms,
                       const struct pack_identity *identity)
{
    fprintf(f, "{\"format\":\"k3ring-pack\",\n\"version\":%u,\n\"id\":\"%016" PRIx64 "\",\n"
            "\"tile_bytes\":%" PRIu64 ",\n\"source\":", PACK_VERSION, terms->id,
            terms->tile_bytes);
    put_text(f, path);
    fprintf(f, ",\n\"config\":\"%016" PRIx64 "\",\n\"shards\":[", identity->config_hash);
    for (uint32_t i = 0; i < identity->shard_count; i++) {
        fprintf(f, "%s\n[", i == 0 ? "" : ",");
        put_text(f, identity->shards[i].name);
        fprintf(f, ",%" PRIu64, identity->shards[i].size_bytes);
        put_hash(f, identity->shards[i].hash);
    }
    fprintf(f, "],\n\"experts_in\":\"%s\",\n", terms->trunk_only ? "source" : "pack");
}

static void put_files(FILE *f, const struct pack_output *out)
{
    fputs("\"parts\":[\"\"", f);
    for (uint32_t i = 1; i < out->places->count; i++) {
        fputs(",\n", f);
        put_text(f, out->places->place[i].path);
    }
    fputs("],\n\"files\":[", f);
    for (uint32_t i = 0; i < out->count; i++) {
        fprintf(f, "%s\n[%u,\"%s\",%" PRIu64 "]", i == 0 ? "" : ",", pack_file_place(out, i),
                pack_file_name(out, i), out->end_bytes[i]);
    }
    fputs("],\n", f);
}

static void put_tensor(FILE *f, const struct model *source, const struct pack_item *item)
{
    const struct tensor_ref *ref = model_tensor(source, item->layer, item->id);
    struct tensor_spec spec;
    inventory_tensor(&source->config, item->layer, item->id, &spec);
    fprintf(f, "[\"%s\",\"%s\",%u,%u,%u,%" PRIu64, spec.name, dtype_name(ref->dtype), ref->rows,
            ref->cols, item->file, item->offset_bytes);
    put_hash(f, item->checksum);
}

static bool same_matrix(const struct pack_item *a, const struct pack_item *b)
{
    return a->layer == b->layer && a->id == b->id;
}

/* A tile, with the brackets of its matrix where it is the first or the last. */
static void put_tile(FILE *f, const struct model *source, const struct pack_items *items,
                     uint32_t index, bool first_of_all)
{
    const struct pack_item *item = &items->item[index];
    const struct pack_item *end = items->item + items->count;
    bool first = first_of_all || !same_matrix(item - 1, item);
    bool last = item + 1 == end || item[1].kind != PACK_TILE || !same_matrix(item, item + 1);
    if (first) {
        struct tensor_spec spec;
        inventory_tensor(&source->config, item->layer, item->id, &spec);
        fprintf(f, "%s\n[\"%s\",[", first_of_all ? "" : ",", spec.name);
    }
    fprintf(f, "%s[%u,%" PRIu64 ",%" PRIu64 ",%u", first ? "" : ",\n", item->file,
            item->offset_bytes, item->size_bytes, item->row_count);
    put_hash(f, item->checksum);
    fputs(last ? "]]" : "", f);
}

static void put_items(FILE *f, const struct model *source, const struct pack_items *items)
{
    bool first = true;
    fputs("\"tensors\":[", f);
    for (uint32_t i = 0; i < items->count; i++) {
        if (items->item[i].kind == PACK_TENSOR) {
            fputs(first ? "\n" : ",\n", f);
            put_tensor(f, source, &items->item[i]);
            first = false;
        }
    }
    fputs("],\n\"matrices\":[", f);
    first = true;
    for (uint32_t i = 0; i < items->count; i++) {
        if (items->item[i].kind == PACK_TILE) {
            put_tile(f, source, items, i, first);
            first = false;
        }
    }
    fputs("],\n\"experts\":[", f);
    first = true;
    for (uint32_t i = 0; i < items->count; i++) {
        const struct pack_item *item = &items->item[i];
        if (item->kind == PACK_EXPERT) {
            fprintf(f, "%s\n[%u,%" PRIu64, first ? "" : ",", item->file, item->offset_bytes);
            put_hash(f, item->checksum);
            first = false;
        }
    }
    fputs("],\n", f);
}

/* Gives path text and the checksum of all of it as the last member. */
static int write_text(const char *path, const char *text, size_t size_bytes)
{
    struct output out;
    TRY(output_open(&out, path));
    fwrite(text, 1, size_bytes, out.file);
    fprintf(out.file, "\"checksum\":\"%016" PRIx64 "\"}\n", XXH3_64bits(text, size_bytes));
    TRY(output_commit(&out));
    output_flush_folders(); /* before the journal goes */
    return 0;
}

int pack_manifest_write(const struct pack_output *out, const struct model *source,
                        const char *from, const struct pack_terms *terms,
                        const struct pack_identity *identity, const struct pack_items *items)
{
    char *text = NULL;
    size_t size_bytes = 0;
    char *path = path_join(out->places->place[0].path, PACK_MANIFEST);
    FILE *f = open_memstream(&text, &size_bytes);
    int rc = ERR_MEMORY;
    if (path != NULL && f != NULL) {
        put_source(f, from, terms, identity);
        put_files(f, out);
        put_items(f, source, items);
        rc = ferror(f) != 0 ? ERR_MEMORY : 0;
    }
    if (f != NULL && fclose(f) != 0) {
        rc = ERR_MEMORY;
    }
    rc = rc == 0 ? write_text(path, text, size_bytes)
                 : err_set(rc, "no memory for the manifest of the pack");
    free(text);
    free(path);
    return rc;
}

/* ---- small files ---- */

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name);
    return length >= strlen(end) && strcmp(name + length - strlen(end), end) == 0;
}

/* What goes with a model besides weights: config, tokenizer, templates, the synthetic marker. */
static bool goes_along(const char *name)
{
    static const char *const ends[] = {".json", ".model", ".jinja", ".txt", ".tiktoken", ".py"};
    bool fits = false;
    for (size_t i = 0; i < countof(ends); i++) {
        fits = fits || ends_with(name, ends[i]);
    }
    return fits && name[0] != '.' && !ends_with(name, ".safetensors.index.json") &&
           strcmp(name, PACK_MANIFEST) != 0;
}

static int copy_file(const char *from, const char *to)
{
    struct file_text text;
    struct output out;
    TRY(file_read(from, SMALL_CAP_BYTES, &text));
    int rc = output_open(&out, to);
    if (rc == 0) {
        fwrite(text.text, 1, text.size_bytes, out.file);
        rc = output_commit(&out);
    }
    file_text_free(&text);
    return rc;
}

static int copy_named(const struct pack_place *place, const char *dir, const char *name)
{
    struct stat status;
    char *from = path_join(dir, name);
    char *to = path_join(place->path, name);
    int rc = from == NULL || to == NULL ? ERR_MEMORY : 0;
    if (rc == 0 && stat(from, &status) == 0 && S_ISREG(status.st_mode) &&
        (uint64_t)status.st_size <= SMALL_CAP_BYTES) {
        rc = copy_file(from, to);
    }
    free(from);
    free(to);
    return rc;
}

int pack_copy_small(const struct pack_place *place, const struct model *source)
{
    DIR *stream = opendir(source->dir);
    if (stream == NULL) {
        return err_set(ERR_IO, "%s: cannot be listed: %s", source->dir, strerror(errno));
    }
    int rc = 0;
    for (const struct dirent *entry; rc == 0 && (entry = readdir(stream)) != NULL;) {
        if (goes_along(entry->d_name)) {
            rc = copy_named(place, source->dir, entry->d_name);
        }
    }
    closedir(stream);
    return rc;
}
