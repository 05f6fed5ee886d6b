"""``flashcore report``: draws a recorded run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.cli import options
from flashcore.errors import Exit

if TYPE_CHECKING:
    from flashcore.model.record import Record

HELP = "render a recorded run (default: the newest) as HTML"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    options.add_places(parser)
    options.add_reporting(parser)
    options.add_gating(parser)


def run(arguments: argparse.Namespace) -> int:
    record = options.recorded(arguments)
    print(pages(arguments, record)[0])
    return Exit.OK


def pages(arguments: argparse.Namespace, record: Record, held_to: Path | None = None) -> list[Path]:
    """Writes the record's pages; the first is where to begin."""
    from flashcore import report
    from flashcore.cli import gate
    from flashcore.gate import baseline

    return report.render(
        record,
        Path(arguments.output) if arguments.output else Path("reports") / record.id,
        single_file=arguments.single_file,
        require=arguments.require,
        today=gate.today(),
        baseline=None if held_to is None else baseline.read(held_to),
    )
