"""Differences between records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashcore.analysis import diff
from flashcore.cli import text_tables
from flashcore.model.record import Facts, Record, Subject
from tests import factory

OLD = "20260101T000000Z-0000"


def with_registers(value: int | None, **changes: object) -> Record:
    fact = factory.fact("registers", value, "fast", arch="sm_89", kernel="fast_kernel")
    return factory.record(facts=[fact], **changes)  # type: ignore[arg-type]


def test_two_equal_records_do_not_differ() -> None:
    a, b = factory.record(id=OLD), factory.record()
    assert diff.changes(a, b) == []
    assert "no change" in text_tables.difference(a, b)


def test_one_changed_fact_is_found_and_named() -> None:
    (change,) = diff.changes(with_registers(80), with_registers(96))
    assert str(change.subject) == "fast/fast_kernel (sm_89)"
    assert (change.fact, change.before, change.after, change.direction) == ("registers", 80, 96, "worse")
    assert diff.changes(with_registers(96), with_registers(80))[0].direction == "better"


def test_appeared_and_vanished() -> None:
    whole = with_registers(96)
    gone = factory.without(whole, "registers", variant="fast", arch="sm_89")
    assert [c.direction for c in diff.changes(whole, gone)] == ["vanished"]
    assert [c.direction for c in diff.changes(gone, whole)] == ["appeared"]
    assert diff.changes(gone, with_registers(None)) == []  # unmeasured on both sides


def test_text_and_undirected_facts_only_change() -> None:
    where = {"arch": "sm_89", "shape": "long", "kernel": "fast_kernel"}
    facts = [
        factory.fact("occupancy_limiter", "warps", "fast", **where),  # type: ignore[arg-type]
        factory.fact("blocks", 64, "fast", **where),  # type: ignore[arg-type]
    ]
    found = diff.changes(factory.record(), factory.record(facts=facts))
    assert {(c.fact, c.direction) for c in found} == {("occupancy_limiter", "changed"), ("blocks", "changed")}


def test_counters_are_compared_when_asked_for() -> None:
    moved = factory.record(facts=[factory.fact("bank_conflicts", 9, "fast", shape="mission")])
    assert diff.changes(factory.record(), moved) == []
    assert [c.fact for c in diff.changes(factory.record(), moved, ("static", "counters"))] == ["bank_conflicts"]


# --- times --------------------------------------------------------------------------------------


def test_times_of_other_runs_are_shown_and_not_judged() -> None:
    a, b = factory.record(id=OLD, times={"fast": 50.0}), factory.record(times={"fast": 40.0})
    found = {(str(t.subject), t.mode): t for t in diff.timing(a, b)}
    change = found["fast/mission", "isolated"]
    assert change.ratio == pytest.approx(1.25, rel=0.01)
    assert change.low < 1.25 < change.high or change.high - change.low < 0.02
    assert "faster" in change.text
    assert not change.judged
    assert found["slow/long", "cold"].text.startswith("no difference")
    assert diff.timing(b, b)[0].judged


def test_slower_reads_as_slower() -> None:
    a, b = factory.record(id=OLD, times={"fast": 40.0}), factory.record(times={"fast": 50.0})
    (change,) = [t for t in diff.timing(a, b, ("isolated",)) if str(t.subject) == "fast/long"]
    assert change.text.startswith("1.2")
    assert "slower" in change.text


def test_the_same_code_is_said_whatever_the_clock_did() -> None:
    a, b = factory.record(id=OLD, times={"fast": 50.0}), factory.record()
    assert all(t.same_code for t in diff.timing(a, b) if t.subject.variant == "fast")
    assert not any(t.same_code for t in diff.timing(a, b) if t.subject.variant == "cudnn")
    key = factory.case_key(b.suite.variants["fast"], b.suite.shapes["long"], code="other")
    changed = replace(b, keys={**b.keys, "fast/long": key})
    (one,) = [t for t in diff.timing(a, changed, ("isolated",)) if str(t.subject) == "fast/long"]
    assert not one.same_code
    older = factory.case_key(b.suite.variants["fast"], b.suite.shapes["long"], nvcc="12.8.93")
    (one,) = [
        t
        for t in diff.timing(replace(a, keys={**a.keys, "fast/long": older}), b, ("isolated",))
        if str(t.subject) == "fast/long"
    ]
    assert not one.same_code


def test_a_shape_that_changed_is_not_compared() -> None:
    other = factory.suite(
        shapes=[factory.shape("mission", {**factory.MISSION, "S": 1024}), factory.shape("long", factory.LONG)]
    )
    found = diff.timing(factory.record(other, id=OLD), factory.record())
    assert {t.subject.shape for t in found} == {"long"}


def test_other_machines_are_not_compared_in_time() -> None:
    a = factory.record(id=OLD, environment=factory.environment(gpu="NVIDIA L4"))
    b = factory.record()
    assert diff.comparable(a, b) == "measured on NVIDIA L4, not NVIDIA H200"
    assert "faster" not in text_tables.difference(a, b)
    assert any("not comparable" in r for r in diff.remarks(a, b))
    assert diff.comparable(factory.bare_record(environment=factory.environment(gpu=None)), b) == "no GPU was measured"
    renamed = replace(b, suite=replace(b.suite, name="other"))
    assert "suite" in diff.comparable(renamed, b)


def test_another_compiler_is_remarked() -> None:
    a = factory.record(id=OLD, environment=factory.environment(nvcc="12.8.93"))
    assert any("nvcc 12.8.93" in r for r in diff.remarks(a, factory.record()))


def test_facts_of_a_subject_that_the_suite_lost() -> None:
    record = factory.record()
    lost = Facts([*record.facts, factory.fact("registers", 7, "old_variant", arch="sm_89", kernel="k")])
    found = diff.changes(replace(record, facts=lost), record)
    assert [(c.subject, c.direction) for c in found] == [(Subject("old_variant", "sm_89", kernel="k"), "vanished")]
