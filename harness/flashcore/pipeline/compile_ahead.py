"""What is known of a line's variants without a GPU: builds, launch plans, static facts.

Where there is a GPU with work to do, its own arch is compiled first, and the others while it works.
"""

from __future__ import annotations

import dataclasses
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

from flashcore.build import build, launch_plan
from flashcore.errors import FlashcoreError
from flashcore.machine import toolchain
from flashcore.model.record import Artifact, Fact, Plan, StageNote, Subject
from flashcore.pipeline.state import Line
from flashcore.static import facts


def compile_all(line: Line) -> None:
    """Build, plans and static facts, for the variants chosen (in every shape that they support)."""
    Compiling(line).finish()


class Compiling:
    """A build under way. What checking on this GPU needs is in the line at once, the rest after :meth:`finish`.
    As a context it ends, with what it compiles in the background, where an exception leaves it.

    Args:
        ahead: compile for this machine's GPU first, and go on in the background.
    """

    def __init__(self, line: Line, *, ahead: bool = False) -> None:
        self._line = line
        self._started = time.monotonic()
        self._seconds = 0.0
        self._stopped = False
        self._rest: Future[list[Artifact]] | None = None
        archs = line.options.archs or line.suite.archs
        count = sum(not v.is_peer for v in line.variants)
        line.say(f"build: {count} variants for {', '.join(archs)}")
        line.nvcc = toolchain.find_nvcc(Path(line.settings.build)).version
        own = line.gpu_arch if ahead and not line.cannot_measure else None
        line.artifacts = self._build((own,) if own else archs)
        line.plans = self._plans()
        if own and len(archs) > 1:
            line.say(f"build: {own} in {self._seconds:.1f} s; the others meanwhile")
            pool = ThreadPoolExecutor(max_workers=1)
            self._rest = pool.submit(self._build, archs)
            pool.shutdown(wait=False)
        else:
            self._describe()

    def finish(self) -> None:
        """Waits for what is still being compiled, and takes in its plans and all static facts."""
        if self._rest is None:
            return
        # What was compiled first is no longer new to the second build: it is told as it was.
        own = {(a.variant, a.arch): a for a in self._line.artifacts}
        self._line.artifacts = [own.get((a.variant, a.arch), a) for a in self._rest.result()]
        self._rest = None
        self._line.plans = self._plans()
        self._describe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped = kind is not None  # nobody waits for it any more

    def _build(self, archs: tuple[str, ...]) -> list[Artifact]:
        line = self._line
        artifacts = build.build(
            line.suite,
            Path(line.settings.build),
            dataclasses.replace(line.options, archs=archs),
            variants=line.variants,
            gpu_arch=line.gpu_arch,
            say=self._say,
        )
        self._seconds = time.monotonic() - self._started  # not counting who waits for it
        return artifacts

    def _say(self, text: str) -> None:
        if self._stopped:
            raise FlashcoreError("the build was stopped")  # at ninja's next word; ends it and its compilers
        self._line.say(f"build: {text}")

    def _plans(self) -> list[Plan]:
        line = self._line
        return launch_plan.plans(line.suite, line.artifacts, list(line.suite.shapes.values()))

    def _describe(self) -> None:
        """Static facts, and what there is to say of the build as a whole."""
        line = self._line
        failed = [a for a in line.artifacts if a.status == "failed"]
        for artifact in failed:
            line.say(f"build: {artifact.variant} for {artifact.arch} FAILED\n{artifact.message}")
        crashed = [p for p in line.plans if p.crashed]
        for plan in crashed:
            line.say(f"build: {plan.variant} on {plan.shape} FAILED: {plan.error}")
        for i, artifact in enumerate(line.artifacts):
            found, code = facts.facts(artifact, Path(line.suite.root))
            line.artifacts[i] = dataclasses.replace(artifact, code=code)
            line.facts += found
            own: dict[Subject, dict[str, Fact]] = {}
            for fact in found:
                own.setdefault(fact.subject, {})[fact.name] = fact
            sms = line.gpu.sms if line.gpu and artifact.arch == line.gpu_arch else None
            for plan in line.plans:
                if plan.variant == artifact.variant and artifact.status == "ok":
                    line.facts += facts.plan_facts(artifact, plan, own, sms)
        cached = sum(a.cached for a in line.artifacts)
        compiled = sum(a.status == "ok" for a in line.artifacts) - cached
        line.say(f"build: {compiled} compiled, {cached} unchanged, {len(failed)} failed in {self._seconds:.1f} s")
        reasons = [f"{len(failed)} of {len(line.artifacts)} did not compile"] if failed else []
        reasons += [f"{len(crashed)} launch plans crashed"] if crashed else []
        status = "failed" if reasons else "ok"
        line.notes.insert(0, StageNote("build", status, round(self._seconds, 3), ", ".join(reasons)))  # type: ignore[arg-type]
