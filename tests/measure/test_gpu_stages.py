"""The stages in their order: what fails one is not taken to the next, and a machine that cannot says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import CapabilityError
from flashcore.measure import cases, gpu_stages
from flashcore.measure.build import build
from flashcore.measure.context import Context
from flashcore.measure.machine import toolchain
from flashcore.measure.machine.gpu import Gpu
from flashcore.measure.workers.kernel_call import Case
from flashcore.model import plugin, suite
from flashcore.model.causes import CasesFailed, Incapable, Message, NoGpu
from flashcore.model.progress import Failure
from flashcore.model.record import Built, CaseOutcome, Fact, StageResult
from tests import factory, stages

SUITE = factory.suite()
BUILT = Built("", tuple(factory.artifact(v, "sm_90a") for v in ("slow", "fast")), ())
ALL: tuple[suite.Stage, ...] = ("check", "bench", "profile")
GPU = Gpu("NVIDIA H200", (9, 0), 132, 1, 1, 1.0, "1")


class Stage:
    """Notes its cases; fails those of ``bad``, or is what the machine ``lacks``."""

    def __init__(self, name: suite.Stage, log: list[Any], bad: Sequence[str] = (), lacks: str = "") -> None:
        self.name, self.log, self.bad, self.lacks = name, log, bad, lacks

    def prepare(self, context: Context) -> None:
        self.log.append(f"prepare {self.name}")
        if self.lacks:
            raise CapabilityError(self.lacks, "mend it")

    def run(self, context: Context, cases: Sequence[Case]) -> StageResult:
        if self.lacks:
            raise CapabilityError(self.lacks, "mend it")
        self.log.append((self.name, [f"{c.variant}/{c.shape}" for c in cases], len(context.built.facts)))
        assert (context.folder / self.name).is_dir()
        outcomes = [
            CaseOutcome(c.variant, c.shape, self.name, "failed" if f"{c.variant}/{c.shape}" in self.bad else "ok",
                        Message("wrong") if f"{c.variant}/{c.shape}" in self.bad else None)
            for c in cases
        ]  # fmt: skip
        return StageResult((), tuple(outcomes))


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setattr(toolchain, "torch_root", lambda: tmp_path)
    made = stages.context(tmp_path, gpu=GPU, gpu_arch="sm_90a", say=[].append, upto="profile")
    names = ("slow", "fast")
    return replace(made, variants=tuple(SUITE.variants[n] for n in names), shapes=(SUITE.shapes["mission"],))


def test_a_case_that_fails_a_stage_is_not_taken_to_the_next(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[Any] = []
    messages: list[str] = []
    whole = replace(BUILT, facts=(factory.fact("registers", 1, "fast", arch="sm_90a"),))
    fakes = {n: Stage(n, log, ["slow/mission"] if n == "check" else ()) for n in ALL}
    monkeypatch.setattr(gpu_stages, "STAGES", fakes)
    measured = gpu_stages.measure(replace(context, say=messages.append), stages.Finished(BUILT, whole))
    both = ["slow/mission", "fast/mission"]
    assert log == [("check", both, 0), ("bench", both[1:], 1), ("profile", both[1:], 1)]
    assert [(n.stage, n.status, n.detail) for n in measured.notes] == [
        ("check", "failed", CasesFailed(1, 2)), ("bench", "ok", ""), ("profile", "ok", "")
    ]  # fmt: skip
    assert {(o.stage, o.case): o.status for o in measured.outcomes}["bench", "slow/mission"] == "skipped"
    assert messages[:2] == ["check: 2 cases", "check: slow/mission FAILED: wrong"] and isinstance(messages[1], Failure)
    assert messages[2].startswith("check: 1 ok, 1 failed in ") and messages[3] == "bench: 1 cases, 1 left out"


def counted(context: Context, cases: Sequence[Case]) -> list[Fact]:
    """A plugin's measurement."""
    assert (context.folder / "counted").is_dir()
    return [factory.fact("registers", len(cases), case.variant, shape=case.shape) for case in cases]


def test_a_plugin_measures_what_bench_timed(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_stages, "STAGES", {n: Stage(n, [], ["slow/mission"] if n == "bench" else ()) for n in ALL})
    monkeypatch.setattr(plugin, "find", lambda kind, name: {("measurements", "counted"): counted}[kind, name])
    measuring = replace(context, settings=replace(context.settings, measurements=("counted",)))
    measured = gpu_stages.measure(measuring, stages.Finished(BUILT))
    assert [n.stage for n in measured.notes] == ["check", "bench", "counted", "profile"]
    assert [(f.subject.case, f.value) for f in measured.facts] == [("fast/mission", 1)]


