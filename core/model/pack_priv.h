/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_PACK_PRIV_H
#define MODEL_PACK_PRIV_H

/* The manifest of a pack while it is read. Its text may be hostile. */

#include "core/base/scan.h"
#include "core/model/model_priv.h"

#define PACK_AGAIN "the pack is damaged or incomplete: make it again"

struct pack_reader {
    struct model *model;
    struct model_pack *pack;
    const char *path;       /* of the manifest */
    struct scan scan;
    uint32_t tile_capacity;
    uint32_t part_count;
    char *parts[PACK_PARTS_MAX];
    uint64_t end_bytes[PACK_FILES_MAX]; /* of the range read last in each file */
};

/* ---- pack_reader.c: each takes one thing; ERR_MODEL when another stands there ---- */

int pack_refuse(const struct pack_reader *r, const char *what); /* ERR_MODEL with the place */
#ifdef K3RING_ANALYZED
#define pack_refuse(r, what) err_same_(ERR_MODEL, (pack_refuse)((r), (what)))
#endif
int pack_settled(const struct pack_reader *r);                  /* 0, or the scanner's fault */
int pack_take(struct pack_reader *r, char c);
int pack_take_text(struct pack_reader *r, char *text, size_t capacity_bytes);
int pack_take_number(struct pack_reader *r, uint64_t most, uint64_t *value);
int pack_take_hash(struct pack_reader *r, uint64_t *value); /* 16 hexadecimal digits */
int pack_next_number(struct pack_reader *r, uint64_t most, uint64_t *value); /* behind a comma */
int pack_next_hash(struct pack_reader *r, uint64_t *value);

/* The next member's key, which must be name. */
int pack_member(struct pack_reader *r, const char *name);

/* True when another item of a list follows. */
bool pack_next_item(struct pack_reader *r, bool *first);

/* Takes a range of a file: on a page, within the file, behind all ranges taken before. */
int pack_claim(struct pack_reader *r, uint64_t file, uint64_t offset_bytes, uint64_t size_bytes);

/* ---- pack_read.c ---- */

int pack_read_tensors(struct pack_reader *r);
int pack_read_matrices(struct pack_reader *r);
int pack_read_experts(struct pack_reader *r);

#endif
