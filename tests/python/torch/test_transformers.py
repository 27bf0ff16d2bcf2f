"""Methods on every causal family with rotation that the installed transformers has, against models that were built with
the setting, and against the formulas, typed again in float64."""

import copy
import json
import math
import os
import pathlib
import subprocess
import warnings

import numpy as np
import pytest
import tiny_models
import torch
import transformers
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

import ropewalk
import ropewalk.transformers as rt

V5 = int(transformers.__version__.split(".")[0]) >= 5
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
IDS = torch.tensor([[(7 * i * i + 3 * i) % 93 + 3 for i in range(60)]])

_WRAPPER = "a multimodal model, whose text model is listed by itself"
_LARGE = "the sizes of tiny_models.py do not build it, or nothing in it rotates"
# Families that no test builds, with the reason. Those without rotation are not here: apply has to refuse them.
LEFT_OUT = {
    "blenderbot": _LARGE,
    "git": _LARGE,
    "roc_bert": _LARGE,
    "xglm": _LARGE,
    "xlm": _LARGE,
    "whisper": _LARGE,
    "plbart": _LARGE,
    "reformer": _LARGE,
    "prophetnet": _LARGE,
    "mamba2": _LARGE,
    "zamba": _LARGE,
    "xlnet": _LARGE,
    "musicgen": _LARGE,
    "musicgen_melody": _LARGE,
    "mamba": _LARGE,
    "falcon_mamba": _LARGE,
    "recurrent_gemma": _LARGE,
    "jamba": _LARGE,
    "gpt_neo": _LARGE,
    "xlstm": _LARGE,
    "blt": _LARGE,
    "longcat_flash": _LARGE,
    "gemma4_text": _LARGE,
    "gemma3n_text": _LARGE,
    "qwen4_exp_text": _LARGE,
    "dots1": _LARGE,
    "dots3_note_text": _LARGE,
    "zamba2": _LARGE,
    "dbrx": _LARGE,
    "cohere_compass_text": _LARGE,
    "gemma4_assistant": _LARGE,
    "gemma4_unified_assistant": _LARGE,
    "zaya": "its tiny model does not depend on positions",
    "dots3_note": _WRAPPER,
    "emu3": _WRAPPER,
    "fuyu": _WRAPPER,
    "gemma3": _WRAPPER,
    "gemma3n": _WRAPPER,
    "gemma4": _WRAPPER,
    "gemma4_unified": _WRAPPER,
    "got_ocr2": _WRAPPER,
    "llama4": _WRAPPER,
    "mllama": _WRAPPER,
    "moss_transcribe_diarize": _WRAPPER,
    "phi4_multimodal": _WRAPPER,
    "qwen3_5": _WRAPPER,
    "qwen3_5_moe": _WRAPPER,
    "qwen4_exp": _WRAPPER,
}
if not V5:
    LEFT_OUT.update(
        {
            "qdqbert": "needs another package",
            "speech_to_text_2": "cannot be built without its encoder",
            "transfo-xl": _LARGE,
        }
    )
FAMILIES = [name for name in tiny_models.families() if name not in LEFT_OUT]
# What apply refuses although the model has rotary buffers: frequencies computed in every call, two ladders in a layer,
# frequencies that were trained with and that no method keeps.
REFUSED = {"phimoe": "phimoe", "deepseek_v4": "deepseek_v4"}
REFUSED["open-llama"] = "open-llama"
REFUSED.update(dict.fromkeys(["gemma4_unified_text", "lfm3"], "trained with proportional"))


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def build(name, **settings):
    model = tiny_models.build(name, **settings)
    return model if any(n.endswith("inv_freq") for n, _ in model.named_buffers()) else None


def logits(model, ids=IDS, **kwargs):
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False, **kwargs).logits


KEPT = ("rope_theta", "partial_rotary_factor", "mrope_section", "llama_4_scaling_beta")


