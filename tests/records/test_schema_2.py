"""Runs of schema 2: their prose becomes causes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from flashcore.model import cause_text, causes
from flashcore.records import lookup, schema_2, store
from tests import factory
from tests.conftest import ROOT

HANG = causes.Hang(5.0, "spin cold")
CAUSES = [
    causes.NoCounter("gh100"),
    causes.CounterRefused("sm__x.sum", "Failed to find metric"),
    causes.ReferenceNotTimed("slow"),
    causes.ReferenceNotTimed(),
    causes.TooFewCalls(40),
    causes.BelowMedian(400, 1.25),
    causes.NoNvml(),
    causes.ClusterUnknown(8),
    causes.NotReturned(many_passes=True),
    causes.NotReturned(report=True),
    causes.CounterContradicts("cannot be: a kernel that ran has more than 0"),
    causes.NoPlan(profiled=True),
    causes.NoFormula("flop"),
    causes.NoTool("nvdisasm"),
    causes.Unreadable("nvdisasm"),
    causes.NoMachineCode(),
    causes.OneSample(),
    causes.OtherProcesses(2),
    causes.ClocksDisagree(1.25, 2.5),
    HANG,
    causes.HungBefore("long", HANG),
    causes.FailedBefore(causes.WrongBefore("long", HANG)),
    causes.DidNotCompile("sm_80"),
    causes.NotBuilt("sm_80"),
    causes.NeverMeasured(),
    causes.ReferenceChanged(),
    causes.NoHostHash("recorded"),
    causes.CodeChanged("host"),
    causes.Message("anything else"),
]
BASES = [
    causes.OverReference("slow", "isolated", 30),
    causes.Caches(kept=True),
    causes.Caches(kept=None),
    causes.Sampled(1234, 1.5),
    causes.WorstInput(3, "random"),
]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.code)
def test_a_reason_becomes_its_cause(cause: causes.Cause) -> None:
    assert schema_2.cause(cause_text.text(cause)) == cause


def test_notes_of_measured_facts_become_how_they_were_measured() -> None:
    notes = (*map(cause_text.text, BASES), "a remark", "")
    assert [schema_2.detail("l2_hit", 1.0, note) for note in notes] == [*BASES, "a remark", ""]
    assert schema_2.detail("local_memory_site", "k.cuh:12", "") == causes.SourceLine("k.cuh", 12)


@pytest.mark.parametrize("run", lookup.runs(ROOT / "profiles"), ids=lambda run: run.name)
def test_published_runs_are_read(run: Path) -> None:
    record = store.read(run)
    assert record.facts and not [f for f in record.facts if isinstance(f.detail, causes.Unknown)]


def text(data: Any) -> str:
    return cause_text.text(data and causes.from_json(data))


def test_a_run_of_schema_2_is_read_with_causes(tmp_path: Path) -> None:
    suite = factory.suite()
    record = factory.record(
        suite,
        [factory.fact("l2_hit", None, "fast", shape="mission", detail=causes.NoCounter("gh100"))],
        outcomes=(factory.outcome("fast", "mission", "check", "failed", "no answer within 5 s: hang?"),),
        plans=(factory.plan("fast", "long", error="too long"),),
        artifacts=(*factory.artifacts(suite), factory.artifact("split", "sm_80", "failed", "k.cu(3): error: x")),
        stale={"slow/mission": causes.CodeChanged("device")},
    )
    store.write(record, tmp_path)
    header = json.loads((tmp_path / store.HEADER).read_bytes())
    for entry, name in [(a, "message") for a in header["artifacts"]] + [(o, "reason") for o in header["outcomes"]]:
        entry[name] = text(entry.pop("cause"))
    for plan in header["plans"]:
        plan |= {"error": text(plan.pop("cause")), "crashed": False}
    for stage in header["stages"]:
        stage["reason"] = stage.pop("detail")
    header |= {"stale": {case: text(cause) for case, cause in header["stale"].items()}, "schema_version": 2}
    (tmp_path / store.HEADER).write_text(json.dumps(header), encoding="utf-8")
    facts: dict[str, Any] = json.loads(gzip.decompress((tmp_path / store.FACTS).read_bytes()))
    details = [text(d) for d in facts.pop("details")]
    for row in facts["facts"]:
        row[5] = details[row[5]] if isinstance(row[5], int) else row[5]
    (tmp_path / store.FACTS).write_bytes(gzip.compress(json.dumps(facts).encode()))
    (tmp_path / store.SUMS).unlink()
    found = store.read(tmp_path)
    assert [*found.facts] == [*record.facts] and found.plans == record.plans and found.stale == record.stale
    assert found.outcomes[0].cause == causes.Hang(5.0)
    assert {a.cause for a in found.artifacts} >= {causes.CompileFailed("k.cu(3): error: x", "k.cu", 3), None}
