/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cache/slab.h"
#include "core/base/err.h"
#include "core/base/nondet.h"
#include "tests/support/suite.h"

#define PAGES(count) ((count) * PAGE_BYTES)
#define ROWS_BYTES PAGES(2)

static struct slab *open_ring(uint32_t pages, uint32_t entries)
{
    struct slab_layout layout = {
        .rows_bytes = ROWS_BYTES, .ring_bytes = PAGES(pages), .ring_entries = entries};
    struct slab *slab = NULL;
    ck_assert_msg(slab_open(&slab, &layout) == 0, "%s", err_message());
    slab_check(slab);
    return slab;
}

START_TEST(ring_pieces_follow_each_other_and_wrap_behind_a_gap)
{
    uint32_t entry[4];
    struct slab *slab = open_ring(8, 6);
    unsigned char *ring = slab_rows(slab) + ROWS_BYTES;
    ck_assert_ptr_eq(slab_ring_take(slab, PAGES(3), &entry[0]), ring);
    ck_assert_ptr_eq(slab_ring_take(slab, PAGES(3), &entry[1]), ring + PAGES(3));
    ck_assert(!slab_ring_fits(slab, PAGES(3)) && slab_ring_fits(slab, PAGES(2)));
    ck_assert_ptr_null(slab_ring_take(slab, PAGES(3), &entry[2]));
    ck_assert_uint_eq(slab_ring_used(slab), PAGES(6));
    slab_ring_free(slab, entry[0]);
    ck_assert_ptr_eq(slab_ring_take(slab, PAGES(3), &entry[2]), ring);
    ck_assert_uint_eq(slab_ring_used(slab), PAGES(8)); /* 2 of them a gap */
    ck_assert(!slab_ring_fits(slab, PAGES(1)));
    slab_check(slab);
    slab_ring_free(slab, entry[1]); /* takes the gap along */
    ck_assert_uint_eq(slab_ring_used(slab), PAGES(3));
    ck_assert_ptr_eq(slab_ring_take(slab, PAGES(5), &entry[3]), ring + PAGES(3));
    slab_check(slab);
    slab_close(slab);
}
END_TEST

START_TEST(ring_memory_comes_back_in_the_order_it_was_taken)
{
    uint32_t entry[3];
    struct slab *slab = open_ring(8, 6);
    for (int i = 0; i < 3; i++) {
        slab_ring_take(slab, PAGES(2), &entry[i]);
    }
    slab_ring_free(slab, entry[1]);
    slab_check(slab);
    ck_assert_uint_eq(slab_ring_used(slab), PAGES(6));
    slab_ring_free(slab, entry[0]);
    slab_check(slab);
    ck_assert_uint_eq(slab_ring_used(slab), PAGES(2));
    slab_ring_free(slab, entry[2]);
    ck_assert_uint_eq(slab_ring_used(slab), 0);
    slab_close(slab);
}
END_TEST

START_TEST(an_empty_ring_takes_a_piece_of_its_whole_size)
{
    uint32_t entry;
    struct slab *slab = open_ring(8, 6);
    for (uint32_t turn = 0; turn < 20; turn++) {
        ck_assert_ptr_nonnull(slab_ring_take(slab, PAGES(1 + turn % 7), &entry));
        slab_ring_free(slab, entry);
        ck_assert_ptr_nonnull(slab_ring_take(slab, PAGES(8), &entry));
        ck_assert(!slab_ring_fits(slab, PAGES(1)));
        slab_check(slab);
        slab_ring_free(slab, entry);
    }
    slab_close(slab);
}
END_TEST

START_TEST(the_ring_holds_no_more_entries_than_planned)
{
    uint32_t entry[7];
    struct slab *slab = open_ring(8, 6);
    for (int i = 0; i < 6; i++) {
        ck_assert_ptr_nonnull(slab_ring_take(slab, PAGES(1), &entry[i]));
    }
    ck_assert(!slab_ring_fits(slab, PAGES(1)));
    ck_assert_ptr_null(slab_ring_take(slab, PAGES(1), &entry[6]));
    slab_ring_free(slab, entry[0]);
    ck_assert_ptr_nonnull(slab_ring_take(slab, PAGES(1), &entry[6]));
    slab_check(slab);
    slab_close(slab);
}
END_TEST

/* The ring again, as a queue of pieces. */
struct piece {
    unsigned char *at;
    uint32_t page, pages, entry, mark;
    bool freed;
};

struct queue {
    struct piece piece[8]; /* oldest first; the oldest is never freed */
    uint32_t count, most, ring_pages;
};

