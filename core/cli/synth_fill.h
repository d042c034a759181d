/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SYNTH_FILL_H
#define CLI_SYNTH_FILL_H

/* The values of synthetic weights. A value depends on the preset, the seed, the tensor's name
 * and the element's index only. No libm: the tables are the same bits everywhere. */

#include "core/cli/synth_layout.h"

#define SYNTH_QUANTILES 32768

/* Tables of one writer thread. */
struct synth_fill {
    enum synth_preset preset;
    uint64_t seed;
    uint32_t kda_heads;                   /* A_log is zero from here on */
    float quantile[SYNTH_QUANTILES];      /* magnitudes of a standard Gaussian, ascending */
    uint16_t scaled[SYNTH_QUANTILES];     /* the same in bf16, times scaled_spread */
    double scaled_spread;                 /* 0 = scaled is not filled yet */
    unsigned char nibbles[65536];         /* 16 random bits -> two E2M1 codes */
    unsigned char scales[256];            /* 8 random bits -> E8M0 scale */
};

void synth_fill_init(struct synth_fill *fill, const struct synth_geometry *geometry,
                     uint64_t seed);

/* Writes elements [begin, begin + count) of tensor to out, little-endian, any alignment. */
void synth_fill_run(struct synth_fill *fill, const struct synth_tensor *tensor, uint64_t begin,
                    uint64_t count, unsigned char *out);

#endif
