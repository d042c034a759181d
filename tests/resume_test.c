/* SPDX-License-Identifier: Apache-2.0 */

/* A sequence that goes on behind the state of the one before: a text fed in any pieces, ended in
 * any way between them, by one engine or by several that hand over a file, gives the logits it
 * gives in one go, bit for bit. */

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/nondet.h"
#include "core/base/proc.h"
#include "core/exec/saved_state.h"
#include "tests/support/amount.h"
#include "tests/support/grid.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define POINTS AMOUNT(16, 8, 2)
#define TEXT 48U
#define DRAFTS 4U
#define PIECE_MAX 11U

static struct tiny tiny, files;
static uint32_t text[TEXT];
static uint64_t truth[TEXT]; /* digest of the logits after each id of the text */

static struct engine_options options_for(uint32_t context)
{
    struct engine_options options = tiny_options(1);
    options.context = context;
    options.prompt_tokens = PIECE_MAX;
    return options;
}

static void find_truth(void)
{
    struct engine_options options = options_for(TEXT);
    struct engine *e = NULL;
    struct rng rng = rng_seed(4);
    const float *logits;
    ck_assert_msg(engine_open(&e, tiny.dir, &options) == 0, "%s", err_message());
    ck_assert_int_eq(engine_begin(e, 1, TEXT - 1), 0);
    for (uint32_t at = 0; at < TEXT; at++) {
        text[at] = (uint32_t)rng_below(&rng, REF_VOCAB);
        ck_assert_msg(engine_pass(e, &text[at], 1, &logits) == 0, "%s", err_message());
        truth[at] = tiny_digest(logits);
    }
    ck_assert_int_eq(engine_end(e), 0);
    engine_close(e);
}

/* ---- pieces ---- */

struct walk {
    struct engine *e;
    struct rng rng;
    uint32_t at;             /* ids the state holds */
    uint32_t pieces, moves;
    char command[512];       /* that repeats the settings of the engine in turn */
};

static uint32_t below(struct walk *w, uint32_t bound)
{
    return (uint32_t)rng_below(&w->rng, bound);
}

static void check(const struct walk *w, uint32_t at, const float *logits)
{
    ck_assert_msg(tiny_digest(logits) == truth[at], "%s: other logits after id %u", w->command,
                  at);
}

/* True when the piece was cut short there, by an interrupt or without a word. */
static bool cut(struct walk *w, const uint32_t *ids, uint32_t count)
{
    const float *logits;
    uint32_t way = below(w, 12);
    if (way == 0) {
        engine_interrupt(w->e);
        ck_assert_int_eq(engine_pass(w->e, ids, count, &logits), ERR_STOPPED);
        err_clear();
    }
    return way <= 1;
}

/* False when it was cut short. */
static bool feed_prompt(struct walk *w, uint32_t count)
{
    uint32_t chunk = engine_plan_of(w->e)->chunk;
    const float *logits = NULL;
    for (uint32_t end = w->at + count; w->at < end;) {
        uint32_t now = (uint32_t)min_u64(chunk, end - w->at);
        if (cut(w, text + w->at, now)) {
            return false;
        }
        ck_assert_msg(engine_pass(w->e, text + w->at, now, &logits) == 0, "%s: %s", w->command,
                      err_message());
        w->at += now;
    }
    check(w, w->at - 1, logits);
    return true;
}

/* One pass after the prompt, with drafts of which some are right. Returns the tokens it took. */
static uint32_t feed_step(struct walk *w, uint32_t most)
{
    uint32_t ids[1 + DRAFTS];
    uint32_t width = below(w, (uint32_t)min_u64(most, 1 + DRAFTS));
    uint32_t right = below(w, width + 1);
    ids[0] = text[w->at];
    for (uint32_t i = 1; i <= width; i++) {
        uint32_t next = text[w->at + i];
        ids[i] = i <= right ? next : (next + 1) % REF_VOCAB;
    }
    ck_assert_msg(engine_try(w->e, ids, 1 + width) == 0, "%s: %s", w->command, err_message());
    for (uint32_t row = 0; row <= right; row++) {
        check(w, w->at + row, engine_logits(w->e, row));
    }
    engine_accept(w->e, right);
    w->at += 1 + right;
    return 1 + right;
}

