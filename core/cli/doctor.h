/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

/* What `k3ring doctor` finds out: checks, each with a mark and a remedy; the rates of drives and
 * memory; and what each amount of RAM makes of them. One thread (but for the rate of memory);
 * files are only read. The fields are filled in the order of the functions below. */

#include "core/cli/environment.h"
#include "core/exec/engine.h"

#define DOCTOR_LINES_MAX 128U
#define DOCTOR_TEXT_BYTES 384
#define DOCTOR_ROWS_MAX 24U
#define DOCTOR_READ_BYTES (4 * MIB)

enum doctor_section { DOCTOR_SYSTEM, DOCTOR_RING, DOCTOR_MEMORY, DOCTOR_FILES, DOCTOR_DRIVES,
                      DOCTOR_PROBE, DOCTOR_SECTIONS };

enum doctor_mark {
    DOCTOR_OK,
    DOCTOR_NOTE,            /* worth to know, or could be better */
    DOCTOR_PROBLEM          /* costs much */
};

struct doctor_line {
    enum doctor_section section;
    enum doctor_mark mark;
    bool prevents;          /* a run would not begin */
    char text[DOCTOR_TEXT_BYTES];
    char remedy[ENVIRONMENT_TEXT_BYTES]; /* or "" */
};

/* Of one file system. */
struct doctor_rate {
    bool measured;
    char why_not[ENVIRONMENT_TEXT_BYTES];
    double trunk_gbps, expert_gbps; /* 1e9 bytes per second */
    char engine[16];        /* that read: "io_uring", "pread" */
    uint64_t bytes;         /* read in all */
    double celsius[2];      /* of the hottest drive before and after, NAN unknown */
};

enum doctor_size { DOCTOR_FLOOR, DOCTOR_POWER, DOCTOR_ALL };

/* One token of one sequence at an amount of RAM. */
struct doctor_row {
    enum doctor_size size;
    uint64_t ram_bytes;
    uint64_t trunk_bytes, expert_bytes; /* from the drive; of cached experts the likely share */
    uint64_t computed_bytes;            /* weights that pass through memory */
    double drive_s, memory_s;           /* 0 where the rate is not known */
    bool fits;                          /* this machine can give as much now */
};

struct doctor {
    const char *dir;        /* of the model; NULL: Kimi K3 is imagined */
    bool (*stop)(void);
    struct model *model;
    bool synthetic;
    struct io_files files;  /* none without dir */
    struct environment env;
    struct environment_gate gate[ENVIRONMENT_GATES_MAX];
    uint32_t gate_count;
    struct doctor_line line[DOCTOR_LINES_MAX];
    uint32_t line_count;
    struct doctor_rate rate[ENVIRONMENT_PLACES_MAX];
    double trunk_gbps, expert_gbps;     /* of all drives together, 0 unknown */
    double memory_gbps;
    struct doctor_row row[DOCTOR_ROWS_MAX];
    uint32_t row_count;
    char next[DOCTOR_TEXT_BYTES];       /* the command to give next */
};

/* dir may be NULL. What model_open() and io_files_open() say. Close it also after an error. */
int doctor_open(struct doctor *d, const char *dir, bool (*stop)(void));
void doctor_close(struct doctor *d);

void doctor_say(struct doctor *d, enum doctor_section section, enum doctor_mark mark,
                const char *remedy, const char *format, ...) __attribute__((format(printf, 5, 6)));
/* The same for what keeps a run from beginning. */
void doctor_forbid(struct doctor *d, enum doctor_section section, const char *remedy,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));

/* System, rings, memory. ERR_MEMORY. */
int doctor_check_system(struct doctor *d);
/* File systems, and the drives below them. */
void doctor_check_files(struct doctor *d);
void doctor_check_drives(struct doctor *d);
/* Reads, about two seconds. ERR_STOPPED, ERR_MEMORY; other failures are lines. */
int doctor_probe(struct doctor *d);
/* Whether the rates of a file system may stand, when so many of the bytes read came from storage:
 * what no drive can have made is refused. */
void doctor_judge(struct doctor *d, uint32_t place, uint64_t from_storage);
/* The rates of all file systems together; 0 when one has none. */
void doctor_combine(struct doctor *d);
/* A quarter of a second; 0 when memory is refused. */
double doctor_memory_gbps(uint32_t threads);
/* Rows of the dial, the check of what is available, and the next command. ERR_MEMORY. */
int doctor_dial(struct doctor *d);

void doctor_print(FILE *out, const struct doctor *d);
/* NULL when memory is refused. */
cJSON *doctor_json(const struct doctor *d);
/* How many lines have a mark, and how many forbid a run. */
uint32_t doctor_count(const struct doctor *d, enum doctor_mark mark);
uint32_t doctor_forbidden(const struct doctor *d);

#endif
