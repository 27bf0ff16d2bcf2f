"""Caches, padding, packing, windows, beams, compilation, gradients and threads, with a method on the model."""

import copy
import importlib.util
import threading
import warnings

import pytest
import tiny_models
import torch
import transformers
from tiny_models import IDS, V5, build, build_unscaled, close, logits

import ropewalk.transformers as rt
from ropewalk.transformers import _dense, _kernel

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
WINDOW = 12
SINKS = "sinks:sinks=3,window=12"


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


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


# Their own code does not take position_ids apart.
NO_PACKING = ("gpt_oss", "qwen3_next") if V5 else ("gpt_oss", "qwen3_next", "persimmon")
PACKED = torch.cat((torch.arange(23), torch.arange(37)))[None]
DOCUMENTS = (slice(0, 23), slice(23, 60))


@pytest.mark.parametrize(("name", "method"), [(n, m) for n, m in CASES if n not in NO_PACKING and m != "yarn"])
def test_packed_documents_are_apart(name, method):
    model = build_unscaled(name)
    with rt.applied(model, method, 4):
        packed = logits(model, position_ids=PACKED)
        for part in DOCUMENTS:
            alone = logits(model, IDS[:, part])
            assert close(packed[:, part], alone, alone.abs().max())


@pytest.mark.parametrize("name", [n for n in SOME if n in NO_PACKING])
def test_families_that_mix_packed_documents_without_a_method(name):
    model = build_unscaled(name)
    packed = logits(model, position_ids=PACKED)
    alone = [logits(model, IDS[:, part]) for part in DOCUMENTS]
    assert not all(close(packed[:, p], a, a.abs().max()) for p, a in zip(DOCUMENTS, alone))


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


class Count:
    """Counts the calls of the kernel and of the formula."""

    def __init__(self, monkeypatch):
        self.kernel = self.dense = 0
        kernel, dense = _kernel.attend, _dense.attend

        def count_kernel(*args):
            self.kernel += 1
            return kernel(*args)

        def count_dense(*args):
            self.dense += 1
            return dense(*args)

        monkeypatch.setattr(_kernel, "attend", count_kernel)
        monkeypatch.setattr(_dense, "attend", count_dense)


def in_two_parts(model, ids, mask=None, positions=None, first=40):
    cache = transformers.DynamicCache(config=model.config)
    parts = []
    for part, end in ((slice(0, first), first), (slice(first, ids.shape[1]), ids.shape[1])):
        own = {} if mask is None else {"attention_mask": mask[:, :end], "position_ids": positions[:, part]}
        with torch.no_grad():
            parts.append(model(input_ids=ids[:, part], past_key_values=cache, use_cache=True, **own).logits)
    return torch.cat(parts, 1)


