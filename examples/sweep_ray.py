#!/usr/bin/env python3
"""One sweep by the workers of a Ray cluster, which share the folder OUT (an absolute path that all of them reach).

usage: sweep_ray.py MODEL TEXT OUT [WORKERS]      needs ropewalk and ray
"""

import sys
from pathlib import Path

import ray

import ropewalk as rw


@ray.remote(num_cpus=1, max_retries=3)  # a worker that dies is started again; what it had begun is taken over
def work(shard, model, text, out):
    # The same number of threads everywhere: it is among what decides the last bits of a row.
    return len(rw.sweep(model, text=Path(text), output=out, shard=shard, threads=1, progress=False).rows)


if __name__ == "__main__":
    model, text, out = (str(Path(path).absolute()) for path in sys.argv[1:4])
    workers = int(sys.argv[4]) if len(sys.argv) > 4 else 4
    ray.init()
    ray.get([work.remote(f"{i + 1}/{workers}", model, text, out) for i in range(workers)])
    print(rw.Sweep(out))
