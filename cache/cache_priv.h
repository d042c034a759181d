/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CACHE_CACHE_PRIV_H
#define CACHE_CACHE_PRIV_H

/* What the policies share and nobody else sees: their tables, one block of memory each, and
 * lists threaded through arrays of keys. */

#include <stdlib.h>

#include "cache/policy.h"

#define KEY_NONE UINT32_MAX

extern const struct policy_ops policy_arc, policy_lar, policy_arc_global, policy_lru, policy_lfu,
    policy_none, policy_lhr;

/* layers * experts; asserts that the shape is one a policy can hold. */
uint32_t policy_key_count(const struct policy_shape *shape);

/* No policy takes more than this; block_alloc() asserts it. */
uint64_t policy_bytes_max(const struct policy_shape *shape);

/* The arrays of a policy, cut from one zeroed piece. The owner lays them out twice with the same
 * calls: without base to measure, then with it. */
struct block {
    unsigned char *base; /* NULL while measuring */
    size_t used_bytes;
};

/* The next array, or NULL while measuring. */
void *block_take(struct block *block, size_t count, size_t unit_bytes);
/* Ends the measuring; false when memory is refused. */
bool block_alloc(struct block *block, const struct policy_shape *shape);
void block_free(struct block *block);

/* What every policy with memory begins with. */
struct policy_head {
    struct block block;
    struct policy_shape shape;
};

/* A zeroed policy of size_bytes whose first member is a policy_head; lay_out takes its arrays and
 * is called twice. NULL when memory is refused. */
struct policy *policy_make(size_t size_bytes, const struct policy_shape *shape,
                           void (*lay_out)(struct policy *policy, uint32_t keys));
void policy_free(struct policy *policy); /* NULL is fine */

/* Appends; asserts that the caller gave enough room. */
void policy_evicted(struct policy_evictions *evictions, policy_key key);

/* Doubly linked lists over keys; one pair of link arrays serves any number of disjoint lists. */
struct key_links {
    uint32_t *older, *newer; /* per key; KEY_NONE at the ends */
};

struct key_list {
    uint32_t oldest, newest; /* KEY_NONE when empty */
    uint32_t count;
};

void key_list_init(struct key_list *list);
void key_list_push(struct key_list *list, const struct key_links *links, uint32_t key);
void key_list_remove(struct key_list *list, const struct key_links *links, uint32_t key);

#endif
