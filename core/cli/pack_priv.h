/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_PACK_PRIV_H
#define CLI_PACK_PRIV_H

/* What the files that write and prove packs share.
 *
 *   items    what goes into a pack, in the order of its files: small tensors, embedding rows, tiles
 *            of the walk, experts
 *   place    a folder of the pack, with the share of bytes it gets
 *   pool     threads that work on items and one that shows how far they are
 *   journal  which items lie where, while the pack is not finished */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "core/cli/pack.h"
#include "io/file.h"

#define PACK_PARTIAL_SUFFIX ".partial"
#define PACK_PROBE "k3ring-probe" PACK_PARTIAL_SUFFIX /* read to measure a drive */

enum pack_kind { PACK_TENSOR, PACK_TILE, PACK_EXPERT };

struct pack_item {
    enum pack_kind kind;
    uint32_t layer;            /* or TENSOR_MODEL_LEVEL */
    enum tensor_id id;         /* of tensors and tiles */
    uint32_t expert;
    uint32_t row_first, row_count, cols; /* of tiles */
    struct extent from;        /* in the source; not of experts, which may be parted */
    uint64_t raw_bytes;        /* in the source */
    bool may_code;
    uint32_t file;             /* of the pack */
    /* known when it is written */
    bool coded;
    uint64_t offset_bytes, size_bytes, checksum;
};

struct pack_items {
    struct pack_item *item;
    uint32_t count, capacity;
    uint64_t raw_bytes;        /* of all */
    uint64_t widest_bytes;     /* largest raw_bytes */
};

/* ---- pack_items.c ---- */

/* All of a source, with files assigned: trunk file p is number p, experts file p number parts + p,
 * bytes by shares. tile_bytes receives what is in force. */
int pack_items_list(struct pack_items *items, const struct model *source, uint64_t *tile_bytes,
                    bool trunk_only, const uint32_t *shares, uint32_t parts);
/* All that a pack holds, from its manifest: everything known. */
int pack_items_of(struct pack_items *items, const struct model *packed,
                  const struct model *source);
void pack_items_free(struct pack_items *items);

/* Adds what the items make up, the first kept of them from an earlier run. */
void pack_items_sum(const struct pack_items *items, uint32_t kept, struct pack_summary *out);

/* "tensor x", "layer 3 expert 17": for messages. */
void pack_item_name(const struct model *model, const struct pack_item *item, char *text,
                    size_t capacity);

/* ---- pack_pool.c ---- */

/* One thread's buffers. */
struct pack_hand {
    unsigned char *raw, *stored; /* widest_bytes, and a page, each */
    unsigned char *decoded;      /* the same, or NULL */
    unsigned char *bounce;
};

struct pack_pool {
    const struct pack_items *items;
    uint32_t first, threads;
    int (*work)(void *ctx, struct pack_hand *hand, uint32_t index);
    void (*failed)(void *ctx); /* once a thread has failed or a signal came; may be NULL */
    void *ctx;
    bool decodes;              /* hands have a buffer for it */
    const char *what;          /* "packing" */
    bool quiet;
    /* private */
    atomic_uint next, running;
    atomic_bool stop;
    _Atomic uint64_t done_bytes;
    pthread_mutex_t lock;
    int error;
    char message[1024];
};

/* Works on all items from first on. The first failure wins; ERR_STOPPED after a signal. */
int pack_pool_run(struct pack_pool *pool);

int pack_hand_open(struct pack_hand *hand, uint64_t widest_bytes, bool decodes);
void pack_hand_close(struct pack_hand *hand);

#define PACK_BOUNCE_BYTES (4 * MIB)

/* Brings an item's bytes of the source into hand->raw. */
int pack_item_read(const struct model *source, const struct io_files *files,
                   const struct pack_item *item, struct pack_hand *hand);

/* ---- pack_place.c ---- */

struct pack_place {
    char *path;                /* absolute */
    int fd;                    /* of the folder */
    bool made;                 /* by this run */
};

