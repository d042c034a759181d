/* SPDX-License-Identifier: Apache-2.0 */

/* The coded form of bf16 rows: every byte comes back, the layout is the one written down, sizes
 * are known before, and damaged counts and columns are refused. */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/nondet.h"
#include "kernels/packed.h"
#include "tests/support/suite.h"

struct block {
    uint32_t rows, cols;
    unsigned char *raw, *coded, *back;
    uint64_t raw_bytes, coded_bytes;
};

/* High bytes from `spread` values, about one in `rare` from all 256 (0: none). */
static struct block make(uint32_t rows, uint32_t cols, uint32_t spread, uint32_t rare,
                         uint64_t seed)
{
    struct block b = {.rows = rows, .cols = cols, .raw_bytes = 2ULL * rows * cols};
    struct rng rng = rng_seed(seed);
    b.raw = malloc(b.raw_bytes);
    b.back = malloc(b.raw_bytes);
    uint64_t worst = packed_tile_bytes(rows, cols, (uint64_t)rows * cols);
    b.coded = malloc(worst);
    ck_assert(b.raw != NULL && b.back != NULL && b.coded != NULL);
    for (uint64_t i = 0; i < b.raw_bytes; i += 2) {
        bool odd = rare > 0 && rng_below(&rng, rare) == 0;
        b.raw[i] = (unsigned char)rng_next(&rng);
        b.raw[i + 1] = odd ? (unsigned char)rng_next(&rng)
                           : (unsigned char)(0x30 + 7 * rng_below(&rng, spread));
    }
    b.coded_bytes = packed_encode_rows(b.coded, worst, b.raw, rows, cols);
    ck_assert_uint_gt(b.coded_bytes, 0);
    return b;
}

static void drop(struct block *b)
{
    free(b->raw);
    free(b->coded);
    free(b->back);
}

