"""Builds the present tree and a git revision, and times them alternately on this machine: ``bench --against REV``.

A case with the same machine code in both is not timed: any difference in time would be noise. If all cases have the
same code, no GPU is needed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from flashcore.build.compiling import compile_all
from flashcore.errors import ManifestError, UsageError
from flashcore.features.regress.comparison import Comparison, Row
from flashcore.features.regress.match_cases import Pair, Side, pair, python_of
from flashcore.measure.bench import time_pairs
from flashcore.measure.cases import child_cases
from flashcore.measure.check import check
from flashcore.measure.context import Context
from flashcore.measure.machine import gpu_choice
from flashcore.measure.settings import Settings
from flashcore.measure.workers.pool import Pool
from flashcore.model import decide
from flashcore.model.files import make_folder
from flashcore.model.progress import prefixed
from flashcore.pipeline import revision
from flashcore.pipeline.opening import open_recordable
from flashcore.records.store import claimed

_FOLDER = "against"  # beside the builds of revisions


@dataclass(frozen=True, slots=True)
class Options:
    """The user's choices besides the cases.

    Args:
        processes: the number of processes that time each case.
        alpha, effect: see :func:`flashcore.model.decide.decide`.
        resume: use the earlier measurements of the same builds.
        device: ``cuda``; or ``cpu``, only for callables.

    Raises:
        UsageError: one of them is out of its range.
    """

    revision: str
    processes: int = decide.PROCESSES
    alpha: float = decide.ALPHA
    effect: float = decide.EFFECT
    resume: bool = False
    device: str = "cuda"

    def __post_init__(self) -> None:
        if self.processes < decide.FEWEST:
            raise UsageError(f"--processes {self.processes}: expected at least {decide.FEWEST}: fewer have no spread")
        if not 0 < self.alpha < 0.5:
            raise UsageError(f"--alpha {self.alpha:g}: expected a rate above 0 and below 0.5, like 0.001")
        if not 0 <= self.effect < 1:
            raise UsageError(f"--effect {100 * self.effect:g}: expected percent, from 0 to less than 100")


def run(settings: Settings, options: Options, say: Callable[[str], None]) -> Comparison:
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


def built(settings: Settings, say: Callable[[str], None]) -> Side:
    """A suite, built for this machine's GPU only: no other code runs here."""
    job = replace(open_recordable(replace(settings, upto=None)), say=say)
    job = replace(job, options=replace(job.options, archs=(job.gpu_arch,))) if job.gpu_arch else job
    return Side(job, compile_all(job))


def compared(root: Path, after: Side, commit: str, options: Options) -> Comparison:
    """Builds the suite that ``root`` has as it was in ``commit``, checks and times both, and decides."""
    job = after.job
    try:
        old = revision.counterpart(root, job)
        old = replace(old, say=lambda text: job.say(prefixed(f"{options.revision}: ", text)))
        before = Side(old, compile_all(old))
    except (ManifestError, UsageError) as error:
        raise UsageError(f"{options.revision}: {str(error).replace(str(root), job.settings.suite)}") from error
    rows, pairs = pair(before, after, options.revision)
    obstacle = job.cannot_measure if pairs and options.device == "cuda" else ""
    timings = time_pairs.Timings()
    if obstacle:
        rows |= {p.case: Row(p.case, "undecided", f"the code differs, and {obstacle}") for p in pairs}
    elif pairs:
        wrong, timings = _timed(before, after, pairs, options)
        rows |= wrong | _decided(timings, options)
    return Comparison(
        suite=job.suite.name,
        revision=options.revision,
        commit=commit,
        gpu=job.gpu.name if job.gpu else None,
        nvcc=after.built.nvcc,
        alpha=options.alpha,
        effect=options.effect,
        rounds=job.settings.bench.samples,
        rows=tuple(rows[f"{v.name}/{s.name}"] for v, s in job.cases("bench")),
        throttle=tuple(sorted(timings.throttle)),
        obstacle=obstacle,
    )


