"""Measured rows beside what tools/scale_model.py predicts for them."""

import json

from ring_costs import Refused, Setting, read_shape, simulate
from scale_text import duration, size, table

# How far a prediction may be off, as a share of what was measured.
TOLERANCES = {"time": 0.15, "times one": 0.1, "memory": 0.1, "sent": 0.02}
SHOWN = {"time": duration, "times one": "{:.2f}".format, "memory": size, "sent": size}


def compare(row, constants, base):
    """{what: (measured, predicted)} of a row of bench/ranks_bench.py. base: those of one rank so far, which it adds to."""
    setting = Setting(row["kv"], scored=row["scored"], cores=row["cores"] / row["threads"], file_bytes=row["file_bytes"])
    found = simulate(read_shape(row["shape"]), row["tokens"], row["ranks"], constants, setting)
    both = {"memory": (row["peak_bytes"], found["memory_bytes"])}
    if row["ranks"] > 1 and row["sent_bytes"] is not None:
        both["sent"] = row["sent_bytes"], found["sent_bytes"]
    if row["method"] != "none":  # another method computes other things, and holds and sends the same
        return both
    both["time"] = times = row["median_seconds"], found["seconds"]
    key = row["shape"], row["tokens"], row["scored"], row["kv"]
    if row["ranks"] == 1:
        base[key] = times
    elif key in base:
        both["times one"] = tuple(one / several for one, several in zip(base[key], times))
    else:
        raise Refused(f"{row['shape']}, {row['tokens']} tokens: no row of one rank in front of that of {row['ranks']}")
    return both


def too_far(row, both):
    shares_cores = row["ranks"] * row["threads"] > row["cores"]  # ranks that wait poll, and take time from those that compute
    for what, most in TOLERANCES.items():
        if shares_cores and what in ("time", "times one"):
            continue
        measured, predicted = both.get(what, (1, 1))
        if not abs(predicted / measured - 1) <= most:
            yield (f"{row['shape']}, {row['tokens']} tokens, {row['ranks']} ranks: {what}: {SHOWN[what](measured)} measured, "
                   f"{SHOWN[what](predicted)} predicted, more than {most:.0%} off")  # fmt: skip


def check(path, constants):
    """A table of the rows, and those that are too far off."""
    shown, wrong, base = [], [], {}
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        for row in rows:
            both = compare(row, constants, base)
            wrong += too_far(row, both)
            numbers = [show(n) if n is not None else "" for what, show in SHOWN.items() for n in both.get(what, (None, None))]
            shown.append([row["shape"], row["tokens"], row["ranks"], *numbers])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise Refused(f"{path}: {error!r}") from error
    if not shown:
        raise Refused(f"{path}: no rows")
    head = [n for what in SHOWN for n in (what, "predicted")]
    return table(["model", "tokens", "ranks", *head], shown), wrong
