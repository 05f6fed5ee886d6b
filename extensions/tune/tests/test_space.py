"""A space's file, its points, their numbers, and the variants that they stand for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extensions.tune.tests.spaces import GRID, SPACE, declared
from flashcore.errors import ManifestError, UsageError
from flashcore.model.suite import CudaSource
from flashcore_tune.space import FILE, MOST_POINTS, Grid, Space, read
from tests import factory

SUITE = factory.suite(
    [
        factory.variant("base", kind=CudaSource("a.cu"), config={"ROWS": 1, "OTHER": 2}, shapes=("mission",)),
        factory.variant("elsewhere", problem="other"),
        factory.reference(),
    ],
    [factory.shape("mission"), factory.shape("long")],
    [factory.budget("registers", maximum=8), factory.budget("bank_conflicts", maximum=8)],
    baseline="base",
)
FORM: dict[str, Any] = {
    "variant": "base",
    "axes": {"ROWS": [16, 32], "STAGES": [1]},
    "conditions": ["ROWS * STAGES + OTHER < 99"],
    "shapes": ["mission"],
    "hard": ["registers_limit"],
    "against": "base",
}


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({}, []),
        ({"against": ""}, []),
        ({"variant": "cudnn", "against": ""}, ["variant", "conditions[0]", "against"]),
        ({"variant": "bse"}, ["variant", "conditions[0]"]),
        ({"axes": {"ROWS": [16, 16], "STAGES": [1]}}, ["axes.ROWS"]),
        ({"axes": {"ROWS": [*range(MOST_POINTS)], "STAGES": [1]}}, []),
        ({"axes": {"ROWS": [*range(MOST_POINTS // 2 + 1)], "STAGES": [1, 2]}}, ["axes"]),
        ({"conditions": ["ROWS > 1", "ROWS > UNKNOWN"]}, ["conditions[1]"]),
        ({"shapes": ["mission", "long", "lost"]}, ["shapes", "shapes"]),
        ({"hard": ["registers_limit", "bank_conflicts_limit"]}, ["hard"]),
        ({"against": "elsewhere"}, ["against"]),
        ({"against": "cudnn"}, ["against"]),
        ({"against": "bas"}, ["against"]),
    ],
)
def test_mistakes_are_told_with_their_field(changes: dict[str, Any], fields: list[str]) -> None:
    assert [field for field, _, _ in Space(name="toy", **FORM | changes).mistakes(SUITE)] == fields


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("[toy]", ["toy.variant: ", "toy.axes: ", "toy.shapes: "]),
        (
            '[toy]\nvariant = "base"\naxes = { rows = [1], A = [], B = [true] }\nshapes = []\nshape = 1',
            ["toy.axes.rows", "toy.axes.A", "toy.axes.B", "toy.shapes", "toy.shape"],
        ),
        (
            '[toy]\nvariant = "bse"\naxes = { ROWS = [1] }\nshapes = ["mission"]',
            ["toy.variant: expected a variant", "toy.against"],
        ),
        ("toy = 1", [""]),
        ("toy", [""]),
    ],
)
def test_a_wrong_file_is_refused_with_every_mistake(text: str, mistakes: list[str], tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(ManifestError) as refused:
        read(replace(SUITE, root=str(tmp_path)), "toy")
    found = refused.value.mistakes
    for key in mistakes:
        assert any(line.startswith(key) for line in found), found
    assert all(line.startswith(tuple(mistakes)) for line in found), found


def test_a_suite_without_spaces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a file with the suite's spaces"):
        read(replace(SUITE, root=str(tmp_path)), "toy")


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
            _ = Grid(space).feasible


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
    points = read(suite, "toy")
    assert set(points.named(suite).values()) == {"base", "rung"}
    made = points.candidate(suite, 4)
    assert made.name == "toy_04" and made.config == {"ROWS": 16, "STAGES": 3, "COPY": "plain", "OTHER": 1}
    assert made.parent is None and made.kind == CudaSource("a.cu")
    with pytest.raises(UsageError, match=r"expected a space of suite .* \(did you mean toy\?\)"):
        read(suite, "tox")
    assert read(suite, "toy", ("mission",)).space.shapes == ("mission",)
    with pytest.raises(UsageError, match="--shape lost: expected one that base runs on"):
        read(suite, "toy", ("lost",))
