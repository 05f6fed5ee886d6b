"""The GPU-free part of a run: builds, launch plans, static facts.

If a GPU will measure, its arch is compiled first, problem by problem, and the other archs while the GPU works.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from flashcore.build import build, launch_plan, static_facts
from flashcore.build.languages import by_language, language, recorder
from flashcore.errors import FlashcoreError
from flashcore.measure.context import Context
from flashcore.measure.machine import toolchain
from flashcore.measure.workers.process import POLL
from flashcore.model import cause_text
from flashcore.model.causes import BuildsFailed, Hang
from flashcore.model.groups import grouped
from flashcore.model.progress import Failure, prefixed
from flashcore.model.record import Artifact, Built, Fact, Plan, StageNote, plans_for, unlaunched_of
from flashcore.model.suite import Cuda, ForeignLauncher, Shape, Suite, Variant

if TYPE_CHECKING:
    from concurrent.futures import Future


def compile_all(context: Context) -> Built:
    """Builds, plans and static facts of the selected variants, for every shape that they support."""
    return Compiling(context).finish()


class Compiling:
    """A build in progress. :attr:`first` is the part that checking on this GPU needs; :meth:`finish` returns all.

    As a context manager, it stops background compilation if an exception leaves the block.

    Args:
        ahead: compile in the background, for this machine's GPU first.
    """

    _rest: Future[Built] | None = None

    def __init__(self, context: Context, *, ahead: bool = False) -> None:
        self._context = context
        self._started = time.monotonic()
        self._seconds = 0.0
        self._stopped = False
        self._recorder = recorder(context.suite)
        self._early: set[str] = set()  # the variants of :attr:`half`
        self._ended: list[Artifact] = []
        context.say(
            f"build: {sum(not v.is_reference for v in context.variants)} variants for {', '.join(context.archs)}"
        )
        first = context.gpu_arch if ahead and not context.cannot_measure else None
        self._nvcc = toolchain.find_nvcc(context.build_folder).version if context.suite.uses_nvcc else ""
        if not first:
            self.first = self._built(context.archs)
            plans_only = context.options.plans_only
            self._result = self.first if plans_only else _described(self.first, context, self._seconds)
            return
        from concurrent.futures import ThreadPoolExecutor  # slow to import: 2 % of an up-to-date build

        part = of_first_problem(context.variants)
        if len(part) < len(context.variants):
            self._early = {v.name for v in part if isinstance(v.kind, Cuda) and first in v.where.archs}
        thread = ThreadPoolExecutor(max_workers=1)
        self._begun = thread.submit(self._built, (first,))
        self._rest = thread.submit(self._complete, first)
        thread.shutdown(wait=False)

    @cached_property
    def half(self) -> Built | None:
        """The first problem's part of :attr:`first`, as soon as it is compiled; ``None`` if no others compile then."""
        while self._early and not self._begun.done():
            artifacts = [a for a in self._ended if a.variant in self._early]
            if {a.variant for a in artifacts} == self._early:
                return Built(self._nvcc, tuple(artifacts), self._plans(artifacts))
            time.sleep(POLL)
        return None

    @cached_property
    def first(self) -> Built:
        """The artifacts that checking on this machine's GPU needs, and their plans."""
        return self._begun.result()

    def finish(self) -> Built:
        """Waits for background compilation; returns all builds, their plans and static facts."""
        return self._rest.result() if self._rest else self._result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped = kind is not None  # its result is no longer needed

    def _complete(self, arch: str) -> Built:
        built, context = self.first, self._context
        if len(context.archs) > 1:
            context.say(f"build: {arch} in {self._seconds:.1f} s; the other archs in the background")
            built = self._built(context.archs, built.artifacts)
        return _described(built, context, self._seconds)

    def _built(self, archs: tuple[str, ...], before: Sequence[Artifact] = ()) -> Built:
        context = self._context
        artifacts = build.build(
            context.suite,
            context.build_folder,
            replace(context.options, archs=archs),
            variants=context.variants,
            gpu_arch=context.gpu_arch,
            reuse=context.settings.reuse,
            say=self._tell,
            ended=self._ended.append,
        )
        hung = {a.variant: a for a in before if isinstance(a.cause, Hang)}  # not tried again
        for module, of_language in by_language(context.variants):
            rest = [v for v in of_language if v.name not in hung]
            artifacts += module.build(context.suite, context.build_folder, archs, rest)
            again = ((hung[v.name], arch) for v in of_language if v.name in hung for arch in v.where.archs)
            artifacts += [replace(a, arch=arch) for a, arch in again if arch in archs]
        self._seconds = time.monotonic() - self._started  # here, since the caller may wait longer for the result
        # This build reports an earlier one's objects as unchanged: keep "compiled".
        earlier = {(a.variant, a.arch): a for a in before}
        artifacts = [earlier.get((a.variant, a.arch), a) for a in artifacts]
        return Built(self._nvcc, tuple(artifacts), self._plans(artifacts))

    def _tell(self, text: str) -> None:
        if self._stopped:
            raise FlashcoreError("the build was stopped")  # at ninja's next output; ends ninja and its compilers
        self._context.say(prefixed("build: ", text))

    def _plans(self, artifacts: Sequence[Artifact]) -> tuple[Plan, ...]:
        context = self._context
        shapes = list(context.suite.shapes.values())
        plans = launch_plan.plans(context.suite, artifacts, shapes, self._recorder)
        plans += (p for a in artifacts for p in _plans_of(a, context.suite, shapes))
        # A plan that several archs share is recorded once.
        archs_of = grouped((replace(p, archs=()), arch) for p in plans for arch in p.archs)
        return tuple(replace(p, archs=tuple(archs)) for p, archs in archs_of.items())


