"""Mistakes of a declared space are told with their field."""

from __future__ import annotations

from typing import Any

import pytest

from flashcore.features.tune.space import MOST_POINTS, SpaceForm
from flashcore.model.suite import CudaSource
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
        ({"against": None}, []),
        ({"variant": "cudnn", "against": None}, ["variant", "conditions[0]", "against"]),
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
    assert [field for field, _, _ in SpaceForm(**FORM | changes).mistakes(SUITE)] == fields
