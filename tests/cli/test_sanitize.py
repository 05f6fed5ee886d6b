"""The table of what compute-sanitizer reported."""

from __future__ import annotations

from flashcore.cli.sanitize import as_table
from flashcore.model.catalogue import FACTS
from tests import factory

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
