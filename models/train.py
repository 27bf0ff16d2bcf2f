"""Trains the embedded model for 1024 tokens and its tasks: the weights and loss.csv in this folder.

  git worktree add ../stage1 44398a4    # the first stage: 256 tokens, with a train.py of its own
  python3 -m venv venv && venv/bin/pip install torch==2.13.0 numpy tokenizers safetensors
  venv/bin/python models/train.py --from ../stage1/models --out ../stage2
  venv/bin/python models/train.py --stage 3 --seed 7 --from ../stage2 --out models

Every batch depends on the seed and the step alone. Rows grow from 192 to 1024 tokens (PHASES). The
learning rate is constant and falls linearly to zero at the end (DECAYS). The length of a run is its
steps; the CPU time that they took is printed and stands in loss.csv. With --state the run can be
stopped and continued.
"""

import argparse
import csv
import json
import pathlib
import shutil
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from common import (BOS, CONFIG, DEV_RANGE, TRAIN_RANGES, Llama, cos_sin, plain_frequencies,
                    read_text)
from muon import Muon
from rows import FIRST_WEIGHT, KINDS, Mix, Rows

ALL = Mix((0.24, 0.2, 0.26, 0.3))
# By stage: (steps, share of the learning rate, tokens of a step, lengths of rows in turn, mix)
PHASES = {
    2: [(300, 1.0, 8192, (192, 256), ALL), (50, 1.0, 8192, (256, 512), ALL),
        (150, 0.5, 4096, (256,), Mix((0.2, 0.1, 0.6, 0.1))), (100, 0.5, 8192, (512, 1024), ALL),
        (190, 0.4, 8192, (512, 1024, 1024), Mix((0.24, 0.2, 0.18, 0.38))),
        (430, 0.4, 8192, (512, 1024, 1024), Mix((0.22, 0.18, 0.36, 0.24))),
        (100, 0.2, 8192, (512, 1024, 1024), Mix((0.2, 0.15, 0.48, 0.17)))],
    3: [(360, 0.4, 8192, (512, 1024, 1024), Mix((0.2, 0.12, 0.53, 0.15), (0.75, 0.15, 0.1), 4)),
        (280, 0.4, 8192, (1024,), Mix((0.16, 0.09, 0.63, 0.12), (0.9, 0.06, 0.04), 4))]}
WARM_UP = 20  # steps at the beginning
# By stage: (step at which the rate is zero, steps in which it falls to that). Stage 3 did so twice.
DECAYS = {2: [(1320, 110)], 3: [(360, 160), (640, 240)]}


