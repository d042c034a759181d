/* SPDX-License-Identifier: Apache-2.0 */

/* `k3ring doctor` as a user meets it, and what it says of machines that the tests make up. */

#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/cli/doctor.h"
#include "tests/support/command.h"
#include "tests/support/looked.h"
#include "tests/support/suite.h"

#define PAD_BYTES (28 * MIB) /* of each header: enough data to measure */

static struct tiny in_memory, on_disk, results;
static struct doctor doctor;

static cJSON *parse(const char *text)
{
    cJSON *root_object = json_parse(text, strlen(text), "the report", false);
    ck_assert_msg(root_object != NULL, "%s: %s", err_message(), text);
    return root_object;
}

static const cJSON *item(const cJSON *object_with, const char *name)
{
    const cJSON *found = cJSON_GetObjectItem(object_with, name);
    ck_assert_msg(found != NULL, "%s is not there", name);
    return found;
}

static void ck_said(const char *part)
{
    ck_assert_msg(strstr(process.out, part) != NULL, "no \"%s\" in:\n%s", part, process.out);
}

/* ---- the command ---- */

START_TEST(without_a_model_the_real_one_is_imagined_and_nothing_read)
{
    k3ring("doctor");
    expect(0, NULL);
    ck_assert_str_eq(process.err, "");
    ck_said("Linux ");
    ck_said("nothing is read");
    ck_said("RAM dial of Kimi K3");
    ck_said("k3ring doctor MODEL");
}
END_TEST

START_TEST(json_is_one_object_alone)
{
    static const char *const ways[] = {"doctor --json -", "doctor --json", "doctor --json --quiet"};
    for (size_t i = 0; i < countof(ways); i++) {
        k3ring("%s", ways[i]);
        expect(0, NULL);
        cJSON *found = parse(process.out);
        ck_assert(cJSON_IsNull(item(found, "model")));
        ck_assert_int_eq(cJSON_GetArraySize(item(found, "probe")), 0);
        ck_assert_int_eq(cJSON_GetArraySize(item(found, "gates")), 0);
        ck_assert_int_gt(cJSON_GetArraySize(item(found, "checks")), 5);
        ck_assert(cJSON_IsString(item(item(found, "environment"), "kernel")));
        const cJSON *dial = item(found, "dial");
        const cJSON *last = cJSON_GetArrayItem(dial, cJSON_GetArraySize(dial) - 1);
        ck_assert_str_eq(item(cJSON_GetArrayItem(dial, 0), "row")->valuestring, "floor");
        ck_assert_str_eq(item(last, "row")->valuestring, "all");
        ck_assert(cJSON_IsNull(item(last, "seconds_per_token")));
        cJSON_Delete(found);
    }
}
END_TEST

START_TEST(a_report_may_go_to_a_file_beside_the_page)
{
    char path[TINY_PATH_BYTES];
    size_t size;
    tiny_path(&results, "doctor.json", path);
    k3ring("doctor --json %s", path);
    expect(0, NULL);
    ck_said("RAM dial");
    char *text = (char *)tiny_read(&results, "doctor.json", &size);
    cJSON *found = json_parse(text, size, path, false);
    ck_assert_ptr_nonnull(found);
    cJSON_Delete(found);
    free(text);
    unlink(path);
    k3ring("doctor --json %s/absent/x", results.dir);
    expect_refusal(1, "absent/x");
}
END_TEST

START_TEST(wrong_words_are_refused)
{
    k3ring("doctor %s/absent", results.dir);
    expect_refusal(3, "absent");
    k3ring("doctor a b");
    expect_refusal(2, NULL);
    k3ring("doctor --jsn -");
    expect_refusal(2, "did you mean --json?");
    k3ring("doctor --help");
    expect(0, NULL);
    ck_said("--quiet");
}
END_TEST

