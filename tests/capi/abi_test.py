#!/usr/bin/env python3
"""The C interface as programs have it that were linked against libropewalk.so of 0.1: no function, argument or field that
abi-0.1.xml has is gone or another, and every symbol has its version. The file is abidw's, of the last commit that called
itself 0.1.0. What is added is no break: functions, and fields at the end of a struct.

usage: abi_test.py ABI_LIBRARY SHARED_LIBRARY       ABI_LIBRARY: the C functions with debugging information
       abi_test.py --write ABI_LIBRARY FILE         at a release: what the next one is compared with (docs/releasing.md)
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ET

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = ROOT / "tests" / "capi"
HEADERS = [ROOT / "include" / "ropewalk" / name for name in ("ropewalk.h", "ropewalk_attention.h")]
VERSIONS = ROOT / "src" / "capi_shared" / "ropewalk.map"
ABI_LIBRARY, SHARED = "", ""


def run(command):
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return result.returncode, result.stdout + result.stderr


def public_headers(folder):
    """A folder with the headers in C alone: types of C++ that they do not name are no part of the interface."""
    for header in HEADERS:
        shutil.copy(header, folder)
    return folder


def write(library, path):
    with tempfile.TemporaryDirectory() as folder:
        code, said = run(["abidw", "--headers-dir", public_headers(folder), "--drop-private-types", "--exported-interfaces-only",
                          "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--no-architecture", "--no-elf-needed",
                          "--out-file", path, library])
    if code:
        sys.exit(said)


def structs(tree):
    return {s.get("name"): s for s in tree.getroot().iter("class-decl") if s.get("size-in-bits")}


def without_growth(today, older):
    """Fields behind the end of the older struct leave: its size tells the library which header the caller has (ropewalk.h).
    abidiff's own suppression of what is added at an end forgives fields that moved as well (2.2)."""
    tree = ET.parse(today)
    sizes = {name: int(s.get("size-in-bits")) for name, s in structs(ET.parse(older)).items()}
    for name, struct in structs(tree).items():
        if not name.startswith("ropewalk_") or int(struct.get("size-in-bits")) <= sizes.get(name, 1 << 30):
            continue
        for member in struct.findall("data-member"):
            if int(member.get("layout-offset-in-bits")) >= sizes[name]:
                struct.remove(member)
        struct.set("size-in-bits", str(sizes[name]))
    tree.write(today)


class Abi(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def compare(self, older):
        write(ABI_LIBRARY, self.work / "today.xml")
        without_growth(self.work / "today.xml", older)
        return run(["abidiff", "--no-added-syms", older, self.work / "today.xml"])

    def changed(self, change):
        """What is said of an older interface that `change` makes of today's."""
        write(ABI_LIBRARY, self.work / "today.xml")
        tree = ET.parse(self.work / "today.xml")
        change(tree)
        tree.write(self.work / "older.xml")
        return self.compare(self.work / "older.xml")

    def test_nothing_of_an_older_interface_is_gone(self):
        published = sorted(HERE.glob("abi-*.xml"))
        self.assertTrue(published)
        for older in published:
            with self.subTest(older.name):
                self.assertEqual(self.compare(older)[0], 0, self.compare(older)[1])

    def test_breaks_are_found(self):
        def field(tree, name, index):
            return structs(tree)[name], structs(tree)[name].findall("data-member")[index]

        def function_gone(tree):
            for node in [*tree.iter("elf-symbol"), *tree.iter("function-decl")]:
                for key in ("name", "mangled-name", "elf-symbol-id"):
                    if node.get(key):
                        node.set(key, node.get(key).replace("ropewalk_last_error", "ropewalk_latest_error"))

        def other_argument(tree):
            function = next(f for f in tree.iter("function-decl") if f.get("name") == "ropewalk_frequencies_create")
            number = next(f for f in tree.iter("type-decl") if f.get("name") == "double")
            function.findall("parameter")[1].set("type-id", number.get("id"))

        def field_moved(tree):
            _, first = field(tree, "ropewalk_spec", 1)
            _, second = field(tree, "ropewalk_spec", 2)
            a, b = first.get("layout-offset-in-bits"), second.get("layout-offset-in-bits")
            first.set("layout-offset-in-bits", b)
            second.set("layout-offset-in-bits", a)

        def field_gone(tree):
            struct, last = field(tree, "ropewalk_spec", -1)
            more = ET.fromstring(ET.tostring(last))
            more.set("layout-offset-in-bits", struct.get("size-in-bits"))
            more.find("var-decl").set("name", "of_old")
            struct.append(more)
            struct.set("size-in-bits", str(int(struct.get("size-in-bits")) + 64))

        for change, word in ((function_gone, "ropewalk_latest_error"), (other_argument, "double"),
                             (field_moved, "offset changed"), (field_gone, "of_old")):
            with self.subTest(change.__name__):
                code, said = self.changed(change)
                self.assertNotEqual(code, 0)
                self.assertIn(word, said)

    def test_growth_is_no_break(self):
        def grown(tree):
            struct = structs(tree)["ropewalk_spec"]
            last = struct.findall("data-member")[-1]
            struct.set("size-in-bits", last.get("layout-offset-in-bits"))
            struct.remove(last)

        def function_more(tree):
            for parent in [*tree.iter("elf-function-symbols"), *tree.iter("abi-instr")]:
                for node in list(parent):
                    if node.get("name") == "ropewalk_last_error":
                        parent.remove(node)

        for change in (grown, function_more):
            with self.subTest(change.__name__):
                code, said = self.changed(change)
                self.assertEqual(code, 0, said)

    def test_symbols(self):
        """Every function of the headers, and nothing else, under the version whose list has it or else the newest."""
        declared = set()
        for header in HEADERS:
            text = re.sub(r"/\*.*?\*/|static inline.*?\n}", "", header.read_text(encoding="utf-8"), flags=re.S)
            declared |= set(re.findall(r"\b(ropewalk_\w+)\(", text))
        map_text = re.sub(r"/\*.*?\*/", "", VERSIONS.read_text(encoding="utf-8"), flags=re.S)
        listed, newest = {}, ""
        for newest, body in re.findall(r"(ROPEWALK_[\d.]+) \{(.*?)\}", map_text, re.S):
            listed |= {name: newest for name in re.findall(r"\b(ropewalk_\w+);", body)}
        self.assertLessEqual(set(listed), declared)
        code, said = run(["nm", "--dynamic", "--defined-only", "--with-symbol-versions", SHARED])
        self.assertEqual(code, 0, said)
        exported = dict(re.findall(r" T (\w+)@@(\S+)", said))
        self.assertEqual(exported, {name: listed.get(name, newest) for name in declared})
        self.assertRegex(run(["readelf", "--dynamic", SHARED])[1], r"SONAME.*\[libropewalk\.so\.0\]")


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        write(sys.argv[2], sys.argv[3])
    else:
        ABI_LIBRARY, SHARED = sys.argv.pop(1), sys.argv.pop(1)
        unittest.main()
