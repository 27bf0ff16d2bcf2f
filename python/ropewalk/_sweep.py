"""The sweep: perplexity and tasks of a model against length, under every context extension method."""

from __future__ import annotations

import functools
import json
import math
import os
from pathlib import Path
from typing import Any, Callable, Iterable, NamedTuple, Sequence, TypeVar

import numpy as np

from ropewalk import _core
from ropewalk._arrays import int64, number, truth, whole
from ropewalk._core import Error
from ropewalk._progress import progress_of
from ropewalk._results import Recommendation, Sweep, length_of

__all__ = ["Recommendation", "Sweep", "sweep"]


# ---- Text and tokenizer


class _TransformersTokenizer:
    """A tokenizer of transformers as the library asks it."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.kind = f"{type(tokenizer).__name__} (transformers)"
        self.vocab_size = len(tokenizer)
        self.bos_id = tokenizer.bos_token_id
        with_special = tokenizer("x")["input_ids"]
        self.adds_bos = self.bos_id is not None and with_special[:1] == [self.bos_id]
        backend = getattr(tokenizer, "backend_tokenizer", None)
        content = backend.to_str() if backend is not None else json.dumps(sorted(tokenizer.get_vocab().items()))
        hasher = _core.Hasher()
        hasher.update(content.encode())
        self.hash = hasher.hex()

    def encode(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]

    def decode(self, ids: list[int]) -> bytes:
        text = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text.encode("utf-8", "replace")

    def piece(self, token: int) -> str:
        return self._tokenizer.convert_ids_to_tokens(token) or ""


def _as_tokenizer(tokenizer: Any) -> Any:
    if tokenizer is None or isinstance(tokenizer, _core.Tokenizer):
        return tokenizer
    if not callable(tokenizer):
        raise Error(f"tokenizer: expected a tokenizer of transformers, got {type(tokenizer).__name__}")
    return _core.PythonTokenizer(_TransformersTokenizer(tokenizer))


def _read_text(text: Any) -> tuple[bytes | None, Any, str]:
    """(text, ids, where it is from)"""
    if isinstance(text, str):
        if len(text) < 1024 and "\n" not in text and os.path.isfile(text):
            raise Error(f"text: {text!r} is the name of a file; give pathlib.Path({text!r}) to read it")
        return text.encode("utf-8", "replace"), None, ""
    if isinstance(text, os.PathLike):
        try:
            return Path(text).read_bytes(), None, os.fspath(text)
        except OSError as error:
            raise Error(f"{os.fspath(text)}: {error.strerror}") from None
    if isinstance(text, bytes):
        return text, None, ""
    ids = int64("text", text)
    if ids.ndim != 1:
        raise Error(f"text: expected a str, bytes, a pathlib.Path or token ids [tokens], got ids of shape {list(ids.shape)}")
    if ids.size and not 0 <= ids.min() <= ids.max() < 2**31:
        raise Error(f"text: expected token ids from 0 to 2^31 - 1, got {ids.min()} to {ids.max()}")
    return None, ids.astype(np.int32), ""


# ---- The sweep

_DTYPES = {None: "float32", "float32": "float32", "bf16": "bf16", "bfloat16": "bf16"}


_WEIGHTS = (None, "auto", "packed", "unpacked")


def _check_weights(weights: Any) -> None:
    if weights not in _WEIGHTS:
        raise Error(f'weights: expected "auto", "packed" or "unpacked", got {weights!r}')


def _check_kv(kv: Any, engine: Any) -> list[str]:
    types = _list(kv)
    unknown = [t for t in types if not isinstance(t, str)]
    if unknown:
        raise Error(f'kv: expected types of a KV cache, "f32", "bf16" and "q8_0", got {unknown[0]!r}')
    if types and engine == "torch":
        raise Error(
            f'kv: the KV cache of engine="torch" has the type that it computes in (dtype), got {",".join(types)!r}; '
            'engine="native" measures "f32", "bf16" and "q8_0"'
        )
    return types


def _native_engine(files: Any, device: Any, dtype: Any, weights: Any) -> Any:
    name = None if dtype is None else str(dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise Error(f'dtype: the native engine computes in "float32" or "bfloat16", got {dtype!r}')
    if device is not None and str(device) != "cpu":
        raise Error(f'device: the native engine runs on the CPU, got {device!r}; engine="torch" takes devices')
    _check_weights(weights)
    return _core.DecoderEngine(files.decoder(_DTYPES[name], weights or "auto"))


class _Opened(NamedTuple):
    plan: Any
    tokenizer: Any  # of _core, or None
    engine: Any
    model_hash: Callable[[], str]
    path: str
    name: str
    warnings: list[str]


def _open(model: Any, tokenizer: Any, engine: Any, device: Any, dtype: Any, weights: Any, allow_unknown: bool) -> _Opened:
    on_disk = isinstance(model, (str, os.PathLike))
    if engine is None:
        engine = "native" if on_disk else "torch"
    given = isinstance(engine, _core.ScoringEngine)
    if not given and engine not in ("native", "torch"):
        raise Error(f'engine: expected "native", "torch" or a ScoringEngine, got {engine!r}')
    if given and (device is not None or dtype is not None):
        raise Error("device and dtype are those of the engine that was given")
    _check_weights(weights)
    if weights is not None and engine != "native":
        raise Error("weights: the native engine alone can leave them in their file")
    if on_disk:
        return _open_path(os.fspath(model), tokenizer, engine, device, dtype, weights, allow_unknown)
    if engine == "native":
        raise Error('engine: the native engine reads a model from a path; a model of PyTorch needs engine="torch"')
    if not given:
        from ropewalk.engine import TorchEngine

        engine = TorchEngine(model, device=device, dtype=dtype)
        plan = engine.model_plan(allow_unknown)
    else:
        from ropewalk._plan import plan as read_plan

        of_engine = getattr(engine, "model", None) is model and hasattr(engine, "model_plan")
        plan = engine.model_plan(allow_unknown) if of_engine else read_plan(model, allow_unknown=allow_unknown)
    name = str(getattr(getattr(model, "config", model), "name_or_path", "") or type(model).__name__)
    return _Opened(plan, _as_tokenizer(tokenizer), engine, _hash_of(engine), name, Path(name).name, [])


def _open_path(path: str, tokenizer: Any, engine: Any, device: Any, dtype: Any, weights: Any, allow_unknown: bool) -> _Opened:
    name = Path(path).resolve().name
    try:
        files = _core.ModelFiles(path, allow_unknown)
    except Error:
        if engine != "torch":
            raise
        files = None  # PyTorch reads more kinds of weights, and more families
    tokenizer = _as_tokenizer(tokenizer) or (files.tokenizer if files else None)
    if engine == "native":
        engine = _native_engine(files, device, dtype, weights)
    elif engine == "torch":
        from ropewalk._engine_load import load_tokenizer
        from ropewalk.engine import TorchEngine

        engine = TorchEngine(path, device=device, dtype=dtype)
        tokenizer = tokenizer or _as_tokenizer(load_tokenizer(path))
    if files is None:
        return _Opened(engine.model_plan(allow_unknown), tokenizer, engine, engine.model_hash, path, name, [])
    return _Opened(files.plan, tokenizer, engine, files.hash, path, name, files.warnings)


def _plan_of(model: Any, allow_unknown: bool = False) -> Any:
    """The plan of a loaded model: by its buffers, of one that does not rotate by its configuration."""
    if any(name.endswith("inv_freq") for name, _ in model.named_buffers()):
        from ropewalk.transformers import plan_of

        return plan_of(model)
    from ropewalk._plan import plan as read_plan

    return read_plan(_finite(model.config.to_dict()), allow_unknown=allow_unknown)


def _finite(value: Any) -> Any:
    """Without infinities (Mamba 2's time_step_limit), which JSON lacks."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _hash_of(engine: Any) -> Callable[[], str]:
    return getattr(engine, "model_hash", lambda: engine.facts().name)


def _list(given: Any) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, str):
        return [piece for piece in given.split(",") if piece]
    return [given] if isinstance(given, (dict, int, float)) else list(given)


