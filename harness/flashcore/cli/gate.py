"""``flashcore gate``: checks the current sources, or recorded runs, against budgets."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flashcore.cli import options, output, progress, verdict_table
from flashcore.cli.baseline import save
from flashcore.errors import Exit, UsageError
from flashcore.explain.verdict_note import LaunchOccupancy, what_ifs
from flashcore.gate import regressions
from flashcore.gate.formats import FORMATS, Renderer, as_json
from flashcore.gate.judge import Judgement
from flashcore.gate.locate import Places
from flashcore.model.case import Case
from flashcore.model.groups import grouped
from flashcore.model.record import Record, plans_for
from flashcore.model.suite import Budget
from flashcore.model.text import UNMEASURED, percentage
from flashcore.pipeline import base, plugins
from flashcore.pipeline.judging import Judged, Rules, baseline_of, judge_record
from flashcore.pipeline.make_record import present_record
from flashcore.records import lookup, store
from flashcore.suites.load import load

EXAMPLES = (
    ("flashcore gate", "the current sources, without a GPU"),
    ("flashcore gate 20260103 --require counters", "a recorded run, whose counters must be measured"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser, default="the current sources; a run has its own budgets")
    options.add_cases(parser)
    options.add_records(parser)
    options.add_gating(parser)
    options.add_quiet(parser)
    output.add_formats(parser, formats())
    text = "more [[budget]] tables; their unmeasured facts exit 3"
    parser.add_argument("--budgets", metavar="FILE", help=text)
    parser.add_argument("--baseline", metavar="FILE", help="the baseline to compare with (default: the suite's)")
    parser.add_argument("--ratchet", action="store_true", help="tighten the baseline where facts are better than it")
    parser.add_argument("--what-if", action="store_true", help="for each kernel, show how to fit one more block per SM")
    options.add_base(parser)


def run(arguments: argparse.Namespace) -> int:
    outputs = output.parse(arguments.format, formats())
    printed = ("table", None) in outputs
    if arguments.what_if and not printed and "json" not in dict(outputs):
        raise UsageError("--what-if: expected a table on standard output, or json, found neither of them in --format")
    before = _base(arguments)
    rules = _rules(arguments)
    if arguments.recorded:
        record = options.recorded(arguments)
    else:
        settings = options.settings(arguments, upto=None)
        baseline_of(load(settings.suite, Path(settings.build)), rules)  # before anything is compiled
        with progress.shown(arguments.quiet) as say:
            record = present_record(settings, say)
    names = [arguments.recorded] if arguments.recorded else [origin.run for origin in record.joined]
    runs = [lookup.find(options.places(arguments), name) for name in names]
    for one in runs:
        store.verify(one)
    notes = [f"run {one.name}: intact" for one in runs]
    if before:
        since = (before.name, before.baseline) if before.baseline else None
        rules = replace(rules, more=before.verdicts(runs, arguments.allow), base=since)
        notes += before.notes
    judged = judge_record(rules, record)
    imported = arguments.recorded and record.suite.is_imported
    if imported and not judged.record.suite.budgets:
        raise UsageError(
            f"run {record.id}: expected budgets for imported kernels, found none\n"
            f"  hint: flashcore gate {arguments.recorded} --budgets FILE; "
            f"to only view them: flashcore report {arguments.recorded}"
        )
    judged = replace(judged, judgement=replace(judged.judgement, notes=(*judged.judgement.notes, *notes)))
    if judged.variants == []:
        raise UsageError(
            f"--variant {' '.join(arguments.variants)}: expected variants with budgets, found only references"
        )
    renderers = {**FORMATS, "json": _with_steps} if arguments.what_if else FORMATS
    show(judged, outputs, quiet=arguments.quiet, renderers=renderers)
    if arguments.what_if and printed:
        print("\n".join(next_steps(judged.record)))
    if arguments.ratchet:
        tighten(judged)
    return judged.judgement.exit_code


def _base(arguments: argparse.Namespace) -> base.Base | None:
    """The base revision, if one is given."""
    if (revision := options.base(arguments)) is None:
        return None
    named = "commit the file and name it in suite.toml: [gate] baseline"
    for option, value, hint in (("RUN", arguments.recorded, "leave it out"), ("--baseline", arguments.baseline, named)):
        if value:
            raise UsageError(
                f"--base: expected without {option}: it compares the suite and its baseline as committed; found both\n"
                f"  hint: {hint}"
            )
    return base.compared(revision, arguments.suite, arguments.budgets)


def _rules(arguments: argparse.Namespace) -> Rules:
    if arguments.recorded and arguments.suite is not None:
        hint = "omit RUN to check the suite's sources; --budgets FILE adds budgets to those in RUN"
        raise UsageError(f"--suite: expected no RUN, which has its suite's budgets; found both\n  hint: {hint}")
    compare = not arguments.recorded or arguments.baseline is not None
    if arguments.ratchet and not compare:
        raise UsageError("--ratchet: with RUN, expected --baseline FILE to tighten, found none")
    return Rules(
        require=arguments.require,
        budgets=_budgets(arguments.budgets),
        **options.selected(arguments),
        compare=compare,
        baseline=arguments.baseline,
    )


def _budgets(file: str | None) -> Sequence[Budget]:
    if file is None:
        return ()
    from flashcore.suites import budgets  # imports pydantic, which takes as long as an up-to-date gate

    return budgets.read(Path(file))


def show(
    judged: Judged,
    outputs: Sequence[tuple[str, str | None]] = (("table", None),),
    *,
    quiet: bool = False,
    renderers: Mapping[str, Renderer] = FORMATS,
) -> None:
    """Writes the judgement in each format; see :func:`flashcore.cli.output.parse`.

    Args:
        renderers: those that are not a plugin's.
    """
    record = judged.record
    places = _places(record)
    for form, file in outputs:
        if form == "table":
            text = verdict_table.render(judged.judgement, quiet=quiet) + "\n"
        else:
            render = renderers.get(form) or plugins.find("formats", form)
            text = render(judged.judgement, record, places)
        output.write(text, file)


def as_data(judged: Judged) -> dict[str, Any]:
    """The judgement as JSON data, in the form of ``gate.schema.json``."""
    data: dict[str, Any] = json.loads(as_json(judged.judgement, judged.record, _places(judged.record)))
    return data


def tighten(judged: Judged) -> None:
    """Tightens the baseline where facts are better than it, unless static facts could not be judged."""
    if judged.file is None or judged.judgement.exit_code is Exit.INCAPABLE:
        return
    save(judged.record, judged.baseline, judged.file, ratchet=True)
    for line in regressions.slack(judged.record):
        print(f"slack in the manifest: {line}", file=sys.stderr)


def formats() -> list[str]:
    return ["table", *FORMATS, *dict(plugins.entries("formats"))]


def _places(record: Record) -> Places:
    return Places(record, _repository(Path(record.suite.root)))


def _repository(folder: Path) -> Path:
    """The root of the git repository of ``folder``, the outer one of a submodule; the working directory if it is in
    none."""
    absolute = folder.resolve()
    return next((p for p in (absolute, *absolute.parents) if _is_root(p / ".git")), Path.cwd())


def _is_root(git: Path) -> bool:
    """Whether this is a repository's or a worktree's, not a submodule's, which names its folder of ``modules``."""
    return git.is_dir() or (git.is_file() and "/modules/" not in git.read_text(encoding="utf-8", errors="replace"))


def _with_steps(judgement: Judgement, record: Record, places: Places) -> str:
    """The gate's JSON, with ``what_if``: the lines of :func:`next_steps`."""
    data = {**json.loads(as_json(judgement, record, places)), "what_if": next_steps(record)}
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def next_steps(record: Record) -> list[str]:
    """For every kernel on every arch: its occupancy, its limiter, and the change needed for one more block per SM.

    Shapes with equal launches of a kernel share a line.
    """
    lines: list[str] = []
    plans = {arch: plans_for(record.plans, arch) for arch in record.suite.archs}

    def text(step: LaunchOccupancy) -> str:
        pct = UNMEASURED if step.now.pct is None else percentage(step.now.pct, 1)
        return f"{step.subject.variant}/{step.subject.kernel} ({step.subject.arch}): {pct}; {'; '.join(step.lines)}"

    for variant in record.suite.variants:
        for arch in record.suite.archs:
            seen = grouped(
                (text(step), shape)
                for shape in record.suite.shapes
                for step in what_ifs(record, plans[arch].get(Case(variant, shape)), arch)
            )
            same = len(seen) == len({text.split(":")[0] for text in seen})
            lines += [text if same else f"{text} [{', '.join(shapes)}]" for text, shapes in seen.items()]
    return lines
