"""How a sweep draws itself in a notebook: charts and a table of its report (docs/results-format.md)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

_COLOURS = (
    "#6b7280",
    "#2563eb",
    "#dc2626",
    "#059669",
    "#d97706",
    "#7c3aed",
    "#0891b2",
    "#be185d",
    "#65a30d",
    "#9333ea",
)
_Value = Callable[[dict[str, Any]], float | None]  # of a cell; None: not measured
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 260, 52, 96, 30, 36


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _tokens(n: float) -> str:
    return f"{n / 1024:g}k" if n >= 1024 and n % 1024 == 0 else f"{n:g}"


def _perplexity(cell: dict[str, Any]) -> float | None:
    return cell["perplexity"]


def _passkey(cell: dict[str, Any]) -> float | None:
    return next((task["exact"] for task in cell["tasks"] if task["task"] == "passkey"), None)


def _lines_of(report: dict[str, Any], value_of: _Value) -> list[tuple[int, str, list[tuple[int, float]]]]:
    """[(number, method, [(length, value)])] of the report's grid."""
    grid, cells, lines = report["grid"], report["cells"], []
    for number, (method, row) in enumerate(zip(grid["methods"], grid["cells"])):
        there = [(cells[i]["length"], value_of(cells[i])) for i in row if i >= 0]
        values = [(length, value) for length, value in there if value is not None]
        if values:
            lines.append((number, method, values))
    return lines


def _chart(report: dict[str, Any], value_of: _Value, title: str, logarithmic: bool, left: int) -> str:
    lines = _lines_of(report, value_of)
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
        out.append(
            f'<line x1="{left + _LEFT}" x2="{left + _WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            f'stroke="currentColor" stroke-opacity="0.15"/>'
        )
        out.append(f'<text x="{left + _LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{label}</text>')
    trained = report["header"]["trained_length"]
    if lengths[0] <= trained <= lengths[-1]:
        out.append(
            f'<line x1="{x(trained):.1f}" x2="{x(trained):.1f}" y1="{_TOP}" y2="{bottom}" '
            f'stroke="currentColor" stroke-dasharray="3 3"/>'
        )
    ranked = sorted(lines, key=lambda line: y(line[2][-1][1]))
    heights: list[float] = []  # of names: beside the last point, a line apart, none below the axis
    for _, _, values in ranked:
        heights.append(max(y(values[-1][1]) + 4, heights[-1] + 12 if heights else 0))
    for i, height in enumerate(heights):
        heights[i] = min(height, bottom + 4 - 12 * (len(heights) - 1 - i))
    for (number, method, values), at in zip(ranked, heights):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(f"{x(length):.1f},{y(value):.1f}" for length, value in values)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        for length, value in values:
            out.append(f'<circle cx="{x(length):.1f}" cy="{y(value):.1f}" r="2.2" fill="{colour}"/>')
        out.append(f'<text x="{left + _WIDTH - _RIGHT + 6}" y="{at:.1f}" fill="{colour}">{_escaped(method)}</text>')
    return "".join(out)


def charts(report: dict[str, Any]) -> str:
    charts = _chart(report, _perplexity, "perplexity", True, 0)
    passkey = _chart(report, _passkey, "passkey accuracy", False, _WIDTH)
    width = 2 * _WIDTH if passkey else _WIDTH
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_HEIGHT}" viewBox="0 0 {width} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="11" fill="currentColor">{charts}{passkey}</svg>'
    )


def table(report: dict[str, Any]) -> str:
    grid, cells, header = report["grid"], report["cells"], report["header"]
    best = {(r["length"], r["method"], r["factor"]) for r in report["recommendations"]}
    lengths = [column["length"] for column in grid["columns"]]
    title = f"{header['model_name']}, {header['compute']}: perplexity (passkey), recommended in bold"
    head = "".join(f"<th>{_tokens(n)}</th>" for n in lengths)
    body = []
    for method, row in zip(grid["methods"], grid["cells"]):
        entries = []
        for length, index in zip(lengths, row):
            text = "-"
            bold = index >= 0 and (length, method, cells[index]["factor"]) in best
            if index >= 0 and cells[index]["perplexity"] is not None:
                text = f"{cells[index]['perplexity']:.4g}"
                passkey = _passkey(cells[index])
                if passkey is not None:
                    text += f" ({100 * passkey:.0f}%)"
            entries.append(f"<td><b>{text}</b></td>" if bold else f"<td>{text}</td>")
        body.append(f"<tr><th>{_escaped(method)}</th>{''.join(entries)}</tr>")
    return (
        f"<table><caption>{_escaped(title)}</caption><thead><tr><th></th>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table>"
    )


def kv_table(report: dict[str, Any]) -> str:
    """What types of the KV cache cost; nothing where one alone was measured."""
    if "kv" not in report:
        return ""
    kv = report["kv"]
    title = f"loss with a type of KV cache minus with {kv['recommended_on']}, nats per token, under the same method"
    costs = {(c["method"], c["factor"], c["length"], c["kv"]): c for c in kv["costs"]}
    body = []
    for key in dict.fromkeys(key[:3] for key in costs):
        entries = []
        for name in kv["types"]:
            loss = costs.get((*key, name), {}).get("loss")
            error = "" if loss is None or loss["standard_error"] is None else f" ± {loss['standard_error']:.5f}"
            entries.append("<td>-</td>" if loss is None else f"<td>{loss['nats']:+.5f}{error}</td>")
        method, factor, length = key
        label = method if factor == 1 else f"{method} x{factor:.4g}"
        body.append(f"<tr><th>{_escaped(label)}</th><td>{_tokens(length)}</td>{''.join(entries)}</tr>")
    head = "".join(f"<th>{name}</th>" for name in kv["types"])
    return (
        f"<table><caption>{_escaped(title)}</caption><thead><tr><th></th><th>tokens</th>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table>"
    )


def paragraphs(report: dict[str, Any]) -> str:
    texts = [r["text"] for r in report["recommendations"]]
    if "kv" in report:
        texts.append(report["kv"]["text"])
    return "".join(f"<p>{_escaped(text)}</p>" for text in texts)
