"""``flashcore gate``: judges the present sources, or a recorded run."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import gc
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from flashcore.cli import options, output, progress, text_tables
from flashcore.cli.baseline import baseline_path, save
from flashcore.errors import Exit, UsageError
from flashcore.gate import baseline, judge, regressions
from flashcore.gate.formats import FORMATS
from flashcore.gate.judge import Judgement
from flashcore.gate.locate import Places
from flashcore.gate.together import together
from flashcore.model.record import Record
from flashcore.model.suite import Budget, Tier
from flashcore.pipeline import plugins
from flashcore.pipeline.present import each_present
from flashcore.suites.load import select


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser, of_chips=True)
    options.add_cases(parser)
    options.add_records(parser)
    options.add_gating(parser)
    text = f"{', '.join(_formats())}, on standard output or into FILE; repeatable (default: table)"
    parser.add_argument("--format", action="append", default=[], metavar="FORMAT[=FILE]", help=text)
    text = "[[budget]] tables to judge by besides the suite's; their unmeasured facts exit 3"
    parser.add_argument("--budgets", metavar="FILE", help=text)
    parser.add_argument("--baseline", metavar="FILE", help="the baseline to compare with (default: the suite's own)")
    parser.add_argument("--ratchet", action="store_true", help="tighten the baseline where there is slack")
    parser.add_argument("--what-if", action="store_true", help="for each kernel, what one more block per SM would need")


def run(arguments: argparse.Namespace) -> int:
    gc.set_threshold(100_000)  # hundreds of thousands of facts and verdicts, none of them garbage
    _parsed(arguments.format)
    if arguments.recorded:
        if arguments.shapes:
            raise UsageError("--shape: expected without RUN, which is judged on all its shapes; found both")
        records = options.all_recorded(arguments)
    else:
        with progress.shown(arguments.quiet) as say:
            records = each_present(options.settings(arguments, upto=None), say)
    budgets = _budgets(arguments.budgets)
    records = [_with_budgets(record, budgets) for record in records]
    for name, record in zip(arguments.recorded, records, strict=False):
        if not record.suite.budgets and all(v.imported for v in record.suite.variants.values()):
            raise UsageError(
                f"run {record.id}: expected budgets to judge imported kernels by, found none\n"
                f"  hint: flashcore gate {name} --budgets FILE; only to look at them: flashcore report {name}"
            )
    if arguments.ratchet and len(arguments.recorded) > 1:
        raise UsageError("--ratchet: expected one run to tighten the baseline by, found several")
    compares = not arguments.recorded or arguments.baseline is not None
    if arguments.ratchet and not compares:
        raise UsageError("--ratchet: expected with RUN the --baseline FILE to tighten, found none")
    variants = chosen(arguments.variant, *records)
    if variants is not None and not variants:
        raise UsageError(f"--variant {arguments.variant}: expected variants with budgets, found only peers")
    request = Request(
        formats=arguments.format,
        require=arguments.require,
        required_budgets=[budget.name for budget in budgets],
        variants=variants,
        baseline=baseline_path(records[0], arguments.baseline) if compares else None,
        ratchet=arguments.ratchet,
        what_if=arguments.what_if,
    )
    return judged(request, *records)


def _budgets(file: str | None) -> Sequence[Budget]:
    if file is None:
        return ()
    from flashcore.suites import budgets  # imports pydantic, which takes as long as a gate with nothing to build

    return budgets.read(Path(file))


def _with_budgets(record: Record, budgets: Sequence[Budget]) -> Record:
    suite = dataclasses.replace(record.suite, budgets=(*record.suite.budgets, *budgets))
    return dataclasses.replace(record, suite=suite)


def today() -> datetime.date:
    """The day that waivers' dates are compared with."""
    return datetime.datetime.now(datetime.UTC).date()


def chosen(glob: str | None, *records: Record) -> list[str] | None:
    """The variants to judge; ``None`` for all.

    Raises:
        UsageError: there is none of that name.
    """
    every = (v.name for r in records for v in select(r.suite, glob)[0] if not v.is_reference)
    return None if glob is None else list(dict.fromkeys(every))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """How records are judged, and where the outcome is written.

    Args:
        require: the highest tier whose missing facts are gaps.
        required_budgets: budgets, by name, whose facts are required whatever their tier.
        variants: the variants to judge; ``None`` for all.
        baseline: the baseline's file, if the records are compared with one. It need not exist.
        formats: see :func:`flashcore.cli.output.parse`.
        day: when it is judged, if not today.
        ratchet: tighten the baseline where there is slack.
        what_if: print what one more block per SM would need.
    """

    require: Tier
    required_budgets: Collection[str] = ()
    variants: Collection[str] | None = None
    baseline: Path | None = None
    formats: Sequence[str] = ()
    day: datetime.date | None = None
    ratchet: bool = False
    what_if: bool = False


def judged(request: Request, *records: Record) -> Exit:
    """Judges one run, or one of each chip together: the worst exit code counts. Writes the outputs.

    Raises:
        UsageError: a format, or the baseline, cannot be read.
    """
    record, file = records[0], request.baseline
    old = baseline.read(file) if file is not None else None
    if old is not None and not (old.values and old.suite == record.suite.name):
        raise UsageError(
            f"{file}: expected a baseline of {record.suite.name}, found one of {old.suite} with {len(old.values)} "
            "facts\n  hint: name another, or write it again with: flashcore baseline save"
        )
    judgement = together(records, [_judgement(request, r, old) for r in records])
    if file is not None and old is None:
        missing = f"no baseline: there is no {file} to compare with (flashcore baseline save writes it)"
        judgement = dataclasses.replace(judgement, notes=(*judgement.notes, missing))
    places = Places(record, _repository(Path(record.suite.root)))
    for form, target in _parsed(request.formats):
        _write(form, target, judgement, record, places)
    for one in records if request.what_if else ():
        print(text_tables.next_steps(one))
    if request.ratchet and file is not None and judgement.exit_code is not Exit.INCAPABLE:
        save(record, old, file, ratchet=True)
        for line in regressions.slack(record):
            print(f"slack in the manifest: {line}", file=sys.stderr)
    return judgement.exit_code


def _judgement(request: Request, record: Record, old: baseline.Baseline | None) -> Judgement:
    return judge.judge(
        record,
        require=request.require,
        today=request.day or today(),
        variants=request.variants,
        baseline=old,
        insisted=request.required_budgets,
    )


def _parsed(formats: Sequence[str]) -> list[tuple[str, str | None]]:
    return output.parse(formats, _formats())


def _formats() -> list[str]:
    return ["table", *FORMATS, *dict(plugins.entries("formats"))]


def _write(form: str, file: str | None, judgement: Judgement, record: Record, places: Places) -> None:
    if form == "table":
        text = text_tables.judgement(judgement) + "\n"
    else:
        render = FORMATS.get(form) or plugins.find("formats", form)
        text = render(judgement, record, places)
    output.write(text, file)


def _repository(folder: Path) -> Path:
    """The root of the git repository that ``folder`` lies in; the working directory if it is in none."""
    absolute = folder.resolve()
    return next((p for p in (absolute, *absolute.parents) if (p / ".git").exists()), Path.cwd())
