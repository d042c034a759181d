/* SPDX-License-Identifier: Apache-2.0 */
#include "core/exec/saved_state.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "core/base/file.h"
#include "core/base/little.h"
#include "core/exec/exec_priv.h"

#define VERSION 1U
#define BLOCK_BYTES (64 * KIB) /* on the stack, and what a checksum sees while it is warm */
#define SUM_BYTES 8U

/* Of the header. */
enum {
    AT_VERSION = 8, AT_TAG = 12, AT_FILE_BYTES = 16, AT_IDENTITY = 24, AT_FINGERPRINT = 40,
    AT_LAYERS = 48, AT_MLA = 52, AT_HEADS = 56, AT_DIM = 60, AT_TAPS = 64, AT_LATENT = 68,
    AT_ROTARY = 72, AT_VOCAB = 76, AT_POSITIONS = 80, AT_IDS = 84, AT_NOTES = 88, AT_ZERO = 96,
    AT_SUM = 112
};

enum section { SECTION_IDS, SECTION_NOTES, SECTION_KDA, SECTION_CONV, SECTION_LATENT, SECTIONS };

static const char magic[8] = {'K', '3', 'R', 'S', 'T', 'A', 'T', 'E'};
static const char *const section_names[SECTIONS] = {"ids", "notes", "matrices", "convolution",
                                                    "latents"};

typedef unsigned long long ull; /* for messages */

_Static_assert(SAVED_HEADER_BYTES == AT_SUM + SUM_BYTES, "the checksum ends the header");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ids and floats are written as they lie");

static uint64_t get4(const unsigned char *header, uint32_t at)
{
    return little_get(header + at, 4);
}

/* A header may claim anything: too much stays too much. */
static uint64_t times(uint64_t a, uint64_t b)
{
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* ---- what a header says ---- */

static uint64_t section_bytes(const unsigned char *h, enum section section)
{
    uint64_t mla = get4(h, AT_MLA);
    uint64_t heads = times(get4(h, AT_LAYERS) - mla, get4(h, AT_HEADS));
    uint64_t dim = get4(h, AT_DIM);
    switch (section) {
    case SECTION_IDS:
        return times(get4(h, AT_IDS), sizeof(uint32_t));
    case SECTION_NOTES:
        return little_get(h + AT_NOTES, 8);
    case SECTION_KDA:
        return times(times(heads, times(dim, dim)), sizeof(float));
    case SECTION_CONV:
        return times(times(times(3, heads), times(get4(h, AT_TAPS) - 1, dim)), sizeof(float));
    default:
        return times(times(times(mla, get4(h, AT_POSITIONS)),
                           get4(h, AT_LATENT) + get4(h, AT_ROTARY)), sizeof(float));
    }
}

/* Where a section begins; SECTIONS: where the checksum of the whole does. */
static uint64_t section_at(const unsigned char *h, enum section section)
{
    uint64_t at = SAVED_HEADER_BYTES;
    for (int i = 0; i < (int)section; i++) {
        at = plus(at, plus(section_bytes(h, (enum section)i), SUM_BYTES));
    }
    return at;
}

static uint64_t whole_bytes(const unsigned char *h)
{
    return plus(section_at(h, SECTIONS), SUM_BYTES);
}

static uint32_t mla_layers(const struct model_config *c)
{
    uint32_t count = 0;
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        count += c->is_mla[layer];
    }
    return count;
}

