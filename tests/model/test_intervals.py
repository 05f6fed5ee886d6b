"""The bootstrap interval of a ratio of medians."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashcore.model.case import Case
from flashcore.model.intervals import _resampled_medians, is_decided, levels, outpaced, ratio, ratios
from tests.conftest import published
from tests.support.late import optional

np = optional("numpy")
series = st.lists(st.floats(min_value=0.01, max_value=1e6), min_size=1, max_size=60)


@settings(max_examples=25, deadline=None)
@given(series, series)
def test_ratio_lies_in_its_interval_and_repeats(a: list[float], b: list[float]) -> None:
    estimate = ratio(a, b)
    assert 0 < estimate.low <= estimate.value <= estimate.high
    assert ratio(a, b) == estimate
    rounds = min(len(a), len(b))
    assert estimate.value == pytest.approx(statistics.median(a[:rounds]) / statistics.median(b[:rounds]))


@settings(max_examples=25, deadline=None)
@given(series)
def test_ratio_to_itself_is_one(samples: list[float]) -> None:
    estimate = ratio(samples, samples)
    assert (estimate.low, estimate.value, estimate.high) == (1.0, 1.0, 1.0)


def test_ratio_pairs_rounds() -> None:
    # A drift that both sides share cancels within a round; unpaired, it would drown the ratio.
    drift = [1 + 0.5 * i / 99 for i in range(100)]
    estimate = ratio([20 * d for d in drift], [10 * d for d in drift])
    assert (estimate.low, estimate.high) == pytest.approx((2.0, 2.0))


@pytest.mark.parametrize("paired", [True, False])
def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says(paired: bool) -> None:
    draw = random.Random(7)
    hits = 0
    for _ in range(100):
        a = [draw.gauss(20, 1) for _ in range(60)]
        b = [draw.gauss(10, 0.5) for _ in range(60)]
        estimate = ratio(a, b, paired=paired)
        hits += estimate.low <= 2.0 <= estimate.high
        assert estimate.high - estimate.low < 0.2
    assert 88 <= hits <= 99  # always holding it would be too wide


@pytest.mark.parametrize("paired", [True, False])
def test_the_interval_agrees_with_plain_resampling(paired: bool) -> None:
    source = random.Random(3)
    before, after = ([source.gauss(mean, 1) for _ in range(101)] for mean in (20, 18))
    plain = sorted(
        statistics.median(source.choices(before, k=101)) / statistics.median(source.choices(after, k=101))
        for _ in range(2000)
    )
    estimate = ratio(before, after, paired=paired)
    assert (estimate.low, estimate.high) == pytest.approx((plain[50], plain[1949]), rel=0.005)


def test_runs_of_different_lengths_count_whole_and_a_drift_of_both_is_no_comfort() -> None:
    assert ratio([10.0] * 3 + [20.0] * 4, [10.0] * 3, paired=False).value == 2.0
    drift = [1 + 0.5 * i / 99 for i in range(100)]
    estimate = ratio([20 * d for d in drift], [10 * d for d in drift], paired=False)
    assert estimate.low < 1.95 and estimate.high > 2.05


def test_the_published_run_recorded_these_very_intervals() -> None:
    record = published()
    result = 0
    for fact in record.facts.named("speedup_vs_baseline_low"):
        shape = fact.subject.shape
        rank = record.suite.shapes[shape or ""].rank_by
        sides = (
            record.samples.get((Case(v, shape or ""), rank)) for v in (record.suite.baseline, fact.subject.variant)
        )
        baseline, variant = sides
        if baseline and variant and fact.number is not None:
            assert ratio(baseline, variant).low == pytest.approx(fact.number, rel=1e-12)
            result += 1
    assert result


def test_ratio_refuses_what_is_no_time() -> None:
    for a, b in (([], [1.0]), ([0.0], [1.0])):
        with pytest.raises(ValueError, match="expected"):
            ratio(a, b)


def test_the_median_of_an_odd_number_is_one_of_them_and_of_an_even_one_between_two() -> None:
    assert {*_resampled_medians((1.0, 2.0, 4.0), 0).tolist()} == {1.0, 2.0, 4.0}
    assert {*_resampled_medians((1.0, 2.0), 0).tolist()} == {1.0, 1.5, 2.0}


def test_many_at_once_are_each_as_by_itself() -> None:
    draw = random.Random(3)
    before, *owns = ([draw.uniform(9, 11) for _ in range(n)] for n in (40, 40, 30, 55, 7))
    for paired in (True, False):
        assert ratios(before, owns, paired=paired) == [ratio(before, variant, paired=paired) for variant in owns]
    assert ratios(before, []) == []


def test_levels_are_two_only_where_most_samples_lie_at_two_places() -> None:
    draw = random.Random(5)
    lower, upper = ([draw.gauss(mean, 0.01) for _ in range(30)] for mean in (3.2, 3.6))
    result = levels([x for pair in zip(lower, upper[:15], strict=False) for x in pair] + lower[15:])
    assert result is not None
    assert (result.low, result.high) == (statistics.median(lower), statistics.median(upper[:15]))
    assert result.share == pytest.approx(30 / 45)
    assert levels([*lower, *upper[:3]]) is None  # outliers
    assert levels([*lower[:5], *upper[:5]]) is None  # too few to tell
    assert levels([x + 0.04 * (i % 2) for i, x in enumerate(lower)]) is None  # nearer than what counts as a difference
    assert levels([]) is levels([2.0] * 40) is None


@pytest.mark.parametrize("shape", ["gauss", "lognormvariate"])
def test_one_spread_is_seldom_taken_for_two_levels(shape: str) -> None:
    draw = random.Random(11)
    one: Callable[[float, float], float] = getattr(draw, shape)
    assert sum(levels([one(2, 0.1) for _ in range(30)]) is not None for _ in range(300)) <= 6


def test_a_narrower_interval_holds_less() -> None:
    draw = random.Random(4)
    before, after = ([draw.gauss(mean, 1) for _ in range(40)] for mean in (20, 18))
    (narrow,), (wide,) = (ratios(before, [after], confidence=share) for share in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.value == wide.value < narrow.high < wide.high


def test_a_difference_is_decided_if_no_further_round_can_change_it() -> None:
    draw = random.Random(6)
    before = [draw.gauss(100, 1) for _ in range(10)]
    assert is_decided(before, [0.9 * x for x in before]) and is_decided(before, [1.1 * x for x in before])
    assert is_decided(before, [1.001 * x for x in before]), "the same"
    assert not is_decided(before, [draw.gauss(98, 3) for _ in range(10)])


def test_a_series_is_outpaced_only_by_as_many_as_there_are_places() -> None:
    times = {name: [us] * 10 for name, us in (("a", 1.0), ("b", 2.0), ("c", 2.01), ("d", 3.0))}
    assert outpaced(times, 1) == {"b", "c", "d"}
    assert outpaced(times, 2) == {"d"}, "c is the same as b"
    assert outpaced(times, 3) == {"d"} and outpaced(times, 4) == set()
    assert outpaced({}, 1) == set()