START_TEST(a_model_in_memory_gets_no_figure_of_a_drive)
{
    struct stat st;
    if (stat("/dev/shm", &st) != 0) {
        printf("skip: there is no /dev/shm\n");
        return;
    }
    k3ring("doctor %s", in_memory.dir);
    expect(0, NULL);
    ck_said("lie in memory (tmpfs)");
    ck_said("no figure: reads of tmpfs would measure memory, not a drive");
    ck_said("--ids 3,141,59");
    ck_assert_ptr_null(strstr(process.out, "bound by"));
    k3ring("doctor %s --json", in_memory.dir);
    expect(0, NULL);
    cJSON *found = parse(process.out);
    const cJSON *probe = cJSON_GetArrayItem(item(found, "probe"), 0);
    ck_assert(cJSON_IsFalse(item(probe, "measured")));
    ck_assert(cJSON_IsNull(item(probe, "trunk_bw_bytes")));
    const cJSON *memory = cJSON_GetArrayItem(item(found, "gates"), 0);
    ck_assert_str_eq(item(memory, "code")->valuestring, "memory");
    ck_assert_str_eq(item(memory, "severity")->valuestring, "invalid");
    cJSON_Delete(found);
}
END_TEST

/* A drive, or a reason why there is none; never a figure without bytes. */
START_TEST(a_drive_is_measured_or_it_is_said_why_not)
{
    struct stat before, after;
    ck_assert_int_eq(stat(on_disk.dir, &before), 0);
    k3ring("doctor %s --json", on_disk.dir);
    expect(0, NULL);
    cJSON *found = parse(process.out);
    const cJSON *probe = cJSON_GetArrayItem(item(found, "probe"), 0);
    if (cJSON_IsTrue(item(probe, "measured"))) {
        ck_assert_double_gt(item(probe, "trunk_bw_bytes")->valuedouble, 0);
        ck_assert_double_gt(item(probe, "expert_bw_bytes")->valuedouble, 0);
        ck_assert_double_ge(item(probe, "read_bytes")->valuedouble, 64.0 * (double)MIB);
        const cJSON *first = cJSON_GetArrayItem(item(found, "dial"), 0);
        ck_assert_double_gt(item(first, "seconds_per_token")->valuedouble, 0);
    } else {
        printf("no drive: %s\n", item(probe, "why_not")->valuestring);
        ck_assert_uint_gt(strlen(item(probe, "why_not")->valuestring), 0);
        ck_assert(cJSON_IsNull(item(probe, "trunk_bw_bytes")));
    }
    cJSON_Delete(found);
    ck_assert_int_eq(stat(on_disk.dir, &after), 0);
    ck_assert_int_eq(before.st_mtim.tv_sec, after.st_mtim.tv_sec);
    ck_assert_int_eq(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
}
END_TEST

START_TEST(too_little_data_is_no_measurement)
{
    struct tiny few;
    tiny_make(&few, TINY_DISK);
    k3ring("doctor %s", few.dir);
    int status = process.status;
    tiny_remove(&few);
    ck_assert_int_eq(status, 0);
    ck_said("no figure: ");
    ck_assert_ptr_null(strstr(process.out, "bound by"));
}
END_TEST

START_TEST(holes_prevent_a_run_unless_the_model_is_synthetic)
{
    struct tiny holed;
    char path[TINY_PATH_BYTES];
    tiny_copy(&holed, &in_memory, TINY_DISK);
    tiny_path(&holed, tiny_shard(1), path);
    int fd = open(path, O_RDWR);
    bool punched = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 512 * 1024,
                             256 * 1024) == 0;
    close(fd);
    if (punched) {
        k3ring("doctor %s", holed.dir);
        expect(0, NULL);
        ck_said("as a synthetic model may have");
        tiny_path(&holed, MODEL_SYNTH_MARKER, path);
        unlink(path);
        k3ring("doctor %s", holed.dir);
        expect(1, "a run would not begin");
        ck_said("are holes");
        ck_said("cp --sparse=never");
    } else {
        printf("skip: no holes can be made in /tmp\n");
    }
    tiny_remove(&holed);
}
END_TEST

