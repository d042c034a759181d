/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/commands.h"

const struct subcommand subcommands[] = {
    {&command_run, cmd_run, "run a model: text in, text out, or token ids"},
    {&command_chat, cmd_chat, "talk with a model, on a terminal or through a pipe"},
    {&command_batch, cmd_batch, "run many prompts together, one pass of the weights for all"},
    {&command_score, cmd_score, "how likely a model finds a text: perplexity and log "
     "probabilities"},
    {&command_bench, cmd_bench, "benchmark a drive with real inference: reads gate kernels"},
    {&command_plan, cmd_plan, "explain what a run would read, pin and keep, without reading "
     "weights"},
    {&command_pack, cmd_pack, "write a smaller, run-ready copy of a model, or prove one"},
    {&command_verify, cmd_verify, "whether a model is complete, undamaged, and computes what it "
     "should"},
    {&command_doctor, cmd_doctor, "what this machine and its drives make of a model, and what to "
     "change"},
    {&command_replay, cmd_replay, "replay recorded routing: cache policies, or its reads on a "
     "drive"},
    {&command_compare, cmd_compare, "what changed between measurements, and whether it is real"},
    {&command_synth, cmd_synth, "write a synthetic checkpoint in the released layout"},
    {&command_tokenize, cmd_tokenize, "turn text into token ids, or ids into text"},
};

const uint32_t subcommand_count = countof(subcommands);
