/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_VERIFY_READ_H
#define CLI_VERIFY_READ_H

/* Whole files through the ring, in order, each by one thread that computes while the drive reads
 * on; several files at once. */

#include "core/base/base.h"
#include "core/base/err.h"

#define VERIFY_HASH_BYTES 32

/* What is done with sums of pages (core/model/page_sums.h). */
enum verify_pages { VERIFY_PAGES_NONE, VERIFY_PAGES_WRITE, VERIFY_PAGES_CHECK };

/* A file to read, unless neither its hash nor its pages are of interest. */
struct verify_job {
    char *path;                  /* owned */
    char *name;                  /* how it is called in lists and lines; owned */
    uint64_t size_bytes;         /* when it was begun */
    uint64_t device, inode;      /* of the file, as it was added */
    bool of_model;               /* not only of a list */
    bool known;                  /* its inode is */
    bool sha256;                 /* wanted */
    const unsigned char *expected; /* hash, or NULL */
    unsigned char hash[VERIFY_HASH_BYTES];
    enum verify_pages pages;
    int sums_fd;                 /* of the file of sums; borrowed */
    const char *sums_path;       /* for messages; borrowed */
    uint64_t sums_offset_bytes;  /* where this file's sums lie in it */
    uint64_t sums_checksum;      /* of all its sums, when done */
    uint64_t sums_wanted;        /* what that should be, when they are compared with */
    uint64_t bad_pages, bad_offset_bytes; /* how many differ, and where the first lies */
    bool done;                   /* read to its end */
    int rc;                      /* why not */
    char *message;               /* the same in words; owned */
};

struct verify_reading {
    struct verify_job *job;
    uint32_t count, capacity;
    uint32_t threads;
    bool quiet;
    const char *what;            /* for the progress line: "hashing" */
    /* Called for every job in order, as soon as all before it have ended; may be NULL. */
    void (*ended)(void *ctx, const struct verify_job *job);
    void *ctx;
    uint64_t taken_ns, read_bytes;
};

/* Adds a job; path and name are copied. NULL without memory. Pointers to jobs are valid until the
 * next one is added. */
struct verify_job *verify_reading_add(struct verify_reading *reading, const char *path,
                                      const char *name);
void verify_reading_free(struct verify_reading *reading);

/* Reads all. A file that cannot be read is a matter of its job. ERR_STOPPED, ERR_MEMORY. */
int verify_reading_run(struct verify_reading *reading);

#endif
