"""The facts and times that changed between two records."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import pytest

from flashcore.explain import compare_records
from flashcore.model.case import Case
from flashcore.model.causes import SourceLine
from flashcore.model.record import CaseSubject, CodeSubject, Facts, Record, Time
from tests import factory

OLD = "20260101T000000Z-0000"
FAST, CUDNN = (CaseSubject(Case(variant, "mission")) for variant in ("fast", "cudnn"))


def with_registers(value: int | None, **changes: object) -> Record:
    fact = factory.fact("registers", value, "fast", arch="sm_89", kernel="fast_kernel")
    return factory.record(facts=[fact], **changes)  # type: ignore[arg-type]


def test_two_equal_records_do_not_differ() -> None:
    assert compare_records.changes(factory.record(id=OLD), factory.record()) == []


def test_one_changed_fact_is_found_and_named() -> None:
    (change,) = compare_records.changes(with_registers(80), with_registers(96))
    assert str(change.subject) == "fast/fast_kernel (sm_89)"
    assert (change.fact, change.before, change.after, change.outcome) == ("registers", 80, 96, "worse")
    assert compare_records.changes(with_registers(96), with_registers(80))[0].outcome == "better"


def test_a_fact_that_only_one_side_has_is_new_or_gone() -> None:
    whole = with_registers(96)
    gone = factory.without(whole, "registers", variant="fast", arch="sm_89")
    assert [c.outcome for c in compare_records.changes(whole, gone)] == ["gone"]
    assert [c.outcome for c in compare_records.changes(gone, whole)] == ["new"]
    assert compare_records.changes(gone, with_registers(None)) == []  # unmeasured on both sides


def test_text_and_undirected_facts_only_change() -> None:
    where = {"arch": "sm_89", "shape": "long", "kernel": "fast_kernel"}
    facts = [
        factory.fact("occupancy_limiter", "warps", "fast", **where),  # type: ignore[arg-type]
        factory.fact("blocks", 64, "fast", **where),  # type: ignore[arg-type]
    ]
    changes = compare_records.changes(factory.record(), factory.record(facts=facts))
    assert {(c.fact, c.outcome) for c in changes} == {("occupancy_limiter", "changed"), ("blocks", "changed")}


def test_times_and_moved_source_lines_are_no_static_changes() -> None:
    first, second = (factory.site(SourceLine("a.cu", line)) for line in (3, 4))
    old, new = factory.record(facts=[first], times={"fast": 80.0}), factory.record(facts=[second])
    assert compare_records.changes(old, new) == []


# --- times --------------------------------------------------------------------------------------


def test_facts_of_a_subject_that_the_suite_lost() -> None:
    record = factory.record()
    lost = Facts([*record.facts, factory.fact("registers", 7, "old_variant", arch="sm_89", kernel="k")])
    changes = compare_records.changes(replace(record, facts=lost), record)
    assert [(c.subject, c.outcome) for c in changes] == [(CodeSubject("old_variant", "sm_89", kernel="k"), "gone")]


# --- the same code ---------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["before", "after"])
def test_code_that_one_side_does_not_know_is_not_the_same(which: str) -> None:
    whole = factory.record()
    bare = replace(whole, keys={})
    sides = (bare, whole) if which == "before" else (whole, bare)
    assert compare_records.same_code(whole, FAST, whole, FAST)
    assert not compare_records.same_code(sides[0], FAST, sides[1], FAST)
    assert not compare_records.same_code(sides[0], CUDNN, sides[1], CUDNN)


@pytest.mark.parametrize("change", [{"code": "a"}, {"code": "z"}, {"nvcc": "12.0"}, {"nvcc": "14.0"}])
def test_another_code_or_compiler_is_not_the_same(change: dict[str, Any]) -> None:
    whole = factory.record()
    key = whole.keys[Case("fast", "mission")]
    other = replace(whole, keys={Case("fast", "mission"): replace(key, **change)})
    assert not compare_records.same_code(whole, FAST, other, FAST)
    reference = replace(whole, keys={Case("fast", "mission"): replace(key, is_reference=True)})
    assert not compare_records.same_code(reference, FAST, reference, FAST)


def test_a_change_of_time_lies_in_its_interval_whatever_the_counts() -> None:
    """Extra rounds that only one side has move its median, and not the ratio."""
    before, after = (
        Time(CaseSubject(Case(name, "small")), "isolated", statistics.median(samples), samples)
        for name, samples in (("slow", (20.0,) * 30), ("fast", (10.0,) * 30 + (8.0,) * 80))
    )
    change = compare_records.time_change(before, after)
    assert change and change.speedup and (change.speedup.value, change.speedup.ends) == (2.0, (2.0, 2.0))
    assert change.after == 8.0


def test_a_time_that_both_joined_from_one_run_is_the_same() -> None:
    one = factory.record()
    joined = replace(one, id="20260109T030405Z-0009", outcomes=tuple(replace(o, origin=one.id) for o in one.outcomes))
    at = CaseSubject(Case("fast", "mission"))
    change = compare_records.time_change(one.time(at, "isolated"), joined.time(at, "isolated"))
    assert change is not None and change.outcome == "no difference"
    assert (change.ratio, change.low, change.high) == (1, 1, 1)
