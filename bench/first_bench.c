/* SPDX-License-Identifier: Apache-2.0 */
/* The first token of a fresh engine with pins against a token that streams everything. A pinned
 * tile's first pass is its load, so the first token costs one streamed pass, plus the making of
 * pages where that is slower than the drive (the stall "slab pages"), and no more.
 *
 *   first_bench MODEL [--quick] [--json FILE]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure.h"
#include "core/base/err.h"
#include "core/base/memory.h"
#include "core/base/nondet.h"
#include "core/exec/generate.h"

#define LATER_MAX 2U

struct pin {
    const char *name;
    uint64_t pin_bytes, ram_bytes;
    struct figure first_s, pages_s, open_s, ratio;
};

static struct engine_options options_for(uint64_t ram_bytes, uint64_t pin_bytes)
{
    return (struct engine_options){
        .ram_bytes = ram_bytes, .io_depth = 8, .io_size_bytes = 4 * MIB, .policy = "none",
        .isa = ISA_AUTO, .io = IO_URING, .context = 64, .chunk = PLAN_AUTO,
        .pin_bytes = pin_bytes, .pin_percent = -1, .expert_slots = 0, .tile_bytes = PLAN_AUTO,
        .prompt_tokens = 1, .threads = memory_processors()};
}

/* Seconds of the first token and of a later one. */
static int run(struct engine *e, uint32_t gen, double *first_s, double *later_s)
{
    static const uint32_t prompt[] = {3};
    uint32_t ids[LATER_MAX + 1];
    struct generate_request r = {.ids = prompt, .id_count = 1, .gen = gen};
    struct generate_result out = {.ids = ids};
    TRY(generate(e, &r, &out));
    *first_s = (double)out.first_ns / 1e9;
    *later_s = gen > 1 ? (double)out.rest_ns / 1e9 / (gen - 1) : 0;
    return 0;
}

static int fresh(const char *dir, struct pin *pin, double streamed_s)
{
    struct engine_options o = options_for(pin->ram_bytes, pin->pin_bytes);
    struct engine_stats s;
    struct engine *e;
    double first_s = 0;
    double later_s;
    uint64_t begun = nondet_now_ns();
    TRY(engine_open(&e, dir, &o));
    figure_add(&pin->open_s, (double)(nondet_now_ns() - begun) / 1e9);
    int rc = run(e, 1, &first_s, &later_s);
    engine_stats(e, &s);
    double pages_s = (double)s.stall_ns[STALL_PAGES] / 1e9;
    figure_add(&pin->first_s, first_s);
    figure_add(&pin->pages_s, pages_s);
    figure_add(&pin->ratio, first_s / (streamed_s + pages_s));
    engine_close(e);
    return rc;
}

static int measure(const char *dir, uint32_t repeats, uint32_t later, struct pin *pins,
                   size_t count, struct figure *streamed)
{
    struct engine_options o = options_for(1536 * MIB, 0);
    struct engine *e;
    double first_s;
    double later_s;
    TRY(engine_open(&e, dir, &o));
    int rc = 0;
    for (uint32_t i = 0; i < repeats && rc == 0; i++) {
        for (size_t k = 0; k < count && rc == 0; k++) {
            rc = run(e, later + 1, &first_s, &later_s);
            figure_add(streamed, later_s);
            rc = rc < 0 ? rc : fresh(dir, &pins[k], later_s);
        }
    }
    engine_close(e);
    return rc;
}

static void show(const struct pin *pins, size_t count, const struct figure *streamed, cJSON *root)
{
    figure_json(root, "streamed_token_s", streamed);
    cJSON *list = cJSON_AddArrayToObject(root, "pins");
    printf("%-6s %8s %12s %14s %12s %32s\n", "pins", "open s", "first token", "streamed token",
           "pages stall", "first : streamed + pages stall");
    for (size_t i = 0; i < count; i++) {
        const struct pin *p = &pins[i];
        printf("%-6s %8.2f %12.3f %14.3f %12.3f %16.3f %6.2f-%4.2f\n", p->name,
               figure_median(&p->open_s), figure_median(&p->first_s), figure_median(streamed),
               figure_median(&p->pages_s), figure_median(&p->ratio), figure_least(&p->ratio),
               figure_most(&p->ratio));
        cJSON *o = cJSON_CreateObject();
        cJSON_AddItemToArray(list, o);
        cJSON_AddStringToObject(o, "pin", p->name);
        figure_json(o, "first_token_s", &p->first_s);
        figure_json(o, "pages_stall_s", &p->pages_s);
        figure_json(o, "open_s", &p->open_s);
        figure_json(o, "first_over_streamed_and_pages", &p->ratio);
    }
}

int main(int argc, char **argv)
{
    struct pin pins[] = {{.name = "4G", .pin_bytes = 4 * GIB, .ram_bytes = 5 * GIB},
                         {.name = "all", .pin_bytes = PLAN_ALL, .ram_bytes = 9 * GIB}};
    struct figure streamed = {0};
    const char *dir = NULL;
    const char *json = NULL;
    uint32_t repeats = 5;
    bool quick = false; /* one pin, and one later token */
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            repeats = 1;
            quick = true;
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json = argv[++i];
        } else {
            dir = argv[i];
        }
    }
    if (dir == NULL) {
        fprintf(stderr, "usage: first_bench MODEL [--quick] [--json FILE]\n");
        return 2;
    }
    size_t count = quick ? 1 : countof(pins);
    cJSON *root = cJSON_CreateObject();
    if (quick) {
        measure_quick(root, "one sample of each time and of the ratio; all pinned is left to the "
                      "long form");
    }
    int rc = measure(dir, repeats, quick ? 1 : LATER_MAX, pins, count, &streamed);
    if (rc < 0) {
        cJSON_Delete(root);
        fprintf(stderr, "first_bench: %s\n", err_message());
        return err_exit_status(rc);
    }
    show(pins, count, &streamed, root);
    if (json == NULL) {
        cJSON_Delete(root);
        return 0;
    }
    return !measure_write(json, root);
}
