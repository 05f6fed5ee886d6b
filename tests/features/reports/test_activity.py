"""A command's launches through CUPTI: the injected library is compiled and run, with a stand-in for libcupti."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.errors import CapabilityError
from flashcore.features.reports import activity
from flashcore.features.reports.activity import (
    CUPTI_FAILED,
    NO_CUPTI,
    NOTHING_RECORDED,
    ONLY_NCU,
    RECORDS_DROPPED,
    ActivityRecorder,
)
from flashcore.features.reports.capture import CaptureSettings, capture
from flashcore.features.reports.survey import LaunchKey, SurveyedLaunch
from flashcore.machine import toolchain
from flashcore.machine.ncu import find_ncu
from flashcore.model.cause import Cause
from tests.conftest import gpu_lease
from tests.support.capturing import LOOP, command, measured, run

Run = Callable[[str], tuple[dict[str, list[SurveyedLaunch]], Cause | None]]


@pytest.fixture
def ran(recorder: ActivityRecorder, tmp_path: Path) -> Run:
    """Runs a script with the library; what its processes recorded."""

    def start(body: str) -> tuple[dict[str, list[SurveyedLaunch]], Cause | None]:
        folder = tmp_path / "launches"
        folder.mkdir()
        subprocess.run(command(body), env={**os.environ, **recorder.environment(folder)}, check=False)
        return activity.read(folder)

    return start


def names(launches: list[SurveyedLaunch]) -> list[str]:
    return [launch.key.kernel for launch in launches]


def test_a_launch_is_recorded_whole(ran: Run) -> None:
    launches, cause = ran("launch('_Z1k\\\"v', us=2.5, grid=(3, 4, 5), block=(6, 7, 8), registers=90)")
    ((launch,),) = launches.values()
    assert cause is None and launch.us == 2.5
    assert launch.key == LaunchKey('_Z1k"v', (3, 4, 5), (6, 7, 8), ("90", "0", "0"))


@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit(3)",
        "time.sleep(1); os._exit(0)",
        "time.sleep(1); os.kill(os.getpid(), signal.SIGKILL)",
        "time.sleep(1); os.kill(os.getpid(), signal.SIGSEGV)",
        "time.sleep(1); os.execv('/bin/true', ['true'])",
        "os.fork() or os._exit(0); os.wait()",
        "os.fork() or sys.exit(0); os.wait()",
    ],
)
def test_launches_outlive_every_end_of_a_process(ran: Run, end: str) -> None:
    launches, cause = ran(f"for i in range(3): launch('a')\n{end}")
    assert cause is None and [*map(names, launches.values())] == [["a"] * 3]


def test_each_process_and_each_exec_has_its_own_launches(ran: Run) -> None:
    again, child = command("launch('after')"), command("launch('child')")
    launches, _ = ran(
        "import subprocess\nif os.fork() == 0: launch('forked'); sys.exit()\n"
        f"launch('first'); subprocess.run({child!r}); subprocess.run(['true']); os.wait()\n"
        f"time.sleep(1); os.execv(sys.executable, {again!r})"
    )
    processes: dict[str, list[str]] = {}
    for name, each in launches.items():
        processes.setdefault(name.partition("-")[0], []).extend(names(each))
    assert sorted(processes.values()) == [["child"], ["first", "after"], ["forked"]] and len(launches) == 4


def test_launches_are_in_the_order_of_their_calls_and_a_graphs_as_they_ran(ran: Run) -> None:
    launches, _ = ran("for name, call in (('d', 9), ('a', 3), ('b', 7), ('c', 7)): launch(name, call=call)")
    assert [*map(names, launches.values())] == [["a", "b", "c", "d"]]


def test_many_launches_are_all_recorded_and_one_without_times_keeps_its_place(ran: Run) -> None:
    launches, cause = ran("for i in range(12_000): launch(f'k{i % 7}', us=i % 2)")
    ((each),) = launches.values()
    assert cause is None and names(each) == [f"k{i % 7}" for i in range(12_000)]
    assert [launch.us for launch in each[:2]] == [None, 1.0]


def test_a_line_that_was_cut_is_left_out(ran: Run, tmp_path: Path) -> None:
    ran("for i in range(3): launch('a')")
    (file,) = (tmp_path / "launches").iterdir()
    assert [type(json.loads(line)) for line in file.read_text().splitlines()] == [dict, dict, list, list, list]
    file.write_bytes(file.read_bytes()[:-4])
    assert [*map(len, activity.read(tmp_path / "launches")[0].values())] == [2]


def test_a_process_without_cuda_writes_nothing(ran: Run) -> None:
    assert ran("print()") == ({}, NOTHING_RECORDED())


def test_a_capture_runs_the_command_twice_and_ncu_measures_only(
    recorder: ActivityRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCU_LOG", str(tmp_path / "log"))
    captured = run(LOOP, tmp_path, recorder=recorder, kernel="big|small")
    assert [(ran.name, ran.code) for ran in captured.runs] == [("survey", 0), ("measure-1", 0)]
    assert measured(captured) == {"_Z3bigIfEvPf", "_Z5smalli"} and not captured.missed and captured.by_ncu is None
    assert [case.us[0] for case in captured.survey.cases] == [50, 2] and "tiny(int)" not in str(captured.survey)
    calls = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert sum("--import" not in call for call in calls) == 1


def test_a_measured_launch_is_matched_if_ncu_counts_its_registers_differently(
    recorder: ActivityRecorder, tmp_path: Path
) -> None:
    body = "for i in range(9): launch('_Z1kv', registers=40 if 'FLASHCORE_CUPTI' in os.environ else 48)"
    captured = run(body, tmp_path, recorder=recorder)
    assert [ran.name for ran in captured.runs] == ["survey", "measure-1"] and not captured.missed


def test_only_so_many_launches_are_considered(recorder: ActivityRecorder, tmp_path: Path) -> None:
    captured = run(LOOP, tmp_path, recorder=recorder, kernel="small|tiny", skip=1, count=1)
    assert measured(captured) == {"tiny(int)"} and sum(len(case.us) for case in captured.survey.cases) == 2


@pytest.mark.parametrize(
    ("mode", "cause"),
    [
        ("fails", CUPTI_FAILED("cuptiActivityEnable", "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")),
        ("drops", RECORDS_DROPPED(3)),
        ("gone", CUPTI_FAILED("dlopen", "")),
        ("none", NOTHING_RECORDED()),
        ("nvtx", ONLY_NCU("--nvtx")),
    ],
)
def test_where_cupti_cannot_ncu_surveys_and_the_cause_is_typed(
    recorder: ActivityRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, cause: Cause
) -> None:
    monkeypatch.setenv("CUPTI_STANDIN", mode)
    if mode == "gone":
        recorder = ActivityRecorder(recorder.library, tmp_path)
    loads = "ctypes.CDLL(os.environ['CUDA_INJECTION64_PATH']).InitializeInjection()" if mode == "gone" else "pass"
    body = f"if 'NCU_LAUNCHES' not in os.environ: {loads}; sys.exit()\n" if mode in ("gone", "none") else ""
    body += LOOP
    captured = run(body, tmp_path, recorder=recorder, nvtx="range" if mode == "nvtx" else None)
    surveys = ["survey"] if mode == "nvtx" else ["survey", "survey-ncu"]
    assert [(ran.name, ran.code) for ran in captured.runs] == [(name, 0) for name in (*surveys, "measure-1")]
    assert len(measured(captured)) == 2
    assert captured.by_ncu == cause or (mode == "gone" and getattr(captured.by_ncu, "code", "") == CUPTI_FAILED.code)


def test_the_library_is_compiled_once(recorder: ActivityRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = activity.include_folders()
    monkeypatch.setenv("XDG_CACHE_HOME", str(recorder.library.parents[1]))
    before = recorder.library.stat()
    assert activity.compiled(headers) == recorder.library and recorder.library.stat() == before


def test_a_machine_that_cannot_compile_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", sys.executable)  # no compiler
    with pytest.raises(CapabilityError, match=re.escape(activity.SOURCE.name)):
        activity.compiled((tmp_path,))
    monkeypatch.setattr(toolchain, "site_packages", list)
    monkeypatch.setattr(toolchain, "find_nvcc", lambda: toolchain.Nvcc(tmp_path, tmp_path, "13.0", "13.0.88"))
    if not Path("/usr/local/cuda/include/cupti.h").is_file():
        assert getattr(activity.recorder(), "code", "") == NO_CUPTI.code


#: Several streams, and a graph that is replayed.
TRAIN = """
import torch
side, x = torch.cuda.Stream(), torch.ones(1 << 12, device="cuda")
for step in range(5):
    y = (x * 2).relu().sum()
    with torch.cuda.stream(side):
        z = x[: 1 << 10] * 3
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    w = (x + 1).relu().exp()
for step in range(5):
    graph.replay()
torch.cuda.synchronize()
"""


@pytest.mark.gpu
def test_on_a_gpu_cupti_and_ncu_count_the_same_launches_in_the_same_order(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    recorder, script = activity.recorder(), [sys.executable, "-c", TRAIN]
    assert isinstance(recorder, ActivityRecorder)
    settings = CaptureSettings(ncu=find_ncu(), recorder=recorder, top=1)
    with gpu_lease(), ThreadPoolExecutor() as pool:
        started = pool.submit(capture, script, tmp_path / "cupti", settings)
        by_ncu = capture(script, tmp_path / "ncu", replace(settings, recorder=NO_CUPTI("")))
        by_cupti = started.result()
    assert by_cupti.by_ncu is None and not by_cupti.missed and by_cupti.runs[0].code == 0
    assert [*by_cupti.survey.launches.values()] == [*by_ncu.survey.launches.values()]
    assert {case.key for case in by_cupti.survey.cases} == {case.key for case in by_ncu.survey.cases}
