#!/usr/bin/env python3
"""One rotation of q and k against PyTorch and ggml, in turns, in one process, on the same tensors.

    bench/rotary_peers.py --library build/bench/libropewalk_c.so [--json FILE] [--rounds 31] [--smoke]

Needs a virtual environment with torch (CPU) and llama-cpp-python; a peer that cannot be had is named and
left out. float32, half layout, 32 heads of q and 8 of k with 128 elements, base 10000.

  ropewalk              a table, out of place      ropewalk_in_place
  ropewalk_no_table     angles in the call, out of place
  torch_eager           q * cos + rotate_half(q) * sin, cos and sin ready
  torch_compile         the same formula, compiled
  ggml                  ggml_rope_ext, out of place: it computes cos and sin in every call
  ggml_in_place         ggml_rope_ext_inplace
  memcpy                q and k into results' memory, on one thread: the ceiling out of place

Everyone's result is compared with ropewalk's before anything is timed. Times are medians of rounds in
which each takes its turn, with one call before the clock starts. Inputs and results lie in huge pages,
ggml's too, so that luck with small ones decides nothing; PyTorch makes its results itself. ropewalk and
ggml are called through ctypes, whose own cost is in the line ("call_us"). Prints a table and writes one JSON line a size.
--smoke: one token, one round and nothing compiled, to see that it runs.
"""

import argparse
import ctypes
import json
import mmap
import pathlib
import statistics
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/parity"))
import ggml  # noqa: E402

HEADS, KV_HEADS, DIM, BASE = 32, 8, 128, 10000.0
TOKENS = (1, 512, 4096)
THREADS = (1, 2)
LEAST_SECONDS = 10e-3  # of one turn: what others left in the caches is over soon


# ---- ropewalk: include/ropewalk/ropewalk.h ---------------------------------------------------

I32, I64, SIZE, F64, POINTER = (ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t, ctypes.c_double,
                                ctypes.c_void_p)


def struct(name, *fields):
    """A struct whose first field is its size."""
    return type(name, (ctypes.Structure,), {"_fields_": [("size", SIZE), *fields]})


Spec = struct("Spec", ("layout", I32), ("dialect", I32), ("head_dim", I64), ("rotary_dim", I64),
              ("first_dim", I64), ("base", F64), ("trained_length", I64), ("method", ctypes.c_char_p),
              ("parameters", POINTER), ("num_parameters", I64), ("factors", POINTER),
              ("long_factors", POINTER), ("num_factors", I64), ("sections", POINTER),
              ("num_sections", I64), ("axis_order", I32), ("own_ladders", I32), ("xpos", POINTER))
Tensor = struct("Tensor", ("data", POINTER), ("dtype", I32), ("device", I32), ("rank", I32), ("shape", I64 * 5),
                ("strides", I64 * 5))
Positions = struct("Positions", ("kind", I32), ("axes", I32), ("start", I64), ("data", POINTER),
                   ("count", I64))
RotateArgs = struct("RotateArgs", ("table", POINTER), ("frequencies", POINTER), ("precision", I32),
                    ("layout", I32), ("direction", I32), ("values", I32), ("positions", POINTER),
                    ("q", POINTER), ("k", POINTER), ("v", POINTER), ("q_out", POINTER),
                    ("k_out", POINTER), ("v_out", POINTER), ("first_dim", I64), ("rotated_heads", I64),
                    ("q_norm_weight", POINTER), ("k_norm_weight", POINTER), ("q_norm_eps", F64),
                    ("k_norm_eps", F64), ("slots", POINTER), ("num_slots", I64), ("k_scale", ctypes.c_float),
                    ("v_scale", ctypes.c_float), ("stream", POINTER))
HALF, F32 = 1, 1


def make(kind, **fields):
    return kind(size=ctypes.sizeof(kind), **fields)


