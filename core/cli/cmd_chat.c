/* SPDX-License-Identifier: Apache-2.0 */
/* k3ring chat: a conversation, turn by turn. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/utf8.h"
#include "core/cli/chat.h"
#include "core/cli/commands.h"
#include "core/cli/prompt.h"
#include "core/cli/report.h"
#include "core/cli/signals.h"
#include "core/cli/terminal.h"
#include "core/cli/text.h"
#include "core/cli/xdg.h"
#include "core/model/endings.h"

#define CONTEXT_AUTO 8192U
#define DRAFT_TOKENS 4U
#define PROMPT_TOKENS 512U          /* a turn may be longer: then it takes more passes */
#define TEXT_BYTES (4 * MIB)        /* tokenizer's pattern, line editing */
#define TEXT_TOKEN_BYTES 32U        /* what is said: as messages, and as JSON once a turn */

static const struct option_row rows[] = {
    {"system", OPTION_TEXT, offsetof(struct chat_cli, system), NULL, 0, 0, NULL, "TEXT",
     "what the model is told before the first turn"},
    {"effort", OPTION_CHOICE, offsetof(struct chat_cli, effort), NULL, 0, 0, "low|high|max|off",
     NULL, "how much it thinks before it answers [max]"},
    {"thinking", OPTION_FLAG, offsetof(struct chat_cli, thinking), NULL, 0, 0, NULL, NULL,
     "it does, without being told how much"},
    {"no-thinking", OPTION_FLAG, offsetof(struct chat_cli, no_thinking), NULL, 0, 0, NULL, NULL,
     "it does not: --effort off"},
    {"tools", OPTION_TEXT, offsetof(struct chat_cli, tools), NULL, 0, 0, NULL, "FILE",
     "a JSON list of tools it may call"},
    {"messages", OPTION_TEXT, offsetof(struct chat_cli, messages), NULL, 0, 0, NULL, "FILE",
     "a conversation as JSON (docs/CHAT.md): answers it once"},
    {"json", OPTION_TEXT, offsetof(struct chat_cli, json), NULL, 0, 0, NULL, "FILE|-",
     "with --messages: the answer as JSON; with - it replaces the text"},
    {"session", OPTION_TEXT, offsetof(struct chat_cli, session), NULL, 0, 0, NULL, "FILE",
     "goes on with the conversation kept there, and keeps it after every turn"},
    {"gen", OPTION_COUNT, offsetof(struct chat_cli, gen), "auto", 1, 1U << 30, "auto", "N|auto",
     "most tokens of an answer; auto: what the context has room for"},
    {"draft", OPTION_CHOICE, offsetof(struct chat_cli, draft), "none", 0, 0, "none|ngram", NULL,
     "try tokens that followed the same ones before, as many as pay; never changes output"},
    {"no-history", OPTION_FLAG, offsetof(struct chat_cli, no_history), NULL, 0, 0, NULL, NULL,
     "keep no file of the lines typed"},
    {"tokenizer", OPTION_TEXT, offsetof(struct chat_cli, tokenizer), NULL, 0, 0, NULL, "FILE",
     "a tiktoken.model elsewhere than with MODEL"},
    SAMPLE_OPTION_ROWS(struct chat_cli, "1", "0.95"),
    ENGINE_OPTION_ROWS(struct chat_cli),
};

const struct command command_chat = {
    "chat", "MODEL [options]",
    "Talks with MODEL: on a terminal, or with a turn per line of standard input.",
    rows, countof(rows), 1, 1};

/* ---- signals ---- */

static _Atomic(struct engine *) running; /* an answer is being made */
static _Atomic bool talking;             /* all is open */
static _Atomic bool busy;                /* what is being done is to be finished */
static _Atomic int interrupts;           /* of this answer */
static _Atomic bool coloured;            /* standard output is a terminal that takes escapes */

static void end_at_once(int number)
{
    static const char line[] = "\033[0m\n";
    output_remove_temporaries();
    if (atomic_load(&coloured)) {
        (void)!write(STDOUT_FILENO, line, sizeof line - 1);
    }
    line_restore_terminal();
    _exit(128 + number);
}

static void on_end(void)
{
    output_remove_temporaries();
    line_restore_terminal();
}

