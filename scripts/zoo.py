#!/usr/bin/env python3
"""Trains models that differ in their position encoding (docs/zoo.md), measures each to 8 times its trained length with the
program, and writes docs/results/zoo: rows.jsonl and the page made of it.

usage: zoo.py [--only NAME,...] [--seeds N] BUILD    BUILD/ropewalk and BUILD/heldout.txt measure; BUILD/zoo gets the models
       zoo.py --smoke BUILD                          two models by a few steps; writes no rows
       zoo.py --draw | --check                       the page from the committed rows; --check fails where it differs
    --only    these entries (python -m ropewalk.zoo list) and no others, whose rows stay
    --seeds   at most N seeds of each entry: there are 3 of those whose order matters, 1 of the others

Each core trains one model by one thread. What was ended goes on from BUILD/zoo; what is there is not trained again.
"""

import argparse
import concurrent.futures
import csv
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "scripts")]
from zoo_page import ROWS, by_length, page, read  # noqa: E402

PAGE = ROWS.parent / "README.md"
SEEDED = ("sinusoidal", "rope", "hope", "alibi", "alibi-learned", "t5")
STEPS, SMOKE_STEPS = 900, 60
LENGTHS = (256, 512, 1024, 2048)  # the first is the trained one
MEASURE = "--tasks perplexity,passkey --protocol aligned:128 --anchors 32 --no-share --passkey-trials 50 --no-race --budget none"
# Of a model that is also extended after its training; of all others nothing.
METHODS = {"rope": "none,log-n,ntk,yarn,rerope"}
UNTIED = {"tie_word_embeddings": False}  # which complex order asks for, and others do not mind
# What a table with no row for a position says.
NO_ROW = re.compile(r"error: (.*\d+ positions.*)")


