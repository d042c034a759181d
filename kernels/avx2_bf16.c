/* SPDX-License-Identifier: Apache-2.0 */

/* bf16 matrix products with AVX2. One token: four rows in flight, and weights kept as pairs, so
 * that a shift and a mask decode sixteen of them. Several tokens: panels of up to four, whose
 * activations are packed for a few columns at a time and then meet every row in register tiles.
 * Each tile decodes its weights anew: interleaving with zeros has a pipe that fused steps leave
 * free, which storing decoded weights and loading them back has not. */

#include "kernels/vec_avx2.h"

#include "kernels/body_math.inc"

#define ROWS 4u         /* in flight against one token */
#define TILE_ROWS 3u    /* of a register tile against several */
#define TILE_TOKENS 4u
#define BLOCK_COLS 768u /* columns whose activations are packed at a time */
/* Twice as many of both are 2 % faster, and take four times the stack of every worker. */
#define BLOCK_ROWS 48u  /* rows that share them, a multiple of TILE_ROWS */
#define BLOCK_PANELS 4u /* panels that share a block of rows while it is in the caches */

/* The last elements of a row, then the tree. c elements are in the lanes already. */
static float row_finish(const float lanes[LANES_F32], const unsigned char *w, const float *x,
                        size_t c, size_t cols)
{
    struct v16 acc = v16_load(lanes);
    if (c < cols) {
        acc = v16_fma_n(v16_bf16_n(w + 2 * c, cols - c), v16_load_n(x + c, cols - c), acc,
                        cols - c);
    }
    return v16_sum(acc);
}

/* even: lanes 0 2 .. 14, odd: lanes 1 3 .. 15; back to 0 .. 15. */
ALWAYS_INLINE struct v16 lanes_merge(__m256 even, __m256 odd)
{
    __m256 lo = _mm256_unpacklo_ps(even, odd); /* 0..3, 8..11 */
    __m256 hi = _mm256_unpackhi_ps(even, odd); /* 4..7, 12..15 */
    return v16_join(_mm256_permute2f128_ps(lo, hi, 0x20), _mm256_permute2f128_ps(lo, hi, 0x31));
}

/* p[0..3] and p[8..11]. */
ALWAYS_INLINE __m256 load_4_and_4(const float *p)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + 8), 1);
}

static void rows_one_token(float out[ROWS], const unsigned char *const w[ROWS], const float *x,
                           size_t cols)
{
    const __m256i upper = _mm256_set1_epi32(-0x10000);
    __m256 even[ROWS];
    __m256 odd[ROWS];
    UNROLL
    for (uint32_t r = 0; r < ROWS; r++) {
        even[r] = _mm256_setzero_ps();
        odd[r] = _mm256_setzero_ps();
    }
    size_t c = 0;
    for (; c + LANES_F32 <= cols; c += LANES_F32) {
        __m256 a = load_4_and_4(x + c);
        __m256 b = load_4_and_4(x + c + 4);
        __m256 x_even = _mm256_shuffle_ps(a, b, 0x88);
        __m256 x_odd = _mm256_shuffle_ps(a, b, 0xdd);
        UNROLL
        for (uint32_t r = 0; r < ROWS; r++) {
            __m256i pair = _mm256_loadu_si256((const __m256i *)(const void *)(w[r] + 2 * c));
            __m256 w_even = V_F32(_mm256_slli_epi32(pair, 16));
            __m256 w_odd = V_F32(_mm256_and_si256(pair, upper));
            even[r] = _mm256_fmadd_ps(w_even, x_even, even[r]);
            odd[r] = _mm256_fmadd_ps(w_odd, x_odd, odd[r]);
        }
    }
    float lanes[ROWS][LANES_F32];
    UNROLL
    for (uint32_t r = 0; r < ROWS; r++) {
        v16_store(lanes[r], lanes_merge(even[r], odd[r]));
    }
    for (uint32_t r = 0; r < ROWS; r++) {
        out[r] = row_finish(lanes[r], w[r], x, c, cols);
    }
}

/* ---- several tokens ---- */

/* A register tile: three rows by some tokens. A half is lanes 0..3 and 8..11, or 4..7 and 12..15,
 * which is what interleaving words with zeros makes of sixteen weights. */
struct tile {
    const unsigned char *w[TILE_ROWS]; /* at the first column */
    const float *x;                    /* [half][step][token][8], packed */
    float *acc;                        /* [half][row][token][8] */
    size_t steps;                      /* of sixteen columns */
    size_t ahead;                      /* bytes from these rows to those that come next */
};