/* SIGTERM, SIGHUP, SIGPIPE, and without a terminal SIGINT. */
static void on_signal(void)
{
    struct engine *e = atomic_load(&running);
    if (e != NULL) {
        engine_interrupt(e);
    } else if (!atomic_load(&busy)) {
        end_at_once(signals_caught()); /* waiting for a line: all that was to be kept is */
    }
}

/* Ctrl-C on a terminal drops a line, stops an answer, and the second time in one answer ends. While
 * a drive is measured and a model opened, it ends. */
static void on_interrupt(int number)
{
    struct engine *e = atomic_load(&running);
    if (!atomic_load(&talking)) {
        end_at_once(number);
    }
    if (e == NULL) {
        line_cancel();
        return;
    }
    if (atomic_fetch_add(&interrupts, 1) > 0) {
        end_at_once(number);
    }
    engine_interrupt(e);
}

static void catch_signals(bool terminal)
{
    atomic_store(&coloured, isatty(STDOUT_FILENO) == 1 && terminal_escapes());
    signals_catch(on_signal, on_end);
    if (terminal) {
        struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
        sigemptyset(&action.sa_mask);
        sigaction(SIGINT, &action, NULL);
    }
}

/* ---- answers ---- */

static void on_tick(void *ctx, const struct engine_progress *p)
{
    struct chat_session *s = ctx;
    s->show.stopping = engine_interrupted(s->engine);
    show_progress(&s->show, p);
}

static void on_begin(void *ctx, uint32_t tokens, uint32_t passes)
{
    struct chat_session *s = ctx;
    show_begin(&s->show, tokens, passes);
}

static void on_token(void *ctx)
{
    struct chat_session *s = ctx;
    show_token(&s->show);
}

static bool shows_text(const struct chat_session *s)
{
    return s->cli->json == NULL || strcmp(s->cli->json, "-") != 0;
}

static void on_text(void *ctx, enum chat_channel channel, const char *text, size_t size_bytes)
{
    struct chat_session *s = ctx;
    if (shows_text(s)) {
        show_text(&s->show, channel, text, size_bytes);
    }
}

static void on_call(void *ctx, const struct chat_call *call)
{
    struct chat_session *s = ctx;
    if (shows_text(s)) {
        show_call(&s->show, call);
    }
}

/* Why an answer ended, when not by itself. */
static const char *ended_by(const struct talk_answer *answer)
{
    switch (answer->result.finish) {
    case FINISH_INTERRUPTED:
        return "stopped; the turn is kept";
    case FINISH_CONTEXT:
        return "the context is full: /save keeps the conversation, and a larger --context has room "
               "for more";
    case FINISH_LENGTH:
        return "as long as --gen allows";
    default:
        return NULL;
    }
}

static void count(struct chat_session *s, const struct talk_answer *answer)
{
    s->answers++;
    s->made_tokens += answer->result.count;
    s->read_tokens += answer->read_tokens;
    s->first_ns += answer->result.first_ns;
    s->rest_ns += answer->result.rest_ns;
    s->rest_tokens += answer->result.count > 0 ? answer->result.count - 1 : 0;
}

/* The limit came before a word of the answer. */
static bool is_unanswered(const struct talk *talk, const struct talk_answer *answer)
{
    const struct chat_message *said = &talk->chat.message[talk->chat.count - 1];
    enum finish_reason why = answer->result.finish;
    return (why == FINISH_LENGTH || why == FINISH_CONTEXT) && said->call_count == 0 &&
           (said->part_count == 0 || said->part[0][0] == '\0');
}

/* Who reads a pipe or a file has to know that an answer is none. */
int chat_tell_unanswered(const struct chat_session *s)
{
    bool thinking = s->talk.chat.thinking;
    bool talk = s->lines != NULL && line_terminal(s->lines);
    if (s->unanswered == 0 || talk) {
        return 0;
    }
    return err_set(ERR_RUN, "%u of %u answers were cut before they said anything%s; give a larger "
                   "--gen or --context%s", s->unanswered, s->answers,
                   thinking ? ", still thinking" : "", thinking ? ", or less --effort" : "");
}

static uint32_t drafts(const struct chat_cli *cli)
{
    return cli->draft != 0 ? DRAFT_TOKENS : 0;
}

