"""Models of the family ropewalk, by every command: docs/model-format.md. Their numbers are held in tests/model and by PyTorch."""

import json
import math
import pathlib
import struct

import support
from support import MODEL

SHORT = ["--anchors", 2, "--json"]


def with_tensors(source, target, tensors):
    """The safetensors file with more tensors in float32: name -> (shape, numbers)."""
    data = source.read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    for name, (shape, numbers) in tensors.items():
        more = struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(more)]}
        body += more
    text = json.dumps(header).encode()
    target.write_bytes(struct.pack("<Q", len(text)) + text + body)


class Family(support.CliCase):
    def make(self, positions, parameters=()):
        """The embedded model in this family, with parameters (name, shape, value) in the rotation of every layer."""
        source, folder = pathlib.Path(MODEL), self.folder / f"model-{len(list(self.folder.iterdir()))}"
        folder.mkdir()
        given = json.loads((source / "config.json").read_text())
        keys = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings",
                "bos_token_id")
        config = {"model_type": "ropewalk", **{key: given[key] for key in keys}, "positions": positions}
        (folder / "config.json").write_text(json.dumps(config))
        tensors = {f"model.layers.{layer}.self_attn.rotation.{name}": (shape, [value(i) for i in range(math.prod(shape))])
                   for layer in range(config["num_hidden_layers"]) for name, shape, value in parameters}
        with_tensors(source / "model.safetensors", folder / "model.safetensors", tensors)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).write_bytes((source / name).read_bytes())
        return folder

    def encoded(self):
        """PoPE with phases of 0, and FoPE that is RoPE of 10 frequencies."""
        config = json.loads((pathlib.Path(MODEL) / "config.json").read_text())
        heads, dim = config["num_key_value_heads"], config["head_dim"]
        one = lambda i: float(i % 11 == 0)  # noqa: E731  the diagonal of 10 rows
        return {
            "PoPE": self.make({"rotation": {"rope_type": "pope"}}, [("phase", [heads, dim], lambda i: 0.0)]),
            "FoPE": self.make({"rotation": {"rope_type": "fope", "frequencies": 10}},
                              [("cosines", [10, 10], one), ("sines", [10, 10], one)]),
        }

    def test_encoded_queries_and_keys_run_in_every_command(self):
        for name, model in self.encoded().items():
            with self.subTest(name):
                said = self.works("inspect", model).decode()
                self.assertIn(f"no rotation, queries and keys by {name}, base 10000", said)
                self.assertIn("encode queries and keys in the place of a rotation", said)
                self.assertNotIn("without positions", said)
                page = self.json("perplexity", model, "--text", self.text, "--length", 64, *SHORT)
                self.assertTrue(1 < page["perplexity"] < 1e6, page["perplexity"])
                self.assertEqual(self.json("passkey", model, "--length", 128, "--passkey-trials", 1, "--json")["tasks"][0]["prompts"], 1)
                out = self.folder / f"sweep-{name}"
                self.works("sweep", model, "--text", self.text, "--lengths", "64,128", "--methods", "none", "--anchors", 1,
                           "--tasks", "perplexity,passkey", "--passkey-trials", 1, "-o", out)
                header, *rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
                self.assertEqual(header["family"], "ropewalk")
                self.assertEqual({row["method"] for row in rows}, {"none"})

    def test_methods_beside_them_are_refused_before_anything_runs(self):
        for name, model in self.encoded().items():
            for method, says in (("yarn", "only the method none applies"), ("rerope", "layer that rotates"),
                                 ("mscale", "layer that rotates")):
                with self.subTest(f"{name} {method}"):
                    out = self.folder / f"refused-{name}-{method}"
                    self.fails(1, "sweep", model, "--text", self.text, "--lengths", "32,512", "--methods", f"none,{method}",
                               "--anchors", 1, "-o", out, says=says)
                    self.assertFalse((out / "results.jsonl").exists())
                    self.fails(1, "extend", model, "--method", method, "--factor", 4, "-o", self.folder / "x", says=says)
            # A temperature of the queries is defined for any of them.
            page = self.json("perplexity", model, "--text", self.text, "--length", 512, "--method", "log-n", *SHORT)
            self.assertTrue(1 < page["perplexity"] < 1e6)

    def test_fope_of_one_weight_a_pair_is_rope_of_its_frequencies(self):
        fope = self.encoded()["FoPE"]
        divisors = [1.0] * 10 + [1e9] * 6  # the others do not rotate
        rope = self.make({"rotation": {"rope_type": "explicit", "divisors": divisors}})
        ask = ["--text", self.text, "--length", 256, *SHORT]
        self.assertAlmostEqual(self.json("perplexity", fope, *ask)["mean_nll"],
                               self.json("perplexity", rope, *ask)["mean_nll"], delta=1e-4)

    def test_extend_writes_positions(self):
        model = self.make({"rotation": {"rope_theta": 10000.0, "xpos": {"scale_base": 100000}}, "bias": {"type": "alibi"}})
        plain = self.make({"rotation": {"rope_theta": 10000.0}})
        plan = ["--length", 1024, "--text", self.text, "--anchors", 1, "--dry-run", "--json"]
        for source, method, types in (
            (model, "linear", "linear"), (model, "ntk", "dynamic"), (model, "ntk-fixed", "ntk-fixed"), (model, "yarn", "yarn"),
            (model, "by-parts", "by-parts"), (model, "dynamic-yarn", "dynamic-yarn"), (model, "hope", "hope"),
            (plain, "rerope", "default"), (plain, "yarn+self-extend+log-n", "yarn"),
        ):
            with self.subTest(method):
                out = self.folder / f"extended-{method}"
                said = self.works("extend", source, "--method", method, "--factor", 4, "-o", out).decode()
                self.assertIn("read back, equal to the requested one", said)
                self.assertNotIn("vLLM", said)
                before, after = (json.loads((folder / "config.json").read_text()) for folder in (source, out))
                rotation = after["positions"]["rotation"]
                self.assertEqual(rotation["rope_type"], types)
                self.assertEqual("xpos" in rotation, source is model)
                self.assertEqual(before.pop("positions").get("bias"), after.pop("positions").get("bias"))
                self.assertEqual(before, after)
                self.assertEqual(self.json("perplexity", out, *plan)["plan_hash"],
                                 self.json("perplexity", source, *plan, "--method", method, "--factor", 4)["plan_hash"])

    def test_extend_refuses_what_does_not_go_together(self):
        model = self.make({"rotation": {"rope_theta": 10000.0, "values": True}})
        for method, more, says in (("rerope", [], "plan: layer 0: values are rotated with keys"),
                                   ("by-parts", ["--trained", 128], "no key for a trained length of 128")):
            message = self.fails(1, "extend", model, "--method", method, "--factor", 4, *more, "-o", self.folder / "x", says=says)
            self.assertNotIn("x/config.json", message)
            self.assertFalse((self.folder / "x").exists())

    def test_the_report_offers_its_own_config(self):
        model, out = self.make({"rotation": {"rope_theta": 10000.0}}), self.folder / "sweep"
        self.works("sweep", model, "--text", self.text, "--lengths", "256,512", "--methods", "none,ntk-fixed", "--factors", 4,
                   "--anchors", 2, "--tasks", "perplexity", "-o", out)
        settings = [setting for recommended in self.json("report", out, "--json")["sweeps"][0]["recommendations"]
                    for setting in recommended["settings"]]
        self.assertEqual({setting["engine"] for setting in settings}, {"ropewalk, in config.json"})
        for setting in settings:
            self.assertIn("positions", json.loads(setting["setting"]))

    def test_the_interleaved_layout_is_refused(self):
        model = self.make({"rotation": {"rope_theta": 10000.0}})
        self.fails(1, "convert", model, "--layout", "interleaved", "-o", self.folder / "x", says="half layout alone")
        self.assertFalse((self.folder / "x").exists())


if __name__ == "__main__":
    support.main()
