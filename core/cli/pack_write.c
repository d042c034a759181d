/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a pack. Threads read and code items in any order; each waits for its turn to be given a
 * place behind its forerunner, writes there, and adds a line to the journal. The manifest comes
 * last: without it nothing opens as a pack. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/base/packed.h"
#include "core/cli/pack_priv.h"
#include "core/cli/signals.h"
#include "core/exec/coding.h"
#include "core/exec/engine.h"

#define MARK_BYTES (1 * GIB)         /* between two marks of the journal */
#define SAMPLE_TILES 24u             /* coded to estimate the size */
#define MARGIN_BYTES (1 * MIB)       /* manifest, small files, the file system's own */
#define MANIFEST_ITEM_BYTES 96u

struct writer {
    const struct pack_options *options;
    struct model *source;
    char *source_path;           /* absolute */
    struct pack_identity identity;
    struct pack_places places;
    struct pack_terms terms;
    struct pack_items items;
    struct io_files files;
    struct pack_output output;
    struct pack_journal journal;
    uint32_t kept;               /* items of an earlier run */
    bool begun;                  /* something was written */
    pthread_mutex_t lock;        /* guards all below, output.end_bytes and the journal */
    pthread_cond_t turn_changed;
    uint32_t turn;               /* the item to be placed next */
    bool failed;
    uint64_t unmarked_bytes;
};

/* ---- one item ---- */

/* The bytes to store: coded where that takes fewer pages, else as they are. */
static const unsigned char *store_form(struct pack_item *item, const struct pack_hand *hand)
{
    uint64_t pages = div_ceil(item->raw_bytes, PAGE_BYTES);
    uint64_t most = pages > 1 ? (pages - 1) * PAGE_BYTES : 0;
    item->size_bytes = 0;
    if (item->may_code && packed_tile_bytes(item->row_count, item->cols, 0) <= most) {
        item->size_bytes = coding_encode(hand->stored, most, hand->raw, item->row_count,
                                         item->cols);
    }
    item->coded = item->size_bytes > 0;
    if (!item->coded) {
        item->size_bytes = item->raw_bytes;
    }
    const unsigned char *form = item->coded ? hand->stored : hand->raw;
    item->checksum = XXH3_64bits(form, item->size_bytes);
    return form;
}

/* In its turn. */
static int take_place(struct writer *w, uint32_t index)
{
    struct pack_item *item = &w->items.item[index];
    pthread_mutex_lock(&w->lock);
    while (w->turn != index && !w->failed) {
        pthread_cond_wait(&w->turn_changed, &w->lock);
    }
    bool failed = w->failed;
    if (!failed) {
        item->offset_bytes = w->output.end_bytes[item->file];
        w->output.end_bytes[item->file] += align_up(item->size_bytes, PAGE_BYTES);
        w->turn++;
        pthread_cond_broadcast(&w->turn_changed);
    }
    pthread_mutex_unlock(&w->lock);
    return failed ? ERR_OUTPUT : 0; /* the message is that of the failure */
}

/* Data first, then the mark that says so. */
static int mark(struct writer *w)
{
    w->unmarked_bytes = 0;
    TRY(pack_output_sync(&w->output));
    return pack_journal_mark(&w->journal);
}

