"""Mistakes of a declared space are told with their field."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import ManifestError, UsageError
from flashcore.model.suite import CudaSource
from flashcore_tune.space import FILE, MOST_POINTS, Space, mistakes, spaces_of
from tests import factory

SUITE = factory.suite(
    [
        factory.variant("base", kind=CudaSource("a.cu"), config={"ROWS": 1, "OTHER": 2}, shapes=("mission",)),
        factory.variant("elsewhere", problem="other"),
        factory.peer(),
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
    assert [field for field, _, _ in mistakes(Space(name="toy", **FORM | changes), SUITE)] == fields


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
        spaces_of(replace(SUITE, root=str(tmp_path)))
    found = refused.value.mistakes
    for key in mistakes:
        assert any(line.startswith(key) for line in found), found
    assert all(line.startswith(tuple(mistakes)) for line in found), found


def test_a_suite_without_spaces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a file with the suite's spaces"):
        spaces_of(replace(SUITE, root=str(tmp_path)))
