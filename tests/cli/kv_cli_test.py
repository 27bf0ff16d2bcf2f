"""--kv, the type of the KV cache: of one cell, as an axis of the sweep, what goes on and what is refused."""

import json
import pathlib
import shutil

import support
from support import MODEL, run

TINY = ["--anchors", 3, "--protocol", "aligned:32", "--tasks", "perplexity", "--no-race"]


class KvCase(support.CliCase):
    def sweep(self, name, *more, model=MODEL):
        return ["sweep", model, "--text", self.text, "-o", self.folder / name, "--methods", "none,yarn,rerope",
                "--lengths", "256,512", *TINY, *more]

    def rows(self, name):
        lines = (self.folder / name / "results.jsonl").read_text().splitlines()[1:]
        return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


class OneCell(KvCase):
    def test_perplexity_names_the_type_and_how_keys_lie(self):
        cell = ["perplexity", MODEL, "--text", self.text, "--length", 512, "--anchors", 2, "--protocol", "aligned:32"]
        plain = self.json(*cell, "--method", "none", "--json")
        f32 = self.json(*cell, "--method", "none", "--kv", "f32", "--json")
        self.assertEqual({**plain, "seconds": 0}, {**f32, "seconds": 0})
        self.assertNotIn("kv", plain)
        for method, keys in (("none", "rotated"), ("rerope:64", "unrotated")):
            row = self.json(*cell, "--method", method, "--kv", "q8_0", "--json")
            self.assertEqual((row["kv"], row["kv_keys"]), ("q8_0", keys))
            self.assertNotEqual(row["identity"], plain["identity"])
        self.assertNotEqual(self.json(*cell, "--method", "none", "--kv", "bf16", "--json")["window_nll"],
                            plain["window_nll"])
        self.assertIn(b"KV cache       bf16, keys rotated", self.works(*cell, "--method", "none", "--kv", "bf16"))

    def test_the_other_commands_take_it_too(self):
        of = ["--length", 512, "--method", "none", "--kv", "q8_0", "--json"]
        self.assertEqual(self.json("passkey", MODEL, "--passkey-trials", 1, *of)["kv"], "q8_0")
        # The command kv is a task of JSON keys and values; --kv is not.
        self.assertEqual(self.json("kv", MODEL, "--questions", 4, *of)["kv"], "q8_0")
        self.assertEqual(self.json("ruler", MODEL, "--tasks", "vt", "--samples", 1, "--length", 1024, *of[2:])["kv"], "q8_0")
        keys = self.json("key-tokens", MODEL, "--text", self.text, "--length", 256, "--anchors", 1, "--short-context", 32,
                         "--method", "none", "--kv", "q8_0", "--json")
        self.assertEqual(keys["kv"], "q8_0")
        text = " ".join(self.works("kv", "--help").decode().split())
        self.assertIn("--kv is no part of the task", text)
        self.assertIn("(The task kv, of JSON keys and values, is something else.)", text)

    def test_bad_types_are_refused(self):
        cell = ["perplexity", MODEL, "--text", self.text, "--length", 256, "--method", "none"]
        self.fails(2, *cell, "--kv", "q8", says="--kv: q8 not in {f32,bf16,q8_0}")
        self.fails(2, *cell, "--kv", "f32,q8_0", says="--kv: this command computes one cell: give one type")
        self.fails(2, *self.sweep("s", "--engine", "torch", "--kv", "q8_0"), says="--engine torch")

    def test_a_head_that_no_block_holds(self):
        narrow = self.folder / "narrow"
        shutil.copytree(MODEL, narrow)
        path = pathlib.Path(narrow) / "config.json"
        config = json.loads(path.read_text())
        # 12 heads of 16 where there were 6 of 32: the same matrices
        config.update(num_attention_heads=12, num_key_value_heads=12, head_dim=16)
        path.write_text(json.dumps(config))
        says = "a KV cache of q8_0 holds blocks of 32 elements, and a head of this model has 16"
        self.fails(1, "perplexity", narrow, "--text", self.text, "--length", 256, "--method", "none", "--kv", "q8_0",
                   says=says)
        result = run(*self.sweep("s", "--kv", "f32,q8_0", model=narrow))
        self.assertEqual(result.returncode, 1)
        self.assertIn(says, result.stderr.decode())
        self.assertFalse((self.folder / "s" / "results.jsonl").exists())  # before anything was measured
        self.works("perplexity", narrow, "--text", self.text, "--length", 256, "--method", "none", "--kv", "bf16")


class Axis(KvCase):
    def test_a_folder_goes_on_with_other_types_and_f32_stays_as_it_is(self):
        self.works(*self.sweep("a"))
        before = self.rows("a")
        out = self.works(*self.sweep("a", "--kv", "f32,q8_0")).decode()
        after = self.rows("a")
        self.assertEqual(after[: len(before)], before)
        self.assertEqual([row.get("kv") for row in after[len(before):]], ["q8_0"] * len(before))
        flat = " ".join(out.split())
        self.assertIn("A KV cache of q8_0 in place of f32 changes the loss at 512 tokens by", flat)
        self.assertIn("Recommendations rest on f32.", flat)
        # The same at once, and the order of the names is nobody's business.
        self.works(*self.sweep("b", "--kv", "q8_0,f32"))
        order = lambda rows: sorted(rows, key=lambda r: r["identity"])  # noqa: E731
        self.assertEqual(order(self.rows("b")), order(after))
        said = run("sweep", MODEL, "--text", self.text, "--methods", "yarn", "--lengths", 512, *TINY,
                   "--kv", "f32,bf16,q8_0", "--dry-run").stderr.decode()
        self.assertEqual(said.count("the trained length, is added"), 1, said)  # not once a type
        plan = self.json(*self.sweep("b", "--kv", "f32,bf16,q8_0"), "--dry-run", "--json")
        self.assertEqual([c["finished"] for c in plan["cells"] if c.get("kv") != "bf16"], [True] * 12)
        self.assertEqual([c["finished"] for c in plan["cells"] if c.get("kv") == "bf16"], [False] * 6)
        report = self.json("report", self.folder / "b", "--json")["sweeps"][0]
        self.assertEqual(report["kv"]["types"], ["q8_0"])
        self.assertEqual(len(report["kv"]["costs"]), 6)
        self.assertEqual(len(report["cells"]), 6)
        self.assertIn("What the KV cache costs", (self.folder / "b" / "report.html").read_text())

    def test_memory_is_estimated_by_the_type(self):
        def memory(kv):
            return self.json(*self.sweep("m", "--kv", kv), "--dry-run", "--json")["memory_bytes"]

        # Keys and values of 4 layers, 6 heads of 32, 512 tokens.
        each = 512 * 2 * 4 * 6 * 32
        lanes = (memory("f32") - memory("bf16")) / (each * 2)
        self.assertEqual(lanes, int(lanes))
        self.assertEqual(memory("f32") - memory("q8_0"), lanes * each * (4 - 34 / 32))
        self.assertEqual(memory("f32,q8_0"), memory("f32"))


if __name__ == "__main__":
    support.main()
