"""Logits of ropewalk against Mistral 4 of transformers 5, which 4.57 does not have: a random tiny model.

    mistral4.py LOGITS_DUMP      compares, as compare.py does the families of 4.57
    mistral4.py --golden         writes tests/golden/hf_models/mistral4 and its case in cases.json

transformers chooses experts among all where a group's best two are not above 0; logits of random models are.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "golden" / "hf_models"
LIMIT = 2e-5  # of max |logit|, that of compare.py
TOKENS, FAR_TOKENS, ORIGINAL = 300, 40, 32
ROPE = dict(rope_type="yarn", rope_theta=500.0, factor=4.0, original_max_position_embeddings=ORIGINAL,
            max_position_embeddings=4 * ORIGINAL, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
            llama_4_scaling_beta=0.1)
SIZES = dict(hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=4,
             num_hidden_layers=3, vocab_size=64, kv_lora_rank=16, q_lora_rank=24, qk_nope_head_dim=16,
             qk_rope_head_dim=8, v_head_dim=12, n_routed_experts=8, n_shared_experts=2, moe_intermediate_size=16,
             num_experts_per_tok=3, n_group=4, topk_group=2, first_k_dense_replace=1, routed_scaling_factor=1.7,
             max_position_embeddings=4 * ORIGINAL)
CASES = {  # of the configuration
    "default": {},
    "biased": dict(attention_bias=True, q_lora_rank=None, n_group=1, topk_group=1, norm_topk_prob=False,
                   first_k_dense_replace=0, v_head_dim=40),
    "half": dict(rope_interleave=False, rope_parameters=dict(ROPE, mscale_all_dim=0.7, truncate=False)),
}


def write(folder, extra):
    config = transformers.Mistral4Config(**{**SIZES, "rope_parameters": dict(ROPE), **extra})
    torch.manual_seed(4)
    model = transformers.Mistral4ForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            one = name.endswith("norm.weight")
            parameter.copy_(torch.randn_like(parameter) * 0.2 + (1 if one else 0))
    model.save_pretrained(folder)


def logits(folder, ids, offset):
    model = transformers.Mistral4ForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        positions = torch.arange(offset, offset + len(ids))[None]
        return model(torch.tensor([ids]), position_ids=positions, use_cache=False).logits[0].numpy()


def compare(program):
    rng = np.random.default_rng(0)
    ids = [int(i) for i in rng.integers(0, SIZES["vocab_size"], TOKENS)]
    runs = {"prefill": (ids, 0, TOKENS), "chunked": (ids, 0, 37), "decode": (ids, 0, 1),
            "at L": (ids[:ORIGINAL], 0, 8), "L + 1": (ids[: ORIGINAL + 1], 0, 8)}
    runs |= {f"at {at}": (ids[:FAR_TOKENS], at - 20, FAR_TOKENS) for at in (131071, 1048575)}
    jobs, expected, failures = [], [], 0
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        for name, extra in CASES.items():
            folder, wrong = root / name, root / f"{name}-wrong"
            write(folder, extra)
            shutil.copytree(folder, wrong)
            config = json.loads((wrong / "config.json").read_text())
            config["rope_parameters"]["llama_4_scaling_beta"] *= 2
            (wrong / "config.json").write_text(json.dumps(config))
            for run, (tokens, offset, chunk) in runs.items():
                theirs = logits(folder, tokens, offset)
                for control in [False, True] if run == "prefill" else [False]:
                    out = root / f"{len(jobs)}.f32"
                    jobs.append(dict(model=str(wrong if control else folder), ids=tokens, chunk=chunk, offset=offset,
                                     final_length=offset + len(tokens), angles="float32", out=str(out)))
                    expected.append((name, "control" if control else run, theirs, out))
        (root / "jobs.json").write_text(json.dumps(jobs))
        subprocess.run([program, str(root / "jobs.json")], check=True)
        for name, run, theirs, out in expected:
            ours = np.fromfile(out, np.float32).reshape(theirs.shape)
            difference = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
            good = difference > 1e-3 if run == "control" else difference <= LIMIT
            failures += not good
            print(f"mistral4 {name:10} {run:12} {np.abs(theirs).max():8.3f} {difference:10.2e}"
                  f"{' (must differ)' if run == 'control' else ''}{'' if good else '  FAILED'}")
    print(f"{len(expected)} comparisons, {failures} failed (limit {LIMIT} of the largest logit)")
    return 1 if failures else 0


def golden():
    cases = json.loads((GOLDENS / "cases.json").read_text())
    out = GOLDENS / "mistral4"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        write(folder, CASES["default"])
        shutil.copy(folder / "model.safetensors", out)
        shutil.copy(folder / "config.json", out / "default.json")
        rows = [logits(folder, cases["ids"], offset)[cases["rows"]] for offset in cases["offsets"]]
    np.concatenate(rows).astype("<f4").tofile(out / "default.f32")
    if ["mistral4", "default"] not in cases["cases"]:
        cases["cases"].append(["mistral4", "default"])
    (GOLDENS / "cases.json").write_text(json.dumps(cases) + "\n")


def main():
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    if sys.argv[1:] == ["--golden"]:
        return golden()
    return compare(sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())
