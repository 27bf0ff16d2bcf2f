"""The claims of docs/evidence: each a function from rows to (lines of the page, {chart: panels}), in the order of the page."""

from evidence_frame import LAYERS, ROUNDING, VERDICTS, graded, section, sweep, table
from svg_panels import Panel
from zoo_page import read as read_zoo

# ---- Functions ----------------------------------------------------------------------------------


def padding(rows, command):
    rows = [r for r in rows if r["what"] == "padding"]
    zero, ring = ([r for r in rows if r["border"] == b] for b in ("zero", "circular"))
    leaks = all(r["told_apart"] > 0 for r in zero) and not any(r["told_apart"] for r in ring)
    text = [
        f"Of {zero[0]['tokens']} equal tokens, those whose output differs from the middle's, behind layers of {zero[0]['kernel']} taps with random weights; whether",
        "both ends look alike with mirrored (even) kernels; and R² of the distance from the middle, read linearly from random inputs on held-out sequences.",
        "",
        *table(
            ["layers", "zeros: told apart", "circular: told apart", "ends alike, even kernels", "R², zeros", "R², circular"],
            [
                [
                    str(a["layers"]),
                    str(a["told_apart"]),
                    str(b["told_apart"]),
                    "yes" if a["ends_alike_even_kernel"] else "no",
                    f"{a['readout_r2']:.3f}",
                    f"{b['readout_r2']:.3f}",
                ]
                for a, b in zip(zero, ring)
            ],
        ),
        "Zeros leak positions, as far as the layers reach and no further. With even kernels the left end cannot be told from the right: direction is the",
        "kernel's, absolute position the border's. A linear reader of random inputs finds little of it (R²): what zeros leak has to be learned from.",
        "",
    ]
    panel = [
        Panel(
            "Equal tokens told apart",
            "layers",
            [
                ("zero padding", [(r["layers"], r["told_apart"]) for r in zero], "c0"),
                ("circular", [(r["layers"], r["told_apart"]) for r in ring], "c1"),
            ],
        )
    ]
    return section(
        "Zero padding leaks positions through a convolution",
        "[B], 1.3; Islam et al. 2020 ([2001.08248](https://arxiv.org/abs/2001.08248)).",
        VERDICTS[0 if leaks else 2],
        text,
        command,
        "padding",
    ), {"padding": panel}


def order(rows, command):
    drawn = [r for r in rows if r["what"] == "order" and r["tokens"] == "drawn"]
    kinds = [
        ("encoder", "none", False),
        ("encoder, RoPE", "none", True),
        ("decoder", "causal", False),
        ("decoder, RoPE", "causal", True),
    ]
    of = {name: [r for r in drawn if (r["mask"], r["rotation"]) == (mask, rope)] for name, mask, rope in kinds}
    alike = max(r["change"] for r in rows if r["what"] == "order" and r["tokens"] == "all alike")
    blind, told = all(r["change"] < ROUNDING for r in of["encoder"]), of["decoder"][-1]["change"] > 0.01
    text = [
        "How far the last token's state moves when the 127 before it are shuffled, relative to its norm. Weights: the embedded model's, its mask and rotation",
        "taken off or left (it was trained with both; this is about what its layers can tell, not how well).",
        "",
        *table(
            ["", *(f"{r['layers']} of {LAYERS} layers" for r in of["encoder"])],
            [[name, *(f"{r['change']:.1e}" for r in line)] for name, line in of.items()],
        ),
        "An encoder without positions sees a set: what moves is rounding. A decoder tells order through its mask, but not in its first layer, whose last query sees a",
        f"set as well. Where all 128 tokens are alike nothing tells them apart, RoPE included (at most {alike:.1e}).",
        "",
    ]
    panel = [
        Panel(
            "Change when the tokens before are shuffled",
            "layers",
            [
                (name, [(r["layers"], r["change"]) for r in line], c)
                for (name, line), c in zip(of.items(), ("c1", "rest", "c0", "c2"))
            ],
            y_log=True,
        )
    ]
    return section(
        "Attention without positions cannot tell the order of its input",
        "[B], section 1.",
        VERDICTS[1 if blind and told else 0 if blind else 2],
        text,
        command,
        "order",
    ), {"order": panel}


