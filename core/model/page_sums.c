/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model/page_sums.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/model/model_priv.h"

#define AGAIN "write them again with k3ring verify --write-checksums"

typedef unsigned long long ull; /* for messages */

static uint64_t sums_bytes(uint64_t file_bytes)
{
    return align_up(div_ceil(file_bytes, PAGE_BYTES) * PAGE_SUM_BYTES, PAGE_BYTES);
}

static uint64_t head_bytes(uint32_t file_count)
{
    return sizeof(struct page_sums_head) + file_count * sizeof(struct page_sums_entry);
}

static uint64_t checksum_of(const struct page_sums_head *head)
{
    XXH3_state_t *state = XXH3_createState();
    struct page_sums_head bare = *head;
    bare.checksum = 0;
    if (state == NULL) {
        return 0;
    }
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, &bare, sizeof bare);
    XXH3_64bits_update(state, head + 1, head_bytes(head->file_count) - sizeof bare);
    uint64_t sum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return sum;
}

void page_sums_seal(struct page_sums_head *head)
{
    head->checksum = checksum_of(head);
}

int page_sums_prepare(const struct model *model, struct page_sums_head **out,
                      uint64_t *size_bytes)
{
    struct model_identity identity;
    *size_bytes = align_up(head_bytes(model->file_count), PAGE_BYTES);
    struct page_sums_head *head = calloc(1, *size_bytes);
    *out = head;
    if (head == NULL) {
        return err_set(ERR_MEMORY, "%s: no memory for its list of files", model->dir);
    }
    int rc = model_identity_read(model, &identity);
    *head = (struct page_sums_head){.version = PAGE_SUMS_VERSION, .page_bytes = PAGE_BYTES,
                                    .file_count = model->file_count,
                                    .entry_bytes = sizeof(struct page_sums_entry),
                                    .size_bytes = *size_bytes,
                                    .config_hash = rc == 0 ? identity.config_hash : 0};
    memcpy(head->magic, PAGE_SUMS_MAGIC, sizeof head->magic);
    for (uint32_t i = 0; rc == 0 && i < model->file_count; i++) {
        struct page_sums_entry *entry = &page_sums_entries(head)[i];
        const char *name = path_name(model->files[i].path);
        if (strlen(name) >= sizeof entry->name) {
            rc = err_set(ERR_MODEL, "%s: its name is longer than a list of sums can hold",
                         model->files[i].path);
            break;
        }
        memcpy(entry->name, name, strlen(name));
        entry->size_bytes = model->files[i].size_bytes;
        entry->identity = identity.hash[i];
        entry->offset_bytes = head->size_bytes;
        head->size_bytes += sums_bytes(entry->size_bytes);
    }
    model_identity_free(&identity);
    return rc;
}

/* ---- opening ---- */

static int refuse(const char *path, const char *what)
{
    return err_set(ERR_MODEL, "%s: %s: " AGAIN, path, what);
}

static int check_head(const char *path, const struct page_sums_head *head, uint64_t size_bytes)
{
    if (memcmp(head->magic, PAGE_SUMS_MAGIC, sizeof head->magic) != 0) {
        return refuse(path, "is no list of page sums");
    }
    if (head->version != PAGE_SUMS_VERSION) {
        return err_set(ERR_MODEL, "%s: is a list of page sums of version %u, this program reads "
                       "version %u: " AGAIN, path, head->version, PAGE_SUMS_VERSION);
    }
    if (head->page_bytes != PAGE_BYTES || head->entry_bytes != sizeof(struct page_sums_entry) ||
        head->file_count == 0 || head->file_count > SHARD_COUNT_MAX ||
        head_bytes(head->file_count) > size_bytes) {
        return refuse(path, "its head is damaged");
    }
    if (head->size_bytes != size_bytes) {
        return err_set(ERR_MODEL, "%s: has %llu bytes but its head says %llu: it is cut or "
                       "damaged, " AGAIN, path, (ull)size_bytes, (ull)head->size_bytes);
    }
    return 0;
}

/* Entries lie one behind the other, so that none can reach into another or past the end. */
static int check_entries(const char *path, struct page_sums_head *head)
{
    uint64_t at = align_up(head_bytes(head->file_count), PAGE_BYTES);
    if (checksum_of(head) != head->checksum) {
        return refuse(path, "its head has another checksum than it says");
    }
    for (uint32_t i = 0; i < head->file_count; i++) {
        const struct page_sums_entry *entry = &page_sums_entries(head)[i];
        bool ended = memchr(entry->name, '\0', sizeof entry->name) != NULL;
        if (!ended || entry->offset_bytes != at || entry->size_bytes > (uint64_t)1 << 56) {
            return refuse(path, "its list of files is damaged");
        }
        at += sums_bytes(entry->size_bytes);
    }
    return at == head->size_bytes ? 0 : refuse(path, "its list of files is damaged");
}

static int read_head(const char *path, int fd, uint64_t size_bytes, struct page_sums_head **out)
{
    struct page_sums_head first;
    if (size_bytes < sizeof first) {
        return refuse(path, "is no list of page sums");
    }
    TRY(file_read_at(fd, path, 0, &first, sizeof first));
    TRY(check_head(path, &first, size_bytes));
    struct page_sums_head *head = malloc(head_bytes(first.file_count));
    if (head == NULL) {
        return err_set(ERR_MEMORY, "%s: no memory for its list of files", path);
    }
    int rc = file_read_at(fd, path, 0, head, head_bytes(first.file_count));
    if (rc == 0 && head->file_count != first.file_count) {
        rc = refuse(path, "changes while it is read");
    }
    rc = rc < 0 ? rc : check_entries(path, head);
    if (rc < 0) {
        free(head);
        return rc;
    }
    *out = head;
    return 0;
}

