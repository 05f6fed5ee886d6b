"""The figures of ``make bench-launcher``, of raw data."""

from __future__ import annotations

from typing import Any

import pytest

from extensions.judge.benchmarks import launcher


def data(us: float, eager: float = 9.0, equal: bool = True, bench: tuple[float, ...] = (10.0, 10.0, 10.0)) -> Any:
    """One kernel that bench times at 10 us in each placement, and its launcher's times."""
    places = []
    for median in bench:
        times = {regime: {"bench": [median, median, 90.0], "launcher": [us]} for regime in launcher.REGIMES}
        times["eager"]["launcher"] = [eager]
        places.append({"equal": {"out": equal}, "sets": [4, 4], "clocks": [], "us": times})
    return {"machine": "H", "kernels": {"one": {"equal": {"out": equal}, "placements": places}}}


@pytest.mark.parametrize(
    ("measured", "code"),
    [
        (data(10.0), 0),
        (data(10.19), 0),  # 1 % and 0.1 us
        (data(10.21), 1),
        (data(9.79), 1),
        (data(10.0, eager=1.0), 0),
        (data(10.0, equal=False), 1),
        (data(10.3, bench=(9.9, 10.0, 10.3)), 0),  # within bench's placements
        (data(10.31, bench=(9.9, 10.0, 10.3)), 1),
    ],
)
def test_times_and_bits_decide(measured: dict[str, Any], code: int) -> None:
    assert launcher.verdict(measured) == code
    lines = launcher.table(measured)
    assert ("one: out equal" in lines) == measured["kernels"]["one"]["equal"]["out"]
    assert sum("MISSED" in line for line in lines) == (3 if code and "one: out equal" in lines else 0)


def test_there_are_ten_kernels() -> None:
    assert sum(map(len, launcher.KERNELS.values())) == 10
