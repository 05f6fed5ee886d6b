"""Inputs are made once per seed, and every caller has its own tensors."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from flashcore.measure.workers.inputs import make_inputs_once

torch = pytest.importorskip("torch")


def test_a_seed_is_made_once_for_the_shapes_used_last() -> None:
    calls: list[tuple[int, int]] = []

    def make(params: dict[str, Any], seed: int, device: str, kind: str) -> dict[str, Any]:
        calls.append((params["N"], seed))
        return {"x": torch.full((params["N"],), float(seed)), "scale": 2.0}

    problem = ModuleType("problem")
    problem.KINDS, problem.make_inputs = ("normal",), make  # type: ignore[attr-defined]
    make_inputs_once(problem, 2)
    make_inputs_once(problem, 2)
    one, other = (problem.make_inputs({"N": 3}, 7, "cpu") for _ in range(2))
    one["x"].zero_()
    assert other["x"].tolist() == [7.0] * 3 and other["scale"] == 2.0 and calls == [(3, 7)]
    for size in (4, 3, 5, 3, 4):  # 4 was used before 3 when 5 came
        problem.make_inputs({"N": size}, 7, "cpu")
    assert calls == [(3, 7), (4, 7), (5, 7), (4, 7)]


def test_no_more_than_a_gibibyte_of_a_shape_is_kept() -> None:
    calls: list[int] = []

    def make(params: dict[str, Any], seed: int, device: str, kind: str) -> dict[str, Any]:
        calls.append(seed)
        return {"x": SimpleNamespace(nbytes=600 << 20)}

    problem = ModuleType("problem")
    problem.KINDS, problem.make_inputs = ("normal",), make  # type: ignore[attr-defined]
    make_inputs_once(problem, 1)
    for seed in (1, 1, 2, 2, 1):
        problem.make_inputs({"N": 3}, seed, "cpu")
    assert calls == [1, 2, 2]
