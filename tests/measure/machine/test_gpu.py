"""What NVML says of the GPU, read through a stand-in."""

from __future__ import annotations

import sys

import pytest

from flashcore.measure.machine import gpu


def test_throttle_names() -> None:
    assert gpu.throttle_names(0) == ()
    assert gpu.throttle_names(0x1) == ()  # idle
    assert gpu.throttle_names(0x1 | 0x4 | 0x40) == ("power_cap", "thermal_hardware")
    assert gpu.throttle_names(0x1000) == ("unknown_0x1000",)


class _Error(Exception):
    pass


class _Pynvml:
    """Answers as ``pynvml`` does; a driver that lacks a function raises."""

    NVMLError = _Error
    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0

    def __init__(self, *failing: str) -> None:
        self.failing = failing

    def __getattr__(self, name: str) -> object:
        values: dict[str, object] = {"ClockInfo": 1980, "Temperature": 41, "EventReasons": 0x4, "ThrottleReasons": 0x8}
        values["ComputeRunningProcesses"] = [1, 2]

        def answer(*_: object) -> object:
            if name in self.failing:
                raise _Error("Function Not Found")
            return next((v for ending, v in values.items() if name.endswith(ending)), None)

        return answer


def nvml(monkeypatch: pytest.MonkeyPatch, *failing: str) -> gpu.Nvml:
    monkeypatch.setitem(sys.modules, "pynvml", _Pynvml(*failing))
    return gpu.Nvml("0-1-2")


def test_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvml(monkeypatch).state() == gpu.State(1980, 41, ("power_cap",))
    assert nvml(monkeypatch).processes() == 2
    reasons = "nvmlDeviceGetCurrentClocksEventReasons"
    assert nvml(monkeypatch, reasons).state().throttle == ("hardware_slowdown",)
    older = reasons.replace("Event", "Throttle")
    assert nvml(monkeypatch, reasons, older, "nvmlDeviceGetClockInfo").state() == gpu.State(None, 41, None)
    assert nvml(monkeypatch, "nvmlDeviceGetComputeRunningProcesses").processes() is None


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetHandleByUUID"])
def test_without_a_driver_or_its_gpu(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match=r"NVML: .*Function Not Found"):
        nvml(monkeypatch, function)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(OSError, match="pip install nvidia-ml-py"):
        gpu.Nvml("0-1-2")