@pytest.mark.parametrize(
    "name",
    [n for n in ("llama", "gemma2", "gpt_oss", "deepseek_v3", "cohere2", "nanochat") if n in tiny_models.families()],
)
@pytest.mark.parametrize("method", [*(m for m in METHODS if m != "yarn"), SINKS])
def test_the_kernel_equals_the_formula(name, method, monkeypatch):
    """The same calls by the library's attention and by the formula: plain, in two parts, padded, packed."""
    model = build_unscaled(name)
    short = IDS[:, :33]
    pads = torch.zeros(1, 27, dtype=torch.long)
    ids = torch.cat((torch.cat((pads, short), 1), torch.cat((short, pads), 1), IDS))
    mask = torch.cat(
        (
            torch.cat((pads, pads[:, :6] * 0 + 1, torch.ones(1, 27, dtype=torch.long)), 1),
            (ids[1:2] != 0).long(),
            torch.ones_like(IDS),
        )
    )
    mask[0] = (torch.arange(60) >= 27).long()
    positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)

    def outputs():
        padded = logits(model, ids, attention_mask=mask, position_ids=positions)[mask.bool()]
        parts = in_two_parts(model, ids[::2], mask[::2], positions[::2])[mask[::2].bool()]
        packed = [] if name in NO_PACKING else [logits(model, position_ids=PACKED)]
        return [logits(model), in_two_parts(model, IDS), padded, parts, *packed]

    try:
        rt.apply(model, method, 4)
    except rt._apply.Error as error:
        assert "this model has none" in str(error) or "expected no window" in str(error), error
        pytest.skip("a window in every layer that rotates")
    counted = Count(monkeypatch)
    ours = outputs()
    assert counted.kernel > 0 and counted.dense == 0
    monkeypatch.setattr(_kernel, "fits", lambda *_: False)
    counted.kernel = 0
    for a, b in zip(ours, outputs()):
        assert close(a, b, b.abs().max())
    assert counted.kernel == 0 and counted.dense > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_small_types_round_no_more_than_the_formula(dtype, monkeypatch):
    model = build("llama").to(dtype)
    exact = copy.deepcopy(model).float()
    with rt.applied(model, f"rerope:{WINDOW}", 4), rt.applied(exact, f"rerope:{WINDOW}", 4):
        expected = logits(exact)
        ours = (logits(model).float() - expected).abs().max()
        monkeypatch.setattr(_kernel, "fits", lambda *_: False)
        assert ours <= 2 * (logits(model).float() - expected).abs().max()


@pytest.mark.parametrize("name", ["llama", "gemma2", "phi"])
@pytest.mark.parametrize("method", ["yarn", f"rerope:{WINDOW}", "log-n:8"])
def test_beams(name, method):
    model = build_unscaled(name)
    options = dict(max_new_tokens=10, num_beams=3, do_sample=False, eos_token_id=None, pad_token_id=0)
    with rt.applied(model, method, 4):
        ones = torch.ones(1, 30, dtype=torch.long)
        cached = model.generate(IDS[:, :30], attention_mask=ones, **options)
        plain = model.generate(IDS[:, :30], attention_mask=ones, use_cache=False, **options)
    assert torch.equal(cached, plain)


@pytest.mark.parametrize("method", ["yarn", f"rerope:{WINDOW}", "dual-chunk:chunk=12,limit=20", "log-n:8"])
def test_compiled_in_one_graph(method):
    torch._dynamo.reset()
    model = build("llama")
    with rt.applied(model, method, 4):
        expected = logits(model)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert close(logits(compiled), expected, expected.abs().max())
        assert close(logits(compiled, IDS[:, :50]), logits(model, IDS[:, :50]), expected.abs().max())


