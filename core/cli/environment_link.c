/* SPDX-License-Identifier: Apache-2.0 */
/* How an NVMe drive is plugged in, and how warm it is. */
#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/proc.h"
#include "core/cli/environment_priv.h"

#define OLD_CODING_TENTHS 50U   /* up to 5.0 GT/s: 8 bits in 10; faster ones: 128 in 130 */
#define PACKETS_SHARE 0.985     /* what headers of large reads leave */

/* "16.0 GT/s": 160; 0 when it is none. */
static uint64_t transfer_tenths(const char *speed)
{
    char *end;
    uint64_t whole = strtoull(speed, &end, 10);
    if (end == speed || whole > 1000) {
        return 0;
    }
    uint64_t tenth = *end == '.' && end[1] >= '0' && end[1] <= '9' ? (uint64_t)(end[1] - '0') : 0;
    return strstr(end, "GT/s") != NULL ? whole * 10 + tenth : 0;
}

uint64_t environment_link_bytes(const char *speed, uint32_t width)
{
    uint64_t tenths = transfer_tenths(speed);
    double coding = tenths <= OLD_CODING_TENTHS ? 8.0 / 10.0 : 128.0 / 130.0;
    return (uint64_t)((double)tenths * 1e8 * width * coding / 8 * PACKETS_SHARE);
}

/* which: "current" or "max". */
static void read_link(const char *folder, const char *which, struct environment_link *link)
{
    proc_line(link->speed, sizeof link->speed, "%s/%s_link_speed", folder, which);
    link->width = (uint32_t)min_u64(proc_value(0, "%s/%s_link_width", folder, which), 64);
    link->bytes_per_s = environment_link_bytes(link->speed, link->width);
}

/* The controller of a drive with several ways to it is in no folder above the drive. */
static bool controller_of(const char *drive, char folder[PATH_MAX])
{
    char pattern[PROC_PATH_BYTES];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/device/nvme[0-9]*/device/current_link_speed", drive);
    if (glob(pattern, 0, NULL, &found) != 0) {
        return false;
    }
    *strrchr(found.gl_pathv[0], '/') = '\0';
    bool there = realpath(found.gl_pathv[0], folder) != NULL;
    globfree(&found);
    return there;
}

/* The first folder at or above this one that is a PCIe device. */
static bool climb(char folder[PATH_MAX])
{
    char text[ENVIRONMENT_NAME_BYTES];
    while (!proc_line(text, sizeof text, "%s/current_link_speed", folder)) {
        char *slash = strrchr(folder, '/');
        if (slash == NULL || slash == folder) {
            return false;
        }
        *slash = '\0';
    }
    return true;
}

void environment_look_link(struct environment_device *device, const char *drive)
{
    char folder[PATH_MAX];
    if (strncmp(device->name, "nvme", 4) != 0) {
        return; /* other drives hang on adapters, whose links say nothing of one drive */
    }
    snprintf(folder, sizeof folder, "%s", drive);
    if (!climb(folder) && !controller_of(drive, folder)) {
        return;
    }
    read_link(folder, "current", &device->link);
    read_link(folder, "max", &device->link_max);
    *strrchr(folder, '/') = '\0';
    read_link(folder, "max", &device->slot_max);
}

/* The temperature beside its own that a drive calls too hot: NVMe's warning threshold. */
static double too_hot(const char *input)
{
    char path[PROC_PATH_BYTES];
    char text[32];
    snprintf(path, sizeof path, "%.*smax", (int)(strlen(input) - strlen("input")), input);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    if (got <= 0) {
        return (double)NAN;
    }
    text[got] = '\0';
    long milli = strtol(text, NULL, 10);
    return milli > 0 ? (double)milli / 1000 : (double)NAN;
}

int environment_open_temperature(const char *drive, double *too_hot_c)
{
    static const char *const places[] = {"device/hwmon*", "device/hwmon/hwmon*",
                                         "device/device/hwmon/hwmon*", "device/nvme[0-9]*/hwmon*"};
    *too_hot_c = (double)NAN;
    for (size_t i = 0; i < countof(places); i++) {
        char pattern[PROC_PATH_BYTES];
        glob_t found;
        snprintf(pattern, sizeof pattern, "%s/%s/temp1_input", drive, places[i]);
        if (glob(pattern, 0, NULL, &found) == 0) {
            int fd = open(found.gl_pathv[0], O_RDONLY | O_CLOEXEC);
            *too_hot_c = too_hot(found.gl_pathv[0]);
            globfree(&found);
            return fd;
        }
    }
    return -1;
}
