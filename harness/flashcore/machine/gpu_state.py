"""A GPU's clock, temperature, throttle reasons and other processes while something is timed on it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

from flashcore.machine.gpu import Nvml
from flashcore.model.record import throttle_value

#: Seconds between readings.
_LOOK_EVERY = 0.02


class Watch:
    """Reads the GPU's state at intervals and keeps the readings in ``seen``.

    These are ``sm_clock`` (MHz) and ``temperature`` (°C) of each look, the ``throttle`` reasons, the most ``others``
    that used the GPU, or a ``note`` on why there are none.

    Args:
        device: ``cuda``, or ``cpu``, which has no state.
        uuid: the GPU; by default torch's current one.
        processes: how many processes on the GPU are ours.
    """

    def __init__(self, device: str, uuid: str = "", processes: int = 1) -> None:
        self._nvml: Nvml | None = None
        self._next = 0.0
        self._processes = processes
        self.seen: dict[str, Any] = {}
        if device == "cpu":
            self.seen["note"] = "no GPU: timed on the CPU"
            return
        try:
            self._nvml = Nvml(uuid or _present())
        except (OSError, AttributeError) as error:
            self.seen["note"] = f"NVML is not available: {error}"

    def look(self) -> None:
        """Reads, unless the last look was less than 20 ms ago."""
        now = time.monotonic()
        if self._nvml is None or now < self._next:
            return
        self._next = now + _LOOK_EVERY
        self.seen["looks"] = self.seen.get("looks", 0) + 1
        if (processes := self._nvml.processes()) is not None:
            self.seen["others"] = max(self.seen.get("others", 0), processes - self._processes)
        for name, reading in self._nvml.state().items():
            self.seen.setdefault(name, []).extend(reading if name == "throttle" else [reading])


def state_values(seen: Mapping[str, Any]) -> dict[str, Any]:
    """What a watch has seen, by the fact's name; ``None`` if nothing reports it."""
    clocks, degrees, reasons = (seen.get(name) for name in ("sm_clock", "temperature", "throttle"))
    return {
        "bench_sm_clock": statistics.median(clocks) if clocks else None,
        "bench_temperature": max(degrees) if degrees else None,
        "bench_other_processes": seen.get("others"),
        "throttle": None if reasons is None else throttle_value(reasons),
    }


def _present() -> str:
    """The UUID of this process's GPU."""
    import torch

    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
