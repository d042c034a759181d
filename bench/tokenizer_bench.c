/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer on one core: opening, encoding and decoding. A file of tokens is made, of the
 * released size, whose tokens are the words of a made language and their beginnings, and text in
 * that language. --model and --text take real ones instead.
 *
 *   tokenizer_bench [--quick] [--json FILE] [--model FILE] [--text FILE]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/measure.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/nondet.h"
#include "core/model/tokenizer.h"
#include "tests/support/vocabulary.h"

#define TOKENS 163584U
#define WORDS 40000U
#define REPEATS 7U

struct settings {
    const char *model, *text, *json;
    bool quick;
};

static char words[WORDS][16];

static void die(const char *what)
{
    fprintf(stderr, "tokenizer_bench: %s: %s\n", what, err_message());
    exit(1);
}

/* ---- a language ---- */

/* Words of one to six syllables; the first are the most frequent, and the shortest. */
static void make_words(struct rng *rng)
{
    static const char *const syllable[] = {"the", "in", "er", "an", "re", "on", "at", "en",
                                           "or", "es", "st", "al", "to", "it", "is", "ing",
                                           "me", "de", "com", "ve", "ly", "un", "ha", "pro"};
    for (uint32_t i = 0; i < WORDS; i++) {
        uint64_t syllables = (i < 64 ? 1 : i < 2000 ? 2 : 3) + rng_below(rng, i < 64 ? 1 : 3);
        words[i][0] = '\0';
        while (syllables-- > 0 && strlen(words[i]) < 12) {
            strcat(words[i], syllable[rng_below(rng, countof(syllable))]);
        }
    }
}

/* Few words make most of the text, as in any language. */
static char *make_text(struct rng *rng, size_t size)
{
    static const char *const between[] = {" ", " ", " ", " ", " ", " ", " ", ", ", ". ", "\n"};
    char *text = malloc(size + 32);
    size_t used = 0;
    while (text != NULL && used < size) {
        uint64_t most = (uint64_t)1 << (1 + rng_below(rng, 15));
        used += (size_t)sprintf(text + used, "%s%s", words[rng_below(rng, most)],
                                between[rng_below(rng, countof(between))]);
    }
    return text;
}

/* A token of the file, and where it was found first. */
struct part {
    char text[20];
    uint32_t order;
};

static int by_text(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order != 0 ? order : (x->order > y->order) - (x->order < y->order);
}

static int by_order(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    return (x->order > y->order) - (x->order < y->order);
}

/* Every beginning of every word behind a space, those of frequent words first. Returns how many
 * different ones there are. */
static uint32_t make_parts(struct part *parts, uint32_t capacity)
{
    uint32_t count = 0, kept = 0;
    for (uint32_t i = 0; i < WORDS; i++) {
        for (size_t length = 1; length <= strlen(words[i]) && count < capacity; length++) {
            snprintf(parts[count].text, sizeof parts[count].text, " %.*s", (int)length, words[i]);
            parts[count].order = count;
            count++;
        }
    }
    qsort(parts, count, sizeof *parts, by_text);
    for (uint32_t i = 0; i < count; i++) {
        if (kept == 0 || strcmp(parts[i].text, parts[kept - 1].text) != 0) {
            parts[kept++] = parts[i];
        }
    }
    qsort(parts, kept, sizeof *parts, by_order);
    return kept;
}

static char *make_model(size_t *size)
{
    const uint32_t capacity = WORDS * 16;
    struct part *parts = malloc(capacity * sizeof *parts);
    char *text = malloc(TOKENS * 48ULL), *at = text;
    uint32_t count = parts != NULL ? make_parts(parts, capacity) : 0;
    for (uint32_t rank = 0; text != NULL && rank < TOKENS; rank++) {
        char filler[24];
        uint32_t merge = rank - VOCABULARY_BYTES;
        if (rank < VOCABULARY_BYTES) {
            unsigned char byte = vocabulary_byte(rank);
            at = vocabulary_line(at, &byte, 1, rank);
            continue;
        }
        snprintf(filler, sizeof filler, "filler %u", rank);
        const char *token = merge < count ? parts[merge].text : filler;
        at = vocabulary_line(at, token, strlen(token), rank);
    }
    free(parts);
    *size = (size_t)(at - text);
    return text;
}

static void write_model(const char *path)
{
    size_t size;
    char *text = make_model(&size);
    FILE *file = fopen(path, "wb");
    if (text == NULL || file == NULL || fwrite(text, 1, size, file) != size ||
        fclose(file) != 0) {
        fprintf(stderr, "tokenizer_bench: %s cannot be written\n", path);
        exit(1);
    }
    free(text);
}

/* ---- measuring ---- */

