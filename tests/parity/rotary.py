"""Rotary tables of ropewalk against transformers, 4.57 or 5, whichever is importable.

    rotary.py ROTARY_DUMP

1. Frequencies (bit for bit) and amplitude of every type in transformers' ROPE_INIT_FUNCTIONS, over
   random Llama configurations, with the powers of a CPU with AVX-512 on any.
2. cos and sin as applied, captured from the rotary modules of the families that build their own,
   at near and far positions.

Prints a line a family; exits 1 when anything differs.
"""

import importlib
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

MAJOR = int(transformers.__version__.split(".")[0])
POSITIONS = [0, 1, 255, 256, 257, 4095, 4096, 4097, 16384, 131071, 1048575]
RANDOM_CONFIGS = 400
LIMIT = 1.5e-7  # cos and sin of the same float32 angle, by two libraries: one ULP at 1
AT_ONCE = 32  # elements that PyTorch passes to Sleef's pow with AVX-512; the rest go to powf


def power(base, exponents):
    """base ** exponents as PyTorch has it with AVX-512, which src/rotary/torch_pow.h gives on every CPU: with
    AVX2 alone PyTorch takes 16 at a time, and up to 16 elements come from the other function."""
    if not torch.is_tensor(exponents) or exponents.dim() != 1:
        return torch.pow(base, exponents)
    whole = len(exponents) // AT_ONCE * AT_ONCE
    rest = [torch.pow(base, exponents[n : n + 1]) for n in range(whole, len(exponents))]
    return torch.cat([torch.pow(base, exponents[:whole]), *rest])


def rope_keys(theta, rope):
    """The dictionary in the spelling of the version: rope_parameters or rope_theta + rope_scaling."""
    if MAJOR >= 5:
        return {"rope_parameters": {"rope_theta": theta, **(rope or {"rope_type": "default"})}}
    return {"rope_theta": theta, "rope_scaling": rope}


def random_rope(kind, rng, pairs):
    factor = rng.choice([1.5, 2.0, 4.0, 8.0, 32.0, rng.uniform(1, 40)])
    original = rng.choice([512, 2048, 4096, 8192])
    rope = {"rope_type": kind, "factor": factor}
    if kind == "yarn":
        rope["original_max_position_embeddings"] = original
        if rng.random() < 0.3:
            rope["truncate"] = False
        if rng.random() < 0.3:
            rope |= {"beta_fast": rng.uniform(4, 64), "beta_slow": rng.uniform(0.5, 3)}
        if rng.random() < 0.2:
            rope["attention_factor"] = rng.uniform(0.5, 2)
        elif rng.random() < 0.3:
            rope |= {"mscale": rng.uniform(0.1, 2), "mscale_all_dim": rng.uniform(0.1, 2)}
    if kind == "llama3":
        low = rng.uniform(0.5, 2)
        rope |= {"original_max_position_embeddings": original, "low_freq_factor": low,
                 "high_freq_factor": low + rng.uniform(0.5, 8)}
    if kind == "longrope":
        rope |= {"short_factor": [rng.uniform(1, 1.5) for _ in range(pairs)],
                 "long_factor": [rng.uniform(1, 60) for _ in range(pairs)]}
        if MAJOR >= 5:
            rope["original_max_position_embeddings"] = original
    if kind == "proportional":
        rope["partial_rotary_factor"] = rng.choice([0.25, 0.5, 0.75])
    return rope, original


