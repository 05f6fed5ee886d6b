"""The main pipeline: suite → build → check → bench → profile → record.

On a machine without a GPU the GPU stages are skipped, and fresh results of recorded runs are joined. A run that
profiles uses this machine's roofs: recorded, or measured in a separate run. References can be checked on a CPU.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from flashcore.errors import UsageError
from flashcore.explain import measured_roofs
from flashcore.machine import toolchain
from flashcore.machine.capabilities import lacking
from flashcore.machine.environment import of_this_machine
from flashcore.machine.gpu import Gpu, limits
from flashcore.machine.gpu_choice import ALL
from flashcore.model.files import PARTIAL
from flashcore.model.progress import prefixed
from flashcore.model.record import Measured, Record, Roof, StageNote
from flashcore.pipeline import resume as resuming
from flashcore.pipeline.opening import executor_of, open_context, open_recordable
from flashcore.pipeline.recording import Outcome, joined, recorded_before
from flashcore.records import assemble, lookup, store
from flashcore.runner.problem_file import load_problem
from flashcore.stages import gpu_stages
from flashcore.stages.cases import child_cases
from flashcore.stages.check import check
from flashcore.stages.check.recorded import already_checked
from flashcore.stages.compiling import compile_all
from flashcore.stages.context import Context, Say, silent
from flashcore.stages.formulas import formula_facts
from flashcore.stages.settings import Bench, Check, Settings
from flashcore.suites.find import roofs_suite
from flashcore.suites.load import load

#: The run that measured the roofs, and the ceilings.
Ceilings = tuple[Record, list[measured_roofs.Measured]]
#: Short, since each ceiling is one number; no opcheck, which `flashcore check` runs.
_CHECK = Check(repeats=3, opcheck=False, lanes=2)
_BENCH = Bench(samples=20, seconds=0.2, first=0, modes=("back_to_back", "eager"))


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded run, with the settings it began with, which may differ from those of the command that resumed it."""

    record: Record
    folder: Path
    settings: Settings


@runtime_checkable
class Elsewhere(Protocol):
    """An executor that records whole runs, including builds."""

    def record_run(self, settings: Settings, say: Say, *, resume: bool = False, needed: bool = False) -> Run:
        """See :func:`record_run`. The run's folder is on this machine."""
        ...


def record_run(
    settings: Settings,
    say: Say,
    *,
    resume: bool = False,
    needed: bool = False,
    changed: Callable[[Context], Context] | None = None,
) -> Run:
    """Records a run.

    Args:
        resume: continue the newest unfinished run of this suite; see :func:`flashcore.pipeline.resume.unfinished`.
        needed: whether the run requires a GPU.
        changed: makes an opened context that of the run, which then is of this host.

    Raises:
        FlashcoreError: see :func:`run`.
    """
    executor = executor_of(settings)
    if isinstance(executor, Elsewhere) and not changed:
        return executor.record_run(settings, say, resume=resume, needed=needed)
    folder = None
    if resume:
        folder, settings = resuming.unfinished(settings, say)
    context = open_recordable(settings, say, needs_gpu=needed)
    return run(changed(context) if changed else context, folder)


def run(context: Context, resumed: Path | None = None) -> Run:
    """Runs all stages up to ``settings.upto`` and records the results.

    Args:
        resumed: the folder of an unfinished run to continue.

    Raises:
        FlashcoreError: see the stages; earlier results are kept in ``<id>.partial``.
    """
    formulas = formula_facts(context)
    folder = resumed or store.begin(Path(context.settings.profiles), store.new_id())
    run_id = folder.name.removesuffix(PARTIAL)
    context = replace(context, folder=folder)
    with store.claimed(folder), context.workers:
        context = _compiled(context, resumed)
        built = context.built
        # Skip damaged runs, so that their cases are measured again.
        trusted = already_checked(context, filter(lookup.is_readable, recorded_before(context, run_id)))
        measured, ceilings = with_roofs(context, gpu_stages.measure(context, trusted))
        record = joined(context, run_id, Outcome(formulas, built, measured, ceilings), recorded_before(context, run_id))
        store.keep(folder, built.artifacts)
        store.write(record, folder)
        resuming.forget(folder)
        final = store.complete(folder)
    context.say(f"record: {final}")
    return Run(record, final, context.settings)


def _compiled(context: Context, resumed: Path | None) -> Context:
    """The context with its build. Stores the settings and source hashes in the run's folder; if a new run cannot start,
    removes the folder."""
    gpu = context.gpu.name if context.gpu else "no GPU"
    try:
        gpu_stages.prepare(context)
        context = replace(context, built=compile_all(context))
        if resumed:
            resuming.require_same(resumed, context.built.closures, gpu)
        else:
            resuming.remember(context.folder, context.settings, context.built.closures, gpu)
    except BaseException:
        if not resumed:
            shutil.rmtree(context.folder, ignore_errors=True)
        raise
    return context


