"""Inputs of several kinds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

answers = pytest.importorskip("flashcore.plugins.judge.answers", reason="plugin: judge")
torch = pytest.importorskip("torch", reason="package: torch")
PROBLEM = """
KINDS = ("zeros", "ones")
TOLERANCES, FENCE = {"exact": "numbers are copied"}, {"max": 0.0, "mean": 0.0}
reference = emulate = work = None
def make_inputs(params, seed, device, kind):
    import torch
    return {"x": torch.full((params["R"], params["C"]), float(kind == "ones"), device=device), "scale": 1.0}
"""


@pytest.mark.parametrize(("rows", "columns"), [(12, 9), (1, 9), (12, 1), (1, 1)])
def test_a_drawn_part_is_of_the_other_kind_and_the_ends_of_a_row_do_not_tell(
    tmp_path: Path, rows: int, columns: int
) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    params = json.dumps({"R": rows, "C": columns})
    made = [answers.inputs_of(str(tmp_path), "problem.py", params, seed, "cpu", "zeros+ones") for seed in range(300)]
    assert all(inputs["scale"] == 1.0 and inputs["x"].shape == (rows, columns) for inputs in made)
    parts = [inputs["x"] for inputs in made]
    assert all(part.any() for part in parts), "each has some of the other kind"
    mixed = [row for part in parts for row in part if row.any() and not row.all()]
    assert any(not row[0] and not row[-1] for row in mixed) == (columns > 2)
    assert (rows > 1) == any(not row.any() for part in parts for row in part)
    assert any(part.all() for part in parts) or rows > 1
    answers.inputs_of.cache_clear()
    again = answers.inputs_of(str(tmp_path), "problem.py", params, 7, "cpu", "zeros+ones")["x"]
    assert torch.equal(again, parts[7]), "the answer is judged on the same input, in another process"
