#!/usr/bin/env python3
"""--weights: the same results in other memory, measured as the largest resident size of the program, in which the pages
of the mapped file count.

usage: packed_cli_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import os
import random
import subprocess
import types
import unittest

import support  # puts tests/support on the path
from support import MODEL, PROGRAM, CliCase, run

from made_up_gguf import write

MIB = 1 << 20
# 151 million weights: 81 MiB of Q4_K, 575 MiB of float32.
SHAPE = types.SimpleNamespace(layers=8, hidden=1024, feed_forward=4096, heads=16, kv_heads=4, vocab=32000, context=4096,
                              untied=False, seed=1)
# What the program takes beside weights and cache, by far.
OTHER = 250 * MIB


def peak(*arguments):
    """What the program printed, and its largest resident size in bytes."""
    with subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          stdin=subprocess.DEVNULL) as process:
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise AssertionError(f"{arguments}: exit code {process.returncode}")
    return out, usage.ru_maxrss * 1024


class Packed(CliCase):
    def made_up(self, **changes):
        shape = types.SimpleNamespace(**{**vars(SHAPE), **changes})
        path = self.folder / "made-up.gguf"
        write(path, shape)
        ids = self.folder / "ids.json"
        rng = random.Random(1)
        ids.write_text(json.dumps([rng.randrange(259, shape.vocab) for _ in range(2048)]))
        return path, ids

    def test_peak_memory_is_that_of_the_file(self):
        path, ids = self.made_up()
        file, cache = path.stat().st_size, 512 * 2 * 8 * 4 * 64 * 4
        unpacked = 4 * (8 * (1024 * 1024 * 2 + 2 * 256 * 1024 + 3 * 4096 * 1024) + 32000 * 1024)
        self.assertGreater(unpacked, file + OTHER + 150 * MIB)  # or the limits below would show nothing
        _, inspected = peak("inspect", path)
        self.assertLess(inspected, file + OTHER)
        perplexity = ["perplexity", path, "--ids", ids, "--length", 512, "--protocol", "windows", "--anchors", 1,
                      "--no-bos", "--json"]
        out, packed = peak(*perplexity, "--weights", "packed")
        self.assertLess(packed, file + cache + OTHER)
        other, whole = peak(*perplexity, "--weights", "unpacked")
        self.assertGreater(whole, unpacked)
        same = [json.loads(x)["mean_nll"] for x in (out, other)]
        self.assertAlmostEqual(same[0], same[1], delta=1e-4)
        out, packed = peak("passkey", path, "--length", 256, "--passkey-trials", 1, "--json", "--weights", "packed")
        self.assertLess(packed, file + cache + OTHER)

    def test_the_same_numbers(self):
        one = ["perplexity", MODEL, "--text", self.text, "--length", 256, "--json"]
        packed, unpacked = (self.json(*one, "--weights", form)["mean_nll"] for form in ("packed", "unpacked"))
        self.assertAlmostEqual(packed, unpacked, delta=1e-5)
        text = [self.works("generate", MODEL, "--prompt", "And the", "--max-tokens", 12, "--weights", form)
                for form in ("packed", "unpacked", "auto")]
        self.assertEqual(len(set(text)), 1)

    def test_what_is_said_of_memory(self):
        sweep = ["sweep", MODEL, "--text", self.text, "--lengths", 128, "--methods", "none", "--dry-run"]
        size = (support.pathlib.Path(MODEL) / "model.safetensors").stat().st_size
        packed, unpacked = (self.json(*sweep, "--json", "--weights", form) for form in ("packed", "unpacked"))
        self.assertEqual(unpacked["mapped_bytes"], 0)
        self.assertGreater(packed["mapped_bytes"], 0.9 * size)
        self.assertLess(packed["mapped_bytes"], size)
        self.assertLess(packed["memory_bytes"], unpacked["memory_bytes"] - size)
        self.assertIn("MiB of weights that stay in the file", run(*sweep, "--weights", "packed").stdout.decode())
        self.assertNotIn("stay in the file", run(*sweep, "--weights", "unpacked").stdout.decode())

    def test_refused(self):
        self.fails(2, "generate", MODEL, "--prompt", "a", "--weights", "half", says="{auto,packed,unpacked}")

    def test_converted_alike(self):
        """What is written is proven with either."""
        for form in ("packed", "unpacked"):
            self.works("convert", MODEL, "-o", self.folder / f"{form}.gguf", "--weights", form)


if __name__ == "__main__":
    support.main()
