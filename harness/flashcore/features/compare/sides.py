"""What ``flashcore compare`` compares: two runs, git revisions, compiled files, reports, or the working tree."""

from __future__ import annotations

import argparse
from dataclasses import replace
from glob import glob
from pathlib import Path
from typing import Literal

from flashcore.cli import options
from flashcore.errors import UsageError
from flashcore.model.progress import Say
from flashcore.model.record import Record
from flashcore.model.settings import Settings
from flashcore.pipeline import plugins, revision
from flashcore.pipeline.make_record import present_record
from flashcore.records import lookup, narrow, store
from flashcore.suites import load
from flashcore.suites.load import NothingMatches

TREE = "."
#: Of reports, packed or not: ``.tar.gz`` is an archive of compiled files.
_REPORTS = (".ncu-rep", ".csv", ".sqlite", ".json")
SideKind = Literal["working tree", "run", "report", "compiled files", "revision"]


def kind(name: str, arguments: argparse.Namespace) -> SideKind:
    """What a name means. A run comes before a file, and a file before a revision of the same name.

    Raises:
        UsageError: it means nothing.
    """
    path, runs = Path(name), lookup.all_runs(options.places(arguments))
    if name == TREE:
        return "working tree"
    if (path / store.HEADER).is_file() or (name and any(run.name.startswith(name) for run in runs)):
        return "run"
    if path.is_file():
        if name.endswith(lookup.PACKED):
            return "run"
        return "report" if name.removesuffix(".gz").endswith(_REPORTS) else "compiled files"
    if revision.commit_of(name, Path(arguments.suite or "")):
        return "revision"
    if glob(name, recursive=True):
        return "compiled files"
    newest = ", ".join(run.name for run in runs[:3]) or "none"
    raise UsageError(
        f"{name}: expected a run's id or folder, a packed run, a git revision, compiled files, a report or "
        f"{TREE} for the working tree, found none of them (newest runs: {newest})"
    )


def records(arguments: argparse.Namespace, say: Say) -> tuple[Record, Record]:
    """The two records, with the selected variants, shapes and archs. A side without the selected variants is built as a
    whole.

    Raises:
        UsageError: a name means nothing, a file cannot be read, or the suite is not in a revision.
        CapabilityError: there is no git, or no nvcc to build with.
    """
    names = arguments.a, arguments.b
    kinds = {name: kind(name, arguments) for name in names}
    built = not {"working tree", "revision"}.isdisjoint(kinds.values())
    settings = options.settings(arguments, upto=None, **({} if built else {"suite": ""}))
    sides: dict[str, Record | NothingMatches] = {}
    for name in sorted(kinds, key=lambda name: name != TREE):  # a revision uses its builds
        try:
            sides[name] = record(name, kinds[name], settings, say)
        except NothingMatches as error:
            sides[name] = error
    errors = [side for side in sides.values() if isinstance(side, NothingMatches)]
    if len(errors) == len(sides):
        raise errors[-1]
    whole = replace(settings, variants=())
    a, b = (
        record(name, kinds[name], whole, say) if isinstance(side := sides[name], NothingMatches) else side
        for name in names
    )
    if any(chosen := options.selected(arguments).values()):  # a run has all variants
        both = replace(
            b.suite,
            variants={**a.suite.variants, **b.suite.variants},
            shapes={**a.suite.shapes, **b.suite.shapes},
            archs=tuple(dict.fromkeys((*a.suite.archs, *b.suite.archs))),
        )
        both = load.narrowed(both, *chosen)
        a, b = narrow.narrowed(a, both), narrow.narrowed(b, both)
    return a, b


def record(name: str, kind: SideKind, settings: Settings, say: Say) -> Record:
    """The record of a name. Those of the working tree and of revisions have static facts, joined with recorded ones
    that are fresh for their code."""
    made: Record
    match kind:
        case "run":
            return store.read(lookup.find(settings.places, name))
        case "report":
            made = plugins.find("api", "import_report")(name).record
        case "compiled files":
            made = plugins.find("api", "audit")([name], settings.archs)
        case "working tree":
            made = present_record(settings, say)
        case "revision":
            commit = revision.commit_of(name, Path(settings.suite))[:12]
            with revision.suite_at(name, Path(settings.suite)) as root:
                say(f"revision: {name} is {commit}")
                made = present_record(revision.settings_at(root, settings), say)
            # Its folder is gone: the record must not name files there.
            return replace(made, id=f"{name} ({commit})", suite=replace(made.suite, root=settings.suite))
    return replace(made, id=kind if name == TREE else name)
