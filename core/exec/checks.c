/* SPDX-License-Identifier: Apache-2.0 */
/* Checked reads: see checks.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "core/exec/exec_priv.h"
#include "planner/plan.h"

#define BOUNCE_BYTES (64 * KIB)

typedef unsigned long long ull; /* for messages */

/* ---- opening ---- */

int checks_open(struct engine *e)
{
    struct checks *k = &e->checks;
    const char *asked = e->options.paranoid;
    k->file = UINT32_MAX;
    pthread_mutex_init(&k->row_lock, NULL);
    if (asked == NULL) {
        return 0;
    }
    if (strcmp(asked, ENGINE_PARANOID_PACK) != 0) {
        TRY(page_sums_open(asked, e->model, &k->sums));
        k->by = CHECKS_SUMS;
        k->file = e->model->file_count;
        return 0;
    }
    if (e->model->pack == NULL) {
        return err_set(ERR_USAGE, "--paranoid pack: %s is no pack: write sums of its pages with "
                       "k3ring verify %s --write-checksums FILE and give that file",
                       e->model->dir, e->model->dir);
    }
    if (e->model->pack->experts_in_source) {
        return err_set(ERR_USAGE, "--paranoid pack: the experts of %s were left in its source, "
                       "and it has no checksums of them: write sums of pages with k3ring verify "
                       "%s --write-checksums FILE and give that file", e->model->dir,
                       e->model->dir);
    }
    k->by = CHECKS_TILES;
    return 0;
}

static struct checks_ticket *make_tickets(uint32_t count, unsigned char *memory, uint64_t each)
{
    struct checks_ticket *tickets = calloc(count + 1ULL, sizeof *tickets);
    if (tickets == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        tickets[i].slices = memory != NULL ? memory + i * each : NULL;
    }
    return tickets;
}

/* Memory of the slices lies behind the rows of the slab. */
int checks_place(struct engine *e)
{
    struct checks *k = &e->checks;
    const struct plan *p = e->plan;
    if (k->by == CHECKS_OFF) {
        return 0;
    }
    TRY(k->by == CHECKS_TILES ? checks_place_row_tile(e) : 0);
    unsigned char *at = k->by == CHECKS_SUMS ? slab_rows(e->slab) + p->account.rows : NULL;
    k->row_slices = at;
    k->row_slice_bytes = p->sums_row_bytes;
    k->tile_count = p->request.check_tiles;
    k->expert_count = p->request.check_experts;
    at += at != NULL ? p->chunk * p->sums_row_bytes : 0;
    k->tile = make_tickets(k->tile_count, at, p->sums_tile_bytes);
    at += at != NULL ? k->tile_count * p->sums_tile_bytes : 0;
    k->expert = make_tickets(k->expert_count, at, p->sums_expert_bytes);
    return k->tile != NULL && k->expert != NULL ? 0 : err_set(ERR_MEMORY, "no memory to check "
                                                              "reads with");
}

void checks_close(struct engine *e)
{
    page_sums_close(e->checks.sums);
    free(e->checks.row_tile);
    free(e->checks.row_bounce);
    pthread_mutex_destroy(&e->checks.row_lock);
    free(e->checks.tile);
    free(e->checks.expert);
}

/* ---- tickets ---- */

static uint32_t find_ticket(const struct checks_ticket *tickets, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!atomic_load(&tickets[i].taken)) {
            return i;
        }
    }
    return CHECKS_NO_TICKET;
}

bool checks_room(const struct engine *e, bool expert)
{
    const struct checks *k = &e->checks;
    return k->by == CHECKS_OFF ||
           find_ticket(expert ? k->expert : k->tile, expert ? k->expert_count : k->tile_count) !=
               CHECKS_NO_TICKET;
}

uint32_t checks_take(struct engine *e, bool expert)
{
    struct checks *k = &e->checks;
    if (k->by == CHECKS_OFF) {
        return CHECKS_NO_TICKET;
    }
    struct checks_ticket *tickets = expert ? k->expert : k->tile;
    uint32_t ticket = find_ticket(tickets, expert ? k->expert_count : k->tile_count);
    assert(ticket != CHECKS_NO_TICKET);
    atomic_store(&tickets[ticket].taken, 1);
    atomic_fetch_add(&k->open, 1);
    return ticket;
}

