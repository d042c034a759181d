/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/packed.h"

#include <string.h>

#define ESCAPE_INDEX 15u
#define HALF 64u

static uint32_t load_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store_u32(unsigned char *p, uint32_t value)
{
    p[0] = (unsigned char)value;
    p[1] = (unsigned char)(value >> 8);
    p[2] = (unsigned char)(value >> 16);
    p[3] = (unsigned char)(value >> 24);
}

/* The element of a half that position p holds. The map is its own inverse. */
static inline uint32_t element_at(uint32_t p)
{
    return (p & 3) | (p >> 2 & 3) << 4 | (p >> 4) << 2;
}

/* How often each high byte occurs, counted in four tables so that equal neighbours do not wait
 * for each other. count[256] is the sum. */
static void count_high(uint32_t count[256], const unsigned char *w, uint32_t cols)
{
    uint32_t part[4][256];
    memset(part, 0, sizeof part);
    for (uint32_t i = 0; i < cols; i += 4) { /* cols is a multiple of 128 */
        part[0][w[2 * i + 1]]++;
        part[1][w[2 * i + 3]]++;
        part[2][w[2 * i + 5]]++;
        part[3][w[2 * i + 7]]++;
    }
    for (uint32_t v = 0; v < 256; v++) {
        count[v] = part[0][v] + part[1][v] + part[2][v] + part[3][v];
    }
}

/* The 15 most common values, ties to the lower one, and each value's index (15: none). Counts of
 * those chosen become 0. */
static void choose(unsigned char table[PACKED_TABLE_BYTES], unsigned char index_of[256],
                   uint32_t count[256])
{
    unsigned char met[256];
    uint32_t met_count = 0;
    memset(table, 0, PACKED_TABLE_BYTES);
    memset(index_of, ESCAPE_INDEX, 256);
    for (uint32_t v = 0; v < 256; v++) {
        met[met_count] = (unsigned char)v;
        met_count += count[v] > 0;
    }
    for (unsigned char k = 0; k < ESCAPE_INDEX && k < met_count; k++) {
        unsigned char best = met[0];
        for (uint32_t i = 1; i < met_count; i++) {
            best = count[met[i]] > count[best] ? met[i] : best;
        }
        table[k] = best;
        index_of[best] = k;
        count[best] = 0;
    }
}

/* The low bytes of four elements, in order. */
static inline uint32_t low_bytes(uint64_t four)
{
    four &= 0x00FF00FF00FF00FFULL;
    four = (four | four >> 8) & 0x0000FFFF0000FFFFULL;
    return (uint32_t)(four | four >> 16);
}

/* The indices of four elements, a byte each. */
static inline uint32_t indices(uint64_t four, const unsigned char index_of[256])
{
    return (uint32_t)index_of[four >> 8 & 255] | (uint32_t)index_of[four >> 24 & 255] << 8 |
           (uint32_t)index_of[four >> 40 & 255] << 16 | (uint32_t)index_of[four >> 56] << 24;
}

static inline uint64_t load_u64(const unsigned char *p)
{
    return (uint64_t)load_u32(p + 4) << 32 | load_u32(p);
}

/* Four neighbours stay neighbours: elements 16k + 4q.. at positions 16q + 4k.. */
static void encode_block(unsigned char *out, const unsigned char *w,
                         const unsigned char index_of[256])
{
    for (uint32_t p = 0; p < HALF; p += 4) {
        uint64_t first = load_u64(w + 2 * (size_t)element_at(p));
        uint64_t second = load_u64(w + 2 * (size_t)(HALF + element_at(p)));
        store_u32(out + p, indices(first, index_of) | indices(second, index_of) << 4);
        store_u32(out + HALF + p, low_bytes(first));
        store_u32(out + 2 * HALF + p, low_bytes(second));
    }
}

/* Codes one row and counts what has no index. */
static uint32_t encode_row(unsigned char *out, const unsigned char *w, uint32_t cols,
                           unsigned char index_of[256])
{
    uint32_t count[256];
    uint32_t whole = cols / PACKED_BLOCK * PACKED_BLOCK;
    uint32_t escapes = 0;
    count_high(count, w, whole);
    choose(out, index_of, count);
    for (uint32_t v = 0; v < 256; v++) {
        escapes += count[v]; /* choose() took the others out */
    }
    out += PACKED_TABLE_BYTES;
    for (uint32_t c = 0; c < whole; c += PACKED_BLOCK) {
        encode_block(out, w + 2 * (size_t)c, index_of);
        out += PACKED_BLOCK_BYTES;
    }
    memcpy(out, w + 2 * (size_t)whole, 2 * (size_t)(cols - whole));
    return escapes;
}

