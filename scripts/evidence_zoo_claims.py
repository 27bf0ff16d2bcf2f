"""The claims of docs/evidence that need models trained with each encoding: from the rows of scripts/zoo.py to the page."""

import statistics

from evidence_frame import graded, overall, section, stated_table, table
from svg_panels import Panel
from zoo_page import by_length, entries, mean_and_spread, read

COMMAND = "make zoo"
PRESS = "Press et al. 2022 ([2108.12409](https://arxiv.org/abs/2108.12409))"
# Families of the chart and of statement 9; within each one at most six lines.
ABSOLUTE = ("sinusoidal", "recurrent-layer", "floater")
ROTATIONS = ("rope", "xpos", "hope", "p-rope", "pope", "fope")
BIASES = ("alibi", "t5", "kerple", "fire", "shaw", "transformer-xl")
RELATIVE = (*BIASES, "deberta")
COLOURS = ("c0", "c1", "c2", "c3", "c4", "rest")
BREAKS, KEEPS = 1.5, 1.05  # of perplexity at 8 times the trained length to that at the trained length
FOUND = 0.5  # of passkeys, at the trained length; lost are those that find less than half of theirs at the longest one


class Zoo:
    """Means over seeds, by entry and length."""

    def __init__(self, rows):
        self.of = entries(rows)
        lengths = sorted({c["length"] for row in rows for c in row["cells"]})
        self.short, self.long = lengths[0], lengths[-1]

    def has(self, *names):
        return all(name in self.of for name in names)

    def values(self, name, length, what="perplexity", method="none"):
        return [by_length(row, what, method).get(length) for row in self.of[name]]

    def mean(self, name, length, what="perplexity", method="none"):
        values = self.values(name, length, what, method)
        return None if None in values else statistics.fmean(values)

    def growth(self, name, method="none"):
        """Perplexity at the longest length in units of that at the trained one; None where there is no position."""
        far = self.mean(name, self.long, method=method)
        return None if far is None else far / self.mean(name, self.short)

    def spreads(self):
        """{entry with several seeds: distance of its lowest and highest perplexity, in units of their mean}"""
        at = {name: self.values(name, self.short) for name, of in self.of.items() if len(of) > 1}
        return {name: (max(v) - min(v)) / statistics.fmean(v) for name, v in at.items()}

    def chance(self):
        """How far perplexities of one encoding lie apart by chance: the median of the spreads."""
        return statistics.median(self.spreads().values()) if self.spreads() else 0.0

    def below(self, a, b, length):
        """Whether a has the lower perplexity: every seed of it, where both have several; else by more than chance."""
        of_a, of_b = self.values(a, length), self.values(b, length)
        if min(len(of_a), len(of_b)) > 1:
            return max(of_a) < min(of_b)
        return statistics.fmean(of_a) < statistics.fmean(of_b) * (1 - self.chance())


def times(x):
    return "no position" if x is None else f"{x:.2f}"


def pairs(zoo, *names):
    return ", ".join(f"{name} {times(zoo.growth(name))}" for name in names)


def better(zoo, a, b):
    """Whether perplexity of a grows less than that of b."""
    return zoo.growth(a) < zoo.growth(b)


def beside(zoo, a, b):
    """(what was measured, verdict) of a extrapolating better than b: a smaller growth of a worse perplexity is half of it."""
    far = [zoo.mean(name, zoo.long) for name in (a, b)]
    text = f"{pairs(zoo, a, b)}; perplexity at {zoo.long} tokens {far[0]:.1f} and {far[1]:.1f}"
    return text, graded(better(zoo, a, b) + (far[0] < far[1]), 2)


