"""PyTorch that the documentation shows runs, and prints what is shown there."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


def shown():
    spec = importlib.util.spec_from_file_location("markdown_of_docs", ROOT / "tests/docs/markdown.py")
    markdown = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(markdown)
    for path in markdown.files():
        for line, language, code, output in markdown.snippets(path):
            if language == "python" and output is not None and re.search(r"\btorch\b|transformers", code):
                yield pytest.param(code, output, id=f"{path.relative_to(ROOT)}:{line}")


SNIPPETS = list(shown())


def test_there_are_some():
    assert len(SNIPPETS) >= 1


@pytest.mark.parametrize(("code", "output"), SNIPPETS)
def test_snippet(code, output):
    run = [sys.executable, "-W", "ignore", "-c", code]
    result = subprocess.run(run, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == output.strip()
