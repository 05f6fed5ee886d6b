"""The bench stage on several GPUs: which of them time, whose cases are moved, and the record's entry for each.

A shape's cases are on one GPU (see :mod:`flashcore.measure.workers.supervisor`), so no ratio compares two GPUs. Before
anything is timed all of them time a reference at the same time (:mod:`flashcore.measure.bench.reference`); one that is
slow there times nothing. Shapes that were timed while a GPU was throttled by its cooling or power supply are timed
again on another.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from flashcore.measure.bench import bench, reference
from flashcore.measure.context import Context
from flashcore.measure.workers.gpus import lost_in, measured_on
from flashcore.measure.workers.kernel_call import Case
from flashcore.measure.workers.program import Place
from flashcore.model.record import Fact, Measured, SharingGpu, StageResult

_REFERENCE, _AGAIN = "reference", "again"  # below the folder of bench
_STATE = ("bench_sm_clock", "bench_temperature", "throttle")


def prepare(context: Context) -> None:
    """Starts the first processes; see :class:`flashcore.measure.stage.Stage`."""
    if context.cases("bench"):
        folder = context.folder / "bench"
        if len(context.workers.places) > 1:
            reference.prepare(context.workers, folder / _REFERENCE, context.settings.bench.limits)
        context.workers.prepare(bench.program(context), folder)


def run(context: Context, cases: Sequence[Case]) -> StageResult:
    """Times every case on the GPUs that are fit for it; see :class:`flashcore.measure.stage.Stage`."""
    folder, workers = context.folder / "bench", context.workers
    if len(workers.places) < 2 or not cases:
        return bench.run(context, cases, folder)
    limits = context.settings.bench.limits
    unfit = reference.unfit(reference.run(workers, folder / _REFERENCE, limits, context.device))
    for gpu, why in unfit.items():
        context.say(f"bench: {gpu} times nothing here: {why}")
    fit = [p for p in workers.places if p.gpu not in unfit]
    result = bench.run(replace(context, workers=workers.on(*fit)), cases, folder)
    throttled = _throttled(result.facts, _shapes(folder))
    cool = [p for p in fit if p.gpu not in throttled]
    shapes = {shape for slowed in throttled.values() for shape in slowed}
    if not shapes or not cool:
        return result
    context.say(f"bench: {', '.join(throttled)} throttled: {len(shapes)} shapes are timed again on another GPU")
    again = replace(context, workers=workers.on(*cool))
    repeated = bench.run(again, [c for c in cases if c.shape in shapes], folder / _AGAIN)
    return StageResult(
        (*(f for f in result.facts if f.subject.shape not in shapes), *repeated.facts),
        (*(o for o in result.outcomes if o.shape not in shapes), *repeated.outcomes),
        {k: v for k, v in result.samples.items() if k.split("/")[1] not in shapes} | dict(repeated.samples),
    )


def _shapes(folder: Path) -> dict[str, str]:
    """Shape → the GPU that its last attempt ran on, of the bench stage's folder itself."""
    attempts = sorted(measured_on(folder, below=False).items(), key=lambda item: int(item[0].partition("~")[2] or 0))
    return {name.partition("~")[0]: gpu for name, gpu in attempts}


def _throttled(facts: Iterable[Fact], shapes: Mapping[str, str]) -> dict[str, list[str]]:
    """GPU → the shapes that were timed while it was throttled by its cooling or its power supply."""
    throttled: dict[str, list[str]] = {}
    for fact in facts:
        if fact.name == "throttle" and reference.UNWELL & set(str(fact.value).split(", ")):
            shape = fact.subject.shape or ""
            if (gpu := shapes.get(shape)) and shape not in throttled.setdefault(gpu, []):
                throttled[gpu].append(shape)
    return throttled


def used(places: Sequence[Place], folder: Path, measured: Measured) -> tuple[SharingGpu, ...]:
    """The record's entry for each GPU of a run, from the files in its folder."""
    where = {stage: measured_on(folder / stage) for stage in dict.fromkeys(o.stage for o in measured.outcomes)}
    if "bench" in where:
        where["bench"] = _shapes(folder / "bench") | _shapes(folder / "bench" / _AGAIN)
    references = reference.recorded(folder / "bench" / _REFERENCE)
    unfit, lost = reference.unfit(references), lost_in(folder)
    moved = set(_shapes(folder / "bench" / _AGAIN))
    hosts = {p.gpu: p.host for p in places}
    for gpu in (gpu for on in where.values() for gpu in on.values()):
        hosts.setdefault(gpu, None)  # it is no longer there, or the run was resumed without it
    entries = []
    for gpu, host in hosts.items():
        cases: dict[str, tuple[str, ...]] = {}
        for stage, on in where.items():
            ran = (o for o in measured.outcomes if o.stage == stage and o.status in ("ok", "failed"))
            cases[stage] = tuple(o.case for o in ran if on.get(o.shape if stage == "bench" else o.case) == gpu)
        timed = set(cases.get("bench", ()))
        state = [f for f in measured.facts if f.name in _STATE and f.subject.case in timed and f.value is not None]
        clocks = [f.number for f in state if f.name == "bench_sm_clock" and f.number is not None]
        degrees = [f.number for f in state if f.name == "bench_temperature" and f.number is not None]
        reasons = {r for f in state if f.name == "throttle" for r in str(f.value).split(", ")} - {"none"}
        gone = sorted(s for s in moved if _shapes(folder / "bench").get(s) == gpu)
        remarks = [
            unfit.get(gpu, ""),
            f"lost: {lost[gpu]}" if gpu in lost else "",
            f"throttled: timed again elsewhere: {', '.join(gone)}" if gone else "",
        ]
        timed_reference = references.get(gpu)
        entries.append(
            SharingGpu(
                uuid=gpu,
                host=host,
                spread=timed_reference.spread if timed_reference and not timed_reference.failed else None,
                reference=timed_reference.times if timed_reference else {},
                sm_clock_mhz=statistics.median(clocks) if clocks else None,
                temperature=max(degrees, default=None),
                throttle=tuple(sorted(reasons)),
                cases=cases,
                remark="; ".join(filter(None, remarks)),
            )
        )
    return tuple(entries)
