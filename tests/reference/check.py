# SPDX-License-Identifier: Apache-2.0
"""Is graph.py the model? `check.py` makes the tiny model whose every weight follows from its name
and holds the forward pass, in float64, to the published figures; `check.py DIR` does the same with
the folder that `k3ring synth DIR` writes, and so checks the reading of files as well."""
import sys

import numpy as np
import torch

import graph
import shipping

TINY = graph.Config(
    hidden=128, layers=13, vocab=256, full=(4, 8, 12, 13), kda_heads=4, kda_dim=16, mla_heads=6,
    q_lora=64, kv_lora=32, nope=24, rope=8, v_dim=16, dense_width=96, experts=16, top_k=4, shared=2,
    latent=64, expert_width=64, block=3)
PROMPT = [3, 141, 59, 26, 53, 58, 97, 93]
GREEDY = [170, 126, 66, 6, 37, 136, 98, 66, 243, 207, 99, 72, 180, 212, 11, 114]
FIRST = [1.04614201, -2.35428006, -1.59842194, -2.14192171, 0.33273391, -0.46767112, -0.07300705,
         -1.32188432]
SUM = -42.94134759
ROUTES = {0: ([6, 15, 12, 4], [.291760, .255854, .243314, .209073]),
          2: ([4, 5, 2, 15], [.229593, .247811, .252764, .269833]),
          11: ([8, 6, 2, 14], [.259633, .233852, .244128, .262387])}


def hash_name(name):
    h = 14695981039346656037
    for byte in name.encode():
        h = (h ^ byte) * 1099511628211 % 2 ** 64
    return h


def draw(name, count):
    """64 random bits per element, from the name."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z += np.uint64(hash_name(name))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def range_of(name, shape):
    """Half the width of the range its values lie in, and the middle of it."""
    for ending, half, middle in (("norm.weight", .25, 1), ("_res_proj.weight", .25, 0),
                                 ("embed_tokens.weight", 1, 0), ("A_log", 1, 0),
                                 ("dt_bias", 1, 0), ("_conv1d.weight", .5, 0),
                                 ("e_score_correction_bias", .125, 0), (".gate.weight", .25, 0),
                                 ("lm_head.weight", .25, 0)):
        if name.endswith(ending):
            return half, middle
    half = 2.0 ** -((shape[-1].bit_length() - 1) // 2)
    if "mlp." in name or "shared_experts." in name:
        half *= 1 / 16 if "down_proj" in name else 8
    half *= 8 if name.endswith("self_attn.o_proj.weight") else 1
    return half * (4 if name.endswith("q_b_proj.weight") else 1), 0


def tiny_expert(name, shape):
    rows, cols = shape
    packed = (draw(name + ".weight_packed", rows * cols // 2) >> np.uint64(56)).astype(np.uint8)
    scale = 122 + (draw(name + ".weight_scale", rows * cols // 32) >> np.uint64(62)).astype(int)
    code = np.stack([packed & 15, packed >> 4], -1).reshape(shape)
    return graph.mxfp4_value(torch.from_numpy(code), torch.from_numpy(scale.reshape(rows, -1)),
                             torch.float64)


def tiny_weights():
    weights = {}
    for name, kind, shape in graph.shapes(TINY):
        if kind == "MXFP4":
            stem, part = name.rsplit(".", 1)
            weights[name] = torch.stack([tiny_expert(f"{stem}.{e}.{part}", shape[1:])
                                         for e in range(shape[0])])
            continue
        half, middle = range_of(name, shape)
        unit = (draw(name, int(np.prod(shape))) >> np.uint64(40)).astype(np.float64) / 2 ** 23 - 1
        x = torch.from_numpy((middle + half * unit).astype(np.float32)).reshape(shape)
        if name.endswith("A_log"):
            x[TINY.kda_heads:] = 0
        weights[name] = (x.bfloat16() if kind == "BF16" else x).double()
    return weights


def off(what, found, wanted, bound):
    """Says how far a list is off; True when that is too far."""
    worst = max(abs(a - b) for a, b in zip(found, wanted))
    print(f"{what}: off by {worst:.3g}{'' if worst <= bound else ', TOO MUCH'}")
    return not worst <= bound


def check(c, weights):
    ids, record, wrong = list(PROMPT), [], False
    for step in range(len(GREEDY)):
        logits = graph.forward(c, weights, torch.tensor([ids]), record if step == 0 else None)
        last = logits[0, -1]
        if step == 0:
            first = last
        ids.append(int(last.argmax()))
    wrong |= off("logits", first[:8].tolist(), FIRST, 1e-7)
    wrong |= off("their sum", [first.sum().item()], [SUM], 1e-6)
    for moe_layer, (chosen, shares) in ROUTES.items():
        _, found, weight = record[moe_layer]
        wrong |= off(f"experts of layer {moe_layer + 1}", found[-1].tolist(), chosen, 0)
        wrong |= off("their weights", weight[-1].tolist(), shares, 1e-6)
    wrong |= off("greedy ids", ids[len(PROMPT):], GREEDY, 0)
    # The whole at once and bit by bit through the state are the same function.
    whole = graph.forward(c, weights, torch.tensor([ids]))[0, len(PROMPT) - 1]
    wrong |= off("logits amid a longer text", whole.tolist(), first.tolist(), 1e-9)
    return not wrong


def gradients():
    """The backward passes written by hand, against differences."""
    torch.manual_seed(1)
    x, w = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((2, 7, 6), (6, 4)))
    torch.autograd.gradcheck(graph.ShortConv.apply, (x, w))
    torch.autograd.gradcheck(lambda a: graph.Situ.apply(a, 4.0, 25.0), (x,))
    torch.autograd.gradcheck(lambda a, b: graph.rms_norm(a, b[:, 0], 1e-5), (x, w))
    print("gradients: right")


if __name__ == "__main__":
    torch.set_num_threads(1)
    gradients()
    if len(sys.argv) > 1:
        good = check(*shipping.read(sys.argv[1]))
    else:
        good = check(TINY, tiny_weights())
    sys.exit(0 if good else 1)
