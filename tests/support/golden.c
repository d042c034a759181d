/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/golden.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const int golden_prompt[GOLDEN_PROMPT] = {3, 141, 59, 26, 53, 58, 97, 93};
const int golden_ids[GOLDEN_STEPS] = {170, 126, 66, 6,  37,  136, 98, 66,
                                      243, 207, 99, 72, 180, 212, 11, 114};
const int golden_route_layer[GOLDEN_ROUTES] = {1, 3, 12};

static const struct {
    int id;
    double logit;
} golden_top[5] = {
    {170, 3.59754850}, {245, 3.49673495}, {30, 3.35579936}, {197, 3.29782048}, {209, 3.20102124}};

static const double golden_first[8] = {1.04614201, -2.35428006, -1.59842194, -2.14192171,
                                       0.33273391, -0.46767112, -0.07300705, -1.32188432};
static const double golden_sum = -42.94134759;
static const double golden_margin = 0.0053; /* four digits */

static const double golden_hmax[REF_LAYERS] = {4.114151,  11.893941, 15.468039, 4.986496, 7.307617,
                                               12.125810, 5.290271,  6.316492,  8.364537, 6.315834,
                                               6.263780,  10.157885, 4.816942};

static const struct ref_routing golden_routing[GOLDEN_ROUTES] = {
    {{6, 15, 12, 4}, {.291760, .255854, .243314, .209073}},
    {{4, 5, 2, 15}, {.229593, .247811, .252764, .269833}},
    {{8, 6, 2, 14}, {.259633, .233852, .244128, .262387}},
};

/* Keeps the first complaint. Always false, so that callers may return it. */
static bool complain(char *why, size_t why_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool complain(char *why, size_t why_bytes, const char *format, ...)
{
    if (why_bytes > 0 && why[0] == '\0') {
        va_list args;
        va_start(args, format);
        vsnprintf(why, why_bytes, format, args);
        va_end(args);
    }
    return false;
}

static void clear(char *why, size_t why_bytes)
{
    if (why_bytes > 0) {
        why[0] = '\0';
    }
}

/* Distance that is never small when either side is not a finite number. */
static double distance(double a, double b)
{
    double d = fabs(a - b);
    return isfinite(d) ? d : HUGE_VAL;
}

static double margin_of(const double *logits)
{
    int best = ref_argmax(logits, REF_VOCAB);
    double second = -HUGE_VAL;
    for (int i = 0; i < REF_VOCAB; i++) {
        if (i != best && logits[i] > second) {
            second = logits[i];
        }
    }
    return logits[best] - second;
}

static void record_prompt(const struct reference *ref, struct golden_truth *out)
{
    memcpy(out->hmax, ref->hmax, sizeof out->hmax);
    for (int i = 0; i < GOLDEN_ROUTES; i++) {
        out->routing[i] = ref->routing[golden_route_layer[i]];
    }
}

bool golden_follow(const struct ref_weights *weights, enum mutation mutation,
                   struct golden_truth *out)
{
    struct reference *ref = reference_open(weights, mutation);
    if (ref == NULL) {
        return false;
    }
    for (int i = 0; i < GOLDEN_PROMPT; i++) {
        reference_step(ref, golden_prompt[i]);
    }
    record_prompt(ref, out);
    out->margin_min = HUGE_VAL;
    for (int i = 0; i < GOLDEN_STEPS; i++) {
        memcpy(out->steps[i], ref->logits, sizeof ref->logits);
        out->ids[i] = ref_argmax(ref->logits, REF_VOCAB);
        out->margin_min = fmin(out->margin_min, margin_of(ref->logits));
        if (i + 1 < GOLDEN_STEPS) {
            reference_step(ref, golden_ids[i]);
        }
    }
    reference_close(ref);
    return true;
}

void golden_narrow(const struct golden_truth *truth, struct golden_run *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->ids, truth->ids, sizeof out->ids);
    for (int i = 0; i < REF_LAYERS; i++) {
        out->hmax[i] = (float)truth->hmax[i];
    }
    for (int i = 0; i < GOLDEN_ROUTES; i++) {
        for (int j = 0; j < REF_TOP; j++) {
            out->routing[i].expert[j] = truth->routing[i].expert[j];
            out->routing[i].weight[j] = (float)truth->routing[i].weight[j];
        }
    }
    for (int i = 0; i < GOLDEN_STEPS; i++) {
        for (int j = 0; j < REF_VOCAB; j++) {
            out->steps[i][j] = (float)truth->steps[i][j];
        }
    }
    memcpy(out->logits, out->steps[0], sizeof out->logits);
}

