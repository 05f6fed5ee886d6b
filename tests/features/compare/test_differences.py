"""Differences between records."""

from __future__ import annotations

from dataclasses import replace

import pytest

import flashcore as fc
from flashcore.explain import diff
from flashcore.explain.times import Speedup, speedup
from flashcore.features.compare import command, differences
from flashcore.features.compare.differences import contradiction
from flashcore.model.causes import NoInterval
from flashcore.model.record import Facts, Record, Subject
from flashcore.model.suite import REGIMES
from flashcore.records import narrow
from flashcore.suites import load
from tests import factory
from tests.conftest import published

OLD = "20260101T000000Z-0000"


def test_a_variant_that_one_side_lacks_is_one_line() -> None:
    whole = factory.record(id=OLD)
    less = narrow.narrowed(whole, load.narrowed(whole.suite, ["[!f]*"]))
    count = len(diff.changes(whole, less))
    assert count > 10 and differences.Differences.between(whole, less).counts["static facts"]["vanished"] == count
    text = command.as_text(whole, less)
    assert f"vanished, unmeasured after: {count} facts of fast ({count}) (--variant lists them)" in text
    assert f"appeared, unmeasured before: {count} facts of fast" in command.as_text(less, whole)
    assert command.as_text(whole, less, 0, whole=True).count("→ unmeasured  vanished") == count


def test_a_record_and_itself_are_one_line() -> None:
    record = factory.record()
    measured = len([f for f in diff.static_facts(record).values() if f.value is not None])
    timed = sum(key.rpartition("/")[2] in diff.MODES for key in record.samples)
    assert command.as_text(record, record) == (
        f"{record.id} → {record.id}: no difference in {measured + timed} facts and times"
    )


def test_records_without_a_common_value_are_not_called_alike() -> None:
    empty = factory.bare_record(facts=[])
    assert "nothing to compare" in command.as_text(empty, empty)


def test_the_counts_come_first_and_what_did_not_change_is_hidden() -> None:
    a, b = factory.record(id=OLD, times={"fast": 50.0}), factory.record(times={"fast": 40.0})
    counts = differences.Differences.between(a, b).counts["times"]
    assert counts["better"] == 8 and counts["no difference"] > 0 == counts["worse"]
    text = command.as_text(a, b)
    assert text.splitlines()[2].split()[:2] == ["worse", "better"] and "slow/" not in text
    assert text.count("× faster") == 8 and "more (--top" not in text
    few = command.as_text(a, b, 3)
    assert few.count("× faster") == 3 and few.endswith("  … 5 more (--top 0 prints all)")
    assert command.as_text(a, b, 0) == text


def test_a_difference_below_the_noise_is_none_however_narrow_its_interval() -> None:
    a, b = factory.record(id=OLD, times={"fast": 50.5}), factory.record(times={"fast": 50.0})
    changed = [t for t in differences.timing(a, b) if t.subject.variant == "fast" and t.speedup.value > 1]
    assert changed and all(t.speedup.text.startswith("no difference, ratio 1.0") for t in changed)
    assert len(command.as_text(a, b).splitlines()) == 1


def test_worse_facts_come_first_then_the_largest_changes() -> None:
    def record(*values: int) -> Record:
        names = ("registers", "sass_ldl", "stack_bytes")
        return factory.bare_record(
            facts=[factory.fact(n, v, "fast", arch="sm_90a") for n, v in zip(names, values, strict=True)]
        )

    text = command.as_text(record(100, 10, 10), record(90, 11, 20))
    words = ("stack_bytes  10", "sass_ldl  10", "registers  100")
    assert sorted(words, key=text.index) == list(words)


def test_a_build_that_began_to_fail_is_noted_and_one_that_still_fails_is_not() -> None:
    before = factory.record(artifacts=(factory.artifact("slow", "sm_80", "failed", code=""),))
    after = factory.record(artifacts=(*before.artifacts, factory.artifact("fast", "sm_80", "failed", code="")))
    assert "note: fast for sm_80 does not build after\n" in command.as_text(before, after) + "\n"
    assert "slow for" not in command.as_text(before, after)


def test_times_of_other_runs_are_shown_and_not_judged() -> None:
    a, b = factory.record(id=OLD, times={"fast": 50.0}), factory.record(times={"fast": 40.0})
    results = {(str(t.subject), t.mode): t for t in differences.timing(a, b)}
    change = results["fast/mission", "isolated"]
    assert change.speedup.value == pytest.approx(1.25, rel=0.01)
    assert change.speedup.ends is None and change.speedup.cause == NoInterval("runs")
    assert "faster (no interval: the times were taken in different runs)" in change.speedup.text
    assert not change.judged
    assert results["slow/long", "cold"].speedup.text.startswith("no difference")
    assert differences.timing(b, b)[0].judged


def test_slower_reads_as_a_part_of_the_speed() -> None:
    a, b = factory.record(id=OLD, times={"fast": 40.0}), factory.record(times={"fast": 50.0})
    (change,) = [t for t in differences.timing(a, b, ("isolated",)) if str(t.subject) == "fast/long"]
    assert change.speedup.text.startswith("0.801 × the speed (no interval")


