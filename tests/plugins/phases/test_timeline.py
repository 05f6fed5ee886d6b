"""Phases in ns, the time of each, and the trace."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from flashcore.errors import FlashcoreError
from flashcore.plugins.phases import buffer
from flashcore.plugins.phases.buffer import Warp
from flashcore.plugins.phases.timeline import UNMARKED, Span, Timeline, common, rows, timeline, trace, union
from tests.plugins.phases.dumps import EVENTS, Entry, dump

#: A producer, and a consumer that starts 100 cycles later; on another SM the same block 6400 cycles later.
PIPELINE = [
    Entry(0, "producer", 0, 64_000, [(0, "load"), (32_000, "wait")]),
    Entry(1, "consumer", 6400, 64_000, [(16_000, "scores"), (48_000, "output")]),
    Entry(0, "producer", 6400, 70_400, [(6400, "load"), (38_400, "wait")], block=9, slot=1, sm=3),
]


def call(*entries: Entry, ghz: float = 2.0) -> tuple[Warp, ...]:
    return buffer.parse(dump(*entries, ghz=ghz), EVENTS)


def named(line: Timeline, block: int, warp: int) -> list[tuple[str, float, float]]:
    return [(s.phase, s.start, s.end) for s in line.spans if (s.block, s.warp) == (block, warp)]


def test_phases_of_all_sms_are_in_ns_on_one_axis() -> None:
    line = timeline([call(*PIPELINE)])
    assert line.ghz == pytest.approx(2.0) and line.step % 32 == 0 and line.dropped == 0
    assert line.ns == pytest.approx(35_200)
    assert named(line, 0, 0) == [(UNMARKED, 0, 0), ("load", 0, 16_000), ("wait", 16_000, 32_000)]
    times = [x for _, *both in named(line, 9, 0) for x in both]  # its clock began at another number
    assert times == pytest.approx([3200, 3200, 3200, 19_200, 19_200, 35_200])
    assert line.phases == ["load", "scores", "wait", "output"]


def test_phases_of_a_warp_follow_each_other() -> None:
    line = timeline([call(*PIPELINE)])
    for block, warp in {(s.block, s.warp) for s in line.spans}:
        assert all(one[2] == other[1] for one, other in pairwise(named(line, block, warp)))


def test_the_median_call_is_shown_by_the_clock_of_all() -> None:
    lengths = (96_000, 32_000, 64_000)
    line = timeline([call(Entry(0, "all", 0, n, [(0, "work")])) for n in lengths])
    assert line.ns == pytest.approx(32_000) and line.ghz == pytest.approx(2.0)


def test_a_phase_whose_end_was_dropped_is_left_out() -> None:
    phases = [(1000 * i, f"p{i}") for i in range(EVENTS + 2)]
    line = timeline([call(Entry(0, "all", 0, 64_000, phases))])
    assert [name for name, *_ in named(line, 0, 0)] == [UNMARKED, *(f"p{i}" for i in range(EVENTS - 1))]
    assert line.dropped == 2


def test_nothing_recorded_is_an_error() -> None:
    with pytest.raises(FlashcoreError, match="expected recorded warps, found none"):
        timeline([call(*PIPELINE), ()])
    with pytest.raises(FlashcoreError, match="expected clocks that advance, found 0 cycles"):
        timeline([call(Entry(0, "all", 0, 0, []))])


def test_the_table_has_each_roles_phases_with_what_overlaps_them() -> None:
    by_name = {(r.role, r.phase): r for r in rows(timeline([call(*PIPELINE)]))}
    load, wait = by_name["producer", "load"], by_name["producer", "wait"]
    assert (load.warps, load.entered, wait.warps) == (2, 1, 2)
    assert load.ns == pytest.approx(16_000) and load.share == pytest.approx(0.5)
    # In block 0 the consumer's scores, from 8 to 24 µs, are half of each: a quarter of both blocks' time.
    assert load.other == "consumer scores" and load.overlap == pytest.approx(0.25)
    scores, unmarked = by_name["consumer", "scores"], by_name["consumer", UNMARKED]
    assert scores.share == pytest.approx(0.5) and scores.overlap == pytest.approx(0.5)
    assert unmarked.ns == pytest.approx(4800)
    output = by_name["consumer", "output"]
    assert output.other == "producer wait" and output.overlap == pytest.approx(1.0)


def test_unions_join_what_touches_and_share_what_overlaps() -> None:
    spans = [Span(0, 0, w, "r", "p", start, end) for w, (start, end) in enumerate([(0, 5), (1, 2), (5, 6), (8, 9)])]
    assert union(spans) == [(0, 6), (8, 9)]
    assert common([(0, 6), (8, 9)], [(1, 2), (5, 8.5)]) == 2.5
    assert common([], [(1, 2)]) == 0


def test_the_trace_is_in_the_trace_event_format() -> None:
    line = timeline([call(*PIPELINE)])
    data = json.loads(json.dumps(trace(line, {"case": "a/b"}), allow_nan=False))
    assert data["displayTimeUnit"] in ("ms", "ns") and data["otherData"] == {"case": "a/b"}
    complete = [e for e in data["traceEvents"] if e["ph"] == "X"]
    metadata = [e for e in data["traceEvents"] if e["ph"] == "M"]
    assert len(complete) == len(line.spans) and len(complete) + len(metadata) == len(data["traceEvents"])
    for event in complete:
        assert event.keys() == {"ph", "name", "cat", "pid", "tid", "ts", "dur"}
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert event["ts"] >= 0 and event["dur"] >= 0
    load = next(e for e in complete if e["name"] == "load" and e["pid"] == 9)
    assert (load["ts"], load["dur"], load["cat"]) == (pytest.approx(3.2), pytest.approx(16), "producer")  # µs
    assert {(e["name"], e["pid"], e["tid"], e["args"]["name"]) for e in metadata} == {
        ("process_name", 0, 0, "block 0 on SM 0"),
        ("process_name", 9, 0, "block 9 on SM 3"),
        ("thread_name", 0, 0, "producer, warp 0"),
        ("thread_name", 0, 1, "consumer, warp 1"),
        ("thread_name", 9, 0, "producer, warp 0"),
    }
