/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/memory.h"
#include "tests/support/suite.h"

#define GROUP_BYTES (300 * MIB)
#define V1_MEMORY "/sys/fs/cgroup/memory"
#define V1_CPU "/sys/fs/cgroup/cpu"

START_TEST(what_is_available_is_less_than_the_machine_has)
{
    const char *why = NULL;
    uint64_t machine =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t bytes = memory_available(&why);
    ck_assert_uint_gt(bytes, 1 * MIB);
    ck_assert_uint_le(bytes, machine);
    ck_assert_ptr_nonnull(why);
    ck_assert_uint_gt(strlen(why), 0);
}
END_TEST

START_TEST(the_status_fields_follow_what_is_touched)
{
    const size_t size = 64 * MIB;
    uint64_t resident = memory_status("VmRSS:");
    uint64_t peak = memory_status("VmHWM:");
    ck_assert_uint_gt(resident, 0);
    ck_assert_uint_ge(peak, resident - resident / 4);
    char *block = malloc(size);
    for (size_t at = 0; at < size; at += PAGE_BYTES) {
        ((volatile char *)block)[at] = 1;
    }
    ck_assert_uint_ge(memory_status("VmRSS:"), resident + size / 10 * 9);
    ck_assert_uint_ge(memory_status("VmHWM:"), peak);
    free(block);
    ck_assert_uint_eq(memory_status("VmNothing:"), 0);
    ck_assert_uint_eq(memory_status("VmRS"), 0);
}
END_TEST

START_TEST(the_storage_counter_never_falls)
{
    uint64_t before = memory_storage_read_bytes();
    ck_assert_uint_ge(memory_storage_read_bytes(), before);
}
END_TEST

/* The value of body in a process of its own, whose affinity and groups may be changed. */
static int in_child(int (*body)(void))
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        _exit(body());
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "the child was killed");
    return WEXITSTATUS(status);
}

static int processors_of_one(void)
{
    cpu_set_t all;
    cpu_set_t one;
    if (sched_getaffinity(0, sizeof all, &all) != 0) {
        return 200;
    }
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            return sched_setaffinity(0, sizeof one, &one) == 0 ? (int)memory_processors() : 201;
        }
    }
    return 202;
}

START_TEST(processors_are_those_the_process_may_run_on)
{
    cpu_set_t all;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    ck_assert_uint_ge(memory_processors(), 1);
    ck_assert_uint_le(memory_processors(), (uint32_t)CPU_COUNT(&all));
    ck_assert_int_eq(in_child(processors_of_one), 1);
}
END_TEST

/* A group of this process's own below its present one. */
static char group[4300];

static bool put(const char *name, const char *text)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", group, name);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return false;
    }
    fputs(text, file);
    return fclose(file) == 0;
}

