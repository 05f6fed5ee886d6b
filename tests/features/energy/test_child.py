"""Readings of a GPU whose energy is simulated."""

from __future__ import annotations

from typing import Any, cast

import pytest

from flashcore.features.energy import child
from flashcore.features.energy.facts import watts
from flashcore.model.cause import Cause
from flashcore.model.causes import NO_NVML, OTHER_PROCESSES
from flashcore.model.intervals import Ratio
from tests.features.energy.simulated import Clock, Gpu


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(child, "time", made)
    return made


def readings(gpu: Gpu, seconds: float = 0.5, **more: Any) -> dict[str, Any]:
    return child.read(cast("Any", gpu), seconds, **more)


def test_a_steady_power_is_read_while_the_gpu_is_fed(clock: Clock) -> None:
    fed: list[float] = []
    power = watts(readings(Gpu(clock, watts=400.0), 1.0, feed=lambda: fed.append(clock.monotonic())))
    assert isinstance(power, Ratio) and power.value == pytest.approx(400, rel=0.01)
    assert power.low <= power.value <= power.high
    assert len(fed) > 1, "not only before it is read"


def test_what_is_not_to_be_trusted_has_a_cause(clock: Clock) -> None:
    uncounted = watts(readings(Gpu(clock, 400.0, counts=False)))
    assert isinstance(uncounted, Cause) and uncounted.code == NO_NVML.code
    assert watts(readings(Gpu(clock, 400.0, processes=3))) == OTHER_PROCESSES(2)
    disagreeing = watts(readings(Gpu(clock, 400.0, sensor=300.0)))
    assert isinstance(disagreeing, Cause) and disagreeing.data["by_sensor"] == 300
