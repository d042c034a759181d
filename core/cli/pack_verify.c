/* SPDX-License-Identifier: Apache-2.0 */
/* Proves a pack: every item is read from it and from the source, decoded, and compared. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/nondet.h"
#include "core/cli/pack_priv.h"
#include "core/exec/coding.h"
#include "core/exec/engine.h"

struct prover {
    struct model *packed, *source;
    struct io_files packed_files, source_files;
    struct pack_items items;
};

static int refuse(const struct prover *p, const struct pack_item *item, const char *what)
{
    char name[256];
    pack_item_name(p->source, item, name, sizeof name);
    return err_set(ERR_RUN, "%s: byte %llu: %s %s: pack %s again",
                   p->packed->files[item->file].path, (unsigned long long)item->offset_bytes,
                   name, what, p->source->dir);
}

static int prove_item(void *ctx, struct pack_hand *hand, uint32_t index)
{
    struct prover *p = ctx;
    const struct pack_item *item = &p->items.item[index];
    uint64_t read_bytes = 0;
    TRY(io_file_read(&p->packed_files, item->file, item->offset_bytes, item->size_bytes,
                     hand->stored, hand->bounce, PACK_BOUNCE_BYTES, &read_bytes));
    if (XXH3_64bits(hand->stored, item->size_bytes) != item->checksum) {
        return refuse(p, item, "has another checksum than the manifest says");
    }
    TRY(pack_item_read(p->source, &p->source_files, item, hand));
    if (!item->coded) {
        return memcmp(hand->stored, hand->raw, item->raw_bytes) == 0
                   ? 0 : refuse(p, item, "differs from the source");
    }
    unsigned char *decoded = hand->decoded;
    if (!coding_decode(decoded, hand->stored, item->size_bytes, item->row_count, item->cols)) {
        return refuse(p, item, "is damaged");
    }
    return memcmp(decoded, hand->raw, item->raw_bytes) == 0
               ? 0 : refuse(p, item, "differs from the source");
}

/* What is wrong with a pack once it is one fails the proof; a folder that is none is refused. */
static int open_packed(const char *dir, struct model **out)
{
    struct model_options options = {.allow_holes = true};
    char *manifest = path_join(dir, PACK_MANIFEST);
    if (manifest == NULL) {
        return ERR_MEMORY;
    }
    bool packed = file_exists(manifest);
    free(manifest);
    int rc = model_open(dir, &options, out);
    if (rc == ERR_MODEL && packed) {
        char text[ERR_MESSAGE_BYTES];
        snprintf(text, sizeof text, "%s", err_message());
        err_clear();
        return err_set(ERR_RUN, "%s", text);
    }
    TRY(rc);
    return packed ? 0 : err_set(ERR_MODEL, "%s: is a checkpoint, not a pack: give the folder that "
                                "k3ring pack made", dir);
}

static int prepare(struct prover *p, const char *dir)
{
    struct model_options options = {.allow_holes = true};
    TRY(open_packed(dir, &p->packed));
    int rc = model_open(p->packed->pack->source, &options, &p->source);
    if (rc == ERR_MODEL) {
        char text[ERR_MESSAGE_BYTES];
        snprintf(text, sizeof text, "the source cannot be compared with: %s", err_message());
        err_clear();
        return err_set(ERR_RUN, "%s", text);
    }
    TRY(rc);
    /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): config_parse() clears the padding */
    if (memcmp(&p->source->config, &p->packed->config, sizeof p->source->config) != 0 ||
        p->source->pack != NULL) {
        return err_set(ERR_RUN, "%s: is not the checkpoint that %s was packed from",
                       p->source->dir, dir);
    }
    TRY(pack_items_of(&p->items, p->packed, p->source));
    TRY(engine_open_files(p->packed, &p->packed_files));
    return engine_open_files(p->source, &p->source_files);
}

int pack_verify(const char *dir, uint32_t threads, bool quiet, struct pack_summary *out)
{
    struct prover p = {.packed = NULL};
    struct pack_pool pool = {.items = &p.items, .threads = threads, .work = prove_item, .ctx = &p,
                             .decodes = true, .what = "proving", .quiet = quiet};
    *out = (struct pack_summary){.taken_ns = nondet_now_ns()};
    int rc = prepare(&p, dir);
    rc = rc < 0 ? rc : pack_pool_run(&pool);
    if (rc == 0) {
        pack_items_sum(&p.items, 0, out);
    }
    out->taken_ns = nondet_now_ns() - out->taken_ns;
    io_files_close(&p.packed_files);
    io_files_close(&p.source_files);
    pack_items_free(&p.items);
    model_close(p.source);
    model_close(p.packed);
    return rc;
}
