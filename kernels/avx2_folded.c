/* SPDX-License-Identifier: Apache-2.0 */

/* MXFP4 against several tokens with AVX2, the scale of a group being multiplied into its weights
 * when these are decoded. The last of the three fused steps of a group is an addition then, which
 * has pipes of its own.
 *
 * A sum of two products times 2^k is the same number with another exponent, if neither form
 * overflows or rounds to a subnormal on its way; zeros keep their signs. Let 2^a be at most every
 * nonzero activation, and 2^(b+1) above them all. Sums of two products are multiples of 2^(a-24)
 * and below 2^(b+5), so it takes a - 24 >= -149 and b + 5 <= 127, both also with k added; and
 * weights times 2^k are normal for k from -125 to 125. Blocks of rows with another scale are left
 * to the unfolded form. */

#include "kernels/vec_avx2.h"

#include "kernels/body_math.inc"

#define TILE_ROWS 4u
#define TILE_TOKENS 2u
#define BLOCK_COLS 512u  /* columns decoded, and activations packed, at a time */
#define BLOCK_ROWS 96u   /* rows that share packed activations, a multiple of TILE_ROWS */
#define BLOCK_TOKENS 32u /* tokens that share decoded rows */
#define HALF 16u         /* floats of half a group: lanes of the even elements, then of the odd */

/* ---- what may be folded ---- */

/* Scale bytes from low to high; none if low > high. */
struct scales {
    uint32_t low, high;
};

static struct scales scales_that_fold(const struct matmul *m)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i most = _mm256_setzero_si256();
    __m256i least = _mm256_set1_epi32(-1); /* of bits - 1, so that zeros do not count */
    for (uint32_t t = 0; t < m->tokens; t++) {
        const float *x = m->x + t * m->x_stride;
        for (uint32_t c = 0; c < m->cols; c += 8) {
            __m256i bits = _mm256_and_si256(V_INT(_mm256_loadu_ps(x + c)), magnitude);
            most = _mm256_max_epi32(most, bits);
            least = _mm256_min_epu32(least, _mm256_add_epi32(bits, _mm256_set1_epi32(-1)));
        }
    }
    uint32_t lanes[16];
    _mm256_storeu_si256((__m256i *)(void *)lanes, most);
    _mm256_storeu_si256((__m256i *)(void *)(lanes + 8), least);
    uint32_t high = 0;
    uint32_t low = UINT32_MAX;
    for (uint32_t i = 0; i < 8; i++) {
        high = lanes[i] > high ? lanes[i] : high;
        low = lanes[8 + i] < low ? lanes[8 + i] : low;
    }
    high >>= 23;                                      /* b + 127 */
    low = low == UINT32_MAX ? high : (low + 1) >> 23; /* a + 127 */
    if (high > 249 || (high > 0 && low < 2)) {
        return (struct scales){1, 0};
    }
    return (struct scales){low < 127 ? 129 - low : 2, high > 124 ? 376 - high : 252};
}

static bool all_fold(const unsigned char *scale, size_t n, struct scales s)
{
    uint32_t low = 255;
    uint32_t high = 0;
    size_t i = 0;
    if (n >= 32) {
        __m256i least = _mm256_set1_epi8(-1);
        __m256i most = _mm256_setzero_si256();
        for (; i + 32 <= n; i += 32) {
            __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)(scale + i));
            least = _mm256_min_epu8(least, bytes);
            most = _mm256_max_epu8(most, bytes);
        }
        unsigned char lanes[64];
        _mm256_storeu_si256((__m256i *)(void *)lanes, least);
        _mm256_storeu_si256((__m256i *)(void *)(lanes + 32), most);
        for (uint32_t j = 0; j < 32; j++) {
            low = lanes[j] < low ? lanes[j] : low;
            high = lanes[32 + j] > high ? lanes[32 + j] : high;
        }
    }
    for (; i < n; i++) {
        low = scale[i] < low ? scale[i] : low;
        high = scale[i] > high ? scale[i] : high;
    }
    return low >= s.low && high <= s.high;
}

