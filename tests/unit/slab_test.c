/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/slab.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "tests/support/suite.h"

#define PAGES(count) ((count) * PAGE_BYTES)

static const struct slab_layout small = {
    .rows_bytes = PAGES(2),
    .ring_bytes = PAGES(8),
    .slot_bytes = PAGES(3),
    .slot_count = 4,
    .pin_bytes = 5000,
    .later_slice_bytes = HUGE_PAGE_BYTES,
    .ring_entries = 6,
};

static struct slab *open_slab(const struct slab_layout *layout)
{
    struct slab *slab = NULL;
    ck_assert_msg(slab_open(&slab, layout) == 0, "%s", err_message());
    slab_check(slab);
    return slab;
}

/* ---- layout ---- */

START_TEST(small_layouts_are_packed_page_by_page)
{
    struct slab *slab = open_slab(&small);
    unsigned char *base = slab_rows(slab);
    uint32_t entry;
    ck_assert_uint_eq((uintptr_t)base % HUGE_PAGE_BYTES, 0);
    ck_assert_ptr_eq(slab_ring_take(slab, PAGE_BYTES, &entry), base + PAGES(2));
    for (uint32_t slot = 0; slot < 4; slot++) {
        ck_assert_ptr_eq(slab_slot_address(slab, slot), base + PAGES(10 + 3 * slot));
    }
    ck_assert_ptr_eq(slab_pin_address(slab, 0), base + PAGES(22));
    ck_assert_ptr_eq(slab_pin_address(slab, 4999), base + PAGES(22) + 4999);
    ck_assert_uint_eq(slab_bytes(&small), PAGES(24));
    slab_close(slab);
}
END_TEST

START_TEST(large_layouts_are_rounded_once_to_huge_pages)
{
    struct slab_layout layout = {.ring_bytes = 8 * MIB, .ring_entries = 1};
    ck_assert_uint_eq(slab_bytes(&layout), 8 * MIB);
    layout.rows_bytes = PAGES(1);
    ck_assert_uint_eq(slab_bytes(&layout), 10 * MIB);
    layout.pin_bytes = 1;
    layout.later_slice_bytes = HUGE_PAGE_BYTES;
    ck_assert_uint_eq(slab_bytes(&layout), 10 * MIB);
    layout.ring_bytes = 6 * MIB;
    ck_assert_uint_eq(slab_bytes(&layout), 6 * MIB + PAGES(2));
}
END_TEST

START_TEST(an_empty_layout_has_no_slices_and_no_bytes)
{
    const struct slab_layout none = {0};
    struct slab *slab = open_slab(&none);
    ck_assert_uint_eq(slab_bytes(&none), 0);
    ck_assert_uint_eq(slab_slice_count(slab), 0);
    ck_assert_uint_eq(slab_slot_take(slab), UINT32_MAX);
    slab_close(slab);
}
END_TEST

START_TEST(each_pin_slice_is_a_slice_of_its_own)
{
    const struct slab_layout layout = {.ring_bytes = PAGES(1),
                                       .ring_entries = 1,
                                       .pin_bytes = 5 * MIB,
                                       .later_slice_bytes = 2 * MIB};
    const uint64_t sizes[] = {PAGES(1), 2 * MIB, 2 * MIB, MIB};
    struct slab *slab = open_slab(&layout);
    ck_assert_uint_eq(slab_slice_count(slab), countof(sizes));
    for (uint32_t i = 0; i < countof(sizes); i++) {
        ck_assert_uint_eq(slab_slice(slab, i)->size_bytes, sizes[i]);
        ck_assert_int_eq(slab_slice(slab, i)->pins, i > 0);
    }
    ck_assert_uint_eq(slab_slice_of(slab, slab_pin_address(slab, 2 * MIB - 1)), 1);
    ck_assert_uint_eq(slab_slice_of(slab, slab_pin_address(slab, 2 * MIB)), 2);
    ck_assert_uint_eq(slab_slice_of(slab, slab_pin_address(slab, 5 * MIB - 1)), 3);
    slab_close(slab);
}
END_TEST

