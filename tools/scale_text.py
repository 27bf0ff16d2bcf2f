"""Numbers and tables as tools/scale_model.py prints them."""

TIMES = [("ms", 1e-3), ("s", 1), ("min", 60), ("h", 3600), ("d", 86400), ("y", 365.25 * 86400)]
SIZES = [("B", 1), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12), ("PB", 1e15)]


def in_units(value, units):
    name, one = next(((n, s) for n, s in reversed(units) if value >= s), units[0])
    return f"{value / one:.3g} {name}" if value < 999.5 * one else f"{value / one:.0f} {name}"


def duration(seconds):
    return in_units(seconds, TIMES)


def size(count):
    return in_units(count, SIZES)


def table(head, rows):
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in [head, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
