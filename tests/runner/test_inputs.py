"""Inputs are made once per seed, and every caller has its own tensors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from flashcore.runner import inputs
from flashcore.runner.inputs import make_inputs_once
from flashcore.runner.problem_file import load_problem
from tests import factory

torch = pytest.importorskip("torch")


def test_a_seed_is_made_once_if_few_others_are_used_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    def make(params: dict[str, Any], seed: int, device: str, kind: str) -> dict[str, Any]:
        calls.append((params["N"], seed))
        return {"x": torch.full((params["N"],), float(seed)), "scale": 2.0}

    problem = ModuleType("problem")
    problem.KINDS, problem.make_inputs = ("normal",), make  # type: ignore[attr-defined]
    monkeypatch.setattr(inputs, "_MOST_BYTES", 40)  # two shapes of 3 to 5 elements
    make_inputs_once(problem)
    make_inputs_once(problem)
    one, other = (problem.make_inputs({"N": 3}, 7, "cpu") for _ in range(2))
    one["x"].zero_()
    assert other["x"].tolist() == [7.0] * 3 and other["scale"] == 2.0 and calls == [(3, 7)]
    for size in (4, 3, 5, 3, 4):  # 4 was used before 3 when 5 came
        problem.make_inputs({"N": size}, 7, "cpu")
    assert calls == [(3, 7), (4, 7), (5, 7), (4, 7)]


def test_no_more_than_a_gibibyte_is_kept() -> None:
    calls: list[int] = []

    def make(params: dict[str, Any], seed: int, device: str, kind: str) -> dict[str, Any]:
        calls.append(seed)
        return {"x": SimpleNamespace(nbytes=seed * 300 << 20)}

    problem = ModuleType("problem")
    problem.KINDS, problem.make_inputs = ("normal",), make  # type: ignore[attr-defined]
    make_inputs_once(problem)
    for seed in (1, 1, 2, 2, 1, 3, 1, 4, 4):
        problem.make_inputs({"N": 3}, seed, "cpu")
    assert calls == [1, 2, 3, 1, 4, 4], "with the third, nothing else is kept; of the fourth, nothing at all"


PROBLEM = """
import torch
KINDS, TOLERANCES, FENCE, calls = ("normal", "other"), {}, {}, []
reference = emulate = work = None
def make_inputs(params, seed, device, kind="normal"):
    calls.append((seed, device))
    x = torch.full((params["N"],), float(seed), device=device)
    return {"x": x, "rows": x.expand(2, -1), "scale": 2.0}
"""


def test_inputs_made_ahead_replace_only_those_of_their_shape_seed_and_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    suite = factory.suite()
    problems = {"attention": replace(suite.problems["attention"], file="problem.py", seeds=(7,))}
    shapes = {f"n{n}": factory.shape(f"n{n}", {"N": n}) for n in (3, 4, 5)}
    monkeypatch.setattr(inputs, "load", lambda root: replace(suite, root=root, problems=problems, shapes=shapes))
    monkeypatch.setenv(inputs.AHEAD, "\n".join([str(tmp_path), *shapes]))
    monkeypatch.setattr(inputs, "_ahead", {})
    monkeypatch.setattr(inputs, "_MOST_AHEAD", 1)
    for make in inputs.ahead():
        make()
    problem = load_problem(tmp_path, "problem.py")
    assert problem.calls == [(7, "cpu")], "no more fit"
    monkeypatch.setattr(inputs, "_MOST_AHEAD", 1 << 20)
    inputs.ahead()[0]()
    problem.calls.clear()
    make_inputs_once(problem)
    for _ in range(2):  # also if another shape is used in between
        one = problem.make_inputs({"N": 3}, 7, "meta")
        assert one["x"].device.type == one["rows"].device.type == "meta" and one["scale"] == 2.0
        assert one["rows"].stride() == (0, 1), "the layout is that of the inputs made ahead"
        assert problem.make_inputs({"N": 3}, 1007, "cpu")["x"].tolist() == [1007.0] * 3
        problem.make_inputs({"N": 6}, 7, "cpu")
    assert problem.calls == [(7, "cpu")], "of the other shape"
    problem.make_inputs({"N": 3}, 7, "cpu", "other")
    problem.make_inputs({"N": 3}, 8, "cpu")
    assert problem.calls[1:] == [(7, "cpu"), (8, "cpu")]
