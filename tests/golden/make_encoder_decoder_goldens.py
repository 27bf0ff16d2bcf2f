"""Writes hf_encoder_decoders/: tiny encoder-decoder models with the logits that transformers gives.

    python3 tests/golden/make_encoder_decoder_goldens.py      (torch 2.13.0, transformers 4.57.6, numpy)

    hf_encoder_decoders/NAME/config.json, model.safetensors
    hf_encoder_decoders/NAME/logits.f32   float32: runs x rows x vocabulary
    hf_encoder_decoders/cases.json        ids; rows of the logits; runs: how many of the ids the encoder reads
                                          (eos behind them) and how many behind these the decoder predicts;
                                          for each name the mean loss of each run
"""

import pathlib
import shutil
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "parity"))
import encoder_cases  # noqa: E402
import encoder_decoder_cases as cases  # noqa: E402

# Around the last bucket (40 and 128), a chunk of 512 tokens, and far beyond.
RUNS = [(1, 400), (127, 300), (128, 300), (129, 300), (300, 1), (700, 1100)]
ROWS = [0, 1, 19, 41, 127, 128, 129, 255, 256, 257, 299, 399, 511, 512, 513, 1099]


def main():
    out = HERE / "hf_encoder_decoders"
    shutil.rmtree(out, ignore_errors=True)
    ids = encoder_cases.ids_of(max(sum(run) for run in RUNS), 2)
    losses = {}
    for name in cases.MODELS:
        folder = out / name
        folder.mkdir(parents=True)
        cases.write_folder(name, folder)
        model = cases.load(name, folder)
        split = [(ids[:prefix], ids[prefix:prefix + tokens]) for prefix, tokens in RUNS]
        logits = [cases.logits(model, *run) for run in split]
        np.concatenate([x[[r for r in ROWS if r < len(x)]] for x in logits]).astype("<f4").tofile(
            folder / "logits.f32")
        losses[name] = [cases.loss(model, *run) for run in split]
    encoder_cases.write_json(out / "cases.json", dict(ids=ids, rows=ROWS, runs=RUNS, losses=losses))


if __name__ == "__main__":
    main()
