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
