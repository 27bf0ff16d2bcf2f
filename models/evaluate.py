"""Measures the model in this folder on held-out text: perplexity and passkey against length.

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

from common import BOS, CONFIG, HERE, Llama, Passkey, cos_sin, plain_frequencies, read_text

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
def logits(model, rows, angles, last):
    """The logits that predict the last `last` tokens of each row."""
    ids = torch.tensor(rows)
    step = max(1, 8192 // ids.shape[1])
    return torch.cat([model(ids[i:i + step], *angles, last=last + 1)[:, :-1]
                      for i in range(0, len(ids), step)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=pathlib.Path, default=HERE)
    parser.add_argument("--lengths", type=int, nargs="*", default=[256, 512, 1024, 2048])
    parser.add_argument("--scored", type=int, default=128)
    parser.add_argument("--anchors", type=int, default=200)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--no-bos", action="store_true")
    parser.add_argument("--factor", type=float, help="instead of length / 256")
    parser.add_argument("--methods", nargs="*",
                        default=["none", "linear", "ntk", "by-parts", "llama3", "yarn"])
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    bos = not args.no_bos

    model = Llama(0)
    weights = load_file(str(args.model / "model.safetensors"))
    with torch.no_grad():
        for name, tensor in model.tensors().items():
            tensor.copy_(weights.pop(name).float())
    assert not weights, "surplus tensors"
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    text = read_text()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    ends = np.linspace(max(args.lengths), len(ids), args.anchors).astype(int)
    passkey = Passkey(tokenizer)
    print(f"held out: {len(text)} bytes, {len(ids)} tokens; {args.anchors} anchors of "
          f"{args.scored} tokens, {args.trials} passkey trials, BOS {'on' if bos else 'off'}\n")
    print("| length | " + " | ".join(args.methods) + " |")
    print("|---" * (len(args.methods) + 1) + "|")
    for length in args.lengths:
        rows = [[BOS] * bos + ids[e - length + bos:e] for e in ends]
        target = torch.tensor([r[-args.scored:] for r in rows])
        rng = np.random.default_rng([7, length])
        keys = []
        for trial in range(args.trials):
            start = int(rng.integers(0, len(ids) - length))
            keys.append(passkey.prompt(rng, lambda n: ids[start:start + n], length,
                                       trial / (args.trials - 1), bos))
        answer = keys[0][1]
        keys = [k for k, _ in keys]
        want = torch.tensor([k[-5:] for k in keys])
        cells = []
        for name in args.methods:
            angles_of = method(name, args.factor or length / TRAINED)
            angles = cos_sin(angles_of[0], length, angles_of[1])
            out = logits(model, rows, angles, args.scored)
            nll = F.cross_entropy(out.flatten(0, 1), target.flatten(), reduction="none")
            per_anchor = nll.view(len(rows), -1).mean(1)
            error = per_anchor.std() / len(rows) ** 0.5
            guess = logits(model, keys, angles, answer).argmax(-1)[:, -5:]
            hit = (guess == want).all(1).float().mean().item()
            ppl = per_anchor.mean().exp().item()
            cells.append(f"{ppl:.2f} ± {ppl * error.item():.2f}, {hit:.2f}")
        print(f"| {length} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
