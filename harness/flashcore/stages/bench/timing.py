"""How one call is timed: three regimes, and eagerly. Used by the child processes that time, alone.

- back_to_back: the period of N calls in one CUDA graph, between two events. What the calls use was put in L2 just
  before. Calls whose launches are programmatic overlap: this is a throughput.
- isolated: a latency, by difference. A graph of N × [spacer, call] against one of N × [spacer], in turns; the rest
  over N. The spacer is one block an SM that spins, without memory and without a programmatic trigger, so launching
  hides behind it and no call overlaps another. Calls rotate through a few sets of tensors that stay in L2 together.
- cold: as isolated, with L2 flushed before each spacer by stores to twice its size, and persisting lines reset.
- eager: calls from Python back to back between two events, over their number: the host's time where the
  host is slower than the kernel.

In every regime the device is kept busy while the host enqueues, so that no launch from the host is in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from flashcore.model.suite import Regime
from flashcore.stages.bench.driver import Driver

_T = TypeVar("_T")
Calls = Sequence[Callable[[], Any]]

#: What one sample is to take, in us: long against the events' resolution (0.5 us), short against drift.
SAMPLE_US = 400.0
_MOST_CALLS = 500
_WARM_UPS = 3
#: A call longer than this (us) is not made once more to warm L2: a cold start does not show in it.
_LONG_CALL = 1000.0
#: Clocks the device spins while the host enqueues a sample: about 50 us, 100 us for graphs of many nodes.
_COVER_CLOCKS, _LONG_COVER_CLOCKS = 100_000, 200_000
#: The spacer: about 2 us, longer than what a launch takes.
SPACER_CYCLES = 4_000
#: Calls in one graph with spacers; fewer with a flush each, which takes 40 us.
_SPACED: dict[Regime, int] = {"isolated": 40, "cold": 5}
#: No sample by difference is less (us): it is a time, of which ratios are taken.
_RESOLUTION = 1e-3
#: Sets of tensors that calls rotate through, where so many fit half of L2.
_MOST_SETS = 4


class Timed(Protocol):
    """A call that is ready to be timed. Every regime's method takes one sample: us per call."""

    launches: int  # calls in one back-to-back sample
    eager_calls: int  # calls in one eager sample
    kernels: int | None  # of a call, the fewest in any captured graph; None where nothing is captured
    copies: int  # beside them: copies of the driver's own, no kernels

    def back_to_back(self) -> float: ...

    def isolated(self) -> float: ...

    def cold(self) -> float: ...

    def eager(self) -> float: ...

    def each(self, regime: Regime, *, calls: bool = True) -> list[float]:
        """us between events around each of some calls, or as often around nothing."""
        ...