def frequency_jobs():
    rng = random.Random(0)
    jobs, expected = [], []
    kinds = [k for k in ROPE_INIT_FUNCTIONS if k != "default"]
    for n in range(RANDOM_CONFIGS):
        kind = kinds[n % len(kinds)]
        head_dim = rng.choice([16, 32, 64, 96, 128, 256])
        theta = rng.choice([1e4, 5e5, 1e6, float(rng.randint(5000, 2000000))])
        rope, original = random_rope(kind, rng, head_dim // 2)
        served = int(original * rope["factor"])
        top = {"max_position_embeddings": original if kind == "dynamic" else served}
        if kind == "longrope" and MAJOR < 5:
            top["original_max_position_embeddings"] = original
            rope.pop("factor")  # version 4 takes max / original
        length = rng.choice([original // 2, original, original + 1, served])
        config = transformers.LlamaConfig(
            vocab_size=32, hidden_size=2 * head_dim, intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=2, head_dim=head_dim, **rope_keys(theta, dict(rope)), **top)
        if kind == "dynamic":  # as in the forward pass, where the length is a tensor
            seq_len = torch.tensor(length) if length > original else None
        else:
            seq_len = length
        inv_freq, amplitude = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=seq_len)
        written = {"model_type": "llama", "vocab_size": 32, "hidden_size": 2 * head_dim,
                   "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
                   "head_dim": head_dim, **rope_keys(theta, rope), **top}
        jobs.append({"config": written, "layer": 0, "length": length})
        expected.append((kind, rope, length, inv_freq.float().numpy(), float(amplitude)))
    return jobs, expected


def check_frequencies(dump):
    jobs, expected = frequency_jobs()
    failures, seen = 0, {}
    for got, (kind, rope, length, inv_freq, amplitude) in zip(run(dump, jobs), expected, strict=True):
        ours = np.array(got.get("inv_freq", []), np.float32)
        same = ours.shape == inv_freq.shape and bool((ours == inv_freq).all())
        close = "amplitude" in got and abs(got["amplitude"] / amplitude - 1) < 1e-12
        seen[kind] = seen.get(kind, 0) + 1
        if same and close:
            continue
        failures += 1
        if failures <= 10:
            print(f"  {kind} at {length}: {got.get('error', '')} {rope}\n    amplitude "
                  f"{got.get('amplitude')} against {amplitude}; frequencies {ours[:4]} {inv_freq[:4]}")
    print("frequencies of random configurations: " +
          ", ".join(f"{n} {kind}" for kind, n in seen.items()) + f"; {failures} differ")
    return failures


def run(dump, jobs):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "jobs.json"
        path.write_text(json.dumps(jobs))
        return json.loads(subprocess.run([dump, str(path)], check=True, capture_output=True).stdout)


# ---- modules ---------------------------------------------------------------------------------

def module(family, name):
    return getattr(importlib.import_module(f"transformers.models.{family}.modeling_{family}"), name)


def halves(cos, sin, pairs):
    """Families differ in whether they double the columns; the first `pairs` are the same."""
    return cos.reshape(-1, cos.shape[-1])[:, :pairs].numpy(), sin.reshape(-1, sin.shape[-1])[:, :pairs].numpy()


def plain(module_class, positions, doubled=False, **call):
    """`doubled`: each column twice in a row, as interleaved pairs want it (Cohere)."""
    def capture(config):
        rotary = module_class(config=config)
        x = torch.zeros(1, len(positions), 8)
        with torch.no_grad():
            out = rotary(x, torch.tensor([positions]), **call)
        if doubled:
            out = tuple(x[..., ::2] for x in out)
        if isinstance(out, tuple):
            return halves(*out, rotary_pairs(rotary, out[0], call))
        out = out.reshape(len(positions), -1)  # complex: DeepSeek V2, Llama 4
        return out.real.numpy(), out.imag.numpy()
    return capture


def rotary_pairs(rotary, cos, call):
    name = f"{call['layer_type']}_inv_freq" if "layer_type" in call and MAJOR >= 5 else "inv_freq"
    return min(getattr(rotary, name).numel(), cos.shape[-1])


BASE = dict(vocab_size=32, hidden_size=64, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=131072)
PHI3 = {"type": "longrope", "short_factor": [1 + 0.02 * i for i in range(8)],
        "long_factor": [1 + 2.5 * i for i in range(8)]}
YARN = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "original_max_position_embeddings": 4096}
DEEPSEEK = {**YARN, "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0}
MLA = dict(q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16,
           n_routed_experts=4, n_group=1, topk_group=1, num_experts_per_tok=2)


def family_cases():
    """(name, configuration, layer, positions on axes, length, capture)."""
    near = [p for p in POSITIONS if p <= 4095]
    c = transformers

    def case(name, config, capture, layer=0, positions=None, length=None):
        positions = positions or [POSITIONS]
        return name, config, layer, positions, length or max(positions[0]) + 1, capture

    phi3 = c.Phi3Config(**BASE, pad_token_id=0, original_max_position_embeddings=4096,
                        **rope_keys(10000.0, dict(PHI3)))
    rotary = module("phi3", "Phi3RotaryEmbedding")
    yield case("phi3 short", phi3, plain(rotary, near), positions=[near], length=4096)
    yield case("phi3 long", phi3, plain(rotary, POSITIONS))
    yield case("phi3 partial", c.Phi3Config(**{**BASE, "hidden_size": 128}, pad_token_id=0,
                                            partial_rotary_factor=0.5, **rope_keys(10000.0, None)),
               plain(rotary, POSITIONS))
    yield case("deepseek_v3", c.DeepseekV3Config(**BASE, **MLA, **rope_keys(10000.0, dict(DEEPSEEK))),
               plain(module("deepseek_v3", "DeepseekV3RotaryEmbedding"), POSITIONS))
    yield case("deepseek_v2", c.DeepseekV2Config(**BASE, **MLA, **rope_keys(10000.0, dict(DEEPSEEK))),
               plain(module("deepseek_v2", "DeepseekV2RotaryEmbedding"), POSITIONS))
    yield case("gpt_oss", c.GptOssConfig(**BASE, head_dim=64, num_local_experts=2, num_experts_per_tok=1,
                                         **rope_keys(150000.0, {**YARN, "truncate": False})),
               plain(module("gpt_oss", "GptOssRotaryEmbedding"), POSITIONS))
    llama4 = c.Llama4TextConfig(**BASE, head_dim=16, num_local_experts=1, **rope_keys(500000.0, {
        "rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0 + 3,
        "original_max_position_embeddings": 8192}))
    yield case("llama4", llama4, plain(module("llama4", "Llama4TextRotaryEmbedding"), POSITIONS))
    yield from gemma(case)
    yield from vision_language(case)
    for name, config, rotary in [
        ("falcon", c.FalconConfig(vocab_size=32, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                  alibi=False, max_position_embeddings=2048, **rope_keys(10000.0, None)),
         "FalconRotaryEmbedding"),
        ("gpt_neox", gpt_neox(), "GPTNeoXRotaryEmbedding"),
        ("stablelm", c.StableLmConfig(**BASE, **partial(0.25, 10000.0)), "StableLmRotaryEmbedding"),
        ("olmo2", c.Olmo2Config(**BASE, **rope_keys(500000.0, None)), "Olmo2RotaryEmbedding"),
        ("phi", c.PhiConfig(**BASE, **partial(0.5, 10000.0)), "PhiRotaryEmbedding"),
        ("cohere", c.CohereConfig(**BASE, pad_token_id=0, **rope_keys(8e6, None)), "CohereRotaryEmbedding"),
        ("starcoder2", c.Starcoder2Config(**BASE, **rope_keys(1e5, None)), "Starcoder2RotaryEmbedding"),
        ("glm", c.GlmConfig(**BASE, head_dim=16, pad_token_id=0, **partial(0.5, 10000.0)),
         "GlmRotaryEmbedding"),
    ]:
        yield case(name, config, plain(module(name, rotary), POSITIONS, doubled=name == "cohere"))
    yield case("gptj", c.GPTJConfig(vocab_size=32, n_embd=64, n_layer=2, n_head=4, rotary_dim=8,
                                    n_positions=2048), gptj)


def partial(fraction, theta):
    if MAJOR >= 5:
        return {"rope_parameters": {"rope_theta": theta, "rope_type": "default",
                                    "partial_rotary_factor": fraction}}
    return {"rope_theta": theta, "partial_rotary_factor": fraction}


def gpt_neox():
    sizes = dict(vocab_size=32, hidden_size=64, intermediate_size=32, num_hidden_layers=2,
                 num_attention_heads=4, max_position_embeddings=2048)
    if MAJOR >= 5:
        return transformers.GPTNeoXConfig(**sizes, **partial(0.25, 10000.0))
    return transformers.GPTNeoXConfig(**sizes, rotary_pct=0.25, rotary_emb_base=10000)


def gptj(config):
    table = module("gptj", "create_sinusoidal_positions")(POSITIONS[-1] + 1, config.rotary_dim)
    sin, cos = torch.split(table[POSITIONS], config.rotary_dim // 2, dim=-1)
    return cos.numpy(), sin.numpy()


def gemma(case):
    sizes = {**BASE, "num_hidden_layers": 6}
    name = "Gemma3RotaryEmbedding"
    if MAJOR < 5:
        config = transformers.Gemma3TextConfig(**sizes, head_dim=16, rope_theta=1e6, rope_local_base_freq=1e4,
                                               rope_scaling={"rope_type": "linear", "factor": 8.0})
        local = transformers.Gemma3TextConfig(**sizes, head_dim=16, rope_theta=1e4,
                                              rope_scaling={"rope_type": "default"})
        rotary = module("gemma3", name)
        yield case("gemma3 global", config, plain(rotary, POSITIONS), layer=5)
        yield case("gemma3 local", config, lambda _: plain(rotary, POSITIONS)(local), layer=0)
        return
    ropes = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
             "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    config = transformers.Gemma3TextConfig(**sizes, head_dim=16, rope_parameters=ropes)
    for kind, layer in (("full_attention", 5), ("sliding_attention", 0)):
        yield case(f"gemma3 {kind}", config, plain(module("gemma3", name), POSITIONS, layer_type=kind),
                   layer=layer)
    ropes["full_attention"] = {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                               "rope_theta": 1e6}
    config = transformers.Gemma4TextConfig(**sizes, head_dim=16, global_head_dim=32, rope_parameters=ropes)
    for kind, layer in (("full_attention", 5), ("sliding_attention", 0)):
        yield case(f"gemma4 {kind}", config,
                   plain(module("gemma4", "Gemma4TextRotaryEmbedding"), POSITIONS, layer_type=kind),
                   layer=layer)


def vision_language(case):
    axes = [POSITIONS, [p // 2 + 1 for p in POSITIONS], [p // 4 + 2 for p in POSITIONS]]

    def three(rotary_class, apply=None):
        def capture(config):
            rotary = rotary_class(config)
            with torch.no_grad():
                cos, sin = rotary(torch.zeros(1, len(POSITIONS), 8), torch.tensor(axes)[:, None])
            if apply is not None and cos.dim() == 4:
                cos, sin = apply(cos, config), apply(sin, config)
            return halves(cos, sin, cos.shape[-1] // 2)
        return capture

    def chunked(x, config):  # what apply_multimodal_rotary_pos_emb of version 4 does
        section = config.rope_scaling["mrope_section"] * 2
        return torch.cat([m[i % 3] for i, m in enumerate(x.split(section, dim=-1))], dim=-1)

    sizes = {**BASE, "hidden_size": 64}
    kind = "default" if MAJOR >= 5 else "mrope"
    from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLTextConfig
    config = Qwen2VLTextConfig(**sizes, **rope_keys(1e6, {"rope_type": kind if MAJOR >= 5 else "default",
                                                          "mrope_section": [2, 3, 3]}))
    yield case("qwen2_vl", config, three(module("qwen2_vl", "Qwen2VLRotaryEmbedding"), chunked),
               positions=axes)
    from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLTextConfig
    config = Qwen3VLTextConfig(**sizes, head_dim=16, **rope_keys(5e6, {
        "rope_type": "default", "mrope_section": [4, 2, 2], "mrope_interleaved": True}))
    yield case("qwen3_vl", config, three(module("qwen3_vl", "Qwen3VLTextRotaryEmbedding")), positions=axes)


def check_families(dump):
    failures, jobs, expected = 0, [], []
    for name, config, layer, positions, length, capture in family_cases():
        cos, sin = capture(config)
        written = json.loads(config.to_json_string(use_diff=False))
        jobs.append({"config": written, "layer": layer, "length": length, "positions": positions})
        expected.append((name, cos, sin))
    for got, (name, cos, sin) in zip(run(dump, jobs), expected, strict=True):
        if "cos" not in got:
            print(f"{name:28} {got.get('error', 'no rotation')}  FAILED")
            failures += 1
            continue
        ours = np.array(got["cos"], np.float32), np.array(got["sin"], np.float32)
        shapes = ours[0].shape == cos.shape
        worst = max(np.abs(ours[0] - cos).max(), np.abs(ours[1] - sin).max()) if shapes else np.inf
        good = worst <= LIMIT * max(1.0, np.abs(cos).max())
        failures += not good
        print(f"{name:28} {cos.shape[1]:3} pairs, {cos.shape[0]} positions to {POSITIONS[-1]}, largest "
              f"difference {worst:.1e}{'' if good else f'  FAILED {ours[0].shape} {cos.shape}'}")
    return failures


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()  # it warns of factors that are not max / original
    torch.Tensor.__pow__, torch.Tensor.__rpow__ = power, lambda exponents, base: power(base, exponents)
    print(f"transformers {transformers.__version__}")
    failures = check_frequencies(sys.argv[1]) + check_families(sys.argv[1])
    print("all agree" if failures == 0 else f"{failures} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