def environment(build):
    """Of a process with one thread."""
    package = os.pathsep.join([str(build / "python"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": package, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def run(command, build, log):
    with open(log, "a", encoding="utf-8") as file:
        words = [str(word) for word in command]
        done = subprocess.run(words, env=environment(build), stdout=file, stderr=subprocess.PIPE, text=True)
        file.write(done.stderr)
    return done


def trained(name, seed, build, folder, steps=STEPS):
    """Trains, or goes on; returns the seconds it took, None where it went on."""
    started, goes_on = time.monotonic(), (folder / "state.pt").exists()
    command = [sys.executable, "-m", "ropewalk.zoo", "train", name, "-o", folder, "--seed", seed, "--steps", steps]
    done = run(command, build, folder / "log")
    if done.returncode:
        raise RuntimeError(f"training failed: {done.stderr[-500:]}")
    return None if goes_on else round(time.monotonic() - started)


def cell(row):
    passkey = next(task for task in row["tasks"] if task["task"] == "passkey")
    keys = ("method", "length", "perplexity", "mean_nll", "standard_error", "entropy")
    found = {key: row.get(key) for key in keys}
    return {**found, "passkey": passkey["exact"], "passkey_nll": passkey["mean_nll"], "questions": len(passkey["answers"])}


def cells_of(rows):
    """One of each method and length: a recommended setting is measured beside that of the command."""
    found = {}
    for row in rows:
        found.setdefault((row["method"], row["length"]), cell(row))
    return [found[key] for key in sorted(found)]


def measured(name, folder, build):
    """Header of the sweep, cells of each length, and why there are no others."""
    out, refused = folder / "sweep", None
    for lengths in (LENGTHS, LENGTHS[:1]):
        command = [build / "ropewalk", "sweep", folder, "--text", build / "heldout.txt", *MEASURE.split()]
        command += ["--threads", "1", "--methods", METHODS.get(name, "none")]
        done = run([*command, "--lengths", ",".join(map(str, lengths)), "-o", out], build, folder / "log")
        if done.returncode == 0:
            header, *rows = [json.loads(line) for line in (out / "results.jsonl").read_text(encoding="utf-8").splitlines()]
            return header, cells_of(rows), refused
        found = NO_ROW.search(done.stderr)
        if not found or refused:
            break
        refused = found[1]
    raise RuntimeError(done.stderr.strip())


def curve(folder):
    """Loss of text over training: means of 25 steps."""
    with open(folder / "loss.csv", encoding="utf-8") as file:
        losses = [float(row["text_loss"]) for row in csv.DictReader(file)]
    return [round(sum(part) / len(part), 4) for part in (losses[i : i + 25] for i in range(0, len(losses), 25))]


def explained(folder):
    """Of a model with sinusoids, layer by layer and head by head: the share of the variance of their scores behind W_q and W_k that the
    distance explains."""
    import torch
    from evidence_functions import explained as share
    from ropewalk import zoo

    model = zoo.load(folder)
    heads, width = model.config["num_attention_heads"], model.config["hidden_size"]
    sinusoids = model.model.positions(torch.zeros(1, LENGTHS[0], width))[0]
    for layer in model.model.layers:
        rows = (sinusoids * layer.input_layernorm.weight).detach().double().numpy()
        weights = (p.weight.detach().double().numpy() for p in (layer.self_attn.q_proj, layer.self_attn.k_proj))
        q, k = (w.reshape(heads, -1, width) for w in weights)
        yield from (share((rows @ q[h].T) @ (rows @ k[h].T).T) for h in range(heads))


def job(name, seed, build):
    """The row of one model: from its folder, or trained and measured."""
    from ropewalk.zoo import ENTRIES, read_config

    folder = build / "zoo" / f"{name}-{seed}"
    kept = folder / "row.json"
    if kept.exists():
        row = json.loads(kept.read_text(encoding="utf-8"))
        if row["steps"] == STEPS and row["positions"] == read_config({**UNTIED, "positions": ENTRIES[name]})["positions"]:
            return row  # of another recipe training says what to remove
    folder.mkdir(parents=True, exist_ok=True)
    seconds = trained(name, seed, build, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    header, cells, refused = measured(name, folder, build)
    row = {"entry": name, "seed": seed, "positions": config["positions"], "steps": STEPS, "train_seconds": seconds}
    row |= {"model_hash": header["model_hash"], "text_hash": header["text_hash"], "text_loss": curve(folder)}
    row |= {"cells": cells, "refused": refused}
    if name == "sinusoidal":
        row["explained"] = [round(x, 4) for x in explained(folder)]
    kept.write_text(json.dumps(row), encoding="utf-8")
    return row


def write(rows):
    """Rows of entries that were measured now take the place of those before."""
    before = read()[1] if ROWS.exists() else []
    now = {(row["entry"], row["seed"]): row for row in [*before, *rows]}
    header = {"format": "ropewalk-zoo", "schema": 1, "command": "make zoo", "trained_length": LENGTHS[0], "measure": MEASURE}
    lines = [header, *(now[key] for key in sorted(now))]
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    ROWS.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


def smoke(build):
    """Two models by a few steps: their loss falls, and the program runs their files."""
    for name in ("alibi", "rope"):
        folder = build / "zoo" / f"smoke-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        seconds = trained(name, 1, build, folder, SMOKE_STEPS)
        losses = curve(folder)
        _, cells, _ = measured("", folder, build)
        print(f"{name}: {SMOKE_STEPS} steps in {seconds} s, loss of text {losses[0]} -> {losses[-1]}, "
              f"perplexity {cells[0]['perplexity']:.1f} at {LENGTHS[0]} tokens")
        if losses[-1] > losses[0] - 0.5 or cells[0]["perplexity"] > math.exp(losses[-1] + 0.5):
            raise SystemExit(f"{name}: the loss should fall by more than 0.5, and the program should find what training ended with")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", nargs="?", type=pathlib.Path)
    parser.add_argument("--only", type=lambda names: names.split(","))
    parser.add_argument("--seeds", type=int, default=3)
    for name in ("smoke", "draw", "check"):
        parser.add_argument(f"--{name}", action="store_true")
    args = parser.parse_args()
    if args.draw or args.check:
        if args.draw:
            PAGE.write_text(page(), encoding="utf-8")
        elif PAGE.read_text(encoding="utf-8") != page():
            raise SystemExit(f"{PAGE.name} of docs/results/zoo: not what scripts/zoo.py makes of the rows; run it with --draw")
        return
    if args.build is None:
        parser.error("BUILD is missing")
    build = args.build.resolve()
    sys.path.insert(0, str(build / "python"))
    from ropewalk.zoo.entries import DEFAULT, ENTRIES

    if args.smoke:
        smoke(build)
        return
    names = args.only or list(DEFAULT)
    unknown = [name for name in names if name not in ENTRIES]
    if unknown:
        raise SystemExit(f"{', '.join(unknown)}: none of {', '.join(ENTRIES)}")
    jobs = [(name, seed) for seed in (1, 2, 3)[: args.seeds] for name in names if seed == 1 or name in SEEDED]
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        running = {pool.submit(job, name, seed, build): (name, seed) for name, seed in jobs}
        failed = []
        try:
            for done, future in enumerate(concurrent.futures.as_completed(running), 1):
                name, seed = running[future]
                if future.exception() is not None:  # the others go on
                    failed.append(f"{name}, seed {seed}: {future.exception()}")
                    print(f"[{done}/{len(jobs)}] {failed[-1]}", flush=True)
                    continue
                row = future.result()
                write([row])
                text = ", ".join(f"{x:.2f} at {n}" for n, x in by_length(row, "perplexity").items())
                print(f"[{done}/{len(jobs)}] {name}, seed {seed}: {text}; {time.monotonic() - started:.0f} s", flush=True)
        except BaseException:  # of this thread: Ctrl-C, a page that cannot be drawn
            pool.shutdown(cancel_futures=True)
            raise
    if failed:
        raise SystemExit(f"{len(failed)} of {len(jobs)} models failed")


if __name__ == "__main__":
    main()