class Timer(Protocol):
    """Makes calls ready. ``clock`` says in words what times are read from."""

    clock: str

    def sets(self, size: int) -> int:
        """How many sets of tensors of ``size`` bytes calls are to rotate through."""
        ...

    def prepare(self, calls: Calls, launches: int | None = None) -> Timed:
        """Calls of one function on different tensors; ``launches`` in a sample, or as many as make one up."""
        ...

    def empty(self) -> Timed:
        """A launch that does nothing: the floor of every regime."""
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
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self._l2, self._sms = properties.L2_cache_size, properties.multi_processor_count
        self._flush = torch.empty(2 * self._l2 // 4, dtype=torch.int32, device="cuda")
        self.driver = Driver()
        self.spin(0)  # loads it, which cannot be done while capturing
        self._flush.fill_(1)
        self._graphs: dict[tuple[Regime, int, bool], tuple[Any, tuple[int, int]]] = {}
        self.events = [(self.driver.event(), self.driver.event()) for _ in range(max(_SPACED.values()))]

    def sets(self, size: int) -> int:
        return max(1, min(_MOST_SETS, self._l2 // 2 // max(size, 1)))

    def prepare(self, calls: Calls, launches: int | None = None) -> Timed:
        return _CudaTimed(self, calls, launches)

    def empty(self) -> Timed:
        return self.prepare([lambda: self.spin(0)])

    def spin(self, cycles: int, blocks: int = 1) -> None:
        self.driver.spin(self.stream.cuda_stream, cycles, blocks)

    def capture(self, enqueue: Callable[[int], Any], count: int) -> tuple[Any, tuple[int, int]]:
        """A graph of ``count`` times what ``enqueue`` does, already replayed once; its kernels and copies."""
        import torch

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            for i in range(count):
                enqueue(i)
            held = self.driver.captured(self.stream.cuda_stream)
        graph.replay()  # the first replay uploads the graph
        return graph, held

    def spaced(
        self, regime: Regime, count: int, call: Callable[[int], Any] | None, *, events: bool = False
    ) -> tuple[Any, tuple[int, int]]:
        """A graph of ``count`` spacers, each with a call behind it, and its kernels and copies; without a call it is
        made once for all."""
        key = (regime, count, events)
        if call is None and key in self._graphs:
            return self._graphs[key]

        def enqueue(i: int) -> None:
            if regime == "cold":
                # A kernel of stores, where a zeroing may be a memset: leaves nothing of use in L2.
                self._flush.fill_(i + 2)
            self.spin(SPACER_CYCLES, self._sms)
            if events:
                self.driver.record(self.events[i][0], self.stream.cuda_stream)
            if call is not None:
                call(i)
            if events:
                self.driver.record(self.events[i][1], self.stream.cuda_stream)

        made = self.capture(enqueue, count)
        if call is None:
            self._graphs[key] = made
        return made


class _CudaTimed:
    def __init__(self, timer: CudaTimer, calls: Calls, launches: int | None) -> None:
        import torch

        self._timer = timer
        self._calls = calls
        self._start: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._end: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        # Loads modules and fills library caches, neither of which can be done while capturing.
        for i in range(max(_WARM_UPS, len(calls))):
            self._call(i)
        torch.cuda.synchronize()
        single, (kernels, self.copies) = timer.capture(self._call, 1)
        self.kernels: int | None = kernels
        self._each_set = single if len(calls) == 1 else timer.capture(self._call, len(calls))[0]
        self._call_us = min(self._between(single.replay, cover=_COVER_CLOCKS) for _ in range(3))
        self.launches = launches or calls_for(self._call_us)
        self._many = single
        if self.launches > 1:
            self._many, held = timer.capture(self._call, self.launches)
            self._hold(held, self.launches)
        self._spaced: dict[tuple[Regime, bool], Any] = {}
        self.eager_calls = 1
        self.eager_calls = calls_for(min(self.eager() for _ in range(3)))
        torch.cuda.synchronize()

    def _call(self, i: int) -> None:
        self._calls[i % len(self._calls)]()

    def _hold(self, held: tuple[int, int], calls: int, beside: tuple[int, int] = (0, 0)) -> None:
        """A launcher that stops after some calls leaves them out of a later graph: each graph counts."""
        kernels, copies = ((h - b) // calls for h, b in zip(held, beside, strict=True))
        self.kernels, self.copies = min(self.kernels or 0, kernels), min(self.copies, copies)

    def back_to_back(self) -> float:
        self._warm()
        return self._between(self._many.replay, cover=_COVER_CLOCKS) / self.launches

    def isolated(self) -> float:
        return self._difference("isolated")

    def cold(self) -> float:
        return self._difference("cold")

    def eager(self) -> float:
        def calls() -> None:
            for i in range(self.eager_calls):
                self._call(i)

        return self._between(calls) / self.eager_calls

    def each(self, regime: Regime, *, calls: bool = True) -> list[float]:
        graph = self._pair(regime, events=True)[0 if calls else 1]
        self._ready(regime)
        self._between(graph.replay, cover=_LONG_COVER_CLOCKS)
        pairs = self._timer.events[: self._count(regime)]
        return [self._timer.driver.elapsed_us(start, end) for start, end in pairs]

    def _difference(self, regime: Regime) -> float:
        times = []
        for graph in self._pair(regime, events=False):
            self._ready(regime)
            times.append(self._between(graph.replay, cover=_LONG_COVER_CLOCKS))
        # Where something disturbed the spacers alone, so many of them can outlast those with calls.
        return max((times[0] - times[1]) / self._count(regime), _RESOLUTION)

    def _count(self, regime: Regime) -> int:
        return min(_SPACED[regime], self.launches)

    def _pair(self, regime: Regime, *, events: bool) -> tuple[Any, Any]:
        """The graph of spacers with calls, and the one without."""
        key, count = (regime, events), self._count(regime)
        alone, beside = self._timer.spaced(regime, count, None, events=events)
        if key not in self._spaced:
            self._spaced[key], held = self._timer.spaced(regime, count, self._call, events=events)
            self._hold(held, count, beside)
        return self._spaced[key], alone

    def _ready(self, regime: Regime) -> None:
        if regime == "cold":
            self._timer.driver.reset_persisting_l2()
        else:
            self._warm()

    def _warm(self) -> None:
        """Puts in L2 what the calls use."""
        if self._call_us < _LONG_CALL:
            self._each_set.replay()

    def _between(self, work: Callable[[], object], *, cover: int = 0) -> float:
        """us that the device takes for what ``work`` enqueues."""
        import torch

        if cover:
            torch.cuda._sleep(cover)  # type: ignore[no-untyped-call]
        self._start.record()
        work()
        self._end.record()
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end)) * 1000.0


class HostTimer:
    """The host's clock around calls that are done when they return."""

    clock = "host clock"

    def sets(self, size: int) -> int:
        return 2

    def prepare(self, calls: Calls, launches: int | None = None) -> Timed:
        return _HostTimed(calls, launches)

    def empty(self) -> Timed:
        return self.prepare([lambda: None])


class _HostTimed:
    kernels: int | None = None
    copies: int = 0

    def __init__(self, calls: Calls, launches: int | None) -> None:
        self._calls = calls
        self._flush = bytearray(1 << 20)
        self._sample(1)
        self.launches = self.eager_calls = launches or calls_for(self._sample(1), most=50)

    def back_to_back(self) -> float:
        return self._sample(self.launches)

    def isolated(self) -> float:
        return self._sample(1)

    def cold(self) -> float:
        self._flush[:] = bytes(len(self._flush))
        return self._sample(1)

    def eager(self) -> float:
        return self._sample(self.eager_calls)

    def each(self, regime: Regime, *, calls: bool = True) -> list[float]:
        return [self._sample(1) if calls else 0.0 for _ in range(self.launches)]

    def _sample(self, count: int) -> float:
        start = time.perf_counter_ns()
        for i in range(count):
            self._calls[i % len(self._calls)]()
        return (time.perf_counter_ns() - start) / 1000.0 / count


def rotated(items: Sequence[_T], by: int) -> list[_T]:
    """The items in their order, begun at another one each round: nobody always follows the same one."""
    if not items:
        return []
    start = by % len(items)
    return [*items[start:], *items[:start]]