def check_references(settings: Settings, say: Say) -> Record:
    """Checks every reference variant, and with it the problem's inputs, answers and emulations. Writes no record.

    Raises:
        CapabilityError: torch is not installed.
        UsageError: no reference is selected.
    """
    if toolchain.torch_root() is None:
        raise lacking("torch")
    settings = replace(settings, check=replace(settings.check, opcheck=False))
    context = open_context(settings)
    pairs = [(variant, shape) for variant, shape in context.cases("check") if variant.is_reference]
    if not pairs:
        raise UsageError(
            f"{context.suite.root}: expected a reference to check on a CPU, found none: kernels run only on GPUs\n"
            "  hint: add a Python reference to the suite, such as torch's function"
        )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="flashcore-check-") as folder:
        context = replace(context, gpu=None, gpu_arch=None, device="cpu", folder=Path(folder), say=say)
        result = check.run(context, child_cases(context, pairs))
    note = StageNote("check", "ok", round(time.monotonic() - began, 3), "on a CPU, only references")
    environment = of_this_machine(Path(context.suite.root), None, None, None, None)
    findings = assemble.Findings(
        settings.command, context.suite, pairs, environment, (), context.built, Measured().plus(result, note)
    )
    return assemble.record_of(store.new_id(), findings, [])


# --- roofs --------------------------------------------------------------------------------------


def measure_roofs(settings: Settings, say: Say, *, fresh: bool = False) -> Ceilings:
    """This machine's roofs: recorded ones, or measured now.

    Args:
        settings: the settings of the run that uses the roofs; ``roofs`` names their suite.
        fresh: measure even if this machine's roofs are recorded.

    Raises:
        CapabilityError: there is no GPU.
    """
    folder = settings.roofs or str(roofs_suite())
    gpus, _ = executor_of(settings).places(settings.gpus, silent)
    uuid = next(iter(gpus), "")
    gpu = gpus.get(uuid) or Gpu.find()
    recorded = () if fresh else lookup.measured_runs(Path(settings.profiles), load(folder).name)
    record = next((r for r in recorded if gpu is None or _is_of(r, gpu, uuid)), None)
    if record is None:
        chosen = Settings(
            suite=folder,
            profiles=settings.profiles,
            build=settings.build,
            upto="bench",
            join=False,
            check=_CHECK,
            bench=_BENCH,
            gpus=uuid if len(gpus) > 1 or settings.gpus != ALL else ALL,  # one GPU's ceilings
            roofs=None,
            executor=settings.executor,
            command=settings.command,
        )
        context = open_recordable(chosen, lambda text: say(prefixed("roofs: ", text)), needs_gpu=True)
        say("roofs: measuring this machine")
        archs = (context.gpu_arch,) if context.gpu_arch else ()  # compiles for this GPU alone
        suite, options = replace(context.suite, archs=archs), replace(context.options, archs=archs)
        record = run(replace(context, suite=suite, options=options)).record
    return record, _ceilings(record, folder)


def _is_of(record: Record, gpu: Gpu, uuid: str) -> bool:
    """Whether a run was measured on the same GPU model, memory size, maximum clock and driver, with its present limits,
    and, if it records a UUID, on this GPU."""
    e = record.environment
    names = {e.gpu_uuid, *(g.uuid for g in record.gpus)} - {None}
    if uuid and names and uuid not in names:
        return False
    machine = (e.gpu, e.gpu_memory_bytes, e.gpu_sm_clock_mhz, e.driver, e.gpu_limits)
    return machine == (gpu.name, gpu.memory_bytes, gpu.max_sm_clock_mhz, gpu.driver, limits(uuid))


def _ceilings(record: Record, folder: str) -> list[measured_roofs.Measured]:
    amounts = {}
    for shape in record.suite.shapes.values():
        problem = load_problem(folder, record.suite.problems[shape.problem].file)
        if hasattr(problem, "ceiling"):
            amounts[shape.name] = problem.ceiling(dict(shape.params))
    return measured_roofs.measured(record, amounts)


def with_roofs(context: Context, measured: Measured) -> tuple[Measured, tuple[Roof, ...] | None]:
    """The measurements with each sharing GPU's measured roofs, and the first GPU's roofs (``None`` if the run does not
    profile)."""
    settings, say = context.settings, context.say
    if settings.upto != "profile" or context.cannot_measure or settings.roofs is None:
        return measured, None

    def roofs(of: Settings) -> tuple[Roof, ...]:
        record, ceilings = measure_roofs(of, say)
        say(f"roofs: measured {record.created[:10]}, run {record.id}")
        return measured_roofs.ceilings(record, ceilings)

    sharing = [g.uuid for g in measured.gpus if g.uuid in context.workers.uuids and any(g.cases.values())]
    each = {uuid: roofs(replace(settings, gpus=uuid)) for uuid in sharing}
    gpus = tuple(replace(g, roofs=each.get(g.uuid, ())) for g in measured.gpus)
    return replace(measured, gpus=gpus), next(iter(each.values())) if each else roofs(settings)
