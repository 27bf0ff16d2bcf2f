#!/usr/bin/env python3
"""What scripts/gpu_check_python.sh runs, a step in a process of its own: ropewalk's Python package on a GPU.

    bench/cuda/python_check.py STEP --json FILE [--dry-run] [--model PATH] [--text FILE]

  facts      versions and the device
  rotation   ropewalk.torch.rotate and learned frequencies on the device against float32 on the CPU, with gradients
  attention  every bias and position map on the device (FlexAttention) against the CPU's kernel, with gradients
  model      methods on the embedded model at 256 tokens: losses of the torch engine on the device against the decoder
  memory     a GPU that is nearly full: fewer sequences at a time, and the same losses
  speed      rotation against PyTorch eager and compiled; attention, forward and backward, against SDPA
  sweep      of --model to 64k in bfloat16: 8 methods, 5 lengths, perplexity and passkey. Without --model: of a model of
             SmolLM2-135M's shape with random weights, which takes as long

One JSON line a case goes to FILE. --dry-run: small, on the CPU. Ends with 1 where a result is wrong.
"""

import argparse
import copy
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch

import ropewalk as rw
import ropewalk.nn as rn
import ropewalk.torch as rt

PARTS = 4
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "support"))
from short_model import short_model  # noqa: E402
# Of the largest element, between the device and float32 on the CPU.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 3e-2}
# Of the gradient of ALiBi's slopes, a sum over all pairs of what outputs that were rounded gave.
TOLERANCE_OF_SLOPES = {torch.float32: 1e-3, torch.bfloat16: 0.1}
SMOLLM2 = dict(
    hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
    vocab_size=49152, max_position_embeddings=8192, rope_theta=100000.0, tie_word_embeddings=True, rms_norm_eps=1e-5,
)  # fmt: skip


