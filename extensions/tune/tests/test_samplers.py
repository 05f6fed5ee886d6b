"""The pace of a search follows its sampler and budget; samplers propose each point once."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import pytest

from extensions.tune.tests.spaces import GRID, RECORDED, SPACE
from flashcore.errors import CapabilityError
from flashcore_tune import samplers
from flashcore_tune.grid import Grid
from flashcore_tune.samplers import Exhaustive, Pace, pace
from flashcore_tune.space import Space
from flashcore_tune.study import Result
from flashcore_tune.summary import front, objective_names, objective_values


@pytest.mark.parametrize(
    ("kind", "count", "expected"),
    [
        ("grid", 5, Pace(64, True)),
        ("random", math.inf, Pace(64, True)),
        ("tpe", math.inf, Pace(16, True)),
        ("nsga2", 320, Pace(16, True)),
        ("nsga2", 319, Pace(15)),
        ("tpe", 40, Pace(2)),
        ("tpe", 5, Pace(1)),
    ],
)
def test_a_small_budget_is_proposed_in_small_batches(kind: str, count: float, expected: Pace) -> None:
    assert pace(kind, count) == expected


def test_every_point_is_proposed_once_in_order() -> None:
    first, second, *rest = GRID.feasible
    left = Exhaustive(GRID, {second: RECORDED[1]})
    assert left.ask(1) == [first] and left.ask(99) == rest and left.ask(1) == []


def test_numbers_are_ordered_and_words_are_not() -> None:
    optuna = pytest.importorskip("optuna")
    axes: dict[str, Any] = samplers.distributions(GRID)
    assert axes["ROWS"] == optuna.distributions.IntDistribution(0, 3)
    assert axes["COPY"] == optuna.distributions.CategoricalDistribution([0, 1])


def test_what_a_sampler_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "scipy" else object())
    samplers.load_optuna("tpe")
    with pytest.raises(CapabilityError, match="gp needs the Python package scipy"):
        samplers.load_optuna("gp")


def test_objectives_are_those_of_every_shape_and_missing_where_one_is() -> None:
    space = Space("t", "v", SPACE.axes, ("a", "b"), objectives=("smem", "time", "error"))
    names = objective_names(space)
    assert names == ["smem", "time:a", "time:b", "error"]
    whole = Result(1, times={"a": 1.0, "b": 2.0}, facts={"smem": 0.0}, error=0.5)
    assert objective_values(whole, names) == [0.0, 1.0, 2.0, 0.5]
    for lacking in (
        Result(1, times={"a": 1.0}, facts={"smem": 3.0}, error=0.5),
        Result(1, times={"a": 1.0, "b": 2.0}, facts={"smem": 3.0}),
        Result(1, "check", "wrong", times={"a": 1.0, "b": 2.0}, facts={"smem": 3.0}, error=0.5),
    ):
        assert objective_values(lacking, names) is None
    assert front({1: [2.0, 1.0], 2: [1.0, 2.0], 3: [2.0, 2.0], 4: [1.0, 2.0]}) == [2, 4, 1]


IMPORTANCE_AXES = {"IDLE": (1, 2, 3), "DECIDES": (1, 2, 4, 8, 16), "ONE": (7,), "WORD": ("a", "b")}
IMPORTANCE_SPACE = Space(name="s", variant="v", axes=IMPORTANCE_AXES, conditions=(), shapes=("small",))
IMPORTANCE_GRID = Grid(IMPORTANCE_SPACE)


def timed() -> list[Result]:
    return [
        Result(i, times={"small": 100.0 / int(IMPORTANCE_GRID.point(i)["DECIDES"])})
        for i in range(len(IMPORTANCE_GRID))
    ]


def test_the_axis_that_decides_comes_first_and_shares_add_up() -> None:
    pytest.importorskip("optuna")
    found = samplers.importance(IMPORTANCE_GRID, timed(), "small")
    assert next(iter(found.shares)) == "DECIDES" and found.shares["DECIDES"] > 0.8 and found.shares["ONE"] == 0
    assert set(found.shares) == set(IMPORTANCE_SPACE.axes) and sum(found.shares.values()) == pytest.approx(1)
    assert found.top == 5 and not found.reason
    assert samplers.importance(IMPORTANCE_GRID, timed(), "small") == found


def test_too_few_and_no_optuna_are_unmeasured_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    few = samplers.importance(IMPORTANCE_GRID, timed()[:19], "small")
    assert not few.shares and few.reason == "expected at least 20 timed candidates, found 19"

    def absent() -> None:
        raise CapabilityError("no optuna", "install it")

    monkeypatch.setattr(samplers, "load_optuna", absent)
    assert samplers.importance(IMPORTANCE_GRID, timed(), "small").reason == "no optuna"
