"""Predictions: what was said before, held to what was measured."""

from __future__ import annotations

import pytest

from flashcore.explain.predictions import JudgedPrediction, PredictionOutcome, outcomes, progress
from flashcore.explain.readings import Readings
from flashcore.model.case import Case
from flashcore.model.causes import WorstInput
from flashcore.model.record import Record
from tests import factory
from tests.support.predicted import SHARES, predicted, record


def only(r: Record) -> JudgedPrediction:
    (result,) = outcomes(Readings(r), r.suite.variants["fast"], "mission")
    return result


@pytest.mark.parametrize(
    ("share", "outcome"),
    [
        (1.0, "confirmed"),
        (0.8, "confirmed"),
        (1.3, "more"),
        (0.5, "partly"),
        (0.01, "none"),
        (-0.01, "none"),
        (-0.5, "against"),
    ],
)
def test_progress_is_the_share_of_the_predicted_change(share: float, outcome: PredictionOutcome) -> None:
    assert progress(share * 10, 10, False) == outcome
    assert progress(share * -10, -10, False) == outcome


def test_a_change_that_is_none_is_no_effect_and_was_right_where_none_was_predicted() -> None:
    assert progress(5, 10, True) == "none"
    assert progress(0.1, 0, True) == "confirmed"
    assert progress(3, 0, False) == "against"


def test_times_of_another_device_are_compared_as_a_ratio_and_it_says_so() -> None:
    result = only(record([predicted("isolated_p50", 221, 22.1, "L4")]))
    assert result.scale == "ratio"
    assert result.predicted == pytest.approx(0.1)
    assert result.measured == pytest.approx(0.1, rel=0.01)
    assert result.outcome == "confirmed"
    assert "L4" in result.note and "ratio" in result.note and factory.GPU in result.note


def test_counts_are_compared_as_differences_of_the_measured_arch() -> None:
    registers = [
        factory.fact("registers", 80, "slow", arch="sm_90a", kernel="slow_kernel"),
        factory.fact("registers", 99, "fast", arch="sm_90a", kernel="fast_kernel"),
        factory.fact("registers", 200, "fast", arch="sm_80", kernel="fast_kernel"),
    ]
    result = only(record([predicted("registers", 96, 115, shape=None)], registers))
    assert (result.scale, result.measured, result.outcome) == ("difference", 19, "confirmed")
    assert result.finding == "prediction confirmed: 80 → 99, predicted +19"


@pytest.mark.parametrize(
    ("fact", "wanted", "value", "outcome"),
    [
        ("tensor_active", 50, 60.0, "confirmed"),
        ("tensor_active", 50, 30.0, "partly"),
        ("tensor_active", 50, 20.0, "none"),
        ("tensor_active", 50, 10.0, "against"),
        ("tensor_active", 0, 0.3, "confirmed"),
        ("memory_stalls", 30, 29.0, "confirmed"),
        ("bank_conflicts", 0, 1, "partly"),
        ("bank_conflicts", 0, 0, "confirmed"),
    ],
)
def test_a_level_is_reached_or_approached(fact: str, wanted: float, value: float, outcome: PredictionOutcome) -> None:
    facts = [factory.fact(fact, value, "fast", shape="mission")]
    assert only(record([predicted(fact, None, wanted)], facts)).outcome == outcome


def test_what_was_not_measured_is_unmeasured_with_its_reason() -> None:
    gone = factory.fact("bank_conflicts", None, "fast", shape="mission", detail="the chip has no such counter")
    result = only(record([predicted("bank_conflicts", 100, 0)], [gone]))
    assert result.outcome == "unmeasured"
    assert "no such counter" in result.finding
    parent = factory.without(record([predicted("barriers_per_block", 48, 9)]), "barriers_per_block", variant="slow")
    assert "for its parent" in only(parent).finding
    empty = factory.bare_record(record([predicted("isolated_p50", 2, 1, "L4")]).suite)
    assert only(empty).outcome == "unmeasured"


def test_a_prediction_of_another_shape_is_left_out() -> None:
    r = record([predicted("isolated_p50", 2, 1, "L4", "long"), predicted("registers", 96, 90, shape=None)])
    assert [j.prediction.fact for j in outcomes(Readings(r), r.suite.variants["fast"], "mission")] == ["registers"]


