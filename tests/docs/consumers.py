#!/usr/bin/env python3
"""Builds strangers' projects against the installed libraries: in C and C++, by find_package and by pkg-config, also where
the libraries of others that a program does not need are not installed.

usage: consumers.py BUILD_DIR
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
from markdown import ROOT, snippets  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
ROTATE_C, ATTENTION_C = ROOT / "examples" / "rotate.c", ROOT / "examples" / "attention.c"
README = next(code for _, language, code, _ in snippets(ROOT / "README.md") if language == "cpp" and "int main(" in code)
# What rotary is linked with; all else is hidden where a test says bare.
NEEDED = ("libhwy", "libxxhash", "fmt")
FOREIGN = ("sentencepiece", "pcre2", "utf8proc", "dnnl", "nlohmann", "cuda/")


class Consumers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.work = pathlib.Path(folder.name)
        # What is installed may be moved.
        subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.work / "first"], check=True, stdout=subprocess.DEVNULL)
        cls.prefix = (cls.work / "first").rename(cls.work / "prefix")
        cls.pc = next(cls.prefix.rglob("ropewalk.pc")).parent
        (cls.work / "bare").mkdir()
        for module in NEEDED:
            where = subprocess.run(["pkg-config", "--variable=pcfiledir", module], capture_output=True, text=True, check=True)
            shutil.copy(pathlib.Path(where.stdout.strip()) / f"{module}.pc", cls.work / "bare")

    def environment(self, bare):
        environment = {**os.environ, "PKG_CONFIG_PATH": str(self.pc)}
        if bare:
            environment["PKG_CONFIG_LIBDIR"] = str(self.work / "bare")
        return environment

    def run_in(self, command, bare, fails=False):
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=self.environment(bare))
        output = result.stdout + result.stderr
        self.assertEqual(result.returncode != 0, fails, output)
        return output

    def configure(self, files, bare=False, fails=False):
        """Writes a project, configures it, and returns its folder and what CMake said."""
        source = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        for name, text in files.items():
            (source / name).parent.mkdir(exist_ok=True)
            (source / name).write_text(text, encoding="utf-8")
        hide = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{x}=ON" for x in ("nlohmann_json", "dnnl", "CUDAToolkit") if bare]
        said = self.run_in(["cmake", "-G", "Ninja", "-S", source, "-B", source / "build",
                            f"-DCMAKE_PREFIX_PATH={self.prefix}", *hide], bare, fails)
        return source, " ".join(said.split())

    def build_and_run(self, source, program, bare=False):
        self.run_in(["cmake", "--build", source / "build"], bare)
        return self.run_in([source / "build" / program], bare)

    def check_libraries(self, text):
        for name in FOREIGN:
            self.assertNotIn(name, text)

    def test_project_in_c(self):
        source, _ = self.configure({"CMakeLists.txt": f"""
            cmake_minimum_required(VERSION 3.25)
            project(engine C)
            find_package(ropewalk REQUIRED)
            add_executable(rotate {ROTATE_C})
            target_link_libraries(rotate PRIVATE ropewalk::capi)
            add_executable(attention {ATTENTION_C})
            target_link_libraries(attention PRIVATE ropewalk::capi_attention m)
            """})
        self.assertIn("k[0] at 95904:  -0.29514", self.build_and_run(source, "rotate"))
        self.assertIn("gradient of the slopes: 5.5557 and -6.1926", self.build_and_run(source, "attention"))

    def test_shared_library(self):
        """Both headers without a linker of C++, and without the libraries of others but for those that it names itself."""
        source, _ = self.configure({"CMakeLists.txt": f"""
            cmake_minimum_required(VERSION 3.25)
            project(engine C)
            find_package(ropewalk REQUIRED COMPONENTS capi_shared)
            add_executable(attention {ATTENTION_C})
            set_target_properties(attention PROPERTIES LINKER_LANGUAGE C)
            target_link_libraries(attention PRIVATE ropewalk::capi_shared m)
            """}, bare=True)
        self.assertIn("gradient of the slopes: 5.5557 and -6.1926", self.build_and_run(source, "attention", bare=True))
        with unittest.mock.patch.dict(os.environ, LD_LIBRARY_PATH=str(self.pc.parent)):
            said, flags = self.compile(ROTATE_C, "ropewalk-capi_shared", True)
        self.assertIn("k[0] at 95904:  -0.29514", said)
        self.assertNotIn("stdc++", flags)

    def test_subdirectory_of_a_project_in_c(self):
        source, _ = self.configure({"CMakeLists.txt": """
            cmake_minimum_required(VERSION 3.25)
            project(engine C)
            add_subdirectory(position)
            add_executable(main main.c)
            target_link_libraries(main PRIVATE position)
            """, "main.c": "int position(void); int main(void) { return position(); }\n", "position/CMakeLists.txt": """
            find_package(ropewalk REQUIRED COMPONENTS capi)
            add_library(position STATIC position.c)
            target_link_libraries(position PRIVATE ropewalk::capi)
            """, "position/position.c": """
            #include "ropewalk/ropewalk.h"
            int position(void) { return ropewalk_frequencies_create(NULL, 1, NULL) != ROPEWALK_INVALID_ARGUMENT; }
            """})
        self.build_and_run(source, "main")

    def test_function_of_a_project_in_c(self):
        _, said = self.configure({"CMakeLists.txt": """
            cmake_minimum_required(VERSION 3.25)
            project(engine C)
            function(dependencies)
              find_package(ropewalk REQUIRED)
            endfunction()
            dependencies()
            """}, fails=True)
        self.assertIn("its static libraries need a C++ linker: enable CXX in project(), or call find_package outside", said)

    def test_rotary_needs_nothing_that_it_is_not_linked_with(self):
        source, said = self.configure({"CMakeLists.txt": """
            cmake_minimum_required(VERSION 3.25)
            project(engine CXX)
            find_package(ropewalk REQUIRED)
            add_executable(app app.cc)
            target_link_libraries(app PRIVATE ropewalk::rotary)
            """, "app.cc": README}, bare=True)
        self.assertRegex(said, r"-- ropewalk without absolute \(install libdnnl-dev ocl-icd-opencl-dev\), .*"
                               r"tokenizer \(install pkg-config libpcre2-dev, pkg-config libutf8proc-dev, "
                               r"pkg-config libsentencepiece-dev libprotobuf-dev\), model \(.*\), eval \(")
        self.assertIn("q[0] = -1.035110", self.build_and_run(source, "app", bare=True))
        self.check_libraries((source / "build" / "build.ninja").read_text(encoding="utf-8"))

    def test_configurations_need_neither_onednn_nor_openmp(self):
        source, _ = self.configure({"CMakeLists.txt": """
            cmake_minimum_required(VERSION 3.25)
            project(engine CXX)
            find_package(ropewalk REQUIRED COMPONENTS config)
            add_executable(read read.cc)
            target_link_libraries(read PRIVATE ropewalk::config)
            """, "read.cc": """
            #include <cstdio>
            #include <ropewalk/config/config.h>
            int main() {
              const auto c = ropewalk::ParseHfConfig(R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
                  "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 512,
                  "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}})", "a text");
              std::printf("hash %s\\n", ropewalk::Resolve(c.plan, 2048).hash.c_str());
            }
            """}, bare=True)
        self.assertRegex(self.build_and_run(source, "read", True), "hash [0-9a-f]{16}")
        needed = self.run_in(["readelf", "-d", source / "build" / "read"], True)
        self.assertIn("libstdc++", needed)
        for name in ("dnnl", "gomp", "libomp", "pcre2", "sentencepiece"):
            self.assertNotIn(name, needed)

    def test_components(self):
        project = "cmake_minimum_required(VERSION 3.25)\nproject(engine CXX)\nfind_package(ropewalk {})\n"
        asked = [("REQUIRED COMPONENTS rotary capi", ""),
                 ("REQUIRED COMPONENTS rotary OPTIONAL_COMPONENTS linear", ""),
                 ("REQUIRED COMPONENTS rotary tokenizer", "its libraries need others that are not here: tokenizer (install pkg-config "
                  "libpcre2-dev, pkg-config libutf8proc-dev, pkg-config libsentencepiece-dev libprotobuf-dev)"),
                 ("REQUIRED COMPONENTS linear", "linear (install libdnnl-dev ocl-icd-opencl-dev)"),
                 ("REQUIRED COMPONENTS rotery", "there is no component rotery, but there are base, rotary, ")]
        for what, refused in asked:
            check = "if(NOT TARGET ropewalk::rotary OR TARGET ropewalk::linear OR TARGET ropewalk::tokenizer)\n" \
                    "message(FATAL_ERROR targets)\nendif()\n"
            with self.subTest(what):
                _, said = self.configure({"CMakeLists.txt": project.format(what) + check}, bare=True, fails=bool(refused))
                self.assertIn(refused, said)
                if refused:
                    self.assertIn("ropewalk_FOUND to FALSE", said)

    def compile(self, source, module, bare, *more):
        compiler = ["c++", "-std=c++20"] if source.suffix == ".cc" else ["cc"]
        flags = self.run_in(["pkg-config", "--cflags", "--libs", *more, module], bare).split()
        program = pathlib.Path(tempfile.mkdtemp(dir=self.work)) / "program"
        self.run_in([*compiler, source, "-o", program, *flags], bare)
        return self.run_in([program], bare), " ".join(flags)

    def test_pkg_config(self):
        for more in ((), ("--static",)):
            said, flags = self.compile(ROTATE_C, "ropewalk-capi", True, *more)
            self.assertIn("k[0] at 95904:  -0.29514", said)
            self.check_libraries(flags)
        app = self.work / "app.cc"
        app.write_text(README, encoding="utf-8")
        said, flags = self.compile(app, "ropewalk-rotary", True)
        self.assertIn("q[0] = -1.035110", said)
        self.check_libraries(flags)
        self.assertIn("q[0] = -1.035110", self.compile(app, "ropewalk", False)[0])
        said, _ = self.compile(ATTENTION_C, "ropewalk-capi_attention", False)
        self.assertIn("gradient of the slopes: 5.5557 and -6.1926", said)
        version = self.run_in(["pkg-config", "--modversion", "ropewalk"], False).strip()
        project = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
        self.assertEqual(version, re.search(r"VERSION (\d\S+) LANG", project)[1])
        self.assertIn("libpcre2", self.run_in(["pkg-config", "--libs", "ropewalk-tokenizer"], True, fails=True))


if __name__ == "__main__":
    unittest.main()
