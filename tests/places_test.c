/* SPDX-License-Identifier: Apache-2.0 */

/* What a report states of file systems and of the system: from trees that the tests make, and once
 * from the machine we are on. */

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/base/err.h"
#include "tests/support/looked.h"
#include "tests/support/suite.h"

/* ---- file systems ---- */

static const struct {
    const char *file_system, *code, *part;
} kinds[] = {
    {"tmpfs", "memory", "not on a drive"},        {"ramfs", "memory", "memory"},
    {"zfs", "transformed", "zfs"},                {"squashfs", "transformed", "squashfs"},
    {"nfs4", "remote", "nfs4"},                   {"9p", "remote", "another machine"},
    {"fuse.sshfs", "remote", "fuse.sshfs"},       {"cifs", "remote", "cifs"},
};

START_TEST(file_systems_that_are_no_drive_make_figures_invalid)
{
    put_mount("rw", kinds[_i].file_system, "source", "rw");
    look();
    ck_gate(kinds[_i].code, GATE_INVALID, kinds[_i].part);
    ck_assert_ptr_null(gate("no_drive"));
}
END_TEST

START_TEST(a_device_is_found_by_the_source_of_its_mount)
{
    char at[TINY_PATH_BYTES];
    system_nvme(&root, 0, at);
    system_partition(&root, at, 5, 259, 77);
    put_mount("rw", "btrfs", "/dev/nvme0n1p5", "rw,ssd");
    look();
    ck_assert_uint_ne(env.place[0].top, ENVIRONMENT_NONE);
    ck_assert_uint_eq(env.place[0].number[1], 77);
    ck_assert_ptr_null(gate("transformed"));
    put_mount("rw", "ext4", "/dev/absent", "rw");
    look();
    ck_gate("no_drive", GATE_WARNING, "ext4");
}
END_TEST

START_TEST(a_btrfs_on_several_drives_is_counted_on_all_of_them)
{
    char at[TINY_PATH_BYTES];
    struct environment_diskstats d;
    for (uint32_t i = 0; i < 2; i++) {
        system_nvme(&root, i, at);
    }
    system_link(&root, "../../../../class/block/nvme0n1", "sys/fs/btrfs/uuid/devices/nvme0n1");
    system_link(&root, "../../../../class/block/nvme1n1", "sys/fs/btrfs/uuid/devices/nvme1n1");
    system_put(&root, "259 0 nvme0n1 9 0 900 1 0 0 0 0 0 1 1\n259 1 nvme1n1 4 0 400 1 0 0 0 0 0 1 "
               "1\n", "proc/diskstats");
    put_mount("rw", "btrfs", "/dev/nvme0n1", "rw");
    look();
    ck_assert_uint_eq(env.device_count, 2);
    ck_assert_uint_eq(env.place[0].others, 1U << (device("nvme1n1") - env.device));
    environment_diskstats(&env, &d);
    ck_assert_uint_eq(d.files.read_sectors, 1300);
}
END_TEST

/* A file system without FIEMAP: then the mount's options are all there is to go by. */
START_TEST(compression_is_told_by_the_mount_where_extents_are_not)
{
    static const struct {
        const char *options;
        bool compressed;
    } rows[] = {{"rw,compress=zstd:3", true}, {"rw,compress-force=lzo,ssd", true},
                {"compression=lz4", true}, {"rw,compress=no", false}, {"rw,nocompress=1", false},
                {"rw", false}};
    tiny_remove(&files);
    tiny_folder(&files, TINY_MEMORY);
    looked_file();
    for (size_t i = 0; i < countof(rows); i++) {
        put_mount("rw", "btrfs", "/dev/sda", rows[i].options);
        look();
        ck_assert_msg(env.place[0].compressed == rows[i].compressed, "%s", rows[i].options);
        ck_assert_int_eq(gate("transformed") != NULL, rows[i].compressed);
    }
}
END_TEST

START_TEST(an_overlay_is_judged_by_what_it_shows)
{
    char text[1024];
    struct stat st;
    ck_assert_int_eq(stat(root.dir, &st), 0);
    if (major(st.st_dev) == number[0] && minor(st.st_dev) == number[1]) {
        printf("skip: /tmp and /dev/shm are one file system here\n");
        return;
    }
    snprintf(text, sizeof text, "%d 1 %u:%u / / rw - overlay overlay rw,lowerdir=%s:/x\n"
             "%d 1 %u:%u / /shm rw - tmpfs tmpfs rw\n", ID, number[0], number[1], root.dir, ID + 1,
             major(st.st_dev), minor(st.st_dev));
    system_put(&root, text, "proc/self/mountinfo");
    look();
    ck_assert_str_eq(env.place[0].file_system, "overlay");
    ck_assert_str_eq(env.place[0].lower, "tmpfs");
    ck_gate("memory", GATE_INVALID, "tmpfs");
}
END_TEST

