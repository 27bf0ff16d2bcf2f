"""Trains the embedded model: the weights, the tokenizer and loss.csv in this folder.

  python3 -m venv venv && venv/bin/pip install torch==2.13.0 numpy tokenizers safetensors
  venv/bin/python models/train.py --out models

Every batch depends on the seed and the step alone. Two stages: windows of 64 tokens in which a
third each is text, repeated segments and passkey prompts (without them the passkey is not
learned), then windows of 256 tokens, a quarter of them passkey. The learning rate is constant
and falls linearly to zero at the end (warm up, stay, decay). On a busy machine the length of the
run can be given in minutes instead of steps; loss.csv says which steps and rates that gave. With
--state the run can be stopped and continued.
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

from common import (BOS, CONFIG, DEV_RANGE, TRAIN_RANGES, Llama, Passkey, cos_sin,
                    plain_frequencies, read_text)

ANSWER_WEIGHT = 4.0  # an answer is 6 of 256 tokens; the weight makes it count like 24
BOS_NAME = "<|bos|>"


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


class Data:
    """Batches of (ids [rows, tokens + 1], weights [rows, tokens])."""

    def __init__(self, tokenizer, texts, seed):
        encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
        self.parts = [np.array(encode(text), dtype=np.int64) for text in texts]
        self.share = np.array([len(p) for p in self.parts], dtype=np.float64)
        self.share /= self.share.sum()
        self.passkey = Passkey(tokenizer)
        self.grass = encode(self.passkey.form["default_filler"])
        self.seed = seed

    def text(self, rng, n):
        part = self.parts[rng.choice(len(self.parts), p=self.share)]
        start = int(rng.integers(0, len(part) - n + 1))
        return part[start:start + n].tolist()

    def filler(self, rng):
        """Mostly running text; sometimes the default filler sentences, from any point in them."""
        if rng.random() < 0.85:
            return lambda n: self.text(rng, n)
        first = int(rng.integers(len(self.grass)))
        return lambda n: [self.grass[(first + i) % len(self.grass)] for i in range(n)]

    def text_row(self, rng, tokens):
        bos = rng.random() < 0.5
        return [BOS] * bos + self.text(rng, tokens + 1 - bos), []

    def repeat_row(self, rng, tokens):
        """A segment of text, again and again."""
        bos = rng.random() < 0.5
        segment = self.text(rng, int(rng.integers(8, tokens // 2 + 1)))
        ids = [BOS] * bos + segment * (tokens // len(segment) + 2)
        return ids[:tokens + 1], []

    def passkey_row(self, rng, tokens):
        """Half of them end with the answer at full length, the others have it earlier."""
        length = tokens
        if tokens > 64 and rng.random() < 0.5:
            length = int(rng.integers(64, tokens + 1))
        bos = rng.random() < 0.5
        filler = self.filler(rng)
        ids, answer = self.passkey.prompt(rng, filler, length, rng.random(), bos)
        ids += filler(tokens + 1 - length)
        return ids, range(length - answer - 1, length - 1)

    def batch(self, stage, step, rows, tokens):
        rng = np.random.default_rng([self.seed, stage, step])
        ids = np.empty((rows, tokens + 1), dtype=np.int64)
        weights = np.ones((rows, tokens), dtype=np.float32)
        for row in range(rows):
            if stage == 1:
                make = (self.text_row, self.repeat_row, self.passkey_row)[row % 3]
            else:
                make = self.passkey_row if row % 4 == 3 else self.text_row
            ids[row], answer = make(rng, tokens)
            weights[row, list(answer)] = ANSWER_WEIGHT
        return torch.from_numpy(ids), torch.from_numpy(weights)


class Watch:
    """Loss on the text that is watched and passkey accuracy, at the trained length."""

    def __init__(self, data, ids):
        tokens = CONFIG["max_position_embeddings"]
        ids = np.array(ids)[:len(ids) // tokens * tokens].reshape(-1, tokens)
        self.text = torch.from_numpy(np.concatenate(
            (np.full((len(ids), 1), BOS), ids), axis=1)[:, :tokens])
        rng = np.random.default_rng([data.seed, 99])
        made = [data.passkey.prompt(rng, data.filler(rng), tokens, (i + 0.5) / 32, i % 2)
                for i in range(32)]
        self.keys = torch.tensor([ids for ids, _ in made])
        self.answer = made[0][1]
        self.angles = cos_sin(plain_frequencies(), tokens)

    @torch.no_grad()
    def __call__(self, model):
        logits = model(self.text, *self.angles)[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), self.text[:, 1:].flatten())
        guess = model(self.keys, *self.angles)[:, -self.answer - 1:-1].argmax(-1)
        hit = (guess == self.keys[:, -self.answer:]).all(1).float().mean()
        return loss.item(), hit.item()


def export(model, tokenizer, out, log):
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    (out / "tokenizer_config.json").write_text(json.dumps({
        "add_bos_token": True, "add_eos_token": False, "bos_token": BOS_NAME,
        "clean_up_tokenization_spaces": False, "model_max_length": 256,
        "tokenizer_class": "PreTrainedTokenizerFast"}, indent=2) + "\n")
    (out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    with torch.no_grad():
        tensors = {n: t.detach().to(torch.bfloat16).contiguous() for n, t in model.tensors().items()}
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})
    with open(out / "loss.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["stage", "step", "minutes", "learning_rate", "train_loss",
                         "watched_loss", "watched_passkey"])
        writer.writerows(log)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--steps1", type=int, default=1300, help="steps of 48 x 64 tokens")
    parser.add_argument("--steps2", type=int, default=3000, help="steps of 24 x 256 tokens")
    parser.add_argument("--decay", type=float, default=0.33, help="share of stage 2 that decays")
    parser.add_argument("--minutes", type=float, help="end stage 2 by then, whatever its steps")
    parser.add_argument("--compile", action="store_true", help="torch.compile (needs a compiler)")
    parser.add_argument("--state", type=pathlib.Path,
                        help="written every 100 steps of stage 2; continued when it exists")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    texts = [read_text(verses) for verses in TRAIN_RANGES]
    tokenizer = make_tokenizer(texts)
    data = Data(tokenizer, texts, args.seed)
    watch = Watch(data, tokenizer.encode(read_text(DEV_RANGE), add_special_tokens=False).ids)
    model = Llama(args.seed)
    run = torch.compile(model, dynamic=False) if args.compile else model
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters if p.dim() == 2], "weight_decay": args.weight_decay},
         {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}],
        lr=args.lr, betas=(0.9, 0.95), fused=True)
    print(f"{sum(p.numel() for p in parameters)} parameters, "
          f"{sum(len(p) for p in data.parts)} training tokens", flush=True)

    log, losses, before, first = [], [], 0.0, 0
    if args.state and args.state.exists():
        state = torch.load(args.state)
        log, before, first = state["log"], state["minutes"], state["step"]
        model.load_state_dict(state["model"])
        if state["optimizer"]:
            optimizer.load_state_dict(state["optimizer"])
    begin = time.monotonic()
    elapsed = lambda: before + (time.monotonic() - begin) / 60
    for stage, rows, tokens in ((1, 48, 64), (2, 24, 256)):
        if stage == 1 and first > 0:
            continue
        angles = cos_sin(plain_frequencies(), tokens)
        step, stage_begin, done = first, (elapsed() if first == 0 else state["begin"]), False
        while not done:
            if stage == 1 or args.minutes is None:
                progress = step / (args.steps1 if stage == 1 else args.steps2)
            else:
                progress = (elapsed() - stage_begin) / (args.minutes - stage_begin)
            warm = min(1.0, (step + 1) / 100) if stage == 1 else min(1.0, (step - first + 1) / 20)
            tail = 1.0 if stage == 1 else min(1.0, max(0.0, 1 - progress) / args.decay)
            lr = args.lr * warm * tail
            for group in optimizer.param_groups:
                group["lr"] = lr

            ids, weights = data.batch(stage, step, rows, tokens)
            logits = run(ids[:, :-1], *angles)
            nll = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
            weights = weights.flatten()
            loss = (nll * weights).sum() / weights.sum()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            losses.append(loss.item())
            step += 1

            by_steps = stage == 1 or args.minutes is None
            limit = args.steps1 if stage == 1 else args.steps2
            done = step >= limit if by_steps else elapsed() >= args.minutes
            if step % 100 == 0 or done:
                watched, hits = watch(model)
                log.append([stage, step, round(elapsed(), 2), f"{lr:.2e}",
                            round(float(np.mean(losses)), 4), round(watched, 4), round(hits, 4)])
                losses = []
                print(*log[-1], flush=True)
                if stage == 2 and args.state:
                    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                                "step": step, "minutes": elapsed(), "begin": stage_begin,
                                "log": log}, args.state)
    export(model, tokenizer, args.out, log)


if __name__ == "__main__":
    main()
