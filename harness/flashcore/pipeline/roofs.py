"""This machine's measured roofs, from recorded runs of the suite that measures them."""

from __future__ import annotations

from pathlib import Path

from flashcore.explain import measured_roofs
from flashcore.machine.gpu import Gpu, limits
from flashcore.model.record import Record
from flashcore.records import lookup
from flashcore.runner.problem_file import load_problem
from flashcore.suites.load import load

#: The run that measured the roofs, and the ceilings.
Ceilings = tuple[Record, list[measured_roofs.MeasuredRoof]]


def recorded(folder: str, profiles: Path, gpu: Gpu | None, uuid: str) -> Record | None:
    """The newest recorded run of the suite in ``folder`` on this GPU; on any, if there is none here."""
    runs = lookup.measured_runs(profiles, load(folder).name)
    return next((r for r in runs if gpu is None or _is_of(r, gpu, uuid)), None)


def _is_of(record: Record, gpu: Gpu, uuid: str) -> bool:
    """Whether a run was measured on the same GPU model, memory size, maximum clock and driver, with its present limits,
    and, if it records a UUID, on this GPU."""
    e = record.environment
    names = {e.gpu_uuid, *(g.uuid for g in record.gpus)} - {None}
    if uuid and names and uuid not in names:
        return False
    machine = (e.gpu, e.gpu_memory_bytes, e.gpu_sm_clock_mhz, e.driver, e.gpu_limits)
    return machine == (gpu.name, gpu.memory_bytes, gpu.max_sm_clock_mhz, gpu.driver, limits(uuid))


def ceilings(record: Record, folder: str) -> Ceilings:
    """The run with the ceilings that it measured."""
    amounts = {}
    for shape in record.suite.shapes.values():
        problem = load_problem(folder, record.suite.problems[shape.problem].file)
        if hasattr(problem, "ceiling"):
            amounts[shape.name] = problem.ceiling(dict(shape.params))
    return record, measured_roofs.measured(record, amounts)
