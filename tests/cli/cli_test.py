"""The program from outside: exit codes, JSON, files, interruption. Python's standard library only.

usage: cli_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import math
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
MODEL = str(SOURCE / "models")
TRAINED = 256


def run(*arguments, **more):
    more.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=300, **more)


def make_text(words):
    """Plain prose of a kind, without repeating itself soon."""
    nouns = "king man house people land city son day word hand priest field river stone".split()
    verbs = "went spake came saw took gave made said built heard sent found kept brought".split()
    text, state = [], 12345
    for i in range(words // 6):
        pick = []
        for _ in range(3):
            state = (state * 1103515245 + 12345) % 2**31
            pick.append(state >> 8)
        text.append(f"And the {nouns[pick[0] % 14]} {verbs[pick[1] % 14]} unto the "
                    f"{nouns[pick[2] % 14]}" + (".\n" if i % 3 == 0 else ", "))
    return "".join(text)


class Cli(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ropewalk-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.text = self.folder / "text.txt"
        self.text.write_text(make_text(3000))

    def fails(self, code, *arguments, says="", **more):
        result = run(*arguments, **more)
        message = result.stderr.decode()
        self.assertEqual(result.returncode, code, message)
        self.assertEqual(result.stdout, b"")
        errors = [line for line in message.splitlines() if line.startswith("ropewalk: error: ")]
        self.assertEqual(len(errors), 1, message)
        self.assertEqual(message.splitlines()[-1], errors[0])
        self.assertIn(says, errors[0])
        return errors[0]

    def works(self, *arguments, **more):
        result = run(*arguments, **more)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return result.stdout

    def json(self, *arguments, **more):
        return json.loads(self.works(*arguments, **more))

    def sweep(self, name, *more):
        return ["sweep", MODEL, "--text", self.text, "-o", self.folder / name, "--anchors", 4,
                "--passkey-trials", 1, "--depths", "0.2,0.8", *more]

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
        for command in ("inspect", "sweep", "perplexity", "passkey", "generate", "tokenize",
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
        self.fails(2, *t, "--length", "256,512", says="one length")
        self.fails(2, *t, "--length", "long", says="'long'")
        self.fails(2, *t, "--length", "0", says="'0'")
        self.fails(2, *t, "--length", "99999999999999999999")
        self.fails(2, *t, "--length", 256, "--protocol", "aligned:x", says="aligned:K")
        self.fails(2, *t, "--length", 256, "--method", "bogus", says="as-shipped")
        self.fails(2, *t, "--length", 256, "--angles", "wrong")
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
        self.works("info")
        model = self.json("inspect", MODEL, "--json")
        self.assertEqual(model["trained_length"], TRAINED)
        self.assertEqual(len(model["model_hash"]), 32)
        self.assertIn(model["plan_hash"], self.works("inspect", MODEL).decode())
        # A configuration alone, and a folder without weights or tokenizer.
        config = self.folder / "config.json"
        shutil.copy(SOURCE / "models/config.json", config)
        for path in (config, self.folder):
            alone = self.json("inspect", path, "--json")
            self.assertEqual(alone["plan_hash"], model["plan_hash"])
            self.assertEqual(alone["model_hash"], "")
            self.assertIn("no tokenizer", " ".join(alone["unusual"]))

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
        self.assertEqual(len(rows), 8 * 128)
        self.assertEqual(cell["scored_tokens"], len(rows))
        self.assertAlmostEqual(sum(r["nll"] for r in rows) / len(rows), cell["mean_nll"], 5)
        self.assertAlmostEqual(math.exp(cell["mean_nll"]), cell["perplexity"], 6)
        self.assertEqual({r["position"] for r in rows}, set(range(384, 512)))
        self.assertEqual(cell["protocol"], "aligned:128")
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
        cell = self.json("passkey", MODEL, "--length", TRAINED, "--text", self.text, "--json",
                         "--passkey-trials", 2)
        self.assertEqual(cell["passkey_trials"], 10)
        self.assertGreaterEqual(cell["passkey_accuracy"], 0.7)  # the model was trained to do this
        far = self.json("passkey", MODEL, "--length", "2k", "--json", "--passkey-trials", 1)
        self.assertEqual(far["length"], 2048)
        self.assertEqual(far["passkey_accuracy"], 0)  # and cannot do it at 8 times the length
        self.assertIn("passkey", self.works("passkey", MODEL, "--length", TRAINED).decode())

    # ---- the sweep

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
        self.assertEqual({r["protocol"] for r in rows}, {"aligned:64"})
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
        yarn = [r for r in rows[1:] if (r["method"], r["length"]) == ("yarn", 512)][0]
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
        self.assertFalse(self.rows("a")[1]["has_passkey"])

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

    def test_killed_and_interrupted_sweeps_resume(self):
        whole = self.sweep("whole", "--lengths", "128,256,512")
        self.works(*whole)
        expected = self.rows("whole")
        for end, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
            name = f"cut-{code}"
            returned, message, left, command = self.interrupted_sweep(name, end)
            self.assertEqual(returned, code, message)
            if end == signal.SIGINT:
                self.assertIn("the same command goes on", message)
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
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
