"""``flashcore profile``: builds, measures, gates and reports, and answers the four questions for selected variants."""

from __future__ import annotations

import argparse

from flashcore.cli import check, gate, inner_loop, options, output, progress, text_tables
from flashcore.errors import worst
from flashcore.pipeline.judging import Rules
from flashcore.pipeline.pages import ReportTarget
from flashcore.pipeline.profile import profile

EXAMPLES = (
    ("flashcore profile", "the suite of this folder, or of kernels/"),
    ("flashcore profile --variant wide --shape small", "one case"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_cases(parser)
    options.add_measuring(parser, "check", "bench")
    options.add_quiet(parser)
    text = "ncu's clock control (default: %(default)s; none leaves the clocks unchanged)"
    choices, name = ("none", "base"), "profile.clock_control"
    parser.add_argument("--clock-control", dest=name, choices=choices, default=options.default(name), help=text)
    parser.add_argument("--sanitize", action="store_true", help="also run every variant under compute-sanitizer")
    text = "do not measure this machine's roofs"
    roofs = options.default("roofs")
    parser.add_argument("--no-roofs", dest="roofs", action="store_const", const=None, default=roofs, help=text)
    text = "keep ncu's report (.ncu-rep) in the run"
    parser.add_argument("--keep-report", dest="profile.keep_report", action="store_true", help=text)
    options.add_reporting(parser)
    options.add_gating(parser)
    output.add_formats(parser)


def run(arguments: argparse.Namespace) -> int:
    import jinja2  # noqa: F401  reports a missing package before anything is built and measured

    settings = options.settings(arguments, upto="profile")
    target = ReportTarget(arguments.output, arguments.single_file)
    with progress.shown(arguments.quiet) as say:
        profiled = profile(settings, Rules(require=arguments.require), target, say, resume=arguments.resume)
    judged = profiled.judged
    if check.show(arguments, text_tables.ladder, judged.record, **gate.as_data(judged)):
        gate.show(judged)
        for name in judged.variants or ():
            print("\n".join(inner_loop.answers(judged, profiled.previous, name)))
        print(f"run:    {profiled.run.folder}\nreport: {profiled.pages[0]}")
    return worst([check.failed(judged.record), judged.judgement.exit_code])
