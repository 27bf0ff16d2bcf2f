"""Measures the model in this folder on held-out text: perplexity and three tasks against length.

  venv/bin/python models/evaluate.py

Independent of the C++ program (frequencies, decoder and prompts are written here again), with the
same protocol: the same last K tokens of each anchor at every length, BOS first and counted.
"""

import argparse
import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer

from common import (BOS, CONFIG, HERE, Llama, cos_sin, plain_frequencies, questions_apart,
                    read_text)
from prompts import Prompts

TRAINED = CONFIG["max_position_embeddings"]


def method(name, s):
    """(frequencies, magnitude of cos and sin) at factor s."""
    d, b, f = CONFIG["head_dim"], CONFIG["rope_theta"], plain_frequencies()
    if name == "none" or s <= 1:
        return f, 1.0
    if name == "linear":  # Chen et al. 2023, equation 4
        return f / s, 1.0
    if name == "ntk":
        return (b * s ** (d / (d - 2))) ** (-np.arange(0, d, 2) / d), 1.0
    rotations = TRAINED * f / (2 * math.pi)
    if name == "by-parts":  # Peng et al. 2023 (YaRN), section 3.2: alpha 1, beta 32
        keep = np.clip((rotations - 1) / (32 - 1), 0, 1)
        return f * keep + f / s * (1 - keep), 1.0
    if name == "llama3":
        keep = np.clip((rotations - 1) / (4 - 1), 0, 1)
        return f * keep + f / s * (1 - keep), 1.0
    if name == "yarn":  # the ramp over pair indices that transformers has, rounded outwards

        def index(turns):
            return d * math.log(TRAINED / (turns * 2 * math.pi)) / (2 * math.log(b))

        low, high = max(math.floor(index(32)), 0), min(math.ceil(index(1)), d - 1)
        ramp = np.clip((np.arange(d // 2) - low) / max(high - low, 0.001), 0, 1)
        return f / s * ramp + f * (1 - ramp), 0.1 * math.log(s) + 1
    raise ValueError(name)


@torch.no_grad()
def losses(model, rows, frequencies, magnitude, scored):
    """Mean loss of the last `scored` tokens of each row."""
    ids = torch.tensor(rows)
    angles = cos_sin(frequencies, ids.shape[1] - 1, magnitude)
    step, found = max(1, 8192 // ids.shape[1]), []
    for part in ids.split(step):
        out = model(part[:, :-1], *angles, last=scored)
        nll = F.cross_entropy(out.flatten(0, 1), part[:, -scored:].flatten(), reduction="none")
        found.append(nll.view(len(part), -1).mean(1))
    return torch.cat(found)


@torch.no_grad()
def answered(model, prompt, frequencies, magnitude):
    """Whether each answer is what the model says, with every question behind the context alone."""
    ids, spans, positions, owners = prompt.apart()
    mask = questions_apart(torch.tensor(owners))
    ids = torch.tensor(ids)
    behind = len(ids) - len(prompt.context) + 1
    guess = torch.full((len(ids),), -1)
    guess[-behind:] = model(ids[None, :], *cos_sin(frequencies, positions, magnitude), last=behind,
                            mask=mask)[0].argmax(-1)
    return [bool((guess[a - 1:b - 1] == ids[a:b]).all()) for a, b in spans[len(prompt.answered):]]


def prompts_of(prompts, task, length, count, text):
    """Prompts with at least `count` questions in all; none where not even one fits."""
    made = []
    while sum(len(p.questions) for p in made) < count:
        rng = np.random.default_rng([7, length, len(made)])
        each = min(count, max(1, length // 300))
        if task == "passkey":
            start = int(rng.integers(0, len(text) - length))
            made.append(prompts.passkey(rng, length, 1, each, each,
                                        lambda n: text[start:start + n]))
        elif task == "kv":
            made.append(prompts.kv(rng, length, 1, each))
        else:
            made.append(prompts.vt(rng, length, 1, [(3, 1, 4), (5, 1, 4)]))
        if made[-1] is None:
            return []
    return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=pathlib.Path, default=HERE)
    parser.add_argument("--lengths", type=int, nargs="*",
                        default=[256, 512, 1024, 2048, 4096, 8192])
    parser.add_argument("--scored", type=int, default=128)
    parser.add_argument("--anchors", type=int, default=48)
    parser.add_argument("--questions", type=int, default=24, help="of each task at each length")
    parser.add_argument("--factor", type=float, help="instead of length / trained length")
    parser.add_argument("--methods", nargs="*",
                        default=["none", "linear", "ntk", "by-parts", "llama3", "yarn"])
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    model = Llama().load(load_file(str(args.model / "model.safetensors")))
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    prompts, text = Prompts(tokenizer), read_text()
    ids = prompts.encode(text)
    ends = np.linspace(max(args.lengths), len(ids), args.anchors).astype(int)
    print(f"held out: {len(text)} bytes, {len(ids)} tokens; {args.anchors} anchors of "
          f"{args.scored} tokens; {args.questions} questions of passkey, kv and vt\n")
    print("| length | " + " | ".join(args.methods) + " |")
    print("|---" * (len(args.methods) + 1) + "|")
    for length in args.lengths:
        rows = [[BOS] + ids[e - length + 1:e] for e in ends]
        asked = [prompts_of(prompts, task, length, args.questions, ids)
                 for task in ("passkey", "kv", "vt")]
        cells = []
        for name in args.methods:
            rotation = method(name, args.factor or length / TRAINED)
            nll = losses(model, rows, *rotation, args.scored)
            error = (nll.std() / len(nll) ** 0.5).item()
            ppl = nll.mean().exp().item()
            hits = [sum((answered(model, p, *rotation) for p in made), []) for made in asked]
            shares = [f"{np.mean(h):.2f}" if h else "-" for h in hits]
            cells.append(f"{ppl:.2f} ± {ppl * error:.2f}, " + " ".join(shares))
        print(f"| {length} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
