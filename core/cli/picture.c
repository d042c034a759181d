/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/picture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/cli/gnuplot.h"
#include "core/cli/output.h"
#include "core/cli/picture_priv.h"
#include "core/cli/temporary.h"
#include "core/cli/text.h"

#define NAME_BYTES 96
#define SVG_BYTES_MAX (64 * MIB)

static bool sound_name(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t length = strspn(name, letters);
    return length > 0 && length < NAME_BYTES - 32 && name[length] == '\0' && name[0] != '-';
}

int picture_folder(const char *dir)
{
    struct stat st;
    if (mkdir(dir, 0777) == 0 || (stat(dir, &st) == 0 && S_ISDIR(st.st_mode))) {
        return 0;
    }
    return err_set(ERR_OUTPUT, "%s: cannot become a folder of pictures: %s", dir,
                   strerror(errno));
}

bool picture_owns(const char *dir, const char *path)
{
    static const char *const endings[] = {".dat", ".gp", ".svg", ".png"};
    const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    const char *ending = strrchr(name, '.');
    char *inside = path_join(dir, name);
    bool owned = false;
    for (size_t i = 0; i < countof(endings) && ending != NULL && inside != NULL; i++) {
        owned = owned || (strcmp(ending, endings[i]) == 0 && output_same(inside, path));
    }
    free(inside);
    return owned;
}

/* dir/NAME + ending. */
static char *path_of(const char *dir, const char *name, const char *ending)
{
    char file[NAME_BYTES];
    snprintf(file, sizeof file, "%s%s", name, ending);
    return path_join(dir, file);
}

static int put_file(const char *dir, const struct picture *p, const char *ending,
                    void (*put)(FILE *out, const struct picture *p))
{
    struct output out = {0};
    char *path = path_of(dir, p->name, ending);
    int rc = path != NULL ? output_open(&out, path) : ERR_MEMORY;
    if (rc == 0) {
        put(out.file, p);
        rc = output_commit(&out);
    }
    free(path);
    return rc;
}

/* Gives what gnuplot drew its name, or removes it. */
static int settle(const char *dir, const char *name, const char *ending, const char *part,
                  bool keep)
{
    char drawn[NAME_BYTES];
    snprintf(drawn, sizeof drawn, "%s%s", ending, part);
    char *from = path_of(dir, name, drawn);
    char *to = path_of(dir, name, ending);
    int rc = from != NULL && to != NULL ? 0 : ERR_MEMORY;
    if (rc == 0 && keep && rename(from, to) != 0) {
        rc = err_set(ERR_OUTPUT, "%s: cannot be written: %s", to, strerror(errno));
    }
    if (from != NULL && (rc < 0 || !keep)) {
        unlink(from);
    }
    free(from);
    free(to);
    return rc;
}

/* One line for all pictures of a program when gnuplot is not there. */
static void tell(enum gnuplot_end end, const char *dir, const char *name, const char *said)
{
    static bool told;
    char folder[512];
    text_clean(folder, sizeof folder, dir);
    if (end == GNUPLOT_MISSING && !told) {
        told = true;
        fprintf(stderr, "k3ring: gnuplot is not installed, so %s holds data and scripts but no "
                "pictures: apt-get install gnuplot-nox, then run gnuplot %s.gp in %s (and so for "
                "each .gp there)\n", folder, name, folder);
    } else if (end == GNUPLOT_FAILED) {
        fprintf(stderr, "k3ring: gnuplot did not draw %s (%s): its data and script are in %s; "
                "run gnuplot %s.gp there to see more\n", name, said, folder, name);
    }
}

/* What a process left that was killed while it drew. */
static void sweep(const char *dir, const char *name, const char *suffix)
{
    char *path = path_of(dir, name, suffix);
    if (path != NULL) {
        temporary_sweep(path);
    }
    free(path);
}

static int draw(const char *dir, const struct picture *p)
{
    char script[NAME_BYTES];
    char part[32];
    char said[256] = "";
    snprintf(script, sizeof script, "%s.gp", p->name);
    snprintf(part, sizeof part, ".tmp.%ld", (long)getpid());
    sweep(dir, p->name, ".svg");
    sweep(dir, p->name, ".png");
    enum gnuplot_end end = gnuplot_run(dir, script, part, said, sizeof said);
    bool drawn = end == GNUPLOT_DRAWN;
    int svg = settle(dir, p->name, ".svg", part, drawn);
    int png = settle(dir, p->name, ".png", part, drawn);
    tell(end, dir, p->name, said);
    TRY(svg);
    TRY(png);
    return drawn ? 0 : 1;
}

int picture_write(const char *dir, const struct picture *picture)
{
    assert(sound_name(picture->name) && picture->series_count <= PICTURE_SERIES_MAX);
    TRY(picture_folder(dir));
    TRY(put_file(dir, picture, ".dat", picture_put_data));
    TRY(put_file(dir, picture, ".gp", picture_put_script));
    return draw(dir, picture);
}

char *picture_svg_inline(const char *dir, const char *name)
{
    struct file_text svg = {.text = NULL};
    char *path = path_of(dir, name, ".svg");
    char *clean = NULL;
    if (path != NULL && file_read(path, SVG_BYTES_MAX, &svg) == 0) {
        clean = picture_svg_clean(svg.text, svg.size_bytes, name);
    }
    err_clear();
    file_text_free(&svg);
    free(path);
    return clean;
}
