"""The examples run, and show what they print: the notebook in a kernel of this Python, the training program with few steps."""

import ast
import io
import os
import pathlib
import re
import subprocess
import sys
import tokenize

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = pathlib.Path(__file__).resolve().parents[3]
NOTEBOOK = ROOT / "examples" / "extend_a_model.ipynb"
TRAINING = ROOT / "examples" / "train_alibi_against_rope.py"
CHANGES = 0.05  # of a number that is shown, relative: other processors and versions round otherwise


def printed(notebook):
    """What each code cell prints; pictures and tables left out."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return ["".join(out.text for out in cell.outputs if out.get("name") == "stdout") for cell in cells]


def agree(shown, now):
    """The same words, and numbers that differ little."""
    for a, b in zip(shown.split(), now.split(), strict=True):
        try:
            x, y = (float(word.strip("(),.;%")) for word in (a, b))
        except ValueError:
            assert a == b
        else:
            assert x == pytest.approx(y, rel=CHANGES, abs=5e-3)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": NOTEBOOK.parent}})
    client.execute()
    for cell in notebook.cells:
        cell.metadata.clear()  # times
    path = tmp_path_factory.mktemp("notebook") / NOTEBOOK.name
    nbformat.write(notebook, path)
    return notebook, path


def test_the_notebook_shows_what_it_prints(executed):
    notebook, path = executed
    shown = printed(nbformat.read(NOTEBOOK, as_version=4))
    for number, (before, now) in enumerate(zip(shown, printed(notebook), strict=True), 1):
        try:
            agree(before, now)
        except (AssertionError, ValueError):
            pytest.fail(f"code cell {number} shows\n{before}\nand prints\n{now}\nThe executed notebook is {path}")
    pictures = sum("image/png" in out.get("data", {}) for cell in notebook.cells for out in cell.get("outputs", []))
    assert pictures == 2


def test_the_notebook_recommends_and_the_model_then_finds_the_passkey(executed):
    text = "\n".join(printed(executed[0]))
    assert "use yarn with factor 2" in text
    assert re.search(r"^yarn: +71432$", text, re.MULTILINE)
    assert not re.search(r"^none: +71432$", text, re.MULTILINE)


def test_the_notebook_is_committed_as_it_ran():
    content = NOTEBOOK.read_text()
    assert len(content) < 300_000
    assert not re.search(r"/(home|root|tmp|Users|usr)/", content)
    cells = [cell for cell in nbformat.reads(content, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [out for cell in cells for out in cell.outputs if out.output_type == "error" or out.get("name") == "stderr"]


def test_training_a_decoder_with_alibi_and_rope(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("And the king went unto the river, and saw it. " * 300)
    result = subprocess.run([sys.executable, TRAINING, text, "3"], capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    lines = re.findall(r"^(\w+) +(\d\.\d{3}) nats per byte at 128 bytes, (\d\.\d{3}) at 512$", result.stdout, re.MULTILINE)
    assert [name for name, _, _ in lines] == ["ALiBi", "RoPE"]
    assert all(0 < float(x) < 5.6 for _, *losses in lines for x in losses)  # ln 256, before it has learned anything


def test_the_training_program_has_forty_lines():
    source = TRAINING.read_text()
    first = ast.parse(source).body[0]  # its docstring
    blank = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines = {t.start[0] for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type not in blank}
    assert len({line for line in lines if line > first.end_lineno}) <= 40
    assert os.access(TRAINING, os.X_OK)
