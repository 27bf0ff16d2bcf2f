"""cos and sin of ropewalk against ggml's kernel, for what no architecture that the decoder runs has:
partial rotary in both layouts, and several position axes.

    ggml_rope.py ROTARY_DUMP

The base is 2^pairs, so that ggml's running product of float32 angles is exact, however far away.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import ggml

POSITIONS = [0, 1, 255, 256, 257, 1023, 1024, 1025, 4096, 131071, 1048575]
AXES = [POSITIONS, [p // 2 + 1 for p in POSITIONS], [p // 4 + 2 for p in POSITIONS]]
LIMIT = 1.5e-7  # one ULP at 1
SIZES = dict(vocab_size=32, hidden_size=256, intermediate_size=32, num_hidden_layers=1,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048)
HEAD = 64


def cases():
    """(name, configuration, positions, dimensions that turn, mode, sections, pairs that ggml gives its
    fourth axis, which llama.cpp feeds with 0)"""
    for share in (0.25, 0.5, 1.0):
        n = int(HEAD * share)
        yield (f"stablelm, {n} of {HEAD}",
               dict(SIZES, model_type="stablelm", partial_rotary_factor=share, rope_theta=2.0 ** (n // 2)),
               [POSITIONS], n, ggml.NEOX, None, [])
    yield ("gpt_neox, 16 of 64",
           dict(model_type="gpt_neox", vocab_size=32, hidden_size=256, intermediate_size=32,
                num_hidden_layers=1, num_attention_heads=4, max_position_embeddings=2048, rotary_pct=0.25,
                rotary_emb_base=256), [POSITIONS], 16, ggml.NEOX, None, [])
    for name, kind in (("glm, 32 of 64, neighbours", "glm"), ("cohere, neighbours", "cohere")):
        n = 32 if kind == "glm" else HEAD
        more = dict(head_dim=HEAD, partial_rotary_factor=0.5) if kind == "glm" else {}
        yield (name, dict(SIZES, model_type=kind, rope_theta=2.0 ** (n // 2), **more), [POSITIONS], n,
               ggml.NORM, None, [])
    rope = dict(rope_type="default", rope_theta=2.0 ** 32)
    yield ("qwen2_vl, axes in chunks",
           dict(SIZES, model_type="qwen2_vl", rope_theta=2.0 ** 32,
                rope_scaling=dict(type="mrope", mrope_section=[8, 12, 12])), AXES, HEAD, ggml.MROPE,
           [8, 12, 12, 0], [])
    # Pair 31 is time's in transformers and vLLM where the sections are not [11, 11, 10].
    for sections, other in (([11, 11, 10], []), ([12, 10, 10], [31])):
        yield (f"qwen3_vl, axes interleaved {sections}",
               dict(model_type="qwen3_vl", text_config=dict(
                   SIZES, model_type="qwen3_vl_text", head_dim=HEAD,
                   rope_parameters=dict(rope, mrope_section=sections, mrope_interleaved=True))),
               AXES, HEAD, ggml.IMROPE, [*sections, 0], other)


def ggml_cos_sin(lib, positions, n_dims, base, mode, sections):
    """From what becomes of (1, 0) in every pair; what does not turn has to stay."""
    tokens, pairs = len(positions[0]), n_dims // 2
    probe = np.full((tokens, 1, HEAD), 7, np.float32)
    first = np.arange(pairs) * 2 if mode == ggml.NORM else np.arange(pairs)
    second = first + (1 if mode == ggml.NORM else pairs)
    probe[:, :, first], probe[:, :, second] = 1, 0
    at = positions[0] if sections is None else [*positions, [0] * tokens]
    rope = ggml.Rope(lib, [probe], at, n_dims, base, mode, sections=sections)
    rope()
    out = rope.outputs[0][:, 0].copy()
    rope.free()
    if not (out[:, n_dims:] == 7).all():
        raise AssertionError("ggml changed dimensions that do not turn")
    return out[:, first], out[:, second]


def main():
    lib, failures, jobs, expected = ggml.Ggml(), 0, [], []
    for name, config, positions, n_dims, mode, sections, other in cases():
        jobs.append(dict(config=config, layer=0, length=POSITIONS[-1] + 1, positions=positions))
        theirs = ggml_cos_sin(lib, positions, n_dims, 2.0 ** (n_dims // 2), mode, sections)
        expected.append((name, other, theirs))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "jobs.json"
        path.write_text(json.dumps(jobs))
        results = json.loads(subprocess.run([sys.argv[1], str(path)], check=True, capture_output=True).stdout)
    for got, (name, other, theirs) in zip(results, expected, strict=True):
        if "cos" not in got:
            print(f"{name:42} {got.get('error', 'no rotation')}  FAILED")
            failures += 1
            continue
        ours = np.array(got["cos"], np.float32), np.array(got["sin"], np.float32)
        for axis, still in zip(ours, (1, 0)):
            axis[:, other] = still
        shapes = ours[0].shape == theirs[0].shape
        worst = max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs)) if shapes else np.inf
        # The control: positions one further along.
        control = float(np.abs(np.roll(ours[0], 1, axis=0) - theirs[0]).max()) if shapes else 0
        good = worst <= LIMIT and control > 0.1
        failures += not good
        print(f"{name:42} {theirs[0].shape[1]:3} pairs to {POSITIONS[-1]}, largest difference {worst:.1e} "
              f"(one row off: {control:.2f}){'' if good else '  FAILED'}")
    print("ggml's kernel and ropewalk agree" if failures == 0 else f"{failures} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