struct pack_places {
    struct pack_place place[PACK_PARTS_MAX];
    uint32_t share[PACK_PARTS_MAX];
    uint32_t count;
    bool resumed;              /* the first holds a journal */
};

/* ERR_USAGE for a path or name that the manifest could not hold. */
int pack_check_name(const char *name);

/* Makes and opens the folders. ERR_USAGE when one holds something that is not ours. */
int pack_places_open(struct pack_places *places, const struct pack_options *options);
/* On failure of a fresh pack that has not begun, folders that were made go again. */
void pack_places_close(struct pack_places *places, bool remove_made);

/* Measures how fast each folder reads. */
int pack_places_measure(struct pack_places *places, bool quiet);

/* ERR_FIT unless each drive has room for need_bytes[] of its folders. */
int pack_places_check_space(const struct pack_places *places, const uint64_t *need_bytes);

int pack_sync_folder(const struct pack_place *place);

/* ---- pack_files.c: the data files ---- */

struct pack_output {
    const struct pack_places *places;
    uint32_t count;                       /* files: places, twice with experts */
    int fd[PACK_FILES_MAX];               /* -1 when closed */
    uint64_t end_bytes[PACK_FILES_MAX];   /* where the next item goes */
};

/* Opens the partial files of an earlier run; those that are not there stay closed. */
int pack_output_open(struct pack_output *out, const struct pack_places *places, uint32_t count,
                     uint64_t id);
/* ERR_USAGE, with the cure, when a file is closed. */
int pack_output_need_all(const struct pack_output *out);
/* Makes the files that are closed. */
int pack_output_make(struct pack_output *out, uint64_t id);
void pack_output_close(struct pack_output *out);
int pack_output_write(const struct pack_output *out, uint32_t file, uint64_t offset_bytes,
                      const void *bytes, uint64_t size_bytes);
int pack_output_sync(const struct pack_output *out);
/* Cuts all files where the next item would go. */
int pack_output_cut(const struct pack_output *out);
int pack_output_rename(struct pack_output *out); /* to their final names */

const char *pack_file_name(const struct pack_output *out, uint32_t file);
static inline uint32_t pack_file_place(const struct pack_output *out, uint32_t file)
{
    return file % out->places->count;
}

/* ---- pack_journal.c ---- */

struct pack_journal {
    int fd;
    char *path;
};

/* Everything but a pack's data that makes two packs the same. */
struct pack_terms {
    uint64_t id, tile_bytes;
    bool trunk_only;
    uint32_t parts;
    uint32_t share[PACK_PARTS_MAX];
};

/* The terms of the journal in a folder. ERR_USAGE when it cannot be read. */
int pack_journal_terms(const struct pack_place *place, struct pack_terms *terms);

/* Begins a journal (replacing one), with the first kept items of it. */
int pack_journal_begin(struct pack_journal *journal, const struct pack_place *place,
                       const struct pack_terms *terms, const struct pack_items *items,
                       uint32_t kept);
int pack_journal_add(struct pack_journal *journal, uint32_t index, const struct pack_item *item);
/* All that was added is on the drive, data too. */
int pack_journal_mark(struct pack_journal *journal);
void pack_journal_close(struct pack_journal *journal);

/* Reads what an earlier run wrote into items. *written: how many from the first on are known;
 * *synced: how many of these were on the drive for certain. */
int pack_journal_load(const struct pack_place *place, struct pack_items *items, uint32_t *written,
                      uint32_t *synced);

/* ---- pack_manifest.c ---- */

/* from: the source's folder, absolute. */
int pack_manifest_write(const struct pack_output *out, const struct model *source,
                        const char *from, const struct pack_terms *terms,
                        const struct pack_identity *identity, const struct pack_items *items);
/* config.json, tokenizer files and the like, into the pack's folder. */
int pack_copy_small(const struct pack_place *place, const struct model *source);

#endif
