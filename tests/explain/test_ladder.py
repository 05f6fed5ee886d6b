"""The ladder: findings follow from the facts, and what cannot be compared is not judged."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from flashcore.explain import ladder, limiter
from flashcore.explain.ladder import Ladder, Step
from flashcore.explain.readings import Readings
from flashcore.explain.rows import Row
from flashcore.model.case import Case
from flashcore.model.causes import CodeChanged
from flashcore.model.record import CaseSubject, Fact, Facts, Record
from flashcore.model.suite import Prediction
from tests import factory
from tests.support.predicted import SHARES, predicted, record


def built(r: Record, shape: str = "mission") -> Ladder:
    return ladder.ladder(Row(Readings(r), [r.suite.shapes[shape]]))


def step(r: Record, name: str = "fast") -> Step:
    return next(s for s in built(r).steps if s.variant.name == name)


# --- steps ----------------------------------------------------------------------------------------


def on_l4(before: float | None, after: float) -> Prediction:
    return predicted("isolated_p50", before, after, "L4")


def counters(before: Mapping[str, float], after: Mapping[str, float]) -> list[Fact]:
    """Counters of ``slow`` and of ``fast``."""
    return [
        f
        for name, values in (("slow", before), ("fast", after))
        for f in factory.facts_of(values, name, shape="mission")
    ]


STALLS = {"stall_share_barrier": 41.0}
BARRIERS = {"barriers_per_block": 16}
MORE_BARRIERS = {"barriers_per_block": 48}
FEW = {"bank_conflicts": 3, "barriers_per_block": 16, "instructions": 40_000, "spill_instructions": 40}
NONE = {"bank_conflicts": 0, "barriers_per_block": 4, "instructions": 20_000, "spill_instructions": 0}


@pytest.mark.parametrize(
    ("predictions", "facts", "times", "outcome", "finding"),
    [
        ([on_l4(221, 100)], [], (100, 45), "confirmed", "prediction confirmed: 2.22 × faster, predicted 2.21 ×"),
        (
            [on_l4(221, 50)],
            counters({}, STALLS),
            (100, 50),
            "partly",
            "faster, but less than predicted: 2.00 × faster, predicted 4.42 ×.*barrier 28 %",
        ),
        (  # the parent's limiter, and the counter that changed in vain
            [on_l4(221, 184), predicted("bank_conflicts", 120, 0)],
            counters(STALLS, {"bank_conflicts": 0}),
            (40, 40),
            "none",
            r"no effect, although bank conflicts 120 → 0: the parent's limiter was .*barrier 28 %",
        ),
        (
            [on_l4(221, 184), predicted("achieved_occupancy", 20, 40)],
            counters({"achieved_occupancy": 20}, {"achieved_occupancy": 40}),
            (40, 40),
            "none",
            "no effect, although achieved occupancy 20 % → 40 %",
        ),
        (
            [on_l4(221, 100)],
            counters({}, MORE_BARRIERS),
            (40, 60),
            "against",
            "slower: 0.67 × the speed, predicted 2.21 ×; along with barriers 16 → 48",
        ),
        ([on_l4(198, 300)], [], (20, 60), "missed", "slower than predicted: 0.33 × the speed, predicted 0.66 ×"),
        ([on_l4(198, 986)], [], (20, 30), "partly", "slower, but less than predicted: 0.67 ×"),
        ([on_l4(100, 20)], [], (100, 94), "none", "hardly any effect: 1.06 × faster"),
        ([on_l4(100, 20)], [], (100, 106), "against", "slower: 0.94 × the speed"),
        ([], [], (40, 20), "open", ".*without a prediction"),
        (  # documents that differ
            [on_l4(198, 986), on_l4(2122, 500), predicted("cold_p50", 300, 100, "L4"), on_l4(None, 70)],
            [],
            (20, 100),
            "confirmed",
            r".*\(other predictions: 4.24 ×\)",
        ),
        # A few of something to none explain no more than they are.
        ([], counters(FEW, NONE), (40, 20), "open", ".*; along with barriers 16 → 4, instructions 0.50×$"),
        (
            [],
            counters({"barriers_per_block": 0}, {"barriers_per_block": 1}),
            (40, 60),
            "open",
            ".*along with barriers 0 → 1",
        ),
        (  # the largest change first
            [],
            counters({**BARRIERS, "l2_bytes": 1e6}, {**MORE_BARRIERS, "l2_bytes": 16e6}),
            (40, 60),
            "open",
            "slower: 0.67 × the speed, without a prediction; along with L2 bytes .*barriers",
        ),
        # A change for the worse is no cause of a gain, nor one for the better of a loss.
        ([], counters(BARRIERS, MORE_BARRIERS), (60, 40), "open", "(?!.*along with)"),
        ([], counters(MORE_BARRIERS, BARRIERS), (60, 40), "open", ".*along with.*48 → 16"),
        ([], counters(MORE_BARRIERS, BARRIERS), (40, 60), "open", "(?!.*48 → 16)"),
        # No change was predicted, or one: of a step within noise.
        *(
            (
                [on_l4(100, after)],
                [],
                (40, 40),
                outcome,
                "prediction confirmed" if outcome == "confirmed" else "no effect",
            )
            for after, outcome in ((100, "confirmed"), (101.5, "confirmed"), (103, "none"), (97, "none"), (5, "none"))
        ),
    ],
)
def test_a_finding_follows_from_prediction_counters_and_times(
    predictions: list[Prediction], facts: list[Fact], times: tuple[float, float], outcome: str, finding: str
) -> None:
    judged = step(record(predictions, facts, dict(zip(("slow", "fast"), times, strict=True))))
    assert judged.outcome == outcome and re.match(finding, judged.finding), judged.finding


@pytest.mark.parametrize(
    ("predicted_us", "us", "limited"),
    [((221, 100), 45, False), ((221, 20), 45, True), ((198, 300), 300, True), ((221, 95), 98, True)],
)
def test_the_limiter_is_named_where_a_prediction_was_not_reached(
    predicted_us: tuple[float, float], us: float, limited: bool
) -> None:
    finding = step(record([on_l4(*predicted_us)], counters({}, STALLS), {"slow": 100, "fast": us}))
    assert finding.limiter and ("; limited by" in finding.finding) is limited, finding.finding
    bare = step(record([on_l4(*predicted_us)], [], {"slow": 100, "fast": us}))
    assert bare.limiter or "limited by" not in bare.finding


def test_what_holds_a_step_names_the_phase_that_takes_the_most() -> None:
    stalls = [factory.fact("stall_share_barrier", 41.0, "fast", shape="mission")]
    r = record(facts=[*stalls, *factory.facts_of(SHARES, "fast", shape="mission")])
    assert list(limiter.phase_shares(r, CaseSubject(Case("fast", "mission")))) == ["load", "softmax", "other"]
    assert "at a barrier 28 %; softmax phase 52 % of warp time" in step(r).limiter
    assert limiter.phase_shares(r, CaseSubject(Case("slow", "mission"))) == {}


@pytest.mark.parametrize("value", [1e308, 1e-308, -3.0, 0.0])
@pytest.mark.parametrize("message", [(1e308, 1e-308), (1e-308, 1e308), (-1e308, 1e308), (0, 5), (math.nan, 1.0)])
def test_numbers_that_cannot_be_are_no_verdict_and_no_traceback(value: float, message: tuple[float, float]) -> None:
    names = ("back_to_back_p50", "instructions", "bank_conflicts", "speedup_vs_baseline")
    facts = [factory.fact(n, v, who, shape="mission") for n in names for who, v in (("slow", 1.0), ("fast", value))]
    facts += [factory.fact("back_to_back_p50", 1e308, "slow", shape="mission")]
    wanted = [predicted(n, *pair) for n in names for pair in (message, (None, message[1]))]
    finding = step(record(wanted, facts))
    assert len(finding.judged) == 8


def test_a_step_that_is_not_one_change_says_so() -> None:
    more = (factory.variant("next", parent="fast", also="launch bounds dropped"),)
    r = record(times={"slow": 40, "fast": 20, "next": 10}, more=more)
    assert step(r, "next").finding.endswith("; more than one change: launch bounds dropped")
    assert "more than one change" not in step(r).finding


def test_a_step_without_times_is_unmeasured() -> None:
    r = record([predicted("isolated_p50", 221, 100, "L4")])
    assert step(factory.without(r, "isolated_p50", variant="fast")).outcome == "unmeasured"
    assert "its parent slow" in step(factory.without(r, "isolated_p50", variant="slow")).finding
    stale = replace(factory.without(r, "isolated_p50"), stale={Case("fast", "mission"): CodeChanged("device")})
    assert "stale: the device code, the plan" in step(stale).finding


def test_two_times_within_noise_are_the_same() -> None:
    alike, apart = (step(record(times={"slow": 40, "fast": us})).speedup for us in (40.4, 44))
    assert alike and alike.unchanged and apart and not apart.unchanged


# --- the way to the best --------------------------------------------------------------------------


def test_the_way_leads_from_the_baseline_along_the_parents_of_the_best() -> None:
    more = (
        factory.variant("other", parent="slow"),
        factory.variant("best", parent="fast"),
        factory.variant("worse", parent="best"),
    )
    result = built(record(times={"slow": 90, "fast": 50, "other": 40, "best": 12, "worse": 14}, more=more))
    assert [s.variant.name for s in result.path] == ["slow", "fast", "best"]
    assert [s.variant.name for s in result.steps] == ["slow", "fast", "best", "worse", "other"]
    assert result.best is not None and result.best.variant.name == "best"
    assert result.row.reference == "cudnn"
    assert result.floor is not None and result.floor.time == "isolated_p50"


def test_without_times_there_is_no_way() -> None:
    r = record()
    result = built(replace(r, facts=Facts(f for f in r.facts if f.subject.arch is not None), raw_samples={}))
    assert result.path == () and result.best is None and result.floor is None
    assert {(s.outcome, s.speedup) for s in result.steps} == {("unmeasured", None)}


def test_a_parent_that_comes_later_or_is_unknown_does_no_harm() -> None:
    r = record(more=(factory.variant("lost", parent="nobody"), factory.variant("a", parent="b"), factory.variant("b")))
    assert [s.variant.name for s in built(r).steps] == ["slow", "fast", "lost", "b", "a"]
    assert "no variant nobody" in step(r, "lost").finding
