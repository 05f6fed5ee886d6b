"""The ladder: findings follow from the facts, and what cannot be compared is not judged."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from flashcore.explain import ladder, limiter
from flashcore.explain.ladder import Ladder, Step
from flashcore.model.record import Facts, Record, Subject
from tests import factory
from tests.explain.test_predictions import SHARES, predicted, record


def built(r: Record, shape: str = "mission") -> Ladder:
    return ladder.ladder(r, r.suite.shapes[shape])


def step(r: Record, name: str = "fast") -> Step:
    return next(s for s in built(r).steps if s.variant.name == name)


# --- steps ----------------------------------------------------------------------------------------


def test_a_step_that_did_as_predicted_held() -> None:
    found = step(record([predicted("isolated_p50", 221, 100, "L4")], times={"slow": 100, "fast": 45}))
    assert found.outcome == "held"
    assert found.finding.startswith("prediction held: 2.22 × faster, predicted 2.21 ×")


def test_a_step_that_did_half_names_what_holds_it() -> None:
    stalls = [factory.fact("stall_share_barrier", 41.0, "fast", shape="mission")]
    found = step(record([predicted("isolated_p50", 221, 50, "L4")], stalls, {"slow": 100, "fast": 50}))
    assert found.outcome == "partly"
    assert "went the right way: 2.00 × faster, predicted 4.42 ×" in found.finding
    assert "barrier stalls 41 %" in found.finding


def test_no_effect_names_the_parents_limiter_and_what_moved_in_vain() -> None:
    facts = [
        factory.fact("stall_share_barrier", 41.0, "slow", shape="mission"),
        factory.fact("bank_conflicts", 0, "fast", shape="mission"),
    ]
    wanted = [predicted("isolated_p50", 221, 184, "L4"), predicted("bank_conflicts", 120, 0)]
    found = step(record(wanted, facts, {"slow": 40, "fast": 40}))
    assert found.outcome == "none"
    assert found.finding.startswith(
        "no effect though bank conflicts 120 → 0: the limiter was elsewhere (barrier stalls 41 %"
    )


def test_what_holds_a_step_names_the_phase_that_takes_the_most() -> None:
    stalls = [factory.fact("stall_share_barrier", 41.0, "fast", shape="mission")]
    r = record(facts=[*stalls, *factory.facts_of(SHARES, "fast", shape="mission")])
    assert list(limiter.phase_shares(r, Subject("fast", shape="mission"))) == ["load", "softmax", "other"]
    assert "barrier stalls 41 %; softmax phase 52 %" in step(r).limiter
    assert limiter.phase_shares(r, Subject("slow", shape="mission")) == {}


def test_slower_names_the_counters_that_got_worse() -> None:
    facts = [factory.fact("barriers_per_block", 48, "fast", shape="mission")]
    found = step(record([predicted("isolated_p50", 221, 100, "L4")], facts, {"slow": 40, "fast": 60}))
    assert found.outcome == "against"
    assert found.finding.startswith("slower: 0.67 × the speed, predicted 2.21 ×; with it barriers 16 → 48")


def test_more_of_a_worsening_is_no_merit() -> None:
    found = step(record([predicted("isolated_p50", 198, 300, "L4")], times={"slow": 20, "fast": 60}))
    assert found.outcome == "missed"
    assert found.finding.startswith("slower than predicted: 0.33 × the speed, predicted 0.66 ×")
    less = step(record([predicted("isolated_p50", 198, 986, "L4")], times={"slow": 20, "fast": 30}))
    assert less.finding.startswith("slower, though less than predicted: 0.67 ×")


def test_a_few_of_something_to_none_explain_no_more_than_they_are() -> None:
    before = {"bank_conflicts": 3, "barriers_per_block": 16, "instructions": 40_000, "spill_instructions": 40}
    after = {"bank_conflicts": 0, "barriers_per_block": 4, "instructions": 20_000, "spill_instructions": 0}
    facts = [factory.fact(n, v, "slow", shape="mission") for n, v in before.items()]
    facts += [factory.fact(n, v, "fast", shape="mission") for n, v in after.items()]
    found = step(record(facts=facts, times={"slow": 40, "fast": 20}))
    assert found.finding.endswith("; with it barriers 16 → 4, instructions 0.50×")


@pytest.mark.parametrize("value", [1e308, 1e-308, -3.0, 0.0])
@pytest.mark.parametrize("said", [(1e308, 1e-308), (1e-308, 1e308), (-1e308, 1e308), (0, 5), (math.nan, 1.0)])
def test_numbers_that_cannot_be_are_no_verdict_and_no_traceback(value: float, said: tuple[float, float]) -> None:
    names = ("back_to_back_p50", "instructions", "bank_conflicts", "speedup_vs_baseline")
    facts = [factory.fact(n, v, who, shape="mission") for n in names for who, v in (("slow", 1.0), ("fast", value))]
    facts += [factory.fact("back_to_back_p50", 1e308, "slow", shape="mission")]
    wanted = [predicted(n, *pair) for n in names for pair in (said, (None, said[1]))]
    found = step(record(wanted, facts))
    assert len(found.judged) == 8


def test_a_step_that_is_not_one_change_says_so() -> None:
    more = (factory.variant("next", parent="fast", also="launch bounds dropped"),)
    r = record(times={"slow": 40, "fast": 20, "next": 10}, more=more)
    assert step(r, "next").finding.endswith("; not one change: launch bounds dropped")
    assert "not one change" not in step(r).finding


def test_little_is_no_effect_the_right_way_and_slower_the_wrong_way() -> None:
    wanted = [predicted("isolated_p50", 100, 20, "L4")]
    assert step(record(wanted, times={"slow": 100, "fast": 94})).finding.startswith("hardly any effect: 1.06 × faster")
    assert step(record(wanted, times={"slow": 100, "fast": 106})).finding.startswith("slower: 0.94 × the speed")


def test_documents_that_differ_are_both_named() -> None:
    wanted = [
        predicted("isolated_p50", 198, 986, "L4"), predicted("isolated_p50", 2122, 500, "L4"),
        predicted("cold_p50", 300, 100, "L4"), predicted("isolated_p50", None, 70, factory.GPU),
    ]  # fmt: skip
    found = step(record(wanted, times={"slow": 20, "fast": 100}))
    assert "(elsewhere 4.24 ×)" in found.finding


def test_nothing_predicted_is_no_verdict_on_a_prediction() -> None:
    found = step(record(times={"slow": 40, "fast": 20}))
    assert found.outcome == "open"
    assert "none was predicted" in found.finding


def test_a_step_without_times_is_unmeasured() -> None:
    r = record([predicted("isolated_p50", 221, 100, "L4")])
    assert step(factory.without(r, "isolated_p50", variant="fast")).outcome == "unmeasured"
    assert "its parent slow" in step(factory.without(r, "isolated_p50", variant="slow")).finding
    stale = replace(factory.without(r, "isolated_p50"), stale={"fast/mission": "the kernel's code changed"})
    assert "stale: the kernel's code changed" in step(stale).finding


def test_two_times_within_noise_are_the_same() -> None:
    assert step(record(times={"slow": 40, "fast": 40.4})).still
    assert not step(record(times={"slow": 40, "fast": 44})).still


# --- the way to the best --------------------------------------------------------------------------


def test_the_way_leads_from_the_baseline_along_the_parents_of_the_best() -> None:
    more = (
        factory.variant("other", parent="slow"),
        factory.variant("best", parent="fast"),
        factory.variant("worse", parent="best"),
    )
    found = built(record(times={"slow": 90, "fast": 50, "other": 40, "best": 12, "worse": 14}, more=more))
    assert [s.variant.name for s in found.way] == ["slow", "fast", "best"]
    assert [s.variant.name for s in found.steps] == ["slow", "fast", "best", "worse", "other"]
    assert found.best is not None and found.best.variant.name == "best"
    assert found.peer is not None and found.peer[0] == "cudnn"
    assert found.floor is not None and found.floor.time == "isolated_p50"


def test_without_times_there_is_no_way() -> None:
    r = record()
    found = built(replace(r, facts=Facts(f for f in r.facts if f.subject.arch is not None), samples={}))
    assert found.way == () and found.best is None and found.floor is None
    assert {(s.outcome, s.still) for s in found.steps} == {("unmeasured", False)}


def test_a_parent_that_comes_later_or_is_unknown_does_no_harm() -> None:
    r = record(more=(factory.variant("lost", parent="nobody"), factory.variant("a", parent="b"), factory.variant("b")))
    assert [s.variant.name for s in built(r).steps] == ["slow", "fast", "lost", "b", "a"]
    assert "no variant nobody" in step(r, "lost").finding


def test_predictions_are_counted_by_what_came_of_them() -> None:
    wanted = [
        predicted("isolated_p50", 221, 100, "L4"),
        predicted("registers", 10, 20),
        predicted("bank_conflicts", 120, 0),
    ]
    facts = [factory.fact("bank_conflicts", 0, "fast", shape="mission")]
    found = built(record(wanted, facts, {"slow": 100, "fast": 45}))
    judged = [j.outcome for s in found.steps for j in s.judged]
    assert len(judged) == 3 and judged.count("held") == 2


@pytest.mark.parametrize(
    ("wanted", "took", "outcome"),
    [(1.0, 40.0, "held"), (1.015, 40.0, "held"), (1.03, 40.0, "none"), (0.97, 40.0, "none"), (0.05, 40.0, "none")],
)
def test_standing_still_was_right_where_no_change_was_predicted(wanted: float, took: float, outcome: str) -> None:
    found = step(record([predicted("isolated_p50", 100, 100 * wanted, "L4")], (), {"slow": 40, "fast": took}))
    assert found.still and found.outcome == outcome
    assert found.finding.startswith("prediction held" if outcome == "held" else "no effect")


def test_the_counters_that_moved_the_most_are_named_first() -> None:
    facts = [
        *factory.facts_of({"barriers_per_block": 16, "l2_bytes": 1e6, "instructions": 1e6}, "slow", shape="mission"),
        *factory.facts_of({"barriers_per_block": 48, "l2_bytes": 16e6, "instructions": 1e6}, "fast", shape="mission"),
    ]
    finding = step(record((), facts, {"slow": 40, "fast": 60})).finding
    assert finding.startswith("slower: 0.67 × the speed, none was predicted; with it ")
    assert finding.index(ladder.COUNTERS["l2_bytes"]) < finding.index("barriers")
    faster = step(record((), facts, {"slow": 60, "fast": 40})).finding
    assert "with it" not in faster, "what got worse is no cause of a gain"


def test_what_got_better_goes_with_a_gain() -> None:
    facts = [
        *factory.facts_of({"tensor_active": 20.0, "barriers_per_block": 48}, "slow", shape="mission"),
        *factory.facts_of({"tensor_active": 60.0, "barriers_per_block": 16}, "fast", shape="mission"),
    ]
    better = step(record((), facts, {"slow": 60, "fast": 40})).finding
    assert "with it" in better and "48 → 16" in better
    assert "48 → 16" not in step(record((), facts, {"slow": 40, "fast": 60})).finding


def test_from_none_is_a_move_too() -> None:
    facts = [factory.fact("barriers_per_block", n, v, shape="mission") for v, n in (("slow", 0), ("fast", 1))]
    assert "with it barriers 0 → 1" in step(record((), facts, {"slow": 40, "fast": 60})).finding