/* More than is left is refused and changes nothing. */
static void ask_too_much(struct walk *w)
{
    ck_assert_int_eq(engine_resume(w->e, TEXT - w->at, 1), ERR_FIT);
    ck_assert_ptr_nonnull(strstr(err_message(), "are left"));
    err_clear();
    ck_assert_uint_eq(engine_position(w->e), w->at);
}

static void feed_piece(struct walk *w)
{
    uint32_t left = TEXT - w->at;
    uint32_t prompt = 1 + below(w, (uint32_t)min_u64(left, PIECE_MAX));
    uint32_t steps = below(w, left - prompt + 1);
    if (w->at == 0) {
        ck_assert_int_eq(engine_begin(w->e, prompt, steps), 0);
    } else {
        ask_too_much(w);
        ck_assert_msg(engine_resume(w->e, prompt, steps) == 0, "%s: %s", w->command,
                      err_message());
    }
    bool goes_on = feed_prompt(w, prompt);
    while (goes_on && steps > 0 && !cut(w, text + w->at, 1)) {
        steps -= feed_step(w, steps);
    }
    ck_assert_msg(engine_end(w->e) == 0, "%s: %s", w->command, err_message());
    engine_interrupt_clear(w->e);
    ck_assert_uint_eq(engine_position(w->e), w->at);
}

static struct engine_options point_options(const struct grid_point *point)
{
    struct engine_options options;
    grid_options(point, PIECE_MAX, TEXT - PIECE_MAX, &options);
    options.drafts = DRAFTS;
    grid_floor(tiny.dir, &options);
    return options;
}

static void open_point(struct walk *w, uint64_t seed)
{
    struct grid_point point = grid_random(seed);
    struct engine_options options = point_options(&point);
    grid_command(&point, options.ram_bytes, TEXT, w->command, sizeof w->command);
    ck_assert_msg(engine_open(&w->e, tiny.dir, &options) == 0, "%s: %s", w->command,
                  err_message());
}

/* The state goes through a file to an engine of other settings. */
static void move(struct walk *w, uint64_t seed)
{
    struct saved_extra extra = {.tag = SAVED_IDS, .ids = text, .id_count = w->at + below(w, 2)};
    struct saved_state s;
    char path[TINY_PATH_BYTES];
    tiny_path(&files, "state", path);
    FILE *file = fopen(path, "wbe");
    ck_assert_ptr_nonnull(file);
    ck_assert_msg(saved_state_write(w->e, &extra, file) == 0, "%s", err_message());
    ck_assert_int_eq(fclose(file), 0);
    engine_close(w->e);
    open_point(w, seed);
    ck_assert_msg(saved_state_open(&s, path) == 0, "%s", err_message());
    ck_assert_uint_eq(s.positions, w->at);
    ck_assert_uint_eq(s.id_count, extra.id_count);
    ck_assert_mem_eq(s.ids, text, s.id_count * sizeof *text);
    ck_assert_msg(saved_state_load(&s, w->e) == 0, "%s: %s", w->command, err_message());
    saved_state_close(&s);
    ck_assert_uint_eq(engine_position(w->e), w->at);
    w->moves++;
}

START_TEST(a_text_fed_in_any_pieces_gives_the_bits_of_one_go)
{
    struct walk w = {.rng = rng_seed((uint64_t)_i)};
    open_point(&w, 9100 + (uint64_t)_i);
    for (int text_again = 0; text_again < 2; text_again++) { /* begin clears what was held */
        w.at = 0;
        while (w.at < TEXT) {
            feed_piece(&w);
            w.pieces++;
            if (w.at < TEXT && below(&w, 3) == 0) {
                move(&w, 9200 + (uint64_t)_i * 100 + w.pieces);
            }
        }
    }
    engine_close(w.e);
    ck_assert_uint_gt(w.pieces, 2);
}
END_TEST

/* ---- failures ---- */

/* Two sequences over a drive whose fail_read-th read fails. Returns what the second one's pass
 * said; *reads: those of the first. */
