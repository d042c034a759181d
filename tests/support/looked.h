/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_LOOKED_H
#define TESTS_SUPPORT_LOOKED_H

/* An environment looked at through a /proc and a /sys of the test: the fixture of those tests. */

#include "core/cli/environment.h"
#include "tests/support/system.h"

#define ID 4000001 /* of the file's mount: more than a real one is likely to have */

extern struct tiny root;     /* /proc and /sys */
extern struct tiny files;    /* holds the file that is looked at */
extern char file[TINY_PATH_BYTES];
extern unsigned number[2];   /* of the device it really lies on */
extern struct environment env;
extern struct environment_gate gates[ENVIRONMENT_GATES_MAX];
extern uint32_t gate_count;

void looked_setup(void);
void looked_teardown(void);
/* Writes the file again, 64 KiB without holes, where `files` is now. */
void looked_file(void);

/* The line of the file's mount. */
void put_mount(const char *options, const char *file_system, const char *source,
               const char *super);
/* nvme0n1 with the file on its second partition. Its folder goes to at. */
void nvme_with_file(char at[TINY_PATH_BYTES]);
/* The file on dm-0, which encrypts md0, which spreads over nvme0n1 and nvme1n1. */
void crypt_over_md(void);

void look(void);
const struct environment_gate *gate(const char *code); /* or NULL */
void ck_gate(const char *code, enum environment_severity severity, const char *part);
const struct environment_device *device(const char *name);
/* The environment's object inside a document; delete the document. */
const cJSON *object(cJSON **document);

#endif
