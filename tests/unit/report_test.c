/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cli/report.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define GEN_MAX 3

/* One run of the tiny model and what the report says of it. */
struct session {
    struct engine *engine;
    uint32_t prompt[8], ids[GEN_MAX];
    struct generate_request request;
    struct generate_result result;
    struct run_report report;
};

static struct tiny tiny;
static struct session session;

static void run(uint32_t gen)
{
    struct session *s = &session;
    *s = (struct session){.request = {.ids = s->prompt, .gen = gen}, .result = {.ids = s->ids}};
    for (uint32_t i = 0; i < GOLDEN_PROMPT && i < countof(s->prompt); i++) {
        s->prompt[i] = (uint32_t)golden_prompt[i];
        s->request.id_count++;
    }
    struct engine_options options = tiny_options(gen);
    options.expert_slots = 20;
    err_clear();
    ck_assert_msg(engine_open(&s->engine, tiny.dir, &options) == 0, "%s", err_message());
    ck_assert_msg(generate(s->engine, &s->request, &s->result) >= 0, "%s", err_message());
    s->report = (struct run_report){.engine = s->engine, .request = &s->request,
                                    .result = &s->result, .storage_read_bytes = 12345};
    engine_stats(s->engine, &s->report.stats);
    engine_facts(s->engine, &s->report.facts);
}

static void setup(void)
{
    tiny_make(&tiny, TINY_MEMORY);
}

static void teardown(void)
{
    engine_close(session.engine);
    session.engine = NULL;
    tiny_remove(&tiny);
}

static const cJSON *member(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    ck_assert_msg(item != NULL, "no '%s'", name);
    return item;
}

static double number_at(const cJSON *object, const char *name)
{
    const cJSON *item = member(object, name);
    ck_assert_msg(cJSON_IsNumber(item), "'%s' is no number", name);
    return item->valuedouble;
}

static cJSON *parsed(void)
{
    cJSON *root = report_json(&session.report);
    char *text = cJSON_Print(root);
    ck_assert_ptr_nonnull(text);
    cJSON_Delete(root);
    root = cJSON_Parse(text);
    ck_assert_msg(root != NULL, "%s", text);
    cJSON_free(text);
    return root;
}

static void expect_ids(const cJSON *array, const uint32_t *ids, uint32_t count)
{
    ck_assert(cJSON_IsArray(array));
    ck_assert_int_eq(cJSON_GetArraySize(array), (int)count);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert(cJSON_GetArrayItem(array, (int)i)->valuedouble == ids[i]);
    }
}

START_TEST(the_report_says_what_was_generated)
{
    char hash[65];
    run(GEN_MAX);
    cJSON *root = parsed();
    expect_ids(member(root, "prompt_ids"), session.prompt, session.request.id_count);
    expect_ids(member(root, "generated_ids"), session.ids, GEN_MAX);
    generate_hash_text(session.result.hash, hash);
    ck_assert_str_eq(member(root, "logits_hash")->valuestring, hash);
    ck_assert_str_eq(member(root, "finish_reason")->valuestring, "length");
    ck_assert_ptr_null(cJSON_GetObjectItem(root, "error"));
    ck_assert(number_at(member(root, "seconds_per_token"), "first") > 0);
    ck_assert(number_at(member(root, "seconds_per_token"), "rest") > 0);
    ck_assert(number_at(root, "passes") == (double)session.report.stats.passes);
    cJSON_Delete(root);
}
END_TEST

START_TEST(the_reads_of_all_classes_add_up)
{
    static const char *const classes[] = {"trunk", "experts", "embed", "head"};
    run(GEN_MAX);
    cJSON *root = parsed();
    const cJSON *reads = member(root, "reads");
    double bytes = 0;
    double requests = 0;
    for (size_t i = 0; i < countof(classes); i++) {
        const cJSON *one = member(reads, classes[i]);
        ck_assert(number_at(one, "bytes") >= number_at(one, "payload_bytes"));
        ck_assert(number_at(one, "payload_bytes") > 0);
        bytes += number_at(one, "bytes");
        requests += number_at(one, "requests");
    }
    ck_assert(number_at(reads, "bytes") == bytes);
    ck_assert(number_at(reads, "requests") == requests);
    ck_assert(number_at(reads, "storage_read_bytes") == 12345);
    const cJSON *cache = member(root, "cache");
    ck_assert(number_at(cache, "slots") == 20);
    ck_assert(number_at(cache, "hits") + number_at(cache, "misses") ==
              number_at(cache, "demands"));
    ck_assert(number_at(cache, "demands") > 0);
    cJSON_Delete(root);
}
END_TEST

