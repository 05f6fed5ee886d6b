"""The page of a recording."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.model.intervals import Ratio
from flashcore.plugins.phases import page
from flashcore.plugins.phases.record import Recording
from flashcore.plugins.phases.timeline import timeline
from tests.plugins.phases.test_timeline import PIPELINE, call


@pytest.fixture
def recording() -> Recording:
    line = timeline([call(*PIPELINE)])
    return Recording("wide/small", "a GPU", line, 40.0, "back_to_back", 36.0, 30.0, Ratio(1.2, 1.1, 1.3), 1024)


def test_every_warp_is_a_lane_with_its_phases(recording: Recording, tmp_path: Path) -> None:
    page.write(recording, tmp_path / "new" / "phases.html")
    text = (tmp_path / "new" / "phases.html").read_text(encoding="utf-8")
    (picture,) = re.findall(r"<svg class=\"timeline\".*?</svg>", text, re.DOTALL)
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", picture)
    lanes = ["block 0, SM 0", "consumer, warp 1", "producer, warp 0", "block 9, SM 3", "producer, warp 0"]
    assert labels[: len(lanes)] == lanes and labels[-1] == "35,200 ns"
    assert re.findall(r"</title></path>", picture) == 6 * ["</title></path>"]
    assert "<script" not in text and "http" not in text.replace("http-equiv", "")


def test_the_overhead_and_the_clock_are_beside_the_picture(recording: Recording, tmp_path: Path) -> None:
    page.write(recording, tmp_path / "phases.html")
    text = (tmp_path / "phases.html").read_text(encoding="utf-8")
    overhead, clock, recorded = page.notes(recording)
    assert "36.00 µs with markers, 30.00 µs without (back to back): 1.200 times as long [1.100, 1.300]" in overhead
    assert "clock64" in clock and "globaltimer" in clock and f"{recording.line.step} ns" in clock
    assert "3 warps of 2 blocks" in recorded and "no phase was dropped" in recorded
    assert all(note in text for note in (overhead, clock, recorded))


def test_dropped_phases_are_said(recording: Recording) -> None:
    lost = replace(recording, line=replace(recording.line, dropped=7))
    assert "7 later phases had no place (--events 1024)" in page.notes(lost)[-1]


def test_the_table_has_a_row_for_each_role_and_phase(recording: Recording) -> None:
    rows = {(role, phase): rest for role, phase, *rest in page.table(recording)}
    assert rows["producer", "load"] == ["2", "1", "16,000", "50.0 %", "consumer scores, 25 %"]