START_TEST(holes_are_counted_and_many_of_them_are_invalid)
{
    int fd = open(file, O_WRONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, 1 << 20), 0);
    bool tells = lseek(fd, 64 * 1024, SEEK_DATA) < 0;
    close(fd);
    if (!tells) {
        printf("skip: the file system of /tmp does not tell holes\n");
        return;
    }
    look();
    ck_assert_uint_eq(env.place[0].bytes, 1 << 20);
    ck_assert_uint_eq(env.place[0].holes_bytes, (1 << 20) - 64 * 1024);
    ck_gate("holes", GATE_INVALID, "are holes");
    cJSON *document;
    ck_assert_int_eq(cJSON_GetObjectItem(object(&document), "holes_bytes")->valueint,
                     (1 << 20) - 64 * 1024);
    cJSON_Delete(document);
}
END_TEST

START_TEST(few_holes_are_a_warning)
{
    struct environment a = {.place_count = 1};
    a.place[0] = (struct environment_place){.file_system = "ext4", .files = 1, .direct_files = 1,
                                            .bytes = 1 << 30, .holes_bytes = 4096};
    gate_count = environment_gates(&a, gates);
    ck_gate("holes", GATE_WARNING, "ext4");
    a.place[0].direct_files = 0;
    gate_count = environment_gates(&a, gates);
    ck_gate("buffered", GATE_INVALID, "page cache");
}
END_TEST

START_TEST(a_file_that_is_not_there_is_an_error)
{
    const char *const paths[] = {"/absent/weights"};
    ck_assert_int_eq(environment_open(&env, root.dir, paths, 1), ERR_IO);
    ck_assert_ptr_nonnull(strstr(err_message(), "/absent/weights"));
    err_clear();
}
END_TEST

/* ---- the system ---- */

START_TEST(groups_that_limit_reads_are_named)
{
    char row[128];
    system_block(&root, "virtual/block/disk", number[0], number[1]);
    system_put(&root, "0::/a/b\n5:blkio:/c\n", "proc/self/cgroup");
    system_put(&root, "io\n", "sys/fs/cgroup/cgroup.controllers");
    snprintf(row, sizeof row, "1:1 rbps=5\n%u:%u rbps=max wbps=9 riops=max wiops=max\n",
             number[0], number[1]);
    system_put(&root, row, "sys/fs/cgroup/a/b/io.max");
    look();
    ck_assert_ptr_null(gate("io_max"));
    snprintf(row, sizeof row, "%u:%u rbps=1048576 wbps=max riops=max wiops=max\n", number[0],
             number[1]);
    system_put(&root, row, "sys/fs/cgroup/a/io.max");
    snprintf(row, sizeof row, "%u:%u 700\n", number[0], number[1]);
    system_put(&root, row, "sys/fs/cgroup/blkio/c/blkio.throttle.read_iops_device");
    look();
    ck_gate("io_max", GATE_WARNING, "rbps=1048576");
    ck_gate("io_max", GATE_WARNING, "riops=700");
}
END_TEST

static void put_system(void)
{
    system_put(&root, "6.1.0-test\n", "proc/sys/kernel/osrelease");
    system_put(&root, "2\n", "proc/sys/kernel/io_uring_disabled");
    system_put(&root, "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n", "proc/self/status");
    system_put(&root, "MemTotal: 1024 kB\nHugePages_Free: 3\nHugepagesize: 2048 kB\n",
               "proc/meminfo");
    system_put(&root, "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu fma avx2 avx512f "
               "avx512_vbmi2 avx512vl\n\nprocessor\t: 1\n", "proc/cpuinfo");
    system_put(&root, "always [madvise] never\n", "sys/kernel/mm/transparent_hugepage/enabled");
    system_put(&root, "0-1,4\n", "sys/devices/system/node/online");
}

