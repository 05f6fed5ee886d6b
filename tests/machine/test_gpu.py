"""NVML's data on the GPU, read through a stand-in."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from flashcore.machine import gpu


def test_throttle_names() -> None:
    assert gpu.throttle_names(0) == ()
    assert gpu.throttle_names(0x1) == ()  # idle
    assert gpu.throttle_names(0x1 | 0x4 | 0x40) == ("power_cap", "thermal_hardware")
    assert gpu.throttle_names(0x1000) == ("unknown_0x1000",)


@pytest.mark.parametrize(
    ("capability", "archs", "arch"),
    [
        ((9, 0), ("sm_80", "sm_90", "sm_90a"), "sm_90a"),
        ((10, 0), ("sm_100", "sm_100f"), "sm_100f"),
        ((8, 9), ("sm_80", "sm_86", "sm_90"), "sm_86"),  # the newest of those that are older
        ((8, 6), ("sm_89",), None),
        ((9, 0), ("sm_80",), None),  # another generation
        ((12, 1), ("sm_120a",), None),  # runs nowhere else
    ],
)
def test_a_gpu_runs_its_exact_arch_or_an_older_one_of_its_generation(
    capability: tuple[int, int], archs: tuple[str, ...], arch: str | None
) -> None:
    assert gpu.Gpu("any", capability, 1, 1, 1, 1.0, "580").arch_of(archs) == arch


class _Error(Exception):
    pass


class _Pynvml:
    """Answers as ``pynvml`` does; a driver that lacks a function raises."""

    NVMLError = _Error
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, *failing: str) -> None:
        self.failing, self.moment = failing, SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=650_000))

    def __getattr__(self, name: str) -> object:
        values: dict[str, object] = {"ClockInfo": 1980, "Temperature": 41, "EventReasons": 0x4}
        values |= {"ComputeRunningProcesses": [1, 2], "PowerManagementLimit": 700_000, "ApplicationsClock": 1755}
        values |= {"FieldValues": [self.moment], "PowerUsage": 500_000}

        def answer(*_: object) -> object:
            if name in self.failing:
                raise _Error("Function Not Found")
            return next((v for ending, v in values.items() if name.endswith(ending)), None)

        return answer


def nvml(monkeypatch: pytest.MonkeyPatch, *failing: str) -> gpu.Nvml:
    monkeypatch.setitem(sys.modules, "pynvml", _Pynvml(*failing))
    return gpu.Nvml("0-1-2")


def test_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvml(monkeypatch).state() == {"sm_clock": 1980, "temperature": 41, "throttle": ("power_cap",)}
    assert nvml(monkeypatch).processes() == 2
    reasons = "nvmlDeviceGetCurrentClocksEventReasons"
    assert nvml(monkeypatch, reasons, "nvmlDeviceGetClockInfo").state() == {"temperature": 41}
    assert nvml(monkeypatch, "nvmlDeviceGetComputeRunningProcesses").processes() is None


def test_the_momentary_power_is_read_else_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    one = nvml(monkeypatch)
    assert one.power() == 650
    sys.modules["pynvml"].moment.nvmlReturn = 3  # not supported
    assert one.power() == 500
    assert nvml(monkeypatch, "nvmlDeviceGetFieldValues").power() == 500
    assert nvml(monkeypatch, "nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerUsage").power() is None


def test_the_limits_that_a_gpu_is_set_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvml(monkeypatch).limits() == "700 W, 1755 MHz, 1755 MHz"
    power, clocks = "nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetApplicationsClock"
    assert nvml(monkeypatch, power).limits() == "1755 MHz, 1755 MHz" and nvml(monkeypatch, clocks).limits() == "700 W"
    assert gpu.limits("0-1-2") == "700 W"
    nvml(monkeypatch, power, clocks)
    assert gpu.limits("0-1-2") is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu.limits("0-1-2") is None


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetHandleByUUID"])
def test_without_a_driver_or_its_gpu(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match=r"NVML: .*Function Not Found"):
        nvml(monkeypatch, function)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(OSError, match="pip install nvidia-ml-py"):
        gpu.Nvml("0-1-2")


class _Cuda:
    """Answers as ``libcuda`` does, of GPUs with these UUIDs."""

    def __init__(self, *uuids: str, initialized: int = 0) -> None:
        self.uuids, self.initialized = uuids, initialized

    def cuInit(self, flags: int) -> int:
        return self.initialized

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = len(self.uuids)
        return 0

    def cuDeviceGet(self, device: Any, number: int) -> int:
        device._obj.value = number
        return 0 if number < len(self.uuids) else 101

    def cuDeviceGetUuid(self, raw: Any, device: Any) -> int:
        raw[:] = UUID(self.uuids[device.value]).bytes
        return 0

    def cuDeviceGetName(self, name: Any, length: int, device: Any) -> int:
        name.value = f"GPU {device.value}".encode()
        return 0

    def cuDeviceTotalMem_v2(self, memory: Any, device: Any) -> int:
        memory._obj.value = 80 << 30
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:
        value._obj.value = {75: 9, 76: 0, 16: 132, 38: 50 << 20, 13: 1_980_000}[attribute]
        return 0


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[_Cuda], None]]:
    """Puts a stand-in in the place of the driver."""
    gpu.Gpu.numbered.cache_clear()
    yield lambda driver: monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    gpu.Gpu.numbered.cache_clear()


def test_gpus_are_those_of_the_driver(cuda: Callable[[_Cuda], None]) -> None:
    names = ("00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b")
    cuda(_Cuda(*names))
    assert gpu.uuids() == [f"GPU-{name}" for name in names]
    one, second = gpu.Gpu.find(), gpu.Gpu.numbered(1)
    assert one is not None and second is not None and (one.name, second.name) == ("GPU 0", "GPU 1")
    assert (one.capability, one.sms, one.memory_bytes, one.l2_bytes) == ((9, 0), 132, 80 << 30, 50 << 20)
    assert one.max_sm_clock_mhz == 1980.0 and gpu.Gpu.numbered(2) is None


@pytest.mark.parametrize("driver", [_Cuda(), _Cuda("00000000-0000-0000-0000-00000000000a", initialized=100)])
def test_a_driver_without_a_gpu_has_none(driver: _Cuda, cuda: Callable[[_Cuda], None]) -> None:
    cuda(driver)
    assert gpu.uuids() == [] and gpu.Gpu.find() is None