def test_the_same_code_is_said_whatever_the_clock_did() -> None:
    a, b = factory.record(id=OLD, times={"fast": 50.0}), factory.record()
    assert all(t.same_code for t in differences.timing(a, b) if t.subject.variant == "fast")
    assert not any(t.same_code for t in differences.timing(a, b) if t.subject.variant == "cudnn")
    key = factory.case_key(b.suite.variants["fast"], b.suite.shapes["long"], code="other")
    changed = replace(b, keys={**b.keys, "fast/long": key})
    (one,) = [t for t in differences.timing(a, changed, ("isolated",)) if str(t.subject) == "fast/long"]
    assert not one.same_code
    older = factory.case_key(b.suite.variants["fast"], b.suite.shapes["long"], nvcc="12.8.93")
    (one,) = [
        t
        for t in differences.timing(replace(a, keys={**a.keys, "fast/long": older}), b, ("isolated",))
        if str(t.subject) == "fast/long"
    ]
    assert not one.same_code


def test_a_shape_that_changed_is_not_compared() -> None:
    other = factory.suite(
        shapes=[factory.shape("mission", {**factory.MISSION, "S": 1024}), factory.shape("long", factory.LONG)]
    )
    result = differences.timing(factory.record(other, id=OLD), factory.record())
    assert {t.subject.shape for t in result} == {"long"}


def test_other_machines_are_not_compared_in_time() -> None:
    a = factory.record(id=OLD, environment=factory.environment(gpu="NVIDIA L4"))
    b = factory.record()
    assert diff.comparable(a, b) == "measured on NVIDIA L4, not NVIDIA H200"
    assert "faster" not in command.as_text(a, b)
    assert any("not comparable" in r for r in differences.remarks(a, b))
    bare = factory.bare_record(environment=factory.environment(gpu=None))
    assert diff.comparable(bare, b) == "one of the two was recorded without a GPU"
    assert diff.comparable(bare, bare) == "both were recorded without a GPU"
    renamed = replace(b, suite=replace(b.suite, name="other"))
    assert "suite" in diff.comparable(renamed, b)


def test_another_compiler_is_remarked() -> None:
    a = factory.record(id=OLD, environment=factory.environment(nvcc="12.8.93"))
    assert any("nvcc 12.8.93" in r for r in differences.remarks(a, factory.record()))


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


def test_from_none_is_the_largest_move_and_a_twentieth_or_five_points_are_none() -> None:
    before, after = (
        counters(bank_conflicts=0, l2_bytes=100, dram_bytes=95, l2_hit=0.5),
        counters(bank_conflicts=3, l2_bytes=10, dram_bytes=100, l2_hit=4.5),
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
    assert differences.same_builds(before, after) == (1, 2)


def test_another_variant_of_the_same_run_may_be_what_was_before() -> None:
    at = {"fast": 100.0, "slow": 400.0}
    record = factory.bare_record(facts=[factory.fact("l2_bytes", v, n, shape="mission") for n, v in at.items()])
    (change,) = diff.moved(record, record, CASE, Subject("slow", shape="mission"))
    assert (change.before, change.after, change.direction) == (400.0, 100.0, "better")
    many = counters(**{n: 1.0 for n in factory.FEW_COUNTERS if n not in ("ncu_duration", "plan_matches")})
    other = counters(**{n: 2.0 for n in factory.FEW_COUNTERS if n not in ("ncu_duration", "plan_matches")})
    every = diff.moved(many, other, CASE, most=None)
    assert len(diff.moved(many, other, CASE)) == diff.MOST_MOVED < len(every)


def test_regimes_contradict_where_one_gains_and_one_loses_beyond_noise() -> None:
    gain, loss, same = Speedup(1.1, 1.09, 1.11), Speedup(0.9, 0.88, 0.91), Speedup(0.99, 0.985, 0.995)
    assert contradiction([("isolated", loss), ("back_to_back", gain), ("cold", same)]) == (
        "back_to_back", "isolated"
    )  # fmt: skip
    assert contradiction([("isolated", same), ("back_to_back", gain)]) is None  # 1 % is noise
    assert contradiction([("isolated", Speedup(0.9, 0.7, 1.1)), ("back_to_back", gain)]) is None
    assert contradiction([("eager", loss), ("back_to_back", gain)]) is None  # it has Python's own time in it
    assert contradiction([("isolated", gain), ("cold", gain)]) is None
    assert contradiction([]) is None


def test_a_published_programmatic_launch_contradicts_itself() -> None:
    """It overlaps its neighbours: a throughput that one call by itself does not have."""
    record = published()
    plain, early = (Subject(v, shape="mission") for v in ("tma_split_keys", "tma_split_keys_pdl"))
    ratios = [(m, speedup(record.time(plain, m), record.time(early, m))) for m in REGIMES]
    results = [(m, ratio) for m, ratio in ratios if ratio]
    assert len(results) == len(REGIMES)
    faster, slower = contradiction(results) or ("", "")
    assert faster == "back_to_back" and slower in ("isolated", "cold")


def test_two_runs_are_compared() -> None:
    worse = factory.fact("registers", 120, arch="sm_80", kernel="fast_kernel")
    a, b = fc.Run(factory.record()), fc.Run(factory.record(None, [worse], {"fast": 20.0}, id="20260102T030405Z-0002"))
    found = fc.compare(a, b)
    assert found.static[["fact", "before", "after", "direction"]].values.tolist() == [["registers", 96, 120, "worse"]]
    assert found.times.query("mode == 'isolated'").loc[("fast", "mission"), "ratio"].item() == pytest.approx(
        2, rel=0.01
    )
    assert found.remarks == ()


def test_times_of_two_gpus_are_not_set_side_by_side() -> None:
    other = fc.Run(factory.record(environment=factory.environment(gpu="NVIDIA A100")))
    found = fc.compare(other, fc.Run(factory.record()))
    assert found.times.empty
    assert list(found.times.columns[:2]) == ["mode", "before_us"]
    assert any("times are not comparable" in remark for remark in found.remarks)
