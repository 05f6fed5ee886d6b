"""What a run begins with: the suite as the user asks for it, and the machine's roofs."""

from __future__ import annotations

import datetime
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flashcore.cli.main import main
from flashcore.errors import FlashcoreError
from flashcore.gate import judge
from flashcore.measure import gpu_stages
from flashcore.measure.context import Context
from flashcore.measure.machine import gpu_choice, toolchain
from flashcore.measure.machine.gpu import Gpu
from flashcore.measure.settings import Settings
from flashcore.measure.workers.pool import Pool
from flashcore.model.record import Record
from flashcore.pipeline import resume
from flashcore.pipeline import run as run_module
from flashcore.pipeline.opening import open_context
from flashcore.records import store
from tests import factory, stages
from tests.conftest import TOY, published_run


def test_archs_that_are_not_asked_about_are_not_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Settings(suite=str(TOY), build=str(tmp_path), upto=None)
    assert open_context(chosen).suite.archs == ("sm_80", "sm_90a")
    monkeypatch.setenv("CUDA_ARCH", "9.0")
    assert open_context(chosen).suite.archs == open_context(chosen).archs == ("sm_90a",)


def test_what_was_not_asked_is_not_missed_and_what_was_is() -> None:
    whole = factory.record(factory.suite(budgets=[factory.budget("registers", maximum=128)]))
    one = replace(
        whole,
        suite=replace(whole.suite, archs=("sm_90a",)),
        artifacts=tuple(a for a in whole.artifacts if a.arch == "sm_90a"),
    )
    day = datetime.date(2026, 1, 1)
    judgement = judge.judge(one, today=day)
    assert any("checked only for sm_90a:" in note for note in judgement.notes)
    assert not any("checked only" in note for note in judge.judge(whole, today=day).notes)
    judged = judgement.verdicts
    assert {v.subject.arch for v in judged if v.budget in ("builds", "registers")} == {"sm_90a"}
    assert not [v for v in judged if v.required and v.status == "unmeasured"]
    lost = replace(one, artifacts=())
    assert [v.status for v in judge.judge(lost, today=day).verdicts if v.budget == "builds"] == ["unmeasured"] * 3


H200 = Gpu("NVIDIA H200", (9, 0), 132, 1, 1, 1980.0, "580")


