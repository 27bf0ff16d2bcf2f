"""Expected numbers for tests/analysis, typed again from their definitions with mpmath and numpy.
Usage: python3 tests/golden/analysis_make.py > tests/golden/analysis.json   (a few seconds; bounds of longer contexts take minutes)"""

import json

import mpmath as mp
import numpy as np

mp.mp.dps = 50
PI = mp.pi


def plain(base, d):
    return [mp.mpf(base) ** (mp.mpf(-2 * i) / d) for i in range(d // 2)]


def ntk(base, d, s):
    return plain(mp.mpf(base) * mp.mpf(s) ** (mp.mpf(d) / (d - 2)), d)


def pairs(f, length):
    return [{"frequency": float(x), "wavelength": float(2 * PI / x), "rotations": float(x * length / (2 * PI))}
            for x in f]


def decay(f, distances):
    rows = []
    for m in distances:
        s, total = mp.mpc(0), mp.mpf(0)
        for x in f:
            s += mp.expj(m * x)
            total += abs(s)
        rows.append({"distance": m, "bound": float(total / len(f)), "expected": float(s.real / len(f))})
    return rows


def unseen(trained, trained_length, now, length):
    """Counted at 4,000,000 points instead of integrated."""
    seen = float(trained) * (trained_length - 1)
    if seen >= 2 * np.pi:
        return 0.0
    angles = np.linspace(0, float(now) * (length - 1), 4_000_001) % (2 * np.pi)
    return float(np.mean(angles > seen + 1e-12))


def largest(angles, f, position):
    differences = [abs(mp.mpf(float(a)) - position * x) for a, x in zip(angles, f)]
    worst = max(range(len(f)), key=lambda i: differences[i])
    return {"radians": float(differences[worst]), "pair": worst}


def float32(base, d, position):
    f = plain(base, d)
    one = np.float32
    exponents = np.arange(0, d, 2, dtype=np.float32) / one(d)
    # pow rounded once, as the C library's powf is nearly everywhere
    powers = np.array([one(float(mp.mpf(base) ** mp.mpf(float(e)))) for e in exponents], dtype=np.float32)
    hf = (one(1) / powers) * one(position)
    ratio = one(float(mp.mpf(base) ** mp.mpf(float(one(-2) / one(d)))))
    theta, ggml = one(position), []
    for _ in range(d // 2):
        ggml.append(theta)
        theta = one(theta * ratio)
    cuda = [one(position) * one(float(mp.mpf(float(ratio)) ** i)) for i in range(d // 2)]
    once = [one(float(x)) * one(position) for x in f]
    return {"base": base, "d": d, "position": position,
            "hugging_face_pow_rounded_once": largest(hf, f, position),
            "rounded_once": largest(once, f, position),
            "ggml_cpu": largest(ggml, f, position), "ggml_cuda": largest(cuda, f, position)}


def supports(base, d, context):
    f = base ** (-2 * np.arange(d // 2) / d)
    step = 64
    for first in range(1, context + 1, step):
        m = np.arange(first, min(context + 1, first + step))[:, None]
        if (np.cos(m * f).sum(axis=1) < 0).any():
            return False
        step = 512
    return True


def bound(d, context, start, ratio=1.0002):
    """Every base of a fine grid from below, each tried at every distance: no cleverness."""
    base = start
    while not supports(base, d, context):
        base *= ratio
    return base


def bounds(d, contexts):
    rows, base = [], 1.0002
    for context in contexts:
        base = bound(d, context, base)
        rows.append({"context": context, "base": base})
    return {"d": d, "bounds": rows}


FAR = [0, 1, 255, 256, 257, 4095, 4096, 4097, 16384, 131071, 1048575, 2**31 - 1]
print(json.dumps({
    "pairs": [{"base": b, "d": d, "length": n, "rows": pairs(plain(b, d), n)}
              for b, d, n in ((10000, 128, 4096), (500000, 128, 8192), (100000, 64, 8192))],
    "decay": [{"base": b, "d": d, "ntk_factor": s, "rows": decay(ntk(b, d, s) if s > 1 else plain(b, d), FAR)}
              for b, d, s in ((10000, 128, 1), (10000, 128, 4), (100000, 64, 1))],
    "unseen": [{"trained": t, "trained_length": n, "now": f, "length": m, "share": unseen(t, n, f, m)}
               for t, n, f, m in ((1e-3, 4096, 1e-3, 16384), (1e-3, 4096, 2.5e-4, 16384),
                                  (1.2e-4, 4096, 1.2e-4, 131072), (1e-2, 4096, 1e-2, 131072),
                                  (1.5e-3, 4096, 4e-4, 131072), (1.5e-3, 4097, 1.5e-3, 1048576))],
    "float32": [float32(b, d, p) for b, d in ((500000, 128), (10000, 128), (100000, 64), (10000000, 128))
                for p in (1, 255, 256, 257, 8191, 8192, 8193, 32768, 131071, 1000000, 1048575)],
    "bounds": [bounds(128, [64, 256])],
}, indent=1))
