/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"

#define HEAD_BYTES 8         /* of both versions */
#define HEAD_MORE_BYTES 8    /* of version 2, behind them */
#define REQUEST_BYTES 4      /* version 1: layer, expert */
#define LAYER_BYTES 2        /* version 2: of a group, before its candidates */
#define CANDIDATE_BYTES 6    /* version 2: expert, score */
#define TOP_K_MAX 255

int trace_format_check(const struct trace_format *f)
{
    if (f->layers == 0 || f->layers > UINT16_MAX || f->top_k == 0 || f->top_k > TOP_K_MAX) {
        return err_set(ERR_USAGE, "a trace cannot hold %u layers of %u experts a token; it takes "
                       "1 to 65535 and 1 to 255", f->layers, f->top_k);
    }
    return 0;
}

int trace_init(struct trace *trace, uint32_t layers, uint32_t top_k, uint64_t group_capacity)
{
    *trace = (struct trace){.layers = layers, .top_k = top_k, .group_capacity = group_capacity};
    TRY(trace_format_check(&(struct trace_format){.layers = layers, .top_k = top_k}));
    uint64_t most = (TRACE_FILE_BYTES_MAX - HEAD_BYTES) / (REQUEST_BYTES * top_k);
    if (group_capacity > most) {
        return err_set(ERR_USAGE, "a trace of %llu groups is too long; the most is %llu",
                       (unsigned long long)group_capacity, (unsigned long long)most);
    }
    size_t room = (size_t)max_u64(group_capacity, 1);
    trace->layer = malloc(room * sizeof *trace->layer);
    trace->ids = malloc(room * top_k * sizeof *trace->ids);
    if (trace->layer == NULL || trace->ids == NULL) {
        trace_fini(trace);
        return err_set(ERR_MEMORY, "no memory for a trace of %zu groups; record fewer tokens",
                       room);
    }
    return 0;
}

void trace_fini(struct trace *trace)
{
    free(trace->layer);
    free(trace->ids);
    *trace = (struct trace){0};
}

uint32_t trace_add(struct trace *trace, uint32_t layer, const uint16_t *ids, uint32_t tokens)
{
    assert(layer < trace->layers);
    uint32_t added = (uint32_t)min_u64(tokens, trace->group_capacity - trace->group_count);
    size_t requests = (size_t)added * trace->top_k;
    uint16_t *to = trace->ids + trace->group_count * trace->top_k;
    for (size_t i = 0; i < requests; i++) {
        to[i] = ids[i];
        trace->experts = (uint32_t)max_u64(trace->experts, ids[i] + 1U);
    }
    for (uint32_t i = 0; i < added; i++) {
        trace->layer[trace->group_count++] = (uint16_t)layer;
    }
    return added;
}

uint32_t trace_run(const struct trace *trace, uint64_t first, uint32_t limit)
{
    uint32_t length = 0;
    while (length < limit && first + length < trace->group_count &&
           trace->layer[first + length] == trace->layer[first]) {
        length++;
    }
    return length;
}

const uint16_t *trace_ids(const struct trace *trace, uint64_t group)
{
    assert(group < trace->group_count);
    return trace->ids + group * trace->top_k;
}

static uint16_t get_u16(const unsigned char *from)
{
    return (uint16_t)(from[0] | from[1] << 8);
}

static uint32_t get_u32(const unsigned char *from)
{
    return get_u16(from) | (uint32_t)get_u16(from + 2) << 16;
}

static void put_u16(unsigned char *to, uint32_t value)
{
    to[0] = (unsigned char)value;
    to[1] = (unsigned char)(value >> 8);
}

static void put_u32(unsigned char *to, uint32_t value)
{
    put_u16(to, value);
    put_u16(to + 2, value >> 16);
}

/* Only regular files: a pipe could block and a device never end. */
static int open_regular(FILE **out, uint64_t *size_bytes, const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return err_set(ERR_MODEL, "trace %s: cannot open: %s", path, strerror(errno));
    }
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        return err_set(ERR_MODEL, "trace %s: not a regular file; give the file itself", path);
    }
    *out = fdopen(fd, "rb");
    if (*out == NULL) {
        close(fd);
        return err_set(ERR_MEMORY, "trace %s: no memory to read it", path);
    }
    *size_bytes = (uint64_t)status.st_size;
    return 0;
}

/* A file being loaded. */
struct loading {
    const char *path;
    FILE *file;
    struct trace *trace;
    struct trace_format format;
    uint64_t seen[(UINT16_MAX + 1) / 64]; /* a bit per expert, all clear between groups */
    uint16_t ids[UINT16_MAX + 1];         /* of the group in turn */
};

