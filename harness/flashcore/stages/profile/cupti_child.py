"""A call's hardware counters, read by CUPTI's range profiler in the process that times it: no second process starts.

Each kernel of the call is a range. The call is repeated for every pass, from the same memory and, as under ncu, with
cold caches: a long kernel replaces cached code and constants, then data of four times L2's size is read. (Bench stores
to flush L2; what it stores would be written back during the call, and counted.) Counters of single instructions need
ncu.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from flashcore.errors import CapabilityError
from flashcore.machine import python_process
from flashcore.machine.capabilities import lacking
from flashcore.runner.driver import Driver
from flashcore.runner.journal import Journal, Task
from flashcore.runner.kernel_call import serve
from flashcore.stages.profile.child import warmed_up

TARGET = python_process.child("flashcore.stages.profile.cupti_child")
_AUTO_RANGE, _USER_REPLAY = 1, 3  # CUpti_ProfilerRange, CUpti_ProfilerReplayMode
#: Instructions of the long kernel, each with another constant: 160 kB of code, 40 kB of constants. On an H200 stalls
#: for instructions were up to 51 % fewer than under ncu without such a kernel, and up to 27 % with one of 16,384.
_LONG = 10_000
_INSTEAD = "ncu measures what CUPTI cannot"
#: CUptiResult → what the machine lacks.
_LACKING = {26: "free counters", 35: "counters"}
_Size, _Pointer = ctypes.c_size_t, ctypes.c_void_p


def _long_kernel() -> bytes:
    lines = (f"ld.const.f32 %b, [bank+{4 * i}];\nfma.rn.f32 %a, %a, %b, %c;" for i in range(_LONG))
    return (
        ".version 7.0\n.target sm_80\n.address_size 64\n"
        f".const .align 4 .b8 bank[{4 * _LONG}];\n"
        ".visible .entry long(.param .u64 data)\n{\n.reg .f32 %a, %b, %c;\n.reg .b64 %p;\n"
        "ld.param.u64 %p, [data];\nld.global.f32 %a, [%p];\nld.global.f32 %c, [%p+4];\n"
        + "\n".join(lines)
        + "\nst.global.f32 [%p+8], %a;\nret;\n}\n"
    ).encode()


def library() -> ctypes.CDLL:
    """CUPTI: torch's, which this process has loaded; else CUDA's.

    Raises:
        CapabilityError: there is none.
    """
    import torch

    with contextlib.suppress(OSError):
        return ctypes.CDLL(f"libcupti.so.{(torch.version.cuda or '').partition('.')[0]}")
    try:
        return ctypes.CDLL("/usr/local/cuda/lib64/libcupti.so")
    except OSError as error:
        raise CapabilityError(f"CUPTI cannot be loaded: {error}", "pip install nvidia-cuda-cupti") from None


@functools.cache
def finalize_at_exit() -> None:
    """Detaches CUPTI when Python ends, before libraries are unloaded. A driver that was loaded before torch is unloaded
    after it, and would call torch's profiler then: 13 of 38 processes aborted (torch 2.11, CUDA 13.0, H200)."""
    atexit.register(library().cuptiFinalize)