def test_shares_of_phases_are_compared_whatever_the_device() -> None:
    facts = factory.facts_of(SHARES, "fast", shape="mission")
    level = only(record([predicted("phase_share_softmax", None, 45, "L4")], facts))
    assert (level.scale, level.measured, level.outcome) == ("level", 52.4, "missed")
    assert only(record([predicted("phase_share_softmax", None, 50, "L4")], facts)).outcome == "confirmed"
    before = factory.facts_of({"phase_share_softmax": 70.0}, "slow", shape="mission")
    measured = only(record([predicted("phase_share_softmax", None, 45, "L4")], [*facts, *before]))
    assert measured.finding == "missed: 52.4 %, predicted 45 %", "it was said of this kernel alone"
    change = only(record([predicted("phase_share_softmax", 45, 30, "L4")], [*facts, *before]))
    assert (change.scale, change.outcome) == ("difference", "confirmed")
    assert "70 % → 52.4 %, predicted −15 points" in change.finding
    assert only(record([predicted("phase_share_softmax", None, 45)])).outcome == "unmeasured"


@pytest.mark.parametrize(
    ("fact", "said_from", "to", "was", "now", "outcome"),
    [
        ("barriers_per_block", 48, 9, 8, 1, "confirmed"),  # below 10 is met, wherever it started
        ("barriers_per_block", 48, 9, 40, 20, "partly"),
        ("barriers_per_block", 48, 9, 1, 5, "against"),  # met by the parent too, and lost
        ("barriers_per_block", 48, 9, 8, 8, "none"),
        ("tensor_active", 60, 70, 71, 75, "confirmed"),
        ("tensor_active", 60, 60.5, 71, 71.1, "confirmed"),  # by its level, though it hardly rose
        ("tensor_active", 60, 70, 10, 40, "more"),
        ("bank_conflicts", 100, 200, 100, 500, "missed"),  # more than predicted of what is worse
        ("bank_conflicts", 100, 200, 20, 190, "confirmed"),  # more of it, but no more than was said
        ("bank_conflicts", 100, 200, 100, 205, "confirmed"),
        ("tensor_active", 60, 50, 60, 20, "missed"),
        ("kernel_launches", 1, 3, 1, 9, "missed"),  # neither side is better: far beyond is a miss
    ],
)
def test_a_goal_is_met_by_its_level_and_more_of_a_worsening_is_a_miss(
    fact: str, said_from: float, to: float, was: float, now: float, outcome: PredictionOutcome
) -> None:
    facts = [factory.fact(fact, was, "slow", shape="mission"), factory.fact(fact, now, "fast", shape="mission")]
    result = only(record([predicted(fact, said_from, to)], facts))
    assert result.outcome == outcome
    beyond = "beyond the prediction" if fact == "kernel_launches" else "worse than predicted"
    assert (outcome == "missed") == result.finding.startswith(beyond)


@pytest.mark.parametrize(
    ("value", "detail", "outcome"),
    [
        (1.4e-3, WorstInput(2, "scaled_logits"), "elsewhere"),
        (1.4e-3, WorstInput(2, "normal"), "missed"),
        (2e-4, WorstInput(2, "scaled_logits"), "confirmed"),  # so it is on easier inputs
    ],
)
def test_errors_on_other_inputs_are_not_comparable(
    value: float, detail: WorstInput, outcome: PredictionOutcome
) -> None:
    facts = [factory.fact("max_error", value, v, shape="mission", detail=detail) for v in ("slow", "fast")]
    result = only(record([predicted("max_error", None, 2.44e-4)], facts))
    assert result.outcome == outcome or (outcome, result.outcome) == ("missed", "none")
    assert (outcome == "elsewhere") == result.finding.startswith("not comparable: 0.0014, worst on seed 2, kind")


