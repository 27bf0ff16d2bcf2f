"""The program as a user runs it: what the tests of this folder share. Python's standard library only.

Each test file is called as  FILE.py PROGRAM SOURCE_DIR [unittest arguments]  and ends with support.main().
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
sys.path.append(str(SOURCE / "tests/support"))
from short_model import short_model  # noqa: E402

# The embedded model as one of 256 tokens, and as it was trained: 1024.
MODEL, WHOLE_MODEL = str(short_model()), str(SOURCE / "models")


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


class CliCase(unittest.TestCase):
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


def main():
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[3:]])
