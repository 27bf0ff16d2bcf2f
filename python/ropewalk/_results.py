"""What a sweep measured: rows, recommendations, report."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropewalk import _core
from ropewalk._core import Error
from ropewalk._pictures import charts, kv_table, paragraphs, table

_OURS = re.compile(r"results(\.\d+-of-\d+)?\.jsonl")


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
    ties: list[dict[str, Any]]
    """Settings whose loss does not differ significantly: method, factor, and the difference in nats per token that would
    have been found four times in five (``detectable``)."""
    trained_length_cost: float | None
    """Loss at the trained length minus that without scaling, nats per token; None where it was not measured."""
    task_costs: list[dict[str, Any]]
    """The same for the score of each task that counts: task, difference, questions, p_value."""
    longest_usable: int
    """Tokens, of this method."""
    text: str
    """One paragraph."""
    settings: list[dict[str, Any]]
    """What to write into the configuration of each engine: engine, versions, expressible, setting, note."""
    methods: list[dict[str, Any]]
    """Every method of this length with its standing ("recommended", "tie", "behind", ..), the reason, its scores."""

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
        """What the sweep has to say about its settings, as sentences."""
        return self.header["notes"]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dict for each method, factor, length and type of KV cache, with the keys of docs/results-format.md; None
        where a number was not measured. Where several types were measured, those of the type that recommendations rest
        on come first, and every row has ``kv``."""
        if self.kv is None:
            return self._report["cells"]
        return [{"kv": "f32", "kv_keys": "", **row} for row in [*self._report["cells"], *self.kv["cells"]]]

    @property
    def kv(self) -> dict[str, Any] | None:
        """What types of the KV cache cost beside the one that recommendations rest on, under the same method: ``text``,
        ``costs`` (nats per token, with standard errors, for each method, length and type), ``settings``
        (docs/recommendation.md); None where one type alone was measured."""
        return self._report.get("kv")

    @property
    def recommendations(self) -> list[Recommendation]:
        """One for each measured length beyond the trained one."""
        return [Recommendation(**r) for r in self._report["recommendations"]]

    def recommendation(self, length: int | str) -> Recommendation:
        """The recommendation for a measured length beyond the trained one: tokens, or "32k"."""
        tokens = length_of(length)
        there = self.recommendations
        for recommendation in there:
            if recommendation.length == tokens:
                return recommendation
        known = ", ".join(str(r.length) for r in there) or "none, as no length beyond the trained one was measured"
        raise Error(f"length: expected one that was measured beyond the trained length ({known}), got {length}")

    def to_pandas(self) -> Any:
        """The rows as a pandas.DataFrame."""
        import pandas

        return pandas.DataFrame(self.rows)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Writes the report: one HTML file with charts that needs no network. An older report is replaced, any other
        file is not."""
        return Path(_core.write_report([str(self._folder)], os.fspath(path)))

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Copies results.jsonl, or the files of shards, into a folder, which ``sweep(output=folder)`` continues and the
        program reports. Results that are there already are not replaced."""
        import shutil

        target = Path(folder)
        there = sorted(target.glob("results*.jsonl"))
        if there:
            raise Error(f"{there[0]}: exists already; choose another folder")
        target.mkdir(parents=True, exist_ok=True)
        files = [path for path in sorted(self._folder.glob("results*.jsonl")) if _OURS.fullmatch(path.name)]
        for path in files:
            shutil.copyfile(path, target / path.name)
        return target / files[0].name

    def __str__(self) -> str:
        return _core.report_text(str(self._folder))

    def __repr__(self) -> str:
        header = self.header
        return f"<ropewalk.Sweep of {header['model_name']}: {len(self.rows)} rows, {header['compute']}>"

    def _repr_svg_(self) -> str:
        return charts(self._report)

    def _repr_html_(self) -> str:
        return table(self._report) + kv_table(self._report) + charts(self._report) + paragraphs(self._report)


def length_of(length: int | str) -> int:
    text = str(length)
    unit = {"k": 1024, "m": 1024 * 1024}.get(text[-1:].lower(), 1)
    digits = text[:-1] if unit > 1 else text
    if not digits.isascii() or not digits.isdigit() or int(digits) < 1:
        raise Error(f'length: expected a number of tokens such as 8192, or "8k" (8 x 1024), got {length!r}')
    return int(digits) * unit
