/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CACHE_ARC_CORE_H
#define CACHE_ARC_CORE_H

/* One instance of ARC (Megiddo and Modha, FAST '03) over keys 0 .. keys-1. The residents are
 * split in T1 (seen once lately) and T2 (seen more often); B1 and B2 remember, without memory
 * for the bytes, what left them. A request for a remembered key moves the target size of T1.
 *
 *   OUT --miss--> T1 --hit--> T2 ;  T1 --replace--> B1 ;  T2 --replace--> B2
 *   B1, B2 --miss--> T2 ;  B1, B2, and T1 when it fills everything, --oldest dropped--> OUT
 *
 * Invariants: |T1| + |T2| <= c, |T1| + |B1| <= c, all four together <= 2c, 0 <= target <= c. */

#include "cache/cache_priv.h"

enum arc_place { ARC_OUT, ARC_T1, ARC_T2, ARC_B1, ARC_B2, ARC_PLACES };

struct arc_core {
    struct key_links links;
    uint8_t *place;                   /* enum arc_place of each key */
    struct key_list list[ARC_PLACES]; /* [ARC_OUT] is not used */
    double target;                    /* wanted size of T1, "p" of the paper; a real number */
    uint32_t capacity;                /* c; 0 keeps nothing */
};

/* Lays out the arrays in a block (see struct block) of the policy that owns the core. */
void arc_core_take(struct arc_core *core, struct block *block, uint32_t keys);
void arc_core_init(struct arc_core *core, uint32_t capacity);

bool arc_core_resident(const struct arc_core *core, uint32_t key);

/* Serves one request; capacity > 0. Returns the key that left or KEY_NONE. Keys marked in held
 * (may be NULL) are no victims as long as another resident is; a held resident must have been
 * requested more recently than any that is not held. */
uint32_t arc_core_request(struct arc_core *core, uint32_t key, const bool *held);

#endif
