#!/usr/bin/env python3
"""scripts/evidence.py: pages follow from rows, verdicts from numbers, and bad rows are refused."""

import copy
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import evidence  # noqa: E402
import evidence_claims  # noqa: E402


class Evidence(unittest.TestCase):
    def refused(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.jsonl"
            path.write_text(text, encoding="utf-8")
            with self.assertRaises(SystemExit) as caught:
                evidence.read(path)
            return str(caught.exception)

    def test_bad_rows_are_refused(self):
        header = '{"format": "ropewalk-evidence", "schema": 1, "command": "x"}\n'
        self.assertIn("rows.jsonl: expected a header and rows of JSON", self.refused(header + '{"what": '))
        self.assertIn("expected a header of format", self.refused('{"format": "other"}\n{"what": "order"}\n'))
        self.assertIn("with its command", self.refused('{"format": "ropewalk-evidence", "schema": 1}\n{"what": "order"}\n'))
        self.assertIn("expected rows with the key what", self.refused(header))
        self.assertIn("expected rows with the key what", self.refused(header + "{}\n"))

    def test_pages_are_what_the_rows_give(self):
        for path, text in evidence.pages().items():
            self.assertEqual(path.read_text(encoding="utf-8"), text, path.name)

    def test_another_number_is_another_verdict(self):
        _, rows = evidence.read(evidence.ROWS)
        text, _ = evidence_claims.padding(rows, "x")
        self.assertIn("**Verdict: holds.**", "\n".join(text))
        other = copy.deepcopy(rows)
        next(r for r in other if r.get("border") == "circular")["told_apart"] = 4
        self.assertIn("**Verdict: does not hold here.**", "\n".join(evidence_claims.padding(other, "x")[0]))

    def test_only_rounding_may_differ(self):
        _, rows = evidence.read(evidence.ROWS)
        now = copy.deepcopy(rows)
        self.assertEqual(list(evidence.differences(rows, now)), [])
        row = next(r for r in now if r.get("change", 0) > 0.1)
        row["change"] *= 1.0005
        self.assertEqual(list(evidence.differences(rows, now)), [])
        row["change"] *= 1.002
        self.assertEqual(len(list(evidence.differences(rows, now))), 1)
        self.assertIn("measured", next(evidence.differences(rows, now[:-1])))


if __name__ == "__main__":
    unittest.main()