static int two_sequences(uint64_t fail_read, struct engine **e, uint64_t *reads)
{
    struct engine_options options = options_for(TEXT);
    struct engine_stats stats;
    const float *logits;
    options.io = IO_SIM;
    options.stepped = true;
    options.pin_bytes = 0;
    options.expert_slots = 0;
    options.sim = (struct io_sim_options){.seed = 3, .fail_read = fail_read, .fail_errno = EIO};
    ck_assert_int_eq(engine_open(e, tiny.dir, &options), 0);
    ck_assert_int_eq(engine_begin(*e, 4, 0), 0);
    ck_assert_msg(engine_pass(*e, text, 4, &logits) == 0, "%s", err_message());
    ck_assert_int_eq(engine_end(*e), 0);
    engine_stats(*e, &stats);
    *reads = stats.io.requests;
    ck_assert_int_eq(engine_resume(*e, 4, 0), 0);
    return engine_pass(*e, text + 4, 4, &logits);
}

START_TEST(after_a_pass_that_failed_in_its_middle_nothing_goes_on)
{
    struct engine *e = NULL;
    uint64_t reads;
    uint64_t ignored;
    ck_assert_int_eq(two_sequences(0, &e, &reads), 0);
    ck_assert_int_eq(engine_end(e), 0);
    engine_close(e);
    ck_assert_int_eq(two_sequences(reads + 40, &e, &ignored), ERR_IO);
    engine_end(e);
    err_clear();
    ck_assert_int_eq(engine_resume(e, 1, 0), ERR_IO);
    ck_assert_ptr_nonnull(strstr(err_message(), "half a state"));
    ck_assert_ptr_nonnull(strstr(err_message(), ".safetensors"));
    err_clear();
    engine_close(e);
}
END_TEST

/* ---- generate() ---- */

static void open_golden(struct engine **e, uint32_t context, uint32_t drafts)
{
    struct engine_options options = options_for(context);
    options.drafts = drafts;
    ck_assert_msg(engine_open(e, tiny.dir, &options) == 0, "%s", err_message());
}

static void golden_prompt_ids(uint32_t ids[GOLDEN_PROMPT])
{
    for (uint32_t i = 0; i < GOLDEN_PROMPT; i++) {
        ids[i] = (uint32_t)golden_prompt[i];
    }
}

static void note_logits(void *ctx, uint32_t step, const float *logits)
{
    uint64_t *digest = ctx;
    digest[step] = tiny_digest(logits);
}

static void check_golden(const uint32_t *ids, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_eq(ids[i], (uint32_t)golden_ids[first + i]);
    }
}

START_TEST(generation_that_goes_on_makes_the_tokens_of_an_unbroken_one)
{
    struct engine *e = NULL;
    uint32_t ids[GOLDEN_PROMPT + GOLDEN_STEPS];
    uint64_t whole[GOLDEN_STEPS];
    uint64_t parts[GOLDEN_STEPS];
    uint32_t *made = ids + GOLDEN_PROMPT;
    golden_prompt_ids(ids);
    open_golden(&e, GOLDEN_PROMPT + GOLDEN_STEPS, DRAFTS);
    struct generate_request r = {.ids = ids, .id_count = GOLDEN_PROMPT, .gen = GOLDEN_STEPS,
                                 .drafts = DRAFTS, .drafts_fixed = true,
                                 .on_logits = note_logits, .ctx = whole};
    struct generate_result result = {.ids = made};
    ck_assert_int_eq(generate(e, &r, &result), 0);
    for (uint32_t first = 1; first < GOLDEN_STEPS; first++) {
        r.resume = false;
        r.ids = ids;
        r.id_count = GOLDEN_PROMPT;
        r.past_count = 0;
        r.gen = first;
        r.ctx = parts;
        ck_assert_int_eq(generate(e, &r, &result), 0);
        ck_assert_uint_eq(engine_position(e), GOLDEN_PROMPT + first - 1);
        r.resume = true;
        r.past = ids;
        r.past_count = engine_position(e);
        r.ids = ids + engine_position(e);
        r.id_count = 1;
        r.gen = GOLDEN_STEPS - first;
        r.ctx = parts + first;
        result.ids = made + first;
        ck_assert_msg(generate(e, &r, &result) == 0, "%s", err_message());
        check_golden(made, 0, GOLDEN_STEPS);
        ck_assert_mem_eq(parts, whole, sizeof whole);
        result.ids = made;
    }
    engine_close(e);
}
END_TEST

