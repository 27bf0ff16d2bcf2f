"""What every claim of scripts/evidence.py needs: committed rows, their comparison, and the parts of the page."""

import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROWS = ROOT / "docs" / "results" / "evidence" / "functions.jsonl"
VERDICTS = ("holds", "holds in part", "does not hold here")
LAYERS = 4  # of the embedded model
ROUNDING = 1e-5  # what is below it is float32 rounding, which other CPUs do in another way


def read(path):
    """Header and rows; refuses what is no file of rows."""
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        header, *rows = [json.loads(line) for line in lines]
    except ValueError as error:
        raise SystemExit(f"{path.name}: expected a header and rows of JSON: {error}") from None
    if header.get("format") != "ropewalk-evidence" or header.get("schema") != 1 or not header.get("command"):
        raise SystemExit(f"{path.name}: expected a header of format ropewalk-evidence, schema 1, with its command")
    if not rows or any("what" not in row for row in rows):
        raise SystemExit(f"{path.name}: expected rows with the key what")
    return header, rows


def sweep(name):
    """Header, and {(method, factor, length): row} of a committed sweep."""
    with open(ROOT / "docs" / "results" / name / "results.jsonl", encoding="utf-8") as file:
        header, *rows = [json.loads(line) for line in file]
    return header, {
        (r["method"], r["length"]): r
        for r in rows
        if r["factor"] in (1, r["length"] / 1024, 4, 8)
        and not (name == "evidence-lengths" and r["length"] == 1024 and r["factor"] in (2, 4))
    }


def differences(committed, now):
    """Numbers within 0.1 % or both rounding, all else equal but for the version that measured."""
    if len(committed) != len(now):
        yield f"{len(committed)} rows committed, {len(now)} measured"
    for a, b in zip(committed, now):
        for key in {*a, *b} - {"version"}:
            x, y = a.get(key), b.get(key)
            if isinstance(x, float) and isinstance(y, float):
                same = abs(x - y) <= max(1e-3 * abs(x), 1e-3 if key == "readout_r2" else ROUNDING)
            else:
                same = x == y
            if not same:
                yield f"{a}: {key} is now {y}"


def table(heads, rows):
    return [
        "| " + " | ".join(heads) + " |",
        "|---" + "|---:" * (len(heads) - 1) + "|",
        *("| " + " | ".join(r) + " |" for r in rows),
        "",
    ]


def graded(passed, of_all):
    """The verdict of a statement of several parts."""
    return VERDICTS[0 if passed == of_all else 1 if passed else 2]


def overall(stated):
    """The verdict of a claim from its statements (what, where, measured, verdict)."""
    verdicts = {s[3] for s in stated}
    return verdicts.pop() if len(verdicts) == 1 else VERDICTS[1]


def stated_table(stated):
    head, _, *lines = table(["stated", "where", "measured", "verdict"], [list(s) for s in stated])
    return [head, "|---|---|---|---|", *lines]


def section(title, source, verdict, text, command, chart=None):
    if verdict not in VERDICTS:
        raise SystemExit(f"{title}: the verdict {verdict!r} is none of {', '.join(VERDICTS)}")
    picture = [f"![{title}](charts/{chart}.svg)", ""] if chart else []
    return [f"## {title}", "", f"{source} **Verdict: {verdict}.**", "", *text, *picture, f"    {command}", ""]
