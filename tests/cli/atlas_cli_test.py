"""ropewalk atlas: what is added, what is refused with nothing lost, and that the committed page is what the program writes."""

import json
import math
import pathlib
import re
import shutil
import subprocess

import support
from support import PROGRAM, SOURCE, run

RESULTS = SOURCE / "docs" / "results"


def perplexity(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


class Atlas(support.CliCase):
    def setUp(self):
        super().setUp()
        self.atlas = self.folder / "atlas"

    def add(self, *folders):
        return ["atlas", "add", *folders, "--atlas", self.atlas]

    def files(self):
        return {str(p.relative_to(self.atlas)): p.read_bytes() for p in self.atlas.rglob("*") if p.is_file()}

    def copy(self, name, to, lines=None, change=lambda line: line):
        """The first lines of committed results in a folder of another name."""
        (self.folder / to).mkdir(parents=True, exist_ok=True)
        text = (RESULTS / name / "results.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        (self.folder / to / "results.jsonl").write_text("".join(change(line) for line in text[:lines]), encoding="utf-8")
        return self.folder / to

    def test_committed_page(self):
        page = subprocess.run([SOURCE / "scripts" / "atlas.sh", pathlib.Path(PROGRAM).parent], check=True, capture_output=True).stdout
        self.assertEqual(page.decode(), (SOURCE / "docs" / "atlas" / "README.md").read_text(encoding="utf-8"),
                         "make atlas writes docs/atlas/README.md again")

    def test_add_and_list(self):
        said = self.works(*self.add(RESULTS / "gemma3-270m", f"{RESULTS}/zoo/"))
        page = self.atlas / "README.md"
        self.assertEqual(said.decode(), f"{page}\n")
        self.works(*self.add(RESULTS / "embedded-kv"))
        files = self.files()
        self.assertEqual(sorted(files), ["README.md", "embedded-kv/results.jsonl", "gemma3-270m/results.jsonl", "zoo/rows.jsonl"])
        for name, text in files.items():
            if name != "README.md":
                self.assertEqual(text, (RESULTS / name).read_bytes())
        for options in ([], ["list"]):
            self.assertEqual(self.works("atlas", *options, "--atlas", self.atlas), files["README.md"])
        self.works("atlas", "list", "--atlas", self.atlas, "-o", self.folder / "page.md")
        self.assertEqual((self.folder / "page.md").read_bytes(), files["README.md"])
        self.works(*self.add(RESULTS / "gemma3-270m"))
        self.assertEqual(self.files(), files)

    def test_of_two_folders_the_row_that_measured_most_counts(self):
        def unfinished(line):
            row = json.loads(line)
            if "method" not in row:
                return line
            losses = [loss + 1 for loss in row["window_nll"][: max(1, row["windows"] // 2)]]
            mean = sum(losses) / len(losses)
            row |= {"windows": len(losses), "window_nll": losses, "mean_nll": mean, "perplexity": math.exp(mean), "unfinished": True}
            row["scored_tokens"] //= 2
            return json.dumps(row) + "\n"

        begun = self.copy("gemma3-270m", "begun", change=unfinished)
        whole = self.copy("gemma3-270m", "whole")
        self.works(*self.add(whole))
        tables = [line for line in (self.atlas / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
        shutil.rmtree(self.atlas)
        self.works(*self.add(begun))
        self.works(*self.add(whole))
        both = (self.atlas / "README.md").read_text(encoding="utf-8").replace("begun, whole", "whole").splitlines()
        numbers = [line for line in tables if "begun" not in line and "whole" not in line]
        self.assertEqual([line for line in both if line in numbers], numbers)

    def test_numbers_are_those_of_the_rows(self):
        page = self.works("atlas", "list", RESULTS / "embedded").decode()
        for line in (RESULTS / "embedded" / "results.jsonl").read_text(encoding="utf-8").splitlines()[1:]:
            row = json.loads(line)
            table = re.search(rf"^\| {re.escape(row['method'])} \|(.*)$", page, re.M)[1]
            self.assertIn(perplexity(row["perplexity"]), table, row["method"])
            for key in ("model_hash", "text_hash", "tokenizer_hash", "protocol"):
                self.assertIn(row[key], page)
            for task in row["tasks"]:
                if task["task"] == "key-tokens":
                    longppl, errors = perplexity(math.exp(task["mean_nll"])), f"{task['mean_nll']:.3f} ± {task['standard_error']:.3f}"
                    self.assertIn(f"{longppl}, {errors} / {row['mean_nll']:.3f}", page)
                    continue
                share = task["exact"] if task["recall"] is None else task["recall"]
                self.assertIn(f"{share:.2f}, {task['mean_nll']:.3f}", page)
        self.assertIn("--rope-scaling yarn", page)  # a setting to paste
        zoo = self.works("atlas", "list", RESULTS / "zoo").decode()
        for line in (RESULTS / "zoo" / "rows.jsonl").read_text(encoding="utf-8").splitlines()[1:]:
            row = json.loads(line)
            self.assertIn(f"{row['model_hash']}: `{json.dumps(row['positions'], separators=(',', ':'))}`", zoo)
            for cell in row["cells"]:
                shown = f"{perplexity(cell['perplexity'])}, {cell['passkey']:.2f}"
                self.assertTrue(f"| {shown} |" in zoo, shown)

    def test_protocols_stay_apart(self):
        def sections(*folders):
            return re.findall(r"^## \d+: .*$", self.works("atlas", "list", *folders).decode(), re.M)

        self.assertEqual(len(sections(RESULTS / "embedded", RESULTS / "embedded-maps")), 1)
        self.assertEqual(len(sections(RESULTS / "embedded", RESULTS / "evidence-ablation")), 2)
        self.assertEqual(len(sections(RESULTS / "embedded-kv")), 3)  # by the type of the KV cache
        for key in ("model_hash", "text_hash", "tokenizer_hash", "protocol", "bos", "compute", "angles", "tasks_protocol"):
            with self.subTest(key):
                other = self.copy("embedded", key, change=lambda line, key=key: re.sub(rf'"{key}":"[^"]*"', f'"{key}":"x"', line))
                self.assertEqual(len(sections(RESULTS / "embedded", other)), 2)
        for key in ("anchors", "seed", "longest_length", "trained_length"):
            with self.subTest(key):
                other = self.copy("embedded", key, change=lambda line, key=key: re.sub(rf'"{key}":\d+', f'"{key}":8191', line))
                self.assertEqual(len(sections(RESULTS / "embedded", other)), 2)

    def test_a_sweep_that_went_on_replaces_itself(self):
        self.works(*self.add(self.copy("embedded", "mine", lines=20)))
        self.works(*self.add(self.copy("embedded", "mine")))
        self.assertEqual(self.files()["mine/results.jsonl"], (RESULTS / "embedded" / "results.jsonl").read_bytes())
        before = self.files()
        for other in (self.copy("embedded", "mine", lines=20), self.copy("gemma3-270m", "mine")):
            self.fails(1, *self.add(other), says="has rows that the new mine does not have, so it is not replaced")
        self.assertEqual(self.files(), before)

    def test_files_of_shards_come_along(self):
        text = (RESULTS / "gemma3-270m" / "results.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        shards = self.folder / "gemma3-270m"
        shards.mkdir()
        for index in (1, 2):
            (shards / f"results.{index}-of-2.jsonl").write_text("".join([text[0], *text[index::2]]), encoding="utf-8")
        self.works(*self.add(shards))
        names = {f"gemma3-270m/{p.name}": p.read_bytes() for p in shards.iterdir()}
        self.assertEqual({name: data for name, data in self.files().items() if name != "README.md"}, names)
        page = self.works("atlas", "list", RESULTS / "gemma3-270m").decode()
        self.assertEqual(sorted(self.files()["README.md"].decode().splitlines()), sorted(page.splitlines()))

    def test_bad_input_changes_nothing(self):
        self.works(*self.add(RESULTS / "gemma3-270m"))
        before = self.files()
        torn = self.copy("embedded", "torn")
        whole = (torn / "results.jsonl").read_bytes()
        (torn / "results.jsonl").write_bytes(whole[:-40])
        empty = self.copy("embedded", "empty", lines=1)
        later = self.copy("embedded", "later", change=lambda line: line.replace('"schema":2', '"schema":99'))
        broken = self.copy("embedded", "broken", change=lambda line: line.replace('"perplexity":', '"perplexity":x'))
        zoos = {}
        for name, text in (("other", '{"format":"ropewalk-zoo","schema":2,"measure":"","trained_length":1}\n'),
                           ("none", '{"format":"ropewalk-zoo","schema":1,"measure":"","trained_length":1}\n'),
                           ("half", '{"format":"ropewalk-zoo","schema":1,"measure":"","trained_length":1}\n{"entry":"rope"}\n'),
                           ("cut", '{"format":"ropewalk-zoo","schema":1')):
            zoos[name] = self.folder / f"zoo-{name}"
            zoos[name].mkdir()
            (zoos[name] / "rows.jsonl").write_text(text)
        good = self.copy("embedded", "good")
        for folder, says in ((self.folder / "nothing", "results.jsonl"), (torn, "its last line is incomplete"),
                             (empty, "holds no finished cell yet"), (later, "line 1"), (broken, "line 2"),
                             (zoos["other"], "line 1: expected format ropewalk-zoo of schema 1"),
                             (zoos["none"], "holds no finished cell yet"), (zoos["half"], "line 2: no row of a zoo"),
                             (zoos["cut"], "its last line is incomplete")):
            self.fails(1, *self.add(good, folder), says=says)
            self.assertEqual(self.files(), before)
        (self.folder / "twice").mkdir()
        shutil.copytree(good, self.folder / "twice" / "good")
        self.fails(2, *self.add(good, self.folder / "twice" / "good"), says="two folders are called good")
        self.fails(2, *self.add(), says="expected a folder that holds results")
        self.fails(2, *self.add(good), "-o", self.folder / "x.md", says="leave out -o")
        self.fails(2, "atlas", "remove", says="add")
        self.assertEqual(self.files(), before)

    def test_pages_that_are_not_ours_stay(self):
        self.atlas.mkdir()
        for page in (self.atlas / "README.md", self.folder / "notes.md"):
            page.write_text("# My notes\n")
        self.fails(1, *self.add(RESULTS / "gemma3-270m"), says="exists and is no atlas of ropewalk")
        self.assertEqual(list(self.atlas.iterdir()), [self.atlas / "README.md"])
        self.fails(1, "atlas", "list", RESULTS / "gemma3-270m", "-o", self.folder / "notes.md", says="is no atlas")
        self.assertEqual((self.folder / "notes.md").read_text(), "# My notes\n")
        self.fails(1, "atlas", "--atlas", self.atlas, says="no folder in it holds results; ropewalk atlas add DIR")
        self.assertEqual(run("atlas", "--atlas", self.folder / "missing").returncode, 1)


if __name__ == "__main__":
    support.main()
