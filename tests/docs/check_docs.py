#!/usr/bin/env python3
"""Checks the documentation without running anything of it: links and anchors lead somewhere, tables are whole, tests that it
names exist, and what scripts make of numbers and headers is up to date."""

import re
import subprocess
import sys

sys.dont_write_bytecode = True
from markdown import FENCE, ROOT, files  # noqa: E402

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
TEST = re.compile(r"`([A-Z]\w+\.[A-Z]\w+)`")
DEFINED = re.compile(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", re.M)


def anchors(path):
    """As GitHub makes them: headings in lower case, punctuation dropped, spaces to hyphens; and <a id>."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    found = set(re.findall(r'<a id="([^"]+)">', text))
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        found.add(re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"))
    return found


def broken_links():
    count = 0
    for path in files():
        text = FENCE.sub("", path.read_text(encoding="utf-8"))
        for link in LINK.findall(text):
            if re.match(r"\w+:", link):
                continue
            count += 1
            target, _, anchor = link.partition("#")
            to = (path.parent / target).resolve() if target else path
            where = f"{path.relative_to(ROOT)}: ({link})"
            if not to.exists():
                yield f"{where}: there is no such file"
            elif anchor and to.suffix == ".md" and anchor not in anchors(to):
                yield f"{where}: {to.name} has no such heading or anchor"
    if count < 100:
        yield f"only {count} links were found"


def cells(row):
    return len(re.split(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|")))


def broken_tables():
    """A line that begins with | belongs to a table: a head, its rule, rows of as many cells. A blank line ends one."""
    count = 0
    for path in files():
        text = FENCE.sub(lambda block: "\n" * block[0].count("\n"), path.read_text(encoding="utf-8"))
        lines = text.splitlines()
        starts = [i for i, line in enumerate(lines)
                  if line.startswith("|") and not (i > 0 and lines[i - 1].startswith("|"))]
        for start in starts:
            count += 1
            where = f"{path.relative_to(ROOT)}, line {start + 1}"
            if start + 1 == len(lines) or not re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", lines[start + 1].strip()):
                yield f"{where}: this begins a table, and no |---| follows: is there a blank line inside a table?"
                continue
            for i in range(start, len(lines)):
                if not lines[i].startswith("|"):
                    break
                if cells(lines[i]) != cells(lines[start]):
                    yield (f"{path.relative_to(ROOT)}, line {i + 1}: a row of {cells(lines[i])} cells in a table of "
                           f"{cells(lines[start])}")
    if count < 40:
        yield f"only {count} tables were found"


def missing_tests():
    defined = set()
    for source in (ROOT / "tests").rglob("*.cc"):
        defined.update(".".join(pair) for pair in DEFINED.findall(source.read_text(encoding="utf-8")))
    suites = {name.split(".")[0] for name in defined}
    count = 0
    for path in files():
        for name in TEST.findall(path.read_text(encoding="utf-8")):
            if name.split(".")[0] not in suites:
                continue  # Type.Member and the like
            count += 1
            if name not in defined:
                yield f"{path.relative_to(ROOT)}: there is no test {name}"
    if count < 15:
        yield f"only {count} names of tests were found"


def missing_pages():
    """Every method has its page, and the index names every page."""
    pages = {path.stem for path in (ROOT / "docs" / "rotary" / "methods").glob("*.md")}
    rows = [path.read_text(encoding="utf-8") for path in (ROOT / "src" / "rotary" / "scaling").glob("*.cc")]
    methods = [name for row in rows for name in re.findall(r'\{\.name = "([a-z0-9-]+)"', row)]
    if len(methods) < 18:
        yield f"only {len(methods)} methods were found in src/rotary/scaling"
    for name in methods:
        if name not in pages:
            yield f"docs/rotary/methods/{name}.md is missing"
    for folder in ("rotary", "absolute", "relative"):
        index = (ROOT / "docs" / folder / "README.md").read_text(encoding="utf-8")
        for path in sorted((ROOT / "docs" / folder / "methods").glob("*.md")):
            page = path.read_text(encoding="utf-8")
            if f"(methods/{path.name})" not in index:
                yield f"docs/{folder}/README.md does not name methods/{path.name}"
            if f"](../charts/{path.stem}.svg)" not in page:
                yield f"docs/{folder}/methods/{path.name} does not show ../charts/{path.stem}.svg"
            for part in () if folder == "rotary" else ("When to use it.", "What it costs.", "Who disagrees."):
                if f"**{part}**" not in " ".join(page.split()):
                    yield f"docs/{folder}/methods/{path.name} has no part **{part}**"


def stale():
    """Pictures are what is drawn from the committed numbers, and every header has a page of the API reference."""
    for script in ("docs_charts.py", "api_docs.py", "evidence.py"):
        result = subprocess.run([sys.executable, ROOT / "scripts" / script, "--check"], capture_output=True, text=True,
                                check=False)
        if result.returncode != 0:
            yield result.stderr.strip()


def main():
    checks = (broken_links, broken_tables, missing_tests, missing_pages, stale)
    problems = [problem for check in checks for problem in check()]
    if problems:
        sys.exit("\n".join(problems))
    print("links, anchors, tables, names of tests, pages of methods and charts are right")


if __name__ == "__main__":
    main()