class RangeProfiler:
    """The range profiler of this process's current CUDA context, for one list of metrics.

    Attributes:
        refused: metric → why CUPTI does not measure it.

    Raises:
        CapabilityError: no CUPTI with a range profiler, no permission to read counters, or a GPU that it does not
            support; any method may raise it.
    """

    def __init__(self, metrics: Sequence[str]) -> None:
        import torch

        self._cupti = library()
        self._driver = Driver()
        self._long = self._driver.kernel(_long_kernel(), b"long")
        device = torch.cuda.current_device()
        size = torch.cuda.get_device_properties(device).L2_cache_size
        self._cold = torch.zeros(size, dtype=torch.int32, device="cuda")  # 4 bytes each
        self._sms = torch.cuda.get_device_properties(device).multi_processor_count
        self._ask("ProfilerInitialize")
        named = self._ask("DeviceGetChipName", deviceIndex=_Size(device), pChipName=ctypes.c_char_p())
        self._chip = named.pChipName
        self.refused = {m: "CUPTI has no such metric" for m in metrics if not self._has(m)}
        self.metrics = [m for m in metrics if m not in self.refused]
        self._names = _names(self.metrics)
        self._host = self._host_with(self._names)
        length = self._ask("ProfilerHostGetConfigImageSize", pHostObject=self._host, size=_Size()).size
        self._config = (ctypes.c_uint8 * length)()
        self._ask("ProfilerHostGetConfigImage", pHostObject=self._host, size=_Size(length), image=_at(self._config))
        counted = self._ask("ProfilerHostGetNumOfPasses", size=_Size(length), image=_at(self._config), passes=_Size())
        self._passes = counted.passes

    def _ask(self, function: str, **arguments: Any) -> Any:
        """Calls a function of CUPTI with its structure of parameters; returns the structure."""
        parameters = _structure(function, tuple((name, type(value)) for name, value in arguments.items()))()
        for name, value in arguments.items():
            setattr(parameters, name, value)
        try:
            code = getattr(self._cupti, f"cupti{function}")(ctypes.byref(parameters))
        except AttributeError:
            raise CapabilityError(f"CUPTI lacks cupti{function}", "install CUPTI 12.6 or newer") from None
        if code:
            text = ctypes.c_char_p()
            self._cupti.cuptiGetResultString(code, ctypes.byref(text))
            what = f"cupti{function}: {(text.value or b'').decode()} ({code})"
            raise lacking(_LACKING[code], what) if code in _LACKING else CapabilityError(what, _INSTEAD)
        return parameters

    def _host_with(self, names: Any) -> Any:
        created = self._ask(
            "ProfilerHostInitialize",
            profilerType=ctypes.c_int(0), pChipName=ctypes.c_char_p(self._chip), availability=_Pointer(),
            pHostObject=_Pointer(),
        )  # fmt: skip
        host = _Pointer(created.pHostObject)
        try:
            self._ask("ProfilerHostConfigAddMetrics", pHostObject=host, names=_at(names), count=_Size(len(names)))
        except CapabilityError:
            self._ask("ProfilerHostDeinitialize", pHostObject=host)
            raise
        return host

    def _has(self, metric: str) -> bool:
        try:
            host = self._host_with(_names([metric]))
        except CapabilityError:
            return False
        self._ask("ProfilerHostDeinitialize", pHostObject=host)
        return True

    def of(self, load: Callable[[], object], call: Callable[[], object], most: int) -> list[dict[str, float]]:
        """The metrics of each kernel that a call launches, in order; without those that have no finite value.

        Args:
            load: called before each pass; it restores what the call overwrites.
            call: launches the kernels.
            most: kernels that a call may launch. With room for 32, as much was written to DRAM as the call read from
                it; with room for 8, nothing (H200).
        """
        import torch

        context = _Pointer()
        self._driver.ask("cuCtxGetCurrent", ctypes.byref(context))
        profiler = _Pointer(self._ask("RangeProfilerEnable", ctx=context, profiler=_Pointer()).profiler)
        try:
            size = self._ask(
                "RangeProfilerGetCounterDataSize",
                profiler=profiler, names=_at(self._names), count=_Size(len(self._names)), ranges=_Size(most),
                nodes=ctypes.c_uint32(most), size=_Size(),
            ).size  # fmt: skip
            data = (ctypes.c_uint8 * size)()
            self._ask("RangeProfilerCounterDataImageInitialize", profiler=profiler, size=_Size(size), data=_at(data))
            self._ask(
                "RangeProfilerSetConfig",
                profiler=profiler, configSize=_Size(len(self._config)), config=_at(self._config),
                size=_Size(size), data=_at(data), range=ctypes.c_int(_AUTO_RANGE),
                replayMode=ctypes.c_int(_USER_REPLAY), ranges=_Size(most), levels=ctypes.c_uint16(1),
                least=ctypes.c_uint16(1), passIndex=_Size(), target=ctypes.c_uint16(1),
            )  # fmt: skip
            for _ in range(self._passes):
                load()
                self._make_cold()
                torch.cuda.synchronize()
                self._ask("RangeProfilerStart", profiler=profiler)
                call()
                torch.cuda.synchronize()
                stopped = self._ask(
                    "RangeProfilerStop", profiler=profiler, passIndex=_Size(), target=_Size(), done=ctypes.c_uint8()
                )
            if not stopped.done:
                raise CapabilityError(f"expected {self._passes} passes, CUPTI wants more", _INSTEAD)
            if self._ask("RangeProfilerDecodeData", profiler=profiler, dropped=_Size()).dropped:
                raise CapabilityError(f"expected at most {most} kernels in a call, found more", _INSTEAD)
        finally:
            self._ask("RangeProfilerDisable", profiler=profiler)
        counted = self._ask("RangeProfilerGetCounterDataInfo", data=_at(data), size=_Size(size), ranges=_Size())
        return [self._evaluated(data, index) for index in range(counted.ranges)]

    def _evaluated(self, data: Any, index: int) -> dict[str, float]:
        values = (ctypes.c_double * len(self.metrics))()
        self._ask(
            "ProfilerHostEvaluateToGpuValues",
            pHostObject=self._host, data=_at(data), size=_Size(len(data)), index=_Size(index),
            names=_at(self._names), count=_Size(len(self.metrics)), values=_at(values),
        )  # fmt: skip
        return {name: x for name, x in zip(self.metrics, values, strict=True) if math.isfinite(x)}

    def _make_cold(self) -> None:
        import torch

        data = _Pointer(self._cold.data_ptr())
        arguments = (_Pointer * 1)(ctypes.addressof(data))
        stream = _Pointer(torch.cuda.current_stream().cuda_stream)
        sizes = (*(2 * self._sms, 1, 1), *(128, 1, 1), 0)
        self._driver.ask("cuLaunchKernel", self._long, *sizes, stream, arguments, None)
        self._cold.sum()


