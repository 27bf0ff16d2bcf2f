#!/usr/bin/env python3
"""Holds docs/charts.json against the library: usage: check_charts.py PROGRAM, where PROGRAM prints it."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def compare(where, shown, came):
    """Numbers have three or four digits, of which another CPU may round the last otherwise."""
    if isinstance(came, dict) and isinstance(shown, dict) and list(shown) == list(came):
        for key in came:
            compare(f"{where} {key}", shown[key], came[key])
    elif isinstance(came, list) and isinstance(shown, list) and len(shown) == len(came):
        for a, b in zip(shown, came):
            compare(where, a, b)
    elif isinstance(came, (int, float)) and isinstance(shown, (int, float)):
        if abs(shown - came) > 1.1e-2 * abs(came) + 1.1e-5:
            sys.exit(f"docs/charts.json: {where}: {shown}, the library says {came}; run make charts")
    elif shown != came:
        sys.exit(f"docs/charts.json: {where}: not what the library says; run make charts")


def main():
    printed = subprocess.run([sys.argv[1]], check=True, capture_output=True).stdout
    came = json.loads(printed)
    with open(ROOT / "docs" / "charts.json", encoding="utf-8") as file:
        compare("", json.load(file), came)
    print(f"{len(came)} pictures are what the library computes")


if __name__ == "__main__":
    main()
