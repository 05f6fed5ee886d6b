"""The main pipeline: suite → build → check → bench → profile → record.

On a machine without a GPU the GPU stages are skipped, and fresh results of recorded runs are joined. A run that
profiles uses this machine's roofs: recorded, or measured in a separate run.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from flashcore.model.files import PARTIAL
from flashcore.model.progress import Say
from flashcore.model.record import Fact, Record
from flashcore.model.settings import Settings
from flashcore.pipeline import resume as resuming
from flashcore.pipeline.make_record import joined, recorded_before
from flashcore.pipeline.measure_roofs import with_roofs
from flashcore.pipeline.opening import executor_of, open_recordable
from flashcore.records import store
from flashcore.stages import gpu_stages
from flashcore.stages.compiling import compile_all
from flashcore.stages.context import Context
from flashcore.stages.formulas import formula_facts


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A recorded run, with the settings it began with, which may differ from those of the command that resumed it."""

    record: Record
    folder: Path
    settings: Settings


@runtime_checkable
class Elsewhere(Protocol):
    """An executor that records whole runs, including builds."""

    def record_run(self, settings: Settings, say: Say, *, resume: bool, needed: bool) -> RecordedRun:
        """See :func:`record_run`. The run's folder is on this machine."""
        ...


def record_run(settings: Settings, say: Say, *, resume: bool = False, needed: bool = False) -> RecordedRun:
    """Records a run.

    Args:
        resume: continue the newest unfinished run of this suite; see :func:`flashcore.pipeline.resume.unfinished`.
        needed: whether the run requires a GPU.

    Raises:
        FlashcoreError: see :func:`run`.
    """
    executor = executor_of(settings)
    if isinstance(executor, Elsewhere):
        return executor.record_run(settings, say, resume=resume, needed=needed)
    folder = None
    if resume:
        folder, settings = resuming.unfinished(settings, say)
    return run(open_recordable(settings, say, needs_gpu=needed), folder)


def run(context: Context, resumed: Path | None = None) -> RecordedRun:
    """Runs all stages up to ``settings.upto`` and records the results.

    Args:
        resumed: the folder of an unfinished run to continue.

    Raises:
        FlashcoreError: see the stages; earlier results are kept in ``<id>.partial``.
    """
    formulas = formula_facts(context)  # before anything is stored: a problem may be wrong
    folder = resumed or store.begin(Path(context.settings.profiles), store.new_id())
    run_id = folder.name.removesuffix(PARTIAL)
    context = replace(context, folder=folder)
    with store.claimed(folder), context.workers:
        context = _compiled(context, formulas, resumed)
        measured, ceilings = with_roofs(context, gpu_stages.measure(context), lambda of_roofs: run(of_roofs).record)
        record = joined(context, run_id, measured, recorded_before(context, run_id), ceilings)
        store.keep(folder, context.built.artifacts)
        store.write(record, folder)
        resuming.forget(folder)
        final = store.complete(folder)
    context.say(f"record: {final}")
    return RecordedRun(record, final, context.settings)


def _compiled(context: Context, formulas: Sequence[Fact], resumed: Path | None) -> Context:
    """The context with its build. Stores the settings and source hashes in the run's folder; if a new run cannot start,
    removes the folder."""
    gpu = context.gpu.name if context.gpu else "no GPU"
    try:
        gpu_stages.prepare(context)
        context = replace(context, built=compile_all(context, formulas))
        if resumed:
            resuming.require_same(resumed, context.built.source_hashes, gpu)
        else:
            resuming.remember(context.folder, context.settings, context.built.source_hashes, gpu)
    except BaseException:
        if not resumed:
            shutil.rmtree(context.folder, ignore_errors=True)
        raise
    return context
