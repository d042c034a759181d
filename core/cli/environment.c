/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/environment.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/proc.h"
#include "core/cli/environment_priv.h"

int environment_open(struct environment *env, const char *root, const char *const *paths,
                     uint32_t count)
{
    char path[PROC_PATH_BYTES];
    *env = (struct environment){.diskstats_fd = -1};
    snprintf(env->root, sizeof env->root, "%s", root);
    environment_look_system(env);
    if (count > 0) {
        TRY(environment_look_files(env, paths, count));
    }
    environment_look_limits(env);
    snprintf(path, sizeof path, "%s/proc/diskstats", env->root);
    env->diskstats_fd = open(path, O_RDONLY | O_CLOEXEC);
    return 0;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

void environment_close(struct environment *env)
{
    for (uint32_t i = 0; i < env->device_count; i++) {
        close_fd(&env->device[i].temperature_fd);
    }
    close_fd(&env->diskstats_fd);
}

double environment_device_temperature(const struct environment *env, uint32_t device)
{
    char text[32];
    int fd = env->device[device].temperature_fd;
    ssize_t got = fd >= 0 ? pread(fd, text, sizeof text - 1, 0) : -1;
    if (got <= 0) {
        return (double)NAN;
    }
    text[got] = '\0';
    char *end;
    long milli = strtol(text, &end, 10);
    return end != text ? (double)milli / 1000 : (double)NAN;
}

uint32_t environment_too_hot(const struct environment *env)
{
    for (uint32_t i = 0; i < env->device_count; i++) {
        if (environment_device_temperature(env, i) >= env->device[i].too_hot_c) {
            return i + 1; /* never when one of the two is unknown */
        }
    }
    return 0;
}

double environment_temperature(const struct environment *env)
{
    double hottest = (double)NAN;
    for (uint32_t i = 0; i < env->device_count; i++) {
        double one = environment_device_temperature(env, i);
        hottest = isnan(hottest) || one > hottest ? one : hottest;
    }
    return hottest;
}
