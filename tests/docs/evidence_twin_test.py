#!/usr/bin/env python3
"""scripts/evidence_twin_claims.py: verdicts follow from the rows of the twin."""

import math
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import evidence_twin_claims as claims  # noqa: E402

LENGTHS = (128, 256, 512, 1024)
HEADER = {
    "command": "x",
    "trained_length": 128,
    "training": {"steps": 10, "rows": 2, "masked": 0.4},
    "tuned_length": 512,
    "tuning": {"steps": [2, 5], "rows": 1, "rate": 0.005},
    "alpha": 0.4,
    "spans": 2,
    "scored_per_span": 4,
}
HOLDS = {  # in units of the pseudo-perplexity at 128 tokens
    ("hierarchical", 0): (1.0, 1.1, 1.2, 1.25),
    ("random", 0): (1.0, 1.5, 2.0, 2.5),
    ("hierarchical", 2): (1.0, 3.0, 3.0, 3.0),
    ("random", 2): (1.0, 2.0, 2.0, 2.0),
    ("hierarchical", 5): (0.9, 0.95, 1.0, 1.3),
    ("random", 5): (0.95, 1.0, 1.1, 2.0),
}


def rows(ratios):
    yield from ({"what": "unigram", "perplexity": 270.0}, {"what": "rows", "cosine_with_sinusoids": 0.9, "moved": 0.5})
    yield from ({"what": "alpha", "alpha": 0.1, "length": n, "pseudo_perplexity": 50.0} for n in LENGTHS)
    yield from ({"what": "blocks", "model": m, "tuning_steps": n, "pseudo_perplexities": [40.0] * 4} for m, n in ratios)
    for (model, steps), line in ratios.items():
        for length, ratio in zip(LENGTHS, line):
            numbers = {"length": length, "pseudo_perplexity": 40 * ratio, "mean_nll": math.log(40 * ratio), "standard_error": 0.1}
            yield {"what": "twin", "model": model, "tuning_steps": steps, **numbers}


class EvidenceOfTheTwin(unittest.TestCase):
    def verdicts(self, **changed):
        ratios = {key: changed.get(f"{key[0]}{key[1]}", line) for key, line in HOLDS.items()}
        lines, charts = claims.hierarchical(HEADER, list(rows(ratios)))
        self.assertEqual(list(charts), ["twin"])
        each = [s[3] for s in claims.statements(claims.Twin(HEADER, list(rows(ratios))))]
        return lines[2].partition("**Verdict: ")[2].rstrip("*."), each

    def test_all_hold(self):
        self.assertEqual(self.verdicts(), ("holds", ["holds"] * 5))

    def test_rows_within_the_table_may_not_change(self):
        whole, each = self.verdicts(random0=(1.001, 1.5, 2.0, 2.5))
        self.assertEqual((whole, each[0]), ("holds in part", "does not hold here"))

    def test_untuned_is_held_to_its_factor_at_each_length(self):
        self.assertEqual(self.verdicts(hierarchical0=(1.0, 1.1, 1.2, 1.26))[1][1], "holds in part")
        self.assertEqual(self.verdicts(hierarchical0=(1.0, 1.3, 1.4, 1.6))[1][1], "does not hold here")

    def test_untuned_is_compared_with_random_rows(self):
        self.assertEqual(self.verdicts(random0=(1.0, 1.05, 2.0, 2.5))[1][2], "holds in part")
        self.assertEqual(self.verdicts(random0=(1.0, 1.0, 1.0, 1.0))[1][2], "does not hold here")

    def test_tuned_is_held_to_the_trained_length_and_to_random_rows_up_to_its_length(self):
        self.assertEqual(self.verdicts(hierarchical5=(0.9, 0.95, 1.06, 1.3))[1][3:], ["holds in part", "holds"])
        self.assertEqual(self.verdicts(random5=(0.9, 0.9, 0.9, 0.9))[1][3:], ["holds", "does not hold here"])
        self.assertEqual(self.verdicts(hierarchical5=(0.9, 0.95, 1.0, 9.0))[0], "holds")

    def test_nothing_holds(self):
        bad = (1.0, 3.0, 3.0, 3.0)
        self.assertEqual(
            self.verdicts(hierarchical0=bad, hierarchical5=bad, random0=(1.1, 1.0, 1.0, 1.0))[0], "does not hold here"
        )

    def test_rows_that_lack_are_refused(self):
        with self.assertRaisesRegex(SystemExit, "expected each of"):
            claims.Twin(HEADER, list(rows(HOLDS))[:-1])


if __name__ == "__main__":
    unittest.main()
