#!/usr/bin/env python3
"""Trains the zoo's bidirectional twin with a table of learned rows, lets it read more by hierarchical decomposition and by new
random rows, tunes both by the same batches, and measures pseudo-perplexity against length: JSON lines for
docs/results/evidence/twin.jsonl, which scripts/evidence.py draws. About 15 minutes of a core. Needs the program, the Python
package, PyTorch, safetensors, tokenizers and Debian's bible-kjv-text.

usage: PYTHONPATH=build/python .venv-parity/bin/python scripts/evidence_twin.py [--build build] [-o build/twin] [--rows FILE]
    What was ended goes on from the folder -o.
"""

import argparse
import collections
import hashlib
import json
import math
import pathlib
import subprocess
import sys

import torch

from ropewalk import zoo
from ropewalk.zoo import _train

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRAINED = 128
LENGTHS = (128, 256, 512, 1024)
TUNED = 512  # tokens of a row when it is tuned
ALPHA = 0.4  # as Su has it
FASTEST, AMPLITUDE = 2.8, 0.2  # of the sinusoids that the rows begin with; the slowest one makes half a turn in TRAINED tokens
TRAINING = {"steps": 700, "rows": 16, "masked": 0.4}
TUNING = {"steps": 100, "rows": 4, "rate": 0.005, "seed": 2, "masked": 0.4}
SPANS, SCORED = 8, 64
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


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


def measured(program, text, folder):
    """(hash of the model, of the text, a dictionary for each length), of the same tokens at every length and in every model."""
    protocol = ["--protocol", f"masked:{SCORED}", "--anchors", str(SPANS), "--threads", "1", "--json"]
    command = [program, "perplexity", folder, "--text", text, "--lengths", ",".join(map(str, LENGTHS)), *protocol]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found["model_hash"], found["text_hash"], found["lengths"]


def unigram(folder, text):
    """Perplexity of the text by the frequencies of its tokens alone, which a model that learns no more than these has."""
    from tokenizers import Tokenizer

    ids = (
        Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text.read_text(encoding="utf-8"), add_special_tokens=False).ids
    )
    counts = collections.Counter(ids)
    return math.exp(-sum(n * math.log(n / len(ids)) for n in counts.values()) / len(ids))


def rows_of(program, text, models):
    """A row for each model and length."""
    for (name, steps), folder in models.items():
        print(f"{name}, {steps} steps of tuning", file=sys.stderr, flush=True)
        model, _, lengths = measured(program, text, folder)
        for found in lengths:
            numbers = {key: found[key] for key in ("length", "pseudo_perplexity", "mean_nll", "standard_error", "scored_tokens")}
            yield {"what": "twin", "model": name, "tuning_steps": steps, "model_hash": model, **numbers}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="folder with the program")
    parser.add_argument("-o", "--out", type=pathlib.Path, default=ROOT / "build" / "twin", help="folder of the models")
    parser.add_argument("--rows", type=pathlib.Path, help="file of rows; default: OUT/rows.jsonl")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the same bits on any number of cores
    learned, own = zoo.ENTRIES["learned"], {"bidirectional": True, "source": ROOT}
    begin, text = args.out / "trained", args.out / "heldout.txt"
    beginning().save_pretrained(args.out / "start")
    trained = zoo.train(learned, begin, start=args.out / "start", max_position_embeddings=TRAINED, **TRAINING, **own)
    text.write_text(_train._sources(ROOT)[0].read_text(), encoding="utf-8")
    models = {}
    for kind in ("hierarchical", "random"):
        made, before, after = variant(trained, kind), args.out / kind, args.out / f"{kind}-tuned"
        made.save_pretrained(before, tokenizer=begin)
        zoo.train(made.config["positions"], after, start=before, max_position_embeddings=TUNED, **TUNING, **own)
        models |= {(kind, 0): before, (kind, TUNING["steps"]): after}
    header = {
        "format": "ropewalk-evidence",
        "schema": 1,
        "command": "PYTHONPATH=build/python .venv-parity/bin/python scripts/evidence_twin.py",
        "trained_length": TRAINED,
        "training": TRAINING,
        "tuned_length": TUNED,
        "tuning": TUNING,
        "alpha": ALPHA,
        "spans": SPANS,
        "scored_per_span": SCORED,
        "text_hash": hashlib.sha256(text.read_bytes()).hexdigest(),
        "torch": torch.__version__,
    }
    rows = [{"what": "unigram", "perplexity": unigram(begin, text)}, *rows_of(args.build / "ropewalk", text, models)]
    lines = "".join(json.dumps(line) + "\n" for line in (header, *rows))
    (args.rows or args.out / "rows.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
