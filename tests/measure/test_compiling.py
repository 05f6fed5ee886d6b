"""The build before the GPU's stages: this machine's arch first, the others beside the checks."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli import progress
from flashcore.errors import CapabilityError, FlashcoreError, UsageError
from flashcore.measure import gpu_stages
from flashcore.measure.bench import bench
from flashcore.measure.build import build, launch_plan
from flashcore.measure.check import check
from flashcore.measure.compiling import Compiling, compile_all
from flashcore.measure.context import Context
from flashcore.measure.machine import toolchain
from flashcore.measure.machine.gpu import Gpu
from flashcore.measure.profile import code, profile
from flashcore.measure.sanitize import sanitize
from flashcore.measure.settings import Settings
from flashcore.measure.workers.kernel_call import Case
from flashcore.measure.workers.pool import Pool
from flashcore.model.causes import BuildsFailed, Hang, Message, PlanRefused
from flashcore.model.progress import Failure, prefixed
from flashcore.model.record import Artifact, Built, CaseOutcome, Fact, Plan, Source, StageResult, Subject
from flashcore.model.suite import Cuda
from flashcore.pipeline import run
from flashcore.pipeline.opening import open_context, open_recordable
from tests import factory, stages
from tests.conftest import TESTS
from tests.conftest import Built as ToyBuilt

TOY = TESTS / "suites" / "toy"
H200 = Gpu("NVIDIA H200", (9, 0), 132, 1 << 37, 60 << 20, 1980.0, "580.65")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gpu, "find", lambda: H200)
    monkeypatch.delenv("CUDA_ARCH", raising=False)


def context(build: Path, *variants: str) -> Context:
    return open_context(Settings(str(TOY), variants=variants, build=str(build), upto="check", roofs=None))


NOTHING = Built("", (), ())
Ran = Callable[[str, Context], StageResult]


def stand_in(monkeypatch: pytest.MonkeyPatch, ran: Ran) -> None:
    """Stages that do nothing but call ``ran`` with their name and context."""

    def stage(name: str) -> Callable[[Context, list[Case]], StageResult]:
        return lambda context, cases: ran(name, context)

    for module, name in ((check, "check"), (bench, "bench"), (profile, "profile"), (sanitize, "sanitize")):
        monkeypatch.setattr(module, "run", stage(name))


@pytest.fixture
def built(toy: ToyBuilt, tmp_path: Path) -> Path:
    """A build folder in which all of the toy suite is found."""
    return Path(shutil.copytree(toy.folder, tmp_path / "built"))


def test_this_machines_arch_comes_first_and_nothing_differs_after(tmp_path: Path, built: Path) -> None:
    chosen = "[pt]*[ns]"  # one of both archs, one of this machine's alone
    whole = compile_all(context(built, chosen))
    (binding,) = built.glob("toy/*-binding-*/")
    shutil.copytree(binding, tmp_path / "ahead" / "toy" / binding.name)  # the part of all operators that needs torch
    messages: list[str] = []
    under_way = Compiling(replace(context(tmp_path / "ahead", chosen), say=messages.append), ahead=True)
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
    assert any("sm_90a in " in text and "the other archs in the background" in text for text in messages)


def test_a_folder_that_another_gpu_built_in_gives_each_plan_once(
    built: Path, monkeypatch: pytest.MonkeyPatch, compiler: toolchain.Nvcc
) -> None:
    """Without a GPU the plan is made for another arch than with one; both may lie in one folder."""
    monkeypatch.setattr(Gpu, "find", lambda: None)
    compile_all(context(built))
    monkeypatch.setattr(Gpu, "find", lambda: replace(H200, capability=(8, 0)))
    compile_all(context(built))
    monkeypatch.setattr(Gpu, "find", lambda: H200)
    plans = compile_all(context(built)).plans
    assert len({(p.variant, p.shape) for p in plans}) == len(plans)


@pytest.fixture
def two_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """The toy suite, of whose variants every second one belongs to another problem."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(2))
    monkeypatch.setattr(toolchain, "torch_root", lambda: TOY)
    monkeypatch.setattr(toolchain, "find_nvcc", lambda *_: toolchain.Nvcc(TOY, TOY, "13.0", "13.0.88"))
    monkeypatch.setattr(launch_plan, "plans", lambda *_: [])
    made = context(tmp_path / "built")
    compiled = [v for v in made.variants if isinstance(v.kind, Cuda)]
    variants = tuple(replace(v, problem=("scale", "other")[i % 2]) for i, v in enumerate(compiled))
    return replace(made, variants=variants)


