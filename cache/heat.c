/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/heat.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/little.h"

#define VERSION 1
#define HEADER_BYTES 64
#define CHECKSUM_AT 32
#define NAME_AT 40
#define PIECE_BYTES 4096U

/* A checksum that has seen nothing. */
#define FNV_START 0xcbf29ce484222325U
#define FNV_PRIME 0x100000001b3U

static uint64_t checksum_more(uint64_t sum, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sum = (sum ^ bytes[i]) * FNV_PRIME;
    }
    return sum;
}

/* One number of a field, whatever its type, as an integer of its bits. */
static uint64_t unit_get(const struct policy_field *field, uint64_t index)
{
    const unsigned char *at = (const unsigned char *)field->data + index * field->unit_bytes;
    uint32_t four;
    uint64_t eight;
    if (field->unit_bytes == sizeof four) {
        memcpy(&four, at, sizeof four);
        return four;
    }
    if (field->unit_bytes == sizeof eight) {
        memcpy(&eight, at, sizeof eight);
        return eight;
    }
    return *at;
}

static void unit_set(const struct policy_field *field, uint64_t index, uint64_t value)
{
    unsigned char *at = (unsigned char *)field->data + index * field->unit_bytes;
    uint32_t four = (uint32_t)value;
    if (field->unit_bytes == sizeof four) {
        memcpy(at, &four, sizeof four);
    } else if (field->unit_bytes == sizeof value) {
        memcpy(at, &value, sizeof value);
    } else {
        *at = (unsigned char)value;
    }
}

int heat_check_policy(const struct policy_ops *ops)
{
    char names[128] = "";
    size_t used = 0;
    if (ops->learned != NULL) {
        return 0;
    }
    for (uint32_t i = 0; policy_table[i] != NULL; i++) {
        if (policy_table[i]->learned != NULL && used < sizeof names) {
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     used > 0 ? ", " : "", policy_table[i]->name);
        }
    }
    return err_set(ERR_USAGE, "the cache policy '%s' learns nothing that --heat could keep; use "
                   "--cache-policy with one of %s", ops->name, names);
}

static uint64_t body_bytes(const struct policy_field *field, uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        assert(field[i].unit_bytes == 1 || field[i].unit_bytes == 4 || field[i].unit_bytes == 8);
        bytes += (uint64_t)field[i].count * field[i].unit_bytes;
    }
    return bytes;
}

/* All but the checksum. */
static void make_header(unsigned char header[HEADER_BYTES], const struct policy_ops *ops,
                        const struct policy_shape *shape, uint64_t body)
{
    assert(strlen(ops->name) < HEADER_BYTES - NAME_AT);
    memset(header, 0, HEADER_BYTES);
    little_put(header, little_get((const unsigned char *)"K3RH", 4), 4);
    little_put(header + 4, VERSION, 2);
    little_put(header + 8, shape->layers, 4);
    little_put(header + 12, shape->experts, 4);
    little_put(header + 16, shape->per_token, 4);
    little_put(header + 24, body, 8);
    memcpy(header + NAME_AT, ops->name, strlen(ops->name));
}

static uint64_t header_checksum(const unsigned char header[HEADER_BYTES])
{
    uint64_t sum = checksum_more(FNV_START, header, CHECKSUM_AT);
    return checksum_more(sum, header + NAME_AT, HEADER_BYTES - NAME_AT);
}

/* The checksum after the body; written as well unless file is NULL. */
static uint64_t write_body(const struct policy_field *field, uint32_t count, uint64_t sum,
                           FILE *file)
{
    for (uint32_t f = 0; f < count; f++) {
        uint32_t at_once = PIECE_BYTES / field[f].unit_bytes;
        for (uint32_t first = 0; first < field[f].count; first += at_once) {
            unsigned char piece[PIECE_BYTES];
            uint32_t units = (uint32_t)min_u64(at_once, field[f].count - first);
            size_t bytes = (size_t)units * field[f].unit_bytes;
            for (uint32_t i = 0; i < units; i++) {
                little_put(piece + (size_t)i * field[f].unit_bytes, unit_get(&field[f], first + i),
                           field[f].unit_bytes);
            }
            sum = checksum_more(sum, piece, bytes);
            if (file != NULL) {
                fwrite(piece, 1, bytes, file);
            }
        }
    }
    return sum;
}

void heat_write(FILE *file, const struct policy_ops *ops, const struct policy_shape *shape,
                struct policy *policy)
{
    unsigned char header[HEADER_BYTES];
    struct policy_field field[POLICY_FIELDS_MAX];
    uint32_t count = ops->learned(policy, field);
    assert(count <= POLICY_FIELDS_MAX);
    make_header(header, ops, shape, body_bytes(field, count));
    uint64_t sum = write_body(field, count, header_checksum(header), NULL);
    little_put(header + CHECKSUM_AT, sum, 8);
    fwrite(header, 1, sizeof header, file);
    write_body(field, count, sum, file);
}

