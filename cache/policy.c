/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/cache_priv.h"

#include <string.h>

const struct policy_ops *const policy_table[] = {
    &policy_arc, &policy_lar, &policy_arc_global, &policy_lru,
    &policy_lfu, &policy_none, &policy_lhr, NULL,
};

const struct policy_ops *policy_find(const char *name)
{
    for (size_t i = 0; policy_table[i] != NULL; i++) {
        if (strcmp(policy_table[i]->name, name) == 0) {
            return policy_table[i];
        }
    }
    return NULL;
}

uint32_t policy_key_count(const struct policy_shape *shape)
{
    assert(shape->layers > 0 && shape->experts > 0);
    assert(shape->experts <= UINT16_MAX + 1U);
    assert(shape->per_token > 0 && shape->per_token <= shape->experts);
    uint64_t keys = (uint64_t)shape->layers * shape->experts;
    assert(keys < KEY_NONE);
    return (uint32_t)keys;
}

uint64_t policy_bytes_max(const struct policy_shape *shape)
{
    /* Set by lhr: 30 bytes a key, 40 a layer, a mark per expert, 14 KiB of tables, the alignment
     * of each array. lar takes 29 bytes a key, arc 9 and 160 a layer. */
    const uint64_t key_bytes = 30, layer_bytes = 192, fixed_bytes = 16 * KIB;
    return key_bytes * policy_key_count(shape) + layer_bytes * shape->layers + shape->experts +
           fixed_bytes;
}

void *block_take(struct block *block, size_t count, size_t unit_bytes)
{
    unsigned char *piece = block->base == NULL ? NULL : block->base + block->used_bytes;
    block->used_bytes += (size_t)align_up((uint64_t)count * unit_bytes, 16);
    return piece;
}

bool block_alloc(struct block *block, const struct policy_shape *shape)
{
    assert(block->base == NULL);
    assert(block->used_bytes <= policy_bytes_max(shape));
    block->base = calloc(1, block->used_bytes);
    block->used_bytes = 0;
    return block->base != NULL;
}

void block_free(struct block *block)
{
    free(block->base);
    *block = (struct block){0};
}

struct policy *policy_make(size_t size_bytes, const struct policy_shape *shape,
                           void (*lay_out)(struct policy *policy, uint32_t keys))
{
    uint32_t keys = policy_key_count(shape);
    struct policy_head *head = calloc(1, size_bytes);
    if (head == NULL) {
        return NULL;
    }
    struct policy *policy = (struct policy *)(void *)head;
    head->shape = *shape;
    lay_out(policy, keys);
    if (!block_alloc(&head->block, shape)) {
        policy_free(policy);
        return NULL;
    }
    lay_out(policy, keys);
    return policy;
}

void policy_free(struct policy *policy)
{
    if (policy != NULL) {
        block_free(&((struct policy_head *)(void *)policy)->block);
        free(policy);
    }
}

void policy_evicted(struct policy_evictions *evictions, policy_key key)
{
    assert(evictions->count < evictions->capacity);
    evictions->key[evictions->count++] = key;
}

void key_list_init(struct key_list *list)
{
    *list = (struct key_list){.oldest = KEY_NONE, .newest = KEY_NONE};
}

void key_list_push(struct key_list *list, const struct key_links *links, uint32_t key)
{
    links->older[key] = list->newest;
    links->newer[key] = KEY_NONE;
    if (list->newest != KEY_NONE) {
        links->newer[list->newest] = key;
    } else {
        list->oldest = key;
    }
    list->newest = key;
    list->count++;
}

void key_list_remove(struct key_list *list, const struct key_links *links, uint32_t key)
{
    uint32_t older = links->older[key], newer = links->newer[key];
    assert(list->count > 0);
    if (older != KEY_NONE) {
        links->newer[older] = newer;
    } else {
        list->oldest = newer;
    }
    if (newer != KEY_NONE) {
        links->older[newer] = older;
    } else {
        list->newest = older;
    }
    list->count--;
}
