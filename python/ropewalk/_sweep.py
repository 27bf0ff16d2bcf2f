"""The sweep: perplexity and passkey retrieval of a model against length, under every context extension method."""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, NamedTuple, Sequence

from ropewalk import _core
from ropewalk._core import Error

__all__ = ["Recommendation", "Sweep", "sweep"]


@dataclass(frozen=True)
class Recommendation:
    """The setting recommended for a target length, by the rule in docs/recommendation.md."""

    length: int
    """Tokens."""
    judged: bool
    """False where the model without scaling was not measured at the trained length."""
    method: str | None
    """None: no method is usable at this length, or nothing could be judged."""
    factor: float
    perplexity: float
    passkey_accuracy: float | None
    """0 to 1; None where it was not measured."""
    lead_outside_noise: bool
    runner_up: str
    trained_length_cost: float | None
    """Loss at the trained length minus that without scaling, nats per token; None where it was not measured."""
    longest_usable: int
    """Tokens, of this method."""
    text: str
    """One paragraph."""
    settings: list[dict[str, Any]]
    """What to write into the configuration of each engine: engine, versions, expressible, setting, note."""

    def __str__(self) -> str:
        return self.text


class Sweep:
    """What a sweep measured: rows in a folder's results.jsonl, and what follows from them.

    In a notebook it draws itself; ``print`` shows the table and the recommendations. ``Sweep(folder)`` reads the
    results of the program or of an earlier sweep.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._report = json.loads(_core.report_json([str(self._folder)]))["sweeps"][0]

    @property
    def folder(self) -> Path:
        """Where results.jsonl lies; gone with this object where no ``output`` was given."""
        return self._folder

    @property
    def header(self) -> dict[str, Any]:
        """What all rows share: model, text, protocol, engine (``compute``), and the notes for the reader."""
        return self._report["header"]

    @property
    def notes(self) -> list[str]:
        return self.header["notes"]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dict for each method, factor and length, with the keys of docs/results-format.md; None where a number
        was not measured."""
        return self._report["cells"]

    @property
    def recommendations(self) -> list[Recommendation]:
        """One for each measured length beyond the trained one."""
        return [Recommendation(**r) for r in self._report["recommendations"]]

    def recommendation(self, length: int | str) -> Recommendation:
        """The recommendation for a measured length beyond the trained one: tokens, or "32k"."""
        tokens = _length(length)
        there = self.recommendations
        for recommendation in there:
            if recommendation.length == tokens:
                return recommendation
        known = ", ".join(str(r.length) for r in there) or "none, as no length beyond the trained one was measured"
        raise Error(f"length: expected one that was measured beyond the trained length ({known}), got {length}")

    def to_pandas(self):
        """The rows as a pandas.DataFrame."""
        import pandas

        return pandas.DataFrame(self.rows)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Writes the report: one HTML file with charts that needs no network. An older report is replaced, any other
        file is not."""
        return Path(_core.write_report([str(self._folder)], os.fspath(path)))

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Copies results.jsonl into a folder, which ``sweep(output=folder)`` continues and the program reports.
        Results that are there already are not replaced."""
        import shutil

        target = Path(folder) / "results.jsonl"
        if target.exists():
            raise Error(f"{target}: exists already; choose another folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self._folder / "results.jsonl", target)
        return target

    def __str__(self) -> str:
        return _core.report_text(str(self._folder))

    def __repr__(self) -> str:
        header = self.header
        return f"<ropewalk.Sweep of {header['model_name']}: {len(self.rows)} rows, {header['compute']}>"

    def _repr_svg_(self) -> str:
        return _charts(self._report)

    def _repr_html_(self) -> str:
        return _table(self._report) + _charts(self._report) + _paragraphs(self._report)


def _length(length: int | str) -> int:
    text = str(length)
    unit = {"k": 1024, "m": 1024 * 1024}.get(text[-1:].lower(), 1)
    digits = text[:-1] if unit > 1 else text
    if not digits.isascii() or not digits.isdigit() or int(digits) < 1:
        raise Error(f"length: expected a number of tokens such as 8192, or \"8k\" (8 x 1024), got {length!r}")
    return int(digits) * unit


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
    return None, text, ""


# ---- Progress


class _Silent:
    def message(self, line: str) -> None:
        pass

    def progress(self, index: int, done: int, all_tokens: int) -> None:
        pass

    def finished(self, index: int, row: str, resumed: bool) -> None:
        pass

    def close(self) -> None:
        pass


def _cell_name(task: tuple[str, float, int, bool]) -> str:
    method, factor, length, _ = task
    return f"{method} at {length}" if factor == 1 else f"{method} x{factor:.4g} at {length}"


def _cell_result(row: dict[str, Any]) -> str:
    text = "perplexity -" if row["perplexity"] is None else f"perplexity {row['perplexity']:.4g}"
    return text + (f", passkey {100 * row['passkey_accuracy']:.0f}%" if row["has_passkey"] else "")


class _Lines(_Silent):
    """A line on stderr for each cell."""

    def __init__(self, core: Any) -> None:
        self._core = core

    def message(self, line: str) -> None:
        print(f"ropewalk: {line}", file=sys.stderr, flush=True)

    def finished(self, index: int, row: str, resumed: bool) -> None:
        tasks = self._core.tasks
        there = ", already there" if resumed else ""
        line = f"[{index + 1}/{len(tasks)}] {_cell_name(tasks[index])}: {_cell_result(json.loads(row))}{there}"
        print(line, file=sys.stderr, flush=True)


class _Bar(_Silent):
    """tqdm's bar over cells; a notebook gets its own kind."""

    def __init__(self, core: Any, tqdm: Callable[..., Any]) -> None:
        self._core = core
        form = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
        self._bar = tqdm(total=len(core.tasks), bar_format=form, dynamic_ncols=True)

    def message(self, line: str) -> None:
        self._bar.write(f"ropewalk: {line}", file=sys.stderr)

    def _show(self, index: int, done: float) -> None:
        tasks = self._core.tasks
        self._bar.total = len(tasks)
        self._bar.set_description(f"[{index + 1}/{len(tasks)}] {_cell_name(tasks[index])}", refresh=False)
        self._bar.n = round(index + done, 3)
        self._bar.refresh()

    def progress(self, index: int, done: int, all_tokens: int) -> None:
        self._show(index, min(1.0, done / max(1, all_tokens)))

    def finished(self, index: int, row: str, resumed: bool) -> None:
        self._bar.set_postfix_str(_cell_result(json.loads(row)), refresh=False)
        self._show(index, 1.0)

    def close(self) -> None:
        self._bar.close()


def _progress_of(progress: bool, core: Any) -> _Silent:
    if not progress:
        return _Silent()
    try:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of notebooks without widgets: the bar is plain text there
            from tqdm.auto import tqdm
    except ImportError:
        return _Lines(core)
    return _Bar(core, tqdm)


# ---- The sweep

_DTYPES = {None: "float32", "float32": "float32", "bf16": "bf16", "bfloat16": "bf16"}


def _native_engine(files: Any, device: Any, dtype: Any) -> Any:
    name = None if dtype is None else str(dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise Error(f"dtype: the native engine computes in \"float32\" or \"bfloat16\", got {dtype!r}")
    if device is not None and str(device) != "cpu":
        raise Error(f"device: the native engine runs on the CPU, got {device!r}; engine=\"torch\" takes devices")
    return _core.DecoderEngine(files.decoder(_DTYPES[name]))


class _Opened(NamedTuple):
    plan: Any
    tokenizer: Any  # of _core, or None
    engine: Any
    model_hash: Callable[[], str]
    path: str
    name: str
    warnings: list[str]


def _open(model: Any, tokenizer: Any, engine: Any, device: Any, dtype: Any, allow_unknown: bool) -> _Opened:
    on_disk = isinstance(model, (str, os.PathLike))
    if engine is None:
        engine = "native" if on_disk else "torch"
    given = isinstance(engine, _core.ScoringEngine)
    if not given and engine not in ("native", "torch"):
        raise Error(f"engine: expected \"native\", \"torch\" or a ScoringEngine, got {engine!r}")
    if given and (device is not None or dtype is not None):
        raise Error("device and dtype are those of the engine that was given")
    if on_disk:
        return _open_path(os.fspath(model), tokenizer, engine, device, dtype, allow_unknown)
    if engine == "native":
        raise Error("engine: the native engine reads a model from a path; a model of PyTorch needs engine=\"torch\"")
    plan = None
    if not given:
        from ropewalk.engine import TorchEngine

        engine = TorchEngine(model, device=device, dtype=dtype)
        plan = _plan_of(engine.model)
    if plan is None:
        from ropewalk._plan import plan as read_plan

        plan = read_plan(model, allow_unknown=allow_unknown)
    name = str(getattr(getattr(model, "config", model), "name_or_path", "") or type(model).__name__)
    return _Opened(plan, _as_tokenizer(tokenizer), engine, _hash_of(engine), name, Path(name).name, [])


def _open_path(path: str, tokenizer: Any, engine: Any, device: Any, dtype: Any, allow_unknown: bool) -> _Opened:
    name = Path(path).resolve().name
    try:
        files = _core.ModelFiles(path, allow_unknown)
    except Error:
        if engine != "torch":
            raise
        files = None  # PyTorch reads more kinds of weights, and more families
    tokenizer = _as_tokenizer(tokenizer) or (files.tokenizer if files else None)
    if engine == "native":
        engine = _native_engine(files, device, dtype)
    elif engine == "torch":
        from ropewalk.engine import TorchEngine, load_tokenizer

        engine = TorchEngine(path, device=device, dtype=dtype)
        tokenizer = tokenizer or _as_tokenizer(load_tokenizer(path))
    if files is None:
        return _Opened(_plan_of(engine.model), tokenizer, engine, engine.model_hash, path, name, [])
    return _Opened(files.plan, tokenizer, engine, files.hash, path, name, files.warnings)


def _plan_of(model: Any) -> Any:
    """The plan of a loaded model, None for one that does not rotate: then its configuration says what it does."""
    if not any(name.endswith("inv_freq") for name, _ in model.named_buffers()):
        return None
    from ropewalk.transformers import plan_of

    return plan_of(model)


def _hash_of(engine: Any) -> Callable[[], str]:
    return getattr(engine, "model_hash", lambda: engine.facts().name)


def _list(given: Any) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, str):
        return [piece for piece in given.split(",") if piece]
    return [given] if isinstance(given, (dict, int, float)) else list(given)


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
    passkey: bool = True,
    passkey_trials: int = 5,
    angles: str | None = None,
    engine: Any = None,
    device: Any = None,
    dtype: Any = None,
    threads: int | None = None,
    output: str | os.PathLike[str] | None = None,
    progress: bool = True,
    allow_unknown: bool = False,
) -> Sweep:
    """Measures perplexity and passkey retrieval of a model at several lengths under several methods, as the program's
    ``ropewalk sweep`` does: the same cells, rows, rules and recommendation.

    model: the path of a Hugging Face folder, a GGUF or a llama2.c file; or a causal model of transformers.
    text: the text itself; or a file as ``pathlib.Path``; or token ids, with which the passkey task is left out.
    tokenizer: one of transformers; by default that of the model's folder.
    methods: names as in ``ropewalk sweep --methods`` ("none", "yarn", "rerope+log-n"), and rope dictionaries; by
        default the usual ones.
    lengths: tokens, or "8k"; by default half the trained length, the trained length, 2, 4 and 8 times it.
    factors: of the methods at every length; by default length / trained length.
    trained_length: where the model's configuration does not say it, or wrongly.
    protocol: "aligned[:K]", "windows", "half" or "sliding:S" (docs/results-format.md); ``anchors``: how many windows.
    bos: whether every window begins with a BOS token; by default as the tokenizer says.
    passkey_trials: prompts for each of five depths.
    angles: "exact", or "float32" as transformers computes them; by default as the engine does ("torch": float32).
    engine: "native" (the library's decoder on the CPU; default for a path), "torch" (PyTorch and transformers;
        default for a model) or a ``ropewalk.engine.ScoringEngine``.
    device, dtype: of the engine "torch" ("cuda", "bfloat16"); the native one takes dtype "bfloat16" too.
    threads: as ``ropewalk.set_num_threads``, for the library as a whole.
    output: a folder for results.jsonl. What it holds already is not measured again; results with other settings, of
        another model or of another engine are refused. Without it a folder of its own, removed with the Sweep.
    progress: tqdm's bar where that is installed, else lines on stderr.

    Ctrl-C ends it with KeyboardInterrupt; finished rows are kept, and the message says where. Several threads may
    sweep at once, each its own model and folder.

    Raises ropewalk.Error for whatever does not fit, with the reason.
    """
    import shutil  # here, since importing ropewalk should take no time
    import tempfile
    import weakref

    content, ids, text_path = _read_text(text)
    if threads is not None:
        _core.set_num_threads(threads)
    opened = _open(model, tokenizer, engine, device, dtype, allow_unknown)
    if content is not None and opened.tokenizer is None:
        raise Error("tokenizer: the model has none that can be read; give one of transformers, or token ids as text")
    given = _list(methods)
    unknown = [m for m in given if not isinstance(m, (str, dict))]
    if unknown:
        raise Error(f"methods: expected names and rope dictionaries, got {unknown[0]!r}")
    core = _core.Sweep(
        opened.plan,
        opened.tokenizer,
        content,
        ids,
        [m for m in given if isinstance(m, str)],
        [json.dumps(m) for m in given if isinstance(m, dict)],
        [_length(n) for n in _list(lengths)],
        [float(f) for f in _list(factors)],
        _length(trained_length) if trained_length else 0,
        protocol,
        anchors,
        seed,
        bos,
        passkey,
        passkey_trials,
        angles or getattr(opened.engine, "angles", "exact"),
        allow_unknown,
    )
    core.describe(opened.path, opened.name, text_path, "ropewalk.sweep of Python")
    temporary = None
    if output is None:
        temporary = tempfile.mkdtemp(prefix="ropewalk-")
        folder = os.path.join(temporary, opened.name or "sweep")
    else:
        folder = os.fspath(output)
    shown = _progress_of(progress, core)
    try:
        for note in [*opened.warnings, *core.notes]:
            shown.message(note)
        core.run(opened.engine, opened.model_hash(), folder, shown.message, shown.progress, shown.finished)
    except KeyboardInterrupt:
        if os.path.exists(os.path.join(folder, "results.jsonl")):
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


