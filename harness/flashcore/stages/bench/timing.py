"""How one call is timed, three ways. Used by bench's child process alone.

- warm: a CUDA graph of N calls, replayed between two events, over N. What the calls use was put in L2 just
  before, and the device is kept busy while the host enqueues, so that no launch from the host is in it.
- cold: L2 is flushed by ordinary stores to twice its size, then one call, as a graph, between two events.
- eager: calls from Python back to back between two events, over their number: the host's time where the
  host is slower than the kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

_T = TypeVar("_T")

#: What one sample is to take, in us: long against the events' resolution (0.5 us), short against drift.
SAMPLE_US = 400.0
_MOST_CALLS = 500
_WARM_UPS = 3
#: A call longer than this (us) is not made once more to warm L2: a cold start does not show in it.
_LONG_CALL = 1000.0
#: Clocks the device spins while the host enqueues a sample: about 50 us.
_COVER_CLOCKS = 100_000


class Timed(Protocol):
    """A call that is ready to be timed. Every method takes one sample: us per call."""

    launches: int  # calls in one warm sample
    eager_calls: int  # calls in one eager sample

    def back_to_back(self) -> float: ...

    def cold(self) -> float: ...

    def eager(self) -> float: ...


class Timer(Protocol):
    """Makes calls ready. ``clock`` says in words what times are read from."""

    clock: str

    def prepare(self, call: Callable[[], Any], launches: int | None = None) -> Timed:
        """The call, ready to be timed; ``launches`` in a warm sample, or as many as make up a sample."""
        ...


def timer_for(device: str) -> Timer:
    """CUDA events on a GPU, the host's clock on the CPU (where only the plumbing is tried)."""
    return HostTimer() if device == "cpu" else CudaTimer()


def calls_for(call_us: float, most: int = _MOST_CALLS) -> int:
    """How many calls make up a sample."""
    return max(1, min(most, round(SAMPLE_US / max(call_us, 1e-3))))


class CudaTimer:
    """Times on the current device, on a stream of its own that becomes the current one."""

    clock = "CUDA events"

    def __init__(self) -> None:
        import torch

        self.stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        torch.cuda.set_stream(self.stream)
        size = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self._flush = torch.empty(2 * size // 4, dtype=torch.int32, device="cuda")
        self._flushes = 0

    def prepare(self, call: Callable[[], Any], launches: int | None = None) -> Timed:
        return _CudaTimed(self, call, launches)

    def flush(self) -> None:
        """Leaves nothing of use in L2. A fill is a kernel of stores, where a zeroing may be a memset."""
        self._flushes += 1
        self._flush.fill_(self._flushes)


class _CudaTimed:
    def __init__(self, timer: CudaTimer, call: Callable[[], Any], launches: int | None) -> None:
        import torch

        self._timer = timer
        self._call = call
        self._start: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._end: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        # Loads modules and fills library caches, neither of which can be done while capturing.
        for _ in range(_WARM_UPS):
            call()
        torch.cuda.synchronize()
        self._single = self._capture(1)
        self._single.replay()  # the first replay uploads the graph
        self._call_us = min(self._between(self._single.replay, cover=True) for _ in range(3))
        self.launches = launches or calls_for(self._call_us)
        self._many = self._single if self.launches == 1 else self._capture(self.launches)
        self._many.replay()
        self.eager_calls = 1
        self.eager_calls = calls_for(min(self.eager() for _ in range(3)))
        torch.cuda.synchronize()

    def back_to_back(self) -> float:
        if self._call_us < _LONG_CALL:
            self._single.replay()
        return self._between(self._many.replay, cover=True) / self.launches

    def cold(self) -> float:
        self._timer.flush()  # long enough to cover the host's work
        return self._between(self._single.replay)

    def eager(self) -> float:
        call = self._call

        def calls() -> None:
            for _ in range(self.eager_calls):
                call()

        return self._between(calls) / self.eager_calls

    def _capture(self, count: int) -> Any:
        import torch

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._timer.stream):
            for _ in range(count):
                self._call()
        return graph

    def _between(self, work: Callable[[], object], *, cover: bool = False) -> float:
        """us that the device takes for what ``work`` enqueues."""
        import torch

        if cover:
            torch.cuda._sleep(_COVER_CLOCKS)  # type: ignore[no-untyped-call]
        self._start.record()
        work()
        self._end.record()
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end)) * 1000.0


class HostTimer:
    """The host's clock around calls that are done when they return."""

    clock = "host clock"

    def prepare(self, call: Callable[[], Any], launches: int | None = None) -> Timed:
        return _HostTimed(call, launches)


class _HostTimed:
    def __init__(self, call: Callable[[], Any], launches: int | None) -> None:
        self._call = call
        self._flush = bytearray(1 << 20)
        self._sample(1)
        self.launches = self.eager_calls = launches or calls_for(self._sample(1), most=50)

    def back_to_back(self) -> float:
        return self._sample(self.launches)

    def cold(self) -> float:
        self._flush[:] = bytes(len(self._flush))
        return self._sample(1)

    def eager(self) -> float:
        return self._sample(self.eager_calls)

    def _sample(self, count: int) -> float:
        start = time.perf_counter_ns()
        for _ in range(count):
            self._call()
        return (time.perf_counter_ns() - start) / 1000.0 / count


def rotated(items: Sequence[_T], by: int) -> list[_T]:
    """The items in their order, begun at another one each round: nobody always follows the same one."""
    if not items:
        return []
    start = by % len(items)
    return [*items[start:], *items[:start]]
