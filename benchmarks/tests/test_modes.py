"""The acceptance of the timing modes, on numbers that are made up: what it holds true and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import modes


def results_with(**changed: float) -> dict[str, Any]:
    """As measured by a stopwatch that reads what it should, but for some kernels."""
    times = {"empty": 0.64} | {
        f"{kind} {n}": 0.6 + n / 1980 + (0.3 if kind == "twin" else 0.0)
        for n in modes.SPINS
        for kind in ("plain", "again", "twin")
    }
    times |= {name.replace("_", " "): us for name, us in changed.items()}
    samples = {r: {name: [us] * 5 for name, us in times.items()} for r in modes.TIMING_MODES}
    return {"machine": "m", "clocks": [1980], "kernels": dict.fromkeys(times, 1), "samples": samples,
            "isolated_calls": dict.fromkeys(times, [1.0] * 5)}  # fmt: skip


def test_a_right_stopwatch_is_accepted_and_shown() -> None:
    assert modes.verdict(results_with()) == 0
    lines = modes.table(results_with())
    assert any(line.startswith("twin 2000") for line in lines) and not any("MISSED" in line for line in lines)


@pytest.mark.parametrize(
    ("kernel", "us", "missed"),
    [("plain_40000", 20.0, "slope"), ("twin_2000", 0.86, "twin of 2000"), ("again_1000", 1.2, "A/A of 1000")],
)
def test_each_statement_can_miss(kernel: str, us: float, missed: str) -> None:
    measured = results_with(**{kernel: us})
    assert modes.verdict(measured) == 1
    assert any(missed in line and line.endswith("MISSED") for line in modes.table(measured))