static size_t group_bytes(const struct trace_format *f)
{
    return f->candidates > 0 ? LAYER_BYTES + (size_t)f->candidates * CANDIDATE_BYTES
                             : (size_t)f->top_k * REQUEST_BYTES;
}

/* The second half of version 2's head. */
static int load_more(struct loading *l)
{
    unsigned char more[HEAD_MORE_BYTES];
    struct trace_format *f = &l->format;
    if (fread(more, 1, sizeof more, l->file) != sizeof more) {
        return err_set(ERR_MODEL, "trace %s: ends inside its head; it was cut short", l->path);
    }
    f->candidates = get_u16(more);
    f->experts = get_u32(more + 4);
    if (get_u16(more + 2) != 0 || f->experts > UINT16_MAX + 1U || f->candidates > f->experts ||
        f->candidates < f->top_k) {
        return err_set(ERR_MODEL, "trace %s: damaged head: %u candidates of %u experts; record it "
                       "again", l->path, f->candidates, f->experts);
    }
    return 0;
}

/* Checks the head against the size and takes the memory. */
static int load_head(struct loading *l, uint64_t size_bytes)
{
    unsigned char head[HEAD_BYTES];
    struct trace_format *f = &l->format;
    if (fread(head, 1, sizeof head, l->file) != sizeof head || memcmp(head, "K3RT", 4) != 0) {
        return err_set(ERR_MODEL, "trace %s: not a trace: it does not begin with K3RT", l->path);
    }
    if (head[4] != 1 && head[4] != 2) {
        return err_set(ERR_MODEL, "trace %s: version %u is not known; this program reads versions "
                       "1 and 2", l->path, head[4]);
    }
    *f = (struct trace_format){.top_k = head[5], .layers = get_u16(head + 6)};
    if (f->top_k == 0 || f->layers == 0) {
        return err_set(ERR_MODEL, "trace %s: damaged head: top-k %u, %u layers; record it again",
                       l->path, f->top_k, f->layers);
    }
    uint64_t head_bytes = HEAD_BYTES;
    if (head[4] == 2) {
        TRY(load_more(l));
        head_bytes += HEAD_MORE_BYTES;
    }
    if (size_bytes < head_bytes || size_bytes > TRACE_FILE_BYTES_MAX) {
        return err_set(ERR_MODEL, "trace %s: longer than the %llu bytes this program reads; cut "
                       "it", l->path, (unsigned long long)TRACE_FILE_BYTES_MAX);
    }
    uint64_t body_bytes = size_bytes - head_bytes;
    if (body_bytes % group_bytes(f) != 0) {
        return err_set(ERR_MODEL, "trace %s: ends inside a group of %u experts; it was cut short",
                       l->path, f->candidates > 0 ? f->candidates : f->top_k);
    }
    return trace_init(l->trace, f->layers, f->top_k, body_bytes / group_bytes(f));
}

static bool distinct(const uint16_t *ids, uint32_t count, uint64_t *seen)
{
    bool ok = true;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bit = (uint64_t)1 << (ids[i] % 64);
        ok = ok && (seen[ids[i] / 64] & bit) == 0;
        seen[ids[i] / 64] |= bit;
    }
    for (uint32_t i = 0; i < count; i++) {
        seen[ids[i] / 64] = 0;
    }
    return ok;
}

/* Version 1: every request says its layer. */
static bool read_requests(const struct loading *l, const unsigned char *bytes, uint16_t *ids)
{
    bool sound = true;
    for (uint32_t i = 0; i < l->format.top_k; i++) {
        sound = sound && get_u16(bytes + i * REQUEST_BYTES) == get_u16(bytes);
        ids[i] = get_u16(bytes + i * REQUEST_BYTES + 2);
    }
    return sound;
}

/* Version 2: scores never rise. */
static bool read_candidates(const struct loading *l, const unsigned char *bytes, uint16_t *ids)
{
    bool sound = true;
    float before = INFINITY;
    for (uint32_t i = 0; i < l->format.candidates; i++) {
        const unsigned char *from = bytes + LAYER_BYTES + (size_t)i * CANDIDATE_BYTES;
        uint32_t word = get_u32(from + 2);
        float score;
        memcpy(&score, &word, sizeof score);
        ids[i] = get_u16(from);
        sound = sound && isfinite(score) && score <= before && ids[i] < l->format.experts;
        before = score;
    }
    return sound;
}

