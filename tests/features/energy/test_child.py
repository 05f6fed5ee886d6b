"""Readings of a GPU whose energy is simulated."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from flashcore.features.energy import child
from flashcore.features.energy.facts import PowerDisagrees, watts
from flashcore.model.causes import NoNvml, OtherProcesses
from flashcore.model.intervals import Ratio
from tests.features.energy.simulated import Gpu


def readings(gpu: Gpu, seconds: float = 0.5, **more: Any) -> dict[str, Any]:
    return child.read(cast("Any", gpu), seconds, **more)


def test_a_steady_power_is_read_while_the_gpu_is_fed() -> None:
    fed: list[float] = []
    power = watts(readings(Gpu(watts=400.0), 1.0, feed=lambda: fed.append(time.monotonic())))
    assert isinstance(power, Ratio) and power.value == pytest.approx(400, rel=0.03)
    assert power.low <= power.value <= power.high
    assert len(fed) > 1, "not only before it is read"


def test_what_is_not_to_be_trusted_has_a_cause() -> None:
    assert isinstance(watts(readings(Gpu(400.0, counts=False))), NoNvml)
    assert watts(readings(Gpu(400.0, processes=3))) == OtherProcesses(2)
    disagreeing = watts(readings(Gpu(400.0, sensor=300.0)))
    assert isinstance(disagreeing, PowerDisagrees) and disagreeing.by_sensor == 300
