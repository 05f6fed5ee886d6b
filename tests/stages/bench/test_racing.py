"""Which cases of a shape stop after a first round: those that cannot be among its first, and only where nobody needs
more."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from flashcore.machine.gpu_state import Watch
from flashcore.model.suite import Prediction
from flashcore.stages.bench import interleave
from flashcore.stages.bench.interleave import Turns
from flashcore.stages.bench.racing import Race, full_modes
from flashcore.stages.bench.statistics import StopRule
from tests import factory
from tests.softmax_cases import case

FASTEST = 10.0
#: Ten variants, each a tenth slower than the one before: v0 is the first.
LADDER = {f"v{i}": FASTEST * 1.1**i for i in range(10)}


def race(names: Sequence[str], first: int = 5, **changes: Any) -> Race:
    full = {name: [] for name in names} | changes.pop("full", {})
    return Race("isolated", first, full, changes.pop("parents", {}), changes.pop("references", ()))


def rounds(times: Mapping[str, float], count: int = 10, noise: float = 0.005, seed: int = 1) -> dict[str, list[float]]:
    draw = random.Random(seed)
    return {name: [time * draw.gauss(1, noise) for _ in range(count)] for name, time in times.items()}


def test_what_cannot_be_among_the_first_stops() -> None:
    one = race([*LADDER])
    assert one.stopped("isolated", rounds(LADDER)) == {"v5", "v6", "v7", "v8", "v9"}
    assert one.stopped("cold", {}) == {"v5", "v6", "v7", "v8", "v9"}, "in the modes after it too"


def test_a_shape_of_few_cases_stops_none() -> None:
    few = dict(list(LADDER.items())[:5])
    assert not race([*few]).stopped("isolated", rounds(few))


def test_a_tie_for_the_last_place_goes_on() -> None:
    tied = LADDER | {"v5": LADDER["v4"] * 1.01}
    assert race([*tied]).stopped("isolated", rounds(tied)) == {"v6", "v7", "v8", "v9"}


def test_noise_that_hides_the_order_stops_none_of_what_it_hides() -> None:
    stopped = race([*LADDER]).stopped("isolated", rounds(LADDER, noise=0.3))
    assert "v5" not in stopped and "v6" not in stopped


@pytest.mark.parametrize("noise", [0.002, 0.01, 0.03])
def test_one_of_the_first_is_stopped_in_at_most_one_run_of_a_hundred(noise: float) -> None:
    close = {f"v{i}": FASTEST * (1 + 0.015 * i) for i in range(12)}
    first = {f"v{i}" for i in range(5)}
    lost = sum(bool(first & race([*close]).stopped("isolated", rounds(close, noise=noise, seed=s))) for s in range(200))
    assert lost <= 2


def test_what_a_budget_or_prediction_needs_goes_on_in_that_mode_alone() -> None:
    one = race([*LADDER], full={"v8": ["isolated"], "v9": ["cold"]})
    assert one.stopped("isolated", rounds(LADDER)) == {"v5", "v6", "v7", "v9"}
    assert one.stopped("cold", {}) == {"v5", "v6", "v7", "v8"}


def test_a_step_goes_on_until_it_is_decided() -> None:
    steps = LADDER | {"v8": LADDER["v7"] * 1.02}
    one = race([*steps], parents={"v8": "v7", "v6": "v5", "v9": "absent"})
    assert one.stopped("isolated", rounds(steps, noise=0.01)) == {"v5", "v6", "v9"}, "v8 is not told from v7"
    same = LADDER | {"v8": LADDER["v7"] * 1.001}
    assert "v8" in race([*same], parents={"v8": "v7"}).stopped("isolated", rounds(same, noise=0.001)), "no difference"


def test_the_fastest_reference_goes_on_and_references_take_no_place_of_a_variant() -> None:
    slow = {name: 10 * time for name, time in LADDER.items()}
    times = slow | {"near": 50.0, "nearer": 40.0, "slowest": 900.0}
    stopped = race([*times], references=("near", "nearer", "slowest")).stopped("isolated", rounds(times))
    assert stopped == {"v5", "v6", "v7", "v8", "v9", "slowest"}
    times = LADDER | {"far": 50.0, "farther": 60.0}
    stopped = race([*times], references=("far", "farther")).stopped("isolated", rounds(times))
    assert "far" not in stopped and "farther" in stopped


# --- what needs a mode in full ----------------------------------------------------------------------


def test_the_modes_that_budgets_and_predictions_name_are_needed_of_a_variant_and_its_parent() -> None:
    predicted = Prediction("cold_p50", 2.0, 1.0, "us", "a document", shape="mission")
    other_shape = Prediction("eager_p50", 2.0, 1.0, "us", "a document", shape="long")
    variants = [
        factory.variant("base"),
        factory.variant("child", parent="base", predictions=(predicted, other_shape)),
        factory.variant("limited"),
        factory.variant("free"),
    ]
    budgets = [
        factory.budget("isolated_p90", maximum=9.0, variants=("limited",)),
        factory.budget("speedup_vs_reference", minimum=1.0, variants=("limited",), shapes=("mission",)),
        factory.budget("eager_p50", maximum=9.0, device="L4"),
        factory.budget("registers", maximum=9),
    ]
    suite = factory.suite(variants=variants, budgets=budgets)
    at = replace(case("base", "mission"), rank_by="back_to_back")
    modes = ("isolated", "back_to_back", "cold", "eager")
    wanted = {"base": ["cold"], "child": ["cold"], "limited": ["isolated", "back_to_back"], "free": []}
    full = full_modes(suite, factory.GPU, at, modes)
    assert {name: full[name] for name in wanted} == wanted


def test_a_mode_that_is_only_shown_gets_fewer_samples_and_calls() -> None:
    one = race([*LADDER], full={"v1": ["cold"], "v9": ["cold"]})
    one.stopped("isolated", rounds(LADDER))
    rule = StopRule(least=30, fewest=10)
    assert [one.rule(mode, "v0", rule).least for mode in ("isolated", "cold", "eager")] == [30, 10, 10]
    assert [one.rule("cold", name, rule).least for name in ("v1", "(empty)")] == [30, 30]
    assert one.rule("cold", "v0", StopRule(least=5, fewest=10)).least == 5
    calls = {name: [one.calls(mode, name, 1000) for mode in ("isolated", "cold")] for name in ("v0", "v1", "v8", "v9")}
    assert calls == {"v0": [1000, 5], "v1": [1000, 1000], "v8": [0, 0], "v9": [0, 1000]}
    assert [one.calls("back_to_back", "v0", most) for most in (20, 1000)] == [20, 100]


def test_a_speedup_over_the_baseline_needs_the_baseline() -> None:
    suite = factory.suite(
        variants=[factory.variant("base"), factory.variant("child")],
        baseline="base",
        budgets=[factory.budget("speedup_vs_baseline", minimum=2.0, variants=("child",))],
    )
    at = replace(case("base", "mission"), rank_by="isolated")
    full = full_modes(suite, factory.GPU, at, ["isolated", "cold"])
    assert full["base"] == full["child"] == ["isolated"]


# --- sampling with a race --------------------------------------------------------------------------


class Steady:
    """Calls that always take as long, by a clock that they set forward."""

    now = 0.0

    def __init__(self, us: float) -> None:
        self.us = us

    def isolated(self) -> float:
        Steady.now += 1 / 64
        return self.us + 0.2 * (Steady.now * 64 % 2)  # too noisy to end early

    cold = isolated


def test_the_others_get_all_samples_and_no_time_of_those_that_stopped() -> None:
    ready: Any = {name: Steady(time) for name, time in LADDER.items()}
    rule = StopRule(least=30, most=1000, noise=0.0, seconds=600 / 64, fewest=10)

    def counts(mode: str, one: Race | None) -> dict[str, int]:
        turns = Turns(Watch("cpu"), lambda *_: None, one or Race(), now=lambda: Steady.now)
        taken = interleave.sample(ready, mode, rule, turns)
        return {name: len(samples) for name, samples in taken.items()}

    full = counts("isolated", None)
    one = race([*LADDER])
    raced = counts("isolated", one)
    assert [raced[f"v{i}"] for i in range(5, 10)] == [10, 10, 10, 10, 5], "v9 takes over 1.5 times as long as v4"
    assert {raced[name] for name in LADDER if name not in one.slow} == {*full.values()} == {60}
    assert {counts("cold", one)[name] for name in one.slow} == {3}


def test_samples_of_a_mode_that_is_only_shown_end_early_if_they_agree() -> None:
    class Calls(Steady):
        def isolated(self) -> float:
            return self.us

        def cold(self) -> float:
            return self.us * (1 + (0.1 * next(turns) % 0.3 if self.us == FASTEST else 0.0))

    turns = itertools.count()
    ready: Any = {name: Calls(time) for name, time in LADDER.items()}
    one = race([*LADDER], full={"v2": ["cold"]})
    rule = StopRule(least=30, most=60, noise=0.004, seconds=60.0)
    for mode in ("isolated", "cold"):
        taken = interleave.sample(ready, mode, rule, Turns(Watch("cpu"), lambda *_: None, one or Race()))
    counts = [len(taken[name]) for name in LADDER]
    assert counts == [60, 10, 30, 10, 10, 3, 3, 3, 3, 3], "v0 does not agree, v2 is needed in full"
