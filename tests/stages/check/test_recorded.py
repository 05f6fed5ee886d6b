"""Cases timed with the selected variants: where they run, and that those checked earlier are not checked again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.machine import toolchain
from flashcore.machine.gpu import Gpu
from flashcore.model.case import Case
from flashcore.model.record import Built, CaseOutcome, Environment, Record, StageResult
from flashcore.model.suite import Cuda, Where
from flashcore.pipeline.opening import open_context
from flashcore.records import freshness
from flashcore.runner.kernel_call import KernelCall
from flashcore.stages import context as context_module
from flashcore.stages.bench import bench
from flashcore.stages.check import check, recorded
from flashcore.stages.compiling import compile_all
from flashcore.stages.context import Context
from flashcore.stages.gpu_stages import measure
from flashcore.stages.settings import Settings
from tests import factory
from tests.conftest import TOY
from tests.conftest import Built as ToyBuilt

H200 = Gpu("NVIDIA H200", (9, 0), 132, 1, 1, 1980.0, "580")
HERE = factory.record().environment
TORCH_ROOT = toolchain.torch_root
NOTHING = Built("13.0.88", (), ())


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Context:
    monkeypatch.setattr(Gpu, "find", lambda: H200)
    monkeypatch.setattr(toolchain, "torch_root", lambda: TOY)
    monkeypatch.setattr(recorded, "of_this_machine", lambda *_: HERE)
    monkeypatch.delenv("CUDA_ARCH", raising=False)
    chosen = Settings(str(TOY), variants=("two_steps",), build=str(tmp_path), upto="bench", roofs=None)
    return replace(open_context(chosen), built=NOTHING)


def record_of(context: Context, **changes: object) -> Record:
    """A run in which the reference was right on all its shapes."""
    cases = [(v, s) for v, s in context.cases("check") if v.is_reference]
    assert cases and cases[0][0].name in context.references
    keys = freshness.case_keys(context.suite, cases, (), (), "sm_90a", "13.0.88")
    outcomes = tuple(CaseOutcome(v.name, s.name, "check", "ok", None, 0.1) for v, s in cases)
    return replace(factory.record(), suite=context.suite, keys=keys, outcomes=outcomes, environment=HERE, **changes)  # type: ignore[arg-type]


def test_a_reference_checked_in_an_earlier_run_is_not_checked_again(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = recorded.already_checked(context, [record_of(context)])
    assert checked == {Case(v.name, s.name) for v, s in context.cases("check") if v.is_reference}
    seen: dict[str, list[Case]] = {}

    def ran(stage: str) -> Callable[[Context, list[KernelCall]], StageResult]:
        def run(_: Context, cases: list[KernelCall]) -> StageResult:
            seen[stage] = [c.case for c in cases]
            return StageResult((), ())

        return run

    monkeypatch.setattr(check, "run", ran("check"))
    monkeypatch.setattr(bench, "run", ran("bench"))
    messages: list[str] = []
    measure(replace(context, folder=tmp_path, say=messages.append), checked)
    assert not checked & set(seen["check"]) and checked & set(seen["bench"]) == checked & {
        Case(v.name, s.name) for v, s in context.cases("bench")
    }
    assert any(f"{len(checked)} checked in an earlier run" in line for line in messages)


@pytest.mark.parametrize(
    "what", ["driver", "torch", "libraries", "harness", "wrong", "older", "edited", "joined", "nobody"]
)
def test_what_may_have_changed_is_checked_again(context: Context, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_ = record_of(context)
    runs = [run_]
    if what in ("driver", "torch", "libraries", "harness"):
        other: Environment = replace(HERE, **{what: {"numpy": "0"} if what == "libraries" else "another"})  # type: ignore[arg-type]
        runs = [replace(run_, environment=other)]
    elif what == "wrong":  # found wrong since
        runs = [replace(run_, outcomes=tuple(replace(o, status="failed") for o in run_.outcomes)), run_]
    elif what == "older":  # recorded before the files of references were
        runs = [replace(run_, keys={c: replace(k, code="") for c, k in run_.keys.items()})]
    elif what == "edited":
        runs = [replace(run_, keys={c: replace(k, code="other") for c, k in run_.keys.items()})]
    elif what == "joined":  # by a run of this machine, from one of another
        runs = [replace(run_, outcomes=tuple(replace(o, origin="elsewhere") for o in run_.outcomes))]
    else:
        context = replace(context, references=frozenset())
    assert recorded.already_checked(context, runs) == frozenset()


def test_a_compiled_reference_is_known_by_its_code(
    context: Context, toy: ToyBuilt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "torch_root", TORCH_ROOT)
    folder = shutil.copytree(toy.folder, tmp_path / "built")
    context = replace(context, settings=replace(context.settings, build=str(folder)))
    built = compile_all(context)
    cases = [(v, s) for v, s in context.cases("check") if isinstance(v.kind, Cuda) and v.name in context.references]
    keys = freshness.case_keys(context.suite, cases, built.artifacts, built.plans, "sm_90a", built.nvcc)
    outcomes = tuple(CaseOutcome(v.name, s.name, "check", "ok", None, 0.1) for v, s in cases)
    run_ = replace(factory.record(), suite=context.suite, keys=keys, outcomes=outcomes, environment=HERE)
    assert recorded.already_checked(replace(context, built=built), [run_]) == keys.keys() != set()


def test_companions_run_where_a_chosen_variant_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    selected = factory.variant("own", where=Where(("*",), ("long",)))
    shapes = [factory.shape("mission"), factory.shape("long")]
    variants = [selected, factory.variant("slow"), factory.reference("all")]
    suite = replace(factory.suite(variants=variants, shapes=shapes), baseline="slow")
    monkeypatch.setattr(context_module, "load", lambda *_: suite)
    monkeypatch.setattr(Gpu, "find", lambda: None)

    def cases(*shapes: str, variants: tuple[str, ...] = ("own",)) -> set[str]:
        chosen = Settings("suite", variants=variants, shapes=shapes, build=str(tmp_path), upto="bench")
        return {f"{v.name}/{s.name}" for v, s in open_context(chosen).cases("bench")}

    assert cases() == {"own/long", "slow/long", "all/long"}
    assert "all/mission" in cases("mission"), "what the user names is timed"
    assert "all/mission" in cases(variants=())
