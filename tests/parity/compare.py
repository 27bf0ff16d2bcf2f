"""Logits of ropewalk against transformers in float32, eager attention, on random tiny models.

    compare.py LOGITS_DUMP [--folder DIR]

Prints a table; exits 1 when a difference passes 2e-5 of the largest logit, or when a negative
control (a wrong base, positions one later) does not.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch

import cases

LIMIT = 2e-5  # of max |logit|
TOKENS = 300  # beyond every trained length here, over 255, 256 and 257
FAR_TOKENS = 40
FAR = [131071 - 20, 1048575 - 20]  # so that the named positions lie inside


def jobs_of(family, rope, folder, rng):
    """name -> (ids, offset, chunk) of one case. Length-dependent methods see offset + len(ids)."""
    ids = [int(i) for i in rng.integers(0, cases.SIZES["vocab_size"], TOKENS)]
    jobs = {
        "prefill": (ids, 0, TOKENS),
        "chunked": (ids, 0, 37),
        "decode": (ids, 0, 1),
        "short": (ids[: cases.ORIGINAL - 1], 0, 8),
        "at L": (ids[: cases.ORIGINAL], 0, 8),
        "L + 1": (ids[: cases.ORIGINAL + 1], 0, 8),
    }
    for first in FAR:
        if first + FAR_TOKENS <= cases.FAMILIES[family].last_position:
            jobs[f"at {first + 20}"] = (ids[:FAR_TOKENS], first, FAR_TOKENS)
    return jobs


def write_control(family, config):
    """Writes a wrong base, or wrong slopes: half as many heads, twice the largest, none at all.
    GPT-J reads no base: fewer dimensions rotate. Positions that are learned start one later instead."""
    if family.startswith("bloom"):
        config["n_head"] //= 2
        return 0
    if family == "baichuan_13b":
        config["num_attention_heads"] //= 2
        return 0
    if "rope_parameters" in config:
        config["rope_parameters"]["rope_theta"] *= 1.5
        return 0
    if family.startswith("mpt"):
        config["attn_config"]["alibi_bias_max"] = 2 * config["attn_config"].get("alibi_bias_max", 8)
        return 0
    if family == "gptj":
        config["rotary_dim"] //= 2
        return 0
    if config.get("alibi"):
        config["alibi"] = False
        return 0
    if cases.FAMILIES[family].last_position < FAR[0]:
        return 1
    key = "rotary_emb_base" if "rotary_emb_base" in config else "rope_theta"
    config.pop("rope_theta" if key == "rotary_emb_base" else "", None)
    config[key] = 1.5 * config.get(key, 10000)
    return 0


def dump(program, jobs, folder):
    path = folder / "jobs.json"
    path.write_text(json.dumps(jobs))
    subprocess.run([program, str(path)], check=True)


def relative(ours, theirs):
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("logits_dump")
    parser.add_argument("--folder", help="keep the models here")
    parser.add_argument("--families", nargs="*", default=list(cases.FAMILIES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(args.folder or scratch)
        all_jobs, expected = [], []
        for family, rope in cases.CASES:
            if family not in args.families:
                continue
            folder = root / f"{family}-{rope}"
            folder.mkdir(parents=True, exist_ok=True)
            cases.write_weights(family, folder)
            cases.write_config(family, rope, folder / "config.json")
            wrong = root / f"{family}-{rope}-wrong-base"
            wrong.mkdir(exist_ok=True)
            for file in folder.iterdir():
                (wrong / file.name).write_bytes(file.read_bytes())
            config = json.loads((wrong / "config.json").read_text())
            control_offset = write_control(family, config)
            (wrong / "config.json").write_text(json.dumps(config))
            for name, (ids, offset, chunk) in jobs_of(family, rope, folder, rng).items():
                theirs = cases.transformers_logits(folder, ids, offset)
                for control in [False, True] if name == "prefill" else [False]:
                    out = root / f"{len(all_jobs)}.f32"
                    all_jobs.append(dict(
                        model=str(wrong if control else folder), ids=ids, chunk=chunk,
                        offset=offset + (control_offset if control else 0),
                        final_length=offset + len(ids), angles="float32", out=str(out)))
                    expected.append((family, rope, "control" if control else name, theirs, out))
        dump(args.logits_dump, all_jobs, root)
        print(f"{'family':19} {'rope':22} {'run':12} {'max |logit|':>11} {'difference':>11}")
        for family, rope, name, theirs, out in expected:
            ours = np.fromfile(out, np.float32).reshape(theirs.shape)
            difference = relative(ours, theirs)
            control = name == "control"
            good = difference > 0.02 if control else difference <= LIMIT
            failures += not good
            print(f"{family:19} {rope:22} {name:12} {np.abs(theirs).max():11.3f} {difference:11.2e}"
                  f"{' (must differ)' if control else ''}{'' if good else '  FAILED'}")
    print(f"{len(expected)} comparisons, {failures} failed (limit {LIMIT} of the largest logit)")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
