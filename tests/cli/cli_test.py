"""The program from outside: exit codes, JSON, files, interruption."""

import json
import math
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import time

import support
from support import MODEL, PROGRAM, SOURCE, WHOLE_MODEL, make_text, run

HAVE_CUDA = os.environ.get("ROPEWALK_HAVE_CUDA") == "1"
TRAINED = 256
# Length-dependent methods that neither config.json nor GGUF can hold. HoPE's pairs with frequency 0
# have a form in GGUF and none in config.json; dynamic NTK is the other way round.
FOLLOWS_LENGTH = {"dynamic-linear", "qwen", "dynamic-yarn"}
# What attention does with positions has a place in neither.
ATTENTION = {"rerope", "leaky-rerope", "self-extend", "dual-chunk", "sinks", "string", "lampe", "dpe", "log-n", "mscale"}
FOLDER_REFUSES = FOLLOWS_LENGTH | {"hope"} | ATTENTION
GGUF_REFUSES = FOLLOWS_LENGTH | {"dynamic"} | ATTENTION


class Cli(support.CliCase):
    def sweep(self, name, *more):
        return ["sweep", MODEL, "--text", self.text, "-o", self.folder / name, "--anchors", 4,
                "--passkey-trials", 1, *more]

    def rows(self, name):
        """Header and rows, without what may differ from run to run."""
        lines = (self.folder / name / "results.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        rows[0].pop("command")
        for row in rows[1:]:
            row.pop("seconds")
        return rows

    # ---- exit codes and messages

    def test_help_and_version(self):
        self.assertRegex(self.works("--version").decode(), r"^ropewalk \d+\.\d+\.\d+\n$")
        self.assertIn("Examples:", self.works("--help").decode())
        for command in ("inspect", "sweep", "perplexity", "passkey", "prompts", "generate", "tokenize", "embed",
                        "extend", "convert",
                        "report", "info"):
            self.assertIn(command, self.works("--help").decode())
            self.works(command, "--help")

    def test_wrong_usage_is_2(self):
        self.fails(2)
        self.fails(2, "frobnicate")
        self.fails(2, "inspect")
        self.fails(2, "inspect", MODEL, "--frobnicate")
        t = ["perplexity", MODEL, "--text", self.text]
        self.fails(2, *t, says="--length")
        self.fails(2, *t, "--length", "256,512", "--dry-run", says="one length")
        self.fails(2, *t, "--length", "long", says="'long'")
        self.fails(2, *t, "--length", "0", says="'0'")
        self.fails(2, *t, "--length", "99999999999999999999")
        self.fails(2, *t, "--length", 256, "--protocol", "aligned:x", says="aligned:K")
        self.fails(2, *t, "--length", 256, "--protocol", "sliding", says="sliding:STRIDE")
        self.fails(2, *t, "--length", 256, "--method", "bogus", says="as-shipped")
        self.fails(2, *t, "--length", 256, "--angles", "wrong")
        self.fails(2, *t, "--length", 256, "--compute", "fp8", says="{float32,bf16}")
        self.fails(2, *t, "--length", 256, "--threads", 0)
        self.fails(2, *t, "--length", 256, "--anchors", 0)
        self.fails(2, *t, "--length", 256, "--methods", "none,yarn", says="one method")
        self.fails(2, "perplexity", MODEL, "--length", 256, says="--ids")
        self.fails(2, *t, "--ids", self.text, "--length", 256, says="one of the two")

    def test_failures_are_1(self):
        t = ["perplexity", MODEL, "--text", self.text, "--length"]
        self.fails(1, "inspect", self.folder / "nothing", says="nothing")
        self.fails(1, "inspect", self.folder, says="config.json")
        self.fails(1, "perplexity", MODEL, "--text", self.folder / "no.txt", "--length", 256,
                   says="no.txt")
        self.fails(1, "perplexity", MODEL, "--text", self.folder, "--length", 256, says="folder")
        empty = self.folder / "empty.txt"
        empty.write_text("")
        self.fails(1, "perplexity", MODEL, "--text", empty, "--length", 256, says="empty")
        message = self.fails(1, *t, 1 << 20, says="too short")
        self.assertRegex(message, r"needs \d+ tokens, the text has \d+")
        self.fails(1, *t, 64, "--protocol", "aligned:64", says="aligned:32")
        self.fails(1, *t, 512, "--method", "yarn", "--factor", 0.5)
        self.fails(1, *t, 512, "--rope-scaling", '{"rope_type":"yarn","factr":2}')
        self.fails(1, *t, 512, "--rope-scaling", "{", says="--rope-scaling")
        self.fails(1, "passkey", MODEL, "--length", 20, says="at least")
        ids = self.folder / "ids.json"
        for bad in ("", "{}", "[]", "[1.5]", "[-1]", "[99999999999]", "[" * 100000):
            ids.write_text(bad)
            self.fails(1, "perplexity", MODEL, "--ids", ids, "--length", 256, says="JSON array")
        ids.write_text(json.dumps([5] * 600 + [1024] + [5] * 600))
        self.fails(1, "perplexity", MODEL, "--ids", ids, "--length", 1100, "--anchors", 1,
                   "--protocol", "windows", says="1024")
        self.fails(1, "report", self.folder / "nothing")

    def test_output_that_cannot_be_written_is_1(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([PROGRAM, "info"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"ropewalk: error: cannot write to stdout", result.stderr)
        self.fails(1, "perplexity", MODEL, "--text", self.text, "--length", 256, "--per-token",
                   self.folder / "no/file", says="--per-token")

    # ---- commands

    def test_info_and_inspect(self):
        info = self.json("info", "--json", "--threads", 1)
        self.assertEqual(info["threads"], 1)
        self.assertIn("onednn", info["libraries"])
        text = self.works("info").decode()
        cuda = info["cuda"]
        if HAVE_CUDA:
            self.assertRegex(cuda["toolkit"], r"^\d+\.\d+$")
            self.assertIn("sm_", cuda["targets"])
            self.assertIn(f"cuda          {cuda['toolkit']} for {cuda['targets']}", text)
        else:
            self.assertIsNone(cuda["toolkit"])
            self.assertIn("ROPEWALK_CUDA=ON", cuda["why_none"])
            self.assertIn("cuda          none\n", text)
        if cuda["devices"]:
            self.assertIsNone(cuda["why_none"])
            for device in cuda["devices"]:
                self.assertIn(f"{device['name']}: compute capability {device['compute_capability']}", text)
        else:  # what was found, and what to do
            self.assertRegex(cuda["why_none"], "; (build with|install|update|see) |the CUDA runtime says|none of which")
            self.assertIn("no GPU: " + cuda["why_none"], text)
        model = self.json("inspect", MODEL, "--json")
        self.assertEqual(model["trained_length"], TRAINED)
        self.assertEqual(len(model["model_hash"]), 32)
        self.assertIn(model["plan_hash"], self.works("inspect", MODEL).decode())
        # A configuration alone, and a folder without weights or tokenizer.
        config = self.folder / "config.json"
        shutil.copy(pathlib.Path(MODEL) / "config.json", config)
        for path in (config, self.folder):
            alone = self.json("inspect", path, "--json")
            self.assertEqual(alone["plan_hash"], model["plan_hash"])
            self.assertEqual(alone["model_hash"], "")
            self.assertIn("no tokenizer", " ".join(alone["unusual"]))

    def test_inspect_positions(self):
        at = self.json("inspect", MODEL, "--json", "--length", 1024)["positions"]
        self.assertEqual((at["length"], at["trained_length"]), (1024, TRAINED))
        rotation = at["rotations"][0]
        self.assertEqual(len(rotation["pairs"]), rotation["rotary_dim"] // 2)
        # The formulas, typed again.
        base, dim = rotation["base"], rotation["rotary_dim"]
        for row in rotation["pairs"]:
            f = base ** (-2 * row["pair"] / dim)
            self.assertAlmostEqual(row["frequency"] / f, 1, 12)
            self.assertAlmostEqual(row["wavelength"] * f / (2 * math.pi), 1, 12)
            self.assertAlmostEqual(row["target_rotations"], 1024 * f / (2 * math.pi), 9)
        critical = 2 * math.ceil(dim / 2 * math.log(TRAINED / (2 * math.pi), base))
        self.assertEqual(rotation["critical_dimension"], critical)
        self.assertEqual([e["engine"] for e in rotation["engines"]], ["hf", "vllm", "llamacpp"])
        self.assertTrue(all(e["same"] for e in rotation["engines"]))
        ids = {w["id"] for w in at["warnings"]}
        self.assertLessEqual({"unseen-angles", "past-configured"}, ids)
        self.assertEqual(at["frequency_use"], None)
        methods = [d["method"] for d in at["decay"]]
        self.assertEqual(methods[:2], ["as shipped", "none"])
        self.assertIn("yarn", methods)
        for line in at["decay"]:
            self.assertEqual(line["points"][0]["expected"], 1)
        text = self.works("inspect", MODEL, "--length", 1024).decode()
        for word in ("critical dimension", "llama.cpp", "Warnings", "Float32", "unseen-angles"):
            self.assertIn(word, text)
        # The bases that are printed pass their own criterion.
        printed = re.findall(r"(?:found: |; )([0-9.]+) supports ([0-9]+) tokens", text)
        self.assertTrue(printed, text)
        for of_base, tokens in printed:
            f = [float(of_base) ** (-2 * i / dim) for i in range(dim // 2)]
            lowest = min(sum(math.cos(m * x) for x in f) for m in range(int(tokens) + 1))
            self.assertGreaterEqual(lowest, 0, (of_base, tokens))
        # Another setting, and another dialect.
        yarn = json.dumps({"rope_type": "yarn", "factor": 4, "truncate": False,
                           "original_max_position_embeddings": TRAINED})
        scaled = self.json("inspect", MODEL, "--json", "--length", 1024, "--rope-scaling", yarn)
        engines = {e["engine"]: e for e in scaled["positions"]["rotations"][0]["engines"]}
        self.assertTrue(engines["hf"]["same"])
        self.assertFalse(engines["llamacpp"]["same"])
        self.assertIn("yarn-truncate", {w["id"] for w in scaled["positions"]["warnings"]})
        vllm = self.json("inspect", MODEL, "--json", "--length", 1024, "--rope-scaling", yarn,
                         "--engine", "vllm=0.11.0")["positions"]
        self.assertEqual([e["engine"] for e in vllm["rotations"][0]["engines"]], ["vllm"])
        self.assertNotIn("yarn-truncate", {w["id"] for w in vllm["warnings"]})
        self.assertIn("past-configured", {w["id"] for w in vllm["warnings"]})
        as_llamacpp = self.json("inspect", MODEL, "--json", "--length", 1024, "--rope-scaling", yarn,
                                "--dialect", "llamacpp")
        self.assertNotEqual(as_llamacpp["plan_hash"], scaled["plan_hash"])
        self.fails(1, "inspect", MODEL, "--dialect", "klingon", says="llamacpp")
        self.fails(2, "inspect", MODEL, "--length", "many", says="many")
        self.fails(2, "inspect", MODEL, "--diff", MODEL, MODEL, says="--diff")

    def test_inspect_measures_frequencies(self):
        use = self.json("inspect", MODEL, "--json", "--text", self.text, "--length", 256)[
            "positions"]["frequency_use"]
        self.assertEqual(use["tokens"], 256)
        for share in use["share"]:
            self.assertAlmostEqual(sum(share), 1, 9)
        self.assertIn("strongest pair", self.works("inspect", MODEL, "--text", self.text).decode())

    def test_inspect_diff_and_page(self):
        other = self.folder / "other"
        shutil.copytree(MODEL, other, ignore=shutil.ignore_patterns("*.safetensors", "*.py"))
        config = json.loads((other / "config.json").read_text())
        same = self.json("inspect", "--diff", MODEL, other, "--json")
        self.assertTrue(same["same_hash"])
        self.assertEqual(same["different_layers"], [])
        if "rope_parameters" in config:
            config["rope_parameters"]["rope_theta"] *= 4
        else:
            config["rope_theta"] *= 4
        (other / "config.json").write_text(json.dumps(config))
        diff = self.json("inspect", "--diff", MODEL, other, "--json")
        self.assertFalse(diff["same_hash"])
        self.assertEqual(len(diff["different_layers"]), diff["layers"][0])
        first = diff["different_layers"][0]["frequencies"]
        pairs = config["head_dim"] // 2
        self.assertEqual(first["different_pairs"], pairs - 1)
        self.assertAlmostEqual(first["frequency_ratio"], 4 ** (-(pairs - 1) / pairs), 9)
        self.assertIn("times the frequency", self.works("inspect", "--diff", MODEL, other).decode())
        page = self.folder / "page.html"
        self.works("inspect", MODEL, "--html", "-o", page)
        text = page.read_text()
        for word in ("const Explorer", "critical_dimension", "Chart.js"):
            self.assertIn(word, text)
        self.assertNotIn("{{", text.split("<script>")[0])
        self.fails(1, "inspect", MODEL, "--html", "-o", self.folder / "no/page.html", says="with -o")

    def test_tokenize(self):
        ids = self.json("tokenize", MODEL, "--text", self.text)
        self.assertTrue(all(isinstance(i, int) for i in ids))
        file = self.folder / "ids.json"
        file.write_text(json.dumps(ids))
        self.assertEqual(self.works("tokenize", MODEL, "--decode", "--ids", file),
                         self.text.read_bytes())
        with open(self.text, "rb") as text:
            self.assertEqual(self.json("tokenize", MODEL, stdin=text), ids)
        self.assertEqual(self.json("tokenize", MODEL, "--text", self.text, "--bos"), [0] + ids)
        pieces = self.json("tokenize", MODEL, "--text", self.text, "--pieces", "--json")
        self.assertEqual([row["id"] for row in pieces], ids)
        self.assertEqual(len(self.works("tokenize", MODEL, "--text", self.text, "--pieces")
                             .decode().splitlines()), len(ids))

    def test_generate(self):
        out = self.works("generate", MODEL, "--prompt", "And it came to pass", "--max-tokens", 20)
        self.assertTrue(out.startswith(b"And it came to pass"))
        made = self.json("generate", MODEL, "--prompt", "And it came to pass", "--max-tokens", 20,
                         "--json")
        self.assertEqual(len(made["ids"]), 20)
        self.assertEqual(made["stop"], "max_tokens")
        self.assertEqual(out.decode(), "And it came to pass" + made["text"] + "\n")
        self.fails(2, "generate", MODEL, "--no-bos", says="--prompt")

    def test_perplexity(self):
        tokens = self.folder / "tokens.jsonl"
        common = ["perplexity", MODEL, "--text", self.text, "--length", 512, "--json"]
        cell = self.json(*common, "--per-token", tokens)
        rows = [json.loads(line) for line in tokens.read_text().splitlines()]
        self.assertEqual(len(rows), 6 * 256)
        self.assertEqual(cell["scored_tokens"], len(rows))
        self.assertAlmostEqual(sum(r["nll"] for r in rows) / len(rows), cell["mean_nll"], 5)
        self.assertAlmostEqual(math.exp(cell["mean_nll"]), cell["perplexity"], 6)
        self.assertEqual({r["position"] for r in rows}, set(range(256, 512)))
        self.assertEqual(cell["protocol"], "aligned:256")
        self.assertEqual(cell["bos"], "id 0 first in every window")
        # Ids instead of the text: the same numbers, and no bytes to divide by.
        ids = self.folder / "ids.json"
        ids.write_bytes(self.works("tokenize", MODEL, "--text", self.text))
        given = self.json("perplexity", MODEL, "--ids", ids, "--length", 512, "--json")
        self.assertEqual(given["mean_nll"], cell["mean_nll"])
        self.assertEqual(given["text_hash"], cell["text_hash"])
        self.assertIsNone(given["bits_per_byte"])
        self.assertGreater(cell["bits_per_byte"], 0)
        # A dictionary and the method of that name are one plan; BOS, angles, seed are not the same.
        yarn = self.json(*common, "--method", "yarn", "--factor", 2)
        custom = self.json(*common, "--rope-scaling",
                           '{"rope_type":"yarn","factor":2.0,'
                           f'"original_max_position_embeddings":{TRAINED}}}')
        self.assertEqual(yarn["plan_hash"], custom["plan_hash"])
        self.assertEqual(yarn["mean_nll"], custom["mean_nll"])
        self.assertNotEqual(yarn["plan_hash"], cell["plan_hash"])
        for option in (["--no-bos"], ["--angles", "float32"], ["--seed", 2]):
            self.assertNotEqual(self.json(*common, *option)["identity"], cell["identity"])
        self.assertIn("protocol", self.works(*common[:-1]).decode())
        self.json(*common, "--dry-run")

    def test_passkey(self):
        cell = self.json("passkey", MODEL, "--length", TRAINED, "--passkey-filler", "text", "--text",
                         self.text, "--json", "--passkey-trials", 2)
        task, = cell["tasks"]
        self.assertEqual(task["task"], "passkey")
        self.assertTrue(task["protocol"].startswith("ropewalk-passkey-2: 5 digits"))
        self.assertIn(len(task["answers"]), (2, 3))  # contexts with one or two of them
        self.assertEqual(task["exact"], sum(a["exact"] for a in task["answers"]) / len(task["answers"]))
        far = self.json("passkey", WHOLE_MODEL, "--length", "4k", "--json")
        self.assertEqual(far["length"], 4096)
        task, = far["tasks"]
        self.assertEqual((len(task["answers"]), task["prompts"]), (27, 3))
        self.assertLess(task["fed_tokens"], 3.5 * 4096)
        self.assertEqual(task["exact"], 0)  # 4 times the length that it was trained at
        self.assertIn("passkey", self.works("passkey", MODEL, "--length", TRAINED).decode())

    def test_compute(self):
        """bf16 where the CPU multiplies it; the message where it has no instructions; the refusal."""
        info = self.json("info", "--json")
        unit, arithmetic = info["bf16"], "bf16+attention" if info["bf16_attention"] else "bf16"
        self.assertIn(unit, ("none", "emulated", "avx512_bf16", "amx_bf16"))
        one = ["perplexity", MODEL, "--text", self.text, "--length", 256, "--anchors", 2]
        exact = self.json(*one, "--json")
        self.assertEqual(exact["compute"], "float32")
        if unit == "none":
            self.fails(1, *one, "--compute", "bf16", says="AVX-512")
            return
        cell = self.json(*one, "--compute", "bf16", "--json")
        self.assertEqual(cell["compute"], arithmetic)
        self.assertEqual(cell["plan_hash"], exact["plan_hash"])
        self.assertNotEqual(cell["identity"], exact["identity"])
        self.assertNotEqual(cell["mean_nll"], exact["mean_nll"])
        self.assertAlmostEqual(cell["perplexity"] / exact["perplexity"], 1, delta=0.01)
        self.assertIn("bf16", self.works(*one, "--compute", "bf16").decode())
        story = ["generate", MODEL, "--prompt", "And the king", "--max-tokens", 5, "--json"]
        self.assertEqual(self.json(*story, "--compute", "bf16")["compute"], arithmetic)
        self.works("passkey", MODEL, "--length", 128, "--compute", "bf16", "--passkey-trials", 1)
        # What an older CPU would say: oneDNN takes its highest instruction set from here.
        old = dict(os.environ, DNNL_MAX_CPU_ISA="AVX512_CORE")
        if self.json("info", "--json", env=old)["bf16"] == "emulated":
            result = run(*one, "--compute", "bf16", "--json", env=old)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(b"no bf16 instructions", result.stderr)
            emulated = json.loads(result.stdout)
            self.assertAlmostEqual(emulated["mean_nll"], cell["mean_nll"], delta=2e-3)
        old["DNNL_MAX_CPU_ISA"] = "AVX2"
        if self.json("info", "--json", env=old)["bf16"] == "none":
            self.fails(1, *one, "--compute", "bf16", says="--compute float32", env=old)

    def test_sweep_in_bf16(self):
        info = self.json("info", "--json")
        if info["bf16"] == "none":
            self.skipTest("this CPU multiplies no bf16")
        arithmetic = "bf16+attention" if info["bf16_attention"] else "bf16"
        more = ["--lengths", "128", "--methods", "none"]
        memory = [self.json(*self.sweep("a", *more), "--dry-run", "--json", *which)["memory_bytes"]
                  for which in ([], ["--compute", "bf16"])]
        parameters = (pathlib.Path(MODEL) / "model.safetensors").stat().st_size / 2
        self.assertGreater(memory[0] - memory[1], 1.9 * parameters)
        self.works(*self.sweep("a", *more))
        before = (self.folder / "a/results.jsonl").read_bytes()
        message = self.fails(1, *self.sweep("a", *more, "--compute", "bf16"))
        self.assertIn(f"compute there float32, here {arithmetic};", message.replace(")", ";"))
        self.assertEqual((self.folder / "a/results.jsonl").read_bytes(), before)
        self.works(*self.sweep("b", *more, "--compute", "bf16"))
        rows = [json.loads(line)
                for line in (self.folder / "b/results.jsonl").read_text().splitlines()]
        self.assertEqual({row["compute"] for row in rows}, {arithmetic})
        self.assertIn("--compute bf16", rows[0]["command"])
        self.assertIn("compute bf16", self.works("report", self.folder / "b", "--markdown").decode())

    # ---- the sweep

    def plan_hash(self, model, length, *method):
        return self.json("perplexity", model, "--text", self.text, "--length", length, "--anchors", 1,
                         "--dry-run", "--json", *method)["plan_hash"]

    def method_names(self):
        """From the message that lists them."""
        message = self.fails(2, "extend", MODEL, "--method", "bogus", "-o", self.folder / "x")
        return [name.strip() for name in
                message.split("expected one of ")[1].split(";")[0].split(",")]

    def extend_by_every_method(self, model, suffix):
        """The methods that `model`'s format holds exactly, rounded, and not at all."""
        exact, rounded, refused = set(), set(), set()
        for method in self.method_names():
            out = self.folder / f"{method}{suffix}"
            setting = ["--method", method, "--factor", 1 if method == "none" else 4]
            result = run("extend", model, *setting, "-o", out, "--json")
            if result.returncode != 0:
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertRegex(result.stderr.decode(), "cannot (hold|say)")
                self.assertFalse(out.exists())
                refused.add(method)
                continue
            report = json.loads(result.stdout)
            # What the command says of itself, said by others: the sweep's plan of the method on the
            # original, and the plan of the new file as it is.
            length = 4 * TRAINED
            self.assertEqual(report["plan_hash_asked"], self.plan_hash(model, length, *setting))
            self.assertEqual(report["plan_hash"], self.plan_hash(out, length))
            same = all(self.plan_hash(out, n) == self.plan_hash(model, n, *setting)
                       for n in (16, TRAINED, TRAINED + 1, length))
            (exact if same else rounded).add(method)
            if not same:
                self.assertGreater(report["largest_difference"], 0)
                self.assertLess(report["largest_difference"], 2.0 ** -22)
        return exact, rounded, refused

    def test_extend_folder(self):
        exact, rounded, refused = self.extend_by_every_method(MODEL, "")
        self.assertEqual(rounded, set())
        self.assertEqual(refused, FOLDER_REFUSES)
        self.assertEqual(exact, set(self.method_names()) - FOLDER_REFUSES)
        out = self.folder / "yarn"
        config = json.loads((out / "config.json").read_text())
        original = json.loads((pathlib.Path(MODEL) / "config.json").read_text())
        kept = [key for key in original if key not in ("max_position_embeddings", "rope_scaling")]
        self.assertEqual([key for key in config if key in kept], kept)  # values and order
        self.assertEqual([config[key] for key in kept], [original[key] for key in kept])
        self.assertEqual(config["max_position_embeddings"], 4 * TRAINED)
        self.assertEqual(config["rope_scaling"]["rope_type"], "yarn")
        weights = out / "model.safetensors"
        self.assertEqual(weights.read_bytes(), (pathlib.Path(MODEL) / "model.safetensors").read_bytes())
        shown = self.works("generate", out, "--prompt", "And", "--max-tokens", 4)
        self.assertTrue(shown)

    def test_extend_new_schema_keeps_its_schema(self):
        model = self.folder / "new"
        shutil.copytree(MODEL, model)
        config = json.loads((model / "config.json").read_text())
        theta = config.pop("rope_theta")
        config["rope_parameters"] = {"rope_type": "default", "rope_theta": theta,
                                     "partial_rotary_factor": 1.0}
        (model / "config.json").write_text(json.dumps(config))
        setting = ["--rope-scaling", '{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, '
                   '"high_freq_factor": 4.0, "original_max_position_embeddings": 256}']
        out = self.folder / "out"
        self.works("extend", model, *setting, "-o", out)
        after = json.loads((out / "config.json").read_text())
        self.assertEqual(after["rope_parameters"]["rope_type"], "llama3")
        self.assertEqual(after["rope_parameters"]["rope_theta"], theta)
        self.assertEqual(after["rope_parameters"]["partial_rotary_factor"], 1.0)
        self.assertNotIn("rope_scaling", after)
        for length in (TRAINED, 2048):
            self.assertEqual(self.plan_hash(out, length), self.plan_hash(model, length, *setting))

    def test_extend_leaves_a_local_base_alone(self):
        """Gemma 3, in both schemas: the full layers are scaled, the sliding ones keep their base."""
        gemma = {"model_type": "gemma3_text", "vocab_size": 64, "hidden_size": 32, "head_dim": 16,
                 "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 2,
                 "intermediate_size": 32, "max_position_embeddings": TRAINED, "sliding_window": 16,
                 "layer_types": ["sliding_attention", "full_attention"]}
        for name, bases in [
                ("older", {"rope_theta": 1e6, "rope_local_base_freq": 1e4}),
                ("newer", {"rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 1e6},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}})]:
            model, out = self.folder / name, self.folder / (name + "-out")
            model.mkdir()
            (model / "config.json").write_text(json.dumps({**gemma, **bases}))
            setting = ["--method", "yarn", "--factor", 4]
            said = self.json("extend", model, *setting, "-o", out, "--json")
            config = json.loads((out / "config.json").read_text())
            if name == "older":
                self.assertEqual(config["rope_scaling"]["rope_type"], "yarn")
                self.assertEqual(config["rope_local_base_freq"], 1e4)
                self.assertNotIn("rope_parameters", config)
            else:
                self.assertEqual(config["rope_parameters"]["full_attention"]["rope_type"], "yarn")
                self.assertEqual(config["rope_parameters"]["sliding_attention"],
                                 {"rope_type": "default", "rope_theta": 1e4})
            self.assertEqual(said["plan_hash"], said["plan_hash_asked"])
            newest = next(s["setting"] for s in said["settings"]
                          if s["engine"] == "Hugging Face transformers 5")
            self.assertEqual(set(json.loads(newest)["rope_parameters"]),
                             {"full_attention", "sliding_attention"})
            message = self.fails(1, "extend", model, "--method", "yarn+all-layers", "--factor", 4,
                                 "-o", self.folder / "x")
            self.assertIn("it holds one scaling, for the layers that see everything", message)
            self.assertRegex(message, r'"sliding_attention": \{\s*"rope_type": "yarn"')
            # Where no type follows the length, the fixed setting that is offered reads back.
            message = self.fails(1, "extend", model, "--method", "dynamic-yarn", "--length", 1024,
                                 "-o", self.folder / "x")
            self.assertIn("--rope-scaling '{\"rope_type\"", message)

    def test_extend_leaves_unscaled_layers_alone(self):
        """OLMo 3, in both schemas: sliding layers are never scaled, though the base is one."""
        olmo = {"model_type": "olmo3", "vocab_size": 64, "hidden_size": 32, "num_attention_heads": 2,
                "num_key_value_heads": 1, "num_hidden_layers": 2, "intermediate_size": 32,
                "max_position_embeddings": TRAINED, "sliding_window": 16,
                "layer_types": ["sliding_attention", "full_attention"]}
        plain = {"rope_type": "default", "rope_theta": 5e5}
        for name, base in [("older", {"rope_theta": 5e5}),
                           ("newer", {"rope_parameters": {"full_attention": plain,
                                                          "sliding_attention": plain}})]:
            model, out = self.folder / name, self.folder / (name + "-out")
            model.mkdir()
            (model / "config.json").write_text(json.dumps({**olmo, **base}))
            said = self.json("extend", model, "--method", "yarn", "--factor", 4, "-o", out, "--json")
            self.assertEqual(said["plan_hash"], said["plan_hash_asked"])
            config = json.loads((out / "config.json").read_text())
            if name == "older":
                self.assertEqual(config["rope_scaling"]["rope_type"], "yarn")
            else:
                self.assertEqual(config["rope_parameters"]["full_attention"]["rope_type"], "yarn")
                self.assertEqual(config["rope_parameters"]["sliding_attention"], plain)

    def test_convert_and_extend_gguf(self):
        gguf, back = self.folder / "model.gguf", self.folder / "back"
        said = self.works("convert", MODEL, "-o", gguf).decode()
        self.assertIn("logits are bit-identical before and after", said)
        self.assertIn("logits are bit-identical before and after",
                      self.works("convert", gguf, "-o", back).decode())
        for length in (TRAINED, 1024):
            self.assertEqual(self.plan_hash(gguf, length), self.plan_hash(MODEL, length))
        ids = [self.json("tokenize", m, "--text", self.text, "--json") for m in (MODEL, gguf, back)]
        self.assertEqual(ids[0], ids[1])
        self.assertEqual(ids[0], ids[2])
        measure = ["--text", self.text, "--length", 128, "--anchors", 1, "--json"]
        losses = [self.json("perplexity", m, *measure)["mean_nll"] for m in (MODEL, gguf, back)]
        self.assertEqual(losses[0], losses[1])
        self.assertEqual(losses[0], losses[2])
        self.assertEqual(self.tensors(back / "model.safetensors"),
                         self.tensors(pathlib.Path(MODEL) / "model.safetensors"))

        exact, rounded, refused = self.extend_by_every_method(gguf, ".gguf")
        self.assertEqual(refused, GGUF_REFUSES)
        self.assertEqual(exact | rounded, set(self.method_names()) - GGUF_REFUSES)
        self.assertLessEqual({"none", "linear", "yarn"}, exact)
        message = self.fails(1, "extend", gguf, "--rope-scaling",
                             '{"rope_type": "yarn", "factor": 4.0, "truncate": false}',
                             "-o", self.folder / "t.gguf", says="always truncates")
        self.assertIn("Hugging Face", message)
        # An extended file extends again, and what was added goes.
        self.works("extend", self.folder / "llama3.gguf", "--method", "yarn", "--factor", 4, "-o",
                   self.folder / "twice.gguf")
        self.assertEqual(self.plan_hash(self.folder / "twice.gguf", 1024),
                         self.plan_hash(gguf, 1024, "--method", "yarn", "--factor", 4))

    def test_convert_rounded_positions(self):
        """GGUF holds llama3 as float32 divisors: said, and no reason to doubt the conversion."""
        model, out = self.folder / "llama3", self.folder / "llama3.gguf"
        self.works("extend", MODEL, "--method", "llama3", "--factor", 4, "-o", model)
        said = self.works("convert", model, "-o", out).decode()
        self.assertIn("logits are bit-identical before and after", said)
        self.assertIn("no end token", said)

    def tensors(self, path):
        """Name to (dtype, shape, bytes), by the format's specification."""
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        header.pop("__metadata__", None)
        return {name: (t["dtype"], t["shape"],
                       data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
                for name, t in header.items()}

    def test_convert_types_and_layouts(self):
        q8 = self.folder / "q8.gguf"
        said = self.works("convert", MODEL, "-o", q8, "--type", "q8_0").decode()
        self.assertIn("because weights were rounded", said)
        self.assertLess(q8.stat().st_size, 0.7 * (pathlib.Path(MODEL) / "model.safetensors").stat().st_size)
        there, back = self.folder / "interleaved", self.folder / "half"
        self.assertIn("logits are bit-identical",
                      self.works("convert", MODEL, "--layout", "interleaved", "-o", there).decode())
        before = self.tensors(pathlib.Path(MODEL) / "model.safetensors")
        moved = self.tensors(there / "model.safetensors")
        name = "model.layers.0.self_attn.k_proj.weight"
        row = len(before[name][2]) // before[name][1][0]
        rows = [before[name][2][i:i + row] for i in range(0, len(before[name][2]), row)]
        order = [h * 32 + r % 2 * 16 + r // 2 for h in range(len(rows) // 32) for r in range(32)]
        self.assertEqual(moved[name][2], b"".join(rows[i] for i in order))
        # Nobody reads the rotated weights as if they were not.
        self.fails(1, "inspect", there, says="rope_interleaved")
        self.fails(1, "convert", there, "--layout", "interleaved", "-o", back, says="already")
        self.works("convert", there, "--layout", "half", "-o", back)
        self.assertEqual(self.tensors(back / "model.safetensors"), before)
        one = self.folder / "one.safetensors"
        self.works("convert", there / "model.safetensors", "--layout", "half", "--head-dim", 32,
                   "-o", one)
        self.assertEqual(self.tensors(one), before)

    def test_convert_and_extend_refuse(self):
        out = self.folder / "out"
        out.mkdir()
        for command in (["extend", MODEL, "--method", "yarn", "--factor", 2],
                        ["convert", MODEL, "--layout", "interleaved"]):
            self.fails(1, *command, "-o", out, says="exists")
        out.rmdir()
        extend = ["extend", MODEL, "-o", out]
        self.fails(2, *extend, says="one --method")
        self.fails(2, *extend, "--method", "yarn", says="--factor")
        self.fails(2, *extend, "--method", "yarn,ntk", "--factor", 2, says="one --method")
        self.fails(2, *extend, "--method", "yarn", "--factors", "2,4", says="one --factor")
        self.fails(2, *extend, "--method", "as-shipped", says="one --method")
        self.fails(1, *extend, "--method", "yarn", "--factor", 0.5)
        self.fails(1, "extend", MODEL, "--method", "yarn", "--factor", 2, "-o",
                   self.folder / "no/such", says="cannot create")
        self.fails(2, "convert", MODEL, "-o", out, says=".gguf")
        self.fails(2, "convert", MODEL, "-o", self.folder / "m.gguf", "--type", "q4_0", says="q8_0")
        self.fails(2, "convert", MODEL, "--layout", "sideways", "-o", out, says="interleaved")
        self.fails(1, "convert", MODEL, "-o", self.folder / "no/m.gguf", says="no/m.gguf")
        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
        self.fails(1, "convert", MODEL, "-o", self.folder / "m.gguf", preexec_fn=small_files,
                   says="File too large")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["text.txt"])

    def test_sweep(self):
        more = ["--lengths", "128,256,512", "--methods", "none,dynamic,yarn"]
        plan = self.json(*self.sweep("a", *more), "--dry-run", "--json")
        self.assertFalse((self.folder / "a").exists())
        out = self.works(*self.sweep("a", *more)).decode()
        rows = self.rows("a")
        self.assertEqual([(r["method"], r["factor"], r["length"]) for r in rows[1:]],
                         [(c["method"], c["factor"], c["length"]) for c in plan["cells"]])
        self.assertEqual([bool(r["shared_with"]) for r in rows[1:]],
                         [c["shared"] for c in plan["cells"]])
        self.assertEqual({r["protocol"] for r in rows}, {"aligned:64+passkey"})
        for word in ("yarn", "512", str(self.folder / "a/report.html")):
            self.assertIn(word, out)
        self.assertTrue((self.folder / "a/report.html").exists())
        # Again: nothing is computed, the file stays as it is; as JSON.
        before = (self.folder / "a/results.jsonl").read_bytes()
        json.loads(self.works(*self.sweep("a", *more), "--json"))
        self.assertEqual((self.folder / "a/results.jsonl").read_bytes(), before)
        # The same bits elsewhere; the single-cell command agrees with its row.
        self.works(*self.sweep("b", *more))
        self.assertEqual(self.rows("a"), self.rows("b"))
        self.works(*self.sweep("c", *more, "--no-share"))  # without passkeys in the windows
        self.assertEqual({r["protocol"] for r in self.rows("c")}, {"aligned:64"})
        yarn = [r for r in self.rows("c")[1:] if (r["method"], r["length"]) == ("yarn", 512)][0]
        one = self.json("perplexity", MODEL, "--text", self.text, "--length", 512, "--method",
                        "yarn", "--anchors", 4, "--protocol", "aligned:64", "--json")
        self.assertEqual(one["mean_nll"], yarn["mean_nll"])
        # Other text, other protocol: refused with both values, nothing changed.
        message = self.fails(1, *self.sweep("a", *more, "--protocol", "aligned:32"))
        self.assertIn("aligned:64", message)
        self.assertIn("aligned:32", message)
        self.text.write_text(make_text(3100))
        self.fails(1, *self.sweep("a", *more), says="text_hash")
        self.assertEqual((self.folder / "a/results.jsonl").read_bytes(), before)

    def test_maps_and_temperatures(self):
        far = ["perplexity", WHOLE_MODEL, "--text", self.text, "--length", 2048, "--anchors", 1,
               "--protocol", "aligned:64", "--json"]
        none = self.json(*far, "--method", "none")
        self.assertGreater(none["entropy"], 0)
        self.assertLess(none["entropy_share"], 1)
        seen = {none["mean_nll"]}
        for method, scaling in {
                "rerope:256": "rerope(window 256)",
                "self-extend:window=256,group=8": "self-extend(window 256, group 8)",
                "self-extend:256,group=8+log-n": "self-extend(window 256, group 8) + log-n(length 1024)",
                "dual-chunk": "dual-chunk(chunk 768, limit 1023)",
                "sinks": "sinks(sinks 4, window 1020)",
                "ntk+log-n": "ntk(factor 2) + log-n(length 1024)"}.items():
            cell = self.json(*far, "--method", method)
            self.assertEqual((cell["method"], cell["scaling"]), (method, scaling))
            # All of them read twice the trained length better than nothing does, and differ.
            self.assertLess(cell["mean_nll"], none["mean_nll"])
            self.assertNotIn(cell["mean_nll"], seen)
            seen.add(cell["mean_nll"])
        # Within the trained length a temperature is none, and a window that holds all no map.
        short = ["perplexity", MODEL, "--text", self.text, "--length", 256, "--anchors", 2,
                 "--protocol", "aligned:64", "--json"]
        none = self.json(*short, "--method", "none")
        self.assertEqual(self.json(*short, "--method", "log-n")["mean_nll"], none["mean_nll"])
        self.assertAlmostEqual(self.json(*short, "--method", "rerope:255")["mean_nll"],
                               none["mean_nll"], places=5)
        self.assertNotEqual(self.json(*short, "--method", "rerope:8")["mean_nll"], none["mean_nll"])

        more = ["--lengths", "256,512", "--methods", "none,self-extend:window=64,group=8,ntk+log-n"]
        plan = self.json(*self.sweep("maps", *more), "--dry-run", "--json")
        out = self.works(*self.sweep("maps", *more)).decode()
        rows = self.rows("maps")
        self.assertEqual([r["method"] for r in rows[1:4]],
                         ["none", "self-extend:window=64,group=8", "ntk+log-n"])
        self.assertEqual(len(plan["cells"]), len(rows) - 1)
        self.assertIn("self-extend:window=64,group=8", out)
        before = (self.folder / "maps/results.jsonl").read_bytes()
        self.works(*self.sweep("maps", *more))
        self.assertEqual((self.folder / "maps/results.jsonl").read_bytes(), before)
        self.works("generate", MODEL, "--prompt", "And the king", "--max-tokens", 3, "--method",
                   "self-extend")

        bad = [512 if x == 256 else x for x in short[:-1]]
        self.fails(2, *bad, "--method", "rerope+sinks", says="one distance map")
        self.fails(2, *bad, "--method", "rerope:size=3", says="window=NUMBER")
        self.fails(2, *bad, "--method", "window=3", says="expected one of none")
        self.fails(1, *bad, "--method", "rerope:256", says="expected distances below 256")
        self.fails(1, *bad, "--method", "dynamic+rerope", says="both would extend twice")
        message = self.fails(1, "extend", MODEL, "--method", "self-extend", "--factor", 4, "-o",
                             self.folder / "x", says="--grp-attn-n")
        self.assertIn("cannot hold self-extend(window 64, group 6)", message)
        self.assertFalse((self.folder / "x").exists())

    def test_search(self):
        for kind in ("base", "factors"):
            command = self.sweep("found", "--lengths", "256,1024", "--methods", "none", "--search",
                                 "base,factors" if kind == "factors" else kind, "--search-trials", 5,
                                 "--tasks", "perplexity")
            self.assertIn(b"for config.json", run(*command).stderr)
            file = self.folder / f"found/search-{kind}/results.jsonl"
            trials = [json.loads(line) for line in file.read_text().splitlines()][1:]
            self.assertEqual(len(trials), 5)
            self.assertEqual({t["length"] for t in trials}, {1024})
            best = min(trials, key=lambda t: t["mean_nll"])
            found = [r for r in self.rows("found")[1:]
                     if r["method"] == f"search-{kind}" and r["length"] == 1024]
            self.assertEqual([r["mean_nll"] for r in found], [best["mean_nll"]])
            self.assertEqual(found[0]["scaling"], best["scaling"])
            # The proposal is a dictionary that every command takes.
            self.assertEqual(self.plan_hash(MODEL, 1024, "--rope-scaling", best["scaling"]),
                             best["plan_hash"])
            before = file.read_bytes()
            again = run(*command)
            self.assertEqual(again.returncode, 0)
            self.assertEqual(file.read_bytes(), before)
        # More trials go on from there.
        more = self.sweep("found", "--lengths", "256,1024", "--methods", "none", "--search", "base",
                          "--search-trials", 6, "--tasks", "perplexity")
        self.assertEqual(run(*more).returncode, 0)
        file = self.folder / "found/search-base/results.jsonl"
        self.assertEqual(len(file.read_text().splitlines()), 1 + 6)
        self.fails(1, *self.sweep("short", "--lengths", "256", "--methods", "none", "--search",
                                  "base"), says="nothing to search for")
        self.fails(2, *self.sweep("wrong", "--search", "everything"))

    def test_search_lowers_the_loss_of_answers(self):
        for kind in ("critical", "groups", "mapped"):
            command = self.sweep("found", "--lengths", "512,1024", "--methods", "none", "--tasks",
                                 "perplexity,kv", "--questions", 2, "--search", kind,
                                 "--search-trials", 4)
            said = run(*command).stderr.decode()
            self.assertIn("nats per token of the answers at 1024 tokens", said)
            file = self.folder / f"found/search-{kind}/results.jsonl"
            trials = [json.loads(line) for line in file.read_text().splitlines()][1:]
            # The best groups together are one more unless they were tried.
            self.assertIn(len(trials), (3, 4) if kind == "groups" else (4,))
            self.assertEqual({t["perplexity"] for t in trials}, {None})  # answers alone
            best = min(trials, key=lambda t: t["tasks"][0]["mean_nll"])
            found = [r for r in self.rows("found")[1:]
                     if r["method"] == best["method"] and r["length"] == 1024]
            self.assertEqual([r["tasks"][0]["answers"] for r in found],
                             [best["tasks"][0]["answers"]])
            if kind == "critical":
                divisors = json.loads(best["scaling"])["long_factor"]
                self.assertEqual(sorted(divisors), divisors)
                self.assertEqual(divisors[0], 1)
                self.assertGreaterEqual(divisors[-1], json.loads(best["scaling"])["factor"])
            else:
                self.assertIn(f"as a method: {best['method']}", said)
                self.assertRegex(best["method"], r"^dpe:group1=\d+,.*group8=\d+$|^lampe:mapped=\d+$")
            if kind == "mapped":  # golden section over the logarithm, from 16 to 256
                mapped = [int(t["method"].partition("=")[2]) for t in trials]
                golden = (math.sqrt(5) - 1) / 2
                self.assertEqual(mapped[:2], [round(16 * 16 ** share) for share in (1 - golden, golden)])
                # More trials go on from these, and a length that was measured is not measured again.
                self.works(*command[:-1], 24)
                more = [json.loads(line)["method"] for line in file.read_text().splitlines()[1:]]
                self.assertEqual(more[:4], [t["method"] for t in trials])
                self.assertEqual(len(set(more)), len(more))
                self.assertIn(len(more), range(5, 24))
        words = ["--lengths", "512,1024", "--methods", "none", "--tasks", "perplexity", "--search"]
        self.fails(1, *self.sweep("none", *words, "critical"), says="add --tasks passkey,kv")
        self.fails(1, *self.sweep("none", *words, "base", "--search-by", "key-tokens"),
                   says="add --tasks perplexity,key-tokens")
        self.fails(2, *self.sweep("none", *words, "base", "--search-by", "luck"))

    def test_sweep_defaults_fit_the_text(self):
        self.text.write_text(make_text(700))
        result = run("sweep", MODEL, "--text", self.text, "--dry-run", "--json", "--anchors", 2)
        plan = json.loads(result.stdout)
        self.assertEqual(max(c["length"] for c in plan["cells"]), 512)
        self.assertIn(b"too short for length 1024, 2048", result.stderr)
        self.assertEqual({c["method"] for c in plan["cells"]},
                         {"none", "linear", "ntk", "dynamic", "by-parts", "by-parts-repo", "yarn",
                          "llama3"})

    def test_sweep_on_ids_leaves_passkey_out(self):
        ids = self.folder / "ids.json"
        ids.write_bytes(self.works("tokenize", MODEL, "--text", self.text))
        result = run("sweep", MODEL, "--ids", ids, "-o", self.folder / "a", "--lengths", "128",
                     "--methods", "none", "--anchors", 2)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        self.assertIn(b"passkey is left out", result.stderr)
        self.assertEqual(self.rows("a")[1]["tasks"], [])

    def interrupted_sweep(self, name, end):
        """Starts a sweep, sends `end` once three rows are there, and returns what is left."""
        command = self.sweep(name, "--lengths", "128,256,512")
        process = subprocess.Popen([PROGRAM, *map(str, command)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        path = self.folder / name / "results.jsonl"
        while process.poll() is None:
            if path.exists() and path.read_bytes().count(b"\n") >= 4:
                process.send_signal(end)
                break
            time.sleep(0.002)
        _, message = process.communicate(timeout=300)
        left = path.read_bytes()
        self.assertGreaterEqual(left.count(b"\n"), 4)
        return process.returncode, message.decode(), left, command

    def test_models_of_other_kinds(self):
        """Tiny models of tests/golden that are not LLaMA's kind, from inspect to sweep."""
        golden = SOURCE / "tests/golden/hf_models"
        ids = self.folder / "ids.json"
        ids.write_text(json.dumps([(7 * i * i + i // 5) % 64 for i in range(700)]))
        for family in ["gpt2", "gpt_neox", "gptj", "mpt", "falcon_rw"]:
            model = self.folder / family
            model.mkdir()
            for file in (golden / family).glob("model*"):
                shutil.copy(file, model)
            shutil.copy(golden / family / "default.json", model / "config.json")
        gpt2, neox = self.folder / "gpt2", self.folder / "gpt_neox"
        seen = self.works("inspect", gpt2)
        self.assertIn(b"a learned vector for each of 320 positions", seen)
        self.assertIn(b"no scaling method applies", seen)
        for model, method in [(gpt2, "none"), (neox, "yarn")]:
            given = self.json("perplexity", model, "--ids", ids, "--length", 256, "--method", method,
                              "--anchors", 2, "--protocol", "aligned:64", "--json")
            self.assertTrue(10 < given["perplexity"] < 1e6)
        self.fails(1, "perplexity", gpt2, "--ids", ids, "--length", 256, "--method", "yarn",
                   "--anchors", 2, "--protocol", "aligned:64", says="no layer of this model rotates")
        self.fails(1, "perplexity", gpt2, "--ids", ids, "--length", 321, "--anchors", 2,
                   "--protocol", "aligned:64", says="learned vectors for 320 positions")
        self.works("sweep", gpt2, "--ids", ids, "-o", self.folder / "a", "--anchors", 2,
                   "--protocol", "aligned:64")
        self.assertEqual([(c["method"], c["length"]) for c in self.rows("a")[1:]],
                         [("none", 160), ("none", 320)])
        self.works("sweep", neox, "--ids", ids, "-o", self.folder / "b", "--anchors", 2,
                   "--protocol", "aligned:32", "--lengths", "128,512", "--methods", "none,ntk")
        self.fails(1, "extend", gpt2, "--method", "linear", "--factor", 2, "-o",
                   self.folder / "c", says="no layer of this model rotates")
        self.fails(1, "extend", self.folder / "gptj", "--method", "yarn", "--factor", 2, "-o",
                   self.folder / "e", says="reads no position scaling of a gptj model")
        self.assertFalse((self.folder / "e").exists())
        self.fails(1, "convert", neox, "-o", self.folder / "d.gguf", says="gpt_neox")

        mpt, falcon = self.folder / "mpt", self.folder / "falcon_rw"
        seen = self.works("inspect", mpt, "--ids", ids)
        self.assertIn(b"scores plus ALiBi, 6 slopes 0.5 to 0.003906", seen)
        self.assertIn(b"slope x distance is subtracted from a score", seen)
        self.assertIn(b"4259 tokens, head 3", seen)  # 24 ln 2 / 2^-8
        self.assertNotIn(b"Share of each pair", seen)
        bias, = self.json("inspect", mpt, "--json")["positions"]["biases"]
        self.assertEqual(bias["slopes"], [2.0**-k for k in (2, 4, 6, 8, 1, 3)])
        self.assertAlmostEqual(bias["halves_every"][0], 2.772588722)
        self.assertAlmostEqual(bias["sight_ends"][3], 24 * 177.445678223)
        self.assertEqual((bias["method"], bias["rule"], bias["max_bias"], bias["scale"]),
                         ("alibi", "powers_of_two", 8, 1))
        self.assertIsNone(bias["bfloat16_error"])
        bias, = self.json("inspect", falcon, "--length", 300, "--json")["positions"]["biases"]
        self.assertTrue(bias["bfloat16"])
        self.assertEqual(bias["scale"], 0.5)
        # Against the products, slope by slope: bfloat16 keeps 8 bits, position and product rounded.
        def bfloat16(x):
            step = 2.0 ** (math.frexp(x)[1] - 8) if x else 1
            return round(x / step) * step
        self.assertAlmostEqual(bias["bfloat16_error"], max(
            0.5 * abs(bfloat16(2 * s * bfloat16(j)) - bfloat16(2 * s * bfloat16(299)) - 2 * s * (j - 299))
            for s in bias["slopes"] for j in range(300)), 6)
        diff = self.json("inspect", "--diff", mpt, falcon, "--json")
        self.assertIn("bfloat16", diff["different_layers"][0]["setting"][1])
        self.works("sweep", mpt, "--ids", ids, "-o", self.folder / "f", "--anchors", 2,
                   "--protocol", "aligned:8")
        self.assertEqual([(c["method"], c["length"]) for c in self.rows("f")[1:]],
                         [("none", n) for n in (16, 32, 64, 128, 256)])
        self.fails(1, "sweep", mpt, "--ids", ids, "-o", self.folder / "g", "--anchors", 2,
                   "--protocol", "aligned:8", "--methods", "none,yarn",
                   says="its positions are a bias on the scores")
        for setting in (["--method", "yarn", "--factor", 2],
                        ["--rope-scaling", '{"rope_type": "linear", "factor": 2}']):
            self.fails(1, "extend", mpt, *setting, "-o", self.folder / "h",
                       says="its positions are a bias on the scores")
        self.fails(1, "extend", falcon, "--method", "none", "-o", self.folder / "h",
                   says="no rotary layer")
        self.assertFalse((self.folder / "h").exists())
        self.works("convert", mpt, "--no-tokenizer", "-o", self.folder / "i.gguf")
        self.works("convert", self.folder / "i.gguf", "--no-tokenizer", "-o", self.folder / "i")
        self.fails(1, "convert", falcon, "--no-tokenizer", "-o", self.folder / "j.gguf", says="does not rotate")

    def test_embed(self):
        """A tiny BERT with 20 positions, a T5 without an end, of tests/golden."""
        golden = SOURCE / "tests/golden/hf_encoders"
        ids = self.folder / "ids.json"
        ids.write_text(json.dumps([[3, 1, 4], [2, 7, 1, 8]]))
        one = self.folder / "one.json"
        one.write_text(json.dumps([5 + i % 50 for i in range(80)]))
        bert = self.folder / "bert"
        shutil.copytree(golden / "bert_hierarchical", bert)
        got = self.json("embed", bert, "--ids", ids)
        self.assertEqual([v["tokens"] for v in got["vectors"]], [3, 4])
        self.assertEqual((got["dim"], got["max_tokens"], got["pooling"], got["normalized"]),
                         (32, 20, "mean", False))
        self.assertTrue(all(len(v["vector"]) == got["dim"] for v in got["vectors"]))
        self.fails(1, "embed", bert, "--ids", one, says="hierarchical positions, which serve 400")
        longer = self.json("embed", bert, "--ids", one, "--positions", "hierarchical")
        self.assertEqual((longer["max_tokens"], longer["positions"]), (400, "hierarchical, alpha 0.4"))
        other = self.json("embed", bert, "--ids", one, "--positions", "hierarchical:0.2")
        self.assertNotEqual(longer["vectors"], other["vectors"])
        within = self.json("embed", bert, "--ids", ids, "--positions", "hierarchical:0.2")
        self.assertEqual(within["vectors"], got["vectors"])
        self.fails(2, "embed", bert, "--ids", ids, "--positions", "hierarchical:0.5", says="--positions")
        self.fails(2, "embed", bert, "--ids", ids, "--positions", "none", says="--positions")
        self.fails(2, "embed", bert, says="--ids")
        # States of the tokens, and DeBERTa's with the absolute positions that its mask decoder adds.
        states = self.json("embed", bert, "--ids", ids, "--states", "last")
        self.assertEqual(states["states"], "last")
        self.assertNotIn("pooling", states)
        for text, vector in zip(states["vectors"], got["vectors"]):
            self.assertEqual(text["tokens"], len(text["states"]))
            mean = [sum(column) / len(column) for column in zip(*text["states"])]
            for a, b in zip(mean, vector["vector"]):
                self.assertAlmostEqual(a, b, places=5)
        deberta = golden / "deberta_decoder"
        last = self.json("embed", deberta, "--ids", ids, "--states", "last")
        decoder = self.json("embed", deberta, "--ids", ids, "--states", "mask-decoder")
        self.assertEqual((last["max_tokens"], decoder["max_tokens"]), (None, 300))
        self.assertNotEqual(last["vectors"], decoder["vectors"])
        self.fails(1, "embed", bert, "--ids", ids, "--states", "mask-decoder", says="DeBERTa")
        self.fails(1, "embed", golden / "deberta_v3", "--ids", ids, "--states", "mask-decoder",
                   says="transformers drops it")
        self.fails(2, "embed", bert, "--ids", ids, "--states", "first", says="--states")
        self.assertIn("the mask decoder alone adds learned absolute positions, 300 of them",
                      self.works("inspect", deberta).decode())
        # A text between the tokens that its tokenizer puts around one.
        vocabulary = ["[UNK]", "[CLS]", "[SEP]", "rope", "##walk", "the", "."]
        (bert / "tokenizer.json").write_text(json.dumps(dict(
            version="1.0", added_tokens=[], normalizer=dict(type="BertNormalizer", lowercase=True),
            pre_tokenizer=dict(type="BertPreTokenizer"), decoder=None,
            post_processor=dict(type="BertProcessing", sep=["[SEP]", 2], cls=["[CLS]", 1]),
            model=dict(type="WordPiece", unk_token="[UNK]",
                       vocab={piece: i for i, piece in enumerate(vocabulary)}))))
        words = self.folder / "words.txt"
        words.write_text("The R\u00f4pewalk\n of.", encoding="utf-8")
        ids.write_text(json.dumps([1, 5, 3, 4, 0, 6, 2]))
        self.assertEqual(self.json("embed", bert, "--text", words), self.json("embed", bert, "--ids", ids))
        self.assertEqual(self.json("tokenize", bert, "--text", words), [5, 3, 4, 0, 6])
        self.fails(2, "embed", bert, "--text", words, "--ids", ids, says="--text")
        self.fails(1, "embed", golden / "t5", "--text", words, says="--ids")
        # T5's kind of tokenizer and RoBERTa's, with what each puts round a text.
        pieces = ["<pad>", "</s>", "<unk>", "\u2581the", "\u2581rope", "walk", "\u2581", "o", "f", "."]
        unigram = dict(
            version="1.0", added_tokens=[], normalizer=None, decoder=None,
            pre_tokenizer=dict(type="Sequence", pretokenizers=[
                dict(type="WhitespaceSplit"), dict(type="Metaspace", replacement="\u2581")]),
            post_processor=dict(
                type="TemplateProcessing", pair=[],
                single=[{"Sequence": {"id": "A", "type_id": 0}},
                        {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                special_tokens={"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}),
            model=dict(type="Unigram", unk_id=2, vocab=[[p, -float(i)] for i, p in enumerate(pieces)]))
        byte_level = dict(
            unigram, pre_tokenizer=dict(type="ByteLevel", add_prefix_space=False),
            post_processor=dict(type="RobertaProcessing", sep=["</s>", 2], cls=["<s>", 0],
                                trim_offsets=True, add_prefix_space=False),
            model=dict(type="BPE", merges=["o f"], vocab={p: i for i, p in enumerate(
                ["<s>", "<pad>", "</s>", "o", "f", "of", "\u0120", "."])}))
        for name, tokenizer, text, framed in [
                ("t5", unigram, "the ropewalk \n\u4e2d\u6587.", [3, 4, 5, 6, 2, 9, 1]),
                ("roberta", byte_level, "of of.", [0, 5, 6, 5, 7, 2])]:
            shutil.copytree(golden / name, self.folder / name)
            (self.folder / name / "tokenizer.json").write_text(json.dumps(tokenizer))
            words.write_text(text, encoding="utf-8")
            ids.write_text(json.dumps(framed))
            self.assertEqual(self.json("embed", self.folder / name, "--text", words),
                             self.json("embed", self.folder / name, "--ids", ids), name)
        (self.folder / "t5/tokenizer.json").write_text(json.dumps(dict(unigram, post_processor=None)))
        self.fails(1, "embed", self.folder / "t5", "--text", words, says="post_processor")
        self.fails(1, "embed", golden / "xlnet", "--text", words, says="segment of its own")
        ids.write_text(json.dumps([1, 5, 3, 4, 0, 6, 2]))
        # What a sentence-transformers folder says.
        (bert / "1_Pooling").mkdir()
        (bert / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
        kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
        (bert / "modules.json").write_text(json.dumps(
            [{"path": p, "type": "sentence_transformers.models." + t} for p, t in kinds]))
        first = self.json("embed", bert, "--ids", ids)
        self.assertEqual((first["pooling"], first["normalized"]), ("first", True))
        for v in first["vectors"]:
            self.assertAlmostEqual(sum(x * x for x in v["vector"]), 1, places=5)
        t5 = golden / "t5"
        self.assertIsNone(self.json("embed", t5, "--ids", one)["max_tokens"])
        self.fails(1, "embed", t5, "--ids", ids, "--positions", "hierarchical", says="learned")
        self.fails(1, "embed", MODEL, "--ids", ids, says="encoders that run are bert")
        self.fails(1, "perplexity", bert, "--ids", one, "--length", 16, says="no head of a masked language model")
        self.fails(1, "passkey", bert, "--length", 16, says="ropewalk embed runs it")
        seen = self.works("inspect", t5).decode()
        self.assertIn("layers 0-1: no rotation, scores plus T5 buckets: 32 over distances up to 128", seen)
        biases = {name: self.json("inspect", golden / name, "--json")["positions"]["biases"]
                  for name in ("t5", "umt5", "deberta_c2p", "xlnet_clamped", "nezha", "bert")}
        self.assertEqual(biases["bert"], [])
        layers = dict(layers=[0, 1], title="layers 0-1", heads=4)
        t5_bias = dict(layers, method="t5", buckets=32, last_distance=128, bidirectional=True)
        self.assertEqual(biases["t5"], [dict(t5_bias, per_layer=False)])
        self.assertEqual(biases["umt5"], [dict(t5_bias, per_layer=True)])
        self.assertEqual(biases["deberta_c2p"], [dict(
            layers, method="deberta", buckets=12, last_distance=100, content_to_position=True,
            position_to_content=False, shared_keys=False, normalized_embedding=False)])
        self.assertEqual(biases["xlnet_clamped"], [dict(
            layers, method="transformer_xl", bidirectional=True, last_distance=50)])
        self.assertEqual(biases["nezha"], [dict(layers, method="nezha", last_distance=64)])
        self.assertNotIn("any length", self.works("inspect", golden / "deberta_c2p").decode())
        self.assertNotIn("NoPE", seen)
        self.assertNotIn("layers without positions", seen)
        self.assertIn("a learned vector for each of 20 positions",
                      self.works("inspect", bert).decode())

    def test_prefix(self):
        """A tiny T5: the encoder reads the prefix; a decoder scores the same tokens behind it."""
        golden = SOURCE / "tests/golden/hf_encoder_decoders/t5_lm"
        ids = self.folder / "ids.json"
        ids.write_text(json.dumps([2 + (7 * i + i * i // 5) % 59 for i in range(1500)]))
        run = ("perplexity", golden, "--ids", ids, "--prefix", 40)
        cells = self.json(*run, "--lengths", "64,600,64", "--json")
        self.assertEqual([c["length"] for c in cells], [64, 600])
        for cell in cells:
            self.assertEqual(cell["protocol"], "aligned:24, prefix 40 to the encoder")
            self.assertEqual((cell["scored_tokens"], cell["bos"]), (24 * 8, "none"))
            self.assertAlmostEqual(math.exp(cell["mean_nll"]), cell["perplexity"], places=6)
        self.assertNotEqual(cells[0]["mean_nll"], cells[1]["mean_nll"])
        from_gguf = self.json("perplexity", golden / "model.gguf", *run[2:], "--lengths", "64,600", "--json")
        self.assertEqual([c["mean_nll"] for c in from_gguf], [c["mean_nll"] for c in cells])
        states = [self.json("embed", golden / file, "--ids", ids, "--states", "last")["vectors"]
                  for file in (".", "model.gguf", "encoder.gguf")]
        self.assertEqual(states[1:], states[:1] * 2)
        self.assertIn("nats more than at 64", self.works(*run, "--lengths", "64,600").decode())
        # Each token behind the prefix, and what a longer prefix leaves of them.
        rows = self.folder / "tokens.jsonl"
        whole = self.json(*run, "--length", 100, "--protocol", "windows", "--anchors", 2, "--per-token", rows, "--json")
        tokens = [json.loads(line) for line in rows.read_text().splitlines()]
        self.assertEqual([t["position"] for t in tokens], 2 * list(range(40, 100)))
        self.assertAlmostEqual(whole["mean_nll"], sum(t["nll"] for t in tokens) / 120, places=5)
        self.fails(1, *run, "--length", 64, "--protocol", "aligned:25", says="aligned:24")
        self.fails(1, *run, "--length", 40, says="a length above 40")
        self.fails(2, *run, "--lengths", "64,128", "--per-token", rows, says="--per-token")
        self.fails(2, "perplexity", golden, "--ids", ids, "--length", 64, says="give --prefix N")
        self.fails(2, *run, "--length", 64, "--bos", says="decoder_start_token_id")
        self.fails(2, *run, "--length", 64, "--positions", "hierarchical", says="--positions")
        self.fails(1, *run, "--length", 64, "--method", "yarn", "--trained", 32, says="no layer of this model rotates")
        for command in (("sweep", golden, "-o", self.folder / "x"), ("convert", golden, "-o", self.folder / "x.gguf"),
                        ("generate", golden, "--prompt", "a")):
            self.fails(1, *command, says="ropewalk perplexity --prefix N")
        self.fails(1, "extend", golden, "--method", "yarn", "--factor", 2, "--trained", 512,
                   "-o", self.folder / "y", says="no layer of this model rotates")
        seen = self.works("inspect", golden).decode()
        self.assertIn("3 layers of these sizes with cross-attention, head tied to the embedding", seen)
        self.assertIn("both directions", seen)
        self.assertIn("only keys before the query", seen)
        decoder = self.json("inspect", golden, "--json")["decoder"]
        self.assertEqual((decoder["layers"], decoder["start_id"], decoder["end_id"]), (3, 0, 1))
        self.assertFalse(decoder["positions"]["biases"][0]["bidirectional"])
        # A decoder: the last tokens of a window are the same with a prefix in front or without.
        plain = ("perplexity", SOURCE / "models", "--ids", ids, "--length", 96, "--no-bos", "--protocol")
        self.assertEqual(self.json(*plain, "aligned:16", "--prefix", 80, "--json")["mean_nll"],
                         self.json(*plain, "aligned:16", "--json")["mean_nll"])
        behind = self.json(*plain, "windows", "--prefix", 80, "--json")
        self.assertEqual((behind["scored_tokens"], behind["protocol"]), (16 * 15, "windows, prefix 80"))
        bert = SOURCE / "tests/golden/hf_encoders/bert_masked"
        self.fails(2, "perplexity", bert, "--ids", ids, "--length", 64, "--prefix", 8, says="--prefix")

    def test_pseudo_perplexity(self):
        """A tiny BERT with its head and 300 positions: the same tokens at every length."""
        bert = self.folder / "bert"
        shutil.copytree(SOURCE / "tests/golden/hf_encoders/bert_masked", bert)
        pieces = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(60)]
        (bert / "tokenizer.json").write_text(json.dumps(dict(
            version="1.0", added_tokens=[], normalizer=dict(type="BertNormalizer", lowercase=True),
            pre_tokenizer=dict(type="BertPreTokenizer"), decoder=None,
            post_processor=dict(type="BertProcessing", sep=["[SEP]", 2], cls=["[CLS]", 1]),
            model=dict(type="WordPiece", unk_token="[UNK]",
                       vocab={piece: i for i, piece in enumerate(pieces)}))))
        text = self.folder / "text.txt"
        text.write_text(" ".join(f"w{(7 * i + i * i // 5) % 60}" for i in range(1500)))
        run = ("perplexity", bert, "--text", text, "--protocol", "masked:5", "--anchors", 3)
        got = self.json(*run, "--lengths", "22,300,22", "--json")
        self.assertEqual((got["spans"], got["scored_per_span"], got["special_tokens"], got["positions"]),
                         (3, 5, 2, "model"))
        self.assertEqual([row["length"] for row in got["lengths"]], [22, 300])
        for row in got["lengths"]:
            self.assertEqual(row["scored_tokens"], 15)
            self.assertAlmostEqual(math.exp(row["mean_nll"]), row["pseudo_perplexity"], places=6)
            self.assertAlmostEqual(row["mean_nll"] - got["lengths"][0]["mean_nll"], row["difference"], places=9)
        self.assertEqual(self.json(*run, "--lengths", "22,300", "--json", "--threads", 1), got)
        other = self.json(*run, "--lengths", "22,300", "--json", "--seed", 2)
        self.assertNotEqual(other["lengths"], got["lengths"])
        shown = self.works(*run, "--lengths", "22,300").decode()
        self.assertIn("pseudo-perplexity of 15 tokens: 3 spans of the text, 5 tokens of each", shown)
        # Each scored token; of one length, every token of the only span.
        rows = self.folder / "tokens.jsonl"
        whole = ("perplexity", bert, "--text", text, "--protocol", "masked", "--anchors", 1, "--length", 12)
        self.works(*whole, "--per-token", rows)
        tokens = [json.loads(line) for line in rows.read_text().splitlines()]
        self.assertEqual([t["position"] for t in tokens], list(range(1, 11)))
        mean = sum(t["nll"] for t in tokens) / len(tokens)
        self.assertAlmostEqual(self.json(*whole, "--json")["lengths"][0]["mean_nll"], mean, places=5)
        # Beyond its table, with hierarchical positions and without.
        self.fails(1, *run, "--length", 301, says="hierarchical positions")
        beyond = self.json(*run, "--lengths", "22,301", "--positions", "hierarchical", "--json")
        self.assertEqual(beyond["positions"], "hierarchical, alpha 0.4")
        for options, says in ((("--length", 2), "no room beside 2 special tokens"),
                              (("--length", 1600, "--positions", "hierarchical"), "give a longer text")):
            self.fails(1, *run, *options, says=says)
        for options, says in ((("--method", "none", "--length", 22), "--methods is for decoders"),
                              (("--kv", "q8_0", "--length", 22), "--kv is for decoders"),
                              (("--protocol", "half", "--length", 22), "masked:K"),
                              (("--protocol", "masked:0", "--length", 22), "masked:K"),
                              (("--per-token", rows, "--lengths", "22,30"), "--per-token"),
                              (("--length", 22, "--positions", "none"), "--positions"), ((), "--lengths")):
            self.fails(2, *run[:4], *options, says=says)
        self.fails(2, "perplexity", MODEL, "--text", text, "--length", 16, "--positions", "model",
                   says="--positions is for text encoders")
        pieces[3] = "[PAD]"
        vocabulary = json.loads((bert / "tokenizer.json").read_text())
        vocabulary["model"]["vocab"] = {piece: i for i, piece in enumerate(pieces)}
        (bert / "tokenizer.json").write_text(json.dumps(vocabulary))
        self.fails(1, *run, "--length", 22, says="no token [MASK]")

    def test_killed_and_interrupted_sweeps_resume(self):
        whole = self.sweep("whole", "--lengths", "128,256,512")
        self.works(*whole)
        expected = self.rows("whole")
        for end, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
            name = f"cut-{code}"
            returned, message, left, command = self.interrupted_sweep(name, end)
            self.assertEqual(returned, code, message)
            if end == signal.SIGINT:
                self.assertIn("the same command continues", message)
                self.assertTrue(left.endswith(b"\n"))
            self.assertLess(left.count(b"\n"), len(expected), "it ended before the signal came")
            result = run(*command)
            self.assertEqual(result.returncode, 0)
            self.assertEqual(result.stderr.count(b"already there"), left.count(b"\n") - 1)
            after = (self.folder / name / "results.jsonl").read_bytes()
            self.assertTrue(after.startswith(left[:left.rfind(b"\n") + 1]))  # nothing done twice
            self.assertEqual(self.rows(name), expected)

    def test_disk_full_and_unwritable(self):
        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))

        more = ["--lengths", "128,256,512", "--methods", "none,yarn"]
        result = run(*self.sweep("full", *more), preexec_fn=small_files)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"rows before are whole", result.stderr)
        left = (self.folder / "full/results.jsonl").read_bytes()
        self.assertTrue(left.endswith(b"\n"))
        self.assertGreater(left.count(b"\n"), 1)
        self.works(*self.sweep("full", *more))
        self.assertTrue((self.folder / "full/results.jsonl").read_bytes().startswith(left))
        self.fails(1, *self.sweep("text.txt/below", *more), says="cannot create the folder")
        os.symlink("/dev/full", self.folder / "device")
        (self.folder / "dev").mkdir()
        os.symlink("/dev/full", self.folder / "dev/results.jsonl")
        self.fails(1, *self.sweep("dev", *more), says="No space left on device")


if __name__ == "__main__":
    support.main()
