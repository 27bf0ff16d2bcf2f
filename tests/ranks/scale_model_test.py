#!/usr/bin/env python3
"""tools/scale_model.py: the deal and the bytes are those of src/ranks, the ring runs as it does there, measured rows are met, and
docs/scale.md shows what the tool prints."""

import dataclasses
import json
import os
import pathlib
import random
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import ring_costs  # noqa: E402
from ring_costs import Deal, Refused, Setting, Shape, simulate  # noqa: E402

TOOL = ROOT / "tools" / "scale_model.py"
ROWS = ROOT / "bench" / "results" / "epyc-zen4-2cores-ranks.jsonl"
CONSTANTS = ROOT / "bench" / "results" / "epyc-zen4-2cores-scale.json"
PAGE = ROOT / "docs" / "scale.md"
SMALL = Shape(layers=3, hidden=64, heads=4, kv_heads=2, head_dim=16, width=128, vocab=256, tied=False)
RATES = {"linear_flops": {"64": 1e9}, "attention_flops": {"16": 1e9}, "hop_bytes_per_s": 1e9, "hop_seconds": 1e-6, "process_bytes": 0}


def tool(*arguments):
    return subprocess.run([sys.executable, TOOL, *map(str, arguments)], capture_output=True, text=True)


def costs(tokens, ranks, shape=SMALL, rates=None, **setting):
    return simulate(shape, tokens, ranks, {**RATES, **(rates or {})}, Setting(**setting))


def agreed(what):
    lines = (ROOT / "tests" / "ranks" / "deals.txt").read_text(encoding="utf-8").splitlines()
    return [line.split()[1:] for line in lines if line.split()[0] == what]