static void list_escapes(unsigned char *out, const unsigned char *w, uint32_t cols,
                         const unsigned char index_of[256])
{
    uint32_t whole = cols / PACKED_BLOCK * PACKED_BLOCK;
    for (uint32_t c = 0; c < whole; c++) {
        unsigned char high = w[2 * (size_t)c + 1];
        if (index_of[high] == ESCAPE_INDEX) {
            store_u32(out, c << 8 | high);
            out += 4;
        }
    }
}

uint64_t packed_encode_rows(unsigned char *out, uint64_t capacity_bytes, const unsigned char *w,
                            uint32_t rows, uint32_t cols)
{
    uint64_t row_bytes = packed_row_bytes(cols);
    uint64_t escapes = 0;
    unsigned char *first = out + rows * row_bytes;
    unsigned char *escape = first + (rows + 1ULL) * 4;
    store_u32(first, 0);
    for (uint32_t r = 0; r < rows; r++) {
        unsigned char index_of[256];
        const unsigned char *row = w + 2 * (size_t)cols * r;
        uint32_t more = encode_row(out + r * row_bytes, row, cols, index_of);
        if (packed_tile_bytes(rows, cols, escapes + more) > capacity_bytes) {
            return 0;
        }
        if (more > 0) {
            list_escapes(escape + escapes * 4, row, cols, index_of);
        }
        escapes += more;
        store_u32(first + (r + 1ULL) * 4, (uint32_t)escapes);
    }
    return packed_tile_bytes(rows, cols, escapes);
}

static bool columns_rise(const unsigned char *escape, uint32_t begin, uint32_t end, uint32_t whole)
{
    uint32_t next = 0;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t column = load_u32(escape + 4 * (size_t)i) >> 8;
        if (column < next || column >= whole) {
            return false;
        }
        next = column + 1;
    }
    return true;
}

bool packed_open(struct packed_tile *tile, const unsigned char *coded, uint64_t size_bytes,
                 uint32_t rows, uint32_t cols)
{
    if (!packed_fits(cols) || size_bytes < packed_tile_bytes(rows, cols, 0)) {
        return false;
    }
    uint64_t room = (size_bytes - packed_tile_bytes(rows, cols, 0)) / 4;
    tile->row = coded;
    tile->first = coded + rows * packed_row_bytes(cols);
    tile->escape = tile->first + (rows + 1ULL) * 4;
    if (load_u32(tile->first) != 0 ||
        packed_tile_bytes(rows, cols, load_u32(tile->first + 4ULL * rows)) != size_bytes) {
        return false;
    }
    uint32_t before = 0;
    for (uint32_t r = 0; r < rows; r++) {
        uint32_t after = load_u32(tile->first + (r + 1ULL) * 4);
        if (after < before || after > room ||
            !columns_rise(tile->escape, before, after, cols / PACKED_BLOCK * PACKED_BLOCK)) {
            return false;
        }
        before = after;
    }
    return true;
}

static void decode_block(unsigned char *out, const unsigned char *coded,
                         const unsigned char *table)
{
    unsigned char *second = out + 2 * HALF;
    for (uint32_t p = 0; p < HALF; p++) {
        uint32_t at = 2 * element_at(p);
        out[at] = coded[HALF + p];
        out[at + 1] = table[coded[p] & 15];
        second[at] = coded[2 * HALF + p];
        second[at + 1] = table[coded[p] >> 4];
    }
}

void packed_decode_rows(unsigned char *out, const struct packed_tile *tile, uint32_t rows,
                        uint32_t cols)
{
    uint32_t whole = cols / PACKED_BLOCK * PACKED_BLOCK;
    for (uint32_t r = 0; r < rows; r++) {
        const unsigned char *table = tile->row + r * packed_row_bytes(cols);
        const unsigned char *at = table + PACKED_TABLE_BYTES;
        unsigned char *row = out + 2 * (size_t)cols * r;
        for (uint32_t c = 0; c < whole; c += PACKED_BLOCK) {
            decode_block(row + 2 * (size_t)c, at, table);
            at += PACKED_BLOCK_BYTES;
        }
        memcpy(row + 2 * (size_t)whole, at, 2 * (size_t)(cols - whole));
        uint32_t end = load_u32(tile->first + (r + 1ULL) * 4);
        for (uint32_t i = load_u32(tile->first + 4ULL * r); i < end; i++) {
            uint32_t entry = load_u32(tile->escape + 4 * (size_t)i);
            row[2 * (size_t)(entry >> 8) + 1] = (unsigned char)entry;
        }
    }
}
