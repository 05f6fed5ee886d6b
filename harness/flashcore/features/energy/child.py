"""The process that measures energy: it replays a case's calls in graphs while it reads NVML."""

from __future__ import annotations

import functools
import random
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flashcore.errors import FlashcoreError
from flashcore.features.energy.facts import facts
from flashcore.machine import python_process
from flashcore.machine.gpu import Nvml
from flashcore.runner.journal import Journal, Task
from flashcore.runner.kernel_call import Caller, KernelCall, serve
from flashcore.stages.bench.interleave import release
from flashcore.stages.bench.sets import Sets
from flashcore.stages.bench.timing import timer_for

if TYPE_CHECKING:
    from flashcore.stages.bench.timing import Timed

#: The command line of this process.
TARGET = python_process.child("flashcore.features.energy.child")
#: Seconds of readings, of work before them, and of readings without work.
SECONDS, WARM_UP, IDLE = 2.0, 0.3, 1.5
#: The longest period in which a counter is updated (s): the readings begin at a random phase of it.
_PERIOD = 0.1
#: Batches that are enqueued ahead, and the length of one (us).
_AHEAD, _BATCH = 8, 5000.0
#: Seconds between readings of the counter, and the share of them that also read the momentary power.
_LOOK_EVERY, _SAMPLED = 0.001, 0.05


class Load:
    """Keeps the GPU busy with a case's calls."""

    def __init__(self, timed: Timed) -> None:
        import torch

        self._event = functools.partial(torch.cuda.Event, enable_timing=True)
        self._timed = timed
        self._replays = max(1, round(_BATCH / (timed.back_to_back() * timed.launches)))
        self._queue: deque[Any] = deque()
        self._batches: list[Any] = []

    def feed(self) -> None:
        """Enqueues batches, as far as they are not enqueued ahead."""
        while self._queue and self._queue[0].query():
            self._queue.popleft()
        while len(self._queue) < _AHEAD:
            for _ in range(self._replays):
                self._timed.replay()
            self._queue.append(event := self._event())
            event.record()
            self._batches.append(event)

    def begin(self) -> None:
        """Starts to count calls."""
        del self._batches[:-1]

    def end(self) -> float:
        """us per call since :meth:`begin`.

        Raises:
            FlashcoreError: a call takes so long that none began since.
        """
        first, last = self._batches[0], self._batches[-1]
        if first is last:
            raise FlashcoreError(f"no call began in {SECONDS:g} s: its calls are too long for a mean power")
        last.synchronize()
        calls = (len(self._batches) - 1) * self._replays * self._timed.launches
        return 1000.0 * float(first.elapsed_time(last)) / calls


def read(nvml: Nvml, seconds: float, feed: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """``updates`` of the energy counter (s, mJ), momentary ``power`` (W), and the ``others`` that use the GPU.

    A counter's value belongs to the moment in which it changes, so only changes are kept.
    """
    updates: list[tuple[float, float]] = []
    power: list[float] = []
    began, last = time.monotonic(), nvml.energy()
    while time.monotonic() - began < seconds:
        feed()
        if (energy := nvml.energy()) is not None and energy != last:
            updates.append((round(time.monotonic() - began, 5), energy))
            last = energy
        if random.random() < _SAMPLED and (watts := nvml.power()) is not None:
            power.append(watts)
        time.sleep(_LOOK_EVERY)
    return {"updates": updates, "power": power, "others": (nvml.processes() or 1) - 1}


@functools.cache
def _idle() -> dict[str, Any]:
    """The readings without work, in a process that uses the GPU; once per process."""
    time.sleep(WARM_UP + random.uniform(0, _PERIOD))
    return read(_nvml(), IDLE)


@functools.cache
def _nvml() -> Nvml:
    import torch

    return Nvml(str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid))


def perform(task: Task, log: Journal) -> dict[str, Any]:
    """The readings of one case: ``work`` and ``idle``, with ``us`` per call meanwhile.

    Raises:
        OSError: NVML is missing.
        FlashcoreError: the calls write their inputs.
    """
    caller = Caller.of(task)
    case, device, timer = caller.case, caller.device, timer_for(caller.device)
    sets = Sets(timer, case, caller.problem, device)
    if sets.restored:
        raise FlashcoreError("its calls write their inputs, and restoring these takes energy too")
    load = Load(sets.prepare(timer, caller))
    idle = _idle()
    log.step(task.name, "energy", case.variant)
    read(_nvml(), WARM_UP + random.uniform(0, _PERIOD), load.feed)
    load.begin()
    work = read(_nvml(), SECONDS, load.feed)
    us = load.end()
    release(device)
    return {"work": work, "idle": idle, "us": us}


def energy(case: dict[str, Any], device: str, log: Journal) -> tuple[float | None, str]:
    """The energy of a case's call (mJ), or why there is none."""
    readings = perform(Task("energy", {"case": case, "device": device}), log)
    fact = next(f for f in facts(KernelCall.from_json(case).subject, None, readings) if f.name == "energy")
    return fact.number, fact.note


if __name__ == "__main__":
    serve(perform)
