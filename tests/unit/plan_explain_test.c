/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "planner/plan.h"
#include "tests/support/checkpoint.h"
#include "tests/support/paper.h"
#include "tests/support/suite.h"

static struct model *k3;

static void open_model(void)
{
    struct model_config c;
    fake_config_k3(&c);
    k3 = paper_model(&c);
}

static void close_model(void)
{
    model_close(k3);
}

static struct plan *build(const struct model *model, const struct plan_request *request)
{
    struct plan *plan = NULL;
    err_clear();
    ck_assert_msg(plan_build(model, request, &plan) == 0, "%s", err_message());
    return plan;
}

static double number_at(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    ck_assert_msg(cJSON_IsNumber(item), "no number '%s'", name);
    return item->valuedouble;
}

static cJSON *printed_and_parsed(cJSON *root)
{
    char *text = cJSON_Print(root);
    ck_assert_ptr_nonnull(text);
    cJSON_Delete(root);
    cJSON *parsed = cJSON_Parse(text);
    ck_assert_msg(parsed != NULL, "%s", text);
    cJSON_free(text);
    return parsed;
}

static void expect_sums(const cJSON *root)
{
    const cJSON *account = cJSON_GetObjectItemCaseSensitive(root, "account");
    const cJSON *traffic = cJSON_GetObjectItemCaseSensitive(root, "traffic");
    const cJSON *passes = cJSON_GetObjectItemCaseSensitive(root, "pass_reads");
    double sum = 0;
    double windows = 0;
    double streamed = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, account) {
        sum += strcmp(item->string, "total") != 0 ? item->valuedouble : 0;
    }
    ck_assert(number_at(account, "total") > 0);
    ck_assert(sum == number_at(account, "total"));
    const cJSON *total = cJSON_GetObjectItemCaseSensitive(traffic, "total");
    cJSON_ArrayForEach(item, traffic) {
        if (item == total) {
            continue;
        }
        windows += number_at(item, "window_bytes");
        streamed += number_at(item, "streamed_bytes");
        ck_assert(number_at(item, "pinned_bytes") + number_at(item, "streamed_bytes") ==
                  number_at(item, "window_bytes"));
    }
    ck_assert(number_at(total, "window_bytes") == windows);
    ck_assert(number_at(total, "streamed_bytes") == streamed);
    ck_assert(number_at(cJSON_GetObjectItem(passes, "first"), "bytes") == windows);
    ck_assert(number_at(cJSON_GetObjectItem(passes, "later"), "bytes") == streamed);
}

START_TEST(the_json_parses_and_its_sums_agree)
{
    static const uint64_t rams[] = {1 * GIB, 40 * GIB, 4096 * GIB};
    const struct plan_request request = paper_request(rams[_i]);
    const struct plan_rates rates = {.device_gbps = 6.5, .compute_gbps = 30};
    struct plan *plan = build(k3, &request);
    cJSON *root = printed_and_parsed(plan_json(plan, k3, &rates));
    expect_sums(root);
    ck_assert(number_at(root, "ram_bytes") == (double)rams[_i]);
    ck_assert(number_at(root, "floor_bytes") == (double)plan->floor_bytes);
    ck_assert(number_at(root, "cache_slots") == plan->cache_slots);
    const cJSON *time = cJSON_GetObjectItem(root, "seconds_per_token");
    const cJSON *bottleneck = cJSON_GetObjectItem(time, "bottleneck");
    bool drive = number_at(time, "reading") > number_at(time, "computing");
    ck_assert_str_eq(bottleneck->valuestring, drive ? "drive" : "cores");
    cJSON_Delete(root);
    root = printed_and_parsed(plan_json(plan, k3, NULL));
    ck_assert_ptr_null(cJSON_GetObjectItem(root, "seconds_per_token"));
    cJSON_Delete(root);
    plan_free(plan);
}
END_TEST

