/* SPDX-License-Identifier: Apache-2.0 */

/* What a report states of drives: read from trees that the tests make, so that every machine is any
 * machine. */

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tests/support/looked.h"
#include "tests/support/suite.h"

#define DISK "virtual/block/disk"

/* ---- drives ---- */

START_TEST(an_nvme_drive_is_described_through_its_partition)
{
    char at[TINY_PATH_BYTES];
    nvme_with_file(at);
    look();
    ck_assert_uint_eq(env.place_count, 1);
    ck_assert_str_eq(env.place[0].file_system, "xfs");
    ck_assert_str_eq(env.place[0].options, "rw,noatime,attr2");
    ck_assert_uint_eq(env.place[0].files, 1);
    ck_assert_uint_eq(env.place[0].bytes, 64 * KIB);
    ck_assert_uint_eq(env.device_count, 1);
    const struct environment_device *d = device("nvme0n1");
    ck_assert_int_eq(d->kind, DEVICE_DRIVE);
    ck_assert_str_eq(d->model, "Fast Drive 2TB");
    ck_assert_str_eq(d->firmware, "FW42");
    ck_assert_str_eq(d->serial, "SERIAL0");
    ck_assert_str_eq(d->scheduler, "none");
    ck_assert_uint_eq(d->nr_requests, 1023);
    ck_assert_uint_eq(d->max_segments, 254);
    ck_assert_int_eq(d->wbt_us, 0);
    ck_assert_int_eq(d->io_poll, 0);
    ck_assert_str_eq(d->link.speed, "16.0 GT/s PCIe");
    ck_assert_uint_eq(d->link.width, 4);
    ck_assert_double_eq_tol((double)d->link.bytes_per_s, 7.7588e9, 1e6);
    ck_assert_double_eq_tol(environment_temperature(&env), 41.85, 1e-9);
    ck_assert_ptr_null(gate("link"));
    ck_assert_ptr_null(gate("no_drive"));
}
END_TEST

START_TEST(a_temperature_is_asked_anew)
{
    char at[TINY_PATH_BYTES];
    nvme_with_file(at);
    look();
    system_put(&root, "70000\n", "sys/devices/%s/../hwmon0/temp1_input", at);
    ck_assert_double_eq_tol(environment_temperature(&env), 70.0, 1e-9);
    system_put(&root, "\n", "sys/devices/%s/../hwmon0/temp1_input", at);
    ck_assert(isnan(environment_temperature(&env)));
}
END_TEST

START_TEST(a_drive_says_itself_when_it_is_too_hot)
{
    char at[TINY_PATH_BYTES];
    nvme_with_file(at);
    look();
    ck_assert(isnan(device("nvme0n1")->too_hot_c));
    ck_assert_uint_eq(environment_too_hot(&env), 0);
    system_put(&root, "81850\n", "sys/devices/%s/../hwmon0/temp1_max", at);
    look();
    ck_assert_double_eq_tol(device("nvme0n1")->too_hot_c, 81.85, 1e-9);
    ck_assert_uint_eq(environment_too_hot(&env), 0);
    system_put(&root, "82000\n", "sys/devices/%s/../hwmon0/temp1_input", at);
    ck_assert_uint_eq(environment_too_hot(&env), 1);
}
END_TEST

START_TEST(a_slow_link_is_a_warning_that_knows_the_slot)
{
    char at[TINY_PATH_BYTES];
    nvme_with_file(at);
    system_put(&root, "2\n", "sys/devices/%s/../../../current_link_width", at);
    look();
    ck_gate("link", GATE_WARNING, "16.0 GT/s PCIe x2 of 16.0 GT/s PCIe x4, at most 3.9 GB/s");
    ck_gate("link", GATE_WARNING, "reseat");
    system_put(&root, "2\n", "sys/devices/%s/../../../../max_link_width", at);
    look();
    ck_gate("link", GATE_WARNING, "the slot allows no more");
}
END_TEST