ALWAYS_INLINE __m256 weights_of_half(__m256i zero, const unsigned char *p, const uint32_t half)
{
    __m256i words = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return V_F32(half == 0 ? _mm256_unpacklo_epi16(zero, words)
                           : _mm256_unpackhi_epi16(zero, words));
}

/* tokens and half are constants at every call. Loops over tokens have a second bound, which does
 * not wait for that, so that clang unrolls them whole. */
ALWAYS_INLINE void tile_step(__m256 acc[TILE_ROWS][TILE_TOKENS],
                             const unsigned char *const w[TILE_ROWS], const float *x,
                             const uint32_t tokens, const uint32_t half)
{
    __m256 weight[TILE_ROWS];
    __m256i zero = _mm256_setzero_si256();
    OPAQUE(zero);
    UNROLL
    for (uint32_t r = 0; r < TILE_ROWS; r++) {
        weight[r] = weights_of_half(zero, w[r], half);
    }
    UNROLL
    for (uint32_t t = 0; t < TILE_TOKENS && t < tokens; t++) {
        __m256 xt = _mm256_load_ps(x + 8 * t);
        OPAQUE(xt);
        UNROLL
        for (uint32_t r = 0; r < TILE_ROWS; r++) {
            acc[r][t] = _mm256_fmadd_ps(weight[r], xt, acc[r][t]);
        }
    }
}

ALWAYS_INLINE void tile_half(const struct tile *b, const uint32_t tokens, const uint32_t half)
{
    __m256 acc[TILE_ROWS][TILE_TOKENS];
    float *lanes = b->acc + half * TILE_ROWS * tokens * 8;
    const unsigned char *w[TILE_ROWS] = {b->w[0], b->w[1], b->w[2]};
    const size_t ahead = b->ahead;
    UNROLL
    for (uint32_t r = 0; r < TILE_ROWS; r++) {
        UNROLL
        for (uint32_t t = 0; t < TILE_TOKENS && t < tokens; t++) {
            acc[r][t] = _mm256_load_ps(lanes + 8 * (r * tokens + t));
        }
    }
    const float *x = b->x + half * b->steps * tokens * 8;
    for (const float *end = x + b->steps * tokens * 8; x < end; x += tokens * 8) {
        tile_step(acc, w, x, tokens, half);
        UNROLL
        for (uint32_t r = 0; r < TILE_ROWS; r++) {
            if (half == 0) {
                _mm_prefetch((const char *)w[r] + ahead, _MM_HINT_T0);
            }
            w[r] += 2 * LANES_F32;
        }
    }
    UNROLL
    for (uint32_t r = 0; r < TILE_ROWS; r++) {
        UNROLL
        for (uint32_t t = 0; t < TILE_TOKENS && t < tokens; t++) {
            _mm256_store_ps(lanes + 8 * (r * tokens + t), acc[r][t]);
        }
    }
}

#define TILE_FUNCTION(tokens)                                                                  \
    static void tile_##tokens(const struct tile *b)                                            \
    {                                                                                          \
        tile_half(b, tokens, 0);                                                               \
        tile_half(b, tokens, 1);                                                               \
    }

TILE_FUNCTION(2)
TILE_FUNCTION(3)
TILE_FUNCTION(4)

/* Sixteen columns a step of some tokens, in the order in which tile_half meets them. */
static void pack(float *out, const float *x, size_t x_stride, size_t steps, uint32_t tokens)
{
    float *first = out;
    float *second = out + steps * tokens * 8;
    for (size_t s = 0; s < steps; s++) {
        for (uint32_t t = 0; t < tokens; t++) {
            const float *from = x + t * x_stride + 16 * s;
            _mm_store_ps(first, _mm_loadu_ps(from));
            _mm_store_ps(first + 4, _mm_loadu_ps(from + 8));
            _mm_store_ps(second, _mm_loadu_ps(from + 4));
            _mm_store_ps(second + 4, _mm_loadu_ps(from + 12));
            first += 8;
            second += 8;
        }
    }
}

/* Some rows by the tokens of one panel, whose activations are packed once for all rows. */
struct panel {
    const struct matmul *m;
    uint32_t first, rows, token, tokens;
    float *acc; /* [tile][half][row][token][8] */
};

/* Row r of the panel; those past the last one repeat it. */
static const unsigned char *panel_row(const struct panel *b, uint32_t r)
{
    return b->m->w + 2 * (size_t)(b->first + (r < b->rows ? r : b->rows - 1)) * b->m->cols;
}

