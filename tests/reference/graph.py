# SPDX-License-Identifier: Apache-2.0
"""The text model of Kimi K3 in PyTorch: names and shapes of its tensors, and the forward pass over
whole sequences. Weights are a dict by the names of the released checkpoint; the experts of a layer
are stacked as `...experts.w1` and so on. Everything follows the dtype of the weights, so the same
code trains in float32 and is checked in float64."""
import dataclasses
import math

import torch
import torch.nn.functional as F
from torch.autograd import Function

TOP = "language_model.model."
HEAD = "language_model.lm_head.weight"
CHUNK = 32  # positions whose deltas are solved at once; decays of half of them must fit a float


@dataclasses.dataclass
class Config:
    hidden: int
    layers: int
    vocab: int
    full: tuple  # layers with MLA, counted from 1
    kda_heads: int
    kda_dim: int
    mla_heads: int
    q_lora: int
    kv_lora: int
    nope: int
    rope: int
    v_dim: int
    dense_width: int
    experts: int
    top_k: int
    shared: int
    latent: int
    expert_width: int
    block: int
    first_dense: int = 1
    taps: int = 4
    eps: float = 1e-5
    lower_bound: float = -5.0
    beta: float = 4.0
    linear_beta: float = 25.0
    context: int = 4096

    def is_mla(self, layer):
        return layer + 1 in self.full


def layer_name(layer):
    return f"{TOP}layers.{layer}."


def attention_shapes(c, layer):
    wide = c.kda_heads * c.kda_dim
    if c.is_mla(layer):
        wide = c.mla_heads * c.v_dim
        yield "q_a_proj.weight", "BF16", (c.q_lora, c.hidden)
        yield "q_a_layernorm.weight", "BF16", (c.q_lora,)
        yield "q_b_proj.weight", "BF16", (c.mla_heads * (c.nope + c.rope), c.q_lora)
        yield "kv_a_proj_with_mqa.weight", "BF16", (c.kv_lora + c.rope, c.hidden)
        yield "kv_a_layernorm.weight", "BF16", (c.kv_lora,)
        yield "kv_b_proj.weight", "BF16", (c.mla_heads * (c.nope + c.v_dim), c.kv_lora)
    else:
        for name in "qkv":
            yield name + "_proj.weight", "BF16", (wide, c.hidden)
            yield name + "_conv1d.weight", "F32", (wide, 1, c.taps)
        yield "f_a_proj.weight", "BF16", (c.kda_dim, c.hidden)
        yield "f_b_proj.weight", "BF16", (wide, c.kda_dim)
        yield "b_proj.weight", "BF16", (c.kda_heads, c.hidden)
        yield "A_log", "F32", (max(c.kda_dim, c.kda_heads),)
        yield "dt_bias", "F32", (wide,)
        yield "o_norm.weight", "F32", (c.kda_dim,)
    yield "g_proj.weight", "BF16", (wide, c.hidden)
    yield "o_proj.weight", "BF16", (c.hidden, wide)


def mlp_shapes(c, layer):
    if layer < c.first_dense:
        yield "mlp.gate_proj.weight", "BF16", (c.dense_width, c.hidden)
        yield "mlp.up_proj.weight", "BF16", (c.dense_width, c.hidden)
        yield "mlp.down_proj.weight", "BF16", (c.hidden, c.dense_width)
        return
    m, wide = "block_sparse_moe.", c.shared * c.expert_width
    yield m + "gate.weight", "BF16", (c.experts, c.hidden)
    yield m + "gate.e_score_correction_bias", "F32", (c.experts,)
    yield m + "routed_expert_down_proj.weight", "BF16", (c.latent, c.hidden)
    yield m + "routed_expert_norm.weight", "BF16", (c.latent,)
    yield m + "routed_expert_up_proj.weight", "BF16", (c.hidden, c.latent)
    yield m + "shared_experts.gate_proj.weight", "BF16", (wide, c.hidden)
    yield m + "shared_experts.up_proj.weight", "BF16", (wide, c.hidden)
    yield m + "shared_experts.down_proj.weight", "BF16", (c.hidden, wide)
    yield m + "experts.w1", "MXFP4", (c.experts, c.expert_width, c.latent)
    yield m + "experts.w2", "MXFP4", (c.experts, c.latent, c.expert_width)
    yield m + "experts.w3", "MXFP4", (c.experts, c.expert_width, c.latent)


