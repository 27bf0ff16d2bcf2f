"""The program over ranks: what mpirun starts as several processes is one program to its user."""

import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

import support
from support import MODEL, PROGRAM, SOURCE, run

MPIRUN = shutil.which("mpirun")
OPEN_MPI = MPIRUN and "Open MPI" in subprocess.run([MPIRUN, "--version"], capture_output=True, text=True).stdout
# Root, more ranks than cores, no pinning to one of them.
OPTIONS = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"] if OPEN_MPI else []


def command(ranks, *arguments):
    return [MPIRUN, *OPTIONS, "-n", str(ranks), PROGRAM, *map(str, arguments)]


def over(ranks, *arguments):
    return subprocess.run(command(ranks, *arguments), stdin=subprocess.DEVNULL, capture_output=True, timeout=500,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})


def ranks_of(launcher):
    """The processes of the program that a launcher started, by rank."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            variables = dict(pair.split("=", 1) for pair in (process / "environ").read_text().split("\0") if "=" in pair)
            parent = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
            grandparent = int(pathlib.Path(f"/proc/{parent}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, UnicodeDecodeError, ValueError):
            continue
        rank = variables.get("OMPI_COMM_WORLD_RANK", variables.get("PMI_RANK"))
        if rank is not None and launcher in (parent, grandparent):
            found[int(rank)] = int(process.name)
    return found


class Ranks(support.CliCase):
    def perplexity(self, *more):
        return ["perplexity", MODEL, "--text", self.text, "--length", 1000, "--method", "yarn", "--factor", 4,
                "--protocol", "aligned:400", "--anchors", 2, "--json", *more]

    def losses(self, ranks):
        rows = self.folder / f"rows-{ranks}.jsonl"
        arguments = self.perplexity("--per-token", rows)
        result = run(*arguments) if ranks == 1 else over(ranks, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        cell = json.loads(result.stdout)  # of one rank alone: more would be no JSON
        return cell, [json.loads(line)["nll"] for line in rows.read_text().splitlines()], result.stderr.decode()

    def test_losses_are_those_of_one_rank(self):
        one, alone, _ = self.losses(1)
        largest = max(alone)
        for ranks in (2, 4):
            cell, losses, said = self.losses(ranks)
            self.assertEqual(len(losses), 800)
            self.assertLess(max(abs(a - b) for a, b in zip(losses, alone)), 1e-5 * largest)
            self.assertEqual(said.count(f"over {ranks} ranks of MPI"), 1, said)
            self.assertEqual(cell["plan_hash"], one["plan_hash"])
            self.assertEqual(cell["threads"], ranks)
            self.assertAlmostEqual(cell["entropy"], one["entropy"], delta=1e-4)
            self.assertEqual(self.losses(ranks)[1], losses)  # bits

    def test_passkey(self):
        arguments = ["passkey", MODEL, "--length", 700, "--passkey-trials", 3, "--json"]
        alone, two = json.loads(run(*arguments).stdout), json.loads(over(2, *arguments).stdout)
        for one, other in zip(alone["tasks"], two["tasks"], strict=True):
            self.assertEqual(one["data_hash"], other["data_hash"])
            self.assertTrue(math.isclose(one["mean_nll"], other["mean_nll"], rel_tol=1e-5))

    def test_errors_are_said_once(self):
        for code, says, arguments in ((2, "this command runs in one process", ["info"]),
                                      (1, "too short", ["perplexity", MODEL, "--text", self.text, "--length", "1m"]),
                                      (1, "generated over ranks", ["ruler", MODEL, "--tasks", "niah_single_1", "--length",
                                                                   "600", "--samples", "1", "--generate"])):
            result = over(2, *arguments)
            said = result.stderr.decode()
            self.assertEqual(result.returncode, code, said)
            self.assertEqual(result.stdout, b"")
            self.assertEqual(said.count("ropewalk: error: "), 1, said)
            self.assertIn(says, said)

    def test_a_killed_rank_ends_the_job_and_the_sweep_resumes(self):
        out = self.folder / "sweep"
        arguments = ["sweep", MODEL, "--text", self.text, "--methods", "none,linear,yarn,ntk", "--lengths", "512,768,1000",
                     "--anchors", 4, "--tasks", "perplexity", "--no-race", "-o", out]
        job = subprocess.Popen(command(2, *arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
        rows = out / "results.jsonl"
        end = time.monotonic() + 300
        while time.monotonic() < end and job.poll() is None:
            if rows.exists() and len(rows.read_text().splitlines()) >= 3:
                break
            time.sleep(0.01)
        self.assertIsNone(job.poll(), "it was done before a rank could be killed")
        os.kill(ranks_of(job.pid)[1], signal.SIGKILL)
        _, said = job.communicate(timeout=120)
        self.assertNotEqual(job.returncode, 0)
        self.assertRegex(said.decode(), r"(?i)signal|killed|terminat")
        kept = rows.read_text().splitlines()
        self.assertGreaterEqual(len(kept), 3)
        again = over(2, *arguments)
        self.assertEqual(again.returncode, 0, again.stderr.decode())
        self.assertIn(b"already there", again.stderr)
        after = rows.read_text().splitlines()
        self.assertEqual([row for row in kept if row in after], kept)  # what was measured is not measured again
        alone = self.folder / "alone"
        self.assertEqual(run(*arguments[:-1], alone).returncode, 0)
        whole, expected = self.losses_of(after), self.losses_of((alone / "results.jsonl").read_text().splitlines())
        self.assertEqual(whole.keys(), expected.keys())
        for plan, loss in expected.items():
            self.assertAlmostEqual(whole[plan], loss, delta=1e-5)

    def losses_of(self, rows):
        return {(r["plan_hash"], r["length"]): r["mean_nll"] for r in map(json.loads, rows[1:])}


class NetworkNamespaces(unittest.TestCase):
    def test_a_slow_link(self):
        result = subprocess.run([SOURCE / "scripts/ranks_net_test.sh", PROGRAM], capture_output=True, text=True, timeout=500)
        if result.returncode == 77:
            self.skipTest(result.stdout.strip())
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    support.main()
