"""Expressions of manifests: what Python would say of them, and nothing else."""

from __future__ import annotations

import pytest

from flashcore.suites import expressions

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
    assert expressions.evaluated(expressions.parse(text, VALUES), VALUES) is expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "ROWS.__class__", "ROWS ** 9", "ROWS << 60", "ROWS / 2 == 1",
        "[x for x in (1,)]",
        "lambda: 1", "ROWS if STAGES else 1", "f'{ROWS}'", "(ROWS := 1)", "1.5 < ROWS", "ROWS is STAGES", "{1: 2}", "",
        "ROWS <", "OTHER == 1", "ROWS == 1 " + "and ROWS == 1 " * 30, "COPY[0] == 'a'", "None == ROWS",
        "~ROWS == 1", "*ROWS", "min(ROWS, 1)", "(0 or (1,)) * 99999999999 == 1", "(0 or 'a') * 99999999999 == 'a'",
    ],
)  # fmt: skip
def test_anything_else_is_refused_where_it_is_parsed(text: str) -> None:
    with pytest.raises(ValueError):
        expressions.parse(text, VALUES)


@pytest.mark.parametrize("text", ["ROWS // (STAGES - 2) == 1", "COPY * 1000000000 == 'a'", "COPY < ROWS", "-COPY == 1"])
def test_what_cannot_be_reckoned_says_so(text: str) -> None:
    with pytest.raises(ValueError, match=r"STAGES|COPY"):
        expressions.evaluated(expressions.parse(text, VALUES), VALUES)


def test_functions_are_those_that_are_given() -> None:
    assert expressions.value("min(ROWS, 2 * STAGES) + 1", VALUES, {"min": min}) == 5
    for text in ("max(ROWS, 1)", "min(ROWS, key=1)", "min((1, 2))", "(min)(1)(2)", "ROWS.min(1)"):
        with pytest.raises(ValueError):
            expressions.parse(text, VALUES, ["min"])