def test_an_interrupted_run_is_continued_on_the_gpus_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run itself is a stand-in."""
    began = Settings(str(TOY), profiles=str(tmp_path), gpus="GPU-b")
    resume.remember(folder := store.begin(tmp_path, "20260102T050000Z-0003"), began, {}, "")
    runs: list[tuple[str, Path | None]] = []

    def run(context: Context, resumed: Path | None = None) -> run_module.Run:
        runs.append((context.settings.gpus, resumed))
        return run_module.Run(factory.record(), tmp_path, context.settings)

    monkeypatch.setattr(run_module, "run", run)
    for gpus in ("all", "GPU-z"):
        run_module.record_run(replace(began, gpus=gpus), print, resume=True)
    assert runs == [("GPU-b", folder), ("GPU-z", folder)]


# --- roofs: measured once for a machine; another GPU, driver or limit makes it another machine ---

RUN = "20261122T202015Z-0fac"


class Host:
    """An executor with one GPU."""

    def __init__(self, uuid: str, gpu: Gpu) -> None:
        self.gpus = {uuid: gpu}

    def places(self, requested: str, say: object) -> tuple[dict[str, Gpu], Pool]:
        return self.gpus, Pool()


@pytest.fixture
def recorded(tmp_path: Path) -> Record:
    """The only run of a folder: of the roofs of one of two GPUs."""
    shutil.copy(Path(__file__).parents[2] / "profiles" / f"{RUN}.run.zip", tmp_path)
    return store.read(published_run(RUN))


def chosen(
    recorded: Record,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    uuid: str = "",
    limits: str | None = None,
    fresh: bool = False,
    **changes: Any,
) -> str:
    """The run whose roofs are used by a machine like the recorded one, but for the changes."""
    e = recorded.environment
    assert e.gpu and e.gpu_memory_bytes and e.gpu_sm_clock_mhz and e.driver
    gpu = Gpu(e.gpu, (9, 0), 132, e.gpu_memory_bytes, 1, e.gpu_sm_clock_mhz, e.driver)
    host = Host(uuid or recorded.gpus[0].uuid, replace(gpu, **changes))
    monkeypatch.setattr(run_module, "executor_of", lambda settings: host)
    monkeypatch.setattr(run_module, "limits", lambda uuid: limits)
    context = stages.context(folder)
    monkeypatch.setattr(run_module, "open_recordable", lambda settings, say, *, needs_gpu: context)
    measured = replace(recorded, id="20270101T000000Z-0001")
    monkeypatch.setattr(run_module, "run", lambda context: run_module.Run(measured, folder, context.settings))
    record, _ = run_module.measure_roofs(Settings("suite", profiles=str(folder)), lambda _: None, fresh=fresh)
    return record.id


def test_the_same_machine_has_the_roofs_that_it_had(
    recorded: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chosen(recorded, tmp_path, monkeypatch) == RUN


@pytest.mark.parametrize(
    "change",
    [
        {"fresh": True},
        {"uuid": "GPU-00000000-0000-0000-0000-000000000000"},
        {"limits": "500 W, 1500 MHz"},
        {"driver": "999.1"},
        {"max_sm_clock_mhz": 1755.0},
        {"memory_bytes": 1},
        {"name": "NVIDIA H100"},
    ],
)
def test_another_machine_is_measured(
    recorded: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    assert chosen(recorded, tmp_path, monkeypatch, **change) != RUN


# --- references on a CPU ---


@pytest.mark.usefixtures("forked")
def test_peers_are_checked_on_a_cpu_and_nothing_is_recorded(
    copy: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Starts a process that imports torch: what peers do is seen nowhere else."""
    suite, peer = copy(), '\n[variant.half]\ncallable = "peers.py:half"\ntechnique = "wrong"\nroof = "fp32"\n'
    with (suite / "peers.py").open("a") as file:
        file.write("\n\ndef half(x, factor):\n    return x * factor / 2\n")
    with (suite / "suite.toml").open("a") as file:
        file.write(peer + 'tolerance = "rounded_once"\ntolerance_reason = "one multiplication"\n')
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--device", "cpu", "--suite", str(suite), "--repeats", "2", "-q"]) == 1
    told = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines()[2:]}
    assert told == {"half/tail": "failed", "half/small": "failed", "torch_mul/tail": "ok", "torch_mul/small": "ok"}
    assert not (tmp_path / "profiles").exists()