static void panel_columns(const struct panel *b, size_t c, size_t cols)
{
    static void (*const run[])(const struct tile *) = {NULL, NULL, tile_2, tile_3, tile_4};
    _Alignas(64) float x[TILE_TOKENS * BLOCK_COLS];
    const struct matmul *m = b->m;
    pack(x, m->x + b->token * m->x_stride + c, m->x_stride, cols / LANES_F32, b->tokens);
    struct tile tile = {.x = x, .acc = b->acc, .steps = cols / LANES_F32};
    for (uint32_t first = 0; first < b->rows; first += TILE_ROWS) {
        for (uint32_t r = 0; r < TILE_ROWS; r++) {
            tile.w[r] = panel_row(b, first + r) + 2 * c;
        }
        tile.ahead = first + 2 * TILE_ROWS <= b->rows ? 2 * (size_t)TILE_ROWS * m->cols : 0;
        run[b->tokens](&tile);
        tile.acc += TILE_ROWS * b->tokens * LANES_F32;
    }
}

/* The last columns and the tree. */
static void panel_finish(const struct panel *b, size_t whole)
{
    const struct matmul *m = b->m;
    for (uint32_t r = 0; r < b->rows; r++) {
        const float *half = b->acc + r / TILE_ROWS * TILE_ROWS * b->tokens * LANES_F32 +
                            r % TILE_ROWS * b->tokens * 8;
        for (uint32_t t = 0; t < b->tokens; t++) {
            __m256 first = _mm256_load_ps(half + 8 * t);
            __m256 second = _mm256_load_ps(half + (TILE_ROWS * b->tokens + t) * 8);
            float lanes[LANES_F32];
            v16_store(lanes, v16_join(_mm256_permute2f128_ps(first, second, 0x20),
                                      _mm256_permute2f128_ps(first, second, 0x31)));
            size_t token = b->token + t;
            m->y[token * m->y_stride + b->first + r] =
                row_finish(lanes, panel_row(b, r), m->x + token * m->x_stride, whole, m->cols);
        }
    }
}

static void panels_multiply(struct panel *panel, uint32_t count)
{
    const struct matmul *m = panel->m;
    size_t whole = m->cols / LANES_F32 * LANES_F32;
    for (size_t c = 0; c < whole; c += BLOCK_COLS) {
        for (uint32_t i = 0; i < count; i++) {
            panel_columns(&panel[i], c, whole - c < BLOCK_COLS ? whole - c : BLOCK_COLS);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        panel_finish(&panel[i], whole);
    }
}

/* Begin of part i when n are divided as evenly as can be: no part is a single token. */
static uint32_t part_begin(uint32_t n, uint32_t parts, uint32_t i)
{
    return (uint32_t)((uint64_t)n * i / parts);
}

static void several_tokens(const struct matmul *m)
{
    _Alignas(64) float acc[BLOCK_PANELS * BLOCK_ROWS * TILE_TOKENS * LANES_F32];
    struct panel panel[BLOCK_PANELS];
    uint32_t panels = (m->tokens + TILE_TOKENS - 1) / TILE_TOKENS;
    for (uint32_t from = 0; from < panels; from += BLOCK_PANELS) {
        uint32_t count = panels - from < BLOCK_PANELS ? panels - from : BLOCK_PANELS;
        for (uint32_t first = 0; first < m->rows; first += BLOCK_ROWS) {
            uint32_t rows = m->rows - first < BLOCK_ROWS ? m->rows - first : BLOCK_ROWS;
            for (uint32_t i = 0; i < count; i++) {
                uint32_t token = part_begin(m->tokens, panels, from + i);
                panel[i] = (struct panel){
                    .m = m, .first = first, .rows = rows, .token = token,
                    .tokens = part_begin(m->tokens, panels, from + i + 1) - token,
                    .acc = acc + i * BLOCK_ROWS * TILE_TOKENS * LANES_F32};
            }
            memset(acc, 0, sizeof(float) * BLOCK_ROWS * TILE_TOKENS * LANES_F32 * count);
            panels_multiply(panel, count);
        }
    }
}

static void block_one_token(const struct matmul *m, const unsigned char *const w[ROWS],
                            uint32_t first, uint32_t rows)
{
    float out[ROWS];
    rows_one_token(out, w, m->x, m->cols);
    for (uint32_t r = 0; r < rows; r++) {
        m->y[first + r] = out[r];
    }
}

void avx2_bf16(const struct matmul *m)
{
    if (m->tokens > 1) {
        several_tokens(m);
        return;
    }
    for (uint32_t first = 0; first < m->rows; first += ROWS) {
        uint32_t rows = m->rows - first < ROWS ? m->rows - first : ROWS;
        /* A short block repeats its last row and drops the extra results. */
        const unsigned char *w[ROWS];
        for (uint32_t r = 0; r < ROWS; r++) {
            w[r] = m->w + 2 * (size_t)(first + (r < rows ? r : rows - 1)) * m->cols;
        }
        block_one_token(m, w, first, rows);
    }
}
