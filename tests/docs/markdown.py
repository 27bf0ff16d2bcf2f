"""The Markdown of this project: which files there are, and their fenced blocks."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^```(\w*)\n(.*?)^```\n", re.M | re.S)


def files():
    """Every Markdown file that belongs to the project."""
    inside = [p for folder in ("docs", "models") for p in (ROOT / folder).rglob("*.md")]
    return sorted(list(ROOT.glob("*.md")) + inside)


def snippets(path):
    """(line, language, code, output) of each fenced block. The output is a ```text block that
    follows with nothing but white space between, else None."""
    text = path.read_text(encoding="utf-8")
    blocks = list(FENCE.finditer(text))
    for block, following in zip(blocks, blocks[1:] + [None]):
        output = None
        if following and following[1] == "text" and not text[block.end():following.start()].strip():
            output = following[2]
        yield text.count("\n", 0, block.start()) + 1, block[1], block[2], output
