"""Source heat: every sample belongs to one line, and what is not counted is not 0."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashcore.explain.heat import Line, alone, hottest, in_order, shares
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject, CountedInstruction, Listing

SUBJECT = CaseSubject(Case("fast", "mission"), kernel="k")


def instruction(offset: int, line: int, text: str = "FADD", **values: float) -> CountedInstruction:
    return CountedInstruction(offset, text, "k.cu" if line else "", line, f"line {line}" if line else "", values)


def lines(listing: Listing) -> list[Line]:
    return hottest(in_order(listing))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1000)), min_size=1))
def test_every_sample_belongs_to_one_line(drawn: list[tuple[int, int]]) -> None:
    listing = Listing(
        SUBJECT, tuple(instruction(16 * i, line, samples=n, executed=1) for i, (line, n) in enumerate(drawn))
    )
    lines_of_source = lines(listing)
    assert math.fsum(x.samples for x in lines_of_source) == sum(n for _, n in drawn)
    assert [x.samples for x in lines_of_source] == sorted((x.samples for x in lines_of_source), reverse=True)
    if sum(n for _, n in drawn):
        assert math.fsum(x.share for x in lines_of_source) == pytest.approx(100)
    assert sum(len(x.instructions) for x in lines_of_source) == len(drawn)


def test_conflicts_are_passes_beyond_the_least_and_unknown_where_not_counted() -> None:
    counted = instruction(0, 1, "LDS R1, [R2]", samples=1, wavefronts=96, wavefronts_ideal=32)
    (line,) = lines(Listing(SUBJECT, (counted, instruction(16, 1, executed=4))))
    assert line.conflicts == 64 and line.executed == 4
    (line,) = lines(Listing(SUBJECT, (instruction(0, 1, "LDS R1, [R2]", samples=1),)))
    assert line.conflicts is None


def test_a_call_has_the_samples_of_what_was_inlined_there() -> None:
    calls = (("k.cu", 2, "line 2"), ("k.cu", 3, "line 3"))
    inlined = replace(instruction(0, 1, samples=6), calls=calls)
    result = in_order(Listing(SUBJECT, (inlined, replace(inlined, calls=calls[1:]), instruction(32, 3, samples=12))))
    assert [(x.number, x.share, x.inlined) for x in result] == [(1, 50, 0), (2, 0, 25), (3, 50, 50)]


@pytest.mark.parametrize("text", ["STL [R1], R2", "@P0 LDL.64 R2, [R1]", "@!PT STL [R1], R2"])
def test_local_memory_is_told_by_its_instructions(text: str) -> None:
    (line,) = lines(Listing(SUBJECT, (instruction(0, 1, text, executed=7), instruction(16, 1, "LDG R1", executed=9))))
    assert line.local == 7


def test_a_line_is_held_by_its_largest_reason_but_those_of_warps_that_could_issue() -> None:
    issued = instruction(0, 1, samples=10, stall_wait=3, stall_barrier=2, stall_selected=5)
    assert lines(Listing(SUBJECT, (issued,)))[0].stall == ("wait", 30)
    assert lines(Listing(SUBJECT, (instruction(0, 1, samples=10),)))[0].stall is None


def test_a_line_is_found_again_in_the_parent_by_its_text() -> None:
    listing = Listing(
        SUBJECT, (instruction(0, 1, samples=3), instruction(16, 2, samples=1), instruction(32, 0, samples=4))
    )
    assert shares(in_order(listing)) == {"line 1": 37.5, "line 2": 12.5}


def test_the_code_in_order_keeps_every_line_and_instruction() -> None:
    listing = Listing(SUBJECT, (instruction(0, 0), instruction(16, 9, samples=1), instruction(32, 2, samples=3)))
    assert [(x.number, x.share) for x in in_order(listing)] == [(2, 75), (9, 25), (0, 0)]
    assert [(x.number, x.share) for x in alone(listing)] == [(0, 0), (9, 25), (2, 75)]
