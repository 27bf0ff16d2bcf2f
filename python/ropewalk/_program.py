"""The program `ropewalk`: the same as the one built from C++, with the same options, output and exit codes."""

import importlib.util
import os
import sys
from typing import Any

from ropewalk import _core


def main() -> int:
    """Runs the command line of this process and returns its exit code."""
    # OpenMP's runtime reads its settings when it is loaded, which has happened: threads begin in a second start.
    restart = [sys.executable, *sys.orig_argv[1:]] if sys.executable else []
    if _with_torch(sys.argv[1:]) and os.environ.get("WORLD_SIZE", "1") != "1":
        from ropewalk import _engine_ranks

        if any(a == "--shard" or a.startswith("--shard=") for a in sys.argv):
            with _engine_ranks.alone():
                return _core.main(["ropewalk", *sys.argv[1:]], restart)
        if _engine_ranks.launched() and importlib.util.find_spec("torch") is not None:  # else the program says so
            return _over_ranks(_engine_ranks, restart)
    return _core.main(["ropewalk", *sys.argv[1:]], restart)


def _with_torch(arguments: list[str]) -> bool:
    """Whether this measures with PyTorch."""
    pairs = zip(arguments, [*arguments[1:], ""])
    return arguments[:1] == ["sweep"] and any(a == "--engine=torch" or (a, b) == ("--engine", "torch") for a, b in pairs)


def _over_ranks(module: Any, restart: list[str]) -> int:
    """What torchrun started as several processes computes one thing: rank 0 is the program, the others serve its engine."""
    if restart and not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = "10000"  # as the program does, but before ranks know each other
        os.execv(restart[0], restart)
    if os.environ["RANK"] != "0":
        return _serve(module)
    ranks = module.ranks()
    code = _core.main(["ropewalk", *sys.argv[1:]])
    ranks.over()
    if ranks.broken:  # and said so
        sys.stdout.flush()
        os._exit(code or 1)
    ranks.close()
    return code


def _serve(module: Any) -> int:
    """Says nothing until it fails."""
    import signal
    import warnings

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # rank 0 hears it too, and decides
    warnings.simplefilter("ignore")
    stderr, sys.stderr, sys.stdout = sys.stderr, open(os.devnull, "w"), open(os.devnull, "w")
    try:
        ranks = module.ranks()
        ranks.serve()
        ranks.close()
        return 0
    except Exception as error:
        line = " ".join(str(error).split())
        kind = "" if isinstance(error, _core.Error) else f"{type(error).__name__}: "
        print(f"ropewalk: error: rank {os.environ['RANK']}: {kind}{line}", file=stderr, flush=True)
        os._exit(1)
