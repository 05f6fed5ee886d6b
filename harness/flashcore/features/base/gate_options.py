"""``flashcore gate --base REV``: fails if a limit is looser than in a base revision."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.errors import UsageError
from flashcore.features.base.loosened import Loosened, everything, moved
from flashcore.gate import baseline
from flashcore.gate.judge import Verdict
from flashcore.measure.machine.isolated import Ended, isolated
from flashcore.measure.workers import opened_files
from flashcore.measure.workers.problem_file import load_problem
from flashcore.model.files import file_hash
from flashcore.model.record import Reads, Subject
from flashcore.model.suite import Suite
from flashcore.pipeline.judging import today
from flashcore.pipeline.revision import Revision, extracted
from flashcore.records import lookup, store
from flashcore.records.freshness import module_hash
from flashcore.suites.find import suite_folder
from flashcore.suites.load import load

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_TIME_LIMIT = 120.0  # a problem may import torch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "list what is looser than in this git revision, and fail"
    parser.add_argument("--base", metavar="REV", help=text)
    text = "with --base: what may be looser, such as budget:registers or baseline:NAME; repeatable"
    parser.add_argument("--allow", action="append", default=[], metavar="GLOB", help=text)


def requested(arguments: argparse.Namespace) -> bool:
    """Whether to compare with a base revision.

    Raises:
        UsageError: ``--allow`` is given without ``--base``.
    """
    if arguments.base is None and arguments.allow:
        raise UsageError("--allow: expected together with --base REV, found it alone")
    return arguments.base is not None


def run(arguments: argparse.Namespace) -> None:
    if not requested(arguments):
        return
    named = "commit the file and name it in suite.toml: [gate] baseline"
    for option, value, hint in (("RUN", arguments.recorded, "leave it out"), ("--baseline", arguments.baseline, named)):
        if value:
            raise UsageError(
                f"--base: expected without {option}: it compares the suite and its baseline as committed; found both\n"
                f"  hint: {hint}"
            )
    suite = load(suite_folder(arguments.suite))
    with extracted(arguments.base, Path(suite.root)) as revision:
        folder = revision.folder(suite.name)
        base = revision.load(folder) if folder else None
        changes = _changes(suite, revision, base, arguments.budgets)
        notes = [
            *revision.notes(),
            *(moved(base, suite) if base else ()),
            *(
                f"{file}: not as in {arguments.base}; it decides which answers are right"
                for file in dict.fromkeys(problem.file for problem in suite.problems.values())
                if folder and module_hash(folder / file) != module_hash(Path(suite.root, file))
            ),
            *(
                f"{file}: not as in {arguments.base}; {problem} reads it, which decides which answers are right"
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
        yield from (verdict(change, arguments.base, arguments.allow) for change in all_changes)

    arguments.checks.append(check)


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


def verdict(change: Loosened, revision: str, allowed: list[str]) -> Verdict:
    """The verdict on a looser limit, which fails unless it is allowed."""
    glob = next((glob for glob in allowed if fnmatchcase(change.key, glob)), None)
    accepted = f" (allowed by --allow {glob})" if glob else " (it has no variant left)" if change.gone else ""
    return Verdict(
        budget="base",
        fact="loosened",
        subject=Subject(change.key),
        tier="static",
        status="waived" if accepted else "fail",
        value=False,
        limit=f"as in {revision}",
        source=f"base revision {revision}",
        reason=change.text + accepted,
        required=True,
    )