START_TEST(a_drive_with_several_controllers_has_its_link_and_temperature)
{
    char at[TINY_PATH_BYTES];
    system_nvme(&root, 1, at);
    const char *head = "virtual/nvme-subsystem/nvme-subsys1/nvme7n1";
    system_block(&root, head, number[0], number[1]);
    system_link(&root, "..", "sys/devices/%s/device", head);
    system_link(&root, "../../../pci0000:00/0000:00:02.1/0000:02:00.0/nvme/nvme1",
                "sys/devices/virtual/nvme-subsystem/nvme-subsys1/nvme1");
    system_link(&root, "../..", "sys/devices/%s/../device", at);
    look();
    ck_assert_uint_eq(device("nvme7n1")->link.width, 4);
    ck_assert_double_eq_tol(environment_temperature(&env), 45.0, 1e-9);
}
END_TEST

START_TEST(links_carry_what_their_coding_leaves)
{
    static const struct {
        const char *speed;
        uint32_t width;
        double gbps;
    } rows[] = {{"2.5 GT/s PCIe", 1, 0.24625},  {"5.0 GT/s PCIe", 4, 1.97},
                {"8.0 GT/s PCIe", 4, 3.8794},   {"8 GT/s", 4, 3.8794},
                {"16.0 GT/s PCIe", 4, 7.7588},  {"32.0 GT/s PCIe", 4, 15.5175},
                {"Unknown", 4, 0},              {"", 4, 0},
                {"16.0 GT/s PCIe", 0, 0},       {"99999999999 GT/s", 4, 0}};
    for (size_t i = 0; i < countof(rows); i++) {
        double gbps = (double)environment_link_bytes(rows[i].speed, rows[i].width) / 1e9;
        ck_assert_msg(fabs(gbps - rows[i].gbps) < 1e-3, "%s x%u: %f", rows[i].speed,
                      rows[i].width, gbps);
    }
}
END_TEST

START_TEST(counters_say_whether_the_drives_delivered)
{
    static const struct {
        uint64_t asked, delivered;
        const char *part; /* NULL: nothing speaks against it */
    } rows[] = {{64 * MIB, 64 * MIB, NULL},         {100 * MIB, 98 * MIB, NULL},
                {100 * MIB, 105 * MIB, NULL},       {100 * MIB, 97 * MIB, "only 97 %"},
                {100 * MIB, 106 * MIB, "106 % of"}, {64 * MIB, 0, "a cache, a hole"},
                {64 * MIB - 1, 0, NULL}};
    for (size_t i = 0; i < countof(rows); i++) {
        struct environment_counts c = {.read_sectors = rows[i].delivered / 512};
        char reason[ENVIRONMENT_TEXT_BYTES] = "";
        ck_assert_int_eq(environment_delivered(&c, rows[i].asked, reason), rows[i].part == NULL);
        ck_assert_ptr_nonnull(strstr(reason, rows[i].part != NULL ? rows[i].part : ""));
    }
}
END_TEST

START_TEST(encryption_over_raid_is_walked_down_to_the_drives)
{
    crypt_over_md();
    look();
    ck_assert_uint_eq(env.device_count, 4);
    const struct environment_device *dm = device("dm-0");
    const struct environment_device *md = device("md0");
    const struct environment_device *first = device("nvme0n1");
    const struct environment_device *second = device("nvme1n1");
    ck_assert_int_eq(dm->kind, DEVICE_CRYPT);
    ck_assert_int_eq(md->kind, DEVICE_MD);
    ck_assert_ptr_eq(&env.device[env.place[0].top], dm);
    ck_assert_uint_eq(dm->below, 1U << (md - env.device));
    ck_assert_uint_eq(md->below, 1U << (first - env.device) | 1U << (second - env.device));
    ck_assert(environment_lowest(&env, (uint32_t)(first - env.device)));
    ck_assert(!environment_lowest(&env, (uint32_t)(md - env.device)));
    ck_assert_double_eq_tol(environment_temperature(&env), 45.0, 1e-9);
    ck_gate("dm_crypt", GATE_WARNING, "dm-0");
}
END_TEST

