/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FAULTS_H
#define TESTS_FAULTS_H

/* Faults below the program. A test program that is linked with this folder (FAULT_TESTS in the
 * Makefile) has the system calls, the allocations and the ring's functions of the code under test
 * go through here first (the linker's --wrap). What is not armed is passed on. The code under test
 * is the very code of every other build. */

#include <stdbool.h>
#include <stdint.h>

/* ---- calls.c: the n-th of them fails ---- */

enum fault_kind {
    FAULT_CALL,   /* open, stat, mmap, threads, everything of the ring but its use, .. */
    FAULT_MEMORY, /* malloc and its like, cJSON's too */
    FAULT_READ,   /* pread */
    FAULT_KINDS
};

/* What failed. */
struct fault_hit {
    bool struck;
    char name[48];  /* of the function */
    char file[256]; /* what it was called for, when that is known; else "" */
};

/* From the at-th call of the kind on (the next one is 1) as many as `times` fail with error. */
void faults_arm(enum fault_kind kind, uint64_t at, int error, uint64_t times);
/* The first FAULT_CALL of this name (a literal) fails, whatever other threads call meanwhile. */
void faults_arm_call(const char *name, int error);
void faults_disarm(struct fault_hit *hit);

/* For the wrappers: true, with errno set, when this call has to fail. path, if any, or fd >= 0 are
 * what it is called for. */
bool faults_strike(enum fault_kind kind, const char *name, const char *path, int fd);
int faults_error(void); /* errno of the fault that is armed */

/* Open files of this process. */
unsigned faults_open_files(void);

/* ---- drive.c: the ring and pread() while the program reads; 0 = never ---- */

struct drive_faults {
    uint64_t seed;
    uint32_t error_every; /* every so many transfers one fails, its repeat does not, */
    int error;            /* with this errno */
    uint64_t doomed;      /* this transfer, and every repeat of it, fails */
    bool doomed_later;    /* and all that begin after it */
    uint32_t short_every; /* every so many transfers one brings less: */
    uint32_t short_bytes; /* this much at most; 0: any length at all. The rest is overwritten. */
    uint32_t late_every;  /* every so many completions one is seen late, */
    uint64_t late_ns;     /* by this; */
    uint64_t shuffle_ns;  /* each by up to this, so that they come in another order */
    /* the ring only */
    uint32_t twice_every; /* a completion comes a second time */
    uint32_t deaf_every;  /* the completion of a wake-up is lost */
    uint32_t flood_every; /* a call puts more completions into the queue than it holds */
    uint32_t refuse_every; /* a call does nothing and says refuse_error, */
    int refuse_error;
    uint64_t refuse_from; /* and from this one on every call */
};

struct drive_counts {
    uint64_t transfers, failed, shortened, late, twice, deaf, refused, calls;
    uint64_t overflows; /* times the kernel said that the queue was too small */
};

void drive_faults_arm(const struct drive_faults *faults);
void drive_faults_disarm(struct drive_counts *counts); /* NULL is fine */

/* For pread(): whether it is faulty now; before a transfer: an errno (positive) to fail with or 0;
 * after it: the bytes it is said to have brought. */
bool drive_armed(void);
int drive_before(int fd, uint64_t offset_bytes);
int64_t drive_after(int fd, uint64_t offset_bytes, void *target, int64_t res);

#endif