/* ---- machines made up ---- */

static void made_up(void)
{
    look();
    doctor = (struct doctor){.dir = "/data/it's a model", .env = env};
    doctor.gate_count = environment_gates(&doctor.env, doctor.gate);
    doctor_check_files(&doctor);
    doctor_check_drives(&doctor);
}

static const struct doctor_line *line_with(const char *part)
{
    for (uint32_t i = 0; i < doctor.line_count; i++) {
        if (strstr(doctor.line[i].text, part) != NULL) {
            return &doctor.line[i];
        }
    }
    ck_abort_msg("nothing says %s", part);
    return NULL;
}

static void ck_line(const char *part, enum doctor_mark mark, const char *remedy)
{
    const struct doctor_line *line = line_with(part);
    ck_assert_msg(line->mark == mark, "%s", line->text);
    ck_assert_msg(strstr(line->remedy, remedy) != NULL, "%s: %s", line->text, line->remedy);
}

START_TEST(a_good_drive_is_ok)
{
    char at[TINY_PATH_BYTES];
    nvme_with_file(at);
    made_up();
    ck_line("Fast Drive 2TB, firmware FW42; 16.0 GT/s PCIe x4, at most 7.8 GB/s; 42 C", DOCTOR_OK,
            "");
    ck_line("commands of 1280 KiB", DOCTOR_OK, "");
    ck_line("xfs on nvme0n1: 1 files", DOCTOR_OK, "");
}
END_TEST

START_TEST(what_slows_a_drive_is_named_with_its_remedy)
{
    char at[TINY_PATH_BYTES];
    nvme_with_file(at);
    system_put(&root, "128\n", "sys/devices/%s/queue/max_sectors_kb", at);
    system_put(&root, "128\n", "sys/devices/%s/queue/max_hw_sectors_kb", at);
    system_put(&root, "81000\n", "sys/devices/%s/../hwmon0/temp1_input", at);
    system_put(&root, "2\n", "sys/devices/%s/../../../current_link_width", at);
    made_up();
    ck_line("commands of 128 KiB", DOCTOR_NOTE, "iommu=pt");
    ck_line("81 C", DOCTOR_NOTE, "cool it");
    ck_line("its PCIe link runs at", DOCTOR_NOTE, "");
    system_put(&root, "1024\n", "sys/devices/%s/queue/max_hw_sectors_kb", at);
    system_put(&root, "1\n", "sys/devices/%s/queue/rotational", at);
    made_up();
    ck_line("commands of 128 KiB", DOCTOR_NOTE, "echo 1024 > /sys/block/nvme0n1/queue/max_sectors");
    ck_line("says that it spins", DOCTOR_PROBLEM, "SSD");
    system_put(&root, "1280\n", "sys/devices/%s/queue/max_sectors_kb", at);
    system_put(&root, "0\n", "sys/devices/%s/queue/rotational", at);
    system_put(&root, "[mq-deadline] none\n", "sys/devices/%s/queue/scheduler", at);
    made_up();
    ck_line("scheduler mq-deadline", DOCTOR_NOTE, "echo none > /sys/block/nvme0n1/queue/scheduler");
    system_put(&root, "[none]\n", "sys/devices/%s/queue/scheduler", at);
    system_put(&root, "32\n", "sys/devices/%s/queue/nr_requests", at);
    made_up();
    ck_line("32 requests", DOCTOR_NOTE, "--io-depth 4");
}
END_TEST

START_TEST(figures_that_no_drive_can_make_are_refused)
{
    char at[TINY_PATH_BYTES];
    nvme_with_file(at);
    made_up();
    struct doctor_rate *rate = &doctor.rate[0];
    *rate = (struct doctor_rate){.trunk_gbps = 6.5, .expert_gbps = 6.2,
                                 .bytes = 12700000000ULL};
    doctor_judge(&doctor, 0, rate->bytes);
    ck_assert(rate->measured);
    rate->trunk_gbps = 19.0; /* the page cache, or holes */
    doctor_judge(&doctor, 0, rate->bytes / 100);
    ck_assert(!rate->measured);
    ck_assert_ptr_nonnull(strstr(rate->why_not, "only 0.13 GB came from storage"));
    doctor_judge(&doctor, 0, rate->bytes);
    ck_assert(!rate->measured);
    ck_assert_ptr_nonnull(strstr(rate->why_not, "more than its link carries (7.76 GB/s)"));
}
END_TEST

