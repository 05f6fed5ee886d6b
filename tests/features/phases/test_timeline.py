"""The buffer of a marked kernel as phases in ns."""

from __future__ import annotations

from itertools import pairwise

import pytest

from flashcore.errors import FlashcoreError
from flashcore.features.phases.timeline import UNMARKED, WARPS, Timeline, layout, name_of, timeline
from tests.features.phases.dumps import EVENTS, PIPELINE, Entry, code, dump


def read(*entries: Entry) -> Timeline:
    return timeline(dump(*entries), EVENTS)


def named(line: Timeline, block: int, warp: int) -> list[tuple[str, float, float]]:
    of = line.spans[(line.spans.block == block) & (line.spans.warp == warp)]
    return [*of[["phase", "start", "end"]].itertuples(index=False, name=None)]


def test_the_layout_is_that_of_the_buffer() -> None:
    assert 2 * WARPS * layout(EVENTS).size == len(dump(blocks=2))


@pytest.mark.parametrize("name", ["a", "z9_", "wait_values", "_0123456789z", "zzzzzzzzzzzz", "____________"])
def test_a_name_is_read_from_its_number(name: str) -> None:
    assert code(name) < 2**64 and name_of(code(name)) == name


def test_phases_have_their_block_sm_warp_and_role() -> None:
    line = read(
        Entry(0, "producer", 1000, 9000, [(1200, "load"), (2000, "wait")]),
        Entry(31, "consumer", 1000, 9000, [], block=70, slot=1, sm=5),
    )
    assert {*line.spans[["block", "sm", "warp", "role", "phase"]].itertuples(index=False, name=None)} == {
        (0, 0, 0, "producer", UNMARKED),
        (0, 0, 0, "producer", "load"),
        (0, 0, 0, "producer", "wait"),
        (70, 5, 31, "consumer", UNMARKED),
    }
    assert line.dropped == 0


def test_phases_of_all_sms_are_in_ns_on_one_axis() -> None:
    line = read(*PIPELINE)
    assert line.ghz == pytest.approx(2.0)
    assert line.spans.start.min() == 0 and line.spans.end.max() == pytest.approx(35_200)
    assert named(line, 0, 0) == [(UNMARKED, 0, 0), ("load", 0, 16_000), ("wait", 16_000, 32_000)]
    assert named(line, 0, 1)[1:] == [("scores", 8000, 24_000), ("output", 24_000, 32_000)]
    times = [x for _, *both in named(line, 9, 0) for x in both]  # its clock began at another number
    assert times == pytest.approx([3200, 3200, 3200, 19_200, 19_200, 35_200])


def test_a_warp_may_begin_before_one_with_a_smaller_number() -> None:
    line = read(Entry(0, "late", 6400, 64_000, [(6400, "work")]), Entry(1, "early", 0, 64_000, [(0, "work")]))
    assert named(line, 0, 1)[-1] == ("work", 0, 32_000) and named(line, 0, 0)[-1] == ("work", 3200, 32_000)


def test_phases_are_by_their_start_and_those_of_a_warp_follow_each_other() -> None:
    line = read(*PIPELINE)
    assert line.spans.start.is_monotonic_increasing
    for block, warp in ((0, 0), (0, 1), (9, 0)):
        spans = named(line, block, warp)
        assert len(spans) == 3 and all(one[2] == other[1] for one, other in pairwise(spans))


def test_the_rate_is_that_of_all_warps() -> None:
    """Each warp's reading of the chip's clock is late by up to a step, 32 ns: here those of 500 ns read 480."""
    entries = [Entry(warp, "all", 0, 1000, []) for warp in range(3)]
    assert read(*entries).ghz == pytest.approx(1000 / 480)
    long = Entry(3, "all", 0, 128_000, [(0, "work")])
    line = read(*entries, long)
    assert line.ghz == pytest.approx(131_000 / (3 * 480 + 64_000))
    assert line.spans.end.max() == pytest.approx(128_000 / line.ghz)


def test_a_phase_whose_end_was_dropped_is_left_out() -> None:
    line = read(Entry(0, "all", 0, 64_000, [(1000 * i, f"p{i}") for i in range(EVENTS + 2)]))
    assert [name for name, *_ in named(line, 0, 0)] == [UNMARKED, *(f"p{i}" for i in range(EVENTS - 1))]
    assert line.dropped == 2


def test_a_full_buffer_drops_nothing() -> None:
    line = read(Entry(0, "all", 0, 64_000, [(1000 * i, f"p{i}") for i in range(EVENTS)]))
    assert named(line, 0, 0)[-1] == (f"p{EVENTS - 1}", 500 * (EVENTS - 1), 32_000) and line.dropped == 0


def test_nothing_recorded_is_an_error() -> None:
    with pytest.raises(FlashcoreError, match=r"expected recorded warps .* on 0 SMs"):
        read()
    with pytest.raises(FlashcoreError, match=r"clocks that advance, found 0 cycles in 0 ns on 1 SMs"):
        read(Entry(0, "all", 0, 0, []))


@pytest.mark.parametrize("scopes", [0, 2])
def test_a_role_must_have_ended_once(scopes: int) -> None:
    with pytest.raises(FlashcoreError, match=rf"warp 3 of block 70: expected one FLASHCORE_ROLE .* found {scopes}"):
        read(Entry(3, "all", 0, 1, [], block=70, scopes=scopes))
