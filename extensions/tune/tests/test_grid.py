"""Points, their numbers, and the variants that they stand for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from extensions.tune.tests.spaces import GRID, SPACE, declared
from flashcore.errors import UsageError
from flashcore.model.suite import CudaSource
from flashcore.suites.load import load
from flashcore_tune import grid
from flashcore_tune.space import Space
from tests import factory
from tests.conftest import ROOT


def test_every_point_has_its_number() -> None:
    assert len(GRID) == 24
    points = [GRID.point(i) for i in range(len(GRID))]
    assert [GRID.index(p) for p in points] == list(range(24))
    assert points[1] == {
        "ROWS": 16,
        "STAGES": 1,
        "COPY": "async",
    }
    with pytest.raises(ValueError):
        GRID.index({"ROWS": 17, "STAGES": 1, "COPY": "async"})


def test_conditions_are_told_by_their_text() -> None:
    assert GRID.broken(GRID.index({"ROWS": 128, "STAGES": 2, "COPY": "async"})) == SPACE.conditions[0]
    assert GRID.broken(GRID.index({"ROWS": 16, "STAGES": 2, "COPY": "plain"})) == SPACE.conditions[1]
    assert all(not GRID.broken(i) for i in GRID.feasible) and len(GRID.feasible) == 14


def test_a_space_without_points_and_one_that_cannot_be_reckoned_are_refused() -> None:
    for condition, words in (("ROWS > 128", "found none"), ("ROWS // (STAGES - 1) > 0", "division")):
        space = Space("toy", "base", SPACE.axes, ("small",), (condition,))
        with pytest.raises(UsageError, match=words):
            _ = grid.Grid(space).feasible


def test_variants_of_the_same_source_are_where_a_search_begins(tmp_path: Path) -> None:
    config = {"ROWS": 32, "STAGES": 2, "COPY": "async", "OTHER": 1}
    base = factory.variant("base", kind=CudaSource("a.cu"), config=config)
    variants = [
        base,
        factory.variant("rung", kind=CudaSource("a.cu"), config={**config, "ROWS": 64}),
        factory.variant("off_axis", kind=CudaSource("a.cu"), config={**config, "ROWS": 65}),
        factory.variant("other_macro", kind=CudaSource("a.cu"), config={**config, "OTHER": 2}),
        factory.variant("forbidden", kind=CudaSource("a.cu"), config={**config, "COPY": "plain"}),
        factory.variant("other_source", kind=CudaSource("b.cu"), config=config),
        factory.variant("unsaid", kind=CudaSource("a.cu"), config={"ROWS": 16, "OTHER": 1}),
    ]
    suite = factory.suite(variants=variants, baseline="base")
    suite = declared(suite, replace(SPACE, shapes=("mission",)), tmp_path)
    points = grid.of_suite(suite, "toy")
    assert set(grid.named_points(suite, points).values()) == {"base", "rung"}
    made = grid.candidate(suite, points, 4)
    assert made.name == "toy_04" and made.config == {"ROWS": 16, "STAGES": 3, "COPY": "plain", "OTHER": 1}
    assert made.parent is None and made.kind == CudaSource("a.cu")
    with pytest.raises(UsageError, match=r"expected a space of suite .* \(did you mean toy\?\)"):
        grid.of_suite(suite, "tox")


def test_an_objective_is_added_to_those_of_the_space_once() -> None:
    suite = load(ROOT / "examples" / "tune")
    assert grid.of_suite(suite, "softmax").space.objectives == ("time",)
    assert grid.of_suite(suite, "softmax", objectives=["energy", "time"]).space.objectives == ("time", "energy")
