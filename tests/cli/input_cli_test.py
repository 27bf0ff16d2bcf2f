"""What the user types: texts, lengths, names and numbers, and what is said where they are wrong."""

import json
import os
import re

import support
from support import MODEL, SOURCE, make_text, run

TRAINED = 256


class Input(support.CliCase):
    def says(self, *arguments, **more):
        """stdout and stderr of a command that succeeds."""
        result = run(*arguments, **more)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return result.stdout, result.stderr.decode()

    # ---- text

    def commands(self, text):
        """Every command that reads a text, on `text`."""
        yield ["tokenize", MODEL, "--text", text]
        yield ["perplexity", MODEL, "--text", text, "--length", 128, "--anchors", 1]
        yield ["passkey", MODEL, "--text", text, "--passkey-filler", "text", "--length", 128, "--passkey-trials", 1]
        yield ["inspect", MODEL, "--text", text, "--length", 64]
        yield ["sweep", MODEL, "--text", text, "-o", self.folder / "out", "--lengths", 128,
               "--methods", "none", "--anchors", 1, "--tasks", "perplexity", "--dry-run"]
        bert = SOURCE / "tests/golden/hf_encoders/bert_hierarchical"
        if (bert / "tokenizer.json").exists():
            yield ["embed", bert, "--text", text]

    def test_text_that_is_not_utf8_is_refused(self):
        bad = self.folder / "bad.txt"
        words = make_text(3000)
        for encoding, says in (("utf-16", "byte 0 says UTF-16"), ("utf-32", "byte 0 says UTF-32"),
                               ("utf-16-le", "byte 1 is 0x00"), ("utf-16-be", "byte 0 is 0x00")):
            bad.write_bytes(words.encode(encoding))
            for command in self.commands(bad):
                message = self.fails(1, *command, says=f"{bad}: expected UTF-8, ")
                self.assertIn(says, message)
                self.assertIn("iconv -f UTF-", message)
        bad.write_bytes(words.replace("king", "k\u00f6nig").encode("latin-1"))
        at = words.replace("king", "k\u00f6nig").index("\u00f6")
        self.fails(1, "tokenize", MODEL, "--text", bad, says=f"byte {at} is 0xF6")
        bad.write_bytes(bytes((i * i * 7 + i // 3) % 256 for i in range(20000)))
        self.fails(1, "perplexity", MODEL, "--text", bad, "--length", 128, says="more than 1 in 1000")
        with open(bad, "rb") as stdin:
            self.fails(1, "tokenize", MODEL, stdin=stdin, says="standard input: expected UTF-8")
        self.fails(1, "generate", MODEL, "--prompt", os.fsdecode(b"caf\xe9"),
                   says="--prompt: expected UTF-8, byte 3")
        self.assertFalse((self.folder / "out").exists())

    def test_a_byte_order_mark_is_left_out(self):
        plain = [self.works(*c) for c in self.commands(self.text)]
        marked = self.folder / "marked.txt"
        marked.write_bytes(b"\xef\xbb\xbf" + self.text.read_bytes())
        for command, expected in zip(self.commands(marked), plain):
            out, said = self.says(*command)
            self.assertIn(f"ropewalk: {marked}: the byte-order mark in front is left out\n", said)
            if command[0] == "tokenize":
                self.assertEqual(out, expected)
        cells = [self.json("perplexity", MODEL, "--text", text, "--length", 128, "--anchors", 1, "--json")
                 for text in (self.text, marked)]
        self.assertEqual(cells[0]["text_hash"], cells[1]["text_hash"])
        self.assertEqual(cells[0]["bits_per_byte"], cells[1]["bits_per_byte"])
        story = ["generate", MODEL, "--max-tokens", 3, "--prompt"]
        self.assertEqual(self.says(*story, "\ufeffAnd the")[0], self.says(*story, "And the")[0])

    def test_a_few_bad_bytes_are_said(self):
        text = self.text.read_bytes()
        self.assertEqual(len(text) // 10000, 1)  # two bytes in ten thousand
        self.text.write_bytes(text[:5000] + b"\xe9" + text[5000:] + b"\xe2\x82")
        for command in self.commands(self.text):
            said = self.says(*command)[1]
            self.assertIn(f"ropewalk: {self.text}: 3 of {len(text) + 3} bytes are NUL or no UTF-8 "
                          "(the first: byte 5000 is 0xE9)", said)

    # ---- names

    def test_unknown_commands_and_options(self):
        for typed, meant in (("sweeep", "sweep"), ("perplexty", "perplexity"), ("Inspect", "inspect")):
            self.fails(2, typed, MODEL, says=f'unknown command "{typed}" (did you mean "{meant}"?)')
        message = self.fails(2, "frobnicate", says='unknown command "frobnicate", expected one of ')
        listed = message.split("expected one of ")[1].split(" (")[0].split(", ")
        for command in listed:
            self.works(command, "--help")
        self.assertIn("sweep", listed)
        self.fails(2, "inspect", MODEL, "--lenght", 5, says='unknown option --lenght (did you mean "--lengths"?)')
        self.fails(2, "inspect", MODEL, "--lenght=5", says='unknown option --lenght (did you mean "--lengths"?)')
        self.assertNotIn("did you mean", self.fails(2, "inspect", MODEL, "--frobnicate",
                                                    says="unknown option --frobnicate "))
        self.fails(2, "inspect", MODEL, "more", says="not expected: more")
        self.fails(2, says="A subcommand is required")

    def test_unknown_methods(self):
        one = ["perplexity", MODEL, "--text", self.text, "--length", 512, "--method"]
        self.fails(2, *one, "yarm", says='got "yarm" (did you mean "yarn"?)')
        self.fails(2, *one, "self-extnd:8", says='(did you mean "self-extend"?)')
        self.fails(2, *one, "ntk+logn", says='got "logn" (did you mean "log-n"?)')
        self.fails(2, *one, "as-shiped", says='(did you mean "as-shipped"?)')
        self.assertNotIn("did you mean", self.fails(2, *one, "frobnicate", says="expected one of none"))

    def test_lists_that_hold_nothing(self):
        sweep = ["sweep", MODEL, "--text", self.text, "-o", self.folder / "out"]
        for empty in (["--methods", ","], ["--method=,,"], ["--factors", ","], ["--lengths", ","]):
            self.fails(2, *sweep, *empty, "--anchors", 2, says=f"{empty[0].split('=')[0]}: expected ")

    def test_trained_encodings_cannot_be_swapped(self):
        """Every encoding that has a page and is no method."""
        pages = {path.stem for folder in ("relative", "absolute")
                 for path in (SOURCE / "docs" / folder / "methods").glob("*.md")}
        maps = {"dual-chunk", "rerope", "self-extend", "sinks", "string", "lampe", "dpe"}
        self.assertLessEqual(maps, pages)
        trained = pages - maps - {"hierarchical"} | {"xpos", "nope"}  # hierarchical: ropewalk embed
        self.assertGreater(len(trained), 20)
        for name in sorted(trained) + ["ALiBi", "transformer_xl"]:
            self.fails(2, "sweep", MODEL, "--text", self.text, "-o", self.folder / "out", "--methods",
                       f"none,{name}", says=f'"{name}", which is trained with the model: it cannot be swapped')

    def test_allow_unknown_is_named(self):
        config = json.loads((SOURCE / "models/config.json").read_text())
        config["rotary_frobnication"] = 3
        path = self.folder / "config.json"
        path.write_text(json.dumps(config))
        self.fails(1, "inspect", path, says="--allow-unknown")
        self.works("inspect", path, "--allow-unknown")
        self.fails(1, "inspect", MODEL, "--rope-scaling", '{"rope_type": "linear", "factor": 2, "x": 1}',
                   says="--allow-unknown")

    # ---- numbers

    def test_lengths(self):
        one = ["inspect", MODEL, "--json", "--length"]
        for text, tokens in (("8k", 8192), ("8K", 8192), ("1m", 2**20), ("1M", 2**20), ("77", 77)):
            self.assertEqual(self.json(*one, text)["positions"]["length"], tokens)
        for text in ("1.5k", "0", "-5", "1g", "k", "", "8kk", "8 k", "1025m", "1048577k", "1073741825",
                     "99999999999999999999"):
            message = self.fails(2, *one, text, says=f"got '{text}'")
            self.assertIn("1073741824 (2^30)", message)
        self.assertEqual(self.json(*one, "512", "--trained", "1k")["positions"]["length"], 512)

    def test_numbers_that_cannot_be_negative(self):
        t = ["perplexity", MODEL, "--text", self.text, "--length", 128]
        for seed in ("-1", "1.5", "x", "18446744073709551616"):
            self.fails(2, *t, "--seed=" + seed, says=f"'{seed}'")
        self.assertEqual(self.json(*t, "--seed", 2**64 - 1, "--anchors", 1, "--json")["seed"], 2**64 - 1)
        for option in ("--anchors", "--threads"):
            self.fails(2, *t, option, -1, says="--")
        self.fails(2, "passkey", MODEL, "--length", 128, "--passkey-trials", -1, says="--passkey-trials")
        self.fails(2, "generate", MODEL, "--prompt", "And", "--max-tokens", -1, says="--max-tokens")
        for option in ("--head-dim", "--rotary-dim"):
            for value in (-1, 0):
                self.fails(2, "convert", MODEL, "--layout", "interleaved", option, value, "-o",
                           self.folder / "out", says=option)

    def test_a_factor_of_one_is_said(self):
        t = ["perplexity", MODEL, "--text", self.text, "--anchors", 1, "--length"]
        none = self.json(*t, 128, "--method", "none", "--json")
        for length in (128, TRAINED):
            said = self.says(*t, length, "--method", "yarn")[1]
            self.assertIn(f"yarn has factor 1, which is no scaling, because {length} tokens are within the trained "
                          f"{TRAINED}; give --factor", said)
        yarn = self.json(*t, 128, "--method", "yarn", "--json")
        self.assertEqual(yarn["plan_hash"], none["plan_hash"])
        for more in ([512, "--method", "yarn"], [128, "--method", "yarn", "--factor", 4],
                     [128, "--method", "yarn", "--factor", 1], [128, "--method", "none"], [128],
                     [128, "--method", "rerope"], [128, "--method", "yarn:factor=2"]):
            self.assertNotRegex(self.says(*t, *more)[1], re.compile("factor 1"))


if __name__ == "__main__":
    support.main()
