#!/usr/bin/env python3
"""Measures how large a base a length needs, and what published models have: JSON lines for docs/results/evidence/bounds.jsonl. No weights, no
random numbers. Needs numpy and the Python package; the rows of published models also their config.json files, DATA/configs/*/*.json. Without
ROPEWALK_TEST_DATA it says so and leaves them out.

usage: ROPEWALK_TEST_DATA=DATA PYTHONPATH=build/python .venv-python/bin/python scripts/evidence_bounds.py
"""

import json
import math
import os
import pathlib
import sys
import warnings

import ropewalk as rw

DIM, LIMIT = 128, 2**21  # of Men et al. and Su, who look at heads of 128; tokens, beyond every length here
LENGTHS = [2**e for e in range(10, 21)]
MEN = (4.3e3, 1.6e4, 2.7e4, 8.4e4, 3.1e5, 6.4e5, 2.1e6, 7.8e6, 3.6e7, 6.4e7, 5.1e8)  # arXiv 2405.14591, table 2
SU = (4.3e3, 1.2e4, 2.7e4, 8.4e4, 2.3e5, 6.3e5, 2.1e6, 4.9e6, 2.4e7, 5.8e7, 6.5e7)  # kexue.fm/archives/10122
COMMAND = "ROPEWALK_TEST_DATA=DATA PYTHONPATH=build/python .venv-python/bin/python scripts/evidence_bounds.py"


def plain(base, dim):
    """Plain RoPE, whatever a model scales it by later."""
    return rw.rotation(dim, layout="half", base=base)


def never_completed(rotation, length):
    """The share of pairs that make no full turn within the length."""
    return float((rotation.pairs_within(length, length)["rotations"] < 1).mean())


def bounds():
    for (length, base), men, su in zip(rw.base_bounds(DIM, LENGTHS[-1]), MEN, SU, strict=True):
        yield {
            "what": "bound",
            "dim": DIM,
            "length": length,
            "base": base,
            "men": men,
            "men_supports": plain(men, DIM).longest_context(LIMIT),
            "su": su,
            "su_supports": plain(su, DIM).longest_context(LIMIT),
        }


def turns():
    for base in (1e4, 5e5, 1e7):
        for length in LENGTHS:
            yield {
                "what": "turns",
                "dim": DIM,
                "base": base,
                "length": length,
                "never": never_completed(plain(base, DIM), length),
            }


def equal_vectors():
    """The expected score of alike vectors, relative to distance 0, where article [D] has its zero and its full turn."""
    base, rotation = 1e4, plain(1e4, DIM)
    for name, distance in (("pi b / 2", math.pi * base / 2), ("2 pi b", 2 * math.pi * base)):
        at = round(distance)
        score = float(rotation.decay([at])[1][0])
        yield {"what": "equal vectors", "dim": DIM, "base": base, "name": name, "distance": at, "score": score}
    yield {"what": "supported", "dim": DIM, "base": base, "length": rotation.longest_context(LIMIT)}


def critical():
    """LLaMA 2 in Liu et al. 2023 (arXiv 2310.05209), trained with 4096 tokens."""
    found = plain(1e4, DIM).critical_dimension(4096)
    yield {"what": "critical", "dim": DIM, "base": 1e4, "length": 4096, "published": 92, "dimensions": found}


def model(name, plan, layer, layers):
    r, reach = layer.rotation, min(plan.trained_length, layer.window or LIMIT)
    own, bound = plain(r.base, r.rotary_dim), rw.base_bounds(r.rotary_dim, reach)
    return {
        "what": "model",
        "model": name,
        "layers": layers,
        "window": layer.window,
        "base": r.base,
        "head_dim": r.head_dim,
        "rotary_dim": r.rotary_dim,
        "trained": plan.trained_length,
        "configured": plan.configured_length,
        "reach": reach,
        "bound": bound[-1][1] if bound and bound[-1][0] == reach else None,
        "supports": own.longest_context(LIMIT),
        "critical": own.critical_dimension(reach),
        "never": never_completed(own, reach),
    }


def models(folder):
    """Every rotation of every config that rotates, for the lengths that it was trained at."""
    for path in sorted(folder.glob("*/*.json"), key=lambda p: p.name):
        with warnings.catch_warnings():  # of keys that have no effect
            warnings.simplefilter("ignore")
            plan = rw.plan(path)
        kinds = {}
        for layer in plan.layers:
            if layer.rotation is not None:
                kinds.setdefault((layer.rotation.base, layer.rotation.rotary_dim, layer.window), []).append(layer)
        for layers in kinds.values():
            yield model(path.stem, plan, layers[0], len(layers))


def main():
    print(json.dumps({"format": "ropewalk-evidence", "schema": 1, "version": rw.__version__, "command": COMMAND}))
    rows = [*bounds(), *turns(), *equal_vectors(), *critical()]
    if data := os.environ.get("ROPEWALK_TEST_DATA"):
        rows += models(pathlib.Path(data) / "configs")
    else:
        print("published models: not measured, ROPEWALK_TEST_DATA is not set", file=sys.stderr)
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