START_TEST(drives_together_carry_what_their_links_do)
{
    crypt_over_md();
    made_up();
    doctor.rate[0] = (struct doctor_rate){.trunk_gbps = 15.0, .expert_gbps = 14.0, .bytes = 1000};
    doctor_judge(&doctor, 0, 1000);
    ck_assert(doctor.rate[0].measured);
    doctor.rate[0].trunk_gbps = 16.0;
    doctor_judge(&doctor, 0, 1000);
    ck_assert(!doctor.rate[0].measured);
}
END_TEST

START_TEST(drives_work_side_by_side_and_partitions_of_one_do_not)
{
    doctor = (struct doctor){.env = {.place_count = 2, .device_count = 2}};
    for (uint32_t i = 0; i < 2; i++) {
        doctor.env.place[i] = (struct environment_place){.bytes = 1000000000000, .top = i};
        doctor.rate[i] = (struct doctor_rate){.measured = true, .trunk_gbps = 6, .expert_gbps = 5};
    }
    doctor_combine(&doctor);
    ck_assert_double_eq_tol(doctor.trunk_gbps, 12, 1e-9);
    ck_assert_double_eq_tol(doctor.expert_gbps, 10, 1e-9);
    doctor.rate[1].trunk_gbps = 3; /* its half takes twice as long */
    doctor_combine(&doctor);
    ck_assert_double_eq_tol(doctor.trunk_gbps, 6, 1e-9);
    doctor.rate[1].trunk_gbps = 6;
    doctor.env.place[1].top = 0;
    doctor_combine(&doctor);
    ck_assert_double_eq_tol(doctor.trunk_gbps, 6, 1e-9);
    doctor.env.place[0].top = doctor.env.place[1].top = ENVIRONMENT_NONE;
    doctor_combine(&doctor);
    ck_assert_double_eq_tol(doctor.trunk_gbps, 12, 1e-9);
    doctor.trunk_gbps = 0;
    doctor.rate[1].measured = false;
    doctor_combine(&doctor);
    ck_assert_double_eq_tol(doctor.trunk_gbps, 0, 1e-9);
}
END_TEST

/* ---- the dial ---- */

static void imagine(uint64_t available_bytes)
{
    ck_assert_int_eq(doctor_open(&doctor, NULL, NULL), 0);
    doctor.dir = "/data/it's a model";
    doctor.env.system.available_bytes = available_bytes;
    doctor.trunk_gbps = doctor.expert_gbps = 7.0;
    doctor.memory_gbps = 20.0;
    ck_assert_int_eq(doctor_dial(&doctor), 0);
}

START_TEST(the_dial_of_the_real_model_has_its_known_numbers)
{
    imagine(24 * GIB);
    const struct doctor_row *floor_row = &doctor.row[0];
    const struct doctor_row *all = &doctor.row[doctor.row_count - 1];
    ck_assert_int_eq(floor_row->size, DOCTOR_FLOOR);
    ck_assert_uint_lt(floor_row->ram_bytes, GIB);
    double gb = (double)(floor_row->trunk_bytes + floor_row->expert_bytes) / 1e9;
    ck_assert_double_eq_tol(gb, 137.0, 0.5);
    ck_assert_double_eq_tol(floor_row->drive_s, gb / 7.0, 1e-6);
    ck_assert_double_eq_tol(floor_row->memory_s, 137.0 / 20.0, 0.05);
    for (uint32_t i = 1; i < doctor.row_count; i++) {
        const struct doctor_row *row = &doctor.row[i];
        ck_assert_uint_gt(row->ram_bytes, row[-1].ram_bytes);
        ck_assert_uint_le(row->trunk_bytes, row[-1].trunk_bytes);
        ck_assert_uint_le(row->expert_bytes, row[-1].expert_bytes);
        ck_assert_int_eq(row->fits, row->ram_bytes <= 24 * GIB);
    }
    ck_assert_int_eq(all->size, DOCTOR_ALL);
    ck_assert_uint_eq(all->trunk_bytes + all->expert_bytes, 0);
    ck_assert_str_eq(doctor.next, "k3ring run '/data/it'\\''s a model' --ids "
                     "1008,10484,318,15383,387 --gen 8 --ram 16G");
    doctor_close(&doctor);
}
END_TEST

