"""The figures of ``make bench-energy``, of raw data."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import energy


def data(*energies: Any) -> Any:
    """A kernel's energy in each repetition, beside one that repeats exactly."""
    steady = {"energy": 1.0, "power": 500.0}
    return {"machine": "H", "repetitions": [{"a": steady, "b": {"energy": x, "power": 500.0}} for x in energies]}


@pytest.mark.parametrize(
    ("measured", "code", "word"),
    [
        (data(2.0, 2.03, 2.01), 0, "apart by  1.50 %: met"),
        (data(2.0, 2.05, 2.01), 1, "apart by  2.50 %: MISSED"),
        (data(2.0, "the counter does not move", 2.01), 1, "unmeasured: the counter does not move"),
    ],
)
def test_every_kernel_must_repeat(measured: Any, code: int, word: str) -> None:
    assert energy.verdict(measured) == code
    assert [line for line in energy.table(measured) if word in line]
