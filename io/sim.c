/* SPDX-License-Identifier: Apache-2.0 */

/* The simulated drive: the bytes are the files' own, but which read ends when, in how many
 * parts and with which error comes from a seed. In step mode time is virtual as well, so a
 * seed repeats exactly: same calls, same order, same counters. In threads mode the delays are
 * real, for tests of the threads around the engine. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "io/io_priv.h"

#define POISON 0xA5
#define STEP_NS_MAX 100000U
#define DELAY_NS_MAX 200000U

/* Bits of req->tag. */
enum {
    SIM_STARTED = 1, /* counted and poisoned */
    SIM_DOOMED = 2,  /* every transfer of this read fails */
    SIM_AGAIN = 4,   /* has had its -EAGAIN for this position */
    SIM_INTR = 8     /* has had its -EINTR for this position */
};

struct sim {
    struct io_sim_options options;
    struct rng rng;
    uint64_t reads;     /* since open */
    uint64_t transfers; /* since open */
    uint64_t tick_ns;   /* virtual time */
    uint32_t count;
    struct io_req *flying[]; /* count of handed_limit */
};

static uint64_t sim_now_ns(const struct io *io)
{
    const struct sim *sim = io->state;
    return sim->options.threads ? nondet_now_ns() : sim->tick_ns;
}

static int sim_open(struct io *io, const struct io_options *options)
{
    struct sim *sim = calloc(1, sizeof *sim + io->handed_limit * sizeof sim->flying[0]);
    if (sim == NULL) {
        return err_set(ERR_MEMORY, "no memory for the simulated drive");
    }
    sim->options = options->sim;
    sim->rng = rng_seed(options->sim.seed);
    io->state = sim;
    return 0;
}

static void sim_close(struct io *io)
{
    free(io->state);
}

/* First sight of a read. The target is poisoned, so that bytes no transfer brings are seen. */
static void start(struct sim *sim, struct io_req *req)
{
    uint64_t number = ++sim->reads;
    uint64_t victim = sim->options.fail_read;
    bool doomed = victim != 0 && (number == victim ||
                                  (number > victim && sim->options.fail_from_there));
    req->tag = SIM_STARTED | (doomed ? SIM_DOOMED : 0U);
    memset(req->target, POISON, req->size_bytes);
}

static void take_all(struct io *io, struct sim *sim)
{
    io->stats.submits += io_ready(io);
    for (struct io_req *req; (req = io_take(io)) != NULL;) {
        if ((req->tag & SIM_STARTED) == 0) {
            start(sim, req);
        }
        assert(sim->count < io->handed_limit);
        sim->flying[sim->count++] = req;
    }
}

static bool due(uint64_t number, uint32_t every)
{
    return every != 0 && number % every == 0;
}

/* How many bytes this transfer may bring: all, or a seeded number of whole pages. */
static uint32_t share(struct sim *sim, uint64_t number, uint32_t left_bytes)
{
    uint64_t pages = left_bytes / PAGE_BYTES;
    if (pages < 2 || !due(number, sim->options.short_every)) {
        return left_bytes;
    }
    return (uint32_t)((1 + rng_below(&sim->rng, pages - 1)) * PAGE_BYTES);
}

static int64_t read_bytes(const struct io *io, const struct io_req *req, uint32_t size_bytes)
{
    int fd = io->files->file[req->file].fd;
    ssize_t rc;
    do { /* only the seed's interruptions count */
        rc = pread(fd, io_req_target(req), size_bytes, (off_t)io_req_offset(req));
    } while (rc < 0 && errno == EINTR);
    if (rc < 0) {
        return -errno;
    }
    /* A direct read may have written zeros behind the end of the file. */
    memset(io_req_target(req) + rc, POISON, size_bytes - (size_t)rc);
    return rc;
}

static int64_t transfer(const struct io *io, struct sim *sim, struct io_req *req)
{
    uint64_t number = ++sim->transfers;
    if ((req->tag & SIM_DOOMED) != 0) {
        return sim->options.fail_errno > 0 ? -sim->options.fail_errno : -EIO;
    }
    if ((req->tag & SIM_AGAIN) == 0 && due(number, sim->options.again_every)) {
        req->tag |= SIM_AGAIN;
        return -EAGAIN;
    }
    if ((req->tag & SIM_INTR) == 0 && due(number, sim->options.intr_every)) {
        req->tag |= SIM_INTR;
        return -EINTR;
    }
    req->tag &= ~(uint32_t)(SIM_AGAIN | SIM_INTR);
    return read_bytes(io, req, share(sim, number, io_req_left(req)));
}

/* One seeded read of those in flight makes its transfer. */
static void end_one(struct io *io, struct sim *sim)
{
    uint32_t index = (uint32_t)rng_below(&sim->rng, sim->count);
    struct io_req *req = sim->flying[index];
    sim->flying[index] = sim->flying[--sim->count];
    io_ended(io, req, transfer(io, sim, req));
    take_all(io, sim); /* what must be read on, and what done() asked for */
}

static void step(struct io *io, struct sim *sim, uint64_t wait_ns)
{
    sim->tick_ns += 1 + rng_below(&sim->rng, STEP_NS_MAX);
    if (wait_ns == 0) {
        if (sim->count > 0 && rng_below(&sim->rng, 2) == 0) {
            end_one(io, sim);
        }
        return;
    }
    if (sim->count == 0) {
        /* Nothing can come but the end of the sleep: let it pass, or wake a sleep for ever. */
        sim->tick_ns += wait_ns == IO_WAIT_FOREVER ? 0 : wait_ns;
        atomic_store(&io->waker.woken, true);
        return;
    }
    while (sim->count > 0 && io->ended == 0) {
        end_one(io, sim);
    }
    while (sim->count > 0 && rng_below(&sim->rng, 4) == 0) {
        end_one(io, sim);
    }
}

/* True when the time went by without a wake-up. */
static bool sleep_through(struct io *io, uint64_t wait_ns)
{
    if (!io_sleep_begin(io)) {
        return false;
    }
    io_sleep(io, wait_ns);
    io_sleep_end(io);
    return !atomic_load(&io->waker.woken);
}

static void pace(struct io *io, struct sim *sim, uint64_t wait_ns)
{
    uint64_t delay_ns = rng_below(&sim->rng, DELAY_NS_MAX);
    if (sim->count == 0) {
        if (wait_ns > 0) {
            sleep_through(io, wait_ns);
        }
    } else if (wait_ns > 0) {
        if (delay_ns > wait_ns) {
            sleep_through(io, wait_ns);
        } else if (sleep_through(io, delay_ns)) {
            end_one(io, sim);
        }
    } else if (delay_ns < DELAY_NS_MAX / 2) {
        end_one(io, sim);
    }
}

static int sim_run(struct io *io, uint64_t wait_ns)
{
    struct sim *sim = io->state;
    take_all(io, sim);
    if (sim->options.threads) {
        pace(io, sim, wait_ns);
    } else {
        step(io, sim, wait_ns);
    }
    return 0;
}

const struct io_backend io_backend_sim = {
    .name = "sim",
    .open = sim_open,
    .close = sim_close,
    .run = sim_run,
    .now_ns = sim_now_ns,
};
