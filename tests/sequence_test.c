/* SPDX-License-Identifier: Apache-2.0 */

/* Many tokens and many sequences. A long generation must give the same bits whether everything
 * streams or nothing does; and an engine that has served a sequence, also one that was cut short,
 * must serve the next as if it were new. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/account.h"
#include "tests/support/amount.h"
#include "tests/support/farm.h"
#include "tests/support/grid.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define LONG_GEN AMOUNT(256, 256, 48)
#define SEQUENCE_JOBS AMOUNT(20, 10, 4)
#define LIMIT_SECONDS 600
#define WORKERS 4

static struct tiny disk, memory;

/* ---- a long generation ---- */

/* Digests of single steps, and the hash of all; shared with the jobs. */
struct course {
    uint64_t step[LONG_GEN];
    unsigned char hash[LOGITS_HASH_BYTES];
    bool known;
};

struct setting {
    enum grid_pin pin;
    uint32_t threads, depth;
    enum io_engine io;
};

/* Every two of these values meet. The first is what the others are compared with. */
static const struct setting settings[] = {
    {PIN_WHOLE, 1, 1, IO_PREAD}, {PIN_NONE, 1, 1, IO_URING},   {PIN_NONE, 2, 64, IO_PREAD},
    {PIN_NONE, 3, 64, IO_URING}, {PIN_HALF, 1, 64, IO_PREAD},  {PIN_HALF, 2, 1, IO_URING},
    {PIN_HALF, 3, 1, IO_PREAD},  {PIN_WHOLE, 2, 64, IO_URING}, {PIN_WHOLE, 3, 64, IO_PREAD},
};

struct listener {
    struct course *course;
    uint32_t first_wrong; /* step; LONG_GEN = none */
};

static void on_logits(void *ctx, uint32_t step, const float *logits)
{
    struct listener *l = ctx;
    uint64_t digest = tiny_digest(logits);
    if (!l->course->known) {
        l->course->step[step] = digest;
    } else if (l->course->step[step] != digest && l->first_wrong == LONG_GEN) {
        l->first_wrong = step;
    }
}

static void golden_request(uint32_t ids[GOLDEN_PROMPT], uint32_t gen,
                           struct generate_request *request)
{
    for (int i = 0; i < GOLDEN_PROMPT; i++) {
        ids[i] = (uint32_t)golden_prompt[i];
    }
    *request = (struct generate_request){.ids = ids, .id_count = GOLDEN_PROMPT, .gen = gen};
}

/* The least RAM these options can do with. */
static uint64_t floor_of(const struct engine_options *options)
{
    struct engine_options large = *options;
    struct model *model;
    struct plan *plan;
    large.ram_bytes = GIB;
    tiny_need(engine_plan(memory.dir, &large, &model, &plan) >= 0, "engine_plan");
    uint64_t floor_bytes = plan->floor_bytes;
    plan_free(plan);
    model_close(model);
    return floor_bytes;
}

static struct engine_options setting_options(const struct setting *setting)
{
    struct engine_options options = tiny_options(LONG_GEN);
    options.threads = setting->threads;
    options.io_depth = setting->depth;
    options.io = setting->io;
    options.chunk = GOLDEN_PROMPT;
    options.pin_bytes = setting->pin == PIN_WHOLE ? PLAN_ALL : 0;
    options.pin_percent = setting->pin == PIN_HALF ? 50.0 : -1.0;
    options.expert_slots = setting->pin == PIN_WHOLE ? PLAN_ALL : setting->pin == PIN_HALF ? 40 : 0;
    options.ram_bytes = setting->pin == PIN_NONE ? floor_of(&options) : 64 * MIB;
    return options;
}

static void run_long(void *ctx, uint32_t job, char *why, size_t why_bytes)
{
    struct course *course = ctx;
    struct engine_options options = setting_options(&settings[course->known ? job + 1 : 0]);
    struct listener listener = {course, LONG_GEN};
    struct generate_request request;
    struct engine *e = NULL;
    uint32_t ids[GOLDEN_PROMPT];
    uint32_t made[LONG_GEN];
    struct generate_result result = {.ids = made};
    golden_request(ids, LONG_GEN, &request);
    request.on_logits = on_logits;
    request.ctx = &listener;
    if (engine_open(&e, memory.dir, &options) < 0 || generate(e, &request, &result) < 0) {
        snprintf(why, why_bytes, "%s", err_message());
    } else if (!course->known) {
        memcpy(course->hash, result.hash, sizeof course->hash);
    } else if (memcmp(course->hash, result.hash, sizeof course->hash) != 0) {
        snprintf(why, why_bytes, "other logits, first at step %u of %u", listener.first_wrong,
                 LONG_GEN);
    }
    engine_close(e);
}