static void give_back(struct engine *e, struct checks_ticket *tickets, uint32_t ticket)
{
    (void)e;
    assert(atomic_load(&tickets[ticket].taken));
    atomic_store(&tickets[ticket].taken, 0);
}

/* All that followed from a ticket is done: who waits for memory or for the end looks again. */
static void settle_one(struct engine *e)
{
    atomic_fetch_sub(&e->checks.open, 1);
    if (atomic_load(&e->wants_room)) {
        io_wake(e->io);
    }
}

void checks_drop_tile(struct engine *e, uint32_t tile)
{
    if (e->checks.by != CHECKS_OFF) {
        give_back(e, e->checks.tile, e->tile[tile].ticket);
        atomic_fetch_sub(&e->checks.open, 1);
    }
}

/* ---- slices ---- */

static struct extent window_of(const struct plan_tile *tile)
{
    return (struct extent){.file = tile->file, .offset_bytes = tile->offset_bytes,
                           .size_bytes = tile->window_bytes};
}

/* Reads the slice of a window behind what is in `at` already. Returns where the next one goes. */
static unsigned char *issue_slice(struct engine *e, enum read_class class, uint32_t index,
                                  struct extent window, unsigned char *at)
{
    struct page_sums_slice slice = page_sums_slice(e->checks.sums, window);
    fetch_issue(e, class, index, e->checks.file, slice.offset_bytes, slice.size_bytes, at, 0);
    return at + slice.size_bytes;
}

void checks_issue_tile(struct engine *e, enum read_class class, uint32_t tile)
{
    issue_slice(e, class, tile, window_of(&e->plan->tiles[tile]),
                e->checks.tile[e->tile[tile].ticket].slices);
}

/* Slices of an expert's windows lie one behind the other. */
static unsigned char *expert_slice(const struct engine *e, uint32_t ticket,
                                   const struct extent *windows, uint32_t number)
{
    unsigned char *at = e->checks.expert[ticket].slices;
    for (uint32_t i = 0; i < number; i++) {
        at += page_sums_slice(e->checks.sums, windows[i]).size_bytes;
    }
    return at;
}

void checks_issue_expert(struct engine *e, uint32_t index, const struct extent *windows,
                         uint32_t number)
{
    uint32_t ticket = e->batch.run[index].ticket;
    unsigned char *at = expert_slice(e, ticket, windows, number);
    assert(at + page_sums_slice(e->checks.sums, windows[number]).size_bytes <=
           e->checks.expert[ticket].slices + e->plan->sums_expert_bytes);
    issue_slice(e, READ_EXPERTS, index, windows[number], at);
}

void checks_issue_row(struct engine *e, uint32_t token, struct extent window)
{
    issue_slice(e, READ_EMBED, token, window,
                e->checks.row_slices + token * e->checks.row_slice_bytes);
}

/* ---- comparing ---- */

/* Whether a page is still another when it is read once more, for the message only. */
static const char *look_again(const struct engine *e, struct extent page, uint64_t sum)
{
    static const char same[] = "a second reading gave the same: fetch this file again";
    unsigned char *again = aligned_alloc(PAGE_BYTES, PAGE_BYTES);
    unsigned char *bounce = aligned_alloc(PAGE_BYTES, BOUNCE_BYTES);
    uint64_t read_bytes = 0;
    const char *found = same;
    if (again != NULL && bounce != NULL) {
        int rc = io_file_read(&e->files, page.file, page.offset_bytes, page.size_bytes, again,
                              bounce, BOUNCE_BYTES, &read_bytes);
        if (rc < 0) {
            err_clear();
            found = "it cannot be read a second time: check the drive (dmesg, smartctl)";
        } else if (page_sum(again, page.size_bytes) == sum) {
            found = "a second reading gave the right bytes: memory, cable or controller change "
                    "what is read; test the memory";
        }
    }
    free(again);
    free(bounce);
    return found;
}

