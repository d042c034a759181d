/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of a pack that is being made: a line of terms, then a line per item written, in any
 * order, and now and then a mark: all before it is on the drive.
 *
 *   k3ring-pack 1 ID TILE TRUNK_ONLY SHARE...
 *   w INDEX OFFSET BYTES CODED CHECKSUM .
 *   mark .
 *
 * A line that does not end in a dot and a newline was cut off: reading stops there. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/cli/output.h"
#include "core/cli/pack_priv.h"

#define JOURNAL_CAP_BYTES (1 * GIB)
#define LINE_BYTES 160

static int refuse(const struct pack_place *place, const char *what)
{
    return err_set(ERR_USAGE, "%s/" PACK_JOURNAL ": %s; remove the folder and pack anew",
                   place->path, what);
}

static int read_text(const struct pack_place *place, struct file_text *out)
{
    char *path = path_join(place->path, PACK_JOURNAL);
    if (path == NULL) {
        return ERR_MEMORY;
    }
    int rc = file_read(path, JOURNAL_CAP_BYTES, out);
    free(path);
    return rc;
}

static bool next_u64(char **at, int base, uint64_t *value)
{
    char *end;
    errno = 0;
    if (**at != ' ') {
        return false;
    }
    *value = strtoull(*at + 1, &end, base);
    bool good = end != *at + 1 && errno == 0;
    *at = end;
    return good;
}

static bool parse_terms(char *text, struct pack_terms *terms)
{
    static const char begin[] = "k3ring-pack 1";
    uint64_t only;
    uint64_t share;
    char *at = text + strlen(begin);
    if (strncmp(text, begin, strlen(begin)) != 0 || !next_u64(&at, 16, &terms->id) ||
        !next_u64(&at, 10, &terms->tile_bytes) || !next_u64(&at, 10, &only)) {
        return false;
    }
    terms->trunk_only = only != 0;
    while (*at == ' ' && at[1] != '.') {
        if (terms->parts == PACK_PARTS_MAX || !next_u64(&at, 10, &share) || share == 0 ||
            share > UINT32_MAX) {
            return false;
        }
        terms->share[terms->parts++] = (uint32_t)share;
    }
    return terms->parts > 0 && strncmp(at, " .\n", 3) == 0;
}

int pack_journal_terms(const struct pack_place *place, struct pack_terms *terms)
{
    struct file_text file;
    *terms = (struct pack_terms){.parts = 0};
    TRY(read_text(place, &file));
    bool good = parse_terms(file.text, terms);
    file_text_free(&file);
    return good ? 0 : refuse(place, "its first line is damaged");
}

static bool parse_item(char *line, struct pack_items *items, bool *known)
{
    uint64_t index, offset_bytes, size_bytes, coded, checksum;
    char *at = line + 1;
    if (*line != 'w' || !next_u64(&at, 10, &index) || index >= items->count ||
        !next_u64(&at, 10, &offset_bytes) || !next_u64(&at, 10, &size_bytes) ||
        !next_u64(&at, 10, &coded) || !next_u64(&at, 16, &checksum) || strcmp(at, " .") != 0) {
        return false;
    }
    struct pack_item *item = &items->item[index];
    bool fits = coded != 0 ? item->may_code && size_bytes < item->raw_bytes
                           : size_bytes == item->raw_bytes;
    item->offset_bytes = offset_bytes;
    item->size_bytes = size_bytes;
    item->coded = coded != 0;
    item->checksum = checksum;
    known[index] = fits;
    return fits;
}

static uint32_t known_prefix(const bool *known, uint32_t from, uint32_t count)
{
    while (from < count && known[from]) {
        from++;
    }
    return from;
}

static void parse_items(char *text, struct pack_items *items, bool *known, uint32_t *written,
                        uint32_t *synced)
{
    char *line = strchr(text, '\n'); /* the first holds the terms */
    for (char *end; line != NULL && (end = strchr(line + 1, '\n')) != NULL; line = end) {
        *end = '\0';
        if (strcmp(line + 1, "mark .") == 0) {
            *synced = known_prefix(known, *synced, items->count);
        } else if (!parse_item(line + 1, items, known)) {
            break;
        }
    }
    *written = known_prefix(known, *synced, items->count);
}

