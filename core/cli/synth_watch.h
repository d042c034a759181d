/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SYNTH_WATCH_H
#define CLI_SYNTH_WATCH_H

/* Synthetic checkpoints for commands that talk, and of a size that fits. */

#include "core/cli/synth.h"

/* synth_write() with a line of progress, which a signal stops, and what came of it on stderr. */
int synth_watched(const char *dir, const struct synth_options *options, bool quiet);

/* Full widths, with as many layers, experts and ids as size_bytes hold: options for
 * SYNTH_K3, and the bytes they come to. Layers keep their proportions: one in four is MLA, the
 * first dense. ERR_USAGE names the least size. */
int synth_fit(uint64_t size_bytes, struct synth_options *options, uint64_t *bytes);

#endif
