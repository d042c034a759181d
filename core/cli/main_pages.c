/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what an installation has beside the program: `pages man NAME < PROSE`, `pages bash`,
 * `pages zsh`, `pages version`, `pages day`. Run by make, never installed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cli/completion.h"
#include "core/cli/manual.h"

#define PROSE_BYTES_MAX 65536

/* "k3ring-run" -> its command. */
static const struct subcommand *find_page(const char *name)
{
    for (uint32_t i = 0; i < subcommand_count; i++) {
        const char *command = subcommands[i].command->name;
        if (strncmp(name, "k3ring-", 7) == 0 && strcmp(name + 7, command) == 0) {
            return &subcommands[i];
        }
    }
    return NULL;
}

static int write_page(const char *name)
{
    static char prose[PROSE_BYTES_MAX];
    const struct subcommand *sub = find_page(name);
    if (sub == NULL && strcmp(name, "k3ring") != 0) {
        fprintf(stderr, "pages: there is no command of the name %s: a text too many in docs/man?\n",
                name);
        return EXIT_FAILURE;
    }
    size_t size = fread(prose, 1, sizeof prose - 1, stdin);
    if (ferror(stdin) || size == 0 || size == sizeof prose - 1) {
        fprintf(stderr, "pages: the text of %s is empty, too long or unreadable\n", name);
        return EXIT_FAILURE;
    }
    manual_page(stdout, sub, prose);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int status = EXIT_SUCCESS;
    if (strcmp(what, "man") == 0 && argc == 3) {
        status = write_page(argv[2]);
    } else if (strcmp(what, "bash") == 0) {
        completion_bash(stdout);
    } else if (strcmp(what, "zsh") == 0) {
        completion_zsh(stdout);
    } else if (strcmp(what, "version") == 0) {
        puts(k3ring_version);
    } else if (strcmp(what, "day") == 0) {
        puts(k3ring_version_day);
    } else {
        fprintf(stderr, "usage: pages man NAME < PROSE | bash | zsh | version | day\n");
        return EXIT_FAILURE;
    }
    return fflush(stdout) == 0 ? status : EXIT_FAILURE;
}
