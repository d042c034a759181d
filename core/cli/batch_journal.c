/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/batch_journal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/cli/output.h"

static int refuse(const char *path, const char *what)
{
    return err_set(ERR_OUTPUT, "%s: %s: %s", path, what, strerror(errno));
}

static int heading(const struct batch_journal *j, const char *identity, char *text, size_t bytes)
{
    return snprintf(text, bytes, "{\"k3ring_batch\": 1, \"sequences\": %u, \"of\": \"%s\"}\n",
                    j->count, identity);
}

/* "INDEX + RESULT", or with a minus for a failed one: taken over when it is whole. */
static void take_line(struct batch_journal *j, const char *line, size_t size_bytes)
{
    char *after;
    unsigned long index = strtoul(line, &after, 10);
    size_t skip = (size_t)(after - line) + 3;
    bool good = after != line && skip < size_bytes && after[0] == ' ' &&
                (after[1] == '+' || after[1] == '-') && after[2] == ' ' && index < j->count &&
                line[size_bytes - 1] == '}' && j->result[index] == NULL;
    if (good) {
        j->result[index] = strndup(line + skip, size_bytes - skip);
        j->finished += j->result[index] != NULL;
        j->failed += j->result[index] != NULL && after[1] == '-';
    }
}

/* Reads what is there. *keep_bytes: up to the end of the last whole line. */
static int take_up(struct batch_journal *j, const char *head, size_t head_bytes,
                   uint64_t *keep_bytes)
{
    struct file_text text;
    TRY(file_read(j->path, 16ULL * GIB, &text));
    const char *end = text.text + text.size_bytes;
    bool begun = memcmp(text.text, head, min_u64(text.size_bytes, head_bytes)) == 0;
    bool ours = begun && text.size_bytes >= head_bytes;
    if (!begun) {
        file_text_free(&text);
        return err_set(ERR_USAGE, "%s: is of another input or model; remove it to begin anew, or "
                       "give another --out", j->path);
    }
    const char *at = text.text + (ours ? head_bytes : 0);
    *keep_bytes = ours ? head_bytes : 0;
    while (ours && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL) {
            break;
        }
        take_line(j, at, (size_t)(newline - at));
        at = newline + 1;
        *keep_bytes = (uint64_t)(at - text.text);
    }
    file_text_free(&text);
    return 0;
}

static int open_file(struct batch_journal *j, const char *identity)
{
    char head[256];
    uint64_t keep = 0;
    int head_bytes = heading(j, identity, head, sizeof head);
    j->file = fopen(j->path, "ae");
    if (j->file == NULL) {
        return refuse(j->path, "cannot be written");
    }
    if (flock(fileno(j->file), LOCK_EX | LOCK_NB) != 0) {
        return err_set(ERR_USAGE, "%s: another k3ring batch is writing it", j->path);
    }
    TRY(take_up(j, head, (size_t)head_bytes, &keep));
    if (ftruncate(fileno(j->file), (off_t)keep) != 0) {
        return refuse(j->path, "cannot be written");
    }
    if (keep == 0) {
        fputs(head, j->file);
    }
    j->ours = true;
    return fflush(j->file) == 0 ? 0 : refuse(j->path, "cannot be written");
}

int batch_journal_taken(const char *out_path)
{
    return err_set(ERR_USAGE, "%s: is there already; remove it or give another --out", out_path);
}

int batch_journal_open(struct batch_journal *j, const char *out_path, uint32_t count,
                       const char identity[JOURNAL_IDENTITY_BYTES])
{
    *j = (struct batch_journal){.out_path = out_path, .count = count};
    if (file_exists(out_path)) {
        return batch_journal_taken(out_path);
    }
    j->result = calloc(count, sizeof *j->result);
    if (j->result == NULL || asprintf(&j->path, "%s.part", out_path) < 0) {
        j->path = NULL;
        return err_set(ERR_MEMORY, "no memory for %u results", count);
    }
    return open_file(j, identity);
}

int batch_journal_add(struct batch_journal *j, uint32_t index, bool failed, char *text)
{
    assert(index < j->count && j->result[index] == NULL);
    j->result[index] = text;
    j->finished++;
    j->failed += failed;
    errno = 0;
    fprintf(j->file, "%u %c %s\n", index, failed ? '-' : '+', text);
    bool bad = fflush(j->file) != 0 || fdatasync(fileno(j->file)) != 0;
    return bad ? refuse(j->path, "cannot be written") : 0;
}

int batch_journal_finish(struct batch_journal *j)
{
    struct output out;
    assert(j->finished == j->count);
    TRY(output_open(&out, j->out_path));
    for (uint32_t i = 0; i < j->count; i++) {
        fputs(j->result[i], out.file);
        fputc('\n', out.file);
    }
    int rc = output_commit(&out);
    output_abandon(&out);
    if (rc == 0) {
        unlink(j->path);
    }
    return rc;
}

void batch_journal_close(struct batch_journal *j)
{
    if (j->file != NULL) {
        if (j->ours && j->finished == 0) {
            unlink(j->path);
        }
        fclose(j->file);
    }
    for (uint32_t i = 0; j->result != NULL && i < j->count; i++) {
        free(j->result[i]);
    }
    free(j->result);
    free(j->path);
    *j = (struct batch_journal){0};
}
