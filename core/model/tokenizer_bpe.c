/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model/tokenizer_bpe.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

/* Below this many bytes the search is cheaper than a heap. */
#define SHORT_BYTES 64U

#define NOWHERE UINT32_MAX

/* The table of all tokens does not fit the nearer caches; what text repeats, this does. */
#define KNOWN_BITS 12
#define KNOWN_COUNT ((size_t)1 << KNOWN_BITS)
#define KNOWN_BYTES_MAX 16U

/* Bytes looked up before, all within two words. */
struct bpe_known {
    uint64_t head, tail; /* overlapping, or beside one another */
    uint32_t size_bytes; /* 0: nothing yet */
    uint32_t rank;       /* or RANKS_NONE */
};

/* What has been merged so far from one place on. A long piece's parts are a list. */
struct bpe_part {
    uint32_t begin;      /* byte of the piece */
    uint32_t rank;       /* of its own bytes; RANKS_NONE once merged into the part before it */
    uint32_t pair;       /* of its bytes and the next part's, or RANKS_NONE */
    uint32_t before, next;
};

static int reserve(struct bpe *bpe, size_t size_bytes)
{
    if (size_bytes <= bpe->capacity) {
        return 0;
    }
    size_t capacity = size_bytes < 1024 ? 1024 : size_bytes;
    bpe_free(bpe);
    bpe->parts = malloc((capacity + 1) * sizeof *bpe->parts);
    bpe->heap = malloc(2 * capacity * sizeof *bpe->heap);
    bpe->ids = malloc(capacity * sizeof *bpe->ids);
    bpe->known = calloc(KNOWN_COUNT, sizeof *bpe->known);
    if (bpe->parts == NULL || bpe->heap == NULL || bpe->ids == NULL || bpe->known == NULL) {
        bpe_free(bpe);
        return err_set(ERR_MEMORY, "no memory to encode a piece of %zu bytes", size_bytes);
    }
    bpe->capacity = capacity;
    return 0;
}

void bpe_free(struct bpe *bpe)
{
    free(bpe->parts);
    free(bpe->heap);
    free(bpe->ids);
    free(bpe->known);
    *bpe = (struct bpe){.steps = bpe->steps};
}

/* All of up to 16 bytes as two words: the first and the last of them, as many as fit. */
static void load(const unsigned char *bytes, uint32_t size, uint64_t *head, uint64_t *tail)
{
    if (size >= 8) {
        memcpy(head, bytes, 8);
        memcpy(tail, bytes + size - 8, 8);
    } else if (size >= 4) {
        uint32_t first, last;
        memcpy(&first, bytes, 4);
        memcpy(&last, bytes + size - 4, 4);
        *head = first;
        *tail = last;
    } else {
        *head = bytes[0] | (uint64_t)bytes[size / 2] << 8;
        *tail = bytes[size - 1];
    }
}

/* One entry for these bytes, their words filled in; the rest is as it was left. */
static struct bpe_known *recall(struct bpe *bpe, const unsigned char *bytes, uint32_t size,
                                bool *same)
{
    uint64_t head, tail;
    load(bytes, size, &head, &tail);
    uint64_t mixed = (head ^ tail * 0x9E3779B97F4A7C15U) * 0xD6E8FEB86659FD93U;
    struct bpe_known *known = &bpe->known[mixed >> (64 - KNOWN_BITS)];
    *same = known->head == head && known->tail == tail && known->size_bytes == size;
    known->head = head;
    known->tail = tail;
    known->size_bytes = size;
    return known;
}

/* The rank of piece[begin] to piece[end - 1]. */
static uint32_t pair_rank(struct bpe *bpe, const struct ranks *ranks, const unsigned char *piece,
                          uint32_t begin, uint32_t end)
{
    bool same;
    bpe->steps++;
    if (end - begin > ranks->longest_bytes) {
        return RANKS_NONE;
    }
    if (end - begin > KNOWN_BYTES_MAX) {
        return ranks_find(ranks, piece + begin, end - begin);
    }
    struct bpe_known *known = recall(bpe, piece + begin, end - begin, &same);
    if (!same) {
        known->rank = ranks_find(ranks, piece + begin, end - begin);
    }
    return known->rank;
}

/* ---- short pieces: parts lie side by side, the last one is the piece's end ---- */

