/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/verify_read.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <nettle/sha2.h>
#include <xxhash.h>

#include "core/base/file.h"
#include "core/base/nondet.h"
#include "core/base/thread.h"
#include "core/cli/progress.h"
#include "core/cli/signals.h"
#include "core/exec/reader.h"
#include "core/model/page_sums.h"

#define READ_BYTES (1 * MIB)
#define DEPTH 8U            /* of each thread's queue */
#define SUMS_HELD 8192U     /* sums of a file that are in memory at once */
#define THREADS_MAX 256U
#define TICK_NS 20000000L

_Static_assert(SHA256_DIGEST_SIZE == VERIFY_HASH_BYTES, "a job's hash has room for a digest");

struct crew {
    struct verify_reading *reading;
    atomic_uint next, running;
    atomic_ullong read_bytes;
    pthread_mutex_t lock;       /* guards told, calls of ended(), rings being made */
    uint32_t told;
    bool *over;                 /* [count] the job has ended; under the lock */
};

/* One thread and the file it is at. */
struct worker {
    struct crew *crew;
    struct verify_job *job;
    struct io_files files;
    uint64_t named_bytes;       /* reads named so far */
    struct sha256_ctx sha;
    XXH3_state_t *sums_state;
    uint64_t *sums;             /* [SUMS_HELD] */
    uint32_t sums_count, sums_at; /* in memory; of them used, when checking */
    uint64_t pages_done;        /* before those in memory */
};

/* ---- the list ---- */

struct verify_job *verify_reading_add(struct verify_reading *reading, const char *path,
                                      const char *name)
{
    if (reading->count == reading->capacity) {
        uint32_t capacity = reading->capacity == 0 ? 128 : reading->capacity * 2;
        struct verify_job *larger = realloc(reading->job, capacity * sizeof *larger);
        if (larger == NULL) {
            return NULL;
        }
        reading->job = larger;
        reading->capacity = capacity;
    }
    struct verify_job *job = &reading->job[reading->count];
    *job = (struct verify_job){.path = strdup(path), .name = strdup(name), .sums_fd = -1};
    if (job->path == NULL || job->name == NULL) {
        free(job->path);
        free(job->name);
        return NULL;
    }
    struct stat status;
    if (stat(path, &status) == 0) {
        job->known = true;
        job->device = status.st_dev;
        job->inode = status.st_ino;
    }
    reading->count++;
    return job;
}

void verify_reading_free(struct verify_reading *reading)
{
    for (uint32_t i = 0; i < reading->count; i++) {
        free(reading->job[i].path);
        free(reading->job[i].name);
        free(reading->job[i].message);
    }
    free(reading->job);
    reading->job = NULL;
    reading->count = reading->capacity = 0;
}

/* ---- sums of pages ---- */

static uint64_t sums_place(const struct worker *w)
{
    return w->job->sums_offset_bytes + w->pages_done * sizeof *w->sums;
}

static int write_sums(struct worker *w)
{
    const unsigned char *bytes = (const unsigned char *)w->sums;
    uint64_t size_bytes = w->sums_count * sizeof *w->sums;
    XXH3_64bits_update(w->sums_state, bytes, size_bytes);
    for (uint64_t at = 0; at < size_bytes;) {
        ssize_t rc = pwrite(w->job->sums_fd, bytes + at, size_bytes - at,
                            (off_t)(sums_place(w) + at));
        if (rc < 0 && errno != EINTR) {
            return err_set(ERR_OUTPUT, "%s: writing at offset %llu: %s", w->job->sums_path,
                           (unsigned long long)(sums_place(w) + at), strerror(errno));
        }
        at += rc > 0 ? (uint64_t)rc : 0;
    }
    w->pages_done += w->sums_count;
    w->sums_count = 0;
    return 0;
}

static int fetch_sums(struct worker *w)
{
    uint64_t pages = div_ceil(w->job->size_bytes, PAGE_BYTES);
    w->pages_done += w->sums_count;
    w->sums_at = 0;
    w->sums_count = (uint32_t)min_u64(SUMS_HELD, pages - w->pages_done);
    TRY(file_read_at(w->job->sums_fd, w->job->sums_path, sums_place(w), w->sums,
                     w->sums_count * sizeof *w->sums));
    XXH3_64bits_update(w->sums_state, w->sums, w->sums_count * sizeof *w->sums);
    return 0;
}

