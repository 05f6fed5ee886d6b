"""``flashcore report``: draws a recorded run."""

from __future__ import annotations

import argparse
from pathlib import Path

from flashcore import report
from flashcore.cli import gate, options, output
from flashcore.errors import Exit, UsageError
from flashcore.gate import baseline
from flashcore.model.record import Record
from flashcore.pipeline import plugins
from flashcore.records import lookup, store
from flashcore.report import markdown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser, of_chips=True)
    options.add_places(parser)
    options.add_records(parser)
    options.add_reporting(parser)
    options.add_gating(parser)
    text = "another run, by id or folder, that the page Compare shows beside this one"
    parser.add_argument("--against", metavar="OTHER", help=text)
    text = "md: a summary for a pull request, on standard output or into the file of -o"
    parser.add_argument("--format", choices=("html", "md"), default="html", help=text)


def run(arguments: argparse.Namespace) -> int:
    records = options.all_recorded(arguments)
    if arguments.against and len(records) > 1:
        hint = "" if arguments.recorded else f"\n  hint: name one of them: {', '.join(r.id for r in records)}"
        raise UsageError(f"--against: expected with one run, found it with several, each of another chip{hint}")
    if arguments.format == "md":
        parts = [markdown.render(record, require=arguments.require, today=gate.today()) for record in records]
        output.write("\n".join(parts), arguments.output)
    else:
        other = store.read(lookup.find(options.places(arguments), arguments.against)) if arguments.against else None
        print(pages(arguments, *records, against=other)[0])
    return Exit.OK


def pages(
    arguments: argparse.Namespace, *records: Record, baseline_file: Path | None = None, against: Record | None = None
) -> list[Path]:
    """Writes the pages of a run, or of runs on several chips; the first page is the entry."""
    more = report.Additions(
        [make for _, make in plugins.objects("pages")],
        plugins.objects("sections"),
    )
    name = "+".join([records[0].id, *(r.id.rpartition("-")[2] for r in records[1:])])
    folder = Path(arguments.output) if arguments.output else Path("reports") / name
    return report.render(
        records[0],
        folder,
        single_file=arguments.single_file,
        require=arguments.require,
        today=gate.today(),
        baseline=None if baseline_file is None else baseline.read(baseline_file),
        against=against,
        others=records[1:],
        runs=(folder.absolute().parent / "runs.html").is_file(),
        more=more,
    )
