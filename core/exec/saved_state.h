/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_SAVED_STATE_H
#define EXEC_SAVED_STATE_H

/* A sequence as a file: what the layers keep of the positions fed so far, the ids of the sequence,
 * and whatever its owner wants to keep beside them. An engine that loads it goes on with
 * engine_resume() as if it had fed those positions itself: bit for bit the same.
 *
 * File, all little endian, numbers unsigned:
 *     0  8  "K3RSTATE"             48  4  layers              80  4  positions held
 *     8  4  version, 1             52  4  of them MLA         84  4  ids
 *    12  4  owner's tag            56  4  KDA heads           88  8  bytes of the notes
 *    16  8  bytes of the file      60  4  KDA head size       96 16  zero
 *    24 16  identity of the model  64  4  convolution taps   112  8  XXH3 of the bytes before
 *    40  8  XXH3 of its small      68  4  latent size
 *           tensors as f32         72  4  rotary size
 *                                  76  4  vocabulary
 * then five sections, each followed by the XXH3 of its bytes:
 *     ids          4 bytes each: those held, then those that are to be fed next
 *     notes        the owner's bytes
 *     matrices     f32 [KDA layer][head][size][size]
 *     convolution  f32 [KDA layer][q, k, v][head][taps - 1][size]
 *     latents      f32 [MLA layer][position][latent size + rotary size]
 * and last the XXH3 of all bytes before it. */

#include <stdio.h>

#include "core/exec/engine.h"

#define SAVED_NOTES_BYTES_MAX (64 * MIB)
#define SAVED_IDS_MAX ((uint32_t)1 << 24)
#define SAVED_HEADER_BYTES 120U

/* What made a file: how its ids came about and what its notes are. */
enum saved_tag { SAVED_IDS, SAVED_TEXT, SAVED_CHAT, SAVED_TAGS };

/* What goes into a file beside the engine's state. */
struct saved_extra {
    enum saved_tag tag;
    const uint32_t *ids;      /* those of the engine's state, then those still to be fed */
    uint32_t id_count;        /* engine_position()..SAVED_IDS_MAX */
    const void *notes;
    uint64_t notes_bytes;     /* <= SAVED_NOTES_BYTES_MAX */
};

/* Writes the file in order from its present place, in blocks out of the state itself; whether that
 * worked is the stream's to say. Between sequences. ERR_NUMERIC or the failed pass's error when the
 * state is half of a pass, ERR_FIT for more ids or notes than a file holds, ERR_MEMORY. */
int saved_state_write(struct engine *e, const struct saved_extra *extra, FILE *file);

/* A file that was read to its end and found whole. */
struct saved_state {
    const char *path;         /* the caller's */
    int fd;
    unsigned char header[SAVED_HEADER_BYTES];
    enum saved_tag tag;
    uint32_t positions;       /* held, <= id_count */
    uint32_t *ids;            /* [id_count] and room for none more */
    uint32_t id_count;
    char *notes;              /* followed by a zero byte */
    uint64_t notes_bytes;
};

/* Reads all of it: nothing in it is wrong that can be told without a model. ERR_MODEL when it is no
 * state, of another version, cut, longer, damaged, or holds a value that is not finite; ERR_USAGE
 * when it is not a regular file, ERR_IO, ERR_MEMORY. Undone by saved_state_close, also then. */
int saved_state_open(struct saved_state *s, const char *path);
/* Makes it the state of sequence 0. ERR_MODEL when it is of another model, ERR_FIT when it holds
 * more positions than the context: then the engine's state is as before. Should the file fail or
 * change while it is read a second time (ERR_IO, ERR_MODEL), the state is empty. Between
 * sequences. */
int saved_state_load(const struct saved_state *s, struct engine *e);
void saved_state_close(struct saved_state *s); /* an empty one is fine */

/* Heap it takes while it is open: part of the caller's bytes of an engine's account. */
uint64_t saved_state_resident_bytes(const struct saved_state *s);

#endif
