"""What needs no GPU: builds, launch plans, static facts.

Where there is a GPU with work to do, its own arch is compiled first, and the others while it works.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from flashcore.errors import FlashcoreError
from flashcore.measure.build import build, launch_plan
from flashcore.measure.context import Context
from flashcore.measure.languages import by_language, language, recorder
from flashcore.measure.machine import toolchain
from flashcore.measure.static import facts as static_facts
from flashcore.model.causes import BuildsFailed, Hang
from flashcore.model.groups import grouped
from flashcore.model.progress import Failure, prefixed
from flashcore.model.record import Artifact, Built, Fact, Plan, StageNote, plans_for
from flashcore.model.suite import Shape, Suite

if TYPE_CHECKING:
    from concurrent.futures import Future


def compile_all(context: Context) -> Built:
    """Build, plans and static facts, for the selected variants (in every shape that they support)."""
    return Compiling(context).finish()


class Compiling:
    """A build under way. :attr:`first` has what checking on this GPU needs; :meth:`finish` returns all of it.
    Used as a context, it stops compiling in the background if an exception leaves it.

    Args:
        ahead: compile for this machine's GPU first, and go on in the background.
    """

    def __init__(self, context: Context, *, ahead: bool = False) -> None:
        self._context = context
        self._started = time.monotonic()
        self._seconds = 0.0
        self._stopped = False
        self._rest: Future[list[Artifact]] | None = None
        self._result: Built | None = None
        self._recorder = recorder(context.suite)
        count = sum(not v.is_reference for v in context.variants)
        context.say(f"build: {count} variants for {', '.join(context.archs)}")
        first = context.gpu_arch if ahead and not context.cannot_measure else None
        nvcc = toolchain.find_nvcc(context.build_folder).version if context.suite.uses_nvcc else ""
        self.first = Built(nvcc, (), ())
        artifacts = self._build((first,) if first else context.archs)
        self.first = Built(nvcc, tuple(artifacts), self._plans(artifacts))
        if first and len(context.archs) > 1:
            context.say(f"build: {first} in {self._seconds:.1f} s; the others meanwhile")
            from concurrent.futures import ThreadPoolExecutor  # a fiftieth of a build that has nothing to do

            thread = ThreadPoolExecutor(max_workers=1)
            self._rest = thread.submit(self._build, context.archs)
            thread.shutdown(wait=False)

    def finish(self) -> Built:
        """Waits for what is still being compiled; all builds, their plans and static facts."""
        if self._result is None:
            built = self.first
            if self._rest is not None:
                # To the second build, objects compiled by the first are unchanged: they are reported as compiled.
                before = {(a.variant, a.arch): a for a in built.artifacts}
                artifacts = [before.get((a.variant, a.arch), a) for a in self._rest.result()]
                built = Built(built.nvcc, tuple(artifacts), self._plans(artifacts))
            self._result = _described(built, self._context, self._seconds)
        return self._result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped = kind is not None  # its result is no longer needed

    def _build(self, archs: tuple[str, ...]) -> list[Artifact]:
        context = self._context
        artifacts = build.build(
            context.suite,
            context.build_folder,
            replace(context.options, archs=archs),
            variants=context.variants,
            gpu_arch=context.gpu_arch,
            reuse=context.settings.reuse,
            say=self._tell,
        )
        hung = {a.variant: a for a in self.first.artifacts if isinstance(a.cause, Hang)}  # not waited for again
        for module, variants in by_language(context.variants):
            rest = [v for v in variants if v.name not in hung]
            artifacts += module.build(context.suite, context.build_folder, archs, rest)
            again = ((hung[v.name], arch) for v in variants if v.name in hung for arch in v.where.archs)
            artifacts += [replace(a, arch=arch) for a, arch in again if arch in archs]
        self._seconds = time.monotonic() - self._started  # without the time spent waiting for it
        return artifacts

    def _tell(self, text: str) -> None:
        if self._stopped:
            raise FlashcoreError("the build was stopped")  # at ninja's next output; ends ninja and its compilers
        self._context.say(prefixed("build: ", text))

    def _plans(self, artifacts: Sequence[Artifact]) -> tuple[Plan, ...]:
        context = self._context
        shapes = list(context.suite.shapes.values())
        plans = launch_plan.plans(context.suite, artifacts, shapes, self._recorder)
        plans += (p for a in artifacts for p in _plans_of(a, context.suite, shapes))
        # One that is the same on several archs is recorded once.
        alike = grouped((replace(p, archs=()), arch) for p in plans for arch in p.archs)
        return tuple(replace(p, archs=tuple(archs)) for p, archs in alike.items())


def _plans_of(artifact: Artifact, suite: Suite, shapes: Iterable[Shape], *, possible: bool = False) -> list[Plan]:
    """The plans that a language made while it compiled; none of a CUDA file."""
    module = language(suite.variants[artifact.variant]) if artifact.cubins else None
    return module.plans(artifact, shapes, possible=possible) if module else []


def _described(built: Built, context: Context, seconds: float) -> Built:
    """With the static facts, and the hash of the code in each artifact; reports the outcome of the build."""
    say = context.say
    failed = [a for a in built.artifacts if a.status == "failed"]
    crashed = [p for p in built.plans if p.crashed]
    alike: dict[tuple[str, str], list[str]] = {}  # most mistakes are the same on every arch
    for artifact in failed:
        alike.setdefault((artifact.variant, artifact.message), []).append(artifact.arch)
    for (variant, message), archs in alike.items():
        say(Failure(f"build: {variant} for {', '.join(archs)} FAILED\n{message}"))
    for plan in crashed:
        say(Failure(f"build: {plan.variant} on {plan.shape} for {', '.join(plan.archs)} FAILED: {plan.error}"))
    artifacts: list[Artifact] = []
    facts: list[Fact] = []
    for artifact in built.artifacts:
        kernel_facts, code = static_facts.facts(artifact, Path(context.suite.root), context.suite)
        artifacts.append(replace(artifact, code=code))
        facts += kernel_facts
        if artifact.status == "ok":
            sms = context.gpu.sms if context.gpu and artifact.arch == context.gpu_arch else None
            plans = _plans_of(artifact, context.suite, context.suite.shapes.values(), possible=True) or built.plans
            of_variant = [p for p in plans_for(plans, artifact.arch).values() if p.variant == artifact.variant]
            facts += static_facts.plan_facts(artifact, of_variant, kernel_facts, sms)
    cached = sum(a.cached for a in artifacts)
    compiled = sum(a.status == "ok" for a in artifacts) - cached
    say(f"build: {compiled} compiled, {cached} unchanged, {len(failed)} failed in {seconds:.1f} s")
    cause = BuildsFailed(len(failed), len(artifacts), len(crashed)) if failed or crashed else ""
    note = StageNote("build", "failed" if cause else "ok", round(seconds, 3), cause)
    return Built(built.nvcc, tuple(artifacts), built.plans, tuple(facts), (note,))
