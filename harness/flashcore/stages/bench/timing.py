"""Times one call in three timing modes and eagerly. Used only by the timing child processes.

- back_to_back: the time between two events around one CUDA graph of N calls, over N. A warm-up just before brings the
  inputs into L2. Programmatic launches overlap, so this is a throughput.
- isolated: a latency, by difference: a graph of N × [spacer, call] minus one of N × [spacer], over N. The spacer is one
  spinning block per SM, without a programmatic trigger, so it hides the launch overhead and no call overlaps another.
  Calls rotate through a few sets of tensors that fit in L2 together.
- cold: like isolated, but before each spacer stores to twice the size of L2 flush it. Persisting lines are reset.
- eager: the time between two events around N back-to-back calls from Python, over N: the host's time if the host is
  slower than the kernel. Work that calls leave on other streams counts, if it takes half as long again.

A call that writes its inputs has separate tensors at each position of a sample. They are rewritten right before the
sample, untimed, so that every timed call starts from the same content. See :class:`Restored`.

In the three timing modes the device is kept busy while the host enqueues, so that the times contain no host launch.
"""

from __future__ import annotations

import functools
import gc
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flashcore.runner.driver import Driver
from flashcore.runner.guarded import Outputs
from flashcore.runner.journal import describe
from flashcore.runner.problem_file import load_file

_T = TypeVar("_T")
Calls = Sequence[Callable[[], Any]]
#: A captured graph, and its numbers of kernels and copies.
CapturedGraph = tuple[Any, tuple[int, int]]

#: Target time of one sample, us: long compared with the events' resolution (0.5 us), short compared with drift.
SAMPLE_US = 400.0
_MOST_CALLS = 500
_WARM_UPS = 3
#: Calls longer than this (us) do not warm L2 first: a cold start does not change their time noticeably.
_LONG_CALL = 1000.0
#: Clock cycles that the device spins while the host enqueues a sample: about 50 us; 100 us for graphs of many nodes.
_COVER_CLOCKS, _LONG_COVER_CLOCKS = 100_000, 200_000
#: Length of the spacer: about 2 us, longer than a launch takes.
SPACER_CYCLES = 4_000
#: Calls per graph with spacers; fewer when cold, since each flush takes 40 us.
_SPACED: dict[str, int] = {"isolated": 40, "cold": 5}
#: Calls per graph with events around each: the fewest if a call takes longer than ``_LONG_CALL``, the fewest of shorter
#: ones, and the most. A replay of fewer calls is mostly waiting.
_LONG_EVENTS, _FEWEST_EVENTS, _EVENTS = 3, 10, 40
#: The smallest sample by difference (us): ratios need positive times.
_RESOLUTION = 1e-3
#: Environment variable: a file whose ``HostTimer`` replaces CUDA events in tests without a GPU.
STAND_IN = "FLASHCORE_TIMER"
#: After eager calls, the device may be busy for this time (us) and this share of theirs before it counts: asking
#: whether it is idle made samples 64 us longer in a process with 22 variants' graphs (H100).
_LEFT_US, _LEFT_SHARE = 100.0, 0.5
#: Most sets of tensors that calls rotate through, if they fit in half of L2.
_MOST_SETS = 4


@dataclass(frozen=True, slots=True)
class Restored:
    """The tensors of calls that write their inputs. Each call has separate ones, so they limit the calls in a sample.

    Args:
        restore: enqueues the rewriting of the tensors of a call.
        resident: the number of calls whose tensors fit in L2 together, the limit for an isolated sample.
        graphs: captured graphs of ``restore``, by number of calls.
    """

    restore: Callable[[int], None]
    resident: int
    graphs: dict[int, Any] = field(default_factory=dict)


@functools.cache
def timer_for(device: str) -> Timer:
    """The timer for ``device``, one per process: on a CPU, a test's stand-in."""
    if device != "cpu":
        return Timer()
    timer: Timer = load_file(os.environ[STAND_IN]).HostTimer()
    return timer


def calls_for(call_us: float, most: int = _MOST_CALLS) -> int:
    """The number of calls that fill a sample's target time."""
    return max(1, min(most, round(SAMPLE_US / max(call_us, 1e-3))))


