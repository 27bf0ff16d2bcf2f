"""Every call of the C library that a sweep makes fails once in turn: never a crash, a torn results file or a silent loss.

    faults_test.py PROGRAM SOURCE_DIR FAULT_LIBRARY [--all] [unittest arguments]

FAULT_LIBRARY is fault.cc, preloaded. --all: of malloc every place that asks for memory, minutes of it; else a few dozen of them.
Whatever failed, the program ends with a message, or has done its work; the same command then goes on, and what it
finds is what an undisturbed sweep finds.
"""

import concurrent.futures
import errno
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOURCE, LIBRARY = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
ALL = "--all" in sys.argv
SAMPLE = 48  # places that ask for memory, without --all
# Libraries that end the process where they get no memory: oneDNN 2.6 (Debian 12) by SIGSEGV, GNU's OpenMP by exit code 1.
ENDED_BY = ("libdnnl", "libgomp")
CALLS = ("open", "read", "write", "fsync", "rename", "mmap", "ftruncate", "flock", "mkdir", "malloc", "shrink", "clock")
# What each may fail with; "short" writes half.
REASONS = {
    "open": (errno.EACCES, errno.EMFILE),
    "read": (errno.EIO, errno.EINTR),
    "write": (errno.ENOSPC, errno.EIO, "short"),
    "fsync": (errno.EIO, errno.ENOSPC),
    "rename": (errno.EACCES,),
    "mmap": (errno.ENOMEM,),
    "ftruncate": (errno.EIO,),
    "flock": (errno.ENOLCK,),
    "mkdir": (errno.EACCES, errno.ENOSPC),
    "shrink": (0,),
    "clock": (0,),
}
ARGUMENTS = "--lengths 32,64 --methods none,yarn --trained 32 --anchors 2 --threads 1 --protocol aligned:8".split()


def sweep(folder, fault=None, counts=None, sites=False, out="out", **more):
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "LD_PRELOAD": LIBRARY}
    if fault:
        environment["ROPEWALK_FAULT"] = fault
    if counts:
        environment["ROPEWALK_FAULT_COUNTS"] = str(counts)
    if sites:
        environment["ROPEWALK_FAULT_SITES"] = "1"
    command = [PROGRAM, "sweep", "model", "--ids", "ids.json", *ARGUMENTS, "-o", out]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL, **more)


