"""Prompts of RULER: `ropewalk prompts` against NVIDIA's own generator, byte for byte.

    ruler_prompts.py ROPEWALK RULER [--tokenizers DIR ...] [--lengths N ...] [--seeds N ...] [--samples N]
                     [--golden FILE]

ROPEWALK is the program, RULER a clone of github.com/NVIDIA/RULER or its URL (commit c3f5e3b; another one is said). Needs
what requirements-ruler.txt names. A tokenizer is a Hugging Face folder with a tokenizer.json. RULER's scripts run with the
arguments that its prepare.py gives them, and with text, documents and words made here in place of the files that it
downloads. Sentences are NLTK's, by its data punkt_tab where that is installed; ours come from the same list. Where RULER
finds no prompt (it tries for ever, which is stopped here) or fails, ropewalk has to refuse. Exits 1 on any difference.

--golden writes hashes of RULER's prompts, of the tasks that need no file, for tests/eval/ruler_test.cc:
    ... --tokenizers models tests/golden/tokenizer/llama3 --tasks niah_single_1 niah_multikey_2 niah_multikey_3 vt cwe fwe
    --lengths 1024 4095 4096 8192 --seeds 42 7 --samples 2 --golden tests/golden/ruler_prompts.json
"""

import argparse
import ast
import contextlib
import importlib.util
import io
import itertools
import json
import logging
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

import nltk.tokenize
import numpy as np
import xxhash
import yaml
from nltk.tokenize import sent_tokenize
from nltk.tokenize.punkt import PunktSentenceTokenizer
from transformers import PreTrainedTokenizerFast

COMMIT = "c3f5e3b"
FILES = {"essay": "--haystack", "squad": "--squad", "hotpotqa": "--hotpot", "cwe": "--english-words"}
SOURCE = pathlib.Path(__file__).resolve().parents[2]
TOKENIZERS = [SOURCE / "models", *(SOURCE / "tests/golden/tokenizer" / n for n in ("gpt2", "llama2", "llama3", "gemma"))]


class Tokenizer:
    """As RULER's HFTokenizer, and counted, so that an endless loop ends."""

    def __init__(self, folder):
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        self.calls = self.limit = 0

    def text_to_tokens(self, text):
        self.calls += 1
        if self.calls > self.limit:
            raise KeyboardInterrupt
        return self.tokenizer.tokenize(text)


def sentences_of():
    """NLTK's sentences, and of which model."""
    try:
        sent_tokenize("One. Two.")
        return sent_tokenize, "NLTK, punkt_tab"
    except LookupError:
        return PunktSentenceTokenizer().tokenize, "NLTK's Punkt without its trained abbreviations (no data punkt_tab)"


def prose(rng, words):
    """English enough for a sentence splitter: names, titles, initials, numbers. No word as `"Why?".`, which Punkt takes
    apart at the end of a text and nowhere else."""
    nouns = ["river", "engine", "paper", "Dr. Moss", "Mr. Lee", "J. Smith", "the U.S. office", "No. 4", "prices of 3.5 percent"]
    verbs = ["moved", "was late", "grew", "(as before) stopped", "said \"No\"", "asked why"]
    out, count = [], 0
    while count < words:
        end = rng.choice([". ", "! ", "?  ", ".\n\n", "; "])
        line = f"The {rng.choice(nouns)} {rng.choice(verbs)}{end}"
        count += len(line.split())
        out.append(line)
    return "".join(out).strip() + "."


def make_files(folder, sentences):
    """What RULER downloads, in its formats; and the essay with its sentences for ropewalk."""
    rng = random.Random(7)
    text = prose(rng, 9000)
    (folder / "PaulGrahamEssays.json").write_text(json.dumps({"text": text}))
    joined = re.sub(r"\s+", " ", text)
    (folder / "sentences.json").write_text(json.dumps({"text": text, "sentences": sentences(joined)}))
    articles = []
    for article in range(30):
        paragraphs = []
        for paragraph in range(rng.randint(2, 14)):
            qas = [{"question": f"What is {article}.{paragraph}.{i}?", "is_impossible": rng.random() < 0.3, "id": str(i),
                    "answers": [{"text": f"item {article} {i} {k}", "answer_start": 0} for k in range(rng.randint(1, 3))]}
                   for i in range(rng.randint(1, 3))]
            paragraphs.append({"context": f"{article} caf\u00e9 " + prose(rng, rng.randint(20, 120)), "qas": qas})
        articles.append({"title": str(article), "paragraphs": paragraphs})
    (folder / "squad.json").write_text(json.dumps({"version": "v2.0", "data": articles}))
    pool = [[f"Title {i}", [prose(rng, 20), " " + prose(rng, 30)]] for i in range(200)]
    hotpot = [{"question": f"Who is {i}?", "answer": f"person {i}", "context": rng.sample(pool, 10)} for i in range(80)]
    (folder / "hotpotqa.json").write_text(json.dumps(hotpot))
    words = {str(i): f"{rng.choice('bcdfg')}{rng.choice('aeiou')}{i:x}" for i in range(20000)}
    (folder / "english_words.json").write_text(json.dumps(words))


