"""Differences between records."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import pytest

from flashcore.explain import diff
from flashcore.model.causes import SourceLine
from flashcore.model.record import Facts, Record, Subject, Time
from tests import factory

OLD = "20260101T000000Z-0000"


def with_registers(value: int | None, **changes: object) -> Record:
    fact = factory.fact("registers", value, "fast", arch="sm_89", kernel="fast_kernel")
    return factory.record(facts=[fact], **changes)  # type: ignore[arg-type]


def test_two_equal_records_do_not_differ() -> None:
    assert diff.changes(factory.record(id=OLD), factory.record()) == []


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
    differences = diff.changes(factory.record(), factory.record(facts=facts))
    assert {(c.fact, c.direction) for c in differences} == {("occupancy_limiter", "changed"), ("blocks", "changed")}


def test_times_and_moved_source_lines_are_no_static_changes() -> None:
    first, second = (factory.site(SourceLine("a.cu", line)) for line in (3, 4))
    old, new = factory.record(facts=[first], times={"fast": 80.0}), factory.record(facts=[second])
    assert diff.changes(old, new) == []


# --- times --------------------------------------------------------------------------------------


def test_facts_of_a_subject_that_the_suite_lost() -> None:
    record = factory.record()
    lost = Facts([*record.facts, factory.fact("registers", 7, "old_variant", arch="sm_89", kernel="k")])
    differences = diff.changes(replace(record, facts=lost), record)
    assert [(c.subject, c.direction) for c in differences] == [
        (Subject("old_variant", "sm_89", kernel="k"), "vanished")
    ]


# --- the same code ---------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["before", "after"])
def test_code_that_one_side_does_not_know_is_not_the_same(which: str) -> None:
    whole = factory.record()
    bare = replace(whole, keys={})
    sides = (bare, whole) if which == "before" else (whole, bare)
    assert diff.same_code(whole, whole, "fast/mission")
    assert not diff.same_code(*sides, "fast/mission")
    assert not diff.same_code(*sides, "cudnn/mission")


@pytest.mark.parametrize("change", [{"code": "a"}, {"code": "z"}, {"nvcc": "12.0"}, {"nvcc": "14.0"}])
def test_another_code_or_compiler_is_not_the_same(change: dict[str, Any]) -> None:
    whole = factory.record()
    key = whole.keys["fast/mission"]
    other = replace(whole, keys={"fast/mission": replace(key, **change)})
    assert not diff.same_code(whole, other, "fast/mission")
    peer = replace(whole, keys={"fast/mission": replace(key, peer=True)})
    assert not diff.same_code(peer, peer, "fast/mission")


def test_a_change_of_time_lies_in_its_interval_whatever_the_counts() -> None:
    """Extra rounds that only one side has move its median, and not the ratio."""
    before, after = (
        Time(Subject(name, shape="small"), "isolated", statistics.median(samples), samples)
        for name, samples in (("slow", (20.0,) * 30), ("fast", (10.0,) * 30 + (8.0,) * 80))
    )
    change = diff.time_change(before, after, False)
    assert change is not None and (change.speedup.value, change.speedup.ends) == (2.0, (2.0, 2.0))
    assert change.after_us == 8.0


def test_a_time_that_both_joined_from_one_run_is_the_same() -> None:
    one = factory.record()
    joined = replace(one, id="20260109T030405Z-0009", outcomes=tuple(replace(o, origin=one.id) for o in one.outcomes))
    at = Subject("fast", shape="mission")
    change = diff.time_change(one.time(at, "isolated"), joined.time(at, "isolated"), True)
    assert change is not None and change.direction == "no difference"
    assert (change.speedup.value, change.speedup.ends) == (1, (1, 1))