int chat_answer(struct chat_session *s, struct talk_answer *answer)
{
    const struct chat_events events = {.on_text = on_text, .on_call = on_call, .ctx = s};
    const struct talk_request request = {
        .sample = sampling_wanted(&s->sampling), .events = &events, .on_begin = on_begin,
        .on_token = on_token, .ctx = s, .drafts = drafts(s->cli),
        .gen = s->cli->gen == OPTION_AUTO ? UINT32_MAX : (uint32_t)s->cli->gen};
    atomic_store(&interrupts, 0);
    engine_interrupt_clear(s->engine);
    atomic_store(&running, s->engine);
    if (signals_caught() != 0) {
        engine_interrupt(s->engine);
    }
    int rc = talk_answer(&s->talk, s->engine, &request, answer);
    atomic_store(&running, NULL);
    if (rc < 0) {
        return rc;
    }
    count(s, answer);
    s->unanswered += is_unanswered(&s->talk, answer);
    const char *why = ended_by(answer);
    if (shows_text(s)) {
        show_end(&s->show, why);
    }
    if (why != NULL && !s->show.terminal && !s->cli->engine.quiet) {
        fprintf(stderr, "k3ring: %s\n", why);
    }
    return output_flush_stdout();
}

/* ---- turns ---- */

/* Asks for the next line. */
static int ask(struct chat_session *s, char **text)
{
    char prompt[96] = "> ", name[64];
    const struct chat_call *call;
    if (talk_calls_open(&s->talk, &call) > 0) {
        text_clean(name, sizeof name, call->name);
        snprintf(prompt, sizeof prompt, "result of %s> ", name);
    }
    atomic_store(&busy, false);
    int rc = line_read(s->lines, prompt, &s->line_limit, text);
    atomic_store(&busy, true);
    return rc;
}

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '\0';
}

/* Adds what was said. 1 when the model is to answer it. */
static int take_turn(struct chat_session *s, const char *text)
{
    const struct chat_call *call;
    if (talk_calls_open(&s->talk, &call) > 0) {
        TRY(talk_add_result(&s->talk, text));
        return talk_calls_open(&s->talk, &call) == 0;
    }
    if (is_blank(text)) {
        return 0;
    }
    TRY(chat_add(&s->talk.chat, CHAT_USER, text));
    return 1;
}

/* On a terminal a disk that is full is no reason to stop talking. */
static int keep(struct chat_session *s)
{
    int rc = chat_session_keep(s);
    if (rc < 0 && line_terminal(s->lines)) {
        show_note(&s->show, "this turn is not kept: %s", err_message());
        err_clear();
        rc = 0;
    }
    return rc;
}

/* What does not fit is taken back: the conversation is as it was before it, and the calls of which
 * this is the last result wait for all of theirs. */
static int answer_turn(struct chat_session *s)
{
    struct talk_answer answer;
    struct chat *chat = &s->talk.chat;
    int rc = chat_answer(s, &answer);
    talk_answer_fini(&answer);
    if (rc == 0) {
        return keep(s);
    }
    if (rc == ERR_FIT) {
        bool results = chat->message[chat->count - 1].role == CHAT_TOOL;
        do {
            chat_cut(chat, 1);
        } while (results && chat->count > 0 &&
                 chat->message[chat->count - 1].role == CHAT_TOOL);
        if (line_terminal(s->lines)) {
            show_note(&s->show, "%s; your message is not part of it, /save keeps the rest",
                      err_message());
            err_clear();
            rc = 0;
        }
    }
    return rc;
}

/* One line of input. 1: the end. */
static int one_line(struct chat_session *s, const char *text)
{
    bool terminal = line_terminal(s->lines);
    const struct chat_call *call;
    bool result = talk_calls_open(&s->talk, &call) > 0; /* any text, a path for one */
    if (terminal && !result && text[0] == '/' && text[1] != '/') {
        return chat_command(s, text);
    }
    int rc = take_turn(s, terminal && !result && text[0] == '/' ? text + 1 : text);
    return rc == 1 ? answer_turn(s) : rc;
}

