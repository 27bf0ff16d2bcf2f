#!/usr/bin/env python3
"""Trains the zoo's bidirectional twin with a table of learned rows, lets it read more by hierarchical decomposition and by new
random rows, tunes both by the same batches, and measures pseudo-perplexity against length: JSON lines for
docs/results/evidence/twin.jsonl, which scripts/evidence.py draws. About 10 minutes of a core. Needs the program, the Python
package, PyTorch, safetensors, tokenizers and Debian's bible-kjv-text.

usage: PYTHONPATH=build/python .venv-parity/bin/python scripts/evidence_twin.py [--build build] [-o build/twin] [--rows FILE]
    What was ended goes on from the folder -o.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import math
import os
import pathlib
import subprocess

import torch

from ropewalk import zoo
from ropewalk.zoo import _train

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRAINED = 128
LENGTHS = (128, 256, 512, 1024)
TUNED = 512  # tokens of a row when it is tuned
ALPHA = 0.4  # as Su has it
SMALLER = (0.1, 0.2)  # nearer to repeating the rows, which 0 would be; not tuned
FASTEST, AMPLITUDE = 2.8, 0.2  # of the sinusoids that the rows begin with; the slowest one makes half a turn in TRAINED tokens
TRAINING = {"steps": 700, "rows": 16, "masked": 0.4}
TUNING_STEPS = (300,)  # one run each, in which the rate rises and falls
TUNING = {"rows": 2, "rate": 0.005, "seed": 2, "masked": 0.4}
SPANS, SCORED = 8, 32


def beginning():
    """The twin before training. Rows are sinusoids, and two heads of the first layer look at the token before and the one behind:
    with random ones the model does not find out in so few steps that neighbours matter."""
    torch.manual_seed(1)
    vocab = json.loads((ROOT / "models" / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    own = {"vocab_size": vocab + 1, "mask_token_id": vocab, "bos_token_id": 0, "max_position_embeddings": TRAINED}
    twin = zoo.Model({"bidirectional": True, **own, "positions": zoo.ENTRIES["learned"]})
    table, layer, dim = twin.model.positions.table, twin.model.layers[0].self_attn, twin.config["head_dim"]
    pairs = table.shape[1] // 2
    step = FASTEST * (math.pi / TRAINED / FASTEST) ** (torch.arange(pairs) / (pairs - 1))  # radians a token, of each pair
    angles = torch.arange(TRAINED)[:, None] * step
    with torch.no_grad():
        table[:, 0::2], table[:, 1::2] = AMPLITUDE * angles.sin(), AMPLITUDE * angles.cos()
        for head, distance in enumerate((-1, 1)):
            q, k = (p.weight[head * dim : (head + 1) * dim] for p in (layer.q_proj, layer.k_proj))
            q.zero_()
            k.copy_(torch.eye(dim, k.shape[1]))
            for n, angle in enumerate((step[: dim // 2] * distance).tolist()):
                turn = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
                q[2 * n : 2 * n + 2, 2 * n : 2 * n + 2] = turn
    return twin


def variant(trained, kind):
    """A model of the tensors of `trained`, whose table of n rows reaches every length: composed of these rows (hierarchical), or
    with new rows behind them (random), drawn with the mean and standard deviation of each column of the trained ones."""
    table, longest = trained.model.positions.table.detach(), LENGTHS[-1]
    settings = {"hierarchical": {"rows": len(table), "alpha": ALPHA}, "random": {"rows": longest}}[kind]
    name = {"hierarchical": "hierarchical", "random": "learned"}[kind]
    made = zoo.Model({**trained.config, "positions": {"absolute": {"type": name, **settings}}})
    state = trained.state_dict()
    if kind == "random":
        draw = torch.Generator().manual_seed(1)
        new = torch.randn(longest - len(table), table.shape[1], generator=draw) * table.std(0) + table.mean(0)
        state["model.positions.table"] = torch.cat((table, new))
    made.load_state_dict(state)
    return made


def about_rows(first, trained):
    """How alike rows are before and after training, and how far hierarchical positions move them behind the table, in units of
    their length."""
    before, rows = (model.model.positions.table.detach() for model in (first, trained))
    moved = ALPHA / (1 - ALPHA) * (rows[1 : LENGTHS[-1] // TRAINED] - rows[0])
    return {
        "what": "rows",
        "cosine_with_sinusoids": torch.cosine_similarity(before, rows, -1).mean().item(),
        "moved": (moved.norm(dim=1).mean() / rows.norm(dim=1).mean()).item(),
    }


def measured(program, text, folder, *options):
    """A dictionary for each length, of the same tokens at every length and in every model."""
    protocol = ["--protocol", f"masked:{SCORED}", "--anchors", str(SPANS), "--threads", "1", "--json"]
    command = [program, "perplexity", folder, "--text", text, "--lengths", ",".join(map(str, LENGTHS)), *protocol, *options]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    kept = ("length", "pseudo_perplexity", "mean_nll", "standard_error", "scored_tokens")
    return [{"model_hash": found["model_hash"], **{key: row[key] for key in kept}} for row in found["lengths"]]


def by_block(program, text, folder, per_token):
    """Pseudo-perplexity of each block of TRAINED tokens in windows of TUNED: hierarchical positions make such blocks."""
    protocol = ["--protocol", f"masked:{2 * SCORED}", "--anchors", str(SPANS), "--threads", "1", "--per-token", per_token]
    command = [program, "perplexity", folder, "--text", text, "--lengths", str(TUNED), *protocol]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    tokens = [json.loads(line) for line in per_token.read_text(encoding="utf-8").splitlines()]
    blocks = [[t["nll"] for t in tokens if t["position"] // TRAINED == block] for block in range(TUNED // TRAINED)]
    return {"length": TUNED, "pseudo_perplexities": [math.exp(sum(nll) / len(nll)) for nll in blocks]}


def unigram(folder, text):
    """Perplexity of the text by the frequencies of its tokens alone, which a model that learns no more than these has."""
    from tokenizers import Tokenizer

    ids = (
        Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text.read_text(encoding="utf-8"), add_special_tokens=False).ids
    )
    counts = collections.Counter(ids)
    return math.exp(-sum(n * math.log(n / len(ids)) for n in counts.values()) / len(ids))


def blocks_of(program, text, models):
    for (name, steps), folder in models.items():
        found = by_block(program, text, folder, folder / "tokens.jsonl")
        yield {"what": "blocks", "model": name, "tuning_steps": steps, **found}


def rows_of(program, text, models, trained):
    """A row for each model and length; as many models at a time as there are cores."""
    runs = [({"what": "twin", "model": name, "tuning_steps": steps}, folder) for (name, steps), folder in models.items()]
    runs += [({"what": "alpha", "alpha": alpha}, trained, "--positions", f"hierarchical:{alpha}") for alpha in SMALLER]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda run: measured(program, text, *run[1:]), runs)
        return [{**run[0], **row} for run, lengths in zip(runs, found) for row in lengths]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="folder with the program")
    parser.add_argument("-o", "--out", type=pathlib.Path, default=ROOT / "build" / "twin", help="folder of the models")
    parser.add_argument("--rows", type=pathlib.Path, help="file of rows; default: OUT/rows.jsonl")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the same bits on any number of cores
    learned, own = zoo.ENTRIES["learned"], {"bidirectional": True, "source": ROOT}
    begin, text = args.out / "trained", args.out / "heldout.txt"
    first = beginning()
    first.save_pretrained(args.out / "start")
    trained = zoo.train(learned, begin, start=args.out / "start", max_position_embeddings=TRAINED, **TRAINING, **own)
    text.write_text(_train._sources(ROOT)[0].read_text(), encoding="utf-8")
    models = {}
    for kind in ("hierarchical", "random"):
        made, before = variant(trained, kind), args.out / kind
        made.save_pretrained(before, tokenizer=begin)
        models[kind, 0] = before
        for steps in TUNING_STEPS:
            settings, after = {"steps": steps, **TUNING, **own}, args.out / f"{kind}-{steps}"
            zoo.train(made.config["positions"], after, start=before, max_position_embeddings=TUNED, **settings)
            models[kind, steps] = after
    header = {
        "format": "ropewalk-evidence",
        "schema": 1,
        "command": "PYTHONPATH=build/python .venv-parity/bin/python scripts/evidence_twin.py",
        "trained_length": TRAINED,
        "training": TRAINING,
        "tuned_length": TUNED,
        "tuning": {"steps": TUNING_STEPS, **TUNING},
        "alpha": ALPHA,
        "spans": SPANS,
        "scored_per_span": SCORED,
        "text_hash": hashlib.sha256(text.read_bytes()).hexdigest(),
        "torch": torch.__version__,
    }
    context = [{"what": "unigram", "perplexity": unigram(begin, text)}, about_rows(first, trained)]
    program = args.build / "ropewalk"
    rows = [*context, *rows_of(program, text, models, begin), *blocks_of(program, text, models)]
    lines = "".join(json.dumps(line) + "\n" for line in (header, *rows))
    (args.rows or args.out / "rows.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
