#!/usr/bin/env python3
"""scripts/evidence_tuning_claims.py: verdicts follow from curves, steps that are needed from lines between measured ones."""

import json
import math
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import evidence_tuning_claims as claims  # noqa: E402

OWN = 2.5  # of the model at the length that it was trained at
FALLING = {  # in units of the model's own perplexity at 0, 10, 20 and 40 steps; 1.25 is reached after 16, 34, 0, 0, 6 and 6
    "none": (4.0, 1.5, 1.1, 1.0),
    "linear": (5.0, 3.0, 2.0, 1.0),
    "ntk": (1.2, 1.1, 1.1, 1.0),
    "yarn": (1.1, 1.1, 1.0, 1.0),
    "base:500000": (1.5, 1.05, 1.0, 1.0),
    "base:bound": (1.5, 1.05, 1.0, 1.0),
}


def rows(ratios):
    for method, line in ratios.items():
        for step, ratio in zip((0, 10, 20, 40), line):
            losses = {"loss_1024": OWN, "loss_4096": OWN + math.log(ratio), "cpu_seconds": 2.0 * step}
            yield {"what": "tuning", "method": method, "rotation": {"rope_theta": 5e5}, "step": step, **losses}


class EvidenceOfTuning(unittest.TestCase):
    def verdicts(self, ratios):
        header = {"format": "ropewalk-evidence", "schema": 1, "command": "x", "trained_length": 1024, "length": 4096}
        header |= {"windows": 8, "scored": 512, "rows": 1, "rate": 1e-3}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.jsonl"
            path.write_text("\n".join(map(json.dumps, (header, *rows(ratios)))), encoding="utf-8")
            pages = [(lines[2].partition("**Verdict: ")[2], charts) for lines, charts in claims.tuning(path)]
        self.assertEqual([list(charts) for _, charts in pages], [["tuning"], [], ["larger-base"]])
        return [verdict for verdict, _ in pages]

    def test_verdicts(self):
        self.assertEqual(self.verdicts(FALLING), ["holds.**", "holds in part.**", "holds.**"])
        never = {**FALLING, "linear": (5.0, 3.0, 2.0, 1.3), "base:bound": (1.5, 1.5, 1.2, 1.1)}
        self.assertEqual(self.verdicts(never), ["holds in part.**", "holds in part.**", "holds in part.**"])
        whole = {name: (1.0, 1.0, 1.0, 1.0) for name in FALLING}
        self.assertEqual(self.verdicts(whole)[1:], ["does not hold here.**"] + ["holds in part.**"])
        slow = {**FALLING, "none": (4.0, 4.0, 4.0, 4.0)}
        self.assertEqual(self.verdicts(slow)[1], "holds.**")
        broken = {**FALLING, "base:500000": (2.0, 2.0, 2.0, 2.0), "base:bound": (2.0, 2.0, 2.0, 2.0)}
        self.assertEqual(self.verdicts(broken)[2], "does not hold here.**")

    def test_steps_that_are_needed(self):
        curves = claims.Curves(list(rows(FALLING)))
        between = 10 + 10 * math.log(1.5 / 1.25) / math.log(1.5 / 1.1)  # losses are straight, not perplexities
        self.assertAlmostEqual(curves.needed("none"), between)
        self.assertEqual(curves.words("none"), str(math.ceil(between)))
        self.assertEqual(curves.words("ntk"), "0")
        self.assertEqual(claims.Curves(list(rows({**FALLING, "ntk": (2, 2, 2, 2)}))).words("ntk"), "> 40")

    def test_a_method_may_go_further(self):
        more = [*rows(FALLING), {**list(rows(FALLING))[7], "step": 80}]
        table = claims.Curves(more).perplexities(["none", "linear"], 4096)
        self.assertEqual(table[0], "| rotation | untuned | 10 steps | 20 steps | 40 steps | 80 steps |")
        self.assertTrue(table[2].endswith(f" {math.exp(OWN):.2f} | – |") and "–" not in table[3], table)

    def test_rows_without_a_start_are_refused(self):
        every = list(rows(FALLING))
        for cut in ([r for r in every if r["method"] != "yarn"], every[1:], every[::-1]):
            with self.assertRaises(SystemExit) as caught:
                claims.Curves(cut)
            self.assertIn("expected them in order, from 0 on", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