/* The path of this process in the v1 hierarchy of exactly one controller. */
static bool own_path(const char *controller, char *path, size_t capacity)
{
    char line[4200];
    bool found = false;
    FILE *file = fopen("/proc/self/cgroup", "r");
    char wanted[64];
    snprintf(wanted, sizeof wanted, ":%s:", controller);
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, wanted);
        if (at != NULL) {
            const char *rest = at + strlen(wanted);
            snprintf(path, capacity, "%.*s", (int)strcspn(rest, "\n"), rest);
            found = true;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

/* False, with the reason printed, when no v1 group can be made. A process that somebody has put
 * into a group stays there: the group is not the test's to change. */
static bool make_group(const char *mount, const char *controller)
{
    char path[4100];
    if (!own_path(controller, path, sizeof path)) {
        printf("skip: no v1 hierarchy of %s\n", controller);
        return false;
    }
    if (strcmp(path, "/") != 0) {
        printf("skip: this process is in a %s group of somebody else\n", controller);
        return false;
    }
    snprintf(group, sizeof group, "%s/k3ring-test-%ld", mount, (long)getpid());
    if (mkdir(group, 0755) != 0) {
        printf("skip: %s: %s\n", group, strerror(errno));
        return false;
    }
    return true;
}

static void remove_group(void)
{
    /* The kernel lets go of a group a moment after its last process. */
    for (int i = 0; i < 100 && rmdir(group) != 0 && errno == EBUSY; i++) {
        usleep(10000);
    }
}

/* Joins the group, or a group inside it, and looks. 0: the limit was seen. */
static int look_from_inside(void)
{
    const char *why;
    if (!put("cgroup.procs", "0")) {
        return 77;
    }
    uint64_t bytes = memory_available(&why);
    bool named = strstr(why, "cgroup (v1)") != NULL;
    return bytes <= GROUP_BYTES && bytes > GROUP_BYTES / 2 && named ? 0 : 1;
}

static int look_from_below(void)
{
    size_t length = strlen(group);
    snprintf(group + length, sizeof group - length, "/inner");
    if (mkdir(group, 0755) != 0) {
        return 77;
    }
    return look_from_inside();
}

/* The limits that are in force already, of this process's group and all above it. */
START_TEST(no_more_is_available_than_any_group_on_the_path_allows)
{
    char path[4100];
    char name[4300];
    const char *why;
    if (!own_path("memory", path, sizeof path)) {
        printf("skip: no v1 hierarchy of memory\n");
        return;
    }
    for (char *slash = path + strlen(path); slash != NULL; slash = strrchr(path, '/')) {
        *slash = '\0';
        unsigned long long limit;
        snprintf(name, sizeof name, V1_MEMORY "%s/memory.limit_in_bytes", path);
        FILE *file = fopen(name, "r");
        if (file != NULL && fscanf(file, "%llu", &limit) == 1) {
            ck_assert_uint_le(memory_available(&why), limit);
        }
        if (file != NULL) {
            fclose(file);
        }
    }
}
END_TEST

START_TEST(the_limit_of_a_memory_group_is_seen)
{
    const char *why;
    if (!make_group(V1_MEMORY, "memory")) {
        return;
    }
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)GROUP_BYTES);
    if (memory_available(&why) < 2 * GROUP_BYTES || !put("memory.limit_in_bytes", text)) {
        printf("skip: no room for a limit, or none can be set\n");
        remove_group();
        return;
    }
    int inside = in_child(look_from_inside);
    put("memory.use_hierarchy", "1");
    int below = in_child(look_from_below);
    size_t length = strlen(group);
    snprintf(group + length, sizeof group - length, "/inner");
    remove_group();
    group[length] = '\0';
    remove_group();
    if (inside == 77 || below == 77) {
        printf("skip: the group cannot be joined\n");
        return;
    }
    ck_assert_int_eq(inside, 0);
    ck_assert_int_eq(below, 0);
}
END_TEST

static int processors_from_inside(void)
{
    return put("cgroup.procs", "0") ? (int)memory_processors() : 77;
}

START_TEST(a_quota_of_processor_time_is_seen)
{
    if (memory_processors() < 2) {
        printf("skip: one processor\n");
        return;
    }
    if (!make_group(V1_CPU, "cpu")) {
        return;
    }
    if (!put("cpu.cfs_period_us", "100000") || !put("cpu.cfs_quota_us", "90000")) {
        printf("skip: no quota can be set\n");
        remove_group();
        return;
    }
    int processors = in_child(processors_from_inside);
    remove_group();
    if (processors == 77) {
        printf("skip: the group cannot be joined\n");
        return;
    }
    ck_assert_int_eq(processors, 1);
}
END_TEST

static Suite *memory_suite(void)
{
    TCase *figures = tcase_create("figures");
    tcase_add_test(figures, what_is_available_is_less_than_the_machine_has);
    tcase_add_test(figures, the_status_fields_follow_what_is_touched);
    tcase_add_test(figures, the_storage_counter_never_falls);
    tcase_add_test(figures, processors_are_those_the_process_may_run_on);
    TCase *groups = tcase_create("groups");
    tcase_set_timeout(groups, 30);
    tcase_add_test(groups, no_more_is_available_than_any_group_on_the_path_allows);
    tcase_add_test(groups, the_limit_of_a_memory_group_is_seen);
    tcase_add_test(groups, a_quota_of_processor_time_is_seen);
    Suite *suite = suite_create("memory");
    suite_add_tcase(suite, figures);
    suite_add_tcase(suite, groups);
    return suite;
}

int main(void)
{
    return suite_run(memory_suite()) == 0 ? 0 : 1;
}
