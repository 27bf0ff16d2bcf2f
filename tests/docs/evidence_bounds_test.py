#!/usr/bin/env python3
"""The claim of docs/evidence on the base that a length needs: its verdicts follow from the rows."""

import contextlib
import copy
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import evidence  # noqa: E402
import evidence_bounds_claim as claim  # noqa: E402


class Bounds(unittest.TestCase):
    def setUp(self):
        _, rows = evidence.read(evidence.BOUNDS)
        self.rows = copy.deepcopy(rows)

    def verdict(self, stated):
        (found,) = [s[3] for s in claim.statements(self.rows) if s[0] == stated]
        return found

    def row(self, what, **values):
        return next(r for r in self.rows if r["what"] == what and all(r[k] == v for k, v in values.items()))

    def test_a_bound_that_falls_is_seen(self):
        self.assertEqual(self.verdict(claim.TITLE.replace("text", "window")), "holds")
        self.row("bound", length=8192)["base"] = 9000.0
        self.assertEqual(self.verdict(claim.TITLE.replace("text", "window")), "holds in part")

    def test_printed_bases_are_held_to_five_percent(self):
        self.assertEqual(self.verdict("The same, searched more finely"), "holds")
        self.row("bound", length=2048)["su"] = 12500.0
        self.assertEqual(self.verdict("The same, searched more finely"), "holds in part")
        for row in claim.of(self.rows, "bound"):
            row["su"] = 2 * row["base"]
        self.assertEqual(self.verdict("The same, searched more finely"), "does not hold here")

    def test_the_critical_dimension_is_held_to_the_unit(self):
        stated = "LLaMA 2 has completed a turn in 92 of 128 dimensions"
        self.assertEqual(self.verdict(stated), "holds")
        self.row("critical")["dimensions"] = 90
        self.assertEqual(self.verdict(stated), "does not hold here")

    def test_models_of_windows_do_not_count_as_short(self):
        stated = "Models of longer windows have larger bases"
        self.assertEqual(self.verdict(stated), "holds")
        for row in claim.of(self.rows, "model"):
            row["base"] = 10000.0
        self.assertEqual(self.verdict(stated), "holds in part")

    def test_what_a_base_does_for_a_model(self):
        row = dict(supports=100, reach=100, rotary_dim=64, head_dim=64, base=10.0, bound=20.0)
        self.assertEqual(claim.meets(row), "yes")
        self.assertEqual(claim.meets({**row, "reach": 101}), "no")
        self.assertEqual(claim.meets({**row, "reach": 101, "bound": None}), "no")
        self.assertEqual(claim.meets({**row, "reach": 101, "base": 20.0}), "base yes, length no")
        self.assertEqual(claim.meets({**row, "reach": 101, "rotary_dim": 32}), "with the whole head")
        self.assertEqual(claim.meets({**row, "reach": 101, "rotary_dim": 34}), "no")

    def measured_without_models(self, data):
        rest = [line for line in evidence.BOUNDS.read_text(encoding="utf-8").splitlines(True) if '"what": "model"' not in line]
        done = subprocess.CompletedProcess([], 0, stdout="".join(rest))
        with (
            tempfile.TemporaryDirectory() as build,
            mock.patch.object(evidence.subprocess, "run", return_value=done),
            mock.patch.dict(os.environ, {"ROPEWALK_TEST_DATA": data}),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            return evidence.measured("evidence_bounds.py", pathlib.Path(build), evidence.BOUNDS, False)

    def test_models_may_lack_only_without_their_configs(self):
        self.assertEqual(self.measured_without_models(""), [])
        self.assertIn("rows committed", self.measured_without_models("folder")[0])


if __name__ == "__main__":
    unittest.main()
