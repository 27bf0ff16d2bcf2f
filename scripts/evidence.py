#!/usr/bin/env python3
"""What articles claim of position encodings, measured: docs/evidence from committed rows, docs/results/evidence/*.jsonl (functions,
bounds: seconds; attention: minutes) and the sweeps docs/results/evidence-*/results.jsonl (minutes; scripts/results.py measures them).
Rows that need models trained are drawn only: docs/results/zoo (make zoo), docs/results/evidence/twin.jsonl (scripts/evidence_twin.py).

usage: evidence.py --draw | --check | [--publish] BUILD
    --draw     writes the page and its charts from the committed rows; --check fails where they differ
    BUILD      measures the functions, the bounds, attention and the sweeps again, and compares; BUILD has the program, BUILD/python the
               package, .venv-python numpy, and ROPEWALK_TEST_DATA the configs of published models, which are left out without it
    --publish  replaces the committed rows, and draws
"""

import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
from evidence_attention_claim import OF_ATTENTION  # noqa: E402
from evidence_bounds_claim import OF_BOUNDS  # noqa: E402
from evidence_claims import OF_FUNCTIONS, OF_SWEEPS  # noqa: E402
from evidence_frame import ROOT, ROWS, differences, read  # noqa: E402
from evidence_tuning_claims import tuning  # noqa: E402
from evidence_twin_claims import of_twin  # noqa: E402
from evidence_zoo_claims import of_zoo  # noqa: E402
from svg_panels import draw  # noqa: E402

BOUNDS = ROWS.with_name("bounds.jsonl")
ATTENTION = ROWS.with_name("attention.jsonl")
MEASURED = {  # rows: script, claims
    ROWS: ("evidence_functions.py", OF_FUNCTIONS),
    BOUNDS: ("evidence_bounds.py", OF_BOUNDS),
    ATTENTION: ("evidence_attention.py", OF_ATTENTION),
}

ARTICLES = """\
Articles, in Chinese: [A] *探秘Transformer系列之(17)--- RoPE* (罗西的思考, cnblogs, 2025-03-23); [B] *从0开始AIGC, Transformer相关: 位置编码*;
[C] *旋转位置编码的发展*; [D] *旋转位置编码*, notes on articles of kexue.fm, 角度设置. Numbers behind them are their sections."""


def pages():
    """{path: text} of all that is made from the rows."""
    parts = []
    for path, (_, claims) in MEASURED.items():
        header, rows = read(path)
        parts += [make(rows, header["command"]) for make in claims]
    parts += [make() for make in OF_SWEEPS]
    parts += tuning() + of_zoo() + of_twin()
    lines = [line for text, _ in parts for line in text]
    titles = [(a.removeprefix("## "), b.split("**")[1]) for a, b in zip(lines, lines[2:]) if a.startswith("## ")]
    anchors = ["".join(c for c in title.lower() if c.isalnum() or c in " -_").replace(" ", "-") for title, _ in titles]
    index = [
        "| claim | verdict |",
        "|---|---|",
        *(f"| [{t}](#{a}) | {v.removeprefix('Verdict: ').rstrip('.')} |" for (t, v), a in zip(titles, anchors)),
        "",
    ]
    front = [
        "# What articles claim, measured",
        "",
        "Each claim with where it stands, what was run, a verdict and the command. Verdicts follow from the numbers by rules in `scripts/evidence_*claim*.py`;",
        "`scripts/evidence.py` makes this page of committed rows: of [functions](../results/evidence/functions.jsonl), [published configs](../results/evidence/bounds.jsonl) and [attention](../results/evidence/attention.jsonl), of the sweeps",
        "[evidence-lengths](../results/evidence-lengths/results.jsonl) and [evidence-ablation](../results/evidence-ablation/results.jsonl), which `make evidence` measures again and compares,",
        "of [tuning](../results/evidence-tuning/rows.jsonl), which `scripts/evidence_tuning.py` measures, of the [zoo](../results/zoo/README.md), which `make zoo` trains, and of [its twin](../results/evidence/twin.jsonl), which `scripts/evidence_twin.py` trains. Sweeps are of one small model ([models/](../../models/README.md), trained at 1024 tokens) and 8 windows,",
        "the zoo's models are smaller still: what does not hold here may hold elsewhere.",
        "",
        *ARTICLES.splitlines(),
        "",
        *index,
    ]
    out = {ROOT / "docs" / "evidence" / "README.md": "\n".join([*front, *lines])}
    for _, charts in parts:
        out.update(
            {
                ROOT / "docs" / "evidence" / "charts" / f"{name}.svg": draw(panels, f"chart of {name}")
                for name, panels in charts.items()
            }
        )
    return out


def write():
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def measured(script, build, path, publish):
    """Runs a script of rows; what differs from the committed ones, which it replaces if they are published."""
    done = subprocess.run(
        [ROOT / ".venv-python" / "bin" / "python", ROOT / "scripts" / script],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(build / "python"), "ROPEWALK_PROGRAM": str(build / "ropewalk")},
    )
    came = build / f"evidence-{path.name}"
    came.write_text(done.stdout, encoding="utf-8")
    (before, committed), (now, rows) = read(path), read(came)
    if not os.environ.get("ROPEWALK_TEST_DATA"):  # the script says that it left published models out
        committed = [row for row in committed if row["what"] != "model"]
    problems = list(differences([before, *committed], [now, *rows]))
    print(f"{path.stem}: {len(rows)} rows, {len(problems)} differ")
    if publish:
        path.write_text(done.stdout, encoding="utf-8")
    return problems


def measure(build, publish):
    if publish and not os.environ.get("ROPEWALK_TEST_DATA"):
        raise SystemExit("--publish: set ROPEWALK_TEST_DATA, without which the rows of published models would be lost")
    problems = [line for path, (script, _) in MEASURED.items() for line in measured(script, build, path, publish)]
    options = ["--publish"] if publish else []
    subprocess.run([sys.executable, ROOT / "scripts" / "results.py", *options, build, "evidence-*"], check=True)
    if problems and not publish:
        raise SystemExit("\n".join(problems))


def main():
    words = sys.argv[1:]
    if words == ["--check"]:
        stale = [path.name for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
        if stale:
            raise SystemExit(f"{', '.join(sorted(stale))}: not what scripts/evidence.py makes of the rows; run it with --draw")
        return
    if words != ["--draw"]:
        if len(words) - ("--publish" in words) != 1:
            raise SystemExit(__doc__)
        measure(pathlib.Path(next(w for w in words if w != "--publish")).resolve(), "--publish" in words)
    if words == ["--draw"] or "--publish" in words:
        write()


if __name__ == "__main__":
    main()
