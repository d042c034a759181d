/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/rewrite.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/nondet.h"

struct tensor {
    const char *name;
    cJSON *entry;              /* dtype, shape, data_offsets as they were */
    const unsigned char *data;
    uint64_t size_bytes;
    uint32_t shard;            /* to write it to */
};

struct source {
    unsigned char *file[TINY_SHARDS];
    cJSON *header[TINY_SHARDS];
    struct tensor *tensors;
    uint32_t count;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

static void load_shard(struct source *s, const struct tiny *from, uint32_t shard)
{
    size_t size_bytes;
    uint64_t header_bytes = 0;
    s->file[shard] = tiny_read(from, tiny_shard(shard), &size_bytes);
    for (int i = 7; i >= 0; i--) {
        header_bytes = header_bytes << 8 | s->file[shard][i];
    }
    s->header[shard] = cJSON_ParseWithLength((const char *)s->file[shard] + 8, header_bytes);
    tiny_need(s->header[shard] != NULL, "reading a header");
    cJSON *entry;
    cJSON_ArrayForEach(entry, s->header[shard]) {
        const cJSON *range = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
        if (range == NULL) {
            continue; /* __metadata__ */
        }
        uint64_t begin = (uint64_t)cJSON_GetNumberValue(cJSON_GetArrayItem(range, 0));
        uint64_t end = (uint64_t)cJSON_GetNumberValue(cJSON_GetArrayItem(range, 1));
        s->tensors = realloc(s->tensors, (s->count + 1) * sizeof *s->tensors);
        tiny_need(s->tensors != NULL, "realloc");
        s->tensors[s->count++] = (struct tensor){
            .name = entry->string, .entry = entry, .size_bytes = end - begin,
            .data = s->file[shard] + 8 + header_bytes + begin};
    }
}

static void arrange(struct source *s, const struct rewrite_options *options)
{
    struct rng rng = rng_seed(options->seed);
    qsort(s->tensors, s->count, sizeof *s->tensors, compare_names);
    for (uint32_t i = 0; i < s->count; i++) {
        s->tensors[i].shard = i % options->shards;
    }
    for (uint32_t i = s->count; options->seed != 0 && i > 1; i--) {
        uint32_t other = (uint32_t)rng_below(&rng, i);
        struct tensor swap = s->tensors[i - 1];
        s->tensors[i - 1] = s->tensors[other];
        s->tensors[other] = swap;
    }
}

static void shard_name(const struct rewrite_options *options, uint32_t shard, char name[64])
{
    snprintf(name, 64, "model-%05u-of-%06u.safetensors", shard + 1, options->shards);
}

/* The header of one new shard. */
static char *print_header(const struct source *s, const struct rewrite_options *options,
                          uint32_t shard)
{
    cJSON *header = cJSON_CreateObject();
    uint64_t at = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->tensors[i].shard == shard) {
            at += options->gap_bytes;
            cJSON *entry = cJSON_Duplicate(s->tensors[i].entry, true);
            double range[2] = {(double)at, (double)(at + s->tensors[i].size_bytes)};
            cJSON_ReplaceItemInObjectCaseSensitive(entry, "data_offsets",
                                                   cJSON_CreateDoubleArray(range, 2));
            cJSON_AddItemToObject(header, s->tensors[i].name, entry);
            at += s->tensors[i].size_bytes;
        }
    }
    char *text = cJSON_PrintUnformatted(header);
    tiny_need(text != NULL, "printing a header");
    cJSON_Delete(header);
    return text;
}

static void write_shard(const struct source *s, const struct rewrite_options *options,
                        uint32_t shard, const struct tiny *to)
{
    static const unsigned char zeros[4096];
    char name[64];
    char *text = print_header(s, options, shard);
    char *bytes = NULL;
    size_t size_bytes = 0;
    size_t text_bytes = strlen(text);
    size_t header_bytes = align_up(text_bytes, 8) + (options->odd_base ? 1 : 0);
    FILE *out = open_memstream(&bytes, &size_bytes);
    tiny_need(out != NULL && options->gap_bytes <= sizeof zeros, "open_memstream");
    for (uint32_t i = 0; i < 8; i++) {
        fputc((int)(header_bytes >> (8 * i) & 0xFF), out);
    }
    fprintf(out, "%s%*s", text, (int)(header_bytes - text_bytes), "");
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->tensors[i].shard == shard) {
            fwrite(zeros, 1, options->gap_bytes, out);
            fwrite(s->tensors[i].data, 1, s->tensors[i].size_bytes, out);
        }
    }
    tiny_need(fclose(out) == 0, "fclose");
    shard_name(options, shard, name);
    tiny_put(to, name, bytes, size_bytes);
    free(bytes);
    free(text);
}

static void write_index(const struct source *s, const struct rewrite_options *options,
                        const struct tiny *to)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *map = cJSON_AddObjectToObject(root, "weight_map");
    for (uint32_t i = 0; i < s->count; i++) {
        char name[64];
        shard_name(options, s->tensors[i].shard, name);
        cJSON_AddStringToObject(map, s->tensors[i].name, name);
    }
    char *text = cJSON_PrintUnformatted(root);
    tiny_need(text != NULL, "printing an index");
    tiny_put(to, "model.safetensors.index.json", text, strlen(text));
    cJSON_free(text);
    cJSON_Delete(root);
}

void rewrite(struct tiny *to, const struct tiny *from, enum tiny_place place,
             const struct rewrite_options *options)
{
    struct source s = {.count = 0};
    size_t size_bytes;
    tiny_need(options->shards >= 1 && options->shards <= 64, "a number of shards");
    for (uint32_t shard = 0; shard < TINY_SHARDS; shard++) {
        load_shard(&s, from, shard);
    }
    arrange(&s, options);
    tiny_folder(to, place);
    for (uint32_t shard = 0; shard < options->shards; shard++) {
        write_shard(&s, options, shard, to);
    }
    write_index(&s, options, to);
    unsigned char *config = tiny_read(from, "config.json", &size_bytes);
    tiny_put(to, "config.json", config, size_bytes);
    free(config);
    for (uint32_t shard = 0; shard < TINY_SHARDS; shard++) {
        cJSON_Delete(s.header[shard]);
        free(s.file[shard]);
    }
    free(s.tensors);
}
