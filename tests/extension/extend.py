#!/usr/bin/env python3
"""Adds a made-up method to a scratch copy of the tree by the patch beside this file, counts the files that it touches, compiles what
sees the change, links it with the libraries of the build folder, and compares what the check program prints with the formula that the
patch adds to the goldens.

usage: extend.py scaling|bias COMPILER BUILD [LIBCUDART]     the last where the build has kernels for GPUs
"""

import concurrent.futures
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FILES = 5
# What takes the variant in its signatures, and so has another name with another variant; the files of the methods
# themselves are one unit.
UNITS = {
    "scaling": ["src/rotary/methods.cc", "src/rotary/resolve.cc", "src/rotary/axes.cc", "src/rotary/dialect.cc",
                "src/rotary/base_derivative.cc", "src/relative/distance_map.cc", "src/plan/plan.cc", "src/plan/method.cc",
                "src/capi/spec.cc", "src/config/rope_dictionary.cc", "src/config/json_object.cc"],
    "bias": ["src/relative/distance_bias.cc", "src/plan/method.cc"],
}
LIBRARIES = ["plan", "relative", "rotary", "base"]


def patched(kind, scratch):
    patch = (HERE / f"new_{kind}.patch").read_text(encoding="utf-8")
    touched = re.findall(r"^\+\+\+ b/(.*)$", patch, re.M)
    for folder in ("include", "src", "tests/golden", "docs/rotary/methods", "docs/relative/methods"):
        shutil.copytree(ROOT / folder, scratch / folder)
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], cwd=scratch, input=patch, text=True, check=True)
    return touched


def build(kind, compiler, build_folder, cudart, scratch):
    libraries, units = list(LIBRARIES), [scratch / unit for unit in UNITS[kind]]
    if kind == "scaling":
        libraries = ["capi", "io", *LIBRARIES]
        methods = sorted((scratch / "src/rotary/scaling").glob("*.cc"))
        unity = scratch / "scaling.cc"
        # In one unit a row is declared before another method's file asks for it.
        rows = [name for method in methods for name in re.findall(r"ScalingRow<(\w+)> RowOf\(\)", method.read_text("utf-8"))]
        unity.write_text('#include "src/rotary/scaling/scaling.h"\nnamespace ropewalk::internal {\n' +
                         "".join(f"template <> ScalingRow<{name}> RowOf<{name}>();\n" for name in rows) + "}\n" +
                         "".join(f'#include "{method}"\n' for method in methods), encoding="utf-8")
        units.append(unity)
    else:
        units += sorted(scratch.glob("src/relative/hyperbolic.cc"))
    units.append(HERE / f"{kind}_check.cc")
    flags = ["-std=c++20", "-O0", "-ffp-contract=off", f"-I{scratch}/include", f"-I{scratch}"]

    def compile_one(item):
        out = scratch / f"{item[0]}.o"
        subprocess.run([compiler, *flags, "-c", item[1], "-o", out], check=True)
        return out

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, enumerate(units)))
    archives = [build_folder / "src" / name / f"libropewalk_{name}.a" for name in libraries]
    external = subprocess.run(["pkg-config", "--libs", "libhwy", "libxxhash"], capture_output=True, text=True,
                              check=True).stdout.split()
    program = scratch / "check"
    subprocess.run([compiler, *objects, *archives, "-lfmt", *external, "-fopenmp",
                    *([cudart, "-lpthread", "-ldl", "-lrt"] if cudart else []), "-o", program], check=True)
    return program


def check_scaling(seen):
    import check_conformance as golden

    spec = seen["spec"]
    f, amplitude, softmax = golden.frequencies(seen["parameters"], "native", spec["dim"], spec["dim"], spec["base"], 4096, 16384, None)
    for got, want in zip(seen["inv_freq"], f, strict=True):
        golden.near(got, want, abs(want) * golden.D("2.3e-16"), "inv_freq")
    golden.near(seen["amplitude"], amplitude, 1e-16, "amplitude")
    golden.near(seen["softmax_multiplier"], softmax, 1e-16, "softmax_multiplier")


def check_bias(seen):
    import positions_relative as golden

    golden.attention = lambda *args, **more: 0  # the table alone
    if golden.RELATIVE["hyperbolic"](seen) < 6:
        sys.exit("the formula of the golden compared too little")


def main():
    kind, compiler, build_folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    cudart = "".join(sys.argv[4:])
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        touched = patched(kind, scratch)
        if len(touched) != FILES:
            sys.exit(f"a new {kind} touches {len(touched)} files, expected {FILES}: {', '.join(touched)}")
        program = build(kind, compiler, build_folder, cudart, scratch)
        seen = json.loads(subprocess.run([program], check=True, capture_output=True, text=True).stdout)
        sys.path.insert(0, str(scratch / "tests" / "golden"))
        {"scaling": check_scaling, "bias": check_bias}[kind](seen)
        print(f"a new {kind} touches {FILES} files: {', '.join(touched)}")


if __name__ == "__main__":
    main()
