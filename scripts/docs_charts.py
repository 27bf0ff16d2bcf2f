#!/usr/bin/env python3
"""Draws the charts of docs/rotary/, docs/relative/ and docs/absolute/ as SVG, from committed numbers. The last two are
docs/charts.json alone, which tests/docs/chart_numbers.cc asks of the library. Rotary's are frequencies by the formulas of
tests/golden/check_conformance.py (which a test holds against the program), perplexity and passkey from docs/results/embedded/results.jsonl, Phi-3.5's divisors from docs/results/,
settings of named models from their published config.json.

usage: docs_charts.py [--check]     --check writes nothing and fails where a committed file differs
"""

import cmath
import importlib.util
import json
import math
import pathlib
import sys

sys.dont_write_bytecode = True
from svg_panels import Panel, draw, number, panel_of  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIM, BASE, TRAINED, FACTOR = 128, 10000, 4096, 4  # of the frequency charts


def formulas():
    path = ROOT / "tests" / "golden" / "check_conformance.py"
    spec = importlib.util.spec_from_file_location("check_conformance", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FORMULAS = formulas()


def frequencies(method, length=TRAINED, dialect="native", base=BASE, dim=DIM, trained=TRAINED, **parameters):
    p = {"method": method, "factor": FACTOR, **parameters}
    if method in ("yarn", "dynamic-yarn"):
        p = {"beta_fast": 32, "beta_slow": 1, "truncate": True, "softmax_mscale": False,
             "extrapolation_factor": 1, **p}
    return [float(f) for f in FORMULAS.frequencies(p, dialect, dim, dim, base, trained, length, None)[0]]


def slow_down(method, base=BASE, dim=DIM, **parameters):
    """(pair, f_i / f'_i); a pair of zero frequency is None."""
    plain = frequencies("none", base=base, dim=dim)
    scaled = frequencies(method, base=base, dim=dim, **parameters)
    return [(i, a / b if b else None) for i, (a, b) in enumerate(zip(plain, scaled))]


# ---- Numbers ------------------------------------------------------------------------------------

def cells(name):
    with open(ROOT / "docs" / "results" / name / "results.jsonl", encoding="utf-8") as file:
        header, *rows = [json.loads(line) for line in file]
    return header, rows


def share(cell, task):
    """The share of exact answers, or the recall where a task has one; None at lengths that hold no prompt."""
    found = next((t for t in cell["tasks"] if t["task"] == task), None)
    return found and (found["exact"] if found["recall"] is None else found["recall"])


def by_length(method, key):
    return [(c["length"], c[key] if key == "perplexity" else share(c, key))
            for c in sorted(CELLS, key=lambda c: c["length"]) if c["method"] == method]


def measured(method):
    """Perplexity and passkey of the embedded model by length, the method in colour among all."""
    panels, factor = [], max(c["factor"] for c in CELLS)
    for key, title, log in (("perplexity", "Perplexity, embedded model", True),
                            ("passkey", "Passkey found, embedded model", False)):
        lines = [("", by_length(m, key), "rest") for m in METHODS if m not in (method, "none") and ":" not in m]
        lines.append(("no scaling", by_length("none", key), "c1"))
        if method != "none":
            lines.append((f"{method}, s = {factor:g}", by_length(method, key), "c0"))
        if f"{method}:factor=1" in METHODS:
            lines.append((f"{method}, s = 1", by_length(f"{method}:factor=1", key), "c2"))
        lines.append(("the other methods", [by_length("none", key)[0]], "rest"))
        panels.append(Panel(title, f"length, tokens (trained: {HEADER['trained_length']})", lines, x_log=True, y_log=log,
                            y_range=(8, 64) if log else (0, 1)))
    return panels


def slow_panel(lines, still=False, log=False):
    note = "; above the top line: zero frequency" if still else " (0 is the fastest)"
    return Panel("Slow-down f / f&#8242; of each pair", "pair i" + note, lines, y_log=log,
                 y_range=None if log else (0, 5))


def wavelength_panel(lines, lengths, last):
    """Tokens per rotation of each pair, and lengths as lines across the pairs 0 to last."""
    across = [(f"{n} tokens", [(0, n), (last, n)], colour) for n, colour in lengths]
    turns = [(label, [(i, 2 * math.pi / f) for i, f in enumerate(fs) if f], colour) for label, fs, colour in lines]
    return Panel("Wavelength 2&#960; / f of each pair, tokens", "pair i (0 is the fastest)", turns + across, y_log=True)


def decay(base, dim=DIM, keep=None, decay_to=2 ** 17, zeta=None):
    """Mean over pairs of cos(distance f_i), averaged over thirds of octaves of distance."""
    f = [base ** (-2 * i / dim) for i in range(dim // 2)]
    f = [x if keep is None or keep(i, x) else 0.0 for i, x in enumerate(f)]
    zeta = zeta or [1.0] * len(f)
    points, low = [], 1.0
    while low < decay_to:
        high = low * 2 ** (1 / 3)
        count = min(max(1, int(high) - int(low)), 64)
        distances = [int(low) + (int(high) - int(low)) * j // count for j in range(count)]
        value = sum(z ** (n / 512) * math.cos(n * x) for n in distances for x, z in zip(f, zeta)) / len(f) / count
        if not points or int(low) > points[-1][0]:
            points.append((int(low), value))
        low = high
    return points


def decay_panel(lines):
    return Panel("Score of equal vectors by distance", "distance, tokens", lines, x_log=True, y_range=(-0.2, 1))


def abel(base):
    points = []
    for e in range(0, 52):
        n, total, size = int(2 ** (e / 3)), 0j, 0.0
        for i in range(DIM // 2):
            total += cmath.exp(1j * n * base ** (-2 * i / DIM))
            size += abs(total)
        if not points or n > points[-1][0]:
            points.append((n, size / (DIM // 2)))
    return points


def longest(base):
    """The first distance at which sum cos(n f_i) < 0."""
    f = [base ** (-2 * i / DIM) for i in range(DIM // 2)]
    n = 1
    while sum(math.cos(n * x) for x in f) >= 0:
        n += 1
    return n


def steps(beta, period, offset):
    at = sorted({p for k in range(0, 9) for p in (k * period - offset - 1, k * period - offset)} | {0, 65536})
    return [(p, 1 + beta * math.log(1 + (p + offset) // period)) for p in at if 0 <= p <= 65536]


def log_n(trained):
    return [(p, max(1.0, math.log(p + 1) / math.log(trained))) for p in range(0, 65537, 1024)]


def charts():
    linear = ("linear", slow_down("linear"), "rest")
    ntk = ("ntk", slow_down("ntk"), "rest")
    wavelengths = [(i, 2 * math.pi / f) for i, f in enumerate(frequencies("none"))]
    yield "none", [Panel("Wavelength 2&#960; / f of each pair, tokens", "pair i (0 is the fastest)",
                         [("b = 10000, d = 128", wavelengths, "c0"),
                          ("L = 4096", [(0, 4096), (63, 4096)], "c1")], y_log=True)] + measured("none")
    yield "linear", [slow_panel([("linear", linear[1], "c0")])] + measured("linear")
    for method, extra in (("ntk", {}), ("ntk-fixed", {}), ("ntk-mixed", {"exponent": 0.75}), ("hope", {}),
                          ("by-parts", {"alpha": 1, "beta": 32}),
                          ("by-parts-repo", {"ntk_factor": 1, "extrapolation_factor": 1, "beta": [1.25, 0.75],
                                             "gamma": [16, 2]}),
                          ("llama3", {"low_freq_factor": 1, "high_freq_factor": 4})):
        lines = [linear] + ([ntk] if method != "ntk" else []) + [(method, slow_down(method, **extra), "c0")]
        yield method, [slow_panel(lines, still=method == "hope")] + measured(method)
    yield "yarn", [slow_panel([linear, ("yarn", slow_down("yarn"), "c0"),
                               ("ends not rounded", slow_down("yarn", truncate=False), "c2"),
                               ("the paper's ramp", slow_down("yarn", dialect="paper"), "c3")])] + measured("yarn")
    for method, extra in (("dynamic", {}), ("dynamic-linear", {}), ("qwen", {}), ("dynamic-yarn", {})):
        lines = [(f"length {n}", slow_down(method, length=n, **extra), colour)
                 for n, colour in ((4096, "c2"), (8192, "c0"), (16384, "c3"))]
        yield method, [slow_panel(lines, log=True)] + measured(method)

    with open(ROOT / "docs" / "results" / "phi3.5-longrope.json", encoding="utf-8") as file:
        phi = json.load(file)
    phi_plain = frequencies("none", dim=96)
    phi_lines = [(f"Phi-3.5, {name} list", [f / x for f, x in zip(phi_plain, phi[f"{name}_factor"])], colour)
                 for name, colour in (("short", "c2"), ("long", "c0"))]
    yield "longrope", [slow_panel([("Phi-3.5, short list", list(enumerate(phi["short_factor"])), "c2"),
                                   ("Phi-3.5, long list", list(enumerate(phi["long_factor"])), "c0"),
                                   ("linear, s = 32", [(0, 32), (47, 32)], "rest")], log=True),
                       wavelength_panel(phi_lines, [(4096, "c1"), (131072, "c3")], 47)]
    gemma4 = frequencies("none", base=1e6, dim=512)
    yield "proportional", [
        wavelength_panel([("whole head of 512", gemma4, "rest"),
                          ("Gemma 4: 64 pairs", gemma4[:64], "c0"),
                          ("rotary_dim 128", frequencies("none", base=1e6, dim=128), "c2")], [], 255),
        decay_panel([("whole head of 512", decay(1e6, 512), "c1"),
                     ("Gemma 4: p = 0.25", decay(1e6, 512, keep=lambda i, _: i < 64), "c0")])]
    bases = [10 ** (3 + e / 8) for e in range(0, 13)]
    near = range(11000, 18001, 50)
    yield "base", [slow_panel([("from 10000 to 500000", rebased(5e5), "c0"),
                               ("to 1000000", rebased(1e6), "c2")], log=True),
                   Panel("Longest context of a base, d = 128", "base",
                         [("first negative sum of cosines", [(b, longest(b)) for b in bases], "c0")],
                         x_log=True, y_log=True),
                   Panel("The same, every 50 from 11000 on", "base",
                         [("first negative sum", [(b, longest(b)) for b in near], "c0"),
                          ("2048 tokens", [(11000, 2048), (18000, 2048)], "c1")])]
    yield "explicit", [slow_panel([("Llama 3.1's rope_freqs", slow_down(
        "llama3", base=5e5, trained=8192, factor=8, low_freq_factor=1, high_freq_factor=4), "c0")], log=True)]
    zeta = [(2 * i / DIM + 0.4) / 1.4 for i in range(DIM // 2)]
    yield "xpos", [Panel("What xPos leaves of a pair's score", "distance, tokens",
                         [(f"pair {i}", [(n, zeta[i] ** (n / 512)) for n in range(0, 4097, 64)], colour)
                          for i, colour in ((0, "c0"), (21, "c2"), (42, "c3"), (63, "c1"))]),
                   decay_panel([("RoPE, b = 10000", decay(1e4), "c1"),
                                ("xPos", decay(1e4, zeta=zeta), "c0")])]
    yield "partial", [wavelength_panel([("whole head of 80", frequencies("none", dim=80), "rest"),
                                        ("Phi-2: 16 of 40 pairs", frequencies("none", dim=32), "c0"),
                                        ("p-RoPE 0.4: 16 pairs", frequencies("none", dim=80)[:16], "c2")],
                                       [(2048, "c1")], 39),
                      decay_panel([("whole head of 80", decay(1e4, 80), "c1"),
                                   ("Phi-2: 32 of 80", [(n, 0.6 + 0.4 * v) for n, v in decay(1e4, 32)], "c0")])]
    smollm3 = decay(5e6)
    yield "nope", [decay_panel([("SmolLM3, b = 5000000", smollm3, "c1"),
                                ("its NoPE layers", [(n, 1.0) for n, _ in smollm3], "c0"),
                                ("mean over layers, 1 in 4", [(n, (3 * v + 1) / 4) for n, v in smollm3], "c2")])]
    yield "local-global", [
        wavelength_panel([("local, b = 10000", frequencies("none", dim=256), "c1"),
                          ("global, b = 1000000", frequencies("none", base=1e6, dim=256), "c0")],
                         [(512, "c3"), (32768, "c2")], 127),
        decay_panel([("local, window 512", decay(1e4, 256, decay_to=512), "c1"),
                     ("global, 32768 tokens", decay(1e6, 256, decay_to=32768), "c0")])]
    yield "temperature", [Panel("Multiplier of the query by position", "position",
                                [("Llama 4", steps(0.1, 8192, 1), "c0"),
                                 ("Ministral 3 3B", steps(0.1, 16384, 0), "c1"),
                                 ("log-n, L = 2048", log_n(2048), "c2"),
                                 ("log-n, L = 8192", log_n(8192), "c3")]),
                          Panel("The first step, both with P = 8192", "position",
                                [(name, [(m, 1 + 0.1 * math.log(1 + (m + o) // 8192)) for m in range(8188, 8197)],
                                  colour) for name, o, colour in (("Llama 4: o = 1", 1, "c0"),
                                                                  ("Ministral 3: o = 0", 0, "c1"))],
                                y_range=(1, 1.08))]
    yield "decay", [decay_panel([(f"b = {number(b)}", decay(b), c)
                                 for b, c in ((100, "c1"), (1e4, "c0"), (1e6, "c2"), (1e8, "c3"))]),
                    Panel("Abel's bound: mean of the partial sums", "distance, tokens",
                          [(f"b = {number(b)}", abel(b), c) for b, c in ((100, "c1"), (1e4, "c0"), (1e6, "c2"))],
                          x_log=True, y_range=(0, 35))]


def rebased(base):
    new = frequencies("none", base=base)
    return [(i, a / b) for i, (a, b) in enumerate(zip(frequencies("none"), new))]


def counted(cells, task):
    """Questions and prompts of a cell at the longest length."""
    found = next(t for t in cells[-1]["tasks"] if t["task"] == task)
    return f"{len(found['answers'])} behind {found['prompts']} contexts"


def tables(cells):
    """Perplexity with the entropy of attention, and shares of answers with the loss of key tokens, for people."""
    lengths, methods = sorted({c["length"] for c in cells}), list(dict.fromkeys(c["method"] for c in cells))
    at = {(c["method"], c["length"]): c for c in cells}

    def table(heads, value):
        rows = ["| method | " + " | ".join(heads) + " |", "|---" + "|---:" * len(heads) + "|"]
        return rows + [f"| {linked(method)} | " + " | ".join(value(method)) + " |" for method in methods]

    def answers(method):
        shares = [f"{found:.2f}" for task, n in answered if (found := share(at[method, n], task)) is not None]
        return shares + [f"{t['mean_nll']:.2f}" for n in lengths for t in at[method, n]["tasks"] if t["task"] == "key-tokens"]

    answered = [(task, n) for task in TASKS for n in lengths if share(at["none", n], task) is not None]
    yield from table([f"{n}" for n in lengths] + [f"entropy, {n}" for n in lengths],
                     lambda m: [f"{at[m, n]['perplexity']:.1f}" for n in lengths] + [f"{at[m, n]['entropy']:.2f}" for n in lengths])
    yield ""
    yield from table([f"{task.removeprefix('ruler:')}, {n}" for task, n in answered] + [f"key tokens, {n}" for n in lengths], answers)


def linked(method):
    """The name, with the page of its first part."""
    name = method.partition("+")[0].partition(":")[0]
    page = {"leaky-rerope": "rerope", "log-n": "temperature"}.get(name, name)
    folder = "rotary" if (ROOT / "docs" / "rotary" / "methods" / f"{page}.md").exists() else "relative"
    return f"[{method}](../../{folder}/methods/{page}.md)"


def results_page():
    """docs/results/embedded/README.md: the cells of both folders."""
    map_header, map_cells = cells("embedded-maps")
    factor, text = f"{max(c['factor'] for c in CELLS):g}", "[`scripts/heldout_text.sh`](../../../scripts/heldout_text.sh)"
    return "\n".join([
        f"# The embedded model at factor {factor}", "",
        f"The model was trained at {HEADER['trained_length']} tokens ([models/README.md](../../../models/README.md)); the text is what",
        f"{text} prints, which it has not seen. `none` has no",
        "factor, `dynamic:factor=1` its own, whatever `--factors` says. Questions of a cell at the longest length: "
        f"{counted(CELLS, 'passkey')} of",
        f"[passkey](../../tasks/passkey.md), {counted(CELLS, 'kv')} of [kv](../../tasks/kv.md), {counted(CELLS, 'ruler:vt')} of RULER's",
        "[vt](../../tasks/ruler.md), each of which asks for five names. With 32 answers a share of 0.5 says 0.34 to 0.66. What all this teaches:",
        "[measured results](../README.md#the-embedded-model).", "",
        "This page and the charts of [the methods](../../rotary/README.md) are what `scripts/docs_charts.py` makes of the rows",
        "([the format](../../results-format.md)). Tables: perplexity and the entropy of attention at the end of the windows (nats, mean over layers",
        "and heads), by length in tokens; shares of exact answers to passkey and kv, of names found by vt, and the loss in nats of the "
        f"{len(next(t for t in CELLS[-1]['tasks'] if t['task'] == 'key-tokens')['answers'])} [key tokens](../../tasks/key-tokens.md)",
        "of the windows. Other tasks of RULER the model was not trained for and cannot do at 1024 tokens either ([models/README.md](../../../models/README.md)).", "",
        "## Rotary methods", "", f"    {HEADER['command']}", "", *tables(CELLS), "",
        "## Position remapping, log-n and combinations", "", "[Rows](../embedded-maps/results.jsonl); anchors and prompts are those above.",
        "", f"    {map_header['command']}", "", *tables(map_cells), ""])


TASKS = ("passkey", "kv", "ruler:vt")
HEADER, CELLS = cells("embedded")
METHODS = list(dict.fromkeys(c["method"] for c in CELLS))


def main():
    check = sys.argv[1:] == ["--check"]
    docs = ROOT / "docs"
    drawn = {docs / "rotary" / "charts" / f"{name}.svg": draw(panels, f"charts of {name}") for name, panels in charts()}
    with open(docs / "charts.json", encoding="utf-8") as file:
        for page, panels in json.load(file).items():
            folder, name = page.split("/")
            drawn[docs / folder / "charts" / f"{name}.svg"] = draw(map(panel_of, panels), f"charts of {name}")
    drawn[docs / "results" / "embedded" / "README.md"] = results_page()
    stale = [path.name for path, text in drawn.items()
             if not path.exists() or path.read_text(encoding="utf-8") != text]
    stale += [path.name for path in docs.glob("*/charts/*.svg")
              if path not in drawn and path.parent.parent.name != "evidence"]
    if check and stale:
        sys.exit(f"{', '.join(sorted(stale))}: not what scripts/docs_charts.py draws; run it")
    if not check:
        for path, text in drawn.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    print(f"{len(drawn)} files of {len(CELLS)} cells")


if __name__ == "__main__":
    main()
