# SPDX-License-Identifier: Apache-2.0
"""The released layout: config.json, safetensors shards (one per layer, one for the model level) and
their index, written from masters and read back."""
import json
import struct

import numpy as np
import torch

import graph

ORDER = {"F32": 0, "BF16": 1, "U8": 2}  # the official writer sorts by alignment, then by name
TYPES = {"F32": "<f4", "BF16": "<u2", "U8": "u1"}


def bf16_bits(x):
    return (x.detach().float().bfloat16().float().numpy().view(np.uint32) >> 16).astype("<u2")


def released(c, masters):
    """Yields (name, dtype, array) as the checkpoint has them: experts one by one, packed."""
    for name, kind, _ in graph.shapes(c):
        x = masters[name].detach()
        if kind == "F32":
            yield name, kind, x.float().numpy().astype("<f4")
        elif kind == "BF16":
            yield name, kind, bf16_bits(x)
        else:
            code, scale = graph.mxfp4_code(x)
            code, scale = code.numpy().astype("u1"), scale.numpy().astype("u1")
            packed = code[..., 0::2] | code[..., 1::2] << 4
            stem, part = name.rsplit(".", 1)
            for e in range(c.experts):
                yield f"{stem}.{e}.{part}.weight_packed", "U8", packed[e]
                yield f"{stem}.{e}.{part}.weight_scale", "U8", scale[e]


def shard_of(c, name):
    layer = c.layers
    if name.startswith(graph.TOP + "layers."):
        layer = int(name[len(graph.TOP + "layers."):].split(".")[0])
    return f"model-{layer + 1:05d}-of-{c.layers + 1:06d}.safetensors"


def write_shard(path, tensors):
    tensors.sort(key=lambda t: (ORDER[t[1]], t[0]))
    header, at = {}, 0
    for name, dtype, array in tensors:
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, array in tensors:
            f.write(np.ascontiguousarray(array).tobytes())
    return at


def write(c, masters, folder):
    shards = {}
    for tensor in released(c, masters):
        shards.setdefault(shard_of(c, tensor[0]), []).append(tensor)
    total = sum(write_shard(f"{folder}/{name}", tensors) for name, tensors in shards.items())
    places = {t[0]: shard for shard, tensors in shards.items() for t in tensors}
    dump(folder, "model.safetensors.index.json", {"metadata": {"total_size": total},
                                                  "weight_map": dict(sorted(places.items()))})
    first = c.vocab - 256
    dump(folder, "config.json", config(c, first))
    dump(folder, "generation_config.json", {"max_length": c.context, "eos_token_id": first + 2})


def dump(folder, name, value):
    with open(f"{folder}/{name}", "w", encoding="ascii") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


def config(c, first_added):
    tokens = {"bos_token_id": first_added, "eos_token_id": first_added + 2,
              "pad_token_id": first_added + 255}
    weights = {"num_bits": 4, "group_size": 32, "type": "float", "symmetric": True,
               "strategy": "group", "dynamic": False, "observer": "minmax",
               "scale_dtype": "torch.uint8", "actorder": None, "zp_dtype": None}
    quantization = {
        "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
        "quantization_status": "compressed", "kv_cache_scheme": None,
        "config_groups": {"group_0": {"format": "mxfp4-pack-quantized", "targets": ["Linear"],
                                      "input_activations": None, "output_activations": None,
                                      "weights": weights}},
        "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*",
                   "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*"]}
    linear = {"full_attn_layers": list(c.full),
              "kda_layers": [n for n in range(1, c.layers + 1) if n not in c.full],
              "num_heads": c.kda_heads, "head_dim": c.kda_dim, "short_conv_kernel_size": c.taps,
              "gate_lower_bound": c.lower_bound, "use_full_rank_gate": True}
    text = {
        "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear",
        "dtype": "bfloat16", "hidden_size": c.hidden, "num_hidden_layers": c.layers,
        "vocab_size": c.vocab, "rms_norm_eps": c.eps, "hidden_act": "situ",
        "activation_situ_beta": c.beta, "activation_situ_linear_beta": c.linear_beta,
        "attn_res_block_size": c.block, "num_attention_heads": c.mla_heads,
        "num_key_value_heads": c.mla_heads, "q_lora_rank": c.q_lora, "kv_lora_rank": c.kv_lora,
        "qk_nope_head_dim": c.nope, "qk_rope_head_dim": c.rope, "v_head_dim": c.v_dim,
        "mla_use_nope": True, "mla_use_output_gate": True, "linear_attn_config": linear,
        "first_k_dense_replace": c.first_dense, "moe_layer_freq": 1,
        "intermediate_size": c.dense_width, "num_experts": c.experts,
        "num_experts_per_token": c.top_k, "num_shared_experts": c.shared,
        "moe_intermediate_size": c.expert_width, "routed_expert_hidden_size": c.latent,
        "latent_moe_use_norm": True, "moe_renormalize": True,
        "moe_router_activation_func": "sigmoid", "routed_scaling_factor": 1.0,
        "num_expert_group": 1, "topk_group": 1, "use_grouped_topk": True,
        "topk_method": "noaux_tc", "num_nextn_predict_layers": 0,
        "max_position_embeddings": c.context, "tie_word_embeddings": False, "use_cache": True,
        **tokens, "quantization_config": quantization}
    return {"architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3",
            "dtype": "bfloat16", **tokens, "ignore_index": -100, "tie_word_embeddings": False,
            "text_config": text}


