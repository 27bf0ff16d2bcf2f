"""Panels of lines and of cells as one SVG, with Python's standard library alone: the same numbers give the same bytes."""

import math

STYLE = """
text{font:12px system-ui,sans-serif;fill:var(--ink)} .small{font-size:11px;fill:var(--dim)}
.title{font-weight:600} line,path{fill:none;stroke:var(--grid)} .series{stroke-width:2}
svg{--ink:#1f2328;--dim:#59636e;--grid:#d1d9e0;--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;
--c4:#9a6700;--rest:#afb8c1}
@media(prefers-color-scheme:dark){svg{--ink:#e6edf3;--dim:#9198a1;--grid:#3d444d;--c0:#58a6ff;--c1:#f0883e;
--c2:#3fb950;--c3:#bc8cff;--c4:#d29922;--rest:#59636e}}"""
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 330, 300, 46, 66, 40  # one panel


def axis_ticks(low, high, log):
    if log:
        base = 2 if high / low < 200 else 10
        first = math.floor(math.log(low, base) + 1e-9)
        last = math.ceil(math.log(high, base) - 1e-9)
        return [float(base) ** e for e in range(first, last + 1)]
    step = 10 ** math.floor(math.log10((high - low) / 2))
    step = next(step * m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= 6)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, last + 1)]


def number(x):
    if x >= 1e5:
        return f"{x:.0e}".replace("e+0", "e")
    return f"{x:g}" if abs(x) >= 1e-4 or x == 0 else f"{x:.0e}".replace("e-0", "e-")


