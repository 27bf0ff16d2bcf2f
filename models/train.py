"""Trains the embedded model from nothing: the weights, the tokenizer and loss.csv in this folder.

  python3 -m venv venv && venv/bin/pip install torch==2.13.0 numpy tokenizers safetensors
  venv/bin/python models/train.py --out models

Every batch depends on the seed and the step alone. Rows grow from 64 to 1024 tokens, and the
learning rate falls in a line within each of PHASES. The length of a run is its steps; the time
that they took is printed and stands in loss.csv. With --state the run can be stopped and continued.
"""

import argparse
import csv
import json
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from common import (BOS, CONFIG, DEV_RANGE, PRODUCTS, TRAIN_RANGES, Llama, cos_sin,
                    plain_frequencies, questions_apart, read_text)
from muon import Muon
from rows import FIRST_WEIGHT, KINDS, Mix, Rows

BOS_NAME = "<|bos|>"
# (steps, rows, their tokens, share of the learning rate at the first step and behind the last, mix)
PHASES = [
    (150, 64, 64, 1.0, 1.0, Mix((0.2, 0.05, 0, 0, 0.25, 0.5), separators=1)),
    (200, 64, 64, 1.0, 1.0, Mix((0.25, 0.1, 0, 0, 0.2, 0.45))),
    (100, 32, 128, 1.0, 1.0, Mix((0.25, 0.1, 0.35, 0, 0.1, 0.2))),
    (250, 16, 256, 1.0, 0.6, Mix((0.25, 0.08, 0.42, 0.15, 0, 0.1))),
    (250, 8, 512, 0.6, 0.4, Mix((0.25, 0.08, 0.45, 0.15, 0, 0.07))),
    (400, 4, 1024, 0.4, 0.18, Mix((0.27, 0.06, 0.47, 0.2), (0.75, 0.15, 0.1), 8)),
    (560, 5, 1024, 0.18, 0.0, Mix((0.62, 0.06, 0.08, 0.24), (0.4, 0.3, 0.3), 8, apart=2)),
]
WARM_UP = 20  # steps at the beginning
LOOKS_BACK = 4  # heads of the first layer that begin with a look at the token so many places back


def make_tokenizer(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"], special_tokens=[BOS_NAME], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator((line for text in texts for line in text.splitlines(True)),
                                  trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS_NAME} $A", pair=f"{BOS_NAME} $A {BOS_NAME} $B",
        special_tokens=[(BOS_NAME, BOS)])
    return tokenizer


def first_weights(model, seed):
    """Random ones, but for LOOKS_BACK heads of the first layer: their queries and keys are the
    same for every token, from a channel of the embeddings that all have, and a key is rotated so
    that the query meets it 1, 2, ... tokens later. Looking up needs such heads and finds them late.
    """
    draw = torch.Generator().manual_seed(seed)
    tensors, dim = model.tensors(), CONFIG["head_dim"]
    with torch.no_grad():
        for name, t in tensors.items():
            if t.dim() == 1:
                t.fill_(1)
            else:
                silent = "o_proj" in name or "down_proj" in name
                std = 0.07 if "embed" in name else 0 if silent else t.shape[1] ** -0.5
                t.normal_(0, std, generator=draw)
        tensors["model.embed_tokens.weight"][:, 0] = 0.28
        pairs, size = torch.arange(6), 2.0
        q, k = (tensors[f"model.layers.0.self_attn.{name}_proj.weight"] for name in "qk")
        for head in range(LOOKS_BACK):
            angle = torch.tensor(plain_frequencies()[:6]) * (head + 1)
            at = head * dim + pairs
            q[at, 0] = size
            k[at, 0], k[at + dim // 2, 0] = size * angle.cos().float(), size * angle.sin().float()


def means(seen):
    """Of each column, without NaN; NaN where there is nothing else: a phase without that kind."""
    columns = (column[~np.isnan(column)] for column in np.array(seen).T)
    return [column.mean() if len(column) else float("nan") for column in columns]


def rows_of(step):
    """Share of the learning rate and (rows, their tokens, mix) of a step."""
    for steps, rows, tokens, begin, end, mix in PHASES:
        if step < steps:
            return begin + (end - begin) * step / steps, (rows, tokens, mix)
        step -= steps
    raise IndexError(step)


class Watch:
    """Loss on the text that is watched, and the share of prompts answered, at full length."""

    def __init__(self, rows, ids):
        tokens = CONFIG["max_position_embeddings"]
        ids = np.array(ids)[:len(ids) // tokens * tokens].reshape(-1, tokens)
        self.text = torch.from_numpy(np.concatenate(
            (np.full((len(ids), 1), BOS), ids), axis=1)[:, :tokens])
        rng, mix = np.random.default_rng([rows.seed, 99, 99]), Mix((), (1, 0, 0))
        self.asked = {kind: [rows.prompt(rng, kind, tokens, 1, mix).apart() for _ in range(32)]
                      for kind in KINDS[1:4]}
        self.angles = cos_sin(plain_frequencies(), tokens)

    @torch.no_grad()
    def __call__(self, model):
        with torch.autocast("cpu", PRODUCTS, enabled=PRODUCTS != torch.float32):
            logits = model(self.text, *self.angles)[:, :-1].float()
            found = [F.cross_entropy(logits.flatten(0, 1), self.text[:, 1:].flatten()).item()]
            for rows in self.asked.values():
                hits = []
                for ids, spans, positions, owners in rows:
                    ids, mask = torch.tensor(ids), questions_apart(torch.tensor(owners))
                    angles = (a[positions] for a in self.angles)
                    guess = model(ids[None, :], *angles, mask=mask)[0].argmax(-1)
                    hits += [bool((guess[a - 1:b - 1] == ids[a:b]).all()) for a, b in spans]
                found.append(float(np.mean(hits)))
        return found


def export(model, tokenizer, out, log):
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    (out / "tokenizer_config.json").write_text(json.dumps({
        "add_bos_token": True, "add_eos_token": False, "bos_token": BOS_NAME,
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONFIG["max_position_embeddings"],
        "tokenizer_class": "PreTrainedTokenizerFast"}, indent=2) + "\n")
    (out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    with torch.no_grad():
        tensors = {n: t.to(torch.bfloat16).contiguous() for n, t in model.tensors().items()}
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})
    with open(out / "loss.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", "seconds", "learning_rate", "text_loss"]
                        + [f"{kind}_tokens" for kind in KINDS[1:]]
                        + [f"{kind}_first" for kind in KINDS[1:]] + ["watched_loss"]
                        + [f"watched_{kind}" for kind in KINDS[1:4]])
        writer.writerows(log)


