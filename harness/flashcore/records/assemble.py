"""Assembles a run's record from its own results and those joined from recorded runs of the same GPU."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from flashcore.errors import RecordError
from flashcore.model.case import Case, TimeKey
from flashcore.model.cause import Cause
from flashcore.model.causes import Decided, hangs
from flashcore.model.record import (
    Built,
    CaseOutcome,
    Environment,
    Fact,
    Facts,
    Lazy,
    Listing,
    Measured,
    Origin,
    Reads,
    Record,
    Roof,
)
from flashcore.model.suite import GPU_STAGES, Shape, Suite, Variant
from flashcore.records import freshness, lookup

if TYPE_CHECKING:
    from flashcore.records.lookup import Places

_NEWEST = 8  # runs to join from even if no stage of a case is missing, for results of other stages


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of one invocation: the content of its record without joined facts.

    ``environment`` names the measuring GPU, if there is one.
    """

    command: str
    suite: Suite
    cases: Sequence[tuple[Variant, Shape]]
    environment: Environment
    built: Built
    measured: Measured


@dataclass(slots=True)
class _Results:
    """What an invocation measured, and what recorded runs add to it, newer ones first.

    ``done`` are the stages of cases that nothing more is joined for.
    """

    facts: list[Fact]
    outcomes: list[CaseOutcome]
    samples: dict[TimeKey, tuple[float, ...]]
    listings: list[Collection[Listing]]
    reads: list[Reads]
    done: set[tuple[Case, str]]
    stale: dict[Case, Cause] = field(default_factory=dict)
    origins: list[Origin] = field(default_factory=list)

    @staticmethod
    def of(findings: Findings) -> _Results:
        measured = findings.measured
        # What was skipped is joined, but for a variant that hangs now.
        done: set[tuple[Case, str]] = {
            (o.case, o.stage) for o in measured.outcomes if o.status in ("ok", "failed") or hangs(o.cause)
        }
        # Recorded results of a case that is now wrong are not joined.
        wrong = {o.case for o in measured.outcomes if o.stage == "check" and o.status == "failed"}
        done |= {(case, stage) for case in wrong for stage in GPU_STAGES}
        facts = [*findings.built.facts, *measured.facts]
        samples = dict(measured.raw_samples)
        return _Results(facts, [*measured.outcomes], samples, [measured.listings], [measured.reads], done)

    def add(self, joined: freshness.Joined) -> None:
        self.stale = {**joined.stale, **self.stale}
        self.facts += joined.facts
        self.outcomes += joined.outcomes
        self.listings.append(joined.listings)
        self.samples = {**joined.raw_samples, **self.samples}
        self.reads.append(joined.reads)
        self.done |= {(o.case, o.stage) for o in joined.outcomes}
        if joined.origin is not None:
            self.origins.append(joined.origin)


def record_of(
    run_id: str, findings: Findings, recorded: Iterable[Record], roofs: tuple[Roof, ...] | None = None
) -> Record:
    """The record of this invocation's results, joined with recorded runs of the same GPU.

    Each recorded run adds the cases and stages that this invocation and newer runs lack, until nothing is missing.
    Without a GPU, the newest measured run determines the record's GPU.

    Args:
        recorded: the runs to join from, newest first; see :func:`to_join`.
        roofs: this machine's, if measured; by default those of the newest run that has any.
    """
    suite, built, results = findings.suite, findings.built, _Results.of(findings)
    newest = [*islice(runs := iter(recorded), 1)]
    arch = findings.environment.gpu_arch or (newest[0].gpu_arch if newest else None) or suite.usual_arch
    keys = freshness.case_keys(suite, findings.cases, built.artifacts, built.plans, arch, built.nvcc)
    wanted = {(Case(v.name, s.name), stage) for v, s in findings.cases for stage in s.stages}
    read: list[Record] = []
    for run in chain(newest, runs):
        if len(read) >= _NEWEST and wanted <= results.done:
            break
        read.append(run)
        try:
            counted = {fact.subject for fact in results.facts if fact.name == "waves"}
            joined = freshness.join(run, keys, results.done, suite, counted, built)
        except RecordError as error:
            lookup.warn_skipped(run.id, error)
            continue
        results.add(joined)
    measured_cases = {case for case, _ in results.done}
    return Record(
        id=run_id,
        command=findings.command,
        suite=suite,
        environment=findings.environment,
        artifacts=built.artifacts,
        plans=built.plans,
        outcomes=tuple(results.outcomes),
        stages=(*built.notes, *findings.measured.notes),
        facts=Facts([_with_base(fact, read) for fact in results.facts]),
        keys=keys,
        stale={c: why for c, why in results.stale.items() if c not in measured_cases},
        joined=tuple(results.origins),
        raw_samples=results.samples,
        listings=Lazy(lambda: chain.from_iterable(results.listings)),
        roofs=next((r.roofs for r in read if r.roofs), ()) if roofs is None else roofs,
        gpus=findings.measured.gpus,
        reads=freshness.merged(results.reads),
    )


def _with_base(fact: Fact, recorded: Sequence[Record]) -> Fact:
    """A decision that does not hold, with the instructions of the newest recorded run in which it did."""
    if not isinstance(fact.detail, Decided) or not fact.detail.missed:
        return fact
    for run in recorded:
        match run.facts.get(fact.name, fact.subject):
            case Fact(detail=Decided(missed=(), code_has=before)):
                return replace(fact, detail=replace(fact.detail, before=before))
    return fact


def to_join(places: Places, suite: str, gpu: str | None, *, before: str | None = None) -> Iterator[Record]:
    """Measured runs of this suite on one GPU, newest first, with facts that are read lazily.

    Args:
        gpu: this machine's GPU; ``None``: the newest readable run's.
        before: only runs older than this id; ``None``: all.
    """
    for run in lookup.opened_runs(places, suite, before=before):
        if run.gpu == (gpu or run.gpu) and (gpu or lookup.is_readable(run)):
            gpu = run.gpu
            yield run
