"""Compares the limits of a suite with those of a base revision, for ``flashcore gate --base REV``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.gate import baseline
from flashcore.gate.judge import Verdict
from flashcore.gate.loosened import Loosened, everything, moved, verdict
from flashcore.machine.isolated import Ended, isolated
from flashcore.model.files import file_hash
from flashcore.model.record import Reads
from flashcore.model.suite import Suite
from flashcore.pipeline.judging import today
from flashcore.pipeline.revision import Revision, extracted
from flashcore.records import lookup, store
from flashcore.records.freshness import module_hash
from flashcore.runner import opened_files
from flashcore.runner.problem_file import load_problem
from flashcore.suites.find import suite_folder
from flashcore.suites.load import load

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_TIME_LIMIT = 120.0  # a problem may import torch


#: Verdicts and notes on the runs that are judged.
Check = Callable[[Sequence["Traversable"]], Iterator[Verdict | str]]


def compared(revision_name: str, suite_name: str, budgets: str | None, allowed: Sequence[str]) -> Check:
    """Compares a suite and its baseline, as committed, with a revision: fails each limit that is looser now.

    Args:
        revision_name: the git revision.
        suite_name: the suite's folder or name; empty: the only one here.
        budgets: a file with more budgets.
        allowed: globs of what may be looser, such as ``budget:registers`` or ``baseline:NAME``.

    Raises:
        UsageError: there is no such revision.
    """
    suite = load(suite_folder(suite_name))
    with extracted(revision_name, Path(suite.root)) as revision:
        folder = revision.folder(suite.name)
        base = revision.load(folder) if folder else None
        changes = _changes(suite, revision, base, budgets)
        notes = [
            *revision.notes(),
            *(moved(base, suite) if base else ()),
            *(
                f"{file}: not as in {revision_name}; it decides which answers are right"
                for file in dict.fromkeys(problem.file for problem in suite.problems.values())
                if folder and module_hash(folder / file) != module_hash(Path(suite.root, file))
            ),
            *(
                f"{file}: not as in {revision_name}; {problem} reads it, which decides which answers are right"
                for problem, files in (_reads(suite) if folder else {}).items()
                for file in sorted({*files} - {p.file for p in suite.problems.values()})
                if revision.is_changed(Path(suite.root, file))
            ),
        ]
        before: dict[str, Mapping[str, str]] = {}
        removed: list[str] = []
        here: list[Traversable] = []
        for file in (f for ending in (store.HEADER, lookup.PACKED) for f in revision.tree.rglob(f"*{ending}")):
            run = _run(file)
            before[run.name] = _hashes(run)
            if lookup.suite_of(run) in (suite.name, lookup.ROOFS):
                now = revision.top / file.relative_to(revision.tree)
                here += [_run(now)] if now.is_file() else []
                removed += [] if now.is_file() else [run.name]

    def check(runs: Sequence[Traversable]) -> Iterator[Verdict | str]:
        used = {run.name for run in runs}
        unused = [run for run in here if run.name not in used]  # a damaged run is not used
        gone = [Loosened("run", name, "removed") for name in removed if name not in used]
        all_changes = (*changes, *gone, *_runs(before, [*runs, *unused]))
        yield from notes
        yield from (verdict(change, revision_name, allowed) for change in all_changes)

    return check


def _reads(suite: Suite) -> Reads:
    """The files that each problem file opens when it is imported; empty if one fails, which the gate tells."""

    def loaded() -> Reads:
        opened_files.watch()
        for file in dict.fromkeys(problem.file for problem in suite.problems.values()):
            load_problem(suite.root, file)
        return opened_files.reads(suite.root)

    answer = isolated(_TIME_LIMIT, loaded)
    return {} if isinstance(answer, Ended) else answer


def _changes(suite: Suite, revision: Revision, base: Suite | None, budgets: str | None) -> list[Loosened]:
    """The limits of the working tree's suite that are looser than the revision's.

    Args:
        base: the suite in the revision; ``None`` if it is new.
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
    files = [Path(one.root) / (one.gate.baseline or baseline.DEFAULT) for one in (base, suite)]
    revision.fetched(files[0])
    return everything((base, baseline.read(files[0])), (suite, baseline.read(files[1])), today())


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