static int make_header(unsigned char h[SAVED_HEADER_BYTES], const struct engine *e,
                       const struct saved_extra *extra)
{
    const struct model_config *c = config_of(e);
    memset(h, 0, SAVED_HEADER_BYTES);
    memcpy(h, magic, sizeof magic);
    little_put(h + AT_VERSION, VERSION, 4);
    little_put(h + AT_TAG, extra->tag, 4);
    TRY(model_identity(e->model, h + AT_IDENTITY));
    little_put(h + AT_FINGERPRINT, resident_fingerprint(e), 8);
    little_put(h + AT_LAYERS, c->layers, 4);
    little_put(h + AT_MLA, mla_layers(c), 4);
    little_put(h + AT_HEADS, c->kda_heads, 4);
    little_put(h + AT_DIM, c->kda_dim, 4);
    little_put(h + AT_TAPS, c->conv_taps, 4);
    little_put(h + AT_LATENT, c->kv_lora, 4);
    little_put(h + AT_ROTARY, c->qk_rope, 4);
    little_put(h + AT_VOCAB, c->vocab, 4);
    little_put(h + AT_POSITIONS, e->position, 4);
    little_put(h + AT_IDS, extra->id_count, 4);
    little_put(h + AT_NOTES, extra->notes_bytes, 8);
    little_put(h + AT_FILE_BYTES, whole_bytes(h), 8);
    little_put(h + AT_SUM, XXH3_64bits(h, AT_SUM), 8);
    return 0;
}

/* What a layer keeps of a section; false when it keeps nothing. */
static bool piece_of(const struct engine *e, enum section section, uint32_t layer,
                     uint32_t positions, float **at, uint64_t *bytes)
{
    const struct model_config *c = config_of(e);
    if (c->is_mla[layer] != (section == SECTION_LATENT)) {
        return false;
    }
    uint64_t floats = section == SECTION_LATENT
                          ? (uint64_t)positions * (c->kv_lora + c->qk_rope)
                      : section == SECTION_KDA
                          ? (uint64_t)c->kda_heads * c->kda_dim * c->kda_dim
                          : (uint64_t)3 * c->kda_heads * (c->conv_taps - 1) * c->kda_dim;
    *at = section == SECTION_LATENT ? state_kv(e, 0, layer, 0)
          : section == SECTION_KDA  ? state_kda(e, 0, layer, 0)
                                    : state_conv(e, 0, layer, 0, 0);
    *bytes = floats * sizeof(float);
    return floats > 0;
}

static bool all_finite(const void *block, uint64_t bytes)
{
    bool all = true;
    for (uint64_t i = 0; i + sizeof(float) <= bytes; i += sizeof(float)) {
        float value;
        memcpy(&value, (const unsigned char *)block + i, sizeof value);
        all = all && isfinite(value);
    }
    return all;
}

/* ---- checksums ---- */

struct sums {
    XXH3_state_t *section, *whole;
};

static int sums_open(struct sums *sums)
{
    *sums = (struct sums){XXH3_createState(), XXH3_createState()};
    if (sums->section == NULL || sums->whole == NULL) {
        return err_set(ERR_MEMORY, "no memory for the checksums of a state");
    }
    XXH3_64bits_reset(sums->section);
    XXH3_64bits_reset(sums->whole);
    return 0;
}

static void sums_add(struct sums *sums, const void *bytes, uint64_t count)
{
    XXH3_64bits_update(sums->section, bytes, count);
    XXH3_64bits_update(sums->whole, bytes, count);
}

/* Ends a section: its checksum, which is part of the whole. */
static void sums_next(struct sums *sums, unsigned char sum[SUM_BYTES])
{
    little_put(sum, XXH3_64bits_digest(sums->section), SUM_BYTES);
    XXH3_64bits_update(sums->whole, sum, SUM_BYTES);
    XXH3_64bits_reset(sums->section);
}

static void sums_close(struct sums *sums)
{
    XXH3_freeState(sums->section);
    XXH3_freeState(sums->whole);
}

/* ---- writing ---- */

static void write_bytes(struct sums *sums, const void *bytes, uint64_t count, FILE *file)
{
    for (uint64_t at = 0; at < count && ferror(file) == 0; at += BLOCK_BYTES) {
        const unsigned char *block = (const unsigned char *)bytes + at;
        uint64_t block_bytes = min_u64(BLOCK_BYTES, count - at);
        sums_add(sums, block, block_bytes);
        fwrite(block, 1, block_bytes, file);
    }
}

