"""Makes the record of a run or of the present sources, joined with recorded results that are still fresh."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from flashcore.machine import toolchain
from flashcore.machine.environment import of_this_machine
from flashcore.model.progress import Say
from flashcore.model.record import Measured, Record, Roof
from flashcore.model.settings import Settings
from flashcore.model.text import count
from flashcore.pipeline.opening import open_recordable
from flashcore.records import assemble, store
from flashcore.stages.compiling import compile_all
from flashcore.stages.context import Context
from flashcore.stages.formulas import formula_facts


def recorded_before(context: Context, run_id: str | None) -> Iterator[Record]:
    """The recorded runs to join from, newest first: those before the run ``run_id``, or all."""
    settings, gpu = context.settings, context.gpu.name if context.gpu else None
    if settings.join:
        yield from assemble.to_join(settings.places, context.suite.name, gpu, before=run_id)


def joined(
    context: Context,
    run_id: str,
    measured: Measured,
    recorded: Iterable[Record],
    roofs: tuple[Roof, ...] | None = None,
) -> Record:
    """The record of a build and its measurements, joined with recorded runs; reports joined and stale results."""
    settings, suite, say = context.settings, context.suite, context.say
    nvcc = toolchain.find_nvcc(context.build_folder) if suite.uses_nvcc else None
    (uuid,) = context.workers.uuids if len(context.workers.uuids) == 1 else ("",)
    machine = of_this_machine(Path(suite.root), nvcc, context.gpu, context.gpu_arch, measured.ncu, uuid)
    named = {name for variant in suite.variants.values() if variant.is_reference for name in variant.packages}
    versions = {name: version for name in sorted(named) if (version := toolchain.version_of(name))}
    machine = replace(machine, libraries={**machine.libraries, **versions})
    findings = assemble.Findings(
        settings.command,
        suite,
        [(v, shape) for shape in context.shapes for v in context.variants if v.runs_on(shape)],
        machine,
        context.built,
        measured,
    )
    record = assemble.record_of(run_id, findings, recorded, roofs)
    if settings.records and not (record.joined or record.stale):
        say(f"join: no measured run of {suite.name} in {', '.join(map(str, settings.places))}")
    for origin in record.joined:
        say(f"join: {origin.what} from run {origin.run} on {origin.machine}")
    if record.stale:
        say(f"join: {count(len(record.stale), 'case')} stale or never measured: unmeasured")
    return record


def present_record(settings: Settings, say: Say) -> Record:
    """The record of the present sources, joined with measured facts that are still fresh; nothing is stored."""
    context = replace(open_recordable(settings), say=say)
    context = replace(context, built=compile_all(context, formula_facts(context)))
    return joined(context, store.new_id(), Measured(), recorded_before(context, None))
