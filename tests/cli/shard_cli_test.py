"""Sweeps by several processes in one folder: the rows, the report and the recommendation are those of one process."""

import json
import os
import random
import shlex
import subprocess
import time

import support
from support import MODEL, PROGRAM, make_text, run

CORES = len(os.sched_getaffinity(0))
SMALL = ["--methods", "none,linear,yarn", "--lengths", "128,256,512", "--anchors", 4, "--protocol", "aligned:64",
         "--passkey-trials", 2, "--threads", 1, "--budget", "none"]
# What a launcher of this test's own may have set.
CLEAN = {key: value for key, value in os.environ.items()
         if not key.startswith(("SLURM_", "OMPI_", "PMI_")) and key not in ("RANK", "WORLD_SIZE", "OMP_NUM_THREADS")}


class ShardCase(support.CliCase):
    def setUp(self):
        super().setUp()
        self.text.write_text(make_text(9000))

    def sweep(self, name, *more):
        return ["sweep", MODEL, "--text", self.text, "-o", self.folder / name, *more]

    def start(self, name, *more, **given):
        process = subprocess.Popen([PROGRAM, *map(str, self.sweep(name, *more))], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def rows(self, name):
        """Of all files, which say the same of one cell."""
        rows = {}
        for path in (self.folder / name).glob("results*.jsonl"):
            for row in map(json.loads, path.read_text().splitlines()[1:]):
                row.pop("seconds")
                row.pop("place", None)
                self.assertEqual(rows.setdefault(row["identity"], row), row)
        return rows

    def report(self, name):
        sweep, = self.json("report", self.folder / name, "--json")["sweeps"]
        sweep.pop("label")
        for what in sweep["cells"]:
            what.pop("seconds")
        sweep["header"].pop("command")
        return sweep

    def units(self, name):
        return [json.loads(line) for path in (self.folder / name).glob("units*.jsonl")
                for line in path.read_text().splitlines()]

    def header(self, name, file):
        return json.loads((self.folder / name / file).read_text().splitlines()[0])


class Sharded(ShardCase):
    def test_three_at_once_have_the_rows_of_one(self):
        self.works(*self.sweep("whole", *SMALL))
        processes = [self.start("out", *SMALL, "--shard", f"{i}/3") for i in (1, 2, 3)]
        out = [process.communicate(timeout=240) for process in processes]
        for process, (_, said) in zip(processes, out):
            self.assertEqual(process.returncode, 0, said.decode())
        self.assertEqual(self.rows("out"), self.rows("whole"))
        self.assertEqual(self.report("out"), self.report("whole"))
        # One prints for all.
        self.assertIn(b"Report: ", out[0][0])
        self.assertEqual([stdout for stdout, _ in out[1:]], [b"", b""])
        self.assertIn(b"shard 2/3 is done; report ", out[1][1])
        self.assertTrue((self.folder / "out/report.html").exists())
        self.assertEqual(sorted(p.name for p in (self.folder / "out").iterdir()),
                         ["report.html", *(f"results.{i}-of-3.jsonl" for i in (1, 2, 3)),
                          *(f"units.{i}-of-3.jsonl" for i in (1, 2, 3))])
        windows = [(unit["cell"], unit.get("window"), unit.get("index")) for unit in self.units("out")]
        self.assertEqual(len(windows), len(set(windows)))
        # Everybody reads them, and nothing is left to do.
        plan = self.json(*self.sweep("out", *SMALL), "--dry-run", "--json")
        self.assertEqual((plan["tokens"], {cell["finished"] for cell in plan["cells"]}), (0, {True}))
        before = len(self.units("out"))
        self.works(*self.sweep("out", *SMALL))
        self.assertEqual(len(self.units("out")), before)

    def test_killed_at_random(self):
        self.works(*self.sweep("whole", *SMALL))
        draw = random.Random(7)
        for attempt in range(2):
            name = f"out-{attempt}"
            running = {i: self.start(name, *SMALL, "--shard", f"{i}/3") for i in (1, 2, 3)}
            kills = 0
            while running:
                time.sleep(0.3 + draw.random())
                for i, process in list(running.items()):
                    if process.poll() is None:
                        continue
                    self.assertEqual(process.returncode, 0, process.stderr.read().decode())
                    del running[i]
                if running and kills < 5:
                    i = draw.choice(sorted(running))
                    running[i].kill()
                    running[i].wait()
                    kills += 1
                    # One of them does not come back.
                    if i == 3 and kills > 2:
                        del running[i]
                    else:
                        running[i] = self.start(name, *SMALL, "--shard", f"{i}/3")
            self.assertGreater(kills, 0)
            self.assertEqual(self.rows(name), self.rows("whole"))
            self.assertEqual(self.report(name)["recommendations"], self.report("whole")["recommendations"])

    def test_what_comes_before_the_sweep_is_done_once(self):
        more = ["--methods", "none,yarn", "--lengths", "256,512", "--anchors", 2, "--protocol", "aligned:64",
                "--tasks", "perplexity,key-tokens", "--search", "base", "--search-trials", 3, "--threads", 1,
                "--budget", "none"]
        self.works(*self.sweep("whole", *more))
        processes = [self.start("out", *more, "--shard", f"{i}/2") for i in (1, 2)]
        said = [process.communicate(timeout=240)[1].decode() for process in processes]
        for process, text in zip(processes, said):
            self.assertEqual(process.returncode, 0, text)
        self.assertEqual(sum("the key tokens are found first" in text for text in said), 1)
        trials = (self.folder / "out/search-base/results.jsonl").read_text().splitlines()
        self.assertEqual(len(trials), 4)
        self.assertEqual(self.rows("out"), self.rows("whole"))


class Numbers(ShardCase):
    def wrong(self, shard, says, **variables):
        self.fails(2, *self.sweep("out", *SMALL, "--shard", shard), says=says, env={**CLEAN, **variables})
        self.assertFalse((self.folder / "out").exists())

    def test_wrong_ones_are_refused(self):
        for shard in ("3/0", "17/16", "0/4"):
            self.wrong(shard, says=f"--shard: expected a number from 1 to the number of shards, such as 3/16, got {shard}")
        self.wrong("third", says="--shard: expected auto or a number of a count")
        self.wrong("auto", says="It looks at SLURM_ARRAY_TASK_ID, at OMPI_COMM_WORLD_RANK")
        self.wrong("auto", says="WORLD_SIZE is not", RANK="1")
        self.fails(2, "sweep", MODEL, "--text", "-", "--shard", "1/2", says="standard input reaches one process alone")

    def test_by_what_started_it(self):
        for name, variables in (("2-of-4", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}),
                                ("3-of-3", {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MIN": "1",
                                            "SLURM_ARRAY_TASK_MAX": "3", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"})):
            self.works(*self.sweep(name, "--methods", "none", "--lengths", 128, "--anchors", 1, "--tasks", "perplexity",
                                   "--shard", "auto"), env={**CLEAN, **variables})
            self.assertTrue((self.folder / name / f"results.{name}.jsonl").exists())

    def test_ranks_of_one_machine_share_its_cores(self):
        tiny = ["--methods", "none", "--lengths", 128, "--anchors", 1, "--tasks", "perplexity"]
        rank = {**CLEAN, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "64"}
        for local, more, threads in ((CORES, [], 1), (1, [], CORES), (CORES, ["--threads", CORES], CORES)):
            name = f"{local}-{len(more)}"
            self.works(*self.sweep(name, *tiny, *more, "--shard", "auto"),
                       env={**rank, "OMPI_COMM_WORLD_LOCAL_SIZE": str(local)})
            self.assertEqual(self.header(name, "results.1-of-64.jsonl")["threads"], threads)

    def test_other_options_are_refused_by_name(self):
        tiny = ["--methods", "none", "--lengths", 128, "--anchors", 1, "--tasks", "perplexity", "--threads", 1]
        self.works(*self.sweep("out", *tiny, "--shard", "1/2"))
        self.fails(1, *self.sweep("out", *tiny, "--seed", 9, "--shard", "2/2"),
                   says="results.1-of-2.jsonl holds results of another sweep (seed there 1, here 9)")
        if CORES > 1:
            self.fails(1, *self.sweep("out", *tiny[:-1], 2, "--shard", "2/2"), says="threads there 1, here 2")
        self.assertEqual(len(list((self.folder / "out").glob("results*"))), 1)


class Slurm(ShardCase):
    def test_the_script_is_the_sweep_as_an_array(self):
        folder = self.folder / "a b"
        folder.mkdir()
        command = [os.path.abspath(PROGRAM), "sweep", MODEL, "--text", str(self.text), *map(str, SMALL), "-o", "it's", "--slurm"]
        script = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True, timeout=240).stdout.decode()
        self.assertEqual(list(folder.iterdir()), [])
        subprocess.run(["bash", "-n"], input=script.encode(), check=True)
        lines = script.splitlines()
        self.assertEqual(lines[0], "#!/bin/bash")
        given = dict(line[len("#SBATCH --"):].partition("=")[::2] for line in lines if line.startswith("#SBATCH"))
        self.assertEqual((given["array"], given["cpus-per-task"], given["chdir"]), ("1-1", "1", str(folder)))
        self.assertEqual(given["requeue"], "")
        plan = self.json(*self.sweep("plan", *SMALL), "--dry-run", "--json")
        megabytes = int(given["mem"].removesuffix("M"))
        self.assertGreater(megabytes * 2**20, plan["memory_bytes"] + plan["mapped_bytes"])
        self.assertLess(megabytes, 1.3 * (plan["memory_bytes"] + plan["mapped_bytes"]) / 2**20 + 300)
        self.assertRegex(given["time"], r"^0-00:1\d:00$")
        words = shlex.split(lines[-1])
        self.assertEqual(words[0], "exec")
        for option in (["--shard", "auto"], ["--threads", "1"], ["--output", "it's"], ["--budget", "none"]):
            self.assertIn(option, [words[i:i + 2] for i in range(len(words))])
        self.assertNotIn("--slurm", words)
        # As SLURM would start the second of two tasks.
        array = {"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_MAX": "2"}
        subprocess.run(["bash"], input=script.replace(words[1], os.path.abspath(PROGRAM), 1).encode(), cwd=folder, env={**CLEAN, **array},
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=240)
        self.assertTrue((folder / "it's/results.2-of-2.jsonl").exists())

    def test_a_budget_is_its_time(self):
        script = self.works(*self.sweep("out", *SMALL[:-2], "--budget", "20h", "--slurm")).decode()
        self.assertIn("#SBATCH --time=0-22:10:00\n", script)
        self.assertIn("--budget 20h", script)

    def test_what_a_job_cannot_have_is_refused(self):
        self.fails(2, "sweep", MODEL, "--text", "-", "--slurm", says="a job has no standard input of yours")
        self.fails(2, *self.sweep("out", "--slurm", "--dry-run"), says="--dry-run")
        self.assertIn(b"--shard", run("sweep", "--help").stdout)


if __name__ == "__main__":
    support.main()