class Ruler:
    """RULER's modules, imported anew for each setting; niah's, which takes seconds, once per haystack."""

    def __init__(self, clone, folder, sentences):
        self.data = folder / "data"
        shutil.copytree(clone / "scripts/data", self.data)
        make_files(self.data / "synthetic/json", sentences)
        self.tasks = yaml.safe_load((clone / "scripts/synthetic.yaml").read_text())
        source = (self.data / "synthetic/constants.py").read_text()
        self.base = ast.literal_eval(source[source.index("TASKS = ") + len("TASKS = "):])
        self.sentences, self.tokenizer, self.cached = sentences, None, {}
        sys.path[:0] = [str(self.data / "synthetic"), str(self.data)]

    def file(self, name):
        return self.data / "synthetic/json" / name

    def load(self, task, length, samples, seed):
        row = self.tasks[task]
        base = self.base[row["task"]]
        options = {"save_dir": self.data, "save_name": task, "tokenizer_path": "-", "tokenizer_type": "hf",
                   "max_seq_length": length, "tokens_to_generate": base["tokens_to_generate"], "num_samples": samples,
                   "random_seed": seed, "template": base["template"] + base["answer_prefix"], **row["args"]}
        argv = [task, *itertools.chain(*((f"--{k}", str(v)) for k, v in options.items()))]
        key = row["args"].get("type_haystack") if row["task"] == "niah" else None
        if key in self.cached and key:
            module = self.cached[key]
            sys.argv = argv
            module.args = module.parser.parse_args()
            module.args.num_needle_k = max(module.args.num_needle_k, module.args.num_needle_q)
            module.TOKENIZER = self.tokenizer
            random.seed(seed)
            np.random.seed(seed)
            return module
        module = self.read(row["task"], argv)
        if key:  # the lists of six million words are equal, and one is enough for memory
            module.words = next(iter(self.cached.values()), module).words
            self.cached[key] = module
        return module

    def read(self, name, argv):
        """The script as it is, but that its endless loop counts what it catches, and an interrupt leaves it."""
        import tokenizer as their_tokenizer
        their_tokenizer.select_tokenizer = lambda *_: self.tokenizer
        nltk.tokenize.sent_tokenize = self.sentences
        path = self.data / f"synthetic/{name}.py"
        text = path.read_text().replace(
            "            except:\n", "            except Exception:\n                TOKENIZER.text_to_tokens('')\n")
        sys.argv = argv
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, None))
        module.__file__ = str(path)
        exec(compile(text, str(path), "exec"), module.__dict__)
        return module

    def prompts(self, task, length, samples, seed):
        """(prompt, answers) of each sample; None where RULER finds none, or fails."""
        self.tokenizer.calls, self.tokenizer.limit = 0, 400 + 4 * samples
        with contextlib.redirect_stderr(io.StringIO()):
            try:
                module = self.load(task, length, samples, seed)
                logging.disable(logging.CRITICAL)
                made = []
                module.write_manifest = lambda _, lines: made.extend(lines)
                module.main()
            except (KeyboardInterrupt, ValueError, IndexError) as error:
                return error
        return [(d["input"] + d["answer_prefix"], d["outputs"]) for d in made]


def ours(program, tokenizer, ruler, task, length, samples, seed):
    row = ruler.tasks[task]["args"]
    what = row.get("type_haystack") or row.get("dataset") or task
    name = {"essay": "sentences", "squad": "squad", "hotpotqa": "hotpotqa", "cwe": "english_words"}.get(what)
    files = [FILES[what], ruler.file(f"{name}.json")] if name else []
    words = [program, "prompts", tokenizer, "--tasks", f"ruler:{task}", "--length", length, "--samples", samples,
             "--seed", seed, "--no-bos", *files]
    run = subprocess.run([str(word) for word in words], capture_output=True)
    if run.returncode == 1:
        return run.stderr.decode().strip()
    run.check_returncode()
    lines = [json.loads(line) for line in run.stdout.decode().splitlines()]
    return [(d["context"] + d["question_text"], d["references"], d["context_ids"] + d["question_ids"]) for d in lines]