static void write_sum(struct sums *sums, FILE *file)
{
    unsigned char sum[SUM_BYTES];
    sums_next(sums, sum);
    fwrite(sum, 1, sizeof sum, file);
}

static int write_layers(struct engine *e, enum section section, struct sums *sums, FILE *file)
{
    for (uint32_t layer = 0; layer < config_of(e)->layers; layer++) {
        float *at;
        uint64_t bytes;
        if (piece_of(e, section, layer, e->position, &at, &bytes)) {
            if (!all_finite(at, bytes)) {
                return err_set(ERR_NUMERIC, "the state of layer %u holds a value that is not "
                               "finite and is not saved", layer);
            }
            write_bytes(sums, at, bytes, file);
        }
    }
    write_sum(sums, file);
    return 0;
}

static int write_all(struct engine *e, const struct saved_extra *extra, struct sums *sums,
                     FILE *file)
{
    unsigned char header[SAVED_HEADER_BYTES];
    unsigned char sum[SUM_BYTES];
    TRY(sums_open(sums));
    TRY(make_header(header, e, extra));
    XXH3_64bits_update(sums->whole, header, sizeof header);
    fwrite(header, 1, sizeof header, file);
    write_bytes(sums, extra->ids, extra->id_count * sizeof *extra->ids, file);
    write_sum(sums, file);
    write_bytes(sums, extra->notes, extra->notes_bytes, file);
    write_sum(sums, file);
    for (enum section section = SECTION_KDA; section < SECTIONS; section++) {
        TRY(write_layers(e, section, sums, file));
    }
    little_put(sum, XXH3_64bits_digest(sums->whole), SUM_BYTES);
    fwrite(sum, 1, sizeof sum, file);
    return 0;
}

int saved_state_write(struct engine *e, const struct saved_extra *extra, FILE *file)
{
    struct sums sums = {NULL, NULL};
    assert(!e->begun && extra->id_count >= e->position);
    TRY(state_usable(e));
    if (extra->id_count > SAVED_IDS_MAX || extra->notes_bytes > SAVED_NOTES_BYTES_MAX) {
        return err_set(ERR_FIT, "a saved state holds %u ids and %llu bytes of notes at most, not "
                       "%u and %llu", SAVED_IDS_MAX, (ull)SAVED_NOTES_BYTES_MAX, extra->id_count,
                       (ull)extra->notes_bytes);
    }
    kda_settle(e);
    int rc = write_all(e, extra, &sums, file);
    sums_close(&sums);
    return rc;
}

/* ---- reading ---- */

static int refuse(const struct saved_state *s, const char *what)
{
    return err_set(ERR_MODEL, "state %s: %s; it is not used", s->path, what);
}

static int damaged(const struct saved_state *s, const char *what)
{
    return err_set(ERR_MODEL, "state %s: is damaged: %s; it is not used", s->path, what);
}

/* count bytes at *at to target, or nowhere (NULL) when all of them are floats to be looked at. */
static int read_bytes(const struct saved_state *s, struct sums *sums, uint64_t *at, void *target,
                      uint64_t count)
{
    unsigned char scratch[BLOCK_BYTES];
    for (uint64_t done = 0; done < count;) {
        uint64_t bytes = min_u64(BLOCK_BYTES, count - done);
        unsigned char *block = target != NULL ? (unsigned char *)target + done : scratch;
        TRY(file_read_at(s->fd, s->path, *at, block, bytes));
        sums_add(sums, block, bytes);
        if (target == NULL && !all_finite(block, bytes)) {
            return damaged(s, "it holds a value that is not finite");
        }
        *at += bytes;
        done += bytes;
    }
    return 0;
}

static int read_sum(const struct saved_state *s, struct sums *sums, uint64_t *at,
                    enum section section)
{
    unsigned char found[SUM_BYTES];
    unsigned char made[SUM_BYTES];
    char what[64];
    TRY(file_read_at(s->fd, s->path, *at, found, sizeof found));
    sums_next(sums, made);
    *at += SUM_BYTES;
    snprintf(what, sizeof what, "the checksum of its %s is wrong", section_names[section]);
    return memcmp(found, made, sizeof made) == 0 ? 0 : damaged(s, what);
}