START_TEST(generation_ends_with_the_context_and_says_so)
{
    struct engine *e = NULL;
    uint32_t ids[GOLDEN_PROMPT];
    uint32_t made[GOLDEN_STEPS];
    golden_prompt_ids(ids);
    open_golden(&e, GOLDEN_PROMPT + 5, 0);
    struct generate_request r = {.ids = ids, .id_count = GOLDEN_PROMPT, .gen = GOLDEN_STEPS};
    struct generate_result result = {.ids = made};
    ck_assert_int_eq(generate(e, &r, &result), 0);
    ck_assert_uint_eq(result.count, 5);
    ck_assert_str_eq(generate_finish_name(result.finish), "context");
    check_golden(made, 0, 5);
    r.gen = 5;
    ck_assert_int_eq(generate(e, &r, &result), 0);
    ck_assert_int_eq(result.finish, FINISH_LENGTH);
    r.stop = &made[4];
    r.stop_count = 1;
    r.gen = GOLDEN_STEPS;
    ck_assert_int_eq(generate(e, &r, &result), 0);
    ck_assert_int_eq(result.finish, FINISH_STOP);
    /* All positions but one are held, and the last token made has the last one. */
    r.resume = true;
    r.ids = &made[4];
    r.id_count = 1;
    ck_assert_int_eq(generate(e, &r, &result), ERR_FIT);
    ck_assert_ptr_nonnull(strstr(err_message(), "no room"));
    ck_assert_uint_eq(result.count, 0);
    err_clear();
    engine_close(e);
}
END_TEST

/* A handler that stops an engine runs on the thread that closes it, never beside it. */
START_TEST(signals_are_for_the_thread_that_opened_the_engine)
{
    struct engine_options options = options_for(TEXT);
    struct engine *e = NULL;
    uint32_t others = 0;
    options.io = IO_PREAD;
    ck_assert_msg(engine_open(&e, tiny.dir, &options) == 0, "%s", err_message());
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        char status[4096];
        if (atol(entry->d_name) <= 0 || atol(entry->d_name) == getpid() ||
            !proc_text(status, sizeof status, "/proc/self/task/%s/status", entry->d_name)) {
            continue;
        }
        unsigned long long held = strtoull(strstr(status, "SigBlk:") + 7, NULL, 16);
        unsigned long long ask = 1ULL << (SIGINT - 1) | 1ULL << (SIGTERM - 1) |
                                 1ULL << (SIGHUP - 1);
        ck_assert_msg((held & ask) == ask, "a thread takes signals: %s", status);
        others++;
    }
    closedir(tasks);
    engine_close(e);
    ck_assert_uint_ge(others, 3); /* reads, a pread, a worker */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("resume");
    TCase *tests = tcase_create("sequences that go on");
    tcase_set_timeout(tests, 600);
    tcase_add_unchecked_fixture(tests, find_truth, NULL);
    tcase_add_loop_test(tests, a_text_fed_in_any_pieces_gives_the_bits_of_one_go, 0, POINTS);
    tcase_add_test(tests, after_a_pass_that_failed_in_its_middle_nothing_goes_on);
    tcase_add_test(tests, generation_that_goes_on_makes_the_tokens_of_an_unbroken_one);
    tcase_add_test(tests, generation_ends_with_the_context_and_says_so);
    tcase_add_test(tests, signals_are_for_the_thread_that_opened_the_engine);
    suite_add_tcase(suite, tests);
    tiny_make(&tiny, TINY_MEMORY);
    tiny_folder(&files, TINY_MEMORY);
    int failed = suite_run(suite);
    tiny_remove(&tiny);
    tiny_remove(&files);
    return failed == 0 ? 0 : 1;
}
