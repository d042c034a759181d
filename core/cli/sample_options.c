/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/sample_options.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/nondet.h"

#define BIAS_FILE_BYTES_MAX (16 * MIB)
#define BIAS_FORM "like 11:-2.5,42:ban, or a file of {\"11\": -2.5, \"42\": \"ban\"}"

/* ---- biases ---- */

/* Digits only, all of them. */
static bool read_id(const char *text, size_t size_bytes, uint32_t *id)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size_bytes; i++) {
        if (text[i] < '0' || text[i] > '9' || value > UINT32_MAX) {
            return false;
        }
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *id = (uint32_t)value;
    return size_bytes > 0 && value <= UINT32_MAX;
}

static bool read_bias(const char *text, size_t size_bytes, struct sample_bias *bias)
{
    const char *colon = memchr(text, ':', size_bytes);
    double value = -INFINITY;
    if (colon == NULL || !read_id(text, (size_t)(colon - text), &bias->id)) {
        return false;
    }
    size_t rest = size_bytes - (size_t)(colon + 1 - text);
    if (!(rest == 3 && memcmp(colon + 1, "ban", 3) == 0) &&
        !options_real(colon + 1, rest, true, &value)) {
        return false;
    }
    bias->value = (float)value;
    return true;
}

static int take_memory(struct sampling *s, size_t count)
{
    s->biases = calloc(count + 1, sizeof *s->biases);
    return s->biases != NULL ? 0 : err_set(ERR_MEMORY, "--logit-bias: no memory for %zu ids",
                                           count);
}

static int read_list(struct sampling *s, const char *list)
{
    size_t commas = 0;
    for (const char *p = list; *p != '\0'; p++) {
        commas += *p == ',';
    }
    TRY(take_memory(s, commas + 1));
    for (const char *p = list;; p++) {
        size_t length = strcspn(p, ",");
        if (!read_bias(p, length, &s->biases[s->options.bias_count++])) {
            return err_set(ERR_USAGE, "--logit-bias: '%.*s' is not ID:VALUE; give a list "
                           BIAS_FORM, (int)min_u64(length, 64), p);
        }
        p += length;
        if (*p == '\0') {
            return 0;
        }
    }
}

static int read_object(struct sampling *s, const char *path, const cJSON *root)
{
    const cJSON *item;
    if (!cJSON_IsObject(root)) {
        return err_set(ERR_USAGE, "--logit-bias: %s holds no JSON object; write one " BIAS_FORM,
                       path);
    }
    TRY(take_memory(s, (size_t)cJSON_GetArraySize(root)));
    cJSON_ArrayForEach(item, root)
    {
        struct sample_bias *bias = &s->biases[s->options.bias_count++];
        const char *word = cJSON_GetStringValue(item);
        bool ban = word != NULL && strcmp(word, "ban") == 0;
        if (!read_id(item->string, strlen(item->string), &bias->id) ||
            !(ban || cJSON_IsNumber(item))) {
            return err_set(ERR_USAGE, "--logit-bias: %s: '%.64s' is no token id with a number or "
                           "\"ban\"; write an object " BIAS_FORM, path, item->string);
        }
        bias->value = ban ? -INFINITY : (float)item->valuedouble;
        if (!ban && bias->value == -INFINITY) { /* only the word bans */
            return err_set(ERR_USAGE, "--logit-bias: %s: the value of %u is too large; write a "
                           "number from -1000000 to 1000000, or \"ban\"", path, bias->id);
        }
    }
    return 0;
}

/* What is wrong with the file is wrong with the command line, not with a model. */
static int read_file(struct sampling *s, const char *path)
{
    struct file_text file = {.text = NULL};
    char why[ERR_MESSAGE_BYTES];
    cJSON *root = NULL;
    if (file_read(path, BIAS_FILE_BYTES_MAX, &file) == 0) {
        root = json_parse(file.text, file.size_bytes, path, false);
    }
    if (root == NULL) {
        snprintf(why, sizeof why, "%.600s", err_message());
        err_clear();
        file_text_free(&file);
        return err_set(ERR_USAGE, "--logit-bias: %s; give a list " BIAS_FORM, why);
    }
    int rc = read_object(s, path, root);
    cJSON_Delete(root);
    file_text_free(&file);
    return rc;
}