def rows(folder):
    """Header and rows without what differs between runs. Every line is whole."""
    text = (folder / "results.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        line.pop("seconds", None)
    return lines


def prepare():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ropewalk-faults-"))
    (folder / "model").mkdir()
    source = SOURCE / "tests/golden/hf_models/llama"
    shutil.copy(source / "model.safetensors", folder / "model")
    shutil.copy(source / "default.json", folder / "model/config.json")
    (folder / "ids.json").write_text(json.dumps([7 * i % 59 + 3 for i in range(600)]))
    return folder


class Faults(unittest.TestCase):
    destroying = []  # faults after which the process ended without a message of its own

    @classmethod
    def setUpClass(cls):
        cls.folder = prepare()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        counts = cls.folder / "counts"
        done = sweep(cls.folder, counts=counts, sites=True)
        assert done.returncode == 0, done.stderr
        cls.expected = rows(cls.folder / "out")
        cls.report = (cls.folder / "out/report.html").stat().st_size
        numbers = struct.unpack(f"<{len(CALLS) + 1}q", counts.read_bytes()[: 8 * (len(CALLS) + 1)])
        cls.counts = dict(zip(CALLS, numbers))
        first = counts.read_bytes()[8 * (len(CALLS) + 1) + 256 :][: 8 * numbers[-1]]
        cls.sites = struct.unpack(f"<{numbers[-1]}q", first)

    def problem(self, fault):
        """What is wrong with the sweep in which `fault` happened, or with the one that goes on; "": nothing."""
        call = fault.split(":")[0]
        folder = prepare()
        try:
            broken = sweep(folder, fault, folder / "counts")
            asking = (folder / "counts").read_bytes()[8 * (len(CALLS) + 1) :][:256].rstrip(b"\0").decode()
            errors = [line for line in broken.stderr.splitlines() if line.startswith("ropewalk: error: ")]
            out = folder / "out"
            below = any(name in asking for name in ENDED_BY)
            # The destructor of nlohmann_json's values asks for memory, and may not throw.
            destroying = call == "malloc" and broken.returncode == -signal.SIGABRT and "std::bad_alloc" in broken.stderr
            if destroying:
                self.destroying.append(fault)
            if broken.returncode not in (0, 1) and not below and not destroying:
                return f"{fault} ({asking}): exit code {broken.returncode}: {broken.stderr[-500:]}"
            if broken.returncode == 1 and not errors and not below:
                return f"{fault} ({asking}): it fails and does not say why: {broken.stderr[-500:]}"
            if broken.returncode == 0 and (rows(out) != self.expected or not (out / "report.html").stat().st_size):
                return f"{fault}: it ends well without all its rows"
            if call == "shrink":  # the model is gone
                return "" if broken.returncode == 1 else f"{fault}: the file was cut, and nothing was said"
            if list(out.glob("*.part")):
                return f"{fault}: {list(out.glob('*.part'))} stays"
            again = sweep(folder)
            if again.returncode != 0:
                return f"{fault}: the same command does not go on: {again.stderr[-500:]}"
            if rows(out) != self.expected or not (out / "report.html").read_text().rstrip().endswith("</html>"):
                return f"{fault}: what goes on does not find what an undisturbed sweep finds"
            return ""
        finally:
            shutil.rmtree(folder)

    def check(self, faults):
        self.assertGreater(len(faults), 0)
        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            problems = [text for text in pool.map(self.problem, faults) if text]
        self.assertEqual(problems, [], f"{len(problems)} of {len(faults)}")

    def test_every_call_on_files(self):
        self.assertGreater(self.counts["write"], 8)
        self.assertGreater(self.counts["fsync"], 8)
        self.check([f"{call}:{n}:{reason}" for call in CALLS if call in REASONS and call not in ("shrink", "clock")
                    for n in range(1, self.counts[call] + 1) for reason in REASONS[call]])

    def test_memory(self):
        self.assertGreater(len(self.sites), 1000)
        step = 1 if ALL else max(1, len(self.sites) // SAMPLE)
        self.check([f"malloc:{n}:{errno.ENOMEM}" for n in self.sites[::step]])
        self.assertLess(len(self.destroying), 3 + 0.03 * len(self.sites[::step]))

    def test_a_file_is_cut_while_it_is_mapped(self):
        self.assertGreater(self.counts["shrink"], 0)
        self.check([f"shrink:{n}:0" for n in range(1, self.counts["shrink"] + 1)])

    def test_the_clock_is_set_back(self):
        self.assertGreater(self.counts["clock"], 8)
        step = 1 if ALL else self.counts["clock"] // 8
        self.check([f"clock:{n}:0" for n in range(1, self.counts["clock"] + 1, step)])


class Limits(unittest.TestCase):
    """The machine's own limits, without the library's faults."""

    def setUp(self):
        self.folder = prepare()
        self.addCleanup(shutil.rmtree, self.folder)

    def says(self, result, text):
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn(text, result.stderr.splitlines()[-1])

    def test_no_memory(self):
        codes = set()
        for megabytes in range(60, 240, 12):
            limit = megabytes << 20
            out = f"out-{megabytes}"
            done = sweep(self.folder, out=out,
                         preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
            codes.add(done.returncode)
            # 127: the loader itself found no room. SIGSEGV: oneDNN's code generator found none.
            self.assertIn(done.returncode, (0, 1, 127, -signal.SIGSEGV), f"{megabytes} MB: {done.stderr[-500:]}")
            self.assertTrue(done.returncode <= 0 or done.stderr.strip(), megabytes)
            again = sweep(self.folder, out=out)
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(rows(self.folder / out)[1:], rows(self.folder / "out-60")[1:], megabytes)
        self.assertIn(0, codes)
        self.assertGreater(len(codes), 1)

    def test_a_full_disk(self):
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", self.folder / "model"],
                                               capture_output=True).returncode != 0:
            self.skipTest("mounting a small disk needs root; a full disk is measured by write:N:ENOSPC alone")
        subprocess.run(["umount", self.folder / "model"], check=True)
        disk = self.folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", disk], check=True)
        try:
            self.says(sweep(self.folder, out="disk/out"), "No space left on device")
            self.assertGreater(len(rows(disk / "out")), 0)
            subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
            done = sweep(self.folder, out="disk/out")
            self.assertEqual(done.returncode, 0, done.stderr)
            sweep(self.folder)
            self.assertEqual(rows(disk / "out")[1:], rows(self.folder / "out")[1:])
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
            self.says(sweep(self.folder, out="disk/other"), "Read-only file system")
        finally:
            subprocess.run(["umount", disk], check=True)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *(a for a in sys.argv[4:] if a != "--all")])
