"""``flashcore runs``: lists the recorded runs, from their index."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from flashcore import frames
from flashcore.cli import options, output
from flashcore.cli.grid import grid
from flashcore.errors import Exit
from flashcore.plugins.runs.index import Index, Point, rows

if TYPE_CHECKING:
    from pandas import DataFrame

EXAMPLES = (
    ("flashcore runs", "those in profiles/"),
    ("flashcore runs --format json", "the same as JSON"),
)


class Summary(NamedTuple):
    """A recorded run.

    Args:
        created: its date and time in UTC, ISO 8601.
        gpu: the GPU that measured; ``None`` if there was none.
        variants: how many variants it built or measured.
        checked, timed, profiled: how many cases have a result of this stage.
        command: the command line that recorded it.
        place: its folder or packed file.
    """

    id: str
    created: str
    suite: str
    gpu: str | None
    variants: int
    checked: int
    timed: int
    profiled: int
    command: str
    place: str


def summaries(places: Sequence[Path]) -> list[Summary]:
    """The runs of these places, newest first, from their index. A damaged run is skipped with a warning."""
    return [Summary(*row) for row in Index(places).runs(Summary._fields)]


def runs(profiles: Path | str = "profiles") -> DataFrame:
    """The recorded runs, a row each, newest first: see :class:`Summary`.

    Raises:
        CapabilityError: pandas is missing.
    """
    return frames.pandas().DataFrame(summaries([Path(profiles)]), columns=Summary._fields)


def history(case: str, fact: str = "time", profiles: Path | str = "profiles") -> DataFrame:
    """A fact of a case (``variant/shape``) over the recorded runs, oldest first: see
    :class:`~flashcore.plugins.runs.index.Point`. ``time`` is the median that its shape is ranked by.

    Raises:
        UsageError: no run measured it.
        CapabilityError: pandas is missing.
    """
    return frames.pandas().DataFrame(list(rows([Path(profiles)], case, fact)), columns=Point._fields)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_profiles(parser)
    options.add_records(parser)
    output.add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    recorded = summaries(options.places(arguments))
    if arguments.format == "json":
        print(output.document(runs=[run._asdict() for run in recorded]))
    elif recorded:
        head = ("run", "suite", "GPU", "variants", "checked", "timed", "profiled")
        print(grid(head, [[r.id, r.suite, r.gpu or "none", *map(str, r[4:8])] for r in recorded]))
    else:
        print(f"{arguments.profiles}: no recorded run; `flashcore profile` records one, `flashcore import` reads one")
    return Exit.OK
