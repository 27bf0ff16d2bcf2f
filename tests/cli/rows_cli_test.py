"""What follows from the rows of commands and options: help, completions of shells, manual pages, one meaning of -o."""

import json
import os
import re
import shutil
import subprocess
import sys

import support
from support import MODEL, run


def commands():
    """Names of commands, as --help lists them."""
    text = run("--help").stdout.decode()
    return re.findall(r"^  ([a-z][a-z-]*)\s", text.split("\nExamples:")[0].split("\n\n", 2)[2], re.M)


def options(command):
    """Every name of an option in a command's help."""
    text = run(command, "--help").stdout.decode()
    heads = re.findall(r"^  (-.*?)(?:  |$)", text, re.M)
    return {name for head in heads for name in re.findall(r"(?<!\S)--?[a-z][a-z-]*", head)}


class NeedsTool(support.CliCase):
    def tool(self, name):
        path = shutil.which(name)
        if path is None:
            print(f"rows_cli: {name} is not installed: not checked with it", file=sys.stderr)
            self.skipTest(f"{name} is not installed")
        return path


class Completion(NeedsTool):
    def script(self, shell):
        path = self.folder / f"completion.{shell}"
        self.works("completion", shell, "-o", path)
        self.assertEqual(path.read_bytes(), self.works("completion", shell))
        return path

    def complete(self, *words):
        """What bash offers for the last word."""
        line = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ropewalk; '
                'printf "%s\\n" "${COMPREPLY[@]}"')
        result = subprocess.run([self.tool("bash"), "-c", line, "bash", str(self.script("bash")), "ropewalk",
                                 *map(str, words)], capture_output=True, timeout=60, cwd=self.folder)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        return [word for word in result.stdout.decode().split("\n") if word]

    def test_bash(self):
        self.assertEqual(self.complete("sw"), ["sweep"])
        self.assertLessEqual(set(commands()), set(self.complete("")))
        self.assertEqual(self.complete("sweep", "--meth"), ["--methods", "--method"])
        self.assertEqual(self.complete("convert", "--no"), ["--no-tokenizer", "--no-verify"])
        for command in commands():
            self.assertLessEqual(options(command) - {"-h"}, set(self.complete(command, "-")), command)
        # values
        self.assertEqual(self.complete("sweep", "m", "--compute", ""), ["float32", "bf16"])
        self.assertEqual(self.complete("sweep", "m", "--compute", "=", "b"), ["bf16"])
        self.assertEqual(self.complete("sweep", "m", "--compute", "="), ["float32", "bf16"])
        self.assertEqual(self.complete("convert", "m", "--layout", "i"), ["interleaved"])
        self.assertEqual(self.complete("sweep", "--seed", ""), [])
        self.assertEqual(self.complete("completion", "f"), ["fish"])
        self.assertEqual(self.complete("manual", "con"), ["convert"])
        # methods, and the last of several
        self.assertLessEqual({"none", "yarn", "self-extend", "as-shipped"},
                             set(self.complete("inspect", "m", "--methods", "")))
        self.assertEqual(self.complete("sweep", "m", "--methods", "none,lla"), ["none,llama3"])
        self.assertEqual(self.complete("sweep", "m", "--search", "base,f"), ["base,factors"])
        # files
        (self.folder / "a model").mkdir()
        (self.folder / "a text").write_text("")
        for words in (["inspect"], ["sweep", "m", "--text"], ["report"], ["extend", "m", "-o"], ["report", "x"]):
            self.assertEqual(sorted(self.complete(*words, "a ")), ["a model", "a text"], words)

    def test_zsh(self):
        script, zsh = self.script("zsh"), self.tool("zsh")
        result = subprocess.run([zsh, "-n", script], capture_output=True, timeout=60)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        # Read by the completion system itself, as a file of fpath.
        (self.folder / "_ropewalk").write_bytes(script.read_bytes())
        line = f'fpath=({self.folder} $fpath); autoload -U compinit; compinit -D -u; echo $_comps[ropewalk]'
        result = subprocess.run([zsh, "-fc", line], capture_output=True, timeout=60)
        self.assertEqual(result.stdout, b"_ropewalk\n", result.stderr)
        text = script.read_text()
        for command in commands():
            for name in options(command):
                self.assertIn(name, text)

    def test_fish(self):
        script, fish = self.script("fish"), self.tool("fish")
        self.assertEqual(subprocess.run([fish, "-n", script], capture_output=True, timeout=60).stderr, b"")

        def complete(line):
            result = subprocess.run([fish, "--no-config", "-c", 'source $argv[1]; complete -C $argv[2]', script, line],
                                    capture_output=True, timeout=60,
                                    env={**os.environ, "HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder)})
            self.assertEqual(result.returncode, 0, result.stderr)
            return [row.split("\t")[0] for row in result.stdout.decode().splitlines()]

        self.assertEqual(complete("ropewalk sw"), ["sweep"])
        self.assertLessEqual({"--methods", "--method"}, set(complete("ropewalk sweep --meth")))
        self.assertEqual(sorted(complete("ropewalk sweep m --compute ")), ["bf16", "float32"])
        self.assertIn("none,yarn", complete("ropewalk sweep m --methods none,ya"))
        for command in commands():
            long_names = {name for name in options(command) if name.startswith("--")}
            self.assertLessEqual(long_names, set(complete(f"ropewalk {command} --")), command)

    def test_unknown_shells_are_refused(self):
        self.fails(2, "completion", "csh", says="{bash,zsh,fish}")
        self.fails(2, "completion")
        self.fails(2, "manual", "frobnicate", says="frobnicate")


class Manual(NeedsTool):
    def pages(self):
        self.works("manual", "-o", self.folder / "man1")
        pages = {path.name: path for path in (self.folder / "man1").iterdir()}
        self.assertEqual(set(pages), {"ropewalk.1"} | {f"ropewalk-{command}.1" for command in commands()})
        return pages

    def test_pages_say_what_help_says(self):
        pages = self.pages()
        for command in commands():
            page = pages[f"ropewalk-{command}.1"].read_bytes()
            self.assertEqual(page, self.works("manual", command))
            plain = page.decode().replace("\\-", "-")
            heads = " ".join(re.findall(r"^\.TP\n\.B (.*)$", plain, re.M))
            for name in options(command):
                self.assertRegex(heads, rf"(^|[ ,]){re.escape(name)}($|[ ,])", command)
            self.assertIn(command.replace("-", r"\-"), pages["ropewalk.1"].read_text())

    def test_groff(self):
        groff = self.tool("groff")
        for name, page in self.pages().items():
            result = subprocess.run([groff, "-k", "-man", "-Tutf8", "-ww", "-z", page], capture_output=True, timeout=60)
            self.assertEqual((result.returncode, result.stderr), (0, b""), name)

    def test_man(self):
        man = self.tool("man")
        for name, page in self.pages().items():
            result = subprocess.run([man, "--warnings=w", "-P", "cat", "-l", page], capture_output=True, timeout=60,
                                    env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
            if b"minimized" in result.stdout + result.stderr:
                print("rows_cli: man is a stub here: not checked with it", file=sys.stderr)
                self.skipTest("man is a stub")
            self.assertEqual((result.returncode, result.stderr), (0, b""), name)
            self.assertIn(b"SYNOPSIS", re.sub(rb".\x08|\x1b\[[0-9;]*m", b"", result.stdout))


class Help(support.CliCase):
    def test_lines_fit(self):
        for arguments in ([], *([command] for command in commands())):
            for line in self.works(*arguments, "--help").decode().split("\nExamples:")[0].splitlines():
                if not line.startswith("Usage:"):
                    self.assertLessEqual(len(line), 100)

    def test_examples_are_commands(self):
        """Each example names a command, and options that it has."""
        for command in commands():
            text = self.works(command, "--help").decode().split("\nExamples:\n")[1]
            for line in text.strip().splitlines():
                self.assertIn(f"ropewalk {command}", line)
                for name in re.findall(r"(?<=\s)--?[a-z][a-z-]*", line.split("|")[0].split(">")[0]):
                    self.assertIn(name, options(command), line)


class Output(support.CliCase):
    def test_forms_go_where_o_says(self):
        out = self.folder / "out"
        for form in ([], ["--json"], ["--html"]):
            printed = self.works("inspect", MODEL, *form)
            self.assertEqual(self.works("inspect", MODEL, *form, "-o", out), b"")
            self.assertEqual(out.read_bytes(), printed)
        diff = self.works("inspect", "--diff", MODEL, MODEL)
        self.works("inspect", "--diff", MODEL, MODEL, "--output", out)
        self.assertEqual(out.read_bytes(), diff)
        self.fails(2, "inspect", MODEL, "--json", "--html", says="--html")
        self.fails(2, "report", MODEL, "--csv", "--json", says="--csv")


class InspectMethods(support.CliCase):
    """inspect --methods takes what every other command takes."""

    def lines(self, *methods):
        more = ["--methods", ",".join(methods)] if methods else []
        page = self.json("inspect", MODEL, "--length", 1024, "--json", *more)["positions"]
        return {d["method"]: [p["expected"] for p in d["points"]] for d in page["decay"]}

    def test_every_form(self):
        lines = self.lines("none", "yarn", "yarn:4", "yarn:factor=4", "yarn:2", "ntk+log-n", "ntk", "rerope",
                           "rerope:64", "self-extend:window=64,group=8", "sinks", "as-shipped", "none")
        self.assertEqual(list(lines)[0], "as shipped")
        self.assertEqual(len(lines), 13 - 1)  # none once, and as-shipped is there as "as shipped"
        self.assertEqual(lines["yarn:4"], lines["yarn"])  # 1024 is four times the trained length
        self.assertEqual(lines["yarn:factor=4"], lines["yarn"])
        self.assertNotEqual(lines["yarn:2"], lines["yarn"])
        self.assertEqual(lines["ntk+log-n"], lines["ntk"])  # a temperature rotates nothing
        # A map: as without one up to its window, then what it shows the rotation.
        distances = [p["distance"] for p in self.json("inspect", MODEL, "--length", 1024, "--json")[
            "positions"]["decay"][0]["points"]]
        at = dict(zip(distances, lines["rerope:64"]))
        none = dict(zip(distances, lines["none"]))
        for distance in distances:
            self.assertEqual(at[distance], none[min(distance, 64)])
        self.assertIn(None, lines["sinks"])  # keys that it does not see
        self.assertIn(b"masked", self.works("inspect", MODEL, "--length", 1024, "--methods", "sinks"))

    def test_the_same_refusals(self):
        for method in ("bogus", "rerope+sinks", "rerope:size=3", "window=3"):
            here = self.fails(2, "inspect", MODEL, "--methods", method)
            there = self.fails(2, "perplexity", MODEL, "--text", self.text, "--length", 256, "--methods", method)
            self.assertEqual(here, there)
        self.fails(1, "inspect", MODEL, "--length", 1024, "--methods", "rerope:256",
                   says="expected distances below 256")


if __name__ == "__main__":
    support.main()
