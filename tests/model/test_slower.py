"""The timing decision: known quantiles, false alarms counted in simulation, planted slowdowns found."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.against import binomial_upper
from flashcore.model.slower import COARSE, PROCESSES, ProcessTimes, decide, student_quantile

#: How far a build is off in one process, as the logarithm of a ratio.
Noise = Callable[[random.Random], float]


def calm(source: random.Random) -> float:
    return source.gauss(0, 0.003)


def heavy(source: random.Random) -> float:
    """Now and then a process that is ten times as far off."""
    return source.gauss(0, 0.03 if source.random() < 0.05 else 0.003)


def two_layouts(source: random.Random) -> float:
    """A build is lucky with its memory or it is not."""
    return source.choice((0.0, 0.02)) + source.gauss(0, 0.002)


def rarely_unlucky(source: random.Random) -> float:
    return source.gauss(0, 0.001) + (0.03 if source.random() < 0.1 else 0.0)


def drawn(
    source: random.Random, noise: Noise, slower: float = 0.0, processes: int = PROCESSES, after: Noise | None = None
) -> list[ProcessTimes]:
    """The processes of a case whose three builds each have independent noise."""
    results = []
    for _ in range(processes):
        first, again, new = noise(source), noise(source), (after or noise)(source) + math.log1p(slower)
        results.append(ProcessTimes(new - (first + again) / 2, again - first))
    return results


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [(0.975, 1, 12.7062), (0.975, 10, 2.22814), (0.95, 5, 2.01505), (0.999, 9, 4.29681), (0.99995, 9, 6.5937)],
)
def test_students_quantiles_are_those_of_the_tables(probability: float, freedom: int, expected: float) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(expected, rel=2e-3)


# --- false alarms and power, in simulation ------------------------------------------------------


@pytest.mark.parametrize("noise", [calm, heavy, two_layouts, rarely_unlucky])
@pytest.mark.parametrize("count", [1, 20])
def test_chance_raises_few_alarms(noise: Noise, count: int) -> None:
    """Gate runs in which nothing changed, at a hundred times the default rate so that it shows."""
    source = random.Random(11)
    runs = 8000 // (count + 20)
    alarms = 0
    for _ in range(runs):
        cases = {str(i): drawn(source, noise) for i in range(count)}
        alarms += any(d.outcome == "slower" for d in decide(cases, alpha=0.1, effect=0.0).values())
    assert alarms / runs <= 0.1


def test_a_build_that_is_noisier_than_before_raises_few_alarms_too() -> None:
    """The spread of no change says nothing about it: only its own does."""
    source = random.Random(12)
    alarms = 0
    for _ in range(400):
        cases = {str(i): drawn(source, calm, after=lambda s: s.gauss(0, 0.03)) for i in range(10)}
        alarms += any(d.outcome == "slower" for d in decide(cases, alpha=0.1, effect=0.0).values())
    assert binomial_upper(alarms, 400) < 0.15


@pytest.mark.parametrize("count", [1, 5, 48])
@pytest.mark.parametrize("slower", [0.02, 0.05, 0.10])
def test_planted_slowdowns_are_found_at_the_defaults(slower: float, count: int) -> None:
    source = random.Random(5)
    hits = 0
    for _ in range(50):
        cases = {str(i): drawn(source, calm) for i in range(count)}
        cases["0"] = drawn(source, calm, slower)
        hits += decide(cases)["0"].outcome == "slower"
    assert hits == 50


def test_a_wild_case_does_not_hide_a_slowdown_of_a_calm_one() -> None:
    source = random.Random(6)
    cases = {str(i): drawn(source, calm) for i in range(9)}
    cases |= {"wild": drawn(source, lambda s: s.gauss(0, 0.1)), "bad": drawn(source, calm, 0.02)}
    assert decide(cases)["bad"].outcome == "slower"


def test_one_noisy_case_is_not_judged_by_the_calm_of_the_others() -> None:
    source = random.Random(2)
    cases = {str(i): drawn(source, lambda s: s.gauss(0, 1e-4)) for i in range(19)}
    cases["wild"] = drawn(source, lambda s: s.gauss(0, 1e-4), after=lambda s: s.gauss(0, 0.01))
    assert decide(cases)["wild"].outcome == "no difference"


def test_few_changes_that_happen_to_agree_are_no_proof() -> None:
    """The same change in every process, where before differs from itself as much."""
    odd = [ProcessTimes(0.02, 0.02)] * PROCESSES
    assert decide({"x": odd})["x"].outcome == "no difference"
    assert decide({"x": [ProcessTimes(0.02, 0.0)] * PROCESSES})["x"].outcome == "slower"


# --- outcomes -----------------------------------------------------------------------------------


def test_what_is_certain_but_small_does_not_matter() -> None:
    quiet = drawn(random.Random(3), lambda s: s.gauss(0, 1e-4), 0.005)
    assert decide({"x": quiet})["x"].outcome == "too small to matter"
    assert decide({"x": quiet}, effect=0.001)["x"].outcome == "slower"


def test_faster_is_said_too() -> None:
    decision = decide({"x": drawn(random.Random(3), calm, -0.2)})["x"]
    assert decision.outcome == "faster"
    assert decision.change == pytest.approx(-0.2, abs=0.01)


def test_noise_that_would_hide_anything_is_no_pass() -> None:
    wild = decide({"x": drawn(random.Random(4), lambda s: s.gauss(0, 0.1))})["x"]
    assert wild.outcome == "undecided" and "too noisy" in wild.reason
    assert wild.critical is not None and wild.critical > COARSE
    # What stands out even of that is said.
    assert decide({"x": drawn(random.Random(4), lambda s: s.gauss(0, 0.1), 2.0)})["x"].outcome == "slower"


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ([], "at least 4"),
        ([ProcessTimes(0.0, 0.0)] * 3, "at least 4"),
        ([ProcessTimes(0.0, 0.0)] * 8 + [ProcessTimes(math.nan, 0.0)], "positive number"),
        ([ProcessTimes(0.0, 0.0)] * 8 + [ProcessTimes(0.0, math.inf)], "positive number"),
    ],
)
def test_too_little_is_undecided_and_never_a_pass(broken: Sequence[ProcessTimes], reason: str) -> None:
    decision = decide({"x": broken, "y": drawn(random.Random(1), calm)})["x"]
    assert decision.outcome == "undecided" and reason in decision.reason
    assert decide({}) == {}


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=4, max_size=12), st.floats(-0.5, 0.5))
def test_a_decision_follows_from_its_numbers(values: list[tuple[float, float]], moved: float) -> None:
    result = decide({"x": [ProcessTimes(c + moved, n) for c, n in values]})["x"]
    assert result.change is not None and result.critical is not None
    assert (result.outcome == "slower") == (result.change > max(result.critical, 0.01))
    # Which of the two times before came first does not matter.
    assert decide({"x": [ProcessTimes(c + moved, -n) for c, n in values]})["x"] == result


# --- what a process says ------------------------------------------------------------------------


def test_a_drift_that_a_round_shares_cancels() -> None:
    drift = [1 + 0.5 * i / 99 for i in range(100)]
    result = ProcessTimes.of([10 * d for d in drift], [11 * d for d in drift], [10 * d for d in drift])
    assert result.change == pytest.approx(math.log(1.1))
    assert result.null == 0


def test_skewed_noise_leans_to_no_side() -> None:
    """Samples are late now and then and never early: where nothing changed that is no change on the whole."""
    source = random.Random(8)

    def side() -> list[float]:
        return [10 * math.exp(0.01 * source.expovariate(1.0)) for _ in range(101)]

    changes = [ProcessTimes.of(side(), side(), side()).change for _ in range(300)]
    mean = sum(changes) / len(changes)
    spread = math.sqrt(sum((c - mean) ** 2 for c in changes) / len(changes))
    assert abs(mean) < 4 * spread / math.sqrt(len(changes))


@pytest.mark.parametrize("bad", [[], [0.0], [-1.0], [math.inf], [math.nan]])
def test_what_is_no_time_says_nothing(bad: list[float]) -> None:
    assert math.isnan(ProcessTimes.of([1.0], [1.0], bad).change)
    assert math.isnan(ProcessTimes.of(bad, [1.0], [1.0]).null)


def test_a_case_without_processes_leaves_those_behind_it_decided() -> None:
    result = decide({"gap": [], "x": [ProcessTimes(0.02, 0.0)] * PROCESSES})
    assert (result["gap"].outcome, result["x"].outcome) == ("undecided", "slower")


def test_what_is_critical_is_told_to_the_digit() -> None:
    """One case, four processes that agree: only the spread of no change is left, with its own degrees of freedom."""
    result = decide({"x": [ProcessTimes(0.02, 0.001)] * 4}, alpha=0.05)["x"]
    spread = math.sqrt(3 / 4) * 0.001  # of a change, where that of no change is 0.001
    assert result.critical == pytest.approx(math.expm1(student_quantile(0.95, 7) * spread / 2), rel=1e-9)
