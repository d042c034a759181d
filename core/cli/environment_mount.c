/* SPDX-License-Identifier: Apache-2.0 */
/* The line of /proc/self/mountinfo that a file belongs to. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "core/base/proc.h"
#include "core/cli/environment_priv.h"

#define LINE_FIELDS 6 /* id, parent, device, root, mount point, options */

struct mount {
    uint64_t id;
    uint32_t number[2];
    const char *options, *file_system, *source, *super_options;
};

/* Cuts line in place. False when it is no line of such a table. */
static bool parse_mount(char *line, struct mount *m)
{
    char *field[LINE_FIELDS];
    char *rest = line;
    for (int i = 0; i < LINE_FIELDS; i++) {
        field[i] = strsep(&rest, " ");
        if (rest == NULL) {
            return false;
        }
    }
    char *tail = strncmp(rest, "- ", 2) == 0 ? rest : strstr(rest, " - ");
    if (tail == NULL || sscanf(field[2], "%u:%u", &m->number[0], &m->number[1]) != 2) {
        return false;
    }
    tail += tail == rest ? 2 : 3;
    m->id = strtoull(field[0], NULL, 10);
    m->options = field[5];
    m->file_system = strsep(&tail, " ");
    m->source = tail != NULL ? strsep(&tail, " ") : "";
    m->super_options = tail != NULL ? tail : "";
    return true;
}

/* Whether a list with commas between them holds a word of so many bytes. */
static bool lists(const char *options, const char *word, size_t size)
{
    for (const char *at = options; *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
        if (strcspn(at, ",") == size && memcmp(at, word, size) == 0) {
            return true;
        }
    }
    return false;
}

/* Those of the mount, then those of the file system that it does not name again. */
static void join_options(char *to, size_t capacity, const char *mount, const char *super)
{
    size_t used = min_u64((uint64_t)snprintf(to, capacity, "%s", mount), capacity - 1);
    for (const char *at = super; *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
        size_t size = strcspn(at, ",");
        if (size > 0 && !lists(mount, at, size) && used + size + 2 <= capacity) {
            used += (size_t)snprintf(to + used, capacity - used, "%s%.*s", used > 0 ? "," : "",
                                     (int)size, at);
        }
    }
}

static void take_mount(const struct mount *m, struct environment_place *place)
{
    snprintf(place->file_system, sizeof place->file_system, "%.63s", m->file_system);
    join_options(place->options, sizeof place->options, m->options, m->super_options);
    snprintf(place->source, sizeof place->source, "%s", m->source);
    proc_printable(place->file_system);
    proc_printable(place->options);
    proc_printable(place->source);
}

/* The kernel's number of the mount, 0 where it does not tell. */
static uint64_t mount_id(int fd)
{
#ifdef STATX_MNT_ID
    struct statx status;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &status) == 0 &&
        (status.stx_mask & STATX_MNT_ID) != 0) {
        return status.stx_mnt_id;
    }
#else
    (void)fd;
#endif
    return 0;
}

/* One device may be mounted in several places, and a file's device need not be its mount's: the
 * mount's own number decides, then the device. */
void environment_look_mount(struct environment *env, int fd, struct environment_place *place)
{
    char path[PROC_PATH_BYTES];
    char *line = NULL;
    size_t capacity = 0;
    struct mount m;
    uint64_t id = mount_id(fd);
    bool found = false;
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", env->root);
    FILE *table = fopen(path, "re");
    while (table != NULL && getline(&line, &capacity, table) > 0) {
        line[strcspn(line, "\n")] = '\0';
        if (!parse_mount(line, &m)) {
            continue;
        }
        bool same = m.number[0] == major(place->device) && m.number[1] == minor(place->device);
        if (id != 0 && m.id == id) {
            take_mount(&m, place);
            break;
        }
        if (same && !found) {
            take_mount(&m, place);
            found = true;
        }
    }
    free(line);
    if (table != NULL) {
        fclose(table);
    }
}

void environment_option(const char *options, const char *name, char *value, size_t capacity)
{
    size_t length = strlen(name);
    value[0] = '\0';
    for (const char *at = options; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            at += length + 1;
            snprintf(value, capacity, "%.*s", (int)strcspn(at, ","), at);
            return;
        }
    }
}