def stage_before(folder):
    """The weights of the stage before in the shapes of CONFIG.

    Of the first stage key and value heads are repeated, so that every query head has one of its
    own; of the feed-forward units those with the smallest norms are left out.
    """
    config = json.loads((folder / "config.json").read_text())
    weights = {n: t.float() for n, t in load_file(str(folder / "model.safetensors")).items()}
    dim, copies = CONFIG["head_dim"], CONFIG["num_key_value_heads"] // config["num_key_value_heads"]
    for i in range(CONFIG["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for name in (p + "self_attn.k_proj.weight", p + "self_attn.v_proj.weight"):
            heads = weights[name].view(config["num_key_value_heads"], dim, -1)
            weights[name] = heads.repeat_interleave(copies, dim=0).flatten(0, 1)
        gate, up, down = (weights[p + f"mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        norms = gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)
        kept = norms.topk(CONFIG["intermediate_size"]).indices.sort().values
        for name in ("gate", "up"):
            weights[p + f"mlp.{name}_proj.weight"] = weights[p + f"mlp.{name}_proj.weight"][kept]
        weights[p + "mlp.down_proj.weight"] = down[:, kept]
    return weights


def rows_of(stage, step):
    """Share of the learning rate and (rows, their tokens, mix) of a step."""
    for steps, share, size, lengths, mix in PHASES[stage]:
        if step < steps:
            tokens = lengths[step % len(lengths)]
            return share, (size // tokens, tokens, mix)
        step -= steps
    raise IndexError(step)


class Watch:
    """Loss on the text that is watched, and the share of prompts answered, at full length."""

    def __init__(self, rows, ids):
        tokens = CONFIG["max_position_embeddings"]
        ids = np.array(ids)[:len(ids) // tokens * tokens].reshape(-1, tokens)
        self.text = torch.from_numpy(np.concatenate(
            (np.full((len(ids), 1), BOS), ids), axis=1)[:, :tokens])
        rng = np.random.default_rng([rows.seed, 99, 99])
        self.asked = {kind: [rows.prompt(rng, kind, tokens, 1, ALL).row() for _ in range(12)]
                      for kind in KINDS[1:]}
        self.angles = cos_sin(plain_frequencies(), tokens)

    @torch.no_grad()
    def __call__(self, model):
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(self.text, *self.angles)[:, :-1].float()
            found = [F.cross_entropy(logits.flatten(0, 1), self.text[:, 1:].flatten()).item()]
            for rows in self.asked.values():
                hits = []
                for ids, spans in rows:
                    ids = torch.tensor(ids)
                    guess = model(ids[None, :], *(a[:len(ids)] for a in self.angles))[0].argmax(-1)
                    hits += [bool((guess[a - 1:b - 1] == ids[a:b]).all()) for a, b in spans]
                found.append(float(np.mean(hits)))
        return found


def export(model, first, out, log):
    out.mkdir(parents=True, exist_ok=True)
    tokens = json.loads((first / "tokenizer_config.json").read_text())
    tokens["model_max_length"] = CONFIG["max_position_embeddings"]
    (out / "tokenizer_config.json").write_text(json.dumps(tokens, indent=2) + "\n")
    shutil.copyfile(first / "tokenizer.json", out / "tokenizer.json")
    (out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    with torch.no_grad():
        tensors = {n: t.to(torch.bfloat16).contiguous() for n, t in model.tensors().items()}
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})
    with open(out / "loss.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["stage", "step", "cpu_seconds", "learning_rate", "text_loss"]
                        + [f"{kind}_tokens" for kind in KINDS[1:]]
                        + [f"{kind}_first" for kind in KINDS[1:]] + ["watched_loss"]
                        + [f"watched_{kind}" for kind in KINDS[1:]])
        writer.writerows(log)


class Training:
    """The model with its optimizers, what has been logged, and the CPU time that it took."""

    def __init__(self, weights, lr, adam_lr):
        self.model = Llama().load(weights)
        matrices = [t for n, t in self.model.tensors().items() if "_proj" in n]
        others = [t for n, t in self.model.tensors().items() if "_proj" not in n]
        self.optimizers = [(Muon(matrices, lr, weight_decay=0.1), lr),
                           (torch.optim.AdamW(others, lr=adam_lr, betas=(0.9, 0.95),
                                              weight_decay=0.0, fused=True), adam_lr)]
        self.done, self.log, self.before = 0, [], 0.0

    def cpu_seconds(self):
        return self.before + time.process_time()

    def save(self, path):
        torch.save({"model": self.model.state_dict(), "done": self.done, "log": self.log,
                    "optimizers": [o.state_dict() for o, _ in self.optimizers],
                    "cpu_seconds": self.cpu_seconds()}, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def load(self, path):
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        for (optimizer, _), saved in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        self.done, self.log, self.before = state["done"], state["log"], state["cpu_seconds"]

    def step(self, run, batch, rate):
        """Loss of text, and the shares of right answer tokens and first tokens by kind, or NaN."""
        ids, weights, kinds = batch
        for optimizer, lr in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * rate
        with torch.autocast("cpu", torch.bfloat16):
            logits = run(ids[:, :-1], *cos_sin(plain_frequencies(), ids.shape[1] - 1))
        logits, targets = logits.float().flatten(0, 1), ids[:, 1:].flatten()
        nll = F.cross_entropy(logits, targets, reduction="none").view(weights.shape)
        ((nll * weights).sum() / weights.sum()).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer, _ in self.optimizers:
            optimizer.step()
        self.model.zero_grad(set_to_none=True)
        self.done += 1
        with torch.no_grad():
            right = (logits.argmax(-1) == targets).view(weights.shape)
            first, answers = weights == FIRST_WEIGHT, weights > 1
            return [nll[kinds == 0].mean().item()] + [
                right[of & (kinds == k)[:, None]].float().mean().item()
                for of in (answers, first) for k in range(1, len(KINDS))]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", type=pathlib.Path, required=True, dest="first",
                        help="folder of the weights and the tokenizer of the stage before")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--stage", type=int, choices=PHASES, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.012, help="of matrices (Muon)")
    parser.add_argument("--adam-lr", type=float, default=2e-3, help="of embeddings and norms")
    parser.add_argument("--steps", type=int, help="stop after so many, as they are")
    parser.add_argument("--compile", action="store_true", help="torch.compile (needs a compiler)")
    parser.add_argument("--state", type=pathlib.Path,
                        help="written every 50 steps; continued when it exists")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    texts = [read_text(verses) for verses in TRAIN_RANGES]
    tokenizer = Tokenizer.from_file(str(args.first / "tokenizer.json"))
    rows = Rows(tokenizer, texts, args.seed)
    watch = Watch(rows, tokenizer.encode(read_text(DEV_RANGE), add_special_tokens=False).ids)
    training = Training(stage_before(args.first), args.lr, args.adam_lr)
    if args.state and args.state.exists():
        training.load(args.state)
    run = torch.compile(training.model, dynamic=False) if args.compile else training.model
    print(f"{sum(p.numel() for p in training.model.parameters())} parameters, "
          f"{sum(len(p) for p in rows.parts)} training tokens", flush=True)

    total, seen = sum(phase[0] for phase in PHASES[args.stage]), []
    last = min(total, args.steps or total)
    while training.done < last:
        step = training.done
        share, shape = rows_of(args.stage, step)
        end, span = next(decay for decay in DECAYS[args.stage] if step < decay[0])
        rate = share * min(1.0, (step + 1) / WARM_UP, (end - step) / span)
        batch = rows.batch(step, *shape)
        seen.append(training.step(run, batch, rate))
        if training.done % 25 == 0 or training.done == last:
            full = training.done % 100 == 0 or training.done == last
            watched = watch(training.model) if full else [float("nan")] * 4
            line = [args.stage, training.done, round(training.cpu_seconds(), 1)]
            line += [f"{rate * args.lr:.2e}"]
            line += [round(float(x), 4) for x in [*np.nanmean(seen, axis=0), *watched]]
            print(*line, flush=True)
            training.log += [line] if full else []
            seen = []
        if args.state and (training.done % 50 == 0 or training.done == last):
            training.save(args.state)
    export(training.model, args.first, args.out, training.log)


if __name__ == "__main__":
    main()
