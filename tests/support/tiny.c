/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/tiny.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cli/synth.h"

void tiny_need(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "tiny model for a test: %s failed: %s\n", what, err_message());
        abort();
    }
}

void tiny_folder(struct tiny *tiny, enum tiny_place place)
{
    bool memory = place == TINY_MEMORY && access("/dev/shm", W_OK) == 0;
    const char *top = memory ? "/dev/shm" : "/tmp";
    snprintf(tiny->dir, sizeof tiny->dir, "%s/k3ring-tiny-XXXXXX", top);
    tiny_need(mkdtemp(tiny->dir) != NULL, tiny->dir);
}

void tiny_make(struct tiny *tiny, enum tiny_place place)
{
    struct synth_options options = {.preset = SYNTH_TINY};
    tiny_folder(tiny, place);
    tiny_need(synth_write(tiny->dir, &options) >= 0, "synth_write");
}

/* Calls visit for every entry of the folder but the two dots. */
static void each_entry(const struct tiny *tiny, void (*visit)(const struct tiny *, const char *,
                                                              void *), void *ctx)
{
    DIR *folder = opendir(tiny->dir);
    tiny_need(folder != NULL, tiny->dir);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            visit(tiny, entry->d_name, ctx);
        }
    }
    closedir(folder);
}

static void copy_entry(const struct tiny *from, const char *name, void *to)
{
    size_t size_bytes;
    unsigned char *bytes = tiny_read(from, name, &size_bytes);
    tiny_put(to, name, bytes, size_bytes);
    free(bytes);
}

static void remove_entry(const struct tiny *tiny, const char *name, void *ctx)
{
    char path[TINY_PATH_BYTES];
    (void)ctx;
    tiny_path(tiny, name, path);
    unlink(path);
}

void tiny_copy(struct tiny *to, const struct tiny *from, enum tiny_place place)
{
    tiny_folder(to, place);
    each_entry(from, copy_entry, to);
}

void tiny_remove(struct tiny *tiny)
{
    each_entry(tiny, remove_entry, NULL);
    rmdir(tiny->dir);
}

const char *tiny_shard(uint32_t shard)
{
    static const char *const names[TINY_SHARDS] = {"model-00001-of-000003.safetensors",
                                                   "model-00002-of-000003.safetensors",
                                                   "model-00003-of-000003.safetensors"};
    tiny_need(shard < TINY_SHARDS, "a shard below 3");
    return names[shard];
}

void tiny_path(const struct tiny *tiny, const char *name, char path[TINY_PATH_BYTES])
{
    snprintf(path, TINY_PATH_BYTES, "%s/%s", tiny->dir, name);
}

unsigned char *tiny_read(const struct tiny *tiny, const char *name, size_t *size_bytes)
{
    char path[TINY_PATH_BYTES];
    tiny_path(tiny, name, path);
    FILE *in = fopen(path, "rbe");
    tiny_need(in != NULL && fseek(in, 0, SEEK_END) == 0, path);
    *size_bytes = (size_t)ftell(in);
    unsigned char *bytes = malloc(*size_bytes + 1);
    rewind(in);
    tiny_need(bytes != NULL && fread(bytes, 1, *size_bytes, in) == *size_bytes, path);
    bytes[*size_bytes] = '\0';
    fclose(in);
    return bytes;
}

void tiny_put(const struct tiny *tiny, const char *name, const void *bytes, size_t size_bytes)
{
    char path[TINY_PATH_BYTES];
    tiny_path(tiny, name, path);
    FILE *out = fopen(path, "wbe");
    tiny_need(out != NULL && fwrite(bytes, 1, size_bytes, out) == size_bytes && fclose(out) == 0,
              path);
}

void tiny_truncate(const struct tiny *tiny, const char *name, int64_t change_bytes)
{
    char path[TINY_PATH_BYTES];
    tiny_path(tiny, name, path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    off_t end = lseek(fd, 0, SEEK_END);
    tiny_need(fd >= 0 && end >= 0 && ftruncate(fd, end + (off_t)change_bytes) == 0, path);
    close(fd);
}

static uint64_t header_bytes_of(const unsigned char *file)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) {
        value = value << 8 | file[i];
    }
    return value;
}