def difference(theirs, mine, tokenizer):
    """Of one setting; empty: none."""
    if not isinstance(theirs, list) or not isinstance(mine, list):
        if isinstance(theirs, list) == isinstance(mine, list):
            return ""
        return f"RULER: {repr(theirs)[:200]}, ropewalk: {repr(mine)[:200]}"
    if len(theirs) != len(mine):
        return f"{len(theirs)} prompts and {len(mine)}"
    for i, (a, b) in enumerate(zip(theirs, mine)):
        if a[0] != b[0]:
            at = next((k for k, (x, y) in enumerate(zip(a[0], b[0])) if x != y), min(len(a[0]), len(b[0])))
            return f"prompt {i} differs from character {at}: {a[0][at - 20:at + 40]!r}, {b[0][at - 20:at + 40]!r}"
        if a[1] != b[1]:
            return f"prompt {i}: answers {a[1]}, {b[1]}"
        if tokenizer(a[0], add_special_tokens=False)["input_ids"] != b[2]:
            return f"prompt {i}: ids"
    return ""


def folder_of(tokenizer, scratch):
    """A folder that ropewalk opens: with a config.json, which a tokenizer alone lacks."""
    if (tokenizer / "config.json").exists():
        return tokenizer
    folder = scratch / tokenizer.name
    shutil.copytree(tokenizer, folder)
    shutil.copy(SOURCE / "models/config.json", folder)
    return folder


def clone_of(where, scratch):
    if pathlib.Path(where).is_dir():
        clone = pathlib.Path(where)
    else:
        clone = scratch / "clone"
        subprocess.run(["git", "clone", "-q", where, clone], check=True)
        subprocess.run(["git", "-C", clone, "checkout", "-q", COMMIT], check=True)
    commit = subprocess.run(["git", "-C", clone, "rev-parse", "--short=7", "HEAD"], capture_output=True).stdout.decode().strip()
    if commit != COMMIT:
        print(f"RULER is at {commit}, expected {COMMIT}")
    return clone


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("ruler")
    parser.add_argument("--tokenizers", type=pathlib.Path, nargs="+", default=TOKENIZERS)
    parser.add_argument("--tasks", nargs="+")
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 4096, 8192])
    parser.add_argument("--seeds", type=int, nargs="+", default=[42, 1])
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--golden", type=pathlib.Path)
    arguments = parser.parse_args()

    golden = []
    equal = refused = failed = 0
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        sentences, how = sentences_of()
        ruler = Ruler(clone_of(arguments.ruler, scratch), scratch, sentences)
        print(f"sentences: {how}", flush=True)
        for tokenizer in arguments.tokenizers:
            folder = folder_of(tokenizer, scratch)
            ruler.tokenizer = Tokenizer(folder)
            for task in arguments.tasks or ruler.tasks:
                for length, seed in itertools.product(arguments.lengths, arguments.seeds):
                    theirs = ruler.prompts(task, length, arguments.samples, seed)
                    mine = ours(arguments.program, folder, ruler, task, length, arguments.samples, seed)
                    if isinstance(theirs, list):
                        golden.append(dict(tokenizer=tokenizer.name, task=task, length=length, seed=seed,
                                           prompts=[xxhash.xxh3_128_hexdigest(text.encode()) for text, _ in theirs]))
                    wrong = difference(theirs, mine, ruler.tokenizer.tokenizer)
                    equal += len(mine) if not wrong and isinstance(mine, list) else 0
                    refused += not wrong and not isinstance(mine, list)
                    failed += bool(wrong)
                    if wrong:
                        print(f"{tokenizer.name} {task} {length} seed {seed}: {wrong}")
            print(f"{tokenizer.name}: so far {equal} prompts equal, {refused} settings refused by both, {failed} differ",
                  flush=True)
    if arguments.golden:
        arguments.golden.write_text("[" + ",\n".join(map(json.dumps, golden)) + "]\n")
    sys.exit(1 if failed or not equal else 0)


if __name__ == "__main__":
    main()