def _seconds_of(budget: str | float | None) -> float:
    """Seconds of "90s", "30m", "2h" or a number; infinite for None."""
    if budget is None or budget == "none":
        return math.inf
    if isinstance(budget, str):
        unit = {"s": 1, "m": 60, "h": 3600}.get(budget[-1:], 0)
        digits = budget[:-1]
        seconds = float(int(digits) * unit) if unit and digits.isascii() and digits.isdigit() else 0.0
    else:
        seconds = float(budget) if isinstance(budget, (int, float)) else 0.0
    if not seconds > 0:
        raise Error(f'budget: expected a time such as "90s", "30m" or "2h", seconds, or None, got {budget!r}')
    return seconds


def _left_out_text(left_out: list[tuple[int, int, int, float, str]], folder: str | None) -> str:
    parts = []
    for length, windows, asked, seconds, kv in left_out:
        where = f"{length} tokens" if kv == "f32" else f"{length} tokens with a {kv} KV cache"
        what = f"windows {windows + 1} to {asked} at {where}" if windows else where
        parts.append(f"{what} (about {math.ceil(seconds)} s)")
    goes_on = f"sweep(..., output={folder!r}) goes on" if folder else "with output= a folder it could be continued"
    return f"not measured within the budget: {'; '.join(parts)}; {goes_on}"


