"""``flashcore diff``: the two sides that it compares."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashcore.cli import diff
from flashcore.measure.settings import Settings
from flashcore.model.record import Record
from flashcore.suites.load import NothingMatches, select
from tests import factory

BEFORE = factory.record(factory.suite([factory.variant("slow")]))
AFTER = factory.record(factory.suite([factory.variant("slow"), factory.variant("fast")]))


def sides(names: tuple[str, str], variant: str) -> list[tuple[str | None, Record]]:
    """What is read of each side: the variants asked for, and the record."""
    asked: dict[str, str | None] = {}

    def record(name: str, settings: Settings) -> Record:
        found = {"before": BEFORE, "after": AFTER}[name]
        select(found.suite, settings.variant)
        asked[name] = settings.variant
        return found

    found = diff._sides(names, replace(Settings("kernels"), variant=variant), record)
    return [(asked[name], one) for name, one in zip(names, found, strict=True)]


def test_a_variant_that_one_side_lacks_is_compared_with_nothing() -> None:
    assert sides(("before", "after"), "fast") == [(None, BEFORE), ("fast", AFTER)]
    assert sides(("after", "before"), "fast") == [("fast", AFTER), (None, BEFORE)]
    assert sides(("before", "after"), "slow") == [("slow", BEFORE), ("slow", AFTER)]


def test_a_variant_that_both_lack_is_wrong_usage() -> None:
    with pytest.raises(NothingMatches, match=r"\(did you mean fast\?\)"):
        sides(("before", "after"), "fats")
