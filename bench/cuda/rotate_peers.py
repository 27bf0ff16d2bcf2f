#!/usr/bin/env python3
"""Rotate on a GPU against PyTorch and the kernels of FlashAttention, Liger, vLLM and FlashInfer: the same
tensors, in turns, in one process.

    bench/cuda/rotate_peers.py --library build-gpu/libropewalk_c.so [--json FILE] [--tokens 1 64 4096 ...]
    bench/cuda/rotate_peers.py --library build-gpu/libropewalk_c.so --dry-run

q and k of 32 and 8 heads of 128, half layout, base 10000, bf16, from position 0 on. Ropewalk is called through its
C interface, in place, as FlashAttention's, Liger's, vLLM's and FlashInfer's kernels are; PyTorch makes new
tensors. Everyone brings cos and sin ready, as its own models do. A peer that cannot be imported is named and left out.

Every result is compared before it is timed. Calls are captured in a CUDA graph over sets of tensors that together are
larger than the cache (who cannot be captured is timed by events, and its line says so); times are medians of
rounds in which each takes its turn. The errors are those of float32 tensors at the 4096 positions that end at
1048576, against double, in units of 2^-23 of the pair's length.

--dry-run, without a GPU: what can be imported, the formulas on the CPU, and that the library's structs are those
declared here. Exit code 77: there is no GPU or no PyTorch. 1: a result was wrong.
"""

import argparse
import ctypes
import importlib
import importlib.machinery
import importlib.util
import json
import pathlib
import statistics
import sys

HEADS, KV_HEADS, DIM, BASE = 32, 8, 128, 10000.0
TOKENS = (1, 16, 64, 4096, 65536, 262144, 1048576)
FAR, FAR_TOKENS = 1048576, 4096

# ---- ropewalk: include/ropewalk/ropewalk.h -------------------------------------------------------------------

I32, I64, SIZE, F32, F64, POINTER = (ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t, ctypes.c_float, ctypes.c_double,
                                     ctypes.c_void_p)
HALF, EXACT, CUDA, UNSUPPORTED = 1, 0, 1, 4
DTYPES = {"float64": 0, "float32": 1, "float16": 2, "bfloat16": 3}


def struct(name, *fields):
    """A struct whose first field is its size."""
    return type(name, (ctypes.Structure,), {"_fields_": [("size", SIZE), *fields]})


Spec = struct("Spec", ("layout", I32), ("dialect", I32), ("head_dim", I64), ("rotary_dim", I64), ("first_dim", I64),
              ("base", F64), ("trained_length", I64), ("method", ctypes.c_char_p), ("parameters", POINTER),
              ("num_parameters", I64), ("factors", POINTER), ("long_factors", POINTER), ("num_factors", I64),
              ("sections", POINTER), ("num_sections", I64), ("axis_order", I32), ("own_ladders", I32),
              ("xpos", POINTER))
CudaInfo = struct("CudaInfo", ("toolkit", ctypes.c_char_p), ("targets", ctypes.c_char_p), ("driver", ctypes.c_char_p),
                  ("why_none", ctypes.c_char_p), ("devices", POINTER), ("num_devices", I64))
Tensor = struct("Tensor", ("data", POINTER), ("dtype", I32), ("device", I32), ("rank", I32), ("shape", I64 * 5),
                ("strides", I64 * 5))
Positions = struct("Positions", ("kind", I32), ("axes", I32), ("start", I64), ("data", POINTER), ("count", I64))
RotateArgs = struct("RotateArgs", ("table", POINTER), ("frequencies", POINTER), ("precision", I32), ("layout", I32),
                    ("direction", I32), ("values", I32), ("positions", POINTER), ("q", POINTER), ("k", POINTER),
                    ("v", POINTER), ("q_out", POINTER), ("k_out", POINTER), ("v_out", POINTER), ("first_dim", I64),
                    ("rotated_heads", I64), ("q_norm_weight", POINTER), ("k_norm_weight", POINTER), ("q_norm_eps", F64),
                    ("k_norm_eps", F64), ("slots", POINTER), ("num_slots", I64), ("k_scale", F32), ("v_scale", F32),
                    ("stream", POINTER))


def make(kind, **fields):
    return kind(size=ctypes.sizeof(kind), **fields)