def shapes(c):
    """Yields (name, kind, shape) of every tensor; kind is BF16, F32 or, for stacks, MXFP4."""
    for layer in range(c.layers):
        p = layer_name(layer)
        for name in ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm",
                     "mlp_res_norm"):
            yield p + name + ".weight", "BF16", (c.hidden,)
        for name in ("self_attention_res_proj", "mlp_res_proj"):
            yield p + name + ".weight", "BF16", (1, c.hidden)
        for name, kind, shape in attention_shapes(c, layer):
            yield p + "self_attn." + name, kind, shape
        for name, kind, shape in mlp_shapes(c, layer):
            yield p + name, kind, shape
    yield TOP + "embed_tokens.weight", "BF16", (c.vocab, c.hidden)
    yield TOP + "norm.weight", "BF16", (c.hidden,)
    yield TOP + "output_attn_res_norm.weight", "BF16", (c.hidden,)
    yield TOP + "output_attn_res_proj.weight", "BF16", (1, c.hidden)
    yield HEAD, "BF16", (c.vocab, c.hidden)


# ---- what ships: weights rounded to bf16 and to MXFP4, with gradients passed straight through ----

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
MIDDLES = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])  # between neighbours of E2M1


def mxfp4_code(x):
    """Of [..., 32 n] the codes 0..15, one per element, and the scale bytes, one per 32: the
    smallest power of two with which the largest element of the 32 is not cut off."""
    groups = x.detach().reshape(*x.shape[:-1], -1, 32)
    largest = groups.abs().amax(-1, keepdim=True).clamp_min(1e-30)
    exponent = torch.ceil(torch.log2(largest / 6)).clamp(-126, 127)
    scaled = groups * torch.exp2(-exponent)
    code = torch.bucketize(scaled.abs(), MIDDLES.to(x.dtype), out_int32=True)
    code = code + 8 * (scaled < 0)
    return code.reshape(x.shape), (exponent + 127).squeeze(-1)


def mxfp4_value(code, scale, dtype):
    table = torch.cat([E2M1, -E2M1]).to(dtype)
    groups = table[code.long()].reshape(*code.shape[:-1], -1, 32)
    return (groups * torch.exp2(scale.to(dtype) - 127).unsqueeze(-1)).reshape(code.shape)


class Shipped(Function):
    @staticmethod
    def forward(_, x, kind):
        if kind == "BF16":
            return x.bfloat16().to(x.dtype)
        return mxfp4_value(*mxfp4_code(x), x.dtype)

    @staticmethod
    def backward(_, grad):
        return grad, None


def shipped(c, masters):
    """The weights as they will be exported, with gradients to the masters."""
    return {name: masters[name] if kind == "F32" else Shipped.apply(masters[name], kind)
            for name, kind, _ in shapes(c)}


# ---- operators; backward passes by hand where autograd would store too much ----

class RmsNorm(Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        r = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, r)
        return x * r * weight

    @staticmethod
    def backward(ctx, dy):
        x, weight, r = ctx.saved_tensors
        normed = x * r
        dn = dy * weight
        dx = r * (dn - normed * (dn * normed).mean(-1, keepdim=True))
        return dx, (dy * normed).flatten(0, -2).sum(0), None


def rms_norm(x, weight, eps):
    return RmsNorm.apply(x, weight, eps)


class Situ(Function):
    """SiTU of [..., gate | up]; the sigmoid sees the gate before it is capped."""
    @staticmethod
    def forward(ctx, both, beta, linear_beta):
        gate, up = both.chunk(2, -1)
        t, s, v = torch.tanh(gate / beta), torch.sigmoid(gate), torch.tanh(up / linear_beta)
        ctx.save_for_backward(t, s, v)
        ctx.betas = beta, linear_beta
        return (t * s).mul_(v).mul_(beta * linear_beta)

    @staticmethod
    def backward(ctx, dy):
        t, s, v = ctx.saved_tensors
        beta, linear_beta = ctx.betas
        dgate = ((1 - t * t) + (beta * t) * (1 - s)).mul_(s).mul_(v).mul_(dy).mul_(linear_beta)
        dup = (1 - v * v).mul_(t).mul_(s).mul_(dy).mul_(beta)
        return torch.cat([dgate, dup], -1), None, None


