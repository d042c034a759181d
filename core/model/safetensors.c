/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/scan.h"
#include "core/model/model_priv.h"

#define PREFIX_BYTES 8  /* the length of the header, little endian */
#define HEAD_BYTES 64   /* enough to recognise what a wrong file is */
#define FILE_CAP_BYTES ((uint64_t)1 << 48) /* offsets of expert parts are kept in 48 bits */
#define FETCH_AGAIN "it is incomplete or damaged; fetch it again"

typedef unsigned long long ull; /* for messages */

/* Bytes of one element, 0 for a dtype the format does not know. */
static uint64_t element_bytes(const char *dtype)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } dtypes[] = {{"U8", 1},      {"BF16", 2},    {"F32", 4}, {"F16", 2}, {"I8", 1},
                  {"BOOL", 1},    {"I16", 2},     {"U16", 2}, {"I32", 4}, {"U32", 4},
                  {"F64", 8},     {"I64", 8},     {"U64", 8}, {"C64", 8}, {"F8_E4M3", 1},
                  {"F8_E5M2", 1}, {"F8_E8M0", 1}};
    for (size_t i = 0; i < countof(dtypes); i++) {
        if (strcmp(dtype, dtypes[i].name) == 0) {
            return dtypes[i].bytes;
        }
    }
    return 0;
}

static uint64_t load_u64(const unsigned char bytes[PREFIX_BYTES])
{
    uint64_t value = 0;
    for (int i = PREFIX_BYTES - 1; i >= 0; i--) {
        value = value << 8 | bytes[i];
    }
    return value;
}

static int grow_text(struct header *header, size_t size_bytes)
{
    if (size_bytes <= header->text_capacity_bytes) {
        return 0;
    }
    free(header->text); /* its content is of no use any more */
    header->text_capacity_bytes = size_bytes;
    header->text = malloc(size_bytes);
    if (header->text == NULL) {
        header->text_capacity_bytes = 0;
        return err_set(ERR_MEMORY, "%s: no memory for its header of %zu bytes", header->path,
                       size_bytes);
    }
    return 0;
}

/* Whether what should be a length is eight printable characters: a message under a file's name. */
static bool is_text(const unsigned char *head)
{
    for (size_t i = 0; i < PREFIX_BYTES; i++) {
        if (head[i] < ' ' || head[i] > '~') {
            return false;
        }
    }
    return true;
}

/* The length word, checked against the file before anything is allocated from it. */
static int read_length(struct header *header, uint64_t *length_bytes)
{
    unsigned char head[HEAD_BYTES] = {0};
    const size_t head_bytes = (size_t)min_u64(header->size_bytes, HEAD_BYTES);
    TRY(file_read_at(header->fd, header->path, 0, head, head_bytes));
    *length_bytes = load_u64(head);
    const bool has_room = header->size_bytes >= PREFIX_BYTES + 2;
    const bool fits = has_room && *length_bytes <= header->size_bytes - PREFIX_BYTES &&
                      *length_bytes <= HEADER_CAP_BYTES;
    if (fits && *length_bytes >= 2 && head[PREFIX_BYTES] == '{') {
        return 0;
    }
    TRY(foreign_check(header->path, (const char *)head, head_bytes, header->size_bytes));
    if (!has_room) {
        return err_set(ERR_MODEL, "%s: has only %llu bytes: " FETCH_AGAIN, header->path,
                       (ull)header->size_bytes);
    }
    if (!fits && is_text(head)) {
        return err_set(ERR_MODEL, "%s: begins with the text '%.8s' (%llu bytes): it is not a "
                       "safetensors file; fetch it again", header->path, (const char *)head,
                       (ull)header->size_bytes);
    }
    if (!fits) {
        return err_set(ERR_MODEL, "%s: claims a header of %llu bytes in a file of %llu: it is not "
                       "a safetensors file, or " FETCH_AGAIN, header->path, (ull)*length_bytes,
                       (ull)header->size_bytes);
    }
    return err_set(ERR_MODEL, "%s: its header does not begin with '{': it is not a safetensors "
                   "file, or " FETCH_AGAIN, header->path);
}