@pytest.mark.parametrize(
    ("before", "after", "device", "times", "outcome"),
    [
        # A lone time is a level on its own device, and says nothing about another one.
        (None, 100, "L4", {}, "elsewhere"),
        (None, 100, "H200", {}, "confirmed"),
        (None, 10, "H200", {}, "partly"),
        # On its own device a time is met by its level too.
        (8, 6, factory.GPU, {"slow": 6.5, "fast": 5.8}, "confirmed"),
        (8, 6, "L4", {"slow": 6.5, "fast": 5.8}, "partly"),
        # Two times within noise are no effect, and right where none was predicted.
        *((200, 100, "L4", {"slow": 100.0, "fast": us}, "none") for us in (100.0, 101.5, 98.5, 103.0)),
        (200, 100, "L4", {"slow": 100.0, "fast": 130.0}, "against"),
        *((100, 100, "L4", {"slow": 100.0, "fast": us}, "confirmed") for us in (100.0, 98.6, 101.4)),
        *((100, 100, "L4", {"slow": 100.0, "fast": us}, "against") for us in (97.0, 103.0)),
    ],
)
def test_a_time_is_compared_by_its_device(
    before: float | None, after: float, device: str, times: dict[str, float], outcome: PredictionOutcome
) -> None:
    assert only(record([predicted("isolated_p50", before, after, device)], times=times)).outcome == outcome


def test_a_lone_time_of_another_device_names_the_time_here_if_known() -> None:
    here = record([predicted("isolated_p50", None, 557, "L4")], times={"fast": 40})
    level = "not comparable: a time on the L4, without a ratio"
    assert only(here).finding.startswith(f"{level}; here 40")
    assert only(factory.without(here, "isolated_p50", variant="fast")).finding == level


@pytest.mark.parametrize(
    ("speedups", "after", "finding"),
    [
        (
            {"slow": 10.06, "fast": 11.14},
            12,
            "missed: 11.1, predicted at least 12",
        ),  # over the baseline, not the parent
        ({"fast": 0.9}, 4.2, "missed: 0.9, predicted at least 4.2"),
    ],
)
def test_a_speed_up_is_a_level_on_every_device(speedups: dict[str, float], after: float, finding: str) -> None:
    facts = [factory.fact("speedup_vs_baseline", x, v, shape="mission") for v, x in speedups.items()]
    result = only(record([predicted("speedup_vs_baseline", None, after, "L4")], facts))
    assert (result.scale, result.outcome) == ("level", "missed")
    assert finding in result.finding


def test_a_prediction_of_another_device_is_compared_here_as_a_ratio() -> None:
    at_home = predicted("isolated_p50", 221, 184, factory.GPU.split()[-1])
    abroad = predicted("isolated_p50", 221, 184, "L4")
    home, away = (only(record([p], times={"slow": 40.0, "fast": 40.0 * 184 / 221})) for p in (at_home, abroad))
    assert (home.note, away.note) == ("", f"predicted for the L4; compared as a ratio on {factory.GPU}")


def test_static_readings_are_of_the_measured_arch_else_of_the_suites_last() -> None:
    here = factory.environment(gpu=None)
    assert Readings(factory.bare_record(environment=here)).arch == factory.ARCHS[-1]
    assert Readings(factory.bare_record(factory.suite(archs=()), environment=here)).arch is None
    assert Readings(factory.bare_record(environment=factory.environment(gpu_arch="sm_89"))).arch == "sm_89"


def test_a_static_fact_without_a_number_says_why() -> None:
    refused = factory.fact("registers", None, "fast", arch="sm_90a", kernel="fast_kernel", detail="no cubin")
    assert Readings(factory.bare_record(facts=[refused])).of("registers", Case("fast", "mission")).why == "no cubin"
    assert Readings(factory.bare_record()).of("registers", Case("fast", "mission")).why == "not recorded for sm_90a"


def test_of_a_variants_kernels_the_worst_is_read() -> None:
    facts = [
        factory.fact(name, value, "fast", arch="sm_90a", shape="mission", kernel=kernel)
        for name, pair in (("registers", (80, 99)), ("theoretical_occupancy", (25, 50)))
        for kernel, value in zip("ab", pair, strict=True)
    ]
    recorded = Readings(factory.bare_record(facts=facts))
    assert recorded.of("registers", Case("fast", "mission")).value == 99
    assert recorded.of("theoretical_occupancy", Case("fast", "mission")).value == 25, "the least of what is better high"
