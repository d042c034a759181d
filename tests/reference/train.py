#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the small model of tests/model/ and exports it. `train.py --help` has the options;
README.md beside it says how the model in the repository was made."""
import argparse
import json
import math
import os
import random
import signal
import sys
import time

import torch
import torch.nn.functional as F

import chats
import graph
import muon
import shipping
import stories
import tokens

RANKS = 1280
GEOMETRY = graph.Config(
    hidden=128, layers=6, vocab=RANKS + tokens.ADDED_COUNT, full=(4, 6), kda_heads=4, kda_dim=32,
    mla_heads=6, q_lora=64, kv_lora=64, nope=24, rope=8, v_dim=24, dense_width=320, experts=24,
    top_k=4, shared=2, latent=64, expert_width=64, block=3)


# ---- text ----

def vocabulary(seed):
    """Of a sample that holds less of what every conversation repeats."""
    rng = random.Random(f"{seed} vocabulary")
    texts = [stories.story(rng) for _ in range(1500)]
    for _ in range(1000):
        texts += [f for f in chats.chat(rng) if isinstance(f, str)]
    return tokens.Tokenizer(tokens.learn(texts, RANKS))


def document(tokenizer, rng, drill, chat):
    """drill: the share of drills; chat: that of conversations in the rest, None: 0.36. (The two
    ways to draw are kept so that the stretches of train.sh stay what they were.)"""
    if drill and rng.random() < drill:
        return tokenizer.encode(stories.drill(rng)) + [tokenizer.added[chats.EOS]]
    draw = rng.random()
    if draw < 0.64 if chat is None else draw >= chat:
        return tokenizer.encode(stories.story(rng)) + [tokenizer.added[chats.EOS]]
    return tokenizer.encode_fragments(chats.chat(rng))


def row(tokenizer, name, length, drill, chat):
    """Whole documents one after the other from the row's beginning; the last is cut."""
    rng, ids = random.Random(name), []
    while len(ids) < length:
        ids += document(tokenizer, rng, drill, chat)
    return ids[:length]


def batch(tokenizer, name, rows, length, drill=0, chat=None):
    return torch.tensor([row(tokenizer, f"{name} {r}", length + 1, drill, chat)
                         for r in range(rows)])


def told_words(tokenizer):
    """Ids of words that a story chooses and then keeps: whose name, which animal, which thing."""
    words = stories.ANIMALS + stories.THINGS + stories.COLORS + sum(stories.NAMES.values(), [])
    ids = [tokenizer.encode(space + word) for word in words for space in (" ", "")]
    return torch.tensor(sorted({i[0] for i in ids if len(i) == 1}))


def recalled(ids, told):
    """Which of [rows, time] are such words and were in their row before."""
    same = ids.unsqueeze(2) == ids.unsqueeze(1)
    return torch.isin(ids, told) & same.tril(-1).any(2)


# ---- weights ----

def beginning(c, name, shape):
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    if name.endswith(("_res_proj.weight", "e_score_correction_bias")):
        return torch.zeros(shape)
    if name.endswith("A_log"):
        x = torch.zeros(shape)
        x[:c.kda_heads] = torch.empty(c.kda_heads).uniform_(-0.5, 0.5)
        return x
    if name.endswith("dt_bias"):  # from forgetting within a few positions to keeping hundreds
        return torch.empty(shape).uniform_(-7, -1)
    if name.endswith("conv1d.weight"):
        x = torch.randn(shape) * 0.2
        x[:, :, -1] += 0.7
        return x
    if name.endswith("embed_tokens.weight"):
        return torch.randn(shape) * 0.5
    scale = 0.5 if name.endswith(("o_proj.weight", "down_proj.weight", "up_proj.weight")) else 1
    scale = 0.3 if name.endswith("lm_head.weight") else scale
    return torch.randn(shape) * scale / math.sqrt(shape[-1])


