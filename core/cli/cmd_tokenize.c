/* SPDX-License-Identifier: Apache-2.0 */
/* k3ring tokenize: text to token ids and back, from standard input to standard output. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/utf8.h"
#include "core/cli/commands.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/model/tokenizer.h"

#define READ_BYTES 65536U
#define K3_TOKENS 163840U

struct tokenize_cli {
    bool decode, split, allow_special, json;
};

static const struct option_row rows[] = {
    {"decode", OPTION_FLAG, offsetof(struct tokenize_cli, decode), NULL, 0, 0, NULL, NULL,
     "ids in (spaces, commas or a JSON array between them), their bytes out"},
    {"split", OPTION_FLAG, offsetof(struct tokenize_cli, split), NULL, 0, 0, NULL, NULL,
     "the pieces within which tokens are formed, as a JSON array, instead of ids"},
    {"allow-special", OPTION_FLAG, offsetof(struct tokenize_cli, allow_special), NULL, 0, 0, NULL,
     NULL, "the text of an added token, like [EOS], becomes its id; else it is text"},
    {"json", OPTION_FLAG, offsetof(struct tokenize_cli, json), NULL, 0, 0, NULL, NULL,
     "ids as a JSON array"},
};

const struct command command_tokenize = {
    "tokenize", "MODEL|FILE [--decode | --split] [--allow-special] [--json]",
    "Turns the text on standard input into token ids by the tiktoken.model in MODEL, or by that "
    "FILE.\nNothing is put before or behind the text; a line break at its end is part of it.",
    rows, countof(rows), 1, 1};

/* ---- text in ---- */

/* Where results go on their way out. */
struct printer {
    const struct tokenize_cli *cli;
    uint64_t count; /* of what has been printed */
};

static void print_id(struct printer *p, uint32_t id)
{
    const char *between = p->cli->json ? "," : " ";
    printf("%s%u", p->count++ > 0 ? between : "", id);
}

/* A byte that belongs to no character is shown as U+FFFD: JSON cannot hold it. */
static size_t print_character(const unsigned char *text, size_t size_bytes)
{
    uint32_t code;
    size_t bytes = utf8_read(text, size_bytes, &code);
    if (bytes == 0) {
        fputs("\xEF\xBF\xBD", stdout);
        return 1;
    }
    if (code == '"' || code == '\\') {
        printf("\\%c", (int)code);
    } else if (code == '\n') {
        fputs("\\n", stdout);
    } else if (code < 0x20 || (code >= 0x7F && code < 0xA0)) {
        printf("\\u%04x", code);
    } else {
        fwrite(text, 1, bytes, stdout);
    }
    return bytes;
}

static int print_piece(void *context, const unsigned char *piece, size_t size_bytes,
                       int64_t added_id)
{
    struct printer *p = context;
    (void)added_id;
    fputs(p->count++ > 0 ? ",\"" : "\"", stdout);
    for (size_t at = 0; at < size_bytes;) {
        at += print_character(piece + at, size_bytes - at);
    }
    putchar('"');
    return 0;
}

static int print_cut(const struct tokenizer *t, const unsigned char *text, size_t size_bytes,
                     struct printer *p)
{
    unsigned flags = p->cli->allow_special ? TOKENIZE_ADDED : 0;
    struct token_list list = {.ids = NULL};
    if (p->cli->split) {
        return tokenizer_split(t, text, size_bytes, flags, print_piece, p);
    }
    int rc = tokenizer_encode(t, text, size_bytes, flags, &list);
    for (size_t i = 0; rc == 0 && i < list.count; i++) {
        print_id(p, list.ids[i]);
    }
    free(list.ids);
    return rc;
}

static int read_more(unsigned char *target, size_t size_bytes, size_t *got)
{
    ssize_t n;
    do {
        n = read(STDIN_FILENO, target, size_bytes);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return err_set(ERR_IO, "standard input cannot be read: %s", strerror(errno));
    }
    *got = (size_t)n;
    return 0;
}

/* Text of any length in the memory of two cuts: what comes after one does not change it. */
static int encode_cuts(const struct tokenizer *t, unsigned char *text, size_t capacity,
                       struct printer *p)
{
    size_t size = 0, got = 1;
    while (got > 0 || size > 0) {
        while (got > 0 && size < capacity) {
            TRY(read_more(text + size, capacity - size, &got));
            size += got;
        }
        size_t cut = tokenizer_cut(text, size);
        TRY(print_cut(t, text, cut, p));
        memmove(text, text + cut, size - cut);
        size -= cut;
        if (ferror(stdout)) {
            return output_flush_stdout();
        }
    }
    return 0;
}

static int run_encode(const struct tokenizer *t, const struct tokenize_cli *cli)
{
    const size_t capacity = 2 * TOKENIZER_CUT_BYTES_MAX;
    struct printer printer = {.cli = cli};
    bool array = cli->json || cli->split;
    unsigned char *text = malloc(capacity);
    if (text == NULL) {
        return err_set(ERR_MEMORY, "no memory to read text");
    }
    fputs(array ? "[" : "", stdout);
    int rc = encode_cuts(t, text, capacity, &printer);
    free(text);
    TRY(rc);
    fputs(array ? "]\n" : "\n", stdout);
    return output_flush_stdout();
}

/* ---- ids in ---- */

