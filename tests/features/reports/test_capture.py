"""A command under a stand-in for ncu that runs it: real processes, which end, crash, hang and are killed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.features.reports import capture as capturing
from flashcore.features.reports.capture import OUTPUT
from flashcore.model.causes import Hang
from tests.support.capturing import LOOP, TARGET, measured, run


def test_the_kernels_that_cost_the_time_are_measured_in_a_second_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCU_LOG", str(tmp_path / "log"))
    result = run(LOOP, tmp_path)
    assert [(ran.name, ran.code) for ran in result.runs] == [("survey", 0), ("measure-1", 0)]
    assert measured(result) == {"_Z3bigIfEvPf", "_Z5smalli"} and not result.missed
    assert (tmp_path / "survey" / OUTPUT).read_text() == "begins\n"
    assert result.runs[1].report == tmp_path / "measure-1" / "report.ncu-rep" and result.runs[1].report.exists()
    calls = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    profiling = [call for call in calls if "--import" not in call]
    for option, values in (
        ("--clock-control", ["none", "none"]),
        ("--target-processes", ["all", "all"]),
        ("--cache-control", ["none", "all"]),  # the first pass times launches as the command left the caches
    ):
        assert [call[call.index(option) + 1] for call in profiling] == values


def test_a_command_that_crashes_leaves_what_it_launched(tmp_path: Path) -> None:
    result = run(LOOP + "os.kill(os.getpid(), signal.SIGSEGV)", tmp_path)
    assert [ran.code for ran in result.runs] == [signal.SIGSEGV] * 2 and len(measured(result)) == 2


def test_a_hang_is_ended_and_what_was_measured_is_kept(tmp_path: Path) -> None:
    """Nor does it go by itself: neither the command nor what it started heeds SIGTERM."""
    stubborn = f"import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(99)  # {tmp_path.name}"
    starts = f"""
import subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, '-c', {stubborn!r}])
"""
    result = run(starts + LOOP + "time.sleep(99)", tmp_path, time_limit=5)
    survey, measure = result.runs
    assert survey.code is None and survey.cause == Hang(5) and len(survey.rows) == 30
    assert len(measured(result)) == 2 and not result.missed and measure.cause == Hang(5)
    assert not [p for p in _command_lines() if tmp_path.name in p and "time.sleep(99)" in p]


def test_a_command_that_hung_is_ended_once_its_launches_are_measured(tmp_path: Path) -> None:
    survey, measure = run(LOOP + "time.sleep(99)", tmp_path, time_limit=5).runs
    assert survey.cause == Hang(5) and measure.code is None and measure.cause == capturing.Stopped()


def _command_lines() -> list[str]:
    return [p.read_bytes().replace(b"\0", b" ").decode(errors="replace") for p in Path("/proc").glob("[0-9]*/cmdline")]


def test_several_processes_are_all_seen(tmp_path: Path) -> None:
    result = run(
        "import subprocess\nfor name in 'ab':\n"
        "    subprocess.run([sys.executable, '-c', sys.argv[0] and '' or "
        f"{TARGET!r} + f'for i in range(5): launch({{name!r}}, us=9)'])",
        tmp_path,
    )
    assert measured(result) == {"a", "b"} and not result.missed


def test_a_command_that_does_not_launch_the_same_again_is_asked_again(tmp_path: Path) -> None:
    """The first run launches many more of them before; the window that was seen is past what comes."""
    body = f"""
count = 40 if not os.path.exists({str(tmp_path / "again")!r}) else 12
open({str(tmp_path / "again")!r}, "w").close()
for i in range(count): launch("mm(int)", us=5)
"""
    result = run(body, tmp_path / "run")
    assert measured(result) == {"mm(int)"} and not result.missed and len(result.runs) > 2


def test_what_is_never_launched_again_is_said(tmp_path: Path) -> None:
    body = f"""
for i in range(4): launch("stays(int)", us=5)
if not os.path.exists({str(tmp_path / "again")!r}): launch("once(int)", us=9)
open({str(tmp_path / "again")!r}, "w").close()
"""
    result = run(body, tmp_path / "run")
    assert [case.key.kernel for case in result.missed] == ["once(int)"] and measured(result) == {"stays(int)"}


def test_a_metric_that_ncu_refuses_costs_a_run_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCU_STANDIN", "refuses=dram__bytes_read.sum")
    result = run(LOOP, tmp_path)
    assert list(result.refused) == ["dram__bytes_read.sum"] and len(measured(result)) == 2


def test_filters_by_kernel_and_by_count(tmp_path: Path) -> None:
    result = run(LOOP, tmp_path, kernel="small|tiny", skip=1, count=1)
    assert len(result.survey.cases) == 2 and measured(result) == {"tiny(int)"}


def test_a_machine_that_lets_no_counters_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCU_STANDIN", "permission")
    with pytest.raises(CapabilityError, match="no permission"):
        run(LOOP, tmp_path)


def test_a_command_without_kernels_is_said_with_how_it_ended(tmp_path: Path) -> None:
    with pytest.raises(FlashcoreError, match=r"found none \(the command ended with exit code 3"):
        run("sys.exit(3)", tmp_path)


def test_filters_that_let_nothing_pass_are_said(tmp_path: Path) -> None:
    with pytest.raises(FlashcoreError, match="30 launches of which the filters let none pass"):
        run(LOOP, tmp_path, skip=99)


def test_a_plain_run_comes_first_on_request_and_the_command_has_its_own_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    listed = (
        "os.environ.get('TRITON_CACHE_AUTOTUNING'), 'PYTHONPATH' in os.environ, 'FLASHCORE_SUPERVISOR' in os.environ"
    )
    result = run(f"print({listed})\nif 'NCU_LAUNCHES' in os.environ: launch('a(int)')", tmp_path, settle=True)
    assert [ran.name for ran in result.runs] == ["plain", "survey", "measure-1"]
    assert {(tmp_path / ran.name / OUTPUT).read_text() for ran in result.runs} == {"1 False False\n"}
