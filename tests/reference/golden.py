#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch makes, in float64, of an exported model: `golden.py MODEL > trained.json`. The text
is of the kind the model learned from but was not part of it: its generator has another seed."""
import json
import random
import sys

import torch

import chats
import graph
import shipping
import stories
import tokens

ROWS = 3  # positions of which all logits are kept
TOP = 8   # logits kept of every other one
MADE = 160


def rounded(x, digits):
    return [round(v, digits) for v in x.tolist()]


@torch.no_grad()
def greedy(c, weights, ids, stop):
    """Ids made, and the smallest distance between the best and the second logit on the way."""
    ids, start, margin = list(ids), len(ids), float("inf")
    while len(ids) - start < MADE and ids[-1] not in stop:
        last = graph.forward(c, weights, torch.tensor([ids]), last=True)[0, -1]
        best = torch.topk(last, 2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        ids.append(int(best.indices[0]))
    return {"prompt": ids[:start], "ids": ids[start:], "smallest_margin": round(margin, 6)}


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    folder = sys.argv[1]
    c, weights = shipping.read(folder)
    tokenizer = tokens.Tokenizer.load(folder)
    rng = random.Random("golden")
    text = stories.story(rng)
    ids = tokenizer.encode(text)
    text_ids = len(ids)
    ids += [tokenizer.added[chats.EOS]] + tokenizer.encode_fragments(chats.chat(rng))
    logits = graph.forward(c, weights, torch.tensor([ids]))[0]
    logprob = torch.log_softmax(logits, -1)[range(len(ids) - 1), ids[1:]]
    top = torch.topk(logits, TOP, -1)
    rows = [len(ids) * (i + 1) // (ROWS + 1) for i in range(ROWS)]
    ask = chats.message(["Tell me a story about a fox."], role="user")
    ask += chats.begin("message", role="assistant") + chats.begin("think")
    stop = {tokenizer.added[chats.EOS], tokenizer.added[chats.EOM]}
    json.dump({
        "text": text, "text_ids": text_ids, "ids": ids, "logprobs": rounded(logprob, 7),
        "perplexity": round(torch.exp(-logprob.mean()).item(), 7),
        "text_perplexity": round(torch.exp(-logprob[:text_ids - 1].mean()).item(), 7),
        "top": [{"ids": i.tolist(), "logits": rounded(v, 5)}
                for i, v in zip(top.indices, top.values)],
        "rows": [{"position": p, "logits": rounded(logits[p], 5)} for p in rows],
        "greedy": [greedy(c, weights, prompt, stop) for prompt in
                   (tokenizer.encode("There once was"), tokenizer.encode_fragments(ask))],
    }, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