class ShortConv(Function):
    """Causal depthwise convolution of [batch, time, channel]; the last tap is the position's."""
    @staticmethod
    def forward(ctx, x, taps):
        ctx.save_for_backward(x, taps)
        count = taps.shape[1]
        y = x * taps[:, -1]
        for j in range(1, min(count, x.shape[1])):
            y[:, j:].addcmul_(x[:, :-j], taps[:, count - 1 - j])
        return y

    @staticmethod
    def backward(ctx, dy):
        x, taps = ctx.saved_tensors
        count = taps.shape[1]
        dx = dy * taps[:, -1]
        dtaps = torch.zeros_like(taps)
        dtaps[:, -1] = (dy * x).sum((0, 1))
        for j in range(1, min(count, x.shape[1])):
            dx[:, :-j].addcmul_(dy[:, j:], taps[:, count - 1 - j])
            dtaps[:, count - 1 - j] = (dy[:, j:] * x[:, :-j]).sum((0, 1))
        return dx, dtaps


def linear(x, *weights):
    """Products with several matrices that read the same input, as one."""
    if len(weights) == 1:
        return F.linear(x, weights[0])
    return F.linear(x, torch.cat(weights)).split([w.shape[0] for w in weights], -1)


# ---- Kimi delta attention ----

def unit_length(x):
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def delta_rule(q, k, v, g, beta):
    """Over [batch, head, time, dim] (beta without dim): per position the state decays by exp(g)
    per key channel, is read at k, moved by beta towards v there, and read at q. Chunks of
    positions are solved at once; only the state goes from one to the next."""
    b, h, time, d = q.shape
    pad = -time % CHUNK
    if pad:
        q, k, v, g = (F.pad(a, (0, 0, 0, pad)) for a in (q, k, v, g))
        beta = F.pad(beta, (0, pad))
    q, k, v, g = (a.reshape(b, h, -1, CHUNK, d) for a in (q, k, v, g))
    beta = beta.reshape(b, h, -1, CHUNK, 1)
    total = g.cumsum(3)
    middle = total[:, :, :, CHUNK // 2 - 1:CHUNK // 2]  # keeps both exponentials in range
    last = total[:, :, :, -1:]
    rise, fall = torch.exp(total - middle), torch.exp(middle - total)
    k_rise, k_fall, q_rise = k * rise, k * fall, q * rise
    among = (torch.cat([k_rise, q_rise], 3) @ k_fall.transpose(3, 4))
    among_k, among_q = among.split(CHUNK, 3)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril()
    below = torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril(-1)
    zero = torch.zeros((), dtype=q.dtype)
    # What lies above may overflow, so it goes before anything is made of it.
    matrix = torch.where(below, among_k, zero) * beta + torch.eye(CHUNK, dtype=q.dtype)
    from_start = torch.exp(middle)
    right = torch.cat([v, k_rise * from_start], 4) * beta
    solved = torch.linalg.solve_triangular(matrix, right, upper=False, unitriangular=True)
    fresh, by_state = solved.split(d, 4)
    reads = torch.cat([by_state, q_rise * from_start], 3).unbind(2)
    to_end = (k * torch.exp(last - total)).transpose(3, 4).unbind(2)
    decay = torch.exp(last).transpose(3, 4).unbind(2)
    fresh = fresh.unbind(2)
    state = None
    deltas, outputs = [], []
    for i, new in enumerate(fresh):
        if state is None:
            outputs.append(torch.zeros_like(new))
            state = to_end[i] @ new
        else:
            read = reads[i] @ state
            new = new - read[:, :, :CHUNK]
            outputs.append(read[:, :, CHUNK:])
            state = decay[i] * state + to_end[i] @ new
        deltas.append(new)
    out = torch.stack(outputs, 2) + torch.where(lower, among_q, zero) @ torch.stack(deltas, 2)
    return out.reshape(b, h, -1, d)[:, :, :time]


def kda(c, w, p, x):
    b, time, _ = x.shape
    heads, dim = c.kda_heads, c.kda_dim
    wide = heads * dim
    matrices = [w[p + n + ".weight"] for n in ("q_proj", "k_proj", "v_proj")]
    qkv, g, f, beta = linear(x, torch.cat(matrices), w[p + "g_proj.weight"],
                             w[p + "f_a_proj.weight"], w[p + "b_proj.weight"])
    taps = torch.cat([w[p + n + "_conv1d.weight"] for n in "qkv"]).squeeze(1)
    qkv = F.silu(ShortConv.apply(qkv, taps)).reshape(b, time, 3, heads, dim).permute(2, 0, 3, 1, 4)
    q, k, v = qkv.unbind(0)
    q, k = unit_length(q) * dim ** -0.5, unit_length(k)
    z = F.linear(f, w[p + "f_b_proj.weight"]) + w[p + "dt_bias"]
    z = z.reshape(b, time, heads, dim).transpose(1, 2)
    rate = torch.exp(w[p + "A_log"][:heads]).reshape(heads, 1, 1)
    decay = c.lower_bound * torch.sigmoid(rate * z)
    o = delta_rule(q, k, v, decay, torch.sigmoid(beta).transpose(1, 2))
    o = rms_norm(o.transpose(1, 2).reshape(b, time, heads, dim), w[p + "o_norm.weight"], c.eps)
    o = o.reshape(b, time, wide) * torch.sigmoid(g)
    return F.linear(o, w[p + "o_proj.weight"])


# ---- gated multi-head latent attention, no positions ----

def mla(c, w, p, x):
    b, time, _ = x.shape
    heads = c.mla_heads
    ql, kv, g = linear(x, w[p + "q_a_proj.weight"], w[p + "kv_a_proj_with_mqa.weight"],
                       w[p + "g_proj.weight"])
    ql = rms_norm(ql, w[p + "q_a_layernorm.weight"], c.eps)
    latent, r = kv.split([c.kv_lora, c.rope], -1)
    latent = rms_norm(latent, w[p + "kv_a_layernorm.weight"], c.eps)
    q = F.linear(ql, w[p + "q_b_proj.weight"]).reshape(b, time, heads, -1).transpose(1, 2)
    kv = F.linear(latent, w[p + "kv_b_proj.weight"]).reshape(b, time, heads, -1).transpose(1, 2)
    k, v = kv.split([c.nope, c.v_dim], -1)
    k = torch.cat([k, r.unsqueeze(1).expand(-1, heads, -1, -1)], -1)
    scores = (q @ k.transpose(2, 3)) * (c.nope + c.rope) ** -0.5
    later = torch.ones(time, time, dtype=torch.bool).triu(1)
    o = torch.softmax(scores.masked_fill(later, -math.inf), -1) @ v
    o = o.transpose(1, 2).reshape(b, time, -1) * torch.sigmoid(g)
    return F.linear(o, w[p + "o_proj.weight"])


# ---- MLPs ----

def dense(c, w, p, x):
    both = F.linear(x, torch.cat([w[p + "gate_proj.weight"], w[p + "up_proj.weight"]]))
    return F.linear(Situ.apply(both, c.beta, c.linear_beta), w[p + "down_proj.weight"])


def experts(c, w, p, z, chosen, weights):
    """The weighted sum over each row's experts; one product per expert, padded to the busiest."""
    rows, k = chosen.shape
    flat = chosen.flatten()
    order = torch.argsort(flat, stable=True)
    load = torch.bincount(flat, minlength=c.experts)
    room = int(load.max())
    expert = flat[order]
    place = torch.arange(rows * k) - (load.cumsum(0) - load)[expert] + expert * room
    source = torch.full((c.experts * room,), rows)
    source[place] = order // k
    inputs = torch.cat([z, z.new_zeros(1, c.latent)]).index_select(0, source)
    w13 = torch.cat([w[p + "w1"], w[p + "w3"]], 1)
    both = inputs.reshape(c.experts, room, c.latent) @ w13.transpose(1, 2)
    outputs = Situ.apply(both, c.beta, c.linear_beta) @ w[p + "w2"].transpose(1, 2)
    back = torch.empty_like(place)
    back[order] = place
    outputs = outputs.reshape(-1, c.latent).index_select(0, back).reshape(rows, k, c.latent)
    return (outputs * weights.unsqueeze(-1)).sum(1), load


def route(c, scores, bias):
    """Experts by score plus bias, weights by score alone."""
    chosen = torch.topk(scores.detach() + bias, c.top_k, dim=-1).indices
    weights = scores.gather(-1, chosen)
    return chosen, weights / (weights.sum(-1, keepdim=True) + 1e-20)


def moe(c, w, p, x, record):
    shape = x.shape
    x = x.reshape(-1, c.hidden)
    s = p + "shared_experts."
    router, z, both = linear(x, w[p + "gate.weight"], w[p + "routed_expert_down_proj.weight"],
                             torch.cat([w[s + "gate_proj.weight"], w[s + "up_proj.weight"]]))
    chosen, weights = route(c, torch.sigmoid(router), w[p + "gate.e_score_correction_bias"])
    routed, load = experts(c, w, p + "experts.", z, chosen, weights)
    if record is not None:
        record.append((load, chosen, weights.detach()))
    routed = rms_norm(routed, w[p + "routed_expert_norm.weight"], c.eps)
    y = F.linear(routed, w[p + "routed_expert_up_proj.weight"])
    y = y + F.linear(Situ.apply(both, c.beta, c.linear_beta), w[s + "down_proj.weight"])
    return y.reshape(shape)


# ---- the whole ----

class Residual:
    """Attention residuals: what a sublayer reads is a mixture of the sums of earlier blocks and the
    running one, by softmax of a projection of each, normalised."""

    def __init__(self, c, x):
        self.c, self.prefix, self.blocks = c, x, []

    def scale(self, source):
        return torch.rsqrt(source.square().mean(-1) + self.c.eps)

    def mixture(self, norm, proj):
        sources = self.blocks + [(self.prefix, self.scale(self.prefix))]
        fold = norm * proj[0]
        scores = torch.stack([(s @ fold) * r for s, r in sources], -1)
        parts = torch.softmax(scores, -1).unbind(-1)
        mixed = parts[0].unsqueeze(-1) * sources[0][0]
        for part, (source, _) in zip(parts[1:], sources[1:]):
            mixed = torch.addcmul(mixed, part.unsqueeze(-1), source)
        return mixed

    def close_block(self):
        self.blocks.append((self.prefix, self.scale(self.prefix)))
        self.prefix = None

    def add(self, output):
        self.prefix = output if self.prefix is None else self.prefix + output


def forward(c, w, ids, record=None, last=False):
    """Logits [batch, time, vocab] of ids [batch, time]; of the last position alone if last. record
    takes (load, experts, weights) of each MoE layer."""
    res = Residual(c, F.embedding(ids, w[TOP + "embed_tokens.weight"]))
    for layer in range(c.layers):
        p = layer_name(layer)
        h = res.prefix
        if res.blocks:
            h = res.mixture(w[p + "self_attention_res_norm.weight"],
                            w[p + "self_attention_res_proj.weight"])
        if layer % c.block == 0:
            res.close_block()
        h = rms_norm(h, w[p + "input_layernorm.weight"], c.eps)
        res.add((mla if c.is_mla(layer) else kda)(c, w, p + "self_attn.", h))
        h = res.mixture(w[p + "mlp_res_norm.weight"], w[p + "mlp_res_proj.weight"])
        h = rms_norm(h, w[p + "post_attention_layernorm.weight"], c.eps)
        if layer < c.first_dense:
            res.add(dense(c, w, p + "mlp.", h))
        else:
            res.add(moe(c, w, p + "block_sparse_moe.", h, record))
    h = res.mixture(w[TOP + "output_attn_res_norm.weight"], w[TOP + "output_attn_res_proj.weight"])
    h = rms_norm(h[:, -1:] if last else h, w[TOP + "norm.weight"], c.eps)
    return F.linear(h, w[HEAD])
