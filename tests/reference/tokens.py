# SPDX-License-Identifier: Apache-2.0
"""A byte-pair vocabulary in the form of tiktoken.model, learned from a text, and its encoder. The
pre-tokenisation is that of Kimi K3 as far as ASCII goes; nothing else is in the text."""
import base64
import collections
import json
import re

ENDING = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?"
PIECE = re.compile(r"[^\r\nA-Za-z0-9]?[A-Z]*[a-z]+" + ENDING + r"|[^\r\nA-Za-z0-9]?[A-Z]+[a-z]*"
                   + ENDING + r"|[0-9]{1,3}| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
ADDED = {0: "[BOS]", 1: "[EOS]", 2: "<|end_of_msg|>", 3: "<|open|>", 4: "<|close|>", 5: "<|sep|>",
         6: "[start_header_id]", 7: "[end_header_id]", 9: "[EOT]", 18: "<|media_begin|>",
         19: "<|media_content|>", 20: "<|media_end|>", 21: "<|media_pad|>", 65: "<osagent_mode>",
         254: "[UNK]", 255: "[PAD]"}
PLAIN = ("<|open|>", "<|close|>", "<|sep|>")  # added but not special
ADDED_COUNT = 256


def single_bytes():
    """In the order of their ranks: those that can be seen, then the others."""
    seen = [b for b in range(256) if 32 < b < 127 or (b > 160 and b != 173)]
    return [bytes([b]) for b in seen + [b for b in range(256) if b not in set(seen)]]


def join(parts, pair):
    out, i = [], 0
    while i < len(parts):
        if i + 1 < len(parts) and parts[i] == pair[0] and parts[i + 1] == pair[1]:
            out.append(parts[i] + parts[i + 1])
            i += 2
        else:
            out.append(parts[i])
            i += 1
    return out


def learn(texts, count):
    """The tokens, in order of rank: each new one is the most frequent pair of neighbours."""
    words = collections.Counter(p.encode() for t in texts for p in PIECE.findall(t))
    splits = {w: [bytes([b]) for b in w] for w in words}
    pairs = collections.Counter()
    where = collections.defaultdict(set)
    for word, parts in splits.items():
        for pair in zip(parts, parts[1:]):
            pairs[pair] += words[word]
            where[pair].add(word)
    ranks = {token: i for i, token in enumerate(single_bytes())}
    while len(ranks) < count:
        best = max(pairs, key=lambda p: (pairs[p], p))
        ranks.setdefault(best[0] + best[1], len(ranks))
        for word in sorted(where.pop(best)):
            for pair in zip(splits[word], splits[word][1:]):
                pairs[pair] -= words[word]
            splits[word] = join(splits[word], best)
            for pair in zip(splits[word], splits[word][1:]):
                pairs[pair] += words[word]
                where[pair].add(word)
        pairs = +pairs
    return ranks


class Tokenizer:
    def __init__(self, ranks):
        self.ranks, self.count = ranks, len(ranks) + ADDED_COUNT
        self.bytes = {rank: token for token, rank in ranks.items()}
        self.added = {text: len(ranks) + i for i, text in ADDED.items()}
        self.known = {}

    def piece(self, piece):
        ids = self.known.get(piece)
        if ids is None:
            parts = [bytes([b]) for b in piece.encode()]
            while len(parts) > 1:
                rank, at = min((self.ranks.get(a + b, len(self.ranks)), i)
                               for i, (a, b) in enumerate(zip(parts, parts[1:])))
                if rank == len(self.ranks):
                    break
                parts[at:at + 2] = [parts[at] + parts[at + 1]]
            ids = self.known[piece] = [self.ranks[p] for p in parts]
        return ids

    def encode(self, text):
        return [i for p in PIECE.findall(text) for i in self.piece(p)]

    def encode_fragments(self, fragments):
        """Text is encoded piece by piece; a tuple names an added token."""
        ids = []
        for fragment in fragments:
            ids += [self.added[fragment[0]]] if isinstance(fragment, tuple) else (
                self.encode(fragment))
        return ids

    def decode(self, ids):
        names = {v: k.encode() for k, v in self.added.items()}
        return b"".join(self.bytes.get(i) or names.get(i, b"?") for i in ids).decode(
            errors="replace")

    def save(self, folder):
        with open(folder + "/tiktoken.model", "w", encoding="ascii") as f:
            for token, rank in sorted(self.ranks.items(), key=lambda item: item[1]):
                f.write(f"{base64.b64encode(token).decode()} {rank}\n")
        decoder = {str(len(self.ranks) + i): {
            "content": text, "lstrip": False, "normalized": False, "rstrip": False,
            "single_word": False, "special": text not in PLAIN} for i, text in ADDED.items()}
        with open(folder + "/tokenizer_config.json", "w", encoding="ascii") as f:
            json.dump({"added_tokens_decoder": decoder, "bos_token": "[BOS]", "eos_token": "[EOS]",
                       "pad_token": "[PAD]", "unk_token": "[UNK]",
                       "clean_up_tokenization_spaces": False,
                       "tokenizer_class": "TikTokenTokenizer"}, f, indent=1)
            f.write("\n")

    @staticmethod
    def load(folder):
        with open(folder + "/tiktoken.model", encoding="ascii") as f:
            return Tokenizer({base64.b64decode(a): int(b) for a, b in map(str.split, f)})
