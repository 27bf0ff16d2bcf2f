"""`ropewalk prompts`: what tasks ask, without a model run."""

import json
import shutil

import support
from support import MODEL

KEYS = ["task", "protocol", "data_hash", "length", "prompt", "question", "context", "question_text", "answer", "references",
        "depth", "max_new_tokens", "context_ids", "question_ids", "answer_ids", "scored"]


class Prompts(support.CliCase):
    def lines(self, *arguments):
        return [json.loads(line) for line in self.works("prompts", *arguments).splitlines()]

    def test_each_task_at_each_length(self):
        lines = self.lines(MODEL, "--tasks", "ruler:vt,fwe", "--lengths", "2k,3000", "--samples", 2, "--no-bos")
        self.assertEqual([(d["task"], d["length"], d["prompt"]) for d in lines],
                         [(f"ruler:{t}", n, i) for n in (2048, 3000) for t in ("vt", "fwe") for i in (0, 1)])
        for line in lines:
            self.assertEqual(list(line), KEYS)
            text = self.folder / "prompt.txt"
            text.write_text(line["context"] + line["question_text"])
            ids = json.loads(self.works("tokenize", MODEL, "--text", text))
            self.assertEqual(line["context_ids"] + line["question_ids"], ids)
            self.assertLessEqual(len(ids) + line["max_new_tokens"], line["length"])

    def test_a_tokenizer_is_enough(self):
        alone = self.folder / "alone"
        alone.mkdir()
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(f"{MODEL}/{name}", alone)
        arguments = ("--task", "ruler:niah_multikey_2", "--length", "2k", "--samples", 1, "--questions", 3)
        lines = self.lines(alone, *arguments)
        self.assertEqual([d["question"] for d in lines], [0, 1, 2])
        self.assertEqual(len({d["context"] for d in lines}), 1)
        self.assertEqual(lines[0]["context_ids"][0], 0)  # BOS, as the files say
        self.assertEqual(lines, self.lines(MODEL, *arguments))

    def test_the_seed_is_rulers_unless_given(self):
        arguments = (MODEL, "--task", "ruler:niah_single_1", "--length", "2k", "--samples", 1)
        plain, own, other = (self.lines(*arguments, *more)[0] for more in ([], ["--seed", 42], ["--seed", 1]))
        self.assertEqual(plain, own)
        self.assertIn("seed=42", plain["protocol"])
        self.assertNotEqual(plain["context"], other["context"])

    def test_files_of_the_user(self):
        essay = self.folder / "essay.json"
        essay.write_text(json.dumps({"text": self.text.read_text()}))
        for file in (self.text, essay):
            line = self.lines(MODEL, "--task", "ruler:niah_multiquery", "--length", "4k", "--samples", 1, "--haystack", file)[0]
            self.assertTrue(line["protocol"].startswith("RULER-form"))
            self.assertEqual(len(line["references"]), 4)
        out = self.folder / "prompts.jsonl"
        self.works("prompts", MODEL, "--task", "ruler:vt", "--length", "2k", "--samples", 1, "-o", out)
        self.assertEqual(len(out.read_text().splitlines()), 1)

    def test_a_sweep_writes_what_its_rows_answer(self):
        out = self.folder / "prompts.jsonl"
        more = ["sweep", MODEL, "--text", self.text, "--methods", "none,yarn", "--lengths", "256,1k", "--anchors", 4, "--no-race",
                "--passkey-trials", 6, "--tasks", "perplexity,passkey,kv", "--questions", 3, "--prompts", out]
        rows = self.folder / "rows"
        self.works(*more, "-o", rows)
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        answers = {}  # by length and task: what was asked, under every method
        for row in map(json.loads, (rows / "results.jsonl").read_text().splitlines()[1:]):
            for task in row["tasks"]:
                here = [(a["prompt"], a["question"], a["depth"], a["tokens"]) for a in task["answers"]]
                names = (task["protocol"], task["data_hash"])
                self.assertEqual(answers.setdefault((row["length"], task["task"]), (names, here)), (names, here))
        written = {}
        for line in lines:
            self.assertEqual(list(line), KEYS)
            scored = line["scored"] or line["answer_ids"]
            names = (line["protocol"], line["data_hash"])
            written.setdefault((line["length"], line["task"]), (names, []))[1].append(
                (line["prompt"], line["question"], line["depth"], len(scored)))
            self.assertLessEqual(len(line["context_ids"] + line["question_ids"] + line["answer_ids"]), line["length"])
            self.assertIn(line["references"][0], line["answer"])
        self.assertEqual(written, answers)
        self.assertEqual(sorted(answers), [(256, "passkey"), (1024, "kv"), (1024, "passkey")])
        # The text of a window is that of its tokens, with what is hidden in it.
        window = next(line for line in lines if line["protocol"].endswith(", behind windows"))
        text = self.folder / "window.txt"
        text.write_text(json.dumps(window["context_ids"][1:]))
        self.assertEqual(self.works("tokenize", MODEL, "--decode", "--ids", text).decode().rstrip("\n"), window["context"].rstrip("\n"))
        self.assertIn(f"is {window['references'][0]}. Remember it.", window["context"])
        # Without running the model: the same lines, and nothing else.
        alone = self.folder / "alone.jsonl"
        self.works(*more[:-1], alone, "--prompts-only", "-o", self.folder / "none")
        self.assertEqual(alone.read_bytes(), out.read_bytes())
        self.assertFalse((self.folder / "none").exists())

    def test_prompts_of_a_sweep_need_a_file_and_tasks(self):
        more = ["sweep", MODEL, "--text", self.text, "--lengths", 256]
        self.fails(2, *more, "--prompts-only", says="--prompts FILE")
        self.fails(2, *more, "--prompts", self.folder / "p", "--tasks", "perplexity", says="asks nothing")
        self.works(*more, "--prompts", self.folder / "p", "--dry-run", "-o", self.folder / "none")
        self.assertFalse((self.folder / "p").exists())

    def test_what_is_refused(self):
        def fails(code, says, *arguments):
            self.fails(code, "prompts", MODEL, *arguments, says=says)

        fails(2, "--tasks", "--length", "2k")
        fails(1, "unknown task", "--tasks", "ruler:vt,rulr", "--length", "2k")
        fails(1, "no prompt fits 256 tokens", "--tasks", "ruler:niah_single_1", "--length", "256")
        fails(1, "--squad FILE", "--tasks", "ruler:qa_1", "--length", "2k")
        broken = self.folder / "broken.json"
        broken.write_text('{"data": [{"paragraphs": 1}]}')
        fails(1, ".data[0].paragraphs: expected an array", "--tasks", "ruler:qa_1", "--length", "2k", "--squad", broken)
        fails(1, "no such file", "--tasks", "ruler:qa_2", "--length", "2k", "--hotpot", self.folder / "none.json")
        fails(1, "0 to 4294967295", "--tasks", "ruler:vt", "--length", "2k", "--seed", 2**32)


if __name__ == "__main__":
    support.main()