class Dealt(unittest.TestCase):
    def test_runs_are_those_of_the_library(self):
        deals = agreed("deal")
        self.assertGreaterEqual(len(deals), 20)
        for tokens, ranks, *ends in deals:
            deal = Deal(int(tokens), int(ranks))
            self.assertEqual([deal.run(i)[1] for i in range(2 * deal.ranks)], [int(end) for end in ends])

    def test_bytes_of_a_cache_are_those_of_the_library(self):
        caches = agreed("cache")
        self.assertGreaterEqual(len(caches), 40)
        for kv, heads, dim, tokens, size in caches:
            shape = dataclasses.replace(SMALL, kv_heads=int(heads), head_dim=int(dim))
            self.assertEqual(ring_costs.cache_bytes(shape, kv, int(tokens)), int(size))

    def test_every_token_once_and_every_pair_once(self):
        for tokens in (1, 63, 64, 65, 700, 4096, 131071, 131072, 1048575):
            for ranks in (1, 2, 3, 4, 5, 16):
                deal = Deal(tokens, ranks)
                runs = sorted(run for r in range(ranks) for run in deal.runs_of(r))
                self.assertEqual([begin for begin, _ in runs], [0] + [end for _, end in runs[:-1]])
                self.assertEqual(runs[-1][1], tokens)
                every = [deal.pairs(r, owner) for r in range(ranks) for owner in range(ranks)]
                self.assertEqual(sum(every), tokens * (tokens + 1) // 2)

    def test_pairs_are_those_of_counting(self):
        numbers = random.Random(1)
        for _ in range(300):
            begin, first_key = numbers.randrange(40), numbers.randrange(40)
            end, end_key = begin + numbers.randrange(30), first_key + numbers.randrange(30)
            seen = sum(key <= query for query in range(begin, end) for key in range(first_key, end_key))
            self.assertEqual(ring_costs.causal(begin, end, first_key, end_key), seen)
        deal = Deal(700, 2)
        seen = sum(query + 1 for query in range(650, 700))
        self.assertEqual(sum(deal.pairs(r, owner, first=650) for r in range(2) for owner in range(2)), seen)
        self.assertEqual([deal.tokens_of(r, first=650) for r in range(2)], [50, 0])

    def test_full_runs_are_equal_work(self):
        for ranks in (2, 8, 64):
            deal = Deal(1 << 17, ranks)
            self.assertTrue(deal.alike)
            for step in range(ranks):
                self.assertEqual(len({deal.pairs(r, (r - step) % ranks) for r in range(ranks)}), 1)
        self.assertFalse(Deal((1 << 17) - 1, 2).alike)


class Ring(unittest.TestCase):
    def test_times_that_were_worked_out_by_hand(self):
        work = [[3, 5], [2, 2]]
        self.assertEqual(ring_costs.go_round([0, 0], work, hop=1), [5, 7])  # hidden
        self.assertEqual(ring_costs.go_round([0, 0], work, hop=4), [6, 7])  # rank 0 waits for its block
        self.assertEqual(ring_costs.go_round([0, 10], work, hop=1), [13, 17])  # sending needs a receiver
        # Three ranks, the middle one late: 2 cannot have its block, 0 cannot send its own, both until 8.
        self.assertEqual(ring_costs.go_round([0, 6, 0], [[1, 1, 1], [0, 0, 0]], hop=2), [8, 8, 8])
        self.assertEqual(ring_costs.go_round([0, 6, 0], [[1, 1, 1], [1, 1, 1], [0, 0, 0]], hop=2), [10, 10, 10])
        self.assertEqual(ring_costs.go_round([7], [[5]], hop=100), [12])  # nobody to wait for

    def test_the_block_of_the_rank_before_comes_first(self):
        deal = Deal(1025, 4)  # two runs are empty, so that no two ranks are alike
        layer = ring_costs.Layer(SMALL, deal, (1e9, SMALL.pair_flops), 0, range(4))
        second = [deal.pairs(r, owner) for r, owner in enumerate((3, 0, 1, 2))]
        self.assertEqual(layer.work[1], second)
        self.assertNotEqual(layer.work[3], second)

    def test_one_that_stands_for_all_is_as_good_as_all(self):
        for hop in (1e6, 1e12):
            short = costs(4096, 8, rates={"hop_bytes_per_s": hop})
            with mock.patch.object(Deal, "alike", False):
                whole = costs(4096, 8, rates={"hop_bytes_per_s": hop})
            self.assertAlmostEqual(short["seconds"], whole["seconds"], delta=1e-9 * whole["seconds"])
            self.assertAlmostEqual(short["waiting"], whole["waiting"], delta=1e-9)

    def test_layers_that_repeat_are_as_good_as_each(self):
        deal = Deal(3000, 4)
        layer = ring_costs.Layer(SMALL, deal, (1e9, 1e9), 0, range(4))
        for hop in (0, 1e-4, 1):
            times = [0.0] * 4
            for _ in range(9):
                times = layer.run(times, hop)
            for found, expected in zip(layer.repeat(9, [0.0] * 4, hop), times):
                self.assertAlmostEqual(found, expected, delta=1e-9 * expected)

    def test_one_rank_exchanges_nothing(self):
        for tokens in (100, 4096):
            one = costs(tokens, 1, rates={"hop_bytes_per_s": 1e-3, "hop_seconds": 1e6})
            self.assertEqual((one["hop_bytes"], one["sent_bytes"], one["hop_share"]), (0, 0, 0))
            self.assertAlmostEqual(one["waiting"], 0, delta=1e-12)
            flop = one["linear_flop"] + one["attention_flop"]
            self.assertAlmostEqual(one["seconds"], flop / 1e9, delta=1e-9 * one["seconds"])

    def test_time_is_work_or_hops(self):
        one, hidden = costs(8192, 1), costs(8192, 4, rates={"hop_bytes_per_s": 1e15, "hop_seconds": 0})
        self.assertAlmostEqual(hidden["seconds"], one["seconds"] / 4, delta=1e-9)
        self.assertAlmostEqual(hidden["waiting"], 0, delta=1e-9)
        slow = costs(8192, 4, rates={"hop_seconds": 100.0})
        self.assertAlmostEqual(slow["seconds"], 3 * SMALL.layers * 100, delta=0.01 * slow["seconds"])
        self.assertGreater(slow["waiting"], 0.99)

    def test_what_is_scored_alone_has_a_head_and_a_last_layer(self):
        every, some = costs(8192, 4), costs(8192, 4, scored=256)
        self.assertEqual(every["linear_flop"] - some["linear_flop"], 2 * (SMALL.finish + SMALL.hidden * SMALL.vocab) * (8192 - 256))
        self.assertEqual(every["attention_flop"] - some["attention_flop"], SMALL.pair_flops * (8192 - 256) * (8192 - 255) // 2)
        self.assertLess(some["seconds"], every["seconds"])
        self.assertGreater(some["waiting"], every["waiting"])  # one rank has all that is scored

    def test_more_of_anything_costs_more(self):
        tokens = [costs(n, 4) for n in (1000, 2000, 4096, 5000, 16384)]
        ranks = [costs(65536, n) for n in (2, 3, 4, 8, 16, 64, 128)]
        for less, more in zip(tokens, tokens[1:]):
            for what in ("seconds", "memory_bytes", "attention_flop", "linear_flop", "sent_bytes"):
                self.assertLess(less[what], more[what])
        for few, many in zip(ranks, ranks[1:]):
            for what in ("seconds", "hop_bytes", "memory_bytes", "rank_tokens"):
                self.assertGreater(few[what], many[what])
            self.assertLess(few["sent_bytes"], many["sent_bytes"])
            self.assertLess(few["hop_share"], many["hop_share"])
        links = [costs(65536, 16, rates={"hop_bytes_per_s": rate})["seconds"] for rate in (1e5, 1e6, 1e7)]
        self.assertEqual(links, sorted(links, reverse=True))
        self.assertEqual(costs(4096, 4, kv="float32")["hop_bytes"], 2 * costs(4096, 4, kv="bf16")["hop_bytes"])
        self.assertAlmostEqual(costs(4096, 4, cores=2)["seconds"], 2 * costs(4096, 4)["seconds"], delta=0.01)
        self.assertEqual(costs(4096, 2, cores=2), costs(4096, 2))

    def test_a_hop_is_hidden_from_there_on(self):
        for rates in ({"hop_bytes_per_s": 1e8, "hop_seconds": 0}, {"hop_bytes_per_s": 1e7, "hop_seconds": 1e-2}):
            least = ring_costs.hidden_from(SMALL, {**RATES, **rates}, "float32")
            for tokens in (64, 128, 256, 512, 1024, 2048, 4096):
                share = costs(8 * tokens * 2, 8, rates=rates)["hop_share"]  # 2 tokens of each rank are even
                self.assertEqual(share <= 1, 2 * tokens >= least, f"{tokens} {least} {share}")


class Shapes(unittest.TestCase):
    def test_weights_are_those_of_the_file(self):
        with open(ROOT / "models" / "model.safetensors", "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        sizes = [tensor["shape"] for name, tensor in header.items() if name != "__metadata__"]
        elements = sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in sizes)
        self.assertEqual(ring_costs.read_shape("embedded").weights, elements)

    def test_names_have_about_as_many_weights(self):
        for name, expected in (("135m", 134.5e6), ("8b", 8.03e9), ("70b", 70.6e9)):
            self.assertAlmostEqual(ring_costs.SHAPES[name].weights, expected, delta=0.002 * expected)

    @unittest.skipUnless(os.environ.get("ROPEWALK_TEST_DATA"), "ROPEWALK_TEST_DATA has the published configurations")
    def test_names_are_published_configurations(self):
        presets = pathlib.Path(os.environ["ROPEWALK_TEST_DATA"]) / "configs" / "presets"
        for name, file in (("135m", "smollm2_135m.json"), ("8b", "llama3_1_8b.json")):
            self.assertEqual(ring_costs.read_shape(str(presets / file)), ring_costs.SHAPES[name])

    def test_memory_is_its_parts(self):
        deal, floats = Deal(1000, 4), 4
        parts = costs(1000, 4)["memory"]
        self.assertEqual(deal.run_tokens, 128)  # the last run has 104 of them
        self.assertEqual(parts["residual"], 256 * 64 * floats)
        self.assertEqual(parts["queries"], 256 * 4 * 16 * floats)
        self.assertEqual(parts["sums"], 256 * 4 * (16 + 3) * floats)
        self.assertEqual(parts["keys"], 256 * 2 * (16 + 16) * floats)
        self.assertEqual(parts["coming"], parts["keys"])
        self.assertEqual(parts["angles"], 256 * 16 * floats)
        self.assertEqual(costs(1024, 1)["memory"]["keys"], 3 * 1024 * 2 * (16 + 16) * floats)


class Page(unittest.TestCase):
    def test_tables_are_what_the_tool_prints(self):
        text = PAGE.read_text(encoding="utf-8")
        shown = re.findall(r"^    tools/scale_model\.py (.*)\n\n((?:\|.*\n|\n(?=\|))+)", text, re.M)
        self.assertEqual(len(shown), 3, "commands with tables behind them")
        for arguments, tables in shown:
            result = subprocess.run(
                [sys.executable, TOOL, *shlex.split(arguments)], capture_output=True, text=True, cwd=ROOT
            )
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stdout.strip(), tables.strip(), f"docs/scale.md: {arguments}")


class Measured(unittest.TestCase):
    def check(self, rows):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.jsonl"
            file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            return tool("--check", file)

    def setUp(self):
        self.rows = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]

    def pick(self, ranks):
        return next(row for row in self.rows if row["ranks"] == ranks and row["method"] == "none")

    def test_constants_are_those_of_the_rows_beside_them(self):
        constants = json.loads(CONSTANTS.read_text(encoding="utf-8"))
        rows = constants["measured"]

        def rates(name):  # two lengths, two rates: seconds of a token = linear / F + attention / G
            shape = ring_costs.read_shape(name)
            linear = 2 * (shape.layers * (shape.encode + shape.finish) + shape.hidden * shape.vocab)
            (a, b), (s, t) = zip(*((shape.layers * shape.pair_flops * (row["tokens"] + 1) / 2, 1 / row["tokens_per_s"])
                                   for row in rows if row.get("shape") == name))  # fmt: skip
            attention = (b - a) / (t - s)
            return linear / (s - a / attention), attention

        attention = {row["head_dim"]: 1e9 * row["gflops"] for row in rows if row["bench"] == "attention"}
        hops = {row["bytes"]: row for row in rows if row["bench"] == "hop"}
        for found, expected in (
            (constants["linear_flops"]["192"], rates("embedded")[0]), (constants["attention_flops"]["32"], rates("embedded")[1]),
            (constants["linear_flops"]["576"], rates("135m")[0]), (constants["attention_flops"]["64"], attention[64]),
            (constants["attention_flops"]["128"], attention[128]), (constants["hop_bytes_per_s"], 1e9 * hops[1 << 26]["gb_per_s"]),
            (constants["hop_seconds"], 1e-6 * hops[64]["us"]),
        ):  # fmt: skip
            self.assertAlmostEqual(found, expected, delta=0.001 * expected)
        # What the benchmark of attention says is not far from what the whole model does.
        self.assertAlmostEqual(rates("135m")[1], attention[64], delta=0.05 * attention[64])

    def test_committed_rows_are_met(self):
        self.assertLessEqual({1, 2, 4}, {row["ranks"] for row in self.rows})
        result = tool("--check", ROWS)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_rows_that_are_far_off_are_named(self):
        for ranks, what, factor in ((2, "median_seconds", 1.3), (2, "peak_bytes", 1.2), (4, "sent_bytes", 1.03), (1, "peak_bytes", 0.8)):
            for row in self.rows:
                if row["ranks"] == ranks and row["method"] == "none":
                    row[what] *= factor
            result = self.check(self.rows)
            self.assertEqual(result.returncode, 1, what)
            self.assertIn(f"{ranks} ranks: ", result.stderr)
            self.setUp()

    def test_rows_that_cannot_be_compared_are_refused(self):
        two = self.pick(2)
        for rows in ([], [two], [{}], [3], [{**two, "ranks": 0}], [{**two, "shape": "9b"}]):
            result = self.check(rows)
            self.assertEqual((result.returncode, len(result.stderr.splitlines())), (2, 1), result.stderr)