/* ---- tiles ---- */

struct tile {
    const float *w; /* [half][group][row][HALF] */
    const float *x; /* [half][group][token][HALF] */
    float *acc;     /* [half][row][token][8] */
    size_t groups;
};

/* A group of a row. Steps that wait for each other are kept apart. */
ALWAYS_INLINE void row_step(__m256 acc[TILE_TOKENS], __m256 w_even, __m256 w_odd,
                            const __m256 even[TILE_TOKENS], const __m256 odd[TILE_TOKENS],
                            const uint32_t tokens)
{
    __m256 term[TILE_TOKENS];
    UNROLL
    for (uint32_t t = 0; t < TILE_TOKENS && t < tokens; t++) {
        term[t] = _mm256_mul_ps(w_even, even[t]);
    }
    UNROLL
    for (uint32_t t = 0; t < TILE_TOKENS && t < tokens; t++) {
        term[t] = _mm256_fmadd_ps(w_odd, odd[t], term[t]);
        OPAQUE(term[t]);
    }
    UNROLL
    for (uint32_t t = 0; t < TILE_TOKENS && t < tokens; t++) {
        acc[t] = _mm256_add_ps(acc[t], term[t]);
    }
}

/* tokens and half are constants at every call. */
ALWAYS_INLINE void tile_half(const struct tile *b, const uint32_t tokens, const uint32_t half)
{
    __m256 acc[TILE_ROWS][TILE_TOKENS];
    float *lanes = b->acc + half * TILE_ROWS * tokens * 8;
    UNROLL
    for (uint32_t r = 0; r < TILE_ROWS; r++) {
        UNROLL
        for (uint32_t t = 0; t < TILE_TOKENS && t < tokens; t++) {
            acc[r][t] = _mm256_load_ps(lanes + 8 * (r * tokens + t));
        }
    }
    const float *w = b->w + half * b->groups * TILE_ROWS * HALF;
    const float *x = b->x + half * b->groups * tokens * HALF;
    for (const float *end = x + b->groups * tokens * HALF; x < end; x += tokens * HALF) {
        __m256 even[TILE_TOKENS];
        __m256 odd[TILE_TOKENS];
        UNROLL
        for (uint32_t t = 0; t < TILE_TOKENS && t < tokens; t++) {
            even[t] = _mm256_load_ps(x + HALF * t);
            odd[t] = _mm256_load_ps(x + HALF * t + 8);
        }
        UNROLL
        for (uint32_t r = 0; r < TILE_ROWS; r++) {
            __m256 w_even = _mm256_load_ps(w + HALF * r);
            __m256 w_odd = _mm256_load_ps(w + HALF * r + 8);
            OPAQUE(w_odd);
            row_step(acc[r], w_even, w_odd, even, odd, tokens);
        }
        w += TILE_ROWS * HALF;
    }
    UNROLL
    for (uint32_t r = 0; r < TILE_ROWS; r++) {
        UNROLL
        for (uint32_t t = 0; t < TILE_TOKENS && t < tokens; t++) {
            _mm256_store_ps(lanes + 8 * (r * tokens + t), acc[r][t]);
        }
    }
}

static void tile_1(const struct tile *b)
{
    tile_half(b, 1, 0);
    tile_half(b, 1, 1);
}

static void tile_2(const struct tile *b)
{
    tile_half(b, 2, 0);
    tile_half(b, 2, 1);
}

/* ---- what tiles are made of ---- */

/* Eight words to eight lanes of a split group. A shuffle does what a shift would: there are two
 * pipes for it, and one of them stores. */