static void page_failed(struct engine *e, struct extent page, const unsigned char *sums)
{
    char text[ERR_MESSAGE_BYTES];
    char what[MODEL_DESCRIBED_BYTES];
    uint64_t sum;
    memcpy(&sum, sums, sizeof sum);
    model_describe(e->model, page.file, page.offset_bytes, page.size_bytes, what);
    snprintf(text, sizeof text, "%s: the page at byte %llu (%s) is not what %s says it was; no "
             "token was made from it; %s", e->files.file[page.file].path, (ull)page.offset_bytes,
             what, e->checks.sums->path, look_again(e, page, sum));
    engine_fail(e, ERR_IO, text);
}

/* The pages of a window against the slice that was read with it. */
static bool compare_window(struct engine *e, struct extent window, const unsigned char *pages,
                           const unsigned char *slice)
{
    const struct io_file *file = &e->files.file[window.file];
    const unsigned char *sums =
        slice + page_sums_slice(e->checks.sums, window).skip_bytes;
    uint64_t size_bytes = min_u64(window.size_bytes, file->size_bytes - window.offset_bytes);
    int64_t bad = page_sums_mismatch(pages, size_bytes, sums);
    atomic_fetch_add(&e->checks.checked_bytes, size_bytes);
    if (bad >= 0) {
        uint64_t at = (uint64_t)bad * PAGE_BYTES;
        struct extent page = {.file = window.file, .offset_bytes = window.offset_bytes + at,
                              .size_bytes = min_u64(PAGE_BYTES, size_bytes - at)};
        page_failed(e, page, sums + (uint64_t)bad * PAGE_SUM_BYTES);
    }
    return bad < 0;
}

/* A piece of a pack against the manifest. */
bool checks_compare_piece(struct engine *e, struct extent piece, const unsigned char *bytes,
                          uint64_t checksum)
{
    char text[ERR_MESSAGE_BYTES];
    char what[MODEL_DESCRIBED_BYTES];
    atomic_fetch_add(&e->checks.checked_bytes, piece.size_bytes);
    if (XXH3_64bits(bytes, piece.size_bytes) == checksum) {
        return true;
    }
    model_describe(e->model, piece.file, piece.offset_bytes, piece.size_bytes, what);
    snprintf(text, sizeof text, "%s: the %llu bytes at byte %llu (%s) have another checksum than "
             "the pack's manifest says; no token was made from them; prove the pack with k3ring "
             "pack --verify %s, and pack again", e->files.file[piece.file].path,
             (ull)piece.size_bytes, (ull)piece.offset_bytes, what, e->model->dir);
    engine_fail(e, ERR_IO, text);
    return false;
}

static bool compare_tile(struct engine *e, uint32_t index)
{
    const struct plan_tile *tile = &e->plan->tiles[index];
    const struct plan_step *step = &e->plan->steps[tile->step];
    const unsigned char *data = e->tile[index].data;
    if (e->checks.by == CHECKS_SUMS) {
        return compare_window(e, window_of(tile), data - tile->skip_bytes,
                              e->checks.tile[e->tile[index].ticket].slices);
    }
    uint32_t owner = step->tensor >= T_LAYER_COUNT ? TENSOR_MODEL_LEVEL : step->layer;
    uint32_t count;
    const struct model_tile *tiles = model_tiles(e->model, owner, step->tensor, &count);
    assert(index - step->tile_first < count);
    struct extent piece = {.file = tile->file, .size_bytes = tile->payload_bytes,
                           .offset_bytes = tile->offset_bytes + tile->skip_bytes};
    return checks_compare_piece(e, piece, data, tiles[index - step->tile_first].checksum);
}