static void merge_short(struct bpe *bpe, const struct ranks *ranks, const unsigned char *piece,
                        uint32_t size)
{
    struct bpe_part *part = bpe->parts;
    uint32_t count = size;
    for (uint32_t i = 0; i <= size; i++) {
        part[i] = (struct bpe_part){.begin = i, .pair = RANKS_NONE,
                                    .rank = i < size ? ranks->byte_rank[piece[i]] : RANKS_NONE};
    }
    for (uint32_t i = 0; i + 1 < size; i++) {
        part[i].pair = pair_rank(bpe, ranks, piece, i, i + 2);
    }
    for (;;) {
        uint32_t least = 0;
        for (uint32_t i = 1; i < count; i++) {
            least = part[i].pair < part[least].pair ? i : least;
        }
        bpe->steps += count;
        if (part[least].pair == RANKS_NONE) {
            break;
        }
        part[least].rank = part[least].pair;
        memmove(part + least + 1, part + least + 2, (count - least - 1) * sizeof *part);
        count--;
        part[least].pair = least + 1 < count ? pair_rank(bpe, ranks, piece, part[least].begin,
                                                         part[least + 2].begin) : RANKS_NONE;
        if (least > 0) {
            part[least - 1].pair = pair_rank(bpe, ranks, piece, part[least - 1].begin,
                                             part[least + 1].begin);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        bpe->ids[i] = part[i].rank;
    }
    bpe->id_count = count;
}

/* ---- long pieces: parts are a list, their pairs a heap with the least entry first ---- */

static void heap_push(struct bpe *bpe, uint64_t entry)
{
    size_t at = bpe->heap_count++;
    while (at > 0 && bpe->heap[(at - 1) / 2] > entry) {
        bpe->heap[at] = bpe->heap[(at - 1) / 2];
        at = (at - 1) / 2;
        bpe->steps++;
    }
    bpe->heap[at] = entry;
}

static uint64_t heap_pop(struct bpe *bpe)
{
    uint64_t top = bpe->heap[0];
    uint64_t entry = bpe->heap[--bpe->heap_count];
    size_t at = 0;
    for (size_t child = 1; child < bpe->heap_count; child = 2 * at + 1) {
        child += child + 1 < bpe->heap_count && bpe->heap[child + 1] < bpe->heap[child];
        if (bpe->heap[child] >= entry) {
            break;
        }
        bpe->heap[at] = bpe->heap[child];
        at = child;
        bpe->steps++;
    }
    bpe->heap[at] = entry;
    return top;
}

/* Looks up the pair that begins with a part, and queues it. */
static void queue_pair(struct bpe *bpe, const struct ranks *ranks, const unsigned char *piece,
                       uint32_t at, uint32_t size)
{
    struct bpe_part *part = &bpe->parts[at];
    part->pair = RANKS_NONE;
    if (part->next == size) {
        return;
    }
    part->pair = pair_rank(bpe, ranks, piece, part->begin,
                           bpe->parts[bpe->parts[part->next].next].begin);
    if (part->pair != RANKS_NONE) {
        heap_push(bpe, (uint64_t)part->pair << 32 | at);
    }
}

/* A part's place is that of its first byte. */
static void merge_at(struct bpe *bpe, const struct ranks *ranks, const unsigned char *piece,
                     uint32_t at, uint32_t size)
{
    struct bpe_part *part = &bpe->parts[at];
    struct bpe_part *gone = &bpe->parts[part->next];
    part->rank = part->pair;
    part->next = gone->next;
    gone->pair = RANKS_NONE; /* its entries in the heap have lost their meaning */
    bpe->parts[part->next].before = at;
    queue_pair(bpe, ranks, piece, at, size);
    if (part->before != NOWHERE) {
        queue_pair(bpe, ranks, piece, part->before, size);
    }
}

static void merge_long(struct bpe *bpe, const struct ranks *ranks, const unsigned char *piece,
                       uint32_t size)
{
    bpe->heap_count = 0;
    for (uint32_t i = 0; i <= size; i++) {
        bpe->parts[i] = (struct bpe_part){
            .begin = i, .before = i > 0 ? i - 1 : NOWHERE, .next = i + 1, .pair = RANKS_NONE,
            .rank = i < size ? ranks->byte_rank[piece[i]] : RANKS_NONE};
    }
    for (uint32_t i = 0; i < size; i++) {
        queue_pair(bpe, ranks, piece, i, size);
    }
    while (bpe->heap_count > 0) {
        uint64_t entry = heap_pop(bpe);
        uint32_t at = (uint32_t)entry;
        if (bpe->parts[at].pair == entry >> 32) {
            merge_at(bpe, ranks, piece, at, size);
        }
    }
    bpe->id_count = 0;
    for (uint32_t at = 0; at < size; at = bpe->parts[at].next) {
        bpe->ids[bpe->id_count++] = bpe->parts[at].rank;
    }
}

int bpe_encode(struct bpe *bpe, const struct ranks *ranks, const unsigned char *piece,
               size_t size_bytes)
{
    assert(size_bytes > 0 && size_bytes <= INT32_MAX);
    TRY(reserve(bpe, size_bytes));
    uint32_t whole = pair_rank(bpe, ranks, piece, 0, (uint32_t)size_bytes);
    if (whole != RANKS_NONE) {
        bpe->ids[0] = whole;
        bpe->id_count = 1;
    } else if (size_bytes < SHORT_BYTES) {
        merge_short(bpe, ranks, piece, (uint32_t)size_bytes);
    } else {
        merge_long(bpe, ranks, piece, (uint32_t)size_bytes);
    }
    return 0;
}
