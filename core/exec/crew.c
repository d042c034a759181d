/* SPDX-License-Identifier: Apache-2.0 */
#include "core/exec/crew.h"

#include <stdio.h>

#define PAUSE_FIRST 8U
#define PAUSE_MOST 128U
#define UNLIKE_MOST 8U
#define GAIN_NEEDED 0.98   /* of the time, over all pairs */
#define LIKE_SHARE 8U      /* bytes may differ by an eighth, */
#define LIKE_BYTES MIB     /* or by this when next to nothing is read */
#define MOVES 6U

void crew_init(struct crew *crew, uint32_t most, bool automatic)
{
    assert(most > 0);
    *crew = (struct crew){.most = most, .automatic = automatic, .chosen = most,
                          .running = most, .pause = PAUSE_FIRST};
}

/* The candidate of a move, or the count in force when the move leads nowhere. */
static uint32_t candidate_of(const struct crew *crew, uint32_t move)
{
    uint32_t n = crew->chosen;
    uint32_t above = crew->most - n;
    const uint32_t down[] = {1, n / 4, n / 2};
    const uint32_t up[] = {1, above / 2, above};
    uint32_t kind = move % countof(down);
    uint32_t step = move < countof(down) ? down[kind] : up[kind];
    if (kind > 0 && step <= 1) {
        return n; /* the same as a step of one */
    }
    if (move < countof(down)) {
        return step < n ? n - step : n;
    }
    return step <= above ? n + step : n;
}

static void begin_trial(struct crew *crew)
{
    while (crew->lost_moves < MOVES && candidate_of(crew, crew->move) == crew->chosen) {
        crew->move = (crew->move + 1) % MOVES;
        crew->lost_moves++;
    }
    if (crew->lost_moves == MOVES) {
        crew->lost_moves = 0;
        crew->pause_left = crew->pause;
        crew->pause = crew->pause * 2 <= PAUSE_MOST ? crew->pause * 2 : PAUSE_MOST;
        return;
    }
    crew->candidate = candidate_of(crew, crew->move);
    crew->pairs = crew->unlike = 0;
    crew->sum_ns[0] = crew->sum_ns[1] = 0;
    crew->trials++;
}

uint32_t crew_next(struct crew *crew, uint32_t tokens)
{
    crew->running = crew->most;
    if (tokens > CREW_TOKENS_MAX || !crew->automatic) {
        return crew->running;
    }
    crew->running = crew->chosen;
    if (!crew->base_known || crew->base_tokens != tokens) {
        return crew->running;
    }
    if (crew->candidate == 0 && crew->pause_left > 0) {
        crew->pause_left--;
    } else if (crew->candidate == 0) {
        begin_trial(crew);
    }
    if (crew->candidate != 0) {
        crew->running = crew->candidate;
    }
    return crew->running;
}

static void lose(struct crew *crew)
{
    crew->candidate = 0;
    crew->lost_moves++;
    crew->move = (crew->move + 1) % MOVES;
}

/* The same move is tried at once from the new count. */
static void win(struct crew *crew)
{
    crew->beaten = crew->chosen;
    crew->gain = (double)crew->sum_ns[1] / (double)crew->sum_ns[0];
    crew->chosen = crew->candidate;
    crew->candidate = 0;
    crew->lost_moves = 0;
    crew->pause = PAUSE_FIRST;
    crew->changes++;
}

static bool alike(uint64_t a, uint64_t b)
{
    uint64_t larger = max_u64(a, b);
    return larger - min_u64(a, b) <= larger / LIKE_SHARE + LIKE_BYTES;
}

static void judge_pair(struct crew *crew, uint64_t bytes, uint64_t took_ns)
{
    if (!alike(bytes, crew->base_bytes)) {
        crew->unlike++;
        if (crew->unlike == UNLIKE_MOST) {
            lose(crew);
        }
        return;
    }
    crew->sum_ns[0] += crew->base_ns;
    crew->sum_ns[1] += took_ns;
    if (took_ns >= crew->base_ns) {
        lose(crew);
        return;
    }
    crew->pairs++;
    if (crew->pairs == CREW_PAIRS) {
        bool gained = (double)crew->sum_ns[1] <= GAIN_NEEDED * (double)crew->sum_ns[0];
        if (gained) {
            win(crew);
        } else {
            lose(crew);
        }
    }
}

void crew_made(struct crew *crew, uint32_t tokens, uint64_t bytes, uint64_t took_ns)
{
    if (tokens > CREW_TOKENS_MAX || !crew->automatic || crew->most == 1) {
        crew->base_known = false;
        return;
    }
    if (crew->candidate != 0 && crew->running == crew->candidate) {
        judge_pair(crew, bytes, took_ns);
        crew->base_known = false; /* the next pass is again one of the count in force */
        return;
    }
    crew->base_known = true;
    crew->base_tokens = tokens;
    crew->base_ns = took_ns;
    crew->base_bytes = bytes;
}

void crew_explain(const struct crew *crew, char *text, size_t capacity)
{
    if (!crew->automatic) {
        snprintf(text, capacity, "as given by --threads");
    } else if (crew->most == 1) {
        snprintf(text, capacity, "one processor");
    } else if (crew->trials == 0) {
        snprintf(text, capacity, "all processors; too few tokens to compare");
    } else if (crew->beaten == 0) {
        snprintf(text, capacity, "all processors; fewer were not faster in %u trial%s",
                 crew->trials, crew->trials == 1 ? "" : "s");
    } else {
        snprintf(text, capacity, "took %.3f of the time of %u; %u changes in %u trials",
                 crew->gain, crew->beaten, crew->changes, crew->trials);
    }
}
