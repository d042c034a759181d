/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/batch_input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/scan.h"
#include "core/base/utf8.h"
#include "core/cli/text_limit.h"

#define GEN_MAX (1U << 30)
#define FILE_BYTES_MAX (4ULL * GIB)
#define LINES_MAX (1U << 24)

#define SEED_MAX (((uint64_t)1 << 53) - 1) /* as --seed */

enum line_key { KEY_ID, KEY_IDS, KEY_GEN, KEY_STOP, KEY_TEMPERATURE, KEY_TOP_P, KEY_TOP_K,
                KEY_MIN_P, KEY_PENALTY, KEY_SEED, KEY_COUNT };

static const char *const key_names[KEY_COUNT] = {
    "id", "ids", "gen", "stop", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
    "seed"};

/* An array of token ids. False with a fault in scan, or *why set. */
static bool read_ids(struct scan *scan, uint32_t **ids, uint32_t *count, const char **why)
{
    const char *close = memchr(scan->at, ']', (size_t)(scan->end - scan->at));
    size_t most = close != NULL ? (size_t)(close - scan->at) / 2 + 1 : 1;
    bool first = true;
    uint64_t value;
    *ids = malloc(most * sizeof **ids);
    if (*ids == NULL) {
        *why = "no memory for its ids";
        return false;
    }
    if (!scan_expect(scan, '[')) {
        return false;
    }
    while (scan_next(scan, ']', &first)) { /* as many as there may be; given back below */
        if (!scan_u64(scan, &value)) {
            return false;
        }
        if (value > UINT32_MAX || *count == most) {
            *why = "an id is no token id";
            return false;
        }
        (*ids)[(*count)++] = (uint32_t)value;
    }
    uint32_t *fitting = realloc(*ids, (*count + 1ULL) * sizeof **ids);
    *ids = fitting != NULL ? fitting : *ids;
    return scan->fault == NULL;
}

static bool read_real(struct scan *scan, float *value, const char **why)
{
    char copy[64];
    const char *at = scan->at;
    if (!scan_skip(scan)) {
        return false;
    }
    size_t size = (size_t)(scan->at - at);
    if ((*at != '-' && (*at < '0' || *at > '9')) || size >= sizeof copy) {
        *why = "its value is no number, like 0.95";
        return false;
    }
    memcpy(copy, at, size);
    copy[size] = '\0';
    *value = (float)strtod(copy, NULL); /* the scanner has seen that it is one of JSON */
    return true;
}

static bool read_whole(struct scan *scan, uint64_t least, uint64_t most, uint64_t *value,
                       const char *range, const char **why)
{
    if (!scan_u64(scan, value)) {
        return false;
    }
    *why = *value < least || *value > most ? range : NULL;
    return *why == NULL;
}

/* How tokens are chosen; sample_check() judges what is read here. */
static bool read_sample(struct scan *scan, enum line_key key, struct sample_options *sample,
                        const char **why)
{
    uint64_t whole;
    switch (key) {
    case KEY_TEMPERATURE:
        return read_real(scan, &sample->temperature, why);
    case KEY_TOP_P:
        return read_real(scan, &sample->top_p, why);
    case KEY_MIN_P:
        return read_real(scan, &sample->min_p, why);
    case KEY_PENALTY:
        return read_real(scan, &sample->repetition_penalty, why);
    case KEY_TOP_K:
        if (!read_whole(scan, 0, UINT32_MAX, &whole, "\"top_k\" must be a whole number from 0 to "
                        "4294967295", why)) {
            return false;
        }
        sample->top_k = (uint32_t)whole;
        return true;
    default:
        return read_whole(scan, 0, SEED_MAX, &sample->seed, "\"seed\" must be a whole number from "
                          "0 to 9007199254740991", why);
    }
}

static bool read_value(struct scan *scan, enum line_key key, struct batch_line *line,
                       const char **why)
{
    uint64_t gen;
    scan_peek(scan);
    switch (key) {
    case KEY_ID:
        line->id = scan->at;
        if (!scan_skip(scan)) {
            return false;
        }
        line->id_bytes = (uint32_t)(scan->at - line->id);
        return true;
    case KEY_IDS:
        return read_ids(scan, &line->ids, &line->id_count, why);
    case KEY_STOP:
        return read_ids(scan, &line->stop, &line->stop_count, why);
    case KEY_GEN:
        if (!read_whole(scan, 1, GEN_MAX, &gen, "\"gen\" must be a whole number from 1 to "
                        "1073741824", why)) {
            return false;
        }
        line->gen = (uint32_t)gen;
        return true;
    default:
        return read_sample(scan, key, &line->sample, why);
    }
}

static enum line_key find_key(const char *name, bool seen[KEY_COUNT], const char **why)
{
    for (int key = 0; key < KEY_COUNT; key++) {
        if (strcmp(name, key_names[key]) == 0) {
            *why = seen[key] ? "a key occurs twice" : NULL;
            seen[key] = true;
            return (enum line_key)key;
        }
    }
    *why = strcmp(name, "prompt") == 0
               ? "\"prompt\" is text; give the prompt as token ids in \"ids\""
               : "a key is none of \"id\", \"ids\", \"gen\", \"stop\", \"temperature\", "
                 "\"top_p\", \"top_k\", \"min_p\", \"repetition_penalty\", \"seed\"";
    return KEY_COUNT;
}

