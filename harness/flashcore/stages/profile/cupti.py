"""The facts of the counters that CUPTI reads in the process that has the GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from flashcore.errors import CapabilityError
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS
from flashcore.model.causes import NOT_PROFILED, UNANSWERED
from flashcore.model.record import CaseOutcome, CaseSubject, Fact, Plan, Source, StageResult, outcome_of
from flashcore.readers.ncu.results import Metric, Result
from flashcore.runner.journal import Task
from flashcore.runner.kernel_call import KernelCall
from flashcore.runner.process import Program
from flashcore.stages.context import Context
from flashcore.stages.profile import code, cupti_child, ncu_facts
from flashcore.stages.profile.profile import required_chip

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
    chip, build_of = required_chip(context.gpu.capability), code.builds(context)
    metrics = ncu_facts.metrics_to_request(chip)
    tasks: list[Task] = []
    plans: dict[Case, Plan] = {}
    for call, build in zip(cases, builds, strict=True):
        plan = build_of(call.case).plan
        if plan is None or not plan.launches:
            raise CapabilityError(f"{call.name}: no launch plan", "ncu names the kernels")
        plans[call.case] = plan
        task = build.task(context.device, metrics=metrics, kernels=len(plan.launches))
        tasks.append(replace(task, name=call.name))
    facts: list[Fact] = []
    outcomes: list[CaseOutcome] = []
    by_name = {case.name: case.case for case in cases}
    limits = context.limits(context.settings.profile.limits)
    program = Program(command=context.resident or cupti_child.TARGET, limits=limits)
    for result in context.workers.run(tasks, program, context.folder / "counters"):
        case, data = by_name[result.name], result.data or {}
        if "lacks" in data:
            raise CapabilityError(*data["lacks"])
        if result.status != "ok":
            cause = result.cause or UNANSWERED()
            facts += ncu_facts.unmeasured(case, NOT_PROFILED(cause))
            outcomes.append(outcome_of(case, "profile", cause, result.seconds))
            continue
        plan, counts = plans[case], data["launches"]
        if len(plan.launches) != len(counts):
            what = f"{result.name}: {len(counts)} kernels, {len(plan.launches)} in its plan"
            raise CapabilityError(what, "ncu names the kernels")
        launches = [
            Result(number, launch.kernel, "kernel", launch.grid, launch.block, context.gpu.capability, {})
            for number, launch in enumerate(plan.launches)
        ]
        built = replace(build_of(case), is_linked=False)  # all that was counted is of the plan
        facts += facts_of(case, rows_of(launches, counts, chip), chip, data["refused"], built)
        outcomes.append(outcome_of(case, "profile", None, result.seconds))
    return StageResult(tuple(facts), tuple(outcomes))


def rows_of(launches: Sequence[Result], counts: Sequence[dict[str, float]], chip: str) -> list[Result]:
    """The launches of a call with the metrics that CUPTI counted of each, in ncu's units, besides those they have, and
    their sizes."""
    units = {
        name: _UNITS[spec.unit] for spec in FACTS.values() if (name := spec.ncu_name(chip)) and spec.unit in _UNITS
    }
    rows = []
    for launch, counted in zip(launches, counts, strict=True):
        sizes = {"launch__grid_size": math.prod(launch.grid), "launch__block_size": math.prod(launch.block)}
        metrics = {name: Metric(value, units.get(name, "")) for name, value in (sizes | counted).items()}
        rows.append(replace(launch, metrics={**launch.metrics, **metrics}))
    return rows


def facts_of(
    case: Case,
    rows: Sequence[Result],
    chip: str,
    refused: Mapping[str, str],
    built: ncu_facts.CaseBuild | None = None,
) -> list[Fact]:
    """The facts of a case's launches, as of ncu's rows, with the source ``cupti``."""
    facts = ncu_facts.facts_of(
        CaseSubject(case), rows, chip=chip, refused=refused, built=built or ncu_facts.CaseBuild()
    )
    return [replace(fact, source=Source.CUPTI) for fact in facts]
