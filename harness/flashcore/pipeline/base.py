"""Compares the limits of a suite with those of a base revision, for ``flashcore gate --base REV``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.explain.verdict import Verdict
from flashcore.gate import baseline
from flashcore.gate.baseline import Baseline
from flashcore.gate.loosened import Loosened, everything, moved, verdict
from flashcore.machine.isolated import Ended, isolated
from flashcore.model.files import file_hash
from flashcore.model.record import Reads
from flashcore.model.suite import Suite
from flashcore.pipeline.judging import today
from flashcore.pipeline.revision import Revision, extracted
from flashcore.records import lookup, store
from flashcore.runner import opened_files
from flashcore.runner.problem_file import load_problem
from flashcore.suites.find import suite_folder
from flashcore.suites.load import load

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_TIME_LIMIT = 120.0  # a problem may import torch


@dataclass(frozen=True, slots=True)
class Base:
    """A base revision of a suite, and how it differs from the suite's working tree.

    Args:
        name: the git revision.
        baseline: its baseline, if it has one.
        loosened: the limits that are looser now.
        notes: what else to know.
        runs: of its recorded runs, each file's hash.
        removed: the names of the suite's runs that were removed.
        here: the suite's runs that are still here.
    """

    name: str
    baseline: Baseline | None
    loosened: Sequence[Loosened]
    notes: Sequence[str]
    runs: Mapping[str, Mapping[str, str]]
    removed: Sequence[str]
    here: Sequence[Traversable]

    def verdicts(self, judged: Sequence[Traversable], allowed: Sequence[str]) -> list[Verdict]:
        """A verdict on each limit that is looser than in the base, and each of its runs that was changed or removed.

        Args:
            judged: the runs that are judged.
            allowed: globs of what may be looser, such as ``budget:registers`` or ``baseline:NAME``.
        """
        used = {run.name for run in judged}
        unused = [run for run in self.here if run.name not in used]  # a damaged run is not used
        gone = [Loosened("run", name, "removed") for name in self.removed if name not in used]
        changes = (*self.loosened, *gone, *_runs(self.runs, [*judged, *unused]))
        return [verdict(change, self.name, allowed) for change in changes]


def compared(revision_name: str, suite_name: str, budgets: str | None) -> Base:
    """Compares a suite and its baseline, as committed, with a revision.

    Args:
        revision_name: the git revision.
        suite_name: the suite's folder or name; empty: the only one here.
        budgets: a file with more budgets.

    Raises:
        UsageError: there is no such revision.
    """
    suite = load(suite_folder(suite_name))
    with extracted(revision_name, Path(suite.root)) as revision:
        folder = revision.folder(suite.name)
        base = revision.load(folder) if folder else None
        old = baseline.read(revision.fetched(_baseline_file(base))) if base else None
        loosened = _loosened(suite, revision, base, old, budgets)
        notes = [*revision.notes(), *(moved(base, suite) if base else ())]
        if folder:
            notes += _other_answers(suite, revision, folder)
        runs: dict[str, Mapping[str, str]] = {}
        removed: list[str] = []
        here: list[Traversable] = []
        for file in (f for form in (store.HEADER, f"*{lookup.PACKED}") for f in revision.tree.rglob(form)):
            run = _run(file)
            runs[run.name] = _hashes(run)
            if lookup.suite_of(run) in (suite.name, lookup.ROOFS_SUITE):
                now = revision.top / file.relative_to(revision.tree)
                here += [_run(now)] if now.is_file() else []
                removed += [] if now.is_file() else [run.name]
    return Base(revision_name, old, loosened, notes, runs, removed, here)


def _other_answers(suite: Suite, revision: Revision, folder: Path) -> Iterator[str]:
    """A note for each changed file that decides which answers are right."""
    problems = dict.fromkeys(problem.file for problem in suite.problems.values())
    changed, decides = f"not as in {revision.name}", "which decides which answers are right"
    for file in problems:
        if file_hash(folder / file) != file_hash(Path(suite.root, file)):
            yield f"{file}: {changed}; it decides which answers are right"
    for problem, files in _reads(suite).items():
        for file in sorted({*files} - {*problems}):
            if revision.is_changed(Path(suite.root, file)):
                yield f"{file}: {changed}; {problem} reads it, {decides}"


def _reads(suite: Suite) -> Reads:
    """The files that each problem file opens when it is imported; empty if one fails, which the gate tells."""

    def loaded() -> Reads:
        opened_files.watch()
        for file in dict.fromkeys(problem.file for problem in suite.problems.values()):
            load_problem(suite.root, file)
        return opened_files.reads(suite.root)

    answer = isolated(_TIME_LIMIT, loaded)
    return {} if isinstance(answer, Ended) else answer


def _baseline_file(suite: Suite) -> Path:
    return Path(suite.root) / (suite.gate.baseline or baseline.DEFAULT)


def _loosened(
    suite: Suite, revision: Revision, base: Suite | None, old: Baseline | None, budgets: str | None
) -> list[Loosened]:
    """The limits of the working tree's suite that are looser than the revision's.

    Args:
        base: the suite in the revision; ``None`` if it is new.
        old: its baseline.
        budgets: a file with more budgets.
    """
    if base is None:
        removed = revision.removed()
        return [Loosened("suite", path, f"removed; {suite.root} is not in the base") for path in removed]
    if budgets:
        from flashcore.suites.budgets import read  # imports pydantic

        suite = replace(suite, budgets=(*suite.budgets, *read(Path(budgets))))
        if before := revision.file(Path(budgets)):
            base = replace(base, budgets=(*base.budgets, *read(before)))
    return everything((base, old), (suite, baseline.read(_baseline_file(suite))), today())


def _runs(before: Mapping[str, Mapping[str, str]], runs: Sequence[Traversable]) -> Iterator[Loosened]:
    """The runs whose files' hashes differ from the base's."""
    for run in runs:
        new = _hashes(run)
        old = before.get(run.name, new)
        if differing := sorted(name for name, _ in {*old.items()} ^ {*new.items()}):
            yield Loosened("run", run.name, f"not as in the base: {', '.join(dict.fromkeys(differing))}")


def _run(file: Path) -> Traversable:
    """The run of a header or packed file."""
    return file.parent if file.name == store.HEADER else lookup.runs_at(file)[0]


def _hashes(run: Traversable) -> dict[str, str]:
    return {**store.sums(run), store.SUMS: file_hash(run / store.SUMS)}
