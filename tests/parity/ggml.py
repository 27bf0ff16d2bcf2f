"""ggml's rope kernel through ctypes, from the libraries of the llama-cpp-python that is installed (its
version is pinned in requirements-llamacpp.txt: Plan mirrors a struct of it)."""

import ctypes
import importlib.util
import pathlib

import numpy as np

NORM, NEOX, MROPE, IMROPE = 0, 2, 8, 40  # pairs: neighbours, halves; axes: chunked, interleaved
F32, I32 = 0, 26
POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t


class Init(ctypes.Structure):
    _fields_ = [("mem_size", SIZE), ("mem_buffer", POINTER), ("no_alloc", ctypes.c_bool)]


class Plan(ctypes.Structure):
    _fields_ = [("work_size", SIZE), ("work_data", POINTER), ("n_threads", ctypes.c_int),
                ("threadpool", POINTER), ("abort_callback", POINTER), ("abort_callback_data", POINTER),
                ("use_ref", ctypes.c_bool)]


class Ggml:
    def __init__(self):
        found = importlib.util.find_spec("llama_cpp")
        if found is None:
            raise ImportError("llama_cpp is not installed")
        folder = pathlib.Path(found.submodule_search_locations[0]) / "lib"
        self.base, self.cpu = (ctypes.CDLL(str(folder / f"libggml-{part}.so"), ctypes.RTLD_GLOBAL)
                               for part in ("base", "cpu"))
        base, number, real = self.base, ctypes.c_int, ctypes.c_float
        for name, arguments in {
                "ggml_init": [Init], "ggml_free": [POINTER], "ggml_new_graph": [POINTER],
                "ggml_new_tensor_1d": [POINTER, number, ctypes.c_int64],
                "ggml_new_tensor_3d": [POINTER, number] + [ctypes.c_int64] * 3,
                "ggml_get_data": [POINTER], "ggml_build_forward_expand": [POINTER, POINTER],
                "ggml_rope_ext": [POINTER] * 4 + [number] * 3 + [real] * 6,
                "ggml_rope_ext_inplace": [POINTER] * 4 + [number] * 3 + [real] * 6,
                "ggml_rope_multi": [POINTER] * 4 + [number, ctypes.POINTER(number)] + [number] * 2 + [real] * 6}.items():
            getattr(base, name).restype = POINTER
            getattr(base, name).argtypes = arguments
        self.cpu.ggml_graph_plan.argtypes = [POINTER, number, POINTER]
        self.cpu.ggml_graph_plan.restype = Plan
        self.cpu.ggml_graph_compute.argtypes = [POINTER, POINTER]
        self.cpu.ggml_cpu_init()

    def array(self, tensor, kind, *shape):
        data = ctypes.cast(self.base.ggml_get_data(tensor), ctypes.POINTER(kind))
        return np.ctypeslib.as_array(data, shape=shape)


class Rope:
    """A graph that rotates copies of `inputs`, float32 [tokens, heads, head_dim] each, of which the first
    n_dims turn. `positions`: int [tokens], or [4, tokens] with `sections`. `room(bytes)` may give the
    memory: (address, what keeps it)."""

    def __init__(self, ggml, inputs, positions, n_dims, base, mode=NEOX, threads=1, in_place=False,
                 sections=None, room=None):
        lib = ggml.base
        positions = np.asarray(positions, np.int32)
        self._ggml = ggml
        size = 2 * sum(x.nbytes for x in inputs) + positions.nbytes + 2**20
        address, self._memory = room(size) if room else (None, None)
        self._ctx = lib.ggml_init(Init(size, address, False))
        at = lib.ggml_new_tensor_1d(self._ctx, I32, positions.size)
        ggml.array(at, ctypes.c_int32, positions.size)[:] = positions.ravel()
        self._graph = lib.ggml_new_graph(self._ctx)
        rope = lib.ggml_rope_ext_inplace if in_place else lib.ggml_rope_ext
        scaling = (base, 1.0, 0.0, 1.0, 32.0, 1.0)  # no scaling, no factor
        self.outputs = []
        for source in inputs:
            tokens, heads, dim = source.shape
            x = lib.ggml_new_tensor_3d(self._ctx, F32, dim, heads, tokens)
            ggml.array(x, ctypes.c_float, *source.shape)[:] = source
            if sections is None:
                y = rope(self._ctx, x, at, None, n_dims, mode, 0, *scaling)
            else:
                y = lib.ggml_rope_multi(self._ctx, x, at, None, n_dims, (ctypes.c_int * 4)(*sections), mode,
                                        0, *scaling)
            lib.ggml_build_forward_expand(self._graph, y)
            self.outputs.append(ggml.array(y, ctypes.c_float, *source.shape))
        self._plan = ggml.cpu.ggml_graph_plan(self._graph, threads, None)
        self._work = ctypes.create_string_buffer(max(1, self._plan.work_size))
        self._plan.work_data = ctypes.addressof(self._work)
        self._compute, self._at_plan = ggml.cpu.ggml_graph_compute, ctypes.addressof(self._plan)

    def __call__(self):
        self._compute(self._graph, self._at_plan)

    def free(self):
        self._ggml.base.ggml_free(self._ctx)
