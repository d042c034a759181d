/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/engine_options.h"

#include "cache/policy.h"
#include "core/base/err.h"
#include "core/cli/text.h"
#include "core/model/config.h"

#define BYTES_PER_ID 12U /* prompt and made ids, and the history that drafts look into */

void engine_cli_note(const char *line)
{
    fputs("k3ring: ", stderr);
    text_put(stderr, line, NULL, 0, false); /* it may name files */
    fputc('\n', stderr);
}

uint64_t engine_cli_context(const struct engine_cli *cli, const char *dir, uint64_t most)
{
    struct model_config config;
    if (cli->context != OPTION_AUTO) {
        return cli->context;
    }
    if (config_load(dir, &config) < 0) {
        err_clear(); /* whoever opens the model says so */
        return most;
    }
    return min_u64(most, config.context_max);
}

int engine_cli_options(const struct engine_cli *cli, uint32_t prompt_tokens, uint64_t positions,
                       struct engine_options *options)
{
    static const enum isa isas[] = {ISA_AUTO, ISA_SCALAR, ISA_AVX2, ISA_AVX512};
    static const enum io_engine engines[] = {IO_URING, IO_PREAD, IO_SIM};
    if (cli->io_size != OPTION_AUTO && cli->io_size % PAGE_BYTES != 0) {
        return err_set(ERR_USAGE, "--io-size: %llu is not a multiple of 4096",
                       (unsigned long long)cli->io_size);
    }
    if (positions > UINT32_MAX) {
        return err_set(ERR_USAGE, "the prompt and what is to be made exceed 2^32 positions");
    }
    if (cli->context != OPTION_AUTO && cli->context < positions) {
        return err_set(ERR_FIT, "--context %llu is less than the %llu positions of the prompt and "
                       "what is to be made; give --context %llu, or have fewer tokens made",
                       (unsigned long long)cli->context, (unsigned long long)positions,
                       (unsigned long long)positions);
    }
    *options = (struct engine_options){
        .ram_bytes = cli->ram,
        .io_depth = cli->io_depth == OPTION_AUTO ? ENGINE_IO_DEPTH : (uint32_t)cli->io_depth,
        .io_size_bytes = cli->io_size == OPTION_AUTO ? ENGINE_IO_SIZE : cli->io_size,
        .paranoid = cli->paranoid,
        .policy = policy_table[cli->policy]->name,
        .threads = cli->threads == OPTION_AUTO ? 0 : (uint32_t)cli->threads,
        .isa = isas[cli->isa],
        .io = engines[cli->io],
        .sim = {.seed = cli->sim_seed},
        .context = (uint32_t)(cli->context == OPTION_AUTO ? positions : cli->context),
        .chunk = cli->chunk,
        .pin_bytes = cli->pin.bytes,
        .pin_percent = cli->pin.percent,
        .pin_order = cli->pin_order == 1 ? PIN_PREFIX : PIN_SPREAD,
        .expert_slots = cli->slots,
        .tile_bytes = cli->tile,
        .prompt_tokens = prompt_tokens,
        .caller_bytes = BYTES_PER_ID * positions,
        .note = cli->quiet ? NULL : engine_cli_note,
    };
    return 0;
}
