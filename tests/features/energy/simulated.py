"""A GPU with NVML's sensors, of a given power."""

from __future__ import annotations

import time


class Gpu:
    """Its energy counter is updated every 20 ms; ``sensor`` is what its momentary power shows."""

    def __init__(self, watts: float, sensor: float | None = None, *, counts: bool = True, processes: int = 1) -> None:
        self._watts, self._sensor, self._counts, self._processes = watts, sensor or watts, counts, processes

    def energy(self) -> int | None:
        return round(self._watts * 1000 * (time.monotonic() // 0.02 * 0.02)) if self._counts else None

    def power(self) -> float | None:
        return self._sensor

    def processes(self) -> int | None:
        return self._processes
