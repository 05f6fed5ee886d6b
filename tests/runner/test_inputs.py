"""Inputs are made once per seed, and every caller has its own tensors."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from flashcore.runner import inputs
from flashcore.runner.inputs import make_inputs_once
from tests.support.late import optional

torch = optional("torch")


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