START_TEST(counters_are_those_of_the_file_system_and_of_the_drives)
{
    struct environment_diskstats before, after, d;
    char text[1024];
    crypt_over_md();
    snprintf(text, sizeof text, "   7 0 loop0 1 1 1 1 1 1 1 1 1 1 1\n"
             " %u %u dm-0 10 0 80 5 0 0 0 0 0 9 11\n"
             " 259 0 nvme0n1 100 1 1000 50 7 8 9 10 0 60 70 1 2 3 4\n"
             " 259 1 nvme1n1 200 2 2000 60 0 0 0 0 0 65 75\n garbage\n", number[0], number[1]);
    system_put(&root, text, "proc/diskstats");
    look();
    environment_diskstats(&env, &before);
    ck_assert(before.known);
    ck_assert_uint_eq(before.files.read_sectors, 80);
    ck_assert_uint_eq(before.drives.read_sectors, 3000);
    ck_assert_uint_eq(before.drives.read_ios, 300);
    ck_assert_uint_eq(before.drives.write_ms, 10);
    ck_assert_uint_eq(before.drives.busy_ms, 125);
    ck_assert_uint_eq(before.drives.queue_ms, 145);
    snprintf(text, sizeof text, " %u %u dm-0 12 0 96 6 0 0 0 0 3 10 12\n"
             " 259 0 nvme0n1 101 1 1008 51 7 8 9 10 0 61 71\n"
             " 259 1 nvme1n1 201 2 2008 61 0 0 0 0 0 66 76\n", number[0], number[1]);
    system_put(&root, text, "proc/diskstats");
    environment_diskstats(&env, &after);
    environment_diskstats_since(&before, &after, &d);
    ck_assert_uint_eq(d.files.read_ios, 2);
    ck_assert_uint_eq(d.files.read_sectors, 16);
    ck_assert_uint_eq(d.files.queue_ms, 1);
    ck_assert_uint_eq(d.drives.read_sectors, 16);
    ck_assert_uint_eq(d.drives.write_ios, 0);
    ck_assert_uint_eq(d.device[device("nvme1n1") - env.device].read_ms, 1);
}
END_TEST

START_TEST(a_partition_is_counted_alone)
{
    char at[TINY_PATH_BYTES];
    char text[256];
    struct environment_diskstats d;
    nvme_with_file(at);
    snprintf(text, sizeof text, "259 0 nvme0n1 9 0 900 1 0 0 0 0 0 1 1\n"
             "%u %u nvme0n1p2 4 0 400 1 0 0 0 0 0 1 1\n", number[0], number[1]);
    system_put(&root, text, "proc/diskstats");
    look();
    environment_diskstats(&env, &d);
    ck_assert_uint_eq(d.files.read_sectors, 400);
    ck_assert_uint_eq(d.drives.read_sectors, 900);
}
END_TEST

START_TEST(requests_cut_by_an_iommu_are_seen)
{
    char at[TINY_PATH_BYTES];
    nvme_with_file(at);
    system_put(&root, "128\n", "sys/devices/%s/queue/max_sectors_kb", at);
    system_put(&root, "none [mq-deadline] kyber\n", "sys/devices/%s/queue/scheduler", at);
    look();
    ck_assert_uint_eq(device("nvme0n1")->max_sectors_kb, 128);
    ck_assert_str_eq(device("nvme0n1")->scheduler, "mq-deadline");
}
END_TEST

START_TEST(a_virtual_disk_leaves_unknown_what_it_does_not_tell)
{
    static const char *const unknown[] = {"model", "fw", "serial", "link_speed", "link_width",
                                          "link_bw_bytes", "wbt", "temp_c", "cgroup_io_max"};
    cJSON *document;
    system_block(&root, DISK, number[0], number[1]);
    put_mount("rw", "ext4", "/dev/disk", "rw");
    look();
    ck_assert(isnan(environment_temperature(&env)));
    const cJSON *one = cJSON_GetArrayItem(cJSON_GetObjectItem(object(&document), "devices"), 0);
    for (size_t i = 0; i < countof(unknown); i++) {
        ck_assert_msg(cJSON_IsNull(cJSON_GetObjectItem(one, unknown[i])), "%s", unknown[i]);
    }
    ck_assert_int_eq(cJSON_GetObjectItem(one, "max_sectors_kb")->valueint, 1280);
    cJSON_Delete(document);
    for (uint32_t i = 0; i < gate_count; i++) {
        ck_assert_msg(strcmp(gates[i].code, "buffered") == 0, "%s", gates[i].reason);
    }
}
END_TEST

