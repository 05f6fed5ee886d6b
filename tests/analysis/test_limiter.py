"""What holds a case back, in words made of its counters."""

from __future__ import annotations

from dataclasses import replace

from flashcore.analysis.limiter import limiter
from flashcore.analysis.predictions import Readings
from flashcore.model.record import Facts
from tests import factory


def of(*facts: object) -> str:
    record = factory.record()
    kept = [f for f in record.facts if not f.name.startswith(("stall_share_", "phase_share_")) and f.name != "blocks"]
    return limiter(Readings(replace(record, facts=Facts([*kept, *facts]))), "fast", "mission")  # type: ignore[list-item]


def share(reason: str, value: float | None) -> object:
    return factory.fact(f"stall_share_{reason}", value, "fast", shape="mission")


def test_the_largest_share_of_stalls_is_named() -> None:
    assert of(share("barrier", 41.0), share("wait", 12.0)) == "barrier stalls 41 %"


def test_warps_that_could_issue_are_held_by_nothing() -> None:
    assert of(share("not_selected", 30.0), share("wait", 10.0)) == "wait stalls 10 %"


def test_nothing_measured_names_nothing() -> None:
    assert of() == ""
    assert of(share("barrier", None)) == ""


def test_without_a_variant_there_is_no_limiter() -> None:
    assert limiter(Readings(factory.record()), None, "mission") == ""
