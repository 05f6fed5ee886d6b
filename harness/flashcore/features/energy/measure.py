"""Measures the energy of the cases that bench timed."""

from __future__ import annotations

from collections.abc import Sequence

from flashcore.errors import CapabilityError
from flashcore.features.energy.child import TARGET
from flashcore.features.energy.facts import facts
from flashcore.model.cause import Cause
from flashcore.model.causes import INCAPABLE, UNANSWERED
from flashcore.model.record import Fact
from flashcore.runner.journal import TaskResult
from flashcore.runner.kernel_call import KernelCall
from flashcore.runner.process import Program
from flashcore.stages.context import Context


def measure(context: Context, cases: Sequence[KernelCall]) -> list[Fact]:
    """The facts of each case; can be resumed."""
    progress = context.progress("energy", len(cases))
    tasks = [case.task(context.device) for case in cases]
    of_case = {case.name: case for case in cases}

    def measured(result: TaskResult) -> list[Fact]:
        case = of_case[result.name]
        return list(facts(case.subject, case.flop, result.data or result.cause or UNANSWERED()))

    def tell(result: TaskResult) -> None:
        shown = {f.name: f for f in measured(result)}
        energy, power = shown["energy"], shown["power"]
        values = f"{energy.value:.4g} mJ, {power.value:.0f} W" if energy.value and power.value else energy.note
        progress(f"{result.name}: {values}")

    program = Program(command=TARGET, limits=context.settings.bench.limits)
    try:
        results = context.workers.run(tasks, program, context.folder / "energy", tell)
    except CapabilityError as error:
        cause: Cause = INCAPABLE(error.what, error.hint)
        return [fact for case in cases for fact in facts(case.subject, case.flop, cause)]
    return [fact for result in results for fact in measured(result)]
