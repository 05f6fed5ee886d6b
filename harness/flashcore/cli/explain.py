"""``flashcore explain``: advice on what to change, with the evidence and the largest possible gain."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

from flashcore.cli import bounds, brief, options, output
from flashcore.cli.grid import grid
from flashcore.errors import Exit, UsageError
from flashcore.explain import roofline
from flashcore.explain.advice import Advice, advice, as_data, is_timed, sentence
from flashcore.explain.readings import Readings
from flashcore.explain.rows import Row
from flashcore.model.case import Case
from flashcore.model.groups import grouped
from flashcore.model.record import Record, unlaunched_note
from flashcore.model.text import percentage
from flashcore.pipeline.judging import Rules, judge_record
from flashcore.suites.load import select, select_archs

JSON_VERSION = 1

EXAMPLES = (
    ("flashcore explain", "the fastest variant on each shape of the newest run"),
    ("flashcore explain fast/mission --brief", "one case in 2 KB; without --brief, all advice on it"),
    ("flashcore explain --bounds --device h200", "the least times of the suite's shapes on an H200"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = (
        "a run's id, folder or packed file (default: the newest that has the case), and after it a case, VARIANT/SHAPE "
        "(default: all)"
    )
    parser.add_argument("names", nargs="*", metavar="RUN CASE", help=text)
    options.add_profiles(parser)
    options.add_records(parser)
    options.add_quiet(parser)
    options.add_selection(parser, default="the fastest on each timed shape; all, if none was timed")
    text = "one case in at most 2 KB: right or wrong, time, limiter, budgets, advice"
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--brief", action="store_true", help=text)
    text = "the least time that each resource allows, for each shape of a suite; needs no run"
    forms.add_argument("--bounds", action="store_true", help=text)
    options.add_suite(parser)
    text = "with --bounds: a device of FlashCore's table (default: this GPU, or the newest run's)"
    parser.add_argument("--device", metavar="NAME", help=text)
    text = "table, or json: rules, facts with values, bounds; with --brief markdown or json (default: the first)"
    parser.add_argument("--format", choices=("table", "json", "markdown"), help=text)


def run(arguments: argparse.Namespace) -> int:
    *runs, case = arguments.names or [""]
    if not re.fullmatch(r"\w+/\w+", case) or Path(case).exists():
        runs, case = arguments.names, ""
    if len(runs) > 1:
        raise UsageError(f"expected a run, and after it a case, VARIANT/SHAPE; found {', '.join(arguments.names)}")
    if case and (arguments.variants or arguments.shapes):
        raise UsageError(f"expected a case or --variant/--shape, found both\n  hint: leave out {case}, or the options")
    if arguments.bounds and (arguments.names or arguments.archs):
        raise UsageError("--bounds: expected a suite's variants and shapes, found a run, a case or --arch")
    if not arguments.bounds and (arguments.suite or arguments.device):
        raise UsageError("--suite and --device: expected --bounds with them")
    if arguments.brief and not case:
        raise UsageError(f"--brief: expected a case, VARIANT/SHAPE, after the run, found {', '.join(runs) or 'none'}")
    if arguments.format == ("markdown", "table")[arguments.brief]:
        expected = ("table or json", "markdown or json, with --brief")[arguments.brief]
        raise UsageError(f"--format: expected {expected}, found {arguments.format}")
    if arguments.bounds:
        bounds.show(arguments)
        return Exit.OK
    if case:
        selected = Case.parse(case)
        arguments.variants, arguments.shapes = [selected.variant], [selected.shape]
    arguments.recorded = runs[0] if runs else None
    record = options.recorded(arguments)
    if arguments.brief:
        data = brief.brief(judge_record(Rules(compare=False), record), case)
        output.write(brief.fitted(data, as_json=arguments.format == "json"), None)
        return Exit.OK
    items = list(_advice(record, arguments))
    gpu, sms = roofline.assumed_gpu(record), roofline.sm_count(record)
    if arguments.format == "json":
        about = {"run": record.id, "gpu": gpu, "gpu_is_measured": bool(record.gpu), "sms": sms}
        data = {"version": JSON_VERSION, **about, "advice": [as_data(x) for x in items]}
        output.write(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n", None)
        return Exit.OK
    if gpu and not arguments.quiet:
        print(f"for {gpu} with {sms} SMs" + ", on which nothing was measured" * (not record.gpu))
    alike = Readings(record).alike
    kernels = grouped((x.subject.variant, x.subject.kernel) for x in items if x.subject.kernel)
    rows = [
        [
            f"{x.subject.variant}/{' = '.join(s.name for s in alike[x.subject.shape or ''])}"
            + (f"/{x.subject.kernel}" if x.subject.kernel and len({*kernels[x.subject.variant]}) > 1 else ""),
            percentage(x.gain) if x.gain is not None else "",
            x.rule,
            sentence(x),
        ]
        for x in items
    ]
    print(grid(("case", "at most", "rule", "advice"), rows) if rows else "no rule applies to the recorded facts")
    if checked := ", ".join(s for s in arguments.shapes if not is_timed(record.suite.shapes[s])):
        print(f"no advice on shapes that are only checked: {checked}")
    for note in () if arguments.quiet else unlaunched_note(record.artifacts):
        print(note)
    return Exit.OK


def _advice(record: Record, arguments: argparse.Namespace) -> Iterator[Advice]:
    """The advice on what is selected, for the archs that are given, else the measured or usual one."""
    readings, suite = Readings(record), record.suite
    shapes, archs = arguments.shapes, select_archs(suite, arguments.archs)
    variants = [variant.name for variant in select(suite, arguments.variants, shapes)[0]]
    rows = [Row(readings, same) for same in suite.rows(suite.shapes.values())]
    rows = [row for row in rows if not shapes or {s.name for s in row.shapes} & {*shapes}]
    fastest = not arguments.variants and any(row.times for row in rows)
    for row in rows:
        timed = [name for name in row.times if name not in row.references]
        for name in timed[:1] if fastest else [n for n in row.cases if n in variants]:
            for arch in archs or (None,):
                yield from advice(readings, row.cases[name], arch)
