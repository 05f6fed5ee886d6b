"""The statistics of samples, as properties."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashcore.stages.bench.statistics import (
    P90_SAMPLES,
    P99_SAMPLES,
    StopRule,
    percentiles,
    relative_noise,
)

times = st.floats(min_value=0.01, max_value=1e6, allow_nan=False, allow_infinity=False)


def test_p99_takes_a_thousand_samples() -> None:
    assert percentiles([float(i) for i in range(1001)]) == pytest.approx((900.0, 990.0))
    assert percentiles([1.0] * (P99_SAMPLES - 1)) == (1.0, None)
    assert percentiles([1.0] * (P90_SAMPLES - 1)) == percentiles([]) == (None, None)


@given(st.lists(times, min_size=5, max_size=60), st.floats(min_value=0.1, max_value=10))
def test_noise_has_no_unit(samples: list[float], factor: float) -> None:
    noise = relative_noise(samples)
    assert noise >= 0
    assert relative_noise([x * factor for x in samples]) == pytest.approx(noise, rel=1e-6, abs=1e-9)


def test_noise_falls_with_samples_and_ignores_one_outlier() -> None:
    draw = random.Random(1)
    few = [draw.gauss(100, 1) for _ in range(50)]
    many = few + [draw.gauss(100, 1) for _ in range(1550)]
    assert relative_noise(many) < relative_noise(few) / 3
    assert relative_noise([*few, 1e6]) < 2 * relative_noise(few)
    assert relative_noise(few[:4]) == math.inf


def test_stop_rule() -> None:
    rule = StopRule(least=100, most=400, noise=0.001, seconds=2.0, slow_seconds=3.0, fewest=10)
    steady, noisy = [10.0] * 400, [10.0, 20.0] * 200
    assert not rule.enough(steady[:99], 0.1, 100.0), "the least is taken, whatever the time"
    assert rule.enough(steady[:100], 0.1, 0.1)
    assert not rule.enough(noisy[:100], 0.1, 0.1)
    assert rule.enough(noisy[:100], 0.1, 2.0)
    assert rule.enough(noisy, 0.1, 0.1)
    assert rule.enough(steady[:10], 3.0, 3.0), "a slow case may stop early"
    assert not rule.enough(steady[:9], 9.0, 9.0)


def test_noise_is_looked_at_after_every_tenth_sample() -> None:
    rule = StopRule(least=25, most=400, noise=0.001, seconds=2.0)
    assert [n for n in range(20, 60) if rule.enough([10.0] * n, 0.1, 0.1)] == [30, 40, 50]


def test_noise_is_the_medians_standard_error() -> None:
    samples = [9.0, 10.0, 10.0, 10.0, 11.0, 9.0, 11.0, 10.0, 9.5, 10.5]
    low, high = 9.625, 10.375  # quartiles, interpolated
    assert relative_noise(samples) == pytest.approx(1.2533 * (high - low) / 1.349 / math.sqrt(10) / 10, rel=1e-9)
    assert relative_noise([0.0] * 10) == relative_noise([-1.0] * 10) == math.inf


def test_the_defaults_are_those_that_are_documented() -> None:
    rule = StopRule()
    assert (rule.least, rule.most, rule.noise, rule.seconds, rule.slow_seconds, rule.fewest) == (
        30, P99_SAMPLES, 0.002, 2.0, 3.0, 10
    )  # fmt: skip