static void describe_long(void *ctx, uint32_t job, char *text, size_t text_bytes)
{
    static const char *const pins[] = {"0 --expert-slots 0", "50% --expert-slots 40",
                                       "all --expert-slots all"};
    static const char *const backends[] = {"uring", "pread"};
    const struct course *course = ctx;
    const struct setting *s = &settings[course->known ? job + 1 : 0];
    snprintf(text, text_bytes, "k3ring run TINY --ids 3,141,59,26,53,58,97,93 --gen %d --chunk 8 "
             "--pin %s --threads %u --io-depth %u --io %s --ram %llu", LONG_GEN, pins[s->pin],
             s->threads, s->depth, backends[s->io],
             (unsigned long long)setting_options(s).ram_bytes);
}

START_TEST(a_long_generation_is_the_same_from_floor_to_resident)
{
    struct course *course = farm_memory(sizeof *course);
    struct farm farm = {.jobs = 1, .workers = 1, .limit_seconds = LIMIT_SECONDS, .run = run_long,
                        .describe = describe_long, .ctx = course};
    ck_assert_uint_eq(farm_run(&farm, 1), 0);
    course->known = true;
    farm.jobs = countof(settings) - 1;
    farm.workers = WORKERS;
    ck_assert_uint_eq(farm_run(&farm, farm.jobs), 0);
    printf("note: %d tokens, %zu settings\n", LONG_GEN, countof(settings));
    fflush(stdout);
}
END_TEST

/* ---- one sequence after another ---- */

struct visit {
    struct engine *e;
    uint64_t passes, head_passes; /* made so far */
    char *why;
    size_t why_bytes;
};

static bool complain(struct visit *v, const char *what, const char *detail)
{
    snprintf(v->why, v->why_bytes, "%s: %s", what, detail);
    return false;
}

/* A generation; stop is an id or UINT32_MAX. */
static bool serve(struct visit *v, const struct generate_request *request, uint32_t stop,
                  struct generate_result *result)
{
    struct generate_request r = *request;
    r.stop = &stop;
    r.stop_count = stop != UINT32_MAX;
    if (generate(v->e, &r, result) < 0) {
        return complain(v, "generate", err_message());
    }
    v->passes += div_ceil(r.id_count, engine_plan_of(v->e)->chunk) + result->count - 1;
    v->head_passes += result->count;
    return true;
}

/* The golden prompt, whole. */
static bool serve_golden(struct visit *v, const char *when)
{
    uint32_t ids[GOLDEN_PROMPT];
    uint32_t made[GOLDEN_STEPS];
    char hash[65];
    struct generate_request request;
    struct generate_result result = {.ids = made};
    golden_request(ids, GOLDEN_STEPS, &request);
    if (!serve(v, &request, UINT32_MAX, &result)) {
        return false;
    }
    generate_hash_text(result.hash, hash);
    return strcmp(hash, TINY_HASH) == 0 || complain(v, when, "other logits");
}

/* The golden prompt, until the third id is made. */
static bool serve_stopped(struct visit *v)
{
    uint32_t ids[GOLDEN_PROMPT];
    uint32_t made[GOLDEN_STEPS];
    struct generate_request request;
    struct generate_result result = {.ids = made};
    golden_request(ids, GOLDEN_STEPS, &request);
    if (!serve(v, &request, (uint32_t)golden_ids[2], &result)) {
        return false;
    }
    return (result.count == 3 && result.finish == FINISH_STOP &&
            made[2] == (uint32_t)golden_ids[2]) || complain(v, "stop", "not after the third id");
}

/* Announces more than it does: `passes` of a golden prompt in chunks, then the end. */
static bool serve_part(struct visit *v, uint32_t passes)
{
    uint32_t ids[GOLDEN_PROMPT];
    const float *logits;
    struct generate_request request;
    uint32_t chunk = engine_plan_of(v->e)->chunk;
    golden_request(ids, GOLDEN_STEPS, &request);
    if (engine_begin(v->e, GOLDEN_PROMPT, GOLDEN_STEPS - 1) < 0) {
        return complain(v, "begin", err_message());
    }
    for (uint32_t i = 0; i < passes && i * chunk < GOLDEN_PROMPT; i++) {
        uint32_t count = (uint32_t)min_u64(chunk, GOLDEN_PROMPT - i * chunk);
        if (engine_pass(v->e, ids + i * chunk, count, &logits) < 0) {
            return complain(v, "pass", err_message());
        }
        v->passes++;
        v->head_passes += (i + 1) * chunk >= GOLDEN_PROMPT;
    }
    return engine_end(v->e) >= 0 || complain(v, "end", err_message());
}

/* Another prompt, shorter than a chunk may be; its hash goes to hash. */
static bool serve_other(struct visit *v, unsigned char hash[LOGITS_HASH_BYTES])
{
    static const uint32_t ids[] = {200, 7, 7, 31, 255};
    uint32_t made[6];
    struct generate_request request = {.ids = ids, .id_count = countof(ids),
                                       .gen = countof(made)};
    struct generate_result result = {.ids = made};
    bool good = serve(v, &request, UINT32_MAX, &result);
    memcpy(hash, result.hash, sizeof result.hash);
    return good;
}

