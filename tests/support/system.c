/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/system.h"

#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *where)
{
    (void)about;
    (void)type;
    (void)where;
    return remove(path);
}

void system_remove(const struct tiny *root)
{
    tiny_need(nftw(root->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0, "a folder to remove");
}

/* The whole path, its folders made. */
static void place(const struct tiny *root, char path[TINY_PATH_BYTES], const char *format,
                  va_list args)
{
    int used = snprintf(path, TINY_PATH_BYTES, "%s/", root->dir);
    int more = vsnprintf(path + used, TINY_PATH_BYTES - (size_t)used, format, args);
    tiny_need(more > 0 && used + more < TINY_PATH_BYTES, "a path fits");
    for (char *at = path + used; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        tiny_need(mkdir(path, 0700) == 0 || errno == EEXIST, path);
        *at = '/';
    }
}

void system_put(const struct tiny *root, const char *text, const char *path_format, ...)
{
    char path[TINY_PATH_BYTES];
    va_list args;
    va_start(args, path_format);
    place(root, path, path_format, args);
    va_end(args);
    FILE *file = fopen(path, "w");
    tiny_need(file != NULL, path);
    fputs(text, file);
    tiny_need(fclose(file) == 0, path);
}

void system_link(const struct tiny *root, const char *target, const char *path_format, ...)
{
    char path[TINY_PATH_BYTES];
    va_list args;
    va_start(args, path_format);
    place(root, path, path_format, args);
    va_end(args);
    unlink(path);
    tiny_need(symlink(target, path) == 0, path);
}

/* What sysfs has for every block device, partitions too. */
static void register_block(const struct tiny *root, const char *at, uint32_t major, uint32_t minor)
{
    char text[TINY_PATH_BYTES];
    snprintf(text, sizeof text, "%u:%u\n", major, minor);
    system_put(root, text, "sys/devices/%s/dev", at);
    snprintf(text, sizeof text, "../../devices/%s", at);
    system_link(root, text, "sys/dev/block/%u:%u", major, minor);
    system_link(root, text, "sys/class/block/%s", strrchr(at, '/') + 1);
}

void system_block(const struct tiny *root, const char *at, uint32_t major, uint32_t minor)
{
    static const char *const queue[][2] = {
        {"max_sectors_kb", "1280\n"},   {"max_hw_sectors_kb", "2147483647\n"},
        {"max_segments", "254\n"},      {"nr_requests", "256\n"},
        {"scheduler", "[none] mq-deadline\n"}, {"logical_block_size", "512\n"},
        {"physical_block_size", "512\n"}, {"rotational", "0\n"}, {"io_poll", "0\n"}};
    register_block(root, at, major, minor);
    for (size_t i = 0; i < countof(queue); i++) {
        system_put(root, queue[i][1], "sys/devices/%s/queue/%s", at, queue[i][0]);
    }
}

void system_partition(const struct tiny *root, const char *at, uint32_t part, uint32_t major,
                      uint32_t minor)
{
    char folder[TINY_PATH_BYTES];
    const char *name = strrchr(at, '/') + 1;
    snprintf(folder, sizeof folder, "%s/%sp%u", at, name, part);
    register_block(root, folder, major, minor);
    system_put(root, "1\n", "sys/devices/%s/partition", folder);
}

void system_nvme(const struct tiny *root, uint32_t n, char at[TINY_PATH_BYTES])
{
    static const char *const links[][2] = {{"current_link_speed", "16.0 GT/s PCIe\n"},
                                           {"current_link_width", "4\n"},
                                           {"max_link_speed", "16.0 GT/s PCIe\n"},
                                           {"max_link_width", "4\n"}};
    char slot[64];
    char device[128];
    snprintf(slot, sizeof slot, "pci0000:00/0000:00:0%u.1", n + 1);
    snprintf(device, sizeof device, "%s/0000:0%u:00.0", slot, n + 1);
    for (size_t i = 0; i < countof(links); i++) {
        system_put(root, links[i][1], "sys/devices/%s/%s", slot, links[i][0]);
        system_put(root, links[i][1], "sys/devices/%s/%s", device, links[i][0]);
    }
    snprintf(at, TINY_PATH_BYTES, "%s/nvme/nvme%u/nvme%un1", device, n, n);
    system_block(root, at, 259, n);
    system_link(root, "..", "sys/devices/%s/device", at);
    system_put(root, "Fast Drive 2TB      \n", "sys/devices/%s/nvme/nvme%u/model", device, n);
    system_put(root, "FW42    \n", "sys/devices/%s/nvme/nvme%u/firmware_rev", device, n);
    system_put(root, n == 0 ? "SERIAL0\n" : "SERIAL1\n", "sys/devices/%s/nvme/nvme%u/serial",
               device, n);
    system_put(root, n == 0 ? "41850\n" : "45000\n",
               "sys/devices/%s/nvme/nvme%u/hwmon%u/temp1_input", device, n, n);
    system_put(root, "1023\n", "sys/devices/%s/queue/nr_requests", at);
    system_put(root, "0\n", "sys/devices/%s/queue/wbt_lat_usec", at);
}

void system_slaves(const struct tiny *root, const char *at, const char *names)
{
    while (*names != '\0') {
        char target[TINY_PATH_BYTES];
        char name[64];
        size_t length = strcspn(names, " ");
        snprintf(name, sizeof name, "%.*s", (int)length, names);
        snprintf(target, sizeof target, "%s/sys/class/block/%s", root->dir, name);
        system_link(root, target, "sys/devices/%s/slaves/%s", at, name);
        names += length + (names[length] == ' ');
    }
}
