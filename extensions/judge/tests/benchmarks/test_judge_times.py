"""The judge's times beside bench's."""

from __future__ import annotations

from extensions.judge.benchmarks import judge_times


def test_a_time_is_the_median_of_its_turns_and_cases_that_one_lacks_are_left_out() -> None:
    results = {
        "judge": {"a/main/cold": [10.0, 10.05, 99.0], "b/main/cold": [1.0], "c/main/cold": [101.5]},
        "bench": {"a/main/cold": [10.0], "c/main/cold": [100.0]},
    }
    first, second, last = judge_times.table(results)
    assert "10.050 us  +0.50%" in first and "+1.50%" in second
    assert last == "of 2 times 1 are within 1 % of bench, 2 within 2 %"