START_TEST(too_little_memory_prevents_a_run)
{
    imagine(256 * MIB);
    ck_assert_uint_eq(doctor_forbidden(&doctor), 1);
    const struct doctor_line *line = line_with("a run needs at least");
    ck_assert(line->prevents);
    ck_assert_ptr_nonnull(strstr(line->remedy, "free memory"));
    ck_assert_ptr_nonnull(strstr(doctor.next, "k3ring doctor "));
    doctor_close(&doctor);
}
END_TEST

START_TEST(memory_is_read_at_some_rate)
{
    double gbps = doctor_memory_gbps(2);
    ck_assert(gbps > 0.01 && gbps < 10000);
}
END_TEST

static Suite *doctor_suite(void)
{
    Suite *suite = suite_create("doctor");
    TCase *words = tcase_create("command");
    tcase_set_timeout(words, 300);
    tcase_add_test(words, without_a_model_the_real_one_is_imagined_and_nothing_read);
    tcase_add_test(words, json_is_one_object_alone);
    tcase_add_test(words, a_report_may_go_to_a_file_beside_the_page);
    tcase_add_test(words, wrong_words_are_refused);
    tcase_add_test(words, a_model_in_memory_gets_no_figure_of_a_drive);
    tcase_add_test(words, a_drive_is_measured_or_it_is_said_why_not);
    tcase_add_test(words, too_little_data_is_no_measurement);
    tcase_add_test(words, holes_prevent_a_run_unless_the_model_is_synthetic);
    suite_add_tcase(suite, words);
    TCase *machines = tcase_create("machines");
    tcase_add_checked_fixture(machines, looked_setup, looked_teardown);
    tcase_add_test(machines, a_good_drive_is_ok);
    tcase_add_test(machines, what_slows_a_drive_is_named_with_its_remedy);
    tcase_add_test(machines, figures_that_no_drive_can_make_are_refused);
    tcase_add_test(machines, drives_together_carry_what_their_links_do);
    tcase_add_test(machines, drives_work_side_by_side_and_partitions_of_one_do_not);
    suite_add_tcase(suite, machines);
    TCase *dial = tcase_create("dial");
    tcase_set_timeout(dial, 120);
    tcase_add_test(dial, the_dial_of_the_real_model_has_its_known_numbers);
    tcase_add_test(dial, too_little_memory_prevents_a_run);
    tcase_add_test(dial, memory_is_read_at_some_rate);
    suite_add_tcase(suite, dial);
    return suite;
}

int main(void)
{
    if (process_binary() == NULL) {
        fprintf(stderr, "doctor_test: there is no k3ring beside the folder of this test\n");
        return EXIT_FAILURE;
    }
    tiny_make(&in_memory, TINY_MEMORY);
    tiny_make(&on_disk, TINY_DISK);
    for (uint32_t i = 0; i < TINY_SHARDS; i++) {
        tiny_pad_header(&on_disk, i, PAD_BYTES);
    }
    tiny_folder(&folder, TINY_MEMORY);
    tiny_folder(&results, TINY_DISK);
    int failed = suite_run(doctor_suite());
    tiny_remove(&in_memory);
    tiny_remove(&on_disk);
    tiny_remove(&folder);
    tiny_remove(&results);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