static int read_text(struct header *header)
{
    struct stat status;
    uint64_t length_bytes = 0;
    if (fstat(header->fd, &status) != 0) {
        return err_set(ERR_IO, "%s: cannot be examined: %s; check the drive (dmesg, smartctl)",
                       header->path, strerror(errno));
    }
    if (!S_ISREG(status.st_mode)) {
        return err_set(ERR_MODEL, "%s: is not a regular file: put the shard itself there",
                       header->path);
    }
    header->size_bytes = (uint64_t)status.st_size;
    if (header->size_bytes >= FILE_CAP_BYTES) {
        return err_set(ERR_MODEL, "%s: has %llu bytes, more than a shard may have", header->path,
                       (ull)header->size_bytes);
    }
    TRY(read_length(header, &length_bytes));
    TRY(grow_text(header, (size_t)length_bytes));
    header->text_bytes = (size_t)length_bytes;
    header->base_bytes = PREFIX_BYTES + length_bytes;
    return file_read_at(header->fd, header->path, PREFIX_BYTES, header->text,
                        header->text_bytes);
}

int header_open(struct header *header, const char *path)
{
    assert(header->fd < 0);
    header->path = path;
    header->span_count = 0;
    header->fd = file_open(path);
    if (header->fd < 0) {
        return file_refused(path, "open this shard");
    }
    const int rc = read_text(header);
    if (rc < 0) {
        header_close(header);
    }
    return rc;
}

static bool scan_shape(struct scan *scan, struct header_tensor *tensor)
{
    bool first = true;
    tensor->rank = 0;
    if (!scan_expect(scan, '[')) {
        return false;
    }
    while (scan_next(scan, ']', &first)) {
        if (tensor->rank == HEADER_RANK_MAX) {
            scan->fault = "a shape has too many dimensions";
            return false;
        }
        if (!scan_u64(scan, &tensor->shape[tensor->rank++])) {
            return false;
        }
    }
    return scan->fault == NULL;
}

static bool scan_offsets(struct scan *scan, struct header_tensor *tensor)
{
    bool first = true;
    return scan_expect(scan, '[') && scan_next(scan, ']', &first) &&
           scan_u64(scan, &tensor->begin_bytes) && scan_expect(scan, ',') &&
           scan_u64(scan, &tensor->end_bytes) && scan_expect(scan, ']');
}

/* The object of one entry: three members in any order, others skipped. */
static bool scan_entry(struct scan *scan, struct header_tensor *tensor)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL = 7 };
    char key[64];
    unsigned seen = 0;
    bool first = true;
    if (!scan_expect(scan, '{')) {
        return false;
    }
    while (scan_next(scan, '}', &first) && scan_key(scan, key, sizeof key)) {
        const unsigned bit = strcmp(key, "dtype") == 0          ? DTYPE
                             : strcmp(key, "shape") == 0        ? SHAPE
                             : strcmp(key, "data_offsets") == 0 ? OFFSETS
                                                                : 0;
        if ((seen & bit) != 0) {
            scan->fault = "dtype, shape or data_offsets occurs twice";
            return false;
        }
        seen |= bit;
        const bool good = bit == DTYPE   ? scan_string(scan, tensor->dtype, sizeof tensor->dtype)
                          : bit == SHAPE ? scan_shape(scan, tensor)
                          : bit == OFFSETS ? scan_offsets(scan, tensor)
                                           : scan_skip(scan);
        if (!good) {
            return false;
        }
    }
    if (scan->fault == NULL && seen != ALL) {
        scan->fault = "dtype, shape or data_offsets is missing";
    }
    return scan->fault == NULL;
}