class Ropewalk:
    def __init__(self, path):
        self.lib = ctypes.CDLL(str(path))
        self.lib.ropewalk_last_error.restype = ctypes.c_char_p
        spec = make(Spec, layout=HALF, head_dim=DIM, base=BASE)
        self.frequencies, self.tables = POINTER(), {}
        self.check(self.lib.ropewalk_frequencies_create(ctypes.byref(spec), I64(FAR),
                                                        ctypes.byref(self.frequencies)))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.ropewalk_last_error().decode())

    def why_no_gpu(self):
        info = make(CudaInfo)
        self.check(self.lib.ropewalk_cuda_find(ctypes.byref(info)))
        return info.why_none.decode()

    def table(self, first, count):
        if (first, count) not in self.tables:
            table = POINTER()
            self.check(self.lib.ropewalk_table_create_cuda(self.frequencies, I64(first), I64(count), I32(EXACT), None,
                                                           ctypes.byref(table)))
            self.tables[first, count] = table
        return self.tables[first, count]

    def arguments(self, q, k, first, table):
        """q and k, [tokens, heads, DIM], in place; and what must live as long."""
        def view(x):
            return make(Tensor, data=x.data_ptr(), dtype=DTYPES[str(x.dtype).split(".")[1]], device=CUDA, rank=3,
                        shape=(I64 * 5)(*x.shape), strides=(I64 * 5)(*x.stride()))
        parts = view(q), view(k), make(Positions, start=first)
        q_at, k_at, positions = (ctypes.addressof(part) for part in parts)
        return make(RotateArgs, table=table, frequencies=None if table else self.frequencies, layout=HALF,
                    positions=positions, q=q_at, k=k_at), parts

    def caller(self, q, k, first=0):
        import torch

        args, kept = self.arguments(q, k, first, self.table(first, len(q)))
        rotate, pointer, check = self.lib.ropewalk_rotate, ctypes.byref(args), self.check

        def call(_kept=(args, kept, q, k)):
            args.stream = torch.cuda.current_stream().cuda_stream
            check(rotate(pointer))
            return q, k
        return call


# ---- peers ---------------------------------------------------------------------------------------------------

def cos_sin(first, tokens, device, dtype):
    """As models in PyTorch make them: float32 angles."""
    import torch

    exponents = torch.arange(0, DIM, 2, dtype=torch.int64, device=device).float() / DIM
    inv_freq = 1.0 / (BASE ** exponents)
    angles = torch.arange(first, first + tokens, device=device).float()[:, None] * inv_freq[None, :]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate_half(x):
    import torch

    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def formula(q, k, cos, sin):
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def full_rows(first, q):
    import torch

    return tuple(torch.cat((x, x), dim=-1)[:, None, :] for x in cos_sin(first, len(q), q.device, q.dtype))


def torch_eager(q, k, first):
    cos, sin = full_rows(first, q)
    return lambda: formula(q, k, cos, sin)


def torch_compile():
    import torch

    compiled = torch.compile(formula, dynamic=False)

    def peer(q, k, first):
        cos, sin = full_rows(first, q)
        return lambda: compiled(q, k, cos, sin)
    return peer


