"""The main pipeline: suite → build → check → bench → profile → record.

On a machine without a GPU the GPU stages are skipped, and fresh results of recorded runs are joined. A run that
profiles uses this machine's roofs: recorded, or measured in a separate run. References can be checked on a CPU.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from flashcore.build.compiling import Compiling
from flashcore.errors import FlashcoreError, UsageError
from flashcore.explain import measured_roofs
from flashcore.measure import gpu_stages
from flashcore.measure.cases import child_cases
from flashcore.measure.check import check
from flashcore.measure.check.recorded import already_checked
from flashcore.measure.context import Context, Say, silent
from flashcore.measure.formulas import formula_facts
from flashcore.measure.machine import toolchain
from flashcore.measure.machine.capabilities import lacking
from flashcore.measure.machine.environment import of_this_machine
from flashcore.measure.machine.gpu import Gpu, limits
from flashcore.measure.machine.gpu_choice import ALL
from flashcore.measure.settings import Bench, Check, Settings
from flashcore.measure.workers.problem_file import load_problem
from flashcore.model.files import PARTIAL
from flashcore.model.progress import prefixed
from flashcore.model.record import Measured, Record, Roof, StageNote
from flashcore.pipeline import resume as resuming
from flashcore.pipeline.opening import executor_of, open_context, open_recordable
from flashcore.pipeline.recording import Outcome, joined, recorded_before
from flashcore.records import assemble, lookup, store
from flashcore.suites.find import roofs_suite
from flashcore.suites.load import load

#: The run that measured the roofs, and the ceilings.
Ceilings = tuple[Record, list[measured_roofs.Measured]]
#: The lower priority of a run's compilers: what is measured meanwhile would wait for a processor. Those of the roofs
#: have the usual one, since the run waits for them.
_NICE = 10
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
    context = replace(context, options=replace(context.options, nice=_NICE))
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
        gpu_stages.prepare(context, "check")
        with _roofs_ahead(context) as free_gpu, _compiled(context, resumed, free_gpu) as compiling:
            # Skip damaged runs, so that their cases are measured again.
            trusted = already_checked(
                context, compiling.first, filter(lookup.is_readable, recorded_before(context, run_id))
            )
            measured = gpu_stages.measure(context, compiling, trusted)
            built = compiling.finish()
            measured, ceilings = with_roofs(context, measured)
            record = joined(
                context, run_id, Outcome(formulas, built, measured, ceilings), recorded_before(context, run_id)
            )
            store.keep(folder, built.artifacts)
            store.write(record, folder)
            resuming.forget(folder)
            final = store.complete(folder)
    context.say(f"record: {final}")
    return Run(record, final, context.settings)


@contextlib.contextmanager
def _compiled(context: Context, resumed: Path | None, free_gpu: Callable[[], object]) -> Iterator[Compiling]:
    """A run's build for this machine's GPU, part of which is checked meanwhile. Stores the settings and source hashes
    in the run's folder; if a new run's build cannot start, removes the folder.

    Args:
        free_gpu: waits until nothing else uses the GPU.
    """
    gpu = context.gpu.name if context.gpu else "no GPU"
    with contextlib.ExitStack() as stack:
        try:
            compiling = stack.enter_context(Compiling(context, ahead=context.settings.upto is not None))
            free_gpu()
            gpu_stages.prepare(context, "bench", "profile")  # not before: importing slows the roofs' compilers
            if resumed:
                resuming.require_same(resumed, compiling.first.closures, gpu)
            else:
                if compiling.half:
                    gpu_stages.check_ahead(context, compiling.half)
                resuming.remember(context.folder, context.settings, compiling.first.closures, gpu)
        except BaseException:
            if not resumed:
                shutil.rmtree(context.folder, ignore_errors=True)
            raise
        yield compiling


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


def measure_roofs(settings: Settings, say: Say, *, fresh: bool = False, busy: bool = False) -> Ceilings:
    """This machine's roofs: recorded ones, or measured now.

    Args:
        settings: the settings of the run that uses the roofs; ``roofs`` names their suite.
        fresh: measure even if this machine's roofs are recorded.
        busy: compilers need the processors meanwhile, so the host's time for a launch is not measured: it was 24 to
            37 % longer, while the other roofs were within 2.4 % of an idle host's (H100, 16 processors).

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
            bench=replace(_BENCH, modes=("back_to_back",)) if busy else _BENCH,
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


@contextlib.contextmanager
def _roofs_ahead(context: Context) -> Iterator[Callable[[], object]]:
    """Measures the roofs that :func:`with_roofs` needs and no run has recorded, while this machine compiles. Yields a
    function that waits for them: nothing else may use the GPU meanwhile. If they cannot be measured,
    :func:`with_roofs` tries again, and raises."""
    settings, stopped = context.settings, threading.Event()
    needed = settings.upto == "profile" and settings.roofs is not None and not settings.executor

    def say(text: str) -> None:
        if stopped.is_set():
            raise FlashcoreError("the run was stopped")  # at the next message; ends the processes
        context.say(text)

    uuids = context.workers.uuids
    each = [replace(settings, gpus=uuid) for uuid in uuids] if len(uuids) > 1 else [settings]
    with ThreadPoolExecutor(len(each)) as threads:
        wanted = each if needed and not context.cannot_measure else []
        measuring = [threads.submit(measure_roofs, of, say, busy=True) for of in wanted]
        try:
            yield lambda: wait(measuring)
        except BaseException:
            stopped.set()
            raise


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
