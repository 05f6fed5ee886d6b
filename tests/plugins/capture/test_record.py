"""From a capture to a run record, with a real report of ncu."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.errors import FlashcoreError
from flashcore.model.causes import Hang
from flashcore.plugins.capture.capture import Captured, Ran
from flashcore.plugins.capture.record import record
from flashcore.plugins.capture.survey import TIME, Launch, select, survey
from flashcore.plugins.imports.assemble import record_of
from flashcore.plugins.imports.read_report import read_report
from flashcore.records import store
from tests.conftest import TESTS


@pytest.fixture
def captured(tmp_path: Path) -> Captured:
    """As if a command had launched what a recorded report holds, and all of it had been measured but one kernel."""
    report = tmp_path / "report.ncu-rep"
    report.write_bytes(lzma.decompress((TESTS / "data" / "reports" / "app_full.ncu-rep.xz").read_bytes()))
    rows = tuple(replace(r, metrics={TIME: r.metrics[TIME]}) for r in read_report(report).results)
    surveyed = survey(map(Launch.from_row, rows))
    cases = select(surveyed, 3)
    runs = (Ran("survey", 0, None, 1.0, report, rows), Ran("measure-1", 7, None, 2.0, report, rows))
    return Captured(runs, surveyed, (*cases, replace(cases[0], key=replace(cases[0].key, kernel="gone()"))), (), {})


def test_a_record_holds_the_cases_that_were_wanted_and_how_the_command_ran(captured: Captured, tmp_path: Path) -> None:
    made, _ = record("20260101T000000Z-0001", "app", "./app --fast", captured, "2025.3.1")
    assert {v.imported for v in made.suite.variants.values()} == {case.key.kernel for case in captured.cases[:3]}
    assert made.suite.name == "app" and made.command == "./app --fast"
    assert [(s.stage, s.status, s.reason) for s in made.stages] == [
        ("survey", "ok", ""), ("measure-1", "failed", "the command ended with exit code 7"),
    ]  # fmt: skip
    saxpy = next(note for note in made.suite.notes if note.startswith("saxpy"))
    assert "saxpy <<<16384, 256>>>" in saxpy and "5 launches" in saxpy and "first 1 are warm-up" in saxpy
    assert any("1 more kernels" in note for note in made.suite.notes)
    folder = store.begin(tmp_path, made.id)
    store.write(made, folder)
    assert len(store.read(store.complete(folder)).facts) == len(made.facts) > 100


def test_nothing_measured_is_no_record(captured: Captured) -> None:
    empty = replace(captured, runs=(captured.runs[0], replace(captured.runs[1], rows=(), cause=Hang(5))))
    with pytest.raises(FlashcoreError, match=r"expected one of the 4 kernels to be measured, found none: no answer"):
        record("20260101T000000Z-0001", "app", "./app", empty, None)


#: What differs from run to run: times, and what depends on which warp came first and what was in a cache.
_VARY = ("ncu_duration", "elapsed_cycles", "instructions_issued", "l2_", "dram_", "bank_conflicts", "shared_wavefronts")


@pytest.mark.parametrize(("program", "report", "least"), [("app", "app_full", 170), ("tri", "triton_full", 75)])
def test_a_capture_on_an_h200_counted_what_ncu_did_in_a_report_of_its_own(
    program: str, report: str, least: int, tmp_path: Path
) -> None:
    """``flashcore capture`` of the programs of the recorded reports: ``app.cu`` and ``tri.txt``."""
    counted = json.loads((TESTS / "data" / "captured_counts.json").read_bytes())[program]
    path = tmp_path / f"{report}.ncu-rep"
    path.write_bytes(lzma.decompress((TESTS / "data" / "reports" / f"{report}.ncu-rep.xz").read_bytes()))
    theirs = record_of("20260101T000000Z-0000", [read_report(path)])
    compared = {
        (f.subject.case, f.name): (counted[f.subject.case].get(f.name), f.number)
        for f in theirs.facts
        if f.subject.kernel is None and f.number is not None and f.name in counted.get(f.subject.case, {})
    }
    alike = [key for key, (mine, other) in compared.items() if mine == other]
    assert len(alike) >= least and {case for case, _ in compared} == {o.case for o in theirs.outcomes}
    for (case, name), (mine, other) in compared.items():
        if name.startswith(_VARY):
            assert mine == pytest.approx(other, rel=0.13), (case, name)
        else:
            assert mine == other, (case, name)
