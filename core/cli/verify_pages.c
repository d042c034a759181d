/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of pages: written beside a model, and compared with one. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/cli/verify.h"

typedef unsigned long long ull; /* for printing */

int verify_pages_write(struct verify *v, const char *path, struct verify_pages_out *out)
{
    if (strcmp(path, "-") == 0) {
        return err_set(ERR_USAGE, "--write-checksums: give a file: it is not written in order");
    }
    if (v->count[VERIFY_BAD] > 0) {
        return 0; /* nothing is read for sums that would not be written */
    }
    TRY(page_sums_prepare(v->model, &out->head, &out->head_bytes));
    TRY(output_open(&out->out, path));
    if (out->out.direct) {
        return err_set(ERR_USAGE, "--write-checksums: %s is no regular file, or a link: give the "
                       "file itself", path);
    }
    int fd = fileno(out->out.file);
    if (ftruncate(fd, (off_t)out->head->size_bytes) != 0) {
        return err_set(ERR_OUTPUT, "%s: making room for %llu bytes: %s", path,
                       (ull)out->head->size_bytes, strerror(errno));
    }
    for (uint32_t i = 0; i < v->model->file_count; i++) {
        struct verify_job *job = &v->reading.job[i];
        job->pages = VERIFY_PAGES_WRITE;
        job->sums_fd = fd;
        job->sums_path = path;
        job->sums_offset_bytes = page_sums_entries(out->head)[i].offset_bytes;
    }
    return 0;
}

int verify_pages_written(struct verify *v, struct verify_pages_out *out)
{
    if (v->count[VERIFY_BAD] > 0) {
        verify_say(v, VERIFY_NOTE, "pages", "no sums of pages were written: what is wrong above "
                   "comes first");
        return 0;
    }
    for (uint32_t i = 0; i < v->model->file_count; i++) {
        struct page_sums_entry *entry = &page_sums_entries(out->head)[i];
        if (v->reading.job[i].size_bytes != entry->size_bytes) {
            return err_set(ERR_IO, "%s: its size changed while it was read: give the command "
                           "again", v->reading.job[i].path);
        }
        entry->checksum = v->reading.job[i].sums_checksum;
    }
    page_sums_seal(out->head);
    const char *path = out->out.path;
    if (fwrite(out->head, out->head_bytes, 1, out->out.file) != 1) {
        return err_set(ERR_OUTPUT, "%s: writing its head: %s", path, strerror(errno));
    }
    TRY(output_commit(&out->out));
    verify_say(v, VERIFY_OK, "pages", "%s: %llu sums of pages of %llu bytes, %llu bytes; give it "
               "to k3ring run as --paranoid %s", path,
               (ull)((out->head->size_bytes - out->head_bytes) / PAGE_SUM_BYTES),
               (ull)PAGE_BYTES, (ull)out->head->size_bytes, path);
    return 0;
}

void verify_pages_abandon(struct verify_pages_out *out)
{
    output_abandon(&out->out);
    free(out->head);
    out->head = NULL;
}

int verify_pages_check(struct verify *v, const char *path, int *fd)
{
    struct page_sums *sums;
    if (v->model == NULL) {
        return 0; /* it was refused: no tensor has a place */
    }
    TRY(page_sums_open(path, v->model, &sums));
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) {
        page_sums_close(sums);
        return err_set(ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    }
    for (uint32_t i = 0; i < v->model->file_count; i++) {
        struct verify_job *job = &v->reading.job[i];
        job->pages = VERIFY_PAGES_CHECK;
        job->sums_fd = *fd;
        job->sums_path = path;
        job->sums_offset_bytes = sums->offset_bytes[i];
        job->sums_wanted = sums->checksum[i];
    }
    page_sums_close(sums);
    return 0;
}

static void say_bad_page(struct verify *v, const char *path, const struct verify_job *job,
                         uint32_t file)
{
    char what[MODEL_DESCRIBED_BYTES];
    model_describe(v->model, file, job->bad_offset_bytes, PAGE_BYTES, what);
    bool sums_damaged = job->sums_checksum != job->sums_wanted;
    verify_say(v, VERIFY_BAD, "pages", "%s: %llu pages are not what %s says, the first at byte "
               "%llu (%s): %s", job->path, (ull)job->bad_pages, path, (ull)job->bad_offset_bytes,
               what, sums_damaged ? "the sums themselves are damaged there: write them again, "
                                    "once the model is proved by --checksums"
                                  : "fetch this file again");
}

void verify_pages_checked(struct verify *v, const char *path)
{
    uint64_t good = 0;
    for (uint32_t i = 0; v->model != NULL && i < v->model->file_count; i++) {
        const struct verify_job *job = &v->reading.job[i];
        if (job->rc < 0) {
            continue; /* said already */
        }
        if (job->bad_pages > 0) {
            say_bad_page(v, path, job, i);
        } else {
            good += div_ceil(job->size_bytes, PAGE_BYTES);
        }
    }
    if (good > 0) {
        verify_say(v, VERIFY_OK, "pages", "%llu pages are what %s says", (ull)good, path);
    }
}
