"""What the static facts reject, what is told of the others, and what became of those that were measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from extensions.tune.tests.spaces import declared
from flashcore.build import build
from flashcore.model.case import Case
from flashcore.model.causes import MESSAGE, Hang, PlanRefused
from flashcore.model.record import (
    Artifact,
    CaseOutcome,
    CaseSubject,
    Environment,
    Fact,
    Facts,
    Launch,
    Plan,
    Record,
    Source,
    subject_of,
)
from flashcore.model.settings import Settings
from flashcore.model.suite import CudaSource, Suite
from flashcore.stages.context import Context
from flashcore_tune import candidates, space
from flashcore_tune.candidates import Candidates
from flashcore_tune.search import Outcome
from tests import factory

ARCH = "sm_90a"
SPACE = space.Space("toy", "base", {"ROWS": (16, 32, 64, 128)}, ("mission",), hard=("smem_limit",))
LAUNCH = Launch("k", (8, 1, 1), (128, 1, 1), (1, 1, 1), 0)
NAMES = [f"toy_{i}" for i in range(4)]


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    budgets = [
        factory.budget("registers", variants=("base",), maximum=100),
        factory.budget("smem", maximum=1000, variants=("base",)),
        factory.budget("stack_bytes", maximum=0, variants=("other",)),
    ]
    variants = (factory.variant("base", kind=CudaSource("a.cu"), config={"ROWS": 16}), factory.variant("other"))
    return declared(factory.suite(variants=variants, budgets=budgets, baseline="base"), SPACE, tmp_path)


@pytest.fixture
def runs(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Settings, Context]]:
    """The settings and the context of each run, whose record has the facts and outcomes below."""
    made: list[tuple[Settings, Context]] = []

    def opened(settings: Settings, say: Any, *, needs_gpu: bool) -> Context:
        return Context(settings, suite, None, None, build.Options(archs=(ARCH,)), (), ())

    def run(context: Context) -> Any:
        settings = context.settings
        made.append((settings, context))
        machine = Environment(None, "", "", "", "", gpu_arch=ARCH, nvcc="13.0.88")
        outcomes = (settings.upto and OUTCOMES) or ()
        facts = TIMES if settings.upto else FACTS
        return SimpleNamespace(
            record=Record("", "", context.suite, machine, ARTIFACTS, PLANS, outcomes, (), Facts(facts))
        )

    monkeypatch.setattr(candidates, "open_recordable", opened)
    monkeypatch.setattr(candidates, "run", run)
    return made


def facts(name: str, **values: float) -> list[Fact]:
    subjects = {n: subject_of(name, None if n == "registers" else "mission", "k", arch=ARCH) for n in values}
    return [Fact(subjects[n], n, v, "1", Source.CUBIN, detail="too much") for n, v in values.items()]


FACTS = [
    *facts("toy_0", registers=110, smem=500, stack_bytes=8, blocks_per_sm=2),
    *facts("toy_1", registers=90, smem=2000, blocks_per_sm=2),
    *facts("toy_2", registers=90, smem=500, blocks_per_sm=0),
]
ARTIFACTS = (
    *(Artifact(name, ARCH, "ok", code="c", cubin=f"{name}/x.cubin") for name in NAMES[:3]),
    Artifact("toy_3", ARCH, "failed", MESSAGE("static assertion failed\nin a.cu")),
)
PLANS = tuple(Plan(name, "mission", (LAUNCH,), 0) for name in NAMES[:3])
TIMED = CaseSubject(Case("toy_0", "mission"))
TIMES = [
    Fact(TIMED, "isolated_p50", 5.00001, "us", Source.EVENTS),
    Fact(
        replace(TIMED, case=replace(TIMED.case, variant="toy_2")),
        "isolated_p50",
        None,
        "us",
        Source.EVENTS,
        detail="the clock moved",
    ),
]
OUTCOMES = (
    CaseOutcome("toy_0", "mission", "check", "ok"),
    CaseOutcome("toy_0", "mission", "bench", "ok"),
    CaseOutcome("toy_1", "mission", "check", "failed", Hang(3.0)),
    CaseOutcome("toy_1", "mission", "bench", "skipped", Hang(3.0)),
)


def of(suite: Suite, static: bool, folder: Path) -> Candidates:
    settings = Settings(str(suite.root), upto=None)
    return Candidates(settings, suite, space.read(suite, "toy"), folder, static, lambda _: None)


def test_what_cannot_run_is_rejected_and_missed_soft_budgets_are_told(
    suite: Suite, runs: list[tuple[Settings, Context]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gated = of(suite, False, tmp_path).gate(range(4))
    assert [o.rejected for o in gated.values()] == ["", "static", "static", "build"]
    assert gated[0].missed == ("registers_limit",), "the other variant's budget is none of its"
    assert gated[0].facts == {"registers": 110, "smem": 500} and gated[0].code
    assert gated[1].reason.startswith("smem_limit: 2000") and gated[1].missed == ("smem_limit",)
    assert gated[2].reason == "cannot be launched: too much"
    assert gated[3].reason == "static assertion failed"
    ((settings, context),) = runs
    assert settings.upto is None and [*context.suite.variants] == NAMES and context.archs == (ARCH,)
    assert [s.name for s in context.shapes] == ["mission"]
    refused = replace(PLANS[0], cause=PlanRefused("expected whole tiles"), launches=())
    monkeypatch.setattr(f"{__name__}.PLANS", (refused, *PLANS[1:]))
    assert of(suite, False, tmp_path).gate([0])[0].reason == "expected whole tiles"


def test_codes_differ_by_machine_code_and_launches(
    suite: Suite, runs: list[tuple[Settings, Context]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = of(suite, True, tmp_path)
    codes = {made.gate([i])[i].code for i in (0, 1)}
    monkeypatch.setattr(f"{__name__}.ARTIFACTS", (replace(ARTIFACTS[0], code="d"), *ARTIFACTS[1:]))
    codes.add(made.gate([0])[0].code)
    monkeypatch.setattr(f"{__name__}.PLANS", (replace(PLANS[0], launches=(LAUNCH, LAUNCH)), *PLANS[1:]))
    codes.add(made.gate([0])[0].code)
    assert len(codes) == 3, "those of the points 0 and 1 are the same"


def test_what_is_wrong_or_has_no_time_is_rejected(
    suite: Suite, runs: list[tuple[Settings, Context]], tmp_path: Path
) -> None:
    passed = {i: Outcome(facts={"smem": 8.0}) for i in range(3)}
    measured = of(suite, False, tmp_path).measure(passed)
    assert measured[0] == Outcome(times={"mission": 5.0}, facts={"smem": 8.0})
    assert (measured[1].rejected, measured[1].times) == ("check", {})
    assert measured[1].reason.startswith("mission: ") and "3 s" in measured[1].reason
    assert (measured[2].rejected, measured[2].reason) == ("bench", "mission: the clock moved")
    ((settings, _),) = runs
    assert (settings.upto, settings.shapes, settings.bench.modes) == ("bench", ("mission",), ("isolated",))
    assert of(suite, True, tmp_path).measure(passed) == passed and len(runs) == 1, "without a GPU nothing is measured"


def test_compiled_files_are_removed(suite: Suite, runs: list[tuple[Settings, Context]], tmp_path: Path) -> None:
    """Those of rejected candidates at once, those of the others after they were measured."""
    artifacts = [replace(a, cubin=str(tmp_path / a.variant / "x.cubin")) for a in ARTIFACTS]
    for artifact in artifacts:
        (tmp_path / artifact.variant).mkdir()
    made = of(suite, False, tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(f"{__name__}.ARTIFACTS", tuple(artifacts))
        gated = made.gate(range(4))
        assert [p.name for p in sorted(tmp_path.glob("toy_*"))] == ["toy_0"]
        made.measure({0: gated[0]})
    assert not list(tmp_path.glob("toy_*"))
