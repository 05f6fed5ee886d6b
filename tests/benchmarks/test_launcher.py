"""The figures of ``make bench-launcher``, of raw data."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import launcher


def found(us: float, eager: float = 9.0, equal: bool = True) -> dict[str, Any]:
    """One kernel that bench times at 10 us, and its launcher's times."""
    times = {
        regime: {"bench": [10.0, 10.0, 90.0], "bench again": [10.05], "launcher": [us]} for regime in launcher.REGIMES
    }
    times["eager"]["launcher"] = [eager]
    return {"machine": "H", "kernels": {"one": {"equal": {"out": equal}, "sets": [4, 4], "clocks": [], "us": times}}}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (found(10.0), 0),
        (found(10.19), 0),  # 1 % and 0.1 us
        (found(10.21), 1),
        (found(9.79), 1),
        (found(10.0, eager=1.0), 0),
        (found(10.0, equal=False), 1),
    ],
)
def test_times_and_bits_decide(data: dict[str, Any], code: int) -> None:
    assert launcher.verdict(data) == code
    lines = launcher.table(data)
    assert ("one: out equal" in lines) == data["kernels"]["one"]["equal"]["out"]
    assert sum("MISSED" in line for line in lines) == (3 if code and "one: out equal" in lines else 0)


def test_there_are_ten_kernels() -> None:
    assert sum(map(len, launcher.KERNELS.values())) == 10