def rope_of(config):
    """The rope dictionaries of a configuration: by layer type (None where there is one for all), with its base."""
    if not V5:
        return {None: getattr(config, "rope_scaling", None) or {}}
    rope = config.rope_parameters
    typed = {k: v for k, v in rope.items() if k.endswith("attention")}
    return typed or {None: rope}


def with_rope(config, rope):
    """The configuration with another rope dictionary for the layers that a context extension is for: all but those of a
    window with another base (Gemma 3)."""
    config = copy.deepcopy(config)
    named = hasattr(config, "original_max_position_embeddings") or (not V5 and rope["rope_type"] == "longrope")
    if "original_max_position_embeddings" in rope and named:
        config.original_max_position_embeddings = rope["original_max_position_embeddings"]
    if not V5:
        config.rope_scaling = None if rope["rope_type"] == "default" else dict(rope)
        return config
    old = rope_of(config)
    full = [d["rope_theta"] for k, d in old.items() if k != "sliding_attention" and d]
    new = {
        k: d
        if d is None or (k == "sliding_attention" and any(theta != d["rope_theta"] for theta in full))
        else {**{n: v for n, v in d.items() if n in KEPT}, **rope}
        for k, d in old.items()
    }
    config.rope_parameters = new.get(None, new)
    return config


def built_with(model, rope):
    config = with_rope(model.config, rope)
    made = type(model)(config).float().eval()
    made.load_state_dict(model.state_dict())
    return made


def ropes(model):
    """Rope dictionaries that fit the model."""
    first = next(b for n, b in model.named_buffers() if n.endswith("inv_freq"))
    pairs = first.numel()
    # Ministral 3 has its temperature from this key.
    trained = {"original_max_position_embeddings": 16384 if model.config.model_type == "ministral3" else 32}
    return {
        "linear": {"rope_type": "linear", "factor": 4.0},
        "yarn": {"rope_type": "yarn", "factor": 4.0, **trained},
        "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **trained},
        "longrope": {
            "rope_type": "longrope",
            "factor": 4.0,
            **trained,
            "short_factor": [1.0 + 0.03 * i for i in range(pairs)],
            "long_factor": [1.0 + 0.5 * i for i in range(pairs)],
        },
    }


# What 4.57 builds does not follow the setting in every layer, so there is nothing to compare with.
NOT_BUILT = (
    {}
    if V5
    else {
        "nemotron": "its code ignores rope_scaling",
        "olmo3": "layers with a window do not take rope_scaling; a method scales all",
    }
)


@pytest.mark.skipif(not transformers.__version__.startswith("5.23"), reason="the list is of 5.23")
def test_left_out_families_are_families():
    assert set(LEFT_OUT) <= set(tiny_models.families())


@pytest.mark.parametrize("name", FAMILIES)
def test_frequencies_equal_a_model_built_with_the_setting(name, record_property):
    model = build(name)
    if model is None or name in REFUSED:
        with pytest.raises(ropewalk.Error, match=REFUSED.get(name, name)):
            rt.apply(model or tiny_models.build(name), "yarn", 4)
        return
    if name in NOT_BUILT:
        pytest.skip(NOT_BUILT[name])
    before = logits(model)
    tested = 0
    for kind, rope in ropes(model).items():
        sizes = {b.numel() for n, b in model.named_buffers() if n.endswith("inv_freq")}
        if kind == "longrope" and len(sizes) > 1:
            continue  # one list of divisors cannot serve two sizes
        try:
            expected = logits(built_with(model, rope))
        except Exception as error:  # a family whose code has not this type
            record_property(f"{name} {kind}", f"cannot be built: {type(error).__name__}: {error}"[:200])
            continue
        try:
            with rt.applied(model, rope, length=60):
                assert torch.allclose(logits(model), expected, atol=1e-6, rtol=0), kind
        except ropewalk.Error as error:
            assert name == "dbrx" and "attention factor" in str(error)  # of 4.57: its module has none
            continue
        assert not torch.allclose(before, expected, atol=1e-3), kind
        assert torch.equal(logits(model), before)
        tested += 1
    assert tested >= 1


