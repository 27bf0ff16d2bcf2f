#!/usr/bin/env python3
"""What --compute bf16 makes of a sweep's row: time, perplexity and passkeys, beside float32 in turns.

  bf16_row.py PROGRAM MODEL TEXT [--length 16k] [--methods none,yarn] [--rounds 3] [--threads 2]

Perplexity of one window, and 9 passkeys behind one prompt. Prints a JSON line per method; "times" is
the median over the rounds of float32's seconds over bf16's, "perplexity_change" bf16's over
float32's less 1.
"""

import argparse
import json
import statistics
import subprocess

ARITHMETICS = ("float32", "bf16")


def run(arguments, command, method, compute, *more):
    done = subprocess.run(
        [arguments.program, command, arguments.model, "--length", arguments.length, "--method", method,
         "--compute", compute, "--threads", str(arguments.threads), "--json", *more],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)


def measure(arguments, method):
    seconds = {compute: [] for compute in ARITHMETICS}
    perplexity, passkeys = {}, {}
    for _ in range(arguments.rounds):
        for compute in ARITHMETICS:
            row = run(arguments, "perplexity", method, compute, "--text", arguments.text,
                      "--protocol", "windows", "--anchors", "1")
            seconds[compute].append(row["seconds"])
            perplexity[compute] = row["perplexity"]
    for compute in ARITHMETICS:
        row = run(arguments, "passkey", method, compute, "--passkey-trials", "9")
        passkeys[compute] = [answer["exact"] for answer in row["tasks"][0]["answers"]]
    return {
        "bench": "bf16_row", "method": method, "length": arguments.length,
        "threads": arguments.threads, "rounds": arguments.rounds, "seconds": seconds,
        "times": statistics.median(a / b for a, b in zip(*seconds.values())),
        "perplexity": perplexity,
        "perplexity_change": perplexity["bf16"] / perplexity["float32"] - 1, "passkeys": passkeys,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--length", default="16k")
    parser.add_argument("--methods", default="none,yarn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    for method in arguments.methods.split(","):
        print(json.dumps(measure(arguments, method)), flush=True)


if __name__ == "__main__":
    main()
