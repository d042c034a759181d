/* SPDX-License-Identifier: Apache-2.0 */

/* The queues of the front, one lane per device. Reads come in the order of the caller's cursor; a
 * read whose device is busy waits here and lets those of other devices pass. */

#include "io/io_priv.h"

static struct io_lane *lane_of(struct io *io, const struct io_req *req)
{
    uint32_t device = io->files->file[req->file].device;
    return &io->lane[device < io->lane_count ? device : io->lane_count - 1];
}

void io_wait_in_lane(struct io *io, struct io_req *req)
{
    struct io_lane *lane = lane_of(io, req);
    io_queue_push(req->urgent ? &lane->urgent : &lane->plain, req);
}

void io_wait_aside(struct io *io, struct io_req *req, uint64_t pause_ns)
{
    req->due_ns = io_now_ns(io) + pause_ns;
    io_queue_push(&io->later, req);
}

uint64_t io_take_due(struct io *io)
{
    if (io->later.head == NULL) {
        return UINT64_MAX;
    }
    uint64_t now_ns = io_now_ns(io);
    uint64_t next_ns = UINT64_MAX;
    struct io_queue waited = io->later;
    io->later = (struct io_queue){0};
    for (struct io_req *req; (req = io_queue_pop(&waited)) != NULL;) {
        if (req->due_ns <= now_ns) {
            io_wait_in_lane(io, req);
        } else {
            next_ns = min_u64(next_ns, req->due_ns - now_ns);
            io_queue_push(&io->later, req);
        }
    }
    return next_ns;
}

static bool lane_ready(const struct io *io, const struct io_lane *lane)
{
    return lane->handed < io->depth && (lane->urgent.head != NULL || lane->plain.head != NULL);
}

bool io_ready(const struct io *io)
{
    for (uint32_t i = 0; i < io->lane_count; i++) {
        if (lane_ready(io, &io->lane[i])) {
            return true;
        }
    }
    return false;
}

static struct io_req *hand(struct io *io, struct io_lane *lane)
{
    struct io_req *req = io_queue_pop(lane->urgent.head != NULL ? &lane->urgent : &lane->plain);
    uint32_t *most = &io->stats.device_max[lane - io->lane];
    assert(req->magic == IO_REQ_MAGIC);
    io->handed++;
    lane->handed++;
    assert(io->handed <= io->in_flight);
    io_log_begin(io, req);
    io->stats.in_flight_max = max_u64(io->stats.in_flight_max, io->handed);
    *most = lane->handed > *most ? lane->handed : *most;
    return req;
}

struct io_req *io_take(struct io *io)
{
    for (uint32_t i = 0; i < io->lane_count; i++) {
        struct io_lane *lane = &io->lane[io->lane_turn];
        io->lane_turn = (io->lane_turn + 1) % io->lane_count;
        if (lane_ready(io, lane)) {
            return hand(io, lane);
        }
    }
    return NULL;
}

void io_give_back(struct io *io, const struct io_req *req)
{
    struct io_lane *lane = lane_of(io, req);
    assert(io->handed > 0 && lane->handed > 0);
    io->handed--;
    lane->handed--;
}

static void forget(struct io *io, struct io_queue *queue)
{
    for (struct io_req *req; (req = io_queue_pop(queue)) != NULL;) {
        req->magic = 0;
        io->in_flight--;
    }
}

void io_forget_waiting(struct io *io)
{
    forget(io, &io->later);
    for (uint32_t i = 0; i < io->lane_count; i++) {
        forget(io, &io->lane[i].urgent);
        forget(io, &io->lane[i].plain);
    }
}