static bool constant(const char *what, int index, double found, double published, char *why,
                     size_t why_bytes)
{
    double d = distance(found, published);
    if (d <= GOLDEN_REFERENCE_TOLERANCE) {
        return true;
    }
    return complain(why, why_bytes, "reference: %s %d is %.9g, published %.9g", what, index, found,
                    published);
}

static bool logits_match(const double *logits, char *why, size_t why_bytes)
{
    double sum = 0.0;
    bool good = true;
    for (int i = 0; i < REF_VOCAB; i++) {
        sum += logits[i];
    }
    for (int i = 0; i < 8; i++) {
        good &= constant("logit", i, logits[i], golden_first[i], why, why_bytes);
    }
    good &= constant("sum of logits", 0, sum, golden_sum, why, why_bytes);
    for (int rank = 0; rank < 5; rank++) {
        int id = golden_top[rank].id, above = 0;
        for (int i = 0; i < REF_VOCAB; i++) {
            above += logits[i] > logits[id];
        }
        good &= constant("rank of id", id, above, rank, why, why_bytes);
        good &= constant("logit", id, logits[id], golden_top[rank].logit, why, why_bytes);
    }
    return good;
}

bool golden_matches_constants(const struct golden_truth *truth, char *why, size_t why_bytes)
{
    clear(why, why_bytes);
    bool good = logits_match(truth->steps[0], why, why_bytes);
    for (int i = 0; i < REF_LAYERS; i++) {
        good &= constant("hmax of layer", i, truth->hmax[i], golden_hmax[i], why, why_bytes);
    }
    for (int i = 0; i < GOLDEN_ROUTES; i++) {
        const struct ref_routing *found = &truth->routing[i], *known = &golden_routing[i];
        int layer = golden_route_layer[i];
        for (int j = 0; j < REF_TOP; j++) {
            good &= constant("an expert of layer", layer, found->expert[j], known->expert[j], why,
                             why_bytes);
            good &= constant("a router weight of layer", layer, found->weight[j], known->weight[j],
                             why, why_bytes);
        }
    }
    for (int i = 0; i < GOLDEN_STEPS; i++) {
        good &= constant("greedy id", i, truth->ids[i], golden_ids[i], why, why_bytes);
    }
    if (!(distance(truth->margin_min, golden_margin) <= 0.00005)) {
        good = complain(why, why_bytes, "reference: smallest margin is %.6f, published %.4f",
                        truth->margin_min, golden_margin);
    }
    return good;
}

const struct golden_truth *golden_expected(char *why, size_t why_bytes)
{
    static struct golden_truth truth;
    static bool ready;
    clear(why, why_bytes);
    if (ready) {
        return &truth;
    }
    struct ref_weights *weights = ref_weights_open();
    if (weights == NULL || !golden_follow(weights, MUTATION_NONE, &truth)) {
        complain(why, why_bytes, "reference: no memory");
    } else {
        ready = golden_matches_constants(&truth, why, why_bytes);
    }
    ref_weights_close(weights);
    return ready ? &truth : NULL;
}

/* Largest distance of a row from the truth. */
static double row_distance(const float *row, const double *truth)
{
    double largest = 0.0;
    for (int i = 0; i < REF_VOCAB; i++) {
        largest = fmax(largest, distance((double)row[i], truth[i]));
    }
    return largest;
}

static bool judge_logits(struct golden_run *run, const struct golden_truth *truth, char *why,
                         size_t why_bytes)
{
    bool good = true;
    run->measured.logit = row_distance(run->logits, truth->steps[0]);
    if (run->measured.logit > GOLDEN_LOGIT_TOLERANCE) {
        good = complain(why, why_bytes, "logits of the last prompt position are off by %.3g",
                        run->measured.logit);
    }
    for (int i = 0; i < GOLDEN_STEPS; i++) {
        double d = row_distance(run->steps[i], truth->steps[i]);
        run->measured.step_logit = fmax(run->measured.step_logit, d);
        if (d > GOLDEN_LOGIT_TOLERANCE) {
            good = complain(why, why_bytes, "logits of step %d are off by %.3g", i, d);
        }
    }
    return good;
}

