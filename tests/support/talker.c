/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/talker.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/nondet.h"
#include "tests/support/vocabulary.h"

#define HIDDEN 128U
#define ROWS_BEFORE 256U
#define TOP_SHARD (TINY_SHARDS - 1)
#define EOS (TALKER_ADDED + 1)
#define SEP (TALKER_ADDED + 5)

static const char embed[] = "language_model.model.embed_tokens.weight";
static const char head[] = "language_model.lm_head.weight";

/* ---- more rows ---- */

static uint64_t range_of(const cJSON *entry, int which)
{
    const cJSON *range = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    return (uint64_t)cJSON_GetNumberValue(cJSON_GetArrayItem(range, which));
}

static bool has_rows(const cJSON *entry)
{
    return strcmp(entry->string, embed) == 0 || strcmp(entry->string, head) == 0;
}

/* A value of bf16 between -1 and 1. */
static uint16_t random_value(struct rng *rng)
{
    float value = (float)((double)(rng_next(rng) >> 40) / 8388608.0 - 1.0);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void set_entry(cJSON *entry, uint64_t begin, uint64_t end)
{
    double range[2] = {(double)begin, (double)end};
    int shape[2] = {TALKER_VOCABULARY, HIDDEN};
    cJSON_ReplaceItemInObjectCaseSensitive(entry, "data_offsets",
                                           cJSON_CreateDoubleArray(range, 2));
    if (has_rows(entry)) {
        cJSON_ReplaceItemInObjectCaseSensitive(entry, "shape", cJSON_CreateIntArray(shape, 2));
    }
}

/* The data of all tensors in the order of the header, and the header to go with it. */
static void write_data(cJSON *header, const unsigned char *data, FILE *out)
{
    struct rng rng = rng_seed(1);
    uint64_t at = 0;
    cJSON *entry;
    cJSON_ArrayForEach(entry, header) {
        uint64_t begin = range_of(entry, 0), size = range_of(entry, 1) - begin, more = 0;
        fwrite(data + begin, 1, size, out);
        if (has_rows(entry)) {
            tiny_need(size == ROWS_BEFORE * HIDDEN * 2, "rows of the tiny model");
            for (; more < (TALKER_VOCABULARY - ROWS_BEFORE) * HIDDEN * 2; more += 2) {
                uint16_t value = random_value(&rng);
                fwrite(&value, 1, sizeof value, out);
            }
        }
        set_entry(entry, at, at + size + more);
        at += size + more;
    }
}

static void widen_shard(const struct tiny *model)
{
    size_t size, data_bytes;
    uint64_t header_bytes = 0;
    char *data = NULL, *bytes = NULL;
    unsigned char *file = tiny_read(model, tiny_shard(TOP_SHARD), &size);
    for (int i = 7; i >= 0; i--) {
        header_bytes = header_bytes << 8 | file[i];
    }
    cJSON *header = cJSON_ParseWithLength((const char *)file + 8, header_bytes);
    FILE *out = open_memstream(&data, &data_bytes);
    tiny_need(header != NULL && out != NULL, "the header of a shard");
    write_data(header, file + 8 + header_bytes, out);
    fclose(out);
    char *text = cJSON_PrintUnformatted(header);
    size_t text_bytes = align_up(strlen(text), 8);
    out = open_memstream(&bytes, &size);
    tiny_need(out != NULL, "open_memstream");
    for (uint32_t i = 0; i < 8; i++) {
        fputc((int)(text_bytes >> (8 * i) & 0xFF), out);
    }
    fprintf(out, "%-*s", (int)text_bytes, text);
    fwrite(data, 1, data_bytes, out);
    fclose(out);
    tiny_put(model, tiny_shard(TOP_SHARD), bytes, size);
    free(bytes);
    free(data);
    free(file);
    cJSON_free(text);
    cJSON_Delete(header);
}

static void widen_config(const struct tiny *model)
{
    size_t size;
    unsigned char *file = tiny_read(model, "config.json", &size);
    cJSON *root = cJSON_ParseWithLength((const char *)file, size);
    cJSON *text = cJSON_GetObjectItemCaseSensitive(root, "text_config");
    cJSON *count = cJSON_GetObjectItemCaseSensitive(text, "vocab_size");
    tiny_need(count != NULL, "vocab_size");
    cJSON_SetNumberValue(count, TALKER_VOCABULARY);
    char *printed = cJSON_Print(root);
    tiny_put(model, "config.json", printed, strlen(printed));
    cJSON_free(printed);
    cJSON_Delete(root);
    free(file);
}

void talker_make(struct tiny *model, enum tiny_place place)
{
    char path[TINY_PATH_BYTES];
    tiny_make(model, place);
    widen_shard(model);
    widen_config(model);
    tiny_path(model, "tiktoken.model", path);
    vocabulary_write(path, NULL, 0);
}

/* ---- a script ---- */

static uint32_t id_of(char byte)
{
    uint32_t id = 0;
    while (vocabulary_byte(id) != (unsigned char)byte) {
        id++;
    }
    return id;
}

static float widen(uint16_t value)
{
    uint32_t bits = (uint32_t)value << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* Makes `to` what follows `from`: the embedding of that is added to its row of lm_head. */
static void follows(uint16_t *head_rows, const uint16_t *rows, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < HIDDEN; i++) {
        uint16_t *value = &head_rows[to * HIDDEN + i];
        float sum = widen(*value) + widen(rows[from * HIDDEN + i]);
        uint32_t bits;
        memcpy(&bits, &sum, sizeof bits);
        *value = (uint16_t)(bits >> 16);
    }
}

static void silence_layers(const struct tiny *model)
{
    static const char *const parts[] = {"mlp.down_proj.weight",
                                        "block_sparse_moe.shared_experts.down_proj.weight",
                                        "block_sparse_moe.routed_expert_up_proj.weight"};
    static const unsigned char zeros[HIDDEN * 1024];
    for (uint32_t layer = 0; layer < REF_LAYERS; layer++) {
        for (size_t i = layer == 0 ? 0 : 1; i < (layer == 0 ? 1 : countof(parts)); i++) {
            char name[128];
            snprintf(name, sizeof name, "language_model.model.layers.%u.%s", layer, parts[i]);
            uint64_t columns = i == 0 ? 96 : i == 1 ? 128 : 64;
            tiny_poke(model, name, 0, zeros, HIDDEN * columns * 2);
        }
    }
}

void talker_scripted(struct tiny *model, enum tiny_place place, const char *text, bool for_ever)
{
    struct tiny babbler;
    uint32_t shard, before = SEP;
    size_t size;
    static uint16_t rows[TALKER_VOCABULARY * HIDDEN], head_rows[TALKER_VOCABULARY * HIDDEN];
    talker_make(&babbler, place);
    tiny_forgetful(model, &babbler);
    tiny_remove(&babbler);
    silence_layers(model);
    uint64_t at = tiny_find(model, embed, &shard);
    unsigned char *file = tiny_read(model, tiny_shard(shard), &size);
    memcpy(rows, file + at, sizeof rows);
    free(file);
    memset(head_rows, 0, sizeof head_rows);
    for (const char *byte = text; *byte != '\0'; byte++) {
        follows(head_rows, rows, before, id_of(*byte));
        before = id_of(*byte);
    }
    follows(head_rows, rows, before, for_ever ? id_of(text[0]) : EOS);
    tiny_poke(model, head, 0, head_rows, sizeof head_rows);
}
