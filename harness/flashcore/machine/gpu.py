"""The machine's GPUs: their properties, and their state (SM clock, temperature, throttle reasons).

Properties come from ``libcuda.so.1`` through ctypes, without any package; the state from NVIDIA's ``pynvml``.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Numbers of CUdevice_attribute (cuda.h).
_SM_COUNT, _CLOCK_KHZ, _MAJOR, _MINOR, _L2 = 16, 13, 75, 76, 38


@dataclass(frozen=True, slots=True)
class Gpu:
    """The properties of a CUDA device."""

    name: str
    capability: tuple[int, int]
    sms: int
    memory_bytes: int
    l2_bytes: int
    max_sm_clock_mhz: float
    driver: str

    def arch_of(self, archs: Sequence[str]) -> str | None:
        """The arch whose machine code runs on this GPU: its exact arch, else the newest older one of the same major
        version (an sm_80 cubin runs on sm_86; arch-specific ones like sm_90a run on no other)."""
        major, minor = self.capability
        for exact in (f"sm_{major}{minor}a", f"sm_{major}{minor}f", f"sm_{major}{minor}"):
            if exact in archs:
                return exact
        older = [
            (int(a[3:]), a) for a in archs if a[3:].isdigit() and int(a[3:]) // 10 == major and int(a[3:]) % 10 < minor
        ]
        return max(older)[1] if older else None

    @staticmethod
    def find() -> Gpu | None:
        """The first visible CUDA device; ``None`` if there is none."""
        return Gpu.numbered(0)

    @staticmethod
    @functools.cache
    def numbered(number: int) -> Gpu | None:
        """The CUDA device of that index in the driver's order; ``None`` if there is none."""
        driver, device = _driver(), ctypes.c_int()
        if driver is None or driver.cuDeviceGet(ctypes.byref(device), number) != 0:
            return None

        def attribute(number: int) -> int:
            value = ctypes.c_int()
            driver.cuDeviceGetAttribute(ctypes.byref(value), number, device)
            return value.value

        name = ctypes.create_string_buffer(256)
        driver.cuDeviceGetName(name, 256, device)
        memory = ctypes.c_size_t()
        driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        return Gpu(
            name=name.value.decode(),
            capability=(attribute(_MAJOR), attribute(_MINOR)),
            sms=attribute(_SM_COUNT),
            memory_bytes=memory.value,
            l2_bytes=attribute(_L2),
            max_sm_clock_mhz=attribute(_CLOCK_KHZ) / 1000,
            driver=_driver_version(),
        )


def uuids() -> list[str]:
    """The UUIDs of the GPUs that this process may use, in the driver's order; none without a driver."""
    from uuid import UUID  # only needed with a GPU

    driver, count, device = _driver(), ctypes.c_int(), ctypes.c_int()
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    uuids = []
    for number in range(count.value):
        raw = (ctypes.c_ubyte * 16)()
        if driver.cuDeviceGet(ctypes.byref(device), number) == 0 and driver.cuDeviceGetUuid(raw, device) == 0:
            uuids.append(f"GPU-{UUID(bytes=bytes(raw))}")
    return uuids


def _driver() -> ctypes.CDLL | None:
    """The driver's library, initialized; ``None`` without a driver or GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def _driver_version() -> str:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        text = ""
    if match := re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text):
        return match[1]
    try:
        return str(_nvml().nvmlSystemGetDriverVersion())
    except OSError:
        return "unknown"


# --- state --------------------------------------------------------------------------------------

_POWER_INSTANT = 186  # NVML_FI_DEV_POWER_INSTANT
#: Bits of the driver's clock event reasons (nvml.h), without bit 0: idle.
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


class Nvml:
    """Reads one GPU's state through NVML.

    Args:
        uuid: the GPU's UUID, with or without the prefix ``GPU-``.

    Raises:
        OSError: ``pynvml`` or the driver is missing, or NVML does not list the GPU.
    """

    def __init__(self, uuid: str) -> None:
        self._nvml = _nvml()
        name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        try:
            self._device = self._nvml.nvmlDeviceGetHandleByUUID(name)
        except self._nvml.NVMLError as error:
            raise OSError(f"NVML: {name}: {error}") from error

    def state(self) -> dict[str, Any]:
        """The present ``sm_clock`` (MHz), ``temperature`` (°C) and ``throttle`` reasons, as far as the driver reports
        them; takes some microseconds."""
        nvml = self._nvml
        mask = self._read("nvmlDeviceGetCurrentClocksEventReasons")
        readings = {
            "sm_clock": self._read("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "temperature": self._read("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            "throttle": None if mask is None else throttle_names(mask),
        }
        return {name: reading for name, reading in readings.items() if reading is not None}

    def processes(self) -> int | None:
        """The number of compute processes on this GPU, including this one. ``None`` if the driver does not report any.

        A count, since process ids have no meaning in a container.
        """
        processes = self._read("nvmlDeviceGetComputeRunningProcesses")
        return len(processes) if processes else None

    def energy(self) -> int | None:
        """The GPU's energy since the driver was loaded, mJ; updated every 20 to 100 ms."""
        energy: int | None = self._read("nvmlDeviceGetTotalEnergyConsumption")
        return energy

    def power(self) -> float | None:
        """The momentary power, W; of drivers that do not report it, the mean of the last second."""
        (moment,) = self._read("nvmlDeviceGetFieldValues", [_POWER_INSTANT]) or [None]
        usable = moment is not None and moment.nvmlReturn == 0
        milliwatts = moment.value.uiVal if usable else self._read("nvmlDeviceGetPowerUsage")
        return None if milliwatts is None else float(milliwatts) / 1000

    def limits(self) -> str:
        """The power limit and the application clocks, as far as the driver reports them."""
        nvml = self._nvml
        power = self._read("nvmlDeviceGetPowerManagementLimit")
        clocks = (nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM)
        mhz = (self._read("nvmlDeviceGetApplicationsClock", clock) for clock in clocks)
        return ", ".join(filter(None, (power and f"{power / 1000:g} W", *(clock and f"{clock} MHz" for clock in mhz))))

    def _read(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(self._device, *arguments)
        except (AttributeError, self._nvml.NVMLError):
            return None


def _nvml() -> Any:
    """``pynvml``, initialized.

    Raises:
        OSError: ``pynvml`` or the driver is missing.
    """
    try:
        import pynvml
    except ImportError as error:
        raise OSError("no pynvml (pip install nvidia-ml-py)") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise OSError(f"NVML: {error}") from error
    return pynvml


def limits(uuid: str) -> str | None:
    """The power and clock limits of a GPU of this host; ``None`` where the driver reports none."""
    try:
        return Nvml(uuid).limits() or None
    except (OSError, AttributeError):
        return None


def throttle_names(mask: int) -> tuple[str, ...]:
    """The names of the reasons in the driver's mask; unknown bits in hexadecimal."""
    names = [name for bit, name in THROTTLE_REASONS.items() if mask & bit]
    rest = mask & ~(0x1 | sum(THROTTLE_REASONS))
    return (*names, *([f"unknown_{rest:#x}"] if rest else []))
