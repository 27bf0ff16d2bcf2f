"""The claims of docs/evidence on where attention looks, from rows of scripts/evidence_attention.py."""

from evidence_frame import VERDICTS, section, table
from svg_panels import Panel

RISE, NATS = 1.25, 0.5  # of weight at the far end over the least; of a score


def curve(rows, model, method, tokens, layers):
    return [
        r
        for r in rows
        if r["what"] == "distance" and (r["model"], r["method"], r["tokens"], r["layers"]) == (model, method, tokens, layers)
    ]


def rise(curve_rows, key):
    """From the least to the farthest bin that has the number, as (least, where, last)."""
    known = [r for r in curve_rows if r[key] is not None]
    least = min(known, key=lambda r: r[key])
    return least[key], least, known[-1][key]


def span(row):
    return f"{row['from']} to {row['to'] - 1}" if row["to"] > row["from"] + 1 else str(row["from"])


def holds(rows, model, trained, longest):
    """Of one model: U in the later layers; U of slow pairs; that they make it past the trained length; gone with HoPE."""
    later = curve(rows, model, "as shipped", trained, "later")
    low, _, end = rise(later, "weight")
    slow_low, _, slow_end = rise(later, "score_incomplete")
    found = {
        "weight": end >= RISE * low,
        "slow": slow_end - slow_low >= NATS,
    }
    hope_low, _, hope_end = rise(curve(rows, model, "hope", trained, "later"), "weight")
    found["gone"] = hope_end < RISE * hope_low
    if longest > trained:
        far = curve(rows, model, "as shipped", longest, "later")
        low, _, end = rise(far, "score")
        slow_low, _, slow_end = rise(far, "score_incomplete")
        first_low, _, first_end = rise(curve(rows, model, "as shipped", longest, "first"), "score")
        found["beyond"] = slow_end - slow_low >= 0.5 * (end - low) >= 0.5 * NATS and first_end - first_low < end - low
    return found


def decay(rows, model, tokens):
    line = [r for r in curve(rows, model, "as shipped", tokens, "later") if r["score"] is not None]
    low = min(line, key=lambda r: r["score"])
    falls = [line[0][key] - low[key] for key in ("score", "score_incomplete")]
    return f"Those of {model} at {tokens} tokens fall by {falls[0]:.1f} nats from distance 0 to {low['from']} and beyond, by slow pairs alone {falls[1]:.1f}."


def weights(rows, runs):
    for model, method, tokens, layers in runs:
        line = curve(rows, model, method, tokens, layers)
        low, where, end = rise(line, "weight")
        cells = [f"{line[0]['weight']:.1e}", f"{low:.1e} at {span(where)}", f"{end:.1e} at {span(line[-1])}", f"{end / low:.1f}"]
        for key in ("score", "score_incomplete"):
            low, _, end = rise(line, key)
            cells.append(f"{low:+.1f}, {end:+.1f}")
        yield [f"{model}, {method}, {tokens}, {layers}", *cells]


def shares(rows, runs):
    of = {(r["model"], r["method"], r["tokens"], r["layers"]): r for r in rows if r["what"] == "layers"}
    for run in runs:
        r = of[run]
        values = (r["position"], r["incomplete_position"], r["incomplete_content"], r["unseen"], r["beyond"], r["first_token"])
        yield [", ".join(map(str, run)), *(f"{100 * v:.1f}" for v in values)]


