/* SPDX-License-Identifier: Apache-2.0 */
/* Limits that a control group of this process puts on reads from a device. */
#include <stdio.h>
#include <string.h>

#include "core/base/cgroup.h"
#include "core/base/proc.h"
#include "core/cli/environment_priv.h"

#define TEXT_BYTES 8192

/* What stands behind "major:minor " in a table, "" when nothing does. */
static void row_of(const char *text, const struct environment_device *d, char *row,
                   size_t capacity)
{
    char key[32];
    int length = snprintf(key, sizeof key, "%u:%u ", d->number[0], d->number[1]);
    row[0] = '\0';
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, (size_t)length) == 0) {
            line += length;
            snprintf(row, capacity, "%.*s", (int)strcspn(line, "\n"), line);
            return;
        }
    }
}

/* "rbps=max wbps=max riops=500": true when a limit of reads is set. */
static bool limits_reads(const char *row)
{
    const char *bytes = strstr(row, "rbps=");
    const char *ios = strstr(row, "riops=");
    return (bytes != NULL && strncmp(bytes, "rbps=max", 8) != 0) ||
           (ios != NULL && strncmp(ios, "riops=max", 9) != 0);
}

static void append(struct environment_device *d, const char *name, const char *value)
{
    size_t used = strlen(d->io_max);
    snprintf(d->io_max + used, sizeof d->io_max - used, "%s%s%s", used > 0 ? " " : "", name,
             value);
}

/* Every group on the way that has a limit adds its own: the least of them is in force. */
static void look_v2(const char *folder, struct environment_device *d)
{
    char text[TEXT_BYTES];
    char row[ENVIRONMENT_NAME_BYTES * 2];
    proc_text(text, sizeof text, "%s/io.max", folder);
    row_of(text, d, row, sizeof row);
    if (limits_reads(row)) {
        append(d, "", row);
    }
}

static void look_v1(const char *folder, struct environment_device *d)
{
    static const struct {
        const char *file, *name;
    } limits[] = {{"blkio.throttle.read_bps_device", "rbps="},
                  {"blkio.throttle.read_iops_device", "riops="}};
    for (size_t i = 0; i < countof(limits); i++) {
        char text[TEXT_BYTES];
        char row[32];
        proc_text(text, sizeof text, "%s/%s", folder, limits[i].file);
        row_of(text, d, row, sizeof row);
        if (row[0] != '\0') {
            append(d, limits[i].name, row);
        }
    }
}

static void walk(struct environment *env, const char *controller,
                 void (*look)(const char *folder, struct environment_device *d))
{
    struct cgroup_path at;
    for (bool more = cgroup_find(env->root, controller, &at); more; more = cgroup_up(&at)) {
        for (uint32_t i = 0; i < env->device_count; i++) {
            look(at.folder, &env->device[i]);
        }
    }
}

void environment_look_limits(struct environment *env)
{
    walk(env, "", look_v2);
    walk(env, "blkio", look_v1);
}
