"""``flashcore bisect``: times commits against a good one until the first slow one is left."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from flashcore.cli import options, output, progress
from flashcore.errors import Exit, FlashcoreError, UsageError
from flashcore.measure.compiling import compile_all
from flashcore.measure.context import Context, silent
from flashcore.measure.machine import git
from flashcore.measure.settings import Settings
from flashcore.model.progress import prefixed
from flashcore.model.text import UNMEASURED
from flashcore.pipeline import run as pipeline
from flashcore.pipeline.opening import open_recordable
from flashcore.plugins.against import against, checkout, decide
from flashcore.plugins.against.comparison import Row
from flashcore.plugins.against.match_cases import Side, work_of
from flashcore.plugins.bisect.search import Search, first_slow
from flashcore.plugins.runs.index import Index
from flashcore.plugins.trends.series import COUNTERS, counter_changes, static_changes

EXAMPLES = (
    ("flashcore bisect fast/mission v1.2 HEAD", "the commit since v1.2 that made the case slower"),
    ("flashcore bisect fast/mission HEAD~32 HEAD --effect 2", "only if by more than 2 %"),
)
_FOLDER = "bisect"  # below the build folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="VARIANT/SHAPE")
    parser.add_argument("good", metavar="GOOD", help="a revision that is fast")
    parser.add_argument("bad", metavar="BAD", help="a later revision that is slow")
    options.add_suite(parser)
    options.add_places(parser)
    add = parser.add_argument
    add(
        "--processes", type=int, default=decide.PROCESSES, metavar="N", help="processes per step (default: %(default)s)"
    )
    text = "rate of false alarms of each step (default: %(default)g)"
    add("--alpha", type=float, default=decide.ALPHA, metavar="P", help=text)
    text = "percent by which a commit must be slower (default: %(default)g)"
    add("--effect", type=float, default=100 * decide.EFFECT, metavar="PCT", help=text)
    output.add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    variant, slash, shape = arguments.case.partition("/")
    if not slash:
        raise UsageError(f"{arguments.case}: expected a case, such as fast/mission")
    settings = options.settings(arguments, upto=None, variants=(variant,), shapes=(shape,))
    chosen = against.Options(
        arguments.good, processes=arguments.processes, alpha=arguments.alpha, effect=arguments.effect / 100
    )
    with progress.shown(arguments.quiet) as say:
        result = bisect(settings, chosen, arguments.bad, say)
    print(as_json(result) if arguments.format == "json" else as_text(result))
    return result.exit_code


@dataclass(frozen=True, slots=True)
class Bisection:
    """The outcome. ``rows`` are the comparisons with the good commit, by commit; ``changes`` and ``counters`` are the
    static facts and the counters that differ in the first slow commit; ``None``: not measured for both commits."""

    case: str
    commits: tuple[str, ...]
    subjects: tuple[str, ...]
    rows: dict[str, Row]
    search: Search | None
    alpha: float
    changes: tuple[str, ...] | None = None
    counters: tuple[str, ...] | None = None

    @property
    def exit_code(self) -> Exit:
        """0: one commit is left, or the bad one is not slower. 3: undecided."""
        if self.search is None:
            fates = {row.fate for row in self.rows.values()}
            return Exit.OK if fates <= _NOT_SLOWER else Exit.UNMEASURED
        return Exit.OK if self.search.bad - self.search.good == 1 else Exit.UNMEASURED


_NOT_SLOWER = {"no difference", "faster", "too small to matter", "same code"}


def bisect(settings: Settings, chosen: against.Options, bad: str, say: Callable[[str], None]) -> Bisection:
    """Bisects the case of the settings between ``chosen.revision`` and ``bad``.

    Raises:
        UsageError: a revision is unknown, or the good one is no ancestor of the bad one.
    """
    near = Path(settings.suite)
    good, last = (_commit(name, near) for name in (chosen.revision, bad))
    arguments = ("--reverse", "--first-parent", "--format=%H %s", f"{good}..{last}")
    log = git.run(near, "log", *arguments).stdout.splitlines()
    if not log or git.run(near, "merge-base", "--is-ancestor", good, last).returncode:
        raise UsageError(f"{chosen.revision} {bad}: expected an ancestor, and a later commit")
    commits, subjects = zip(*(line.partition(" ")[::2] for line in log), strict=True)
    with ThreadPoolExecutor(1) as builder:
        history = _History(settings, chosen, (good, *commits), builder, say)
        search = first_slow(history, len(commits), say)
    before, after = map(history.measured, (search.good, search.bad)) if search else ({}, {})
    changes = static_changes(before, after) if before and after else None
    counters = counter_changes(before, after) if {*before} & {*after} & {*COUNTERS} else None
    case = f"{settings.variants[0]}/{settings.shapes[0]}"
    return Bisection(case, history.commits, ("", *subjects), history.rows, search, chosen.alpha, changes, counters)


def _commit(name: str, near: Path) -> str:
    if commit := checkout.resolve(name, near):
        return commit
    raise UsageError(f"{name}: expected a revision of the repository of {near}, found none of this name")


@dataclass(slots=True)
class _History:
    """The commits of :func:`bisect`: built one after another in a thread, while the GPU times."""

    settings: Settings
    chosen: against.Options
    commits: tuple[str, ...]
    builder: ThreadPoolExecutor
    say: Callable[[str], None]
    rows: dict[str, Row] = field(default_factory=dict)
    _builds: dict[int, Future[object | None]] = field(default_factory=dict)

    @property
    def variant(self) -> str:
        return self.settings.variants[0]

    @property
    def shape(self) -> str:
        return self.settings.shapes[0]

    def ahead(self, number: int) -> None:
        if number not in self._builds:
            self._builds[number] = self.builder.submit(self._build, number)

    def work(self, number: int) -> object | None:
        self.ahead(number)
        return self._builds[number].result()

    def is_slower(self, number: int) -> bool | None:
        commit = self.commits[number]
        self.say(f"bisect: {commit[:12]} against {self.commits[0][:12]}")
        with self._at(commit, "timed") as settings:
            chosen = replace(self.chosen, revision=self.commits[0])
            done = against.run(settings, chosen, lambda text: self.say(prefixed(f"{commit[:12]}: ", text)))
        case = f"{self.variant}/{self.shape}"
        row = {row.case: row for row in done.rows}.get(case, Row(case, "undecided", "this commit does not have it"))
        self.rows[commit] = row
        if row.fate == "slower" or row.fate not in _NOT_SLOWER:
            return True if row.fate == "slower" else None
        last = self.rows[self.commits[-1]].change
        if last is None or row.change is None or row.critical is None:
            return False
        return False if last - row.change > row.critical else None  # None: it may be as slow as the last commit

    def measured(self, number: int) -> Mapping[str, float]:
        """The case's static facts and counters in a commit; empty if it cannot be measured."""
        commit = self.commits[number]
        try:
            with tempfile.TemporaryDirectory(prefix="flashcore-bisect-") as runs, self._at(commit, "timed") as settings:
                settings = replace(settings, profiles=runs, upto="profile", join=False, roofs=None)
                recorded = pipeline.run(_opened(settings, lambda text: self.say(prefixed(f"{commit[:12]}: ", text))))
                return Index([Path(runs)]).values(recorded.record.id, self.variant, self.shape)
        except FlashcoreError as error:
            self.say(f"{commit[:12]}: not profiled: {error}")
            return {}

    @contextmanager
    def _at(self, commit: str, folder: str) -> Iterator[Settings]:
        with checkout.suite_at(commit, commit, Path(self.settings.suite)) as root:
            build = Path(self.settings.build) / _FOLDER
            reuse = str(build / "ahead") if folder == "timed" else self.settings.build
            yield replace(self.settings, suite=str(root), build=str(build / folder), reuse=reuse)

    def _build(self, number: int) -> object | None:
        """The case's work in a commit."""
        try:
            with self._at(self.commits[number], "ahead") as settings:
                job = _opened(settings)
                side = Side(job, compile_all(job))
                return work_of(side, job.suite.variants[self.variant], job.suite.shapes[self.shape])
        except (FlashcoreError, LookupError) as error:
            self.say(f"{self.commits[number][:12]}: skipped: {error}")
            return None


