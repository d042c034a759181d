/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/text_limit.h"

#include <stdio.h>

#include "core/base/err.h"
#include "core/exec/engine.h"

/* Measured: encoding takes 9 bytes for each byte of text, a tree of JSON numbers 39. */
static const struct {
    uint64_t ram_share, most_bytes;
    uint32_t written; /* bytes that may stand for one of text: escapes and indentation */
} kinds[] = {
    [TEXT_PLAIN] = {16, 256 * MIB, 1},
    [TEXT_JSON] = {64, 256 * MIB, 8},
    [TEXT_LINES] = {2, UINT64_MAX, 1},
};

struct text_limit text_limit_of(enum text_kind kind, uint64_t ram_bytes)
{
    uint64_t ram = engine_ram_bytes(ram_bytes != 0 ? ram_bytes : ENGINE_RAM_AUTO);
    uint64_t bytes = max_u64(TEXT_LIMIT_LEAST, ram / kinds[kind].ram_share);
    if (bytes > kinds[kind].most_bytes) {
        return (struct text_limit){.bytes = kinds[kind].most_bytes};
    }
    return (struct text_limit){.bytes = bytes, .ram_bytes = ram};
}

void text_limit_context(struct text_limit *limit, enum text_kind kind, uint64_t positions,
                        uint32_t token_bytes)
{
    uint64_t each = (uint64_t)token_bytes * kinds[kind].written;
    uint64_t bytes = max_u64(TEXT_LIMIT_LEAST, min_u64(positions, UINT32_MAX) * each);
    if (bytes < limit->bytes) {
        *limit = (struct text_limit){.bytes = bytes, .positions = positions};
    }
}

int text_limit_check(const struct text_limit *limit, const char *called, const char *name,
                     uint64_t size_bytes)
{
    char more[96], room[96] = "a text may have; give a shorter one";
    if (size_bytes > 0 && size_bytes <= limit->bytes) {
        return 0;
    }
    if (size_bytes > 0) {
        snprintf(more, sizeof more, "%llu bytes, more than the %llu",
                 (unsigned long long)size_bytes, (unsigned long long)limit->bytes);
    } else {
        snprintf(more, sizeof more, "more than the %llu bytes", (unsigned long long)limit->bytes);
    }
    if (limit->positions > 0) {
        snprintf(room, sizeof room, "%llu positions have room for; give a larger --context or a "
                 "shorter text", (unsigned long long)limit->positions);
    } else if (limit->ram_bytes > 0) {
        snprintf(room, sizeof room, "%.1f MiB of RAM have room for; give a larger --ram or a "
                 "shorter text", (double)limit->ram_bytes / (double)MIB);
    }
    return err_set(ERR_FIT, "%s: %s has %s that %s", called, name, more, room);
}
