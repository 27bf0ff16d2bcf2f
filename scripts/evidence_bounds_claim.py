"""The claim of docs/evidence on the base that a length needs: from the rows of scripts/evidence_bounds.py to the page."""

import math

from evidence_frame import VERDICTS, graded, overall, section, stated_table, table
from svg_panels import Panel

AGREE = 0.05  # relative: what two digits and another search may differ by
MEN = "Men et al. 2024 ([2405.14591](https://arxiv.org/abs/2405.14591)), table 2"
SU = "Su 2024 ([kexue.fm/archives/10122](https://kexue.fm/archives/10122)), to which [D] refers"
LIU = "Liu et al. 2023 ([2310.05209](https://arxiv.org/abs/2310.05209))"
TITLE = "A longer text needs a larger base"


def of(rows, what):
    return [r for r in rows if r["what"] == what]


def short(tokens):
    """1024 as 1k, as the papers write it."""
    return f"{tokens // 1024}k" if tokens < 2**20 else f"{tokens // 2**20}M"


def windowed(row):
    return 0 < row["window"] < row["trained"]


def meets(row):
    """What a base does for the tokens that its layers reach back over."""
    if row["supports"] >= row["reach"]:
        return "yes"
    if 2 * row["rotary_dim"] <= row["head_dim"]:
        return "with the whole head"
    return "base yes, length no" if row["bound"] and row["base"] >= row["bound"] else "no"


# ---- Statements: (what is stated, where, what was measured, verdict) -----------------------------