static bool fields_sound(const unsigned char *h)
{
    uint64_t zeros = little_get(h + AT_ZERO, 8) | little_get(h + AT_ZERO + 8, 8);
    return zeros == 0 && get4(h, AT_TAG) < SAVED_TAGS && get4(h, AT_MLA) <= get4(h, AT_LAYERS) &&
           get4(h, AT_TAPS) > 0 && get4(h, AT_POSITIONS) <= get4(h, AT_IDS) &&
           get4(h, AT_IDS) <= SAVED_IDS_MAX &&
           little_get(h + AT_NOTES, 8) <= SAVED_NOTES_BYTES_MAX &&
           little_get(h + AT_FILE_BYTES, 8) == whole_bytes(h);
}

static int check_header(const struct saved_state *s, uint64_t size_bytes)
{
    const unsigned char *h = s->header;
    uint64_t expected = little_get(h + AT_FILE_BYTES, 8);
    if (memcmp(h, magic, sizeof magic) != 0) {
        return refuse(s, "is no saved state: it does not begin with K3RSTATE");
    }
    if (get4(h, AT_VERSION) != VERSION) {
        return err_set(ERR_MODEL, "state %s: version %u is not known; this program reads version "
                       "%u", s->path, (unsigned)get4(h, AT_VERSION), VERSION);
    }
    if (little_get(h + AT_SUM, SUM_BYTES) != XXH3_64bits(h, AT_SUM)) {
        return damaged(s, "the checksum of its header is wrong");
    }
    if (!fields_sound(h)) {
        return damaged(s, "its header contradicts itself");
    }
    if (size_bytes != expected) {
        return err_set(ERR_MODEL, "state %s: %s: it has %llu bytes and should have %llu; it is "
                       "not used", s->path, size_bytes < expected ? "was cut short" : "is too long",
                       (ull)size_bytes, (ull)expected);
    }
    return 0;
}

static int read_ids(struct saved_state *s, struct sums *sums, uint64_t *at)
{
    uint64_t vocab = get4(s->header, AT_VOCAB);
    uint64_t bytes = section_bytes(s->header, SECTION_IDS);
    s->id_count = (uint32_t)get4(s->header, AT_IDS);
    s->ids = malloc(bytes + 1);
    if (s->ids == NULL) {
        return err_set(ERR_MEMORY, "state %s: no memory for its %u ids", s->path, s->id_count);
    }
    TRY(read_bytes(s, sums, at, s->ids, bytes));
    TRY(read_sum(s, sums, at, SECTION_IDS));
    for (uint32_t i = 0; i < s->id_count; i++) {
        if (s->ids[i] >= vocab) {
            return damaged(s, "an id is not of its vocabulary");
        }
    }
    return 0;
}

static int read_notes(struct saved_state *s, struct sums *sums, uint64_t *at)
{
    s->notes_bytes = section_bytes(s->header, SECTION_NOTES);
    s->notes = malloc(s->notes_bytes + 1);
    if (s->notes == NULL) {
        return err_set(ERR_MEMORY, "state %s: no memory for its %llu bytes of notes", s->path,
                       (ull)s->notes_bytes);
    }
    s->notes[s->notes_bytes] = '\0';
    TRY(read_bytes(s, sums, at, s->notes, s->notes_bytes));
    return read_sum(s, sums, at, SECTION_NOTES);
}

