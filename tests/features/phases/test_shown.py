"""What is shown of a recording: the table, the notes, the page and the trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashcore.features.phases import shown
from flashcore.features.phases.record import Recording
from flashcore.features.phases.timeline import UNMARKED, timeline
from tests.features.phases.dumps import EVENTS, PIPELINE, Entry, dump
from tests.marks import embedded

MARKED, PLAIN = (33.0, 36.0, 39.0), (30.0, 30.0, 30.0)


def of(*entries: Entry) -> Recording:
    line = timeline(dump(*entries), EVENTS)
    return Recording("wide/small", "a GPU", line, 40.0, "back_to_back", [MARKED, PLAIN])


@pytest.fixture
def recording() -> Recording:
    return of(*PIPELINE)


def rows(recording: Recording) -> dict[tuple[str, str], list[str]]:
    return {(role, phase): rest for role, phase, *rest in shown.table(recording.line.spans)}


def page(recording: Recording, folder: Path) -> str:
    shown.write(recording, folder / "phases.html")
    return (folder / "phases.html").read_text(encoding="utf-8")


# --- the table ----------------------------------------------------------------------------------


def test_the_table_has_each_roles_phases_with_what_overlaps_them(recording: Recording) -> None:
    # In block 0 the consumer's scores, from 8 to 24 µs, are half of each: a quarter of both blocks' time.
    assert rows(recording) == {
        ("producer", UNMARKED): ["2", "1", "0", "0.0 %", "-"],
        ("producer", "load"): ["2", "1", "16,000", "50.0 %", "consumer scores, 25 %"],
        ("producer", "wait"): ["2", "1", "16,000", "50.0 %", "consumer scores, 25 %"],
        ("consumer", UNMARKED): ["1", "1", "4,800", "15.0 %", "-"],
        ("consumer", "scores"): ["1", "1", "16,000", "50.0 %", "producer load, 50 %"],
        ("consumer", "output"): ["1", "1", "8,000", "25.0 %", "producer wait, 100 %"],
    }
    assert [phase for _, phase in rows(recording)][:2] == [UNMARKED, "load"]
    assert len(shown.HEADINGS) == len(shown.table(recording.line.spans)[0])


def test_an_overlap_is_of_the_time_in_which_any_warp_is_in_a_phase() -> None:
    """Two warps copy from 0 to 4 and from 2 to 6 µs, a third one adds from 1 to 9 µs, another block's at all times."""
    table = rows(
        of(
            Entry(0, "fetch", 0, 8000, [(0, "copy")]),
            Entry(1, "fetch", 4000, 12_000, [(4000, "copy")]),
            Entry(2, "math", 2000, 18_000, [(2000, "add")]),
            Entry(0, "other", 0, 20_000, [(0, "rest")], block=1, slot=1, sm=1),
        )
    )
    assert table["fetch", "copy"][-1] == "math add, 83 %"  # 5 of 6 µs
    assert table["math", "add"][-1] == "fetch copy, 62 %"  # 5 of 8 µs
    assert table["other", "rest"][-1] == "-"


def test_a_phase_that_is_entered_again_is_one_row() -> None:
    table = rows(of(Entry(0, "all", 0, 8000, [(0, "load"), (2000, "add"), (4000, "load"), (6000, "add")])))
    assert table["all", "load"] == ["1", "2", "2,000", "50.0 %", "-"]


# --- the notes ----------------------------------------------------------------------------------


def test_the_overhead_and_the_clock_are_beside_the_picture(recording: Recording, tmp_path: Path) -> None:
    overhead, clock, recorded = shown.notes(recording)
    assert "36.00 µs with markers, 30.00 µs without (back to back): 1.200 times as long [1.100, 1.300]" in overhead
    assert "clock64" in clock and "globaltimer" in clock and "2.000 cycles per ns" in clock
    assert "3 warps of 2 blocks in 35,200 ns" in recorded and "40.000 µs" in recorded
    assert "no phase was dropped" in recorded
    assert all(note in page(recording, tmp_path) for note in (overhead, clock, recorded))


def test_dropped_phases_are_said() -> None:
    lost = of(Entry(0, "all", 0, 64_000, [(1000 * i, f"p{i}") for i in range(EVENTS + 7)]))
    assert "7 later phases had no place and are missing (raise --events)" in shown.notes(lost)[-1]


# --- the page -----------------------------------------------------------------------------------


def test_every_warp_is_a_lane_with_its_phases(recording: Recording) -> None:
    drawn = shown.figure(recording.line.spans)["data"]
    spans = {
        (trace["name"], lane, start, end)
        for trace in drawn
        for start, end, lane in zip(trace["x"][::3], trace["x"][1::3], trace["y"][::3], strict=True)
    }
    assert {lane for _, lane, _, _ in spans} == {
        (consumer := "block 0, SM 0: consumer, warp  1"),
        "block 0, SM 0: producer, warp  0",
        "block 9, SM 3: producer, warp  0",
    }
    assert len(spans) == 6 and all({*trace["x"][2::3]} == {None} for trace in drawn)
    assert {span for span in spans if span[1] == consumer} == {
        ("scores", consumer, 8000.0, 24_000.0),
        ("output", consumer, 24_000.0, 32_000.0),
    }


def test_the_page_has_the_table_and_fetches_nothing(recording: Recording, tmp_path: Path) -> None:
    text = page(recording, tmp_path)
    assert embedded(text, "phases") == shown.figure(recording.line.spans)
    assert "<script src" not in text and 'rel="stylesheet"' not in text
    for row in (shown.HEADINGS, *shown.table(recording.line.spans)):
        assert all(f">{cell.replace(chr(39), '&#39;')}</t" in text for cell in row)


# --- the trace ----------------------------------------------------------------------------------


def test_the_trace_is_in_the_trace_event_format(recording: Recording) -> None:
    data = json.loads(json.dumps(shown.trace(recording), allow_nan=False))
    assert data["displayTimeUnit"] in ("ms", "ns") and data["otherData"] == {"notes": shown.notes(recording)}
    complete = [e for e in data["traceEvents"] if e["ph"] == "X"]
    metadata = [e for e in data["traceEvents"] if e["ph"] == "M"]
    assert len(complete) == len(recording.line.spans)
    assert len(complete) + len(metadata) == len(data["traceEvents"])
    for event in complete:
        assert event.keys() == {"ph", "name", "cat", "pid", "tid", "ts", "dur"}
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert event["ts"] >= 0 and event["dur"] >= 0
    load = next(e for e in complete if e["name"] == "load" and e["pid"] == 9)
    assert (load["ts"], load["dur"], load["cat"]) == (pytest.approx(3.2), pytest.approx(16), "producer")  # µs
    assert sorted((e["name"], e["pid"], e["tid"], e["args"]["name"]) for e in metadata) == [
        ("thread_name", 0, 0, "producer, warp 0, block 0, SM 0"),
        ("thread_name", 0, 1, "consumer, warp 1, block 0, SM 0"),
        ("thread_name", 9, 0, "producer, warp 0, block 9, SM 3"),
    ]