def _opened(settings: Settings, say: Callable[[str], None] = silent) -> Context:
    """The context of a commit's suite, for this machine's GPU: no other code runs here."""
    job = open_recordable(settings, say)
    return replace(job, options=replace(job.options, archs=(job.gpu_arch,))) if job.gpu_arch else job


def _sentences(result: Bisection) -> Iterator[str]:
    commits, search = result.commits, result.search
    for commit, row in result.rows.items():
        size = (
            ""
            if row.change is None or row.critical is None
            else f"{100 * row.change:+.2f} % (noise {100 * row.critical:.2f} %) "
        )
        yield f"{commit[:12]}  {size}{row.fate}{': ' + row.reason if row.reason else ''}"
    if search is None:
        fact = "undecided whether {} is" if result.exit_code else "{} is not"
        yield f"{result.case}: {fact.format(commits[-1][:12])} slower than {commits[0][:12]}; nothing to search"
        return
    confidence = 100 * (1 - len(search.timed) * result.alpha)
    yield f"{len(commits) - 1} commits, {len(search.timed)} timed; confidence at least {confidence:.4g} %"
    for number in range(search.good + 1, search.bad):
        yield f"not decided: {commits[number][:12]} {result.subjects[number]}"
    yield f"first slow commit: {commits[search.bad][:12]} {result.subjects[search.bad]}"
    for name, changes, none in (
        ("static facts", result.changes, "no change, though the code differs"),
        ("counters", result.counters, "no change"),
    ):
        yield f"  {name}: {UNMEASURED if changes is None else '; '.join(changes) or none}"


def as_text(result: Bisection) -> str:
    """The timed commits, and the first slow one."""
    return "\n".join(_sentences(result))


def as_json(result: Bisection) -> str:
    """The same as JSON; ``first_slow`` is ``null`` if the bad commit is not slower."""
    search = result.search
    return output.document(
        case=result.case,
        commits=result.commits,
        first_slow=result.commits[search.bad] if search else None,
        last_fast=result.commits[search.good] if search else None,
        timed={
            commit: output.picked(row, "fate", "reason", "change", "critical") for commit, row in result.rows.items()
        },
        alpha=result.alpha,
        changes=result.changes,
        counters=result.counters,
        exit_code=result.exit_code,
    )
