"""Assembles a run's record from its own results and those joined from recorded runs of the same GPU."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from flashcore.errors import RecordError
from flashcore.model.case import Case
from flashcore.model.cause import Cause
from flashcore.model.causes import Decided
from flashcore.model.record import Built, Environment, Fact, Facts, Lazy, Listing, Measured, Origin, Record, Roof
from flashcore.model.suite import GPU_STAGES, Shape, Suite, Variant
from flashcore.records import freshness, lookup

if TYPE_CHECKING:
    from flashcore.records.lookup import Places

_NEWEST = 8  # runs to join from even if no stage of a case is missing, for results of other stages


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of one invocation: the content of its record without joined facts.

    ``formulas`` are the problems' formula facts. ``environment`` names the measuring GPU, if there is one.
    """

    command: str
    suite: Suite
    cases: Sequence[tuple[Variant, Shape]]
    environment: Environment
    formulas: Sequence[Fact]
    built: Built
    measured: Measured


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
    suite, built, measured = findings.suite, findings.built, findings.measured
    newest = [*islice(runs := iter(recorded), 1)]
    arch = findings.environment.gpu_arch or (newest[0].gpu_arch if newest else None) or suite.usual_arch
    keys = freshness.case_keys(suite, findings.cases, built.artifacts, built.plans, arch, built.nvcc)
    facts = [*findings.formulas, *built.facts, *measured.facts]
    outcomes, samples = list(measured.outcomes), dict(measured.raw_samples)
    done: set[tuple[Case, str]] = {(o.case, o.stage) for o in outcomes if o.status in ("ok", "failed")}
    # Recorded results of a case that is now wrong are not joined.
    wrong = {o.case for o in outcomes if o.stage == "check" and o.status == "failed"}
    done |= {(case, stage) for case in wrong for stage in GPU_STAGES}
    listings: list[Collection[Listing]] = [measured.listings]
    stale: dict[Case, Cause] = {}
    reads = [measured.reads]
    origins: list[Origin] = []
    wanted = {(Case(v.name, s.name), stage) for v, s in findings.cases for stage in s.stages}
    read: list[Record] = []
    for run in chain(newest, runs):
        if len(read) >= _NEWEST and wanted <= done:
            break
        read.append(run)
        try:
            counted = {fact.subject for fact in facts if fact.name == "waves"}
            joined = freshness.join(run, keys, done, suite, counted, built)
        except RecordError as error:
            lookup.warn_skipped(run.id, error)
            continue
        stale = {**joined.stale, **stale}
        facts += joined.facts
        outcomes += joined.outcomes
        listings.append(joined.listings)
        samples = {**joined.raw_samples, **samples}
        reads.append(joined.reads)
        done |= {(o.case, o.stage) for o in joined.outcomes}
        if joined.origin is not None:
            origins.append(joined.origin)
    facts = [_with_base(fact, read) for fact in facts]
    measured_cases = {case for case, _ in done}
    return Record(
        id=run_id,
        command=findings.command,
        suite=suite,
        environment=findings.environment,
        artifacts=built.artifacts,
        plans=built.plans,
        outcomes=tuple(outcomes),
        stages=(*built.notes, *measured.notes),
        facts=Facts(facts),
        keys=keys,
        stale={c: why for c, why in stale.items() if c not in measured_cases},
        joined=tuple(origins),
        raw_samples=samples,
        listings=Lazy(lambda: chain.from_iterable(listings)),
        roofs=next((r.roofs for r in read if r.roofs), ()) if roofs is None else roofs,
        gpus=measured.gpus,
        reads=freshness.merged(reads),
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
