"""What ropewalk.torch hands to the kernels for GPUs. There is no GPU here: tensors of the CPU take its place, and the CPU's
kernels that of the GPU's (tests/python/test_cuda.py has those)."""

import pytest
import torch
from torch.testing import assert_close

import ropewalk.torch as rt
from ropewalk import _core
from ropewalk.torch import _cuda
from ropewalk.torch._rotation import _rotate_dense, _rotate_in_place_formula, rotate_formula


@pytest.fixture
def kernels(monkeypatch):
    """The ops of the dispatch key CUDA, on tensors of the CPU; and the calls of kernels."""
    calls = []

    def rotate(device, stream, *arguments):
        q, q_shape, q_strides, k, k_shape, k_strides, q_out, k_out, dtype, rows, first, count, pairs, amplitude, axis, *rest = (
            arguments
        )
        calls.append((device, stream, dtype))
        held = torch.frombuffer(bytearray(axis or b"\0"), dtype=torch.uint8)
        tensors = q, q_shape, q_strides, k, k_shape, k_strides, q_out, k_out, dtype, rows, first, count
        _core.pointers.rotate(*tensors, 0, 0, pairs, amplitude, held.data_ptr() if axis else 0, *rest)

    monkeypatch.setattr(_core.cuda, "rotate", rotate)
    monkeypatch.setattr(_cuda, "_has_kernels", lambda device: True)
    monkeypatch.setattr(_cuda, "_stream", lambda device: (3, 77))
    return *_cuda._functions(_rotate_dense, _rotate_in_place_formula), calls


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


FREQUENCIES = 10000.0 ** (-torch.arange(8, dtype=torch.float64) / 8)
ROWS = rt.table(FREQUENCIES, 60, 10, amplitude=1.5)
POSITIONS = {
    "a start": (None, 20),
    "of tokens": (torch.tensor([10, 69, 30, 12, 11]), 0),
    "32 bits": (torch.tensor([10, 69, 30, 12, 11], dtype=torch.int32), 0),
    "of a batch": (torch.arange(10).reshape(2, 5) + 15, 0),
    "with gaps": (torch.arange(20).reshape(2, 10)[:, ::2] + 15, 0),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("where", POSITIONS)
def test_it_is_the_formula(kernels, dtype, layout, where):
    rotate, rotate_in_place, calls = kernels
    q, k = random(2, 4, 5, 32, dtype=dtype).transpose(1, 2), random(2, 5, 2, 32, seed=1, dtype=dtype)
    positions, start = POSITIONS[where]
    for direction in (0, 1, 2):
        arguments = (ROWS, positions, start, layout, 10, 6, direction, 1, 1.5, None)
        got, expected = rotate(q, k, *arguments), rotate_formula(q, k, *arguments)
        tolerance = {torch.float16: 4e-3, torch.bfloat16: 4e-2}.get(dtype, 1e-6)
        for x, y in zip(got, expected):
            assert x.is_contiguous() and x.dtype == dtype
            assert_close(x, y, rtol=0, atol=tolerance)
        x, y = q.clone(), k.clone()
        rotate_in_place(x, y, *arguments)
        assert_close((x, y), tuple(got), rtol=0, atol=tolerance)
        alone, none = rotate(q, None, *arguments)
        assert torch.equal(alone, got[0]) and none.shape == (0,)
    assert len(calls) == 9 and {c[:2] for c in calls} == {(3, 77)}


def test_several_axes_whose_numbers_are_on_the_host(kernels):
    rotate, _, calls = kernels
    q = random(2, 5, 3, 16)
    axis = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2], dtype=torch.uint8)
    p = torch.arange(30).reshape(3, 2, 5) + 20
    arguments = (ROWS, p, 0, 0, 10, 0, 0, 0, 1.5, axis)
    assert_close(rotate(q, None, *arguments)[0], rotate_formula(q, None, *arguments)[0], rtol=0, atol=1e-6)
    text = (ROWS, p[0], 0, 0, 10, 0, 0, 0, 1.5, axis)  # the same on every axis
    assert_close(rotate(q, None, *text)[0], rotate_formula(q, None, *text)[0], rtol=0, atol=1e-6)
    assert len(calls) == 2


