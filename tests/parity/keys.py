"""Keys of config.json that some families read and others do not: ropewalk against transformers 4.57.

    keys.py LOGITS_DUMP [--families ...]

Each key is put into a random tiny model of every family that runs. Where ropewalk runs the model, its
logits must be those of transformers, whether the key counts or not; where transformers stops, ropewalk
must refuse. Refusing what transformers ignores is allowed. Prints a table; exits 1 when one fails.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

import cases
from compare import LIMIT, relative

TOKENS = 40
FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "smollm3", "gpt2", "opt", "gpt_neox", "gptj", "falcon",
            "bloom", "mpt", "phi", "stablelm", "gemma", "gemma2", "gemma3", "granite", "olmo", "olmo2",
            "olmo3", "cohere", "cohere2", "glm", "glm4", "phi3", "starcoder2", "mixtral",
            "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2", "deepseek_v3", "gpt_oss", "llama4"]
SLIDING, FULL = "sliding_attention", "full_attention"


def patches(layers):
    """name -> keys of config.json; None takes one out."""
    types = [SLIDING if i % 2 == 0 else FULL for i in range(layers)]
    return {
        "no_rope_layers": {"no_rope_layers": [int(i % 2 == 0) for i in range(layers)],
                           "no_rope_layer_interval": None},
        "no_rope_layer_interval": {"no_rope_layer_interval": 2, "no_rope_layers": None},
        "layer_types, window": {"layer_types": types, "sliding_window": 8, "use_sliding_window": None},
        "layer_types, window used": {"layer_types": types, "sliding_window": 8,
                                     "use_sliding_window": True},
        "layer_types, window unused": {"layer_types": types, "sliding_window": 8,
                                       "use_sliding_window": False},
        "window": {"sliding_window": 8, "layer_types": None},
        "window used": {"sliding_window": 8, "use_sliding_window": True, "layer_types": None},
        "window from layer 1": {"sliding_window": 8, "use_sliding_window": True,
                                "max_window_layers": 1, "layer_types": None},
        "window unused": {"sliding_window": 8, "use_sliding_window": False, "layer_types": None},
        "sliding_window_pattern": {"sliding_window": 8, "sliding_window_pattern": 2,
                                   "layer_types": None},
        "partial_rotary_factor": {"partial_rotary_factor": 0.75, "rotary_pct": None},
        "head_dim": {"head_dim": 32},
        "rope_theta": {"rope_theta": 77.0, "rotary_emb_base": None},
        "linear": {"rope_scaling": {"rope_type": "linear", "type": "linear", "factor": 4.0}},
        "linear, old word": {"rope_scaling": {"type": "linear", "factor": 4.0}},
        "rotary_pct": {"rotary_pct": 0.25},
        "rotary_dim": {"rotary_dim": 2},
        "rope_interleaved": {"rope_interleaved": True},
        "alibi": {"alibi": True},
        "attention_chunk_size": {"attention_chunk_size": 8},
        "attn_temperature_tuning": {"attn_temperature_tuning": True, "attn_scale": 0.5,
                                    "floor_scale": 4},
        "attn_logit_softcapping": {"attn_logit_softcapping": 0.5},
        "final_logit_softcapping": {"final_logit_softcapping": 0.5},
        "multipliers": {"embedding_multiplier": 3.0, "residual_multiplier": 0.3,
                        "attention_multiplier": 0.7, "logits_scaling": 3.0},
        "neutral multipliers": {"embedding_multiplier": 1.0, "residual_multiplier": 1.0,
                                "logits_scaling": 1.0, "attn_logit_softcapping": None},
        "logit_scale": {"logit_scale": 3.0},
        "query_pre_attn_scalar": {"query_pre_attn_scalar": 3},
        "clip_qkv": {"clip_qkv": 0.1},
        "use_qk_norm": {"use_qk_norm": True},
        "is_causal": {"is_causal": False},
    }


# (family, patch) -> what must happen, beyond the rule above. "runs": transformers 4.57 checks the form
# of the dictionary (OLMo's two keys, the newer word, Phi-3's longrope and Llama 4's llama3 alone), and its layers would
# compute it as all others do.
MUST = {"linear, old word": "runs", ("olmo", "linear"): "runs", ("olmo2", "linear"): "runs",
        ("phi3", "linear"): "runs", ("llama4", "linear"): "runs",
        ("llama", "no_rope_layers"): "same", ("llama", "layer_types, window"): "same",
        ("llama", "partial_rotary_factor"): "refused", ("smollm3", "no_rope_layers"): "same",
        ("qwen3", "layer_types, window used"): "same", ("mistral", "window unused"): "same",
        ("gptj", "linear"): "same", ("gpt_neox", "rope_theta"): "same"}


def theirs(folder, ids):
    """Logits, or None where transformers stops."""
    try:
        return cases.transformers_logits(folder, ids, 0)
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError):
        return None


def ours(program, folder, ids, shape):
    """Logits, or the reason why there are none."""
    out = folder / "logits.f32"
    (folder / "jobs.json").write_text(json.dumps([dict(
        model=str(folder), ids=ids, chunk=len(ids), offset=0, final_length=len(ids), angles="float32",
        out=str(out))]))
    run = subprocess.run([program, str(folder / "jobs.json")], stderr=subprocess.PIPE)
    if run.returncode != 0:
        return run.stderr.decode().strip().split(": ", 1)[-1]
    return np.fromfile(out, np.float32).reshape(shape)


def check(family, name, program, folder, ids):
    """(what happened, whether that is right)"""
    there = theirs(folder, ids)
    here = ours(program, folder, ids, (len(ids), cases.SIZES["vocab_size"]))
    must = MUST.get((family, name), MUST.get(name))
    if isinstance(here, str):
        reason = here.split("config.json: ")[-1][:70]
        return f"refused ({'it stops' if there is None else 'it runs'}): {reason}", must != "same"
    if there is None and must == "runs":
        return "runs here alone", True
    if there is None:
        return "RUNS HERE, transformers stops", False
    difference = relative(here, there)
    return f"{difference:.2e}", difference <= LIMIT and must in (None, "same", "runs")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("logits_dump")
    parser.add_argument("--families", nargs="*", default=FAMILIES)
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    ids = [int(i) for i in np.random.default_rng(0).integers(0, cases.SIZES["vocab_size"], TOKENS)]
    count = failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        for family in args.families:
            folder = pathlib.Path(scratch) / family
            folder.mkdir()
            cases.write_weights(family, folder)
            cases.write_config(family, "default", folder / "config.json")
            config = json.loads((folder / "config.json").read_text())
            layers = next(config[k] for k in ("num_hidden_layers", "n_layer", "n_layers") if k in config)
            for name, patch in patches(layers).items():
                patched = {k: v for k, v in {**config, **patch}.items()
                           if k not in patch or v is not None}
                (folder / "config.json").write_text(json.dumps(patched))
                said, good = check(family, name, args.logits_dump, folder, ids)
                count += 1
                failures += not good
                print(f"{family:10} {name:26} {said}{'' if good else '  FAILED'}", flush=True)
    print(f"{count} keys, {failures} failed (limit {LIMIT} of the largest logit)")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
