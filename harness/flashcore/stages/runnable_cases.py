"""Selects the cases that a stage can run, and describes each for the processes that run kernels."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from flashcore.model import plugin
from flashcore.model.case import Case
from flashcore.model.cause import Cause
from flashcore.model.causes import (
    FAILED_BEFORE,
    NOT_BUILT,
    NOT_INSTALLED,
    UNANSWERED,
    WRONG_BEFORE,
    DidNotCompile,
    HungBefore,
    MachineStopped,
    hangs,
)
from flashcore.model.record import Artifact, CaseOutcome, CaseStatus, Plan
from flashcore.model.suite import CompiledCallable, PythonCallable, Shape, Stage, Variant
from flashcore.runner.kernel_call import Compiled, KernelCall, Launched, Operator, Reference, Target
from flashcore.stages.context import Context

Pair = tuple[Variant, Shape]


def sort_out(
    context: Context, stage: Stage, before: Sequence[CaseOutcome]
) -> tuple[list[KernelCall], list[CaseOutcome]]:
    """The calls of the cases that a stage can run, and the outcomes of those that it cannot.

    Args:
        before: the outcomes of earlier stages.
    """
    failed = {o.case: o.cause or UNANSWERED() for o in before if o.status != "ok"}
    # A variant that is wrong or hangs on one shape is not run on any other.
    bad = [o for o in before if o.status == "failed" and (o.stage == "check" or hangs(o.cause))]
    wrong = {o.variant: o for o in reversed(bad)}
    ready: list[Pair] = []
    left_out: list[CaseOutcome] = []
    plans = context.plans

    def leave(variant: Variant, shape: Shape, status: CaseStatus, cause: Cause) -> None:
        left_out.append(CaseOutcome(variant.name, shape.name, stage, status, cause))

    for variant, shape in context.cases(stage):
        if (case := Case(variant.name, shape.name)) in failed:
            leave(variant, shape, "skipped", FAILED_BEFORE(failed[case]))
        elif first := wrong.get(variant.name):
            cause = first.cause or UNANSWERED()
            leave(variant, shape, "skipped", (HungBefore if hangs(cause) else WRONG_BEFORE)(first.shape, cause))
        elif obstacle := _obstacle(context, variant, plans.get(case)):
            leave(variant, shape, *obstacle)
        else:
            ready.append((variant, shape))
    return child_cases(context, ready), left_out


def _obstacle(context: Context, variant: Variant, plan: Plan | None) -> tuple[CaseStatus, Cause] | None:
    """The status and cause of a case that was not built, lacks a package, or whose launch plan refuses the shape."""
    if variant.is_reference:
        lacking = next((name for name in variant.packages if importlib.util.find_spec(name) is None), None)
        return ("unsupported", NOT_INSTALLED(lacking)) if lacking else None
    artifact = context.built.artifact(variant.name, context.gpu_arch)
    if artifact is None or artifact.status == "unsupported":
        return "unsupported", (artifact and artifact.cause) or NOT_BUILT(context.gpu_arch or "")
    if artifact.status == "failed":
        return "skipped", DidNotCompile(artifact.arch)
    if plan is None or plan.cause is None or plan.can_run:
        return None
    if isinstance(plan.cause, MachineStopped):
        return "skipped", plan.cause
    return "failed" if plan.failed else "unsupported", plan.cause


def _target(context: Context, variant: Variant, shape: Shape, artifact: Artifact | None, plan: Plan | None) -> Target:
    """What a child calls, by the variant's kind."""
    kind = variant.kind
    if isinstance(kind, PythonCallable):
        return Reference(kind.callable)
    if artifact is None:
        return Operator()
    if not isinstance(kind, CompiledCallable):
        library = None if context.device == "cpu" else str(Path(artifact.library or "").resolve())
        return Operator(library, artifact.host)
    language = plugin.find("languages", kind.language)
    calls = tuple(language.calls(artifact, shape.name))
    launcher = context.settings.launcher or language.launcher
    if launcher and plan and plan.launches:
        files = {kernel: str(Path(file).resolve()) for kernel, file in artifact.cubins.items()}
        return Launched(launcher, files, asdict(plan), calls)
    return Compiled(kind.callable, dict(plugin.entries("languages"))[kind.language], calls, dict(variant.config))


def child_cases(context: Context, pairs: Sequence[Pair]) -> list[KernelCall]:
    """The cases as the processes that run kernels receive them."""
    plans = context.plans
    flop = {f.subject.case: f.number for f in context.built.facts if f.name == "formula_flop"}
    cases = []
    for variant, shape in pairs:
        plan = plans.get(Case(variant.name, shape.name))
        case = KernelCall.of(
            context.suite,
            variant.problem,
            shape,
            variant=variant.name,
            target=_target(context, variant, shape, context.built.artifact(variant.name, context.gpu_arch), plan),
            tolerance=variant.tolerance,
            seeds=context.suite.problems[variant.problem].seeds,
            flop=flop.get(Case(variant.name, shape.name)),
            rank_by=shape.rank_by,
            repeats=0 if variant.is_reference else shape.repeats,
            launches=len(plan.launches) if plan else 0,
        )
        cases.append(case)
    return cases
