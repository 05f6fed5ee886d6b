"""The static half of the funnel: what falls before a GPU is asked, and what is told of the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from extensions.tune.tests.spaces import declared
from flashcore.measure.build import build
from flashcore.measure.context import Context
from flashcore.measure.settings import Settings
from flashcore.model.causes import Message, PlanRefused
from flashcore.model.record import Artifact, Built, Fact, Launch, Plan, Source, Subject
from flashcore.model.suite import CudaSource
from flashcore.readers import host_code
from flashcore_tune import candidates, grid
from flashcore_tune.space import Space
from tests import factory

ARCH = "sm_90a"
SPACE = Space("toy", "base", {"ROWS": (16, 32, 64, 128)}, ("mission",), hard=("smem_limit",))
LAUNCH = Launch("k", (8, 1, 1), (128, 1, 1), (1, 1, 1), 0)


@pytest.fixture
def job(tmp_path: Path) -> Context:
    budgets = [
        factory.budget("registers", variants=("base",), maximum=100),
        factory.budget("smem", maximum=1000, variants=("base",)),
        factory.budget("stack_bytes", maximum=0, variants=("other",)),
    ]
    variants = (factory.variant("base", kind=CudaSource("a.cu"), config={"ROWS": 16}), factory.variant("other"))
    suite = declared(factory.suite(variants=variants, budgets=budgets, baseline="base"), SPACE, tmp_path)
    shapes = tuple(suite.shapes.values())
    return Context(Settings("s"), suite, None, None, build.Options(archs=(ARCH,)), variants, shapes)


def facts(name: str, **values: float) -> list[Fact]:
    shapes = {"registers": None, "stack_bytes": None}
    subjects = {n: Subject(name, ARCH, shapes.get(n, "mission"), "k") for n in values}
    return [Fact(subjects[n], n, v, "1", Source.CUBIN, detail="too much") for n, v in values.items()]


def test_what_cannot_run_falls_and_soft_budgets_are_told(
    job: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    points = grid.of_suite(job.suite, "toy")
    narrow = candidates.narrowed(job, points, range(4), (), "")
    assert list(narrow.suite.variants) == ["toy_0", "toy_1", "toy_2", "toy_3"]
    assert [s.name for s in narrow.shapes] == ["mission"]
    values = [
        {"registers": 110, "smem": 500, "stack_bytes": 8, "blocks_per_sm": 2},
        {"registers": 90, "smem": 2000, "blocks_per_sm": 2},
        {"registers": 90, "smem": 500, "blocks_per_sm": 0},
        {},
    ]
    artifacts = [Artifact(f"toy_{i}", ARCH, "ok", code="c", cubin=f"{tmp_path}/{i}/x.cubin") for i in range(3)]
    failed = Artifact("toy_3", ARCH, "failed", Message("static assertion failed"))
    plans = tuple(Plan(f"toy_{i}", "mission", (LAUNCH,), 0) for i in range(3))
    all_facts = tuple(f for i, v in enumerate(values) for f in facts(f"toy_{i}", **v))
    built = Built("13.0.88", (*artifacts, failed), plans, all_facts)
    monkeypatch.setattr(candidates, "compile_all", lambda job: built)
    monkeypatch.setattr(host_code, "read", lambda path, without: ("host", "cxx"))
    _, results = candidates.build(job, points, range(4))
    assert [r.fell for r in results] == ["", "static", "static", "build"]
    assert results[0].broken == {"registers_limit": 0.1}, "missed by a tenth; the other variant's budget is none of its"
    assert results[0].facts["stack_bytes"] == 8 and results[0].code
    assert results[1].reason.startswith("smem_limit: 2000") and results[1].broken == {"smem_limit": 1.0}
    assert results[2].reason == "cannot be launched: too much"
    assert results[3].reason == "static assertion failed"
    refused = replace(
        built, plans=(replace(plans[0], cause=PlanRefused("expected whole tiles"), launches=()), *plans[1:])
    )
    monkeypatch.setattr(candidates, "compile_all", lambda job: refused)
    assert candidates.build(job, points, [0])[1][0].reason == "expected whole tiles"


def test_machine_code_is_told_apart_by_device_host_and_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    host = {"a": "h1", "b": "h2"}
    monkeypatch.setattr(host_code, "read", lambda path, without: (host[without], ""))
    artifact = Artifact("a", ARCH, "ok", code="c", cubin="x/y.cubin")
    first = candidates._code(artifact, "a", [1])
    assert first == candidates._code(artifact, "a", [1])
    others = [candidates._code(artifact, "b", [1]), candidates._code(artifact, "a", [2])]
    assert len({first, *others, candidates._code(replace(artifact, code="d"), "a", [1])}) == 4