/* Shape times dtype must be the length of the range. The product is never allowed to wrap. */
static int check_size(const struct header *header, const struct header_tensor *tensor)
{
    uint64_t bytes = element_bytes(tensor->dtype);
    bool wraps = false;
    if (tensor->begin_bytes > tensor->end_bytes) {
        return err_set(ERR_MODEL, "%s: tensor %s: its range %llu..%llu runs backwards in a file "
                       "with %llu bytes of data", header->path, tensor->name,
                       (ull)tensor->begin_bytes, (ull)tensor->end_bytes,
                       (ull)(header->size_bytes - header->base_bytes));
    }
    if (bytes == 0) {
        return 0; /* an unknown dtype: whoever binds the tensor refuses it */
    }
    for (uint32_t i = 0; i < tensor->rank; i++) {
        wraps = __builtin_mul_overflow(bytes, tensor->shape[i], &bytes) || wraps;
    }
    const uint64_t range_bytes = tensor->end_bytes - tensor->begin_bytes;
    if (wraps) {
        return err_set(ERR_MODEL, "%s: tensor %s: its shape needs more than 2^64 bytes but its "
                       "range has %llu", header->path, tensor->name, (ull)range_bytes);
    }
    if (bytes != range_bytes) {
        return err_set(ERR_MODEL, "%s: tensor %s: its shape needs %llu bytes but its range has "
                       "%llu", header->path, tensor->name, (ull)bytes, (ull)range_bytes);
    }
    return 0;
}

static int add_span(struct header *header, const struct header_span *span)
{
    if (header->span_count == header->span_capacity) {
        const size_t capacity = header->span_capacity == 0 ? 1024 : header->span_capacity * 2;
        struct header_span *spans = realloc(header->spans, capacity * sizeof *spans);
        if (spans == NULL) {
            return err_set(ERR_MEMORY, "%s: no memory for its tensor list", header->path);
        }
        header->spans = spans;
        header->span_capacity = capacity;
    }
    header->spans[header->span_count++] = *span;
    return 0;
}

/* One key of the header and its value. */
static int visit_entry(struct header *header, struct scan *scan, header_visit *visit,
                       void *context)
{
    struct header_tensor tensor; /* large: scan_entry() sets what is used of it */
    struct header_span span = {.bound = false};
    tensor.name[0] = '\0';
    scan_peek(scan);
    span.name = scan->at + 1;
    bool good = scan_key(scan, tensor.name, sizeof tensor.name);
    const bool metadata = good && strcmp(tensor.name, "__metadata__") == 0;
    good = good && (metadata ? scan_skip(scan) : scan_entry(scan, &tensor));
    if (!good) {
        return err_set(ERR_MODEL, "%s: header byte %zu: %s%s%s", header->path, scan_offset(scan),
                       scan->fault, tensor.name[0] == '\0' ? "" : " in the entry of ",
                       tensor.name);
    }
    if (metadata) {
        return 0;
    }
    TRY(check_size(header, &tensor));
    TRY(visit(context, header, &tensor, &span.bound));
    span.begin_bytes = tensor.begin_bytes;
    span.end_bytes = tensor.end_bytes;
    return add_span(header, &span);
}

static int name_length(const struct header_span *span)
{
    return (int)strcspn(span->name, "\"");
}

static int compare_begin(const void *a, const void *b)
{
    const struct header_span *left = a;
    const struct header_span *right = b;
    if (left->begin_bytes != right->begin_bytes) {
        return left->begin_bytes < right->begin_bytes ? -1 : 1;
    }
    return (left->end_bytes > right->end_bytes) - (left->end_bytes < right->end_bytes);
}

/* Bound names first (binding finds those that occur twice), the others by name. */
static int compare_name(const void *a, const void *b)
{
    const struct header_span *left = a;
    const struct header_span *right = b;
    if (left->bound || right->bound) {
        return (int)right->bound - (int)left->bound;
    }
    const int length = name_length(left);
    const int order = strncmp(left->name, right->name, (size_t)length);
    return order != 0 ? order : length - name_length(right);
}

static int check_names(const struct header *header)
{
    struct header_span *spans = header->spans;
    size_t foreign = 0;
    for (size_t i = 0; i < header->span_count; i++) {
        foreign += !spans[i].bound;
    }
    if (foreign < 2) {
        return 0;
    }
    qsort(spans, header->span_count, sizeof *spans, compare_name);
    for (size_t i = header->span_count - foreign + 1; i < header->span_count; i++) {
        if (compare_name(&spans[i - 1], &spans[i]) == 0) {
            return err_set(ERR_MODEL, "%s: tensor %.*s is described twice", header->path,
                           name_length(&spans[i]), spans[i].name);
        }
    }
    return 0;
}

static void sort_spans(struct header *header)
{
    bool sorted = true;
    for (size_t i = 1; i < header->span_count && sorted; i++) {
        sorted = compare_begin(&header->spans[i - 1], &header->spans[i]) <= 0;
    }
    if (!sorted) { /* the usual writer's order needs no work */
        qsort(header->spans, header->span_count, sizeof *header->spans, compare_begin);
    }
}