/* Every byte of the trunk is of a pass that was made, or was discarded. */
static bool bytes_add_up(struct visit *v)
{
    struct engine_stats stats;
    struct engine_class_stats expected;
    char detail[128];
    engine_stats(v->e, &stats);
    account_trunk(engine_plan_of(v->e), v->passes, v->head_passes, &expected);
    uint64_t read = stats.class[READ_TRUNK].bytes + stats.class[READ_HEAD].bytes;
    if (stats.passes == v->passes && read == expected.bytes + stats.discarded_bytes) {
        return true;
    }
    snprintf(detail, sizeof detail, "%llu read, %llu of passes made, %llu discarded",
             (unsigned long long)read, (unsigned long long)expected.bytes,
             (unsigned long long)stats.discarded_bytes);
    return complain(v, "trunk bytes", detail);
}

static bool other_is_as_fresh(struct visit *v, const struct engine_options *options,
                              const char *dir)
{
    unsigned char used[LOGITS_HASH_BYTES];
    unsigned char fresh[LOGITS_HASH_BYTES];
    struct visit alone = {.why = v->why, .why_bytes = v->why_bytes};
    if (!serve_other(v, used)) {
        return false;
    }
    if (engine_open(&alone.e, dir, options) < 0) {
        return complain(v, "a second engine", err_message());
    }
    bool good = serve_other(&alone, fresh);
    engine_close(alone.e);
    return good && (memcmp(used, fresh, sizeof used) == 0 ||
                    complain(v, "another prompt", "other logits than on a fresh engine"));
}

/* The grid's points serve as settings: a few by hand, the others by chance. */
static struct grid_point point_of(uint32_t job)
{
    struct grid_point point = grid_random(977 + job);
    if (job < 12) {
        point.level[GRID_IO] = (unsigned char)(job % 4);
        point.level[GRID_PIN] = (unsigned char)(job % 3);
        point.level[GRID_RAM] = job % 2 == 0 ? GRID_RAM_FLOOR : 2;
    }
    return point;
}

static struct engine_options point_options(uint32_t job)
{
    struct grid_point point = point_of(job);
    struct engine_options options;
    grid_options(&point, GOLDEN_PROMPT, GOLDEN_STEPS, &options);
    options.ram_bytes = max_u64(options.ram_bytes, floor_of(&options));
    return options;
}

static void run_sequences(void *ctx, uint32_t job, char *why, size_t why_bytes)
{
    struct engine_options options = point_options(job);
    struct visit v = {.why = why, .why_bytes = why_bytes};
    const char *dir = job % 4 == 0 ? disk.dir : memory.dir;
    (void)ctx;
    err_clear();
    if (engine_open(&v.e, dir, &options) < 0) {
        complain(&v, "open", err_message());
        return;
    }
    bool good = (job % 2 == 0 || serve_part(&v, job / 2 % 4)) &&
                serve_golden(&v, "first whole sequence") && serve_golden(&v, "the same again") &&
                serve_stopped(&v) && serve_golden(&v, "after a stop") &&
                other_is_as_fresh(&v, &options, dir) && serve_part(&v, 0) && serve_part(&v, 2) &&
                serve_golden(&v, "after parts") && bytes_add_up(&v);
    (void)good; /* why says it */
    engine_close(v.e);
}

static void describe_sequences(void *ctx, uint32_t job, char *text, size_t text_bytes)
{
    struct grid_point point = point_of(job);
    (void)ctx;
    grid_command(&point, point_options(job).ram_bytes, GOLDEN_STEPS, text, text_bytes);
}

START_TEST(a_used_engine_serves_the_next_sequence_as_a_new_one_would)
{
    struct farm farm = {.jobs = SEQUENCE_JOBS, .workers = WORKERS,
                        .limit_seconds = LIMIT_SECONDS, .run = run_sequences,
                        .describe = describe_sequences};
    ck_assert_uint_eq(farm_run(&farm, 4), 0);
}
END_TEST

static Suite *sequence_suite(void)
{
    Suite *suite = suite_create("sequence");
    TCase *tcase = tcase_create("sequence");
    tcase_set_timeout(tcase, 0); /* the farm has limits of its own */
    tcase_add_test(tcase, a_long_generation_is_the_same_from_floor_to_resident);
    tcase_add_test(tcase, a_used_engine_serves_the_next_sequence_as_a_new_one_would);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    tiny_make(&disk, TINY_DISK);
    tiny_make(&memory, TINY_MEMORY);
    int failed = suite_run(sequence_suite());
    tiny_remove(&disk);
    tiny_remove(&memory);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
