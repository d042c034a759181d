/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/fio.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HUGE_SETTING "/proc/sys/vm/nr_hugepages"
#define OUTPUT_MAX (1024 * 1024)

static char before[32]; /* the setting as it was; empty = not changed */

static bool write_setting(const char *text)
{
    int fd = open(HUGE_SETTING, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) {
        close(fd);
    }
    return good;
}

static bool read_setting(char text[32])
{
    int fd = open(HUGE_SETTING, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, 31) : -1;
    if (fd >= 0) {
        close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

static void on_signal(int number)
{
    write_setting(before); /* open, write and close: allowed here */
    _exit(128 + number);
}

const char *fio_begin(uint64_t buffer_bytes)
{
    char now[32];
    char wanted[32];
    if (system("fio --version >/dev/null 2>&1") != 0) {
        return "fio is not installed (apt-get install fio)";
    }
    if (!read_setting(now)) {
        return "this kernel reserves no huge pages";
    }
    long had = strtol(now, NULL, 10);
    long want = had + (long)div_ceil(buffer_bytes, HUGE_PAGE_BYTES) + 2;
    snprintf(wanted, sizeof wanted, "%ld", want);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    memcpy(before, now, sizeof before);
    if (!write_setting(wanted)) {
        before[0] = '\0';
        return "vm.nr_hugepages cannot be raised (be root); without it fio's buffers lie on small "
               "pages and its figure is too low to compare with";
    }
    if (!read_setting(now) || strtol(now, NULL, 10) < want) {
        fio_end();
        return "the system has no room for fio's huge pages";
    }
    return NULL;
}

void fio_end(void)
{
    if (before[0] != '\0') {
        write_setting(before);
        before[0] = '\0';
    }
}

/* file1:file2 with fio's own escape for colons, for a shell in single quotes. NULL for a name with
 * a quote in it. */
static bool list_files(char *out, size_t capacity, char *const *paths, uint32_t count)
{
    size_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (const char *p = paths[i]; *p != '\0'; p++) {
            if (*p == '\'' || at + 4 > capacity) {
                return false;
            }
            if (*p == ':') {
                out[at++] = '\\';
            }
            out[at++] = *p;
        }
        out[at++] = i + 1 < count ? ':' : '\0';
    }
    return count > 0;
}

static double parse(const char *text)
{
    const char *json = strchr(text, '{');
    cJSON *root = json != NULL ? cJSON_Parse(json) : NULL;
    const cJSON *job = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "jobs"), 0);
    const cJSON *error = cJSON_GetObjectItem(job, "error");
    const cJSON *rate = cJSON_GetObjectItem(cJSON_GetObjectItem(job, "read"), "bw_bytes");
    double gb_per_s = -1;
    if (cJSON_IsNumber(error) && error->valueint == 0 && cJSON_IsNumber(rate)) {
        gb_per_s = rate->valuedouble / 1e9;
    }
    cJSON_Delete(root);
    return gb_per_s;
}

double fio_read(char *const *paths, uint32_t count, uint64_t size_bytes, uint32_t depth,
                uint32_t time_ms, uint32_t seed)
{
    static char output[OUTPUT_MAX];
    char files[4096];
    char command[4608];
    if (!list_files(files, sizeof files, paths, count)) {
        return -1;
    }
    snprintf(command, sizeof command,
             "fio --readonly --name=anchor --ioengine=io_uring --direct=1 --rw=randread "
             "--norandommap --bs=%llu --iodepth=%u --iomem=mmaphuge --hugepage-size=2m "
             "--fixedbufs=1 --thread --time_based --runtime=%ums --randseed=%u "
             "--output-format=json --filename='%s'",
             (unsigned long long)size_bytes, depth, time_ms, seed, files);
    FILE *pipe = popen(command, "re");
    if (pipe == NULL) {
        return -1;
    }
    size_t got = fread(output, 1, sizeof output - 1, pipe);
    output[got] = '\0';
    return pclose(pipe) == 0 ? parse(output) : -1;
}
