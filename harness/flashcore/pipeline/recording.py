"""Makes the record of a run's build and measurements, joined with recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flashcore.explain import clocks
from flashcore.measure.context import Context
from flashcore.measure.machine import toolchain
from flashcore.measure.machine.environment import of_this_machine
from flashcore.model.record import Built, Fact, Measured, Record, Roof
from flashcore.records import assemble


def recorded_before(context: Context, run_id: str | None) -> list[Record]:
    """The recorded runs to join from: those before the run ``run_id``, or all."""
    settings, gpu = context.settings, context.gpu.name if context.gpu else None
    if not settings.join:
        return []
    return assemble.to_join(settings.places, context.suite.name, gpu, before=run_id)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run's build and measurements."""

    formulas: Sequence[Fact]
    built: Built
    measured: Measured
    roofs: tuple[Roof, ...] | None = None


def joined(context: Context, run_id: str, outcome: Outcome, recorded: Sequence[Record]) -> Record:
    """The record of an outcome, joined with recorded runs; reports joined and stale results."""
    settings, suite, say = context.settings, context.suite, context.say
    nvcc = toolchain.find_nvcc(context.build_folder) if suite.uses_nvcc else None
    (uuid,) = context.workers.uuids if len(context.workers.uuids) == 1 else ("",)
    machine = of_this_machine(Path(suite.root), nvcc, context.gpu, context.gpu_arch, outcome.measured.ncu, uuid)
    findings = assemble.Findings(
        settings.command,
        suite,
        [(v, shape) for shape in context.shapes for v in context.variants if v.runs_on(shape)],
        machine,
        outcome.formulas,
        outcome.built,
        outcome.measured,
        settings.recording,
    )
    record = clocks.agreed(assemble.record_of(run_id, findings, recorded, outcome.roofs))
    if settings.records and not recorded:
        say(f"join: no measured run of {suite.name} in {', '.join(map(str, settings.places))}")
    for origin in record.joined:
        say(f"join: {origin.what} from run {origin.run} on {origin.machine}")
    if record.stale:
        say(f"join: {len(record.stale)} cases are stale or were never measured; they count as unmeasured")
    return record
