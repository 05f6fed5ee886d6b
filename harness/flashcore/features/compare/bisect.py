"""``flashcore bisect``: times commits against a good one until the first slow one is left."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flashcore.cli import options, output, progress
from flashcore.errors import CapabilityError, Exit, FlashcoreError, UsageError
from flashcore.explain import compare_records
from flashcore.explain.comparison import Change, Difference, row_data
from flashcore.features.compare import against, bench_options
from flashcore.features.compare.match_cases import BuiltSuite, work_of
from flashcore.machine import git
from flashcore.model.case import Case
from flashcore.model.progress import Say, prefixed
from flashcore.model.record import CaseSubject, Record
from flashcore.model.settings import Settings
from flashcore.model.text import UNMEASURED, faster, percentage
from flashcore.pipeline import revision
from flashcore.pipeline import run as pipeline

EXAMPLES = (
    ("flashcore bisect fast/mission v1.2 HEAD", "the commit since v1.2 that made the case slower"),
    ("flashcore bisect fast/mission HEAD~32 HEAD --effect 2", "only if by more than 2 %"),
)
_NOT_SLOWER = {"no difference", "faster", "too small to matter", "same code"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="VARIANT/SHAPE")
    parser.add_argument("good", metavar="GOOD", help="a revision that is fast")
    parser.add_argument("bad", metavar="BAD", help="a later revision that is slow")
    options.add_suite(parser)
    options.add_build(parser)
    options.add_quiet(parser)
    bench_options.add_decision(parser, "of each step")
    output.add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    case = Case.parse(arguments.case)
    settings = options.settings(arguments, upto=None, variants=(case.variant,), shapes=(case.shape,))
    with progress.shown(arguments.quiet) as say:
        result = bisect(settings, bench_options.chosen(arguments, arguments.good), arguments.bad, say)
    print(as_json(result) if arguments.format == "json" else as_text(result))
    return result.exit_code


@dataclass(slots=True)
class Bisection:
    """A search for the first slow commit: its commits, oldest first, and what is known about them so far.

    Args:
        commits: number 0 is good and the last one is bad.
        subjects: of their messages.
        rows: the comparisons with number 0, by number.
        good, bad: the last commit that is not slower, and the first one that is. Between them are only commits that are
            not timed yet, or that could not be built or decided.
        changes, counters: the static facts and the counters that differ from ``good`` to ``bad``; ``None``: not
            measured in both.
    """

    case: Case
    commits: Sequence[str]
    subjects: Sequence[str]
    alpha: float
    rows: dict[int, Difference] = field(default_factory=dict)
    good: int = 0
    bad: int = 0
    changes: Sequence[str] | None = None
    counters: Sequence[str] | None = None

    @property
    def exit_code(self) -> Exit:
        """0: one commit is left, or the bad one is not slower. 3: undecided."""
        decided = self.bad - self.good == 1 if self.bad else {row.outcome for row in self.rows.values()} <= _NOT_SLOWER
        return Exit.OK if decided else Exit.UNMEASURED

    def is_slower(self, number: int) -> bool | None:
        """Whether a timed commit is slower than number 0; ``None``: undecided."""
        row, last = self.rows[number], self.rows[len(self.commits) - 1].lead
        if row.outcome not in _NOT_SLOWER:
            return True if row.outcome == "slower" else None
        if not (last and last.ratio and row.lead and row.lead.ratio and row.lead.noise):
            return False
        slower = 1 / last.ratio - 1 / row.lead.ratio
        return False if slower > row.lead.noise else None  # None: it may be as slow as the last commit


def bisect(settings: Settings, chosen: against.AgainstOptions, bad: str, say: Say) -> Bisection:
    """Bisects the case of the settings between ``chosen.revision`` and ``bad``.

    Raises:
        UsageError: a revision is unknown or lacks the case, or the good one is no ancestor of the bad one.
    """
    near = Path(settings.suite)
    for name in (chosen.revision, bad):
        if not revision.commit_of(name, near):
            raise UsageError(f"{name}: expected a revision of the repository of {near}, found none of this name")
    span = f"{chosen.revision}..{bad}"
    log = git.run(near, "log", "--reverse", "--first-parent", "--format=%H %s", span).stdout.splitlines()
    if not log or git.run(near, "merge-base", "--is-ancestor", chosen.revision, bad).returncode:
        raise UsageError(f"{chosen.revision} {bad}: expected an ancestor, and a later commit")
    good = revision.commit_of(chosen.revision, near), ""
    commits, subjects = zip(good, *(line.partition(" ")[::2] for line in log), strict=True)
    result = Bisection(Case(settings.variants[0], settings.shapes[0]), commits, subjects, chosen.alpha)
    with ExitStack() as checkouts:
        search(result, Commits(settings, chosen, commits, say, checkouts))
    return result


def search(result: Bisection, commits: Commits) -> None:
    """Finds the first slow commit, and what it changed. A commit that gives the GPU the same work as a neighbor is not
    timed."""
    last, untested = len(result.commits) - 1, set[int]()
    result.rows[last] = commits.compared(last)
    if not result.is_slower(last):
        return
    result.bad = last
    while rest := [n for n in range(result.good + 1, result.bad) if n not in untested]:
        middle = min(rest, key=lambda n: abs(2 * n - result.good - result.bad))
        work, slow = commits.work(middle), None
        if work is not None and work in (commits.work(result.good), commits.work(result.bad)):
            slow = work != commits.work(result.good)
        elif work is not None:
            result.rows[middle] = commits.compared(middle)
            slow = result.is_slower(middle)
        if slow is None:
            untested.add(middle)
        elif slow:
            result.bad = middle
        else:
            result.good = middle
        commits.say(f"{result.bad - result.good - 1} commits left")
    before, after = commits.measured(result.good), commits.measured(result.bad)
    if before and after:
        result.changes = _texts(compare_records.changes(before, after))
        if before.gpu and after.gpu:
            result.counters = _texts(compare_records.moved(before, after, CaseSubject(result.case)))


def _texts(changes: Sequence[Change]) -> list[str]:
    """The changes without their subjects: those of several archs or kernels once."""
    return [*dict.fromkeys(f"{change.fact} {change.text}" for change in changes)]


@dataclass(slots=True)
class Commits:
    """Builds, times and profiles the case of the settings in commits, by number; ``checkouts`` has their files."""

    settings: Settings
    chosen: against.AgainstOptions
    commits: Sequence[str]
    say: Say
    checkouts: ExitStack
    _sides: dict[int, BuiltSuite | None] = field(default_factory=dict)

    def side(self, number: int) -> BuiltSuite | None:
        """A commit's build; ``None`` if one between the good and the bad commit has no such case or cannot be read.

        Raises:
            UsageError: the good or the bad one is such a commit.
            CapabilityError: this machine cannot build it.
        """
        if number not in self._sides:
            commit = self.commits[number]
            say = prefixed(self.say, f"{commit[:12]}: ")
            try:
                root = self.checkouts.enter_context(revision.suite_at(commit, Path(self.settings.suite)))
                self._sides[number] = against.built(revision.settings_at(root, self.settings), say)
            except CapabilityError:
                raise
            except FlashcoreError as error:
                if number in (0, len(self.commits) - 1):
                    raise UsageError(f"{commit[:12]}: {error}") from error
                say(f"skipped: {error}")
                self._sides[number] = None
        return self._sides[number]

    def work(self, number: int) -> object | None:
        """What the GPU gets to do in a commit; ``None`` if the case is not built there."""
        if (side := self.side(number)) is None:
            return None
        suite, (variant,), (shape,) = side.job.suite, self.settings.variants, self.settings.shapes
        return work_of(side, suite.variants[variant], suite.shapes[shape])

    def compared(self, number: int) -> Difference:
        """The comparison of a commit with number 0."""
        (variant,), (shape,) = self.settings.variants, self.settings.shapes
        good, side = self.side(0), self.side(number)
        undecided = Difference(CaseSubject(Case(variant, shape)), "undecided")
        assert good is not None and side is not None
        self.say(f"bisect: {self.commits[number][:12]} against {self.commits[0][:12]}")
        done = against.compared(Path(good.job.suite.root), side, self.commits[0], self.chosen).comparison
        same = (row for row in done.rows if row.subject == undecided.subject)
        return next(same, replace(undecided, reason="it is not timed"))

    def measured(self, number: int) -> Record | None:
        """The case's record in a commit; ``None`` if it cannot be measured."""
        side = self.side(number)
        assert side is not None
        try:
            with tempfile.TemporaryDirectory(prefix="flashcore-bisect-") as runs:
                profiled: dict[str, Any] = {"profiles": runs, "upto": "profile", "join": False, "roofs": None}
                return pipeline.run(replace(side.job, settings=replace(side.job.settings, **profiled))).record
        except FlashcoreError as error:
            side.job.say(f"not profiled: {error}")
            return None