def extrapolation(zoo):
    """(what is stated, where, what was measured, verdict); statements without their models are left out."""
    g = zoo.growth
    tabled = [n for n in ("learned", "multiplicative", "tupe") if zoo.has(n)]
    if tabled:
        ends = [n for n in tabled if g(n) is None]
        text = f"the program refuses {', '.join(ends)} beyond {zoo.short} tokens"
        yield "A table of rows has no position beyond its last", "[B], 1.1 (1)", text, graded(len(ends), len(tabled))
    if zoo.has("sinusoidal", "rope"):
        broken = sum(g(n) > BREAKS for n in ("sinusoidal", "rope"))
        text = f"{pairs(zoo, 'sinusoidal', 'rope')}; breaks: more than {BREAKS:g}"
        yield "Sinusoids and RoPE are defined at any position and break all the same", "[B], 3; [C]", text, graded(broken, 2)
    if zoo.has("alibi", "rope", "sinusoidal", "t5"):
        yield "ALiBi extrapolates better than RoPE", "[B], 3", *beside(zoo, "alibi", "rope")
        text = f"{pairs(zoo, 'alibi')}; keeps: at most {KEEPS:g}"
        yield "ALiBi keeps the perplexity of its trained length", PRESS, text, graded(g("alibi") <= KEEPS, 1)
        right = [better(zoo, "alibi", "t5"), better(zoo, "t5", "rope"), better(zoo, "rope", "sinusoidal")]
        text = pairs(zoo, "alibi", "t5", "rope", "sinusoidal")
        yield "In this order: ALiBi, T5's bias, RoPE, sinusoids", f"{PRESS}, figure 1", text, graded(sum(right), 3)
    if zoo.has("alibi", "alibi-learned"):
        text = "; ".join(
            f"{' and '.join(mean_and_spread(zoo.values(e, n), 2) for e in ('alibi', 'alibi-learned'))} at {n} tokens"
            for n in (zoo.short, zoo.long)
        )
        gains = sum(zoo.below("alibi-learned", "alibi", n) for n in (zoo.short, zoo.long))
        yield "Learned slopes gain nothing", "[B], 3", f"fixed and learned: {text}", graded(2 - gains, 2)
    if zoo.has("recurrent-layer", "floater"):
        found = (zoo.mean(n, zoo.long, "passkey") for n in ("recurrent-layer", "floater"))
        text = f"{pairs(zoo, 'recurrent-layer', 'floater')}; keeps: at most {KEEPS:g}; passkeys there "
        text += " and ".join(f"{x:.2f}" for x in found)
        kept = sum(g(n) <= KEEPS for n in ("recurrent-layer", "floater"))
        yield "Recursion (an RNN in front, FLOATER) extrapolates well", "[B], 1.1 (3)", text, graded(kept, 2)
    absolute = [g(n) for n in ABSOLUTE if zoo.has(n)]
    relative = [g(n) for n in RELATIVE if zoo.has(n)]
    if absolute and relative:
        a, r = statistics.median(absolute), statistics.median(relative)
        text = f"median of {len(relative)} biases {r:.2f}, of {len(absolute)} absolute encodings {a:.2f}"
        yield "Relative encodings extrapolate, absolute ones do not", "[B], 1.4", text, graded(r < a, 1)
    for name, source in (
        ("hope", "[A], 3.7"),
        ("xpos", "Sun et al. 2022 ([2212.10554](https://arxiv.org/abs/2212.10554))"),
        ("none", "Kazemnejad et al. 2023 ([2305.19466](https://arxiv.org/abs/2305.19466))"),
        ("pope", "Gopalakrishnan et al. 2025 ([2509.10534](https://arxiv.org/abs/2509.10534))"),
        ("fope", "Hua et al. 2024 ([2412.17739](https://arxiv.org/abs/2412.17739))"),
    ):
        if zoo.has(name, "rope"):
            title = {"hope": "HoPE", "xpos": "xPos", "none": "No encoding at all (NoPE)", "pope": "PoPE", "fope": "FoPE"}[name]
            yield f"{title} extrapolates better than RoPE", source, *beside(zoo, name, "rope")
    for name, source in (
        ("kerple", "Chi et al. 2022 ([2205.09921](https://arxiv.org/abs/2205.09921))"),
        ("fire", "Li et al. 2023 ([2310.04418](https://arxiv.org/abs/2310.04418))"),
    ):
        if zoo.has(name, "alibi"):
            a, b = (zoo.mean(n, zoo.long) for n in (name, "alibi"))
            text = f"perplexity at {zoo.long} tokens: {a:.2f} and {b:.2f}"
            title = {"kerple": "KERPLE", "fire": "FIRE"}[name]
            yield f"{title} has a lower perplexity than ALiBi far out", source, text, graded(a < b, 1)
    kept = [n for n in zoo.of if g(n) is not None and g(n) <= KEEPS and zoo.mean(n, zoo.short, "passkey") >= FOUND]
    blind = [n for n in kept if 2 * zoo.mean(n, zoo.long, "passkey") < zoo.mean(n, zoo.short, "passkey")]
    if kept:
        text = f"of {len(kept)} encodings that keep perplexity and find passkeys at {zoo.short} tokens, {len(blind)} "
        text += f"find less than half as many at {zoo.long}{': ' if blind else ''}{', '.join(blind)}"
        yield "Perplexity far out says little: local attention is enough for it", "[B], 4.4 (2)", text, graded(bool(blind), 1)