@functools.cache
def _structure(function: str, fields: tuple[tuple[str, Any], ...]) -> type[ctypes.Structure]:
    """A function's parameters: its own size up to the last field, a reserved pointer, and these fields."""
    kind = type(function, (ctypes.Structure,), {"_fields_": [("structSize", _Size), ("reserved", _Pointer), *fields]})
    last: Any = getattr(kind, fields[-1][0] if fields else "reserved")

    def initialize(self: ctypes.Structure) -> None:
        self.structSize = last.offset + last.size

    return type(function, (kind,), {"__init__": initialize})


def _names(metrics: Sequence[str]) -> Any:
    return (ctypes.c_char_p * len(metrics))(*(m.encode() for m in metrics))


def _at(array: Any) -> ctypes.c_void_p:
    return _Pointer(ctypes.addressof(array))


@functools.cache
def counters_of(metrics: tuple[str, ...], device: int = 0) -> RangeProfiler:
    """The counters for these metrics, of the current device, which has this number; one for a process."""
    return RangeProfiler(metrics)


def perform(task: Task, journal: Journal) -> dict[str, Any]:
    """Counts one case: ``launches``, the metrics of each of its kernels, and ``refused``; or what the machine
    ``lacks``, with a hint."""
    caller, inputs, outputs, call = warmed_up(task, journal)
    journal.step(task.name, "counted call")
    try:
        counters = counters_of(tuple(task.payload["metrics"]))
        launches = counters.of(lambda: caller.load(inputs, outputs), call, task.payload["kernels"])
        return {"launches": launches, "refused": counters.refused}
    except CapabilityError as error:
        return {"lacks": [error.what, error.hint]}


if __name__ == "__main__":
    serve(perform)
