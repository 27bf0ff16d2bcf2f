"""Rotations and tables go through pickle, as what holds them does: an applied model, a module, a job of another process."""

import copy
import pickle

import numpy as np
import pytest

import ropewalk as rw

ROTATIONS = {
    "plain": {},
    "yarn": {"method": "yarn", "factor": 4.0, "trained_length": 4096},
    "dynamic": {"method": "dynamic", "factor": 2.0, "trained_length": 4096, "length": 131072},
    "axes": {"sections": [4, 6, 6], "rotary_dim": 32},
    "xpos": {"xpos_scale_base": 512.0},
}


@pytest.mark.parametrize("name", ROTATIONS)
def test_rotations_and_tables_are_pickled(name):
    rotation = rw.rotation(32, layout="half", **ROTATIONS[name])
    for again in (pickle.loads(pickle.dumps(rotation)), copy.deepcopy(rotation)):
        assert again == rotation
        assert np.array_equal(again.inv_freq, rotation.inv_freq)
        assert again.method == rotation.method
    if name == "xpos":
        return
    table = rotation.table(7, first=131071, precision="float32")
    again = pickle.loads(pickle.dumps(table))
    assert (again.first, again.count, again.precision) == (131071, 7, "float32")
    assert np.array_equal(again.rows, table.rows)
    again.grow(9)
    assert again.count == 9


def test_tables_of_rows_are_pickled():
    table = rw.Table.from_rows(np.arange(24, dtype=np.float32).reshape(3, 2, 4))
    assert np.array_equal(pickle.loads(pickle.dumps(table)).rows, table.rows)


def test_bytes_that_end_early_are_refused():
    from ropewalk import _core

    packed = rw.rotation(32, layout="half")._core.packed()
    with pytest.raises(rw.Error, match="ends early"):
        _core.rotation_of_packed(packed[:-3])
