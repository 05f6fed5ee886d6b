"""Decides which GPUs of one model can time cases side by side: all time the same two calls simultaneously.

The calls are a copy that misses all caches and a matrix product. Each is set up twice; the difference between the two
is the GPU's A/A spread while the other GPUs are busy. A GPU slower than the median by more than that spread plus a
margin is reported and excluded.

Run as a program (``python -m flashcore.stages.bench.gpu_probe TASKFILE JOURNAL``), this module is the child.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashcore.machine import python_process
from flashcore.model.cause import Cause, cause_text
from flashcore.model.causes import UNANSWERED
from flashcore.model.text import percentage
from flashcore.runner.journal import Journal, Result, Task, answers
from flashcore.runner.kernel_call import serve
from flashcore.runner.pool import Pool
from flashcore.runner.program import Limits, Program
from flashcore.stages.bench.interleave import Turns, Watch, sample
from flashcore.stages.bench.statistics import StopRule
from flashcore.stages.bench.timing import timer_for

TARGET = python_process.child("flashcore.stages.bench.gpu_probe")
#: Allowed difference between GPUs of one model. Two H200s of one host differed by 1.2 % in a matrix product and by
#: 0.1 % in a copy.
ALIKE = 0.03
#: Throttle reasons that point to the cooling or the power supply. The power cap is not one: any large matrix product
#: drives a healthy GPU to it.
THROTTLING = frozenset({"hardware_slowdown", "thermal_software", "thermal_hardware", "power_brake"})
#: Elements copied and rows of the matrices, by device. On a GPU the copy moves 1 GiB (0.8 ms on an H200); the product
#: takes 0.2 ms.
_SIZES = {"cuda": (1 << 27, 4096), "cpu": (1 << 16, 64)}


@dataclass(frozen=True, slots=True)
class Probe:
    """One GPU's probe times.

    Args:
        times: us by call, the lower of two medians.
        spread: the largest relative difference between a call's two medians.
        state: the GPU's state meanwhile; see :class:`~flashcore.stages.bench.interleave.Watch`.
    """

    times: Mapping[str, float]
    spread: float
    state: Mapping[str, Any]


#: UUID → the GPU's probe, or why there are no times.
Probes = Mapping[str, Probe | Cause]


def prepare(workers: Pool, folder: Path, limits: Limits) -> None:
    """Starts the worker processes for :func:`run`."""
    for place in workers.places:
        workers.on(place).prepare(Program(command=TARGET, limits=limits), folder / place.gpu)


def run(workers: Pool, folder: Path, limits: Limits, device: str) -> Probes:
    """Times the two calls on all GPUs at once; can be resumed from ``folder``.

    Raises:
        FlashcoreError: a journal cannot be written, or a child cannot be started.
    """

    tasks, program = [Task("reference", {"device": device})], Program(command=TARGET, limits=limits)
    with ThreadPoolExecutor(len(workers.places)) as threads:
        results = threads.map(lambda place: workers.on(place).run(tasks, program, folder / place.gpu), workers.places)
        return {place.gpu: _probe(result) for place, (result,) in zip(workers.places, results, strict=True)}


def recorded(folder: Path) -> Probes:
    """The probes that :func:`run` left in ``folder``."""
    return {p.name: _probe(r) for p in sorted(folder.glob("*")) for r in answers(p).values()}


def _probe(result: Result) -> Probe | Cause:
    return Probe(**result.data) if result.data else result.cause or UNANSWERED()


def unfit(probes: Probes) -> dict[str, str]:
    """The GPUs to exclude from timing: UUID → why. Never all of them."""
    why = {gpu: f"its probe failed: {cause_text(probe)}" for gpu, probe in probes.items() if isinstance(probe, Cause)}
    timed = {gpu: probe for gpu, probe in probes.items() if isinstance(probe, Probe)}
    allowed = ALIKE + max((probe.spread for probe in timed.values()), default=0.0)
    for name in next((probe.times for probe in timed.values()), {}):
        usual = statistics.median_low(probe.times[name] for probe in timed.values())
        for gpu, probe in timed.items():
            over = probe.times[name] / usual - 1
            if over > allowed:
                slow = (
                    f"slow: {name} takes {probe.times[name]:.4g} µs, {percentage(100 * over, 1)} more than the median"
                )
                why.setdefault(gpu, f"{slow} ({percentage(100 * allowed, 1)} is allowed for noise)")
    for gpu, probe in timed.items():
        if reasons := THROTTLING & {*probe.state.get("throttle", ())}:
            why.setdefault(gpu, f"throttled: {', '.join(sorted(reasons))}")
    return why if len(why) < len(probes) else {}


# --- the child ----------------------------------------------------------------------------------


def perform(task: Task, log: Journal) -> dict[str, Any]:
    """Times the two calls in turns, each set up twice."""
    import torch

    device = task.payload["device"]
    elements, rows = _SIZES[device]
    timer = timer_for(device)
    source, target = (torch.ones(elements, dtype=torch.float32, device=device) for _ in range(2))
    kind = torch.float32 if device == "cpu" else torch.bfloat16
    a, b, c = (torch.ones(rows, rows, dtype=kind, device=device) for _ in range(3))
    calls = {"copy": lambda: target.copy_(source), "matmul": lambda: torch.mm(a, b, out=c)}
    ready = {f"{name} {twin}": timer.prepare([call]) for name, call in calls.items() for twin in "AB"}
    watch = Watch(device)
    rule = StopRule(least=60, most=200, seconds=2.0)
    times = sample(ready, "back_to_back", rule, Turns(watch, lambda _, label: log.step(task.name, label)))
    medians = {name: [round(statistics.median(times[f"{name} {twin}"]), 4) for twin in "AB"] for name in calls}
    spread = max(max(pair) / min(pair) - 1 for pair in medians.values())
    return {"times": {name: min(pair) for name, pair in medians.items()}, "spread": spread, "state": watch.seen}


if __name__ == "__main__":
    serve(perform)