static int load_group(struct loading *l, const unsigned char *bytes)
{
    uint16_t *ids = l->ids;
    const struct trace_format *f = &l->format;
    bool scored = f->candidates > 0;
    bool sound = get_u16(bytes) < f->layers;
    sound = (scored ? read_candidates(l, bytes, ids) : read_requests(l, bytes, ids)) && sound;
    if (!sound || !distinct(ids, scored ? f->candidates : f->top_k, l->seen)) {
        return err_set(ERR_MODEL, "trace %s: group %llu is not %u distinct experts of one layer "
                       "below %u%s; record it again", l->path,
                       (unsigned long long)l->trace->group_count,
                       scored ? f->candidates : f->top_k, f->layers,
                       scored ? ", best score first" : "");
    }
    trace_add(l->trace, get_u16(bytes), ids, 1);
    return 0;
}

static int load_groups(struct loading *l)
{
    size_t size_bytes = group_bytes(&l->format);
    unsigned char *bytes = malloc(size_bytes);
    int rc = bytes != NULL ? 0 : err_set(ERR_MEMORY, "trace %s: no memory to read it", l->path);
    while (rc == 0 && l->trace->group_count < l->trace->group_capacity) {
        if (fread(bytes, 1, size_bytes, l->file) != size_bytes) {
            rc = err_set(ERR_IO, "trace %s: the file ended or failed while it was read", l->path);
        } else {
            rc = load_group(l, bytes);
        }
    }
    if (l->format.candidates > 0) {
        l->trace->experts = l->format.experts;
    }
    free(bytes);
    return rc;
}

int trace_load(struct trace *trace, const char *path)
{
    uint64_t size_bytes = 0;
    struct loading *l = calloc(1, sizeof *l);
    *trace = (struct trace){0};
    if (l == NULL) {
        return err_set(ERR_MEMORY, "trace %s: no memory to read it", path);
    }
    l->path = path;
    l->trace = trace;
    int rc = open_regular(&l->file, &size_bytes, path);
    if (rc == 0) {
        rc = load_head(l, size_bytes);
        rc = rc == 0 ? load_groups(l) : rc;
        fclose(l->file);
    }
    if (rc < 0) {
        trace_fini(trace);
    }
    free(l);
    return rc;
}

void trace_write_head(FILE *file, const struct trace_format *f)
{
    bool scored = f->candidates > 0;
    unsigned char head[HEAD_BYTES + HEAD_MORE_BYTES] = {'K', '3', 'R', 'T', scored ? 2 : 1};
    head[5] = (unsigned char)f->top_k;
    put_u16(head + 6, f->layers);
    put_u16(head + 8, f->candidates);
    put_u32(head + 12, f->experts);
    fwrite(head, 1, scored ? sizeof head : HEAD_BYTES, file);
}

static void write_requests(FILE *file, const struct trace_format *f, uint32_t layer,
                           const uint16_t *ids)
{
    for (uint32_t i = 0; i < f->top_k; i++) {
        unsigned char bytes[REQUEST_BYTES];
        put_u16(bytes, layer);
        put_u16(bytes + 2, ids[i]);
        fwrite(bytes, 1, sizeof bytes, file);
    }
}

void trace_write_group(FILE *file, const struct trace_format *f, uint32_t layer,
                       const uint16_t *ids, const float *scores)
{
    unsigned char bytes[CANDIDATE_BYTES];
    if (f->candidates == 0) {
        write_requests(file, f, layer, ids);
        return;
    }
    put_u16(bytes, layer);
    fwrite(bytes, 1, LAYER_BYTES, file);
    for (uint32_t i = 0; i < f->candidates; i++) {
        uint32_t word;
        memcpy(&word, &scores[i], sizeof word);
        put_u16(bytes, ids[i]);
        put_u32(bytes + 2, word);
        fwrite(bytes, 1, sizeof bytes, file);
    }
}

int trace_save(const struct trace *trace, const char *path)
{
    struct trace_format format = {.layers = trace->layers, .top_k = trace->top_k};
    FILE *file = fopen(path, "wbe");
    if (file == NULL) {
        return err_set(ERR_OUTPUT, "trace %s: cannot create: %s", path, strerror(errno));
    }
    trace_write_head(file, &format);
    for (uint64_t group = 0; group < trace->group_count; group++) {
        write_requests(file, &format, trace->layer[group], trace_ids(trace, group));
    }
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        return err_set(ERR_OUTPUT, "trace %s: could not be written whole; is the disk full?",
                       path);
    }
    return 0;
}