def of_first_problem(variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """The variants of the first one's problem."""
    return tuple(v for v in variants if v.problem == variants[0].problem)


def _plans_of(artifact: Artifact, suite: Suite, shapes: Iterable[Shape], *, possible: bool = False) -> list[Plan]:
    """The plans that a language plugin made while compiling; none for a CUDA file."""
    module = language(suite.variants[artifact.variant]) if artifact.cubins else None
    return module.plans(artifact, shapes, possible=possible) if module else []


def _described(built: Built, context: Context, seconds: float) -> Built:
    """Adds static facts, and each artifact's code hash; reports the build's outcome."""
    say, suite = context.say, context.suite
    failed = [a for a in built.artifacts if a.status == "failed"]
    unplanned = [p for p in built.plans if p.failed]
    # Most errors are the same on every arch, and in every variant of a file.
    for alike in grouped((a.message.partition("\n")[0], a) for a in failed).values():
        names, archs = (", ".join(dict.fromkeys(getattr(a, of) for a in alike)) for of in ("variant", "arch"))
        say(Failure(f"build: {names} for {archs} FAILED\n{alike[0].message}"))
    for same in grouped(((p.variant, p.error), p) for p in unplanned).values():
        names = ", ".join(dict.fromkeys(p.shape for p in same))
        archs = ", ".join(dict.fromkeys(arch for p in same for arch in p.archs))
        say(Failure(f"build: {same[0].variant} on {names} for {archs} FAILED: {same[0].error}"))
    artifacts: list[Artifact] = []
    facts: list[Fact] = []
    planned = grouped((p.variant, p) for p in built.plans)
    for artifact in built.artifacts:
        kernel_facts, code = static_facts.facts(artifact, Path(suite.root), suite)
        plan_of, owner = plans_for(built.plans, artifact.arch), suite.variants[artifact.variant]
        needed = [plan_of.get((owner.name, s.name)) for s in suite.shapes.values() if owner.runs_on(s)]
        unlaunched = unlaunched_of(needed, (f.subject.kernel or "" for f in kernel_facts))
        if not isinstance(owner.kind, ForeignLauncher) and launch_plan.may_launch_more(artifact):
            unlaunched = ()  # any kernel may be launched
        artifacts.append(replace(artifact, code=code, unlaunched=unlaunched))
        kernel_facts = [fact for fact in kernel_facts if fact.subject.kernel not in unlaunched]
        facts += kernel_facts
        if artifact.status == "ok":
            sms = context.gpu.sms if context.gpu and artifact.arch == context.gpu_arch else None
            shapes = suite.shapes.values()
            plans = _plans_of(artifact, suite, shapes, possible=True) or planned.get(artifact.variant, [])
            facts += static_facts.plan_facts(artifact, plans_for(plans, artifact.arch).values(), kernel_facts, sms)
    cached = sum(a.cached for a in artifacts)
    compiled = sum(a.status == "ok" for a in artifacts) - cached
    unusable = f", {cause_text.count(len(unplanned), 'launch plan')} failed" if unplanned else ""
    builds = f"{len(failed)} failed" if failed or not unplanned else ""
    say(f"build: {compiled} compiled, {cached} unchanged{builds and f', {builds}'}{unusable} in {seconds:.1f} s")
    cause = BuildsFailed(len(failed), len(artifacts), len(unplanned)) if failed or unplanned else ""
    note = StageNote("build", "failed" if cause else "ok", round(seconds, 3), cause)
    return Built(built.nvcc, tuple(artifacts), built.plans, tuple(facts), (note,))
