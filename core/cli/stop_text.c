/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/stop_text.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

int stop_text_check(const char *name, const struct option_list *texts)
{
    for (uint32_t i = 0; i < texts->count; i++) {
        if (texts->item[i][0] == '\0') {
            return err_set(ERR_USAGE, "--%s: an empty text would end the run before it begins",
                           name);
        }
    }
    return 0;
}

void stop_text_start(struct stop_text *s, const struct option_list *texts)
{
    *s = (struct stop_text){.texts = texts};
}

void stop_text_fini(struct stop_text *s)
{
    free(s->held.bytes);
    *s = (struct stop_text){.texts = NULL};
}

/* The longest text that ends exactly behind the first `end` bytes held. */
static const char *ends_here(const struct stop_text *s, size_t end)
{
    const char *best = NULL;
    for (uint32_t i = 0; i < s->texts->count; i++) {
        const char *text = s->texts->item[i];
        size_t length = strlen(text);
        if (length <= end && memcmp(s->held.bytes + end - length, text, length) == 0 &&
            (best == NULL || length > strlen(best))) {
            best = text;
        }
    }
    return best;
}

/* Most bytes at the end of what is held that a text begins with. */
static size_t begun(const struct stop_text *s)
{
    size_t most = 0;
    for (uint32_t i = 0; i < s->texts->count; i++) {
        const char *text = s->texts->item[i];
        size_t size = min_u64(strlen(text) - 1, s->held.count);
        while (size > most && memcmp(s->held.bytes + s->held.count - size, text, size) != 0) {
            size--;
        }
        most = size > most ? size : most;
    }
    return most;
}

/* Shows the first count bytes held. */
static int show(struct stop_text *s, size_t count, struct byte_list *out)
{
    TRY(byte_list_append(out, s->held.bytes, count));
    s->held.count -= count;
    memmove(s->held.bytes, s->held.bytes + count, s->held.count);
    return 0;
}

int stop_text_push(struct stop_text *s, const unsigned char *bytes, size_t count,
                   struct byte_list *out)
{
    size_t known = s->held.count; /* no text ends within them */
    assert(s->found == NULL);
    if (s->texts->count == 0 || count == 0) {
        return byte_list_append(out, bytes, count);
    }
    TRY(byte_list_append(&s->held, bytes, count));
    for (size_t end = known + 1; end <= s->held.count; end++) {
        s->found = ends_here(s, end);
        if (s->found != NULL) {
            TRY(byte_list_append(out, s->held.bytes, end - strlen(s->found)));
            s->held.count = 0;
            return 0;
        }
    }
    return show(s, s->held.count - begun(s), out);
}

int stop_text_end(struct stop_text *s, struct byte_list *out)
{
    return s->held.count > 0 ? show(s, s->held.count, out) : 0;
}
