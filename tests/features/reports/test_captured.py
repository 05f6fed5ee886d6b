"""From a capture to a run record, with a real report of ncu."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.errors import FlashcoreError
from flashcore.explain.readings import Readings
from flashcore.features.reports import kernels, traces
from flashcore.features.reports.assemble import record_of
from flashcore.features.reports.capture import Captured, Ran
from flashcore.features.reports.captured import record
from flashcore.features.reports.read import read_report
from flashcore.features.reports.survey import TIME, SurveyedLaunch, select, survey
from flashcore.model.causes import Hang
from flashcore.model.record import Source
from flashcore.pipeline import pages
from flashcore.records import store
from tests.recorded import RECORDED
from tests.support.judged import judged


@pytest.fixture
def captured(tmp_path: Path) -> Captured:
    """As if a command had launched what a recorded report holds, and all of it had been measured but one kernel."""
    report = tmp_path / "report.ncu-rep"
    shutil.copy(RECORDED / "reports" / "app_full.ncu-rep", report)
    rows = tuple(replace(r, metrics={TIME: r.metrics[TIME]}) for r in read_report(report).results)
    surveyed = survey(map(SurveyedLaunch.from_row, rows))
    cases = select(surveyed, 3)
    runs = (Ran("survey", 0, None, 1.0, report, rows), Ran("measure-1", 7, None, 2.0, report, rows))
    return Captured(runs, surveyed, (*cases, replace(cases[0], key=replace(cases[0].key, kernel="gone()"))), (), {})


def test_a_record_holds_the_cases_that_were_wanted_and_how_the_command_ran(captured: Captured, tmp_path: Path) -> None:
    made = record("20260101T000000Z-0001", "app", "./app --fast", captured, "2025.3.1")
    assert {v.imported for v in made.suite.variants.values()} == {case.key.kernel for case in captured.cases[:3]}
    assert made.suite.name == "app" and made.command == "./app --fast"
    assert [(s.stage, s.status, s.reason) for s in made.stages] == [
        ("survey", "ok", ""), ("measure-1", "failed", "the command ended with exit code 7"),
    ]  # fmt: skip
    saxpy = next(note for note in made.suite.notes if note.startswith("saxpy"))
    assert "saxpy <<<16384, 256>>>" in saxpy and "the first 1 of 5 launches are warm-up" in saxpy
    folder = store.begin(tmp_path, made.id)
    store.write(made, folder)
    assert len(store.read(store.complete(folder)).facts) == len(made.facts) > 100


def test_a_capture_lists_every_kernel_that_the_survey_saw(captured: Captured, tmp_path: Path) -> None:
    """Kernels of the whole command, with launches that ncu did not measure; limiters only for measured ones."""
    made = record("20260101T000000Z-0001", "app", "./app", replace(captured, by_ncu=None), "2025.3.1")
    folder = store.begin(tmp_path, made.id)
    store.write(made, folder)
    made = store.read(store.complete(folder))
    rows = kernels.rows(Readings(made))
    us = {case.key.kernel: case.us for case in captured.survey.cases}
    assert sorted((row.launches, round(row.us or 0, 3)) for row in rows) == sorted(
        (len(times), round(sum(times), 3)) for times in us.values()
    )
    assert [row.name for row in rows] == ["ns::strided<float>", "saxpy", "ns::strided<double>", "spilly<96>"]
    assert sum(row.percent or 0 for row in rows) == pytest.approx(100)
    assert [bool(row.limited_by) for row in rows] == [True, True, True, False]
    assert {fact.source for fact in made.facts.named(traces.TIME)} == {Source.CUPTI}
    assert all(fact.number != 0 for fact in made.facts.named(traces.TIME))
    pages.write(pages.ReportTarget(str(tmp_path / "pages"), single_file=False), judged(made))
    page = (tmp_path / "pages" / "index.html").read_text().partition("<main")[2]
    assert "spilly&lt;96&gt;" in page and "variant/spilly_96" not in page, "a kernel without a page of its own"
    assert "not measured under ncu" in page and "launched once: nothing was warm" in page
    assert "spilly<96>" in kernels.text(Readings(made))


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
    counted = json.loads((RECORDED / "captured_counts.json").read_bytes())[program]
    path = tmp_path / f"{report}.ncu-rep"
    shutil.copy(RECORDED / "reports" / path.name, path)
    theirs = record_of("20260101T000000Z-0000", [read_report(path)])
    compared = {
        (f.subject.case, f.name): (counted[str(f.subject.case)].get(f.name), f.number)
        for f in theirs.facts
        if f.subject.kernel is None and f.number is not None and f.name in counted.get(str(f.subject.case), {})
    }
    alike = [key for key, (mine, other) in compared.items() if mine == other]
    assert len(alike) >= least and {case for case, _ in compared} == {o.case for o in theirs.outcomes}
    for (case, name), (mine, other) in compared.items():
        if name.startswith(_VARY):
            assert mine == pytest.approx(other, rel=0.13), (case, name)
        else:
            assert mine == other, (case, name)
