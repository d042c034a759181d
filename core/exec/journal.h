/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_JOURNAL_H
#define EXEC_JOURNAL_H

/* What happened inside passes, for benchmarks and pictures: when each expert was needed and when it
 * was there, and what every worker did. The caller owns it and gives it to an engine in its
 * options; it is read once that engine is closed. Room is taken once: what does not fit is counted
 * as missed. Writing it down changes no order of reading or computing. */

#include <stdatomic.h>

#include "core/base/histogram.h"

/* One expert asked for by the router of a layer, once for all tokens of the pass. */
struct journal_expert {
    uint64_t needed_ns;       /* the router had chosen */
    uint64_t ready_ns;        /* all of it was in memory; a hit's is needed_ns; 0 = never */
    uint32_t pass;            /* since the engine was opened, from 0 */
    uint16_t layer, expert;
    bool hit;
};

/* What a span was spent with: tasks as the executor calls them, then waiting by cause. */
enum journal_doing { DOING_TILE, DOING_PART, DOING_EXPERT, DOING_EXPERT_HIDDEN, DOING_WAIT };

struct journal_span {
    uint64_t begun_ns, ended_ns;
    uint32_t step;            /* of the plan; of a wait the one that held things up */
    uint8_t doing;            /* enum journal_doing; DOING_WAIT + an enum stall_cause */
};

struct journal_worker {
    struct journal_span *span; /* [spans_max], in order of end */
    uint32_t count;
    struct journal_span *wait_span; /* [waits_max], the waits alone, of all the time */
    uint32_t wait_count;
    uint64_t missed;          /* of both */
    struct histogram wait;    /* every wait inside a pass, nanoseconds */
};

/* Nothing; waits; also every span. */
enum journal_spans { SPANS_NONE, SPANS_WAITS, SPANS_ALL };

struct journal {
    struct journal_expert *expert;
    uint32_t experts_max, expert_count;
    uint64_t experts_missed;
    struct journal_worker *worker;
    uint32_t workers, spans_max, waits_max;
    _Atomic uint32_t spans;   /* enum journal_spans: which are written down; any time */
};

/* ERR_MEMORY. */
int journal_open(struct journal *j, uint32_t experts_max, uint32_t workers, uint32_t spans_max,
                 uint32_t waits_max);
void journal_close(struct journal *j);
uint64_t journal_bytes(uint32_t experts_max, uint32_t workers, uint32_t spans_max,
                       uint32_t waits_max);

#endif
