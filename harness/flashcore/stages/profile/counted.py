"""The facts of the counters that CUPTI reads in the process that has the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flashcore.errors import CapabilityError
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS
from flashcore.model.causes import NOT_PROFILED, UNANSWERED
from flashcore.model.record import CaseOutcome, CaseSubject, Fact, Source, StageResult, plans_for
from flashcore.readers.ncu.results import Metric, Result
from flashcore.runner.journal import Task
from flashcore.runner.kernel_call import KernelCall
from flashcore.runner.process import Program
from flashcore.stages.context import Context
from flashcore.stages.profile import code, counters, ncu_facts
from flashcore.stages.profile.profile import chip_of

#: The catalogue's unit → ncu's name of the base unit, in which CUPTI's values are; counts have none.
_UNITS = {"ns": "ns", "B": "byte", "pct": "%", "Hz": "hz"}


def run(context: Context, cases: Sequence[KernelCall], builds: Sequence[KernelCall]) -> StageResult:
    """Counts every case, with the facts of :mod:`flashcore.stages.profile.ncu_facts` and the source ``cupti``.

    Args:
        builds: the cases with the names under which the process has loaded their libraries.

    Raises:
        CapabilityError: CUPTI cannot measure here, or a case launches other kernels than its plan.
    """
    assert context.gpu is not None
    chip, registers = chip_of(context.gpu.capability), code.registers(context)
    plans = plans_for(context.built.plans, context.gpu_arch)
    metrics = ncu_facts.metrics_to_request(chip)
    units = {
        name: _UNITS[spec.unit] for spec in FACTS.values() if (name := spec.ncu_name(chip)) and spec.unit in _UNITS
    }
    tasks = []
    for case, build in zip(cases, builds, strict=True):
        plan = plans.get((case.variant, case.shape))
        if plan is None or not plan.launches:
            raise CapabilityError(f"{case.name}: no launch plan", "ncu names the kernels")
        payload = {"case": build.to_json(), "device": context.device, "metrics": metrics, "kernels": len(plan.launches)}
        tasks.append(Task(case.name, payload))
    facts: list[Fact] = []
    outcomes: list[CaseOutcome] = []
    by_name = {case.name: case.case for case in cases}
    limits = context.limits(context.settings.profile.limits)
    program = Program(command=context.resident or counters.TARGET, limits=limits)
    for result in context.workers.run(tasks, program, context.folder / "counters"):
        done = by_name[result.name]
        variant, shape = done.variant, done.shape
        data = result.data or {}
        if "lacks" in data:
            raise CapabilityError(*data["lacks"])
        if result.status != "ok":
            cause = result.cause or UNANSWERED()
            facts += ncu_facts.unmeasured(variant, shape, NOT_PROFILED(cause))
            outcomes.append(CaseOutcome(variant, shape, "profile", result.status, cause, result.seconds))
            continue
        plan, counts = plans[variant, shape], data["launches"]
        if len(plan.launches) != len(counts):
            what = f"{result.name}: {len(counts)} kernels, {len(plan.launches)} in its plan"
            raise CapabilityError(what, "ncu names the kernels")
        rows = [
            Result(
                number, launch.kernel, "kernel", launch.grid, launch.block, context.gpu.capability,
                {name: Metric(value, units.get(name, "")) for name, value in counted.items()},
            )
            for number, (launch, counted) in enumerate(zip(plan.launches, counts, strict=True))
        ]  # fmt: skip
        built = ncu_facts.Built(plan, None, registers.get(variant, {}))
        subject = CaseSubject(Case(variant, shape))
        of_case = ncu_facts.facts_of(subject, rows, chip=chip, refused=data["refused"], built=built)
        facts += [replace(fact, source=Source.CUPTI) for fact in of_case]
        outcomes.append(CaseOutcome(variant, shape, "profile", "ok", None, result.seconds))
    return StageResult(tuple(facts), tuple(outcomes))
