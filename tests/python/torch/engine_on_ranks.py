"""What a rank of test_ranks.py does: a script that torchrun starts, with the same calls on every rank."""

import os
import pathlib
import sys

import numpy as np
import torch
import transformers
from ranks_cases import tell

import ropewalk as rw
from ropewalk._engine_ranks import ranks
from ropewalk.engine import GenerateRequest, ScoreRequest, TorchEngine

LENGTH = 512
METHODS = ["none", "yarn", "dynamic", "dual-chunk", "rerope+log-n", "sinks"]
SMALL = {"methods": "none,yarn,rerope", "lengths": [128, 512], "anchors": 2, "passkey_trials": 1, "progress": False}


def requests_of(ids):
    """Windows that run together, and sequences that share a prefix."""
    windows = [ScoreRequest(ids=ids[100 * i : 100 * i + LENGTH], positions=np.arange(1, LENGTH)) for i in range(2)]
    half = LENGTH // 2
    shared = [ScoreRequest(prefix=ids[:half], ids=ids[at : at + 40], positions=np.arange(half, half + 40)) for at in (700, 900)]
    return [*windows, *shared]


def plan_of(folder, method):
    return rw.plan(folder).with_method(method, None if method == "none" else 2.0, length=LENGTH)


def scores(engine, folder, ids, methods=METHODS):
    return {m: [row[0].tolist() for row in engine.score(plan_of(folder, m), requests_of(ids)).tokens] for m in methods}


def error_of(call):
    try:
        call()
    except rw.Error as error:
        return str(error)
    return ""


def engine(rank, folder, ids):
    one = TorchEngine(folder)
    facts = one.facts()
    tell("facts", rank, compute=facts.compute, threads=facts.threads, engine=facts.name)
    tell("scores", rank, **scores(one, folder, ids))
    plan = plan_of(folder, "none")
    made = one.generate(plan, [GenerateRequest(ids=ids[:50], max_tokens=5)])
    tell("generated", rank, ids=made[0][0].tolist())
    tell("hash", rank, hash=one.model_hash())
    # What rank 0 refuses, or ends in the middle, all refuse; and go on.
    tell("refused", rank, angles=error_of(lambda: one.score(plan, requests_of(ids), angles="exact")))

    def stop(tokens):
        raise rw.Error("that is enough")

    tell("stopped", rank, error=error_of(lambda: one.score(plan, requests_of(ids), tick=stop)))
    again = one.score(plan, requests_of(ids)).tokens[0][0].tolist()
    tell("again", rank, same=again == scores(one, folder, ids, ["none"])["none"][0], caches=len(one._steps.part.caches))
    heads = one.model.model.layers[0].self_attn.q_proj.weight
    tell("sharded", rank, whole=list(heads.shape), here=list(heads.to_local().shape))
    before = gloo_threads()
    ranks().close()
    tell("closed", rank, threads=[before, gloo_threads()])


def gloo_threads():
    return sum(path.read_text().startswith("pt_gloo") for path in pathlib.Path("/proc/self/task").glob("*/comm"))


def sweeps(rank, folder, text, output):
    sweep = rw.sweep(folder, text=pathlib.Path(text), engine="torch", output=output, **SMALL)
    sweep.report(pathlib.Path(output) / f"report-{rank}.html")
    tell("sweep", rank, rows=sweep.rows, text=str(sweep), folder=str(sweep.folder))
    wrong = error_of(lambda: rw.sweep(folder, text=pathlib.Path(text), engine="torch", **{**SMALL, "lengths": [3]}))
    tell("wrong", rank, error=wrong)
    alone = TorchEngine(folder, ranks=False)
    tell("alone", rank, compute=alone.facts().compute)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, tp_plan="auto")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ours = rw.sweep(model, text=pathlib.Path(text), tokenizer=tokenizer, **{**SMALL, "methods": "none"})
    tell("given", rank, rows=ours.rows)
    tell("refused sizes", rank, device=error_of(lambda: TorchEngine(folder, device="meta")))


def other_calls(rank, folder, ids):
    """Rank 1 asks something else than rank 0."""
    one = TorchEngine(folder)
    one.score(plan_of(folder, "none" if rank == 0 else "yarn"), requests_of(ids))


def failing(rank, folder, ids):
    """A rank cannot go on in the middle of a pass."""
    one = TorchEngine(folder)
    calls = []

    def fail(*_):
        calls.append(1)
        if rank == 1 and len(calls) == 5:
            raise RuntimeError("a layer of rank 1 gives up")

    one.model.model.layers[2].register_forward_pre_hook(fail)
    scores(one, folder, ids)


def families(rank, folder):
    """Tiny random models: those in `folder`, each dealt."""
    for path in sorted(pathlib.Path(folder).iterdir()):
        try:
            one = TorchEngine(path)
            ids = np.arange(3, 90, dtype=np.int32)
            plan = one.model_plan()
            rows = {}
            for method in ("none", "yarn", "rerope"):
                method_plan = plan.with_method(method, None if method == "none" else 2.0, length=200)
                found = one.score(method_plan, [ScoreRequest(ids=ids, positions=np.arange(1, 87))])
                rows[method] = found.tokens[0][0].tolist()
            tell(path.name, rank, **rows)
        except rw.Error as error:
            tell(path.name, rank, error=str(error))


def main():
    torch.set_num_threads(1)
    what, folder, *rest = sys.argv[1:]
    rank = int(os.environ["RANK"])
    if what in ("engine", "other_calls", "failing"):
        globals()[what](rank, folder, np.load(rest[0]))
    else:
        globals()[what](rank, folder, *rest)


if __name__ == "__main__":
    main()
