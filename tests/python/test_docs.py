"""Python that the documentation shows runs, and prints what is shown there."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def shown():
    spec = importlib.util.spec_from_file_location("markdown_of_docs", ROOT / "tests/docs/markdown.py")
    markdown = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(markdown)
    for path in markdown.files():
        for line, language, code, output in markdown.snippets(path):
            # What needs PyTorch is shown too; it runs where PyTorch is (torch/).
            if language == "python" and output is not None and not re.search(r"\btorch\b|transformers", code):
                yield pytest.param(code, output, id=f"{path.relative_to(ROOT)}:{line}")


SNIPPETS = list(shown())


def test_there_are_some():
    assert len(SNIPPETS) >= 1


@pytest.mark.parametrize(("code", "output"), SNIPPETS)
def test_snippet(code, output):
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True,
                            check=False, timeout=300)
    assert result.returncode == 0, result.stderr
    # `...` stands for any text.
    pattern = ".*?".join(re.escape(part) for part in output.strip().split("..."))
    assert re.fullmatch(pattern, result.stdout.strip(), re.DOTALL), result.stdout