#ifndef K3RING_SANITIZED
/* Every object of a layout lies in one slice, and slices are at most 1 GiB. */
static void assert_whole(const struct slab *slab, const unsigned char *object, uint64_t size_bytes)
{
    const struct slab_slice *slice = slab_slice(slab, slab_slice_of(slab, object));
    ck_assert(object >= slice->base && object + size_bytes <= slice->base + slice->size_bytes);
    ck_assert_uint_le(slice->size_bytes, GIB);
}

START_TEST(no_slot_crosses_a_slice_of_a_gigabyte)
{
    const struct slab_layout layout = {.rows_bytes = PAGES(4),
                                       .ring_bytes = PAGES(4),
                                       .slot_bytes = 190 * MIB,
                                       .slot_count = 6,
                                       .ring_entries = 1};
    if ((uint64_t)sysconf(_SC_AVPHYS_PAGES) * PAGE_BYTES < 3 * GIB) {
        return; /* it fills 1.1 GiB; small machines do without */
    }
    struct slab *slab = open_slab(&layout);
    ck_assert_uint_eq(slab_slice_count(slab), 2);
    ck_assert_uint_eq(slab_slice(slab, 0)->size_bytes, PAGES(8) + 950 * MIB);
    ck_assert_uint_eq(slab_slice(slab, 1)->size_bytes, 190 * MIB);
    for (uint32_t slot = 0; slot < 6; slot++) {
        assert_whole(slab, slab_slot_address(slab, slot), layout.slot_bytes);
    }
    slab_close(slab);
}
END_TEST
#endif

/* Later slots lie in slices of their own, which pins do not share. */
START_TEST(later_slots_are_there_when_their_slice_is)
{
    const struct slab_layout layout = {.ring_bytes = PAGES(1), .ring_entries = 1,
                                       .slot_bytes = 700 * KIB, .slot_count = 8,
                                       .later_slots = 6, .pin_bytes = PAGES(1),
                                       .later_slice_bytes = 2 * MIB};
    struct slab *slab = open_slab(&layout);
    ck_assert_uint_eq(slab_slice_count(slab), 5); /* two slots fit in 2 MiB, and three slices */
    for (uint32_t i = 0; i < 5; i++) {
        ck_assert_int_eq(slab_slice(slab, i)->later, i > 0);
        ck_assert_int_eq(slab_slice(slab, i)->pins, i == 4);
        ck_assert_int_eq(slab_slice_present(slab, i), i == 0);
    }
    for (uint32_t slot = 0; slot < 8; slot++) {
        if (slot >= 2 && slot % 2 == 0) {
            ck_assert_uint_eq(slab_slot_take(slab), SLAB_NO_SLOT);
            ck_assert_uint_eq(slab_slots_free(slab), 8 - slot);
            slab_slot_free(slab, 0); /* one that is there is taken at once */
            ck_assert_uint_eq(slab_slot_take(slab), 0);
            ck_assert_int_eq(slab_populate(slab, slot / 2), 0);
        }
        ck_assert_uint_eq(slab_slot_take(slab), slot);
        memset(slab_slot_address(slab, slot), 1, layout.slot_bytes);
    }
    slab_check(slab);
    slab_close(slab);
}
END_TEST

START_TEST(a_refused_mapping_is_an_error_of_memory)
{
    struct slab_layout layout = {.pin_bytes = (uint64_t)1 << 48, .later_slice_bytes = GIB};
    struct slab *slab;
    err_clear();
    ck_assert_int_eq(slab_open(&slab, &layout), ERR_MEMORY);
    ck_assert_ptr_null(slab);
    ck_assert_str_ne(err_message(), "");
}
END_TEST

/* ---- memory ---- */