# ---------------------------------------------------------------------------------------------------------------------
# Maps and temperatures against formulas in float64

INTERLEAVED = {
    "cohere",
    "cohere2",
    "cohere2_moe",
    "glm",
    "glm4",
    "helium",
    "ernie4_5",
    "ernie4_5_moe",
    "deepseek_v2",
    "llama4_text",
}
NEGATIVE = {"nanochat"}
NOT_REMAPPED = {
    "falcon": "its attention is its own",
    "gpt_neox_japanese": "its attention is its own",
    "axk2": "sparse attention",
    "deepseek_v32": "sparse attention",
    "glm_moe_dsa": "sparse attention",
    "hy_v4": "sparse attention",
    "hrm_text": "two stacks of layers that count from 0",
}
if not V5:
    NOT_REMAPPED.update(
        dict.fromkeys(
            ["diffllama", "jetmoe", "olmoe", "qwen2_moe", "stablelm", "nemotron", "moshi", "dbrx"],
            "its attention is its own",
        )
    )
LENGTH, WINDOW = 40, 12


def rerope(i, j):
    return torch.minimum(i - j, torch.tensor(WINDOW))


def self_extend(i, j):
    far = i // 4 - j // 4 + WINDOW - WINDOW // 4
    return torch.where(i - j < WINDOW, i - j, far)


def dual_chunk(i, j):
    chunk, limit = 12, 20
    same, near = i // chunk == j // chunk, i // chunk - j // chunk == 1
    behind = torch.minimum(i % chunk + chunk, torch.tensor(limit)) - j % chunk
    return torch.where(same, i - j, torch.where(near, behind, limit - j % chunk))


def leaky(i, j):
    d = (i - j).double()
    return torch.where(d < WINDOW, d, WINDOW + (d - WINDOW) / 4)


MAPS = {
    f"rerope:{WINDOW}": rerope,
    f"self-extend:window={WINDOW},group=4": self_extend,
    "dual-chunk:chunk=12,limit=20": dual_chunk,
    f"leaky-rerope:window={WINDOW},factor=4": leaky,
    "log-n:8": None,
}
SINKS = "sinks:sinks=3,window=12"


