/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"

#define TRACE_VERSION 1
#define HEADER_BYTES 8
#define REQUEST_BYTES 4
#define TOP_K_MAX 255

int trace_init(struct trace *trace, uint32_t layers, uint32_t top_k, uint64_t group_capacity)
{
    *trace = (struct trace){.layers = layers, .top_k = top_k, .group_capacity = group_capacity};
    if (layers == 0 || layers > UINT16_MAX || top_k == 0 || top_k > TOP_K_MAX) {
        return err_set(ERR_USAGE, "a trace cannot hold %u layers of %u experts a token; it takes "
                       "1 to 65535 and 1 to 255", layers, top_k);
    }
    uint64_t most = (TRACE_FILE_BYTES_MAX - HEADER_BYTES) / (REQUEST_BYTES * top_k);
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

static void put_u16(unsigned char *to, uint32_t value)
{
    to[0] = (unsigned char)value;
    to[1] = (unsigned char)(value >> 8);
}

/* Only regular files: a pipe could block and a device never end. */
static int open_regular(FILE **out, uint64_t *size_bytes, const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return err_set(ERR_IO, "trace %s: cannot open: %s", path, strerror(errno));
    }
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        return err_set(ERR_IO, "trace %s: not a regular file; give the file itself", path);
    }
    *out = fdopen(fd, "rb");
    if (*out == NULL) {
        close(fd);
        return err_set(ERR_MEMORY, "trace %s: no memory to read it", path);
    }
    *size_bytes = (uint64_t)status.st_size;
    return 0;
}

/* Checks the header against the size and takes the memory. */
static int load_header(struct trace *trace, FILE *file, uint64_t size_bytes, const char *path)
{
    unsigned char header[HEADER_BYTES];
    if (fread(header, 1, sizeof header, file) != sizeof header || memcmp(header, "K3RT", 4) != 0) {
        return err_set(ERR_RUN, "trace %s: not a trace: it does not begin with K3RT", path);
    }
    if (header[4] != TRACE_VERSION) {
        return err_set(ERR_RUN, "trace %s: version %u is not known; this program reads version %u",
                       path, header[4], TRACE_VERSION);
    }
    uint32_t top_k = header[5], layers = get_u16(header + 6);
    if (top_k == 0 || layers == 0) {
        return err_set(ERR_RUN, "trace %s: damaged header: top-k %u, %u layers; record it again",
                       path, top_k, layers);
    }
    if (size_bytes < HEADER_BYTES || size_bytes > TRACE_FILE_BYTES_MAX) {
        return err_set(ERR_RUN, "trace %s: longer than the %llu bytes this program reads; cut it",
                       path, (unsigned long long)TRACE_FILE_BYTES_MAX);
    }
    uint64_t body_bytes = size_bytes - HEADER_BYTES, group_bytes = (uint64_t)top_k * REQUEST_BYTES;
    if (body_bytes % group_bytes != 0) {
        return err_set(ERR_RUN, "trace %s: ends inside a group of %u requests; it was cut short",
                       path, top_k);
    }
    return trace_init(trace, layers, top_k, body_bytes / group_bytes);
}

/* seen: a bit per expert, all clear before and after. */
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

static int load_group(struct trace *trace, const unsigned char *bytes, uint64_t *seen,
                      const char *path)
{
    uint16_t ids[TOP_K_MAX];
    uint32_t layer = get_u16(bytes);
    bool sound = layer < trace->layers;
    for (uint32_t i = 0; i < trace->top_k; i++) {
        sound = sound && get_u16(bytes + i * REQUEST_BYTES) == layer;
        ids[i] = get_u16(bytes + i * REQUEST_BYTES + 2);
    }
    if (!sound || !distinct(ids, trace->top_k, seen)) {
        return err_set(ERR_RUN, "trace %s: group %llu is not %u distinct experts of one layer "
                       "below %u; record it again", path, (unsigned long long)trace->group_count,
                       trace->top_k, trace->layers);
    }
    trace_add(trace, layer, ids, 1);
    return 0;
}

static int load_groups(struct trace *trace, FILE *file, const char *path)
{
    uint64_t seen[(UINT16_MAX + 1) / 64] = {0};
    unsigned char bytes[TOP_K_MAX * REQUEST_BYTES];
    size_t group_bytes = (size_t)trace->top_k * REQUEST_BYTES;
    while (trace->group_count < trace->group_capacity) {
        if (fread(bytes, 1, group_bytes, file) != group_bytes) {
            return err_set(ERR_IO, "trace %s: the file ended or failed while it was read", path);
        }
        TRY(load_group(trace, bytes, seen, path));
    }
    return 0;
}

int trace_load(struct trace *trace, const char *path)
{
    FILE *file;
    uint64_t size_bytes = 0;
    *trace = (struct trace){0};
    TRY(open_regular(&file, &size_bytes, path));
    int rc = load_header(trace, file, size_bytes, path);
    if (rc == 0) {
        rc = load_groups(trace, file, path);
    }
    fclose(file);
    if (rc < 0) {
        trace_fini(trace);
    }
    return rc;
}

static void save_groups(const struct trace *trace, FILE *file)
{
    unsigned char bytes[TOP_K_MAX * REQUEST_BYTES];
    for (uint64_t group = 0; group < trace->group_count; group++) {
        const uint16_t *ids = trace_ids(trace, group);
        for (uint32_t i = 0; i < trace->top_k; i++) {
            put_u16(bytes + i * REQUEST_BYTES, trace->layer[group]);
            put_u16(bytes + i * REQUEST_BYTES + 2, ids[i]);
        }
        fwrite(bytes, REQUEST_BYTES, trace->top_k, file);
    }
}

int trace_save(const struct trace *trace, const char *path)
{
    unsigned char header[HEADER_BYTES] = {'K', '3', 'R', 'T', TRACE_VERSION};
    FILE *file = fopen(path, "wbe");
    if (file == NULL) {
        return err_set(ERR_OUTPUT, "trace %s: cannot create: %s", path, strerror(errno));
    }
    header[5] = (unsigned char)trace->top_k;
    put_u16(header + 6, trace->layers);
    fwrite(header, 1, sizeof header, file);
    save_groups(trace, file);
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        return err_set(ERR_OUTPUT, "trace %s: could not be written whole; is the disk full?",
                       path);
    }
    return 0;
}