/* Offset of a tensor's data in the bytes of a shard; 0 when it is not there. */
static uint64_t find_in(const unsigned char *file, const char *tensor)
{
    uint64_t header_bytes = header_bytes_of(file);
    cJSON *header = cJSON_ParseWithLength((const char *)file + 8, header_bytes);
    tiny_need(header != NULL, "reading a header");
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(header, tensor);
    const cJSON *range = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    uint64_t at = 0;
    if (range != NULL) {
        at = 8 + header_bytes + (uint64_t)cJSON_GetNumberValue(cJSON_GetArrayItem(range, 0));
    }
    cJSON_Delete(header);
    return at;
}

uint64_t tiny_find(const struct tiny *tiny, const char *tensor, uint32_t *shard)
{
    for (*shard = 0; *shard < TINY_SHARDS; ++*shard) {
        size_t size_bytes;
        unsigned char *file = tiny_read(tiny, tiny_shard(*shard), &size_bytes);
        uint64_t at = find_in(file, tensor);
        free(file);
        if (at != 0) {
            return at;
        }
    }
    tiny_need(false, tensor);
    return 0;
}

void tiny_poke(const struct tiny *tiny, const char *tensor, uint64_t at_bytes, const void *bytes,
               size_t size_bytes)
{
    uint32_t shard;
    char path[TINY_PATH_BYTES];
    uint64_t at = tiny_find(tiny, tensor, &shard) + at_bytes;
    tiny_path(tiny, tiny_shard(shard), path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    tiny_need(fd >= 0 && pwrite(fd, bytes, size_bytes, (off_t)at) == (ssize_t)size_bytes, path);
    close(fd);
}

void tiny_move(const struct tiny *tiny, const char *tensor, uint64_t to_bytes, uint64_t from_bytes,
               size_t size_bytes)
{
    uint32_t shard;
    size_t file_bytes;
    uint64_t at = tiny_find(tiny, tensor, &shard) + from_bytes;
    unsigned char *file = tiny_read(tiny, tiny_shard(shard), &file_bytes);
    tiny_need(at + size_bytes <= file_bytes, tensor);
    tiny_poke(tiny, tensor, to_bytes, file + at, size_bytes);
    free(file);
}

/* Writes a shard: length, header, then the data behind the header of the file it was. */
static void put_shard(const struct tiny *tiny, uint32_t shard, const char *header,
                      uint64_t header_bytes)
{
    size_t size_bytes;
    unsigned char *file = tiny_read(tiny, tiny_shard(shard), &size_bytes);
    uint64_t begin = 8 + header_bytes_of(file);
    unsigned char *out = malloc(8 + header_bytes + (size_bytes - begin));
    tiny_need(out != NULL, "malloc");
    for (uint32_t i = 0; i < 8; i++) {
        out[i] = (unsigned char)(header_bytes >> (8 * i));
    }
    memcpy(out + 8, header, header_bytes);
    memcpy(out + 8 + header_bytes, file + begin, size_bytes - begin);
    tiny_put(tiny, tiny_shard(shard), out, 8 + header_bytes + (size_bytes - begin));
    free(out);
    free(file);
}

/* The text of a shard's header, to free(). */
static char *header_of(const struct tiny *tiny, uint32_t shard)
{
    size_t size_bytes;
    unsigned char *file = tiny_read(tiny, tiny_shard(shard), &size_bytes);
    char *text = strndup((const char *)file + 8, header_bytes_of(file));
    tiny_need(text != NULL, "strndup");
    free(file);
    return text;
}

void tiny_pad_header(const struct tiny *tiny, uint32_t shard, uint64_t header_bytes)
{
    char *text = header_of(tiny, shard);
    char *padded = NULL;
    tiny_need(strlen(text) <= header_bytes, "padding a header");
    tiny_need(asprintf(&padded, "%-*s", (int)header_bytes, text) > 0, "asprintf");
    put_shard(tiny, shard, padded, header_bytes);
    free(padded);
    free(text);
}

void tiny_edit_header(const struct tiny *tiny, uint32_t shard, const char *before,
                      const char *after)
{
    char *text = header_of(tiny, shard);
    char *at = strstr(text, before);
    char *edited = NULL;
    tiny_need(at != NULL, before);
    int length = asprintf(&edited, "%.*s%s%s", (int)(at - text), text, after, at + strlen(before));
    tiny_need(length > 0, "asprintf");
    put_shard(tiny, shard, edited, (uint64_t)length);
    free(edited);
    free(text);
}

void tiny_forgetful(struct tiny *model, const struct tiny *from)
{
    static const unsigned char zeros[REF_HIDDEN * REF_O_WIDTH * 2];
    char name[128];
    tiny_copy(model, from, TINY_MEMORY);
    for (uint32_t layer = 0; layer < REF_LAYERS; layer++) {
        snprintf(name, sizeof name, "language_model.model.layers.%u.self_attn.o_proj.weight",
                 layer);
        bool mla = layer % 4 == 3 || layer + 1 == REF_LAYERS;
        tiny_poke(model, name, 0, zeros, REF_HIDDEN * (mla ? REF_O_WIDTH : REF_KDA_WIDTH) * 2);
    }
}

struct engine_options tiny_options(uint32_t gen)
{
    return (struct engine_options){
        .ram_bytes = 512 * MIB,
        .io_depth = 8,
        .io_size_bytes = 4 * MIB,
        .policy = "arc",
        .threads = 2,
        .isa = ISA_AUTO,
        .io = IO_URING,
        .sim = {.seed = 1},
        .context = GOLDEN_PROMPT + gen,
        .chunk = PLAN_AUTO,
        .pin_bytes = PLAN_AUTO,
        .pin_percent = -1.0,
        .expert_slots = PLAN_AUTO,
        .tile_bytes = PLAN_AUTO,
        .prompt_tokens = GOLDEN_PROMPT,
    };
}

/* What a token callback needs. */
struct listener {
    const struct tiny_events *events;
};

static void on_token(void *ctx, uint32_t step, uint32_t id)
{
    const struct listener *listener = ctx;
    (void)id;
    if (listener->events != NULL && listener->events->after_step != NULL) {
        listener->events->after_step(listener->events->ctx, step);
    }
}

static void run_engine(struct engine *e, uint32_t gen, const struct tiny_events *events,
                       struct tiny_run *run)
{
    uint32_t prompt[GOLDEN_PROMPT];
    struct listener listener = {events};
    for (int i = 0; i < GOLDEN_PROMPT; i++) {
        prompt[i] = (uint32_t)golden_prompt[i];
    }
    struct generate_request request = {.ids = prompt, .id_count = GOLDEN_PROMPT, .gen = gen,
                                       .on_token = on_token, .ctx = &listener};
    struct generate_result result = {.ids = run->ids};
    if (events != NULL && events->between != NULL) {
        events->between(events->ctx);
    }
    run->rc = generate(e, &request, &result);
    run->count = result.count;
    generate_hash_text(result.hash, run->hash);
    engine_stats(e, &run->stats);
    struct engine_trace trace;
    engine_trace(e, &trace);
    memcpy(run->route, trace.route_ids, sizeof run->route);
}

void tiny_generate(const struct tiny *tiny, const struct engine_options *options, uint32_t gen,
                   const struct tiny_events *events, struct tiny_run *run)
{
    struct engine *e = NULL;
    tiny_need(gen <= countof(run->ids), "as many ids as a run has room for");
    memset(run, 0, sizeof *run);
    err_clear();
    run->rc = engine_open(&e, tiny->dir, options);
    if (run->rc >= 0) {
        run_engine(e, gen, events, run);
    }
    if (run->rc < 0) {
        snprintf(run->message, sizeof run->message, "%s", err_message());
    }
    engine_close(e);
    err_clear();
}

uint64_t tiny_digest(const float *logits)
{
    struct sha256_ctx sha;
    uint8_t bytes[sizeof(uint64_t)];
    uint64_t digest;
    sha256_init(&sha);
    sha256_update(&sha, REF_VOCAB * sizeof *logits, (const uint8_t *)logits);
    sha256_digest(&sha, sizeof bytes, bytes);
    memcpy(&digest, bytes, sizeof digest);
    return digest;
}

bool tiny_golden_so_far(const struct tiny_run *run)
{
    for (uint32_t i = 0; i < run->count && i < GOLDEN_STEPS; i++) {
        if (run->ids[i] != (uint32_t)golden_ids[i]) {
            return false;
        }
    }
    return true;
}
