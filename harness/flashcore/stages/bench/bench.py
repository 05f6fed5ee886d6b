"""Bench: is it faster, and by how much? Times the cases and makes the record's entry for each GPU.

All cases of a shape run on one GPU (see :mod:`flashcore.runner.queue`), so no ratio compares two GPUs.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flashcore.model.case import Case
from flashcore.model.groups import grouped
from flashcore.model.record import Measured, SharingGpu, StageResult, throttle_reasons
from flashcore.runner.journal import lost_in, measured_on
from flashcore.runner.kernel_call import KernelCall
from flashcore.runner.process import Place
from flashcore.stages.bench import case_times
from flashcore.stages.context import Context


def prepare(context: Context) -> None:
    """Starts the first worker processes; see :class:`flashcore.stages.stage.StageModule`."""
    if context.cases("bench"):
        context.workers.prepare(case_times.program(context), context.folder / "bench")


def run(context: Context, cases: Sequence[KernelCall]) -> StageResult:
    """Times every case; see :class:`flashcore.stages.stage.StageModule`."""
    return case_times.run(context, cases, context.folder / "bench")


def _shapes(folder: Path) -> dict[str, str]:
    """Shape → the GPU of its last attempt, for tasks ``shape~attempt`` or ``variant/shape~attempt`` in ``folder``."""
    attempts = sorted(measured_on(folder).items(), key=lambda item: int(item[0].partition("~")[2] or 0))
    return {name.rpartition("/")[2].partition("~")[0]: gpu for name, gpu in attempts}


def used(places: Sequence[Place], folder: Path, measured: Measured) -> tuple[SharingGpu, ...]:
    """The record's entry for each GPU of a run, read from the files in the run's folder."""
    where = {stage: measured_on(folder / stage) for stage in dict.fromkeys(o.stage for o in measured.outcomes)}
    if "bench" in where:
        where["bench"] = _shapes(folder / "bench")
    lost = lost_in(folder)
    hosts = {p.gpu: p.host for p in places}
    for gpu in (gpu for on in where.values() for gpu in on.values()):
        hosts.setdefault(gpu, None)  # the GPU is gone, or the run was resumed without it
    entries = []
    for gpu, host in hosts.items():
        cases: dict[str, tuple[Case, ...]] = {}
        for stage, on in where.items():
            ran = (o for o in measured.outcomes if o.stage == stage and o.status in ("ok", "failed"))
            cases[stage] = tuple(o.case for o in ran if on.get(o.shape if stage == "bench" else str(o.case)) == gpu)
        facts = [f for f in measured.facts if f.subject.case in cases.get("bench", ()) and f.value is not None]
        state: dict[str, list[Any]] = grouped((f.name, f.value) for f in facts)
        reasons = throttle_reasons(f for f in facts if f.name == "throttle")
        clocks = state.get("bench_sm_clock")
        entries.append(
            SharingGpu(
                uuid=gpu,
                host=host,
                sm_clock_mhz=statistics.median(clocks) if clocks else None,
                temperature=max(state.get("bench_temperature", ()), default=None),
                throttle=tuple(sorted(reasons)),
                cases=cases,
                remark=f"lost: {lost[gpu]}" if gpu in lost else "",
            )
        )
    return tuple(entries)
