"""``flashcore tune``: searches a space of configs for the fastest correct one within its budgets."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.cli import options, progress
from flashcore.cli.grid import grid
from flashcore.errors import Exit, UsageError
from flashcore.model.text import UNMEASURED, number
from flashcore_tune import finalists, page, session, study
from flashcore_tune.samplers import SAMPLERS
from flashcore_tune.space import OBJECTIVES
from flashcore_tune.summary import Summary, Table

if TYPE_CHECKING:
    from flashcore_tune.finalists import Final
    from flashcore_tune.study import Header, Result

EXAMPLES = (
    ("flashcore tune tiles --evaluations 200", "search the space `tiles` of the suite"),
    ("flashcore tune tiles --static", "only compile, without a GPU"),
)

_SHOWN = 12
_LONGEST = 100  # characters of a reason


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_quiet(parser)
    parser.add_argument("space", nargs="?", metavar="SPACE", help="a space of the suite's space.toml")
    options.add_suite(parser)
    options.add_places(parser)
    options.add_shapes(parser)
    options.add_gpus(parser)
    add = parser.add_argument
    text = f"minimize also {', '.join(OBJECTIVES)}; repeatable"
    add("--objective", action="append", default=[], choices=OBJECTIVES, metavar="NAME", help=text)
    add("--studies", default="studies", metavar="DIR", help="studies (default: %(default)s)")
    text = "default: by the size of the space and of the budget"
    add("--sampler", default="", choices=SAMPLERS, metavar="NAME", help=f"{', '.join(SAMPLERS)} ({text})")
    text = "end after N candidates were measured (default: a tenth of the points, at least 32)"
    add("--evaluations", type=int, metavar="N", help=text)
    add("--seconds", type=float, metavar="S", help="end after S seconds")
    add("--until", type=float, metavar="PCT", help="end when the best is within PCT percent of the first shape's floor")
    add("--batch", type=int, metavar="N", help="candidates built at a time (default: by the budget)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the sampler (default: %(default)s)")
    text = "fastest candidates to time against the manifest's fastest variant (default: %(default)s)"
    add("--finalists", type=int, default=3, metavar="N", help=text)
    text = "processes that time the finalists (default: %(default)s)"
    add("--processes", type=int, default=9, metavar="N", help=text)
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
    options.require_positive(arguments, "evaluations", "seconds", "batch", "processes")
    if arguments.finalists < 0:
        raise UsageError(f"--finalists {arguments.finalists}: expected 0 or more")
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
    print(study_text(summary))
    if finals:
        print("\n" + _text(finalists.table(finals, summary.grid)))
    if arguments.report is not None:
        print(f"\nreport: {page.write(summary, Path(arguments.report), finals)}")


def study_text(study: Summary) -> str:
    """Returns all tables of a study except the finalists'."""
    header = study.header
    title = (
        f"space {header.space.name} of suite {header.suite}: {header.sampler}, seed {header.seed}, "
        f"{header.gpu or 'no GPU'}, {header.arch}, {header.made_by}"
    )
    parts = _of_timed(study) if study.timed else [_static_only(study)] if study.results else []
    return "\n\n".join([title, _funnel(study), *parts])


def _funnel(study: Summary) -> str:
    """The number of candidates after each step, with the two most frequent reasons of rejection."""
    rows = []
    for place, step in enumerate(study.funnel):
        frequent = step.rejections[:2] if place > 1 else ()  # conditions are in the manifest
        reasons = ", ".join(f"{count} × {_short(text)}" for count, text in frequent)
        rows.append([step.name, UNMEASURED if step.left is None else f"{step.left:,}", reasons])
    rows.append(["have another's machine code", f"{study.twins:,}", "measured once" if study.twins else ""])
    return grid(["funnel", "left", "rejected, for example"], rows)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _of_timed(study: Summary) -> Iterator[str]:
    floor = study.header.floor
    yield _text(study.improved()) + ("" if floor is None else f"\nfloor: {number(floor, 'us')}, by the datasheet")
    yield _text(study.candidates(one.result for one in study.ranked[:_SHOWN]))
    yield _text(study.axes())
    if study.front:
        yield f"Pareto front\n{_text(study.pareto())}"


def _static_only(study: Summary) -> str:
    """The launchable candidates that spill or fail a soft budget, the worst first."""
    launched = [r for r in study.launchable if not r.fell]
    worst = [r for r in launched if r.broken or r.facts.get("spill_store_bytes")]
    worst.sort(key=lambda r: (-r.facts.get("spill_store_bytes", 0.0), -max(r.broken.values(), default=0.0), r.index))
    count = len(launched) - len(worst)
    summary = f"{count:,} of {len(launched):,} that may be launched spill nothing and keep every budget"
    if not worst:
        return summary
    more = f"\nand {len(worst) - _SHOWN:,} more: --report FILE has all" if len(worst) > _SHOWN else ""
    return f"{_text(study.candidates(worst[:_SHOWN]))}{more}\n{summary}"


def _text(table: Table) -> str:
    return grid(table.heads, [list(map(number, row)) for row in table.rows])
