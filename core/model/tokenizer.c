/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/model/config.h"
#include "core/model/tokenizer_priv.h"

#define RANKS_NAME TOKENIZER_FILE

/* ---- opening ---- */

/* A file that lost lines at its end would move every added token: only the config can tell. */
static int check_vocab(const struct tokenizer *t, const char *dir)
{
    char *path = path_join(dir, "config.json");
    struct model_config config;
    int rc = path != NULL ? 0 : ERR_MEMORY;
    if (rc == 0 && file_exists(path)) {
        rc = config_load(dir, &config);
        if (rc == 0 && config.vocab != tokenizer_count(t)) {
            rc = err_set(ERR_MODEL, "%s: " RANKS_NAME " makes %u tokens with the added ones, but "
                         "config.json has %u: fetch both files from one checkpoint", dir,
                         tokenizer_count(t), config.vocab);
        }
    }
    free(path);
    return rc;
}

static int open_parts(struct tokenizer *t, const char *file, const char *dir)
{
    TRY(ranks_read(&t->ranks, file));
    TRY(added_open(&t->added, t->ranks.count, dir));
    TRY(splitter_open(true, &t->splitter));
    return dir != NULL ? check_vocab(t, dir) : 0;
}

int tokenizer_open(const char *path, struct tokenizer **out)
{
    struct stat st;
    bool is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    struct tokenizer *t = calloc(1, sizeof *t);
    char *file = is_folder ? path_join(path, RANKS_NAME) : strdup(path);
    int rc = t != NULL && file != NULL ? 0 : err_set(ERR_MEMORY, "no memory for a tokenizer");
    if (rc == 0 && is_folder && !file_exists(file)) {
        rc = err_set(ERR_MODEL, "%s: holds no " RANKS_NAME ": give the folder of the checkpoint as "
                     "it was released, or that file", path);
    }
    if (rc == 0) {
        rc = open_parts(t, file, is_folder ? path : NULL);
    }
    free(file);
    if (rc < 0) {
        tokenizer_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

void tokenizer_close(struct tokenizer *t)
{
    if (t != NULL) {
        splitter_close(t->splitter);
        added_close(&t->added);
        ranks_free(&t->ranks);
        free(t);
    }
}

uint32_t tokenizer_count(const struct tokenizer *t)
{
    return t->ranks.count + TOKENIZER_ADDED;
}

uint32_t tokenizer_first_added(const struct tokenizer *t)
{
    return t->added.first;
}

uint32_t tokenizer_longest_bytes(const struct tokenizer *t)
{
    return t->ranks.longest_bytes;
}

uint64_t tokenizer_resident_bytes(const struct tokenizer *t)
{
    uint64_t bytes = sizeof *t + t->ranks.resident_bytes;
    for (uint32_t i = 0; i < TOKENIZER_ADDED; i++) {
        bytes += t->added.size_bytes[i] + 1;
    }
    return bytes;
}

const unsigned char *tokenizer_token(const struct tokenizer *t, uint32_t id, size_t *size_bytes,
                                     bool *special)
{
    bool is_special = false;
    const unsigned char *bytes = NULL;
    if (id < t->ranks.count) {
        *size_bytes = t->ranks.tokens[id].size_bytes;
        bytes = t->ranks.bytes + t->ranks.tokens[id].begin_bytes;
    } else if (id - t->added.first < TOKENIZER_ADDED) {
        uint32_t index = id - t->added.first;
        *size_bytes = t->added.size_bytes[index];
        bytes = (const unsigned char *)t->added.text[index];
        is_special = t->added.special[index];
    }
    if (special != NULL) {
        *special = is_special;
    }
    return bytes;
}

/* ---- pieces ---- */

/* A walk over the pieces of a text. */
struct walk {
    const struct tokenizer *t;
    struct split split;
    tokenizer_visit *visit;
    void *context;
};

static int walk_pieces(struct walk *walk, size_t begin_bytes, size_t end_bytes)
{
    size_t next;
    for (size_t at = begin_bytes; at < end_bytes; at = next) {
        TRY(split_piece(&walk->split, at, end_bytes, &next));
        TRY(walk->visit(walk->context, walk->split.text + at, next - at, -1));
    }
    return 0;
}

/* Added tokens are looked for within a slice, so one that a cut divides is plain text. */
static int walk_slice(struct walk *walk, unsigned flags)
{
    const struct added_tokens *added = &walk->t->added;
    const struct split *split = &walk->split;
    size_t at = split->begin_bytes;
    while (at < split->end_bytes) {
        uint32_t index = 0;
        size_t left = split->end_bytes - at;
        size_t plain = (flags & TOKENIZE_ADDED) != 0
                           ? added_find(added, split->text + at, left, &index) : left;
        TRY(walk_pieces(walk, at, at + plain));
        at += plain;
        if (plain < left) {
            TRY(walk->visit(walk->context, split->text + at, added->size_bytes[index],
                            added->first + (int64_t)index));
            at += added->size_bytes[index];
        }
    }
    return 0;
}

int tokenizer_split(const struct tokenizer *t, const void *text, size_t size_bytes,
                    unsigned flags, tokenizer_visit *visit, void *context)
{
    struct walk walk = {.t = t, .visit = visit, .context = context};
    TRY(split_start(&walk.split, t->splitter, text, size_bytes));
    int rc;
    while ((rc = split_slice(&walk.split)) > 0) {
        rc = walk_slice(&walk, flags);
        if (rc < 0) {
            break;
        }
    }
    split_end(&walk.split);
    return rc;
}

size_t tokenizer_cut(const void *text, size_t size_bytes)
{
    return split_cut(text, size_bytes);
}

/* ---- encoding ---- */

struct encoding {
    const struct tokenizer *t;
    struct bpe bpe;
    struct token_list *ids;
};

int token_list_append(struct token_list *list, const uint32_t *ids, size_t count)
{
    if (count == 0) {
        return 0;
    }
    if (list->capacity - list->count < count) {
        size_t capacity = (list->count + count) * 2;
        uint32_t *grown = realloc(list->ids, capacity * sizeof *grown);
        if (grown == NULL) {
            return err_set(ERR_MEMORY, "no memory for %zu token ids", list->count + count);
        }
        list->ids = grown;
        list->capacity = capacity;
    }
    memcpy(list->ids + list->count, ids, count * sizeof *ids);
    list->count += count;
    return 0;
}

static int encode_piece(void *context, const unsigned char *piece, size_t size_bytes,
                        int64_t added_id)
{
    struct encoding *e = context;
    if (added_id >= 0) {
        const uint32_t id = (uint32_t)added_id;
        return token_list_append(e->ids, &id, 1);
    }
    TRY(bpe_encode(&e->bpe, &e->t->ranks, piece, size_bytes));
    return token_list_append(e->ids, e->bpe.ids, e->bpe.id_count);
}

int tokenizer_encode(const struct tokenizer *t, const void *text, size_t size_bytes,
                     unsigned flags, struct token_list *ids)
{
    struct encoding e = {.t = t, .ids = ids};
    int rc = tokenizer_split(t, text, size_bytes, flags, encode_piece, &e);
    bpe_free(&e.bpe);
    return rc;
}
