/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel, processor, memory, and the limits that rings and buffers meet. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include "core/base/memory.h"
#include "core/base/proc.h"
#include "core/cli/environment_priv.h"

#define TEXT_BYTES 16384

static void look_kernel(const char *root, struct environment_system *s)
{
    struct utsname name;
    if (!proc_line(s->kernel, sizeof s->kernel, "%s/proc/sys/kernel/osrelease", root) &&
        uname(&name) == 0) {
        snprintf(s->kernel, sizeof s->kernel, "%.63s", name.release);
    }
}

/* What stands behind the colon of a line of /proc/cpuinfo; NULL when there is no such line. */
static char *value_of(char *text, const char *name)
{
    char *line = strstr(text, name);
    char *value = line != NULL ? strchr(line, ':') : NULL;
    if (value == NULL) {
        return NULL;
    }
    value += 1 + (value[1] == ' ');
    return value;
}

static void look_features(char *flags, struct environment_system *s)
{
    static const char *const wanted[] = {"avx2", "fma", "avx512f", "avx512bw", "avx512vl",
                                         "avx512_vbmi"};
    for (char *word; (word = strsep(&flags, " ")) != NULL;) {
        for (size_t i = 0; i < countof(wanted); i++) {
            size_t used = strlen(s->features);
            if (strcmp(word, wanted[i]) == 0) {
                snprintf(s->features + used, sizeof s->features - used, "%s%s",
                         used > 0 ? " " : "", word);
            }
        }
    }
}

/* The first processor stands for all. */
static void look_cpu(const char *root, struct environment_system *s)
{
    char text[TEXT_BYTES];
    proc_text(text, sizeof text, "%s/proc/cpuinfo", root);
    char *name = value_of(text, "model name");
    char *flags = value_of(text, "\nflags");
    if (name != NULL) {
        snprintf(s->cpu, sizeof s->cpu, "%.*s", (int)strcspn(name, "\n"), name);
        proc_printable(s->cpu);
    }
    if (flags != NULL) {
        flags[strcspn(flags, "\n")] = '\0';
        look_features(flags, s);
    }
    s->processors = memory_processors();
}

/* "0-1,4": 3 */
static uint32_t count_of_list(const char *list)
{
    uint32_t count = 0;
    for (const char *at = list; *at >= '0' && *at <= '9';) {
        char *end;
        unsigned long first = strtoul(at, &end, 10);
        unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        count += last >= first ? (uint32_t)(last - first + 1) : 0;
        at = *end == ',' ? end + 1 : end;
    }
    return count;
}

static void look_memory(const char *root, struct environment_system *s)
{
    char text[TEXT_BYTES];
    uint64_t kib = 0;
    uint64_t pages = 0;
    if (proc_text(text, sizeof text, "%s/proc/meminfo", root)) {
        s->memory_bytes = proc_number(text, "MemTotal:", &kib) ? kib * KIB : 0;
        bool huge = proc_number(text, "HugePages_Free:", &pages) &&
                    proc_number(text, "Hugepagesize:", &kib);
        s->huge_free_bytes = huge ? pages * kib * KIB : 0;
    }
    s->available_bytes = memory_available(&s->available_why);
    if (proc_line(text, sizeof text, "%s/sys/kernel/mm/transparent_hugepage/enabled", root)) {
        const char *begin = strchr(text, '[');
        begin = begin != NULL ? begin + 1 : text;
        snprintf(s->thp, sizeof s->thp, "%.*s", (int)strcspn(begin, "]"), begin);
    }
    proc_line(text, sizeof text, "%s/sys/devices/system/node/online", root);
    s->numa_nodes = (uint32_t)max_u64(count_of_list(text), 1);
}

static void look_rings(const char *root, struct environment_system *s)
{
    char text[TEXT_BYTES];
    struct rlimit limit;
    uint64_t mode = 0;
    s->memlock_bytes = memory_lockable();
    s->nofile = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : 0;
    uint64_t disabled = proc_value(UINT64_MAX, "%s/proc/sys/kernel/io_uring_disabled", root);
    s->io_uring_disabled = disabled <= 2 ? (int)disabled : -1;
    bool told = proc_text(text, sizeof text, "%s/proc/self/status", root) &&
                proc_number(text, "Seccomp:", &mode) && mode <= 2;
    s->seccomp = told ? (int)mode : -1;
}

void environment_look_system(struct environment *env)
{
    look_kernel(env->root, &env->system);
    look_cpu(env->root, &env->system);
    look_memory(env->root, &env->system);
    look_rings(env->root, &env->system);
}