# ---- Pictures

_COLOURS = ("#6b7280", "#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#65a30d", "#9333ea")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 260, 52, 96, 30, 36


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _tokens(n: float) -> str:
    return f"{n / 1024:g}k" if n >= 1024 and n % 1024 == 0 else f"{n:g}"


def _lines_of(report: dict[str, Any], key: str) -> list[tuple[int, str, list[tuple[int, float]]]]:
    """[(number, method, [(length, value)])] of the report's grid."""
    grid, cells, lines = report["grid"], report["cells"], []
    for number, (method, row) in enumerate(zip(grid["methods"], grid["cells"])):
        values = [(cells[i]["length"], cells[i][key]) for i in row if i >= 0 and cells[i][key] is not None]
        if values:
            lines.append((number, method, values))
    return lines


def _chart(report: dict[str, Any], key: str, title: str, logarithmic: bool, left: int) -> str:
    lines = _lines_of(report, key)
    if not lines:
        return ""
    lengths = sorted({length for _, _, values in lines for length, _ in values})
    scale = math.log10 if logarithmic else float
    every = [scale(v) for _, _, values in lines for _, v in values]
    low, high = (min(every), max(every)) if logarithmic else (0.0, 1.0)
    high = high if high > low else low + 1
    first, last = math.log2(lengths[0]), math.log2(lengths[-1])
    span = (last - first) or 1.0

    def x(length: float) -> float:
        return left + _LEFT + (math.log2(length) - first) / span * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (scale(value) - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    out = [f'<text x="{left + _LEFT}" y="18" font-weight="bold">{title}</text>']
    bottom = _HEIGHT - _BOTTOM
    for length in lengths:
        out.append(f'<text x="{x(length):.1f}" y="{bottom + 16}" text-anchor="middle">{_tokens(length)}</text>')
    out.append(f'<text x="{x(2 ** ((first + last) / 2)):.1f}" y="{bottom + 31}" text-anchor="middle">tokens</text>')
    for i in range(5):
        at = low + (high - low) * i / 4
        value = 10**at if logarithmic else at
        label = f"{value:.3g}" if logarithmic else f"{100 * value:.0f}%"
        out.append(f'<line x1="{left + _LEFT}" x2="{left + _WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
                   f'stroke="currentColor" stroke-opacity="0.15"/>')
        out.append(f'<text x="{left + _LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{label}</text>')
    trained = report["header"]["trained_length"]
    if lengths[0] <= trained <= lengths[-1]:
        out.append(f'<line x1="{x(trained):.1f}" x2="{x(trained):.1f}" y1="{_TOP}" y2="{bottom}" '
                   f'stroke="currentColor" stroke-dasharray="3 3"/>')
    taken: list[float] = []
    for number, method, values in sorted(lines, key=lambda line: y(line[2][-1][1])):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(f"{x(length):.1f},{y(value):.1f}" for length, value in values)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        for length, value in values:
            out.append(f'<circle cx="{x(length):.1f}" cy="{y(value):.1f}" r="2.2" fill="{colour}"/>')
        at = max(y(values[-1][1]) + 4, taken[-1] + 12 if taken else 0)
        taken.append(at)
        out.append(f'<text x="{left + _WIDTH - _RIGHT + 6}" y="{at:.1f}" fill="{colour}">{_escaped(method)}</text>')
    return "".join(out)


def _charts(report: dict[str, Any]) -> str:
    charts = _chart(report, "perplexity", "perplexity", True, 0)
    passkey = _chart(report, "passkey_accuracy", "passkey accuracy", False, _WIDTH)
    width = 2 * _WIDTH if passkey else _WIDTH
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_HEIGHT}" viewBox="0 0 {width} {_HEIGHT}" '
            f'font-family="sans-serif" font-size="11" fill="currentColor">{charts}{passkey}</svg>')


