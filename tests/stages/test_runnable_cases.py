"""Which cases a stage can run, why it leaves others out, and what a child calls for each."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from flashcore.model import plugin
from flashcore.model.cause import Cause
from flashcore.model.causes import (
    FAILED_BEFORE,
    MESSAGE,
    NOT_BUILT,
    WRONG_BEFORE,
    DidNotCompile,
    Hang,
    HungBefore,
    PlanRefused,
    hangs,
)
from flashcore.model.record import Artifact, Built, CaseOutcome, Plan
from flashcore.model.suite import AheadOfTime, RecordedCubins, Stage
from flashcore.runner.kernel_call import Compiled, Launched, Operator, Reference
from flashcore.stages.runnable_cases import child_cases, sort_out
from tests import factory
from tests.support import staged

SUITE = factory.suite()
FAST, REFERENCE = SUITE.variants["fast"], SUITE.variants["cudnn"]
ARTIFACT = factory.artifact("fast", "sm_90a", library="fast.so", host="op_fast")


def left_out(
    folder: Path, artifact: Artifact | None = ARTIFACT, plan: Plan | None = None, before: tuple[CaseOutcome, ...] = ()
) -> dict[str, tuple[str, object]]:
    """Case → status and cause of those that the bench leaves out; the reference's cases are ready unless ``before``."""
    built = Built("", (artifact,) if artifact else (), (plan,) if plan else ())
    context = staged.context(folder, gpu_arch="sm_90a", built=built)
    selected = replace(context, variants=(FAST, REFERENCE), shapes=tuple(SUITE.shapes.values()))
    ready, outcomes = sort_out(selected, "bench", before)
    assert {str(o.case) for o in outcomes} | {c.name for c in ready} == {
        f"{v}/{s}" for v in ("fast", "cudnn") for s in ("mission", "long")
    }
    assert len(ready) + len(outcomes) == 4 and {o.stage for o in outcomes} <= {"bench"}
    return {str(o.case): (o.status, o.cause) for o in outcomes}


BOTH = ("fast/mission", "fast/long")


@pytest.mark.parametrize(
    ("artifact", "plan", "cases", "status", "cause"),
    [
        (ARTIFACT, None, (), "", None),
        (ARTIFACT, factory.plan("fast", "long"), (), "", None),
        (None, None, BOTH, "unsupported", NOT_BUILT("sm_90a")),
        (replace(ARTIFACT, status="unsupported", cause=MESSAGE("why")), None, BOTH, "unsupported", MESSAGE("why")),
        (replace(ARTIFACT, arch="sm_80"), None, BOTH, "unsupported", NOT_BUILT("sm_90a")),
        (replace(ARTIFACT, status="failed"), None, BOTH, "skipped", DidNotCompile("sm_90a")),
        (ARTIFACT, factory.plan("fast", "long", error="D"), BOTH[1:], "unsupported", PlanRefused("D")),
        (ARTIFACT, Plan("fast", "long", (), 0, Hang(2)), BOTH[1:], "failed", Hang(2)),
    ],
)
def test_what_was_not_built_or_planned_is_left_out_and_no_reference(
    artifact: Artifact | None, plan: Plan | None, cases: tuple[str, ...], status: str, cause: object, tmp_path: Path
) -> None:
    assert left_out(tmp_path, artifact, plan) == dict.fromkeys(cases, (status, cause))


@pytest.mark.parametrize(
    ("stage", "status", "cause", "other"),
    [
        ("check", "failed", MESSAGE("x"), True),
        ("profile", "failed", MESSAGE("x"), False),
        ("profile", "failed", Hang(2), True),
        ("check", "skipped", MESSAGE("x"), False),
        ("check", "ok", None, None),
    ],
)
def test_a_variant_that_is_wrong_or_hangs_is_trusted_on_no_shape(
    stage: Stage, status: str, cause: Cause | None, other: bool | None, tmp_path: Path
) -> None:
    outcome = replace(factory.outcome("cudnn", "mission", stage, status), cause=cause)
    expected: dict[str, tuple[str, object]] = {}
    if cause is not None:
        expected["cudnn/mission"] = ("skipped", FAILED_BEFORE(cause))
    if cause is not None and other:
        expected["cudnn/long"] = ("skipped", (HungBefore if hangs(cause) else WRONG_BEFORE)("mission", cause))
    assert left_out(tmp_path, before=(outcome,)) == expected


def test_a_case_says_what_its_child_calls(tmp_path: Path) -> None:
    shape = replace(SUITE.shapes["long"], repeats=3)
    built = Built("", (ARTIFACT, factory.artifact("fast", "sm_80")), (factory.plan("fast", "long"),))
    context = staged.context(tmp_path, gpu_arch="sm_90a", built=built, device="cuda")
    variant_case, other, reference = child_cases(
        context, [(FAST, shape), (SUITE.variants["slow"], shape), (REFERENCE, shape)]
    )
    assert variant_case.target == Operator(str(Path("fast.so").resolve()), "op_fast")
    assert (variant_case.launches, variant_case.repeats, variant_case.params) == (1, 3, factory.LONG)
    assert (other.target, other.launches) == (Operator(), 0)
    assert (reference.target, reference.repeats) == (Reference("peers.py:cudnn"), 0)


#: As of a language.
launcher = ""


def calls(artifact: Artifact, shape: str) -> list[list[dict[str, str]]]:
    """As of a language."""
    return [[{"code": f"{artifact.variant} {shape}"}]]


@pytest.mark.parametrize("launcher", ["", "a.launcher:target"])
def test_a_launcher_calls_what_a_language_compiled_and_planned(
    launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "entry", lambda kind, name: __name__ if name == "triton" else None)
    shape, compiled = SUITE.shapes["long"], replace(FAST, kind=AheadOfTime("triton", "f.py:f"))
    recorded = replace(FAST, name="slow", kind=RecordedCubins("folder", "f.py:f"))
    plan = replace(factory.plan("fast", "long"), workspace_bytes=64)
    artifacts = [factory.artifact(name, "sm_90a", cubins={"k": "0.cubin"}) for name in ("fast", "slow")]
    built = Built("", tuple(artifacts), (plan,))
    context = staged.context(tmp_path, gpu_arch="sm_90a", built=built, launcher=launcher)
    one, other, cuda = child_cases(context, [(compiled, shape), (recorded, shape), (FAST, shape)])
    cubins = {"k": str(Path("0.cubin").resolve())}
    calls = ([{"code": "fast long"}],)
    compiled_call = Compiled("f.py:f", dict(plugin.entries("languages"))["triton"], calls, FAST.config)
    assert one.target == (Launched(launcher, cubins, asdict(plan), calls) if launcher else compiled_call)
    assert isinstance(other.target, Compiled) and isinstance(cuda.target, Operator)
