/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_PAGE_SUMS_H
#define MODEL_PAGE_SUMS_H

/* Sums of pages: a file beside a model with one XXH3 (64 bits, seed 0) for each aligned page of
 * each of its files, so that whatever was read can be checked without the rest of the file. For
 * the released checkpoint it has 3.05 GB: nobody ever holds it, a slice is read with the pages it
 * covers. docs/VERIFY.md has the format. All integers are little endian. */

#include <xxhash.h>

#include "core/model/model.h"

#define PAGE_SUMS_MAGIC "K3RINGPS"
#define PAGE_SUMS_VERSION 1U
#define PAGE_SUM_BYTES ((uint64_t)8)
#define PAGE_SUMS_NAME_BYTES 256

/* The first bytes, then one entry per file, then zeros up to a page; then the sums. */
struct page_sums_head {
    char magic[8];          /* PAGE_SUMS_MAGIC without a zero byte */
    uint32_t version;
    uint32_t page_bytes;    /* PAGE_BYTES */
    uint32_t file_count;
    uint32_t entry_bytes;   /* sizeof(struct page_sums_entry) */
    uint64_t size_bytes;    /* of the whole file */
    uint64_t config_hash;   /* XXH3 of config.json */
    uint64_t checksum;      /* XXH3 of head and entries, with this field 0 */
};
_Static_assert(sizeof(struct page_sums_head) == 48, "written as it stands");

struct page_sums_entry {
    char name[PAGE_SUMS_NAME_BYTES]; /* without folder, ends with zero bytes */
    uint64_t size_bytes;    /* of the file */
    uint64_t identity;      /* of its header: model_identity_read() */
    uint64_t offset_bytes;  /* of its sums, multiple of PAGE_BYTES */
    uint64_t checksum;      /* XXH3 of its sums */
};
_Static_assert(sizeof(struct page_sums_entry) == 288, "written as it stands");

struct page_sums {
    char *path;             /* owned */
    uint64_t size_bytes;    /* of the file */
    uint32_t file_count;    /* as the model's, in its order */
    uint64_t *offset_bytes; /* [file_count] where the sums of a file begin */
    uint64_t *checksum;     /* [file_count] */
};

/* Opens sums and compares them with a model: name, size and header of every file, config.json.
 * ERR_MODEL when it is no file of sums, a damaged one, or one of another model; ERR_MEMORY. */
int page_sums_open(const char *path, const struct model *model, struct page_sums **out);
void page_sums_close(struct page_sums *sums); /* NULL is fine */

/* Bytes of heap it keeps. */
uint64_t page_sums_resident_bytes(const struct page_sums *sums);

/* Head and entries of sums to come, checksums of entries still 0: size_bytes at *head, to free().
 * ERR_MODEL, ERR_MEMORY. */
int page_sums_prepare(const struct model *model, struct page_sums_head **head,
                      uint64_t *size_bytes);
/* Completes head->checksum, when those of entries are set. */
void page_sums_seal(struct page_sums_head *head);

static inline struct page_sums_entry *page_sums_entries(struct page_sums_head *head)
{
    return (struct page_sums_entry *)(void *)(head + 1);
}

/* A page, or what there is of a file's last one. */
static inline uint64_t page_sum(const unsigned char *page, uint64_t size_bytes)
{
    return XXH3_64bits(page, size_bytes);
}

/* Where the sums of a window of a file lie in the file of sums: an aligned window, and how far
 * from its beginning the first sum is. */
struct page_sums_slice {
    uint64_t offset_bytes, size_bytes, skip_bytes;
};
struct page_sums_slice page_sums_slice(const struct page_sums *sums, struct extent window);

/* Most bytes such a slice has for a window of window_bytes. */
static inline uint64_t page_sums_slice_max(uint64_t window_bytes)
{
    return align_up(window_bytes / PAGE_BYTES * PAGE_SUM_BYTES, PAGE_BYTES) + PAGE_BYTES;
}

/* Index of the first page at `pages` (size_bytes, the last one maybe in part) whose sum is not the
 * one at `sums`; -1 when all are right. */
int64_t page_sums_mismatch(const unsigned char *pages, uint64_t size_bytes,
                           const unsigned char *sums);

#endif
