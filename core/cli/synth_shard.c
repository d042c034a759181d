/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/synth_shard.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/thread.h"
#include "core/cli/synth_fill.h"

#define BUFFER_BYTES (4 * MIB)
#define WRITERS_MAX 16

/* Shared by the writers; the lock covers what follows it. */
struct job {
    const struct synth_target *target;
    const struct synth_geometry *geometry;
    const struct synth_options *options;
    uint64_t total_bytes;
    pthread_mutex_t lock;
    uint32_t shard_next;
    uint64_t done_bytes;
    int code;                        /* of the first failure; 0 while all is well */
    char message[ERR_MESSAGE_BYTES]; /* its message */
};

/* One writer: bytes [begin, begin + used) of its file wait in the buffer. */
struct writer {
    struct job *job;
    struct synth_fill *fill;
    unsigned char *buffer;
    const char *file_name;
    int fd;
    uint64_t begin_bytes;
    uint64_t used_bytes;
};

static int fail(const struct writer *writer, const char *what)
{
    return err_set(ERR_OUTPUT, "%s/%s: %s failed: %s", writer->job->target->dir,
                   writer->file_name, what, strerror(errno));
}

/* Tells progress of bytes written; negative when the run is over, here or in another writer. */
static int report(struct job *job, uint64_t bytes)
{
    int rc = 0;
    const struct synth_options *options = job->options;
    pthread_mutex_lock(&job->lock);
    job->done_bytes += bytes;
    if (job->code < 0) {
        rc = err_set(ERR_RUN, "synth: another writer failed");
    } else if (options->progress != NULL &&
               !options->progress(options->user, job->done_bytes, job->total_bytes)) {
        rc = err_set(ERR_STOPPED, "synth: stopped on request after %llu of %llu bytes",
                     (unsigned long long)job->done_bytes, (unsigned long long)job->total_bytes);
    }
    pthread_mutex_unlock(&job->lock);
    return rc;
}