class Refusals(unittest.TestCase):
    def test_bad_input_is_a_line_and_code_2(self):
        for bad in (
            ["--ranks", "0"], ["--ranks", "-1"], ["--ranks", "two"], ["--ranks", "8k"], ["--ranks", "9000"], ["--ranks", ""],
            ["--tokens", "0"], ["--tokens", "1e6"], ["--tokens", "4g"], ["--tokens", "999999m"], ["--tokens", "99999999999999999999"],
            ["--tokens", "512", "--ranks", "9"], ["--tokens", "64", "--ranks", "2"], ["--model", "9b"], ["--model", "."],
            ["--model", str(PAGE)], ["--scored", "11m"], ["--weight-bits", "0"], ["--cores", "0"], ["--linear-flops", "0"],
            ["--attention-flops", "-1"], ["--hop-bytes-per-s", "nan"], ["--hop-seconds", "-1"], ["--constants", str(PAGE)],
            ["--check", str(ROOT / "nothing")], ["--check", str(PAGE)], ["--model", "embedded", "--tokens", "1m", "--kv", "f16"],
        ):  # fmt: skip
            result = tool(*bad)
            self.assertEqual(result.returncode, 2, bad)
            self.assertEqual(result.stdout, "", bad)
            self.assertRegex(result.stderr, r"scale_model(\.py: error)?: .", bad)
            if "usage:" not in result.stderr:
                self.assertEqual(len(result.stderr.splitlines()), 1, bad)

    def test_models_of_other_shapes_are_refused(self):
        config = json.loads((ROOT / "models" / "config.json").read_text(encoding="utf-8"))
        for bad in ({"model_type": "gpt2"}, {"hidden_size": 0}, {"hidden_size": "64"}, {"num_attention_heads": 0}, {"head_dim": -1}):
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "config.json"
                file.write_text(json.dumps({**config, **bad}), encoding="utf-8")
                with self.assertRaises(Refused):
                    ring_costs.read_shape(str(file))
        with self.assertRaises(Refused):
            ring_costs.cache_bytes(SMALL, "q8_0", 64)


if __name__ == "__main__":
    unittest.main()