class Reference:
    """Attention by the formula: the score of i and j is q_i R(d) k_j with d the mapped distance."""

    def __init__(self, model, name, method):
        self.name, self.method, self.layers = name, method, {}
        self.frequencies = {}
        for path, module in model.named_modules():
            for key, buffer in list(module._buffers.items()):
                if key.endswith("inv_freq") and "original" not in key and "vision" not in path:
                    self.frequencies[key[: -len("inv_freq")], path] = buffer.double().clone()
                    buffer.zero_()
                    if isinstance(getattr(module, "original_inv_freq", None), torch.Tensor):
                        module.original_inv_freq.zero_()
        self.config = model.config
        for module in model.modules():
            if hasattr(getattr(module, "config", None), "_attn_implementation_internal"):
                module.config._attn_implementation_internal = "typed_reference"

    def of_layer(self, layer):
        types = getattr(self.config, "layer_types", None)
        kind = types[layer] if types else None
        typed = [f for (prefix, path), f in self.frequencies.items() if kind and (prefix == kind + "_" or kind in path)]
        if not V5 and self.name == "gemma3_text":
            typed = [
                f for (_, path), f in self.frequencies.items() if ("local" in path) == (kind == "sliding_attention")
            ]
        return typed[0] if typed else next(iter(self.frequencies.values())), kind

    def rotates(self, layer, kind):
        if self.name in ("smollm3", "llama4_text"):
            return bool(self.config.no_rope_layers[layer])
        if self.name in ("cohere2", "exaone4", "exaone_moe", "afmoe", "beam", "cohere2_moe", "kolibri1", "flint"):
            return kind == "sliding_attention"
        return True

    def __call__(
        self, module, query, key, value, attention_mask=None, scaling=None, softcap=None, s_aux=None, **kwargs
    ):
        layer = module.layer_idx
        frequencies, kind = self.of_layer(layer)
        q, k, v = query.double(), key.double(), value.double()
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        n, dim = len(frequencies), q.shape[-1]
        first = dim - 2 * n if hasattr(self.config, "qk_rope_head_dim") else 0
        i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
        windowed = kwargs.get("sliding_window") is not None or kind == "sliding_attention"
        distance = (i - j).double() if MAPS[self.method] is None or windowed else MAPS[self.method](i, j).double()
        angle = distance[..., None] * frequencies
        if not self.rotates(layer, kind):
            angle = torch.zeros_like(angle)
        if self.name in NEGATIVE:
            angle = -angle
        part = slice(first, first + 2 * n)
        if self.name in INTERLEAVED:
            (qa, qb), (ka, kb) = ((x[..., part][..., 0::2], x[..., part][..., 1::2]) for x in (q, k))
        else:
            (qa, qb), (ka, kb) = (x[..., part].split(n, -1) for x in (q, k))
        real = qa[:, :, :, None] * ka[:, :, None] + qb[:, :, :, None] * kb[:, :, None]
        imaginary = qa[:, :, :, None] * kb[:, :, None] - qb[:, :, :, None] * ka[:, :, None]
        scores = (real * angle.cos() + imaginary * angle.sin()).sum(-1)
        rest = [d for d in range(dim) if not first <= d < first + 2 * n]
        scores = scores + q[..., rest] @ k[..., rest].transpose(-1, -2)
        scores = scores * (dim**-0.5 if scaling is None else scaling)
        if self.method == "log-n:8":
            scores = scores * (torch.log(i + 1.0) / math.log(8)).clamp_min(1)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        scores = scores + attention_mask[..., : scores.shape[-1]].double()
        if s_aux is not None:
            scores = torch.cat((scores, s_aux.double().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)), -1)
        weights = scores.softmax(-1)[..., : k.shape[2]]
        return (weights @ v).transpose(1, 2).to(query.dtype).contiguous(), None


def build_unscaled(name):
    """The model without the scaling that some families have by default, since a method replaces it."""
    model = build(name)
    if model is None or all(
        not d or d.get("rope_type", "default") == "default" for d in rope_of(model.config).values()
    ):
        return model
    old = next(iter(rope_of(model.config).values()))
    trained = old.get("original_max_position_embeddings", 0) if name == "ministral3" else 0
    rope = {"rope_type": "default", **({"original_max_position_embeddings": trained} if trained else {})}
    return built_with(model, rope)


def reference_logits(name, method, ids):
    model = build_unscaled(name)
    AttentionInterface.register("typed_reference", Reference(model, name, method))
    AttentionMaskInterface.register("typed_reference", eager_mask)
    return logits(model, ids)


@pytest.mark.parametrize("name", FAMILIES)
def test_maps_and_temperatures_equal_the_formula(name):
    model = build_unscaled(name)
    if model is None or name in REFUSED:
        pytest.skip("does not rotate, or is refused: see the test of frequencies")
    ids = IDS[:, :LENGTH]
    before = logits(model, ids)
    if name in NOT_REMAPPED:
        with pytest.raises(ropewalk.Error, match=name):
            rt.apply(model, "log-n:8", 4)
        assert torch.equal(logits(model, ids), before)
        return
    tested = 0
    for method in MAPS:
        try:
            with rt.applied(model, method, 4):
                ours = logits(model, ids)
        except ropewalk.Error as error:
            # Windows everywhere need no map; a temperature of its own cannot be doubled.
            assert "this model has none" in str(error) or "temperature of its own" in str(error), error
            continue
        finally:
            assert torch.equal(logits(model, ids), before)
        expected = reference_logits(name, method, ids)
        scale = expected.abs().max()
        assert (ours - expected).abs().max() <= 2e-5 * max(1, scale), method
        assert (ours - before).abs().max() > 1e-3 * scale, method
        tested += 1
    assert tested >= 1