static int damaged(const char *path, const char *what)
{
    return err_set(ERR_MODEL, "heat file %s: %s; remove it and a run makes it anew", path, what);
}

static int check_header(const unsigned char header[HEADER_BYTES], const char *path,
                        const struct policy_ops *ops, const struct policy_shape *shape,
                        uint64_t body)
{
    unsigned char expected[HEADER_BYTES];
    char name[HEADER_BYTES - NAME_AT + 1] = "";
    make_header(expected, ops, shape, body);
    if (memcmp(header, expected, 4) != 0) {
        return damaged(path, "not a heat file: it does not begin with K3RH");
    }
    if (little_get(header + 4, 2) != VERSION) {
        return err_set(ERR_MODEL, "heat file %s: version %u is not known; this program reads "
                       "version %u", path, (unsigned)little_get(header + 4, 2), VERSION);
    }
    memcpy(name, header + NAME_AT, sizeof name - 1);
    if (memcmp(name, expected + NAME_AT, sizeof name - 1) != 0) {
        return err_set(ERR_USAGE, "heat file %s: of the cache policy '%s', not '%s'; give "
                       "--cache-policy %s or another file", path, name, ops->name, name);
    }
    if (memcmp(header + 8, expected + 8, 16) != 0) {
        return err_set(ERR_USAGE, "heat file %s: of a model of %u layers of %u experts, %u a "
                       "token; this one has %u of %u, %u; give another file", path,
                       (unsigned)little_get(header + 8, 4), (unsigned)little_get(header + 12, 4),
                       (unsigned)little_get(header + 16, 4), shape->layers, shape->experts,
                       shape->per_token);
    }
    return memcmp(header, expected, CHECKSUM_AT) == 0 ? 0 : damaged(path, "its header is damaged");
}

/* Returns false when the file ends or fails. */
static bool read_body(FILE *file, const struct policy_field *field, uint32_t count, uint64_t *sum)
{
    for (uint32_t f = 0; f < count; f++) {
        uint32_t at_once = PIECE_BYTES / field[f].unit_bytes;
        for (uint32_t first = 0; first < field[f].count; first += at_once) {
            unsigned char piece[PIECE_BYTES];
            uint32_t units = (uint32_t)min_u64(at_once, field[f].count - first);
            if (fread(piece, field[f].unit_bytes, units, file) != units) {
                return false;
            }
            *sum = checksum_more(*sum, piece, (size_t)units * field[f].unit_bytes);
            for (uint32_t i = 0; i < units; i++) {
                unit_set(&field[f], first + i,
                         little_get(piece + (size_t)i * field[f].unit_bytes, field[f].unit_bytes));
            }
        }
    }
    return true;
}

static int heat_read(FILE *file, const char *path, const struct policy_ops *ops,
              const struct policy_shape *shape, struct policy *policy)
{
    unsigned char header[HEADER_BYTES];
    struct policy_field field[POLICY_FIELDS_MAX];
    uint32_t count = ops->learned(policy, field);
    size_t got = fread(header, 1, sizeof header, file);
    if (got != sizeof header) {
        return ferror(file) != 0 ? err_set(ERR_IO, "heat file %s: cannot be read", path)
                                 : damaged(path, "too short to be one");
    }
    TRY(check_header(header, path, ops, shape, body_bytes(field, count)));
    uint64_t sum = header_checksum(header);
    if (!read_body(file, field, count, &sum)) {
        return ferror(file) != 0 ? err_set(ERR_IO, "heat file %s: cannot be read", path)
                                 : damaged(path, "it was cut short");
    }
    if (fgetc(file) != EOF) {
        return damaged(path, "it is longer than its header says");
    }
    if (sum != little_get(header + CHECKSUM_AT, 8) || !ops->sound(policy)) {
        return damaged(path, "its checksum or contents are wrong: it is damaged");
    }
    return 0;
}

int heat_load(const char *path, const struct policy_ops *ops, const struct policy_shape *shape,
              struct policy *policy)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe could block */
    if (fd < 0) {
        return errno == ENOENT ? 0 : err_set(ERR_IO, "heat file %s: cannot open: %s", path,
                                             strerror(errno));
    }
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        return err_set(ERR_USAGE, "heat file %s: not a regular file; give the file itself", path);
    }
    FILE *file = fdopen(fd, "rb");
    if (file == NULL) {
        close(fd);
        return err_set(ERR_MEMORY, "heat file %s: no memory to read it", path);
    }
    int rc = heat_read(file, path, ops, shape, policy);
    fclose(file);
    return rc < 0 ? rc : 1;
}
