/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_XDG_H
#define CLI_XDG_H

/* Files the program keeps for a user, where the XDG base directories are. */

enum xdg_kind {
    XDG_CACHE, /* $XDG_CACHE_HOME/k3ring or ~/.cache/k3ring: can be lost */
    XDG_STATE  /* $XDG_STATE_HOME/k3ring or ~/.local/state/k3ring: what a user has done */
};

/* The path of a file there, to free(); NULL when no home is known, or no memory. */
char *xdg_path(enum xdg_kind kind, const char *name);

/* Makes the folders above path, for this user alone; what fails is told by who writes there. */
void xdg_make_folders(const char *path);

#endif