START_TEST(a_small_slab_becomes_resident_to_the_page)
{
    struct slab_statement state;
    struct slab *slab = open_slab(&small);
    slab_state(slab, &state);
    ck_assert_uint_eq(state.mapped_bytes, slab_bytes(&small));
    ck_assert_uint_eq(state.resident_bytes, PAGES(22));
    ck_assert_uint_eq(state.huge_bytes, 0);
    ck_assert_int_eq(slab_populate(slab, 1), 0);
    slab_state(slab, &state);
    ck_assert_uint_eq(state.resident_bytes, slab_bytes(&small));
    slab_close(slab);
}
END_TEST

START_TEST(a_larger_slab_becomes_resident_as_its_account_says)
{
    const struct slab_layout layout = {.rows_bytes = PAGES(1),
                                       .ring_bytes = 9 * MIB,
                                       .pin_bytes = 6 * MIB,
                                       .later_slice_bytes = 4 * MIB,
                                       .ring_entries = 1};
    struct slab_statement state;
    struct slab *slab = open_slab(&layout);
    slab_state(slab, &state);
    ck_assert_uint_eq(state.mapped_bytes, 16 * MIB);
    ck_assert_uint_ge(state.resident_bytes, 9 * MIB + PAGES(1));
    ck_assert_uint_le(state.resident_bytes, 10 * MIB);
    for (uint32_t i = 0; i < slab_slice_count(slab); i++) {
        ck_assert_int_eq(slab_populate(slab, i), 0);
    }
    slab_state(slab, &state);
    ck_assert_uint_eq(state.resident_bytes, slab_bytes(&layout));
    ck_assert_uint_le(state.huge_bytes, state.resident_bytes);
    slab_close(slab);
}
END_TEST

static void *populate_second(void *arg)
{
    return slab_populate(arg, 2) == 0 ? arg : NULL;
}

START_TEST(populating_pins_is_idempotent_and_per_slice)
{
    const struct slab_layout layout = {
        .rows_bytes = PAGES(1), .pin_bytes = 4 * MIB, .later_slice_bytes = 2 * MIB};
    pthread_t thread;
    void *result;
    struct slab *slab = open_slab(&layout);
    ck_assert(slab_slice_present(slab, 0));
    ck_assert(!slab_slice_present(slab, 1) && !slab_slice_present(slab, 2));
    ck_assert_int_eq(pthread_create(&thread, NULL, populate_second, slab), 0);
    ck_assert_int_eq(pthread_join(thread, &result), 0);
    ck_assert_ptr_eq(result, slab);
    ck_assert(!slab_slice_present(slab, 1) && slab_slice_present(slab, 2));
    unsigned char *pin = slab_pin_address(slab, 2 * MIB);
    memset(pin, 0xa5, 2 * MIB);
    ck_assert_int_eq(slab_populate(slab, 2), 0);
    ck_assert_int_eq(slab_populate(slab, 0), 0);
    ck_assert(pin[0] == 0xa5 && memcmp(pin, pin + 1, 2 * MIB - 1) == 0);
    slab_close(slab);
}
END_TEST

START_TEST(pins_that_nobody_wants_any_more_are_left_alone)
{
    const struct slab_layout layout = {
        .rows_bytes = PAGES(1), .pin_bytes = 64 * MIB, .later_slice_bytes = 32 * MIB};
    struct slab_statement before, after;
    struct slab *slab = open_slab(&layout);
    slab_state(slab, &before);
    slab_quit(slab);
    slab_quit(NULL);
    ck_assert_int_eq(slab_populate(slab, 1), 0);
    ck_assert(!slab_slice_present(slab, 1));
    slab_state(slab, &after);
    ck_assert_uint_eq(after.resident_bytes, before.resident_bytes);
    slab_close(slab);
}
END_TEST

