#!/usr/bin/env python3
"""What one sequence over ranks (docs/ranks.md) costs on paper: time, bytes on their way and memory, by a simulation of the ring.

    tools/scale_model.py --model 8b,70b --tokens 1m,10m --ranks 8,64,1024      tables; docs/scale.md says how they are made
    tools/scale_model.py --check bench/results/epyc-zen4-2cores-ranks.jsonl    measured rows (bench/ranks_bench.py) beside it

The deal, what a rank sends and what it holds are those of src/ranks and src/model; every pair of query and key is counted.
Python's standard library alone.
"""

import argparse
import json
import math
import pathlib
import re
import sys

import ring_costs
from ring_costs import Refused, Setting
from scale_check import check
from scale_text import duration, size, table

CONSTANTS = ring_costs.ROOT / "bench" / "results" / "epyc-zen4-2cores-scale.json"
RATES = ("linear_flops", "attention_flops", "hop_bytes_per_s", "hop_seconds")


def sequences(cells, constants, kv):
    head = ["model", "tokens", "FLOP, linear", "FLOP, attention", "one rank", "weights", "a hop is hidden from"]
    rows = [
        [name, one["tokens"], f"{one['linear_flop']:.2e}", f"{one['attention_flop']:.2e}", duration(one["seconds"]),
         size(one["memory"]["weights"]), f"{math.ceil(ring_costs.hidden_from(shape, constants, kv))} of a rank"]
        for name, shape, one, _ in cells
    ]  # fmt: skip
    return table(head, rows)


def over_ranks(cells):
    head = ["model", "tokens", "ranks", "of a rank", "time", "times one", "waiting", "hop", "hop / step", "sent by one", "memory"]
    rows = [
        [name, one["tokens"], cell["ranks"], cell["rank_tokens"], duration(cell["seconds"]),
         f"{one['seconds'] / cell['seconds']:.4g}", f"{100 * cell['waiting']:.1f} %", size(cell["hop_bytes"]),
         f"{cell['hop_share']:.2g}", size(cell["sent_bytes"]), size(cell["memory_bytes"])]
        for name, _, one, several in cells for cell in several
    ]  # fmt: skip
    return table(head, rows)


def counts(text, most, units):
    """"1,8k,1m" as numbers, k and m being 2^10 and 2^20, as the program reads lengths."""
    found = []
    for word in text.split(","):
        match = re.fullmatch(r"(\d{1,12})([km]?)", word.strip())
        value = int(match[1]) * {"": 1, "k": 1 << 10, "m": 1 << 20}[match[2]] if match and (units or not match[2]) else 0
        if not 1 <= value <= most:
            raise Refused(f"{word!r}: expected a number from 1 to {most}" + (", such as 512, 32k or 1m" if units else ""))
        found.append(value)
    return found


def read_constants(options):
    try:
        constants = json.loads(options.constants.read_text(encoding="utf-8"))
        for name in RATES:
            given = getattr(options, name)
            if given is not None:
                constants[name] = {"1": given} if name.endswith("flops") else given
        above = [constants["hop_bytes_per_s"], *constants["linear_flops"].values(), *constants["attention_flops"].values()]
        least = [constants["hop_seconds"], constants["process_bytes"]]
        if not all(0 < n < math.inf for n in above) or not all(0 <= n < math.inf for n in least):
            raise Refused(f"{options.constants}: expected rates above 0, and seconds and bytes of 0 or more")
        return constants
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(f"{options.constants}: {error!r}") from error


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="135m,8b,70b", help="135m, 8b, 70b, embedded, or a llama-like config.json")
    parser.add_argument("--tokens", default="1m,10m")
    parser.add_argument("--ranks", default="8,32,128,1024")
    parser.add_argument("--kv", choices=["float32", "bf16", "q8_0"], default="float32", help="what travels")
    parser.add_argument("--weight-bits", type=int, default=32, help="of a weight in memory")
    parser.add_argument("--scored", help="the last tokens whose loss is wanted (default: all)")
    parser.add_argument("--cores", type=int, help="of all ranks together, where they are fewer")
    parser.add_argument("--constants", type=pathlib.Path, default=CONSTANTS, help="measured rates of a rank, JSON; single ones:")
    for name in RATES:
        parser.add_argument("--" + name.replace("_", "-"), type=float)
    parser.add_argument("--over-ranks", action="store_true", help="the second table alone")
    parser.add_argument("--json", action="store_true", help="a line for each cell, with the parts of its memory")
    parser.add_argument("--check", type=pathlib.Path, metavar="ROWS", help="rows of bench/ranks_bench.py; 1: one is too far off")
    return parser.parse_args()


def predict(options, constants):
    """(name, shape, on one rank, on each number of ranks) of every model and length."""
    if not 1 <= options.weight_bits <= 64 or (options.cores is not None and options.cores < 1):
        raise Refused("expected --weight-bits from 1 to 64 and --cores of 1 or more")
    scored = counts(options.scored, ring_costs.MOST_TOKENS, units=True)[0] if options.scored else None
    setting = Setting(options.kv, options.weight_bits, scored, options.cores)
    ranks = counts(options.ranks, ring_costs.MOST_RANKS, units=False)
    for name in options.model.split(","):
        shape = ring_costs.read_shape(name)
        for tokens in counts(options.tokens, ring_costs.MOST_TOKENS, units=True):
            one, *several = (ring_costs.simulate(shape, tokens, n, constants, setting) for n in [1, *ranks])
            yield name, shape, one, several


def run(options):
    """What is printed, and what is wrong with it."""
    constants = read_constants(options)
    if options.check:
        return check(options.check, constants)
    cells = list(predict(options, constants))
    if options.json:
        return "\n".join(json.dumps({"model": name, **cell}) for name, _, _, several in cells for cell in several), []
    first = [] if options.over_ranks else [sequences(cells, constants, options.kv)]
    return "\n\n".join([*first, over_ranks(cells)]), []


def main():
    try:
        text, wrong = run(arguments())
    except Refused as error:
        print(f"scale_model: {error}", file=sys.stderr)
        sys.exit(2)
    print(text)
    sys.exit("\n".join(f"scale_model: {line}" for line in wrong) or None)


if __name__ == "__main__":
    main()
