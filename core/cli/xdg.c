/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/xdg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct {
    const char *variable, *below_home;
} places[] = {
    [XDG_CACHE] = {"XDG_CACHE_HOME", ".cache"},
    [XDG_STATE] = {"XDG_STATE_HOME", ".local/state"},
};

char *xdg_path(enum xdg_kind kind, const char *name)
{
    char *path = NULL;
    const char *given = getenv(places[kind].variable);
    const char *home = getenv("HOME");
    int length = -1;
    if (given != NULL && given[0] == '/') {
        length = asprintf(&path, "%s/k3ring/%s", given, name);
    } else if (home != NULL && home[0] == '/') {
        length = asprintf(&path, "%s/%s/k3ring/%s", home, places[kind].below_home, name);
    }
    return length < 0 ? NULL : path;
}

void xdg_make_folders(const char *path)
{
    char *folder = strdup(path);
    for (char *slash = folder != NULL ? strchr(folder + 1, '/') : NULL; slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(folder, 0700);
        *slash = '/';
    }
    free(folder);
}
