"""RotaryEmbedding's table where several threads outgrow it, and through copies."""

import copy
import io
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from ops_reference import random

import ropewalk as rw
import ropewalk.torch as rt
from ropewalk import nn


def test_rotary_embedding_of_many_threads():
    """Which outgrow the table at once: rows that follow one another whatever the order, and no call without its own."""
    rotation, q = rw.rotation(64, layout="half"), random(1, 2, 64)
    places = [5000, 30001, 9000, 70000, 1500, 20000]
    whole = rotation.table(max(places) * 2)
    rows = torch.from_numpy(whole.rows)
    for _ in range(10):
        module, start = nn.RotaryEmbedding(rotation, 64), threading.Barrier(len(places))

        def call(place):
            start.wait()
            return module(q, None, place)[0]

        with ThreadPoolExecutor(len(places)) as pool:
            for place, got in zip(places, pool.map(call, places)):
                assert torch.equal(got, rt.rotate(q, None, whole, place)[0])
        assert len(module._rows) > max(places) and torch.equal(module._rows, rows[: len(module._rows)])


def test_rotary_embedding_replaces_rows_elsewhere_that_are_too_few():
    """What a thread leaves there that read the table before another one grew it."""
    module, q = nn.RotaryEmbedding(rw.rotation(64, layout="half"), 16), torch.empty(1, 2, 64, device="meta")
    few = module._rows.to("meta")
    module.grow(200)
    module._elsewhere = few
    assert module(q, None, 150)[0].shape == q.shape
    assert len(module._elsewhere) == len(module._rows) >= 200


def test_rotary_embedding_is_copied_and_pickled():
    module, q = nn.RotaryEmbedding(rw.rotation(64, layout="half"), 16), random(1, 2, 64)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    for made in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), torch.load(file, weights_only=False)):
        assert torch.equal(made(q, None, 1000)[0], module(q, None, 1000)[0])