ALWAYS_INLINE void words_store(float *out, __m128i words, __m128 factor)
{
    const __m128i lower = _mm_setr_epi8(-1, -1, 0, 1, -1, -1, 4, 5, -1, -1, 8, 9, -1, -1, 12, 13);
    __m128i even = _mm_shuffle_epi8(words, lower);
    __m128i odd = _mm_and_si128(words, _mm_set1_epi32(-0x10000));
    _mm_store_ps(out, _mm_mul_ps(_mm_castsi128_ps(even), factor));
    _mm_store_ps(out + 4, _mm_mul_ps(_mm_castsi128_ps(odd), factor));
}

/* Sixteen codes, times factor, to the eight lanes of each half. */
ALWAYS_INLINE void codes_store(float *first, float *second, __m128i codes, __m128 factor)
{
    __m128i byte3 = _mm_shuffle_epi8(_mm_setr_epi8(E2M1_BYTE3), codes);
    __m128i byte2 = _mm_shuffle_epi8(_mm_setr_epi8(E2M1_BYTE2), codes);
    words_store(first, _mm_unpacklo_epi8(byte2, byte3), factor);
    words_store(second, _mm_unpackhi_epi8(byte2, byte3), factor);
}

/* groups of a row to out, which lies TILE_ROWS apart. */
static void row_decode(float *out, const unsigned char *w, const unsigned char *scale,
                       size_t groups)
{
    const __m128i nibble = _mm_set1_epi8(15);
    float *first = out;
    float *second = out + groups * TILE_ROWS * HALF;
    for (size_t g = 0; g < groups; g++) {
        __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(w + 16 * g));
        __m128 factor = _mm_set1_ps(f32_from_bits(mxfp4_scale_bits[scale[g]]));
        codes_store(first, second, _mm_and_si128(codes, nibble), factor);
        codes_store(first + 8, second + 8,
                    _mm_and_si128(_mm_srli_epi16(codes, 4), nibble), factor);
        first += TILE_ROWS * HALF;
        second += TILE_ROWS * HALF;
    }
}

/* Split activations of one or two tokens as a tile takes them. */
static void pack(float *out, const float *x, size_t x_stride, size_t groups, uint32_t tokens)
{
    float *first = out;
    float *second = out + groups * tokens * HALF;
    for (size_t g = 0; g < groups; g++) {
        for (uint32_t t = 0; t < tokens; t++) {
            const float *from = x + t * x_stride + g * MXFP4_GROUP;
            _mm256_store_ps(first, _mm256_loadu_ps(from));
            _mm256_store_ps(first + 8, _mm256_loadu_ps(from + 16));
            _mm256_store_ps(second, _mm256_loadu_ps(from + 8));
            _mm256_store_ps(second + 8, _mm256_loadu_ps(from + 24));
            first += HALF;
            second += HALF;
        }
    }
}

/* ---- blocks ---- */

/* Rows [first, first + rows) by tokens [token, token + tokens). */
struct block {
    const struct matmul *m;
    uint32_t first, rows, token, tokens;
    float *acc; /* [tile of rows][tile of tokens][half][row][token][8] */
};

/* The row at place r; places past the last row repeat it. */
static size_t block_row(const struct block *b, uint32_t r)
{
    return b->first + (r < b->rows ? r : b->rows - 1);
}

ALWAYS_INLINE void block_prefetch(const struct block *b, uint32_t row, size_t c, size_t cols)
{
    for (uint32_t r = row; r < row + TILE_ROWS && r < b->rows; r++) {
        const unsigned char *p = b->m->w + (block_row(b, r) * b->m->cols + c) / 2;
        for (size_t i = 0; i < cols / 2; i += 64) {
            _mm_prefetch((const char *)p + i, _MM_HINT_T0);
        }
    }
}

