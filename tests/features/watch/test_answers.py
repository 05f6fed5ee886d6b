"""The answers that a stage's results give."""

from __future__ import annotations

import pytest

from flashcore.features.watch import answers
from flashcore.model.causes import MESSAGE
from flashcore.model.record import CaseOutcome, CaseStatus


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (("ok", "ok"), "ok"),
        (("ok", "unsupported"), "ok"),
        (("ok", "skipped"), "unmeasured"),
        (("ok", "failed"), "failed"),
        (("failed", "skipped"), "failed"),
        (("unsupported",), "unmeasured"),
        ((), "unmeasured"),
    ],
)
def test_a_build_is_right_if_every_shape_it_supports_was_checked(
    statuses: tuple[CaseStatus, ...], expected: str
) -> None:
    outcomes = [
        CaseOutcome("wide", f"shape_{i}", "check", status, None if status == "ok" else MESSAGE("a reason"))
        for i, status in enumerate(statuses)
    ]
    status, lines, data = answers.of_check(outcomes)
    assert status == expected
    assert len(data["wrong"]) == statuses.count("failed")
    assert sum("a reason" in line for line in lines) == len([s for s in statuses if s != "ok"])


def test_a_build_of_half_the_time_is_twice_as_fast() -> None:
    status, lines, data = answers.of_times("back_to_back", [2.0, 2.1, 2.0], {"the last save": [4.0, 4.2, 4.0]})
    assert status == "ok" and data["us"] == 2.0 and data["against"]["the last save"]["value"] == 2.0
    assert lines == ["2 µs back to back", "2.000 × the speed of the last save [2.000, 2.000]"]
