"""Two records, compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

import flashcore as fc
from flashcore.cli.comparison import as_text
from flashcore.explain import compare_records
from flashcore.explain.compare_records import MODES, case, compare
from flashcore.explain.comparison import Change, Difference
from flashcore.explain.times import Speedup
from flashcore.model.case import Case
from flashcore.model.causes import OTHER_RUNS
from flashcore.model.record import CaseSubject, CodeSubject, Facts, Record
from flashcore.records import narrow
from flashcore.suites import load
from tests import factory
from tests.conftest import published

OLD = "20260101T000000Z-0000"


def cases(a: Record, b: Record) -> Mapping[str, Difference]:
    """The rows of cases, by the case."""
    return {str(row.subject.case): row for row in compare(a, b).cases}


def test_a_variant_that_one_side_lacks_is_one_line() -> None:
    whole = factory.record(id=OLD)
    less = narrow.narrowed(whole, load.narrowed(whole.suite, ["[!f]*"]))
    for sides, outcome in (((whole, less), "gone"), ((less, whole), "new")):
        (row,) = compare(*sides).code
        assert (row.subject, row.outcome) == (CodeSubject("fast"), outcome)
        assert f"{outcome:8}  {row.reason}  fast" in as_text(compare(*sides))
        lone = {row.subject.variant for row in compare(*sides).cases if row.outcome == outcome}
        assert lone == {"fast"}, "its times are on one side too"


def test_a_record_and_itself_have_no_difference() -> None:
    record = factory.record()
    compared = compare(record, record)
    assert compared.summary.startswith(f"{len(compared.cases)} no difference") and not compared.code
    assert len(compared.cases) == 8 and all(row.same_code for row in compared.cases if row.subject.variant != "cudnn")
    assert len(as_text(compared).splitlines()) == 1


def test_records_without_a_common_value_are_not_called_alike() -> None:
    empty = factory.bare_record(facts=[], artifacts=())
    assert "nothing to compare" in as_text(compare(empty, empty))


def test_the_counts_come_first_and_what_did_not_change_is_hidden() -> None:
    a, b = factory.record(id=OLD, times={"fast": 50.0}), factory.record(times={"fast": 40.0})
    compared = compare(a, b)
    assert (compared.counts["faster"], compared.counts["slower"]) == (2, 0) and compared.counts["no difference"] > 0
    text = as_text(compared)
    assert "2 faster (2 of the same code)" in text.splitlines()[0] and "slow/" not in text
    assert text.count("faster, not judged, same code") == 2 and "more (--top" not in text
    few = as_text(compared, 1)
    assert few.count("not judged, same code") == 1 and "… 1 more (--top 0 prints all)" in few
    assert "faster, not judged" not in as_text(compared, only_worse=True)


def test_what_changed_most_comes_first_and_the_same_code_last() -> None:
    a = factory.record(id=OLD, times={"fast": 50.0, "split": 20.0, "slow": 60.0})
    b = factory.record(times={"fast": 40.0, "split": 30.0, "slow": 30.0})
    other = {k: replace(key, code="other") for k, key in b.keys.items() if k.variant != "slow"}
    rows = compare(a, replace(b, keys={**b.keys, **other})).cases
    order = list(dict.fromkeys(row.subject.variant for row in rows if row.outcome != "no difference"))
    assert order == ["split", "fast", "slow"]


def test_identical_shapes_are_one_row_whatever_they_are_called() -> None:
    def suite(*names: str) -> object:
        return factory.suite(shapes=[factory.shape(name, factory.MISSION) for name in names])

    a = factory.record(suite("mission"), id=OLD)  # type: ignore[arg-type]
    b = factory.record(suite("d64", "mission"))  # type: ignore[arg-type]
    rows = [row for row in compare(a, b).cases if row.subject.variant == "fast"]
    assert [(row.name, row.subject.shape) for row in rows] == [("fast/d64 = mission", "mission")]
    renamed = factory.record(suite("d64"))  # type: ignore[arg-type]
    assert [row.outcome for row in compare(a, renamed).cases if row.subject.variant == "fast"] == ["no difference"]


def test_a_difference_below_the_noise_is_none_however_narrow_its_interval() -> None:
    a, b = factory.record(id=OLD, times={"fast": 50.5}), factory.record(times={"fast": 50.0})
    row = cases(a, b)["fast/mission"]
    assert row.outcome == "no difference" and row.lead and row.lead.ratio and row.lead.ratio > 1
    assert len(as_text(compare(a, b)).splitlines()) == 1


def test_a_build_that_began_to_fail_is_noted_and_one_that_still_fails_is_not() -> None:
    before = factory.record(artifacts=(factory.artifact("slow", "sm_80", "failed", code=""),))
    after = factory.record(artifacts=(*before.artifacts, factory.artifact("fast", "sm_80", "failed", code="")))
    assert "fast for sm_80 does not build after" in compare(before, after).notes
    assert not any("slow for" in note for note in compare(before, after).notes)


def test_times_of_other_runs_are_shown_and_not_judged() -> None:
    a, b = factory.record(id=OLD, times={"fast": 50.0}), factory.record(times={"fast": 40.0})
    row = cases(a, b)["fast/mission"]
    assert row.lead and row.lead.mode == "isolated" and row.lead.ratio == pytest.approx(1.25, rel=0.01)
    assert row.lead.low is None and row.lead.speedup and row.lead.speedup.cause == OTHER_RUNS()
    assert (row.outcome, row.judged) == ("faster", False)
    assert "not judged: no interval: the times were taken in different runs" in as_text(compare(a, b))
    assert all(row.judged for row in compare(b, b).cases)


def test_the_same_code_is_said_whatever_the_clock_did() -> None:
    a, b = factory.record(id=OLD, times={"fast": 50.0}), factory.record()
    rows = cases(a, b)
    assert rows["fast/mission"].same_code and rows["fast/long"].same_code and not rows["cudnn/mission"].same_code
    variant, shape = b.suite.variants["fast"], b.suite.shapes["long"]
    changed = replace(b, keys={**b.keys, Case("fast", "long"): factory.case_key(variant, shape, code="other")})
    assert not cases(a, changed)["fast/long"].same_code
    older = replace(a, keys={**a.keys, Case("fast", "long"): factory.case_key(variant, shape, nvcc="12.8.93")})
    assert not cases(older, b)["fast/long"].same_code


def test_a_shape_that_changed_is_not_compared() -> None:
    other = factory.suite(
        shapes=[factory.shape("mission", {**factory.MISSION, "S": 1024}), factory.shape("long", factory.LONG)]
    )
    rows = compare(factory.record(other, id=OLD), factory.record()).cases
    assert {row.subject.shape for row in rows if row.outcome not in ("new", "gone")} == {"long"}
    assert {row.outcome for row in rows if row.subject.shape == "mission"} == {"new", "gone"}


def test_other_machines_are_not_compared_in_time() -> None:
    a = factory.record(id=OLD, environment=factory.environment(gpu="NVIDIA L4"))
    b = factory.record()
    assert compare(a, b).incomparable == "measured on NVIDIA L4, not NVIDIA H200"
    assert not compare(a, b).cases and any("not comparable" in note for note in compare(a, b).notes)
    bare = factory.bare_record(environment=factory.environment(gpu=None))
    assert compare(bare, b).incomparable == "one of the two was recorded without a GPU"
    assert compare_records.comparable(bare, bare) == "both were recorded without a GPU"
    assert compare(bare, bare).incomparable == "", "there are no times"
    renamed = replace(b, suite=replace(b.suite, name="other"))
    assert "suite" in compare(renamed, b).incomparable


def test_another_compiler_is_noted() -> None:
    a = factory.record(id=OLD, environment=factory.environment(nvcc="12.8.93"))
    assert any("nvcc 12.8.93" in note for note in compare(a, factory.record()).notes)


# --- what a time may have moved with ---------------------------------------------------------------


def counters(**values: float | None) -> Record:
    at = {"variant": "fast", "shape": "mission"}
    return factory.bare_record(facts=[factory.fact(n, v, **at) for n, v in values.items()])  # type: ignore[arg-type]


CASE = CaseSubject(Case("fast", "mission"))


def test_the_counters_that_moved_the_most_come_first() -> None:
    before = counters(bank_conflicts=100, dram_bytes=100, l2_bytes=1000, barriers_per_block=0, tensor_active=50)
    after = counters(bank_conflicts=160, dram_bytes=96, l2_bytes=100, barriers_per_block=0, tensor_active=None)
    assert [(c.fact, c.before, c.after) for c in compare_records.moved(before, after, CASE)] == [
        ("l2_bytes", 1000, 100), ("bank_conflicts", 100, 160)
    ]  # fmt: skip
    assert compare_records.moved(before, after, CaseSubject(Case("fast", "long"))) == []
    assert compare_records.moved(before, before, CASE) == []


def test_from_none_is_the_largest_move_and_a_twentieth_or_five_points_are_none() -> None:
    before, after = (
        counters(bank_conflicts=0, l2_bytes=100, dram_bytes=95, l2_hit=0.5),
        counters(bank_conflicts=3, l2_bytes=10, dram_bytes=100, l2_hit=4.5),
    )
    assert [c.fact for c in compare_records.moved(before, after, CASE)] == ["bank_conflicts", "l2_bytes"]


def test_no_more_than_the_first_are_told_and_static_facts_never() -> None:
    names = ["bank_conflicts", "dram_bytes", "l2_bytes", "barriers_per_block", "spill_instructions", "tensor_flop"]
    before, after = (
        counters(**dict.fromkeys(names, 1.0), registers=1),
        counters(**dict.fromkeys(names, 9.0), registers=9),
    )
    assert len(compare_records.moved(before, after, CASE)) == compare_records.MOST_MOVED == 5
    assert "registers" not in [c.fact for c in compare_records.moved(before, after, CASE)]


def test_counters_of_other_shapes_and_of_none_hide_none_behind_them() -> None:
    def mixed(l2: float) -> Record:
        other = factory.fact("bank_conflicts", l2, "fast", shape="long")
        return replace(counters(barriers_per_block=0, l2_bytes=l2), facts=Facts([
            other, *counters(barriers_per_block=0, l2_bytes=l2).facts]))  # fmt: skip

    assert [(c.fact, c.subject) for c in compare_records.moved(mixed(10), mixed(100), CASE)] == [("l2_bytes", CASE)]


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
    assert compare(before, after).alike == (1, 2)


def test_another_variant_of_the_same_run_may_be_what_was_before() -> None:
    at = {"fast": 100.0, "slow": 400.0}
    record = factory.bare_record(facts=[factory.fact("l2_bytes", v, n, shape="mission") for n, v in at.items()])
    (change,) = compare_records.moved(record, record, CASE, CaseSubject(Case("slow", "mission")))
    assert (change.before, change.after, change.outcome) == (400.0, 100.0, "better")
    many = counters(**{n: 1.0 for n in factory.FEW_COUNTERS if n not in ("ncu_duration", "plan_matches")})
    other = counters(**{n: 2.0 for n in factory.FEW_COUNTERS if n not in ("ncu_duration", "plan_matches")})
    every = compare_records.moved(many, other, CASE, most=None)
    assert len(compare_records.moved(many, other, CASE)) == compare_records.MOST_MOVED < len(every)


def test_modes_contradict_where_one_gains_and_one_loses_beyond_noise() -> None:
    gain, loss, same = Speedup(1.1, 1.09, 1.11), Speedup(0.9, 0.88, 0.91), Speedup(0.99, 0.985, 0.995)

    def contradiction(**ratios: Speedup) -> tuple[str, str] | None:
        changes = [
            Change(CASE, f"{mode}_p50", "us", 1.0, 1.0, ratio.conclusion, "one run" if ratio.ends else None, ratio)
            for mode, ratio in ratios.items()
        ]
        modes = Difference(CASE, "faster", changes).contradiction
        return modes and (modes[0].mode, modes[1].mode)

    assert contradiction(isolated=loss, back_to_back=gain, cold=same) == ("back_to_back", "isolated")
    assert contradiction(isolated=same, back_to_back=gain) is None  # 1 % is noise
    assert contradiction(isolated=Speedup(0.9, 0.7, 1.1), back_to_back=gain) is None
    assert contradiction(isolated=Speedup(0.9), back_to_back=gain) is None  # of two runs
    assert contradiction(eager=loss, back_to_back=gain) is None  # it has Python's own time in it
    assert contradiction(isolated=gain, cold=gain) is None
    assert contradiction() is None


def test_a_published_programmatic_launch_contradicts_itself() -> None:
    """It overlaps its neighbours: a throughput that one call by itself does not have."""
    record = published()
    plain, early = (CaseSubject(Case(v, "mission")) for v in ("tma_split_keys", "tma_split_keys_pdl"))
    row = case(record, plain, record, early)
    assert row and {change.mode for change in row.changes} >= {*MODES[:3]} and row.contradiction
    faster, slower = row.contradiction
    assert faster.mode == "back_to_back" and slower.mode in ("isolated", "cold")


def test_two_runs_are_compared() -> None:
    worse = factory.fact("registers", 120, arch="sm_80", kernel="fast_kernel")
    a, b = fc.Run(factory.record()), fc.Run(factory.record(None, [worse], {"fast": 20.0}, id="20260102T030405Z-0002"))
    found = fc.compare(a, b)
    code = found.changes[found.changes["evidence"] == "exact"]
    assert code[["fact", "before", "after", "outcome"]].values.tolist() == [["registers", 96, 120, "worse"]]
    fast = found.cases.loc[("fast", "mission")]
    assert fast["ratio"] == pytest.approx(2, rel=0.01) and (fast["mode"], fast["outcome"]) == ("isolated", "faster")
    assert found.notes == () and "faster" in found.summary and "code: 1 worse" in found.summary


def test_times_of_two_gpus_are_not_set_side_by_side() -> None:
    other = fc.Run(factory.record(environment=factory.environment(gpu="NVIDIA A100")))
    found = fc.compare(other, fc.Run(factory.record()))
    assert found.cases.empty and list(found.cases.columns[:3]) == ["mode", "unit", "before"]
    assert any("times are not comparable" in note for note in found.notes)