#ifndef K3RING_SANITIZED
START_TEST(a_forked_child_does_not_see_the_slab)
{
    struct slab *slab = open_slab(&small);
    int status;
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile unsigned char *)slab_rows(slab));
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    slab_close(slab);
}
END_TEST
#endif

/* ---- slots ---- */

START_TEST(take_fails_when_every_slot_is_used)
{
    struct slab *slab = open_slab(&small);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(slab_slots_free(slab), 4 - i);
        ck_assert_uint_eq(slab_slot_take(slab), i);
    }
    ck_assert_uint_eq(slab_slots_free(slab), 0);
    ck_assert_uint_eq(slab_slot_take(slab), UINT32_MAX);
    slab_slot_free(slab, 2);
    ck_assert_uint_eq(slab_slot_take(slab), 2);
    slab_check(slab);
    slab_close(slab);
}
END_TEST

static const uint32_t STATES = SLOT_KEPT + 1;

typedef void slot_move(struct slab *slab, uint32_t slot);

static slot_move *const slot_moves[] = {slab_slot_ready, slab_slot_keep, slab_slot_use,
                                        slab_slot_free};

/* [move][state]: the state a move leads to, or -1 where it is a mistake. */
static const int slot_arrows[countof(slot_moves)][SLOT_KEPT + 1] = {
    {-1, SLOT_READY, -1, -1},
    {-1, -1, SLOT_KEPT, -1},
    {-1, -1, -1, SLOT_READY},
    {-1, SLOT_FREE, SLOT_FREE, SLOT_FREE},
};

/* A slab with slot 0 in a state. */
static struct slab *slab_in_state(uint32_t state)
{
    struct slab *slab = open_slab(&small);
    uint32_t slot = state > SLOT_FREE ? slab_slot_take(slab) : 0;
    if (state > SLOT_LOADING) {
        slab_slot_ready(slab, slot);
    }
    if (state > SLOT_READY) {
        slab_slot_keep(slab, slot);
    }
    ck_assert_uint_eq(slot, 0);
    ck_assert_uint_eq(slab_slot_state(slab, slot), state);
    return slab;
}

START_TEST(every_drawn_arrow_leads_where_it_points)
{
    for (uint32_t move = 0; move < countof(slot_moves); move++) {
        for (uint32_t state = 0; state < STATES; state++) {
            if (slot_arrows[move][state] >= 0) {
                struct slab *slab = slab_in_state(state);
                slot_moves[move](slab, 0);
                ck_assert_int_eq((int)slab_slot_state(slab, 0), slot_arrows[move][state]);
                slab_check(slab);
                slab_close(slab);
            }
        }
    }
}
END_TEST

#ifndef K3RING_SANITIZED
/* True when the call aborted, in a child so that the test goes on. */
static bool aborts(uint32_t state, slot_move *move)
{
    int status;
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct slab *slab = slab_in_state(state);
        if (freopen("/dev/null", "w", stderr) != NULL) {
            move(slab, 0);
        }
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

START_TEST(every_arrow_that_is_not_drawn_aborts)
{
    for (uint32_t move = 0; move < countof(slot_moves); move++) {
        for (uint32_t state = 0; state < STATES; state++) {
            bool mistake = slot_arrows[move][state] < 0;
            ck_assert_msg(aborts(state, slot_moves[move]) == mistake, "move %u in state %u", move,
                          state);
        }
    }
}
END_TEST

START_TEST(an_address_outside_the_slab_aborts)
{
    struct slab *slab = open_slab(&small);
    slab_slice_of(slab, slab_rows(slab) + slab_bytes(&small));
}
END_TEST
#endif

START_TEST(random_slot_walks_keep_every_invariant)
{
    struct rng rng = rng_seed((uint64_t)_i);
    struct slab *slab = open_slab(&small);
    uint32_t state[4] = {0}, used = 0;
    for (uint32_t step = 0; step < 2000; step++) {
        uint32_t slot = (uint32_t)rng_below(&rng, 4);
        uint32_t move = (uint32_t)rng_below(&rng, countof(slot_moves) + 1);
        if (move == countof(slot_moves)) {
            uint32_t taken = slab_slot_take(slab);
            ck_assert_int_eq(taken == UINT32_MAX, used == 4);
            if (taken != UINT32_MAX) {
                ck_assert_uint_eq(state[taken], SLOT_FREE);
                state[taken] = SLOT_LOADING;
                used++;
            }
        } else if (slot_arrows[move][state[slot]] >= 0) {
            slot_moves[move](slab, slot);
            state[slot] = (uint32_t)slot_arrows[move][state[slot]];
            used -= state[slot] == SLOT_FREE;
        }
        ck_assert_uint_eq(slab_slot_state(slab, slot), state[slot]);
        ck_assert_uint_eq(slab_slots_free(slab), 4 - used);
        slab_check(slab);
    }
    slab_close(slab);
}
END_TEST

#ifndef K3RING_SANITIZED
static uint64_t resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%*u %lu", &pages), 1);
    fclose(file);
    return PAGES((uint64_t)pages);
}

