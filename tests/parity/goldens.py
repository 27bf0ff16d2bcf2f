"""The committed logits of transformers 4.57 (tests/golden/hf_models) under the version that Python finds: ropewalk is held
against the logits by `make test`, so that both versions are met.

Prints a line for each family and rope type; exits 1 when a difference passes the limit. What version 5 computes otherwise is
listed below with the reason; it must differ, so that the list stays true.
"""

import inspect
import json
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import torch
import transformers

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "golden" / "hf_models"
LIMIT = 2e-5  # of max |logit|, that of compare.py
VENDORS = ("baichuan", "chatglm", "internlm2", "minicpm", "orion", "qwen_")  # of their own files
DIFFERS = {
    "olmo3": "sliding layers take a base of 500000 where rope_theta is at top level",
    "deepseek_v2_greedy": "mlp_bias: biases of experts are not read",
}


def logits(folder, ids, offset):
    config = json.loads((folder / "config.json").read_text())
    alibi = config.get("alibi")  # twice in eager attention
    of = transformers.AutoModelForCausalLM
    if config["model_type"] == "mistral4":  # whose text alone Auto does not know
        of = transformers.Mistral4ForCausalLM
    model = of.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa" if alibi else "eager").eval()
    with torch.no_grad():
        args = dict(use_cache=False)
        if "position_ids" in inspect.signature(model.forward).parameters:
            args["position_ids"] = torch.arange(offset, offset + len(ids))[None]
        return model(torch.tensor([ids]), **args).logits[0].numpy()


def difference(family, rope, cases):
    """The largest of all offsets, relative to max |logit|; of Llama 4, whose masks count from the first token, that of 0."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for file in (GOLDENS / family).glob("model*"):
            shutil.copy(file, folder)
        shutil.copy(GOLDENS / family / f"{rope}.json", folder / "config.json")
        want = np.fromfile(GOLDENS / family / f"{rope}.f32", "<f4")
        want = want.reshape(-1, len(cases["rows"]), 64)
        offsets = cases["offsets"][: 1 if family.startswith("llama4") else len(want)]
        return max(float(np.abs(logits(folder, cases["ids"], offset)[cases["rows"]] - rows).max()
                         / np.abs(rows).max()) for offset, rows in zip(offsets, want))


def main():
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    cases = json.loads((GOLDENS / "cases.json").read_text())
    print("transformers", transformers.__version__)
    count = failures = 0
    for family, rope in cases["cases"]:
        if f"{family}_".startswith(VENDORS) or family.startswith("mpt"):  # MPT's bias ends at 32 tokens
            continue
        found = difference(family, rope, cases)
        good = (found > LIMIT) == (family in DIFFERS)
        count, failures = count + 1, failures + (not good)
        print(f"{family:19} {rope:22} {found:.1e} {DIFFERS.get(family, '')}{'' if good else '  FAILED'}")
    print(f"{count} models, {failures} failed (limit {LIMIT} of the largest logit)")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
