"""Inputs of several kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashcore.runner.inputs import make_inputs_once
from flashcore.runner.problem_file import load_problem

answers = pytest.importorskip("flashcore_judge.answers", reason="plugin: judge")
torch = pytest.importorskip("torch", reason="package: torch")
PROBLEM = """
KINDS = ("zeros", "ones")
TOLERANCES, FENCE = {"exact": "numbers are copied"}, {"max": 0.0, "mean": 0.0}
reference = emulate = work = None
def make_inputs(params, seed, device, kind):
    import torch
    return {"x": torch.full((params["R"], params["C"]), float(kind == "ones"), device=device), "scale": 1.0}
"""


def test_a_sample_of_a_row_often_misses_the_other_kind(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    problem = load_problem(tmp_path, "problem.py")
    answers.mix(problem)
    made = [problem.make_inputs({"R": 512, "C": 1024}, seed, "cpu", "zeros+ones")["x"] for seed in range(100)]
    missed = [x.any(1) & ~x[:, ::32].any(1) for x in made]
    assert sum(bool(rows.any()) for rows in missed) > 25, "of a hundred inputs, each of which is enough"


@pytest.mark.parametrize(("rows", "columns"), [(12, 9), (1, 9), (12, 1), (1, 1)])
def test_a_drawn_part_is_of_the_other_kind_and_the_ends_of_a_row_do_not_tell(
    tmp_path: Path, rows: int, columns: int
) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    params, problem = {"R": rows, "C": columns}, load_problem(tmp_path, "problem.py")
    make = problem.make_inputs
    answers.mix(problem)
    made = [problem.make_inputs(params, seed, "cpu", "zeros+ones") for seed in range(300)]
    assert all(inputs["scale"] == 1.0 and inputs["x"].shape == (rows, columns) for inputs in made)
    parts = [inputs["x"] for inputs in made]
    assert all(part.any() for part in parts), "each has some of the other kind"
    mixed = [row for part in parts for row in part if row.any() and not row.all()]
    assert any(not row[0] and not row[-1] for row in mixed) == (columns > 2)
    assert (rows > 1) == any(not row.any() for part in parts for row in part)
    assert any(part.all() for part in parts) or rows > 1
    answers.mix.cache_clear()
    make_inputs_once.cache_clear()
    problem.make_inputs = make  # type: ignore[attr-defined]
    answers.mix(problem)
    again = problem.make_inputs(params, 7, "cpu", "zeros+ones")["x"]
    assert torch.equal(again, parts[7]), "the answer is judged on the same input, in another process"


def test_a_weight_and_indices_keep_no_other_tensor_from_being_mixed(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(
        PROBLEM.replace(
            '"scale": 1.0',
            '"weight": torch.full((64,), float(kind == "ones")), "at": torch.full((64,), int(kind == "ones"))',
        )
    )
    problem = load_problem(tmp_path, "problem.py")
    answers.mix(problem)
    made = [problem.make_inputs({"R": 8, "C": 8}, seed, "cpu", "zeros+ones") for seed in range(50)]
    assert all(inputs["x"].any() and inputs["weight"].any() and not inputs["at"].any() for inputs in made)
    assert any(not inputs["weight"].all() for inputs in made)
