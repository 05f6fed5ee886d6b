"""A GPU with NVML's sensors, of a given power, and the clock of who reads it."""

from __future__ import annotations


class Clock:
    """Only who sleeps sets it forward."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


class Gpu:
    """Its energy counter is updated every 20 ms; ``sensor`` is what its momentary power shows."""

    def __init__(
        self, clock: Clock, watts: float, sensor: float | None = None, *, counts: bool = True, processes: int = 1
    ) -> None:
        self._clock, self._watts, self._sensor, self._counts, self._processes = (
            clock,
            watts,
            sensor or watts,
            counts,
            processes,
        )

    def energy(self) -> int | None:
        return round(self._watts * 1000 * (self._clock.monotonic() // 0.02 * 0.02)) if self._counts else None

    def power(self) -> float | None:
        return self._sensor

    def processes(self) -> int | None:
        return self._processes
