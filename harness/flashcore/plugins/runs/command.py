"""``flashcore runs``: lists the recorded runs, by their headers alone."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from flashcore import frames
from flashcore.cli import options, output
from flashcore.cli.grid import grid
from flashcore.errors import Exit
from flashcore.records import lookup
from flashcore.records.store import HEADER

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


def summaries(places: lookup.Places) -> Iterator[Summary]:
    """The runs of these places, newest first. A run whose header is damaged is skipped with a warning."""
    for run in lookup.all_runs(places):
        try:
            header = json.loads((run / HEADER).read_bytes())
            done = [x["stage"] for x in header["outcomes"] if x["status"] == "ok"]
            variants = {x["variant"] for x in (*header["artifacts"], *header["outcomes"])}
            file, packed, _ = str(run).partition(lookup.PACKED)
            yield Summary(
                id=run.name,
                created=header["created"],
                suite=header["suite"]["name"],
                gpu=header["environment"]["gpu"],
                variants=len(variants),
                checked=done.count("check"),
                timed=done.count("bench"),
                profiled=done.count("profile"),
                command=header["command"],
                place=file + packed,
            )
        except (OSError, ValueError, LookupError, TypeError) as error:
            lookup.warn_skipped(run.name, error)


def runs(profiles: Path | str = "profiles") -> DataFrame:
    """The recorded runs, a row each, newest first: see :class:`Summary`.

    Raises:
        CapabilityError: pandas is missing.
    """
    return frames.pandas().DataFrame(list(summaries(Path(profiles))), columns=Summary._fields)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_profiles(parser)
    options.add_records(parser)
    output.add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    recorded = list(summaries(options.places(arguments)))
    if arguments.format == "json":
        print(output.document(runs=[run._asdict() for run in recorded]))
    elif recorded:
        head = ("run", "suite", "GPU", "variants", "checked", "timed", "profiled")
        print(grid(head, [[r.id, r.suite, r.gpu or "none", *map(str, r[4:8])] for r in recorded]))
    else:
        print(f"{arguments.profiles}: no recorded run; `flashcore profile` records one, `flashcore import` reads one")
    return Exit.OK
