"""What is known of a job's variants without a GPU: builds, launch plans, static facts.

Where there is a GPU with work to do, its own arch is compiled first, and the others while it works.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

from flashcore.errors import FlashcoreError
from flashcore.measure.build import build, launch_plan
from flashcore.measure.machine import toolchain
from flashcore.measure.static import facts as static_facts
from flashcore.model.progress import Failure, prefixed
from flashcore.model.record import Artifact, Built, Fact, Plan, StageNote, Subject
from flashcore.model.suite import Shape, Suite
from flashcore.pipeline.languages import by_language, language, recorder
from flashcore.pipeline.state import Job


def compile_all(job: Job, say: Callable[[str], None]) -> Built:
    """Build, plans and static facts, for the variants chosen (in every shape that they support)."""
    return Compiling(job, say).finish()


class Compiling:
    """A build under way. :attr:`first` has what checking on this GPU needs; :meth:`finish` returns all of it.
    Used as a context, it stops compiling in the background if an exception leaves it.

    Args:
        ahead: compile for this machine's GPU first, and go on in the background.
    """

    def __init__(self, job: Job, say: Callable[[str], None], *, ahead: bool = False) -> None:
        self._job = job
        self._say = say
        self._started = time.monotonic()
        self._seconds = 0.0
        self._stopped = False
        self._rest: Future[list[Artifact]] | None = None
        self._whole: Built | None = None
        self._recorder = recorder(job.suite)
        count = sum(not v.is_reference for v in job.variants)
        say(f"build: {count} variants for {', '.join(job.archs)}")
        own = job.gpu_arch if ahead and not job.cannot_measure else None
        nvcc = toolchain.find_nvcc(Path(job.settings.build)).version if job.suite.uses_nvcc else ""
        artifacts = self._build((own,) if own else job.archs)
        self.first = Built(nvcc, tuple(artifacts), self._plans(artifacts))
        if own and len(job.archs) > 1:
            say(f"build: {own} in {self._seconds:.1f} s; the others meanwhile")
            pool = ThreadPoolExecutor(max_workers=1)
            self._rest = pool.submit(self._build, job.archs)
            pool.shutdown(wait=False)

    def finish(self) -> Built:
        """Waits for what is still being compiled; all builds, their plans and static facts."""
        if self._whole is None:
            built = self.first
            if self._rest is not None:
                # To the second build, objects compiled by the first are unchanged: they are reported as compiled.
                own = {(a.variant, a.arch): a for a in built.artifacts}
                artifacts = [own.get((a.variant, a.arch), a) for a in self._rest.result()]
                built = Built(built.nvcc, tuple(artifacts), self._plans(artifacts))
            self._whole = _described(built, self._job, self._seconds, self._say)
        return self._whole

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped = kind is not None  # its result is no longer needed

    def _build(self, archs: tuple[str, ...]) -> list[Artifact]:
        job = self._job
        artifacts = build.build(
            job.suite,
            Path(job.settings.build),
            dataclasses.replace(job.options, archs=archs),
            variants=job.variants,
            gpu_arch=job.gpu_arch,
            say=self._tell,
        )
        for module, variants in by_language(job.variants):
            artifacts += module.build(job.suite, Path(job.settings.build), archs, variants)
        self._seconds = time.monotonic() - self._started  # without the time spent waiting for it
        return artifacts

    def _tell(self, text: str) -> None:
        if self._stopped:
            raise FlashcoreError("the build was stopped")  # at ninja's next output; ends ninja and its compilers
        self._say(prefixed("build: ", text))

    def _plans(self, artifacts: Sequence[Artifact]) -> tuple[Plan, ...]:
        suite = self._job.suite
        shapes = list(suite.shapes.values())
        # A compiler may give a kernel other shared memory on another arch: a plan is of the GPU's arch, or of the last.
        own = {a.variant: a for a in sorted(artifacts, key=lambda a: a.arch == self._job.gpu_arch) if a.cubins}
        own_plans = (p for a in own.values() for p in _plans_of(a, suite, shapes))
        return (*launch_plan.plans(suite, artifacts, shapes, self._recorder), *own_plans)


def _plans_of(artifact: Artifact, suite: Suite, shapes: Iterable[Shape], *, possible: bool = False) -> list[Plan]:
    """The plans that a language made while it compiled; none of a CUDA file."""
    module = language(suite.variants[artifact.variant]) if artifact.cubins else None
    return module.plans(artifact, shapes, possible=possible) if module else []


def _described(built: Built, job: Job, seconds: float, say: Callable[[str], None]) -> Built:
    """With the static facts, and the hash of the code in each artifact; reports the outcome of the build."""
    failed = [a for a in built.artifacts if a.status == "failed"]
    crashed = [p for p in built.plans if p.crashed]
    alike: dict[tuple[str, str], list[str]] = {}  # most mistakes are the same on every arch
    for artifact in failed:
        alike.setdefault((artifact.variant, artifact.message), []).append(artifact.arch)
    for (variant, message), archs in alike.items():
        say(Failure(f"build: {variant} for {', '.join(archs)} FAILED\n{message}"))
    for plan in crashed:
        say(Failure(f"build: {plan.variant} on {plan.shape} FAILED: {plan.error}"))
    artifacts: list[Artifact] = []
    facts: list[Fact] = []
    for artifact in built.artifacts:
        found, code = static_facts.facts(artifact, Path(job.suite.root))
        artifacts.append(dataclasses.replace(artifact, code=code))
        facts += found
        if artifact.status == "ok":
            sms = job.gpu.sms if job.gpu and artifact.arch == job.gpu_arch else None
            plans = _plans_of(artifact, job.suite, job.suite.shapes.values(), possible=True) or built.plans
            facts += _plan_facts(artifact, (p for p in plans if p.variant == artifact.variant), found, sms)
    cached = sum(a.cached for a in artifacts)
    compiled = sum(a.status == "ok" for a in artifacts) - cached
    say(f"build: {compiled} compiled, {cached} unchanged, {len(failed)} failed in {seconds:.1f} s")
    reasons = [f"{len(failed)} of {len(artifacts)} did not compile"] if failed else []
    reasons += [f"{len(crashed)} launch plans crashed"] if crashed else []
    note = StageNote("build", "failed" if reasons else "ok", round(seconds, 3), ", ".join(reasons))
    return Built(built.nvcc, tuple(artifacts), built.plans, tuple(facts), (note,))


def _plan_facts(artifact: Artifact, plans: Iterable[Plan], own: Iterable[Fact], sms: int | None) -> list[Fact]:
    by_subject: dict[Subject, dict[str, Fact]] = {}
    for fact in own:
        by_subject.setdefault(fact.subject, {})[fact.name] = fact
    return [f for plan in plans for f in static_facts.plan_facts(artifact, plan, by_subject, sms)]