def of_tables(bounds):
    """Both printed tables against the bounds, and whether what they print supports its length, 1k being 1000 as favours them."""
    for key, where, stated in (
        ("men", MEN, "The least base of each length is as printed"),
        ("su", SU, "The same, searched more finely"),
    ):
        near = sum(abs(r[key] / r["base"] - 1) <= AGREE for r in bounds)
        far = max(bounds, key=lambda r: abs(math.log(r[key] / r["base"])))
        enough = sum(r[f"{key}_supports"] >= r["length"] // 1024 * 1000 for r in bounds)
        yield (
            stated,
            where,
            f"within {AGREE:.0%} of ours at {near} of {len(bounds)} lengths; farthest at {short(far['length'])}, {far[key] / far['base']:.2f} times ours",
            graded(near, len(bounds)),
        )
        yield (
            "and supports that length as it is rounded",
            "the same",
            f"at {enough} of {len(bounds)} lengths, k taken as 1000",
            graded(enough, len(bounds)),
        )


def of_bounds(bounds):
    rises = sum(b["base"] > a["base"] for a, b in zip(bounds, bounds[1:]))
    yield (
        "A longer window needs a larger base",
        "[A], 3.7",
        f"the bound rises at {rises} of {len(bounds) - 1} doublings, from {bounds[0]['base']:,.0f} to {bounds[-1]['base']:,.0f}",
        graded(rises, len(bounds) - 1),
    )
    yield from of_tables(bounds)
    ratios = [r["base"] / r["length"] for r in bounds]
    orders = sum(x >= 10 for x in ratios)
    yield (
        "The least base is one to several orders of magnitude above the length",
        "[D]",
        f"{min(ratios):.1f} to {max(ratios):.0f} times the length; 10 times or more at {orders} of {len(ratios)} lengths",
        graded(orders, len(ratios)),
    )


def of_base(rows):
    """What [D] derives from the slowest pair alone."""
    quarter, whole = of(rows, "equal vectors")
    (supported,) = of(rows, "supported")
    near = abs(supported["length"] / quarter["distance"] - 1) <= AGREE
    yield (
        f"With base b the product of alike vectors falls to 0 at about πb/2 tokens, {quarter['distance']:,} for b = 10000",
        "[D]",
        f"it is negative on average after {supported['length']:,} tokens, and {quarter['score']:.3f} of its first value there",
        VERDICTS[0 if near else 2],
    )
    yield (
        f"At 2πb, {whole['distance']:,}, the rotation has come round and cannot tell tokens apart; texts had better be shorter",
        "[D]",
        f"the score of alike vectors there is {whole['score']:.3f} of that at distance 0, not 1: each pair has a period of its own",
        VERDICTS[0 if whole["score"] > 1 - AGREE else 2],
    )


def of_models(models):
    whole = [r for r in models if not windowed(r)]
    far, near = ([r for r in whole if (r["reach"] > 4096) == longer] for longer in (True, False))
    raised, kept = (sum(r["base"] > 10000 for r in group) for group in (far, near))
    practice = raised >= 0.75 * len(far) and kept <= 0.25 * len(near)
    yield (
        "Models of longer windows have larger bases",
        "[A], 3.7",
        f"a base above 10000 in {raised} of {len(far)} rotations for more than 4096 tokens, in {kept} of {len(near)} for fewer, windows aside (asked for: "
        "three quarters, and a quarter at most)",
        VERDICTS[0 if practice else 1],
    )


def statements(rows):
    yield from of_bounds(of(rows, "bound"))
    yield from of_base(rows)
    yield from of_models(of(rows, "model"))
    (found,) = of(rows, "critical")
    yield (
        f"LLaMA 2 has completed a turn in {found['published']} of {found['dim']} dimensions",
        LIU,
        f"{found['dimensions']}",
        VERDICTS[0 if found["dimensions"] == found["published"] else 2],
    )


# ---- The page -----------------------------------------------------------------------------------


def bounds_table(bounds):
    lines = (
        ("here", "base", "{:,.0f}"),
        ("Men et al.", "men", "{:.1e}"),
        ("supports", "men_supports", "{:,}"),
        ("Su", "su", "{:.1e}"),
        ("supports", "su_supports", "{:,}"),
    )
    heads = ["", *(short(r["length"]) for r in bounds)]
    return table(heads, [[name, *(form.format(r[key]).replace("e+0", "e") for r in bounds)] for name, key, form in lines])


def models_table(models):
    heads = [
        "config.json",
        "layers",
        "base",
        "rotated of head",
        "tokens",
        "bound",
        "supports",
        "supported",
        "completed dimensions",
        "pairs never round",
    ]
    return table(
        heads,
        [
            [
                r["model"] + (f", window {r['window']}" if windowed(r) else ""),
                str(r["layers"]),
                f"{r['base']:,.0f}",
                f"{r['rotary_dim']} of {r['head_dim']}",
                f"{r['reach']:,}",
                "none" if r["bound"] is None else f"{r['bound']:,.0f}",
                f"{r['supports']:,}",
                meets(r),
                str(min(r["critical"], r["rotary_dim"])),
                f"{r['never']:.0%}",
            ]
            for r in sorted(models, key=lambda r: (r["reach"], r["model"]))
        ],
    )


def panels(rows):
    by_length, bases = of(rows, "bound"), sorted({r["base"] for r in of(rows, "turns")})
    lines = [
        (name, [(r["length"], r[key]) for r in by_length], c)
        for name, key, c in (("least base, here", "base", "c0"), ("Men et al.", "men", "c1"), ("Su", "su", "c3"))
    ]
    lines.append(("10 times the length", [(r["length"], 10 * r["length"]) for r in by_length], "rest"))
    never = [
        (f"base {base:,.0f}", [(r["length"], r["never"]) for r in of(rows, "turns") if r["base"] == base], c)
        for base, c in zip(bases, ("c1", "c2", "c0"))
    ]
    x = {"x_title": "length, tokens", "x_log": True}
    return [
        Panel("Least base of 128 dimensions", lines=lines, y_log=True, **x),
        Panel("Share of pairs that never come round", lines=never, y_range=(0, 1), **x),
    ]


def bounds(rows, command):
    stated = list(statements(rows))
    models = of(rows, "model")
    kinds = [meets(r) for r in models]
    below = ", ".join(sorted(r["model"] for r in models if meets(r) == "no" and not windowed(r)))
    text = [
        "The bound of a length is the least base with which alike vectors outscore random ones on average at every distance up to it: no sum over pairs of cos(distance",
        "base^(-2i/d)) is negative. Ours is found in steps of 0.01 %, so that the least may be less by that, or lie in a narrower gap",
        "([inspect-format.md](../inspect-format.md#what-the-numbers-mean)). For 128 dimensions, beside the printed ones and the tokens that those support:",
        "",
        *bounds_table(of(rows, "bound")),
        *stated_table(stated),
        "Why Men et al. are above ours at some lengths: bases that pass are no interval, and a coarser search steps over the first ones; every base of ours passes.",
        "",
        "Published models, each rotation for the tokens that its layers were trained to look back over: `max_position_embeddings` before any scaling, or the window. Bases",
        "are the config's. A pair is *never round* if it makes no full turn within these tokens: beyond them it shows angles that training had not; *completed",
        f"dimensions* are those of the others (the critical dimension of {LIU}). *with the whole head*: the rotated part alone does",
        "not support the length, but at least half of the head is not rotated, whose pairs add cos 0 = 1 each, so that no sum is negative (Su).",
        "",
        *models_table(models),
        f"{kinds.count('yes')} of {len(models)} rotations support their tokens, {kinds.count('with the whole head')} more with what they do not rotate. In {kinds.count('base yes, length no')} the base is above the bound and fails all",
        f"the same, since not every larger base passes; in {kinds.count('no')} it is below ({below}; windows beside them), and these models are used at that length: the bound is",
        "about averages over random vectors, and no condition for a model to work. (This config of LLaMA 2 states 2048 tokens; it was trained with 4096.)",
        "",
    ]
    source = f"[A], 3.7; [D]; {MEN}; {LIU}."
    return section(TITLE, source, overall(stated), text, command, "bounds"), {"bounds": panels(rows)}


OF_BOUNDS = (bounds,)  # of rows of bounds.jsonl and their command
