"""``flashcore tune``: searches a space of configs for the fastest correct one that keeps its budgets."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.cli import options, progress
from flashcore.errors import Exit, UsageError
from flashcore.plugins.tune import finalists, page, session, study, tables
from flashcore.plugins.tune.summary import Summary

if TYPE_CHECKING:
    from flashcore.plugins.tune.finalists import Final
    from flashcore.plugins.tune.study import Header, Result

EXAMPLES = (
    ("flashcore tune tiles --evaluations 200", "search the space `tiles` of the suite"),
    ("flashcore tune tiles --static", "only compile, without a GPU"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("space", nargs="?", metavar="SPACE", help="a [space.NAME] of the manifest")
    options.add_suite(parser)
    options.add_places(parser)
    options.add_shapes(parser)
    options.add_gpus(parser)
    add = parser.add_argument
    add("--studies", default="studies", metavar="DIR", help="studies (default: %(default)s)")
    add(
        "--sampler",
        default="",
        metavar="NAME",
        help="nsga2, tpe, gp, random or grid (default: by the size of the space and of the budget)",
    )
    add(
        "--evaluations",
        type=int,
        metavar="N",
        help="end after N candidates were measured (default: a tenth of the points, at least 32)",
    )
    add("--seconds", type=float, metavar="S", help="end after S seconds")
    add("--until", type=float, metavar="PCT", help="end when the best is within PCT percent of the first shape's floor")
    add("--batch", type=int, metavar="N", help="candidates built at a time (default: by the budget)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the sampler (default: %(default)s)")
    add(
        "--finalists",
        type=int,
        default=3,
        metavar="N",
        help="fastest candidates to time against the manifest's fastest variant (default: %(default)s)",
    )
    add(
        "--processes", type=int, default=9, metavar="N", help="processes that time the finalists (default: %(default)s)"
    )
    add("--static", action="store_true", help="only build and gate; needs no GPU")
    add("--replay", metavar="STUDY", help="take the outcome of each candidate from a study, instead of a GPU")
    add("--resume", action="store_true", help="continue with the newest study of this space")
    add("--write", action="store_true", help="add the winner to the manifest")
    add("--show", metavar="STUDY", help="print a study: a folder's name, or its results.jsonl")
    add("--report", metavar="FILE", help="also write the study's page (HTML)")


def run(arguments: argparse.Namespace) -> int:
    if arguments.show is not None:
        folder = study.find(Path(arguments.studies), arguments.show)
        _show(arguments, *study.read(folder), finalists.load(folder))
        return Exit.OK
    if arguments.space is None:
        raise UsageError("tune: expected the name of a space, or --show STUDY; found neither")
    if arguments.report is not None:
        import jinja2  # noqa: F401  reports a missing package before hours of search

    given = session.Options(**{field.name: getattr(arguments, field.name) for field in fields(session.Options)})
    with progress.shown(arguments.quiet) as say:
        outcome = session.run(options.settings(arguments, upto=None), given, say)
    _show(arguments, outcome.study.header, outcome.study.results, outcome.finals)
    if outcome.offer is not None:
        print("\n" + outcome.offer.diff)
        if arguments.write:
            outcome.offer.write()
    return Exit.OK


def _show(
    arguments: argparse.Namespace, header: Header, results: Mapping[int, Result], finals: Sequence[Final]
) -> None:
    """Prints a study and, if asked, writes its page."""
    summary = Summary(header, results)
    print(tables.study_text(summary))
    if finals:
        print("\n" + tables.finalists_text(summary, finals))
    if arguments.report is not None:
        print(f"\nreport: {page.write(summary, Path(arguments.report), finals)}")
