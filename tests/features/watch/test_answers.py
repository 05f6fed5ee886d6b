"""The events that answers become."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashcore.explain.answer import Answers, beside
from flashcore.explain.readings import Readings
from flashcore.features.watch import answers
from flashcore.model.case import Case
from flashcore.model.record import CaseStatus, CaseSubject, Record
from tests import factory
from tests.support.judged import judged

FAST = Case("fast", "mission")


def answers_of(record: Record) -> Answers:
    return Answers(Readings(record), judged(record).judgement)


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
    outcomes = tuple(
        factory.outcome("fast", shape, "check", status, "" if status == "ok" else "a reason")
        for shape, status in zip(("mission", "long"), statuses, strict=False)
    )
    status, lines, data = answers.of_check(answers_of(replace(factory.record(), outcomes=outcomes)).correct(FAST))
    assert status == expected and lines
    assert len(data["wrong"]) == statuses.count("failed")
    assert ("a reason" in "".join(lines)) is any(s != "ok" for s in statuses)


def test_a_build_of_half_the_time_is_twice_as_fast() -> None:
    made = answers_of(factory.record())
    time, taken = made.time(FAST), made.readings.record.time(CaseSubject(FAST), "isolated")
    before = replace(taken, us=2 * (taken.us or 0), samples=tuple(2 * us for us in taken.samples))
    status, lines, data = answers.of_times(beside(time, taken, {"last save": before}))
    assert status == "ok" and data["us"] == time.us and data["against"]["the last save"]["value"] == 2.0
    assert "2.000 × faster than the last save [2.000, 2.000]" in lines


def test_budgets_of_watch_are_the_verdicts_on_the_variant() -> None:
    suite = factory.suite(budgets=[factory.budget("registers", maximum=90)])
    verdicts = answers_of(factory.record(suite)).budgets("fast")
    status, lines, data = answers.of_budgets(verdicts)
    assert status == "failed" and len(lines) == 1 + len(verdicts.failed) and data["counts"] == verdicts.counts()
    assert "failed: registers_limit on fast/fast_kernel (sm_80): registers 96, expected: ≤ 90" in lines[1]
