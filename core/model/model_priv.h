/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_PRIV_H
#define MODEL_PRIV_H

/* What the files of core/model share among themselves. No other folder includes it. */

#include "core/model/model.h"
#include "core/model/pack.h"

/* ---- inventory.c ---------------------------------------------------------------------- */

/* A tensor's identity without its name: cheap enough for half a million look-ups at open. */
struct tensor_place {
    uint32_t layer;        /* or TENSOR_MODEL_LEVEL */
    enum tensor_id id;     /* T_COUNT for a tensor of an expert */
    uint32_t expert;       /* with id == T_COUNT */
    enum expert_part part; /* with id == T_COUNT */
};

/* Reads a name into place. False when this config has no such tensor. Pure, any thread. */
bool inventory_locate(const struct model_config *c, const char *name, struct tensor_place *place);

/* Fills spec but for its name, which becomes "". */
void inventory_shape(const struct model_config *c, const struct tensor_place *place,
                     struct tensor_spec *spec);

/* Fills spec with its name: inventory_tensor() or inventory_expert(), whichever place means. */
void inventory_spec(const struct model_config *c, const struct tensor_place *place,
                    struct tensor_spec *spec);

/* True when a file may hold the tensor in dtype: norm and res_proj vectors have a choice. */
bool inventory_dtype_fits(enum tensor_id id, const char *dtype, enum dtype *out);

/* True for a name that inventory_locate() rejects but that would change what the text model
 * computes: a bias, weights in another form, a tensor of a layer or expert beyond the config. */
bool inventory_disturbed(const char *name);

/* ---- foreign.c ------------------------------------------------------------------------ */

/* Recognises what people get instead of a file of a model: an empty file, a Git LFS pointer, a
 * server's error, a GGUF, an archive. head_bytes of its beginning are at head. 0 when it is none
 * of them. */
int foreign_check(const char *path, const char *head, size_t head_bytes, uint64_t size_bytes);

/* ---- safetensors.c -------------------------------------------------------------------- */

#define HEADER_CAP_BYTES ((uint64_t)100000000)
#define HEADER_NAME_BYTES 512
#define HEADER_RANK_MAX 8

/* One entry of a header. Offsets are relative to the header's base. */
struct header_tensor {
    char name[HEADER_NAME_BYTES];
    char dtype[16];
    uint32_t rank;
    uint64_t shape[HEADER_RANK_MAX];
    uint64_t begin_bytes, end_bytes;
};

/* The data range of one entry, kept until its whole file has been checked. */
struct header_span {
    uint64_t begin_bytes, end_bytes;
    const char *name; /* in the header's text, up to its closing quote; as written */
    bool bound;
};

/* One file's header while it is read. Reused from file to file by one thread: buffers grow. */
struct header {
    const char *path; /* of the file in turn; borrowed */
    int fd;           /* -1 when no file is open */
    uint64_t size_bytes, base_bytes;
    char *text;
    size_t text_bytes, text_capacity_bytes;
    struct header_span *spans;
    size_t span_count, span_capacity;
};

/* Called once per entry, in the order of the text. Sets *bound when it belongs to the model. */
typedef int header_visit(void *context, const struct header *header,
                         const struct header_tensor *tensor, bool *bound);

/* Opens a file and reads its header's text. ERR_MODEL when it cannot be a safetensors file. */
int header_open(struct header *header, const char *path);

/* Visits all entries and checks every range: sizes, overlaps, the end of the file. Leaves spans
 * sorted by begin_bytes. */
int header_visit_all(struct header *header, header_visit *visit, void *context);

/* Refuses the file when the file system has no data under a bound tensor. */
int header_check_holes(const struct header *header);

void header_close(struct header *header); /* the file; keeps the buffers */
void header_free(struct header *header);

/* ---- index.c -------------------------------------------------------------------------- */

/* Which files make up a checkpoint and, with an index, which file each tensor should be in. */
struct shard_list {
    char **names;        /* base names, sorted */
    uint32_t count;
    bool has_index;
    uint16_t *expected;  /* per slot of bind_slot(); read through shard_list_expected() */
    uint16_t *moved;     /* what stands there -> 1 + position in names */
    uint32_t ignored;    /* other *.safetensors of the folder, with an index */
    char *first_ignored; /* one of their names */
};

#define SHARD_COUNT_MAX 65535U

int shard_list_read(const char *dir, const struct model_config *c, struct shard_list *out);
void shard_list_free(struct shard_list *list);

/* With an index: 1 + position in names of the file that should hold a slot, 0 = not named. */
uint32_t shard_list_expected(const struct shard_list *list, uint64_t slot);

/* ---- bind.c --------------------------------------------------------------------------- */

/* Every tensor of a config has a slot: layer tensors, those of the model level, expert parts. */
uint64_t bind_slot_count(const struct model_config *c);
uint64_t bind_slot(const struct model_config *c, const struct tensor_place *place);

/* Reads and binds the headers of all model->files on up to threads threads. */
int bind_all(struct model *model, uint32_t threads, bool allow_holes);

/* Refuses a model that lacks tensors, or whose index places one elsewhere. */
int bind_check(const struct model *model, const struct shard_list *list);

/* ---- model.c -------------------------------------------------------------------------- */

#define PART_FILE_SHIFT 48 /* expert parts: file << 48 | offset; 0 is unbound, no offset is 0 */

uint64_t model_part_count(const struct model_config *c);   /* parts of all experts */
uint64_t model_tensor_slots(const struct model_config *c); /* of model->tensors */

/* Makes the tables of tensors and expert parts. check: refuse first when the files are too small
 * for the experts that the config claims. */
int model_make_tables(struct model *model, bool check);

/* ---- pack*.c, identity.c -------------------------------------------------------------- */

/* Fills a model whose config is read from the pack in its folder. */
int pack_open(struct model *model, const struct model_options *options);
void pack_free(struct model_pack *pack); /* NULL is fine */
uint64_t pack_resident_bytes(const struct model *model);

/* What tells this model from another without reading its weights: a shard's header text, a pack's
 * heads. ERR_MODEL, ERR_IO, ERR_MEMORY. Free it also then. */
struct model_identity {
    uint64_t config_hash; /* XXH3 of config.json */
    uint64_t *hash;       /* [file_count] XXH3 of each file's beginning */
};
int model_identity_read(const struct model *model, struct model_identity *out);
void model_identity_free(struct model_identity *identity);

/* Refuses a pack when a file of its source is there and is not the one it was made from, or is
 * gone and needed. */
int pack_source_check(const struct model *model);

#endif
