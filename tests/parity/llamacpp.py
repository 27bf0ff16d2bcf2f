"""Logits of ropewalk, at exact angles, against llama.cpp's on tiny random GGUF files of every scaling
that llama.cpp has; then on what `ropewalk convert` and `ropewalk extend` write (llamacpp_written.py).

    llamacpp.py BUILD_FOLDER [--folder DIR]

What may differ: both sides sum in float32 in their own order (FLOOR), and ggml computes an angle as
float32: it multiplies the position by base^(-2/d) once per pair, divides, blends, and rounds each time.
The error of that angle is computed here for the very positions of a run; logits may move by its largest
value in radians times GAIN. What must differ: each wrong reading of the file, by ropewalk, has to move
the logits RATIO times further than that limit (a wrong amplitude near, wrong frequencies far as well). At
1048575 that ratio is small because ggml's own angles are off by up to 0.06 rad there. The cache holds float32 and flash attention is off;
llama.cpp's defaults would round keys and values to float16.
"""

import argparse
import pathlib
import sys
import tempfile

import numpy as np

import llamacpp_cases as cases
import llamacpp_written
from llamacpp_engine import Engine
from llamacpp_ours import Ours, relative

FLOOR = 2e-5  # of the largest logit, as against transformers
GAIN = 3  # of the largest logit, a radian of angle error
RATIO = {"near": 1000, "131071": 8, "1048575": 2}

TOKENS = 300  # over L and over 255, 256 and 257; scores see distances up to as many
# name -> (first position, tokens, at a time); the named positions lie inside
RUNS = {"near": (0, TOKENS, TOKENS), "decode": (0, 40, 1), "4 L": (900, TOKENS, TOKENS),
        "131071": (131071 - 150, TOKENS, TOKENS), "1048575": (1048575 - 150, TOKENS, TOKENS)}


def angle_error(case, first, tokens):
    """Largest error, in radians, of the angles that ggml's float32 arithmetic comes to."""
    f32 = np.float32
    positions = np.arange(first, first + tokens)
    ratio = f32(f32(case.shape.base) ** f32(-2.0 / case.shape.head_dim))
    side = "short" if case.short else "long"
    divisors = case.tensors.get("rope_freqs.weight", case.tensors.get(f"rope_factors_{side}.weight"))
    scale = f32(1 / f32(case.keys.get("rope.scaling.factor", 1.0)))
    is_yarn = case.keys.get("rope.scaling.type") == "yarn"
    if is_yarn:  # the ramp from the frequencies that it has to come to
        kept = (case.frequencies / case.shape.plain - float(scale)) / (1 - float(scale))
    theta, worst = positions.astype(f32), 0.0
    for i in range(case.shape.pairs):
        angle = theta / f32(1 if divisors is None else divisors[i])
        if is_yarn:
            angle = scale * angle * f32(1 - kept[i]) + angle * f32(kept[i])
        else:
            angle = scale * angle
        exact = case.shape.plain[i] if divisors is None else case.shape.plain[i] / float(divisors[i])
        exact = positions * (exact * float(scale) if not is_yarn else case.frequencies[i])
        worst = max(worst, float(np.abs(angle.astype(float) - exact).max()))
        theta = theta * ratio
    return worst


def runs_of(case):
    """LongRoPE's short side ends at L."""
    if not case.short:
        return RUNS
    return {"near": (0, cases.ORIGINAL - 6, cases.ORIGINAL - 6), "decode": RUNS["decode"]}


def ask_case(ours, case, architecture, ids, root):
    """Writes a case's files; run -> (file, right, {wrong: number})."""
    tensors = cases.weights(architecture, case.shape)
    path = root / f"{architecture} {case.name}.gguf"
    cases.write(path, architecture, case.shape, case.keys, {**tensors, **case.tensors})
    wrong = {}
    for name, (frequencies, amplitude) in case.wrong.items():
        keys, extra = cases.explicit(case.shape, frequencies, amplitude)
        wrong[name] = root / f"{architecture} {case.name} {name}.gguf"
        cases.write(wrong[name], architecture, case.shape, keys, {**tensors, **extra})
    asked = {}
    for run, (first, tokens, chunk) in runs_of(case).items():
        length = cases.ORIGINAL if case.short else max(first + tokens, 2 * cases.ORIGINAL)
        right = ours.ask(path, ids[:tokens], first, length, chunk)
        controls = {name: ours.ask(file, ids[:tokens], first, length) for name, file in wrong.items()
                    if run == "near" or run in RATIO and case.wrong_frequencies(name)}
        asked[run] = (right, controls)
    return path, asked


def print_row(*columns):
    print("{:9} {:30} {:8} {:>9} {:>9} {:>9} {:>9}  {}".format(*columns))


def compare_case(case, architecture, path, asked, ids, answers):
    failures = 0
    with Engine(path) as engine:
        for run, (right, controls) in asked.items():
            first, tokens, chunk = runs_of(case)[run]
            context = cases.ORIGINAL if case.short else 2 * cases.ORIGINAL
            theirs = engine.logits(ids[:tokens], first, context, chunk)
            difference = relative(answers[right], theirs)
            error = angle_error(case, first, tokens)
            limit = FLOOR + GAIN * error
            effects = {name: relative(answers[n], answers[right]) for name, n in controls.items()}
            least = min(effects, key=effects.get) if effects else None
            good = difference <= limit and (least is None or effects[least] >= RATIO[run] * limit)
            failures += not good
            print_row(architecture, case.name, run, f"{difference:.1e}", f"{error:.1e}", f"{limit:.1e}",
                      f"{effects[least]:.1e}" if least else "",
                      f"{least or ''}{'' if good else '  FAILED'}")
    return failures


def check_scalings(ours, root):
    rng = np.random.default_rng(0)
    ids = [int(i) for i in rng.integers(0, cases.VOCAB, TOKENS)]
    asked = [(case, architecture, *ask_case(ours, case, architecture, ids, root))
             for case in cases.cases() for architecture in case.architectures]
    answers = ours.run()
    print_row("", "scaling", "at", "differ", "angle err", "limit", "wrong", "the nearest wrong reading")
    failures = sum(compare_case(case, architecture, path, runs, ids, answers)
                   for case, architecture, path, runs in asked)
    count = sum(len(runs) for *_, runs in asked)
    print(f"{count} comparisons of tiny files, {failures} failed")
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--folder", help="keep the files here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(args.folder or scratch)
        root.mkdir(parents=True, exist_ok=True)
        failures = check_scalings(Ours(args.build, root), root)
        failures += llamacpp_written.check(args.build, root)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
