"""Methods on every causal family with rotation that the installed transformers has, against models that were built with
the setting, and against the formulas, typed again in float64."""

import math
import warnings

import pytest
import tiny_models
import torch
import transformers
from tiny_models import IDS, V5, build_unscaled, built_with, has_frequencies, logits
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

import ropewalk
import ropewalk.transformers as rt

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

# Families that no test builds. These have no rotary module, at their default sizes on the meta device either.
NO_ROTATION = ["blenderbot", "git", "mamba2", "plbart", "roc_bert", "whisper", "xglm", "xlm", "zamba"]
LEFT_OUT = {
    "blt": "four transformers in one, each with sizes and a rotary module of its own, 4.6e9 parameters by default",
    "musicgen_decoder": "no rotation, and several tokens a step",
    "musicgen_melody_decoder": "no rotation, and several tokens a step",
    "musicgen": "no rotation, and several tokens a step",
    "musicgen_melody": "no rotation, and several tokens a step",
    "reformer": "axial positions and hashed attention",
    "qdqbert": "needs another package",
    "speech_to_text_2": "cannot be built without its encoder",
    "transfo-xl": "relative positions of its own",
    **dict.fromkeys(NO_ROTATION, "no rotation"),
}
if not V5:
    LEFT_OUT["gemma3n_text"] = "4.57 keeps its second base in a key of a configuration that the reader refuses"
FAMILIES = [name for name in tiny_models.families() if name not in LEFT_OUT]
# What apply refuses although the model has rotary buffers.
REFUSED = {
    "phimoe": "computes anew in every call",
    "deepseek_v4": "two sets of frequencies",
    "open-llama": "a table of cosines and sines",
}
# Families some of whose layers were trained with proportional frequencies.
PROPORTIONAL = ["gemma4_text", "gemma4_unified_text", "lfm3"]
# What 4.57 builds does not follow the setting in every layer, so there is nothing to compare with.
NOT_BUILT = (
    {}
    if V5
    else {
        "nemotron": "its code ignores rope_scaling",
        "dbrx": "its code ignores rope_scaling",
    }
)


# Latent attention whose code does not multiply scores by YaRN's mscale_all_dim. (4.57 forgets it in DeepSeek-V2.)
NO_MULTIPLIER = ["dots3_note_text"] if V5 else ["deepseek_v2"]


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def ropes(model):
    """Rope dictionaries that fit the model."""
    first = next(b for n, b in model.named_buffers() if n.endswith("inv_freq"))
    pairs = first.numel()
    # Ministral 3 has its temperature from this key.
    ministral = model.config.model_type == "ministral3"
    trained = {"original_max_position_embeddings": 16384 if ministral else 32}
    latent = {"mscale": 1.0, "mscale_all_dim": 0.8}  # DeepSeek's: multiplies scores too
    kinds = {
        "linear": {"rope_type": "linear", "factor": 4.0, **(trained if ministral else {})},
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
    if hasattr(model.config, "qk_rope_head_dim") and model.config.model_type not in NO_MULTIPLIER:
        kinds["mscale"] = {**kinds["yarn"], **latent}
    if not V5 and model.config.model_type == "llama4_text":  # 4.57 takes any rope_scaling of it for llama3
        kinds = {"llama3": kinds["llama3"]}
    return kinds


@pytest.mark.parametrize("name", [n for n in NO_ROTATION if n in tiny_models.families()])
def test_families_without_rotation_have_no_rotary_module(name):
    config_class, model_class = tiny_models.families()[name]
    with torch.device("meta"):
        assert not has_frequencies(model_class(config_class()))


@pytest.mark.parametrize("name", FAMILIES)
def test_frequencies_equal_a_model_built_with_the_setting(name):
    model = tiny_models.build(name)
    if not has_frequencies(model) or name in REFUSED:
        with pytest.raises(ropewalk.Error, match=REFUSED.get(name, name)):
            rt.apply(model, "yarn", 4)
        return
    if name in NOT_BUILT:
        pytest.skip(NOT_BUILT[name])
    if name in PROPORTIONAL:
        with pytest.raises(ropewalk.Error, match="none and linear keep it") as error:
            rt.apply(model, "yarn", 4)
        assert error.value.code == "unsupported"
        return
    before = logits(model)
    for kind, rope in ropes(model).items():
        expected = logits(built_with(model, rope))
        with rt.applied(model, rope, length=60):
            assert torch.allclose(logits(model), expected, atol=1e-6, rtol=0), kind
        assert not torch.allclose(before, expected, atol=1e-3), kind
        assert torch.equal(logits(model), before)


@pytest.mark.parametrize("name", [n for n in PROPORTIONAL if n in FAMILIES])
def test_linear_keeps_the_share_of_proportional_frequencies(name):
    model = tiny_models.build(name)
    before = logits(model)
    config = model.config.__class__(**model.config.to_dict())
    full = config.rope_parameters["full_attention"]
    config.rope_parameters = {**config.rope_parameters, "full_attention": {**full, "factor": 4.0}}
    made = type(model)(config).float().eval()
    made.load_state_dict(model.state_dict())
    with rt.applied(model, "linear", 4):
        assert torch.allclose(logits(model), logits(made), atol=1e-6, rtol=0)
        # A family that the reader of config.json does not know cannot be written.
        kept = model.config.rope_parameters == config.rope_parameters
        assert kept == (name == "gemma4_text")
    assert not torch.allclose(before, logits(made), atol=1e-3) and torch.equal(logits(model), before)


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
    "dots3_note_text": "sparse attention",
    "zamba2": "one attention module serves several layers",
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


def string(i, j):
    return torch.where(i - j < WINDOW, i - j, i - j - WINDOW + 3)


def lampe(i, j):
    m, n = 16, LENGTH - 1
    at_i, at_j, near = i * m // n, j * m // n, WINDOW - 1 - WINDOW * m // n
    last = LENGTH - 4 - 1
    far = i - j - last + last * m // n + near
    return torch.where(i - j < WINDOW, i - j, torch.where(i - j <= last, at_i + near - at_j, far))


MAPS = {
    f"rerope:{WINDOW}": rerope,
    f"self-extend:window={WINDOW},group=4": self_extend,
    "dual-chunk:chunk=12,limit=20": dual_chunk,
    f"lampe:head={WINDOW},mapped=16,tail=4,length={LENGTH}": lampe,
    f"string:shift={WINDOW},window=3": string,
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
