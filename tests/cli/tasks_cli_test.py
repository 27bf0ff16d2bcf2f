"""Tasks with questions and answers: `ropewalk kv`, `ropewalk ruler`, `ropewalk sweep --tasks`, and the race."""

import json

import support
from support import MODEL


class Tasks(support.CliCase):
    def test_kv_asks_many_questions_behind_one_prompt(self):
        cell = self.json("kv", MODEL, "--length", "2k", "--method", "yarn", "--factor", 8, "--json")
        (task,) = cell["tasks"]
        self.assertEqual((task["task"], task["prompts"]), ("kv", 1))
        self.assertGreaterEqual(len(task["answers"]), 4)
        self.assertIsNone(task["recall"])
        nats = sum(a["nll"] for a in task["answers"]) / sum(a["tokens"] for a in task["answers"])
        self.assertAlmostEqual(task["mean_nll"], nats, 9)
        depths = [a["depth"] for a in task["answers"]]
        self.assertEqual(depths, sorted(depths))
        # The context once, and a fifth more for the questions.
        self.assertLess(task["fed_tokens"], 1.25 * 2048)
        text = self.works("kv", MODEL, "--length", "2k", "--method", "yarn", "--factor", 8).decode()
        self.assertIn(f"of {len(task['answers'])} answers", text)
        self.assertIn("depth 0.", text)

    def test_prompts_of_passkeys_say_what_is_asked(self):
        lines = self.works("prompts", MODEL, "--tasks", "passkey", "--length", "2k", "--passkey-trials", 9).decode().splitlines()
        self.assertEqual(len(lines), 9)
        for line in map(json.loads, lines):
            key, = line["references"]
            self.assertRegex(key, "^[1-9][0-9]{4}$")
            self.assertEqual(line["answer"], " " + key)
            name = line["question_text"].split()[6].rstrip("?")
            needle = f" The pass key of {name} is {key}. Remember it. {key} is the pass key of {name}."
            self.assertEqual(line["context"].count(needle), 1)
            self.assertLessEqual(len(line["context_ids"]) + len(line["question_ids"]) + len(line["answer_ids"]), 2048)
        self.fails(2, "prompts", MODEL, "--tasks", "passkey", "--length", "2k", "--passkey-filler", "text", says="--text FILE")

    def test_rulers_score_is_the_recall_of_the_greedy_continuation(self):
        cell = self.json("ruler", MODEL, "--tasks", "vt,niah_multikey_2", "--length", "1k", "--samples", 2, "--method", "yarn",
                         "--json")
        self.assertEqual([t["task"] for t in cell["tasks"]], ["ruler:vt", "ruler:niah_multikey_2"])
        for task in cell["tasks"]:
            self.assertEqual(task["prompts"], 2)
            self.assertEqual(task["recall"], sum(a["recall"] for a in task["answers"]) / len(task["answers"]))
            self.assertTrue(all("output" in a for a in task["answers"]))
        without = self.json("ruler", MODEL, "--tasks", "vt", "--length", "1k", "--samples", 2, "--method", "yarn", "--no-generate",
                            "--json")
        self.assertIsNone(without["tasks"][0]["recall"])
        self.assertAlmostEqual(without["tasks"][0]["mean_nll"], cell["tasks"][0]["mean_nll"], 4)

    def test_what_does_not_fit_is_said_with_the_need(self):
        self.fails(1, "kv", MODEL, "--length", 256, says="two pairs of UUIDs with a question take")
        self.fails(1, "ruler", MODEL, "--tasks", "vt", "--length", 256, says="takes 950")
        self.fails(1, "ruler", MODEL, "--tasks", "vt,nonsense", "--length", "1k", says="nonsense")
        self.fails(2, "kv", MODEL, says="--length")
        self.fails(2, "kv", MODEL, "--lengths", "512,1k", says="one length")
        self.fails(1, "ruler", MODEL, "--tasks", "qa_1", "--length", "1k", says="squad")

    def test_files_without_documents_and_essays_without_spaces_are_refused(self):
        hotpot, essay = self.folder / "hotpot.json", self.folder / "essay.txt"
        hotpot.write_text(json.dumps([{"question": "q", "answer": "a", "context": []}]))
        ask = ["prompts", MODEL, "--length", "1k", "--samples", 1, "--tasks"]
        self.fails(1, *ask, "ruler:qa_2", "--hotpot", hotpot, says="hotpot.json: has no documents")
        essay.write_text("[" * 200_000)
        self.fails(1, *ask, "ruler:niah_single_2", "--haystack", essay, says="essay.txt take more")

    def test_numbers_of_samples_and_anchors_have_a_range(self):
        for command in (["kv", MODEL, "--length", "2k"], ["prompts", MODEL, "--length", "2k", "--tasks", "kv"]):
            self.fails(2, *command, "--samples", 0, says="not in range 1")
            self.fails(2, *command, "--samples", -3, says="not in range 1")
        self.fails(2, "perplexity", MODEL, "--text", self.text, "--length", 256, "--anchors", 2**62, says="not in range")

    def test_what_is_read_is_not_replaced(self):
        book, link = self.folder / "book.txt", self.folder / "link.txt"
        book.write_bytes(self.text.read_bytes())
        link.symlink_to(book)
        before = book.read_bytes()
        sweep = ["sweep", MODEL, "--text", book, "--lengths", "1k", "--methods", "none", "--tasks", "perplexity,passkey"]
        for name in (book, link):
            self.fails(2, *sweep, "--prompts", name, "--prompts-only", says="is a file that this command reads")
            self.fails(2, "perplexity", MODEL, "--text", book, "--length", 256, "--per-token", name, says="--per-token")
            self.fails(2, "prompts", MODEL, "--tasks", "passkey", "--length", "1k", "--text", book, "-o", name, says="-o")
        self.assertEqual(book.read_bytes(), before)
        self.fails(2, "prompts", MODEL, "--tasks", "passkey", "--length", "1k", "-o", f"{MODEL}/config.json", says="config.json")

    def test_results_are_written_through_links_and_to_devices(self):
        file, link = self.folder / "file.jsonl", self.folder / "links.jsonl"
        link.symlink_to(file.name)
        file.write_text("")
        prompts = ["prompts", MODEL, "--tasks", "kv", "--length", "2k", "--samples", 1]
        lines = self.works(*prompts)
        self.works(*prompts, "-o", link)
        self.assertEqual(file.read_bytes(), lines)
        self.assertTrue(link.is_symlink())
        self.assertEqual(self.works(*prompts, "-o", "/dev/stdout"), lines)

    def test_dry_runs_count_questions(self):
        once = self.json("kv", MODEL, "--length", "2k", "--dry-run", "--json")
        twice = self.json("kv", MODEL, "--length", "2k", "--samples", 2, "--dry-run", "--json")
        cell = self.json("kv", MODEL, "--length", "2k", "--json")
        self.assertGreater(twice["tokens"], 1.9 * once["tokens"])
        self.assertAlmostEqual(once["tokens"] / cell["tasks"][0]["fed_tokens"], 1, delta=0.05)