static int open_head(const char *path, struct page_sums_head **head)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return err_set(ERR_MODEL, "%s: cannot be opened: %s: " AGAIN, path, strerror(errno));
    }
    int rc;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        rc = refuse(path, "is not a regular file");
    } else {
        rc = read_head(path, fd, (uint64_t)status.st_size, head);
    }
    close(fd);
    return rc;
}

static int refuse_other(const char *path, const struct model *model, const char *what)
{
    return err_set(ERR_MODEL, "%s: these sums are not of %s: %s: the model has changed since they "
                   "were written, or is another or damaged: compare it with its published "
                   "checksums (k3ring verify --checksums)", path, model->dir, what);
}

static int compare(const char *path, const struct model *model, struct page_sums_head *head)
{
    struct model_identity identity;
    char what[PAGE_SUMS_NAME_BYTES + 64];
    if (head->file_count != model->file_count) {
        snprintf(what, sizeof what, "they are of %u files, it has %u", head->file_count,
                 model->file_count);
        return refuse_other(path, model, what);
    }
    int rc = model_identity_read(model, &identity);
    if (rc == 0 && identity.config_hash != head->config_hash) {
        rc = refuse_other(path, model, "config.json is another");
    }
    for (uint32_t i = 0; rc == 0 && i < model->file_count; i++) {
        const struct page_sums_entry *entry = &page_sums_entries(head)[i];
        const char *name = path_name(model->files[i].path);
        const char *wrong = strcmp(entry->name, name) != 0                     ? "name"
                            : entry->size_bytes != model->files[i].size_bytes ? "size"
                            : entry->identity != identity.hash[i]             ? "header"
                                                                              : NULL;
        if (wrong != NULL) {
            snprintf(what, sizeof what, "%s has another %s", name, wrong);
            rc = refuse_other(path, model, what);
        }
    }
    model_identity_free(&identity);
    return rc;
}

static int take_places(struct page_sums *sums, struct page_sums_head *head)
{
    sums->size_bytes = head->size_bytes;
    sums->file_count = head->file_count;
    sums->offset_bytes = calloc(head->file_count, sizeof *sums->offset_bytes);
    sums->checksum = calloc(head->file_count, sizeof *sums->checksum);
    if (sums->offset_bytes == NULL || sums->checksum == NULL) {
        return err_set(ERR_MEMORY, "%s: no memory for its list of files", sums->path);
    }
    for (uint32_t i = 0; i < head->file_count; i++) {
        sums->offset_bytes[i] = page_sums_entries(head)[i].offset_bytes;
        sums->checksum[i] = page_sums_entries(head)[i].checksum;
    }
    return 0;
}

int page_sums_open(const char *path, const struct model *model, struct page_sums **out)
{
    struct page_sums_head *head = NULL;
    struct page_sums *sums = calloc(1, sizeof *sums);
    *out = NULL;
    if (sums == NULL || (sums->path = strdup(path)) == NULL) {
        free(sums);
        return err_set(ERR_MEMORY, "%s: no memory to open it", path);
    }
    int rc = open_head(path, &head);
    rc = rc < 0 ? rc : compare(path, model, head);
    rc = rc < 0 ? rc : take_places(sums, head);
    free(head);
    if (rc < 0) {
        page_sums_close(sums);
        return rc;
    }
    *out = sums;
    return 0;
}

void page_sums_close(struct page_sums *sums)
{
    if (sums != NULL) {
        free(sums->path);
        free(sums->offset_bytes);
        free(sums->checksum);
        free(sums);
    }
}

uint64_t page_sums_resident_bytes(const struct page_sums *sums)
{
    return sizeof *sums + strlen(sums->path) + 1 + sums->file_count * 2ULL * sizeof(uint64_t);
}

/* ---- use ---- */

struct page_sums_slice page_sums_slice(const struct page_sums *sums, struct extent window)
{
    assert(window.offset_bytes % PAGE_BYTES == 0 && window.size_bytes % PAGE_BYTES == 0);
    const struct extent exact = {
        .file = window.file,
        .offset_bytes = sums->offset_bytes[window.file] +
                        window.offset_bytes / PAGE_BYTES * PAGE_SUM_BYTES,
        .size_bytes = window.size_bytes / PAGE_BYTES * PAGE_SUM_BYTES};
    const struct extent aligned = extent_window(exact);
    return (struct page_sums_slice){.offset_bytes = aligned.offset_bytes,
                                    .size_bytes = aligned.size_bytes,
                                    .skip_bytes = exact.offset_bytes - aligned.offset_bytes};
}

int64_t page_sums_mismatch(const unsigned char *pages, uint64_t size_bytes,
                           const unsigned char *sums)
{
    for (uint64_t at = 0; at < size_bytes; at += PAGE_BYTES) {
        uint64_t wanted;
        memcpy(&wanted, sums + at / PAGE_BYTES * PAGE_SUM_BYTES, sizeof wanted);
        if (page_sum(pages + at, min_u64(PAGE_BYTES, size_bytes - at)) != wanted) {
            return (int64_t)(at / PAGE_BYTES);
        }
    }
    return -1;
}
