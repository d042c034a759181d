/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/cli/signals.h"
#include "core/cli/text_limit.h"
#include "core/model/chat.h"
#include "core/model/model.h"

#define READ_BYTES 65536U

/* All there is to read, or ERR_FIT. */
static int read_all(int fd, const char *called, const char *name, const struct text_limit *limit,
                    struct byte_list *text)
{
    for (ssize_t got = 1; got != 0;) {
        if (text->capacity - text->count < READ_BYTES) {
            text->capacity = 2 * text->capacity + READ_BYTES;
            unsigned char *grown = realloc(text->bytes, text->capacity);
            if (grown == NULL) {
                return err_set(ERR_MEMORY, "no memory for the text in %s", name);
            }
            text->bytes = grown;
        }
        got = read(fd, text->bytes + text->count, READ_BYTES);
        if (got < 0 && errno != EINTR) {
            return err_set(ERR_IO, "%s: %s cannot be read: %s", called, name, strerror(errno));
        }
        text->count += got > 0 ? (size_t)got : 0;
        if (text->count > limit->bytes) {
            return text_limit_check(limit, called, name, 0);
        }
    }
    return 0;
}

/* A file's size is known before it is read. */
static int check_size(int fd, const char *called, const char *name,
                      const struct text_limit *limit)
{
    struct stat status;
    off_t at = lseek(fd, 0, SEEK_CUR); /* of standard input some may have been read */
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || at < 0 || at >= status.st_size) {
        return 0;
    }
    return text_limit_check(limit, called, name, (uint64_t)(status.st_size - at));
}

static int read_whole(const char *path, const char *called, const struct text_limit *limit,
                      struct byte_list *text)
{
    bool standard = strcmp(path, "-") == 0;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return err_set(ERR_IO, "%s: %s cannot be opened: %s; give a file that can be read, or - "
                       "for standard input", called, path, strerror(errno));
    }
    const char *name = standard ? "standard input" : path;
    int rc = check_size(fd, called, name, limit);
    rc = rc == 0 ? read_all(fd, called, name, limit, text) : rc;
    if (!standard) {
        close(fd);
    }
    return rc;
}

/* Who types a text, or writes into a pipe, takes as long as it takes. */
static int read_file(const struct prompt_cli *cli, struct byte_list *text)
{
    const char *called = cli->file_called != NULL ? cli->file_called : "--prompt-file";
    const struct text_limit limit = text_limit_of(TEXT_PLAIN, cli->ram_bytes);
    int rc = signals_wait_begin();
    rc = rc == 0 ? read_whole(cli->file, called, &limit, text) : rc;
    signals_wait_end();
    return rc;
}

int prompt_open_tokenizer(const char *given, const char *dir, struct tokenizer **out)
{
    if (given != NULL) {
        return tokenizer_open(given, out);
    }
    TRY(model_folder_check(dir));
    char *file = path_join(dir, TOKENIZER_FILE);
    int rc = file == NULL ? ERR_MEMORY : 0;
    if (rc == 0 && !file_exists(file)) {
        rc = err_set(ERR_MODEL, "%s: holds no " TOKENIZER_FILE ", which text needs: fetch it, or "
                     "name one by --tokenizer FILE (k3ring run --ids takes token ids instead)",
                     dir);
    }
    free(file);
    return rc < 0 ? rc : tokenizer_open(dir, out);
}

/* A first turn, up to where the answer begins. */
static int encode_turn(const struct prompt *prompt, const struct prompt_cli *cli,
                       const struct byte_list *text, struct token_list *list)
{
    struct chat chat;
    if (memchr(text->bytes, '\0', text->count) != NULL) {
        return err_set(ERR_USAGE, "--chat: the prompt holds a zero byte; give text");
    }
    char *turn = strndup((const char *)text->bytes, text->count);
    if (turn == NULL) {
        return err_set(ERR_MEMORY, "no memory for the prompt");
    }
    chat_init(&chat);
    chat.thinking = cli->effort != PROMPT_EFFORT_OFF;
    chat.effort = chat.thinking ? (enum chat_effort)(CHAT_EFFORT_LOW + cli->effort)
                                : CHAT_EFFORT_NONE;
    int rc = chat_add(&chat, CHAT_USER, turn);
    rc = rc == 0 ? chat_render(&chat, prompt->tokenizer, list) : rc;
    chat_fini(&chat);
    free(turn);
    return rc;
}

static int encode(struct prompt *prompt, const struct prompt_cli *cli, const char *dir,
                  const struct byte_list *text)
{
    struct token_list list = {0};
    if (text->count == 0) {
        return err_set(ERR_USAGE, "the text is empty; a model needs one token at least");
    }
    TRY(prompt_open_tokenizer(cli->tokenizer, dir, &prompt->tokenizer));
    int rc = cli->chat ? encode_turn(prompt, cli, text, &list)
                       : tokenizer_encode(prompt->tokenizer, text->bytes, text->count, 0, &list);
    prompt->ids = list.ids;
    if (rc == 0 && list.count > UINT32_MAX) {
        rc = err_set(ERR_FIT, "the prompt has more than 2^32 tokens");
    }
    prompt->count = (uint32_t)list.count;
    return rc;
}

bool prompt_given(const struct prompt_cli *cli)
{
    return cli->ids != NULL || cli->text != NULL || cli->file != NULL;
}

int prompt_settle_effort(struct prompt_cli *cli)
{
    if (cli->effort == PROMPT_EFFORT_UNSET) {
        cli->effort = PROMPT_EFFORT_MAX;
        return 0;
    }
    return cli->chat ? 0 : err_set(ERR_USAGE, "--effort: says how much a model thinks before it "
                                   "answers; give --chat too, or leave it out");
}

int prompt_read(struct prompt *prompt, const struct prompt_cli *cli, const char *dir,
                const char *fallback)
{
    struct byte_list text = {0};
    int given = (cli->ids != NULL) + (cli->text != NULL) + (cli->file != NULL);
    *prompt = (struct prompt){.ids = NULL};
    if (given > 1) {
        return err_set(ERR_USAGE, "give one of --ids, --prompt and --prompt-file");
    }
    if (cli->chat && cli->ids != NULL) {
        return err_set(ERR_USAGE, "--chat: give --prompt or --prompt-file; ids are taken as they "
                       "are");
    }
    if (cli->text != NULL) {
        const struct byte_list given_text = {.bytes = (unsigned char *)(uintptr_t)cli->text,
                                             .count = strlen(cli->text)};
        return encode(prompt, cli, dir, &given_text);
    }
    if (cli->file == NULL) {
        const char *ids = cli->ids != NULL ? cli->ids : fallback;
        return ids != NULL ? options_ids("ids", ids, &prompt->ids, &prompt->count)
                           : err_set(ERR_USAGE, "a prompt is required: give --prompt TEXT, "
                                     "--prompt-file FILE, or --ids LIST, like --ids 3,141,59");
    }
    int rc = read_file(cli, &text);
    rc = rc < 0 ? rc : encode(prompt, cli, dir, &text);
    free(text.bytes);
    return rc;
}

void prompt_fini(struct prompt *prompt)
{
    free(prompt->ids);
    tokenizer_close(prompt->tokenizer);
    *prompt = (struct prompt){.ids = NULL};
}
