"""A new command is two files: tests/extension/new_command.patch adds one to a copy of cli/. It is compiled with the
commands of this build, linked before the library of the others, and appears in help, completions and the manual."""

import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import support
from support import PROGRAM, SOURCE

BUILD = pathlib.Path(PROGRAM).resolve().parent
PATCH = SOURCE / "tests/extension/new_command.patch"
FILES = 2  # ARCHITECTURE.md, "Where do I change X", says so


def build_commands():
    """What ninja would run for the program, the link last."""
    out = subprocess.run(["ninja", "-C", str(BUILD), "-t", "commands", "ropewalk"], capture_output=True, timeout=60)
    return out.stdout.decode().splitlines()


class NewCommand(support.CliCase):
    def test_it_is_two_files(self):
        if shutil.which("ninja") is None or not (BUILD / "build.ninja").exists():
            print("new_command: not a ninja build: the patch was not compiled", file=sys.stderr)
            self.skipTest("not a ninja build")
        files = re.findall(r"^\+\+\+ b/(.*)$", PATCH.read_text(), re.M)
        self.assertEqual(len(files), FILES, files)
        copy = self.folder / "copy"
        shutil.copytree(SOURCE / "cli", copy / "cli")
        subprocess.run(["git", "apply", str(PATCH)], cwd=copy, check=True, timeout=60,
                       env={"PATH": "/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": str(copy)})

        lines = build_commands()
        link = lines[-1]
        compile_line = next(line for line in lines if line.endswith("/cli/commands.cc"))
        objects = []
        for name in files:
            self.assertTrue(name.startswith("cli/") and name.endswith(".cc"), name)  # as cli/CMakeLists.txt finds them
            made = self.folder / (pathlib.Path(name).stem + ".o")
            words = shlex.split(compile_line)
            words[words.index("-o") + 1] = str(made)
            words[-1] = str(copy / name)
            for flag in ("-MF", "-MT"):
                if flag in words:
                    words[words.index(flag) + 1] = str(made) + ".d"
            subprocess.run(words, cwd=BUILD, check=True, timeout=300)
            objects.append(str(made))
        program = self.folder / "ropewalk"
        main = re.search(r"\S*/main\.cc\.o", link).group()
        line = link.replace(main, " ".join([main, *objects]))
        line = re.sub(r"(?<= )-o \S+", f"-o {program}", line)
        subprocess.run(["sh", "-c", line], cwd=BUILD, check=True, timeout=300)

        def says(*arguments):
            return subprocess.run([program, *map(str, arguments)], capture_output=True, check=True,
                                  timeout=60).stdout.decode()

        count = len(self.json("tokenize", support.MODEL, "--text", self.text))
        self.assertEqual(says("count", support.MODEL, "--text", self.text), f"{count}\n")
        self.assertRegex(says("--help"), r"\n  count +How many tokens")
        self.assertIn("--text FILE", says("count", "--help"))
        for shell in ("bash", "zsh", "fish"):
            self.assertIn("count", says("completion", shell))
            self.assertNotIn("count", self.works("completion", shell).decode())
        self.assertIn("ropewalk\\-count \\- How many tokens", says("manual", "count"))
        says("manual", "-o", self.folder / "man1")
        self.assertTrue((self.folder / "man1/ropewalk-count.1").exists())


if __name__ == "__main__":
    support.main()