def divide(masters):
    """Vectors and what acts as one; matrices whose rows are tokens, experts or heads; the others.
    The router's bias has no gradient."""
    vectors, tables, matrices = [], [], []
    for name, x in masters.items():
        if name.endswith("e_score_correction_bias"):
            continue
        x.requires_grad_(True)
        if x.dim() == 1 or name.endswith(("_res_proj.weight", "conv1d.weight")):
            vectors.append(x)
        elif name.endswith(("embed_tokens.weight", "lm_head.weight", "gate.weight",
                            "b_proj.weight")) and not name.endswith("_b_proj.weight"):
            tables.append(x)
        else:
            matrices.append(x)
    return vectors, tables, matrices


def balance(c, masters, record, speed):
    """Experts asked for less than their share become a little easier to choose, and the other
    way round: no loss is added for balance."""
    spread = []
    for layer, (load, _, _) in zip(range(c.first_dense, c.layers), record):
        bias = masters[graph.layer_name(layer) + "block_sparse_moe.gate.e_score_correction_bias"]
        share = load.float() / load.float().mean()
        bias += speed * torch.sign(1 - share)
        bias -= bias.mean()
        spread.append(share.max().item())
    return max(spread)


# ---- training ----

class Trainer:
    def __init__(self, options):
        self.o, self.c, self.step = options, GEOMETRY, 0
        torch.manual_seed(options.seed)
        self.masters = {n: beginning(self.c, n, s) for n, _, s in graph.shapes(self.c)}
        vectors, tables, matrices = divide(self.masters)
        self.trained = vectors + tables + matrices
        adam = torch.optim.AdamW([{"params": vectors, "weight_decay": 0.0},
                                  {"params": tables, "weight_decay": 0.05}], lr=options.rate,
                                 betas=(0.9, 0.97), eps=1e-10, foreach=True)
        self.optimizers = adam, muon.Muon(matrices, options.muon, 0.05)
        self.rates = [[g["lr"] for g in x.param_groups] for x in self.optimizers]
        self.tokenizer = vocabulary(options.seed)
        self.told = told_words(self.tokenizer)
        self.log_path = options.work + "/train.log"
        self.state_path = options.work + "/state.pt"
        self.held = batch(self.tokenizer, f"{options.seed} held out", 8, options.length)

    def say(self, text):
        print(text, flush=True)
        with open(self.log_path, "a", encoding="utf-8") as f:
            f.write(text + "\n")

    def save(self):
        part = self.state_path + ".part"
        torch.save({"step": self.step, "masters": self.masters,
                    "optimizers": [x.state_dict() for x in self.optimizers]}, part)
        os.replace(part, self.state_path)

    def resume(self):
        state = torch.load(self.state_path)
        self.step = state["step"]
        with torch.no_grad():
            for name, x in self.masters.items():
                x.copy_(state["masters"][name])
        for optimizer, saved in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        self.say(f"resumed at step {self.step}")

    def factor(self):
        """Of the learning rate: rises, stays, and falls to zero over the last steps."""
        o = self.o
        return min(1, (self.step + 1) / o.warm, (o.steps - self.step) / (o.steps * o.fall))

    def advance(self):
        c, o, record = self.c, self.o, []
        factor = self.factor()
        for optimizer, rates in zip(self.optimizers, self.rates):
            for group, rate in zip(optimizer.param_groups, rates):
                group["lr"] = rate * factor
        ids = batch(self.tokenizer, f"{o.seed} step {self.step}", o.rows, o.length, o.drill,
                    o.chat)
        logits = graph.forward(c, graph.shipped(c, self.masters), ids[:, :-1], record)
        losses = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        again = recalled(ids, self.told)[:, 1:].flatten()
        count = 1 + o.recall * again
        loss = (losses * count).sum() / count.sum()
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        with torch.no_grad():
            busiest = balance(c, self.masters, record, 0.01 * factor)
            for name, x in self.masters.items():
                if name.endswith("A_log"):
                    x[c.kda_heads:] = 0
        self.step += 1
        losses = losses.detach()
        return losses.mean().item(), losses[again].mean().item(), norm.item(), busiest

    @torch.no_grad()
    def held_out(self):
        logits = graph.forward(self.c, graph.shipped(self.c, self.masters), self.held[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), self.held[:, 1:].flatten()).item()

    @torch.no_grad()
    def sample(self, ids, count):
        weights, ids = graph.shipped(self.c, self.masters), list(ids)
        for _ in range(count):
            logits = graph.forward(self.c, weights, torch.tensor([ids]), last=True)
            ids.append(int(logits[0, -1].argmax()))
        return self.tokenizer.decode(ids)

    def show(self):
        ask = chats.message(["Tell me a story about a fox."], role="user")
        ask += chats.begin("message", role="assistant") + chats.begin("think")
        for ids in (self.tokenizer.encode("Once upon a time"),
                    self.tokenizer.encode_fragments(ask)):
            self.say(f"  held out {self.held_out():.4f}: {self.sample(ids, 60)!r}")

    def run(self):
        o, begun, saved, seconds = self.o, time.time(), time.time(), 0.0
        last, asked = min(o.until or o.steps, o.steps), []
        signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
        while self.step < last and not asked:
            start = time.time()
            loss, again, norm, busiest = self.advance()
            seconds += time.time() - start
            if self.step % 25 == 0:
                self.say(f"step {self.step}/{o.steps} loss {loss:.4f} recalled {again:.3f} "
                         f"norm {norm:.2f} busiest {busiest:.2f} rates {self.factor():.3f} "
                         f"{25 * o.rows * o.length / seconds:.0f} tokens/s")
                seconds = 0.0
            if self.step % 250 == 0:
                self.show()
            if time.time() - saved > 150 or self.step == last or asked:
                self.save()
                saved = time.time()
        self.say(f"held out {self.held_out():.4f} after {self.step * o.rows * o.length} tokens, "
                 f"{time.time() - begun:.0f} s in this run")

    def export(self, folder):
        os.makedirs(folder, exist_ok=True)
        shipping.write(self.c, self.masters, folder)
        self.tokenizer.save(folder)