def relative(rows, command):
    rows = [r for r in rows if r["what"] == "relative"]
    heads = {
        p: sorted(r["explained"] for r in rows if r["positions"] == p and r["projected"] == "yes")
        for p in ("sinusoids", "rotated before", "rotated after")
    }
    zoo = [row["explained"] for row in read_zoo()[1] if "explained" in row]
    if zoo:
        heads["sinusoids, trained with them"] = sorted(x for model in zoo for x in model)
    first = sorted(x for model in zoo for x in model[: len(model) // LAYERS])  # of the zoo's models too there are 4 layers
    alone = {r["projected"]: r["explained"] for r in rows if r["projected"] != "yes"}
    parts = (
        alone["no"] > 0.999,
        heads["rotated after"][0] > 0.999,
        *(line[-1] < 0.5 for name, line in heads.items() if name != "rotated after"),
    )
    text = [
        "Share of the variance of scores, over 256 by 256 positions, that the distance alone explains. W_q and W_k: the 24 heads of the embedded model, which was trained with",
        "RoPE, and those of the [zoo's](../results/zoo/README.md) models that were trained with sinusoids.",
        "",
        *table(
            ["positions", "smallest", "median", "largest"],
            [
                ["sinusoids, no projections", *[f"{alone['no']:.3f}"] * 3],
                *[
                    [
                        name + (", then W_q and W_k" if name != "rotated after" else " W_q and W_k (RoPE)"),
                        *(f"{v:.3f}" for v in (line[0], line[len(line) // 2], line[-1])),
                    ]
                    for name, line in heads.items()
                ],
                ["rotated before, then one complex number a pair", *[f"{alone['complex diagonal']:.3f}"] * 3],
            ],
        ),
        "Rotating before the projections is relative only where they commute with the rotation, as projections do that multiply each pair of dimensions, read as a complex",
        "number, by one complex number. The verdict asks for more than 0.999 where scores should be relative, for less than 0.5 where not.",
        *(
            [
                "Training with sinusoids brings a part of it back: in the first layer, which sees them bare, the distance explains "
                f"{first[0]:.2f} to {first[-1]:.2f} of a head's scores."
            ]
            if first
            else []
        ),
        "",
    ]
    lines = [(name, [(i, v) for i, v in enumerate(line)], c) for (name, line), c in zip(heads.items(), ("c1", "c3", "c0", "c2"))]
    return section(
        "Sinusoids are relative before the projections and not after; RoPE has to rotate after them",
        "[A], 0x02 (2.5); [B], 1.1.",
        graded(sum(parts), len(parts)),
        text,
        command,
        "relative",
    ), {"relative": [Panel("Variance of scores that distance explains", "heads, from the smallest", lines, y_range=(0, 1))]}


def complex_order(rows, command):
    rows = [r for r in rows if r["what"] == "complex order"]
    same = next(r["value"] for r in rows if "largest difference" in r["quantity"])
    decay, explained = {}, {r["frequencies"]: r["value"] for r in rows if r["quantity"].startswith("share of")}
    for r in rows:
        if r["quantity"] == "score of equal words":
            decay.setdefault(r["frequencies"], []).append(r)
    spans = next(iter(decay.values()))
    far = {name: [abs(r["value"]) for r in line if 16 <= r["from"] < 256] for name, line in decay.items()}
    ladder, drawn = min(far["10000^(-2i/d)"]), max(max(far[name]) for name in far if name != "10000^(-2i/d)")
    text = [
        f"With frequencies shared by all words and RoPE's ladder the embedding is RoPE's rotation of the words, to {same:.0e} of the largest element over 2048 positions.",
        "Score of equal words by distance, mean over the span:",
        "",
        *table(
            ["frequencies", *(f"{r['from']} to {r['to'] - 1}" for r in spans)],
            [[n, *(f"{r['value']:.3f}" for r in line)] for n, line in decay.items()],
        ),
        "Decay comes with the ladder 10000^(-2i/d): frequencies drawn from 0 to π lose it after the first tokens. Distance explains "
        f"{explained['10000^(-2i/d)']:.3f} of the",
        f"variance of two words' scores with shared frequencies, and {explained['drawn, own']:.3f} where each word has its own. The verdict asks for more than 0.3 from 16 to 255 with",
        "the ladder, and for less than 0.1 without.",
        "",
    ]
    lines = [(n, [(r["from"], r["value"]) for r in line], c) for (n, line), c in zip(decay.items(), ("c0", "c1", "c3"))]
    return section(
        "Complex order with shared frequencies is RoPE, and has its decay only with RoPE's ladder",
        "[B], 1.3, which has both side by side; Wang et al. 2020 ([1912.12333](https://arxiv.org/abs/1912.12333)).",
        graded((same < 1e-4) + (ladder > 0.3) + (drawn < 0.1), 3),
        text,
        command,
        "complex-order",
    ), {"complex-order": [Panel("Score of equal words by distance", "distance, tokens", lines, x_log=True, y_range=(-0.2, 1))]}


# ---- Sweeps -------------------------------------------------------------------------------------


def by_length(cells, methods, key, digits):
    lengths = sorted({n for _, n in cells})
    return table(["method", *map(str, lengths)], [[m, *(f"{cells[m, n][key]:.{digits}f}" for n in lengths)] for m in methods])


def line_panel(cells, methods, key, title, **axes):
    lengths = sorted({n for _, n in cells})
    return Panel(
        title,
        "length, tokens (trained: 1024)",
        [(m, [(n, cells[m, n][key]) for n in lengths], c) for m, c in zip(methods, ("rest", "c1", "c0", "c2", "c3", "c4"))],
        x_log=True,
        **axes,
    )


def flat():
    header, cells = sweep("evidence-lengths")
    methods = ["none", "log-n", "rerope", "rerope+log-n"]
    growth = {m: cells[m, 8192]["perplexity"] / cells["none", 1024]["perplexity"] for m in methods}
    spread = {m: cells[m, 8192]["entropy"] - cells[m, 1024]["entropy"] for m in methods}
    text = [
        "Perplexity of the embedded model to 8 times the trained length, 8 windows of 256 scored tokens, the same at every length; then the entropy of attention (nats).",
        "",
        *by_length(cells, methods, "perplexity", 2),
        *by_length(cells, methods, "entropy", 2),
        f"At 8192 tokens perplexity is {growth['rerope']:.2f} times that of the trained length with ReRoPE, {growth['log-n']:.1f} times with log-n alone. Entropy grows with",
        f"length: without scaling from {cells['none', 1024]['entropy_share']:.0%} of ln(keys) at the trained length to {cells['none', 8192]['entropy_share']:.0%}. Beside ReRoPE log-n takes {1 - spread['rerope+log-n'] / spread['rerope']:.0%} off its growth, alone {1 - spread['log-n'] / spread['none']:.0%}. Lower entropy is not lower perplexity: log-n beside ReRoPE costs",
        "perplexity at 4096 and 8192 tokens. (This model was not trained with log-n.) The verdict asks both for less than 1.1 times the trained length's perplexity, and log-n to take",
        "three quarters off the growth of entropy.",
        "",
    ]
    held = spread["rerope+log-n"] < 0.25 * spread["rerope"], spread["log-n"] < 0.25 * spread["none"]
    verdict = graded((growth["rerope"] < 1.1) + (growth["log-n"] < 1.1) + sum(held), 4)
    return section(
        "ReRoPE and log-n are flat at any length; log-n holds the entropy of attention",
        "[A], 0x02 (2.5, ReRoPE); [B], 4.2 and 4.3.",
        verdict,
        text,
        header["command"],
        "flat",
    ), {
        "flat": [
            line_panel(cells, methods, "perplexity", "Perplexity", y_log=True),
            line_panel(cells, methods, "entropy", "Entropy of attention, nats"),
        ]
    }


def ntk():
    header, cells = sweep("evidence-lengths")
    methods = ["none", "linear", "ntk", "by-parts", "yarn"]
    at = {(m, n): cells[m, n]["perplexity"] / cells["none", 1024]["perplexity"] for m in methods for n in (2048, 4096, 8192)}
    text = [
        "Perplexity with the factor length / 1024 (8 at 512 and 1024 tokens). At 4096 tokens NTK-aware with factor 8 in place of 4 has "
        f"{cells['ntk:8', 4096]['perplexity']:.2f}.",
        "",
        *by_length(cells, methods, "perplexity", 2),
        f"In units of the trained length's perplexity NTK-aware has {at['ntk', 2048]:.2f} at twice that length, {at['ntk', 4096]:.2f} at 4 times and {at['ntk', 8192]:.2f} at 8 times;",
        f"by-parts {at['by-parts', 2048]:.2f}, {at['by-parts', 4096]:.2f} and {at['by-parts', 8192]:.2f}. Interpolation without training is",
        f"worse than nothing at every length. On short text by-parts costs more than NTK-aware: {cells['by-parts', 1024]['perplexity']:.2f} and {cells['ntk', 1024]['perplexity']:.2f} at 1024 tokens with factor 8.",
        "The verdict asks for less than 1.25 times the perplexity at 4 times the length, and for by-parts to be better at every length.",
        "",
    ]
    works = at["ntk", 4096] < 1.25 < at["ntk", 8192] and all(
        cells["by-parts", n]["perplexity"] < cells["ntk", n]["perplexity"] for n in (512, 1024, 2048, 4096, 8192)
    )
    return section(
        "NTK-aware works without tuning to about 4 times the length; by-parts is better",
        "[C]; [B], 4.2.",
        VERDICTS[0 if works else 1],
        text,
        header["command"],
        "ntk",
    ), {"ntk": [line_panel(cells, methods, "perplexity", "Perplexity", y_log=True)]}


def ablation():
    header, cells = sweep("evidence-ablation")
    names = {"none": "neither", "mscale:4": "temperature only", "yarn(factor 4, attention_factor 1)": "ramp only", "yarn": "both"}
    cells = {(names.get(m, m), n): row for (m, n), row in cells.items()}
    ppl = {key: row["perplexity"] for key, row in cells.items()}
    lengths, beside = sorted({n for _, n in cells}), {}
    for n in lengths:
        beside[n] = ppl["temperature only", n] < ppl["neither", n], ppl["both", n] < ppl["ramp only", n]
    verdict = VERDICTS[0 if all(a and b for a, b in beside.values()) else 1 if any(a or b for a, b in beside.values()) else 2]

    def change(a, b):
        return ", ".join(f"{ppl[a, n] / ppl[b, n] - 1:+.0%}" for n in lengths)

    text = [
        "Perplexity with factor 4 at every length, of other windows than above.",
        "",
        *by_length(cells, list(names.values()), "perplexity", 2),
        f"Beside the ramp the temperature changes perplexity by {change('both', 'ramp only')} at these lengths, alone by {change('temperature only', 'neither')}: beyond the trained",
        "length unknown angles break the model, and no temperature mends them. The verdict asks for less perplexity in all of these.",
        "",
    ]
    first = section(
        "YaRN's temperature alone lowers perplexity",
        "[C]; Peng et al. 2023 ([2309.00071](https://arxiv.org/abs/2309.00071)), 3.4.",
        verdict,
        text,
        header["command"],
        "temperature",
    )
    pairs = ["neither", "ntk", "dynamic", "both", "dynamic-yarn"]
    kinds = [(f"dynamic{x}", y, n) for x, y in (("", "ntk"), ("-yarn", "both")) for n in (512, 1024)]
    free = sum(abs(ppl[a, n] / ppl["neither", n] - 1) < 1e-3 for a, _, n in kinds)
    costs = sum(ppl[b, n] > 1.001 * ppl["neither", n] for _, b, n in kinds)
    text = [
        "The same run. `both` is static YaRN, `ntk` static NTK-aware.",
        "",
        *by_length(cells, pairs, "perplexity", 2),
        "Within the trained length dynamic methods are the model itself, static ones pay for a length that is not there. (Asked for: a difference of less, and of more, than 0.1 %.)",
        "",
    ]
    second = section(
        "Dynamic methods cost nothing on short text, static ones do",
        "[C].",
        graded(free + costs, 2 * len(kinds)),
        text,
        header["command"],
        "dynamic",
    )
    return first + second, {
        "temperature": [line_panel(cells, list(names.values()), "perplexity", "Perplexity, factor 4", y_log=True)],
        "dynamic": [line_panel(cells, pairs, "perplexity", "Perplexity, factor 4", y_log=True)],
    }


OF_FUNCTIONS = (padding, order, relative, complex_order)  # of rows of functions.jsonl and their command
OF_SWEEPS = (ntk, ablation, flat)  # of the sweeps that they name