/* Columns [c, c + cols) of all rows. */
static void block_columns(const struct block *b, size_t c, size_t cols)
{
    _Alignas(64) float x[BLOCK_TOKENS * BLOCK_COLS];
    _Alignas(64) float w[TILE_ROWS * BLOCK_COLS];
    const struct matmul *m = b->m;
    size_t groups = cols / MXFP4_GROUP;
    struct tile tile = {.w = w, .acc = b->acc, .groups = groups};
    for (uint32_t t = 0; t < b->tokens; t += TILE_TOKENS) {
        pack(x + t * cols, m->x + (b->token + t) * m->x_stride + c, m->x_stride, groups,
             b->tokens - t < TILE_TOKENS ? 1 : TILE_TOKENS);
    }
    for (uint32_t row = 0; row < b->rows; row += TILE_ROWS) {
        for (uint32_t r = 0; r < TILE_ROWS; r++) {
            size_t at = block_row(b, row + r) * m->cols + c;
            row_decode(w + r * HALF, m->w + at / 2, m->scale + at / MXFP4_GROUP, groups);
        }
        block_prefetch(b, row + TILE_ROWS, c, cols);
        for (uint32_t t = 0; t < b->tokens; t += TILE_TOKENS) {
            tile.x = x + t * cols;
            if (b->tokens - t < TILE_TOKENS) {
                tile_1(&tile);
            } else {
                tile_2(&tile);
            }
            tile.acc += TILE_ROWS * (b->tokens - t < TILE_TOKENS ? 1 : TILE_TOKENS) * LANES_F32;
        }
    }
}

static void block_finish(const struct block *b)
{
    const struct matmul *m = b->m;
    for (uint32_t r = 0; r < b->rows; r++) {
        const float *of_rows = b->acc + (size_t)r / TILE_ROWS * TILE_ROWS * b->tokens * LANES_F32;
        for (uint32_t t = 0; t < b->tokens; t++) {
            uint32_t pair = t / TILE_TOKENS * TILE_TOKENS;
            uint32_t tokens = b->tokens - pair < TILE_TOKENS ? 1 : TILE_TOKENS;
            const float *at = of_rows + TILE_ROWS * pair * LANES_F32 +
                              (r % TILE_ROWS * tokens + (t - pair)) * 8;
            struct v16 lanes = v16_join(_mm256_load_ps(at),
                                        _mm256_load_ps(at + TILE_ROWS * tokens * 8));
            m->y[(b->token + t) * m->y_stride + b->first + r] = v16_sum(v16_unsplit(lanes));
        }
    }
}

static void block_multiply(struct block *b)
{
    const struct matmul *m = b->m;
    for (b->token = 0; b->token < m->tokens; b->token += BLOCK_TOKENS) {
        b->tokens = m->tokens - b->token < BLOCK_TOKENS ? m->tokens - b->token : BLOCK_TOKENS;
        memset(b->acc, 0, sizeof(float) * BLOCK_ROWS * b->tokens * LANES_F32);
        for (size_t c = 0; c < m->cols; c += BLOCK_COLS) {
            block_columns(b, c, m->cols - c < BLOCK_COLS ? m->cols - c : BLOCK_COLS);
        }
        block_finish(b);
    }
}

void avx2_mxfp4_folded(const struct matmul *m, void (*others)(const struct matmul *m))
{
    _Alignas(64) float acc[BLOCK_ROWS * BLOCK_TOKENS * LANES_F32];
    struct scales s = scales_that_fold(m);
    size_t groups = m->cols / MXFP4_GROUP;
    struct block b = {.m = m, .acc = acc};
    for (; b.first < m->rows; b.first += BLOCK_ROWS) {
        b.rows = m->rows - b.first < BLOCK_ROWS ? m->rows - b.first : BLOCK_ROWS;
        if (all_fold(m->scale + b.first * groups, b.rows * groups, s)) {
            block_multiply(&b);
            continue;
        }
        struct matmul rows = *m;
        rows.y += b.first;
        rows.w += b.first * groups * MXFP4_GROUP_BYTES;
        rows.scale += b.first * groups;
        rows.rows = b.rows;
        others(&rows);
    }
}