class Check:
    def __init__(self, args):
        self.step, self.dry, self.path = args.step, args.dry_run, args.json
        self.device = torch.device("cpu" if args.dry_run else "cuda")
        self.args, self.wrong = args, 0

    def row(self, case, **values):
        line = json.dumps({"step": self.step, "case": case, **values})
        print(line, flush=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def hold(self, case, right, **values):
        self.wrong += not right
        self.row(case, right=bool(right), **values)

    def sync(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def seconds(self, call, rounds=7):
        """Median of calls, of which each is as many as take 20 ms."""
        for _ in range(3):
            call()
        self.sync()
        begin = time.perf_counter()
        call()
        self.sync()
        count = 1 if self.dry else max(1, int(0.02 / max(1e-9, time.perf_counter() - begin)))
        times = []
        for _ in range(1 if self.dry else rounds):
            begin = time.perf_counter()
            for _ in range(count):
                call()
            self.sync()
            times.append((time.perf_counter() - begin) / count)
        return statistics.median(times)


def apart(a, b, largest=0.0):
    """The largest difference, as a share of the largest element (or of `largest`, if that is more)."""
    a, b = a.detach().cpu().double(), b.detach().cpu().double()
    return float((a - b).abs().max() / b.abs().max().clamp_min(max(largest, 1e-12)))


def facts(check):
    import transformers

    gpu = "none"
    if check.device.type == "cuda":
        properties = torch.cuda.get_device_properties(0)
        gpu = f"{properties.name}, {properties.total_memory >> 20} MiB, CUDA {torch.version.cuda}"
    check.row("facts", torch=torch.__version__, transformers=transformers.__version__, ropewalk=rw.__version__, gpu=gpu)


# ---- Results


def rotation(check):
    tokens = 65 if check.dry else 2049
    positions = torch.arange(tokens)[None] * 31 % 100000
    for layout in ("half", "interleaved"):
        made = rw.rotation(128, layout=layout, method="yarn", factor=4, trained_length=8192)
        frequencies = rt.frequencies(made)
        for dtype in TOLERANCE:
            torch.manual_seed(1)
            q, k, upstream = (torch.randn(1, tokens, heads, 128).to(dtype) for heads in (8, 2, 8))

            def both(place, dtype):
                here = [x.to(place, dtype).requires_grad_() for x in (q, k)]
                table = made.table(100000)
                out = rt.rotate(*here, table, positions.to(place))
                grads = torch.autograd.grad(out[0], here[0], upstream.to(place, dtype))
                learned = frequencies.inv_freq.sum(0).to(place).requires_grad_()
                turned, _ = rt.rotate_frequencies(here[0].detach(), None, learned, positions.to(place), layout=layout)
                return [*out, *grads, turned, *torch.autograd.grad(turned, learned, upstream.to(place, dtype))]

            names = ("q", "k", "gradient", "learned", "gradient of frequencies")
            for name, x, y in zip(names, both(check.device, dtype), both("cpu", torch.float32)):
                difference = apart(x, y)
                check.hold(f"{name}, {layout}, {str(dtype)[6:]}", difference <= TOLERANCE[dtype], apart=difference)


def biases(heads, dim, tokens):
    yield "none", None, True
    for name, module in {
        "alibi": rn.Alibi(heads, learned=True),
        "t5": rn.T5Bias(heads),
        "kerple": rn.Kerple(heads),
        "sandwich": rn.Sandwich(heads),
        "fire": rn.Fire(heads),
        "shaw": rn.Shaw(heads, dim, left=16, values=False),
        "shaw with values": rn.Shaw(heads, dim, left=16),
        "transformer-xl": rn.TransformerXL(heads, dim, 32),
        "deberta": rn.DebertaBias(heads, dim, 32, buckets=32, max_position=tokens),
        "tupe": rn.Tupe(heads, dim, 32, tokens),
        "swin": rn.SwinBias(heads, height=8, width=tokens // 8),
        "cope": rn.CoPE(heads, dim, 32),
        "forgetting gate": rn.ForgettingGate(heads, 32),
    }.items():
        yield name, module, getattr(module, "causal", True)


def attention(check):
    tokens, heads, dim = (64 if check.dry else 512), 4, 64
    torch.manual_seed(2)
    x = torch.randn(1, tokens, 32)
    made = rw.rotation(dim, layout="half")
    maps = [rw.ReRoPE(16), rw.LeakyReRoPE(16, factor=4), rw.SelfExtend(16, group=4)]
    maps += [rw.DualChunk(32, 48), rw.AttentionSinks(4, 32)]
    cases = [(name, module, causal, None) for name, module, causal in biases(heads, dim, tokens)]
    cases += [(f"map {m.name}", None, True, m) for m in maps]
    if check.args.part is not None:
        cases = cases[check.args.part :: PARTS]
    for dtype in TOLERANCE:
        q, k, v, upstream = (torch.randn(1, tokens, h, dim).to(dtype) for h in (heads, heads // 2, heads // 2, heads))
        for name, module, causal, remap in cases:
            if name in ("transformer-xl", "cope", "alibi"):
                with torch.no_grad():  # begin with zeros, or with what has no gradient to speak of
                    for p in module.parameters():
                        p.add_(0.1 * torch.randn_like(p))

            def both(place, dtype, module=module, causal=causal, remap=remap):
                here = [t.to(place, dtype).requires_grad_() for t in (q, k, v)]
                bias, parameters = None, []
                if module is not None:
                    mine = copy.deepcopy(module).to(place)
                    parameters = [p for p in mine.parameters() if p.requires_grad]
                    bias = mine(x.to(place)) if isinstance(mine, rn.ForgettingGate) else mine
                settings = {} if remap is None else {"remap": remap, "rotation": made}
                out = rt.attention(*here, bias=bias, causal=causal, **settings)
                grads = torch.autograd.grad(out, [*here, *parameters], upstream.to(place, dtype), allow_unused=True)
                return [out, *(g for g in grads if g is not None)]

            case = f"{name}, {str(dtype)[6:]}"
            expected = both("cpu", torch.float32)
            try:
                found = both(check.device, dtype)
            except rw.Error as error:
                check.hold(case, error.code == "unsupported" and not check.dry, refused=str(error))
                continue
            differences = [apart(a, b) for a, b in zip(found[:4], expected[:4])]
            # Some parameters' gradients are zero but for rounding, as of a bias that all scores of a query have.
            largest = max((float(g.abs().max()) for g in expected[4:]), default=0.0)
            parameters = [apart(a, b, largest) for a, b in zip(found[4:], expected[4:])]
            limits = TOLERANCE_OF_SLOPES if name == "alibi" else TOLERANCE
            right = len(found) == len(expected) and max(differences) <= TOLERANCE[dtype]
            right = right and max(parameters, default=0.0) <= limits[dtype]
            check.hold(case, right, apart=differences[0], gradients=max(differences[1:] + parameters))


def embedded():
    text = (ROOT / "models" / "README.md").read_text() + (ROOT / "README.md").read_text()
    return rw._core.ModelFiles(str(ROOT / "models")).tokenizer.encode(text)


def requests(ids, length, count):
    import numpy as np

    positions = np.arange(length - 32, length)
    return [rw.engine.ScoreRequest(ids=ids[7 * i : 7 * i + length], positions=positions) for i in range(count)]


def model(check):
    import numpy as np

    ids, path = embedded(), str(short_model())
    native = rw.engine.native_engine(path)
    engine = rw.engine.TorchEngine(path, device=check.device, dtype="float32")  # a GPU's default is the model's, bfloat16
    for length in (128, 512) if check.dry else (128, 512, 1024):
        for method in ("none", "dynamic", "yarn", "rerope", "self-extend", "dual-chunk", "log-n"):
            plan = rw.plan(path).with_method(method, None if method == "none" else 4.0, length=length)
            exact = any(layer.map is not None or layer.temperature is not None for layer in plan.layers)
            asked = requests(ids, length, 2)
            theirs = native.score(plan, asked, angles="exact" if exact else "float32")
            ours = engine.score(plan, asked)
            difference = max(float(np.abs(a[0] - b[0]).max()) for a, b in zip(ours.tokens, theirs.tokens))
            check.hold(f"{method} at {length}", difference <= 1e-3, nats=difference)


def memory(check):
    """What the allocator refuses; on a CPU, a hook that refuses in its place."""
    import numpy as np

    ids, count = embedded(), (8 if check.dry else 64)
    engine = rw.engine.TorchEngine(str(ROOT / "models"), device=check.device)
    plan = rw.plan(str(ROOT / "models")).with_method("yarn", 4.0, length=512)
    asked = requests(ids, 512, count)
    whole = engine.score(plan, asked)
    if check.device.type == "cuda":
        torch.cuda.empty_cache()
        limit = torch.cuda.memory_reserved() + (96 << 20)
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    else:

        def refuse(module, given, settings):
            if settings["input_ids"].numel() > 700:
                raise torch.OutOfMemoryError("out of memory, for the check")

        engine.model.register_forward_pre_hook(refuse, with_kwargs=True)
    before = engine._most_together, engine._most_tokens
    again = engine.score(plan, asked)
    if check.device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(1.0)
    difference = max(float(np.abs(a[0] - b[0]).max()) for a, b in zip(again.tokens, whole.tokens))
    after = engine._most_together, engine._most_tokens
    check.hold(
        "back-off", difference <= 1e-3 and after < before, nats=difference, most_together=after[0], chunk=after[1]
    )


# ---- Speed


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)


def apply_rotary(q, k, cos, sin):  # as transformers has it
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def speed(check):
    dim = 128
    made = rw.rotation(dim, layout="half")
    for tokens in (1, 64) if check.dry else (1, 4096, 32768):
        q, k = (torch.randn(1, tokens, heads, dim, device=check.device, dtype=torch.bfloat16) for heads in (32, 8))
        rows = rt.table(made.inv_freq, tokens + 17).to(check.device)
        cos, sin = (x.repeat(1, 2)[None, None].to(q.dtype) for x in rows[17:].unbind(1))
        views = q.transpose(1, 2), k.transpose(1, 2)
        compiled = torch.compile(apply_rotary, dynamic=False)
        calls = {
            "ropewalk": lambda: rt.rotate(q, k, rows, 17, layout="half"),
            "eager": lambda: apply_rotary(*views, cos, sin),
            "compiled": lambda: compiled(*views, cos, sin),
        }
        with torch.no_grad():
            check.row(
                f"rotate {tokens}", us={name: round(1e6 * check.seconds(call), 2) for name, call in calls.items()}
            )
    heads, kv_heads = 32, 8
    for tokens in (64,) if check.dry else (4096, 16384):
        q, k, v = (
            torch.randn(1, tokens, h, dim, device=check.device, dtype=torch.bfloat16, requires_grad=True)
            for h in (heads, kv_heads, kv_heads)
        )
        upstream = torch.randn_like(q)

        def timed(call, upstream=upstream, inputs=(q, k, v)):
            def forward():
                with torch.no_grad():
                    call()

            def all_of_it():
                torch.autograd.grad(call(), inputs, upstream)

            return {"forward": round(1e3 * check.seconds(forward), 3), "both": round(1e3 * check.seconds(all_of_it), 3)}

        def sdpa(q=q, k=k, v=v):
            # The flash kernel, where there is one.
            views = (x.transpose(1, 2) for x in (q, k, v))
            out = torch.nn.functional.scaled_dot_product_attention(*views, is_causal=True, enable_gqa=True)
            return out.transpose(1, 2)

        def masked(q=q, k=k, v=v, tokens=tokens):
            distance = torch.arange(tokens, device=check.device)[:, None] - torch.arange(tokens, device=check.device)
            slopes = rn.Alibi(heads).slopes.to(check.device)
            mask = (-slopes[:, None, None] * distance).masked_fill(distance < 0, -torch.inf)[None].to(q.dtype)
            views = (x.transpose(1, 2) for x in (q, k, v))
            return torch.nn.functional.scaled_dot_product_attention(*views, attn_mask=mask, enable_gqa=True).transpose(
                1, 2
            )

        calls = {
            "sdpa": sdpa,
            "ropewalk": lambda q=q, k=k, v=v: rt.attention(q, k, v),
            "ropewalk, alibi": lambda q=q, k=k, v=v: rt.attention(q, k, v, bias=rw.Alibi(heads)),
            "ropewalk, rerope": lambda q=q, k=k, v=v, made=made: rt.attention(
                q, k, v, rotation=made, remap=rw.ReRoPE(16 if check.dry else 1024)
            ),
        }
        if tokens <= 4096:  # the mask of more has tens of GiB
            calls["sdpa, alibi as a mask"] = masked
        for name, call in calls.items():
            try:
                check.row(f"attention {tokens}, {name}", ms=timed(call))
            except (rw.Error, torch.OutOfMemoryError) as error:
                check.row(f"attention {tokens}, {name}", failed=f"{type(error).__name__}: {str(error).splitlines()[0]}")


def reading():
    """Some hundred thousand words that lie in the repository."""
    files = sorted(p for folder in ("docs", "include", "src") for p in (ROOT / folder).rglob("*.*"))
    return "".join(p.read_text() for p in files if p.suffix in (".md", ".h", ".cc"))[: 1 << 20]


def random_model(folder):
    import transformers

    torch.manual_seed(3)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMOLLM2)).to(torch.bfloat16).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):  # whose 1024 ids are among the model's
        (pathlib.Path(folder) / name).write_bytes((ROOT / "models" / name).read_bytes())
    return folder


def sweep(check):
    text = pathlib.Path(check.args.text) if check.args.text else reading()
    settings = {"lengths": "4k,8k,16k,32k,64k"}  # and the usual methods, which are 8
    if check.dry:
        settings = {"methods": "none,yarn,rerope", "lengths": "128,512", "anchors": 2, "passkey_trials": 1}
    with tempfile.TemporaryDirectory() as folder:
        path = check.args.model or (str(short_model()) if check.dry else random_model(folder))
        begin = time.perf_counter()
        done = rw.sweep(
            path, text=text, engine="torch", device=check.device, dtype="bfloat16", progress=True, **settings
        )
        seconds = time.perf_counter() - begin
    print(done)
    for r in done.rows:
        values = {key: r[key] for key in ("method", "factor", "length", "perplexity", "seconds", "compute")}
        values |= {task["task"]: task["exact"] for task in r["tasks"]}
        check.row("cell", **values)
    for r in done.recommendations:
        check.row("recommended", length=r.length, method=r.method, text=r.text)
    weights = "given" if check.args.model else "embedded" if check.dry else "random"
    check.hold("all", len(done.rows) > 0, cells=len(done.rows), seconds=round(seconds, 1), weights=weights)


STEPS = {f.__name__: f for f in (facts, rotation, attention, model, memory, speed, sweep)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--json", required=True)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--model")
    parser.add_argument("--part", type=int, help=f"attention: every {PARTS}th case from this one on; without it {PARTS} processes")
    parser.add_argument("--text")
    check = Check(parser.parse_args())
    if not check.dry and not torch.cuda.is_available():
        print("PyTorch sees no GPU")
        return 77
    if check.step == "attention" and check.args.part is None and not check.dry:  # what takes long is to compile
        started = [subprocess.Popen([sys.executable, *sys.argv, "--part", str(part)]) for part in range(PARTS)]
        return int(any([process.wait() for process in started]))
    STEPS[check.step](check)
    return 1 if check.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