static int talk_on(struct chat_session *s)
{
    int rc = 0;
    atomic_store(&talking, true);
    while (rc == 0 && signals_caught() == 0) {
        char *text;
        rc = ask(s, &text);
        if (rc == LINE_CANCELLED) {
            show_note(&s->show, "(Ctrl-D or /exit ends)");
            rc = 0;
        } else if (rc == LINE_TEXT) {
            rc = one_line(s, text);
        } else if (rc == LINE_END) {
            rc = 1;
        }
        free(text);
    }
    if (rc >= 0 && signals_caught() != 0) {
        return err_set(ERR_STOPPED, "stopped");
    }
    return rc < 0 ? rc : 0;
}

/* ---- opening ---- */

/* What was asked for; in a conversation that had begun otherwise it is read again. */
static int choose_effort(struct chat_session *s)
{
    static const char *const words[] = {"low", "high", "max", "off"};
    const struct chat_cli *cli = s->cli;
    struct chat *chat = &s->talk.chat;
    bool off = cli->no_thinking || cli->effort == 3;
    const char *before = chat_effort_word(chat);
    if ((cli->thinking && off) || (cli->no_thinking && cli->effort < 3)) {
        return err_set(ERR_USAGE, "--thinking, --no-thinking and --effort say different things; "
                       "give one");
    }
    if (cli->effort != CHAT_UNSET) {
        chat_set_effort(chat, words[cli->effort]);
    } else if (cli->thinking) {
        chat->thinking = true;
        chat->effort = CHAT_EFFORT_NONE;
    }
    chat->thinking = chat->thinking && !off;
    s->reread = strcmp(before, chat_effort_word(chat)) != 0;
    return 0;
}

static int read_tools(struct chat_session *s)
{
    struct file_text file;
    TRY(chat_read_file(s->cli->tools, "--tools", &s->file_limit, &file));
    int rc = chat_read_tools(&s->talk.chat, file.text, file.size_bytes, s->cli->tools);
    file_text_free(&file);
    return rc;
}

static int check_options(const struct chat_cli *cli)
{
    if (cli->json != NULL && cli->messages == NULL) {
        return err_set(ERR_USAGE, "--json: give --messages FILE too; a conversation is kept by "
                       "/save");
    }
    if (cli->system != NULL && !utf8_whole(cli->system, strlen(cli->system))) {
        return err_set(ERR_USAGE, "--system: is not UTF-8");
    }
    if (cli->messages != NULL && (cli->system != NULL || cli->session != NULL)) {
        return err_set(ERR_USAGE, "--messages: holds the whole conversation; leave --%s out",
                       cli->system != NULL ? "system" : "session");
    }
    return 0;
}

/* All that is said has to fit into the context. */
static void limit_texts(struct chat_session *s, const char *model)
{
    uint64_t ram = s->cli->engine.ram;
    uint32_t longest = tokenizer_longest_bytes(s->tokenizer);
    s->positions = engine_cli_context(&s->cli->engine, model, CONTEXT_AUTO);
    s->line_limit = text_limit_of(TEXT_PLAIN, ram);
    s->file_limit = text_limit_of(TEXT_JSON, ram);
    text_limit_context(&s->line_limit, TEXT_PLAIN, s->positions, longest);
    text_limit_context(&s->file_limit, TEXT_JSON, s->positions, longest);
}

static int prepare(struct chat_session *s, const char *model)
{
    const struct chat_cli *cli = s->cli;
    TRY(check_options(cli));
    TRY(prompt_open_tokenizer(cli->tokenizer, model, &s->tokenizer));
    limit_texts(s, model);
    talk_init(&s->talk, s->tokenizer);
    TRY(model_endings(model, ENDINGS_ANY, &s->talk.ends));
    TRY(sampling_open(&s->sampling, &cli->sample));
    if (cli->tools != NULL) {
        TRY(read_tools(s));
    }
    if (cli->messages != NULL) {
        TRY(chat_load(s, "--messages", cli->messages));
    }
    if (cli->messages != NULL && s->talk.chat.count == 0) {
        return err_set(ERR_USAGE, "%s: holds no message to answer", cli->messages);
    }
    TRY(chat_session_read(s, model));
    TRY(choose_effort(s));
    if (cli->system != NULL) {
        TRY(chat_add(&s->talk.chat, CHAT_SYSTEM, cli->system));
    }
    return cli->json != NULL ? output_open(&s->json, cli->json) : 0;
}

