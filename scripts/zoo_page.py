"""The page docs/results/zoo/README.md from its rows: perplexity and retrieval against length for every encoding."""

import json
import pathlib

from evidence_frame import ROOT, table

ROWS = ROOT / "docs" / "results" / "zoo" / "rows.jsonl"


def read(path=ROWS):
    """Header and rows; refuses what is no file of rows."""
    try:
        header, *rows = [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise SystemExit(f"{path}: expected a header and rows of JSON: {error}") from None
    if header.get("format") != "ropewalk-zoo" or header.get("schema") != 1:
        raise SystemExit(f"{path}: expected a header of format ropewalk-zoo, schema 1")
    return header, rows


def by_length(row, what, method="none"):
    return {c["length"]: c[what] for c in row["cells"] if c["method"] == method}


def entries(rows):
    """{entry: its rows, one a seed}, in the order of perplexity at the longest length; those that end earlier come last."""
    out = {}
    for row in rows:
        out.setdefault(row["entry"], []).append(row)
    last = max(c["length"] for row in rows for c in row["cells"])

    def key(of):
        found = [by_length(row, "perplexity").get(last) for row in of]
        return (None in found, sum(x or by_length(row, "perplexity")[min(by_length(row, "perplexity"))] for x, row in zip(found, of)) / len(of))

    return dict(sorted(out.items(), key=lambda item: key(item[1])))


def mean_and_spread(values, digits):
    """Mean, and with several seeds half of the distance between the smallest and the largest."""
    if not values or None in values:
        return "–"
    mean = f"{sum(values) / len(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {(max(values) - min(values)) / 2:.{digits}f}"


def tables(rows):
    lengths = sorted({c["length"] for row in rows for c in row["cells"]})
    found = entries(rows)
    out = {}
    for what, digits in (("perplexity", 1), ("passkey", 2)):
        out[what] = table(
            ["encoding", "seeds", *map(str, lengths)],
            [
                [name, str(len(of)), *(mean_and_spread([by_length(row, what).get(n) for row in of], digits) for n in lengths)]
                for name, of in found.items()
            ],
        )
    return out


def extended(rows):
    """Tables of the models that were also measured with methods that extend them."""
    for name, of in entries(rows).items():
        methods = sorted({c["method"] for c in of[0]["cells"]}, key=lambda m: (m != "none", m))
        if len(methods) == 1:
            continue
        lengths = sorted({c["length"] for c in of[0]["cells"]})
        heads = ["method", *map(str, lengths), *(f"passkeys, {n}" for n in lengths)]
        values = {
            m: [mean_and_spread([by_length(row, what, m).get(n) for row in of], d) for what, d in (("perplexity", 1), ("passkey", 2)) for n in lengths]
            for m in methods
        }
        yield from [
            f"## `{name}`, extended after training",
            "",
            "With the factor that the length needs, at the trained length the largest. Perplexity, then the share of passkeys found.",
            "",
            *table(heads, [[m, *values[m]] for m in methods]),
        ]


def page():
    header, rows = read()
    of = tables(rows)
    steps = sorted({row["steps"] for row in rows})
    seconds = sorted(row["train_seconds"] for row in rows if row["train_seconds"] is not None)
    refused = {row["entry"]: row["refused"] for row in rows if row["refused"]}
    return "\n".join(
        [
            "# One small model for each encoding",
            "",
            f"Models of [ropewalk.zoo](../../zoo.md) that differ in their `positions` alone: trained at {header['trained_length']} tokens for {', '.join(map(str, steps))} steps by the",
            "recipe there, measured by the program on books that no model saw, to 8 times that length. `make zoo` writes this page",
            "and its [rows](rows.jsonl), which have `positions`, seed, hash of the weights, and the loss over training. Training took",
            f"{seconds[0]} to {seconds[-1]} s of one core each, beside other work. In so few steps an encoding that is learned from nothing (T5's buckets, a",
            "table of rows) has to find what ALiBi and RoPE begin with: a longer training may order them otherwise.",
            "",
            f"    ropewalk sweep MODEL --text build/heldout.txt --lengths 256,512,1024,2048 --methods none {header['measure']}",
            "",
            "## Perplexity against length",
            "",
            "The same tokens at every length, of 32 windows the last 128. With several seeds: mean ± half of the distance between the lowest and the highest. The",
            "order is that of the longest length.",
            "",
            *of["perplexity"],
            *(["– : no position there. The program says: " + "; ".join(f"`{name}`: {text}" for name, text in sorted(refused.items())) + ".", ""] if refused else []),
            "## Passkey retrieval against length",
            "",
            f"Share of {rows[0]['cells'][0]['questions']} or a few more numbers of five digits that are found in repeated filler. Near 0.5 two shares that differ by less than 0.2 may be alike.",
            "",
            *of["passkey"],
            *extended(rows),
        ]
    )
