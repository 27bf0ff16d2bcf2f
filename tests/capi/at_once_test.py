#!/ usr / bin / env python3
"""Every function that libropewalk.so exports is called by eight threads at the same time (at_once_test.cc): a new function
needs its call there.

usage: at_once_test.py PROGRAM [SHARED_LIBRARY]
"""

import subprocess
import sys
import unittest

PROGRAM, SHARED = "", ""


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    return result.returncode, result.stdout, result.stderr


class AtOnce(unittest.TestCase):
    def test_every_exported_function_gives_the_bits_of_one_thread(self):
        code, out, said = run(PROGRAM)
        self.assertEqual(code, 0, said)
        called = {line.split()[0] for line in out.splitlines()}
        self.assertGreater(len(called), 40)
        if not SHARED:
            print("there is no shared library whose symbols these could be compared with")
            return
        code, symbols, said = run("nm", "--dynamic", "--defined-only", SHARED)
        self.assertEqual(code, 0, said)
        self.assertEqual(called, {line.split()[2].split("@")[0] for line in symbols.splitlines() if " T " in line})


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    SHARED = sys.argv.pop(1) if sys.argv[1:] else ""
    unittest.main()
