"""``flashcore gate``: judges the present sources, or a recorded run."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.cli import options, output, terminal
from flashcore.cli.baseline import baseline_path, save
from flashcore.errors import Exit, UsageError
from flashcore.pipeline import plugins

if TYPE_CHECKING:
    import datetime

    from flashcore.gate.judge import Judgement
    from flashcore.gate.locate import Places
    from flashcore.model.record import Record
    from flashcore.model.suite import Budget, Tier


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser, of_chips=True)
    options.add_cases(parser)
    options.add_records(parser)
    options.add_gating(parser)
    parser.add_argument("--format", action="append", default=[], metavar="FORMAT[=FILE]",
                        help="table, json, junit, sarif, markdown or github, on standard output or into FILE; "
                        "repeatable (default: table)")  # fmt: skip
    parser.add_argument("--budgets", metavar="FILE", help="[[budget]] tables to judge by besides the suite's; "
                        "their unmeasured facts exit 3")  # fmt: skip
    parser.add_argument("--baseline", metavar="FILE", help="the baseline to compare with (default: the suite's own)")
    parser.add_argument("--ratchet", action="store_true", help="tighten the baseline where there is slack")
    parser.add_argument("--what-if", action="store_true", help="for each kernel, what one more block per SM would need")


def run(arguments: argparse.Namespace) -> int:
    import gc

    from flashcore.cli import progress
    from flashcore.pipeline import run

    gc.set_threshold(100_000)  # hundreds of thousands of facts and verdicts, none of them garbage
    _parsed(arguments.format)
    if arguments.recorded:
        if arguments.shapes:
            raise UsageError("--shape: expected without RUN, which is judged on all its shapes; found both")
        records = options.all_recorded(arguments)
    else:
        with progress.shown(arguments.quiet) as say:
            records = run.each_present(options.settings(arguments, upto=None), say)
    own = _budgets(arguments.budgets)
    records = [dataclasses.replace(r, suite=dataclasses.replace(r.suite, budgets=(*r.suite.budgets, *own)))
               for r in records]  # fmt: skip
    for name, record in zip(arguments.recorded, records, strict=False):
        if not record.suite.budgets and all(v.imported for v in record.suite.variants.values()):
            raise UsageError(
                f"run {record.id}: expected budgets to judge imported kernels by, found none\n"
                f"  hint: flashcore gate {name} --budgets FILE; only to look at them: flashcore report {name}"
            )
    if arguments.ratchet and len(arguments.recorded) > 1:
        raise UsageError("--ratchet: expected one run to tighten the baseline by, found several")
    held = not arguments.recorded or arguments.baseline is not None
    if arguments.ratchet and not held:
        raise UsageError("--ratchet: expected with RUN the --baseline FILE to tighten, found none")
    variants = chosen(arguments.variant, *records)
    if variants is not None and not variants:
        raise UsageError(f"--variant {arguments.variant}: expected variants with budgets, found only peers")
    return judged(
        *records,
        formats=arguments.format,
        require=arguments.require,
        insisted=[budget.name for budget in own],
        variants=variants,
        held_to=baseline_path(records[0], arguments.baseline) if held else None,
        ratchet=arguments.ratchet,
        what_if=arguments.what_if,
    )


def _budgets(file: str | None) -> Sequence[Budget]:
    if file is None:
        return ()
    from flashcore.suites import budgets  # imports pydantic, which takes as long as a gate with nothing to build

    return budgets.read(Path(file))


def today() -> datetime.date:
    """The day that waivers' dates are compared with."""
    import datetime

    return datetime.datetime.now(datetime.UTC).date()


def chosen(glob: str | None, *records: Record) -> list[str] | None:
    """The variants to judge; ``None`` for all.

    Raises:
        UsageError: there is none of that name.
    """
    from flashcore.suites.load import select

    every = (v.name for r in records for v in select(r.suite, glob)[0] if not v.is_reference)
    return None if glob is None else list(dict.fromkeys(every))


def judged(
    *records: Record,
    require: Tier,
    variants: Collection[str] | None,
    held_to: Path | None,
    formats: Sequence[str] = (),
    day: datetime.date | None = None,
    ratchet: bool = False,
    what_if: bool = False,
    insisted: Collection[str] = (),
) -> Exit:
    """Judges, writes the outputs and, with ``ratchet``, tightens the baseline where there is slack.

    Args:
        records: one run, or one of each chip: these are judged together, and the worst exit code counts.
        insisted: budgets, by name, whose facts are required whatever their tier.
        held_to: the baseline's file, if the record is to be compared with one. It need not exist.
        day: when it is judged, if not today.

    Raises:
        UsageError: a format, or the baseline, cannot be read.
    """
    from flashcore.cli import text_tables
    from flashcore.gate import baseline, judge, regressions
    from flashcore.gate.locate import Places
    from flashcore.gate.together import together

    record = records[0]
    old = baseline.read(held_to) if held_to is not None else None
    if old is not None and not (old.values and old.suite == record.suite.name):
        raise UsageError(
            f"{held_to}: expected a baseline of {record.suite.name}, found one of {old.suite} with {len(old.values)} "
            "facts\n  hint: name another, or write it again with: flashcore baseline save"
        )
    day = day or today()
    judgement = together(
        records,
        [
            judge.judge(r, require=require, today=day, variants=variants, baseline=old, insisted=insisted)
            for r in records
        ],
    )
    if held_to is not None and old is None:
        missing = f"no baseline: there is no {held_to} to compare with (flashcore baseline save writes it)"
        judgement = dataclasses.replace(judgement, notes=(*judgement.notes, missing))
    places = Places(record, _repository(Path(record.suite.root)))
    for form, file in _parsed(formats):
        _write(form, file, judgement, record, places)
    for one in records if what_if else ():
        print(text_tables.next_steps(one))
    if ratchet and held_to is not None and judgement.exit_code is not Exit.INCAPABLE:
        save(record, old, held_to, ratchet=True)
        for line in regressions.slack(record):
            print(f"slack in the manifest: {line}", file=sys.stderr)
    return judgement.exit_code


def _parsed(wanted: Sequence[str]) -> list[tuple[str, str | None]]:
    from flashcore.gate.formats import FORMATS

    return output.parse(wanted, ("table", *FORMATS, *dict(plugins.entries("formats"))))


def _write(form: str, file: str | None, judgement: Judgement, record: Record, places: Places) -> None:
    """One format. ``github`` has the table below its annotations, and adds the Markdown to the job's summary."""
    from flashcore.cli import text_tables
    from flashcore.gate.formats import FORMATS

    text = ""
    if form != "table":
        render = FORMATS.get(form) or plugins.find("formats", form)
        text = render(judgement, record, places)
    table = text_tables.judgement(judgement) + "\n" if form in ("table", "github") else ""
    if form == "github" and file is None:
        terminal.command(text)
        text = ""
    output.write(text + (terminal.uncommanded(table) if form == "github" else table), file)
    if form == "github" and (job := os.environ.get("GITHUB_STEP_SUMMARY")):
        output.write(FORMATS["markdown"](judgement, record, places), job, append=True)


def _repository(folder: Path) -> Path:
    """The root of the git repository that ``folder`` lies in; the working directory if it is in none."""
    absolute = folder.resolve()
    return next((p for p in (absolute, *absolute.parents) if (p / ".git").exists()), Path.cwd())
