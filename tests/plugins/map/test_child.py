"""A point's cases in a real child process on the CPU: wrong ones are not timed, those that cannot win hardly."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashcore.measure.bench import case_times
from flashcore.measure.settings import Bench
from flashcore.measure.workers.program import Limits
from flashcore.model.causes import FirstRound, WrongTimedAnswer
from flashcore.model.record import Facts, StageResult, Subject
from flashcore.plugins.map import child, measure
from tests import stages
from tests.softmax_cases import case

pytestmark = pytest.mark.usefixtures("forked")
VARIANTS = ("right", "slower", "raises", "exits", "wrong_scale")


def timed(folder: Path, first: int) -> StageResult:
    cases = [case(v) for v in VARIANTS] + [case("library", peer=True)]
    chosen = Bench(samples=12, first=first, max_samples=12, modes=("isolated",), limits=Limits(time_limit=6.0))
    context = stages.context(folder, "slower", bench=chosen, resident=measure.CHILD)
    return case_times.run(context, cases, folder)


@pytest.mark.parametrize("first", [0, 1])
def test_a_variant_falls_by_itself_and_the_others_are_timed(tmp_path: Path, first: int) -> None:
    result = timed(tmp_path, first)
    outcomes = {o.variant: o for o in result.outcomes}
    assert {name for name, o in outcomes.items() if o.status == "ok"} == {"right", "slower", "library"}
    assert "invalid configuration argument" in outcomes["raises"].reason
    assert "exit code 9" in outcomes["exits"].reason
    assert isinstance(outcomes["wrong_scale"].cause, WrongTimedAnswer)
    assert Facts(result.facts).number("isolated_p50", Subject("right", shape="small"))
    processes = len(list(tmp_path.glob("child-*.log")))
    assert timed(tmp_path, first) == result and len(list(tmp_path.glob("child-*.log"))) == processes


def test_only_cases_that_may_be_the_fastest_are_timed_further() -> None:
    looks = {"fast": 90.0, "near": 130.0, "far": 136.0} | {"library": 500.0, "slow_library": 800.0}
    assert {*child.far({n: ("library" in n, [us, us + 9]) for n, us in looks.items()})} == {"far", "slow_library"}
    few = {"a": 2.0, "b": 6.9, "c": 7.1}
    assert {*child.far({n: (False, [us]) for n, us in few.items()})} == {"c"}, "the noise of a launch is some µs"


def test_without_racing_each_case_has_all_samples(tmp_path: Path) -> None:
    result = timed(tmp_path, 0)
    assert all(len(v) == 12 for v in result.samples.values()) and len(result.samples) == 3
    details = {f.subject.variant: f.detail for f in result.facts if f.name == "isolated_samples"}
    assert not any(isinstance(d, FirstRound) for d in details.values())
