/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/run_state.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

/* The state's ids, then the prompt's. */
static int join_ids(struct run_state *s, struct prompt *prompt)
{
    uint64_t count = (uint64_t)s->loaded.id_count + prompt->count;
    if (count > UINT32_MAX) {
        return err_set(ERR_FIT, "the state and the prompt have more than 2^32 tokens");
    }
    if (count == s->loaded.positions) {
        return err_set(ERR_USAGE, "--load-state: %s holds all of its %u ids, and nothing follows: "
                       "give a prompt too", s->cli->load, s->loaded.positions);
    }
    uint32_t *ids = realloc(s->loaded.ids, count * sizeof *ids);
    if (ids == NULL) {
        return err_set(ERR_MEMORY, "no memory for %llu ids", (unsigned long long)count);
    }
    if (prompt->count > 0) {
        memcpy(ids + s->loaded.id_count, prompt->ids, prompt->count * sizeof *ids);
    }
    free(prompt->ids);
    prompt->ids = ids;
    prompt->count = (uint32_t)count;
    s->loaded.ids = NULL;
    return 0;
}

/* A state of text goes on as text. */
static int open_tokenizer(const struct prompt_cli *cli, const char *dir, struct prompt *prompt)
{
    return tokenizer_open(cli->tokenizer != NULL ? cli->tokenizer : dir, &prompt->tokenizer);
}

int run_state_open(struct run_state *s, const struct run_state_cli *cli,
                   const struct prompt_cli *prompt_cli, const char *dir, struct prompt *prompt)
{
    *s = (struct run_state){.cli = cli};
    *prompt = (struct prompt){.ids = NULL};
    if (cli->load == NULL || prompt_given(prompt_cli)) {
        TRY(prompt_read(prompt, prompt_cli, dir, NULL));
    }
    if (cli->load != NULL) {
        TRY(saved_state_open(&s->loaded, cli->load));
        if (!prompt_given(prompt_cli) && s->loaded.tag != SAVED_IDS) {
            TRY(open_tokenizer(prompt_cli, dir, prompt));
        }
        TRY(join_ids(s, prompt));
    }
    if (cli->save == NULL) {
        return 0;
    }
    TRY(output_check_regular("save-state", cli->save));
    return output_open(&s->out, cli->save);
}

void run_state_request(const struct run_state *s, const struct prompt *prompt,
                       struct generate_request *request)
{
    uint32_t held = s->loaded.positions;
    request->resume = s->cli->load != NULL;
    request->past = prompt->ids;
    request->past_count = held;
    request->ids = prompt->ids + held;
    request->id_count = prompt->count - held;
}

int run_state_load(const struct run_state *s, struct engine *e)
{
    if (s->cli->load == NULL) {
        return 0;
    }
    TRY(saved_state_load(&s->loaded, e));
    if (!s->quiet) {
        fprintf(stderr, "k3ring: state %s: %u positions loaded\n", s->cli->load,
                s->loaded.positions);
    }
    return 0;
}

static int write_state(struct run_state *s, struct engine *e, const struct saved_extra *extra)
{
    TRY(saved_state_write(e, extra, s->out.file));
    TRY(output_commit(&s->out));
    s->saved = true;
    s->saved_positions = engine_position(e);
    s->saved_ids = extra->id_count;
    if (!s->quiet) {
        fprintf(stderr, "k3ring: state %s: %u positions saved, %u ids to be read next\n",
                s->cli->save, s->saved_positions, s->saved_ids - s->saved_positions);
    }
    return 0;
}

/* What the history for drafts took is free again: the account has room for a list of all ids. */
static int write_ids(struct run_state *s, struct engine *e, const struct prompt *prompt,
                     const struct generate_result *made)
{
    uint64_t count = (uint64_t)prompt->count + made->count;
    uint32_t *ids = malloc(count * sizeof *ids);
    if (ids == NULL) {
        return err_set(ERR_MEMORY, "no memory for the %llu ids of the state",
                       (unsigned long long)count);
    }
    memcpy(ids, prompt->ids, prompt->count * sizeof *ids);
    memcpy(ids + prompt->count, made->ids, made->count * sizeof *ids);
    struct saved_extra extra = {.tag = prompt->tokenizer != NULL ? SAVED_TEXT : SAVED_IDS,
                                .ids = ids, .id_count = (uint32_t)count};
    int rc = write_state(s, e, &extra);
    free(ids);
    return rc;
}

int run_state_save(struct run_state *s, struct engine *e, const struct prompt *prompt,
                   const struct generate_result *made, int rc)
{
    if (s->out.file == NULL || (rc < 0 && rc != ERR_STOPPED)) {
        return rc;
    }
    int save_rc = write_ids(s, e, prompt, made);
    return rc < 0 ? rc : save_rc;
}

void run_state_json(const struct run_state *s, cJSON *root)
{
    if (s->cli->load == NULL && !s->saved) {
        return;
    }
    cJSON *state = cJSON_AddObjectToObject(root, "state");
    if (s->cli->load != NULL) {
        cJSON_AddNumberToObject(state, "loaded_positions", s->loaded.positions);
    }
    if (s->saved) {
        cJSON_AddNumberToObject(state, "saved_positions", s->saved_positions);
        cJSON_AddNumberToObject(state, "saved_ids", s->saved_ids);
    }
}

void run_state_close(struct run_state *s)
{
    output_abandon(&s->out);
    saved_state_close(&s->loaded);
}