# ---- Over ranks

_Measure = TypeVar("_Measure", bound=Callable[..., Sweep])


def _over_ranks(measure: _Measure) -> _Measure:
    """Where torchrun started several processes, rank 0 measures and the others compute their parts of the model meanwhile."""

    @functools.wraps(measure)
    def sweep(model: Any, **options: Any) -> Sweep:
        from ropewalk import _engine_ranks

        if options.get("shard") is not None:
            with _engine_ranks.alone():
                return measure(model, **options)
        engine = options.get("engine")
        if isinstance(engine, _core.ScoringEngine):
            ranks = getattr(engine, "_ranks", None)
        elif engine == "native" or not _engine_ranks.over_ranks(model):
            ranks = None
        elif not isinstance(model, (str, os.PathLike)):
            from ropewalk.engine import TorchEngine

            options["engine"] = TorchEngine(model, device=options.pop("device", None), dtype=options.pop("dtype", None))
            ranks = options["engine"]._ranks
        else:
            ranks = _engine_ranks.ranks() if engine == "torch" else None
        if ranks is None:
            return measure(model, **options)
        if ranks.rank > 0:
            return _copy_of(ranks.serve())
        try:
            made = measure(model, **options)
        except BaseException as error:
            ranks.over(error=error)
            raise
        files = [f for f in made.folder.iterdir() if f.is_file() and f.suffix in (".json", ".jsonl")]
        ranks.over({f.name: f.read_bytes() for f in files})
        return made

    return sweep  # type: ignore[return-value]


def _copy_of(files: dict[str, bytes]) -> Sweep:
    """What rank 0 measured."""
    import shutil
    import tempfile
    import weakref

    folder = Path(tempfile.mkdtemp(prefix="ropewalk-"))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    made = Sweep(folder)
    weakref.finalize(made, shutil.rmtree, folder, ignore_errors=True)
    return made