def test_two_threads_with_two_models():
    """Each thread puts methods on its own model and generates; alone the results are the same."""
    options = dict(max_new_tokens=8, do_sample=False, eos_token_id=None, pad_token_id=0)
    work = {
        "llama": ["yarn", f"rerope:{WINDOW}", "log-n:8"],
        "gemma2": ["dual-chunk:chunk=12,limit=20", "linear", f"rerope:{WINDOW}"],
    }

    models = {name: build_unscaled(name) for name in work}

    def run(name, made):
        model = models[name]
        for method in work[name] * 3:
            with rt.applied(model, method, 4):
                made.append(logits(model))
                made.append(model.generate(IDS[:, :30], attention_mask=torch.ones(1, 30, dtype=torch.long), **options))

    alone, together = {n: [] for n in work}, {n: [] for n in work}
    for name in work:
        run(name, alone[name])
    threads = [threading.Thread(target=run, args=(name, together[name])) for name in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in work:
        assert len(together[name]) == len(alone[name]) == 18
        assert all(torch.equal(a, b) for a, b in zip(alone[name], together[name]))


def test_two_threads_with_one_model():
    """A forward pass of another thread, between the rotary module and the layers of this one. Attention of these families
    is not told positions."""
    for name, method in (("persimmon", "log-n:8"), ("llama4_text", "dual-chunk:chunk=12,limit=20")):
        model = build_unscaled(name)
        rotary = [m for n, m in model.named_modules() if n.endswith("rotary_emb")]
        first, second = torch.arange(60)[None] + 40, torch.arange(50)[None] + 7
        with rt.applied(model, method, 4):
            alone = [logits(model, position_ids=first), logits(model, IDS[:, :50], position_ids=second)]
            found, own = [], threading.get_ident()

            def other(model=model, second=second, found=found):
                found.append(logits(model, IDS[:, :50], position_ids=second))

            def between(*_, own=own, other=other, found=found):
                if threading.get_ident() == own and not found:
                    thread = threading.Thread(target=other)
                    thread.start()
                    thread.join()

            hooks = [module.register_forward_hook(between) for module in rotary]
            assert torch.equal(logits(model, position_ids=first), alone[0]), name
            for hook in hooks:
                hook.remove()
            assert torch.equal(found[0], alone[1]), name


def test_threads_in_which_no_rotary_module_runs():
    """Autograd computes layers again from checkpoints in threads of its own, with the positions of the forward pass."""
    model = build_unscaled("persimmon")
    positions = torch.arange(60)[None] + 40
    with rt.applied(model, "log-n:8", 4):
        layer = model.model.layers[0]
        kept, found = [], []
        hook = layer.register_forward_pre_hook(lambda _, *given: kept.append(given), with_kwargs=True)
        logits(model, position_ids=positions)
        hook.remove()

        def again():
            with torch.no_grad():
                found.append(layer(*kept[0][0], **kept[0][1]))

        again()
        thread = threading.Thread(target=again)
        thread.start()
        thread.join()
    a, b = (x[0] if isinstance(x, tuple) else x for x in found)
    assert torch.equal(a, b)


def test_a_compiled_rotary_module_says_its_positions():
    """Layers that are not compiled follow it, not the pass that ran before."""
    model = build_unscaled("persimmon")
    first, second = torch.arange(60)[None] + 40, torch.arange(60)[None] + 7
    with rt.applied(model, "log-n:8", 4):
        expected = logits(model, position_ids=first), logits(model, position_ids=second)
        torch._dynamo.reset()
        for name, module in model.named_modules():
            if name.endswith("rotary_emb"):
                module.compile(backend="aot_eager")
        for positions, known in zip((first, second, first), (*expected, expected[0])):
            assert close(logits(model, position_ids=positions), known, known.abs().max())


WAYS = {"kernel": {}, "formula": {"output_attentions": True}}


@pytest.mark.parametrize("way", [*WAYS, "compiled"])
@pytest.mark.parametrize("method", [f"rerope:{WINDOW}", f"leaky-rerope:{WINDOW}", "log-n:8", "log-n:1000000"])
def test_positions_below_zero(method, way):
    """Rotation is by distances; a temperature before the first position is the first position's."""
    model, below = build("llama"), torch.arange(-5, 55)[None]
    ones = torch.ones(1, 60, dtype=torch.long)
    with rt.applied(model, method, 4):
        expected = logits(model, position_ids=below)
        if method != "log-n:8":  # no temperature in so few tokens
            whole = logits(model)
            assert close(expected, whole, whole.abs().max())
        torch._dynamo.reset()
        run = torch.compile(model, fullgraph=True, backend="aot_eager") if way == "compiled" else model
        given = {"attention_mask": ones, "position_ids": below, **WAYS.get(way, {})}
        assert close(logits(run, **given), expected, expected.abs().max())
        if way == "compiled":
            return
        # In two parts: cached keys have positions below zero as well.
        cache = transformers.DynamicCache(config=model.config)
        parts = []
        for some in (slice(0, 3), slice(3, 60)):
            given = {"position_ids": below[:, some], "past_key_values": cache, "use_cache": True, **WAYS[way]}
            with torch.no_grad():
                parts.append(model(IDS[:, some], **given).logits)
        assert close(torch.cat(parts, 1), expected, expected.abs().max())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", [m for m in METHODS if m != "yarn"] + [SINKS])
@pytest.mark.parametrize("pad", [-1, -7])
def test_padding_at_positions_below_zero(method, pad, way):
    model, short = build("llama"), IDS[:, :33]
    ids = torch.cat((torch.zeros(1, 27, dtype=torch.long), short), 1)
    mask = (torch.arange(60) >= 27).long()[None]
    positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, pad)
    with rt.applied(model, method, 4):
        alone = logits(model, short)
        padded = logits(model, ids, attention_mask=mask, position_ids=positions, **WAYS[way])
        assert close(padded[:, 27:], alone, alone.abs().max())


