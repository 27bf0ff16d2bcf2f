#!/usr/bin/env python3
"""scripts/zoo.py and the claims of its rows: the page follows from the rows, verdicts from numbers, and bad rows are refused."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import evidence_zoo_claims as claims  # noqa: E402
import zoo  # noqa: E402
import zoo_page  # noqa: E402

LENGTHS = (256, 512, 1024, 2048)


def row(entry, seed, perplexities, passkeys=(1.0, 1.0, 1.0, 1.0), methods=("none",)):
    cells = [
        {"method": m, "length": n, "perplexity": p, "passkey": k, "entropy": 2.0, "questions": 50}
        for m in methods
        for n, p, k in zip(LENGTHS, perplexities, passkeys)
    ]
    return {"entry": entry, "seed": seed, "steps": 900, "train_seconds": 300, "refused": None, "cells": cells}


def rows():
    return [
        row("rope", 1, (30.0, 40.0, 60.0, 90.0)),
        row("rope", 2, (31.0, 42.0, 60.0, 94.0)),
        row("alibi", 1, (25.0, 25.0, 25.0, 25.0), (0.9, 0.4, 0.1, 0.0)),
        row("alibi-learned", 1, (25.1, 25.0, 25.0, 25.0)),
        row("sinusoidal", 1, (35.0, 90.0, 200.0, 400.0)),
        row("t5", 1, (26.0, 27.0, 28.0, 30.0)),
        {**row("learned", 1, (33.0,), (1.0,)), "refused": "there are learned vectors for 256 positions"},
    ]


def verdict(stated, start):
    return next(s[3] for s in stated if s[0].startswith(start))


class Page(unittest.TestCase):
    def test_bad_rows_are_refused(self):
        for text, message in (("{", "expected a header and rows"), ('{"format": "other"}\n', "format ropewalk-zoo")):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "rows.jsonl"
                path.write_text(text, encoding="utf-8")
                with self.assertRaises(SystemExit) as caught:
                    zoo_page.read(path)
                self.assertIn(message, str(caught.exception))

    def test_the_page_is_what_the_rows_give(self):
        self.assertEqual(zoo.PAGE.read_text(encoding="utf-8"), zoo_page.page())

    def test_models_are_in_the_order_of_the_longest_length(self):
        self.assertEqual(list(zoo_page.entries(rows())), ["alibi", "alibi-learned", "t5", "rope", "sinusoidal", "learned"])

    def test_spread_is_half_of_the_distance_between_seeds(self):
        self.assertEqual(zoo_page.mean_and_spread([30.0, 31.0, 33.0], 1), "31.3 ± 1.5")
        self.assertEqual(zoo_page.mean_and_spread([30.04], 1), "30.0")
        self.assertEqual(zoo_page.mean_and_spread([30.0, None], 1), "–")

    def test_a_refused_position_is_told_from_other_errors(self):
        for text in (
            "ropewalk: error: length 512: position 511 has no learned vector: there are learned vectors for 256 positions, 0 to 255",
            "ropewalk: error: TUPE: the model has vectors for 256 positions, and the sequence is to have 512 tokens; give fewer",
            "ropewalk: error: length 512: position 511 has no row: multiplicative(rows 256) has 256 positions, 0 to 255",
        ):
            self.assertIn("256 positions", zoo.NO_ROW.search("[1/4] none at 256\n" + text)[1])
        self.assertIsNone(zoo.NO_ROW.search("ropewalk: error: model.safetensors: missing tensor"))

    def test_verdicts_follow_from_numbers(self):
        stated = list(claims.extrapolation(claims.Zoo(rows())))
        self.assertEqual(verdict(stated, "ALiBi keeps"), "holds")
        self.assertEqual(verdict(stated, "ALiBi extrapolates better"), "holds")
        self.assertEqual(verdict(stated, "In this order"), "holds")
        self.assertEqual(verdict(stated, "A table of rows"), "holds")
        self.assertEqual(verdict(stated, "Learned slopes"), "holds")
        self.assertEqual(verdict(stated, "Perplexity far out"), "holds")
        other = [row("alibi", 1, (25.0, 26.0, 50.0, 120.0)) if r["entry"] == "alibi" else r for r in rows()]
        stated = list(claims.extrapolation(claims.Zoo(other)))
        self.assertEqual(verdict(stated, "ALiBi keeps"), "does not hold here")
        self.assertEqual(verdict(stated, "In this order"), "holds in part")
        self.assertEqual(verdict(stated, "ALiBi extrapolates better"), "does not hold here")
        worse = [row("alibi", 1, (80.0, 85.0, 90.0, 100.0)) if r["entry"] == "alibi" else r for r in rows()]
        stated = list(claims.extrapolation(claims.Zoo(worse)))
        self.assertEqual(verdict(stated, "ALiBi extrapolates better"), "holds in part")

    def test_statements_without_their_models_are_left_out(self):
        stated = list(claims.extrapolation(claims.Zoo([r for r in rows() if r["entry"] == "alibi"])))
        self.assertEqual([s[0] for s in stated], ["Perplexity far out says little: local attention is enough for it"])
        self.assertIsNone(claims.temperatures(rows()))

    def test_log_n_afterwards_and_from_the_start(self):
        of = [row("rope", 1, (30.0, 40.0, 60.0, 90.0), methods=("none", "log-n")), row("rope+log-n", 1, (30.0, 35.0, 50.0, 70.0))]
        text, _ = claims.temperatures(of)
        self.assertIn("perplexity grows 2.33 times, 3.00 where it is added, 3.00 without", "\n".join(text))


if __name__ == "__main__":
    unittest.main()
