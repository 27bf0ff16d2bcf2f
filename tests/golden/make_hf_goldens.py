"""Writes hf_models/: tiny models of every family and rope type with the logits that transformers gives.

    python3 tests/golden/make_hf_goldens.py [FAMILY ...]     (torch 2.13.0, transformers 4.57.6, numpy)

    hf_models/FAMILY/model*.safetensors   weights, shared by the rope types of a family
    hf_models/FAMILY/ROPE.json            the config.json
    hf_models/FAMILY/ROPE.f32             logits, float32: runs of cases.json, rows x vocab each
    hf_models/cases.json                  ids, rows, offsets of the runs: the first of them for
                                          families that have no positions further out
"""

import json
import pathlib
import shutil
import sys

import numpy as np
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "parity"))
import cases  # noqa: E402

TOKENS = 64  # twice what the models were "trained" at
ROWS = [0, 1, 31, 32, 33, 47, 62, 63]
OFFSETS = [0, 225, 131040, 1048544]  # with the rows: 255 .. 257, 131071, 1048575


def main():
    out = HERE / "hf_models"
    wanted = sys.argv[1:] or list(cases.FAMILIES)
    for family in wanted:
        shutil.rmtree(out / family, ignore_errors=True)
    rng = np.random.default_rng(1)
    ids = [int(i) for i in rng.integers(0, cases.SIZES["vocab_size"], TOKENS)]
    for family, rope in cases.CASES:
        if family not in wanted:
            continue
        folder = out / family
        with tempfile.TemporaryDirectory() as scratch:
            work = pathlib.Path(scratch) / "model"
            work.mkdir()
            cases.write_weights(family, work)
            cases.write_config(family, rope, work / "config.json")
            folder.mkdir(parents=True, exist_ok=True)
            for file in work.glob("model*"):
                shutil.copy(file, folder)
            shutil.copy(work / "config.json", folder / f"{rope}.json")
            runs = [cases.transformers_logits(work, ids, offset)[ROWS] for offset in OFFSETS
                    if offset + TOKENS - 1 <= cases.FAMILIES[family].last_position]
        np.concatenate(runs).astype("<f4").tofile(folder / f"{rope}.f32")
    # tests/parity/mistral4.py --golden makes that of the last under transformers 5.
    made = [list(c) for c in cases.CASES] + [["mistral4", "default"]]
    (out / "cases.json").write_text(json.dumps(dict(
        ids=ids, rows=ROWS, offsets=OFFSETS, cases=made)) + "\n")


if __name__ == "__main__":
    main()
