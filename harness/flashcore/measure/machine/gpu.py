"""The GPU of this machine: what it is, and the state that its driver reports (SM clock, temperature, why the clock is
lowered).

Through ctypes on ``libcuda.so.1`` and ``libnvidia-ml.so.1``, which come with the driver: no package is needed.
"""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flashcore.measure.machine import toolchain

# Numbers of CUdevice_attribute (cuda.h).
_SM_COUNT, _CLOCK_KHZ, _MAJOR, _MINOR, _L2 = 16, 13, 75, 76, 38


@dataclass(frozen=True, slots=True)
class Gpu:
    """The CUDA device that this process would use."""

    name: str
    capability: tuple[int, int]
    sms: int
    memory_bytes: int
    l2_bytes: int
    max_sm_clock_mhz: float
    driver: str

    def arch_of(self, archs: Sequence[str]) -> str | None:
        """The suite's arch whose machine code runs here: its own first, else an older one of the same
        generation (an sm_80 cubin runs on sm_86; arch-specific ones like sm_90a run nowhere else)."""
        major, minor = self.capability
        for own in (f"sm_{major}{minor}a", f"sm_{major}{minor}f", f"sm_{major}{minor}"):
            if own in archs:
                return own
        older = [
            (int(a[3:]), a) for a in archs if a[3:].isdigit() and int(a[3:]) // 10 == major and int(a[3:]) % 10 < minor
        ]
        return max(older)[1] if older else None

    @staticmethod
    def find() -> Gpu | None:
        """The first visible CUDA device, asked of the driver itself; ``None`` where there is none."""
        return Gpu.numbered(0)

    @staticmethod
    @functools.cache
    def numbered(number: int) -> Gpu | None:
        """The CUDA device of that number in the driver's order; ``None`` where there is none."""
        try:
            driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            return None
        device = ctypes.c_int()
        if driver.cuInit(0) != 0 or driver.cuDeviceGet(ctypes.byref(device), number) != 0:
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


def _driver_version() -> str:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        text = ""
    match = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    if match:
        return match[1]
    smi = shutil.which("nvidia-smi")
    if smi:
        query = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
        result = toolchain.ask(query, timeout=20)
        if result.returncode == 0 and result.stdout.strip():
            return result.stdout.splitlines()[0].strip()
    return "unknown"


# --- its state ----------------------------------------------------------------------------------

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
    """One reading: MHz, °C, and the reasons for a lowered clock. ``None`` is what the driver does not report."""

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
        """What the driver reports now; takes some microseconds."""
        mask = self._read("nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_ulonglong)
        if mask is None:  # the name it had before
            mask = self._read("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong)
        return State(
            sm_clock=self._read("nvmlDeviceGetClockInfo", ctypes.c_uint, ctypes.c_int(_CLOCK_SM)),
            temperature=self._read("nvmlDeviceGetTemperature", ctypes.c_uint, ctypes.c_int(_TEMPERATURE_GPU)),
            throttle=None if mask is None else throttle_names(mask),
        )

    def processes(self) -> int | None:
        """How many processes compute on this GPU, this one among them; process ids mean nothing in a container.
        ``None`` where the driver does not report it, or does not list this process."""
        count = ctypes.c_uint(64)
        rows = (ctypes.c_ulonglong * (3 * count.value))()  # nvmlProcessInfo_t: 24 bytes
        try:
            self._check("nvmlDeviceGetComputeRunningProcesses_v3", self._device, rows, ctypes.byref(count))
        except OSError:
            return None
        return count.value or None

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