/* False with what is wrong in *why or in the scanner. */
static bool read_object(struct scan *scan, struct batch_line *line, const char **why)
{
    char name[32];
    bool first = true;
    bool seen[KEY_COUNT] = {false};
    if (!scan_expect(scan, '{')) {
        return false;
    }
    while (scan_next(scan, '}', &first)) {
        if (!scan_key(scan, name, sizeof name)) {
            return false;
        }
        enum line_key key = find_key(name, seen, why);
        if (*why != NULL || !read_value(scan, key, line, why)) {
            return false;
        }
    }
    if (scan->fault == NULL && scan_finish(scan) && line->id_count == 0) {
        *why = "there is no prompt: \"ids\" must list one token id or more";
        return false;
    }
    return scan->fault == NULL;
}

static int check_sample(const struct batch_line *line, const char *path)
{
    char why[ERR_MESSAGE_BYTES];
    int rc = sample_check(&line->sample, UINT32_MAX);
    if (rc == 0) {
        return 0;
    }
    snprintf(why, sizeof why, "%.200s", err_message());
    err_clear();
    return err_set(rc, "%s: line %u: as %s", path, line->number, why);
}

static int add_line(struct batch_input *in, const char *path, const char *text, size_t size_bytes,
                    uint32_t number, uint32_t gen_default)
{
    struct scan scan = scan_start(text, size_bytes);
    struct batch_line *line = &in->line[in->count++];
    const char *why = NULL;
    *line = (struct batch_line){.number = number, .gen = gen_default, .sample = sample_greedy()};
    if (!read_object(&scan, line, &why)) {
        return err_set(ERR_USAGE, "%s: line %u, byte %zu: %s; a line looks like {\"id\": 1, "
                       "\"ids\": [3, 141], \"gen\": 16}", path, number, scan_offset(&scan) + 1,
                       why != NULL ? why : scan.fault);
    }
    const size_t whole = utf8_whole_bytes(text, size_bytes);
    if (whole < size_bytes) { /* an id goes into the results as it is */
        return err_set(ERR_USAGE, "%s: line %u, byte %zu: not UTF-8, which JSON has to be; save "
                       "the file as UTF-8", path, number, whole + 1);
    }
    return check_sample(line, path);
}

static bool is_blank(const char *text, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++) {
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') {
            return false;
        }
    }
    return true;
}

static int check_line(const struct text_limit *limit, const char *path, uint32_t number,
                      uint64_t size_bytes)
{
    char name[32];
    snprintf(name, sizeof name, "line %u", number);
    return text_limit_check(limit, path, name, size_bytes);
}

int batch_input_read(const char *path, uint32_t gen_default, uint64_t ram_bytes,
                     struct batch_input *out)
{
    const struct text_limit whole = text_limit_of(TEXT_LINES, ram_bytes);
    const struct text_limit each = text_limit_of(TEXT_PLAIN, ram_bytes);
    struct stat status;
    *out = (struct batch_input){0};
    errno = 0;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode)) {
        return err_set(ERR_USAGE, "%s: cannot be read: %s; give a file of JSON lines", path,
                       errno != 0 ? strerror(errno) : "not a regular file");
    }
    if (status.st_size > 0) {
        TRY(text_limit_check(&whole, "batch", path, (uint64_t)status.st_size));
    }
    TRY(file_read(path, FILE_BYTES_MAX, &out->file));
    const char *end = out->file.text + out->file.size_bytes;
    uint64_t lines = 1;
    for (const char *p = out->file.text; p < end; p++) {
        lines += *p == '\n';
    }
    out->line = lines <= LINES_MAX ? calloc(lines, sizeof *out->line) : NULL;
    if (out->line == NULL) {
        return err_set(ERR_MEMORY, "%s: no memory for %llu lines", path,
                       (unsigned long long)lines);
    }
    uint32_t number = 1;
    for (const char *at = out->file.text; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline != NULL ? newline : end;
        if (!is_blank(at, (size_t)(stop - at))) {
            TRY(check_line(&each, path, number, (uint64_t)(stop - at)));
            TRY(add_line(out, path, at, (size_t)(stop - at), number, gen_default));
        }
        at = newline != NULL ? newline + 1 : end;
    }
    return out->count > 0 ? 0 : err_set(ERR_USAGE, "%s: there is no line to run", path);
}

void batch_input_free(struct batch_input *input)
{
    for (uint32_t i = 0; i < input->count; i++) {
        free(input->line[i].ids);
        free(input->line[i].stop);
    }
    free(input->line);
    file_text_free(&input->file);
    *input = (struct batch_input){0};
}

bool batch_line_samples(const struct batch_line *line)
{
    return line->sample.temperature > 0 || line->sample.repetition_penalty != 1.0f;
}

bool batch_input_samples(const struct batch_input *input)
{
    for (uint32_t i = 0; i < input->count; i++) {
        if (batch_line_samples(&input->line[i])) {
            return true;
        }
    }
    return false;
}

/* An id of a result takes up to ten digits and a comma; the rest of its line some 200 bytes. */
uint64_t batch_input_bytes(const struct batch_input *input)
{
    uint64_t bytes = input->file.size_bytes + input->count * sizeof *input->line;
    for (uint32_t i = 0; i < input->count; i++) {
        const struct batch_line *line = &input->line[i];
        bytes += ((uint64_t)line->id_count + line->stop_count) * sizeof(uint32_t);
        bytes += 200 + line->id_bytes + 11ULL * line->gen;
    }
    return bytes;
}

uint32_t batch_input_prompt_max(const struct batch_input *input)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < input->count; i++) {
        most = input->line[i].id_count > most ? input->line[i].id_count : most;
    }
    return most;
}

uint64_t batch_input_positions_max(const struct batch_input *input)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < input->count; i++) {
        most = max_u64(most, (uint64_t)input->line[i].id_count + input->line[i].gen);
    }
    return most;
}