def parse():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--work", default="build/train", help="folder for the state and the log")
    p.add_argument("--out", default="tests/model", help="folder for the exported model")
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--rows", type=int, default=8, help="of a batch")
    p.add_argument("--length", type=int, default=256, help="tokens of a row")
    p.add_argument("--rate", type=float, default=1.5e-3, help="highest of tables and vectors")
    p.add_argument("--muon", type=float, default=5e-3, help="highest learning rate of matrices")
    p.add_argument("--recall", type=float, default=3, help="what words that come again count more")
    p.add_argument("--drill", type=float, default=0, help="share of texts that are drills")
    p.add_argument("--chat", type=float, help="share of conversations in the rest")
    p.add_argument("--until", type=int, help="the step after which to stop and keep the state")
    p.add_argument("--warm", type=int, default=60, help="steps over which the rate rises")
    p.add_argument("--fall", type=float, default=0.4, help="share of steps in which it falls")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--export-only", action="store_true", help="of the saved state, as it is")
    p.add_argument("--time", type=int, metavar="N", help="only say what N steps take")
    return p.parse_args()


def main():
    options = parse()
    torch.set_num_threads(options.threads)
    os.makedirs(options.work, exist_ok=True)
    trainer = Trainer(options)
    if options.time:
        for _ in range(options.time):
            start = time.time()
            loss, _, _, busiest = trainer.advance()
            print(f"loss {loss:.3f} busiest {busiest:.2f} {time.time() - start:.2f} s", flush=True)
        return
    if os.path.exists(trainer.state_path):
        trainer.resume()
    if not options.export_only:
        count = sum(x.numel() for x in trainer.masters.values())
        trainer.say(f"torch {torch.__version__}, {count} parameters, {json.dumps(vars(options))}")
        trainer.run()
    trainer.export(options.out)


if __name__ == "__main__":
    sys.exit(main())