def test_one_problem_is_complete_while_the_next_compiles(
    two_problems: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []
    checked = threading.Event()

    def build_each(*_: Any, variants: list[Any], ended: Callable[[Artifact], None], **__: Any) -> list[Artifact]:
        calls.append([v.problem for v in variants])
        made = [factory.artifact(v.name, "sm_90a") for v in sorted(variants, key=lambda v: v.problem != "scale")]
        for artifact in made:
            ended(artifact)
            first = artifact.variant in {v.name for v in variants if v.problem == "scale"}
            assert first or checked.wait(30), "the next problem compiles in the background"
        return made

    monkeypatch.setattr(build, "build", build_each)
    under_way = Compiling(two_problems, ahead=True)
    assert under_way.half and {a.variant for a in under_way.half.artifacts} < {v.name for v in two_problems.variants}
    checked.set()
    assert {a.variant for a in under_way.first.artifacts} == {v.name for v in two_problems.variants}
    under_way._rest.result() if under_way._rest else None
    assert [{*call} for call in calls] == [{"scale", "other"}, {"scale", "other"}]


def test_without_a_gpu_all_is_built_at_once(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gpu, "find", lambda: None)
    wanted = context(built)
    result = Compiling(wanted, ahead=True).finish()
    assert {a.arch for a in result.artifacts} == set(wanted.suite.archs) and result.facts


def test_what_fails_in_the_background_is_told(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = build.build

    def once(*given: Any, **named: Any) -> list[Artifact]:
        monkeypatch.setattr(build, "build", full)
        return real(*given, **named)

    def full(*_: Any, **__: Any) -> list[Artifact]:
        raise OSError("disk full")

    monkeypatch.setattr(build, "build", once)
    under_way = Compiling(context(built), ahead=True)
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
    under_way = Compiling(context(built), ahead=True)
    with pytest.raises(KeyboardInterrupt), under_way:
        raise KeyboardInterrupt
    with pytest.raises(FlashcoreError, match="stopped"):
        under_way.finish()


def opened(folder: Path, upto: str, *variants: str) -> Context:
    settings = Settings(str(TOY), variants=variants, build=str(folder), upto=upto, roofs=None)
    return replace(open_context(settings), folder=folder)


def test_nothing_is_timed_before_the_build_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    seen: list[Built] = []
    finished = Built("13.0.88", (), ())
    monkeypatch.setattr(toolchain, "torch_root", lambda: TOY)

    def ran(stage: str, context: Context) -> StageResult:
        order.append(stage)
        seen.append(context.built)
        return StageResult((), ())

    class Build(stages.Finished):
        def finish(self) -> Built:
            order.append("build over")
            return super().finish()

    stand_in(monkeypatch, ran)
    gpu_stages.measure(opened(tmp_path, "bench"), Build(NOTHING, finished))
    assert order == ["check", "build over", "bench"] and seen == [NOTHING, finished]


def test_children_of_all_stages_start_before_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(toolchain, "torch_root", lambda: TOY)
    monkeypatch.setattr("flashcore.measure.machine.ncu.find_ncu", lambda: Path("ncu"))

    def ran(stage: str, _: Context) -> StageResult:
        order.append(stage)
        return StageResult((), ())

    class Noted(Pool):
        def prepare(self, program: object, folder: Path, *, most: int | None = None) -> None:
            order.append(f"start {folder.relative_to(tmp_path)}")

    stand_in(monkeypatch, ran)
    context = replace(opened(tmp_path, "profile"), workers=Noted())
    gpu_stages.prepare(context, "check", "bench", "profile")
    gpu_stages.measure(context, stages.Finished(NOTHING))
    assert order == ["start check", "start bench", "start profile/round-0", "check", "bench", "profile"]


def test_ncus_registers_are_held_against_those_of_the_whole_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []
    fact = Fact(Subject("two_steps", arch="sm_90a", kernel="k"), "registers", 40, "", Source.CUBIN)
    monkeypatch.setattr(toolchain, "torch_root", lambda: TOY)
    monkeypatch.setattr("flashcore.measure.machine.ncu.find_ncu", lambda: Path("ncu"))
    monkeypatch.setattr(toolchain, "tool_version", lambda _: "2025.3")

    def profiled(_: object, __: object, profiling: profile.Profiling) -> StageResult:
        given.append(profiling.registers)
        return StageResult((), ())

    monkeypatch.setattr(check, "run", lambda *_: StageResult((), ()))
    monkeypatch.setattr(bench, "run", lambda *_: StageResult((), ()))
    monkeypatch.setattr(profile, "profiled", profiled)
    build = stages.Finished(NOTHING, Built("", (), (), (fact,)))
    measured = gpu_stages.measure(opened(tmp_path, "profile", "two_steps"), build)
    assert given == [{"two_steps": {"k": 40}}] and measured.ncu == "2025.3"


def test_a_marker_that_cannot_be_read_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(*_: object) -> None:
        raise UsageError("two_steps.cu:1: expected a phase")

    monkeypatch.setattr("flashcore.readers.phases.of_lines", bad)
    context = opened(tmp_path, "profile", "two_steps")
    assert {*code.marked(context)} == {v.name for v in context.variants if isinstance(v.kind, Cuda)}


def test_of_a_run_that_cannot_be_built_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def fails(*_: object, **__: object) -> None:
        seen.append([p.name for p in (tmp_path / "profiles").iterdir()])
        raise CapabilityError("no nvcc", "install it")

    monkeypatch.setattr(run, "Compiling", fails)
    with pytest.raises(CapabilityError, match="no nvcc"):
        run.run(
            open_recordable(Settings(str(TOY), build=str(tmp_path), profiles=str(tmp_path / "profiles"), roofs=None))
        )
    assert len(seen[0]) == 1 and not list((tmp_path / "profiles").iterdir())


def test_quiet_drops_progress_and_keeps_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(toolchain, "torch_root", lambda: TOY)

    def ran(stage: str, _: Context) -> StageResult:
        if stage == "profile":
            raise CapabilityError("no permission for counters", "ask for it")
        outcome = CaseOutcome("plain", "small", "check", "failed", Message("wrong everywhere"))
        return StageResult((), (outcome,) if stage == "check" else ())

    stand_in(monkeypatch, ran)
    with progress.shown(quiet=True) as say:
        context = replace(opened(tmp_path, "profile"), say=lambda text: say(prefixed("here: ", text)))
        gpu_stages.measure(context, stages.Finished(NOTHING))
    message = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert message == ["here: check: plain/small FAILED: wrong everywhere",
                    "here: profile: no permission for counters", ""]  # fmt: skip


def test_a_mistake_of_several_archs_is_told_once_and_a_crashed_plan_by_its_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "torch_root", lambda: TOY)
    monkeypatch.setattr(toolchain, "find_nvcc", lambda *_: toolchain.Nvcc(TOY, TOY, "13.0", "13.0.88"))
    failed = [factory.artifact("wide", arch, "failed", "wide.cu(1): error: no") for arch in ("sm_80", "sm_90a")]
    artifacts = [*failed, factory.artifact("plain", "sm_80", cached=True), factory.artifact("plain", "sm_90a")]
    archs = ("sm_80", "sm_90a")
    plans = [
        Plan("plain", "small", (), 0, Hang(2), archs=archs),
        Plan("plain", "wide", (), 0, PlanRefused("too wide"), archs=archs),
    ]
    monkeypatch.setattr(build, "build", lambda *_, **__: artifacts)
    monkeypatch.setattr(launch_plan, "plans", lambda *_: plans)
    messages: list[str] = []
    built = compile_all(replace(opened(tmp_path, "check"), say=messages.append))
    failures = [line for line in messages if isinstance(line, Failure)]
    assert [line.splitlines()[0] for line in failures] == [
        "build: wide for sm_80, sm_90a FAILED", f"build: plain on small for sm_80, sm_90a FAILED: {plans[0].error}"
    ]  # fmt: skip
    assert failures[0].endswith("\nwide.cu(1): error: no")
    variants = [v for v in opened(tmp_path, "check").variants if not v.is_reference]
    assert messages[0] == f"build: {len(variants)} variants for sm_80, sm_90a"
    assert messages[-1].startswith("build: 1 compiled, 1 unchanged, 2 failed, 1 launch plan failed in ")
    assert built.notes[0].status == "failed" and built.notes[0].detail == BuildsFailed(2, 4, 1)
    monkeypatch.setattr(launch_plan, "plans", lambda *_: [])
    artifacts[:2] = []
    assert compile_all(opened(tmp_path, "check")).notes[0].status == "ok"