/* Ranges must not overlap and the last one must end where the file does. */
static int check_ranges(struct header *header)
{
    const uint64_t data_bytes = header->size_bytes - header->base_bytes;
    const struct header_span *last = NULL; /* the one that ends last so far */
    uint64_t end_bytes = 0;
    sort_spans(header);
    for (size_t i = 0; i < header->span_count; i++) {
        const struct header_span *span = &header->spans[i];
        if (span->end_bytes > data_bytes) {
            return err_set(ERR_MODEL, "%s: tensor %.*s ends at data byte %llu but the file has "
                           "%llu: " FETCH_AGAIN, header->path, name_length(span), span->name,
                           (ull)span->end_bytes, (ull)data_bytes);
        }
        if (last != NULL && span->begin_bytes < end_bytes &&
            span->begin_bytes < span->end_bytes) {
            return err_set(ERR_MODEL, "%s: tensors %.*s and %.*s overlap", header->path,
                           name_length(last), last->name, name_length(span), span->name);
        }
        if (span->end_bytes > end_bytes) {
            end_bytes = span->end_bytes;
            last = span;
        }
    }
    if (end_bytes != data_bytes) {
        return err_set(ERR_MODEL, "%s: has %llu bytes of data but its tensors end at %llu: "
                       FETCH_AGAIN, header->path, (ull)data_bytes, (ull)end_bytes);
    }
    return 0;
}

int header_visit_all(struct header *header, header_visit *visit, void *context)
{
    struct scan scan = scan_start(header->text, header->text_bytes);
    bool first = true;
    scan_expect(&scan, '{');
    while (scan_next(&scan, '}', &first)) {
        TRY(visit_entry(header, &scan, visit, context));
    }
    if (!scan_finish(&scan)) {
        return err_set(ERR_MODEL, "%s: header byte %zu: %s", header->path, scan_offset(&scan),
                       scan.fault);
    }
    TRY(check_names(header));
    return check_ranges(header);
}

/* Bytes of bound tensors within the hole [begin, end) of the file; *at is the first span that
 * may reach into it and moves on with the holes. */
static uint64_t bound_within(const struct header *header, uint64_t begin_bytes,
                             uint64_t end_bytes, size_t *at)
{
    uint64_t sum_bytes = 0;
    for (size_t i = *at; i < header->span_count; i++) {
        const struct header_span *span = &header->spans[i];
        const uint64_t low = max_u64(begin_bytes, header->base_bytes + span->begin_bytes);
        const uint64_t high = min_u64(end_bytes, header->base_bytes + span->end_bytes);
        if (header->base_bytes + span->begin_bytes >= end_bytes) {
            break;
        }
        sum_bytes += span->bound && high > low ? high - low : 0;
        *at = i; /* the last one met may reach into the next hole too */
    }
    return sum_bytes;
}

int header_check_holes(const struct header *header)
{
    uint64_t missing_bytes = 0;
    size_t at = 0;
    off_t begin = lseek(header->fd, (off_t)header->base_bytes, SEEK_HOLE);
    /* A file system without holes answers with the end of the file or an error: both are fine. */
    while (begin >= 0 && (uint64_t)begin < header->size_bytes) {
        off_t end = lseek(header->fd, begin, SEEK_DATA);
        if (end < 0) {
            end = (off_t)header->size_bytes;
        }
        missing_bytes += bound_within(header, (uint64_t)begin, (uint64_t)end, &at);
        begin = lseek(header->fd, end, SEEK_HOLE);
    }
    if (missing_bytes > 0) {
        return err_set(ERR_MODEL, "%s: %llu bytes of its tensors were never written: it looks "
                       "like a preallocated or interrupted download; fetch it again",
                       header->path, (ull)missing_bytes);
    }
    return 0;
}

void header_close(struct header *header)
{
    if (header->fd >= 0) {
        close(header->fd);
    }
    header->fd = -1;
}

void header_free(struct header *header)
{
    header_close(header);
    free(header->text);
    free(header->spans);
    *header = (struct header){.fd = -1};
}
