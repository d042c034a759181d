/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/score_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/memory.h"
#include "core/cli/output.h"
#include "core/cli/text.h"

/* Of all tokens that were scored. */
struct figures {
    double nll;           /* nats per token */
    double perplexity;
    uint64_t bytes;       /* of their text */
    double bits_per_byte; /* NAN when nothing is known of bytes */
    double seconds, tokens_per_second;
};

static const unsigned char *token_bytes(const struct score_report *r, uint32_t at, size_t *size)
{
    *size = 0;
    return r->tokenizer != NULL
               ? tokenizer_token(r->tokenizer, r->request->ids[at], size, NULL) : NULL;
}

static struct figures figures_of(const struct score_report *r)
{
    const struct score_result *s = r->result;
    struct figures f = {.nll = s->scored > 0 ? s->nats / s->scored : NAN,
                        .seconds = (double)s->took_ns / 1e9};
    for (uint32_t at = 1; at <= s->scored; at++) {
        size_t size;
        token_bytes(r, at, &size);
        f.bytes += size;
    }
    f.perplexity = s->scored > 0 ? logprob_exp(f.nll) : NAN;
    f.bits_per_byte = f.bytes > 0 ? logprob_bits(s->nats) / (double)f.bytes : NAN;
    f.tokens_per_second = f.seconds > 0 ? s->scored / f.seconds : NAN;
    return f;
}

void score_report_line(const struct score_report *r)
{
    struct figures f = figures_of(r);
    printf("perplexity %.6g, %.6g nats per token", f.perplexity, f.nll);
    if (f.bytes > 0) {
        printf(", %.6g bits per byte", f.bits_per_byte);
    }
    printf(" (%u tokens scored)\n", r->result->scored);
}

void score_report_talk(const struct score_report *r)
{
    const struct score_result *s = r->result;
    struct figures f = figures_of(r);
    uint64_t bytes = 0;
    for (int i = 0; i < READ_CLASSES; i++) {
        bytes += r->run->stats.class[i].bytes;
    }
    fprintf(stderr, "k3ring: %u window%s of at most %u tokens, %u apart; %u pass%s of at most %u "
            "tokens, %.3f s (%.3f tokens/s), read %.3f GB; peak %.1f MiB of %.1f MiB\n",
            s->windows, s->windows == 1 ? "" : "s", r->request->window, r->request->stride,
            s->passes, s->passes == 1 ? "" : "es",
            engine_plan_of(r->run->engine)->chunk, f.seconds, f.tokens_per_second,
            (double)bytes / 1e9, (double)memory_status("VmHWM:") / (double)MIB,
            (double)r->run->facts.ram_bytes / (double)MIB);
}

/* JSON knows no infinity and no NaN. */
static void add_real(cJSON *object, const char *name, double value)
{
    cJSON_AddItemToObject(object, name,
                          isfinite(value) ? cJSON_CreateNumber(value) : cJSON_CreateNull());
}

static cJSON *head(const struct score_report *r)
{
    const struct score_result *s = r->result;
    struct figures f = figures_of(r);
    char hash[65];
    cJSON *root = cJSON_CreateObject();
    generate_hash_text(s->hash, hash);
    add_real(root, "perplexity", f.perplexity);
    add_real(root, "nll", f.nll);
    add_real(root, "nll_sum", s->nats);
    add_real(root, "bits_per_byte", f.bits_per_byte);
    cJSON_AddNumberToObject(root, "token_count", r->request->id_count);
    cJSON_AddNumberToObject(root, "scored", s->scored);
    add_real(root, "bytes_scored", r->tokenizer != NULL ? (double)f.bytes : NAN);
    cJSON_AddStringToObject(root, "logits_hash", hash);
    cJSON_AddNumberToObject(root, "window", r->request->window);
    cJSON_AddNumberToObject(root, "stride", r->request->stride);
    cJSON_AddNumberToObject(root, "windows", s->windows);
    cJSON_AddNumberToObject(root, "positions", (double)s->positions);
    cJSON_AddNumberToObject(root, "seconds", f.seconds);
    add_real(root, "tokens_per_second", f.tokens_per_second);
    if (r->run->error != NULL) {
        cJSON_AddStringToObject(root, "error", r->run->error);
    }
    report_engine_json(root, r->run);
    return root;
}

static int put_token(const struct score_report *r, uint32_t at, FILE *out)
{
    size_t size;
    const unsigned char *bytes = token_bytes(r, at, &size);
    fprintf(out, "%s\n\t\t{\"id\": %u", at > 0 ? "," : "", r->request->ids[at]);
    if (bytes != NULL) {
        char *text = text_json(bytes, size);
        if (text == NULL) {
            return err_set(ERR_MEMORY, "no memory for the report");
        }
        fprintf(out, ", \"text\": %s", text);
        free(text);
    }
    if (at > 0 && at <= r->result->scored) {
        fprintf(out, ", \"logprob\": %.17g}", r->result->logprob[at]);
    } else {
        fputs(", \"logprob\": null}", out);
    }
    return 0;
}

int score_report_json(const struct score_report *r, FILE *out)
{
    char *text = output_json_text(head(r));
    size_t length = text != NULL ? strlen(text) : 0;
    if (length < 3) {
        cJSON_free(text);
        return err_set(ERR_MEMORY, "no memory for the report");
    }
    /* "{...\n}": the list goes before what closes the object. */
    fwrite(text, 1, length - 2, out);
    cJSON_free(text);
    fputs(",\n\t\"tokens\":\t[", out);
    for (uint32_t at = 0; at < r->request->id_count; at++) {
        TRY(put_token(r, at, out));
    }
    fputs("\n\t]\n}\n", out);
    return 0;
}
