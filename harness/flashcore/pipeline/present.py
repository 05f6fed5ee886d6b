"""The present sources' static facts, joined with measured ones that are still fresh; nothing is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flashcore.measure.compiling import compile_all
from flashcore.measure.context import Context, Say
from flashcore.measure.formulas import formula_facts
from flashcore.measure.settings import Settings
from flashcore.model.progress import prefixed
from flashcore.model.record import Built, Measured, Origin, Record
from flashcore.pipeline.opening import open_recordable
from flashcore.pipeline.recording import Outcome, joined, recorded_before
from flashcore.records import assemble, store


def present(settings: Settings, say: Say) -> Record:
    """The record of the present sources."""
    context = open_recordable(settings)
    context = replace(context, say=say)
    built = compile_all(context)
    return joined(
        context, store.new_id(), Outcome(formula_facts(context), built, Measured()), recorded_before(context, None)
    )


def each_present(settings: Settings, say: Say) -> list[Record]:
    """Like :func:`present`, but if one command recorded runs on several GPU models, one record for each of them whose
    arch is selected."""
    context = replace(open_recordable(settings), say=say)
    built, run_id = compile_all(context), store.new_id()
    gpu = context.gpu.name if context.gpu else None
    first, *others = assemble.each_to_join(settings.places, context.suite.name, gpu) if settings.join else [[]]
    each = [first, *(recorded for recorded in others if recorded[0].gpu_arch in context.suite.archs)]
    if len(each) == 1:
        return [joined(context, run_id, Outcome(formula_facts(context), built, Measured()), first)]
    return [_of_gpu(recorded, context, run_id, built) for recorded in each]


def _of_gpu(recorded: Sequence[Record], context: Context, run_id: str, built: Built) -> Record:
    """The present sources, joined with the runs of one of several GPU models."""
    newest, say = recorded[0], context.say
    name = newest.gpu or ""
    if context.gpu is None or context.gpu.name != name:
        context = replace(context, gpu=None, gpu_arch=None)
    context = replace(context, say=lambda text: say(prefixed(f"{name}: ", text)))
    record = joined(context, run_id, Outcome(formula_facts(context), built, Measured()), recorded)
    if record.gpu is None:  # nothing is fresh, but the missing facts are still this GPU's
        record = replace(record, joined=(Origin(newest.id, name, newest.gpu_arch or "", "nothing"),))
    return record
