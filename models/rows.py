"""Training rows: text, and the prompts of prompts.py at growing lengths."""

from dataclasses import dataclass

import numpy as np
import torch

from common import BOS
from prompts import KV_BETWEEN, Prompts

ANSWER_WEIGHT = 4.0  # answers are few of a row's tokens
FIRST_WEIGHT = 16.0  # of an answer's first one, which has to be looked up; the rest is copied
CONTEXT_WEIGHT = 0.3  # of a prompt's other tokens: most are random or always the same
KINDS = ("text", "passkey", "kv", "vt")
# How often the first 32, 8, 3 digits of UUIDs: few make more pairs and questions in a row.
SHORT_UUIDS = (0.0, 0.2, 0.8)


@dataclass(frozen=True)
class Mix:
    """Shares of KINDS; of UUIDs, as above, from 400 tokens on; most questions with whole ones."""

    kinds: tuple
    uuids: tuple = (0.6, 0.2, 0.2)
    asked: int = 3


# Looking up is learned from questions in which the value follows its key as it does in the context.
KV_BETWEENS = (":", ":", " value:", "\nvalue:", KV_BETWEEN)


class Rows:
    """Batches of (ids [rows, tokens + 1], weights [rows, tokens], kinds [rows])."""

    def __init__(self, tokenizer, texts, seed):
        self.prompts = Prompts(tokenizer)
        self.parts = [np.array(self.prompts.encode(text), dtype=np.int64) for text in texts]
        self.share = np.array([len(p) for p in self.parts], dtype=np.float64)
        self.share /= self.share.sum()
        self.seed = seed

    def text(self, rng, n):
        part = self.parts[rng.choice(len(self.parts), p=self.share)]
        start = int(rng.integers(0, len(part) - n + 1))
        return part[start:start + n].tolist()

    def filler(self, rng):
        """Running text, or the default filler sentences from any point in them."""
        if rng.random() < 0.6:
            return lambda n: self.text(rng, n)
        grass = self.prompts.grass
        first = int(rng.integers(len(grass)))
        return lambda n: [grass[(first + i) % len(grass)] for i in range(n)]

    def text_row(self, rng, tokens, bos):
        return [BOS] * bos + self.text(rng, tokens + 1 - bos), np.ones(tokens, dtype=np.float32)

    def prompt(self, rng, kind, tokens, bos, mix):
        if kind == "passkey":
            asked = int(rng.integers(1, 2 + tokens // 160))
            needles = asked + int(rng.integers(0, 1 + tokens // 128))
            return self.prompts.passkey(rng, tokens, bos, needles, asked, self.filler(rng))
        if kind == "kv":
            digits = int(rng.choice([32, 8, 3], p=SHORT_UUIDS if tokens < 400 else mix.uuids))
            most = mix.asked if digits == 32 else 8 if tokens >= 400 else 5
            asked = int(rng.integers(1, 1 + most))
            between = str(rng.choice(KV_BETWEENS)) if digits < 32 else KV_BETWEEN
            return self.prompts.kv(rng, tokens, bos, asked, digits, between,
                                   digits == 3 and rng.random() < 0.6)
        hops = 4 if tokens >= 400 else int(rng.integers(1, 5))
        if tokens >= 700 or tokens >= 400 and rng.random() < 0.4:
            return self.prompts.vt(rng, tokens, bos, [(3, 1, hops), (5, 1, 4)])
        chains = int(rng.integers(1, 3)) if tokens >= 400 else 1
        return self.prompts.vt(rng, tokens, bos, [(int(rng.choice([3, 5])), chains, hops)])

    def prompt_row(self, rng, kind, tokens, bos, mix):
        """What is left behind the prompt is text, all of it where none fits."""
        prompt = self.prompt(rng, kind, tokens, bos, mix)
        if prompt is None:
            return self.text_row(rng, tokens, bos)
        ids, spans = prompt.row()
        weights = np.full(tokens, CONTEXT_WEIGHT, dtype=np.float32)
        weights[len(ids) - 1:] = 1
        for begin, end in spans:
            weights[begin - 1:end - 1] = ANSWER_WEIGHT
            weights[begin - 1] = FIRST_WEIGHT
        return ids + self.text(rng, tokens + 1 - len(ids)), weights

    def batch(self, step, rows, tokens, mix):
        rng = np.random.default_rng([self.seed, step])
        ids = np.empty((rows, tokens + 1), dtype=np.int64)
        weights = np.empty((rows, tokens), dtype=np.float32)
        offset, ends = rng.random(), np.cumsum(mix.kinds)
        kinds = np.searchsorted(ends, (np.arange(rows) + offset) / rows * ends[-1])
        for row, kind in enumerate(kinds):
            bos = int(rng.random() < 0.5)
            ids[row], weights[row] = (self.text_row(rng, tokens, bos) if kind == 0 else
                                      self.prompt_row(rng, KINDS[kind], tokens, bos, mix))
        return torch.from_numpy(ids), torch.from_numpy(weights), torch.from_numpy(kinds)