START_TEST(the_report_holds_the_settings_and_the_plan_in_force)
{
    run(1);
    cJSON *root = parsed();
    const struct plan *plan = engine_plan_of(session.engine);
    const cJSON *settings = member(root, "settings");
    ck_assert(number_at(settings, "io_depth") == plan->request.io_depth);
    ck_assert(number_at(settings, "io_size") == (double)plan->io_size_bytes);
    ck_assert(number_at(settings, "ram_bytes") == (double)session.report.facts.ram_bytes);
    ck_assert(number_at(settings, "files") == TINY_SHARDS);
    ck_assert_str_eq(member(settings, "isa")->valuestring, session.report.facts.isa);
    ck_assert(number_at(member(root, "plan"), "floor_bytes") == (double)plan->floor_bytes);
    ck_assert(number_at(root, "peak_rss_bytes") > 0);
    cJSON_Delete(root);
}
END_TEST

START_TEST(of_an_interrupted_run_the_slab_is_null_as_it_was_not_counted)
{
    static const char *const names[] = {"slab_bytes", "slab_huge_bytes"};
    run(1);
    cJSON *root = parsed();
    ck_assert(number_at(member(root, "settings"), "slab_bytes") > 0);
    ck_assert(number_at(member(root, "settings"), "slab_huge_bytes") >= 0);
    cJSON_Delete(root);
    engine_interrupt(session.engine);
    engine_facts(session.engine, &session.report.facts);
    root = parsed();
    for (size_t i = 0; i < countof(names); i++) {
        ck_assert_msg(cJSON_IsNull(member(member(root, "settings"), names[i])), "%s", names[i]);
    }
    cJSON_Delete(root);
}
END_TEST

START_TEST(after_one_token_the_rate_of_the_rest_is_null)
{
    run(1);
    cJSON *root = parsed();
    ck_assert(cJSON_IsNull(member(member(root, "seconds_per_token"), "rest")));
    cJSON_Delete(root);
}
END_TEST

START_TEST(a_failed_run_is_reported_with_its_message)
{
    run(1);
    session.report.error = "layer 3: a \"quoted\" reason";
    cJSON *root = parsed();
    ck_assert_str_eq(member(root, "error")->valuestring, session.report.error);
    cJSON_Delete(root);
}
END_TEST

START_TEST(the_lines_for_people_go_to_standard_error)
{
    char text[4096];
    FILE *file = tmpfile();
    run(2);
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
    report_settings(session.engine);
    report_print(&session.report);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    ck_assert_ptr_nonnull(strstr(text, "k3ring: io="));
    ck_assert_ptr_nonnull(strstr(text, "k3ring: read "));
    ck_assert_ptr_nonnull(strstr(text, "s per token\n"));
    ck_assert_ptr_null(strstr(text, "nan"));
    ck_assert_ptr_null(strstr(text, "(null)"));
}
END_TEST

static Suite *report_suite(void)
{
    TCase *report = tcase_create("report");
    tcase_set_timeout(report, 60);
    tcase_add_checked_fixture(report, setup, teardown);
    tcase_add_test(report, the_report_says_what_was_generated);
    tcase_add_test(report, the_reads_of_all_classes_add_up);
    tcase_add_test(report, the_report_holds_the_settings_and_the_plan_in_force);
    tcase_add_test(report, of_an_interrupted_run_the_slab_is_null_as_it_was_not_counted);
    tcase_add_test(report, after_one_token_the_rate_of_the_rest_is_null);
    tcase_add_test(report, a_failed_run_is_reported_with_its_message);
    tcase_add_test(report, the_lines_for_people_go_to_standard_error);
    Suite *suite = suite_create("report");
    suite_add_tcase(suite, report);
    return suite;
}

int main(void)
{
    return suite_run(report_suite()) == 0 ? 0 : 1;
}
