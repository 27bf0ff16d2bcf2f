#!/usr/bin/env python3
"""Checks the second document of the conformance suite, biases, distance maps and absolute encodings, by formulas typed again from the
papers, in double and where positions are far in 50-digit decimal arithmetic; nothing but Python's standard library.

usage: check_positions.py FILE [PROGRAM]     PROGRAM positions must print what FILE says
"""

import json
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from check_conformance import with_new  # noqa: E402
from positions_absolute import ABSOLUTE  # noqa: E402
from positions_relative import RELATIVE  # noqa: E402

FORMULAS = {**RELATIVE, **ABSOLUTE}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        suite = json.load(file)
    if len(sys.argv) > 2:
        printed = subprocess.run([sys.argv[2], "positions"], check=True, capture_output=True).stdout
        suite["cases"] = with_new(json.loads(printed)["cases"], suite["cases"], 2e-6)
    if (suite["format"], suite["version"]) != ("position-conformance", 1):
        sys.exit("not a conformance suite of positions of version 1")
    checks, methods = 0, set()
    for case in suite["cases"]:
        done = FORMULAS[case["method"]](case)
        if done < 6:
            sys.exit(f"{case['id']}: only {done} numbers were checked")
        checks += done
        methods.add(case["method"])
    if methods != set(FORMULAS):
        sys.exit(f"no case of {', '.join(sorted(set(FORMULAS) - methods))}")
    print(f"{len(suite['cases'])} cases of {len(methods)} formulas, {checks} checks, all right")


if __name__ == "__main__":
    main()