START_TEST(a_loop_device_lies_on_the_drive_of_its_file)
{
    char at[TINY_PATH_BYTES];
    struct stat st;
    ck_assert_int_eq(stat(root.dir, &st), 0);
    if (major(st.st_dev) == number[0] && minor(st.st_dev) == number[1]) {
        printf("skip: /tmp and /dev/shm are one file system here\n");
        return;
    }
    system_nvme(&root, 0, at);
    system_partition(&root, at, 1, major(st.st_dev), minor(st.st_dev));
    system_block(&root, "virtual/block/loop3", number[0], number[1]);
    system_put(&root, root.dir, "sys/devices/virtual/block/loop3/loop/backing_file");
    look();
    ck_assert_uint_eq(env.device_count, 2);
    ck_assert_int_eq(device("loop3")->kind, DEVICE_LOOP);
    ck_assert(!environment_lowest(&env, env.place[0].top));
    ck_gate("loop", GATE_WARNING, "loop3");
}
END_TEST

START_TEST(devices_that_lie_on_each_other_end_the_walk)
{
    system_block(&root, "virtual/block/md1", number[0], number[1]);
    system_block(&root, "virtual/block/md2", 9, 2);
    system_slaves(&root, "virtual/block/md1", "md1 md2 absent");
    system_slaves(&root, "virtual/block/md2", "md1");
    look();
    ck_assert_uint_eq(env.device_count, 2);
}
END_TEST

START_TEST(more_drives_than_there_is_room_for_are_left_out)
{
    char names[512] = "";
    system_block(&root, "virtual/block/md1", number[0], number[1]);
    for (uint32_t i = 0; i < ENVIRONMENT_DEVICES_MAX + 4; i++) {
        char at[64];
        snprintf(at, sizeof at, "virtual/block/sd%u", i);
        system_block(&root, at, 8, i);
        snprintf(names + strlen(names), sizeof names - strlen(names), "%ssd%u",
                 i > 0 ? " " : "", i);
    }
    system_slaves(&root, "virtual/block/md1", names);
    look();
    ck_assert_uint_eq(env.device_count, ENVIRONMENT_DEVICES_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("environment");
    TCase *drives = tcase_create("drives");
    tcase_add_checked_fixture(drives, looked_setup, looked_teardown);
    tcase_add_test(drives, an_nvme_drive_is_described_through_its_partition);
    tcase_add_test(drives, a_temperature_is_asked_anew);
    tcase_add_test(drives, a_drive_says_itself_when_it_is_too_hot);
    tcase_add_test(drives, a_slow_link_is_a_warning_that_knows_the_slot);
    tcase_add_test(drives, a_drive_with_several_controllers_has_its_link_and_temperature);
    tcase_add_test(drives, links_carry_what_their_coding_leaves);
    tcase_add_test(drives, counters_say_whether_the_drives_delivered);
    tcase_add_test(drives, encryption_over_raid_is_walked_down_to_the_drives);
    tcase_add_test(drives, counters_are_those_of_the_file_system_and_of_the_drives);
    tcase_add_test(drives, a_partition_is_counted_alone);
    tcase_add_test(drives, requests_cut_by_an_iommu_are_seen);
    tcase_add_test(drives, a_virtual_disk_leaves_unknown_what_it_does_not_tell);
    tcase_add_test(drives, a_loop_device_lies_on_the_drive_of_its_file);
    tcase_add_test(drives, devices_that_lie_on_each_other_end_the_walk);
    tcase_add_test(drives, more_drives_than_there_is_room_for_are_left_out);
    suite_add_tcase(suite, drives);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