static int note_written(struct writer *w, uint32_t index)
{
    const struct pack_item *item = &w->items.item[index];
    pthread_mutex_lock(&w->lock);
    int rc = pack_journal_add(&w->journal, index, item);
    w->unmarked_bytes += item->size_bytes;
    if (rc == 0 && w->unmarked_bytes >= MARK_BYTES) {
        rc = mark(w);
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

static int write_item(void *ctx, struct pack_hand *hand, uint32_t index)
{
    struct writer *w = ctx;
    struct pack_item *item = &w->items.item[index];
    TRY(pack_item_read(w->source, &w->files, item, hand));
    const unsigned char *form = store_form(item, hand);
    TRY(take_place(w, index));
    TRY(pack_output_write(&w->output, item->file, item->offset_bytes, form, item->size_bytes));
    return note_written(w, index);
}

static void on_failure(void *ctx)
{
    struct writer *w = ctx;
    pthread_mutex_lock(&w->lock);
    w->failed = true;
    pthread_cond_broadcast(&w->turn_changed);
    pthread_mutex_unlock(&w->lock);
}

/* ---- before the first byte ---- */

static int hash_terms(const struct writer *w, uint64_t *id)
{
    const struct pack_identity *identity = &w->identity;
    XXH3_state_t *state = XXH3_createState();
    uint64_t numbers[4 + PACK_PARTS_MAX] = {identity->config_hash, w->terms.tile_bytes,
                                            w->terms.trunk_only, w->terms.parts};
    for (uint32_t i = 0; i < w->terms.parts; i++) {
        numbers[4 + i] = w->terms.share[i];
    }
    /* With more folders the pack's own too: two packs made alike must not take each other's parts
     * in a folder that both were given. */
    char *out = realpath(w->places.place[0].path, NULL);
    if (state == NULL || out == NULL) {
        XXH3_freeState(state);
        free(out);
        return err_set(ERR_OUTPUT, "%s: cannot be found any more, or no memory is left",
                       w->places.place[0].path);
    }
    XXH3_64bits_reset(state);
    if (w->terms.parts > 1) {
        XXH3_64bits_update(state, out, strlen(out) + 1);
    }
    XXH3_64bits_update(state, numbers, sizeof numbers);
    free(out);
    for (uint32_t i = 0; i < identity->shard_count; i++) {
        const struct pack_shard *shard = &identity->shards[i];
        XXH3_64bits_update(state, shard->name, strlen(shard->name) + 1);
        XXH3_64bits_update(state, &shard->size_bytes, sizeof shard->size_bytes);
        XXH3_64bits_update(state, &shard->hash, sizeof shard->hash);
    }
    *id = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return 0;
}

static int settle_shares(struct writer *w, const struct pack_terms *before)
{
    bool fresh = !w->places.resumed;
    if (!fresh && w->options->shares == NULL && before->parts == w->places.count) {
        memcpy(w->places.share, before->share, sizeof before->share);
    } else if (w->options->shares == NULL && w->places.count > 1) {
        TRY(pack_places_measure(&w->places, w->options->quiet));
    }
    w->terms.parts = w->places.count;
    memcpy(w->terms.share, w->places.share, sizeof w->terms.share);
    return 0;
}

static int settle_terms(struct writer *w)
{
    struct pack_terms before = {.parts = 0};
    if (w->places.resumed) {
        TRY(pack_journal_terms(&w->places.place[0], &before));
    }
    TRY(settle_shares(w, &before));
    w->terms.tile_bytes = w->options->tile_bytes;
    w->terms.trunk_only = w->options->trunk_only;
    TRY(pack_items_list(&w->items, w->source, &w->terms.tile_bytes, w->terms.trunk_only,
                        w->terms.share, w->terms.parts));
    TRY(hash_terms(w, &w->terms.id));
    if (w->places.resumed && before.id != w->terms.id) {
        return err_set(ERR_USAGE, "%s: holds an unfinished pack of another source, with other "
                       "options or begun in another folder; give those, or remove the folder and "
                       "pack anew", w->places.place[0].path);
    }
    return 0;
}

static int look_for_signal(void)
{
    return signals_caught() != 0 ? err_set(ERR_STOPPED, "packing was stopped") : 0;
}

/* Bytes stored per byte read of tiles that may be coded, from a sample spread over the walk. */
static int sample_ratio(struct writer *w, double *ratio)
{
    struct pack_hand hand;
    uint64_t raw_bytes = 0;
    uint64_t stored_bytes = 0;
    uint32_t codable = 0;
    for (uint32_t i = 0; i < w->items.count; i++) {
        codable += w->items.item[i].may_code;
    }
    uint32_t step = (uint32_t)max_u64(1, codable / SAMPLE_TILES);
    TRY(pack_hand_open(&hand, w->items.widest_bytes, false));
    int rc = 0;
    for (uint32_t i = 0, seen = 0; i < w->items.count && rc == 0; i++) {
        struct pack_item item = w->items.item[i];
        if (!item.may_code || seen++ % step != 0) {
            continue;
        }
        rc = look_for_signal();
        rc = rc < 0 ? rc : pack_item_read(w->source, &w->files, &item, &hand);
        if (rc == 0) {
            store_form(&item, &hand);
            raw_bytes += item.raw_bytes;
            stored_bytes += align_up(item.size_bytes, PAGE_BYTES);
        }
    }
    pack_hand_close(&hand);
    *ratio = raw_bytes > 0 ? (double)stored_bytes / (double)raw_bytes * 1.005 : 1;
    return rc;
}

static int check_space(struct writer *w)
{
    uint64_t need_bytes[PACK_PARTS_MAX] = {0};
    double ratio;
    TRY(sample_ratio(w, &ratio));
    for (uint32_t i = w->kept; i < w->items.count; i++) {
        const struct pack_item *item = &w->items.item[i];
        uint64_t bytes = item->may_code ? (uint64_t)((double)item->raw_bytes * ratio)
                                        : item->raw_bytes;
        need_bytes[item->file % w->places.count] += align_up(bytes, PAGE_BYTES);
    }
    need_bytes[0] += MARGIN_BYTES + (uint64_t)w->items.count * MANIFEST_ITEM_BYTES;
    return pack_places_check_space(&w->places, need_bytes);
}

/* ---- going on from an earlier run ---- */

static bool reaches(const struct writer *w, const struct pack_item *item)
{
    struct stat status;
    return fstat(w->output.fd[item->file], &status) == 0 &&
           item->offset_bytes + item->size_bytes <= (uint64_t)status.st_size;
}

static bool still_there(const struct writer *w, const struct pack_item *item,
                        unsigned char *buffer)
{
    const int fd = w->output.fd[item->file];
    for (uint64_t got_bytes = 0; got_bytes < item->size_bytes;) {
        ssize_t got = pread(fd, buffer + got_bytes, item->size_bytes - got_bytes,
                            (off_t)(item->offset_bytes + got_bytes));
        if (got <= 0) {
            return false;
        }
        got_bytes += (uint64_t)got;
    }
    return XXH3_64bits(buffer, item->size_bytes) == item->checksum;
}

/* Keeps the items that were written; those behind the last mark only as far as their bytes are
 * really there, since the machine may have gone down. */
static int keep_written(struct writer *w, uint32_t written, uint32_t synced)
{
    struct pack_hand hand;
    TRY(pack_hand_open(&hand, w->items.widest_bytes, false));
    for (; w->kept < written; w->kept++) {
        const struct pack_item *item = &w->items.item[w->kept];
        uint64_t *end_bytes = &w->output.end_bytes[item->file];
        if (item->offset_bytes != *end_bytes || !reaches(w, item) ||
            (w->kept >= synced && !still_there(w, item, hand.raw))) {
            break;
        }
        *end_bytes += align_up(item->size_bytes, PAGE_BYTES);
    }
    pack_hand_close(&hand);
    return pack_output_cut(&w->output);
}

/* All files were there before the first item. One that is gone may lie on a drive that is not
 * mounted: making it anew would give up what the others hold. */
static int go_on(struct writer *w, uint32_t files)
{
    uint32_t written;
    uint32_t synced;
    TRY(pack_output_open(&w->output, &w->places, files, w->terms.id));
    TRY(pack_journal_load(&w->places.place[0], &w->items, &written, &synced));
    if (written > 0) {
        TRY(pack_output_need_all(&w->output));
    }
    w->begun = true;
    TRY(pack_output_make(&w->output, w->terms.id));
    TRY(keep_written(w, written, synced));
    TRY(check_space(w));
    TRY(pack_output_sync(&w->output));
    return pack_journal_begin(&w->journal, &w->places.place[0], &w->terms, &w->items, w->kept);
}

static int begin_anew(struct writer *w, uint32_t files)
{
    TRY(check_space(w));
    TRY(pack_journal_begin(&w->journal, &w->places.place[0], &w->terms, &w->items, 0));
    w->begun = true;
    TRY(pack_output_open(&w->output, &w->places, files, w->terms.id));
    return pack_output_make(&w->output, w->terms.id);
}

/* ---- the whole ---- */

static int open_source(struct writer *w)
{
    struct model_options options = {.threads = 0};
    const char *dir = w->options->source;
    TRY(model_open(dir, &options, &w->source));
    if (w->source->pack != NULL) {
        return err_set(ERR_USAGE, "%s: is a pack already; pack the checkpoint it was made from",
                       dir);
    }
    w->source_path = realpath(dir, NULL);
    if (w->source_path == NULL) {
        return err_set(ERR_IO, "%s: cannot be followed to its place: %s", dir, strerror(errno));
    }
    TRY(pack_check_name(w->source_path));
    TRY(pack_identity_read(dir, w->source, &w->identity));
    for (uint32_t i = 0; i < w->identity.shard_count; i++) {
        TRY(pack_check_name(w->identity.shards[i].name));
    }
    return 0;
}

static int prepare(struct writer *w)
{
    TRY(open_source(w));
    TRY(look_for_signal());
    TRY(pack_places_open(&w->places, w->options));
    TRY(settle_terms(w));
    TRY(look_for_signal());
    TRY(engine_open_files(w->source, &w->files));
    const uint32_t files = w->places.count * (w->terms.trunk_only ? 1 : 2);
    return w->places.resumed ? go_on(w, files) : begin_anew(w, files);
}

static int write_items(struct writer *w)
{
    struct pack_pool pool = {.items = &w->items, .first = w->kept, .threads = w->options->threads,
                             .work = write_item, .failed = on_failure, .ctx = w,
                             .what = "packing", .quiet = w->options->quiet};
    w->turn = w->kept;
    int rc = pack_pool_run(&pool);
    if (rc == ERR_STOPPED) {
        mark(w);
        err_clear();
        return err_set(ERR_STOPPED, "packing was stopped; the same command goes on from here");
    }
    return rc;
}

static int finish(struct writer *w)
{
    const struct pack_place *home = &w->places.place[0];
    TRY(pack_output_cut(&w->output));
    TRY(mark(w));
    TRY(io_files_unchanged(&w->files));
    TRY(pack_copy_small(home, w->source));
    TRY(pack_output_rename(&w->output));
    TRY(pack_manifest_write(&w->output, w->source, w->source_path, &w->terms, &w->identity,
                            &w->items));
    TRY(pack_sync_folder(home));
    unlinkat(home->fd, PACK_JOURNAL, 0);
    return 0;
}

int pack_write(const struct pack_options *options, struct pack_summary *out)
{
    struct writer *w = calloc(1, sizeof *w);
    *out = (struct pack_summary){.taken_ns = nondet_now_ns()};
    if (w == NULL) {
        return err_set(ERR_MEMORY, "no memory to pack with");
    }
    w->options = options;
    w->journal.fd = -1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->turn_changed, NULL);
    int rc = prepare(w);
    rc = rc < 0 ? rc : write_items(w);
    rc = rc < 0 ? rc : finish(w);
    if (rc == 0) {
        pack_items_sum(&w->items, w->kept, out);
    }
    out->taken_ns = nondet_now_ns() - out->taken_ns;
    pack_journal_close(&w->journal);
    pack_output_close(&w->output);
    pack_places_close(&w->places, rc < 0 && !w->begun);
    io_files_close(&w->files);
    pack_items_free(&w->items);
    pack_identity_free(&w->identity);
    model_close(w->source);
    free(w->source_path);
    pthread_cond_destroy(&w->turn_changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return rc;
}