def charts(zoo):
    def lines(names, what):
        return [
            (name, [(n, zoo.mean(name, n, what)) for n in sorted(by_length(zoo.of[name][0], what))], colour)
            for name, colour in zip((n for n in names if zoo.has(n)), COLOURS)
        ]

    groups = (("absolute, and none", ("none", *ABSOLUTE)), ("rotations", ROTATIONS), ("biases", BIASES))
    groups = [(title, names) for title, names in groups if any(zoo.has(n) for n in names)]
    x = {"x_title": "length, tokens", "x_log": True}
    top = max(zoo.mean(n, zoo.long) for _, names in groups for n in names if zoo.has(n))
    low = min(zoo.mean(n, zoo.short) for n in zoo.of)
    return {
        "zoo-perplexity": [
            Panel(f"Perplexity: {t}", lines=lines(names, "perplexity"), y_log=True, y_range=(low, top), **x) for t, names in groups
        ],
        "zoo-passkey": [Panel(f"Passkeys found: {t}", lines=lines(names, "passkey"), y_range=(0, 1), **x) for t, names in groups],
    }


def lengths(rows):
    zoo = Zoo(rows)
    stated = list(extrapolation(zoo))
    text = [
        f"{len(zoo.of)} models that differ in their encoding alone ([recipe](../zoo.md#training)), trained at {zoo.short} tokens and measured to {zoo.long}. Numbers of statements are perplexity at",
        f"{zoo.long} tokens in units of that at {zoo.short}, unless they say otherwise. [The table](../results/zoo/README.md) has every model and length.",
        "",
        *stated_table(stated),
        "![Perplexity against length](charts/zoo-perplexity.svg)",
        "",
    ]
    source = f"[A], 3.7; [B], 1.1, 1.4 and 3; {PRESS}."
    return section("Train short, test long", source, overall(stated), text, COMMAND, "zoo-passkey"), charts(zoo)


def near(zoo, a, b):
    """Whether neither of two entries has the lower perplexity."""
    return not zoo.below(a, b, zoo.short) and not zoo.below(b, a, zoo.short)


def choices(zoo):
    """As extrapolation, of settings within an encoding, at the trained length."""

    def at(*names):
        return ", ".join(f"{name} {mean_and_spread(zoo.values(name, zoo.short), 2)}" for name in names)

    def lower(a, b):
        return zoo.below(a, b, zoo.short)

    if zoo.has("multiplicative", "learned"):
        yield "Rows that are multiplied are better than rows that are added", "[B], 1.1 (4)", at("multiplicative", "learned"), graded(lower("multiplicative", "learned"), 1)
    if zoo.has("tupe", "tupe-tied"):
        source = "Ke et al. 2020 ([2006.15595](https://arxiv.org/abs/2006.15595))"
        yield "TUPE gains by untying the first token from positions", source, at("tupe", "tupe-tied"), graded(lower("tupe", "tupe-tied"), 1)
    if zoo.has("shaw", "shaw-8", "shaw-2"):
        source = "Shaw et al. 2018 ([1803.02155](https://arxiv.org/abs/1803.02155)), table 3"
        kept = near(zoo, "shaw-2", "shaw-8") + near(zoo, "shaw-8", "shaw")
        yield "Shaw's clip hardly matters from 2 on (here 2, 8, 32)", source, at("shaw-2", "shaw-8", "shaw"), graded(kept, 2)
    if zoo.has("t5", "t5-full"):
        far = [zoo.mean(n, zoo.long) for n in ("t5", "t5-full")]
        text = f"{at('t5', 't5-full')}; at {zoo.long} tokens {far[0]:.2f} and {far[1]:.2f}"
        kept = not lower("t5-full", "t5")
        yield "T5's 32 buckets lose nothing to a bias for each distance, and reach further", "[B], 1.2 (3)", text, graded(kept + (far[0] < far[1]), 2)


