"""Builds the present tree and a git revision, and times them alternately on this machine: ``bench --against REV``.

A case with the same machine code in both is not timed: any difference in time would be noise. If all cases have the
same code, no GPU is needed.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from flashcore.errors import Exit, ManifestError, UsageError
from flashcore.explain import comparison
from flashcore.explain.comparison import Change, Comparison, Difference
from flashcore.explain.times import Speedup
from flashcore.features.compare import time_pairs
from flashcore.features.compare.match_cases import BuiltSuite, MatchedCase, pair, python_of
from flashcore.machine import gpu_choice
from flashcore.model import slower
from flashcore.model.case import Case
from flashcore.model.files import make_folder, text_hash
from flashcore.model.progress import Say, prefixed
from flashcore.model.record import CaseSubject, Subject
from flashcore.model.settings import ALL, Settings
from flashcore.pipeline import revision
from flashcore.pipeline.opening import open_recordable
from flashcore.records.store import claimed
from flashcore.runner.queue import Pool
from flashcore.stages.check import check
from flashcore.stages.compiling import compile_all
from flashcore.stages.context import Context
from flashcore.stages.runnable_cases import child_cases

_FOLDER = "against"  # beside the builds of revisions


@dataclass(frozen=True, slots=True)
class AgainstOptions:
    """The user's choices besides the cases.

    Args:
        processes: the number of processes that time each case.
        alpha, effect: see :func:`flashcore.model.slower.decide`.
        resume: use the earlier measurements of the same builds.
        device: ``cuda``; or ``cpu``, only for callables.

    Raises:
        UsageError: one of them is out of its range.
    """

    revision: str
    processes: int = slower.PROCESSES
    alpha: float = slower.ALPHA
    effect: float = slower.EFFECT
    resume: bool = False
    device: str = "cuda"

    def __post_init__(self) -> None:
        if self.processes < slower.FEWEST:
            raise UsageError(f"--processes {self.processes}: expected at least {slower.FEWEST}: fewer have no spread")
        if not 0 < self.alpha < 0.5:
            raise UsageError(f"--alpha {self.alpha:g}: expected a rate above 0 and below 0.5, like 0.001")
        if not 0 <= self.effect < 1:
            raise UsageError(f"--effect {100 * self.effect:g}: expected percent, from 0 to less than 100")


class TimedBuilds(NamedTuple):
    """The present tree compared with a revision, by the processes that timed both.

    Args:
        rounds: of each process.
        throttle: the driver's reasons for a lower clock meanwhile.
        obstacle: why this machine could not time the cases that differ; empty if it could, or no case differs.
    """

    comparison: Comparison
    options: AgainstOptions
    rounds: int
    throttle: Sequence[str] = ()
    obstacle: str = ""

    @property
    def exit_code(self) -> Exit:
        outcomes = self.comparison.counts
        if outcomes["slower"] or outcomes["failed"]:
            return Exit.FAILED
        if self.obstacle:
            return Exit.INCAPABLE
        return Exit.UNMEASURED if outcomes["undecided"] else Exit.OK

    @property
    def unchanged(self) -> dict[Subject, float]:
        """The largest change of each case that the second timing of the revision had over the first (A/A)."""
        changes = ((row.subject, c.processes) for row in self.comparison.rows for c in row.changes)
        return {subject: max(abs(math.expm1(p.null)) for p in of) for subject, of in changes if of}


def run(settings: Settings, options: AgainstOptions, say: Say) -> TimedBuilds:
    """Compares the present tree with the revision of the options; see :func:`compared`.

    Raises:
        UsageError: no such revision, or no such suite in it; nothing to resume.
        CapabilityError: there is no git or no compiler, or the GPU cannot be used after all.
    """
    near = Path(settings.suite)
    with revision.suite_at(options.revision, near) as root:
        commit = revision.commit_of(options.revision, near)
        say(f"against: {options.revision} is {commit[:12]}")
        return compared(root, built(settings, say), commit, options)


def built(settings: Settings, say: Say) -> BuiltSuite:
    """A suite, built for this machine's GPU only: no other code runs here."""
    job = replace(open_recordable(replace(settings, upto=None)), say=say)
    job = replace(job, options=replace(job.options, archs=(job.gpu_arch,))) if job.gpu_arch else job
    return BuiltSuite(job, compile_all(job))


def compared(root: Path, after: BuiltSuite, commit: str, options: AgainstOptions) -> TimedBuilds:
    """Builds the suite that ``root`` has as it was in ``commit``, checks and times both, and decides."""
    job = after.job
    try:
        old = revision.counterpart(root, job)
        old = replace(old, say=prefixed(job.say, f"{options.revision}: "))
        before = BuiltSuite(old, compile_all(old))
    except (ManifestError, UsageError) as error:
        raise UsageError(f"{options.revision}: {str(error).replace(str(root), job.settings.suite)}") from error
    rows, pairs = pair(before, after, options.revision)
    obstacle = job.cannot_measure if pairs and options.device == "cuda" else ""
    timings = time_pairs.Timings()
    if obstacle:
        rows += [p.row("undecided", f"the code differs, and {obstacle}") for p in pairs]
    elif pairs:
        wrong, timings = _timed(before, after, pairs, options)
        rows += [*wrong, *_decided(pairs, timings, options)]
    gpu, suite = job.gpu.name if job.gpu else None, job.suite.name
    sides = (
        comparison.Side(options.revision, suite, gpu, before.built.nvcc, commit),
        comparison.Side("working tree", suite, gpu, after.built.nvcc),
    )
    rounds = job.settings.bench.samples
    return TimedBuilds(Comparison(*sides, rows), options, rounds, sorted(timings.throttle), obstacle)