@pytest.mark.usefixtures("forked")
def test_a_suite_without_peers_has_nothing_to_check(
    copy: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--device", "cpu", "--suite", str(copy()), "--variant", "plain", "-q"]) == 2
    assert "expected a reference to check on a CPU, found none" in capsys.readouterr().err


# --- roofs while the build runs ------------------------------------------------------------------


class Compiling:
    """A build that ends when the roofs have begun."""

    half = SimpleNamespace(closures={"fast sm_90a": "abc"})
    first = SimpleNamespace(closures={"fast sm_90a": "abc", "slow sm_90a": "def"})
    fails = False

    def __init__(self, context: Context, *, ahead: bool) -> None:
        assert ahead and BEGUN.wait(30), "roofs are measured meanwhile"
        EVENTS.append("compiled")
        if self.fails:
            raise FlashcoreError("the build failed")

    def __enter__(self) -> Compiling:
        return self

    def __exit__(self, *_: object) -> None: ...


EVENTS: list[str] = []
BEGUN = threading.Event()


@pytest.fixture
def overlapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A run that ends when it would measure."""

    def measure(*_: object) -> None:
        EVENTS.append("measured")
        raise FlashcoreError("enough")

    EVENTS.clear()
    BEGUN.clear()
    monkeypatch.setattr(gpu_choice, "visible", lambda: {"GPU-a": H200})
    monkeypatch.setattr(toolchain, "torch_root", lambda: tmp_path)
    monkeypatch.setattr(gpu_stages, "prepare", lambda *_: None)
    monkeypatch.setattr(gpu_stages, "measure", measure)
    monkeypatch.setattr(gpu_stages, "check_ahead", lambda *_: EVENTS.append("ahead"))
    monkeypatch.setattr(run_module, "Compiling", Compiling)
    monkeypatch.setattr(run_module, "already_checked", lambda *_: set())
    return open_context(Settings(suite=str(TOY), build=str(tmp_path / "b"), profiles=str(tmp_path / "p"), join=False))


@pytest.mark.parametrize("fails", [False, True])
def test_roofs_are_measured_while_the_build_runs_and_before_anything_else(
    overlapping: Context, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    def measure_roofs(_: Settings, say: Callable[[str], None], *, busy: bool) -> None:
        assert busy
        BEGUN.set()
        while "compiled" not in EVENTS:
            time.sleep(0.01)
        time.sleep(0.2)
        EVENTS.append("roofs")
        if fails:
            raise FlashcoreError("no roofs: they are measured again when they are needed")

    monkeypatch.setattr(run_module, "measure_roofs", measure_roofs)
    with pytest.raises(FlashcoreError, match="enough"):
        run_module.run(overlapping)
    assert EVENTS == ["compiled", "roofs", "ahead", "measured"]
    (folder,) = (overlapping.build_folder.parent / "p").iterdir()
    EVENTS.clear()
    monkeypatch.setattr(resume, "require_same", lambda *_: EVENTS.append("same sources"))
    with pytest.raises(FlashcoreError, match="enough"):
        run_module.run(overlapping, folder)
    assert EVENTS == ["compiled", "roofs", "same sources", "measured"], "nothing is checked before"


def test_the_roofs_of_several_gpus_are_measured_at_once(overlapping: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    both, measured = threading.Barrier(2, BEGUN.set, timeout=30), []

    def measure_roofs(of: Settings, say: Callable[[str], None], *, busy: bool) -> None:
        both.wait()
        measured.append(of.gpus)

    monkeypatch.setattr(run_module, "measure_roofs", measure_roofs)
    monkeypatch.setattr(gpu_choice, "visible", lambda: {"GPU-a": H200, "GPU-b": H200})
    with pytest.raises(FlashcoreError, match="enough"):
        run_module.run(open_context(overlapping.settings))
    assert sorted(measured) == ["GPU-a", "GPU-b"]


def test_roofs_stop_when_the_build_fails(overlapping: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure_roofs(_: Settings, say: Callable[[str], None], *, busy: bool) -> None:
        BEGUN.set()
        try:
            for _attempt in range(3000):
                time.sleep(0.01)
                say("roofs: bench")
        except FlashcoreError:
            EVENTS.append("stopped")
            raise

    monkeypatch.setattr(run_module, "measure_roofs", measure_roofs)
    monkeypatch.setattr(Compiling, "fails", True)
    with pytest.raises(FlashcoreError, match="the build failed"):
        run_module.run(overlapping)
    assert EVENTS == ["compiled", "stopped"]


def test_roofs_beside_a_build_leave_the_hosts_time_out(overlapping: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []

    def run(context: Context) -> run_module.Run:
        modes.append(context.settings.bench.modes)
        return run_module.Run(factory.bare_record(context.suite), Path(), context.settings)

    monkeypatch.setattr(run_module, "run", run)
    for busy in (False, True):
        run_module.measure_roofs(overlapping.settings, lambda _: None, fresh=True, busy=busy)
    assert modes == [("back_to_back", "eager"), ("back_to_back",)]