@_over_ranks
def sweep(
    model: Any,
    *,
    text: Any,
    tokenizer: Any = None,
    methods: str | Iterable[str | dict[str, Any]] | None = None,
    lengths: Iterable[int | str] | str | None = None,
    factors: Sequence[float] | None = None,
    trained_length: int | str = 0,
    protocol: str = "aligned",
    anchors: int | None = None,
    seed: int = 1,
    bos: bool | None = None,
    tasks: str | Iterable[str] = ("perplexity", "passkey"),
    passkey_trials: int = 25,
    samples: int | None = None,
    share: bool = True,
    race: bool = True,
    kv: str | Iterable[str] | None = None,
    budget: str | float | None = None,
    angles: str | None = None,
    engine: Any = None,
    device: Any = None,
    dtype: Any = None,
    weights: str | None = None,
    threads: int | None = None,
    output: str | os.PathLike[str] | None = None,
    shard: str | None = None,
    progress: bool = True,
    allow_unknown: bool = False,
) -> Sweep:
    """Measures perplexity and tasks of a model at several lengths under several methods, as the program's
    ``ropewalk sweep`` does: the same cells, rows, rules and recommendation.

    model: the path of a Hugging Face folder, a GGUF or a llama2.c file; or a causal model of transformers.
    text: the text itself; or a file as ``pathlib.Path``; or token ids, with which perplexity alone is measured.
    tokenizer: one of transformers; by default that of the model's folder.
    methods: names as in ``ropewalk sweep --methods`` ("none", "yarn", "rerope+log-n"), and rope dictionaries; by
        default the usual ones.
    lengths: tokens, or "8k"; by default half the trained length, the trained length, 2, 4 and 8 times it.
    factors: of the methods at every length; by default length / trained length.
    trained_length: where the model's configuration does not say it, or wrongly.
    protocol: "aligned[:K]", "windows", "half" or "sliding:S" (docs/results-format.md); ``anchors``: how many windows.
    bos: whether every window begins with a BOS token; by default as the tokenizer says.
    tasks: "perplexity", always; "passkey"; "key-tokens" (their loss, of the tokens that "aligned" scores: those of
        output/key-tokens.json, else found first by the model without scaling and written there); "kv" (JSON key-value
        pairs); "ruler" or "ruler:vt" (docs/tasks). By default the first two; "perplexity,passkey,kv,ruler:vt" asks more.
    passkey_trials: passkeys asked for at each length. samples: prompts of the other tasks at each length; by default 1
        of kv, which asks many questions behind it, and 10 of RULER's. share: passkeys are asked for behind the windows
        of "aligned", in whose context they are hidden, where these hold them.
    race: whether methods that are clearly behind another leave a length early (docs/tasks/statistics.md).
    kv: types of the KV cache, "f32" (default), "bf16" and "q8_0" (ggml's blocks of 32): every method is measured with
        each of them, and ``Sweep.kv`` tells what the cache costs from what the method costs. Of the native engine alone.
        (The task "kv" is something else: JSON keys and values.)
    budget: how long it may take: "90s", "30m", "2h", or seconds; None: until everything is measured. What decides most
        comes first, the longest lengths are left out, and the same call goes on from there; with ``output`` at least a
        part is measured, however short the budget is. Of an engine in Python facts() has to have token_flops, by which
        time is estimated.
    angles: "exact", or "float32" as transformers computes them; by default as the engine does ("torch": float32).
    engine: "native" (the library's decoder on the CPU; default for a path), "torch" (PyTorch and transformers;
        default for a model) or a ``ropewalk.engine.ScoringEngine``.
    device, dtype: of the engine "torch" ("cuda", "bfloat16"); the native one takes dtype "bfloat16" too.
    weights: of the native engine: "unpacked" (in memory, converted once), "packed" (in the mapped file, decoded as they
        are needed: an 8B model of 4 bits runs in the memory of its file), or "auto" (default): unpacked where that takes
        at most half of the memory that is left.
    threads: as ``ropewalk.set_num_threads``, for the library as a whole.
    output: a folder for results.jsonl. What it holds already is not measured again; results with other settings, of
        another model or of another engine are refused. Without it a folder of its own, removed with the Sweep.
    shard: "3/16", or "auto" (as SLURM, mpirun or torchrun say): this process is one of several that measure the sweep
        together in the folder of ``output``, which all of them reach; each returns when all is measured, by whomever
        (docs/many-machines.md). With "auto" the processes of one machine share its threads unless ``threads`` or
        OMP_NUM_THREADS say otherwise.
    progress: tqdm's bar where that is installed, else lines on stderr.

    Ctrl-C ends it with KeyboardInterrupt; finished rows are kept, and the message says where. Several threads may
    sweep at once, each its own model and folder.

    In a script that torchrun starts as several processes, with engine="torch" and without ``shard``, the model is dealt over
    them by the tensor parallel plan of transformers. All make the same calls; rank 0 measures and writes, and every rank
    returns what it found (docs/python-sweep.md).

    Raises ropewalk.Error for whatever does not fit, with the reason.
    """
    import glob  # here, since importing ropewalk should take no time
    import shutil
    import tempfile
    import weakref

    content, ids, text_path = _read_text(text)
    if shard is not None and output is None:
        raise Error("shard: give the folder that the processes share as output")
    if threads is not None:
        _core.set_num_threads(threads)
    elif shard == "auto" and "OMP_NUM_THREADS" not in os.environ:
        _core.set_num_threads(_core.threads_of_rank())
    kv_types = _check_kv(kv, engine or ("native" if isinstance(model, (str, os.PathLike)) else "torch"))
    opened = _open(model, tokenizer, engine, device, dtype, weights, allow_unknown)
    if content is not None and opened.tokenizer is None:
        raise Error("tokenizer: the model has none that can be read; give one of transformers, or token ids as text")
    given = _list(methods)
    unknown = [m for m in given if not isinstance(m, (str, dict))]
    if unknown:
        raise Error(f"methods: expected names and rope dictionaries, got {unknown[0]!r}")
    seconds = _seconds_of(budget)
    core = _core.Sweep(
        opened.plan,
        opened.tokenizer,
        content,
        ids,
        [m for m in given if isinstance(m, str)],
        [json.dumps(m) for m in given if isinstance(m, dict)],
        [length_of(n) for n in _list(lengths)],
        [number("factors", f) for f in _list(factors)],
        length_of(trained_length) if trained_length else 0,
        str(protocol),
        None if anchors is None else whole("anchors", anchors),
        whole("seed", seed, 0),
        None if bos is None else truth("bos", bos),
        _list(tasks),
        whole("passkey_trials", passkey_trials),
        None if samples is None else whole("samples", samples),
        truth("share", share),
        truth("race", race),
        angles or getattr(opened.engine, "angles", "exact"),
        kv_types,
        allow_unknown,
    )
    core.describe(opened.path, opened.name, text_path, "ropewalk.sweep of Python")
    temporary = None
    if output is None:
        temporary = tempfile.mkdtemp(prefix="ropewalk-")
        folder = os.path.join(temporary, opened.name or "sweep")
    else:
        folder = os.fspath(output)
    shown = progress_of(progress, core)
    try:
        for note in [*opened.warnings, *core.notes]:
            shown.message(note)
        calls = (shown.message, shown.progress, shown.finished)
        left_out = core.run(opened.engine, opened.model_hash(), folder, temporary is None, seconds, shard, *calls)
        if left_out:
            shown.message(_left_out_text(left_out, None if temporary else folder))
    except KeyboardInterrupt:
        if glob.glob(os.path.join(glob.escape(folder), "results*.jsonl")):
            shown.message(f"interrupted; finished rows are kept: sweep(..., output={folder!r}) continues")
        raise
    except BaseException:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    finally:
        shown.close()
    result = Sweep(folder)
    if temporary is not None:
        weakref.finalize(result, shutil.rmtree, temporary, ignore_errors=True)
    return result
