"""The GPU-free part of a run: builds, launch plans, static facts. It ends before anything runs on a GPU."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from flashcore.build import build, cached_objects, launch_plan, static_facts
from flashcore.build.languages import by_language, language, recorder
from flashcore.machine import toolchain
from flashcore.model.case import Case
from flashcore.model.cause import Cause
from flashcore.model.causes import BUILDS_FAILED, PLANS_FAILED
from flashcore.model.groups import grouped
from flashcore.model.progress import FailureLine, prefixed
from flashcore.model.record import Artifact, Built, Fact, Plan, StageNote, plans_for, unlaunched_of
from flashcore.model.suite import CudaSource
from flashcore.model.text import count
from flashcore.stages.context import Context


def compile_all(context: Context, formulas: Sequence[Fact] = ()) -> Built:
    """Builds, plans and static facts of the selected variants, for every arch and every shape that they support.

    With ``plans_only`` among its options, without static facts.

    Args:
        formulas: the problems' facts (:func:`flashcore.stages.formulas.formula_facts`), which a record and times need.
    """
    started = time.monotonic()
    suite, variants, folder, archs = context.suite, context.variants, context.build_folder, context.archs
    context.say(f"build: {count(sum(not v.is_reference for v in variants), 'variant')} for {', '.join(archs)}")
    artifacts = build.build(
        suite,
        folder,
        replace(context.options, archs=archs, reuse=context.settings.reuse),
        variants=variants,
        gpu_arch=context.gpu_arch,
        say=prefixed(context.say, "build: "),
    )
    for module, of_language in by_language(variants):
        artifacts += module.build(suite, folder, archs, of_language)
    nvcc = toolchain.find_nvcc(folder).version if suite.uses_nvcc else ""
    built = Built(nvcc, tuple(artifacts), _plans(context, artifacts), tuple(formulas))
    return built if context.options.plans_only else _described(built, context, time.monotonic() - started)


def _plans(context: Context, artifacts: Sequence[Artifact]) -> tuple[Plan, ...]:
    suite, shapes = context.suite, list(context.suite.shapes.values())
    plans = launch_plan.plans(suite, artifacts, shapes, recorder(suite))
    plans += (p for a in artifacts for p in _plans_of(context, a))
    # A plan that several archs share is recorded once.
    archs_of = grouped((replace(p, archs=()), arch) for p in plans for arch in p.archs)
    return tuple(replace(p, archs=tuple(archs)) for p, archs in archs_of.items())


def _plans_of(context: Context, artifact: Artifact, *, possible: bool = False) -> list[Plan]:
    """The plans that a language plugin made while compiling; none for a CUDA file."""
    suite = context.suite
    module = language(suite.variants[artifact.variant]) if artifact.cubins else None
    return module.plans(artifact, suite.shapes.values(), possible=possible) if module else []


def _described(built: Built, context: Context, seconds: float) -> Built:
    """Adds static facts, and the kernels that a variant does not launch; reports the build's outcome."""
    suite, planned = context.suite, grouped((p.variant, p) for p in built.plans)
    artifacts: list[Artifact] = []
    facts = [*built.facts]
    for artifact in built.artifacts:
        kernel_facts = static_facts.facts(artifact, Path(suite.root), suite)
        unlaunched = _unlaunched(context, built.plans, artifact, kernel_facts)
        artifacts.append(replace(artifact, unlaunched=unlaunched))
        kernel_facts = [fact for fact in kernel_facts if fact.subject.kernel not in unlaunched]
        facts += kernel_facts
        if artifact.status == "ok":
            sms = context.gpu.sms if context.gpu and artifact.arch == context.gpu_arch else None
            plans = _plans_of(context, artifact, possible=True) or planned.get(artifact.variant, [])
            facts += static_facts.plan_facts(artifact, plans_for(plans, artifact.arch).values(), kernel_facts, sms)
    note = _told(built, context, seconds)
    return replace(built, artifacts=tuple(artifacts), facts=tuple(facts), notes=(note,))


def _unlaunched(context: Context, plans: Sequence[Plan], artifact: Artifact, facts: Sequence[Fact]) -> tuple[str, ...]:
    suite, variant = context.suite, context.suite.variants[artifact.variant]
    plan_of = plans_for(plans, artifact.arch)
    needed = [plan_of.get(Case(variant.name, s.name)) for s in suite.shapes.values() if variant.runs_on(s)]
    unlaunched = unlaunched_of(needed, (fact.subject.kernel or "" for fact in facts))
    beyond = isinstance(variant.kind, CudaSource) and cached_objects.may_launch_more(artifact)
    return () if beyond else unlaunched


def _told(built: Built, context: Context, seconds: float) -> StageNote:
    """Reports what failed, and how much was compiled."""
    say = context.say
    failed = [a for a in built.artifacts if a.status == "failed"]
    unplanned = [p for p in built.plans if p.failed]
    # Most errors are the same on every arch, and in every variant of a file.
    for alike in grouped((a.message.partition("\n")[0], a) for a in failed).values():
        names, archs = (", ".join(dict.fromkeys(getattr(a, of) for a in alike)) for of in ("variant", "arch"))
        say(FailureLine(f"build: {names} for {archs} FAILED\n{alike[0].message}"))
    for same in grouped(((p.variant, p.error), p) for p in unplanned).values():
        names = ", ".join(dict.fromkeys(p.shape for p in same))
        archs = ", ".join(dict.fromkeys(arch for p in same for arch in p.archs))
        say(FailureLine(f"build: {same[0].variant} on {names} for {archs} FAILED: {same[0].error}"))
    cached = sum(a.cached for a in built.artifacts)
    compiled = sum(a.status == "ok" for a in built.artifacts) - cached
    unusable = f", {count(len(unplanned), 'launch plan')} failed" if unplanned else ""
    builds = f"{len(failed)} failed" if failed or not unplanned else ""
    say(f"build: {compiled} compiled, {cached} unchanged{builds and f', {builds}'}{unusable} in {seconds:.1f} s")
    cause: Cause | str = PLANS_FAILED(len(unplanned)) if unplanned else ""
    if failed:
        cause = BUILDS_FAILED(len(failed), len(built.artifacts), len(unplanned))
    return StageNote("build", "failed" if cause else "ok", round(seconds, 3), cause)