# ---- and back ----

def read_config(folder):
    with open(folder + "/config.json", encoding="utf-8") as f:
        t = json.load(f)["text_config"]
    a = t["linear_attn_config"]
    return graph.Config(
        hidden=t["hidden_size"], layers=t["num_hidden_layers"], vocab=t["vocab_size"],
        full=tuple(a["full_attn_layers"]), kda_heads=a["num_heads"], kda_dim=a["head_dim"],
        mla_heads=t["num_attention_heads"], q_lora=t["q_lora_rank"], kv_lora=t["kv_lora_rank"],
        nope=t["qk_nope_head_dim"], rope=t["qk_rope_head_dim"], v_dim=t["v_head_dim"],
        dense_width=t["intermediate_size"], experts=t["num_experts"],
        top_k=t["num_experts_per_token"], shared=t["num_shared_experts"],
        latent=t["routed_expert_hidden_size"], expert_width=t["moe_intermediate_size"],
        block=t["attn_res_block_size"], first_dense=t["first_k_dense_replace"],
        taps=a["short_conv_kernel_size"], eps=t["rms_norm_eps"],
        lower_bound=a["gate_lower_bound"], beta=t["activation_situ_beta"],
        linear_beta=t["activation_situ_linear_beta"], context=t["max_position_embeddings"])


def read_tensors(folder):
    with open(folder + "/model.safetensors.index.json", encoding="utf-8") as f:
        shards = sorted(set(json.load(f)["weight_map"].values()))
    found = {}
    for shard in shards:
        with open(f"{folder}/{shard}", "rb") as f:
            data = f.read()
        base = 8 + struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:base]).items():
            begin, end = entry["data_offsets"]
            found[name] = np.frombuffer(data[base + begin:base + end],
                                        TYPES[entry["dtype"]]).reshape(entry["shape"])
    return found


def tensor(array, dtype):
    if array.dtype == np.dtype("<u2"):  # bf16
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return torch.from_numpy(np.array(array)).to(dtype)


def read(folder, dtype=torch.float64):
    """The config of a folder and its weights as numbers, as graph.forward() takes them."""
    c, found, weights = read_config(folder), read_tensors(folder), {}
    for name, kind, shape in graph.shapes(c):
        if kind != "MXFP4":
            weights[name] = tensor(found[name], dtype)
            assert weights[name].shape == shape, name
            continue
        stem, part = name.rsplit(".", 1)
        stack = [found[f"{stem}.{e}.{part}.weight_packed"] for e in range(c.experts)]
        scale = [found[f"{stem}.{e}.{part}.weight_scale"] for e in range(c.experts)]
        packed = torch.from_numpy(np.stack(stack))
        code = torch.stack([packed & 15, packed >> 4], -1).reshape(shape)
        weights[name] = graph.mxfp4_value(code, torch.from_numpy(np.stack(scale)), dtype)
    return c, weights