static int check_tokenizer(const struct chat_session *s)
{
    uint32_t vocab = engine_model(s->engine)->config.vocab;
    uint32_t tokens = tokenizer_count(s->tokenizer);
    return tokens <= vocab ? 0
                           : err_set(ERR_MODEL, "the tokenizer has %u tokens and the model %u: its "
                                     "control tokens are not the model's; give the tiktoken.model "
                                     "of the checkpoint", tokens, vocab);
}

static int open_engine(struct chat_session *s, const char *model)
{
    struct engine_options options;
    uint64_t positions = s->positions;
    TRY(engine_cli_options(&s->cli->engine, (uint32_t)min_u64(positions, PROMPT_TOKENS), positions,
                           &options));
    options.caller_bytes += tokenizer_resident_bytes(s->tokenizer) + TEXT_BYTES +
                            TEXT_TOKEN_BYTES * positions;
    options.drafts = drafts(s->cli);
    options.caller_bytes += s->resumed ? saved_state_resident_bytes(&s->saved) : 0;
    if (sampling_wanted(&s->sampling) != NULL) {
        options.caller_token_bytes += SAMPLE_TOKEN_BYTES;
    }
    TRY(tuning_settle(&s->cli->engine, model, &options, &s->progress, &s->tuning));
    progress_begin(&s->progress, "opening", s->cli->engine.quiet);
    progress_show(&s->progress, 0, 0, model);
    int rc = engine_open(&s->engine, model, &options);
    progress_clear(&s->progress);
    TRY(rc);
    TRY(sample_check(&s->sampling.options, engine_model(s->engine)->config.vocab));
    TRY(check_tokenizer(s));
    return chat_session_load(s);
}

static void greet(struct chat_session *s)
{
    char text[256];
    if (s->cli->engine.quiet) {
        return;
    }
    report_settings(s->engine);
    sampling_text(&s->sampling, text, sizeof text);
    fprintf(stderr, "k3ring: sampling: %s\n", text);
    if (s->lines == NULL || !line_terminal(s->lines)) {
        return;
    }
    show_note(&s->show, "%u positions of context, effort %s. /help lists commands, Ctrl-C stops an "
              "answer, Ctrl-D ends.", engine_plan_of(s->engine)->request.context,
              chat_effort_word(&s->talk.chat));
}

static int open_and_talk(struct chat_session *s, const char *model)
{
    char *history = s->cli->no_history ? NULL : xdg_path(XDG_STATE, "chat_history");
    int rc = s->cli->messages == NULL ? line_open(&s->lines, history) : 0;
    free(history);
    TRY(rc);
    catch_signals(s->lines != NULL && line_terminal(s->lines));
    TRY(prepare(s, model));
    TRY(open_engine(s, model));
    show_open(&s->show, s->cli->engine.quiet);
    engine_on_tick(s->engine, on_tick, s);
    greet(s);
    if (s->cli->messages != NULL) {
        rc = chat_once(s);
        rc = rc == 0 && signals_caught() != 0 ? err_set(ERR_STOPPED, "stopped") : rc;
    } else {
        rc = talk_on(s);
    }
    return rc == 0 ? chat_tell_unanswered(s) : rc;
}

int cmd_chat(int argc, char **argv)
{
    struct chat_cli cli = {.effort = CHAT_UNSET};
    const char *model;
    bool help;
    TRY(options_parse(&command_chat, &cli, argc, argv, &model, &help));
    if (help) {
        options_help(stdout, &command_chat);
        return output_flush_stdout();
    }
    struct chat_session s = {.cli = &cli};
    atomic_store(&busy, true);
    const char *const inputs[] = {cli.messages, cli.tools, cli.tokenizer, cli.sample.logit_bias,
                                  cli.engine.paranoid};
    int rc = output_spare_model(model);
    rc = rc == 0 ? output_spare_inputs(inputs, countof(inputs)) : rc;
    rc = rc == 0 ? open_and_talk(&s, model) : rc;
    engine_close(s.engine);
    saved_state_close(&s.saved);
    output_abandon(&s.json);
    line_close(s.lines);
    talk_fini(&s.talk);
    sampling_close(&s.sampling);
    tokenizer_close(s.tokenizer);
    return rc;
}