struct results {
    struct figure open_ms, encode_mbps, decode_mbps;
    size_t text_bytes, ids;
    uint64_t resident_bytes;
};

static void measure(const char *model, const char *text, size_t size, struct results *r)
{
    struct tokenizer *t;
    struct token_list list = {.ids = NULL};
    struct byte_list back = {.bytes = NULL};
    uint64_t start = nondet_thread_cpu_ns();
    if (tokenizer_open(model, &t) < 0) {
        die("opening");
    }
    uint64_t opened = nondet_thread_cpu_ns();
    if (tokenizer_encode(t, text, size, 0, &list) < 0) {
        die("encoding");
    }
    uint64_t encoded = nondet_thread_cpu_ns();
    if (tokenizer_decode(t, list.ids, list.count, 0, &back) < 0) {
        die("decoding");
    }
    uint64_t decoded = nondet_thread_cpu_ns();
    if (back.count != size || memcmp(back.bytes, text, size) != 0) {
        fprintf(stderr, "tokenizer_bench: the text does not come back\n");
        exit(1);
    }
    figure_add(&r->open_ms, (double)(opened - start) / 1e6);
    figure_add(&r->encode_mbps, (double)size * 1e3 / (double)(encoded - opened));
    figure_add(&r->decode_mbps, (double)size * 1e3 / (double)(decoded - encoded));
    r->text_bytes = size;
    r->ids = list.count;
    r->resident_bytes = tokenizer_resident_bytes(t);
    free(back.bytes);
    free(list.ids);
    tokenizer_close(t);
}

static void print_figure(const char *name, const struct figure *f, const char *unit)
{
    printf("%-8s %8.1f %s (%.1f to %.1f)\n", name, figure_median(f), unit, figure_least(f),
           figure_most(f));
}

static void report(const struct results *r, const struct settings *s)
{
    cJSON *root = cJSON_CreateObject();
    if (s->quick) {
        measure_quick(root, "3 repeats, 4 MB of text");
    }
    print_figure("open", &r->open_ms, "ms");
    print_figure("encode", &r->encode_mbps, "MB/s");
    print_figure("decode", &r->decode_mbps, "MB/s");
    printf("%.1f MB of text, %.2f bytes a token; %.1f MB resident\n", (double)r->text_bytes / 1e6,
           (double)r->text_bytes / (double)r->ids, (double)r->resident_bytes / 1e6);
    figure_json(root, "open_ms", &r->open_ms);
    figure_json(root, "encode_mbps", &r->encode_mbps);
    figure_json(root, "decode_mbps", &r->decode_mbps);
    cJSON_AddNumberToObject(root, "text_bytes", (double)r->text_bytes);
    cJSON_AddNumberToObject(root, "ids", (double)r->ids);
    if (s->json == NULL) {
        cJSON_Delete(root);
    } else if (!measure_write(s->json, root)) {
        exit(1);
    }
}

static bool parse(int argc, char **argv, struct settings *s)
{
    for (int i = 1; i < argc; i++) {
        bool last = i + 1 == argc;
        if (strcmp(argv[i], "--quick") == 0) {
            s->quick = true;
        } else if (strcmp(argv[i], "--json") == 0 && !last) {
            s->json = argv[++i];
        } else if (strcmp(argv[i], "--model") == 0 && !last) {
            s->model = argv[++i];
        } else if (strcmp(argv[i], "--text") == 0 && !last) {
            s->text = argv[++i];
        } else {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    struct settings s = {.quick = false};
    struct results results = {.text_bytes = 0};
    struct file_text file = {.text = NULL};
    struct rng rng = rng_seed(1);
    char made[] = "/tmp/k3ring-tokens-XXXXXX";
    if (!parse(argc, argv, &s)) {
        fprintf(stderr, "usage: tokenizer_bench [--quick] [--json FILE] [--model FILE] "
                "[--text FILE]\n");
        return 2;
    }
    make_words(&rng);
    char *text = s.text == NULL ? make_text(&rng, s.quick ? 4000000 : 20000000) : NULL;
    if (s.text != NULL && file_read(s.text, GIB, &file) < 0) {
        die("the text");
    }
    int fd = s.model == NULL ? mkstemp(made) : -1;
    if (s.model == NULL) {
        write_model(made);
        close(fd);
    }
    for (uint32_t i = 0; i < (s.quick ? 3 : REPEATS); i++) {
        measure(s.model != NULL ? s.model : made, text != NULL ? text : file.text,
                text != NULL ? strlen(text) : file.size_bytes, &results);
    }
    if (s.model == NULL) {
        unlink(made);
    }
    report(&results, &s);
    file_text_free(&file);
    free(text);
    return 0;
}
