"""ropewalk key-tokens: found once, kept in a file, scored under any method."""

import json
import math

import support
from support import MODEL
from model_case import ModelCase


class KeyTokens(ModelCase):
    def setUp(self):
        super().setUp()
        self.text.write_text(support.make_text(1500))
        self.spans = self.folder / "spans.json"
        self.command = ["key-tokens", MODEL, "--text", self.text, "--spans", self.spans, "--short-context", 16]

    def test_found_once_and_read_again(self):
        first = self.json(*self.command, "--json")
        self.assertEqual(first["protocol"], "longppl:16, step 4, documents of 256, lsd > 2, lcl > -2, BOS")
        self.assertEqual((first["length"], first["bos"], first["method"]), (256, False, "as-shipped"))
        self.assertGreater(first["key_tokens"], 0)
        self.assertEqual(first["scored_tokens"], 255 * first["windows"])
        self.assertAlmostEqual(first["longppl"], math.exp(first["key_nll"]))
        counts = first["window_keys"]
        self.assertEqual(sum(counts), first["key_tokens"])
        mean = sum(n * nll for n, nll in zip(counts, first["window_key_nll"]) if n) / sum(counts)
        self.assertAlmostEqual(mean, first["key_nll"])
        file = json.loads(self.spans.read_text())
        self.assertEqual((file["format"], file["version"]), ("ropewalk-key-tokens", 1))
        self.assertEqual(file["evaluator"], first["evaluator"])
        self.assertEqual(file["covered"], [[0, self.text.stat().st_size]])
        self.assertEqual(len(file["spans"]), first["spans"])
        self.assertGreater(first["evaluator_tokens"], 0)

        # The file is not computed again, and what it says does not depend on the method.
        before = self.spans.read_bytes()
        again = self.json(*self.command, "--json")
        self.assertEqual(again, {**first, "evaluator_tokens": 0})
        yarn = self.json(*self.command, "--json", "--length", 512, "--method", "yarn", "--bos")
        self.assertEqual(yarn["spans_hash"], first["spans_hash"])
        self.assertEqual((yarn["length"], yarn["factor"], yarn["bos"]), (512, 2, True))
        self.assertEqual(self.spans.read_bytes(), before)
        text = self.works(*self.command).decode()
        self.assertRegex(text, r"(?m)^LongPPL +\d+\.\d+ \(\d+\.\d+ nats per token, standard error")
        self.assertRegex(text, r"(?m)^spans +read from ")

    def test_a_text_without_long_context(self):
        self.text.write_text("And the king went.")
        short = self.works(*self.command).decode()
        self.assertIn("LongPPL        none: no key token is scored\n", short)
        self.assertRegex(short, r"(?m)^spans +written to ")
        self.assertEqual(self.works(*self.command).decode(), short.replace("written to", "read from"))

    def test_some_windows_need_no_others(self):
        part = self.json(*self.command, "--json", "--anchors", 2)
        self.assertEqual(part["windows"], 2)
        whole = self.json("key-tokens", MODEL, "--text", self.text, "--short-context", 16, "--json")
        self.assertEqual(part["window_keys"], whole["window_keys"][:2])
        self.assertLess(part["evaluator_tokens"], whole["evaluator_tokens"])
        self.fails(1, *self.command, says="only a part of the text was searched")

    def test_another_evaluator(self):
        gguf = self.folder / "model.gguf"
        self.works("convert", MODEL, "-o", gguf)
        # The same model in another file finds the same tokens.
        mine = self.json(*self.command, "--json")
        other = self.json(*self.command[:4], "--short-context", 16, "--evaluator", gguf, "--json")
        self.assertEqual(other["evaluator"]["name"], "model.gguf")
        self.assertEqual(other["window_keys"], mine["window_keys"])
        self.fails(1, *self.command, "--evaluator", gguf, says="found by the evaluator")

    def test_files_that_do_not_belong(self):
        self.works(*self.command)
        self.fails(1, *self.command[:-1], 32, says="found with a short context of 16 tokens")
        self.text.write_text(support.make_text(1506))
        self.fails(1, *self.command, says="key tokens of another text")
        self.spans.write_text('{"format": "ropewalk-key-tokens"')
        self.fails(1, *self.command, says="spans.json")
        self.assertEqual(self.spans.read_text(), '{"format": "ropewalk-key-tokens"')

    def test_usage(self):
        self.fails(2, "key-tokens", MODEL, says="--text")
        self.fails(2, *self.command, "--length", "128,256", says="one length")
        self.fails(2, *self.command, "--methods", "none,yarn", says="one method")
        self.fails(1, *self.command, "--length", "1m", says="too short")
        self.fails(1, *self.command[:-1], 256, says="has to be shorter than the trained length")
        self.fails(1, *self.command, "--evaluator", self.folder / "none", says="none")
        self.assertFalse(self.spans.exists())


if __name__ == "__main__":
    support.main()
