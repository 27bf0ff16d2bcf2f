"""The program among other processes: where it writes to, and how many threads it starts."""

import json
import os
import pathlib
import resource
import signal
import subprocess
import time
import unittest

import support
from support import MODEL, PROGRAM, run

CORES = len(os.sched_getaffinity(0))


def without(*descriptors):
    """A preexec_fn: the shell's `2>&-`."""
    return lambda: [os.close(fd) for fd in descriptors]


def broken_pipe():
    read, write = os.pipe()
    os.close(read)
    return write


def outcome(*arguments, **more):
    """Exit code and stdout with the given stderr, or the other way round."""
    more.setdefault("stdin", subprocess.DEVNULL)
    more.setdefault("stdout", subprocess.PIPE)
    # As a shell starts it: Python ignores SIGPIPE, and a child would inherit that.
    return subprocess.run([PROGRAM, *map(str, arguments)], timeout=300, restore_signals=True, **more)


class Stderr(support.CliCase):
    """What cannot be written to stderr is dropped."""

    def sweep(self, out):
        return ["sweep", MODEL, "--text", self.text, "--methods", "none,linear", "--lengths", "256,512", "--anchors", 2,
                "--tasks", "perplexity", "-o", self.folder / out]

    def rows(self, out):
        _, *rows = [json.loads(line) for line in (self.folder / out / "results.jsonl").read_text().splitlines()]
        return [(row["method"], row["length"], row["plan_hash"], row["perplexity"]) for row in rows]

    def everywhere(self, *arguments):
        """The outcome, which is the same wherever stderr goes."""
        expected = outcome(*arguments, stderr=subprocess.DEVNULL)
        full = open("/dev/full", "wb")
        pipe = broken_pipe()
        self.addCleanup(full.close)
        self.addCleanup(os.close, pipe)
        for name, more in (("closed", {"preexec_fn": without(2)}), ("full", {"stderr": full}),
                           ("all closed but stdout", {"preexec_fn": without(0, 2)}), ("pipe", {"stderr": pipe})):
            result = outcome(*arguments, **more)
            self.assertEqual((result.returncode, result.stdout), (expected.returncode, expected.stdout), name)
        return expected.returncode

    def test_errors_keep_their_exit_code(self):
        self.assertEqual(self.everywhere("inspect", "nope"), 1)
        self.assertEqual(self.everywhere("nonsense"), 2)
        self.assertEqual(self.everywhere("sweep", MODEL), 2)
        self.assertEqual(self.everywhere("report", self.folder / "nothing"), 1)
        self.assertEqual(self.everywhere("convert", MODEL, "-o", "/dev/null/x.gguf"), 1)

    def test_results_do_not_depend_on_it(self):
        page = self.folder / "page.html"
        self.assertEqual(self.everywhere("inspect", MODEL, "--html", "-o", page), 0)
        self.assertTrue(page.read_bytes().startswith(b"<!"), "a message was written into a result")
        self.assertEqual(self.everywhere("tokenize", MODEL, "--text", self.text), 0)
        self.assertEqual(self.everywhere("generate", MODEL, "--prompt", "And", "--max-tokens", 4), 0)

    def test_sweeps_finish(self):
        self.works(*self.sweep("plain"))
        expected = self.rows("plain")
        self.assertGreaterEqual(len(expected), 4)
        log = self.folder / "log"
        with open("/dev/full", "wb") as full, open(log, "wb") as limited:
            # A log at its limit; results are far below it.
            limited.truncate(1 << 20)
            limited.seek(0, os.SEEK_END)
            pipe = broken_pipe()
            self.addCleanup(os.close, pipe)
            for name, more in (
                    ("closed", {"preexec_fn": without(2)}), ("none", {"preexec_fn": without(0, 2)}),
                    ("full", {"stderr": full}), ("pipe", {"stderr": pipe}),
                    ("limit", {"stderr": limited,
                               "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))})):
                result = outcome(*self.sweep(name), **more)
                self.assertEqual(result.returncode, 0, name)
                self.assertIn(b"Report: ", result.stdout)
                self.assertEqual(self.rows(name), expected, name)
                self.assertTrue((self.folder / name / "report.html").is_file())
        self.assertEqual(log.stat().st_size, 1 << 20)

    # Messages and results in one pipe, whose reader goes away.
    def test_a_reader_that_leaves_ends_no_sweep(self):
        pipe = broken_pipe()
        self.addCleanup(os.close, pipe)
        result = outcome(*self.sweep("left"), stdout=pipe, stderr=pipe)
        self.assertEqual(result.returncode, 1)
        self.works(*self.sweep("plain"))
        self.assertEqual(self.rows("left"), self.rows("plain"))


class Stdout(support.CliCase):
    """A result that did not reach its reader is an error, said once."""

    def everywhere(self, *arguments):
        pipe = broken_pipe()
        self.addCleanup(os.close, pipe)
        with open("/dev/full", "wb") as full:
            for name, more in (("closed", {"preexec_fn": without(1)}), ("full", {"stdout": full}),
                               ("no stdin either", {"preexec_fn": without(0, 1)}), ("pipe", {"stdout": pipe})):
                result = outcome(*arguments, stderr=subprocess.PIPE, **more)
                self.assertEqual(result.returncode, 1, (arguments, name))
                errors = [line for line in result.stderr.splitlines() if line.startswith(b"ropewalk: error: ")]
                self.assertEqual(errors, [b"ropewalk: error: cannot write to stdout"], (arguments, name))

    def test_every_command(self):
        ids = self.folder / "ids.json"
        ids.write_text("[5, 6, 7]")
        cell = ["--length", 128, "--method", "none"]
        self.everywhere("--help")
        self.everywhere("--version")
        self.everywhere("info")
        self.everywhere("info", "--json")
        self.everywhere("inspect", MODEL)
        self.everywhere("inspect", "--diff", MODEL, MODEL)
        self.everywhere("perplexity", MODEL, "--text", self.text, *cell, "--anchors", 1)
        self.everywhere("passkey", MODEL, *cell, "--passkey-trials", 1)
        self.everywhere("generate", MODEL, "--prompt", "And", "--max-tokens", 3)
        self.everywhere("tokenize", MODEL, "--text", self.text)
        self.everywhere("tokenize", MODEL, "--ids", ids, "--decode")
        self.everywhere("sweep", MODEL, "--text", self.text, "--lengths", "256", "--dry-run")
        self.works("sweep", MODEL, "--text", self.text, "--methods", "none", "--lengths", "256", "--anchors", 1,
                   "--tasks", "perplexity", "-o", self.folder / "swept")
        self.everywhere("report", self.folder / "swept")
        self.everywhere("report", self.folder / "swept", "--csv")

    def test_commands_that_write_models(self):
        for number, more in enumerate(({"preexec_fn": without(1)}, {"preexec_fn": without(0, 1, 2)})):
            out = self.folder / f"{number}.gguf"
            result = outcome("convert", MODEL, "-o", out, stderr=subprocess.PIPE, **more)
            self.assertEqual(result.returncode, 1)
            # Proven, and nothing that was meant for stdout or stderr went into it.
            self.works("inspect", out)


class Stdin(support.CliCase):
    def test_what_cannot_be_read_is_no_empty_text(self):
        says = "standard input cannot be read"
        self.fails(1, "tokenize", MODEL, "--text", "-", says=says, preexec_fn=without(0))
        self.fails(1, "tokenize", MODEL, "--decode", says=says, preexec_fn=without(0))
        self.assertEqual(self.json("tokenize", MODEL, "--text", "-"), [])


class Threads(support.CliCase):
    def test_more_threads_than_cores_are_refused(self):
        cores = f"the program may use {CORES} core" + ("s" if CORES > 1 else "")
        self.assertEqual(
            self.fails(2, "info", "--threads", CORES + 1),
            f"ropewalk: error: --threads: {cores}, got {CORES + 1}; more threads than cores are slower, "
            "--oversubscribe allows them")
        self.fails(2, "info", "--threads", 4096, says=cores)
        self.fails(2, "generate", MODEL, "--prompt", "And", "--threads", 4096, says="--oversubscribe")
        self.fails(2, "info", "--threads", 4097, "--oversubscribe", says="--threads")
        for threads in {1, CORES}:
            self.assertEqual(self.json("info", "--json", "--threads", threads)["threads"], threads)
        info = self.json("info", "--json", "--threads", CORES + 1, "--oversubscribe")
        self.assertEqual((info["threads"], info["cores"]), (CORES + 1, CORES))

    def test_the_affinity_of_the_process_counts(self):
        one = {"preexec_fn": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})}
        self.fails(2, "info", "--threads", 2, says="the program may use 1 core, got 2", **one)
        self.assertEqual(self.json("info", "--json", **one)["threads"], 1)

    def env(self, threads):
        return {"env": {**os.environ, "OMP_NUM_THREADS": str(threads)}}

    def test_the_environment_is_cut_to_the_cores(self):
        text = ["perplexity", MODEL, "--text", self.text, "--length", 256, "--method", "none", "--anchors", 2, "--json"]
        result = run(*text, **self.env(100000))
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        self.assertEqual(json.loads(result.stdout)["threads"], CORES)
        said = [line for line in result.stderr.decode().splitlines() if "OMP_NUM_THREADS" in line]
        may = f"the program may use {CORES} core" + ("s" if CORES > 1 else "")
        self.assertEqual(said, [f"ropewalk: OMP_NUM_THREADS asks for 100000 threads and {may}: it uses {CORES} "
                                "(more with --oversubscribe)"])
        expected = self.json(*text, "--threads", CORES)
        self.assertEqual(json.loads(result.stdout)["perplexity"], expected["perplexity"])
        # Commands that compute without a word on threads do not start them either.
        self.works("inspect", MODEL, **self.env(100000))
        self.assertEqual(self.json("info", "--json", **self.env(1))["threads"], 1)
        self.assertEqual(self.json("info", "--json", "--oversubscribe", **self.env(CORES + 2))["threads"], CORES + 2)
        self.assertEqual(self.json("info", "--json", "--threads", 1, **self.env(100000))["threads"], 1)

    # What really runs: the kernel counts.
    def test_no_more_threads_run(self):
        for more in (self.env(100000), self.env(1)):
            wanted = int(more["env"]["OMP_NUM_THREADS"])
            process = subprocess.Popen([PROGRAM, "perplexity", MODEL, "--text", self.text, "--length", "2048", "--method",
                                        "none", "--protocol", "windows"], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
            most = 0
            tasks = pathlib.Path(f"/proc/{process.pid}/task")
            while process.poll() is None:
                try:
                    most = max(most, len(list(tasks.iterdir())))
                except OSError:
                    break
            self.assertEqual(process.wait(), 0)
            # A lane per core beside OpenMP's pool, which then sleeps.
            self.assertLessEqual(most, 1 if wanted == 1 else 2 * CORES)

    # What the program is started with again, so that barriers do not spin for long.
    def test_threads_do_not_spin_for_long(self):
        variables = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
        for given in ({}, {"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "77"}):
            env = {**{k: v for k, v in os.environ.items() if k not in variables}, **given}
            # It takes seconds.
            process = subprocess.Popen([PROGRAM, "perplexity", MODEL, "--text", self.text, "--length", "2048", "--method",
                                        "none", "--protocol", "windows"], env=env, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            proc = pathlib.Path(f"/proc/{process.pid}")
            seen, until = None, time.monotonic() + 60
            while seen != (given or {"GOMP_SPINCOUNT": "10000"}) and time.monotonic() < until:
                lines = (proc / "environ").read_bytes().decode().split("\0")
                seen = {k: v for k, _, v in (line.partition("=") for line in lines) if k in variables}
            self.assertEqual(seen, given or {"GOMP_SPINCOUNT": "10000"})
            # The interpreter's where it is the program of the Python package.
            self.assertRegex((proc / "comm").read_text(), r"^(ropewalk|python[\d.]*)\n$")


if __name__ == "__main__":
    support.main()