int pack_journal_load(const struct pack_place *place, struct pack_items *items, uint32_t *written,
                      uint32_t *synced)
{
    struct file_text file;
    *written = *synced = 0;
    bool *known = calloc(items->count + 1ULL, sizeof *known);
    if (known == NULL) {
        return err_set(ERR_MEMORY, "no memory to read a journal");
    }
    int rc = read_text(place, &file);
    if (rc == 0) {
        parse_items(file.text, items, known, written, synced);
        file_text_free(&file);
    }
    free(known);
    return rc;
}

static int print_item(char line[LINE_BYTES], uint32_t index, const struct pack_item *item)
{
    return snprintf(line, LINE_BYTES, "w %u %" PRIu64 " %" PRIu64 " %d %016" PRIx64 " .\n", index,
                    item->offset_bytes, item->size_bytes, item->coded ? 1 : 0, item->checksum);
}

static int write_begin(struct pack_journal *journal, const struct pack_terms *terms,
                       const struct pack_items *items, uint32_t kept)
{
    struct output out;
    TRY(output_open(&out, journal->path));
    fprintf(out.file, "k3ring-pack 1 %016" PRIx64 " %" PRIu64 " %d", terms->id, terms->tile_bytes,
            terms->trunk_only ? 1 : 0);
    for (uint32_t i = 0; i < terms->parts; i++) {
        fprintf(out.file, " %u", terms->share[i]);
    }
    fprintf(out.file, " .\n");
    for (uint32_t i = 0; i < kept; i++) {
        char line[LINE_BYTES];
        print_item(line, i, &items->item[i]);
        fputs(line, out.file);
    }
    fputs("mark .\n", out.file);
    TRY(output_commit(&out));
    output_flush_folders();
    return 0;
}

int pack_journal_begin(struct pack_journal *journal, const struct pack_place *place,
                       const struct pack_terms *terms, const struct pack_items *items,
                       uint32_t kept)
{
    *journal = (struct pack_journal){.fd = -1, .path = path_join(place->path, PACK_JOURNAL)};
    if (journal->path == NULL) {
        return ERR_MEMORY;
    }
    TRY(write_begin(journal, terms, items, kept));
    journal->fd = open(journal->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (journal->fd < 0) {
        return err_set(ERR_OUTPUT, "%s: cannot be opened: %s", journal->path, strerror(errno));
    }
    return 0;
}

static int append(const struct pack_journal *journal, const char *line, size_t size_bytes)
{
    ssize_t wrote;
    do {
        wrote = write(journal->fd, line, size_bytes);
    } while (wrote < 0 && errno == EINTR);
    if (wrote != (ssize_t)size_bytes) {
        return err_set(ERR_OUTPUT, "%s: cannot be written: %s; what is written stays, the same "
                       "command goes on from there", journal->path,
                       wrote < 0 ? strerror(errno) : "no space left");
    }
    return 0;
}

int pack_journal_add(struct pack_journal *journal, uint32_t index, const struct pack_item *item)
{
    char line[LINE_BYTES];
    int size_bytes = print_item(line, index, item);
    return append(journal, line, (size_t)size_bytes);
}

int pack_journal_mark(struct pack_journal *journal)
{
    static const char mark[] = "mark .\n";
    TRY(append(journal, mark, sizeof mark - 1));
    if (fdatasync(journal->fd) < 0) {
        return err_set(ERR_OUTPUT, "%s: cannot be brought to the drive: %s", journal->path,
                       strerror(errno));
    }
    return 0;
}

void pack_journal_close(struct pack_journal *journal)
{
    if (journal->fd >= 0) {
        close(journal->fd);
    }
    free(journal->path);
    *journal = (struct pack_journal){.fd = -1};
}