def _timed(
    before: BuiltSuite, after: BuiltSuite, pairs: Sequence[MatchedCase], options: AgainstOptions
) -> tuple[list[Difference], time_pairs.Timings]:
    """The cases in which a build is wrong, and the times of the others."""
    say = after.job.say
    with (
        _folder(after, before, pairs, resume=options.resume) as folder,
        Pool(uuids=_the_gpu(say) if options.device == "cuda" else ()) as workers,
        workers.leased(say),
    ):
        old = child_cases(replace(before.job, built=before.built), [(p.before, p.shape) for p in pairs])
        new = child_cases(replace(after.job, built=after.built), [(p.after, p.shape) for p in pairs])
        contests = [time_pairs.Contest.of(p.case, b, a, folder) for p, b, a in zip(pairs, old, new, strict=True)]
        job = replace(after.job, workers=workers, folder=folder, device=options.device)
        time_pairs.prepare(job, options.processes)
        wrong = _wrong(pairs, contests, job, options.revision)
        names = {str(row.subject.case) for row in wrong}
        timings = time_pairs.run(job, [c for c in contests if c.name not in names], options.processes)
    return wrong, timings


def _the_gpu(say: Say) -> list[str]:
    """The UUID of the GPU that times: the first one, as CUDA chooses. Reported if there are several models."""
    first, *others = gpu_choice.by_kind(ALL, gpu_choice.visible()) or [{}]
    chosen = dict([*first.items()][:1])
    if others:
        say(
            f"against: on {gpu_choice.listed(chosen)}; left out, of another kind: {gpu_choice.listed(*others)}; "
            f"to time on such a one, set CUDA_VISIBLE_DEVICES={next(iter(others[0]))}"
        )
    return [*chosen]


@contextmanager
def _folder(after: BuiltSuite, before: BuiltSuite, pairs: Sequence[MatchedCase], *, resume: bool) -> Iterator[Path]:
    """The folder for these builds' measurements, with earlier ones to resume. It is removed at the end, and kept if the
    comparison is interrupted."""
    cases = [(p.case, dict(p.shape.params)) for p in pairs]
    sources = [(side.built.source_hashes, python_of(side.job)) for side in (before, after)]
    key = json.dumps([after.job.suite.name, sources, cases, after.job.settings.bench.samples])
    digest = text_hash(key)[:16]
    folder = Path(before.job.settings.build, _FOLDER, digest)
    if resume and not folder.is_dir():
        raise UsageError(
            "--resume: expected a comparison of these very builds that did not end, found none\n"
            "  hint: leave --resume out, if the sources or the choice of cases changed"
        )
    make_folder(folder)
    with claimed(folder):
        if not resume:
            for old in ("check", "turns"):
                shutil.rmtree(folder / old, ignore_errors=True)
        yield folder
        shutil.rmtree(folder, ignore_errors=True)


def _wrong(
    pairs: Sequence[MatchedCase], contests: Sequence[time_pairs.Contest], job: Context, revision: str
) -> list[Difference]:
    """Checks both builds, each against its own suite; returns the cases in which one is wrong."""
    cases = [case for c in contests for case in (c.after, c.before)]
    outcomes = zip(cases, check.run(job, cases).outcomes, strict=True)
    reasons = {case.name: o.reason for case, o in outcomes if o.status != "ok"}
    rows = []
    for one, contest in zip(pairs, contests, strict=True):
        if reason := reasons.get(contest.after.name):
            rows.append(one.row("failed", f"wrong: {reason}"))
        elif reason := reasons.get(contest.before.name):
            rows.append(one.row("undecided", f"{revision} is wrong: {reason}"))
    return rows


def _decided(
    pairs: Sequence[MatchedCase], timings: time_pairs.Timings, options: AgainstOptions
) -> Iterator[Difference]:
    """The timed cases, decided all together, and the cases whose timing failed."""
    cases = timings.processes
    decisions = slower.decide(cases, alpha=options.alpha, effect=options.effect)
    for one in pairs:
        if lost := timings.lost.get(one.case):
            if lost.side == "after":
                yield one.row("failed", f"not timed: {lost.reason}")
            else:
                yield one.row(
                    "undecided", f"{options.revision if lost.side else 'both'} could not be timed: {lost.reason}"
                )
        elif decision := decisions.get(one.case):
            subject, fact = CaseSubject(Case(one.after.name, one.shape.name)), one.shape.time
            speedup = None if decision.change is None else Speedup(1 / (1 + decision.change))
            change = Change(subject, fact, "us", *timings.levels(one.case), decision.outcome, "processes", speedup,
                            decision.critical, tuple(cases[one.case]))  # fmt: skip
            yield one.row(decision.outcome, decision.reason, (change,))
