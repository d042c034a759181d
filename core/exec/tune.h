/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_TUNE_H
#define EXEC_TUNE_H

/* How many reads of which size in flight a drive needs: a short measurement on the files a run
 * will read, with the engine's own reads into memory like the slab's. Reads go to random aligned
 * places that hold data, since holes cost no drive anything. Settings take short turns over several
 * rounds and are compared within each round, so that a drive whose speed drifts favours none;
 * those far behind in the first round drop out.
 *
 * Bytes in flight beyond what the drive needs only make each read wait longer, so the setting with
 * the fewest among those close to the best is taken. One thread; nothing is written. */

#include "io/file.h"
#include "io/io.h"

#define TUNE_POINTS_MAX 32
#define TUNE_ROUNDS 7
#define TUNE_CLOSE 0.97            /* of the best rate is as good as the best, */
#define TUNE_CLOSE_NOISY 0.90      /* down to this where the measurement cannot tell them apart */
#define TUNE_SIZE_MAX (8 * MIB)
#define TUNE_FLIGHT_MAX (64 * MIB)
#define TUNE_DATA_MIN (64 * MIB)   /* less data than that says nothing about a drive */

struct tune_request {
    enum io_engine io;
    uint32_t depth;             /* given, or 0: to be found */
    uint64_t size_bytes;        /* given, or 0: to be found */
    uint64_t size_max_bytes;    /* largest to be tried, >= PAGE_BYTES */
    uint64_t flight_max_bytes;  /* most bytes in flight to be tried: the memory it takes */
    bool (*stop)(void);         /* asked between reads; true: ERR_STOPPED; may be NULL */
};

struct tune_point {
    uint32_t depth;
    uint64_t size_bytes;
    double sample[TUNE_ROUNDS]; /* 1e9 bytes per second, by round; 0 = none */
    bool dropped;               /* far behind in the first round, or never reached */
    double rate;                /* set by tune_choose(): the median, drift between rounds removed */
};

struct tune_result {
    bool measured;
    bool noisy;                 /* good enough for a run, not to be remembered */
    char why_not[160];          /* when not: what stood in the way */
    enum io_engine io;          /* that did read: IO_PREAD when a ring was refused */
    uint32_t depth;
    uint64_t size_bytes;
    double gbps, best_gbps;     /* of the chosen setting, and of the fastest one */
    uint64_t read_bytes, took_ns;
};

/* Measures the drive below files, about two seconds. 0 also when there was nothing to measure
 * (memory, buffered reads, holes, too little data, failing reads); a drive that reads badly is for
 * the run to report. ERR_STOPPED, ERR_MEMORY. */
int tune_measure(const struct io_files *files, const struct tune_request *request,
                 struct tune_result *result);

/* The settings to try, fewest bytes in flight first; at least one. */
uint32_t tune_points(const struct tune_request *request,
                     struct tune_point points[TUNE_POINTS_MAX]);

/* Drops points that are far behind the best of the first round. */
void tune_drop(struct tune_point *points, uint32_t count);

/* The point to take, from rounds in which every point not dropped has a sample; *best is the
 * fastest one. At least one point is not dropped. *noisy: rates scatter so much that another
 * measurement might say otherwise. */
uint32_t tune_choose(struct tune_point *points, uint32_t count, uint32_t rounds, uint32_t *best,
                     bool *noisy);

/* True when a range of a file has no hole. A file system that cannot tell holes says that all is
 * data. */
bool tune_holds_data(int fd, uint64_t offset, uint64_t size);

/* Windows of files that hold data throughout, in random order. */
struct tune_places {
    struct extent *window;
    uint32_t count;
    uint64_t window_bytes;
};

/* Looks for windows of window_bytes (multiple of PAGE_BYTES) on the device of the first file that
 * is read directly: depth and size are per device. None is not an error: count 0.
 * ERR_MEMORY. Free window. */
int tune_find_places(const struct io_files *files, uint64_t window_bytes, uint64_t seed,
                     struct tune_places *out);

#endif
