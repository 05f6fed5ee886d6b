"""``flashcore tune``: searches a space of configs for the fastest correct one within its budgets."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashcore.cli import options, progress
from flashcore.errors import Exit, UsageError
from flashcore.explain.comparison import Comparison
from flashcore.records.store import new_id
from flashcore.suites.load import load
from flashcore_tune import finalists, results
from flashcore_tune.candidates import Candidates
from flashcore_tune.search import BIG, SAMPLERS, Budget, Search, newest, opened
from flashcore_tune.space import read

if TYPE_CHECKING:
    import optuna

EXAMPLES = (
    ("flashcore tune tiles --evaluations 200", "search the space `tiles` of the suite's space.toml"),
    ("flashcore tune tiles --static", "only build and gate, without a GPU"),
)
#: The default number of evaluations: a share of the points that meet the conditions, and at least this many.
_SHARE, _FEWEST = 0.1, 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_quiet(parser)
    parser.add_argument("space", metavar="SPACE", help="a space of the suite's space.toml")
    options.add_suite(parser)
    options.add_build(parser)
    options.add_shapes(parser)
    options.add_gpus(parser)
    add = parser.add_argument
    add("--studies", default="studies", metavar="DIR", help="studies (default: %(default)s)")
    text = f"{', '.join(SAMPLERS)} (default: tpe; in spaces of more than {BIG} points nsga2)"
    add("--sampler", default="", choices=SAMPLERS, metavar="NAME", help=text)
    text = "end after N candidates passed the gate (default: a tenth of the points, at least 32)"
    add("--evaluations", type=int, metavar="N", help=text)
    add("--seconds", type=float, metavar="S", help="end after S seconds")
    add("--batch", type=int, metavar="N", help="candidates built at a time (default: by the evaluations)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the sampler (default: %(default)s)")
    text = "fastest candidates to time against the manifest's fastest variant (default: %(default)s)"
    add("--finalists", type=int, default=3, metavar="N", help=text)
    add("--static", action="store_true", help="only build and gate; needs no GPU")
    add("--resume", action="store_true", help="continue the newest study of this space")
    add("--write", action="store_true", help="add the winner to the manifest")
    add("--plot", metavar="FILE", help="also write a plot of the best time so far (HTML)")


def run(arguments: argparse.Namespace) -> int:
    options.require_positive(arguments, "evaluations", "seconds", "batch")
    if arguments.finalists < 0:
        raise UsageError(f"--finalists {arguments.finalists}: expected 0 or more")
    settings = options.settings(arguments, upto=None)
    settings = dataclasses.replace(settings, build=str(Path(settings.build) / "tune"))
    suite = load(settings.suite)
    grid = read(suite, arguments.space, settings.shapes)
    first, studies = grid.space.shapes[0], Path(arguments.studies)
    folder = newest(studies, grid.space.name) if arguments.resume else studies / f"{grid.space.name}-{new_id()}"
    finals: Comparison | None = None
    with progress.shown(arguments.quiet) as say:
        candidates = Candidates(settings, suite, grid, folder, arguments.static, say)
        with opened(folder, _header(candidates), arguments.resume) as study:
            search = _searched(arguments, candidates, study)
            entrants = finalists.shortlist(suite, grid, search.outcomes, arguments.finalists)
            if entrants.points:
                finals = finalists.run(candidates, entrants)
    print(f"study {folder}\n{results.tables(study, grid, finals)}")
    if arguments.plot is not None:
        results.plot(study, first, Path(arguments.plot))
    if finals and (won := finalists.winner(finals, first)):
        offer = finalists.offer(suite, grid, entrants, won, folder.name)
        print("\n" + offer.diff)
        if arguments.write:
            offer.write()
    return Exit.OK


def batch_of(sampler: str, count: float) -> int:
    """The points that a sampler proposes at a time: few where it learns and the budget is small."""
    return 64 if sampler in ("grid", "random") else max(1, min(16, int(min(count, 320)) // 20))


def _header(candidates: Candidates) -> dict[str, Any]:
    """What a resumed search must share with its study."""
    record, space = candidates.base(), candidates.grid.space
    (artifact,) = record.artifacts
    header = {
        "suite": candidates.suite.name,
        "space": dataclasses.asdict(space),
        "sources": artifact.source_hash,
        "gpu": None if candidates.static else record.environment.gpu,
        "arch": artifact.arch,
        "compiler": artifact.cxx if artifact.cubins else f"nvcc {record.environment.nvcc}",
    }
    as_json: dict[str, Any] = json.loads(json.dumps(header))
    return as_json


def _searched(arguments: argparse.Namespace, candidates: Candidates, study: optuna.Study) -> Search:
    """Searches by the sampler and the budget of the arguments, or by their defaults."""
    grid = candidates.grid
    points = len(grid.feasible)
    sampler = arguments.sampler or ("random" if arguments.static else "nsga2" if points > BIG else "tpe")
    count = arguments.evaluations or math.inf
    if arguments.evaluations is None and arguments.seconds is None:
        count = points if sampler == "grid" else min(points, max(_FEWEST, round(_SHARE * points)))
    search = Search(study, grid, sampler, arguments.seed, count, list(grid.named(candidates.suite)))
    budget = Budget(count, arguments.seconds or math.inf)
    search.run(candidates, budget, arguments.batch or batch_of(sampler, count), candidates.say)
    return search
