"""The main pipeline: suite → build → check → bench → profile → record.

On a machine without a GPU the GPU stages are skipped, and fresh results of recorded runs are joined.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from flashcore.measure import gpu_stages
from flashcore.measure.check.recorded import already_checked
from flashcore.measure.compiling import Compiling
from flashcore.measure.context import Context, Say
from flashcore.measure.formulas import formula_facts
from flashcore.measure.settings import Settings
from flashcore.model.files import PARTIAL
from flashcore.model.record import Record
from flashcore.pipeline import resume as resuming
from flashcore.pipeline import roofs
from flashcore.pipeline.kinds import each_kind
from flashcore.pipeline.opening import executor_of, open_recordable
from flashcore.pipeline.recording import Outcome, joined, recorded_before
from flashcore.records import lookup, store


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded run, with the settings it began with, which may differ from those of the command that resumed it."""

    record: Record
    folder: Path
    settings: Settings


@runtime_checkable
class Elsewhere(Protocol):
    """An executor that records whole runs, including builds."""

    def runs(self, settings: Settings, say: Say, *, resume: bool = False, needed: bool = False) -> list[Run]:
        """See :func:`runs`. The runs' folders are on this machine."""
        ...


def runs(settings: Settings, say: Say, *, resume: bool = False, needed: bool = False) -> list[Run]:
    """Records a run on each requested GPU model, in order.

    Args:
        resume: continue the newest unfinished run of this suite; see :func:`flashcore.pipeline.resume.unfinished`.
        needed: whether the run requires a GPU.

    Raises:
        FlashcoreError: see :func:`run`; runs completed before are recorded.
    """
    executor = executor_of(settings)
    if isinstance(executor, Elsewhere):
        return executor.runs(settings, say, resume=resume, needed=needed)
    if not resume:
        contexts = [open_recordable(one, say, needs_gpu=needed) for one in each_kind(settings, say)]
        return [run(context) for context in contexts]
    unfinished = resuming.unfinished(settings, say)
    results = [Run(store.read(path), Path(str(path)), unfinished.settings) for path in unfinished.ended]
    results.append(run(open_recordable(unfinished.settings, say, needs_gpu=needed), unfinished.folder))
    for one in unfinished.not_begun:
        say(f"resume: --gpus {one.gpus}: a separate run, which had not begun")
        results.append(run(open_recordable(one, say)))
    return results


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
        gpu_stages.prepare(context)
        with _compiled(context, resumed) as compiling:
            # Skip damaged runs before measuring, so that their cases are measured again.
            recorded = [*filter(lookup.is_readable, recorded_before(context, run_id))]
            trusted = already_checked(context, compiling.first, recorded)
            measured = gpu_stages.measure(context, compiling, trusted)
            built = compiling.finish()
            measured, ceilings = roofs.with_roofs(context, measured, _for_this_gpu)
            record = joined(context, run_id, Outcome(formulas, built, measured, ceilings), recorded)
            store.keep(folder, built.artifacts)
            store.write(record, folder)
            resuming.forget(folder)
            final = store.complete(folder)
    context.say(f"record: {final}")
    return Run(record, final, context.settings)


@contextlib.contextmanager
def _compiled(context: Context, resumed: Path | None) -> Iterator[Compiling]:
    """A run's build. Stores the settings and source hashes in the run's folder; if a new run's build cannot start,
    removes the folder."""
    try:
        compiling = Compiling(context, ahead=context.settings.upto is not None)
        if resumed:
            resuming.require_same(resumed, compiling.first.closures)
        else:
            resuming.remember(context.folder, context.settings, compiling.first.closures)
    except BaseException:
        if not resumed:
            shutil.rmtree(context.folder, ignore_errors=True)
        raise
    with compiling:
        yield compiling


def _for_this_gpu(context: Context) -> Record:
    """The record of a run that compiles for this machine's GPU alone."""
    archs = (context.gpu_arch,) if context.gpu_arch else ()
    suite, options = replace(context.suite, archs=archs), replace(context.options, archs=archs)
    return run(replace(context, suite=suite, options=options)).record


def measure_roofs(settings: Settings, say: Say, *, fresh: bool = False) -> roofs.Ceilings:
    """The roofs of this machine; see :func:`flashcore.pipeline.roofs.measure_roofs`."""
    return roofs.measure_roofs(settings, say, _for_this_gpu, fresh=fresh)
