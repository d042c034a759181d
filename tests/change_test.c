/* SPDX-License-Identifier: Apache-2.0 */
/* Shards that change under a running engine: cut, replaced, removed, overwritten. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/exec/batch.h"
#include "core/exec/score.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define WATCHDOG_SECONDS 120

static struct tiny original; /* never changed by a test */
static struct tiny_run run;

static void watch(void)
{
    alarm(WATCHDOG_SECONDS);
}

static void unwatch(void)
{
    alarm(0);
}

enum change {
    CHANGE_CUT, CHANGE_GROW, CHANGE_REPLACE, CHANGE_REMOVE, CHANGE_OVERWRITE, CHANGE_SPOIL
};

struct changer {
    const struct tiny *tiny;
    enum change change;
};

/* A file of shard 1's size that holds nothing but one byte. */
static void put_bytes(const struct tiny *tiny, const char *name, int byte)
{
    size_t size_bytes;
    unsigned char *file = tiny_read(tiny, tiny_shard(1), &size_bytes);
    memset(file, byte, size_bytes);
    tiny_put(tiny, name, file, size_bytes);
    free(file);
}

static void change_after_two(void *ctx, uint32_t step)
{
    const struct changer *c = ctx;
    char path[TINY_PATH_BYTES];
    char other[TINY_PATH_BYTES];
    if (step != 1) {
        return;
    }
    tiny_path(c->tiny, tiny_shard(1), path);
    tiny_path(c->tiny, "new", other);
    if (c->change == CHANGE_CUT) {
        tiny_truncate(c->tiny, tiny_shard(1), -(int64_t)MIB);
    } else if (c->change == CHANGE_GROW) {
        tiny_truncate(c->tiny, tiny_shard(1), (int64_t)MIB);
    } else if (c->change == CHANGE_REMOVE) {
        tiny_need(unlink(path) == 0, path);
    } else if (c->change == CHANGE_REPLACE) {
        put_bytes(c->tiny, "new", 0);
        tiny_need(rename(other, path) == 0, path);
    } else {
        put_bytes(c->tiny, tiny_shard(1), c->change == CHANGE_SPOIL ? 0xFF : 0);
    }
}

static void run_changed(enum change change)
{
    struct tiny copy;
    tiny_copy(&copy, &original, TINY_MEMORY);
    struct changer changer = {&copy, change};
    struct tiny_events events = {.after_step = change_after_two, .ctx = &changer};
    struct engine_options o = tiny_options(GOLDEN_STEPS);
    o.pin_bytes = 0;
    o.expert_slots = 0;
    tiny_generate(&copy, &o, GOLDEN_STEPS, &events, &run);
    tiny_remove(&copy);
}

START_TEST(a_shard_cut_while_running_is_named)
{
    run_changed(CHANGE_CUT);
    ck_assert(tiny_golden_so_far(&run));
    ck_assert_msg(run.rc == ERR_IO, "rc %d '%s'", run.rc, run.message);
    ck_assert_msg(strstr(run.message, tiny_shard(1)) != NULL, "%s", run.message);
    ck_assert_msg(strstr(run.message, "offset") != NULL, "%s", run.message);
    ck_assert_uint_le(run.count, 3); /* at most what was read ahead */
}
END_TEST

/* The tokens are right, yet nobody can know: something writes to the file. */
START_TEST(a_shard_that_grows_while_running_is_named)
{
    run_changed(CHANGE_GROW);
    ck_assert(tiny_golden_so_far(&run));
    ck_assert_msg(run.rc == ERR_IO, "rc %d '%s'", run.rc, run.message);
    ck_assert_msg(strstr(run.message, tiny_shard(1)) != NULL, "%s", run.message);
    ck_assert_msg(strstr(run.message, "its size went from") != NULL, "%s", run.message);
}
END_TEST

START_TEST(a_shard_replaced_or_removed_while_running_is_still_read)
{
    run_changed(CHANGE_REPLACE);
    ck_assert_msg(run.rc == 0, "%s", run.message);
    ck_assert_str_eq(run.hash, TINY_HASH);
    run_changed(CHANGE_REMOVE);
    ck_assert_msg(run.rc == 0, "%s", run.message);
    ck_assert_str_eq(run.hash, TINY_HASH);
}
END_TEST

