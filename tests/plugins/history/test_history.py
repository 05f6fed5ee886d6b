"""The history of published runs: what a run measured itself, and what lay between two of its lines."""

from __future__ import annotations

import dataclasses

import pytest

from flashcore.errors import RecordError
from flashcore.model.record import Subject
from flashcore.plugins.history import history
from tests import factory


def test_a_line_for_each_case_that_the_run_timed_itself() -> None:
    record = factory.record()
    outcomes = tuple(
        dataclasses.replace(o, origin="20260101T000000Z-0001") if o.variant == "slow" else o for o in record.outcomes
    )
    lines_of_source = history.lines(dataclasses.replace(record, outcomes=outcomes))
    timed = {(o.variant, o.shape) for o in outcomes if o.stage == "bench" and not o.origin}
    assert {(x.variant, x.shape) for x in lines_of_source} == timed and ("slow", "mission") not in timed
    fast = next(x for x in lines_of_source if (x.variant, x.shape) == ("fast", "mission"))
    assert fast.isolated_us == pytest.approx(
        record.facts.number("isolated_p50", Subject("fast", shape="mission")), rel=1e-5
    )
    machine = record.environment
    assert {(x.gpu, x.driver, x.nvcc) for x in lines_of_source} == {(machine.gpu, machine.driver, machine.nvcc)}
    assert history.read(history.written(lines_of_source)) == lines_of_source


@pytest.mark.parametrize("text", ["", "a,b\n", "{head}\nx\n", "{head}\nr,s,v,m,p,often,1,1,1,1,g,d,n,c,k\n",
                                  "{head}\nr,s,v,m,p,cold,1,1,one,1,g,d,n,c,k\n"])  # fmt: skip
def test_what_is_no_history_is_refused(text: str) -> None:
    head = history.written([]).strip()
    with pytest.raises(RecordError, match=r"history\.csv"):
        history.read(text.format(head=head))


def test_what_changed_between_two_lines() -> None:
    one = history.Line("20260101T000000Z-0001", "attention", "fast", "mission", "S=1", "isolated", 10.0, 5.0, None,
                       1980.0, "H200", "580", "13.0", "aaaa", "c1")  # fmt: skip
    two = dataclasses.replace(one, run="20260102T000000Z-0001", isolated_us=10.4, driver="590", clock_mhz=1900.0)
    three = dataclasses.replace(two, run="20260103T000000Z-0001", isolated_us=12.0, code="bbbb", commit="c3")
    four = dataclasses.replace(three, run="20260104T000000Z-0001", isolated_us=None, back_to_back_us=9.0)
    other = dataclasses.replace(three, params="S=2", isolated_us=99.0)
    found = history.series([four, three, two, one, other])
    rows = found["attention", "H200", "fast", "mission", "S=1"]
    assert rows == [one, two, three, four] and len(found) == 2
    assert [*history.changes(one, two).values()] == [
        "driver 580 → 590",
        "clock 1,980 → 1,900 MHz",
        "same machine code",
    ]
    assert [*history.changes(two, three).values()] == ["other machine code"]
    assert history.regime(rows) == "back_to_back"  # all four have it
    rows = rows[:3]
    assert history.regime(rows) == "isolated"