/* Everything behind the header. */
static int read_whole(struct saved_state *s, struct sums *sums)
{
    unsigned char found[SUM_BYTES];
    uint64_t at = SAVED_HEADER_BYTES;
    TRY(sums_open(sums));
    XXH3_64bits_update(sums->whole, s->header, SAVED_HEADER_BYTES);
    TRY(read_ids(s, sums, &at));
    TRY(read_notes(s, sums, &at));
    for (enum section section = SECTION_KDA; section < SECTIONS; section++) {
        TRY(read_bytes(s, sums, &at, NULL, section_bytes(s->header, section)));
        TRY(read_sum(s, sums, &at, section));
    }
    TRY(file_read_at(s->fd, s->path, at, found, sizeof found));
    return little_get(found, SUM_BYTES) == XXH3_64bits_digest(sums->whole)
               ? 0 : damaged(s, "the checksum of the whole is wrong");
}

int saved_state_open(struct saved_state *s, const char *path)
{
    struct sums sums = {NULL, NULL};
    struct stat status;
    *s = (struct saved_state){.path = path};
    s->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe could block */
    if (s->fd < 0) {
        s->path = NULL;
        return err_set(ERR_IO, "state %s: cannot be opened: %s", path, strerror(errno));
    }
    if (fstat(s->fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        return err_set(ERR_USAGE, "state %s: is not a regular file; give the file itself", path);
    }
    if ((uint64_t)status.st_size < SAVED_HEADER_BYTES) {
        return refuse(s, "is too short to be a saved state");
    }
    TRY(file_read_at(s->fd, path, 0, s->header, sizeof s->header));
    TRY(check_header(s, (uint64_t)status.st_size));
    s->tag = (enum saved_tag)get4(s->header, AT_TAG);
    s->positions = (uint32_t)get4(s->header, AT_POSITIONS);
    int rc = read_whole(s, &sums);
    sums_close(&sums);
    return rc;
}

static int read_layers(const struct saved_state *s, struct engine *e, struct sums *sums)
{
    uint64_t at = section_at(s->header, SECTION_KDA);
    TRY(sums_open(sums));
    for (enum section section = SECTION_KDA; section < SECTIONS; section++) {
        for (uint32_t layer = 0; layer < config_of(e)->layers; layer++) {
            float *to;
            uint64_t bytes;
            if (piece_of(e, section, layer, s->positions, &to, &bytes)) {
                TRY(read_bytes(s, sums, &at, to, bytes));
            }
        }
        TRY(read_sum(s, sums, &at, section));
    }
    return 0;
}

static int check_model(const struct saved_state *s, const struct engine *e)
{
    unsigned char own[SAVED_HEADER_BYTES];
    const struct saved_extra none = {.tag = SAVED_IDS};
    uint32_t context = e->plan->request.context;
    TRY(make_header(own, e, &none));
    if (memcmp(s->header + AT_IDENTITY, own + AT_IDENTITY, AT_POSITIONS - AT_IDENTITY) != 0) {
        return err_set(ERR_MODEL, "state %s: is of another model than %s; give the model it was "
                       "saved with", s->path, e->model->dir);
    }
    if (s->positions > context) {
        return err_set(ERR_FIT, "state %s: holds %u positions, more than --context %u; give "
                       "--context %u or more", s->path, s->positions, context, s->id_count + 1);
    }
    return 0;
}

int saved_state_load(const struct saved_state *s, struct engine *e)
{
    struct sums sums = {NULL, NULL};
    assert(!e->begun);
    if (atomic_load(&e->error) != 0) {
        return state_usable(e);
    }
    TRY(check_model(s, e));
    TRY(state_reserve(e, 0, s->positions));
    engine_forget(e, 0);
    int rc = read_layers(s, e, &sums);
    sums_close(&sums);
    if (rc < 0) {
        state_clear(e, 0); /* half of it is there */
        return rc;
    }
    e->position = s->positions;
    return 0;
}

void saved_state_close(struct saved_state *s)
{
    if (s->path != NULL) {
        close(s->fd);
    }
    free(s->ids);
    free(s->notes);
    *s = (struct saved_state){.fd = -1};
}

uint64_t saved_state_resident_bytes(const struct saved_state *s)
{
    return s->id_count * sizeof *s->ids + s->notes_bytes;
}
