"""What a maintainer is told in the morning, from real stores; and what must not pass as good news."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.model.record import Facts, Record
from flashcore_trends.series import COUNTERS
from tests.marks import embedded
from tests.support.nights import run_of, write

pytest.importorskip("numpy")
NIGHTS, SLOW = 30, 27


def slower(case: str, night: int) -> float:
    return 1.05 if case == "fast/mission" and night >= SLOW else 1.0


def edited(case: str, night: int) -> str:
    return "b" if case.startswith("fast/") and night >= SLOW else "a"


def view(page: str, at: int) -> dict[str, Any]:
    """A view of the page's chart: its label, its lines and its layout."""
    figure = embedded(page, "trends-times")
    (menu,) = figure["layout"]["updatemenus"]
    button = menu["buttons"][at]
    visible, layout = button["args"][0]["visible"], button["args"][1]
    lines = [line for line, shown in zip(figure["data"], visible, strict=True) if shown]
    return {"label": button["label"], "data": lines, "layout": layout}


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "profiles"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["trends", *words])
    return code, capsys.readouterr().out


def changes(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, Any]]]:
    code, out = told(capsys, "--format", "json", *words)
    return code, json.loads(out)["changes"]


def test_a_slower_kernel_is_blamed_once_and_its_harmless_rewrite_is_not(
    profiles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(profiles, NIGHTS, slower, code=edited)
    code, (change,) = changes(capsys, "--since", run_of(SLOW - 1))
    assert code == Exit.FAILED and change["case"] == "fast/mission" and change["new"], "fast/long was rewritten too"
    assert change["blame"] == "kernel" and 3.5 < change["percent"] < 6.5
    assert change["run"] == run_of(SLOW) and change["commits"] == f"{SLOW - 1:06d}000000..{SLOW:06d}000000"
    _, text = told(capsys, "--since", run_of(SLOW - 1), "--format", "github")
    assert text.startswith("::error title=flashcore trends::fast/mission") and "%25 slower" in text
    _, text = told(capsys, "--since", run_of(SLOW - 1), "--format", "markdown")
    assert "- **slower** fast/mission" in text and "other machine code" in text
    code, text = told(capsys, "--since", run_of(NIGHTS - 1))
    assert code == Exit.UNMEASURED and "found none" in text, "the night's run is missing"
    write(profiles, NIGHTS + 2, slower, code=edited, first=NIGHTS)
    assert told(capsys) == (Exit.OK, ""), "nothing new, nothing said: it was told on an earlier morning"
    assert told(capsys, "--since", "yesterday")[0] == Exit.USAGE


def test_unchanged_code_that_moved_with_the_driver_is_the_machine(
    profiles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        profiles,
        NIGHTS,
        lambda case, night: 1.05 if case == "fast/mission" and night >= SLOW else 1.0,
        machine=lambda night: {"driver": "590.1"} if night >= SLOW else {},
    )
    code, (change,) = changes(capsys, "--since", run_of(SLOW - 1))
    assert code == Exit.OK and change["blame"] == "machine" and change["reasons"] == ["driver 580.1 → 590.1"]
    assert "the machine, not the kernel: driver" in told(capsys, "--since", run_of(SLOW - 1))[1]


def test_unchanged_code_that_moved_for_no_recorded_reason_is_the_machine(
    profiles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(profiles, NIGHTS, slower)
    code, (change,) = changes(capsys, "--since", run_of(SLOW - 1))
    assert code == Exit.OK and change["blame"] == "machine" and change["reasons"] == []


def test_code_and_driver_changed_in_one_night_is_undecided_and_no_pass(
    profiles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(profiles, NIGHTS, slower, code=edited, machine=lambda night: {"driver": "590.1"} if night >= SLOW else {})
    code, (change,) = changes(capsys, "--since", run_of(SLOW - 1))
    assert code == Exit.UNMEASURED and change["blame"] == "undecided"


def test_what_a_night_does_to_all_cases_is_no_kernel(profiles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        profiles,
        NIGHTS,
        lambda case, night: 1.04 if night >= SLOW else 1.0,
        code=lambda case, night: "b" if case == "fast/mission" and night >= SLOW else "a",
        machine=lambda night: {"gpu_uuid": "GPU-b"} if night >= SLOW else {},
    )
    code, text = told(capsys, "--since", run_of(SLOW - 1))
    assert code == Exit.OK and "all cases took +" in text and "the machine" in text and "the kernel:" not in text


def test_an_empty_store_or_a_short_one_is_no_pass(profiles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = told(capsys)
    assert code == Exit.UNMEASURED and "found at most 0" in text
    write(profiles, 6)
    code, text = told(capsys)
    assert code == Exit.UNMEASURED and "expected 7 runs that timed a case, found at most 6" in text


def without(variant: str, record: Record) -> Record:
    outcomes = tuple(o for o in record.outcomes if o.variant != variant)
    facts = Facts(f for f in record.facts if f.subject.variant != variant or f.subject.arch)
    samples = {key: times for key, times in record.raw_samples.items() if key[0].variant != variant}
    return replace(record, outcomes=outcomes, facts=facts, raw_samples=samples)


def test_a_case_that_is_no_longer_timed_is_told_once(profiles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(profiles, NIGHTS, edit=lambda record, night: without("fast", record) if night == NIGHTS - 1 else record)
    code, text = told(capsys)
    assert code == Exit.UNMEASURED and "fast/mission: not timed in the newest runs" in text
    write(profiles, NIGHTS + 1, first=NIGHTS, edit=lambda record, _: without("fast", record))
    assert told(capsys) == (Exit.OK, "")


def test_a_missing_night_and_two_runs_of_one_night_change_nothing(
    profiles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(profiles, SLOW, slower, code=edited)
    write(profiles, NIGHTS, slower, code=edited, first=SLOW + 1)
    twice = run_of(NIGHTS - 1).replace("T03", "T05")
    write(profiles, NIGHTS, slower, code=edited, first=NIGHTS - 1, edit=lambda record, _: replace(record, id=twice))
    code, (change,) = changes(capsys, "--since", run_of(SLOW - 1))
    assert code == Exit.FAILED and change["run"] == run_of(SLOW + 1) and change["run_before"] == run_of(SLOW - 1)


def test_joined_times_are_no_new_nights(profiles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Times that a run without a GPU took over from another run say nothing about its own night."""

    def joined(record: Record, night: int) -> Record:
        return replace(record, outcomes=tuple(replace(o, origin=run_of(3)) for o in record.outcomes))

    write(profiles, 5)
    write(profiles, NIGHTS, first=5, edit=joined)
    code, text = told(capsys)
    assert code == Exit.UNMEASURED and "found at most 5" in text


def spilling(record: Record, night: int) -> Record:
    """The slow kernel spills."""
    spilled = [
        replace(f, value=64) if f.name == "spill_store_bytes" and f.subject.variant == "fast" and night >= SLOW else f
        for f in record.facts
    ]
    return replace(record, facts=Facts(spilled))


def test_the_page_shows_severity_drawings_and_what_was_not_judged(
    profiles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jinja2")
    write(profiles, NIGHTS, slower, code=edited, edit=spilling)
    assert told(capsys, "-o", "reports", "--since", run_of(SLOW - 1))[0] == Exit.FAILED
    page = (profiles.parent / "reports" / "trends.html").read_text()
    assert "fast/mission" in page and "7 cases kept their level" in page
    assert {line["name"] for line in view(page, 0)["data"]} == {"fast/mission", "split/mission", "split/long"}
    figure = view(page, 1)
    every = ["time, µs", "floor, µs", "bench_sm_clock", *COUNTERS, "spill_store_bytes"]
    lines = {line["name"]: line for line in figure["data"]}
    assert list(lines) == every, "the static facts that did not change are left out"
    assert all(line["x"] == [*range(NIGHTS)] and len(line["y"]) == NIGHTS for line in lines.values()), "one axis"
    assert lines["spill_store_bytes"]["y"][SLOW - 1 : SLOW + 1] == [0, 64]
    marked = figure["layout"]["xaxis"]["ticktext"]
    assert [f"{night:06d}00" in marked for night in (0, SLOW, NIGHTS - 1, 1)] == [True, True, True, False]
    (change,) = [shape for shape in figure["layout"]["shapes"] if shape.get("yref") == "paper"]
    assert change["x0"] == SLOW - 0.5 and change["line"]["dash"] == "solid", "the kernel changed"
    told(capsys, "slow/mission", "-o", "other")
    other = (profiles.parent / "other" / "trends.html").read_text()
    assert view(other, 1)["label"] == "slow/mission" and "fast/mission" not in other, "a case that kept its level"
    assert f"{SLOW - 1:06d}000000..{SLOW:06d}000000" in page
    told(capsys, "-o", "again", "--since", run_of(SLOW - 1))
    assert (profiles.parent / "again" / "trends.html").read_text() == page, "the same bytes"


def test_the_history_of_a_report_has_the_trends_of_its_suite(profiles: Path) -> None:
    pytest.importorskip("jinja2")
    write(profiles, NIGHTS, slower, code=edited)
    assert main(["report", "-o", "reports"]) == Exit.OK
    text = (profiles.parent / "reports" / "history.html").read_text()
    assert view(text, 1)["label"] == "fast/mission" and "variant/fast.html?shape=mission" in text
    (menu,) = re.findall('<nav aria-label="Pages">.*?</nav>', text, re.DOTALL)
    assert menu.count("History") == 1 and "Trends" not in menu
