"""The straight line: suite → build → check → bench → profile → record.

What needs a GPU is left out on a machine without one, and joined from a recorded run where that is still fresh.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from flashcore.measure import gpu_stages
from flashcore.measure.check.recorded import known_right
from flashcore.measure.compiling import Compiling
from flashcore.measure.context import Context, Say
from flashcore.measure.formulas import formula_facts
from flashcore.measure.settings import Settings
from flashcore.model.files import PARTIAL
from flashcore.model.record import Record
from flashcore.pipeline import resume as resuming
from flashcore.pipeline import roofs
from flashcore.pipeline.kinds import each_kind
from flashcore.pipeline.opening import open_recordable
from flashcore.pipeline.recording import Outcome, joined, recorded_before
from flashcore.records import lookup, raw, store
from flashcore.suites.load import load


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded run, and what the user chose when it began, which may differ from the choice that resumes it."""

    record: Record
    folder: Path
    settings: Settings


def runs(settings: Settings, say: Say, *, resume: bool = False, needed: bool = False) -> list[Run]:
    """A run for each kind of GPU that the user asks for, the first one's first.

    Args:
        resume: go on with the newest run of this suite that did not end. If its command records several and the GPUs
            are not chosen anew, those that ended are read, and those that were not begun are recorded.
        needed: whether it makes no sense without a GPU.

    Raises:
        FlashcoreError: see :func:`run`; what ended before is recorded.
    """
    if resume:
        return _continued(settings, say, needed=needed)
    each = each_kind(settings, say)
    if len(each) > 1:
        recording, kinds = store.new_id(), tuple(one.gpus for one in each)
        each = [replace(one, recording=recording, kinds=kinds) for one in each]
    contexts = [open_recordable(one, say, needs_gpu=needed) for one in each]
    return [run(context) for context in contexts]


def _continued(settings: Settings, say: Say, *, needed: bool) -> list[Run]:
    folder, began = resuming.unfinished(settings)
    several = began.gpus in began.kinds
    rest = began.kinds[began.kinds.index(began.gpus) + 1 :] if several else ()
    results: list[Run] = []
    resumed = began
    if settings.chooses_gpus:  # one that it began on may no longer be there
        resumed = replace(began, gpus=settings.gpus, executor=settings.executor)
        if rest:
            say(f"resume: only the run that did not end; not begun: {'; '.join(f'--gpus {gpus}' for gpus in rest)}")
            rest = ()
    elif several:
        ended = lookup.recorded_with(Path(began.profiles), load(began.suite).name, {began.recording})
        results = [Run(store.read(path), Path(str(path)), began) for path, _ in reversed(ended)]
        for one in results:
            say(f"resume: {one.record.id} on {one.record.gpu} had ended")
    say(f"resume: {folder.name.removesuffix(PARTIAL)}, begun as: {began.command}")
    results.append(run(open_recordable(resumed, say, needs_gpu=needed), folder))
    for gpus in rest:
        say(f"resume: --gpus {gpus}: a run of its own, which had not begun")
        results.append(run(open_recordable(replace(began, gpus=gpus), say)))
    return results


def run(context: Context, resumed: Path | None = None) -> Run:
    """Everything up to the stage asked for, recorded.

    Args:
        resumed: the folder of a run that did not end; go on with it.

    Raises:
        FlashcoreError: see the stages; what was measured until then stays in ``<id>.partial``.
    """
    return _Line(context, resumed).run()


@dataclass(slots=True)
class _Line:
    """One run."""

    context: Context
    resumed: Path | None

    def run(self) -> Run:
        """Measures and records, from top to bottom."""
        formulas = formula_facts(self.context)
        folder = self.resumed or store.begin(Path(self.context.settings.profiles), store.new_id())
        run_id = folder.name.removesuffix(PARTIAL)
        context = self.context = replace(self.context, folder=folder)
        with store.claimed(folder), context.workers:
            gpu_stages.prepare(context)
            with self._compiled() as compiling:
                recorded = recorded_before(context, run_id)
                trusted = known_right(context, compiling.first, recorded)
                measured = gpu_stages.measure(context, compiling, trusted)
                built = compiling.finish()
                measured, ceilings = roofs.with_roofs(context, measured, lambda other: run(other).record)
                record = joined(context, run_id, Outcome(formulas, built, measured, ceilings), recorded)
                raw.keep(folder, built.artifacts)
                store.write(record, folder)
                resuming.forget(folder)
                final = store.complete(folder)
        context.say(f"record: {final}")
        return Run(record, final, context.settings)

    @contextlib.contextmanager
    def _compiled(self) -> Iterator[Compiling]:
        """The build of a run, whose folder holds what it began with from then on. Of a run that cannot even be built
        nothing is left."""
        context = self.context
        try:
            compiling = Compiling(context, ahead=context.settings.upto is not None)
            if self.resumed:
                resuming.require_same(self.resumed, compiling.first.closures)
            else:
                resuming.remember(context.folder, context.settings, compiling.first.closures)
        except BaseException:
            if not self.resumed:
                shutil.rmtree(context.folder, ignore_errors=True)
            raise
        with compiling:
            yield compiling


def measure_roofs(settings: Settings, say: Say, *, fresh: bool = False) -> roofs.Ceilings:
    """The roofs of this machine; see :func:`flashcore.pipeline.roofs.measure_roofs`."""
    return roofs.measure_roofs(settings, say, lambda other: run(other).record, fresh=fresh)