/* Several threads share it; the last piece is a short one. */
START_TEST(all_of_a_large_slab_is_given_back)
{
    const struct slab_layout layout = {.ring_bytes = 300 * MIB + PAGES(3), .ring_entries = 1};
    uint64_t before = resident_bytes();
    struct slab *slab = open_slab(&layout);
    unsigned char *base = slab_rows(slab), present;
    ck_assert_uint_ge(resident_bytes(), before + 300 * MIB);
    slab_close(slab);
    ck_assert_uint_le(resident_bytes(), before + 16 * MIB);
    for (uint64_t at = 0; at < slab_bytes(&layout); at += MIB) {
        ck_assert_int_eq(mincore(base + at, 1, &present), -1);
    }
}
END_TEST
#endif

static TCase *layout_tests(void)
{
    TCase *tcase = tcase_create("layout");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, small_layouts_are_packed_page_by_page);
    tcase_add_test(tcase, large_layouts_are_rounded_once_to_huge_pages);
    tcase_add_test(tcase, an_empty_layout_has_no_slices_and_no_bytes);
    tcase_add_test(tcase, each_pin_slice_is_a_slice_of_its_own);
    tcase_add_test(tcase, later_slots_are_there_when_their_slice_is);
    tcase_add_test(tcase, a_refused_mapping_is_an_error_of_memory);
    tcase_add_test(tcase, a_small_slab_becomes_resident_to_the_page);
    tcase_add_test(tcase, a_larger_slab_becomes_resident_as_its_account_says);
    tcase_add_test(tcase, populating_pins_is_idempotent_and_per_slice);
    tcase_add_test(tcase, pins_that_nobody_wants_any_more_are_left_alone);
#ifndef K3RING_SANITIZED
    tcase_add_test(tcase, no_slot_crosses_a_slice_of_a_gigabyte);
    tcase_add_test(tcase, all_of_a_large_slab_is_given_back);
    tcase_add_test(tcase, a_forked_child_does_not_see_the_slab);
#endif
    return tcase;
}

static TCase *slot_tests(void)
{
    TCase *tcase = tcase_create("slots");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, take_fails_when_every_slot_is_used);
    tcase_add_test(tcase, every_drawn_arrow_leads_where_it_points);
    tcase_add_loop_test(tcase, random_slot_walks_keep_every_invariant, 0, 5);
#ifndef K3RING_SANITIZED
    tcase_add_test(tcase, every_arrow_that_is_not_drawn_aborts);
    tcase_add_test_raise_signal(tcase, an_address_outside_the_slab_aborts, SIGABRT);
#endif
    return tcase;
}

int main(void)
{
    Suite *suite = suite_create("slab");
    suite_add_tcase(suite, layout_tests());
    suite_add_tcase(suite, slot_tests());
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