/* Ids on their way through blocks of text that may end anywhere. */
struct id_reader {
    struct tokenizer_stream stream;
    struct byte_list out;
    uint64_t value, at_byte;
    bool in_number;
    enum { PLACE_START, PLACE_OPEN, PLACE_ID, PLACE_COMMA, PLACE_CLOSED } place; /* behind what */
    bool bracket; /* around all of it */
};

#define LIST_LIKE "'1008 10484' or '[1008,10484]'"

static int misplaced(const struct id_reader *r, unsigned char byte)
{
    return err_set(ERR_USAGE, "standard input: byte %llu ('%c') stands where a list of ids like "
                   LIST_LIKE " has none", (unsigned long long)r->at_byte, byte);
}

/* A comma, a bracket or a digit: what may stand behind what. */
static int take_place(struct id_reader *r, unsigned char byte)
{
    bool closes = byte == ']' && r->bracket && (r->place == PLACE_OPEN || r->place == PLACE_ID);
    if (byte == '[' && r->place == PLACE_START) {
        r->bracket = true;
        r->place = PLACE_OPEN;
    } else if (closes) {
        r->place = PLACE_CLOSED;
    } else if (byte == ',' && r->place == PLACE_ID) {
        r->place = PLACE_COMMA;
    } else if (byte >= '0' && byte <= '9' && r->place != PLACE_CLOSED) {
        r->place = PLACE_ID;
    } else {
        return misplaced(r, byte);
    }
    return 0;
}

static int end_number(struct id_reader *r)
{
    if (!r->in_number) {
        return 0;
    }
    r->in_number = false;
    if (r->value > UINT32_MAX) {
        return err_set(ERR_USAGE, "standard input: the number that ends before byte %llu is too "
                       "large for a token id", (unsigned long long)r->at_byte);
    }
    return tokenizer_stream_push(&r->stream, (uint32_t)r->value, &r->out);
}

static int take_byte(struct id_reader *r, unsigned char byte)
{
    if (byte >= '0' && byte <= '9') {
        TRY(take_place(r, byte));
        r->value = (r->in_number ? r->value * 10 : 0) + (uint64_t)(byte - '0');
        r->value = min_u64(r->value, UINT32_MAX + 1ULL);
        r->in_number = true;
    } else if (byte != '\0' && strchr(" \t\r\n,[]", byte) != NULL) {
        TRY(end_number(r));
        TRY(strchr(",[]", byte) != NULL ? take_place(r, byte) : 0);
    } else {
        return err_set(ERR_USAGE, "standard input: byte %llu (0x%02X) belongs to no list of ids "
                       "like " LIST_LIKE, (unsigned long long)r->at_byte, byte);
    }
    r->at_byte++;
    return 0;
}

static int take_block(struct id_reader *r, const unsigned char *block, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++) {
        TRY(take_byte(r, block[i]));
    }
    return 0;
}

/* What was decoded appears at once, whole characters only; also before an error. */
static int show(struct id_reader *r)
{
    if (r->out.count > 0) {
        fwrite(r->out.bytes, 1, r->out.count, stdout);
        r->out.count = 0;
    }
    return output_flush_stdout();
}

static int check_end(const struct id_reader *r)
{
    bool open = r->bracket && r->place != PLACE_CLOSED;
    return r->place != PLACE_COMMA && !open
               ? 0
               : err_set(ERR_USAGE, "standard input: the list of ids ends at byte %llu %s; it was "
                         "cut off", (unsigned long long)r->at_byte,
                         r->place == PLACE_COMMA ? "behind a comma" : "without its ']'");
}

static int decode_blocks(struct id_reader *r)
{
    unsigned char block[READ_BYTES];
    size_t got = 1;
    while (got > 0) {
        TRY(read_more(block, sizeof block, &got));
        int rc = take_block(r, block, got);
        TRY(show(r));
        TRY(rc);
    }
    int rc = end_number(r);
    rc = rc < 0 ? rc : tokenizer_stream_end(&r->stream, &r->out);
    TRY(show(r));
    return rc < 0 ? rc : check_end(r);
}

static int run_decode(const struct tokenizer *t)
{
    struct id_reader reader = {.in_number = false};
    tokenizer_stream_start(&reader.stream, t, 0);
    int rc = decode_blocks(&reader);
    free(reader.out.bytes);
    return rc;
}

int cmd_tokenize(int argc, char **argv)
{
    struct tokenize_cli cli = {.json = false};
    const char *path = NULL;
    struct tokenizer *t;
    bool help;
    TRY(options_parse(&command_tokenize, &cli, argc, argv, &path, &help));
    if (help) {
        options_help(stdout, &command_tokenize);
        return output_flush_stdout();
    }
    if (cli.decode && (cli.split || cli.allow_special)) {
        return err_set(ERR_USAGE, "tokenize: --decode goes with neither --split nor "
                       "--allow-special");
    }
    TRY(tokenizer_open(path, &t));
    if (tokenizer_count(t) != K3_TOKENS) {
        fprintf(stderr, "tokenize: note: %u tokens, Kimi K3 has %u\n", tokenizer_count(t),
                K3_TOKENS);
    }
    int rc = cli.decode ? run_decode(t) : run_encode(t, &cli);
    tokenizer_close(t);
    return rc;
}
