"""``flashcore diff``: what changed."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashcore.cli import options, output
from flashcore.errors import Exit, UsageError
from flashcore.model import plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flashcore.model.record import Record, Subject
    from flashcore.pipeline.state import Settings

    Say = Callable[[str], None]

WORKING_TREE = "."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a run's id or folder, a git revision, or . for the working tree")
    parser.add_argument("b", metavar="B", nargs="?", default=".", help="likewise (default: %(default)s)")
    options.add_cases(parser)
    options.add_records(parser)
    output.add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    return compare(arguments, record)


def record(name: str, settings: Settings, say: Say) -> Record:
    """The record that ``name`` means: a run, or the working tree (``.``).

    Raises:
        UsageError: it is neither.
        CapabilityError: there is no nvcc to build with.
    """
    from flashcore.pipeline import run
    from flashcore.records import lookup, store

    if name == WORKING_TREE:
        return replace(run.present(settings, say), id="working tree")
    try:
        return store.read(lookup.find(settings.places, name))
    except UsageError as error:
        raise UsageError(f"{error}{plugin.missing('options', 'git revisions')}") from None


def compare(arguments: argparse.Namespace, record: Callable[[str, Settings, Say], Record]) -> int:
    """Prints the differences between two records; ``record`` finds or makes the one that a name means."""
    from flashcore.cli import progress, terminal, text_tables
    from flashcore.explain import diff
    from flashcore.records import lookup, store
    from flashcore.suites.load import select

    names = (arguments.a, arguments.b)
    runs = [run.name for run in lookup.everywhere(options.places(arguments))]
    need_none = all(
        Path(name, store.HEADER).is_file() or name.endswith(lookup.PACKED) or any(r.startswith(name) for r in runs)
        for name in names
    )
    own = {"suite": ""} if need_none else {}
    settings = options.settings(arguments, upto=None, **own)
    with progress.shown(arguments.quiet) as say:
        a, b = _sides(names, settings, lambda name, own: record(name, own, say))
    chosen = arguments.variant
    if chosen is not None:  # a run has them all
        known = replace(b.suite, variants={**a.suite.variants, **b.suite.variants})
        matching = [v.name for v in select(known, chosen)[0]]
        a, b = diff.narrowed(a, matching), diff.narrowed(b, matching)
    text = as_json(a, b) if arguments.format == "json" else text_tables.difference(a, b, whole=chosen is not None)
    print(text if arguments.format == "json" else terminal.painted(text))
    return Exit.OK


def _sides(names: Sequence[str], settings: Settings, record: Callable[[str, Settings], Record]) -> list[Record]:
    """The records of both; a side that lacks the named variants is built as a whole, and then has none of them."""
    from flashcore.suites.load import NothingMatches

    found: list[Record | NothingMatches] = []
    for name in names:
        try:
            found.append(record(name, settings))
        except NothingMatches as error:
            found.append(error)
    errors = [one for one in found if isinstance(one, NothingMatches)]
    if len(errors) == len(found):
        raise errors[-1]
    whole = replace(settings, variant=None)
    return [record(n, whole) if isinstance(one, NothingMatches) else one for n, one in zip(names, found, strict=True)]


def as_json(a: Record, b: Record) -> str:
    """Its keys.

    - ``before``, ``after``: id, suite, gpu, nvcc; ``notes``;
    - ``builds``: how many of both are the same;
    - ``static``: a changed fact each, ``null`` on the side that lacks it;
    - ``imported``: the facts of each imported case that changed;
    - ``times``: in us, ``null`` where they do not compare; then ``times_reason`` says why.
    """
    from flashcore.explain import diff

    def side(record: Record) -> dict[str, Any]:
        return {"id": record.id, "suite": record.suite.name, "gpu": record.gpu, "nvcc": record.environment.nvcc}

    def subject(of: Subject) -> dict[str, Any]:
        return output.picked(of, "variant", "arch", "shape", "kernel", "launch")

    same, both = diff.same_builds(a, b)
    reason = diff.comparable(a, b)
    changed = ("fact", "unit", "before", "after", "direction")
    timed = ("mode", "before_us", "after_us", "ratio", "low", "high", "judged", "same_code")
    return output.document(
        before=side(a),
        after=side(b),
        notes=diff.remarks(a, b),
        builds={"same": same, "both": both},
        static=[subject(c.subject) | output.picked(c, *changed) for c in diff.changes(a, b)],
        imported=[
            subject(s) | {"facts": [output.picked(c, *changed) for c in found]} for s, found in diff.imported(a, b)
        ],
        times=None if reason else [subject(t.subject) | output.picked(t, *timed) for t in diff.timing(a, b)],
        times_reason=reason,
    )