START_TEST(the_system_is_described)
{
    put_system();
    ck_assert_int_eq(environment_open(&env, root.dir, NULL, 0), 0);
    const struct environment_system *s = &env.system;
    ck_assert_str_eq(s->kernel, "6.1.0-test");
    ck_assert_str_eq(s->cpu, "Some CPU");
    ck_assert_str_eq(s->features, "fma avx2 avx512f avx512vl");
    ck_assert_str_eq(s->thp, "madvise");
    ck_assert_uint_eq(s->numa_nodes, 3);
    ck_assert_uint_eq(s->memory_bytes, MIB);
    ck_assert_uint_eq(s->huge_free_bytes, 6 * MIB);
    ck_assert_int_eq(s->io_uring_disabled, 2);
    ck_assert_int_eq(s->seccomp, 2);
}
END_TEST

START_TEST(nothing_to_read_is_no_error)
{
    ck_assert_int_eq(environment_open(&env, "/absent", NULL, 0), 0);
    ck_assert(env.system.kernel[0] != '\0');
    ck_assert_str_eq(env.system.cpu, "");
    ck_assert_int_eq(env.system.seccomp, -1);
    ck_assert_int_eq(env.system.io_uring_disabled, -1);
    struct environment_diskstats d;
    environment_diskstats(&env, &d);
    ck_assert(!d.known);
}
END_TEST

static const char *const names[] = {"kernel", "cpu", "mem", "fs", "mount_opts", "devices", "thp",
                                    "memlock", "nofile", "io_uring_disabled", "seccomp",
                                    "cgroup_io_max", "holes_bytes", "dm_crypt", "compressed"};
static const char *const device_names[] = {
    "name", "model", "fw", "serial", "link_speed", "link_width", "link_speed_max",
    "link_width_max", "link_bw_bytes", "max_sectors_kb", "max_hw_sectors_kb", "max_segments",
    "nr_requests", "scheduler", "wbt", "io_poll", "logical_block_size", "temp_c"};

START_TEST(the_object_has_the_names_that_are_documented)
{
    cJSON *document;
    crypt_over_md();
    put_system();
    look();
    const cJSON *o = object(&document);
    for (size_t i = 0; i < countof(names); i++) {
        ck_assert_msg(cJSON_HasObjectItem(o, names[i]), "%s", names[i]);
    }
    const cJSON *one;
    cJSON_ArrayForEach(one, cJSON_GetObjectItem(o, "devices")) {
        for (size_t i = 0; i < countof(device_names); i++) {
            ck_assert_msg(cJSON_HasObjectItem(one, device_names[i]), "%s", device_names[i]);
        }
    }
    ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(o, "dm_crypt")));
    ck_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(o, "fs")), "ext4");
    cJSON_Delete(document);
}
END_TEST

START_TEST(this_machine_can_be_looked_at)
{
    const char *const paths[] = {file};
    struct environment_diskstats before, after, d;
    ck_assert_int_eq(environment_open(&env, "", paths, 1), 0);
    ck_assert(env.system.kernel[0] != '\0');
    ck_assert_uint_gt(env.system.memory_bytes, 0);
    ck_assert_uint_eq(env.place_count, 1);
    ck_assert(env.place[0].file_system[0] != '\0');
    environment_diskstats(&env, &before);
    environment_diskstats(&env, &after);
    environment_diskstats_since(&before, &after, &d);
    ck_assert_uint_lt(d.drives.read_sectors, UINT64_MAX / 2);
    ck_assert_int_eq(env.device_count > 0 && before.known, env.device_count > 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("places");
    TCase *places = tcase_create("places");
    tcase_add_checked_fixture(places, looked_setup, looked_teardown);
    tcase_add_loop_test(places, file_systems_that_are_no_drive_make_figures_invalid, 0,
                        (int)countof(kinds));
    tcase_add_test(places, a_device_is_found_by_the_source_of_its_mount);
    tcase_add_test(places, a_btrfs_on_several_drives_is_counted_on_all_of_them);
    tcase_add_test(places, compression_is_told_by_the_mount_where_extents_are_not);
    tcase_add_test(places, an_overlay_is_judged_by_what_it_shows);
    tcase_add_test(places, holes_are_counted_and_many_of_them_are_invalid);
    tcase_add_test(places, few_holes_are_a_warning);
    tcase_add_test(places, a_file_that_is_not_there_is_an_error);
    suite_add_tcase(suite, places);
    TCase *whole = tcase_create("system");
    tcase_add_checked_fixture(whole, looked_setup, looked_teardown);
    tcase_add_test(whole, groups_that_limit_reads_are_named);
    tcase_add_test(whole, the_system_is_described);
    tcase_add_test(whole, nothing_to_read_is_no_error);
    tcase_add_test(whole, the_object_has_the_names_that_are_documented);
    tcase_add_test(whole, this_machine_can_be_looked_at);
    suite_add_tcase(suite, whole);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
