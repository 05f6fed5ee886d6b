"""The table of what compute-sanitizer reported."""

from __future__ import annotations

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.model.catalogue import FACTS
from flashcore.plugins.sanitize.command import as_table
from tests import factory
from tests.conftest import ROOT

NAMES = [name for name, spec in FACTS.items() if spec.group == "sanitizer"]


def test_failures_stand_first_with_their_counts() -> None:
    facts = [factory.fact(name, i, "fast", shape="long") for i, name in enumerate(NAMES, 2)]
    outcomes = (
        factory.outcome("slow", "mission", "sanitize"),
        factory.outcome("fast", "long", "sanitize", "failed", "a race"),
        factory.outcome("fast", "long", "check"),
    )
    header, _, *rows = as_table(factory.bare_record(None, facts, outcomes=outcomes)).splitlines()
    assert header.split()[:2] == ["case", "status"] and "sanitizer" not in header and "_" not in header
    assert [row.split() for row in rows] == [
        ["fast/long", "failed", *map(str, range(2, 2 + len(NAMES))), "a", "race"],
        ["slow/mission", "ok", *"-" * len(NAMES)],
    ]


def test_a_suite_without_shapes_for_it_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sanitize", "--suite", str(ROOT / "tests" / "suites" / "spin"), "-q"]) == Exit.USAGE
    assert "expected a shape with `sanitize` among its stages" in capsys.readouterr().err
