#!/usr/bin/env python3
"""Standard errors that n windows of K scored tokens would have, from the losses of every token of longer windows.

usage: window_errors.py NAME=FILE ...    FILE is what `ropewalk perplexity --per-token FILE` wrote; all of the same windows

For each file and each pair of files (the paired difference) prints the standard deviation of the mean of K neighbouring tokens
at a random place of the text, and the standard error of n such windows as a share of that of 8 windows of 128. Windows are
independent places, so a unit's variance is that between windows plus that between blocks of one window.
"""

import itertools
import json
import sys

BLOCKS = (128, 256, 512, 1024)
PLANS = ((8, 128), (4, 256), (6, 256), (3, 512), (4, 512), (6, 512), (3, 1024), (4, 1024), (6, 1024))


def read(path):
    windows = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            windows.setdefault(row["window"], []).append(row["nll"])
    return [windows[key] for key in sorted(windows)]


def mean(values):
    return sum(values) / len(values)


def variance(windows, block):
    """Of the mean of `block` neighbouring tokens."""
    means = [[mean(w[i:i + block]) for i in range(0, len(w) - block + 1, block)] for w in windows]
    each = [mean(row) for row in means]
    middle = mean(each)
    between = sum((m - middle) ** 2 for m in each) / (len(each) - 1)
    n = len(means[0])
    if n == 1:
        return between
    within = mean([sum((v - m) ** 2 for v in row) / (n - 1) for row, m in zip(means, each)])
    return between + within * (1 - 1 / n)  # `between` has within / n of it already


def main():
    files = dict(argument.split("=", 1) for argument in sys.argv[1:] if "=" in argument)
    if len(files) != len(sys.argv) - 1 or not files:
        sys.exit(__doc__)
    series = {name: read(path) for name, path in files.items()}
    for a, b in itertools.combinations(files, 2):
        series[f"{a} - {b}"] = [[x - y for x, y in zip(*pair)] for pair in zip(series[a], series[b])]
    print("series".ljust(20), *(f"sd of {k}".rjust(10) for k in BLOCKS), *(f"{n} x {k}".rjust(9) for n, k in PLANS))
    for name, windows in series.items():
        spread = {k: variance(windows, k) for k in BLOCKS}
        today = spread[128] / 8
        print(name.ljust(20), *(f"{spread[k] ** 0.5:10.4f}" for k in BLOCKS),
              *(f"{(spread[k] / n / today) ** 0.5:9.2f}" for n, k in PLANS))


if __name__ == "__main__":
    main()