static int check_page(struct worker *w, uint64_t sum)
{
    if (w->sums_at == w->sums_count) {
        TRY(fetch_sums(w));
    }
    if (w->sums[w->sums_at] != sum && w->job->bad_pages++ == 0) {
        w->job->bad_offset_bytes = (w->pages_done + w->sums_at) * PAGE_BYTES;
    }
    w->sums_at++;
    return 0;
}

static int take_pages(struct worker *w, const unsigned char *bytes, uint32_t size_bytes)
{
    for (uint64_t at = 0; at < size_bytes; at += PAGE_BYTES) {
        uint64_t sum = page_sum(bytes + at, min_u64(PAGE_BYTES, size_bytes - at));
        if (w->job->pages == VERIFY_PAGES_CHECK) {
            TRY(check_page(w, sum));
            continue;
        }
        w->sums[w->sums_count++] = sum;
        if (w->sums_count == SUMS_HELD) {
            TRY(write_sums(w));
        }
    }
    return 0;
}

/* ---- a file ---- */

static bool stop(void)
{
    return signals_caught() != 0;
}

static bool name_read(void *ctx, struct reader_read *read)
{
    struct worker *w = ctx;
    uint64_t left = w->job->size_bytes - w->named_bytes;
    *read = (struct reader_read){.offset_bytes = w->named_bytes,
                                 .size_bytes = (uint32_t)min_u64(READ_BYTES,
                                                                 align_up(left, PAGE_BYTES))};
    w->named_bytes += min_u64(left, read->size_bytes);
    return left > 0;
}

static int use_read(void *ctx, const struct reader_read *read, const unsigned char *bytes,
                    uint32_t size_bytes)
{
    struct worker *w = ctx;
    (void)read;
    if (w->job->sha256) {
        sha256_update(&w->sha, size_bytes, bytes);
    }
    if (w->job->pages != VERIFY_PAGES_NONE) {
        TRY(take_pages(w, bytes, size_bytes));
    }
    atomic_fetch_add(&w->crew->read_bytes, size_bytes);
    return 0;
}

/* One thread at a time makes or unmakes a ring: what one unmaps the next may be given, which only
 * the kernel knows. */
static int open_reader(struct worker *w, struct reader **reader)
{
    struct reader_options options = {.io = IO_URING, .depth = DEPTH, .size_max_bytes = READ_BYTES,
                                     .stop = stop, .use = use_read};
    pthread_mutex_lock(&w->crew->lock);
    int rc = reader_open(reader, &w->files, &options);
    pthread_mutex_unlock(&w->crew->lock);
    return rc;
}

static void close_reader(struct worker *w, struct reader *reader)
{
    pthread_mutex_lock(&w->crew->lock);
    reader_close(reader);
    pthread_mutex_unlock(&w->crew->lock);
}

static int read_through(struct worker *w)
{
    struct reader *reader;
    struct reader_result result;
    TRY(open_reader(w, &reader));
    int rc = reader_run(reader, name_read, w, &result);
    close_reader(w, reader);
    return rc < 0 ? rc : io_files_unchanged(&w->files);
}

static int read_file(struct worker *w)
{
    struct verify_job *job = w->job;
    const char *path = job->path;
    w->named_bytes = w->pages_done = w->sums_count = w->sums_at = 0;
    sha256_init(&w->sha);
    XXH3_64bits_reset(w->sums_state);
    TRY(io_files_open(&w->files, &path, NULL, 1));
    job->size_bytes = w->files.file[0].size_bytes;
    int rc = read_through(w);
    if (rc == 0 && job->pages == VERIFY_PAGES_WRITE && w->sums_count > 0) {
        rc = write_sums(w);
    }
    job->sums_checksum = XXH3_64bits_digest(w->sums_state);
    sha256_digest(&w->sha, sizeof job->hash, job->hash);
    return rc;
}

/* ---- threads ---- */

