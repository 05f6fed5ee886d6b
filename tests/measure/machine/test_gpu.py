"""What NVML says of the GPU, read through a stand-in."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from flashcore.measure.machine import gpu


def test_throttle_names() -> None:
    assert gpu.throttle_names(0) == ()
    assert gpu.throttle_names(0x1) == ()  # idle
    assert gpu.throttle_names(0x1 | 0x4 | 0x40) == ("power_cap", "thermal_hardware")
    assert gpu.throttle_names(0x1000) == ("unknown_0x1000",)


class _Library:
    """Answers as NVML does: 0 is success, what was asked for is written behind the last pointer."""

    def __init__(self, missing: Sequence[str] = (), failing: Sequence[str] = ()) -> None:
        self.missing, self.failing = missing, failing

    def __getattr__(self, name: str) -> object:
        if name in self.missing:
            raise AttributeError(name)
        values = {"ClockInfo": 1980, "Temperature": 41, "EventReasons": 0x4, "ThrottleReasons": 0x8}
        value = next((v for ending, v in values.items() if name.endswith(ending)), None)

        def answer(*arguments: object) -> int:
            if name in self.failing:
                return 3  # not supported
            if name == "nvmlDeviceGetComputeRunningProcesses_v3":
                arguments[-1]._obj.value = 2  # type: ignore[attr-defined]
            elif value is not None:
                arguments[-1]._obj.value = value  # type: ignore[attr-defined]
            return 0

        return answer


def test_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(library: _Library) -> gpu.State:
        monkeypatch.setattr("ctypes.CDLL", lambda _: library)
        return gpu.Nvml("0-1-2").state()

    assert look(_Library()) == gpu.State(1980, 41, ("power_cap",))
    assert gpu.Nvml("0-1-2").processes() == 2
    assert gpu.Nvml("0-1-2").state().throttle == ("power_cap",)
    old = _Library(missing=["nvmlDeviceGetCurrentClocksEventReasons"])
    assert look(old).throttle == ("hardware_slowdown",)
    assert look(_Library(failing=["nvmlDeviceGetClockInfo"])).sm_clock is None
    none = _Library(missing=["nvmlDeviceGetComputeRunningProcesses_v3"])
    monkeypatch.setattr("ctypes.CDLL", lambda _: none)
    assert gpu.Nvml("0-1-2").processes() is None
    with pytest.raises(OSError, match="nvmlInit_v2: NVML error 3"):
        look(_Library(failing=["nvmlInit_v2"]))