static bool page_used(const struct queue *queue, uint64_t page)
{
    bool used = page >= queue->ring_pages;
    for (uint32_t i = 0; i < queue->count; i++) {
        const struct piece *piece = &queue->piece[i];
        used = used || (page >= piece->page && page < piece->page + piece->pages);
    }
    return used;
}

static bool room_at(const struct queue *queue, uint64_t page, uint32_t pages)
{
    bool room = true;
    for (uint32_t i = 0; i < pages; i++) {
        room = room && !page_used(queue, page + i);
    }
    return room;
}

/* The page where a piece must begin, or SLAB_NONE. */
static uint64_t expected_page(const struct queue *queue, uint32_t pages)
{
    if (queue->count == queue->most) {
        return SLAB_NONE;
    }
    if (queue->count == 0) {
        return 0;
    }
    const struct piece *newest = &queue->piece[queue->count - 1];
    uint64_t head = newest->page + newest->pages;
    if (room_at(queue, head, pages)) {
        return head;
    }
    bool wrapped = newest->page < queue->piece[0].page;
    return !wrapped && room_at(queue, 0, pages) ? 0 : SLAB_NONE;
}

static void take_piece(struct slab *slab, struct queue *queue, uint32_t pages, uint32_t mark)
{
    struct piece piece = {.pages = pages, .mark = mark};
    uint64_t page = expected_page(queue, pages);
    ck_assert_int_eq(slab_ring_fits(slab, PAGES(pages)), page != SLAB_NONE);
    piece.at = slab_ring_take(slab, PAGES(pages), &piece.entry);
    if (page == SLAB_NONE) {
        ck_assert_ptr_null(piece.at);
        return;
    }
    ck_assert_ptr_eq(piece.at, slab_rows(slab) + ROWS_BYTES + PAGES(page));
    piece.page = (uint32_t)page;
    memset(piece.at, (int)mark & 0xff, PAGES(pages));
    queue->piece[queue->count++] = piece;
}

static void free_piece(struct slab *slab, struct queue *queue, struct piece *piece)
{
    if (piece->freed) {
        return;
    }
    for (uint64_t i = 0; i < PAGES(piece->pages); i += 512) {
        ck_assert_uint_eq(piece->at[i], piece->mark & 0xff);
    }
    slab_ring_free(slab, piece->entry);
    piece->freed = true;
    while (queue->count > 0 && queue->piece[0].freed) {
        queue->count--;
        memmove(queue->piece, queue->piece + 1, queue->count * sizeof *queue->piece);
    }
}

START_TEST(random_ring_walks_equal_a_plain_queue)
{
    struct rng rng = rng_seed((uint64_t)_i);
    struct queue queue = {.most = 1 + (uint32_t)rng_below(&rng, 7),
                          .ring_pages = 1 + (uint32_t)rng_below(&rng, 9)};
    struct slab *slab = open_ring(queue.ring_pages, queue.most);
    for (uint32_t step = 0; step < 1000; step++) {
        if (rng_below(&rng, 2) == 0 && queue.count > 0) {
            free_piece(slab, &queue, &queue.piece[rng_below(&rng, queue.count)]);
        } else {
            bool large = rng_below(&rng, 4) == 0;
            uint64_t most = large ? queue.ring_pages : (queue.ring_pages + 1) / 2;
            take_piece(slab, &queue, 1 + (uint32_t)rng_below(&rng, most), step);
        }
        ck_assert_int_eq(queue.count == 0, slab_ring_used(slab) == 0);
        slab_check(slab);
    }
    slab_close(slab);
}
END_TEST

#ifndef K3RING_SANITIZED
START_TEST(freeing_a_ring_entry_twice_aborts)
{
    uint32_t first, second;
    struct slab *slab = open_ring(8, 6);
    slab_ring_take(slab, PAGES(1), &first);
    slab_ring_take(slab, PAGES(1), &second);
    slab_ring_free(slab, second);
    slab_ring_free(slab, second);
}
END_TEST
#endif

int main(void)
{
    Suite *suite = suite_create("slab ring");
    TCase *tcase = tcase_create("slab ring");
    tcase_add_test(tcase, ring_pieces_follow_each_other_and_wrap_behind_a_gap);
    tcase_add_test(tcase, ring_memory_comes_back_in_the_order_it_was_taken);
    tcase_add_test(tcase, an_empty_ring_takes_a_piece_of_its_whole_size);
    tcase_add_test(tcase, the_ring_holds_no_more_entries_than_planned);
    tcase_add_loop_test(tcase, random_ring_walks_equal_a_plain_queue, 0, 40);
#ifndef K3RING_SANITIZED
    tcase_add_test_raise_signal(tcase, freeing_a_ring_entry_twice_aborts, SIGABRT);
#endif
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
