"""Progress of a sweep: tqdm's bar where that is installed, else lines."""

from __future__ import annotations

import json
import sys
from typing import Any, Callable


class Silent:
    def message(self, line: str) -> None:
        pass

    def progress(self, index: int, done: int, all_tokens: int) -> None:
        pass

    def finished(self, index: int, row: str, resumed: bool) -> None:
        pass

    def close(self) -> None:
        pass


def _cell_name(task: tuple[str, float, int, bool, str]) -> str:
    method, factor, length, _, kv = task
    at = f"at {length}" if kv == "f32" else f"at {length}, {kv}"
    return f"{method} {at}" if factor == 1 else f"{method} x{factor:.4g} {at}"


def _cell_result(row: dict[str, Any]) -> str:
    text = "perplexity -" if row["perplexity"] is None else f"perplexity {row['perplexity']:.4g}"
    for task in row["tasks"]:
        if task["task"] == "key-tokens":
            text += f", key-tokens {task['mean_nll']:.3f} nats"
            continue
        score = task["exact"] if task["recall"] is None else task["recall"]
        text += f", {task['task']} {100 * score:.0f}%"
    return text


class _Lines(Silent):
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


class _Bar(Silent):
    """tqdm's bar over finished cells; a notebook gets its own kind."""

    def __init__(self, core: Any, tqdm: Callable[..., Any]) -> None:
        self._core = core
        form = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
        self._done = 0
        self._bar = tqdm(total=len(core.tasks), bar_format=form, dynamic_ncols=True)

    def message(self, line: str) -> None:
        self._bar.write(f"ropewalk: {line}", file=sys.stderr)

    def _show(self, index: int) -> None:
        tasks = self._core.tasks
        self._bar.total = len(tasks)
        self._bar.set_description(f"[{index + 1}/{len(tasks)}] {_cell_name(tasks[index])}", refresh=False)
        self._bar.n = self._done
        self._bar.refresh()

    def progress(self, index: int, done: int, all_tokens: int) -> None:
        self._show(index)

    def finished(self, index: int, row: str, resumed: bool) -> None:
        self._bar.set_postfix_str(_cell_result(json.loads(row)), refresh=False)
        self._done += 1
        self._show(index)

    def close(self) -> None:
        self._bar.close()


def progress_of(progress: bool, core: Any) -> Silent:
    if not progress:
        return Silent()
    try:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of notebooks without widgets: the bar is plain text there
            from tqdm.auto import tqdm
    except ImportError:
        return _Lines(core)
    return _Bar(core, tqdm)
