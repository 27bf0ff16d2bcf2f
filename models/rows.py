"""Training rows: text, the prompts of prompts.py at growing lengths, and look-ups."""

from dataclasses import dataclass

import numpy as np
import torch

from common import BOS
from prompts import KV_BETWEEN, Prompts, hexadecimal

ANSWER_WEIGHT = 4.0  # answers are few of a row's tokens
FIRST_WEIGHT = 16.0  # of an answer's first one, which has to be looked up; the rest is copied
CONTEXT_WEIGHT = 0.3  # of a prompt's other tokens: most are random or always the same
# In rows of kv longer than KV_LONG the KV_NEXT tokens behind an answer's first weigh KV_WEIGHT: the
# few digits copied by then stand in other values too, so the key has to be looked up again.
KV_LONG, KV_CONTEXT, KV_NEXT, KV_WEIGHT = 600, 0.15, 8, 10.0
KINDS = ("text", "passkey", "kv", "vt", "repeats", "look-ups")
# Between key and value in rows of look-ups: each needs a look one token further back.
SEPARATORS = (":", ": ", '":"', '": "')
# How often the first 32, 8, 3 digits of UUIDs: few make more pairs and questions in a row.
SHORT_UUIDS = (0.0, 0.2, 0.8)


@dataclass(frozen=True)
class Mix:
    """Shares of KINDS, or of the first of them; of UUIDs, as above, from 400 tokens on; most
    questions with whole ones; how many of SEPARATORS look-ups have; how many rows of kv stand beside
    these with every question alone."""

    kinds: tuple
    uuids: tuple = (0.6, 0.2, 0.2)
    asked: int = 3
    separators: int = len(SEPARATORS)
    apart: int = 0


# Of the program's form of kv, every question behind the whole object alone: questions in a row, and
# what one of them has at most with its answer, in tokens.
APART, APART_TOKENS = 6, 95
# Looking up is learned from questions in which the value follows its key as it does in the context.
KV_BETWEENS = (":", ":", " value:", "\nvalue:", KV_BETWEEN)


class Rows:
    """Batches of (ids [rows, tokens + 1], weights [rows, tokens], kinds [rows])."""

    def __init__(self, tokenizer, texts, seed):
        self.prompts, self.words = Prompts(tokenizer), tokenizer.get_vocab_size()
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

    def repeats_row(self, rng, tokens, bos):
        """A segment of text, or of any tokens, again and again."""
        n = int(rng.integers(8, tokens // 2 + 1))
        any_tokens = rng.random() < 0.5
        segment = rng.integers(1, self.words, n).tolist() if any_tokens else self.text(rng, n)
        weights = np.ones(tokens, dtype=np.float32)
        weights[:n + bos - 1] = CONTEXT_WEIGHT if any_tokens else 1
        return ([BOS] * bos + segment * (tokens // n + 2))[:tokens + 1], weights

    def look_ups_row(self, rng, tokens, bos, separators):
        """A few short hexadecimal keys with values, which are then asked for again and again."""
        encode, digits = self.prompts.encode, rng.integers(1, 4, 2)
        keys = list(dict.fromkeys(hexadecimal(rng, digits[0]) for _ in range(rng.integers(2, 5))))
        values = [hexadecimal(rng, digits[1]) for _ in keys]
        between = SEPARATORS[int(rng.integers(separators))]
        ahead, end = ('"', '",\n') if '"' in between else ("", "\n")
        keys = [encode(f"{ahead}{key}{between}") for key in keys]
        values = [encode(f"{value}{end}") for value in values]
        ids, spans = [BOS] * bos + sum((k + v for k, v in zip(keys, values)), []), []
        while len(ids) <= tokens:
            i = int(rng.integers(len(keys)))
            ids += keys[i] + values[i]
            spans.append((len(ids) - len(values[i]), len(ids) - len(encode(end))))
        return ids[:tokens + 1], self.weights(tokens, tokens + 1, spans)

    @staticmethod
    def weights(tokens, size, spans, kv=False):
        """Of a prompt of `size` tokens with answers at `spans`, and text behind it."""
        long = kv and tokens > KV_LONG
        weights = np.full(tokens, KV_CONTEXT if long else CONTEXT_WEIGHT, dtype=np.float32)
        weights[size - 1:] = 1
        for begin, end in spans:
            weights[begin - 1:end - 1] = ANSWER_WEIGHT
            if long:
                weights[begin - 1:min(end - 1, begin + KV_NEXT)] = KV_WEIGHT
            weights[begin - 1:begin] = FIRST_WEIGHT
        return weights

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
        weights = self.weights(tokens, len(ids), spans, kind == "kv")
        return ids + self.text(rng, tokens + 1 - len(ids)), weights

    def batch(self, step, rows, tokens, mix):
        rng = np.random.default_rng([self.seed, step])
        ids = np.empty((rows, tokens + 1), dtype=np.int64)
        weights = np.empty((rows, tokens), dtype=np.float32)
        offset, ends = rng.random(), np.cumsum(mix.kinds)
        kinds = np.searchsorted(ends, (np.arange(rows) + offset) / rows * ends[-1])
        for row, kind in enumerate(kinds):
            bos = int(rng.random() < 0.5)
            name = KINDS[kind]
            if name == "text":
                made = self.text_row(rng, tokens, bos)
            elif name == "repeats":
                made = self.repeats_row(rng, tokens, bos)
            elif name == "look-ups":
                made = self.look_ups_row(rng, tokens, bos, mix.separators)
            else:
                made = self.prompt_row(rng, name, tokens, bos, mix)
            ids[row], weights[row] = made
        return torch.from_numpy(ids), torch.from_numpy(weights), torch.from_numpy(kinds)

    def kv_apart(self, step, rows, tokens):
        """The same with (positions, owners) [rows, tokens' + 1] of Prompt.apart, whose rows are longer
        than `tokens` by all questions but one. What is left of them is nobody's."""
        rng = np.random.default_rng([self.seed, step, 1])
        width = tokens + (APART - 1) * APART_TOKENS
        ids, positions, owners = (np.zeros((rows, width + 1), dtype=np.int64) for _ in range(3))
        weights = np.zeros((rows, width), dtype=np.float32)
        owners[:] = -1
        for row in range(rows):
            bos = int(rng.random() < 0.5)
            prompt = self.prompts.kv(rng, tokens, bos, APART, apart=True)
            made, spans, places, whose = prompt.apart()
            size = len(made)
            ids[row, :size], positions[row, :size], owners[row, :size] = made, places, whose
            weights[row, :size - 1] = self.weights(width, size, spans, True)[:size - 1]
            for begin in np.flatnonzero(np.diff(whose))[1:]:
                weights[row, begin] = 0  # from one question to the next, which it does not see
        kinds = np.full(rows, KINDS.index("kv"))
        return tuple(map(torch.from_numpy, (ids, weights, kinds, positions, owners)))