class Panel:
    """One chart: titles, axes (each linear or logarithmic) and lines [(label, points, colour)]."""

    def __init__(self, title, x_title, lines, x_log=False, y_log=False, y_range=None):
        self.title, self.x_title, self.lines = title, x_title, lines
        self.x_log, self.y_log = x_log, y_log
        xs = [x for _, points, _ in lines for x, _ in points]
        ys = [y for _, points, _ in lines for _, y in points if y is not None]
        pairs = x_title.startswith("pair")
        step = 8 if max(xs) < 65 else 2 ** math.ceil(math.log2(max(xs) + 1)) // 8
        self.x_ticks = list(range(0, step * 8 + 1, step)) if pairs else axis_ticks(min(xs), max(xs), x_log)
        self.y_ticks = axis_ticks(*(y_range or (min(ys), max(ys))), y_log)

    @staticmethod
    def place(value, ticks, log, start, end):
        low, high, v = ticks[0], ticks[-1], value
        if log:
            low, high, v = math.log(low), math.log(high), math.log(v)
        return start + (v - low) / (high - low) * (end - start)

    def x(self, value):
        return self.place(value, self.x_ticks, self.x_log, LEFT, WIDTH - 20)

    def y(self, value):
        if value is None:
            return TOP - 6.0  # above the axis: a pair with frequency 0
        return self.place(value, self.y_ticks, self.y_log, HEIGHT - BOTTOM, TOP)

    def path(self, points):
        return "M" + "L".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in points)

    def svg(self, offset):
        out = [f'<g transform="translate({offset},0)"><text class="title" x="8" y="18">{self.title}</text>']
        for i, t in enumerate(self.y_ticks):
            y = self.y(t)
            out.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}"/>')
            if len(self.y_ticks) <= 10 or i % 2 == 0:
                out.append(f'<text class="small" x="{LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{number(t)}</text>')
        skip = 1 + len(self.x_ticks) // 8
        for t in self.x_ticks[::skip]:
            out.append(f'<text class="small" x="{self.x(t):.1f}" y="{HEIGHT - BOTTOM + 16}" '
                       f'text-anchor="middle">{number(t)}</text>')
        middle = (LEFT + WIDTH - 20) / 2
        out.append(f'<text class="small" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{self.x_title}</text>')
        named = [line for line in self.lines if line[0]]
        for label, points, colour in self.lines:
            out.append(f'<path class="series" style="stroke:var(--{colour})" d="{self.path(points)}"/>')
        columns = 2 if len(named) <= 4 else 3  # two rows fit above the axis
        for n, (label, _, colour) in enumerate(named):
            x, y = 8 + n % columns * (328 // columns), 34 + n // columns * 15
            out.append(f'<path class="series" style="stroke:var(--{colour})" d="M{x},{y - 4}h14"/>'
                       f'<text class="small" x="{x + 18}" y="{y}">{label}</text>')
        return "".join(out) + "</g>"


class Heat:
    """A map of cells [rows][columns], null where there is none: titles, and colour by value. Numbers of both signs have two colours."""

    LEVELS, SIDE = 16, 190

    def __init__(self, title, x_title, y_title, cells, first=(0, 0)):
        self.title, self.x_title, self.y_title, self.cells, self.first = title, x_title, y_title, cells, first
        values = [v for row in cells for v in row if v is not None]
        self.low, self.high = min(values), max(values)
        self.signed = self.low < 0 < self.high

    def level(self, value):
        """-LEVELS .. LEVELS; below 0 in the second colour."""
        if self.signed:
            return round(self.LEVELS * value / max(-self.low, self.high))
        return round(1 + (self.LEVELS - 1) * (value - self.low) / ((self.high - self.low) or 1))

    def colour(self, level):
        return f"stroke:var(--{'c0' if level > 0 else 'c1'});stroke-opacity:{abs(level) / self.LEVELS:.3g}"

    def runs(self):
        """{level: path of horizontal runs}, a cell being 1 by 1."""
        paths = {}
        for r, row in enumerate(self.cells):
            levels = [None if v is None else self.level(v) for v in row]
            start = 0
            for c in range(1, len(row) + 1):
                if c == len(row) or levels[c] != levels[start]:
                    if levels[start]:
                        paths.setdefault(levels[start], []).append(f"M{start} {r}.5h{c - start}")
                    start = c
        return sorted(paths.items())

    def svg(self, offset):
        rows, columns = len(self.cells), len(self.cells[0])
        wide = min(self.SIDE, max(self.SIDE * columns / rows, 24)) if rows > columns else self.SIDE
        out = [f'<g transform="translate({offset},0)"><text class="title" x="8" y="18">{self.title}</text>'
               f'<rect x="{LEFT}" y="{TOP}" width="{wide:g}" height="{self.SIDE}" style="fill:none;stroke:var(--grid)"/>'
               f'<g transform="translate({LEFT},{TOP}) scale({wide / columns:.4f},{self.SIDE / rows:.4f})">']
        for level, runs in self.runs():
            out.append(f'<path style="{self.colour(level)}" shape-rendering="crispEdges" d="{"".join(runs)}"/>')
        out.append("</g>")
        for n in sorted({0, columns // 2, columns - 1}):
            out.append(f'<text class="small" x="{LEFT + (n + 0.5) * wide / columns:.1f}" y="{TOP + self.SIDE + 14}" '
                       f'text-anchor="middle">{n + self.first[0]}</text>')
        for n in sorted({0, rows // 2, rows - 1}):
            out.append(f'<text class="small" x="{LEFT - 5}" y="{TOP + (n + 0.5) * self.SIDE / rows + 4:.1f}" '
                       f'text-anchor="end">{n + self.first[1]}</text>')
        out.append(f'<text class="small" x="{LEFT + wide / 2:g}" y="{HEIGHT - 10}" text-anchor="middle">{self.x_title}</text>'
                   f'<text class="small" x="8" y="{TOP - 10}">{self.y_title} &#8595;</text>')
        return "".join(out) + self.legend(LEFT + wide + 16) + "</g>"

    def legend(self, x):
        """Levels from the highest down to the lowest, with their numbers."""
        low, high = self.level(self.low), self.level(self.high)
        step = self.SIDE / (high - low + 1)
        out = [f'<text class="small" x="{x + 16}" y="{TOP + 9}">{number(self.high)}</text>'
               f'<text class="small" x="{x + 16}" y="{TOP + self.SIDE}">{number(self.low)}</text>']
        for n, level in enumerate(range(high, low - 1, -1)):
            y = TOP + (n + 0.5) * step
            out.append(f'<path style="{self.colour(level)};stroke-width:{step:.3f}" d="M{x:g},{y:.2f}h12"/>')
        return "".join(out)


def panel_of(numbers):
    """A panel of docs/charts.json."""
    title, x = numbers["title"], numbers["x"]
    if "cells" in numbers:
        return Heat(title, x, numbers["y"], numbers["cells"], numbers.get("first", (0, 0)))
    lines = [(line["label"], line["points"], line["colour"]) for line in numbers["lines"]]
    return Panel(title, x, lines, x_log=numbers.get("x_log", False), y_range=numbers.get("y_range"))


def draw(panels, label):
    panels = list(panels)
    width = WIDTH * len(panels)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" '
            f'height="{HEIGHT}" role="img" aria-label="{label}"><style>{STYLE}</style>'
            + "\n".join(panel.svg(WIDTH * i) for i, panel in enumerate(panels)) + "</svg>\n")
