"""The build before the GPU's stages: this machine's arch first, the others beside the checks."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli import progress
from flashcore.errors import CapabilityError, FlashcoreError, UsageError
from flashcore.measure.build import build
from flashcore.measure.machine import toolchain
from flashcore.measure.machine.gpu import Gpu
from flashcore.measure.settings import Profile
from flashcore.measure.workers.ahead import Ahead
from flashcore.model.progress import prefixed
from flashcore.model.record import Artifact, Built, CaseOutcome, Fact, Measured, Source, StageResult, Subject
from flashcore.model.suite import Cuda
from flashcore.pipeline import gpu_stages as stages
from flashcore.pipeline import run
from flashcore.pipeline.compile_ahead import Compiling, compile_all
from flashcore.pipeline.gpu_stages import measure
from flashcore.pipeline.state import Job, Settings
from tests.conftest import TESTS
from tests.conftest import Built as ToyBuilt

TOY = TESTS / "suites" / "toy"
H200 = Gpu("NVIDIA H200", (9, 0), 132, 1 << 37, 60 << 20, 1980.0, "580.65")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gpu, "find", lambda: H200)
    monkeypatch.delenv("CUDA_ARCH", raising=False)


def job(build: Path, variant: str | None = None) -> Job:
    return run.start(Settings(str(TOY), variant=variant, build=str(build), upto="check", roofs=None))


def quiet(_: str) -> None: ...


@pytest.fixture
def built(toy: ToyBuilt, tmp_path: Path) -> Path:
    """A build folder in which all of the toy suite is found."""
    return Path(shutil.copytree(toy.folder, tmp_path / "built"))


def test_this_machines_arch_comes_first_and_nothing_differs_after(tmp_path: Path, built: Path) -> None:
    chosen = "[pt]*[ns]"  # one of both archs, one of this machine's alone
    whole = compile_all(job(built, chosen), quiet)
    said: list[str] = []
    under_way = Compiling(job(tmp_path / "ahead", chosen), said.append, ahead=True)
    first = under_way.first
    assert {a.arch for a in first.artifacts} == {"sm_90a"} and first.facts == ()
    assert all(a.library for a in first.artifacts if a.status == "ok")
    assert [p for p in first.plans if p.launches]
    ahead = under_way.finish()
    assert under_way.finish() is ahead  # once more is no harm
    assert [(a.variant, a.arch, a.status, a.code) for a in ahead.artifacts] == [
        (a.variant, a.arch, a.status, a.code) for a in whole.artifacts
    ]
    assert not any(a.cached for a in ahead.artifacts), "all of it was compiled, some of it ahead"
    assert ahead.plans == whole.plans
    assert {(f.subject, f.name, f.value) for f in ahead.facts} == {(f.subject, f.name, f.value) for f in whole.facts}
    assert [n.stage for n in ahead.notes] == ["build"]
    assert any("sm_90a in " in text and "the others meanwhile" in text for text in said)


def test_a_folder_that_another_gpu_built_in_gives_each_plan_once(
    built: Path, monkeypatch: pytest.MonkeyPatch, compiler: toolchain.Nvcc
) -> None:
    """Without a GPU the plan is made for another arch than with one; both may lie in one folder."""
    monkeypatch.setattr(Gpu, "find", lambda: None)
    compile_all(job(built), quiet)
    monkeypatch.setattr(Gpu, "find", lambda: replace(H200, capability=(8, 0)))
    compile_all(job(built), quiet)
    monkeypatch.setattr(Gpu, "find", lambda: H200)
    plans = compile_all(job(built), quiet).plans
    assert len({(p.variant, p.shape) for p in plans}) == len(plans)


def test_without_a_gpu_all_is_built_at_once(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gpu, "find", lambda: None)
    wanted = job(built)
    found = Compiling(wanted, quiet, ahead=True).finish()
    assert {a.arch for a in found.artifacts} == set(wanted.suite.archs) and found.facts


def test_what_fails_in_the_background_is_told(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = build.build

    def once(*given: Any, **named: Any) -> list[Artifact]:
        monkeypatch.setattr(build, "build", full)
        return real(*given, **named)

    def full(*_: Any, **__: Any) -> list[Artifact]:
        raise OSError("disk full")

    monkeypatch.setattr(build, "build", once)
    under_way = Compiling(job(built), quiet, ahead=True)
    with pytest.raises(OSError, match="disk full"):
        under_way.finish()


def test_the_build_ends_with_what_it_was_begun_for(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = build.build

    def once(*given: Any, **named: Any) -> list[Artifact]:
        monkeypatch.setattr(build, "build", endless)
        return real(*given, **named)

    def endless(*_: Any, say: Callable[[str], None], **__: Any) -> list[Artifact]:
        while True:
            say("still compiling")
            time.sleep(0.01)

    monkeypatch.setattr(build, "build", once)
    under_way = Compiling(job(built), quiet, ahead=True)
    with pytest.raises(KeyboardInterrupt), under_way:
        raise KeyboardInterrupt
    with pytest.raises(FlashcoreError, match="stopped"):
        under_way.finish()


def test_nothing_is_timed_before_the_build_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    seen: list[Built] = []
    whole = Built("13.0.88", (), ())
    monkeypatch.setattr(toolchain, "torch_root", lambda: TOY)

    def ran(_: Job, built: Built, so_far: Measured, stage: str, *___: object) -> tuple[StageResult, Measured]:
        order.append(stage)
        seen.append(built)
        return StageResult((), ()), so_far

    monkeypatch.setattr(stages, "_run_stage", ran)

    def build_over() -> Built:
        order.append("build over")
        return whole

    settings = Settings(str(TOY), build=str(tmp_path), upto="bench", roofs=None)
    measure(run.start(settings), Built("", (), ()), tmp_path, quiet, build_over)
    assert order == ["check", "build over", "bench"] and seen == [Built("", (), ()), whole]


def test_children_of_all_stages_start_before_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(toolchain, "torch_root", lambda: TOY)
    monkeypatch.setattr("flashcore.measure.machine.ncu.find_ncu", lambda: Path("ncu"))

    def ran(_: Job, __: Built, so_far: Measured, stage: str, *___: object) -> tuple[StageResult, Measured]:
        order.append(stage)
        return StageResult((), ()), so_far

    class Noted(Ahead):
        def start(self, folder: Path, *_: object, **__: object) -> None:
            order.append(f"start {folder.relative_to(tmp_path)}")

    monkeypatch.setattr(stages, "_run_stage", ran)
    job = run.start(Settings(str(TOY), build=str(tmp_path), upto="profile", roofs=None))
    stages.start_ahead(job, tmp_path, Noted())
    measure(job, Built("", (), ()), tmp_path, quiet)
    assert order == ["start check", "start bench", "start profile/round-0", "check", "bench", "profile"]


def test_ncus_registers_are_held_against_those_of_the_whole_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []
    fact = Fact(Subject("two_steps", arch="sm_90a", kernel="k"), "registers", 40, "", Source.CUBIN)
    monkeypatch.setattr(toolchain, "torch_root", lambda: TOY)
    monkeypatch.setattr("flashcore.measure.machine.ncu.find_ncu", lambda: Path("ncu"))
    monkeypatch.setattr(toolchain, "version_said", lambda _: "2025.3")

    def profiled(_: object, __: object, chosen: Profile) -> StageResult:
        given.append(chosen.registers)
        return StageResult((), ())

    monkeypatch.setattr("flashcore.measure.check.check.run", lambda *_: StageResult((), ()))
    monkeypatch.setattr("flashcore.pipeline.sharing.timed", lambda *_: StageResult((), ()))
    monkeypatch.setattr("flashcore.measure.profile.profile.run", profiled)
    settings = Settings(str(TOY), variant="two_steps", build=str(tmp_path), upto="profile", roofs=None)
    measure(run.start(settings), Built("", (), ()), tmp_path, quiet, lambda: Built("", (), (), (fact,)))
    assert given == [{"two_steps": {"k": 40}}]


def test_a_marker_that_cannot_be_read_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(*_: object) -> None:
        raise UsageError("two_steps.cu:1: expected a phase")

    named: list[object] = []
    monkeypatch.setattr(toolchain, "torch_root", lambda: TOY)
    monkeypatch.setattr("flashcore.measure.machine.ncu.find_ncu", lambda: Path("ncu"))
    monkeypatch.setattr("flashcore.readers.phases.Sources.__call__", bad)
    monkeypatch.setattr(
        "flashcore.measure.profile.profile.start_ahead", lambda *given: named.append(given[2].codes.keys())
    )
    job = run.start(Settings(str(TOY), variant="two_steps", build=str(tmp_path), upto="profile", roofs=None))
    with Ahead() as ahead:
        monkeypatch.setattr(ahead, "start", lambda *_, **__: None)
        stages.start_ahead(job, tmp_path, ahead)
    assert named == [{"two_steps", *(v.name for v in job.variants if isinstance(v.kind, Cuda))}]


def test_of_a_run_that_cannot_be_built_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def fails(*_: object, **__: object) -> None:
        seen.append([p.name for p in (tmp_path / "profiles").iterdir()])
        raise CapabilityError("no nvcc", "install it")

    monkeypatch.setattr(run, "Compiling", fails)
    with pytest.raises(CapabilityError, match="no nvcc"):
        run.run(Settings(str(TOY), build=str(tmp_path), profiles=str(tmp_path / "profiles"), roofs=None), quiet)
    assert len(seen[0]) == 1 and not list((tmp_path / "profiles").iterdir())


def test_quiet_drops_progress_and_keeps_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(toolchain, "torch_root", lambda: TOY)

    def ran(_: Job, __: Built, so_far: Measured, stage: str, *___: object) -> tuple[StageResult, Measured]:
        if stage == "profile":
            raise CapabilityError("no permission for counters", "ask for it")
        outcome = CaseOutcome("plain", "small", "check", "failed", "wrong everywhere")
        return StageResult((), (outcome,) if stage == "check" else ()), so_far

    monkeypatch.setattr("flashcore.measure.machine.ncu.find_ncu", lambda: Path("ncu"))
    monkeypatch.setattr(stages, "_run_stage", ran)
    settings = Settings(str(TOY), build=str(tmp_path), upto="profile", roofs=None)
    with progress.shown(quiet=True) as say:
        measure(run.start(settings), Built("", (), ()), tmp_path, lambda text: say(prefixed("here: ", text)))
    said = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert said == ["here: check: plain/small FAILED: wrong everywhere",
                    "here: profile: no permission for counters", ""]  # fmt: skip
