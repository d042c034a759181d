/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SCORE_REPORT_H
#define CLI_SCORE_REPORT_H

/* What `k3ring score` found out: a line for people, a document for programs (docs/SCORE.md). */

#include <stdio.h>

#include "core/cli/report.h"
#include "core/exec/logprob.h"
#include "core/exec/score.h"
#include "core/model/tokenizer.h"

struct score_report {
    const struct run_report *run; /* engine, stats, facts, tuning, storage_read_bytes, error */
    const struct score_request *request;
    const struct score_result *result;
    const struct tokenizer *tokenizer; /* NULL: ids were given, nothing is known of bytes */
};

/* On standard output. */
void score_report_line(const struct score_report *r);
/* On standard error: how it was done. */
void score_report_talk(const struct score_report *r);
/* The list of tokens is written one by one: it may be long. ERR_MEMORY. */
int score_report_json(const struct score_report *r, FILE *out);

#endif
