"""Which rules allow more than the default ones."""

from __future__ import annotations

import pytest

from flashcore.model.gate_policy import looser
from flashcore.model.suite import GateRule, RuleSeverity


@pytest.mark.parametrize(
    ("fact", "severity", "tolerance", "is_looser"),
    [
        ("registers", "fail", None, False),
        ("registers", "fail", 0.0, False),
        ("registers", "fail", 0.01, True),
        ("registers", "show", None, True),
        ("sass_instructions", "show", None, False),
        ("sass_instructions", "fail", 0.05, False),
        ("sass_instructions", "fail", 0.06, True),
        ("sass_instructions", "ignore", None, True),
        ("unknown", "ignore", 1.0, False),
    ],
)
def test_a_rule_is_looser_by_severity_or_tolerance(
    fact: str, severity: RuleSeverity, tolerance: float | None, is_looser: bool
) -> None:
    assert looser(GateRule((fact,), severity, tolerance)) == ([fact] if is_looser else [])


def test_a_glob_names_each_looser_fact() -> None:
    assert looser(GateRule(("sass_*",), "show")) and "sass_instructions" not in looser(GateRule(("sass_*",), "show"))
