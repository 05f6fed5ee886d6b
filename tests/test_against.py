"""The timing decision: known quantiles, false alarms counted in simulation, planted slowdowns found."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from harness.against import Timed, binomial_upper, decide, incomplete_beta, student_quantile

Noise = Callable[[random.Random], float]


def calm(source: random.Random) -> float:
    return source.gauss(0, 0.005)


def heavy(source: random.Random) -> float:
    """Now and then a process that is ten times as far off."""
    return source.gauss(0, 0.05 if source.random() < 0.05 else 0.005)


def drifting(source: random.Random) -> float:
    """Two clocks, as a throttled GPU has them."""
    return source.choice((0.0, 0.02)) + source.gauss(0, 0.002)


def timed(source: random.Random, noise: Noise, slower: float = 0.0, processes: int = 10) -> Timed:
    def side(factor: float) -> list[float]:
        return [10.0 * factor * math.exp(noise(source)) for _ in range(processes)]

    return Timed(side(1.0), side(1.0 + slower), side(1.0))


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [(0.975, 1, 12.7062), (0.975, 10, 2.22814), (0.95, 5, 2.01505), (0.999, 9, 4.29681), (0.99995, 9, 6.5937)],
)
def test_students_quantiles_are_those_of_the_tables(probability: float, freedom: int, expected: float) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(expected, rel=2e-3)


def test_the_incomplete_beta_function_has_its_known_values() -> None:
    assert incomplete_beta(1, 1, 0.3) == pytest.approx(0.3)
    assert incomplete_beta(2, 3, 0.5) == pytest.approx(0.6875)
    assert incomplete_beta(0.5, 0.5, 0.5) == pytest.approx(0.5)
    assert (incomplete_beta(2, 2, 0), incomplete_beta(2, 2, 1)) == (0, 1)


@pytest.mark.parametrize(
    ("alarms", "trials", "bound"), [(0, 3000, 0.000998), (1, 3000, 0.00158), (3, 3000, 0.00258), (5, 5, 1.0)]
)
def test_the_bound_of_a_rate(alarms: int, trials: int, bound: float) -> None:
    assert binomial_upper(alarms, trials) == pytest.approx(bound, rel=5e-3)


@pytest.mark.parametrize("noise", [calm, heavy, drifting])
def test_chance_raises_few_alarms(noise: Noise) -> None:
    """300 gate runs of 20 cases each, nothing changed, at a hundred times the default rate so that it shows."""
    source = random.Random(11)
    alarms = 0
    for _ in range(300):
        cases = {str(i): timed(source, noise) for i in range(20)}
        found = decide(cases, alpha=0.1, effect=0.0)
        alarms += any(d.outcome in ("slower", "faster") for d in found.values())
    # Two-sided, so twice the rate at most; the conservative spread brings it well below.
    assert binomial_upper(alarms, 300) < 0.2


@pytest.mark.parametrize(("slower", "rate"), [(0.02, 0.9), (0.05, 0.99), (0.10, 0.99)])
def test_planted_slowdowns_are_found(slower: float, rate: float) -> None:
    source = random.Random(5)
    hits = 0
    for _ in range(100):
        cases = {str(i): timed(source, calm, processes=16) for i in range(19)}
        cases["bad"] = timed(source, calm, slower, processes=16)
        hits += decide(cases)["bad"].outcome == "slower"
    assert hits / 100 >= rate


def test_the_same_code_is_never_called_slower() -> None:
    slow = Timed([10.0] * 8, [20.0] * 8, [10.0] * 8, same_code=True)
    assert decide({"x": slow})["x"].outcome == "same code"


def test_what_is_certain_but_small_does_not_matter() -> None:
    source = random.Random(3)
    quiet = timed(source, lambda s: s.gauss(0, 1e-4), 0.005)
    assert decide({"x": quiet})["x"].outcome == "too small to matter"
    assert decide({"x": quiet}, effect=0.001)["x"].outcome == "slower"


def test_faster_is_said_too() -> None:
    decision = decide({"x": timed(random.Random(3), calm, -0.2)})["x"]
    assert decision.outcome == "faster" and "faster by" in decision.text


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (Timed([1.0] * 3, [1.0] * 3, [1.0] * 3), "at least 4"),
        (Timed([1.0] * 5, [1.0] * 4, [1.0] * 5), "all three builds"),
        (Timed([1.0] * 4, [1.0, 1.0, 1.0, float("nan")], [1.0] * 4), "positive number"),
        (Timed([1.0] * 4, [0.0] * 4, [1.0] * 4), "positive number"),
    ],
)
def test_too_little_is_undecided_and_never_a_pass(broken: Timed, reason: str) -> None:
    decision = decide({"x": broken, "y": timed(random.Random(1), calm)})["x"]
    assert decision.outcome == "undecided" and reason in decision.text
    assert decide({}) == {}


def test_one_noisy_case_is_not_judged_by_the_calm_of_the_others() -> None:
    source = random.Random(2)
    cases = {str(i): timed(source, lambda s: s.gauss(0, 1e-4)) for i in range(19)}
    wild = timed(source, lambda s: s.gauss(0, 0.2))
    cases["wild"] = Timed(cases["0"].before, wild.after, cases["0"].again)
    assert decide(cases)["wild"].outcome == "no difference"
