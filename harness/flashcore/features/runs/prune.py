"""``flashcore runs prune``: removes runs and builds that nothing needs.

It keeps runs that git tracks, the newest runs, those that the gate or a new run would join facts from, and those that a
process has locked. It keeps the builds of the suite's present sources.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time
from datetime import datetime
from math import inf
from pathlib import Path

from flashcore.build import languages
from flashcore.cli import options
from flashcore.errors import CapabilityError, Exit, FlashcoreError, UsageError
from flashcore.machine import git
from flashcore.model.case import Case
from flashcore.model.files import PARTIAL, writing
from flashcore.pipeline import revision
from flashcore.records import assemble, lookup, store
from flashcore.suites.find import suite_folder
from flashcore.suites.load import load

_HASHED = re.compile(r"(.+-)?[0-9a-f]{16}")
_DAY = 86_400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_suite(parser)
    options.add_build(parser)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--runs", action="store_true", help="only runs")
    only.add_argument("--builds", action="store_true", help="only builds")
    text = "number of newest runs that are kept (default: %(default)s)"
    parser.add_argument("--keep", type=int, default=10, metavar="N", help=text)
    text = "younger ones are kept (default: %(default)g)"
    parser.add_argument("--older-than", type=float, default=30.0, metavar="DAYS", help=text)
    text = "remove them; a removed run cannot be recovered"
    parser.add_argument("--yes", action="store_true", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Removes or lists old runs and builds."""
    if arguments.keep < 0 or not 0 <= arguments.older_than < inf:
        raise UsageError("--keep and --older-than: expected a finite number, 0 or more")
    before = time.time() - arguments.older_than * _DAY
    old: list[Path] = []
    if not arguments.builds:
        old += old_runs(Path(arguments.profiles), arguments.keep, before)
    if not arguments.runs:
        try:
            old += old_builds(arguments.suite, Path(arguments.build), before)
        except CapabilityError as error:
            if arguments.builds:
                raise
            print(f"flashcore: builds are left as they are: {error}", file=sys.stderr)
    total = 0
    for path in old:
        size = sum(p.lstat().st_size for p in path.rglob("*"))
        if arguments.yes and not _remove(path):
            continue
        total += size
        print(f"{'removed' if arguments.yes else 'to remove'}  {path}  {size / 1e6:,.1f} MB")
    hint = "" if arguments.yes or not old else "; nothing was removed yet: --yes does it"
    print(f"{total / 1e6:,.1f} MB in all{hint}")
    return Exit.OK


def old_runs(profiles: Path, keep: int, before: float) -> list[Path]:
    """The runs to remove, ended or not, oldest last.

    Args:
        keep: so many of the newest are kept.
        before: seconds since 1970; runs that began later are kept.

    Raises:
        CapabilityError, FlashcoreError: git cannot say what it tracks.
    """
    if not profiles.is_dir():
        return []
    folders = [p for p in profiles.iterdir() if store.RUN_ID.fullmatch(p.name.removesuffix(PARTIAL))]
    folders = sorted((p for p in folders if p.is_dir() and not p.is_symlink()), key=lambda p: p.name, reverse=True)
    needed = _tracked(profiles) | _joined(profiles) | {p.name for p in folders[:keep]}
    return [p for p in folders if p.name not in needed and _began(p) < before and not store.in_progress(p)]


def _began(run: Path) -> float:
    """Its time in seconds since 1970; infinite, which keeps it, if its id has none."""
    try:
        return datetime.fromisoformat(run.name.partition("-")[0]).timestamp()
    except ValueError:
        return inf


def _tracked(folder: Path) -> set[str]:
    """The entries of the folder in which git tracks a file."""
    whole = folder.resolve()
    if not any((p / ".git").exists() for p in (whole, *whole.parents)):
        return set()
    done = git.run(folder, "ls-files", "-z")
    if done.returncode != 0:
        raise FlashcoreError(f"{folder}: expected git to say which runs it tracks, found: {done.stderr.strip()}")
    return {name.split("/")[0] for name in done.stdout.split("\0")}


def _joined(profiles: Path) -> set[str]:
    """The runs that facts are joined from for each suite and GPU, including the newest measured one."""
    measured = set()
    for folder in lookup.runs(profiles):
        try:
            header = json.loads((folder / store.HEADER).read_bytes())
            measured.add((header["suite"]["name"], header["environment"]["gpu"]))
        except lookup.DAMAGED:
            continue  # damaged, so nothing can be joined from it
    joined = set[str]()
    for suite, gpu in ((suite, gpu) for suite, gpu in measured if gpu):
        results = set[tuple[Case, str]]()
        for run in assemble.to_join(profiles, suite, gpu):
            if more := {(o.case, o.stage) for o in run.outcomes if not o.origin} - results:
                results |= more
                joined.add(run.id)
    return joined


def old_builds(suite: str | None, folder: Path, before: float) -> list[Path]:
    """The builds older than ``before`` (seconds since 1970) that no present source of the suite uses, and those of git
    revisions and comparisons.

    Raises:
        CapabilityError: there are old builds but no compiler, whose version is part of a build's name.
    """
    loaded = load(suite_folder(suite))
    places = [folder / loaded.name, *folder.glob(f"{revision.BUILD}/*")]
    old = [
        path
        for place in places
        for path in sorted(place.iterdir() if place.is_dir() else ())
        if _HASHED.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
        if path.stat().st_mtime < before and not store.in_progress(path)
    ]
    needed = languages.in_use(loaded, folder) if old else set()
    return [path for path in old if path not in needed]


def _remove(path: Path) -> bool:
    """Removes the folder, unless a process has it locked; whether it did."""
    try:
        with store.claimed(path), writing(path):
            (path / store.HEADER).unlink(missing_ok=True)  # first: an interrupted removal leaves no run
            shutil.rmtree(path)
    except UsageError as error:
        print(f"flashcore: left as it is: {error}", file=sys.stderr)
        return False
    return True
