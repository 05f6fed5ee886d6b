"""This machine's roofs: recorded by a run of the suite that measures them, or measured now by such a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from flashcore.explain import measured_roofs
from flashcore.machine.gpu import Gpu, limits
from flashcore.model.progress import Say, prefixed, silent
from flashcore.model.record import Measured, Record, Roof
from flashcore.model.settings import ALL, Bench, Check, Settings
from flashcore.pipeline.opening import executor_of, open_recordable
from flashcore.records import lookup
from flashcore.runner.problem_file import load_problem
from flashcore.stages.context import Context
from flashcore.suites.find import roofs_suite
from flashcore.suites.load import load

#: The run that measured the roofs, and the ceilings.
Ceilings = tuple[Record, list[measured_roofs.MeasuredRoof]]
#: Records a run: :func:`flashcore.pipeline.run.run`, which itself uses the roofs.
Run = Callable[[Context], Record]
#: Short, since each ceiling is one number; no opcheck, which `flashcore check` runs.
_CHECK = Check(repeats=3, opcheck=False, children=2)
_BENCH = Bench(samples=20, seconds=0.2, first=0, modes=("back_to_back", "eager"))


def with_roofs(context: Context, measured: Measured, run: Run) -> tuple[Measured, tuple[Roof, ...] | None]:
    """The measurements with each sharing GPU's measured roofs, and the first GPU's roofs (``None`` if the run does not
    profile)."""
    settings, say = context.settings, context.say
    if settings.upto != "profile" or context.cannot_measure or settings.roofs is None:
        return measured, None

    def of_gpu(of: Settings) -> tuple[Roof, ...]:
        record, found = measure_roofs(of, say, run)
        say(f"roofs: measured {record.created[:10]}, run {record.id}")
        return measured_roofs.ceilings(record, found)

    sharing = [g.uuid for g in measured.gpus if g.uuid in context.workers.uuids and any(g.cases.values())]
    each = {uuid: of_gpu(replace(settings, gpus=uuid)) for uuid in sharing}
    gpus = tuple(replace(g, roofs=each.get(g.uuid, ())) for g in measured.gpus)
    return replace(measured, gpus=gpus), next(iter(each.values())) if each else of_gpu(settings)


def measure_roofs(settings: Settings, say: Say, run: Run, *, fresh: bool = False) -> Ceilings:
    """This machine's roofs: recorded ones, or measured now.

    Args:
        settings: the settings of the run that uses the roofs; ``roofs`` names their suite.
        run: records the run that measures them.
        fresh: measure even if this machine's roofs are recorded.

    Raises:
        CapabilityError: there is no GPU.
    """
    folder = settings.roofs or str(roofs_suite())
    gpus, _ = executor_of(settings).places(settings.gpus, silent)
    uuid = next(iter(gpus), "")
    gpu = gpus.get(uuid) or Gpu.find()
    record = None if fresh else _recorded(folder, Path(settings.profiles), gpu, uuid)
    if record is None:
        chosen = Settings(
            suite=folder,
            profiles=settings.profiles,
            build=settings.build,
            archs=(arch,) if gpu and (arch := gpu.arch_of(load(folder).archs)) else (),  # for this GPU alone
            upto="bench",
            join=False,
            check=_CHECK,
            bench=_BENCH,
            gpus=uuid if len(gpus) > 1 or settings.gpus != ALL else ALL,  # one GPU's ceilings
            roofs=None,
            executor=settings.executor,
            command=settings.command,
        )
        context = open_recordable(chosen, prefixed(say, "roofs: "), needs_gpu=True)
        say("roofs: measuring this machine")
        record = run(context)
    return _ceilings(record, folder)


def _recorded(folder: str, profiles: Path, gpu: Gpu | None, uuid: str) -> Record | None:
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


def _ceilings(record: Record, folder: str) -> Ceilings:
    """The run with the ceilings that it measured."""
    amounts = {}
    for shape in record.suite.shapes.values():
        problem = load_problem(folder, record.suite.problems[shape.problem].file)
        if hasattr(problem, "ceiling"):
            amounts[shape.name] = problem.ceiling(dict(shape.params))
    return record, measured_roofs.measured(record, amounts)
