#!/usr/bin/env python3
"""Makes tests/golden/kv_q8_0.json: rows of a head and what gguf-py (ggml's own Python package) reads back of them after
writing them as q8_0. Needs the packages gguf and numpy: .venv-parity/bin/python tests/golden/kv_q8_0_make.py

Rows are float32 as their bits: random ones of several sizes, ties of the rounding, zeros, subnormals, the largest.
"""

import importlib.metadata
import json
import pathlib

import gguf
import numpy as np

random = np.random.default_rng(5)
rows = [random.standard_normal(64).astype(np.float32) * scale for scale in (1, 1e-3, 30, 1e-20, 1e6)]
rows.append(np.zeros(64, np.float32))
# d = 1, so that halves are ties, which go away from 0
ties = np.full(64, 127, np.float32)
ties[:20] = np.arange(20) - 9.5
rows.append(ties)
# the first block all tiny, the second with one outlier
rows.append(np.concatenate([np.full(32, 1e-42), [900.0], random.standard_normal(31)]).astype(np.float32))

kind = gguf.GGMLQuantizationType.Q8_0
with np.errstate(all="ignore"):
    kept = [gguf.quants.dequantize(gguf.quants.quantize(row, kind), kind).astype(np.float32) for row in rows]


def bits(row):
    return [int(b) for b in np.asarray(row, np.float32).view(np.uint32)]


golden = {
    "made_by": f"gguf {importlib.metadata.version('gguf')}",
    "rows": [{"given": bits(given), "kept": bits(read)} for given, read in zip(rows, kept)],
}
path = pathlib.Path(__file__).with_name("kv_q8_0.json")
path.write_text(json.dumps(golden, separators=(",", ":")).replace('{"given"', '\n{"given"') + "\n")