class Training:
    """The model with its optimizers, what has been logged, and the time that it took."""

    def __init__(self, seed, lr, adam_lr):
        self.model = Llama()
        first_weights(self.model, seed)
        matrices = [t for n, t in self.model.tensors().items() if "_proj" in n]
        others = [t for n, t in self.model.tensors().items() if "_proj" not in n]
        self.optimizers = [(Muon(matrices, lr, weight_decay=0.1), lr),
                           (torch.optim.AdamW(others, lr=adam_lr, betas=(0.9, 0.95),
                                              weight_decay=0.0, fused=True), adam_lr)]
        self.done, self.log, self.before, self.begin = 0, [], 0.0, time.monotonic()

    def seconds(self):
        return self.before + time.monotonic() - self.begin

    def save(self, path):
        torch.save({"model": self.model.state_dict(), "done": self.done, "log": self.log,
                    "optimizers": [o.state_dict() for o, _ in self.optimizers],
                    "seconds": self.seconds()}, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def load(self, path):
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        for (optimizer, _), saved in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        self.done, self.log, self.before = state["done"], state["log"], state["seconds"]

    def step(self, batches, rate):
        """Loss of text, and the shares of right answer tokens and first tokens by kind, or NaN: means
        over the batches."""
        total = sum(weights.sum() for _, weights, *_ in batches)
        for optimizer, lr in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * rate
        seen = [self.gradient(total, *batch) for batch in batches]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer, _ in self.optimizers:
            optimizer.step()
        self.model.zero_grad(set_to_none=True)
        self.done += 1
        return means(seen)

    def gradient(self, total, ids, weights, kinds, positions=None, owners=None):
        """Adds that of the loss, where weights of all batches have the sum `total`."""
        cos, sin, mask = *cos_sin(plain_frequencies(), ids.shape[1] - 1), None
        if owners is not None:
            cos, sin = (a[positions[:, :-1]][:, None] for a in (cos, sin))
            mask = questions_apart(owners[:, :-1])[:, None]
        with torch.autocast("cpu", PRODUCTS, enabled=PRODUCTS != torch.float32):
            logits = self.model(ids[:, :-1], cos, sin, mask=mask)
        logits, targets = logits.float().flatten(0, 1), ids[:, 1:].flatten()
        nll = F.cross_entropy(logits, targets, reduction="none").view(weights.shape)
        ((nll * weights).sum() / total).backward()
        with torch.no_grad():
            right = (logits.argmax(-1) == targets).view(weights.shape)
            first, answers = weights == FIRST_WEIGHT, weights > 1
            return [nll[kinds == 0].mean().item()] + [
                right[of & (kinds == k)[:, None]].float().mean().item()
                for of in (answers, first) for k in range(1, len(KINDS))]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.03, help="of matrices (Muon)")
    parser.add_argument("--adam-lr", type=float, default=6e-3, help="of embeddings and norms")
    parser.add_argument("--steps", type=int, help="stop after so many, as they are")
    parser.add_argument("--state", type=pathlib.Path,
                        help="written every 200 steps; continued when it exists")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    training = Training(args.seed, args.lr, args.adam_lr)
    texts = [read_text(verses) for verses in TRAIN_RANGES]
    tokenizer = make_tokenizer(texts)
    rows = Rows(tokenizer, texts, args.seed)
    watch = Watch(rows, tokenizer.encode(read_text(DEV_RANGE), add_special_tokens=False).ids)
    if args.state and args.state.exists():
        training.load(args.state)
    print(f"{sum(p.numel() for p in training.model.parameters())} parameters, "
          f"{sum(len(p) for p in rows.parts)} training tokens", flush=True)

    total, seen = sum(phase[0] for phase in PHASES), []
    last = min(total, args.steps or total)
    while training.done < last:
        step = training.done
        share, shape = rows_of(step)
        rate = share * min(1.0, (step + 1) / WARM_UP)
        batches = [rows.batch(step, *shape)]
        if shape[-1].apart:
            batches.append(rows.kv_apart(step, shape[-1].apart, shape[1]))
        seen.append(training.step(batches, rate))
        if training.done % 50 == 0 or training.done == last:
            full = training.done % 200 == 0 or training.done == last
            watched = watch(training.model) if full else [float("nan")] * 4
            line = [training.done, round(training.seconds(), 1), f"{rate * args.lr:.2e}"]
            line += [round(float(x), 3) for x in [*means(seen), *watched]]
            print(*line, flush=True)
            training.log += [line] if full else []
            seen = []
            if args.state and full:
                training.save(args.state)
    export(training.model, tokenizer, args.out, training.log)


if __name__ == "__main__":
    main()