@pytest.mark.parametrize("method", [f"rerope:{WINDOW}", "log-n:8", "yarn", "dynamic+log-n:8"])
@pytest.mark.parametrize("way", WAYS)
def test_training_after_inference_mode(method, way):
    """What inference mode leaves behind has no part in gradients."""
    model = build("llama")

    def loss():
        return model(IDS, use_cache=False, labels=IDS, **WAYS[way]).loss

    with rt.applied(model, method, 4):
        loss().backward()
        expected = model.model.layers[0].self_attn.q_proj.weight.grad.clone()
    model.zero_grad()
    with torch.inference_mode():
        rt.apply(model, method, 4)
        loss()
    loss().backward()
    assert torch.equal(model.model.layers[0].self_attn.q_proj.weight.grad, expected)
    rt.restore(model)


def test_axes_that_differ_are_refused_under_log_n():
    """Qwen2-VL: images have rows and columns, of which a temperature knows nothing."""
    sizes = {k: v for k, v in tiny_models.SIZES.items() if k in ("vocab_size", "hidden_size", "intermediate_size")}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1000.0}
    old = {"rope_theta": 1000.0, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
    config = transformers.Qwen2VLConfig(
        text_config={**sizes, **(dict(rope_parameters=rope) if V5 else old), "pad_token_id": 0},
        vision_config=dict(depth=1, embed_dim=32, hidden_size=64, num_heads=2, mlp_ratio=2, patch_size=4),
    )
    model = transformers.Qwen2VLForConditionalGeneration(config).eval()
    text = torch.arange(60).expand(3, 1, 60).clone()
    image = text.clone()
    image[1:, :, 20:36] = 20
    before = logits(model, position_ids=text), logits(model, position_ids=image)
    with rt.applied(model, "log-n:1000000", 4):
        assert close(logits(model, position_ids=text), before[0], before[0].abs().max())
        with pytest.raises(rt._apply.Error, match="axes that are equal"):
            logits(model, position_ids=image)
    with rt.applied(model, "dynamic", 4):
        assert torch.equal(logits(model, position_ids=image), before[1])


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs accelerate")
@pytest.mark.parametrize("way", ["dispatched", "offloaded"])
@pytest.mark.parametrize("method", ["yarn", f"rerope:{WINDOW}"])
def test_hooks_of_accelerate(way, method):
    """device_map puts hooks around every module, which move what a module needs before it runs."""
    import accelerate

    model = build("llama")
    with rt.applied(model, method, 4):
        expected = logits(model)
    before = logits(model)
    if way == "dispatched":
        places = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk", "model.norm": "cpu"}
        places |= {"model.rotary_emb": "cpu", "lm_head": "cpu"}
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            accelerate.dispatch_model(model, places, main_device="cpu", offload_dir=folder, force_hooks=True)
            check_hooked(model, method, expected, before)
    else:
        accelerate.cpu_offload(model, execution_device="cpu")
        check_hooked(model, method, expected, before)


def check_hooked(model, method, expected, before):
    assert any(p.is_meta for p in model.parameters())
    with rt.applied(model, method, 4):
        assert close(logits(model), expected, expected.abs().max())
    assert close(logits(model), before, before.abs().max())