def as_text(result: Bisection) -> str:
    """The timed commits, and the first slow one."""
    return "\n".join(_sentences(result))


def _sentences(result: Bisection) -> Iterator[str]:
    commits = [commit[:12] for commit in result.commits]
    for number, row in result.rows.items():
        lead, size = row.lead, ""
        if lead and lead.ratio and lead.noise is not None:
            size = f"{faster(lead.ratio, shown=f'{lead.ratio:.3f}')} (noise {percentage(100 * lead.noise, 2)})  "
        yield f"{commits[number]}  {size}{row.verdict}"
    if not result.bad:
        fact = "undecided whether {} is" if result.exit_code else "{} is not"
        yield f"{result.case}: {fact.format(commits[-1])} slower than {commits[0]}; nothing to search"
        return
    confidence = 100 * (1 - len(result.rows) * result.alpha)
    yield f"{len(commits) - 1} commits, {len(result.rows)} timed; confidence at least {confidence:.4g} %"
    for number in range(result.good + 1, result.bad):
        yield f"not decided: {commits[number]} {result.subjects[number]}"
    yield f"first slow commit: {commits[result.bad]} {result.subjects[result.bad]}"
    for name, changes, none in (
        ("static facts", result.changes, "no change, though the code differs"),
        ("counters", result.counters, "no change"),
    ):
        yield f"  {name}: {UNMEASURED if changes is None else '; '.join(changes) or none}"


def as_json(result: Bisection) -> str:
    """The same as JSON; ``first_slow`` is ``null`` if the bad commit is not slower."""
    commits, rows = result.commits, result.rows.items()
    return output.document(
        first_slow=commits[result.bad] if result.bad else None,
        last_fast=commits[result.good] if result.bad else None,
        timed={commits[number]: row_data(row) for number, row in rows},
        case=str(result.case),
        **output.picked(result, "commits", "alpha", "changes", "counters", "exit_code"),
    )
