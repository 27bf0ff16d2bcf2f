"""Logits of ropewalk for many (file, ids, offset) at once, by tests/parity/logits_dump."""

import json
import pathlib
import subprocess

import numpy as np


class Ours:
    def __init__(self, build, folder):
        self.build, self.folder = pathlib.Path(build), pathlib.Path(folder)
        self.jobs, self.shapes = [], []

    def ask(self, model, ids, offset=0, length=None, chunk=None):
        """A number under which run() has the answer. Angles are exact: what is right, not what float32
        makes of it. `length` is what LongRoPE goes by."""
        self.jobs.append(dict(model=str(model), ids=list(ids), offset=offset, chunk=chunk or len(ids),
                              final_length=length or offset + len(ids), angles="exact",
                              out=str(self.folder / f"ours-{len(self.jobs)}.f32")))
        return len(self.jobs) - 1

    def run(self):
        path = self.folder / "jobs.json"
        path.write_text(json.dumps(self.jobs))
        subprocess.run([self.build / "tests/model/logits_dump", path], check=True)
        return [np.fromfile(job["out"], np.float32).reshape(len(job["ids"]), -1) for job in self.jobs]

    def program(self, *arguments):
        """(exit code, stdout, stderr) of the program."""
        result = subprocess.run([self.build / "ropewalk", *map(str, arguments)], capture_output=True,
                                text=True, stdin=subprocess.DEVNULL)
        return result.returncode, result.stdout, result.stderr


def relative(got, wanted):
    """Largest difference over the largest logit; NaN anywhere gives NaN."""
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())