static int flush(struct writer *writer)
{
    uint64_t done = 0;
    while (done < writer->used_bytes) {
        const ssize_t n = pwrite(writer->fd, writer->buffer + done, writer->used_bytes - done,
                                 (off_t)(writer->begin_bytes + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            errno = n == 0 ? ENOSPC : errno;
            return fail(writer, "write");
        }
        done += (uint64_t)n;
    }
    writer->begin_bytes += done;
    writer->used_bytes = 0;
    return done > 0 ? report(writer->job, done) : 0;
}

/* Room for at least unit_bytes at offset; *room_bytes says how much there is. */
static int reserve(struct writer *writer, uint64_t offset_bytes, uint64_t unit_bytes,
                   uint64_t *room_bytes)
{
    if (offset_bytes != writer->begin_bytes + writer->used_bytes ||
        writer->used_bytes + unit_bytes > BUFFER_BYTES) {
        TRY(flush(writer));
        writer->begin_bytes = offset_bytes;
    }
    *room_bytes = BUFFER_BYTES - writer->used_bytes;
    return 0;
}

static int write_text(struct writer *writer, const char *text, uint64_t size_bytes)
{
    for (uint64_t done = 0; done < size_bytes;) {
        uint64_t room;
        TRY(reserve(writer, done, 1, &room));
        const uint64_t part = min_u64(room, size_bytes - done);
        memcpy(writer->buffer + writer->used_bytes, text + done, part);
        writer->used_bytes += part;
        done += part;
    }
    return 0;
}

static int write_range(struct writer *writer, const struct synth_tensor *tensor,
                       struct synth_range range)
{
    const uint64_t unit = dtype_bytes(tensor->dtype);
    while (range.begin < range.end) {
        uint64_t room;
        TRY(reserve(writer, tensor->offset_bytes + range.begin * unit, unit, &room));
        const uint64_t count = min_u64(room / unit, range.end - range.begin);
        synth_fill_run(writer->fill, tensor, range.begin, count,
                       writer->buffer + writer->used_bytes);
        writer->used_bytes += count * unit;
        range.begin += count;
    }
    return 0;
}

static int write_content(struct writer *writer, const struct synth_shard *shard)
{
    writer->begin_bytes = 0;
    writer->used_bytes = 0;
    if (ftruncate(writer->fd, (off_t)shard->size_bytes) != 0) {
        return fail(writer, "setting the size");
    }
    TRY(write_text(writer, shard->header, shard->header_bytes));
    for (uint32_t i = 0; i < shard->tensor_count; i++) {
        struct synth_range range;
        uint64_t cursor = 0;
        while (synth_next_range(&shard->tensors[i], writer->job->options->sparse, &cursor,
                                &range)) {
            TRY(write_range(writer, &shard->tensors[i], range));
        }
    }
    return flush(writer);
}

/* A file that fails stays under its partial name; the caller of all this clears the folder. */
static int write_shard(struct writer *writer, const struct synth_shard *shard)
{
    const int dir_fd = writer->job->target->dir_fd;
    char partial[sizeof shard->file_name + sizeof SYNTH_PARTIAL_SUFFIX];
    snprintf(partial, sizeof partial, "%s" SYNTH_PARTIAL_SUFFIX, shard->file_name);
    writer->file_name = shard->file_name;
    writer->fd = openat(dir_fd, partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (writer->fd < 0) {
        return fail(writer, "creating the file");
    }
    int rc = write_content(writer, shard);
    if (close(writer->fd) != 0 && rc == 0) {
        rc = fail(writer, "close");
    }
    if (rc == 0 && renameat(dir_fd, partial, dir_fd, shard->file_name) != 0) {
        rc = fail(writer, "rename");
    }
    return rc;
}

/* The next shard nobody has begun, or false when there is none or the run has failed. */
static bool take_shard(struct job *job, uint32_t *shard)
{
    pthread_mutex_lock(&job->lock);
    const bool more = job->code == 0 && job->shard_next < job->geometry->shard_count;
    if (more) {
        *shard = job->shard_next++;
    }
    pthread_mutex_unlock(&job->lock);
    return more;
}

/* Keeps the first failure of all writers, for the thread that waits for them. */
static void keep_failure(struct job *job, int code)
{
    pthread_mutex_lock(&job->lock);
    if (job->code == 0) {
        job->code = code;
        snprintf(job->message, sizeof job->message, "%s", err_message());
    }
    pthread_mutex_unlock(&job->lock);
    err_clear();
}

static int write_shards(struct writer *writer)
{
    uint32_t number;
    while (take_shard(writer->job, &number)) {
        struct synth_shard shard;
        TRY(synth_shard_init(writer->job->geometry, number, &shard));
        const int rc = write_shard(writer, &shard);
        writer->file_name = NULL;
        synth_shard_fini(&shard);
        TRY(rc);
    }
    return 0;
}

static void *writer_main(void *argument)
{
    struct job *job = argument;
    struct writer writer = {.job = job, .fill = malloc(sizeof *writer.fill),
                            .buffer = malloc(BUFFER_BYTES)};
    int rc;
    err_clear();
    if (writer.fill == NULL || writer.buffer == NULL) {
        rc = err_set(ERR_MEMORY, "synth: no memory for a writer's buffer");
    } else {
        synth_fill_init(writer.fill, job->geometry, job->options->seed);
        rc = write_shards(&writer);
    }
    if (rc < 0) {
        keep_failure(job, rc);
    }
    free(writer.fill);
    free(writer.buffer);
    return NULL;
}

static void run_writers(struct job *job)
{
    pthread_t threads[WRITERS_MAX];
    const uint32_t wanted = job->options->threads == 0 ? 2 : job->options->threads;
    const uint32_t limit = (uint32_t)min_u64(WRITERS_MAX, job->geometry->shard_count);
    uint32_t count = 0;
    while (count < min_u64(wanted, limit) &&
           thread_create(&threads[count], NULL, writer_main, job) == 0) {
        count++;
    }
    if (count == 0) {
        writer_main(job);
    }
    while (count > 0) {
        pthread_join(threads[--count], NULL);
    }
}

int synth_shards_write(const struct synth_target *target, const struct synth_geometry *geometry,
                       const struct synth_options *options, uint64_t total_bytes)
{
    struct job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        return err_set(ERR_MEMORY, "synth: no memory to start the writers");
    }
    *job = (struct job){.target = target, .geometry = geometry, .options = options,
                        .total_bytes = total_bytes, .lock = PTHREAD_MUTEX_INITIALIZER};
    run_writers(job);
    assert(job->code < 0 || job->done_bytes == total_bytes);
    const int rc = job->code < 0 ? err_set(job->code, "%s", job->message) : 0;
    pthread_mutex_destroy(&job->lock);
    free(job);
    return rc;
}
