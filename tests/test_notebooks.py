"""The notebooks in ``examples/`` run from top to bottom on the published runs.

Those with plots are committed without output. The short ones have theirs: ``FLASHCORE_CONTRACT=write`` writes it anew.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SHORT = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def execute(notebook: dict[str, Any]) -> list[object]:
    """Runs the code cells one after the other in this process, which takes no kernel, and gives what each shows.

    Like Jupyter, it makes HTML of a cell's last expression where that can be done.
    """
    names: dict[str, Any] = {}
    shown = []
    for number, cell in enumerate(notebook["cells"], 1):
        if cell["cell_type"] == "code":
            where, cell_ast = f"cell {number}", ast.parse("".join(cell["source"]))
            *_, last = cell_ast.body
            if isinstance(last, ast.Expr):
                cell_ast.body.remove(last)
            exec(compile(cell_ast, where, "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), where, "eval"), names)
                getattr(value, "_repr_html_", value.__repr__)()
                shown.append(value)
    return shown


def test_there_are_two() -> None:
    assert [p.name for p in NOTEBOOKS] == ["compare_two_runs.ipynb", "read_a_run.ipynb"]


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem != "read_a_run")) for path in NOTEBOOKS],
)
def test_a_notebook_runs_and_shows_data(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import pandas as pd
    from plotly.graph_objects import Figure

    monkeypatch.chdir(path.parent)
    shown = execute(json.loads(path.read_text(encoding="utf-8")))
    figures = [value for value in shown if isinstance(value, Figure)]
    assert len(figures) >= 2
    for figure in figures:
        assert sum(len(trace["x"]) for trace in figure.data) >= 10  # none is empty
    assert any(isinstance(value, pd.DataFrame) and len(value) for value in shown)
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_holds_no_output(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


@pytest.mark.parametrize("path", SHORT, ids=lambda path: path.stem)
def test_a_short_notebook_prints_what_it_holds(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(path.parent)
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    (code,) = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        execute(notebook)
    lines = printed.getvalue().splitlines(keepends=True)
    code["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}]
    executed = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("FLASHCORE_CONTRACT") == "write":
        path.write_text(executed, encoding="utf-8")
    assert lines and len(code["source"]) + len(lines) <= 30
    assert executed == text, "hint: FLASHCORE_CONTRACT=write pytest tests/test_notebooks.py"