def test_what_is_known_to_be_right_is_not_checked_again(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[Any] = []
    messages: list[str] = []
    monkeypatch.setattr(gpu_stages, "STAGES", {n: Stage(n, log) for n in ALL[:2]})
    settings = replace(context.settings, upto="bench")
    context = replace(context, settings=settings, say=messages.append)
    gpu_stages.measure(context, stages.Finished(BUILT), {"fast/mission", "other/mission"})
    assert [(name, cases) for name, cases, _ in log] == [
        ("check", ["slow/mission"]), ("bench", ["slow/mission", "fast/mission"])
    ]  # fmt: skip
    assert messages[0] == "check: 1 cases, 1 checked in an earlier run"


@pytest.fixture
def two_problems(context: Context, monkeypatch: pytest.MonkeyPatch) -> Context:
    variants = SUITE.variants["slow"], replace(SUITE.variants["fast"], problem="other")
    shapes = SUITE.shapes["mission"], replace(SUITE.shapes["mission"], name="tall", problem="other")
    problems = {**SUITE.problems, "other": SUITE.problems["attention"]}
    two = replace(SUITE, problems=problems, variants={v.name: v for v in variants}, shapes={s.name: s for s in shapes})
    monkeypatch.setattr(cases, "works", lambda _, pairs: [{} for _ in pairs])
    (context.folder / "check").mkdir()
    return replace(context, suite=two, variants=variants, shapes=shapes)


def test_compiled_problems_are_checked_while_others_compile(
    two_problems: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[Any] = []
    stay: list[bool] = []
    build = stages.Finished(BUILT)
    of_check = replace(two_problems, settings=replace(two_problems.settings, upto="check"))

    class Noted(Stage):
        def run(self, context: Context, cases: Sequence[Case]) -> StageResult:
            stay.append(context.workers.stays)
            return super().run(context, cases)

    monkeypatch.setattr(gpu_stages, "STAGES", {n: Noted(n, log) for n in ALL[:1]})
    gpu_stages.check_ahead(of_check, replace(BUILT, artifacts=BUILT.artifacts[:1]))
    measured = gpu_stages.measure(of_check, build)
    assert [c for _, c, _ in log] == [["slow/mission"], ["slow/mission", "fast/tall"]]
    assert stay == [True, False] and [o.case for o in measured.outcomes] == ["slow/mission", "fast/tall"]


@pytest.mark.parametrize("stays", [False, True])
def test_a_check_ahead_that_fails_leaves_the_workers_as_they_were(
    context: Context, monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    monkeypatch.setattr(gpu_stages, "STAGES", {"check": Stage("check", [], lacks="no GPU")})
    monkeypatch.setattr(cases, "works", lambda _, pairs: [{} for _ in pairs])
    context.workers.stays = stays
    with pytest.raises(CapabilityError, match="no GPU"):
        gpu_stages.check_ahead(context, BUILT)
    assert context.workers.stays is stays


def test_a_machine_that_lacks_a_later_stage_keeps_what_was_measured(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[Any] = []
    fakes = {n: Stage(n, log, lacks="no counters" if n == "bench" else "") for n in ALL}
    monkeypatch.setattr(gpu_stages, "STAGES", fakes)
    gpu_stages.prepare(context, "check", "bench", "profile")
    assert log == ["prepare check", "prepare bench", "prepare profile"]
    measured = gpu_stages.measure(context, stages.Finished(BUILT))
    assert [(n.stage, n.status) for n in measured.notes] == [("check", "ok"), ("bench", "failed")]
    assert measured.notes[1].detail == Incapable("no counters", "mend it")
    fakes["check"].lacks = "no GPU after all"
    with pytest.raises(CapabilityError, match="no GPU after all"):
        gpu_stages.measure(context, stages.Finished(BUILT))


def test_a_machine_that_cannot_measure_leaves_the_stages_out(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[Any] = []
    messages: list[str] = []
    monkeypatch.setattr(gpu_stages, "STAGES", {n: Stage(n, log) for n in ALL})
    debug = replace(context, options=build.Options(debug=True), say=messages.append)
    gpu_stages.prepare(debug, "check", "bench", "profile")
    measured = gpu_stages.measure(debug, stages.Finished(BUILT))
    why = debug.cannot_measure
    assert log == [] and messages == [f"check, bench, profile: left out: {why}"]
    assert [(n.stage, n.status, n.detail) for n in measured.notes] == [(name, "skipped", NoGpu(why)) for name in ALL]
    nothing = replace(debug, settings=replace(debug.settings, upto=None))
    assert gpu_stages.measure(nothing, stages.Finished(BUILT)).notes == () and len(messages) == 1
