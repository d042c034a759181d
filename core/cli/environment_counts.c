/* SPDX-License-Identifier: Apache-2.0 */
/* /proc/diskstats: what the block devices really did. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cli/environment_priv.h"

#define FIELDS (sizeof(struct environment_counts) / sizeof(uint64_t))
#define COLUMNS 11 /* one of them, requests in flight now, is no counter */
#define DELIVERED_LEAST 0.98 /* of what was asked for */
#define DELIVERED_MOST 1.05
#define JUDGED_BYTES_LEAST (64 * MIB)
#define SECTOR_BYTES 512.0

/* The whole table; free() it. NULL when there is none. */
static char *read_table(int fd)
{
    size_t capacity = 16384;
    size_t used = 0;
    char *text = fd >= 0 ? malloc(capacity) : NULL;
    while (text != NULL) {
        ssize_t got = pread(fd, text + used, capacity - 1 - used, (off_t)used);
        if (got <= 0) {
            text[used] = '\0';
            break;
        }
        used += (size_t)got;
        if (used + 1 == capacity) {
            char *more = realloc(text, capacity *= 2);
            if (more == NULL) {
                free(text);
            }
            text = more;
        }
    }
    return text;
}

static bool parse_line(const char *line, uint32_t number[2], struct environment_counts *c)
{
    uint64_t value[COLUMNS];
    int at = 0;
    if (sscanf(line, "%u %u %*s %n", &number[0], &number[1], &at) < 2 || at == 0) {
        return false;
    }
    for (int i = 0; i < COLUMNS; i++) {
        char *end;
        value[i] = strtoull(line + at, &end, 10);
        if (end == line + at) {
            return false;
        }
        at = (int)(end - line);
    }
    *c = (struct environment_counts){value[0], value[1], value[2], value[3], value[4], value[5],
                                     value[6], value[7], value[9], value[10]};
    return true;
}

/* to += sign x from, field by field. */
static void add(struct environment_counts *to, const struct environment_counts *from,
                uint64_t sign)
{
    uint64_t a[FIELDS];
    uint64_t b[FIELDS];
    memcpy(a, to, sizeof a);
    memcpy(b, from, sizeof b);
    for (size_t i = 0; i < FIELDS; i++) {
        a[i] += sign * b[i];
    }
    memcpy(to, a, sizeof a);
}

static bool is(const uint32_t a[2], const uint32_t b[2])
{
    return a[0] == b[0] && a[1] == b[1];
}

/* True when a place before this one lies on the same device. */
static bool counted(const struct environment *env, uint32_t place)
{
    for (uint32_t i = 0; i < place; i++) {
        if (is(env->place[i].number, env->place[place].number)) {
            return true;
        }
    }
    return false;
}

static uint32_t others(const struct environment *env)
{
    uint32_t all = 0;
    for (uint32_t i = 0; i < env->place_count; i++) {
        all |= env->place[i].others;
    }
    return all;
}

static void take_line(const struct environment *env, const uint32_t number[2],
                      const struct environment_counts *c, struct environment_diskstats *out)
{
    for (uint32_t i = 0; i < env->device_count; i++) {
        if (is(env->device[i].number, number)) {
            out->known = true;
            out->device[i] = *c;
            if ((others(env) >> i & 1) != 0) {
                add(&out->files, c, 1);
            }
            if (environment_lowest(env, i)) {
                add(&out->drives, c, 1);
            }
        }
    }
    for (uint32_t i = 0; i < env->place_count; i++) {
        const struct environment_place *place = &env->place[i];
        if (place->top != ENVIRONMENT_NONE && is(place->number, number) && !counted(env, i)) {
            add(&out->files, c, 1);
        }
    }
}

void environment_diskstats(const struct environment *env, struct environment_diskstats *out)
{
    *out = (struct environment_diskstats){.known = false};
    char *text = read_table(env->diskstats_fd);
    char *rest = text;
    for (char *line; rest != NULL && (line = strsep(&rest, "\n")) != NULL;) {
        struct environment_counts c;
        uint32_t number[2];
        if (parse_line(line, number, &c)) {
            take_line(env, number, &c, out);
        }
    }
    free(text);
}

void environment_diskstats_since(const struct environment_diskstats *from,
                                 const struct environment_diskstats *to,
                                 struct environment_diskstats *out)
{
    struct environment_diskstats d = *to;
    d.known = from->known && to->known;
    add(&d.files, &from->files, UINT64_MAX);
    add(&d.drives, &from->drives, UINT64_MAX);
    for (uint32_t i = 0; i < ENVIRONMENT_DEVICES_MAX; i++) {
        add(&d.device[i], &from->device[i], UINT64_MAX);
    }
    *out = d;
}

bool environment_delivered(const struct environment_counts *files, uint64_t requested_bytes,
                           char reason[ENVIRONMENT_TEXT_BYTES])
{
    if (requested_bytes < JUDGED_BYTES_LEAST) {
        return true;
    }
    double share = (double)files->read_sectors * SECTOR_BYTES / (double)requested_bytes;
    if (share < DELIVERED_LEAST) {
        snprintf(reason, ENVIRONMENT_TEXT_BYTES, "the drives delivered only %.0f %% of what was "
                 "read: the rest came from a cache, a hole or compression", 100 * share);
    } else if (share > DELIVERED_MOST) {
        snprintf(reason, ENVIRONMENT_TEXT_BYTES, "the drives delivered %.0f %% of what was read: "
                 "somebody else reads from them, or read-ahead or RAID does; stop other users and "
                 "run again", 100 * share);
    }
    return share >= DELIVERED_LEAST && share <= DELIVERED_MOST;
}