def attention(rows, command):
    models = {r["model"]: r["trained"] for r in rows if r["what"] == "layers"}
    lengths = {m: sorted({r["tokens"] for r in rows if r["what"] == "layers" and r["model"] == m}) for m in models}
    runs = [
        (m, method, n, layers)
        for m in models
        for method in ("as shipped", "hope")
        for n in lengths[m]
        for layers in ("first", "later")
    ]
    within = {m: max(n for n in lengths[m] if n <= trained) for m, trained in models.items()}
    found = {m: holds(rows, m, within[m], lengths[m][-1]) for m in models}
    every = [value for answers in found.values() for value in answers.values()]
    pairs = {m: [r for r in rows if r["what"] == "pair" and r["model"] == m] for m in models}
    slow = {m: sum(r["rotations"] < 1 for r in line) for m, line in pairs.items()}

    words = {True: "yes", False: "no", None: "not measured"}
    text = [
        "Weight of one key by distance, mean over heads and 32 late queries (8 windows of the embedded model, one of SmolLM2), in the first layer and the mean of later ones; then what the",
        "distance adds to a score (nats), its least and at the farthest distance, all pairs and those that make less than one rotation within the trained length alone",
        f"({'; '.join(f'{m}: {slow[m]} of {len(pairs[m])}, trained at {models[m]} tokens' for m in models)}). `hope` gives these pairs zero frequency in a model that was not trained so.",
        "",
        *table(
            ["", "weight at 0", "least", "farthest", "ratio", "score, all pairs", "score, slow pairs"],
            list(weights(rows, runs)),
        ),
        "Shares of the variance of what pairs add to the scores, per cent: position is what the distance explains, content the rest "
        "([definitions](../inspect-format.md#what-the-numbers-mean)); new angles are those that no distance within the trained length has. Then weights on keys beyond the trained length and on the first token.",
        "",
        *table(
            ["", "position", "slow pairs: position", "slow pairs: content", "new angles", "weight beyond", "first token"], list(shares(rows, runs))
        ),
        *table(
            ["rule", *models],
            [
                [name, *(words[found[m].get(key)] for m in models)]
                for name, key in (
                    (f"later layers at the trained length: the farthest key has {RISE} times the least weight or more", "weight"),
                    (f"there slow pairs alone add {NATS} nats or more at the far end over their least", "slow"),
                    ("past it slow pairs make half of the later layers' rise or more, and the first layer rises less", "beyond"),
                    ("with `hope` the rise in weight at the trained length is gone", "gone"),
                )
            ],
        ),
        "The verdict asks for all of the rules in every model; the trained length of the rules is the longest measured that is not beyond it.",
        "",
    ]
    small = next(iter(models))
    trained, longest = within[small], lengths[small][-1]
    low, _, end = rise(curve(rows, small, "as shipped", longest, "later"), "score")
    slow_low, _, slow_end = rise(curve(rows, small, "as shipped", longest, "later"), "score_incomplete")
    text += [
        f"At {longest} tokens the later layers of the {small} model score the farthest keys {end - low:.1f} nats above the least, slow pairs alone {slow_end - slow_low:.1f}.",
        *(decay(rows, m, within[m]) for m in models),
        "",
    ]

    def line(method, tokens, key):
        return [(r["from"], r[key]) for r in curve(rows, small, method, tokens, "later") if r["from"] > 0 and r[key] is not None]

    panels = [
        Panel(
            "Weight of one key, later layers",
            f"distance, tokens (trained: {trained})",
            [
                (str(trained), line("as shipped", trained, "weight"), "c0"),
                (str(longest), line("as shipped", longest, "weight"), "c1"),
                (f"{trained}, hope", line("hope", trained, "weight"), "rest"),
                (f"{longest}, hope", line("hope", longest, "weight"), "c3"),
            ],
            x_log=True,
            y_log=True,
        ),
        Panel(
            f"What the distance adds at {longest} tokens, nats",
            f"distance, tokens (trained: {trained})",
            [
                ("all pairs", line("as shipped", longest, "score"), "c0"),
                ("slow pairs", line("as shipped", longest, "score_incomplete"), "c1"),
                ("slow pairs, hope", line("hope", longest, "score_incomplete"), "rest"),
            ],
            x_log=True,
        ),
    ]
    return section(
        "Attention is U-shaped over distance, by pairs that never turned in training",
        "[A], 3.5 and 3.7 (HoPE); Chen et al. 2024 ([2410.21216](https://arxiv.org/abs/2410.21216)).",
        VERDICTS[0 if all(every) else 1 if any(every) else 2],
        text,
        command,
        "attention",
    ), {"attention": panels}


def frequencies(rows, command):
    """Which pairs carry position, which meaning: shares of all position and of all content, by pair."""
    pairs = {}
    for r in rows:
        if r["what"] == "pair":
            pairs.setdefault(r["model"], []).append(r)

    def half(line, key, lower):
        chosen = [r[key] for r in line if (r["pair"] >= len(line) / 2) == lower]
        return sum(chosen) / sum(r[key] for r in line)

    def of_group(line, slow):
        chosen = [r for r in line if (r["rotations"] < 1) == slow]
        return sum(r["position"] for r in chosen) / sum(r["position"] + r["content"] for r in chosen)

    def most(line, key):
        top = max(line, key=lambda r: r[key])
        return f"{top['pair']} ({top['rotations']:.2g} rotations): {100 * top[key]:.0f} %"

    found = {
        m: (half(line, "position", False) > 0.5, half(line, "content", True) > 0.5, of_group(line, False) > of_group(line, True))
        for m, line in pairs.items()
    }
    every = [value for answers in found.values() for value in answers]
    text = [
        "The same runs, within the trained length, mean over layers. Position is the variance of a pair's part of the scores that the distance explains, content the rest at equal distance. Rotations are those",
        "within the trained length.",
        "",
        *table(
            ["", "position in the faster half", "content in the slower half", "position of what fast pairs add", "of what slow pairs add"],
            [
                [
                    m,
                    f"{half(line, 'position', False):.0%}",
                    f"{half(line, 'content', True):.0%}",
                    f"{of_group(line, False):.0%}",
                    f"{of_group(line, True):.0%}",
                ]
                for m, line in pairs.items()
            ],
        ),
        *table(
            ["", "pair with most position", "pair with most content"],
            [[m, most(line, "position"), most(line, "content")] for m, line in pairs.items()],
        ),
        "Fast pairs are those with one rotation or more within the trained length. The verdict asks for more than half of position in the half of the pairs with higher frequencies, of content in the other half, and for position to be",
        "a larger part of what fast pairs add than of what slow ones do, in every model.",
        "",
    ]
    panels = [
        Panel(
            f"Share of each pair, {m}, %",
            "number of the pair, from high to low frequency",
            [(key, [(r["pair"], 100 * r[key]) for r in line], c) for key, c in (("position", "c0"), ("content", "c1"))],
        )
        for m, line in pairs.items()
    ]
    return section(
        "High frequencies carry position, low ones meaning",
        "[A], 3.5; Barbero et al. 2024 ([2410.06205](https://arxiv.org/abs/2410.06205)).",
        VERDICTS[0 if all(every) else 1 if any(every) else 2],
        text,
        command,
        "frequencies",
    ), {"frequencies": panels}


OF_ATTENTION = (attention, frequencies)
