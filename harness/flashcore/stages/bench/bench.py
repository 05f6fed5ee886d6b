"""Bench: is it faster, and by how much? Chooses the GPUs that time cases and makes the record's entry for each.

All cases of a shape run on one GPU (see :mod:`flashcore.runner.supervisor`), so no ratio compares two GPUs.
First, all GPUs time the same calls (:mod:`flashcore.stages.bench.gpu_probe`); slow ones are excluded. Shapes timed
while a GPU was throttled by its cooling or power supply are timed again on another GPU.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flashcore.model.case import Case
from flashcore.model.groups import grouped
from flashcore.model.record import Measured, SharingGpu, StageResult
from flashcore.model.text import count
from flashcore.runner.journal import lost_in, measured_on
from flashcore.runner.kernel_call import KernelCall
from flashcore.runner.program import Place
from flashcore.stages.bench import case_times, gpu_probe
from flashcore.stages.context import Context

_PROBES, _AGAIN = "reference", "again"  # subfolders of the bench folder


def prepare(context: Context) -> None:
    """Starts the first worker processes; see :class:`flashcore.stages.stage.Stage`."""
    if context.cases("bench"):
        folder = context.folder / "bench"
        if len(context.workers.places) > 1:
            gpu_probe.prepare(context.workers, folder / _PROBES, context.settings.bench.limits)
        context.workers.prepare(case_times.program(context), folder)


def run(context: Context, cases: Sequence[KernelCall]) -> StageResult:
    """Times every case on the GPUs that passed the probe; see :class:`flashcore.stages.stage.Stage`."""
    folder, workers = context.folder / "bench", context.workers
    if len(workers.places) < 2 or not cases:
        return case_times.run(context, cases, folder)
    probes = gpu_probe.run(workers, folder / _PROBES, context.settings.bench.limits, context.device)
    unfit = gpu_probe.unfit(probes)
    for gpu, why in unfit.items():
        context.say(f"bench: {gpu} is excluded from timing: {why}")
    fit = [p for p in workers.places if p.gpu not in unfit]
    result = case_times.run(replace(context, workers=workers.on(*fit)), cases, folder)
    gpu_of = _shapes(folder)
    throttled = {
        shape: gpu_of[shape]
        for f in result.facts
        if f.name == "throttle" and (shape := f.subject.shape or "") in gpu_of
        if gpu_probe.THROTTLING & _reasons(f.value)
    }
    cool = [p for p in fit if p.gpu not in throttled.values()]
    if not throttled or not cool:
        return result
    gpus = ", ".join(dict.fromkeys(throttled.values()))
    context.say(f"bench: {gpus} throttled: {count(len(throttled), 'shape')} timed again on another GPU")
    again = replace(context, workers=workers.on(*cool))
    repeated = case_times.run(again, [c for c in cases if c.shape in throttled], folder / _AGAIN)
    return StageResult(
        (*(f for f in result.facts if f.subject.shape not in throttled), *repeated.facts),
        (*(o for o in result.outcomes if o.shape not in throttled), *repeated.outcomes),
        {k: v for k, v in result.raw_samples.items() if k[0].shape not in throttled} | dict(repeated.raw_samples),
    )


def _shapes(folder: Path) -> dict[str, str]:
    """Shape → the GPU of its last attempt, for tasks ``shape~attempt`` or ``variant/shape~attempt`` in ``folder``."""
    attempts = sorted(measured_on(folder, below=False).items(), key=lambda item: int(item[0].partition("~")[2] or 0))
    return {name.rpartition("/")[2].partition("~")[0]: gpu for name, gpu in attempts}


def _reasons(throttle: object) -> set[str]:
    """The throttle reasons in the fact's value."""
    return set(str(throttle).split(", ")) - {"none"}


def used(places: Sequence[Place], folder: Path, measured: Measured) -> tuple[SharingGpu, ...]:
    """The record's entry for each GPU of a run, read from the files in the run's folder."""
    bench_folder = folder / "bench"
    where = {stage: measured_on(folder / stage) for stage in dict.fromkeys(o.stage for o in measured.outcomes)}
    first, again = _shapes(bench_folder), _shapes(bench_folder / _AGAIN)
    if "bench" in where:
        where["bench"] = first | again
    probes = gpu_probe.recorded(bench_folder / _PROBES)
    unfit, lost = gpu_probe.unfit(probes), lost_in(folder)
    hosts = {p.gpu: p.host for p in places}
    for gpu in (gpu for on in where.values() for gpu in on.values()):
        hosts.setdefault(gpu, None)  # the GPU is gone, or the run was resumed without it
    entries = []
    for gpu, host in hosts.items():
        cases: dict[str, tuple[Case, ...]] = {}
        for stage, on in where.items():
            ran = (o for o in measured.outcomes if o.stage == stage and o.status in ("ok", "failed"))
            cases[stage] = tuple(o.case for o in ran if on.get(o.shape if stage == "bench" else str(o.case)) == gpu)
        facts = (f for f in measured.facts if f.subject.case in cases.get("bench", ()) and f.value is not None)
        state: dict[str, list[Any]] = grouped((f.name, f.value) for f in facts)
        clocks = state.get("bench_sm_clock")
        moved = ", ".join(sorted(shape for shape in again if first.get(shape) == gpu))
        remarks = [
            unfit.get(gpu, ""),
            f"lost: {lost[gpu]}" if gpu in lost else "",
            f"throttled: timed again elsewhere: {moved}" if moved else "",
        ]
        probe = timed if isinstance(timed := probes.get(gpu), gpu_probe.Probe) else None
        entries.append(
            SharingGpu(
                uuid=gpu,
                host=host,
                spread=probe.spread if probe else None,
                reference=probe.times if probe else {},
                sm_clock_mhz=statistics.median(clocks) if clocks else None,
                temperature=max(state.get("bench_temperature", ()), default=None),
                throttle=tuple(sorted(set[str]().union(*map(_reasons, state.get("throttle", ()))))),
                cases=cases,
                remark="; ".join(filter(None, remarks)),
            )
        )
    return tuple(entries)
