/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SYNTH_H
#define CLI_SYNTH_H

/* Writes a synthetic checkpoint in the released layout: shards, index, config.json and the
 * marker that names the folder as synthetic. Every weight is a function of (preset, seed, tensor
 * name, element), so two runs write the same bytes whatever the order of their writes. */

#include "core/base/base.h"

enum synth_preset {
    SYNTH_TINY, /* the fixed 13-layer model whose outputs are known; 4.4 MB */
    SYNTH_K3    /* the released geometry, or a part of it at full widths */
};

struct synth_options {
    enum synth_preset preset;
    uint32_t layers;  /* K3 only: 4..93; 0 = 93 */
    uint32_t experts; /* K3 only: 1..896; 0 = 896 */
    uint32_t vocab;   /* K3 only: 256..163840; 0 = 163840 */
    uint64_t seed;    /* K3 only: TINY takes 0 and 1, to the same effect */
    bool sparse;      /* K3 only: most rows of the large matrices stay holes */
    uint32_t threads; /* writers; 0 = 2 */
    /* Called now and then, from any writer but never from two at once; may be NULL.
     * Returns false to stop the run, which then fails with ERR_STOPPED. */
    bool (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
};

/* dir must not exist or be an empty folder. When the call fails, what it wrote is removed.
 * ERR_USAGE: an option out of range, or dir is in use. ERR_FIT: too little space on the disk.
 * ERR_OUTPUT: a write failed. ERR_STOPPED: stopped by progress(). */
int synth_write(const char *dir, const struct synth_options *options);

#endif
