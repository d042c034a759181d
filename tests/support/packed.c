/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/packed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "core/base/nondet.h"
#include "core/cli/pack.h"
#include "planner/plan.h"

/* One row of so many, and as many values in it: the table of a row holds 15, and a tile of a few
 * pages has room for few escapes. */
#define SPRINKLE_ROWS 64
#define SPRINKLE_VALUES 24

static void sprinkle(const struct tiny *model, struct rng *rng, uint32_t layer,
                     enum tensor_id id, const struct model_config *config)
{
    struct tensor_spec spec;
    inventory_tensor(config, layer, id, &spec);
    for (uint64_t row = 0; row < spec.shape[0] / SPRINKLE_ROWS; row++) {
        uint64_t begin = rng_below(rng, spec.shape[0]) * spec.shape[1];
        for (uint32_t i = 0; i < SPRINKLE_VALUES; i++) {
            /* Exponents from tiny to below 2^-4, either sign. */
            unsigned char value[2] = {
                (unsigned char)rng_next(rng),
                (unsigned char)(rng_below(rng, 0x3D) | rng_below(rng, 2) << 7)};
            uint64_t at = begin + rng_below(rng, spec.shape[1]);
            tiny_poke(model, spec.name, 2 * at, value, sizeof value);
        }
    }
}

void packed_sprinkle(const struct tiny *model)
{
    struct model_config config;
    struct rng rng = rng_seed(15);
    tiny_need(config_load(model->dir, &config) == 0, "config_load");
    for (uint32_t layer = 0; layer < config.layers; layer++) {
        sprinkle(model, &rng, layer, T_G, &config);
        sprinkle(model, &rng, layer, config_is_moe(&config, layer) ? T_SHARED_UP : T_DENSE_GATE,
                 &config);
    }
    sprinkle(model, &rng, TENSOR_MODEL_LEVEL, T_LM_HEAD, &config);
}

void packed_make(struct tiny *to, const struct tiny *from, enum tiny_place place,
                 const struct packed_form *form)
{
    struct pack_summary summary;
    const char *second = form->second != NULL ? form->second->dir : NULL;
    const uint32_t shares[] = {1, 1};
    tiny_folder(to, place);
    struct pack_options options = {
        .source = from->dir, .dir = to->dir, .to = &second, .to_count = second != NULL,
        .shares = shares, .trunk_only = form->trunk_only,
        .tile_bytes = form->tile_bytes != 0 ? form->tile_bytes : PLAN_AUTO, .threads = 2,
        .quiet = true};
    tiny_need(pack_write(&options, &summary) == 0, "pack_write");
}

/* Everything before the last member, and its checksum behind it. */
static void put_manifest(const struct tiny *pack, char *text)
{
    char *end = strstr(text, "\"checksum\":");
    tiny_need(end != NULL, "a manifest's last member");
    size_t body = (size_t)(end - text);
    sprintf(end, "\"checksum\":\"%016" PRIx64 "\"}\n", XXH3_64bits(text, body));
    tiny_put(pack, PACK_MANIFEST, text, strlen(text));
}

void packed_edit(const struct tiny *pack, const char *before, const char *after)
{
    size_t size_bytes;
    char *text = (char *)tiny_read(pack, PACK_MANIFEST, &size_bytes);
    char *at = strstr(text, before);
    char *edited = calloc(1, size_bytes + strlen(after) + 64);
    tiny_need(at != NULL && edited != NULL, before);
    memcpy(edited, text, (size_t)(at - text));
    strcat(edited, after);
    strcat(edited, at + strlen(before));
    put_manifest(pack, edited);
    free(edited);
    free(text);
}

void packed_find(const struct tiny *pack, const char *part, uint32_t number,
                 struct packed_line *out)
{
    size_t size_bytes;
    char *text = (char *)tiny_read(pack, PACK_MANIFEST, &size_bytes);
    char *at = strstr(text, "\"matrices\":[");
    at = at != NULL ? strstr(at, part) : NULL;
    at = at != NULL ? strstr(at, "[[") : NULL;
    tiny_need(at != NULL, part);
    for (uint32_t i = 0; i <= number; i++) {
        at = strchr(at + 1, '[');
        tiny_need(at != NULL, "a tile of that number");
    }
    size_t length = strcspn(at, "]") + 1;
    snprintf(out->text, sizeof out->text, "%.*s", (int)length, at);
    int got = sscanf(out->text, "[%" SCNu32 ",%" SCNu64 ",%" SCNu64 ",%" SCNu32 ",\"%16[0-9a-f]\"]",
                     &out->file, &out->offset_bytes, &out->size_bytes, &out->rows, out->checksum);
    tiny_need(got == 5, "a tile's line");
    free(text);
}

void packed_print(const struct packed_line *line, char text[128])
{
    snprintf(text, 128, "[%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%" PRIu32 ",\"%s\"]", line->file,
             line->offset_bytes, line->size_bytes, line->rows, line->checksum);
}