def settings(rows):
    zoo = Zoo(rows)
    stated = list(choices(zoo))
    if not stated:
        return None
    apart = f"two encodings are told apart where they differ by more than the {zoo.chance():.1%} that seeds of one encoding lie apart (the median of {len(zoo.spreads())}"
    apart += f"; at most {max(zoo.spreads().values(), default=0):.1%}, of {max(zoo.spreads(), key=zoo.spreads().get, default='none')})"
    text = [
        f"The same models and recipe. Perplexity at the trained {zoo.short} tokens; {apart if zoo.chance() else 'one seed each, so small differences say nothing'}.",
        "",
        *stated_table(stated),
    ]
    return section("Settings within an encoding", "[B], 1.1 and 1.2.", overall(stated), text, COMMAND), {}


def temperatures(rows):
    """log-n that a model was trained with, and log-n that it gets afterwards."""
    zoo = Zoo(rows)
    if not zoo.has("rope", "rope+log-n"):
        return None
    cases = (("neither", "rope", "none"), ("added afterwards", "rope", "log-n"), ("trained with it", "rope+log-n", "none"))
    heads = ["", *(f"perplexity, {n}" for n in (zoo.short, zoo.long)), *(f"entropy, {n}" for n in (zoo.short, zoo.long))]
    at = {
        name: [zoo.mean(entry, n, what, method) for what in ("perplexity", "entropy") for n in (zoo.short, zoo.long)]
        if method == "none"
        else [zoo.mean(entry, zoo.short), zoo.mean(entry, zoo.long, method=method), zoo.mean(entry, zoo.short, "entropy"), zoo.mean(entry, zoo.long, "entropy", method)]
        for name, entry, method in cases
    }
    growth = {name: (values[1] / values[0], values[3] - values[2]) for name, values in at.items()}
    none, after, trained = (growth[name] for name, _, _ in cases)
    stated = [
        (
            f"log-n lowers perplexity at {zoo.long} tokens when it is added",
            "[C]; [B], 4.2",
            f"{at['added afterwards'][1]:.1f}, without it {at['neither'][1]:.1f}",
            graded(at["added afterwards"][1] < at["neither"][1], 1),
        ),
        (
            "A model that was trained with it gains more",
            "[B], 4.2",
            f"perplexity grows {trained[0]:.2f} times, {after[0]:.2f} where it is added, {none[0]:.2f} without",
            graded(trained[0] < after[0], 1),
        ),
        (
            "It holds the entropy of attention",
            "[B], 4.2",
            f"entropy grows by {trained[1]:.2f} nats where it is trained, {after[1]:.2f} where it is added, {none[1]:.2f} without",
            graded((trained[1] < none[1]) + (after[1] < none[1]), 2),
        ),
    ]
    text = [
        f"RoPE, trained at {zoo.short} tokens with and without the factor log(n) of scores, n the tokens so far ([recipe](../zoo.md#training)). Entropy of attention in nats, mean over layers.",
        "",
        *table(heads, [[name, *(f"{v:.{1 if i < 2 else 2}f}" for i, v in enumerate(values))] for name, values in at.items()]),
        *stated_table(stated),
    ]
    return section("Training with log-n or adding it afterwards", "[B], 4.2; [C].", overall(stated), text, COMMAND), {}


OF_ZOO = (lengths, settings, temperatures)


def of_zoo():
    """Parts of the page, as scripts/evidence.py wants them."""
    rows = read()[1]
    return [part for part in (make(rows) for make in OF_ZOO) if part]