static uint32_t u32_at(const unsigned char *p)
{
    uint32_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static unsigned char *first_of(const struct block *b)
{
    return b->coded + b->rows * packed_row_bytes(b->cols);
}

static unsigned char *escape_of(const struct block *b)
{
    return first_of(b) + (b->rows + 1ULL) * 4;
}

static bool opens(const struct block *b, uint64_t size_bytes)
{
    struct packed_tile tile;
    return packed_open(&tile, b->coded, size_bytes, b->rows, b->cols);
}

START_TEST(every_byte_comes_back)
{
    static const uint32_t cols[] = {128, 129, 191, 256, 300, 511, 1024, 7168};
    static const uint32_t rare[] = {0, 1, 7, 200};
    for (size_t c = 0; c < countof(cols); c++) {
        for (size_t r = 0; r < countof(rare); r++) {
            struct block b = make(1 + (uint32_t)_i, cols[c], 1 + 5 * (uint32_t)_i, rare[r],
                                  (uint64_t)_i * 64 + c * 8 + r);
            struct packed_tile tile;
            ck_assert(packed_open(&tile, b.coded, b.coded_bytes, b.rows, b.cols));
            memset(b.back, 0xA5, b.raw_bytes);
            packed_decode_rows(b.back, &tile, b.rows, b.cols);
            ck_assert_mem_eq(b.back, b.raw, b.raw_bytes);
            drop(&b);
        }
    }
}
END_TEST

START_TEST(fifteen_values_need_no_escape_and_sixteen_do)
{
    struct block fifteen = make(3, 256, 15, 0, 1);
    struct block sixteen = make(3, 2048, 16, 0, 2);
    ck_assert_uint_eq(fifteen.coded_bytes, packed_tile_bytes(3, 256, 0));
    ck_assert_uint_gt(sixteen.coded_bytes, packed_tile_bytes(3, 2048, 0));
    drop(&fifteen);
    drop(&sixteen);
}
END_TEST

/* Written from the format's words, not from the coder. */
START_TEST(the_layout_is_the_one_written_down)
{
    struct block b = make(2, 300, 12, 40, 3);
    uint64_t stride = 16 + 2 * 192 + 44 * 2;
    ck_assert_uint_eq(packed_row_bytes(300), stride);
    for (uint32_t r = 0; r < 2; r++) {
        const unsigned char *row = b.coded + r * stride;
        ck_assert_uint_eq(row[15], 0);
        for (uint32_t e = 0; e < 256; e++) {
            uint32_t half = e % 128 / 64, k = e % 64 / 16, q = e % 16 / 4, i = e % 4;
            uint32_t p = 16 * q + 4 * k + i;
            const unsigned char *block = row + 16 + (size_t)(e / 128) * 192;
            uint32_t index = half == 0 ? block[p] & 15u : block[p] >> 4u;
            const unsigned char *raw = b.raw + 2 * (300 * (size_t)r + e);
            ck_assert_uint_eq(block[64 + 64 * half + p], raw[0]);
            ck_assert(index == 15 || row[index] == raw[1]);
        }
        ck_assert_mem_eq(row + 16 + 384, b.raw + 2 * (300 * (size_t)r + 256), 88);
    }
    uint32_t count = u32_at(first_of(&b) + 8);
    ck_assert_uint_gt(count, 0);
    ck_assert_uint_eq(b.coded_bytes, 2 * stride + 12 + 4ULL * count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = i >= u32_at(first_of(&b) + 4);
        uint32_t entry = u32_at(escape_of(&b) + 4 * (size_t)i);
        ck_assert_uint_eq(entry & 255, b.raw[2 * (300 * (size_t)row + (entry >> 8)) + 1]);
    }
    drop(&b);
}
END_TEST

START_TEST(the_most_common_values_are_in_the_table)
{
    struct block b = make(1, 1024, 16, 0, 4);
    for (size_t i = 0; i < 1024; i++) { /* value v occurs more often than any above it */
        b.raw[2 * i + 1] = (unsigned char)(0x80 + (i < 136 ? i % 17 : (i - 136) % 15));
    }
    ck_assert_uint_gt(packed_encode_rows(b.coded, b.raw_bytes, b.raw, 1, 1024), 0);
    for (unsigned char k = 0; k < 15; k++) {
        ck_assert_ptr_nonnull(memchr(b.coded, 0x80 + k, 15));
    }
    ck_assert_uint_eq(u32_at(first_of(&b) + 4), 16);
    drop(&b);
}
END_TEST

START_TEST(what_does_not_fit_is_not_written_past_its_room)
{
    struct block b = make(4, 256, 60, 1, 5);
    unsigned char *small = malloc(b.raw_bytes); /* its end is watched by sanitizers */
    ck_assert_ptr_nonnull(small);
    ck_assert_uint_eq(packed_encode_rows(small, b.raw_bytes, b.raw, 4, 256), 0);
    ck_assert_uint_eq(packed_encode_rows(small, b.raw_bytes - 1, b.raw, 4, 256), 0);
    free(small);
    uint64_t exact = b.coded_bytes;
    small = malloc(exact);
    ck_assert_ptr_nonnull(small);
    ck_assert_uint_eq(packed_encode_rows(small, exact - 1, b.raw, 4, 256), 0);
    ck_assert_uint_eq(packed_encode_rows(small, exact, b.raw, 4, 256), exact);
    ck_assert_mem_eq(small, b.coded, exact);
    free(small);
    drop(&b);
}
END_TEST

START_TEST(sizes_that_do_not_match_the_count_are_refused)
{
    struct block b = make(3, 384, 15, 30, 6);
    ck_assert(opens(&b, b.coded_bytes));
    ck_assert(!opens(&b, b.coded_bytes - 4));
    ck_assert(!opens(&b, b.coded_bytes + 4));
    ck_assert(!opens(&b, b.coded_bytes - 1));
    ck_assert(!opens(&b, packed_tile_bytes(3, 384, 0) - 1));
    ck_assert(!opens(&b, 0));
    drop(&b);
}
END_TEST

START_TEST(counts_that_fall_or_start_late_are_refused)
{
    struct block b = make(3, 384, 15, 30, 7);
    uint32_t whole = u32_at(first_of(&b) + 12);
    uint32_t bad[] = {1, whole + 1, UINT32_MAX};
    for (size_t i = 0; i < countof(bad); i++) {
        for (size_t at = 0; at < 4; at++) {
            uint32_t good = u32_at(first_of(&b) + 4 * at);
            uint32_t lie = at == 1 && i == 0 ? whole : bad[i];
            if (at == 2 && i == 0) {
                lie = u32_at(first_of(&b) + 4) - 1;
            }
            memcpy(first_of(&b) + 4 * at, &lie, 4);
            ck_assert_msg(!opens(&b, b.coded_bytes), "count %zu as %u", at, lie);
            memcpy(first_of(&b) + 4 * at, &good, 4);
        }
    }
    ck_assert(opens(&b, b.coded_bytes));
    drop(&b);
}
END_TEST

START_TEST(columns_past_the_blocks_or_out_of_order_are_refused)
{
    struct block b = make(1, 300, 15, 20, 8);
    uint32_t first = u32_at(escape_of(&b));
    uint32_t second = u32_at(escape_of(&b) + 4);
    uint32_t bad[] = {256u << 8, 300u << 8, 0xFFFFFFu << 8, second};
    for (size_t i = 0; i < countof(bad); i++) {
        memcpy(escape_of(&b), &bad[i], 4);
        ck_assert(!opens(&b, b.coded_bytes));
    }
    memcpy(escape_of(&b), &first, 4);
    memcpy(escape_of(&b) + 4, &first, 4);
    ck_assert(!opens(&b, b.coded_bytes));
    drop(&b);
}
END_TEST

START_TEST(narrow_matrices_are_not_coded)
{
    ck_assert(!packed_fits(127) && packed_fits(128));
    ck_assert(packed_fits((1u << 24) - 1) && !packed_fits(1u << 24));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("packed");
    TCase *tc = tcase_create("coding");
    tcase_add_loop_test(tc, every_byte_comes_back, 0, 5);
    tcase_add_test(tc, fifteen_values_need_no_escape_and_sixteen_do);
    tcase_add_test(tc, the_layout_is_the_one_written_down);
    tcase_add_test(tc, the_most_common_values_are_in_the_table);
    tcase_add_test(tc, what_does_not_fit_is_not_written_past_its_room);
    tcase_add_test(tc, sizes_that_do_not_match_the_count_are_refused);
    tcase_add_test(tc, counts_that_fall_or_start_late_are_refused);
    tcase_add_test(tc, columns_past_the_blocks_or_out_of_order_are_refused);
    tcase_add_test(tc, narrow_matrices_are_not_coded);
    suite_add_tcase(suite, tc);
    return suite_run(suite) == 0 ? 0 : 1;
}
