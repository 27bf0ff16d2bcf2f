#!/usr/bin/env python3
"""The tarball and the Debian package of a build (scripts/package.sh): the same bytes twice, whole, and without a trace of this
machine.

usage: package_test.py BUILD_DIR
"""

import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
EPOCH = 1700000000
VERSION = re.search(r"project\(ropewalk VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
NEEDED = ("bin/ropewalk", "include/ropewalk/ropewalk.h", "lib/libropewalk.so", "lib/libropewalk.so.0", "lib/libropewalk_rotary.a",
          "lib/cmake/ropewalk/ropewalkConfig.cmake", "lib/pkgconfig/ropewalk-capi_shared.pc",
          "share/bash-completion/completions/ropewalk", "share/zsh/site-functions/_ropewalk",
          "share/fish/vendor_completions.d/ropewalk.fish", "share/man/man1/ropewalk.1.gz", "share/man/man1/ropewalk-sweep.1.gz",
          "share/ropewalk/models/model.safetensors", "share/ropewalk/models/tokenizer.json", "share/doc/ropewalk/copyright")


def run(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600, **more).stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.work = pathlib.Path(folder.name)
        for name, umask, zone in (("first", 0o022, "UTC"), ("second", 0o077, "Asia/Kathmandu")):
            environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), "PACK_LEVEL": "1", "TZ": zone}
            run(ROOT / "scripts" / "package.sh", BUILD, cls.work / name, env=environment, umask=umask)
        cls.files = {p.suffix: p for p in (cls.work / "first").iterdir()}

    def test_same_bytes_twice(self):
        names = sorted(p.name for p in self.files.values())
        self.assertEqual(names[0], f"ropewalk-{VERSION}-linux-{os.uname().machine}.tar.gz")
        self.assertEqual(names, sorted(p.name for p in (self.work / "second").iterdir()))
        for name in names:
            self.assertEqual((self.work / "first" / name).read_bytes(), (self.work / "second" / name).read_bytes(), name)

    def test_tarball(self):
        top = self.files[".gz"].name.removesuffix(".tar.gz")
        self.assertEqual(self.files[".gz"].read_bytes()[4:8], bytes(4))  # gzip's time
        machine = {str(path).encode() for path in (ROOT, BUILD, pathlib.Path.home()) if len(path.parts) > 2}
        with tarfile.open(self.files[".gz"]) as tar:
            members = tar.getmembers()
            names = [m.name for m in members]
            for name in NEEDED:
                self.assertIn(f"{top}/{name}", names)
            for member in members:
                self.assertEqual((member.uid, member.gid, member.mtime), (0, 0, EPOCH), member.name)
                self.assertEqual(member.mode & 0o022, 0 if not member.issym() else 0o022, member.name)
                content = tar.extractfile(member).read() if member.isfile() else b""
                content = gzip.decompress(content) if member.name.endswith(".gz") else content
                for path in machine:
                    self.assertNotIn(path, content, member.name)
        run("tar", "-xzf", self.files[".gz"], "-C", self.work)
        self.assertEqual(names, sorted(names, key=lambda name: name.split("/")))
        self.assertEqual(run(self.work / top / "bin" / "ropewalk", "--version"), f"ropewalk {VERSION}\n")

    @unittest.skipUnless(shutil.which("dpkg-deb"), "no Debian system")
    def test_debian_package(self):
        deb = self.files[".deb"]
        self.assertEqual(run("dpkg-deb", "--field", deb, "Package", "Version"), f"Package: ropewalk\nVersion: {VERSION}\n")
        depends = run("dpkg-deb", "--field", deb, "Depends")
        for library in ("libc6 ", "libstdc++6 ", "libdnnl", "libsentencepiece"):
            self.assertIn(library, depends)
        self.assertNotIn("-dev", depends)
        run("dpkg-deb", "--raw-extract", deb, self.work / "tree")
        for name in NEEDED:
            self.assertTrue((self.work / "tree" / "usr" / name).exists(), name)
        run("md5sum", "--quiet", "--check", "DEBIAN/md5sums", cwd=self.work / "tree")
        listed = len((self.work / "tree" / "DEBIAN" / "md5sums").read_text().splitlines())
        there = [p for p in (self.work / "tree" / "usr").rglob("*") if p.is_file() and not p.is_symlink()]
        self.assertEqual(listed, len(there))
        self.assertEqual({line.split()[1] for line in run("dpkg-deb", "--contents", deb).splitlines()}, {"root/root"})
        self.assertEqual((self.work / "tree" / "DEBIAN" / "shlibs").read_text(),
                         f"libropewalk 0 ropewalk (>= {VERSION.rpartition('.')[0]})\n")


if __name__ == "__main__":
    unittest.main()