class Sweeps(support.CliCase):
    def sweep(self, *more):
        return self.sweep_plan(*more, dry_run=False)["sweeps"][0]

    def sweep_plan(self, *more, dry_run=True):
        if dry_run:
            more = [*more, "--dry-run"]
        return self.json("sweep", MODEL, "--text", self.text, "--methods", "none,linear:16,yarn", "--lengths", "256,512", "--anchors", 8,
                         "--passkey-trials", 1, "-o", self.folder / "out", "--json", *more)

    def test_tasks_are_in_rows_report_and_tables(self):
        sweep = self.sweep("--tasks", "perplexity,kv", "--no-race")
        for cell in sweep["cells"]:
            self.assertEqual([t["task"] for t in cell["tasks"]], ["kv"] if cell["length"] == 512 else [])
        self.assertTrue(any("kv is left out at 256 tokens" in note for note in sweep["header"]["notes"]))
        folder = self.folder / "out"
        self.assertIn("share of exact answers", self.works("report", folder, "--markdown").decode())
        self.assertIn("kv ", self.works("report", folder, "--csv").decode())
        page = (folder / "report.html").read_text()
        self.assertIn("const Tasks = ", page)
        # Other tasks are another sweep.
        self.fails(1, "sweep", MODEL, "--text", self.text, "--methods", "none,linear,yarn", "--lengths", "256,512", "--anchors", 8,
                   "--passkey-trials", 1, "-o", folder, says="tasks_protocol")

    def test_by_default_passkeys_alone_are_asked(self):
        sweep = self.sweep("--no-race")
        self.assertTrue(all([t["task"] for t in cell["tasks"]] == ["passkey"] for cell in sweep["cells"]))
        self.assertNotIn("kv = ", sweep["header"]["tasks_protocol"])

    def test_a_sweep_needs_perplexity_and_says_where_the_others_are(self):
        self.fails(2, "sweep", MODEL, "--text", self.text, "--tasks", "kv", says="commands of their own")
        self.fails(1, "sweep", MODEL, "--text", self.text, "--tasks", "perplexity,nonsense", says="nonsense")

    def test_key_tokens_are_the_same_at_every_length_and_method(self):
        more = ["--tasks", "perplexity,key-tokens", "--protocol", "aligned:96", "--short-context", 16, "--no-race"]
        plan = self.sweep_plan(*more)
        self.assertGreater(plan["key_tokens"]["tokens"], 96)
        self.assertGreater(plan["key_tokens"]["seconds"], 0)
        self.assertEqual(plan["tokens"], plan["key_tokens"]["tokens"] + sum(n["tokens"] for n in plan["lengths"]))
        sweep = self.sweep(*more)
        # Once they are found they cost nothing more.
        self.assertEqual(self.sweep_plan(*more)["key_tokens"], {"tokens": 0, "seconds": 0})
        first = [t for t in sweep["cells"][0]["tasks"] if t["task"] == "key-tokens"]
        self.assertEqual(len(first), 1)
        self.assertGreater(len(first[0]["answers"]), 0)
        for cell in sweep["cells"]:
            task, = cell["tasks"]
            self.assertEqual([(a["prompt"], a["question"]) for a in task["answers"]],
                             [(a["prompt"], a["question"]) for a in first[0]["answers"]])
            self.assertEqual(task["data_hash"], first[0]["data_hash"])
            nats = [a["nll"] for a in task["answers"]]
            self.assertAlmostEqual(task["mean_nll"], sum(nats) / len(nats), 9)
        # The spans lie beside the results, and are read when the sweep goes on.
        spans = self.folder / "out/key-tokens.json"
        before = spans.read_bytes()
        self.assertEqual(json.loads(before)["settings"]["short_context"], 16)
        rows = (self.folder / "out/results.jsonl").read_bytes()
        self.sweep(*more)
        self.assertEqual(spans.read_bytes(), before)
        self.assertEqual((self.folder / "out/results.jsonl").read_bytes(), rows)
        # The same spans elsewhere; without them in this folder it is another sweep.
        again = self.sweep(*more, "--spans", spans)
        self.assertEqual(again["cells"][0]["tasks"], sweep["cells"][0]["tasks"])
        # A search lowers their loss: that of its best trial is the lowest, and the sweep measures the same.
        self.works("sweep", MODEL, "--text", self.text, "--methods", "none", "--lengths", "256,512", "-o", self.folder / "found",
                   *more, "--spans", spans, "--search", "factors", "--search-by", "key-tokens", "--search-trials", 2)
        trials, rows = ([json.loads(line) for line in (self.folder / "found" / file).read_text().splitlines()[1:]]
                        for file in ("search-factors/results.jsonl", "results.jsonl"))
        self.assertEqual([[t["task"] for t in trial["tasks"]] for trial in trials], [["key-tokens"]] * 2)
        best = min(trials, key=lambda trial: trial["tasks"][0]["mean_nll"])
        found, = (row for row in rows if row["method"] == "search-factors" and row["length"] == 512)
        self.assertEqual(found["scaling"], best["scaling"])
        self.assertEqual(found["tasks"][0]["answers"], best["tasks"][0]["answers"])
        base = ["sweep", MODEL, "--text", self.text, "--methods", "none", "--lengths", "256,512", "-o", self.folder / "b"]
        self.fails(2, *base, "--tasks", "perplexity,key-tokens", "--protocol", "windows", says="--protocol aligned")
        other = self.folder / "other.txt"
        other.write_text(self.text.read_text()[::-1])
        base[3] = other
        self.fails(1, *base, "--tasks", "perplexity,key-tokens", "--spans", spans, says="text")

    def test_who_is_far_behind_leaves_the_race(self):
        sweep = self.sweep("--tasks", "perplexity,passkey")
        left = {(c["method"], c["length"]): c for c in sweep["cells"] if c["race_exit"]}
        self.assertIn(("linear:16", 256), left)  # 16 times the factor it would need there
        self.assertNotIn(("none", 256), left)
        for (_, length), cell in left.items():
            # At 512 tokens the passkeys stand behind the windows of the first round.
            self.assertEqual(cell["tasks"] == [], cell["race_exit"]["round"] == 1 and length == 256)
            self.assertEqual(len(cell["window_nll"]), cell["windows"])
            self.assertGreater(cell["race_exit"]["at_least"], 0.05)
        text = self.works("report", self.folder / "out", "--markdown").decode()
        self.assertIn("clearly behind another method", text)
        # Without the race the same folder is measured whole.
        whole = self.sweep("--tasks", "perplexity,passkey", "--no-race")
        self.assertTrue(all(c["race_exit"] is None and c["windows"] == 8 for c in whole["cells"]))
        kept = {(c["method"], c["factor"], c["length"]): c["window_nll"] for c in whole["cells"]}
        for (method, length), cell in left.items():
            self.assertEqual(kept[method, cell["factor"], length][: cell["windows"]], cell["window_nll"])
        units = [json.loads(line) for line in (self.folder / "out/units.jsonl").read_text().splitlines()]
        windows = [(u["cell"], u["window"]) for u in units if "window" in u]
        self.assertEqual(len(windows), len(set(windows)))  # none was measured twice


if __name__ == "__main__":
    support.main()
