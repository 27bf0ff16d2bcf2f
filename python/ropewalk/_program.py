"""The program `ropewalk`: the same as the one built from C++, with the same options, output and exit codes."""

import sys

from ropewalk import _core


def main() -> int:
    """Runs the command line of this process and returns its exit code."""
    # OpenMP's runtime reads its settings when it is loaded, which has happened: threads begin in a second start.
    restart = [sys.executable, *sys.orig_argv[1:]] if sys.executable else []
    return _core.main(["ropewalk", *sys.argv[1:]], restart)
