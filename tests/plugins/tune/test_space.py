"""Mistakes of a declared space are told with their field."""

from __future__ import annotations

from typing import Any

import pytest

from flashcore.model.suite import CudaSource
from flashcore.plugins.tune import space
from flashcore.plugins.tune.space import MOST_POINTS, SpaceForm
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


VALUES = {"ROWS": 64, "STAGES": 2, "COPY": "async"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ROWS * STAGES <= 128", True),
        ("ROWS * STAGES < 128", False),
        ("ROWS // 48 == 1 and ROWS % 48 == 16", True),
        ("COPY == 'plain' or STAGES in (2, 3)", True),
        ("not (COPY == 'async') or STAGES > 2", False),
        ("1 < STAGES <= 2 < ROWS", True),
        ("-STAGES + 2 == 0", True),
        ("COPY not in ['plain', 'bulk']", True),
    ],
)
def test_a_condition_is_what_python_would_say(text: str, expected: bool) -> None:
    assert space.holds(space.parse(text, VALUES), VALUES) is expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "ROWS.__class__", "ROWS ** 9", "ROWS << 60", "ROWS / 2 == 1",
        "[x for x in (1,)]",
        "lambda: 1", "ROWS if STAGES else 1", "f'{ROWS}'", "(ROWS := 1)", "1.5 < ROWS", "ROWS is STAGES", "{1: 2}", "",
        "ROWS <", "OTHER == 1", "ROWS == 1 " + "and ROWS == 1 " * 30, "COPY[0] == 'a'", "None == ROWS",
        "~ROWS == 1", "*ROWS",
    ],
)  # fmt: skip
def test_anything_else_is_refused_where_it_is_parsed(text: str) -> None:
    with pytest.raises(ValueError):
        space.parse(text, VALUES)


@pytest.mark.parametrize("text", ["ROWS // (STAGES - 2) == 1", "COPY * 1000000000 == 'a'", "COPY < ROWS", "-COPY == 1"])
def test_what_cannot_be_reckoned_says_so(text: str) -> None:
    with pytest.raises(ValueError, match=r"STAGES|COPY"):
        space.holds(space.parse(text, VALUES), VALUES)