# ---------------------------------------------------------------------------------------------------------------------
# Caches, padding, packing

SOME = [
    n
    for n in (
        "llama",
        "gemma2",
        "gpt_oss",
        "cohere",
        "deepseek_v3",
        "phi",
        "gemma3_text",
        "smollm3",
        "cohere2",
        "llama4_text",
        "persimmon",
        "qwen3_next",
    )
    if n in tiny_models.families()
]
METHODS = [
    "yarn",
    f"rerope:{WINDOW}",
    "dual-chunk:chunk=12,limit=20",
    f"self-extend:window={WINDOW},group=4",
    "log-n:8",
]
# Linear attention takes a cache of its own class in 4.57.
CASES = [
    (name, method)
    for name in SOME
    for method in METHODS
    if not (name == "qwen3_next" and not V5)
    and not (name == "cohere2" and ("rerope" in method or ":" in method and "log" not in method))
]


def close(a, b, scale):
    return (a - b).abs().max() <= 3e-5 * max(1, scale)


@pytest.mark.parametrize(("name", "method"), CASES)
def test_chunks_and_steps_with_a_cache_equal_one_prefill(name, method):
    model = build_unscaled(name)
    with rt.applied(model, method, 4):
        whole = logits(model)
        for lengths in ([25, 1, 20, 14], [20] + [1] * 40):
            if name == "qwen3_next" and lengths[1] != 1:
                continue  # its linear attention takes one token at a time with a cache
            if name == "qwen3_next":
                lengths = [20] + [1] * 40
            cache, parts, first = transformers.DynamicCache(config=model.config), [], 0
            for n in lengths:
                with torch.no_grad():
                    step = model(input_ids=IDS[:, first : first + n], past_key_values=cache, use_cache=True)
                cache, first = step.past_key_values, first + n
                parts.append(step.logits)
            assert close(torch.cat(parts, 1), whole, whole.abs().max())