def flash_attention():
    try:
        apply_rotary = importlib.import_module("flash_attn.ops.triton.rotary").apply_rotary
    except ImportError:
        # Its Triton file alone, where the package is there and its compiled parts are not.
        package = importlib.machinery.PathFinder.find_spec("flash_attn")
        if package is None or not package.submodule_search_locations:
            raise
        path = pathlib.Path(package.submodule_search_locations[0], "ops", "triton", "rotary.py")
        spec = importlib.util.spec_from_file_location("flash_attn_rotary", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        apply_rotary = module.apply_rotary

    def peer(q, k, first):
        cos, sin = cos_sin(first, len(q), q.device, q.dtype)

        def call():
            apply_rotary(q[None], cos, sin, inplace=True)
            apply_rotary(k[None], cos, sin, inplace=True)
            return q, k
        return call
    return peer


def liger():
    rope_forward = importlib.import_module("liger_kernel.ops.rope").rope_forward

    def peer(q, k, first):
        import torch

        cos, sin = (torch.cat((x, x), dim=-1)[None] for x in cos_sin(first, len(q), q.device, q.dtype))

        def call():
            q_out, k_out = rope_forward(q[None].transpose(1, 2), k[None].transpose(1, 2), cos, sin)[:2]
            return q_out.transpose(1, 2)[0], k_out.transpose(1, 2)[0]
        return call
    return peer


def cached(kernel, cache_type):
    """Of kernels that take positions, flat tensors and a cache [positions, cos and sin]."""
    def peer(q, k, first):
        import torch

        cos, sin = cos_sin(first, len(q), q.device, cache_type or q.dtype)
        cache = torch.cat((cos, sin), dim=-1)
        positions = torch.arange(len(q), device=q.device)
        flat_q, flat_k = q.view(len(q), -1), k.view(len(k), -1)

        def call():
            kernel(positions, flat_q, flat_k, DIM, cache)
            return q, k
        return call
    return peer


def vllm():
    kernel = importlib.import_module("vllm._custom_ops").rotary_embedding
    return cached(lambda *args: kernel(*args, True), None)


def flashinfer():
    import torch

    kernel = importlib.import_module("flashinfer.rope").apply_rope_with_cos_sin_cache_inplace
    return cached(lambda *args: kernel(*args, is_neox=True), torch.float32)


PEERS = {"PyTorch eager": lambda: torch_eager, "torch.compile": torch_compile, "FlashAttention Triton": flash_attention,
         "Liger": liger, "vLLM": vllm, "FlashInfer": flashinfer}


def find_peers():
    found = {}
    for name, get in PEERS.items():
        try:
            found[name] = get()
        except Exception as error:  # whatever an import of a foreign package throws
            text = str(error).strip().splitlines()
            print(f"left out: {name}: {type(error).__name__}: {text[0] if text else ''}")
    return found


# ---- results -------------------------------------------------------------------------------------------------

def random_pair(tokens, dtype, device, seed=3):
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    return tuple(torch.randn(tokens, heads, DIM, generator=generator, device=device, dtype=torch.float32).to(dtype)
                 for heads in (HEADS, KV_HEADS))


def exact(q, first):
    """In double, a piece of the tokens at a time."""
    import torch

    exponents = torch.arange(0, DIM, 2, dtype=torch.float64, device=q.device) / DIM
    positions = torch.arange(first, first + len(q), dtype=torch.float64, device=q.device)
    angles = positions[:, None] * torch.pow(torch.tensor(BASE, dtype=torch.float64, device=q.device), -exponents)
    c, s = angles.cos()[:, None, :], angles.sin()[:, None, :]
    x1, x2 = q.double().chunk(2, dim=-1)
    return torch.cat((x1 * c - x2 * s, x2 * c + x1 * s), dim=-1)


def worst_error(got, before, first):
    """In units of 2^-23 of the pair's length."""
    import torch

    worst = 0.0
    for g, b in zip(got, before, strict=True):
        want = exact(b, first)
        x1, x2 = want.chunk(2, dim=-1)
        length = torch.hypot(x1, x2).clamp_min(1e-30)
        error = (g.double() - want).abs() / torch.cat((length, length), dim=-1)
        worst = max(worst, float("inf") if bool(torch.isnan(error).any()) else float(error.max()))
    return worst * 2.0 ** 23


def expect_right(name, call, q, k):
    """On the first tokens: those are enough for a mistake, and double takes room."""
    n = min(len(q), 4096)
    before = q[:n].clone(), k[:n].clone()
    got = tuple(x[:n] for x in call())
    error = worst_error(got, before, 0)
    # bf16 rounds cos, sin and each product of the formula; angles of 4096 positions in float32.
    limit = 2.0 ** 23 * 2.0 ** -5
    if not error <= limit:
        raise ValueError(f"{name}: off by {error:.3g} x 2^-23 of a pair's length")


# ---- times ---------------------------------------------------------------------------------------------------

class Timed:
    """`calls` calls over the sets, as one graph; by events where a peer cannot be captured."""

    def __init__(self, make_call, sets, calls):
        import torch

        self.calls = calls
        self.each = [make_call(q, k) for q, k in sets]
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for call in self.each[:2]:
                call()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(self.graph):
                self.all()
        except Exception:
            torch.cuda.synchronize()
            self.graph = None

    def all(self):
        for i in range(self.calls):
            self.each[i % len(self.each)]()

    def us(self):
        import torch

        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        if self.graph is None:
            self.all()
        else:
            self.graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1000 / self.calls


def measure(tokens, ropewalk, peers, rounds, emit):
    import torch

    bytes_of_set = tokens * (HEADS + KV_HEADS) * DIM * 2
    cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)
    count = max(2, min(16, -(-4 * cache // bytes_of_set)))
    sets = [random_pair(tokens, torch.bfloat16, "cuda", seed) for seed in range(count)]
    calls = max(count, min(50, (1 << 30) // bytes_of_set))
    makers = {"ropewalk": lambda q, k: ropewalk.caller(q, k)}
    makers.update({name: lambda q, k, peer=peer: peer(q, k, 0) for name, peer in peers.items()})
    times, captured = {}, {}
    # Each against Ropewalk beside it: what all keep at once would not fit at the largest sizes.
    own = Timed(makers.pop("ropewalk"), sets, calls)
    for name, maker in makers.items():
        try:
            expect_right(name, maker(*sets[0]), *sets[0])
            timed = Timed(maker, sets, calls)
            ours, theirs = [], []
            for _ in range(rounds):
                ours.append(own.us())
                theirs.append(timed.us())
            times[name] = statistics.median(theirs), statistics.median(ours)
            captured[name] = timed.graph is not None
            del timed
        except (RuntimeError, ValueError, TypeError) as error:
            print(f"left out at {tokens} tokens: {name}: {str(error).splitlines()[0]}")
        torch.cuda.empty_cache()
    for name, (theirs, ours) in times.items():
        verdict = "faster" if ours < theirs else "MISS"
        print(f"{tokens:8d} tokens  {name:22s} {theirs:10.2f} us, ropewalk {ours:10.2f} us, {theirs / ours:6.2f} times  "
              f"{verdict}{'' if captured[name] else '  (no graph)'}", flush=True)
        emit({"bench": "rotate_peers_cuda", "peer": name, "dtype": "bf16", "tokens": tokens, "us": round(theirs, 3),
              "ropewalk_us": round(ours, 3), "times_ropewalk": round(theirs / ours, 3), "graph": captured[name],
              "met": ours < theirs})


def far_errors(ropewalk, peers, emit):
    import torch

    first = FAR - FAR_TOKENS
    makers = {"ropewalk": ropewalk.caller, **peers}
    for name, maker in makers.items():
        q, k = random_pair(FAR_TOKENS, torch.float32, "cuda")
        before = q.clone(), k.clone()
        try:
            error = worst_error(maker(q, k, first)(), before, first)
        except Exception as problem:
            print(f"no error of {name}: {str(problem).splitlines()[0]}")
            continue
        print(f"worst error to position {FAR}, float32: {name:22s} {error:12.3f} x 2^-23 hypot", flush=True)
        emit({"bench": "rotate_peers_cuda_error", "peer": name, "dtype": "f32", "position": FAR,
              "worst_error": round(error, 4)})


# ---- without a GPU -------------------------------------------------------------------------------------------

def dry_run(ropewalk):
    print(f"ropewalk: {ropewalk.why_no_gpu() or 'there is a GPU'}")
    try:
        import torch
    except ImportError:
        sys.exit("no PyTorch")
    peers = find_peers()
    print(f"can be imported: {', '.join(peers)}")
    q, k = random_pair(64, torch.float32, "cpu")
    error = worst_error(torch_eager(q, k, 0)(), (q, k), 0)
    print(f"the formula on the CPU, 64 positions: {error:.2f} x 2^-23 hypot")
    if not error < 64:  # an angle of 63 rounded in float32 is off by 2^-19
        sys.exit("rotate_peers: the formula is wrong")
    # Memory of the CPU in the guise of the GPU's: without a GPU the call stops behind the checks of its arguments.
    if not ropewalk.why_no_gpu():
        return
    args, _kept = ropewalk.arguments(q, k, 0, None)
    status = ropewalk.lib.ropewalk_rotate(ctypes.byref(args))
    said = ropewalk.lib.ropewalk_last_error().decode()
    print(f"ropewalk_rotate, without a GPU: {said}")
    if status != UNSUPPORTED:
        sys.exit("rotate_peers: expected that there is no GPU")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    ropewalk = Ropewalk(options.library.resolve())
    if options.dry_run:
        dry_run(ropewalk)
        return
    why = ropewalk.why_no_gpu()
    if why:
        print(f"no GPU: {why}")
        sys.exit(77)
    try:
        import torch
    except ImportError:
        print("no PyTorch in this Python")
        sys.exit(77)
    if not torch.cuda.is_available():
        print("PyTorch finds no GPU")
        sys.exit(77)
    torch.cuda.init()
    torch.zeros(1, device="cuda")  # the context that both use
    peers = find_peers()
    file = options.json.open("a", encoding="utf-8") if options.json else None

    def emit(line):
        if file:
            file.write(json.dumps({**line, "torch": torch.__version__}) + "\n")
            file.flush()
    far_errors(ropewalk, peers, emit)
    for tokens in options.tokens:
        measure(tokens, ropewalk, peers, options.rounds, emit)


if __name__ == "__main__":
    main()
