"""What a sweep leaves behind and what report makes of it: files that are not ours, nulls, dictionaries, comparisons."""

import csv
import io
import json
import math

import support
from support import MODEL, WHOLE_MODEL, make_text, run

TRAINED = 256
YARN = json.dumps({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED})


class Report(support.CliCase):
    def sweep(self, name, *more, model=MODEL):
        return ["sweep", model, "--text", self.text, "-o", self.folder / name, "--anchors", 2,
                "--protocol", "aligned:32", "--passkey-trials", 1, *more]

    def rows(self, name):
        return [json.loads(line) for line in (self.folder / name / "results.jsonl").read_text().splitlines()]

    # ---- files of somebody else

    def test_results_that_are_not_ours_stay(self):
        folder = self.folder / "theirs"
        folder.mkdir()
        path = folder / "results.jsonl"
        for theirs in (b"\n", b"x", b"{", b'{"loss": 1.5, "step', b'{"loss": 1.5}\n', b"a note\n", b"\0\0"):
            path.write_bytes(theirs)
            for command in (self.sweep("theirs", "--lengths", 128, "--methods", "none"), ["report", folder]):
                self.fails(1, *command, says=f"{path}, line 1: expected the header of a ropewalk sweep")
            self.assertEqual([p.name for p in folder.iterdir()], ["results.jsonl"])
            self.assertEqual(path.read_bytes(), theirs)
        path.write_bytes(b"")
        self.works(*self.sweep("theirs", "--lengths", 128, "--methods", "none"))

    def test_pages_that_are_not_ours_stay(self):
        folder = self.folder / "out"
        folder.mkdir()
        page, rows = folder / "report.html", folder / "results.jsonl"
        page.write_text("<!DOCTYPE html><title>Thesis</title>")
        one = self.sweep("out", "--lengths", 128, "--methods", "none", "--tasks", "perplexity")
        self.fails(1, *one, says=f"{page}: exists and is no report of ropewalk")
        self.assertFalse(rows.exists())  # before anything was computed
        page.unlink()
        self.works(*one)
        before = rows.read_bytes()
        page.write_text("# mine")
        self.fails(1, "report", folder, says=f"{page}: exists")
        self.assertEqual(page.read_text(), "# mine")
        notes = self.folder / "notes.txt"
        notes.write_text("mine\n")
        for target in (rows, notes):
            for form in ([], ["--csv"], ["--markdown"], ["--json"]):
                self.fails(1, "report", folder, *form, "-o", target, says=f"{target}: exists")
        self.assertEqual((rows.read_bytes(), notes.read_text()), (before, "mine\n"))
        notes.unlink()
        page.unlink()
        for form in ([], ["--csv"], ["--markdown"], ["--json"], []):  # each replaces the one before
            self.works("report", folder, *form, "-o", notes)
        self.works("report", folder)
        self.works("report", folder)

    # ---- what was not measured

    def test_what_was_not_measured_is_null(self):
        measured = ["perplexity", "mean_nll", "standard_error", "bits_per_byte", "entropy", "entropy_share"]
        passkey = self.json("passkey", MODEL, "--length", 128, "--passkey-trials", 1, "--json")
        self.assertEqual({key: passkey[key] for key in measured}, dict.fromkeys(measured))
        self.assertEqual((passkey["windows"], passkey["scored_tokens"], passkey["window_nll"],
                          passkey["bucket_nll"], passkey["protocol"], passkey["text_hash"]),
                         (0, 0, [], [], "none", ""))
        self.assertIsInstance(passkey["tasks"][0]["exact"], (int, float))
        cell = self.json("perplexity", MODEL, "--text", self.text, "--length", 128, "--anchors", 2, "--json")
        self.assertTrue(all(isinstance(cell[key], float) for key in measured))
        self.assertEqual((cell["tasks"], cell["tasks_protocol"]), ([], ""))
        one = self.json("perplexity", MODEL, "--text", self.text, "--length", 128, "--anchors", 1, "--json")
        self.assertIsNone(one["standard_error"])
        self.works(*self.sweep("out", "--lengths", "128,512", "--methods", "none,yarn", "--tasks", "perplexity"))
        self.assertTrue(all(row["tasks"] == [] for row in self.rows("out")[1:]))
        report = self.json("report", self.folder / "out", "--json")["sweeps"][0]
        self.assertEqual(report["recommendations"][0]["methods"][0]["tasks"], [])

    def test_what_a_model_has_not_is_null(self):
        model = support.SOURCE / "tests/golden/hf_models/gpt2"
        folder = self.folder / "gpt2"
        folder.mkdir()
        for file in model.glob("model*"):
            (folder / file.name).write_bytes(file.read_bytes())
        (folder / "config.json").write_bytes((model / "default.json").read_bytes())
        ids = self.folder / "ids.json"
        ids.write_text(json.dumps([(7 * i * i + i // 5) % 64 for i in range(700)]))
        cell = self.json("perplexity", folder, "--ids", ids, "--length", 128, "--anchors", 2, "--json")
        self.assertEqual((cell["rope_base"], cell["rotary_dim"], cell["amplitude"], cell["inv_freq"]),
                         (None, 0, None, []))

    # ---- dictionaries

    def test_dictionaries_have_names_and_factors_of_their_own(self):
        dictionaries = [
            YARN, YARN,
            '{"rope_type": "yarn", "factor": 4, "beta_fast": 16}',
            '{"type": "linear", "factor": 2.5}',
            '{"rope_theta": 1000000.0}',
            '{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}']
        options = [word for d in dictionaries for word in ("--rope-scaling", d)]
        command = self.sweep("out", "--lengths", "256,1024", "--methods", "none,yarn", "--tasks", "perplexity", *options)
        out = self.works(*command).decode()
        rows = self.rows("out")[1:]
        factors = {row["method"]: row["factor"] for row in rows if row["length"] == 1024}
        self.assertEqual(factors, {
            "none": 1, "yarn": 4, "yarn(factor 4)": 4, "yarn(factor 4, beta_fast 16)": 4,
            "linear(factor 2.5)": 2.5, "default(rope_theta 1e+06)": 1, "yarn(factor 4) #2": 4})
        for name in factors:
            self.assertIn(f"\n{name} ", out)
        by = {(row["method"], row["length"]): row for row in rows}
        self.assertEqual(by["yarn(factor 4)", 1024]["plan_hash"], by["yarn", 1024]["plan_hash"])
        self.assertNotEqual(by["yarn(factor 4) #2", 1024]["plan_hash"], by["yarn", 1024]["plan_hash"])
        before = (self.folder / "out/results.jsonl").read_bytes()
        self.works(*command)  # the same names again: nothing is computed
        self.assertEqual((self.folder / "out/results.jsonl").read_bytes(), before)
        cells = self.works("report", self.folder / "out", "--csv").decode()
        self.assertIn(",linear(factor 2.5),2.5,1024,", cells)
        # Folders of older versions hold the name "custom".
        text = (self.folder / "out/results.jsonl").read_text()
        for name in factors:
            if "(" in name:
                text = text.replace(json.dumps(name), '"custom"')
        (self.folder / "out/results.jsonl").write_text(text)
        self.works("report", self.folder / "out")
        self.assertIn("| custom |", self.works("report", self.folder / "out", "--markdown").decode())

    def test_flags_of_dictionaries_are_those_of_extend(self):
        for i, (dictionary, flags) in enumerate((
                ('{"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 1024}',
                 "--rope-scaling yarn --rope-scale 2 --yarn-orig-ctx 1024"),
                ('{"rope_type": "default", "rope_theta": 40000.0}',
                 "--rope-scaling none --rope-freq-base 40000 --override-kv ARCH.context_length=int:2048"),
                ('{"rope_type": "yarn", "factor": 2, "rope_theta": 12000.0}',
                 "--rope-scaling yarn --rope-scale 2 --yarn-orig-ctx 1024 --rope-freq-base 12000"))):
            extended = self.json("extend", WHOLE_MODEL, "--rope-scaling", dictionary, "--length", "2048",
                                 "-o", self.folder / f"model{i}", "--json")
            self.works(*self.sweep(f"sweep{i}", "--lengths", "1024,2048", "--methods", "none", "--rope-scaling",
                                   dictionary, "--tasks", "perplexity", model=WHOLE_MODEL))
            advice = self.json("report", self.folder / f"sweep{i}", "--json")["sweeps"][0]["recommendations"][0]
            self.assertRegex(advice["method"], r"^(yarn|default)\(")  # all of them beat none at 2048
            ours, theirs = (next(s for s in settings if s["engine"] == "llama.cpp")  # the newest
                            for settings in (advice["settings"], extended["settings"]))
            self.assertEqual(ours["setting"], f"-c 2048 {flags}")
            self.assertEqual(ours, theirs)
            # Its own base is in the files that extend wrote.
            config = json.loads((self.folder / f"model{i}/config.json").read_text())
            self.assertEqual(config["rope_theta"], json.loads(dictionary).get("rope_theta", 10000.0))

    def test_engine_narrows_settings_to_the_version_one_has(self):
        self.works(*self.sweep("a", "--lengths", "1024,2048", "--methods", "none,yarn", "--tasks", "perplexity",
                               model=WHOLE_MODEL))

        def of(*engines):
            options = [word for engine in engines for word in ("--engine", engine)]
            advice = self.json("report", self.folder / "a", "--json", *options)["sweeps"][0]["recommendations"][0]
            self.assertEqual(advice["method"], "yarn")
            return advice["settings"]

        self.assertEqual([s["versions"] for s in of() if s["engine"] == "llama.cpp"],
                         ["since 2026-08-30", "before 2026-08-30"])
        old, = of("llama.cpp=2026-08-29")
        self.assertIn("--override-kv", old["setting"])
        self.assertEqual((old["since"], old["before"]), (None, "2026-08-30"))
        new, = of("llama.cpp=2026-08-30")
        self.assertNotIn("--override-kv", new["setting"])
        self.assertEqual({s["engine"] for s in of("vllm=0.10.2", "transformers=5.0.0")},
                         {"vLLM (on transformers 4)", "Hugging Face transformers 5"})
        for engine, says in (("sglang", "transformers, vllm and llama.cpp are"),
                             ("vllm=new", "expected a release, such as 0.11.0")):
            self.fails(2, "report", self.folder / "a", "--engine", engine, says=says)
        # extend says the same of a method that no file can hold.
        for engine, says in (("vllm=0.10.2", "since 0.9.0, before 0.11.0 has it as"),
                             ("vllm=0.11.0", "No chosen engine has it")):
            self.fails(1, "extend", MODEL, "--method", "dual-chunk", "--factor", "4", "--engine", engine,
                       "-o", self.folder / "dual", says=says)

    # ---- several sweeps

    def two(self):
        self.works(*self.sweep("a", "--lengths", "256,512", "--methods", "none,yarn"))
        self.text.write_text(make_text(4000))
        self.works(*self.sweep("b", "--lengths", "256,1024", "--methods", "none,linear"))
        return self.folder / "a", self.folder / "b"

    def test_cells_with_more_windows_than_others_are_marked(self):
        """A budget ended in the middle of a length: the numbers of one column are not of the same windows."""
        self.works(*self.sweep("uneven", "--lengths", 512, "--methods", "none,linear", "--tasks", "perplexity"))
        path = self.folder / "uneven" / "results.jsonl"
        header, *rows = path.read_text().splitlines()
        for form in ([], ["--markdown"]):
            self.assertNotIn("more windows", self.works("report", self.folder / "uneven", *form).decode())
        linear = next(i for i, row in enumerate(rows) if json.loads(row)["method"] == "linear")
        cut = json.loads(rows[linear])
        nll = cut["window_nll"][:1]
        cut.update(window_nll=nll, windows=1, scored_tokens=32, mean_nll=nll[0], perplexity=math.exp(nll[0]), unfinished=True)
        rows[linear] = json.dumps(cut)
        path.write_text("\n".join([header, *rows]) + "\n")
        text = " ".join(self.works("report", self.folder / "uneven", "--markdown").decode().split())
        self.assertRegex(text, r"\| none \| [0-9.]+ \| [0-9.]+\+ \|")
        self.assertRegex(text, r"\| linear \| - \| [0-9.]+ \|")
        self.assertIn("over more windows than other methods of its length", text)

    def test_factors_stand_where_methods_take_them(self):
        for name, methods, has in (("own", "none,yarn:4", False), ("both", "none,yarn:4,yarn", True)):
            self.works(*self.sweep(name, "--lengths", 512, "--methods", methods, "--tasks", "perplexity"))
            text = self.works("report", self.folder / name, "--markdown").decode()
            self.assertEqual("512 (x2)" in text, has, text)
            self.assertEqual("(xN)" in text, has, text)
        side = self.works("report", self.folder / "own", self.folder / "both", "--markdown").decode()
        self.assertNotRegex(side, r"\| yarn:4 \|[^\n]*\(x2\)")

    def test_rows_that_no_sweep_writes_are_named(self):
        self.works(*self.sweep("bad", "--lengths", 128, "--methods", "none", "--tasks", "perplexity"))
        path = self.folder / "bad" / "results.jsonl"
        header, row = path.read_text().splitlines()
        for key, value, says in (("length", -5, "from 1 to"), ("windows", "3", '"windows": expected a whole number, got "3"'),
                                 ("factor", 0, '"factor": expected a number above 0'), ("compute", "bf16", '"compute" is "bf16"'),
                                 ("perplexity", [], '"perplexity": expected a number or null, got []')):
            path.write_text(header + "\n" + json.dumps({**json.loads(row), key: value}) + "\n")
            for form in ([], ["--csv"]):
                self.assertIn(says, self.fails(1, "report", self.folder / "bad", *form, says=f"{path}, line 2: "))
        path.write_text(header + "\n" + row + "\n" + row[:40] + "\n")  # its newline says that it was whole
        self.fails(1, "report", self.folder / "bad", says=f"{path}, line 3: no JSON")
        path.write_text(header + "\n" + row + "\n" + row[:40])
        self.works("report", self.folder / "bad")

    def test_csv_side_by_side(self):
        a, b = self.two()
        lines = list(csv.DictReader(io.StringIO(self.works("report", a, b, "--csv").decode())))
        self.assertEqual(list(lines[0])[:4], ["method", "factor", "length", "a.perplexity"])
        self.assertEqual(len(lines[0]), 3 + 2 * 27)
        found = {(x["method"], float(x["factor"]), int(x["length"])): x for x in lines}
        self.assertEqual(len(found), len(lines))
        expected = {(r["method"], r["factor"], r["length"]): {} for r in self.rows("a")[1:] + self.rows("b")[1:]}
        for name in ("a", "b"):
            for row in self.rows(name)[1:]:
                expected[row["method"], row["factor"], row["length"]][name] = row
        self.assertEqual(found.keys(), expected.keys())
        for key, by in expected.items():
            for name in ("a", "b"):
                for column in ("perplexity", "bits_per_byte", "seed", "text_hash"):
                    cell = found[key][f"{name}.{column}"]
                    if name not in by:
                        self.assertEqual(cell, "")
                    elif column == "text_hash":
                        self.assertEqual(cell, by[name][column])
                    else:
                        self.assertAlmostEqual(float(cell) / by[name][column], 1, 7)
        alone = self.works("report", a, "--csv").decode().splitlines()
        self.assertTrue(alone[0].startswith("sweep,method,factor,length,perplexity,"))

    def test_markdown_side_by_side(self):
        a, b = self.two()
        text = self.works("report", a, b, "--markdown").decode()
        self.assertTrue(text.startswith("## Side by side\n"))
        tables = [[[field.strip() for field in line.strip("|").split("|")] for line in block.splitlines()]
                  for block in text.split("\n\n") if block.startswith("|")]
        best, every = tables[:2]
        self.assertEqual(best[0], ["length", "a", "b"])
        self.assertEqual(every[0], ["method", "length", "a", "b"])
        rows = {name: {(r["method"], r["length"]): r for r in self.rows(name)[1:]} for name in "ab"}
        lengths = sorted({length for name in "ab" for _, length in rows[name]})
        self.assertLessEqual({256, 512, 1024}, set(lengths))
        self.assertEqual([row[0] for row in best[2:]], [str(length) for length in lengths])
        cells = {(row[0], int(row[1])): row[2:] for row in every[2:]}
        self.assertEqual(set(cells), {key for name in "ab" for key in rows[name]})
        for key, texts in cells.items():
            for name, cell in zip("ab", texts):
                row = rows[name].get(key)
                if row is None:
                    self.assertEqual(cell, "-")
                    continue
                factor = "" if key[0] == "none" else f" (x{row['factor']:.4g})"
                self.assertEqual(cell, f"{row['bits_per_byte']:.3f}, {row['tasks'][0]['exact']:.2f}{factor}")
        # What each report recommends by itself, in bits per byte.
        for name, column in (("a", 1), ("b", 2)):
            for advice in self.json("report", self.folder / name, "--json")["sweeps"][0]["recommendations"]:
                cell = [row[column] for row in best[2:] if row[0] == str(advice["length"])][0]
                if advice["method"] is None:
                    self.assertEqual(cell, "none usable")
                else:
                    self.assertIn(f"{rows[name][advice['method'], advice['length']]['bits_per_byte']:.3f}", cell)
        self.assertIn("Bits per byte compare across tokenizers", text)
        self.assertIn("\n## a\n", text)
        self.assertNotIn("Side by side", self.works("report", a, "--markdown").decode())


if __name__ == "__main__":
    support.main()
