"""Threads of Python: other ones run while the library computes, and calls at once give what one call gives."""

import contextlib
import os
import sys
import threading
import time

import numpy as np
import pytest
import ropewalk as rw

R = rw.rotation(128, layout="half", trained_length=4096)
TABLE = R.table(4096)
BIG = np.random.default_rng(0).standard_normal((4096, 8, 128), np.float32)
FAR = np.random.default_rng(1).integers(0, 2**30, 4096)
CACHE = np.empty_like(BIG), np.empty_like(BIG), np.empty_like(BIG)
SLOTS = np.arange(4096)
SMALL = BIG[:512, :2, :64]
GENERATORS = rw.Generators.of(R)
WEIGHT = BIG[:128, 0].copy() / 20


def complex_of(x):
    return x[..., ::2] + 1j * x[..., 1::2]


LONG = {
    "rotate": lambda: rw.rotate(BIG, None, TABLE, out=CACHE[0]),
    "rotate by angles of the call": lambda: rw.rotate(BIG, None, R, FAR, out=CACHE[0]),
    "rotate into a cache": lambda: rw.rotate(BIG, BIG, TABLE, v=BIG, slots=SLOTS, out=CACHE),
    "rerotate": lambda: rw.rerotate(CACHE[1], R, 5),
    "a table": lambda: R.table(200000),
    "frequency_gradient": lambda: rw.frequency_gradient(R, BIG, BIG),
    "attention": lambda: rw.attention(SMALL, SMALL, SMALL),
    "sinusoids": lambda: rw.Sinusoidal(512).rows(np.arange(20000)),
    "complex attention": lambda: rw.complex_attention(*[complex_of(BIG[:256, :2])] * 3),
    "complex linear": lambda: rw.complex_linear(complex_of(BIG[:512, 0]), complex_of(BIG[:256, 1])),
    "bounds of the base": lambda: rw.base_bounds(64, 8192),
    "generators": lambda: GENERATORS.rotate(BIG[:4, :1], np.arange(4)),
    "recurrent rows": lambda: rw.recurrent_rows(BIG[0, 0], 400, weight=WEIGHT, input_bias=BIG[0, 2], hidden_bias=BIG[0, 3]),
}


@contextlib.contextmanager
def counter():
    """A list whose number another thread counts up, whenever it may run. The interpreter does not switch by itself: the thread
    runs where a call lets go of the interpreter's lock, and hands it back after each step, a microsecond."""
    counted, stop, zero = [0], threading.Event(), os.open("/dev/zero", os.O_RDONLY)

    def count():
        while not stop.is_set():
            counted[0] += 1
            os.pread(zero, 1, 0)

    thread = threading.Thread(target=count)
    interval, threads = sys.getswitchinterval(), rw.num_threads()
    sys.setswitchinterval(1000)
    rw.set_num_threads(1)
    try:
        thread.start()
        yield counted
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        rw.set_num_threads(threads)
        thread.join()
        os.close(zero)


def steps_meanwhile(counted, call):
    """How many steps, for each 50 us of the call."""
    before, begin = counted[0], time.perf_counter()
    call()
    seconds = time.perf_counter() - begin
    return (counted[0] - before) / (seconds / 50e-6), seconds


@pytest.mark.parametrize("what", LONG)
def test_other_threads_run_meanwhile(what):
    """More than the few steps while numpy copies an argument: at least one in 50 us."""
    LONG[what]()
    with counter() as counted:
        for _ in range(50):
            steps, seconds = steps_meanwhile(counted, LONG[what])
            if steps > 1:
                break
    assert seconds > 200e-6, "too short a call to see anything"
    assert steps > 1, "the interpreter's lock was held"


def test_a_lock_that_is_held_is_seen():
    """What the test above says of a call that does not let go."""

    def call():
        until = time.perf_counter() + 0.02
        while time.perf_counter() < until:
            pass

    with counter() as counted:
        assert steps_meanwhile(counted, call)[0] == 0


def test_many_threads_at_once():
    """Each with its own arrays; tables, rotations and plans are shared."""
    plan = rw.plan({"dim": 512, "n_layers": 2, "n_heads": 4, "n_kv_heads": 4, "vocab_size": 8, "rope_theta": 1e4})
    expected = [rw.rotate(BIG[:64] * (n + 1), None, TABLE, n)[0] for n in range(4)]
    wrong = []

    def work(n):
        try:
            for i in range(60):
                x = BIG[:64] * (n + 1)
                rw.rotate(x, None, TABLE, n, inplace=True)
                np.testing.assert_array_equal(x, expected[n])
                with pytest.raises(rw.Error, match="position 4096"):
                    rw.rotate(x, None, TABLE, 4096)
                assert plan.at(1000 + i).length == 1000 + i
                rw.rotation(64, layout="half", method="yarn", factor=2 + n, trained_length=64).table(50)
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong[0]