def test_gradients_that_are_expanded(kernels):
    rotate, _, calls = kernels
    d = torch.ones(()).expand(5, 3, 16)
    assert_close(rotate(d, None, ROWS, None, 20)[0], rotate_formula(d, None, ROWS, None, 20)[0], rtol=0, atol=1e-6)
    assert rotate(torch.empty(0, 3, 16), None, ROWS, None, 20)[0].shape == (0, 3, 16)
    assert len(calls) == 2


@pytest.mark.parametrize(
    "what", ["types that differ", "positions of 16 bits", "rows in float64", "rows with gaps", "no kernels for this GPU"]
)
def test_what_the_kernels_do_not_take_goes_to_the_formula(kernels, what, monkeypatch):
    *_, calls = kernels
    q, k, rows, p = random(5, 3, 16), random(5, 3, 16, seed=1), ROWS, torch.arange(5) + 20
    if what == "types that differ":
        k = k.double()
    elif what == "positions of 16 bits":
        p = p.short()
    elif what == "rows in float64":
        rows = rows.double()
    elif what == "rows with gaps":
        rows = ROWS.repeat_interleave(2, 0)[::2]
    else:
        monkeypatch.setattr(_cuda, "_has_kernels", lambda device: False)
    formulas = []
    rotate, rotate_in_place = _cuda._functions(
        lambda *given: formulas.append(("rotate", *given)), lambda *given: formulas.append(("rotate_", *given))
    )
    rotate(q, k, rows, p, 20, 0, 10)
    rotate_in_place(q, k, rows, p, 20, 0, 10)
    assert not calls and [name for name, *_ in formulas] == ["rotate", "rotate_"]
    for _, *given in formulas:
        assert given[0] is q and given[1] is k and given[2] is rows and given[3] is p
        assert given[4:] == [20, 0, 10, 0, 0, 0, 1.0, None]


def test_an_error_is_the_librarys(kernels):
    rotate, _, _ = kernels
    with pytest.raises(_core.Error, match="position 70"):
        rotate(random(5, 3, 16), None, ROWS, None, 66, 0, 10)
    with pytest.raises(_core.Error, match="first_dim 3"):
        rotate(random(5, 3, 16), None, ROWS, None, 20, 0, 10, 3)


def test_a_build_without_kernels_leaves_the_formula_in_place():
    """Of the dispatch key CUDA there is a function of its own only where there are kernels."""
    own = torch._C._dispatch_has_kernel_for_dispatch_key("ropewalk::rotate", "CUDA")
    formula = torch._C._dispatch_has_kernel_for_dispatch_key("ropewalk::rotate", "CompositeExplicitAutograd")
    assert formula and own == _core.cuda.built


def test_registered_kernels_serve_their_key_alone():
    library = torch.library.Library("ropewalk_gpu_test", "DEF")
    schema = "(Tensor q, Tensor? k, Tensor rows) -> (Tensor, Tensor)"
    for name in ("rotate", "rotate_"):
        library.define(name + schema)
    built = _core.cuda.built
    try:
        _core.cuda.built = True
        _cuda.register(
            lambda key, *functions: [library.impl(n, f, key) for n, f in zip(("rotate", "rotate_"), functions)],
            _rotate_dense,
            _rotate_in_place_formula,
        )
    finally:
        _core.cuda.built = built
    for name in ("rotate", "rotate_"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"ropewalk_gpu_test::{name}", "CUDA")
        assert not torch._C._dispatch_has_kernel_for_dispatch_key(f"ropewalk_gpu_test::{name}", "CPU")