static bool compare_expert(struct engine *e, const struct expert_run *run)
{
    struct extent window[EXPERT_PARTS];
    uint32_t part_at[EXPERT_PARTS];
    uint32_t layer = e->batch.layer;
    uint32_t count = model_expert_extents(e->model, layer, run->expert, window, part_at);
    const unsigned char *slot = slab_slot_address(e->slab, run->slot);
    if (e->checks.by == CHECKS_TILES) { /* its parts are one piece, from a page on */
        assert(count == 1 && window[0].offset_bytes % PAGE_BYTES == 0);
        return checks_compare_piece(e, window[0], slot,
                             pack_expert_checksum(e->model, layer, run->expert));
    }
    for (uint32_t i = 0; i < count; i++) {
        window[i] = extent_window(window[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!compare_window(e, window[i], slot, expert_slice(e, run->ticket, window, i))) {
            return false;
        }
        slot += window[i].size_bytes;
    }
    return true;
}

/* ---- tasks ---- */

void checks_tile_data(struct engine *e, uint32_t tile)
{
    queue_push(&e->ready, task_make(TASK_CHECK_TILE, e->plan->tiles[tile].step, tile));
    workers_notify(e, 1);
}

void checks_expert_data(struct engine *e, uint32_t index)
{
    queue_push(&e->ready, task_make(TASK_CHECK_EXPERT, e->batch.step, index));
    workers_notify(e, 1);
}

void checks_task(struct engine *e, enum task_kind kind, uint32_t index)
{
    bool expert = kind == TASK_CHECK_EXPERT;
    struct expert_run *run = expert ? &e->batch.run[index] : NULL;
    bool good = expert ? compare_expert(e, run) : compare_tile(e, index);
    if (expert) {
        give_back(e, e->checks.expert, run->ticket);
    } else {
        give_back(e, e->checks.tile, e->tile[index].ticket);
    }
    if (good && expert) {
        run_expert_data(e, index);
    } else if (good) {
        run_tile_data(e, index);
    }
    settle_one(e);
}

/* ---- what is read otherwise ---- */

bool checks_row(struct engine *e, struct extent row, uint32_t token, const unsigned char *bytes)
{
    struct extent window = extent_window(row);
    switch (e->checks.by) {
    case CHECKS_SUMS:
        return compare_window(e, window, bytes - (row.offset_bytes - window.offset_bytes),
                              e->checks.row_slices + token * e->checks.row_slice_bytes);
    case CHECKS_TILES:
        return checks_packed_row(e, row, bytes);
    default:
        return true;
    }
}

/* Through pages, so that their sums can be looked at: `pages` has room for the window. */
static int read_pages(struct engine *e, const struct tensor_ref *ref, unsigned char *pages,
                      void *bounce, uint64_t bounce_bytes)
{
    struct extent x = {ref->file, ref->offset_bytes, ref->size_bytes};
    struct extent window = extent_window(x);
    uint64_t end = min_u64(window.offset_bytes + window.size_bytes,
                           e->files.file[ref->file].size_bytes);
    struct page_sums_slice slice = page_sums_slice(e->checks.sums, window);
    unsigned char *sums = malloc(slice.size_bytes);
    if (sums == NULL) {
        return err_set(ERR_MEMORY, "no memory for sums of pages");
    }
    int rc = io_file_read(&e->files, ref->file, window.offset_bytes, end - window.offset_bytes,
                          pages, bounce, bounce_bytes, &e->open_bytes);
    if (rc == 0) {
        rc = io_file_read(&e->files, e->checks.file, slice.offset_bytes, slice.size_bytes, sums,
                          bounce, bounce_bytes, &e->open_bytes);
    }
    if (rc == 0 && !compare_window(e, window, pages, sums)) {
        rc = err_set(ERR_IO, "%s", e->error_text);
    }
    free(sums);
    return rc;
}

int checks_read_small(struct engine *e, uint32_t layer, enum tensor_id id, unsigned char *room,
                      unsigned char **raw, void *bounce, uint64_t bounce_bytes)
{
    const struct tensor_ref *ref = model_tensor(e->model, layer, id);
    struct extent x = {ref->file, ref->offset_bytes, ref->size_bytes};
    *raw = room;
    if (e->checks.by == CHECKS_SUMS) {
        *raw = room + ref->offset_bytes % PAGE_BYTES;
        return read_pages(e, ref, room, bounce, bounce_bytes);
    }
    TRY(io_file_read(&e->files, ref->file, ref->offset_bytes, ref->size_bytes, room, bounce,
                     bounce_bytes, &e->open_bytes));
    bool good = e->checks.by == CHECKS_OFF ||
                checks_compare_piece(e, x, room, pack_tensor_checksum(e->model, layer, id));
    return good ? 0 : err_set(ERR_IO, "%s", e->error_text);
}