@pytest.mark.parametrize(("name", "method"), CASES)
def test_generate_equals_forward_without_a_cache(name, method):
    model = build_unscaled(name)
    with rt.applied(model, method, 4):
        made = model.generate(
            IDS[:, :30],
            attention_mask=torch.ones(1, 30, dtype=torch.long),
            max_new_tokens=16,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
        whole = logits(model, made.sequences)
    steps = torch.stack([row[0] for row in made.logits])
    assert close(steps, whole[0, 29:-1], whole.abs().max())


@pytest.mark.parametrize(("name", "method"), CASES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(name, method, side):
    if name == "qwen3_next" or (name == "llama4_text" and side == "left"):
        pytest.skip("its own code differs under padding")
    model = build_unscaled(name)
    short = IDS[:, :33]
    pads = torch.zeros(1, 60 - 33, dtype=torch.long)
    row = torch.cat((pads, short) if side == "left" else (short, pads), 1)
    mask = torch.cat((row * 0 + (row != 0), torch.ones_like(IDS)))
    ids = torch.cat((row, IDS))
    positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
    real = slice(27, 60) if side == "left" else slice(0, 33)
    with rt.applied(model, method, 4):
        alone, full = logits(model, short), logits(model)
        both = logits(model, ids, attention_mask=mask, position_ids=positions)
        assert close(both[:1, real], alone, alone.abs().max())
        assert close(both[1:], full, full.abs().max())
        if side == "right" or "SlidingWindow" in str(model.config):
            return
        # The same in two parts: cached keys have the positions that padding on the left gives them.
        cache = transformers.DynamicCache(config=model.config)
        with torch.no_grad():
            model(
                input_ids=ids[:, :40],
                attention_mask=mask[:, :40],
                position_ids=positions[:, :40],
                past_key_values=cache,
                use_cache=True,
            )
            rest = model(
                input_ids=ids[:, 40:],
                attention_mask=mask,
                position_ids=positions[:, 40:],
                past_key_values=cache,
                use_cache=True,
            ).logits
        assert close(rest[0], alone[0, 13:], alone.abs().max())
        assert close(rest[1], full[0, 40:], full.abs().max())


# Their own code, with eager attention, mixes packed documents or does not take position_ids.
NO_PACKING = ("gpt_oss", "llama4_text", "qwen3_next", "persimmon", "cohere2")


@pytest.mark.parametrize("name", [n for n in SOME if n not in NO_PACKING])
@pytest.mark.parametrize("method", [m for m in METHODS if m != "yarn"])
def test_packed_documents_are_apart(name, method):
    model = build_unscaled(name)
    positions = torch.cat((torch.arange(23), torch.arange(37)))[None]
    with rt.applied(model, method, 4):
        packed = logits(model, position_ids=positions)
        for part in (slice(0, 23), slice(23, 60)):
            alone = logits(model, IDS[:, part])
            assert close(packed[:, part], alone, alone.abs().max())


@pytest.mark.parametrize("name", ["llama", "cohere", "gpt_neox"])
def test_attention_sinks_equal_rotation_within_a_cache(name):
    """A query at i sees the first tokens and the last window, as if nothing had been between them."""
    one = build(name, num_hidden_layers=1)  # one layer: what a key holds does not depend on the positions before
    with rt.applied(one, SINKS, 4):
        ours = logits(one)[0]
    for i in (5, 14, 20, 59):
        seen = list(range(3)) + list(range(max(3, i - 11), i + 1))
        kept = torch.tensor([[int(IDS[0, s]) for s in seen]])
        assert torch.allclose(logits(one, kept)[0, -1], ours[i], atol=2e-5 * float(ours.abs().max()) + 1e-5)


def test_static_cache_gradients_and_weights():
    model = build("llama")
    with rt.applied(model, f"rerope:{WINDOW}", 4):
        whole = logits(model)
        made = model.generate(
            IDS[:, :30],
            max_new_tokens=6,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            cache_implementation="static",
            output_logits=True,
            return_dict_in_generate=True,
            disable_compile=True,
        )
        assert close(made.logits[0], whole[:, 29], whole.abs().max())
        again = logits(model, made.sequences)
        assert close(torch.stack([row[0] for row in made.logits]), again[0, 29:-1], whole.abs().max())
        weights = model(IDS, use_cache=False, output_attentions=True).attentions
        assert len(weights) == 2 and weights[0].shape == (1, 4, 60, 60)
        assert torch.allclose(weights[0].sum(-1), torch.ones(1, 4, 60), atol=1e-5)
        model.train()
        gradients = []
        for checkpointing in (False, True):
            if checkpointing:
                model.gradient_checkpointing_enable({"use_reentrant": False})
            model.zero_grad()
            model(IDS, use_cache=False).logits.square().mean().backward()
            gradients.append(model.model.layers[0].self_attn.q_proj.weight.grad.clone())
        assert gradients[0].abs().max() > 0 and torch.allclose(gradients[0], gradients[1], atol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# What stays, what is refused


def rotary(model):
    return model.model.rotary_emb


def test_errors_change_nothing():
    model = build("llama")
    before, buffers = logits(model), {n: b.clone() for n, b in model.named_buffers()}
    config, attention = model.config.to_dict(), model.config._attn_implementation
    for method, factor in (("yar", 4), ("yarn", None), ("yarn+ntk", 2), ("rerope:4000", 4), (3, 2)):
        with pytest.raises(ropewalk.Error):
            rt.apply(model, method, factor)
    with pytest.raises(ropewalk.Error, match="unknown key"):
        rt.apply(model, {"rope_type": "yarn", "factor": 4.0, "beta_fats": 3})
    other = ropewalk.plan(build("llama", num_hidden_layers=3).config)
    with pytest.raises(ropewalk.Error, match="2 layers"):
        rt.apply(model, other)
    wide = ropewalk.plan(build("llama", head_dim=32).config)
    with pytest.raises(ropewalk.Error, match="how many elements rotate"):
        rt.apply(model, wide)
    assert torch.equal(logits(model), before)
    assert all(torch.equal(b, buffers[n]) for n, b in model.named_buffers())
    assert model.config.to_dict() == config and model.config._attn_implementation == attention
    with rt.applied(model, "yarn", 4), pytest.raises(ropewalk.Error, match="restore"):
        rt.apply(model, "linear", 2)
    rt.restore(model)
    assert torch.equal(logits(model), before)


def test_a_failing_block_restores():
    model = build("llama")
    before = logits(model)
    with pytest.raises(KeyError), rt.applied(model, f"rerope:{WINDOW}", 4):
        assert not torch.equal(logits(model), before)
        raise KeyError
    assert torch.equal(logits(model), before)
    assert not any(hook for module in model.modules() for hook in module._forward_pre_hooks.values())


def test_a_configuration_that_contradicts_the_buffers():
    model = build("llama")
    if V5:
        model.config.rope_parameters = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
    else:
        model.config.rope_scaling = {"rope_type": "linear", "factor": 4.0}
    with pytest.raises(ropewalk.Error, match="contradicts the buffers") as error:
        rt.plan_of(model)
    assert error.value.code == "mismatch"
    with pytest.raises(ropewalk.Error, match="contradicts the buffers"):
        rt.apply(model, "yarn", 4)


def test_the_plan_is_read_back():
    model = build("llama")
    own = rt.plan_of(model)
    assert own.hash == ropewalk.plan(model.config).hash
    plan = rt.apply(model, "yarn", 4)
    assert plan.hash == ropewalk.plan(model.config, allow_unknown=True).at(plan.length).hash == rt.plan_of(model).hash
    rotary(model).inv_freq[1] *= 1.0001
    with pytest.raises(ropewalk.Error, match="restore"):
        rt.plan_of(model)
    rt.restore(model)
    assert rt.plan_of(model).hash == own.hash
    rt.apply(model, ropewalk.plan(model.config, "yarn", 4))
    assert rt.plan_of(model).hash == plan.hash
    model.to(torch.bfloat16)
    with pytest.raises(ropewalk.Error, match="bfloat16"):
        rt.plan_of(model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounded_frequencies_are_repaired_and_told(dtype):
    model = build("llama").to(dtype).float()
    exact = build("llama")
    for (name, a), (_, b) in zip(model.named_parameters(), exact.named_parameters()):
        a.data.copy_(b.data)
        assert name
    assert not torch.allclose(logits(model), logits(exact), atol=1e-2)
    with pytest.warns(UserWarning, match="rounded"):
        rt.apply(model, "none")
    assert torch.equal(logits(model), logits(exact))
    rt.restore(model)
    assert not torch.equal(logits(model), logits(exact))


def test_dynamic_frequencies_follow_the_declared_length():
    ids = torch.cat((IDS, IDS, IDS), 1)
    model = build("llama")
    rope = {"rope_type": "dynamic", "factor": 2.0}
    expected = logits(built_with(model, rope), ids)  # transformers looks at the 180 tokens
    with rt.applied(model, rope, length=180):
        assert torch.allclose(logits(model, ids), expected, atol=1e-6)
        # The same in chunks, where transformers itself is wrong.
        cache = transformers.DynamicCache()
        with torch.no_grad():
            parts = [
                model(input_ids=ids[:, a : a + 45], past_key_values=cache, use_cache=True).logits
                for a in range(0, 180, 45)
            ]
        assert close(torch.cat(parts, 1), expected, expected.abs().max())


def test_what_save_pretrained_keeps(tmp_path):
    model = build("llama")
    expected = {}
    for method in ("yarn", "linear", "llama3", "ntk", "by-parts", "dynamic"):
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            rt.apply(model, method, 4)
        expected = logits(model)
        model.save_pretrained(tmp_path / method)
        rt.restore(model)
        loaded = type(model).from_pretrained(tmp_path / method)
        if method != "dynamic":  # pinned here, and recomputed there
            # "by-parts" is written as llama3, which transformers rounds in another order.
            assert torch.allclose(logits(loaded), expected, atol=1e-3 if method == "by-parts" else 1e-6), method
    before = model.config.to_dict()
    with pytest.warns(UserWarning, match="save_pretrained"):
        rt.apply(model, f"rerope:{WINDOW}", 4)
    assert model.config.to_dict() == before
    rt.restore(model)


def test_a_copy_keeps_the_method():
    model = build("llama")
    for method in ("yarn", f"rerope:{WINDOW}"):
        with rt.applied(model, method, 4):
            expected = logits(model)
            twin = copy.deepcopy(model)
        assert torch.equal(logits(twin), expected)
        rt.restore(twin)
        assert torch.equal(logits(twin), logits(model))


def test_models_without_buffers_are_refused():
    with torch.device("meta"):
        model = tiny_models.families()["llama"][1](tiny_models.config_of("llama"))
    with pytest.raises(ropewalk.Error, match="meta"):
        rt.apply(model, "yarn", 4)
    with pytest.raises(ropewalk.Error, match="PreTrainedModel"):
        rt.apply(torch.nn.Linear(2, 2), "yarn", 4)
    with pytest.raises(ropewalk.Error, match="gptj.*rotates by"):
        rt.apply(tiny_models.build("gptj", rotary_dim=8), "yarn", 4)


PROGRAM = os.environ.get("ROPEWALK_PROGRAM")


@pytest.mark.skipif(not PROGRAM, reason="ROPEWALK_PROGRAM is not set")
@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma2", "phi", "smollm3", "gpt_neox"])
@pytest.mark.parametrize("method", ["yarn", "ntk", *MAPS, "rerope:12+log-n:40", "yarn+rerope:12"])
def test_losses_equal_the_native_decoder(name, method, tmp_path):
    settings = {"gemma2": {"sliding_window": 512}, "smollm3": {"tie_word_embeddings": False}}.get(name, {})
    model = tiny_models.build(name, max_position_embeddings=32, **settings)
    model.set_attn_implementation("eager")  # SDPA has no soft cap
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "ids.json").write_text(json.dumps(IDS[0].tolist()))
    try:
        with rt.applied(model, method, 2):
            losses = -logits(model)[0].double().log_softmax(-1)[torch.arange(59), IDS[0, 1:]]
    except ropewalk.Error as error:
        pytest.skip(str(error))
    run = subprocess.run(
        [
            PROGRAM,
            "perplexity",
            tmp_path / "model",
            "--ids",
            tmp_path / "ids.json",
            "--length",
            "60",
            "--method",
            method,
            "--factor",
            "2",
            "--protocol",
            "windows",
            "--no-bos",
            "--per-token",
            tmp_path / "losses.jsonl",
            "--threads",
            "1",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    rows = [json.loads(line) for line in pathlib.Path(tmp_path / "losses.jsonl").read_text().splitlines()]
    theirs = {row["position"]: row["nll"] for row in rows if "nll" in row}
    assert len(theirs) == 59
    ours = np.array([losses[position - 1] for position in sorted(theirs)])
    assert np.abs(ours - np.array([theirs[p] for p in sorted(theirs)])).max() <= 1e-4
