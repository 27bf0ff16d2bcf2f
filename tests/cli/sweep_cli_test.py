"""The sweep as a user plans and reads it: what is measured, what is recommended, how long it takes."""

import json
import shlex
import shutil
import time

import support
from support import MODEL, SOURCE, WHOLE_MODEL, make_text, run

TINY = ["--anchors", 2, "--protocol", "aligned:32", "--tasks", "perplexity"]


class SweepCase(support.CliCase):
    def sweep(self, name, *more, model=MODEL):
        return ["sweep", model, "--text", self.text, "-o", self.folder / name, *more]

    def rows(self, name):
        lines = (self.folder / name / "results.jsonl").read_text().splitlines()[1:]
        return [(r["method"], r["factor"], r["length"]) for r in map(json.loads, lines)]

    def planned(self, *more):
        plan = self.json(*self.sweep("plan", *more), "--dry-run", "--json")
        return [(c["method"], c["factor"], c["length"]) for c in plan["cells"]]

    def flat(self, text):
        return " ".join(text.decode().split())


class Planning(SweepCase):
    def test_each_method_once_at_each_length(self):
        ten = "none,linear,ntk,dynamic,by-parts,by-parts-repo,yarn,llama3,hope,rerope"
        plan = self.json(*self.sweep("p", "--methods", ten, "--lengths", "256,512,1024,2k", *TINY),
                         "--dry-run", "--json")
        self.assertEqual(len(plan["cells"]), 40)
        self.assertEqual(plan["most_cost_cells"], 2)  # of factors 2 and 4 at 256
        self.assertFalse(any(c["added"] for c in plan["cells"]))
        self.assertEqual(self.planned("--methods", "none,yarn", "--lengths", "128,512,1k", *TINY), [
            ("none", 1, 128), ("yarn", 4, 128), ("none", 1, 256), ("none", 1, 512),
            ("yarn", 2, 512), ("none", 1, 1024), ("yarn", 4, 1024)])

    def test_what_is_added_is_said_first(self):
        result = run(*self.sweep("a", "--methods", "yarn", "--lengths", "512", *TINY))
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stderr.decode().splitlines()
        added = [i for i, line in enumerate(lines) if "none at 256 tokens, the trained length, is "
                 "added: usability is judged relative to it" in line]
        estimate = [i for i, line in enumerate(lines) if "2 cells, up to 1 more to measure the cost "
                    "of the recommended settings at the trained length, " in line]
        first = [i for i, line in enumerate(lines) if line.startswith("[1/")]
        self.assertTrue(added[0] < estimate[0] < first[0], lines)
        # The cost of what is recommended was measured, and is in the text.
        self.assertEqual(self.rows("a"),
                         [("none", 1, 256), ("yarn", 2, 512), ("yarn", 2, 256)])
        self.assertIn("At 256 tokens it has no measurable cost", self.flat(result.stdout))
        # Again: it is all there, and nothing is announced.
        plan = self.json(*self.sweep("a", "--methods", "yarn", "--lengths", "512", *TINY),
                         "--dry-run", "--json")
        self.assertEqual([c["finished"] for c in plan["cells"]], [True] * 3)
        self.assertEqual((plan["most_cost_cells"], plan["tokens"], plan["seconds"]), (0, 0, 0))

    def test_lengths_that_nobody_asked_for_break_nothing(self):
        sliding = ["--protocol", "sliding:128", "--anchors", 4, "--tasks", "perplexity", "--lengths", 512]
        self.works(*self.sweep("s", *sliding, "--methods", "linear"))
        self.assertEqual(self.rows("s")[:2], [("none", 1, 256), ("linear", 2, 512)])
        wide = ["--protocol", "sliding:256", "--anchors", 4, "--tasks", "perplexity", "--lengths", 512]
        result = run(*self.sweep("w", *wide, "--methods", "linear"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(b"sliding:256 cannot score windows of the trained 256 tokens", result.stderr)
        self.assertEqual(self.rows("w"), [("linear", 2, 512)])
        self.assertIn("nothing can be recommended", self.flat(result.stdout))


class Recommending(SweepCase):
    def test_one_method_is_judged_as_beside_none(self):
        more = ["--lengths", 4096, "--anchors", 2, "--protocol", "aligned:64", "--tasks", "perplexity"]
        alone = self.flat(self.works(*self.sweep("a", "--methods", "linear", *more, model=WHOLE_MODEL)))
        beside = self.flat(self.works(*self.sweep("b", "--methods", "none,linear", *more, model=WHOLE_MODEL)))
        for text in (alone, beside):
            self.assertIn("no method is usable", text)
            for wrong in ("costs nothing", "use linear"):
                self.assertNotIn(wrong, text)
        self.assertIn("The only one measured is linear with factor 4: perplexity", alone)
        report, = self.json("report", self.folder / "a", "--json")["sweeps"]
        advice, = report["recommendations"]
        self.assertTrue(advice["judged"])
        self.assertIsNone(advice["method"])
        self.assertIsNone(advice["trained_length_cost"])

    def test_old_folders_without_none(self):
        self.works(*self.sweep("a", "--methods", "linear", "--lengths", 1024, *TINY))
        file = self.folder / "a/results.jsonl"
        lines = [l for l in file.read_text().splitlines() if '"method":"none"' not in l]
        file.write_text("\n".join(lines) + "\n")
        text = self.flat(self.works("report", self.folder / "a", "--markdown"))
        self.assertIn("nothing can be recommended: the model without scaling was not measured at 256 tokens", text)
        for wrong in ("costs", "best", "use linear"):
            self.assertNotIn(wrong, text)
        report, = self.json("report", self.folder / "a", "--json")["sweeps"]
        self.assertFalse(report["recommendations"][0]["judged"])
        self.assertIsNone(report["recommendations"][0]["trained_length_cost"])
        self.assertEqual(report["usable"], [])
        # The sweep again adds what is missing.
        self.works(*self.sweep("a", "--methods", "linear", "--lengths", 1024, *TINY))
        report, = self.json("report", self.folder / "a", "--json")["sweeps"]
        self.assertTrue(report["recommendations"][0]["judged"])


class Passkey(SweepCase):
    def test_one_default_filler(self):
        passkey = ["passkey", MODEL, "--length", 256, "--passkey-trials", 1]
        cell = self.json(*passkey, "--json")
        self.assertIn("built-in filler", cell["tasks_protocol"])
        self.assertEqual(cell["text_hash"], "")
        text = self.json(*passkey, "--json", "--passkey-filler", "text", "--text", self.text)
        self.assertIn("filler from the text", text["tasks_protocol"])
        self.assertNotEqual(text["text_hash"], "")
        self.assertIn(b"built-in filler", self.works(*passkey))
        self.fails(2, *passkey, "--passkey-filler", "text", says="give the text with --text FILE")
        self.fails(2, *passkey, "--text", self.text, says="add --passkey-filler text")
        self.fails(2, *passkey, "--passkey-filler", "grass", says="--passkey-filler")
        # The sweep has the same default, and its cell the same trials.
        more = ["--methods", "none", "--lengths", 256, "--passkey-trials", 1, "--anchors", 2, "--no-share",
                "--tasks", "perplexity,passkey"]
        self.works(*self.sweep("a", *more))
        row = json.loads((self.folder / "a/results.jsonl").read_text().splitlines()[1])
        self.assertEqual(row["tasks_protocol"], cell["tasks_protocol"])
        self.assertEqual(row["tasks"], cell["tasks"])
        message = self.fails(1, *self.sweep("a", *more, "--passkey-filler", "text"))
        self.assertIn("tasks_protocol there", message)
        self.assertIn("filler from the text", message)

    def test_a_task_that_fails_on_short_text_decides_nothing(self):
        self.works(*self.sweep("a", "--methods", "none,yarn", "--lengths", "128,256,512",
                               "--anchors", 2, "--passkey-trials", 2, "--tasks", "perplexity,passkey"))
        file = self.folder / "a/results.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines[1:]:
            if (line["method"], line["length"]) == ("none", 128):
                line["tasks"][0]["answers"] = [{"prompt": i, "question": 0, "depth": 0.5, "nll": 1, "tokens": 5,
                                                "exact": i == 0, "recall": None} for i in range(10)]
                line["tasks"][0]["exact"] = 0.1
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        says = "already at 128 tokens the model without scaling scores only 0.10 (10 answers)"
        report, = self.json("report", self.folder / "a", "--json")["sweeps"]
        use, = report["tasks"]
        self.assertEqual((use["task"], use["counts"]), ("passkey", False))
        self.assertIn(says, use["reason"])
        self.assertIn(says, report["rules"])
        self.assertIn(says, self.flat(self.works("report", self.folder / "a", "--markdown")))
        self.works("report", self.folder / "a", "-o", self.folder / "page.html")
        self.assertIn(says, self.flat((self.folder / "page.html").read_bytes()))


class Estimating(SweepCase):
    def setUp(self):
        super().setUp()
        self.text.write_text(make_text(9000))

    def test_engines_are_refused_before_anything_is_measured(self):
        self.fails(2, *self.sweep("a", "--engine", "jax"), says="--engine")
        self.fails(2, *self.sweep("a", "--engine", "torch"), says="pip install 'ropewalk[torch]'")
        self.fails(2, *self.sweep("a", "--device", "cuda"), says="--device goes with --engine torch")
        self.assertFalse((self.folder / "a").exists())

    def test_a_budget_says_what_it_leaves_out_and_how_to_go_on(self):
        more = ["--methods", "none,yarn,linear", "--lengths", "256,512,2k", "--anchors", 6]
        whole = self.json(*self.sweep("whole", *more), "--dry-run", "--json")
        self.assertEqual([n["length"] for n in whole["lengths"]], [256, 512, 2048])
        for n in (whole, *whole["lengths"]):
            self.assertTrue(0 < n["least_seconds"] <= n["seconds"], n)
            self.assertTrue(0 < n["least_tokens"] <= n["tokens"], n)
        self.assertEqual(sum(n["tokens"] for n in whole["lengths"]), sum(c["tokens"] for c in whole["cells"]))
        short = [*more, "--budget", "1s"]
        plan = self.json(*self.sweep("a", *short), "--dry-run", "--json")
        self.assertEqual(plan["budget_seconds"], 1)
        self.assertIs(plan["lengths"][-1]["left_out"], True)
        result = run(*self.sweep("a", *short))
        said = self.flat(result.stderr)
        if result.returncode != 0:  # not even the first cell on a slow machine
            self.assertIn("no length has its first rows within the budget of 0:01", said)
        self.assertIn("2048 tokens (about ", said)
        command = shlex.split(said.split("to go on: ")[1])
        self.assertEqual(command[:2], ["ropewalk", "sweep"])
        self.assertRegex(command[command.index("--budget") + 1], "^[0-9]+m$")
        # It goes on, with nothing measured twice, to what an undisturbed sweep has.
        self.works(*command[1:])
        self.works(*self.sweep("b", *more, "--budget", "none"))
        units = (self.folder / "a/units.jsonl").read_text().splitlines()
        windows = [(u["cell"], u["window"]) for u in map(json.loads, units) if "window" in u]
        self.assertEqual(len(windows), len(set(windows)))
        self.assertEqual(self.last_rows("a"), self.last_rows("b"))

    def last_rows(self, name):
        lines = (self.folder / name / "results.jsonl").read_text().splitlines()[1:]
        rows = {}
        for row in map(json.loads, lines):
            row.pop("seconds")
            rows[row["identity"]] = row
        self.assertFalse(any(row["unfinished"] for row in rows.values()))
        return rows

    def test_budgets_are_times(self):
        for wrong in ("1", "m", "0m", "-1h", "5 m", "1d", "", "1.5h", "none1"):
            self.fails(2, *self.sweep("a", *TINY, "--budget", wrong), says="expected a time such as 90s, 30m or 2h")
        self.fails(2, *self.sweep("a", *TINY, "--yes"), says="--yes")
        for right, seconds in (("90s", 90), ("2h", 7200), ("none", None)):
            plan = self.json(*self.sweep("a", *TINY, "--budget", right), "--dry-run", "--json")
            self.assertEqual(plan["budget_seconds"], seconds)

    def test_the_estimate_is_of_this_machine(self):
        """Loosely: the machine may be busy with something else in one of the two."""
        more = ["--methods", "none,yarn,linear", "--lengths", "512,2k", "--no-race"]
        estimates = [self.json(*self.sweep("a", *more), "--dry-run", "--json")["seconds"] for _ in range(2)]
        begin = time.time()
        self.works(*self.sweep("a", *more))
        taken = time.time() - begin
        self.assertLess(min(estimates) / 2, taken)
        self.assertGreater(max(estimates) * 2, taken - 1)

    def test_what_is_there_already_does_not_count(self):
        more = ["--methods", "none,ntk", "--lengths", "256,512", *TINY]
        before = self.json(*self.sweep("a", *more), "--dry-run", "--json")
        self.works(*self.sweep("a", "--methods", "none", "--lengths", "256,512", *TINY))
        after = self.json(*self.sweep("a", *more), "--dry-run", "--json")
        self.assertEqual([c["finished"] for c in after["cells"]], [True, False, True, False])
        self.assertEqual(after["tokens"],
                         before["tokens"] - sum(c["tokens"] for c in before["cells"][::2]))
        self.assertIn(b"4 cells (2 of them already finished)", run(*self.sweep("a", *more)).stderr)

    def test_the_search_is_in_it(self):
        more = ["--methods", "none", "--lengths", "256,512", *TINY]
        without = self.json(*self.sweep("a", *more), "--dry-run", "--json")
        plan = self.json(*self.sweep("a", *more, "--search", "base", "--search-trials", 3), "--dry-run",
                         "--json")
        self.assertEqual(plan["search_trials"], 3)
        per_cell = {c["length"]: c["tokens"] for c in without["cells"]}
        self.assertEqual(plan["tokens"] - without["tokens"],
                         3 * per_cell[512] + per_cell[256] + per_cell[512])
        # Once it is done, nothing of it counts any more.
        search = self.sweep("a", *more, "--search", "base", "--search-trials", 3)
        self.works(*search)
        plan = self.json(*search, "--dry-run", "--json")
        self.assertEqual((plan["search_trials"], plan["tokens"]), (0, 0))
        self.assertIn("search-base", [c["method"] for c in plan["cells"]])


class UnknownTrainedLength(SweepCase):
    def setUp(self):
        super().setUp()
        golden = SOURCE / "tests/golden/hf_models/bloom"
        self.model = self.folder / "bloom"
        self.model.mkdir()
        shutil.copy(golden / "model.safetensors", self.model)
        config = json.loads((golden / "default.json").read_text())
        for key in ("seq_length", "max_position_embeddings", "n_positions"):
            config.pop(key, None)
        (self.model / "config.json").write_text(json.dumps(config))
        self.ids = self.folder / "ids.json"
        self.ids.write_text(json.dumps([(7 * i * i + i // 5) % 64 for i in range(700)]))

    def clean(self, text):
        for wrong in ("inf", "nan", "at 0", "trained 0", "0 tokens", "trained length 0"):
            self.assertNotIn(wrong, text)
        return text

    def test_every_command(self):
        common = [self.model, "--ids", self.ids, "--anchors", 2, "--protocol", "aligned:16"]
        self.fails(2, "sweep", *common, "-o", self.folder / "a",
                   says="the trained length of the model is unknown; give --trained N")
        command = ["sweep", *common, "-o", self.folder / "a", "--lengths", "64,128"]
        result = run(*command)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(b"nothing will be recommended; give it with --trained N", result.stderr)
        self.assertIn("Nothing is recommended, because the trained length is unknown; sweep with "
                      "--trained N", self.clean(self.flat(result.stdout)))
        self.assertEqual(self.rows("a"), [("none", 1, 64), ("none", 1, 128)])
        for form in (["--markdown"], ["--csv"], ["-o", self.folder / "page.html"]):
            self.clean(self.works("report", self.folder / "a", *form).decode())
        page = (self.folder / "page.html").read_text()
        plain = " ".join(page[page.index("<noscript>"):page.index("</noscript>")].split())
        self.assertIn("Trained at an unknown length", self.clean(plain))
        self.clean(self.works("perplexity", *common, "--length", 64).decode())
        self.clean(self.works("inspect", self.model).decode())
        # Where it is given, the rules apply.
        out = self.works("sweep", *common, "-o", self.folder / "b", "--lengths", "64,128", "--trained",
                         64)
        self.assertIn("For 128 tokens (2 times the trained 64)", self.flat(out))


if __name__ == "__main__":
    support.main()
