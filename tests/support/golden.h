/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_GOLDEN_H
#define TESTS_SUPPORT_GOLDEN_H

/* What a correct run of the tiny model produces, and the judge that says whether a run did.
 * The figures to compare with come from the double reference, computed once per program, and the
 * reference is itself held to published constants first: a judge that is wrong accepts nothing.
 * Not thread-safe before golden_expected() has returned once. */

#include "tests/support/reference.h"

enum golden_shape {
    GOLDEN_PROMPT = 8,
    GOLDEN_STEPS = 16,
    GOLDEN_ROUTES = 3 /* layers golden_route_layer[] */
};

extern const int golden_prompt[GOLDEN_PROMPT];
extern const int golden_ids[GOLDEN_STEPS]; /* greedy continuation of the prompt */
extern const int golden_route_layer[GOLDEN_ROUTES];

/* Accepted distance of an f32 engine from the double reference. */
#define GOLDEN_LOGIT_TOLERANCE 1e-3     /* absolute */
#define GOLDEN_HMAX_TOLERANCE 1e-4      /* relative */
#define GOLDEN_WEIGHT_TOLERANCE 2e-5    /* absolute, to which is added */
#define GOLDEN_WEIGHT_RELATIVE 1e-4     /* this much of the weight */
#define GOLDEN_REFERENCE_TOLERANCE 1e-6 /* of the reference from the constants */

struct golden_routing {
    int expert[REF_TOP]; /* in router order */
    float weight[REF_TOP];
};

/* Largest distances found; HUGE_VAL where a value was not a number. */
struct golden_measured {
    double logit;      /* at the last prompt position */
    double step_logit; /* over all steps */
    double hmax_relative;
    double weight;      /* over routings whose experts agree */
    int ids_equal;      /* of GOLDEN_STEPS */
    int routings_equal; /* of GOLDEN_ROUTES, experts and their order */
};

/* The caller fills all but measured. Step i holds the logits that decide id i when ids 0..i-1
 * are those of golden_ids (teacher forcing): step 0 is the last prompt position again. */
struct golden_run {
    float logits[REF_VOCAB];                      /* at the last prompt position */
    float hmax[REF_LAYERS];                       /* largest |prefix| after each layer, there */
    struct golden_routing routing[GOLDEN_ROUTES]; /* there, of golden_route_layer[] */
    int ids[GOLDEN_STEPS];
    float steps[GOLDEN_STEPS][REF_VOCAB];
    struct golden_measured measured; /* written by golden_judge */
};

/* The same in double, as the reference produces it. */
struct golden_truth {
    double hmax[REF_LAYERS];
    struct ref_routing routing[GOLDEN_ROUTES];
    int ids[GOLDEN_STEPS];
    double steps[GOLDEN_STEPS][REF_VOCAB];
    double margin_min; /* smallest distance between the best and the second logit of a step */
};

/* Feeds the prompt and then golden_ids to a reference. False when memory is refused. */
bool golden_follow(const struct ref_weights *weights, enum mutation mutation,
                   struct golden_truth *out);

/* Rounds a truth to what an engine would report. */
void golden_narrow(const struct golden_truth *truth, struct golden_run *out);

/* True when a truth reproduces every published constant; else one line in why. */
bool golden_matches_constants(const struct golden_truth *truth, char *why, size_t why_bytes);

/* The truth of this program, from the unmutated reference. NULL, with why, when the reference
 * itself fails its constants. */
const struct golden_truth *golden_expected(char *why, size_t why_bytes);

/* True when run agrees with the truth in every part. Fills run->measured in any case; the first
 * disagreement is put into why as one line. */
bool golden_judge(struct golden_run *run, char *why, size_t why_bytes);

/* The check no logit can make: distinct experts of the model, each weight in (0, 1], their sum 1
 * within 1e-6. */
bool golden_routing_valid(const struct golden_routing *routing, char *why, size_t why_bytes);

#endif
