/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_TEMPORARY_H
#define CLI_TEMPORARY_H

/* The file a target is written as before it takes its name: PATH.tmp.PROCESS, or PATH.tmp.PROCESS.N
 * where another machine or container with a process of that number has the first one. It is locked
 * while it is written, so that what a killed process left can be told from what is being made. */

/* Removes what dead processes left of path. */
void temporary_sweep(const char *path);

/* Removes what dead processes left of path, then makes a new file. *name is on the heap. Returns a
 * descriptor, or -1 with errno and *name == NULL. */
int temporary_open(const char *path, char **name);

#endif
