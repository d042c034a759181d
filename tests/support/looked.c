/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/looked.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "core/base/err.h"

struct tiny root;
struct tiny files;
char file[TINY_PATH_BYTES];
unsigned number[2];
struct environment env;
struct environment_gate gates[ENVIRONMENT_GATES_MAX];
uint32_t gate_count;

void looked_file(void)
{
    static unsigned char block[64 * 1024];
    struct stat st;
    memset(block, 0x5A, sizeof block);
    tiny_put(&files, "weights", block, sizeof block);
    tiny_path(&files, "weights", file);
    ck_assert_int_eq(stat(file, &st), 0);
    number[0] = major(st.st_dev);
    number[1] = minor(st.st_dev);
}

void looked_setup(void)
{
    env.diskstats_fd = -1;
    tiny_folder(&root, TINY_MEMORY);
    tiny_folder(&files, TINY_DISK);
    looked_file();
}

void looked_teardown(void)
{
    environment_close(&env);
    tiny_remove(&files);
    system_remove(&root);
}

void put_mount(const char *options, const char *file_system, const char *source,
               const char *super)
{
    char text[1024];
    snprintf(text, sizeof text, "1 0 0:1 / /other rw - proc proc rw\nbroken\n"
             "%d 1 %u:%u / /data %s shared:1 - %s %s %s\n", ID, number[0], number[1], options,
             file_system, source, super);
    system_put(&root, text, "proc/self/mountinfo");
}

void look(void)
{
    const char *const paths[] = {file};
    environment_close(&env);
    err_clear();
    int rc = environment_open(&env, root.dir, paths, 1);
    ck_assert_msg(rc == 0, "%s", err_message());
    gate_count = environment_gates(&env, gates);
}

const struct environment_gate *gate(const char *code)
{
    for (uint32_t i = 0; i < gate_count; i++) {
        if (strcmp(gates[i].code, code) == 0) {
            return &gates[i];
        }
    }
    return NULL;
}

void ck_gate(const char *code, enum environment_severity severity, const char *part)
{
    const struct environment_gate *found = gate(code);
    ck_assert_msg(found != NULL, "no gate %s", code);
    ck_assert_int_eq(found->severity, severity);
    ck_assert_msg(strstr(found->reason, part) != NULL, "%s: %s", code, found->reason);
}

const struct environment_device *device(const char *name)
{
    for (uint32_t i = 0; i < env.device_count; i++) {
        if (strcmp(env.device[i].name, name) == 0) {
            return &env.device[i];
        }
    }
    ck_abort_msg("%s was not found", name);
    return NULL;
}

const cJSON *object(cJSON **document)
{
    *document = cJSON_CreateObject();
    ck_assert_ptr_nonnull(*document);
    return environment_json(*document, &env);
}

void nvme_with_file(char at[TINY_PATH_BYTES])
{
    system_nvme(&root, 0, at);
    system_partition(&root, at, 2, number[0], number[1]);
    put_mount("rw,noatime", "xfs", "/dev/nvme0n1p2", "rw,attr2");
}

void crypt_over_md(void)
{
    char at[2][TINY_PATH_BYTES];
    system_nvme(&root, 0, at[0]);
    system_nvme(&root, 1, at[1]);
    system_block(&root, "virtual/block/md0", 9, 0);
    system_put(&root, "raid0\n", "sys/devices/virtual/block/md0/md/level");
    system_slaves(&root, "virtual/block/md0", "nvme0n1 nvme1n1");
    system_block(&root, "virtual/block/dm-0", number[0], number[1]);
    system_put(&root, "CRYPT-LUKS2-0123-luks\n", "sys/devices/virtual/block/dm-0/dm/uuid");
    system_slaves(&root, "virtual/block/dm-0", "md0");
    put_mount("rw", "ext4", "/dev/mapper/luks", "rw");
}