static int by_id(const void *a, const void *b)
{
    const struct sample_bias *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* A list begins with an id and its colon; everything else is a path (./1:2 is one, too). */
static int read_biases(struct sampling *s, const char *text)
{
    size_t digits = strspn(text, "0123456789");
    TRY(digits > 0 && text[digits] == ':' ? read_list(s, text) : read_file(s, text));
    qsort(s->biases, s->options.bias_count, sizeof *s->biases, by_id);
    for (uint32_t i = 1; i < s->options.bias_count; i++) {
        if (s->biases[i].id == s->biases[i - 1].id) {
            return err_set(ERR_USAGE, "--logit-bias: id %u occurs twice; give it one value",
                           s->biases[i].id);
        }
    }
    s->options.biases = s->biases;
    return 0;
}

/* ---- all of it ---- */

int sampling_open(struct sampling *s, const struct sample_cli *cli)
{
    *s = (struct sampling){.cli = *cli, .options = {
        .temperature = (float)cli->temperature,
        .top_k = (uint32_t)cli->top_k,
        .top_p = (float)cli->top_p,
        .min_p = (float)cli->min_p,
        .repetition_penalty = (float)cli->repetition_penalty,
        .seed = cli->seed != OPTION_AUTO ? cli->seed : 0,
    }};
    if (cli->logit_bias != NULL) {
        TRY(read_biases(s, cli->logit_bias));
    }
    TRY(sample_check(&s->options, UINT32_MAX)); /* once more when the vocabulary is known */
    s->seed_drawn = cli->temperature > 0 && cli->seed == OPTION_AUTO;
    if (s->seed_drawn) {
        s->options.seed = nondet_seed();
    }
    return 0;
}

void sampling_close(struct sampling *s)
{
    free(s->biases);
    *s = (struct sampling){.biases = NULL};
}

const struct sample_options *sampling_wanted(const struct sampling *s)
{
    bool plain = s->cli.temperature <= 0 && s->options.bias_count == 0 &&
                 s->options.repetition_penalty == 1.0f;
    return plain ? NULL : &s->options;
}

bool sampling_idle(const struct sampling *s)
{
    return s->cli.temperature <= 0 && (s->options.top_p < 1 || s->options.top_k > 0 ||
                                       s->options.min_p > 0 || s->cli.seed != OPTION_AUTO);
}

/* Numbers as they were typed, not as floats show them. */
void sampling_json(const struct sampling *s, cJSON *parent)
{
    cJSON *object = cJSON_AddObjectToObject(parent, "sampling");
    cJSON_AddNumberToObject(object, "temperature", s->cli.temperature);
    cJSON_AddNumberToObject(object, "top_p", s->cli.top_p);
    cJSON_AddNumberToObject(object, "top_k", (double)s->cli.top_k);
    cJSON_AddNumberToObject(object, "min_p", s->cli.min_p);
    cJSON_AddNumberToObject(object, "repetition_penalty", s->cli.repetition_penalty);
    if (s->cli.temperature > 0) {
        cJSON_AddNumberToObject(object, "seed", (double)s->options.seed);
    } else {
        cJSON_AddNullToObject(object, "seed");
    }
    cJSON *biases = cJSON_AddArrayToObject(object, "logit_bias");
    for (uint32_t i = 0; i < s->options.bias_count; i++) {
        cJSON *bias = cJSON_CreateObject();
        cJSON_AddNumberToObject(bias, "id", s->biases[i].id);
        if (s->biases[i].value == -INFINITY) {
            cJSON_AddStringToObject(bias, "value", "ban");
        } else {
            cJSON_AddNumberToObject(bias, "value", (double)s->biases[i].value);
        }
        cJSON_AddItemToArray(biases, bias);
    }
}

/* Appends to a text that is cut when it is full. */
static void append(char *text, size_t capacity, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t capacity, const char *format, ...)
{
    size_t length = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + length, capacity - length, format, args);
    va_end(args);
}

void sampling_text(const struct sampling *s, char *text, size_t capacity)
{
    const struct sample_cli *cli = &s->cli;
    snprintf(text, capacity, "temperature %g", cli->temperature);
    if (cli->temperature > 0 && cli->top_p < 1) {
        append(text, capacity, ", top-p %g", cli->top_p);
    }
    if (cli->temperature > 0 && cli->top_k > 0) {
        append(text, capacity, ", top-k %llu", (unsigned long long)cli->top_k);
    }
    if (cli->temperature > 0 && cli->min_p > 0) {
        append(text, capacity, ", min-p %g", cli->min_p);
    }
    if (s->options.repetition_penalty != 1.0f) {
        append(text, capacity, ", repetition penalty %g", cli->repetition_penalty);
    }
    if (s->options.bias_count > 0) {
        append(text, capacity, ", %u biased ids", s->options.bias_count);
    }
    if (cli->temperature > 0) {
        append(text, capacity, ", seed %llu%s", (unsigned long long)s->options.seed,
               s->seed_drawn ? " (drawn; --seed repeats it)" : "");
    }
}
