"""The state of a GPU as its driver tells it: SM clock, temperature, why the clock is lowered.

Through ctypes on ``libnvidia-ml.so.1``, which comes with the driver: no package is needed.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

_CLOCK_SM = 1
_TEMPERATURE_GPU = 0

#: Bits of the driver's clock event reasons. An idle GPU (bit 0) lowers its clock, but nothing timed does.
THROTTLE_REASONS = {
    0x002: "applications_clocks",
    0x004: "power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "thermal_software",
    0x040: "thermal_hardware",
    0x080: "power_brake",
    0x100: "display_clocks",
}


@dataclass(frozen=True, slots=True)
class State:
    """One look: MHz, °C, and the reasons for a lowered clock. ``None`` is what the driver does not tell."""

    sm_clock: int | None
    temperature: int | None
    throttle: tuple[str, ...] | None


class Nvml:
    """The driver's view of one GPU.

    Args:
        uuid: the GPU, as torch names it (with or without ``GPU-`` in front).

    Raises:
        OSError: there is no such library, or it does not know that GPU.
    """

    def __init__(self, uuid: str) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._device = ctypes.c_void_p()
        self._check("nvmlInit_v2")
        name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        self._check("nvmlDeviceGetHandleByUUID", name.encode(), ctypes.byref(self._device))

    def state(self) -> State:
        """What the driver tells now; takes some microseconds."""
        mask = self._read("nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_ulonglong)
        if mask is None:  # the name it had before
            mask = self._read("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong)
        return State(
            sm_clock=self._read("nvmlDeviceGetClockInfo", ctypes.c_uint, ctypes.c_int(_CLOCK_SM)),
            temperature=self._read("nvmlDeviceGetTemperature", ctypes.c_uint, ctypes.c_int(_TEMPERATURE_GPU)),
            throttle=None if mask is None else throttle_names(mask),
        )

    def _read(self, function: str, kind: type[ctypes.c_uint | ctypes.c_ulonglong], *given: ctypes.c_int) -> int | None:
        value = kind()
        try:
            self._check(function, self._device, *given, ctypes.byref(value))
        except OSError:
            return None
        return int(value.value)

    def _check(self, function: str, *arguments: object) -> None:
        try:
            code = int(getattr(self._library, function)(*arguments))
        except AttributeError as error:
            raise OSError(f"libnvidia-ml.so.1 has no {function}") from error
        if code:
            raise OSError(f"{function}: NVML error {code}")


def throttle_names(mask: int) -> tuple[str, ...]:
    """The names of the reasons in the driver's mask; a bit without a name by its number."""
    names = [name for bit, name in THROTTLE_REASONS.items() if mask & bit]
    rest = mask & ~(0x1 | sum(THROTTLE_REASONS))
    return (*names, *([f"unknown_{rest:#x}"] if rest else []))