static void tell(struct crew *crew, const struct verify_job *job)
{
    struct verify_reading *reading = crew->reading;
    pthread_mutex_lock(&crew->lock);
    crew->over[job - reading->job] = true;
    for (; crew->told < reading->count && crew->over[crew->told]; crew->told++) {
        if (reading->ended != NULL) {
            reading->ended(reading->ctx, &reading->job[crew->told]);
        }
    }
    pthread_mutex_unlock(&crew->lock);
}

static bool is_wanted(const struct verify_job *job)
{
    return job->sha256 || job->pages != VERIFY_PAGES_NONE;
}

static void work(struct worker *w)
{
    struct verify_reading *reading = w->crew->reading;
    for (;;) {
        uint32_t index = atomic_fetch_add(&w->crew->next, 1);
        if (index >= reading->count || stop()) {
            return;
        }
        w->job = &reading->job[index];
        if (!is_wanted(w->job)) {
            tell(w->crew, w->job);
            continue;
        }
        err_clear();
        w->job->rc = read_file(w);
        w->job->done = w->job->rc == 0;
        w->job->message = w->job->done ? NULL : strdup(err_message());
        io_files_close(&w->files);
        w->files = (struct io_files){.file = NULL};
        if (w->job->rc != ERR_STOPPED) {
            tell(w->crew, w->job);
        }
    }
}

static void *thread_main(void *argument)
{
    struct crew *crew = argument;
    struct worker w = {.crew = crew, .sums = malloc(SUMS_HELD * sizeof *w.sums),
                       .sums_state = XXH3_createState()};
    if (w.sums != NULL && w.sums_state != NULL) {
        work(&w); /* else what is left undone tells */
    }
    free(w.sums);
    XXH3_freeState(w.sums_state);
    atomic_fetch_sub(&crew->running, 1);
    return NULL;
}

static uint64_t expected_bytes(const struct verify_reading *reading)
{
    uint64_t bytes = 0;
    struct stat status;
    for (uint32_t i = 0; i < reading->count; i++) {
        bool there = is_wanted(&reading->job[i]) && stat(reading->job[i].path, &status) == 0;
        bytes += there ? (uint64_t)status.st_size : 0;
    }
    return bytes;
}

static void watch(struct crew *crew)
{
    struct progress line;
    uint64_t whole = expected_bytes(crew->reading);
    progress_begin(&line, crew->reading->what, crew->reading->quiet);
    while (atomic_load(&crew->running) > 0) {
        progress_show(&line, atomic_load(&crew->read_bytes), whole, NULL);
        nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
    }
    progress_clear(&line);
}

static int start_and_wait(struct crew *crew)
{
    pthread_t threads[THREADS_MAX];
    uint32_t started = 0;
    uint32_t wanted = (uint32_t)min_u64(crew->reading->count,
                                        min_u64(crew->reading->threads, THREADS_MAX));
    atomic_store(&crew->running, wanted);
    while (started < wanted &&
           thread_create(&threads[started], NULL, thread_main, crew) == 0) {
        started++;
    }
    atomic_fetch_sub(&crew->running, wanted - started);
    watch(crew);
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    if (wanted > 0 && started == 0) {
        return err_set(ERR_MEMORY, "the system refused every thread; raise ulimit -u");
    }
    return 0;
}

int verify_reading_run(struct verify_reading *reading)
{
    struct crew crew = {.reading = reading};
    crew.over = calloc(reading->count + 1ULL, sizeof *crew.over);
    if (crew.over == NULL) {
        return err_set(ERR_MEMORY, "no memory to read %u files", reading->count);
    }
    uint64_t begun_ns = nondet_now_ns();
    pthread_mutex_init(&crew.lock, NULL);
    int rc = start_and_wait(&crew);
    pthread_mutex_destroy(&crew.lock);
    reading->taken_ns = nondet_now_ns() - begun_ns;
    reading->read_bytes = atomic_load(&crew.read_bytes);
    free(crew.over);
    if (rc == 0 && stop()) {
        rc = err_set(ERR_STOPPED, "stopped before all files were read");
    }
    if (rc == 0 && crew.told < reading->count) {
        rc = err_set(ERR_MEMORY, "no memory to read files with; use fewer --threads");
    }
    return rc;
}
