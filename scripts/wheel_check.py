#!/usr/bin/env python3
"""Tries the installed package and the program in it; scripts/wheel.sh calls it with the Python of a fresh environment.

usage: wheel_check.py MODEL      the folder of the embedded model
"""

import importlib.metadata
import pathlib
import re
import subprocess
import sys
import tempfile

IMPORT_MS = 150
IMPORT = """
import time
begin = time.thread_time(), time.perf_counter()
import ropewalk
print(1e3 * (time.thread_time() - begin[0]), 1e3 * (time.perf_counter() - begin[1]))
"""


def python(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def import_time():
    """Milliseconds of `import ropewalk` with numpy's part: of the processor in the thread that imports (numpy starts others,
    which nobody waits for), and by the clock, which counts the other programs of a busy machine; the best of seven each."""
    runs = [[float(x) for x in python(IMPORT).split()] for _ in range(7)]
    cpu, clock = (min(column) for column in zip(*runs))
    if cpu > IMPORT_MS:
        sys.exit(f"wheel_check.py: import ropewalk takes {cpu:.0f} ms, at most {IMPORT_MS} are allowed")
    return f"{cpu:.0f} ms ({clock:.0f} by the clock)"


def check_rotation():
    import numpy as np
    import ropewalk as rw

    table = rw.rotation(64, layout="half", base=10000.0).table(16)
    q = np.random.default_rng(1).standard_normal((4, 2, 64), dtype=np.float32)
    rotated, _ = rw.rotate(q, None, table, 7)
    angle = (7 + np.arange(4))[:, None, None] * 10000.0 ** (-np.arange(32) / 32)
    turned = (q[..., :32] + 1j * q[..., 32:]) * np.exp(1j * angle)
    expected = np.concatenate([turned.real, turned.imag], axis=-1)
    if not np.allclose(rotated, expected, rtol=0, atol=1e-5):
        sys.exit("wheel_check.py: a rotation is wrong")


def check_openmp():
    """One runtime, under the name that PyTorch's has too."""
    maps = python("import ropewalk; print(open('/proc/self/maps').read())")
    names = {pathlib.Path(path).name for path in re.findall(r"/\S*lib[gi]?omp\S*", maps)}
    if names != {"libgomp.so.1"}:
        sys.exit(f"wheel_check.py: OpenMP's runtime is {names}, expected libgomp.so.1")


def check_plugin():
    """vLLM finds its plugin, which is nothing without vLLM as long as nobody asks for a plan."""
    found = importlib.metadata.entry_points(group="vllm.general_plugins")
    if [entry.name for entry in found] != ["ropewalk"]:
        sys.exit(f"wheel_check.py: plugins for vLLM: {found}")
    for entry in found:
        entry.load()()


def check_program(model):
    program = pathlib.Path(sys.executable).with_name("ropewalk")
    def says(*arguments):
        return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout

    version = importlib.metadata.version("ropewalk")
    if says("--version") != f"ropewalk {version}\n":
        sys.exit("wheel_check.py: the program and the package have different versions")
    info = says("info")
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text.txt"
        text.write_text("And the king went unto the river, and saw it. " * 3000)
        if "yarn" not in says("sweep", model, "--text", text, "--dry-run"):
            sys.exit("wheel_check.py: a dry run of a sweep names no method")
    return re.search(r"simd_target +(\S+)", info)[1]


def main():
    installed = sorted(d.metadata["Name"].lower() for d in importlib.metadata.distributions())
    others = set(installed) - {"ropewalk", "numpy", "nanobind-backend", "pip", "setuptools"}
    if others:
        sys.exit(f"wheel_check.py: the package brought {', '.join(others)}")
    taken = import_time()
    check_rotation()
    check_openmp()
    check_plugin()
    target = check_program(sys.argv[1])
    print(f"Python {sys.version.split()[0]}, numpy {importlib.metadata.version('numpy')}: works, import in {taken}, "
          f"{target}")


if __name__ == "__main__":
    main()