START_TEST(a_shard_overwritten_in_place_while_running_is_found_out)
{
    run_changed(CHANGE_OVERWRITE);
    ck_assert_msg(run.rc == ERR_IO, "rc %d '%s'", run.rc, run.message);
    /* As a file that was shorter for a moment, or at the end by its time. */
    ck_assert_msg(strstr(run.message, tiny_shard(1)) != NULL, "%s", run.message);
}
END_TEST

/* Weights that are no numbers any more are not blamed on the download. */
START_TEST(numbers_that_are_none_are_explained_by_the_change)
{
    run_changed(CHANGE_SPOIL);
    ck_assert_msg(run.rc == ERR_IO, "rc %d '%s'", run.rc, run.message);
    ck_assert_msg(strstr(run.message, tiny_shard(1)) != NULL, "%s", run.message);
}
END_TEST

/* ---- other work than generate() ---- */

static bool one_request(void *ctx, struct batch_request *out)
{
    static const uint32_t ids[] = {1, 2, 3, 4};
    bool *given = ctx;
    *out = (struct batch_request){.ids = ids, .id_count = 4, .gen = 4};
    bool first = !*given;
    *given = true;
    return first;
}

static int no_result(void *ctx, const struct batch_result *result)
{
    (void)ctx;
    ck_abort_msg("a result of %u tokens", result->count);
}

static int score_four(struct engine *e)
{
    static const uint32_t ids[] = {1, 2, 3, 4};
    double logprob[4];
    struct score_request request = {.ids = ids, .id_count = 4, .window = 4, .stride = 4};
    struct score_result result = {.logprob = logprob};
    return score_run(e, &request, &result);
}

static int batch_one(struct engine *e)
{
    bool given = false;
    struct batch_source source = {.next = one_request, .done = no_result, .ctx = &given};
    struct engine_forecast forecast = {.prompt_passes = 1, .steps = 3, .prompt_tokens = 4,
                                       .step_tokens = 1};
    struct batch_totals totals;
    return batch_run(e, &source, &forecast, &totals);
}

/* The shard is another when the work begins, which is stopped at once, or meets no numbers. */
static void end_changed(int work(struct engine *e), bool logits_all, bool stopped)
{
    struct tiny copy;
    struct engine *e = NULL;
    tiny_copy(&copy, &original, TINY_MEMORY);
    struct engine_options o = tiny_options(GOLDEN_STEPS);
    o.pin_bytes = 0;
    o.expert_slots = 0;
    o.logits_all = logits_all;
    ck_assert_msg(engine_open(&e, copy.dir, &o) == 0, "%s", err_message());
    if (stopped) {
        engine_interrupt(e);
    } else {
        put_bytes(&copy, tiny_shard(1), 0xFF);
    }
    tiny_truncate(&copy, tiny_shard(1), (int64_t)MIB);
    int rc = work(e);
    ck_assert_msg(rc == ERR_IO, "rc %d '%s'", rc, err_message());
    ck_assert_msg(strstr(err_message(), tiny_shard(1)) != NULL, "%s", err_message());
    err_clear();
    engine_close(e);
    tiny_remove(&copy);
}

START_TEST(a_change_outweighs_that_scores_and_batches_were_stopped)
{
    end_changed(score_four, true, true);
    end_changed(batch_one, false, true);
}
END_TEST

START_TEST(a_change_explains_numbers_of_scores_and_batches)
{
    end_changed(score_four, true, false);
    end_changed(batch_one, false, false);
}
END_TEST

int main(void)
{
    tiny_make(&original, TINY_MEMORY);
    Suite *suite = suite_create("changes");
    TCase *tcase = tcase_create("while running");
    tcase_add_checked_fixture(tcase, watch, unwatch);
    tcase_set_timeout(tcase, WATCHDOG_SECONDS);
    tcase_add_test(tcase, a_shard_cut_while_running_is_named);
    tcase_add_test(tcase, a_shard_that_grows_while_running_is_named);
    tcase_add_test(tcase, a_shard_replaced_or_removed_while_running_is_still_read);
    tcase_add_test(tcase, a_shard_overwritten_in_place_while_running_is_found_out);
    tcase_add_test(tcase, numbers_that_are_none_are_explained_by_the_change);
    tcase_add_test(tcase, a_change_outweighs_that_scores_and_batches_were_stopped);
    tcase_add_test(tcase, a_change_explains_numbers_of_scores_and_batches);
    suite_add_tcase(suite, tcase);
    int failed = suite_run(suite);
    tiny_remove(&original);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
