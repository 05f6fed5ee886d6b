"""Builds candidates, gates them by their static facts, and checks and times those that pass, each in a run of its own.

A candidate is rejected at ``build`` if it does not compile, and at ``static`` if its plan refuses a shape, it cannot be
launched, or it misses a hard budget. It is rejected at ``check`` or ``bench`` if it fails there on one of the shapes.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flashcore.errors import UsageError
from flashcore.gate.judge import judge
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject, Record
from flashcore.model.settings import Settings
from flashcore.model.suite import Suite
from flashcore.model.text import matches_any
from flashcore.pipeline.opening import open_recordable
from flashcore.pipeline.run import run
from flashcore_tune.search import Outcome, Step
from flashcore_tune.space import Grid

#: The static facts of a candidate, and how to combine the values of several kernels.
_FACTS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "registers": max,
    "smem": max,
    "spill_store_bytes": sum,
    "theoretical_occupancy": min,
}
#: The repeats of a check and the samples of a timing that only rank; finalists are checked and timed in full.
_REPEATS, _SAMPLES = 3, 25


@dataclass(frozen=True)
class Candidates:
    """The candidates of a space, on this machine.

    Args:
        settings: those of the user, without variants.
        folder: of the study; runs that only rank are removed from it.
        static: whether candidates are only built and gated.
    """

    settings: Settings
    suite: Suite
    grid: Grid
    folder: Path
    static: bool
    say: Callable[[str], None]

    def base(self) -> Record:
        """A record of the space's variant, built alone.

        Raises:
            CapabilityError: the candidates are to be measured, and this machine cannot.
            UsageError: it does not compile.
        """
        record = self._ranked([], [self.grid.space.variant], None)
        (artifact,) = record.artifacts
        if artifact.status != "ok":
            raise UsageError(f"{artifact.variant}: expected a variant that compiles, found: {artifact.message}")
        return record

    def gate(self, points: Sequence[int]) -> dict[int, Outcome]:
        """See :class:`flashcore_tune.search.Evaluator`."""
        record = self._ranked(points, [], None)
        failed = [v for v in judge(record, require="static").verdicts if v.status == "fail"]
        budgets = {b.name for b in record.suite.budgets if b.tier == "static"}
        outcomes = {}
        for index in points:
            name = self.grid.name(index)
            missed = {
                v.budget: f"{v.budget}: {v.value} {v.unit}, expected {v.limit}"
                for v in failed
                if v.subject.variant == name and v.budget in budgets
            }
            outcomes[index] = self._gated(record, name, missed)
            if outcomes[index].rejected or self.static:
                self._remove(record, name)
        return outcomes

    def measure(self, passed: Mapping[int, Outcome]) -> dict[int, Outcome]:
        """See :class:`flashcore_tune.search.Evaluator`."""
        if self.static:
            return dict(passed)
        record = self._ranked([*passed], [], "bench")
        outcomes = {}
        for index, outcome in passed.items():
            name = self.grid.name(index)
            outcomes[index] = self._timed(record, name, outcome)
            self._remove(record, name)  # a finalist is compiled again, and thousands of others would fill the disk
        return outcomes

    def record(
        self, points: Sequence[int], others: Sequence[str], settings: Settings, *, check: bool = False
    ) -> Record:
        """The record of a run of these points and of other variants of the suite, for one arch.

        Args:
            check: whether to check on the suite's other shapes too.
        """
        suite, space, base = self.suite, self.grid.space, self.suite.variants[self.grid.space.variant]
        variants = {v.name: v for v in (self.grid.candidate(suite, i) for i in points)}
        budgets = tuple(
            replace(b, variants=(*b.variants, *variants)) if matches_any(base.name, b.variants) else b
            for b in suite.budgets
        )
        variants |= {name: suite.variants[name] for name in others}
        shapes = {name: suite.shapes[name] for name in space.shapes}
        more = [s for s in suite.shapes.values() if check and "check" in s.stages and base.runs_on(s)]
        shapes = {s.name: replace(s, stages=("check",)) for s in more} | shapes
        settings = replace(settings, shapes=space.shapes, join=False, roofs=None)
        context = open_recordable(settings, self.say, needs_gpu=not self.static)
        archs = [a for a in context.archs if a in base.where.archs and context.gpu_arch in (None, a)]
        if not archs:
            found = context.gpu_arch or ", ".join(context.archs)
            raise UsageError(f"{base.name}: expected a variant for {found}, found {', '.join(base.where.archs)}")
        narrowed = replace(
            context,
            suite=replace(suite, variants=variants, budgets=budgets, shapes=shapes, waivers=(), archs=(archs[-1],)),
            options=replace(context.options, archs=(archs[-1],)),
            variants=tuple(variants.values()),
            shapes=tuple(shapes.values()),
        )
        return run(narrowed).record

    @property
    def modes(self) -> dict[str, str]:
        """Shape → the timing mode that ranks there."""
        return {name: self.suite.shapes[name].rank_by for name in self.grid.space.shapes}

    @property
    def full(self) -> Settings:
        """The settings of a run that times all its cases in full, in the modes that rank."""
        bench = replace(self.settings.bench, first=0, modes=tuple(dict.fromkeys(self.modes.values())))
        return replace(self.settings, upto="bench", bench=bench)

    def _ranked(self, points: Sequence[int], others: Sequence[str], upto: str | None) -> Record:
        work, full = self.folder / "work", self.full
        check = replace(full.check, repeats=_REPEATS, opcheck=False)
        bench = replace(full.bench, samples=_SAMPLES, max_samples=_SAMPLES)
        settings = replace(full, upto=upto, profiles=str(work), check=check, bench=bench)
        try:
            return self.record(points, others, settings)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _gated(self, record: Record, name: str, missed: Mapping[str, str]) -> Outcome:
        (artifact,) = (a for a in record.artifacts if a.variant == name)
        if artifact.status != "ok":
            return Outcome("build", artifact.message.partition("\n")[0])
        facts = [f for f in record.facts if f.subject.variant == name]
        plans = [p for p in record.plans if p.variant == name]
        reasons = [
            *(p.error for p in plans if p.error),
            *(f"cannot be launched: {f.note}" for f in facts if f.name == "blocks_per_sm" and f.value == 0),
            *(missed[budget] for budget in self.grid.space.hard if budget in missed),
        ]
        values = {n: [f.number for f in facts if f.name == n and f.number is not None] for n in _FACTS}
        work = (artifact.code, sorted(artifact.calls.items()), [p.launches for p in plans])
        return Outcome(
            rejected="static" if reasons else "",
            reason=reasons[0] if reasons else "",
            facts={n: combine(values[n]) for n, combine in _FACTS.items() if values[n]},
            missed=tuple(missed),
            code=hashlib.sha256(repr(work).encode()).hexdigest()[:16],
        )

    def _timed(self, record: Record, name: str, outcome: Outcome) -> Outcome:
        for failed in (o for o in record.outcomes if o.variant == name and o.status != "ok"):
            stage: Step = "check" if failed.stage == "check" else "bench"
            return replace(outcome, rejected=stage, reason=f"{failed.shape}: {failed.reason}")
        times = {}
        for shape, mode in self.modes.items():
            fact = record.facts.get(f"{mode}_p50", CaseSubject(Case(name, shape)))
            if fact is None or fact.number is None:
                return replace(outcome, rejected="bench", reason=f"{shape}: {fact.note if fact else 'not timed'}")
            times[shape] = round(fact.number, 4)
        return replace(outcome, times=times)

    def _remove(self, record: Record, name: str) -> None:
        for artifact in (a for a in record.artifacts if a.variant == name):
            for cubin in filter(None, (artifact.cubin, *artifact.cubins.values())):
                shutil.rmtree(Path(cubin).parent, ignore_errors=True)