START_TEST(the_explanation_fits_its_buffer_and_names_the_floor)
{
    const struct plan_request request = paper_request(1 * GIB);
    const struct plan_rates rates = {.device_gbps = 6.5, .compute_gbps = 30};
    struct plan *plan = build(k3, &request);
    static char text[8192];
    char floor[64];
    plan_explain(plan, k3, &rates, text, sizeof text);
    ck_assert_uint_lt(strlen(text), sizeof text - 1);
    snprintf(floor, sizeof floor, "floor %.2f MiB (%llu bytes)",
             (double)plan->floor_bytes / (double)MIB, (unsigned long long)plan->floor_bytes);
    ck_assert_msg(strstr(text, floor) != NULL, "%s\nnot in\n%s", floor, text);
    ck_assert_ptr_nonnull(strstr(text, "pins come first"));
    ck_assert_ptr_nonnull(strstr(text, "bound by the drive"));
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        ck_assert_ptr_nonnull(strchr(line, '\n'));
    }
    plan_free(plan);
}
END_TEST

/* All pinned by request, in so little more than it takes that less than two slots are left when the
 * kernel's page tables have theirs. */
START_TEST(room_for_page_tables_is_shown_and_not_offered)
{
    struct plan_request request = paper_request(4096 * GIB);
    static char text[8192];
    char line[64];
    request.pin_bytes = PLAN_ALL;
    request.expert_slots = 0;
    struct plan *plan = build(k3, &request);
    request.expert_slots = PLAN_AUTO;
    request.ram_bytes = plan->account.total + plan->account.total / 512 - 32 * MIB;
    plan_free(plan);
    plan = build(k3, &request);
    ck_assert_uint_eq(plan->cache_slots, 0);
    ck_assert_uint_gt(plan->page_tables_bytes, 2 * plan->slot_bytes);
    plan_explain(plan, k3, NULL, text, sizeof text);
    snprintf(line, sizeof line, "  page tables  %12.2f MiB",
             (double)plan->page_tables_bytes / (double)MIB);
    ck_assert_msg(strstr(text, line) != NULL, "%s", text);
    ck_assert_msg(strstr(text, "unused") == NULL, "%s", text);
    cJSON *root = printed_and_parsed(plan_json(plan, k3, NULL));
    ck_assert(number_at(root, "page_tables_bytes") == (double)plan->page_tables_bytes);
    cJSON_Delete(root);
    plan_free(plan);
}
END_TEST

START_TEST(an_explanation_is_cut_where_its_buffer_ends)
{
    const struct plan_request request = paper_request(1 * GIB);
    struct plan *plan = build(k3, &request);
    char whole[8192];
    char text[512];
    plan_explain(plan, k3, NULL, whole, sizeof whole);
    for (size_t capacity = 1; capacity < 256; capacity++) {
        memset(text, '#', sizeof text);
        plan_explain(plan, k3, NULL, text, capacity);
        ck_assert_uint_eq(strlen(text), capacity - 1);
        ck_assert_mem_eq(text, whole, capacity - 1);
        ck_assert_int_eq(text[capacity], '#');
    }
    plan_free(plan);
}
END_TEST

static Suite *explain_suite(void)
{
    TCase *text = tcase_create("text");
    tcase_set_timeout(text, 60);
    tcase_add_unchecked_fixture(text, open_model, close_model);
    tcase_add_loop_test(text, the_json_parses_and_its_sums_agree, 0, 3);
    tcase_add_test(text, the_explanation_fits_its_buffer_and_names_the_floor);
    tcase_add_test(text, room_for_page_tables_is_shown_and_not_offered);
    tcase_add_test(text, an_explanation_is_cut_where_its_buffer_ends);
    Suite *suite = suite_create("plan explain");
    suite_add_tcase(suite, text);
    return suite;
}

int main(void)
{
    return suite_run(explain_suite()) == 0 ? 0 : 1;
}
