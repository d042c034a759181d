/* SPDX-License-Identifier: Apache-2.0 */
/* Known figures, as data. Those of Kimi K3 were published by projects that ran the whole released
 * checkpoint with f32 activations; those of the tiny synthetic model come from a reference in
 * double precision. */
#include "core/cli/verify_golden.h"

/* ---- Kimi K3 ---- */

static const uint32_t capital_ids[] = {1008, 10484, 318, 15383, 387};
static const uint32_t capital_next[] = {17374, 20829, 10, 427, 414, 1008, 606, 142957};
static const uint32_t signs_ids[] = {3, 4, 5, 6, 7};
static const uint32_t signs_next[] = {2494, 9, 10};
static const double signs_mean = -0.462536;
static const double signs_least = -7.084132;

static const struct golden_logit signs_logits[] = {
    {2494, 15.021948}, {220, 12.8088},   {15, 12.7296},    {382, 12.6385},   {16, 12.2999},
    {19081, 12.0991},  {397, 12.0666},   {17, 12.0040},    {87, 11.9733},    {701, 11.8253},
    {0, 9.164494},     {1, 3.085320},    {2, 8.215848},    {3, 5.879941},    {4, 6.251886},
    {5, 5.526426},     {6, 4.302684},    {7, 1.056334}};

static const double signs_layers[93] = {
    .145457,   .187096,    2.080418,  .503955,   .661286,   .812879,   8.043560,  3.890542,
    4.260307,  7.116578,   27.333942, 25.269014, 2.188684,  1.860930,  3.323375,  3.329176,
    3.369560,  3.566468,   9.423682,  9.138697,  8.700302,  20.911718, 33.189644, 21.762516,
    .128100,   .139088,    1.253929,  1.087816,  1.129400,  1.296692,  3.222280,  3.239367,
    3.274488,  3.418396,   5.054258,  14.519582, .269027,   .537641,   2.840771,  2.838250,
    2.902090,  2.970377,   3.544798,  3.718682,  5.932635,  8.277781,  30.722158, 76.281532,
    .248469,   .349269,    5.185338,  1.083864,  1.581633,  4.665548,  17.335722, 8.986588,
    23.102322, 32.244404,  68.347992, 136.707169, 1.779803, 2.569898,  9.498684,  5.315511,
    5.118953,  5.529315,   14.100409, 10.744359, 9.529266,  9.437151,  18.008358, 23.164268,
    .767903,   2.532459,   8.193798,  4.264643,  5.268568,  5.483759,  13.425593, 8.486910,
    9.855852,  10.429826,  10.775433, 9.943328,  3.216658,  4.696488,  6.770693,  6.396170,
    10.625910, 17.881281,  17.442339, 19.182142, 31.064180};

static const struct golden_prompt k3_prompts[] = {
    {.text = "$%&'(", .ids = signs_ids, .id_count = countof(signs_ids), .next = signs_next,
     .next_count = countof(signs_next), .logit = signs_logits,
     .logit_count = countof(signs_logits), .mean = &signs_mean, .least = &signs_least,
     .logit_tolerance = 1e-3, .layer_max = signs_layers, .layer_tolerance = 1e-3},
    {.text = "The capital of France is", .ids = capital_ids, .id_count = countof(capital_ids),
     .next = capital_next, .next_count = countof(capital_next)},
    {.text = "def fibonacci(n):", .next_count = 28,
     .next_text = "\n    if n <= 1:\n        return n\n    else:\n        return fibonacci(n-1) + "
                  "fibonacci"},
};

static const struct golden_decay k3_decay[] = {
    {.layer = 12, .least = 0.626, .most = 2.736, .tolerance = 6e-4}};

/* ---- the tiny synthetic model ---- */

static const uint32_t tiny_ids[] = {3, 141, 59, 26, 53, 58, 97, 93};
static const uint32_t tiny_next[] = {170, 126, 66, 6,  37,  136, 98, 66,
                                     243, 207, 99, 72, 180, 212, 11, 114};
static const double tiny_mean = -42.94134759 / 256;

static const struct golden_logit tiny_logits[] = {
    {170, 3.59754850}, {245, 3.49673495}, {30, 3.35579936}, {197, 3.29782048}, {209, 3.20102124},
    {0, 1.04614201},   {1, -2.35428006},  {2, -1.59842194}, {3, -2.14192171},  {4, 0.33273391},
    {5, -0.46767112},  {6, -0.07300705},  {7, -1.32188432}};

static const double tiny_layers[13] = {4.114151,  11.893941, 15.468039, 4.986496, 7.307617,
                                       12.125810, 5.290271,  6.316492,  8.364537, 6.315834,
                                       6.263780,  10.157885, 4.816942};

static const struct golden_prompt tiny_prompts[] = {
    {.ids = tiny_ids, .id_count = countof(tiny_ids), .next = tiny_next,
     .next_count = countof(tiny_next), .logit = tiny_logits, .logit_count = countof(tiny_logits),
     .mean = &tiny_mean, .logit_tolerance = 1e-3, .layer_max = tiny_layers,
     .layer_max_last = true, .layer_tolerance = 1e-4}};

static const struct golden_decay tiny_decay[] = {
    {.layer = 1, .least = 0.37947032437816774, .most = 2.6861802370464978, .tolerance = 1e-6}};

/* ---- which is whose ---- */

static const struct golden_table tables[] = {
    {.name = "Kimi K3", .layers = 93, .hidden = 7168, .vocab = 163840, .dense_width = 33792,
     .kda_heads = 96, .kda_dim = 128, .mla_heads = 96, .kv_lora = 512, .experts = 896,
     .experts_per_token = 16, .expert_width = 3072, .latent = 3584,
     .prompt = k3_prompts, .prompt_count = countof(k3_prompts),
     .decay = k3_decay, .decay_count = countof(k3_decay)},
    {.name = "the tiny synthetic model", .layers = 13, .hidden = 128, .vocab = 256,
     .dense_width = 96, .kda_heads = 4, .kda_dim = 16, .mla_heads = 6, .kv_lora = 32,
     .experts = 16, .experts_per_token = 4, .expert_width = 64, .latent = 64,
     .prompt = tiny_prompts, .prompt_count = countof(tiny_prompts),
     .decay = tiny_decay, .decay_count = countof(tiny_decay)},
};

static bool fits(const struct golden_table *t, const struct model_config *c)
{
    return t->layers == c->layers && t->hidden == c->hidden && t->vocab == c->vocab &&
           t->dense_width == c->dense_width && t->kda_heads == c->kda_heads &&
           t->kda_dim == c->kda_dim && t->mla_heads == c->mla_heads &&
           t->kv_lora == c->kv_lora && t->experts == c->experts &&
           t->experts_per_token == c->experts_per_token &&
           t->expert_width == c->expert_width && t->latent == c->latent;
}

const struct golden_table *golden_find(const struct model_config *c)
{
    for (size_t i = 0; i < countof(tables); i++) {
        if (fits(&tables[i], c)) {
            return &tables[i];
        }
    }
    return NULL;
}

const char *golden_names(void)
{
    return "Kimi K3 as released (93 layers of width 7168) and of the tiny model that `k3ring "
           "synth` writes (13 of 128)";
}
