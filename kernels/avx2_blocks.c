/* SPDX-License-Identifier: Apache-2.0 */

/* Weight matrices against several tokens with AVX2: the decoders and tiles of body_blocks.inc. */

#include "core/base/packed.h"
#include "kernels/vec_avx2.h"

#include "kernels/body_math.inc"
#include "kernels/body_blocks.inc"

TILE_FUNCTION(dot, 3, 1)
TILE_FUNCTION(dot, 3, 2)
TILE_FUNCTION(dot, 3, 3)
TILE_FUNCTION(dot, 3, 4)
TILE_FUNCTION(group, 3, 1)
TILE_FUNCTION(group, 3, 2)

static tile_function *const dot_tiles[] = {dot_3x1, dot_3x2, dot_3x3, dot_3x4};
static tile_function *const group_tiles[] = {group_3x1, group_3x2};

/* Sixteen codes as f32 in the order of a split group. */
ALWAYS_INLINE void codes_store(float *out, __m128i codes)
{
    const __m128i upper = _mm_set1_epi32(-0x10000);
    __m128i byte3 = _mm_shuffle_epi8(_mm_setr_epi8(E2M1_BYTE3), codes);
    __m128i byte2 = _mm_shuffle_epi8(_mm_setr_epi8(E2M1_BYTE2), codes);
    __m128i first = _mm_unpacklo_epi8(byte2, byte3);
    __m128i second = _mm_unpackhi_epi8(byte2, byte3);
    _mm_storeu_ps(out, _mm_castsi128_ps(_mm_slli_epi32(first, 16)));
    _mm_storeu_ps(out + 4, _mm_castsi128_ps(_mm_and_si128(first, upper)));
    _mm_storeu_ps(out + 8, _mm_castsi128_ps(_mm_slli_epi32(second, 16)));
    _mm_storeu_ps(out + 12, _mm_castsi128_ps(_mm_and_si128(second, upper)));
}

static void mxfp4_decode(float *out, const struct matmul *m, uint32_t row, size_t c, size_t n)
{
    const __m128i nibble = _mm_set1_epi8(15);
    size_t groups = m->cols / MXFP4_GROUP;
    const unsigned char *w = m->w + row * groups * MXFP4_GROUP_BYTES + c / 2;
    const unsigned char *scale = m->scale + row * groups + c / MXFP4_GROUP;
    for (size_t g = 0; g < n / MXFP4_GROUP; g++) {
        __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(w + g * 16));
        codes_store(out + 32 * g, _mm_and_si128(codes, nibble));
        codes_store(out + 32 * g + 16, _mm_and_si128(_mm_srli_epi16(codes, 4), nibble));
        out[BLOCK_COLS + g] = f32_from_bits(mxfp4_scale_bits[scale[g]]);
    }
}

static struct v16 lanes_of_split(const float *acc)
{
    return v16_unsplit(v16_load(acc));
}

void avx2_packed_tokens(const struct matmul *m)
{
    struct block_format f = {.row_bytes = packed_row_bytes(m->cols),
                             .head_bytes = PACKED_TABLE_BYTES, .unit_bytes = PACKED_BLOCK_BYTES,
                             .tile_rows = 3, .tile_tokens = 4, .run = dot_tiles,
                             .decode = avx2_packed_decode, .lanes = lanes_as_stored};
    blocks_multiply(m, &f);
}

void avx2_mxfp4_tokens(const struct matmul *m)
{
    struct block_format f = {.row_bytes = m->cols / 2, .unit_bytes = 64, .tile_rows = 3,
                             .tile_tokens = 2, .run = group_tiles, .decode = mxfp4_decode,
                             .lanes = lanes_of_split};
    blocks_multiply(m, &f);
}
