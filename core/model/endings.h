/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_ENDINGS_H
#define MODEL_ENDINGS_H

/* The ids that end what a model makes, as its files name them. They need not agree: all count. */

#include "core/model/tokenizer.h"

/* Appends, each once, ids of eos_token_id in config.json (also below text_config) and
 * generation_config.json, be it one or a list, and the id of eos_token in tokenizer_config.json. A
 * file or an entry that is not there adds nothing. ERR_MODEL for a file that is no JSON, an id that
 * is none, or one that is not below vocab; ERR_IO, ERR_MEMORY. free() ids->ids, also after a
 * failure. */
int model_endings(const char *dir, uint32_t vocab, struct token_list *ids);

#define ENDINGS_ANY UINT32_MAX /* for vocab: ids that no model makes do no harm */

bool token_list_has(const struct token_list *list, uint32_t id);

#endif
