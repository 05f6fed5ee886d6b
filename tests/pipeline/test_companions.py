"""What is timed beside the chosen variants: where they run, and without another check of what is known to be right."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.measure.machine import toolchain
from flashcore.measure.machine.gpu import Gpu
from flashcore.model.record import Built, CaseOutcome, Environment, Measured, Record, StageResult
from flashcore.model.suite import Cuda, Where
from flashcore.pipeline import companions, gpu_stages, run
from flashcore.pipeline.compile_ahead import Compiling
from flashcore.pipeline.state import Job, Settings
from flashcore.records import freshness
from tests import factory
from tests.conftest import TOY
from tests.conftest import Built as ToyBuilt

H200 = Gpu("NVIDIA H200", (9, 0), 132, 1, 1, 1980.0, "580")
HERE = factory.record().environment
TORCH_ROOT = toolchain.torch_root


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Job:
    monkeypatch.setattr(Gpu, "find", lambda: H200)
    monkeypatch.setattr(toolchain, "torch_root", lambda: TOY)
    monkeypatch.setattr(companions, "of_this_machine", lambda *_: HERE)
    monkeypatch.delenv("CUDA_ARCH", raising=False)
    return run.start(Settings(str(TOY), variant="two_steps", build=str(tmp_path), upto="bench", roofs=None))


def recorded(job: Job, **changes: object) -> Record:
    """A run in which the peer was right on all its shapes."""
    cases = [(v, s) for v, s in job.cases("check") if v.is_reference]
    assert cases and cases[0][0].name in job.companions
    keys = freshness.case_keys(job.suite, cases, (), (), "sm_90a", "13.0.88")
    outcomes = tuple(CaseOutcome(v.name, s.name, "check", "ok", "", 0.1) for v, s in cases)
    return replace(factory.record(), keys=keys, outcomes=outcomes, environment=HERE, **changes)  # type: ignore[arg-type]


NOTHING = Built("13.0.88", (), ())


def test_a_companion_that_is_known_to_be_right_is_not_checked_again(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = companions.known_right(job, NOTHING, [recorded(job)])
    assert known == {f"{v.name}/{s.name}" for v, s in job.cases("check") if v.is_reference}
    seen: dict[str, list[str]] = {}

    def ran(_: Job, __: Built, so_far: Measured, stage: str, pairs: list, *___: object) -> tuple[StageResult, Measured]:  # type: ignore[type-arg]
        seen[stage] = [f"{v.name}/{s.name}" for v, s in pairs]
        return StageResult((), ()), so_far

    monkeypatch.setattr(gpu_stages, "_run_stage", ran)
    said: list[str] = []
    gpu_stages.measure(job, NOTHING, tmp_path, said.append, known_right=known)
    assert not known & set(seen["check"]) and known & set(seen["bench"]) == known & {
        f"{v.name}/{s.name}" for v, s in job.cases("bench")
    }
    assert any(f"{len(known)} known to be right" in line for line in said)


@pytest.mark.parametrize(
    "what", ["driver", "torch", "libraries", "harness", "wrong", "older", "edited", "joined", "nobody"]
)
def test_what_may_have_changed_is_checked_again(job: Job, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_ = recorded(job)
    runs = [run_]
    if what in ("driver", "torch", "libraries", "harness"):
        other: Environment = replace(HERE, **{what: {"numpy": "0"} if what == "libraries" else "another"})  # type: ignore[arg-type]
        runs = [replace(run_, environment=other)]
    elif what == "wrong":  # found wrong since
        runs = [replace(run_, outcomes=tuple(replace(o, status="failed") for o in run_.outcomes)), run_]
    elif what == "older":  # recorded before the files of peers were
        runs = [replace(run_, keys={c: replace(k, code="") for c, k in run_.keys.items()})]
    elif what == "edited":
        runs = [replace(run_, keys={c: replace(k, code="other") for c, k in run_.keys.items()})]
    elif what == "joined":  # by a run of this machine, from one of another
        runs = [replace(run_, outcomes=tuple(replace(o, origin="elsewhere") for o in run_.outcomes))]
    else:
        job = replace(job, companions=frozenset())
    assert companions.known_right(job, NOTHING, runs) == frozenset()


def test_a_source_is_known_before_its_static_facts_are_read(
    job: Job, toy: ToyBuilt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "torch_root", TORCH_ROOT)
    folder = shutil.copytree(toy.folder, tmp_path / "built")
    job = replace(job, settings=replace(job.settings, build=str(folder)))
    compiling = Compiling(job, lambda _: None, ahead=True)
    whole = compiling.finish()
    cases = [(v, s) for v, s in job.cases("check") if isinstance(v.kind, Cuda) and v.name in job.companions]
    keys = freshness.case_keys(job.suite, cases, whole.artifacts, whole.plans, "sm_90a", whole.nvcc)
    assert keys and not any(a.code for a in compiling.first.artifacts)
    outcomes = tuple(CaseOutcome(v.name, s.name, "check", "ok", "", 0.1) for v, s in cases)
    run_ = replace(factory.record(), keys=keys, outcomes=outcomes, environment=HERE)
    assert companions.known_right(job, compiling.first, [run_]) == keys.keys()


def test_companions_run_where_a_chosen_variant_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = factory.variant("own", where=Where(("*",), ("long",)))
    shapes = [factory.shape("mission"), factory.shape("long")]
    variants = [own, factory.variant("slow"), factory.peer("all")]
    suite = replace(factory.suite(variants=variants, shapes=shapes), baseline="slow")
    monkeypatch.setattr(run, "load", lambda *_: suite)
    monkeypatch.setattr(Gpu, "find", lambda: None)

    def cases(*shapes: str, variant: str | None = "own") -> set[str]:
        chosen = Settings("suite", variant=variant, shapes=shapes, build=str(tmp_path), upto="bench")
        return {f"{v.name}/{s.name}" for v, s in run.start(chosen).cases("bench")}

    assert cases() == {"own/long", "slow/long", "all/long"}
    assert "all/mission" in cases("mission"), "what the user names is timed"
    assert "all/mission" in cases(variant=None)
