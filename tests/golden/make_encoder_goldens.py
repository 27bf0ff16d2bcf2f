"""Writes hf_encoders/: tiny encoders of every family with the states that transformers gives.

    python3 tests/golden/make_encoder_goldens.py      (torch 2.13.0, transformers 4.57.6, numpy)

    hf_encoders/NAME/config.json, model.safetensors
    hf_encoders/NAME/states.f32       float32: runs x rows x hidden
    hf_encoders/NAME/logits.f32       the same of a masked language model's logits: runs x rows x vocabulary
    hf_encoders/cases.json            ids; rows of the states; for each name its runs: tokens, token
                                      types or null, alpha of hierarchical positions or 0 (the same
                                      in all runs of a name), whether of the mask decoder
"""

import pathlib
import shutil
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "parity"))
import encoder_cases as cases  # noqa: E402

TOKENS = [1, 2, 20, 21, 80, 300, 400]  # 20: the short table; every bucket ends before 300
ROWS = [0, 1, 19, 20, 79, 255, 256, 257, 299, 399]


def main():
    out = HERE / "hf_encoders"
    shutil.rmtree(out, ignore_errors=True)
    ids = cases.ids_of(max(TOKENS), 1)
    runs = {}
    for name, encoder in cases.ENCODERS.items():
        folder = out / name
        folder.mkdir(parents=True)
        cases.write_folder(name, folder)
        plain = dict(types=None, alpha=encoder.alpha, decoder=encoder.decoder)
        runs[name] = [dict(plain, tokens=n) for n in TOKENS if n <= encoder.last]
        if encoder.types:
            runs[name].append(dict(plain, tokens=80, types=cases.types_of(name, 80)))
        if encoder.decoder:  # the layers alone, beyond its positions
            runs[name].append(dict(plain, tokens=400, decoder=False))
        states = [cases.states(name, folder, ids[:r["tokens"]], r["types"], r["decoder"])
                  for r in runs[name]]
        np.concatenate([s[[r for r in ROWS if r < len(s)]] for s in states]).astype("<f4").tofile(
            folder / "states.f32")
        if encoder.head:
            logits = [cases.states(name, folder, ids[:r["tokens"]], r["types"], logits=True)
                      for r in runs[name]]
            np.concatenate([x[[r for r in ROWS if r < len(x)]] for x in logits]).astype("<f4").tofile(
                folder / "logits.f32")
    cases.write_json(out / "cases.json", dict(ids=ids, rows=ROWS, runs=runs))


if __name__ == "__main__":
    main()