class Ropewalk:
    def __init__(self, path):
        self.lib = ctypes.CDLL(str(path))
        self.lib.ropewalk_last_error.restype = ctypes.c_char_p
        self.lib.ropewalk_version.restype = ctypes.c_char_p
        spec = make(Spec, layout=HALF, head_dim=DIM, base=BASE, trained_length=max(TOKENS))
        self.frequencies, self.table = POINTER(), POINTER()
        self.check(self.lib.ropewalk_frequencies_create(ctypes.byref(spec), I64(max(TOKENS)),
                                                        ctypes.byref(self.frequencies)))
        self.check(self.lib.ropewalk_table_create(self.frequencies, I64(0), I64(max(TOKENS)), I32(0),
                                                  ctypes.byref(self.table)))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.ropewalk_last_error().decode())

    def set_threads(self, n):
        self.lib.omp_set_num_threads(ctypes.c_int(n))  # of the OpenMP that the library is linked to

    def caller(self, q, k, q_out=None, k_out=None, table=True):
        def view(array):
            if array is None:
                return None
            strides = [n // array.itemsize for n in array.strides]
            return ctypes.pointer(make(Tensor, data=array.ctypes.data, dtype=F32, rank=3,
                                       shape=(I64 * 5)(*array.shape), strides=(I64 * 5)(*strides)))
        views = [view(a) for a in (q, k, q_out, k_out)]
        positions = make(Positions)  # from 0 on
        at = [ctypes.cast(v, POINTER) if v is not None else None for v in views]
        args = make(RotateArgs, layout=HALF, positions=ctypes.addressof(positions), q=at[0], k=at[1],
                    q_out=at[2], k_out=at[3], table=self.table if table else None,
                    frequencies=None if table else self.frequencies)
        rotate, pointer = self.lib.ropewalk_rotate, ctypes.byref(args)
        self.check(rotate(pointer))

        def call(_kept=(views, positions, args, q, k, q_out, k_out)):
            rotate(pointer)
        return call


# ---- PyTorch ---------------------------------------------------------------------------------

def torch_formula():
    import torch

    def rotate_half(x):
        first, second = x.chunk(2, dim=-1)
        return torch.cat((-second, first), dim=-1)

    def rope(q, k, cos, sin):
        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin

    return rope


def torch_tables(tokens):
    import torch

    angles = np.arange(tokens)[:, None] * BASE ** (-2 * np.arange(DIM // 2) / DIM)
    angles = np.concatenate([angles, angles], axis=1)[:, None, :]
    return (torch.from_numpy(np.cos(angles).astype(np.float32)),
            torch.from_numpy(np.sin(angles).astype(np.float32)))


# ---- memory ----------------------------------------------------------------------------------

HUGE = 2**21


def room(size):
    """Zeroed bytes in huge pages; the address, and what keeps them."""
    memory = mmap.mmap(-1, (size + HUGE - 1) // HUGE * HUGE + HUGE)
    memory.madvise(mmap.MADV_HUGEPAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    at = -start % HUGE
    ctypes.memset(start + at, 0, size)
    return start + at, memory


def array(*shape):
    address, memory = room(4 * int(np.prod(shape)))
    out = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), shape=shape)
    _kept.append(memory)
    return out


_kept = []


# ---- rounds ----------------------------------------------------------------------------------

def left_out(name, error):
    print(f"left out: {name}: {str(error).strip().splitlines()[0] if str(error).strip() else error!r}",
          file=sys.stderr)


def expect_close(name, got, wanted, limit):
    worst = max(float(np.abs(g - w).max()) for g, w in zip(got, wanted, strict=True))
    if not worst <= limit:
        sys.exit(f"rotary_peers: {name} differs from ropewalk by {worst} (limit {limit})")


def calls_of(ropewalk, kernel, tokens, threads, smoke):
    """name -> call, every result compared; and what to release."""
    rng = np.random.default_rng(3)
    pairs = [(array(tokens, HEADS, DIM), array(tokens, KV_HEADS, DIM)) for _ in range(4)]
    (q, k), out, other, mine = pairs
    for x, in_place in ((q, mine[0]), (k, mine[1])):
        rng.standard_normal(x.shape, np.float32, out=x)
        in_place[:] = x
    calls, frees = {}, []
    calls["ropewalk"] = ropewalk.caller(q, k, *out)
    wanted = out[0].copy(), out[1].copy()
    calls["ropewalk_no_table"] = ropewalk.caller(q, k, *other, table=False)
    expect_close("ropewalk_no_table", other, wanted, 1e-6)
    if threads == 1:
        add_memcpy(calls, (q, k), other)
    calls["ropewalk_in_place"] = ropewalk.caller(*mine)
    expect_close("ropewalk_in_place", mine, wanted, 0)
    add_torch(calls, q, k, wanted, threads, smoke)
    # ggml multiplies angles up in float32: a radian of 4096 is off by up to 64 roundings.
    limit = 1e-5 + tokens * 64 * 2.0 ** -24 * 2
    for name, in_place in (("ggml", False), ("ggml_in_place", True)):
        if kernel is not None:
            rope = ggml.Rope(kernel, (q, k), np.arange(tokens), DIM, BASE, threads=threads,
                             in_place=in_place, room=room)
            rope()
            expect_close(name, rope.outputs, wanted, limit)
            calls[name] = rope
            frees.append(rope.free)
    return calls, frees


def add_memcpy(calls, sources, targets):
    moves = [(t.ctypes.data, s.ctypes.data, s.nbytes) for s, t in zip(sources, targets, strict=True)]

    def call(_kept=(sources, targets)):
        for move in moves:
            ctypes.memmove(*move)
    calls["memcpy"] = call


def add_torch(calls, q, k, wanted, threads, smoke):
    try:
        import torch
    except ImportError as error:
        return left_out("torch", error)
    torch.set_num_threads(threads)
    formula = torch_formula()
    inputs = (torch.from_numpy(q), torch.from_numpy(k), *torch_tables(q.shape[0]))
    ropes = {"torch_eager": formula}
    if not smoke:
        torch._dynamo.reset()
        ropes["torch_compile"] = torch.compile(formula, dynamic=False)
    for name, rope in ropes.items():
        def call(rope=rope):
            with torch.inference_mode():
                return rope(*inputs)
        try:
            got = call()
        except Exception as error:  # no compiler, no headers
            left_out(name, error)
            continue
        expect_close(name, [x.numpy() for x in got], wanted, 1e-5)
        calls[name] = call


def seconds(call, repeats):
    call()  # wakes this one's threads, brings its memory near
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def measure(calls, rounds):
    repeats = {name: max(1, int(LEAST_SECONDS / seconds(call, 3))) for name, call in calls.items()}
    samples = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            samples[name].append(seconds(call, repeats[name]))
    return {name: statistics.median(s) for name, s in samples.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True, help="libropewalk_c.so")
    parser.add_argument("--json", help="append lines here")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.rounds = 1
    ropewalk, kernel = Ropewalk(args.library), None
    try:
        kernel = ggml.Ggml()
    except (ImportError, OSError) as error:
        left_out("ggml", error)
    print(f"{'tokens':>6} {'threads':>7}  {'':20} {'us':>10} {'GB/s':>7} {'times ropewalk':>15}")
    for tokens in TOKENS[:1] if args.smoke else TOKENS:
        for threads in THREADS[:1] if args.smoke else THREADS:
            ropewalk.set_threads(threads)
            calls, frees = calls_of(ropewalk, kernel, tokens, threads, args.smoke)
            medians = measure(calls, args.rounds)
            empty = measure({"call": ropewalk.lib.ropewalk_version}, args.rounds)["call"]
            for free in frees:
                free()
            _kept.clear()
            bytes_moved = 2 * 4 * tokens * (HEADS + KV_HEADS) * DIM
            for name, s in medians.items():
                print(f"{tokens:6} {threads:7}  {name:20} {s * 1e6:10.2f} {bytes_moved / s / 1e9:7.1f} "
                      f"{s / medians['ropewalk']:15.2f}")
            line = {"bench": "rotary_peers", "tokens": tokens, "threads": threads, "rounds": args.rounds,
                    "us": {name: round(s * 1e6, 3) for name, s in medians.items()},
                    "call_us": round(empty * 1e6, 3),
                    "times_ropewalk": {name: round(s / medians["ropewalk"], 2)
                                       for name, s in medians.items() if name != "ropewalk"}}
            if args.json:
                with open(args.json, "a") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
