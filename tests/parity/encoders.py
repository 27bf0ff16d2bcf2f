"""States of ropewalk's encoders, and logits of encoder-decoder models, against transformers in float32 on random tiny models, and sentence
vectors of the real all-MiniLM-L6-v2, within its 512 positions and far beyond them.

    encoders.py ENCODER_DUMP [--minilm FOLDER] [--families ...]

Prints a table; exits 1 when a difference passes 2e-5 of the largest number, or when a negative
control (the words behind the compared ones in another order) does not.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

import encoder_cases as cases
import encoder_decoder_cases as both

LIMIT = 2e-5
ROOT = pathlib.Path(__file__).resolve().parents[2]
SENTENCES = [
    "A ropewalk is the long straight lane in which rope is made.",
    "The cat sat outside.",
    "A man is playing guitar, and nobody listens.",
    "Positions are told to a transformer in twenty ways.",
]
LONG_TOKENS = [512, 513, 1024, 2048, 4096]  # of MiniLM; its table has 512


class Table:
    def __init__(self, program, root):
        self.program, self.root, self.jobs, self.expected = program, root, [], []

    def add(self, name, run, job, theirs, control=False):
        out = self.root / f"{len(self.jobs)}.f32"
        self.jobs.append(dict(dict(types=None, alpha=0, vector=False, decoder=False, logits=False, prefix=None), **job, out=str(out)))
        self.expected.append((name, run, theirs, out, control))

    def finish(self):
        path = self.root / "jobs.json"
        cases.write_json(path, self.jobs)
        subprocess.run([self.program, str(path)], check=True)
        failures = 0
        print(f"{'encoder':22} {'run':34} {'largest':>9} {'difference':>11}")
        for name, run, theirs, out, control in self.expected:
            ours = np.fromfile(out, np.float32).reshape(-1, theirs.shape[-1])[: len(theirs)]
            difference = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
            good = difference > 0.01 if control else difference <= LIMIT
            failures += not good
            print(f"{name:22} {run:34} {np.abs(theirs).max():9.4f} {difference:11.2e}"
                  f"{' (must differ)' if control else ''}{'' if good else '  FAILED'}")
        print(f"{len(self.expected)} comparisons, {failures} failed (limit {LIMIT} of the largest)")
        return failures


def add_tiny(table, name, folder):
    encoder = cases.ENCODERS[name]
    cases.write_folder(name, folder)
    ids = cases.ids_of(1100, 0)
    for tokens in [1, 2, 60, 80, 255, 300] if encoder.decoder else []:
        if tokens <= encoder.last:
            table.add(name, f"{tokens} tokens, mask decoder",
                      dict(model=str(folder), ids=ids[:tokens], decoder=True),
                      cases.states(name, folder, ids[:tokens], decoder=True))
    if encoder.decoder:
        table.add(name, "mask decoder, control", dict(model=str(folder), ids=ids[:60]),
                  cases.states(name, folder, ids[:60], decoder=True), control=True)
    for tokens in [1, 2, 60, 300, 1100]:
        if not encoder.decoder and tokens > encoder.last or encoder.alpha and tokens > 400:
            continue
        job = dict(model=str(folder), ids=ids[:tokens], alpha=encoder.alpha)
        theirs = cases.states(name, folder, ids[:tokens])
        table.add(name, f"{tokens} tokens", job, theirs)
        if encoder.head:
            table.add(name, f"{tokens} tokens, logits", dict(job, logits=True),
                      cases.states(name, folder, ids[:tokens], logits=True))
        if tokens == 60:
            table.add(name, "control", dict(job, ids=ids[:10] + ids[40:60] + ids[10:40]),
                      theirs[:10], control=True)
    if encoder.types:
        types = cases.types_of(name, 60)
        table.add(name, "60 tokens, token types", dict(model=str(folder), ids=ids[:60], types=types),
                  cases.states(name, folder, ids[:60], types))


def add_both(table, name, folder):
    both.write_folder(name, folder)
    model = both.load(name, folder)
    ids = cases.ids_of(2300, 0)
    for prefix, tokens in [(1, 60), (127, 300), (128, 300), (129, 300), (1100, 1100)]:
        first, rest = ids[:prefix], ids[prefix:prefix + tokens]
        theirs = both.logits(model, first, rest)
        job = dict(model=str(folder), ids=rest, prefix=first)
        table.add(name, f"prefix {prefix}, {tokens} tokens", job, theirs)
        if prefix == 127:
            table.add(name, "control", dict(job, prefix=first[60:] + first[:60]), theirs, control=True)


def add_published_nezha(table, name, folder):
    """transformers 4's own code, which 5 dropped, and so what holds the formula typed again."""
    try:
        from transformers.models.deprecated import nezha
    except ImportError:
        return
    model = nezha.NezhaForMaskedLM if cases.ENCODERS[name].head else nezha.NezhaModel
    model = model.from_pretrained(folder, dtype=torch.float32).eval()
    ids = cases.ids_of(1100, 0)
    with torch.no_grad():
        for tokens in [1, 300, 1100]:
            base = model.base_model(torch.tensor([ids[:tokens]])).last_hidden_state[0].numpy()
            table.add(name, f"{tokens} tokens, published code",
                      dict(model=str(folder), ids=ids[:tokens]), base)


def vector(states):
    return torch.nn.functional.normalize(states.mean(0), dim=0).numpy()[None]


def add_minilm(table, folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        model = transformers.BertModel.from_pretrained(folder, dtype=torch.float32).eval()
        for text in SENTENCES:
            ids = tokenizer(text)["input_ids"]
            states = model(torch.tensor([ids])).last_hidden_state[0]
            table.add("all-MiniLM-L6-v2", f"'{text[:24]}..'",
                      dict(model=str(folder), ids=ids, vector=True), vector(states))
        pages = sorted((ROOT / "docs").rglob("*.md"))
        words = tokenizer("\n".join(p.read_text() for p in pages)[:200000])["input_ids"]
        for tokens in LONG_TOKENS:
            ids = words[: tokens - 1] + words[-1:]  # [CLS] .. [SEP]
            if tokens == 512:
                states = model(torch.tensor([ids])).last_hidden_state[0]
                table.add("all-MiniLM-L6-v2", "512 tokens", dict(model=str(folder), ids=ids,
                                                                 vector=True), vector(states))
            longer = cases.extended(
                transformers.BertModel.from_pretrained(folder, dtype=torch.float32).eval(), 0.4,
                tokens)
            states = longer(torch.tensor([ids])).last_hidden_state[0]
            job = dict(model=str(folder), ids=ids, alpha=0.4)
            table.add("all-MiniLM-L6-v2", f"{tokens} tokens, hierarchical: states", job,
                      states.numpy())
            table.add("all-MiniLM-L6-v2", f"{tokens} tokens, hierarchical: vector",
                      dict(job, vector=True), vector(states))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("encoder_dump")
    parser.add_argument("--minilm", help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--families", nargs="*", default=[*cases.ENCODERS, *both.MODELS])
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        table = Table(args.encoder_dump, root)
        for name in args.families:
            folder = root / name
            folder.mkdir()
            (add_both if name in both.MODELS else add_tiny)(table, name, folder)
            if "nezha" in name:
                add_published_nezha(table, name, folder)
        if args.minilm:
            add_minilm(table, pathlib.Path(args.minilm))
        return 1 if table.finish() else 0


if __name__ == "__main__":
    sys.exit(main())
