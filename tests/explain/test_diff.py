"""Differences between records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashcore.cli import text_tables
from flashcore.explain import diff
from flashcore.model import intervals
from flashcore.model.intervals import Ratio
from flashcore.model.record import Facts, Record, Subject
from flashcore.model.suite import REGIMES
from flashcore.records import store
from tests import factory
from tests.conftest import ROOT

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


def test_a_variant_that_one_side_lacks_is_one_line() -> None:
    whole = factory.record(id=OLD)
    less = diff.narrowed(whole, {*whole.suite.variants} - {"fast"})
    count = len(diff.changes(whole, less))
    assert count > 10 and diff.one_sided(whole, less) == {"fast": ("vanished", count)}
    text = text_tables.difference(whole, less)
    assert f"fast  vanished with {count} facts (--variant fast lists them)" in text
    assert text.count("vanished") == 1 and "no change in the variants that both have" in text
    assert "fast  appeared" in text_tables.difference(less, whole)
    assert text_tables.difference(whole, less, whole=True).count("vanished") == count


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


def test_slower_reads_as_a_part_of_the_speed() -> None:
    a, b = factory.record(id=OLD, times={"fast": 40.0}), factory.record(times={"fast": 50.0})
    (change,) = [t for t in diff.timing(a, b, ("isolated",)) if str(t.subject) == "fast/long"]
    assert change.text.startswith("0.801 × the speed [")


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
    bare = factory.bare_record(environment=factory.environment(gpu=None))
    assert diff.comparable(bare, b) == "one of the two was recorded without a GPU"
    assert diff.comparable(bare, bare) == "both were recorded without a GPU"
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


# --- what a time may have moved with ---------------------------------------------------------------


def counters(**values: float | None) -> Record:
    at = {"variant": "fast", "shape": "mission"}
    return factory.bare_record(facts=[factory.fact(n, v, **at) for n, v in values.items()])  # type: ignore[arg-type]


CASE = Subject("fast", shape="mission")


def test_the_counters_that_moved_the_most_come_first() -> None:
    before = counters(bank_conflicts=100, dram_bytes=100, l2_bytes=1000, barriers_per_block=0, tensor_active=50)
    after = counters(bank_conflicts=160, dram_bytes=96, l2_bytes=100, barriers_per_block=0, tensor_active=None)
    assert [(c.fact, c.before, c.after) for c in diff.moved(before, after, CASE)] == [
        ("l2_bytes", 1000, 100), ("bank_conflicts", 100, 160)
    ]  # fmt: skip
    assert diff.moved(before, after, Subject("fast", shape="long")) == []
    assert diff.moved(before, before, CASE) == []


def test_from_none_is_the_largest_move_and_a_twentieth_is_none() -> None:
    before, after = (
        counters(bank_conflicts=0, l2_bytes=100, dram_bytes=95),
        counters(bank_conflicts=3, l2_bytes=10, dram_bytes=100),
    )
    assert [c.fact for c in diff.moved(before, after, CASE)] == ["bank_conflicts", "l2_bytes"]


def test_no_more_than_the_first_are_told_and_static_facts_never() -> None:
    names = ["bank_conflicts", "dram_bytes", "l2_bytes", "barriers_per_block", "spill_instructions", "tensor_flop"]
    before, after = (
        counters(**dict.fromkeys(names, 1.0), registers=1),
        counters(**dict.fromkeys(names, 9.0), registers=9),
    )
    assert len(diff.moved(before, after, CASE)) == diff.MOST_MOVED == 5
    assert "registers" not in [c.fact for c in diff.moved(before, after, CASE)]


def test_counters_of_other_shapes_and_of_none_hide_none_behind_them() -> None:
    def mixed(l2: float) -> Record:
        other = factory.fact("bank_conflicts", l2, "fast", shape="long")
        return replace(counters(barriers_per_block=0, l2_bytes=l2), facts=Facts([
            other, *counters(barriers_per_block=0, l2_bytes=l2).facts]))  # fmt: skip

    assert [(c.fact, c.subject) for c in diff.moved(mixed(10), mixed(100), CASE)] == [("l2_bytes", CASE)]


# --- the same code ---------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["before", "after"])
def test_code_that_one_side_does_not_know_is_not_the_same(which: str) -> None:
    whole = factory.record()
    bare = replace(whole, keys={})
    sides = (bare, whole) if which == "before" else (whole, bare)
    assert diff.same_code(whole, whole, "fast/mission")
    assert not diff.same_code(*sides, "fast/mission")
    assert not diff.same_code(*sides, "cudnn/mission")


def test_builds_of_the_same_code_are_counted() -> None:
    before = factory.record(artifacts=(
        factory.artifact("fast", "sm_80", code="one code"), factory.artifact("fast", "sm_89", code="another"),
        factory.artifact("slow", "sm_80", "failed", code=""),
    ))  # fmt: skip
    after = factory.record(artifacts=(
        factory.artifact("fast", "sm_80", code=" ".join(["one", "code"])),  # equal, and not one object
        factory.artifact("fast", "sm_89", code="a third"), factory.artifact("fast", "sm_90a", code="one code"),
        factory.artifact("slow", "sm_80", code="x"),
    ))  # fmt: skip
    assert diff.same_builds(before, after) == (1, 2)


def test_another_variant_of_the_same_run_may_be_what_was_before() -> None:
    at = {"fast": 100.0, "slow": 400.0}
    record = factory.bare_record(facts=[factory.fact("l2_bytes", v, n, shape="mission") for n, v in at.items()])
    (change,) = diff.moved(record, record, CASE, Subject("slow", shape="mission"))
    assert (change.before, change.after, change.direction) == (400.0, 100.0, "better")
    many = counters(**{n: 1.0 for n in factory.FEW_COUNTERS if n not in ("ncu_duration", "plan_matches")})
    other = counters(**{n: 2.0 for n in factory.FEW_COUNTERS if n not in ("ncu_duration", "plan_matches")})
    assert len(diff.moved(many, other, CASE)) == diff.MOST_MOVED < len(diff.moved(many, other, CASE, most=None))


def test_regimes_contradict_where_one_gains_and_one_loses_beyond_noise() -> None:
    gain, loss, same = Ratio(1.1, 1.09, 1.11), Ratio(0.9, 0.88, 0.91), Ratio(0.99, 0.985, 0.995)
    assert diff.contradiction([("isolated", loss), ("back_to_back", gain), ("cold", same)]) == (
        "back_to_back", "isolated"
    )  # fmt: skip
    assert diff.contradiction([("isolated", same), ("back_to_back", gain)]) is None  # 1 % is noise
    assert diff.contradiction([("isolated", Ratio(0.9, 0.7, 1.1)), ("back_to_back", gain)]) is None
    assert diff.contradiction([("eager", loss), ("back_to_back", gain)]) is None  # it has Python's own time in it
    assert diff.contradiction([("isolated", gain), ("cold", gain)]) is None
    assert diff.contradiction([]) is None


def test_a_published_programmatic_launch_contradicts_itself() -> None:
    """It overlaps its neighbours: a throughput that one call by itself does not have."""
    record = store.read(ROOT / "profiles" / "20261122T201621Z-c175")
    plain, early = (
        {m: record.samples[f"{v}/mission/{m}"] for m in REGIMES} for v in ("tma_split_keys", "tma_split_keys_pdl")
    )
    found = [(m, intervals.ratio(plain[m], early[m])) for m in REGIMES]
    faster, slower = diff.contradiction(found) or ("", "")
    assert faster == "back_to_back" and slower in ("isolated", "cold")
