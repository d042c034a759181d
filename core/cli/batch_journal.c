/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/batch_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

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

/* Covers index, mark and text, so that a damaged line is made anew instead of believed. */
static uint64_t checksum_of(uint32_t index, bool failed, const char *text, size_t size_bytes)
{
    return XXH3_64bits_withSeed(text, size_bytes, (uint64_t)index << 1 | failed);
}

/* "CHECKSUM INDEX + RESULT", or with a minus for a failed one. */
static void take_line(struct batch_journal *j, const char *line, size_t size_bytes)
{
    char *after_sum;
    char *after;
    uint64_t sum = strtoull(line, &after_sum, 16);
    unsigned long index = strtoul(after_sum, &after, 10);
    size_t skip = (size_t)(after - line) + 3;
    if (skip >= size_bytes || after[0] != ' ' || index >= j->count || j->result[index] != NULL) {
        return;
    }
    bool failed = after[1] == '-';
    if (sum == checksum_of((uint32_t)index, failed, line + skip, size_bytes - skip)) {
        j->result[index] = strndup(line + skip, size_bytes - skip);
        j->finished += j->result[index] != NULL;
        j->failed += j->result[index] != NULL && failed;
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
        return err_set(ERR_USAGE, "%s: is of another input, model or --gen; remove it to begin "
                       "anew, or give another --out", j->path);
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
    struct stat status;
    int fd = open(j->path, O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0666);
    bool plain = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    j->file = plain ? fdopen(fd, "a") : NULL;
    if (j->file == NULL) {
        errno = fd >= 0 && !plain ? EINVAL : errno;
        if (fd >= 0) {
            close(fd);
        }
        return refuse(j->path, "cannot be written as a regular file");
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
    fprintf(j->file, "%016llx %u %c %s\n",
            (unsigned long long)checksum_of(index, failed, text, strlen(text)), index,
            failed ? '-' : '+', text);
    bool bad = fflush(j->file) != 0 || fdatasync(fileno(j->file)) != 0;
    return bad ? refuse(j->path, "cannot be written") : 0;
}

int batch_journal_finish(struct batch_journal *j)
{
    struct output out;
    assert(j->finished == j->count);
    TRY(output_open(&out, j->out_path));
    out.only_new = true;
    for (uint32_t i = 0; i < j->count; i++) {
        fputs(j->result[i], out.file);
        fputc('\n', out.file);
    }
    int rc = output_commit(&out);
    output_abandon(&out);
    if (rc == 0) {
        output_flush_folders(); /* one of the two names is always there */
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