def _timed(
    before: Side, after: Side, pairs: Sequence[Pair], options: Options
) -> tuple[dict[str, Row], time_pairs.Timings]:
    """The cases in which a build is wrong, and the times of the others."""
    settings, say = after.job.settings, after.job.say
    with (
        _folder(after, before, pairs, resume=options.resume) as folder,
        Pool(uuids=_the_gpu(say) if options.device == "cuda" else ()) as workers,
        workers.leased(say),
    ):
        old = child_cases(replace(before.job, built=before.built), [(p.before, p.shape) for p in pairs])
        new = child_cases(replace(after.job, built=after.built), [(p.after, p.shape) for p in pairs])
        contests = [time_pairs.Contest.of(p.case, b, a, folder) for p, b, a in zip(pairs, old, new, strict=True)]
        job = replace(after.job, workers=workers, folder=folder, device=options.device)
        wrong = _wrong(contests, job, options.revision)
        timings = time_pairs.run(
            [c for c in contests if c.name not in wrong],
            folder / "turns",
            workers,
            processes=options.processes,
            rounds=settings.bench.samples,
            time_limit=settings.check.limits.time_limit,
            progress=lambda text: say(f"against: {text}"),
            device=options.device,
        )
    return wrong, timings


def _the_gpu(say: Callable[[str], None]) -> list[str]:
    """The UUID of the GPU that times: the first one, as CUDA chooses. Reported if there are several models."""
    first, *others = gpu_choice.by_kind(gpu_choice.ALL, gpu_choice.visible()) or [{}]
    chosen = dict([*first.items()][:1])
    if others:
        say(
            f"against: on {gpu_choice.listed(chosen)}; left out, of another kind: {gpu_choice.listed(*others)}; "
            f"to time on such a one, set CUDA_VISIBLE_DEVICES={next(iter(others[0]))}"
        )
    return [*chosen]


@contextmanager
def _folder(after: Side, before: Side, pairs: Sequence[Pair], *, resume: bool) -> Iterator[Path]:
    """The folder for these builds' measurements, with earlier ones to resume. It is removed at the end, and kept if the
    comparison is interrupted."""
    cases = [(p.case, dict(p.shape.params)) for p in pairs]
    sources = [(side.built.closures, python_of(side.job)) for side in (before, after)]
    key = json.dumps([after.job.suite.name, sources, cases, after.job.settings.bench.samples])
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
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


def _wrong(contests: Sequence[time_pairs.Contest], job: Context, revision: str) -> dict[str, Row]:
    """Checks both builds, each against its own suite; returns the cases in which one is wrong."""
    cases = [case for c in contests for case in (c.after, c.before)]
    outcomes = zip(cases, check.run(job, cases).outcomes, strict=True)
    reasons = {case.name: o.reason for case, o in outcomes if o.status != "ok"}
    rows: dict[str, Row] = {}
    for c in contests:
        if reason := reasons.get(c.after.name):
            rows[c.name] = Row(c.name, "failed", f"wrong: {reason}")
        elif reason := reasons.get(c.before.name):
            rows[c.name] = Row(c.name, "undecided", f"{revision} is wrong: {reason}")
    return rows


def _decided(timings: time_pairs.Timings, options: Options) -> dict[str, Row]:
    """The timed cases, decided all together, and the cases whose timing failed."""
    cases = timings.processes
    rows = {
        name: Row(name, d.outcome, d.reason, *timings.levels(name), d.change, d.critical, tuple(cases[name]))
        for name, d in decide.decide(cases, alpha=options.alpha, effect=options.effect).items()
    }
    for name, lost in timings.lost.items():
        if lost.side == "after":
            rows[name] = Row(name, "failed", f"not timed: {lost.reason}")
        else:
            who = options.revision if lost.side else "both"
            rows[name] = Row(name, "undecided", f"{who} could not be timed: {lost.reason}")
    return rows
