#!/usr/bin/env python3
"""Compiles and runs what the documentation shows.

usage: run_snippets.py BUILD_DIR

Every ```cpp block that has a main function is a stranger's program: the build is installed into a fresh prefix,
the programs are built against it with find_package, linked to the libraries whose headers they include, and
run. Every ```sh block that begins with `$ ` runs at the root of the project, where `ropewalk` is the build's
program; lines behind `$ ` are commands and the others their output. Output that is shown must be what
comes, where `...` stands for any text.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from markdown import ROOT, files, snippets  # noqa: E402

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(snippets LANGUAGES CXX)
find_package(ropewalk REQUIRED)
"""


def run(command, what, **options):
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, **options)
    if result.returncode != 0:
        sys.exit(f"{what}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def compare(shown, came, where):
    """`...` matches any text, also of several lines."""
    pattern = ".*?".join(re.escape(part) for part in shown.strip().split("..."))
    if not re.fullmatch(pattern, came.strip(), re.S):
        sys.exit(f"{where}: the documentation shows\n{shown}\nbut what comes is\n{came}")


def programs():
    for path in files():
        for line, language, code, output in snippets(path):
            if language == "cpp" and "int main(" in code:
                yield f"{path.relative_to(ROOT)}:{line}", code, output


def build_and_run(build, work):
    run(["cmake", "--install", build, "--prefix", work / "prefix"], "install")
    found, cmake = list(programs()), PROJECT
    for n, (where, code, _) in enumerate(found):
        (work / f"snippet{n}.cc").write_text(f"// {where}\n{code}", encoding="utf-8")
        libraries = sorted(set(re.findall(r'#include "ropewalk/(\w+)/', code)))
        cmake += f"add_executable(snippet{n} snippet{n}.cc)\n"
        cmake += f"target_link_libraries(snippet{n} PRIVATE {' '.join('ropewalk::' + x for x in libraries)})\n"
    (work / "CMakeLists.txt").write_text(cmake, encoding="utf-8")
    run(["cmake", "-S", work, "-B", work / "build", f"-DCMAKE_PREFIX_PATH={work / 'prefix'}"], "configure")
    run(["cmake", "--build", work / "build"], "compile")
    for n, (where, _, output) in enumerate(found):
        came = run([work / "build" / f"snippet{n}"], where)
        if output is not None:
            compare(output, came, where)
        print(f"{where}: {'output as shown' if output is not None else 'runs'}")
    return len(found)


def sessions(code):
    """[(command, lines shown)] of a shell block; a line that ends in a backslash goes on."""
    found = []
    for line in code.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def run_shell(build):
    environment = {**os.environ, "PATH": f"{build}:{os.environ['PATH']}", "OMP_WAIT_POLICY": "passive"}
    count = 0
    for path in files():
        for line, language, code, output in snippets(path):
            if language != "sh" or not code.startswith("$ "):
                continue
            for command, shown in sessions(code):
                where = f"{path.relative_to(ROOT)}:{line}: {command}"
                came = run(["bash", "-eo", "pipefail", "-c", command], where, cwd=ROOT, env=environment)
                expected = "\n".join(shown) if shown else output
                if expected is not None:
                    compare(expected, came, where)
                print(where)
                count += 1
    return count


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        compiled = build_and_run(build, pathlib.Path(folder))
    commands = run_shell(build)
    if compiled < 3 or commands < 3:
        sys.exit(f"only {compiled} programs and {commands} commands were found in the documentation")
    print(f"{compiled} programs and {commands} commands do what the documentation says")


if __name__ == "__main__":
    main()
