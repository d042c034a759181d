/* SPDX-License-Identifier: Apache-2.0 */
/* What headers, index and folder tell, beyond what opening a model insists on. */
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/cli/verify.h"
#include "core/model/pack.h"

typedef unsigned long long ull; /* for printing */

static double gb(uint64_t bytes)
{
    return (double)bytes / 1e9;
}

static uint64_t files_bytes(const struct model *model)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < model->file_count; i++) {
        bytes += model->files[i].size_bytes;
    }
    return bytes;
}

static void say_model(struct verify *v)
{
    const struct model_config *c = &v->model->config;
    verify_say(v, VERIFY_OK, "config", "%u layers of width %u, %u experts (%u a token), %u tokens "
               "of vocabulary", c->layers, c->hidden, c->experts, c->experts_per_token, c->vocab);
}

static void say_sizes(struct verify *v)
{
    const struct model_survey *s = &v->survey;
    verify_say(v, VERIFY_OK, "sizes", "%u shards, %llu bytes (%.3f GB): %llu of headers, %llu of "
               "tensors; each ends where its last tensor does, none overlap",
               v->model->file_count, (ull)files_bytes(v->model), gb(files_bytes(v->model)),
               (ull)s->header_bytes, (ull)s->tensor_bytes);
    if (s->shards_claimed > 0 && s->shards_claimed != v->model->file_count) {
        /* synth may leave layers out and keeps the names. */
        verify_say(v, v->model->synthetic ? VERIFY_NOTE : VERIFY_BAD, "sizes", "the names of the "
                   "shards say there are %u, the model has %u%s", s->shards_claimed,
                   v->model->file_count, v->model->synthetic ? "" : ": fetch the others");
    }
    if (s->gaps.count > 0) {
        verify_say(v, VERIFY_NOTE, "gaps", "%llu bytes in %llu places belong to no tensor, first "
                   "in %s: nothing reads them, other programs may refuse such a file",
                   (ull)s->gap_bytes, (ull)s->gaps.count, s->gaps.first);
    }
}

static void say_tensors(struct verify *v)
{
    const struct model_survey *s = &v->survey;
    verify_say(v, VERIFY_OK, "tensors", "%llu of the model (%.3f GB): all that config.json asks "
               "for, none twice, of the right shape and type; %llu others, which nothing reads",
               (ull)v->model->tensor_count, gb(v->model->total_bytes),
               (ull)v->model->skipped_count);
    if (s->twice.count > 0) {
        verify_say(v, VERIFY_BAD, "tensors", "%llu tensors are in two files, the first is %s: "
                   "files of two downloads are mixed", (ull)s->twice.count, s->twice.first);
    }
}

static void say_index(struct verify *v)
{
    const struct model_survey *s = &v->survey;
    uint32_t bad = v->count[VERIFY_BAD];
    if (!s->has_index) {
        verify_say(v, VERIFY_NOTE, "index", "there is none: every *.safetensors file of the "
                   "folder counts, and one that is missing shows only by its tensors");
        return;
    }
    if (s->has_total && s->index_total_bytes != s->tensor_bytes) {
        verify_say(v, VERIFY_BAD, "index", "its total_size is %llu but the tensors have %llu "
                   "bytes: index and shards are of different downloads",
                   (ull)s->index_total_bytes, (ull)s->tensor_bytes);
    }
    if (s->index_absent.count > 0) {
        verify_say(v, VERIFY_BAD, "index", "%llu tensors it names are not in the file it says, "
                   "the first is %s", (ull)s->index_absent.count, s->index_absent.first);
    }
    if (s->unnamed > 0) {
        verify_say(v, VERIFY_BAD, "index", "%llu tensors of the shards are not named in it",
                   (ull)s->unnamed);
    }
    if (v->count[VERIFY_BAD] == bad) {
        verify_say(v, VERIFY_OK, "index", "names all %llu tensors and the file each is in%s",
                   (ull)s->index_tensors, s->has_total ? "; its total_size is right"
                                                       : "; it has no total_size");
    }
}

static void say_pack(struct verify *v)
{
    const struct model_pack *pack = v->model->pack;
    verify_say(v, VERIFY_OK, "pack", "of %s: %u files, %llu bytes (%.3f GB), %u tiles in pieces "
               "of %llu bytes, experts %s; manifest, heads and sizes agree", pack->source,
               v->model->file_count, (ull)files_bytes(v->model), gb(files_bytes(v->model)),
               pack->tile_count, (ull)pack->tile_bytes,
               pack->experts_in_source ? "left in the source" : "inside");
    verify_say(v, VERIFY_NOTE, "pack", "what tiles hold is proved by: k3ring pack --verify %s",
               v->dir);
}

static void say_folder(struct verify *v)
{
    const struct model_survey *s = &v->survey;
    if (s->partial.count > 0) {
        verify_say(v, VERIFY_NOTE, "folder", "%llu files look like downloads that did not end, "
                   "the first is %s", (ull)s->partial.count, s->partial.first);
    }
    if (s->ignored.count > 0) {
        verify_say(v, VERIFY_NOTE, "folder", "%llu *.safetensors files are not of the model, the "
                   "first is %s: nothing reads them", (ull)s->ignored.count, s->ignored.first);
    }
    uint64_t rest = s->others.count - s->partial.count - s->ignored.count;
    if (rest > 0) {
        verify_say(v, VERIFY_NOTE, "folder", "%llu other files (%.3f GB with those above), such "
                   "as %s", (ull)rest, gb(s->other_bytes), s->others.first);
    }
}

static int say_text(struct verify *v)
{
    char *path = path_join(v->dir, "tiktoken.model");
    if (path == NULL) {
        return ERR_MEMORY;
    }
    if (!file_exists(path)) {
        verify_say(v, VERIFY_NOTE, "text", "there is no tiktoken.model: prompts are ids, or name "
                   "one with --tokenizer");
    }
    free(path);
    if (v->model->synthetic) {
        verify_say(v, VERIFY_NOTE, "model", "its weights are synthetic: made by k3ring synth");
    }
    return 0;
}

int verify_structure(struct verify *v)
{
    if (v->model == NULL) {
        return 0;
    }
    int rc = survey_model(v->model, &v->survey);
    if (rc == ERR_MEMORY) {
        return rc;
    }
    if (rc < 0) { /* it was well when the model was opened, a moment ago */
        verify_fail(v, rc, "model", "%s", err_message());
        err_clear();
        return 0;
    }
    say_model(v);
    if (v->model->pack != NULL) {
        say_pack(v);
    } else {
        say_sizes(v);
        say_tensors(v);
        say_index(v);
    }
    say_folder(v);
    return say_text(v);
}