class Timer:
    """Prepares calls for timing with CUDA events on the current device. Creates a stream and makes it current.

    Attributes:
        clock: the source of the times.
        doubt: a single call's uncertainty, us.
        now: the clock of time limits, s.
    """

    clock = "CUDA events"
    doubt = 0.5
    now = staticmethod(time.monotonic)

    def __init__(self) -> None:
        import torch

        self.stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        torch.cuda.set_stream(self.stream)
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self._l2, self.sms = properties.L2_cache_size, properties.multi_processor_count
        self._memory = torch.empty(2 * self._l2 // 4096 * 4096, dtype=torch.uint8, device="cuda")
        self.driver = Driver()
        self.spin(0)  # loads the kernels, which is not allowed during capture
        self.flush(1)
        self._spacers: dict[tuple[str, int, bool], CapturedGraph] = {}
        self.events = [(self.driver.event(), self.driver.event()) for _ in range(_EVENTS)]
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def sets(self, size: int) -> int:
        """The number of sets of ``size`` bytes that calls rotate through."""
        return max(1, min(_MOST_SETS, self._l2 // 2 // max(size, 1)))

    def copies(self, size: int, resident: int) -> int:
        """The number of tensors of ``size`` bytes that fit in L2 beside ``resident`` bytes of other tensors."""
        return max(0, self._l2 // 2 - resident) // size

    def prepare(
        self,
        calls: Calls,
        launches: int | None = None,
        restored: Restored | None = None,
        outputs: Sequence[Outputs] = (),
        *,
        graphs: bool = True,
    ) -> Timed:
        """Calls of one function on different tensors; ``launches`` per back-to-back sample, or as many as its target
        time needs. ``outputs``: those of each call. Without ``graphs`` they can only be timed eagerly."""
        return Timed(self, calls, launches, restored, outputs, graphs=graphs)

    @functools.cached_property
    def empty(self) -> Timed:
        """An empty launch: the floor of every mode."""
        return self.prepare([lambda: self.spin(0)])

    def spin(self, cycles: int, blocks: int = 1) -> None:
        self.driver.launch("spin", self.stream.cuda_stream, blocks, 32, cycles)

    def flush(self, value: int) -> None:
        blocks = len(self._memory) // 4096
        self.driver.launch("flush", self.stream.cuda_stream, blocks, 256, self._memory.data_ptr(), value)

    def capture(self, enqueue: Callable[[int], Any], count: int) -> CapturedGraph:
        """A graph of ``count`` calls of ``enqueue``, already replayed once, and its numbers of kernels and copies."""
        import torch

        graph = torch.cuda.CUDAGraph()
        gc.disable()  # destroying another shape's graph would invalidate the capture
        try:
            with torch.cuda.stream(self.stream):
                graph.capture_begin()  # torch.cuda.graph would free the allocator's cache first, each time
                try:
                    for i in range(count):
                        enqueue(i)
                    nodes = self.driver.captured(self.stream.cuda_stream)
                finally:
                    with warnings.catch_warnings():  # callers see by its nodes that a graph is empty
                        warnings.filterwarnings("ignore", "The CUDA Graph is empty", UserWarning)
                        graph.capture_end()
        finally:
            gc.enable()
        graph.replay()  # the first replay uploads the graph
        return graph, nodes

    def nodes(self, call: Callable[[], object]) -> tuple[int, int] | str:
        """The numbers of kernels and copies of a call in a graph, or why a graph cannot contain it. The call is first
        made a few times."""
        for _ in range(_WARM_UPS):
            call()
        try:
            return self.capture(lambda _: call(), 1)[1]
        except Exception as error:
            self.capture(lambda _: self.spin(0), 1)  # else torch would refuse to draw numbers from now on
            return describe(error.__context__ or error)

    def between(self, work: Callable[[], object], *, cover: int = 0) -> float:
        """Device time of the work that ``work`` enqueues, us. The device waits ``cover`` cycles before it."""
        import torch

        if cover:
            torch.cuda._sleep(cover)  # type: ignore[no-untyped-call]
        self._start.record(self.stream)  # to look up the current stream takes the host several us
        work()
        self._end.record(self.stream)
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end)) * 1000.0

    def left(self, us: float) -> float:
        """How long other streams still work after this one was timed to work for ``us``; 0 if that may be noise."""
        import torch

        marks = [time.perf_counter()]
        for _ in range(2):  # the second time, the device is idle
            torch.cuda.synchronize()
            marks.append(time.perf_counter())
        left = (2 * marks[1] - marks[0] - marks[2]) * 1e6
        return left if left > max(_LEFT_US, _LEFT_SHARE * us) else 0.0

    def elapsed(self, count: int) -> list[float]:
        """us between the events of each of the first ``count`` pairs."""
        return [self.driver.elapsed_us(*pair) for pair in self.events[:count]]

    def spaced(self, mode: str, count: int, call: Callable[[int], Any], *, events: bool = False) -> CapturedGraph:
        """A graph of ``count`` spacers, each followed by a call."""

        def enqueue(i: int) -> None:
            if mode == "cold":
                self.flush(i + 2)
            self.spin(SPACER_CYCLES, self.sms)
            if events:
                self.driver.record(self.events[i][0], self.stream.cuda_stream)
            call(i)
            if events:
                self.driver.record(self.events[i][1], self.stream.cuda_stream)

        return self.capture(enqueue, count)

    def spacers(self, mode: str, count: int, *, events: bool) -> CapturedGraph:
        """:meth:`spaced` without calls, captured once."""
        if (key := (mode, count, events)) not in self._spacers:
            self._spacers[key] = self.spaced(mode, count, lambda i: None, events=events)
        return self._spacers[key]


class Timed:
    """A call that is ready to be timed. Each mode's method takes one sample: us per call.

    Attributes:
        outputs: those of each call, in order.
        launches, eager_calls: calls in one back-to-back and in one eager sample.
        kernels, copies: kernel and copy nodes per call, the fewest in any captured graph; ``kernels`` is ``None`` if
            nothing is captured.
        before: enqueues work right before a sample's calls, untimed.
    """

    def __init__(
        self,
        timer: Timer,
        calls: Calls,
        launches: int | None,
        restored: Restored | None,
        outputs: Sequence[Outputs],
        *,
        graphs: bool,
    ) -> None:
        import torch

        self._timer, self._calls, self._restored, self.outputs = timer, calls, restored, outputs
        most = len(calls) if restored else _MOST_CALLS
        self.before: Callable[[], None] | None = None
        self._answer: Any = None
        # Warm-up loads modules and fills library caches, which is not allowed during capture.
        for i in range(max(_WARM_UPS, len(calls))):
            self._call(i)
        torch.cuda.synchronize()
        self.kernels: int | None = None
        self.copies = 0
        if graphs:
            self._capture(launches, most)
        self.eager_calls = 1
        self.eager_calls = calls_for(min(self.eager() for _ in range(3)), most)
        torch.cuda.synchronize()

    def _capture(self, launches: int | None, most: int) -> None:
        timer, calls = self._timer, self._calls
        self._single, (kernels, self.copies) = timer.capture(self._call, 1)
        self._answers = {"back_to_back": self._answer}
        self.kernels = kernels
        sets = min(len(calls), _MOST_SETS)
        self._each_set = self._single if sets == 1 else timer.capture(self._call, sets)[0]
        self._call_us = min(timer.between(self._single.replay, cover=_COVER_CLOCKS) for _ in range(3))
        self.launches = launches or calls_for(self._call_us, most)
        self._many = self._single
        if self.launches > 1:
            self._many, nodes = timer.capture(self._call, self.launches)
            self._count_nodes(nodes, self.launches)
            self._answers["back_to_back"] = self._answer
        self._spaced: dict[tuple[str, bool], Any] = {}

    def _call(self, i: int) -> None:
        self._answer = None  # so that the next call reuses its memory
        self._answer = self._calls[i % len(self._calls)]()

    def _count_nodes(self, nodes: tuple[int, int], calls: int, spacers: tuple[int, int] = (0, 0)) -> None:
        """Counts each graph's kernels per call, which exposes a launcher that stops launching after some calls."""
        kernels, copies = ((h - b) // calls for h, b in zip(nodes, spacers, strict=True))
        self.kernels, self.copies = min(self.kernels or 0, kernels), min(self.copies, copies)

    def calls_in(self, mode: str) -> int:
        """The number of calls in a sample of that mode."""
        if mode in _SPACED:
            return self._count(mode)
        return self.eager_calls if mode == "eager" else self.launches

    def answer(self, mode: str) -> Any:
        """The return value of the last call in a sample of that mode."""
        if mode in _SPACED:
            self._pair(mode, events=False)
        return self._answers.get(mode, self._answer)

    def back_to_back(self) -> float:
        self._warm(self.launches)
        self._begin(self.launches)
        return self._timer.between(self._many.replay, cover=_COVER_CLOCKS) / self.launches

    def replay(self) -> None:
        """Enqueues the calls of a back-to-back sample, untimed."""
        self._many.replay()

    def isolated(self) -> float:
        return self._difference("isolated")

    def cold(self) -> float:
        return self._difference("cold")

    def eager(self) -> float:
        def calls() -> None:
            for i in range(self.eager_calls):
                self._call(i)

        self._begin(self.eager_calls)
        us = self._timer.between(calls)
        return (us + self._timer.left(us)) / self.eager_calls

    def each(self, mode: str, *, calls: bool = True, first: bool = True) -> list[float]:
        """us between events around each of some calls, or between as many empty pairs. ``first``: the calls' tensors
        may not be in L2."""
        count = self._count(mode, events=True)
        spacers = self._timer.spacers(mode, count, events=True)
        graph, _ = self._pair(mode, events=True) if calls else spacers
        if first or mode == "cold":
            self._ready(mode, count)
        if calls:
            self._begin(count)
        self._timer.between(graph.replay, cover=_LONG_COVER_CLOCKS)
        return self._timer.elapsed(count)

    def _difference(self, mode: str) -> float:
        count, graphs = self._count(mode), self._pair(mode, events=False)
        self._ready(mode, count)
        self._begin(count)
        us, alone = (self._timer.between(graph.replay, cover=_LONG_COVER_CLOCKS) for graph in graphs)
        # A disturbance can make the spacers alone take longer than those with calls.
        return max((us - alone) / count, _RESOLUTION)

    def _count(self, mode: str, *, events: bool = False) -> int:
        fewest = _FEWEST_EVENTS if self._call_us < _LONG_CALL else _LONG_EVENTS
        count = min(_EVENTS, max(fewest, self.launches)) if events else min(_SPACED[mode], self.launches)
        if self._restored is None:
            return count
        return min(count, self._restored.resident if mode == "isolated" else len(self._calls))

    def _pair(self, mode: str, *, events: bool) -> tuple[Any, Any]:
        """The graphs of spacers with calls and of spacers alone."""
        key, count = (mode, events), self._count(mode, events=events)
        alone, spacers = self._timer.spacers(mode, count, events=events)
        if key not in self._spaced:
            self._spaced[key], nodes = self._timer.spaced(mode, count, self._call, events=events)
            self._count_nodes(nodes, count, spacers)
            if not events:
                self._answers[mode] = self._answer
        return self._spaced[key], alone

    def _ready(self, mode: str, calls: int) -> None:
        if mode == "cold":
            self._timer.driver.ask("cuCtxResetPersistingL2Cache")  # to normal
        else:
            self._warm(calls)

    def _begin(self, calls: int) -> None:
        """Prepares a sample of ``calls`` calls, untimed."""
        if self.before is not None:
            self.before()
        if (restored := self._restored) is not None:
            if calls not in restored.graphs:
                restored.graphs[calls], _ = self._timer.capture(restored.restore, calls)
            restored.graphs[calls].replay()

    def _warm(self, calls: int) -> None:
        """Brings the calls' tensors into L2."""
        if self._call_us < _LONG_CALL:
            (self._each_set if calls > 1 else self._single).replay()


def rotated(items: Sequence[_T], by: int) -> list[_T]:
    """The items rotated left by ``by``: each round starts at another item."""
    start = by % max(len(items), 1)
    return [*items[start:], *items[:start]]
