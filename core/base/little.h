/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_LITTLE_H
#define BASE_LITTLE_H

/* Whole numbers as files hold them: the lowest byte first, whatever the machine. */

#include "core/base/base.h"

/* The lowest size_bytes (at most 8) of value. */
static inline void little_put(unsigned char *to, uint64_t value, uint32_t size_bytes)
{
    for (uint32_t i = 0; i < size_bytes; i++) {
        to[i] = (unsigned char)(value >> (8 * i));
    }
}

static inline uint64_t little_get(const unsigned char *from, uint32_t size_bytes)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < size_bytes; i++) {
        value |= (uint64_t)from[i] << (8 * i);
    }
    return value;
}

#endif