def _table(report: dict[str, Any]) -> str:
    grid, cells, header = report["grid"], report["cells"], report["header"]
    best = {r["length"]: r["method"] for r in report["recommendations"]}
    lengths = [column["length"] for column in grid["columns"]]
    title = f"{header['model_name']}, {header['compute']}: perplexity (passkey), recommended in bold"
    head = "".join(f"<th>{_tokens(n)}</th>" for n in lengths)
    body = []
    for method, row in zip(grid["methods"], grid["cells"]):
        entries = []
        for length, index in zip(lengths, row):
            text = "-"
            if index >= 0 and cells[index]["perplexity"] is not None:
                text = f"{cells[index]['perplexity']:.4g}"
                if cells[index]["has_passkey"]:
                    text += f" ({100 * cells[index]['passkey_accuracy']:.0f}%)"
            entries.append(f"<td><b>{text}</b></td>" if best.get(length) == method else f"<td>{text}</td>")
        body.append(f"<tr><th>{_escaped(method)}</th>{''.join(entries)}</tr>")
    return (f"<table><caption>{_escaped(title)}</caption><thead><tr><th></th>{head}</tr></thead>"
            f"<tbody>{''.join(body)}</tbody></table>")


def _paragraphs(report: dict[str, Any]) -> str:
    return "".join(f"<p>{_escaped(r['text'])}</p>" for r in report["recommendations"])