static bool judge_hmax(struct golden_run *run, const struct golden_truth *truth, char *why,
                       size_t why_bytes)
{
    bool good = true;
    for (int i = 0; i < REF_LAYERS; i++) {
        double d = distance((double)run->hmax[i], truth->hmax[i]) / truth->hmax[i];
        run->measured.hmax_relative = fmax(run->measured.hmax_relative, d);
        if (d > GOLDEN_HMAX_TOLERANCE) {
            good = complain(why, why_bytes, "hmax of layer %d is %.7g, expected %.7g", i,
                            (double)run->hmax[i], truth->hmax[i]);
        }
    }
    return good;
}

static bool judge_routing(struct golden_run *run, int index, const struct ref_routing *truth,
                          char *why, size_t why_bytes)
{
    const struct golden_routing *found = &run->routing[index];
    int layer = golden_route_layer[index];
    bool good = true;
    for (int j = 0; j < REF_TOP; j++) {
        if (found->expert[j] != truth->expert[j]) {
            return complain(why, why_bytes, "routing of layer %d: choice %d is expert %d, not %d",
                            layer, j, found->expert[j], truth->expert[j]);
        }
    }
    run->measured.routings_equal++;
    for (int j = 0; j < REF_TOP; j++) {
        double d = distance((double)found->weight[j], truth->weight[j]);
        run->measured.weight = fmax(run->measured.weight, d);
        if (d > GOLDEN_WEIGHT_TOLERANCE + GOLDEN_WEIGHT_RELATIVE * truth->weight[j]) {
            good = complain(why, why_bytes, "routing of layer %d: weight %d is %.7g, not %.7g",
                            layer, j, (double)found->weight[j], truth->weight[j]);
        }
    }
    return good;
}

static bool judge_ids(struct golden_run *run, char *why, size_t why_bytes)
{
    bool good = true;
    for (int i = 0; i < GOLDEN_STEPS; i++) {
        if (run->ids[i] == golden_ids[i]) {
            run->measured.ids_equal++;
        } else {
            good =
                complain(why, why_bytes, "id %d is %d, expected %d", i, run->ids[i], golden_ids[i]);
        }
    }
    return good;
}

bool golden_judge(struct golden_run *run, char *why, size_t why_bytes)
{
    memset(&run->measured, 0, sizeof run->measured);
    const struct golden_truth *truth = golden_expected(why, why_bytes);
    if (truth == NULL) {
        return false;
    }
    bool good = judge_logits(run, truth, why, why_bytes);
    good &= judge_hmax(run, truth, why, why_bytes);
    for (int i = 0; i < GOLDEN_ROUTES; i++) {
        good &= judge_routing(run, i, &truth->routing[i], why, why_bytes);
    }
    good &= judge_ids(run, why, why_bytes);
    return good;
}

bool golden_routing_valid(const struct golden_routing *routing, char *why, size_t why_bytes)
{
    double sum = 0.0;
    clear(why, why_bytes);
    for (int j = 0; j < REF_TOP; j++) {
        double weight = (double)routing->weight[j];
        if (routing->expert[j] < 0 || routing->expert[j] >= REF_EXPERTS) {
            return complain(why, why_bytes, "there is no expert %d", routing->expert[j]);
        }
        for (int k = 0; k < j; k++) {
            if (routing->expert[k] == routing->expert[j]) {
                return complain(why, why_bytes, "expert %d twice", routing->expert[j]);
            }
        }
        if (!(weight > 0.0 && weight <= 1.0)) {
            return complain(why, why_bytes, "weight %d is %.7g", j, weight);
        }
        sum += weight;
    }
    if (!(distance(sum, 1.0) <= 1e-6)) {
        return complain(why, why_bytes, "weights sum to %.7g, not 1", sum);
    }
    return true;
}
