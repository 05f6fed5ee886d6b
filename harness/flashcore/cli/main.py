"""The command line: what can be said, and how a failure ends. The commands are in :mod:`flashcore.cli.commands`.

Nothing heavy is imported before a command is known, so that ``flashcore --help`` answers at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from flashcore import __version__
from flashcore.cli import commands
from flashcore.errors import Exit, FlashcoreError

DEFAULT_SUITE = "kernels/attention"
#: What running kernels and drawing reports need beyond a gate.
RUN_EXTRA = ("jinja2", "markupsafe", "numpy", "nvtx", "plotly", "torch")

_EXITS = """exit codes:
  0  fine
  1  a guardrail or a check failed
  2  wrong usage, manifest or input
  3  a required fact is unmeasured or stale
  4  the machine cannot do it (the message says how to mend it), or a defect of flashcore: never a regression
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code."""
    arguments = parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except FlashcoreError as error:
        print(f"flashcore: {error}", file=sys.stderr)
        return int(error.exit_code)
    except KeyboardInterrupt:
        print("flashcore: interrupted; what was measured is kept: go on with --resume", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader went away (`flashcore list | head`): not our failure, but nothing more to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (name := str(error.name).split(".")[0]) in RUN_EXTRA:
            print(
                f"flashcore: {arguments.command} needs the Python package {name}, found none\n"
                f"  to mend: pip install {name}, or install flashcore with its extra `run`, which has all of them",
                file=sys.stderr,
            )
            return int(Exit.INCAPABLE)
        import traceback

        # Python's own exit code for this is 1, which here says that a guardrail failed.
        traceback.print_exc()
        print("flashcore: this is a defect of flashcore; please report it", file=sys.stderr)
        return int(Exit.INCAPABLE)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="flashcore",
        description="Build, check, time and profile every variant of a CUDA kernel family; gate what they promise.",
        epilog=_EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"flashcore {__version__}")
    known = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, run: object, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        made = known.add_parser(name, help=text, description=text, parents=list(parents), epilog=_EXITS,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
        made.set_defaults(run=run)
        return made

    suite = argparse.ArgumentParser(add_help=False)
    suite.add_argument("--suite", default=DEFAULT_SUITE, metavar="DIR", help=f"suite folder (default: {DEFAULT_SUITE})")
    places = argparse.ArgumentParser(add_help=False)
    places.add_argument("--profiles", default="profiles", metavar="DIR", help="recorded runs (default: profiles)")
    places.add_argument("--build-dir", default="build", metavar="DIR", help="compiled objects (default: build)")
    chosen = argparse.ArgumentParser(add_help=False)
    chosen.add_argument("--variant", metavar="GLOB", help="variants whose names match (default: all)")
    chosen.add_argument("--shape", action="append", default=[], metavar="NAME", help="only this shape; repeatable")
    gating = argparse.ArgumentParser(add_help=False)
    gating.add_argument("--require", choices=("static", "counters", "timing"), default="static", metavar="TIER",
                        help="highest tier whose missing or stale facts exit 3 (default: static)")  # fmt: skip
    reporting = argparse.ArgumentParser(add_help=False)
    reporting.add_argument("-o", "--output", metavar="DIR", help="folder of the report (default: reports/<run>)")
    reporting.add_argument("--single-file", action="store_true", help="one HTML file instead of a folder")
    measuring = argparse.ArgumentParser(add_help=False)
    measuring.add_argument("--resume", action="store_true", help="go on with the newest run that did not end")
    measuring.add_argument(
        "--time-limit", type=float, default=60.0, metavar="S", help="seconds a case may take (default: 60)"
    )
    measuring.add_argument("--repeats", type=int, default=20, metavar="N",
                           help="calls that must agree bit by bit in check (default: 20)")  # fmt: skip
    measuring.add_argument(
        "--samples", type=int, default=100, metavar="N", help="timing samples, at least (default: 100)"
    )
    profiling = argparse.ArgumentParser(add_help=False)
    profiling.add_argument("--clock-control", choices=("none", "base"), default="none",
                           help="ncu's clock control (default: none, the clocks are left alone)")  # fmt: skip
    profiling.add_argument("--no-roofs", action="store_true", help="do not measure this machine's roofs")
    profiling.add_argument("--sanitize", action="store_true", help="besides, run it under compute-sanitizer")
    profiling.add_argument("--keep-report", action="store_true", help="keep ncu's own report (.ncu-rep) in the run")

    command("doctor", "say what this machine can do, and how to mend what it cannot", commands.doctor)
    listing = command("list", "list a suite's variants, shapes and budgets", commands.list_suite, suite)
    listing.add_argument("--facts", action="store_true", help="list every fact's name, unit and meaning instead")
    command("build", "compile every variant; print registers, spills, shared memory, occupancy", commands.build,
            suite, places, chosen)  # fmt: skip
    command("check", "prove every variant right against fp64", commands.measure, suite, places, chosen, measuring)
    bench = command("bench", "check, then time", commands.bench, suite, places, chosen, measuring)
    bench.add_argument("--against", metavar="REV",
                       help="time what differs from a git revision against it, both built here, and judge")  # fmt: skip
    bench.add_argument("--processes", type=int, metavar="N",
                       help="with --against: processes that time each case (default: 9)")  # fmt: skip
    bench.add_argument("--alpha", type=float, metavar="P", help="with --against: chance that a run calls anything "
                       "slower that is not, over all its cases (default: 0.001)")  # fmt: skip
    bench.add_argument("--effect", type=float, metavar="PCT",
                       help="with --against: percent that a case may get slower by (default: 1)")  # fmt: skip
    bench.add_argument("--format", action="append", default=[], metavar="FORMAT[=FILE]",
                       help="with --against: table or json, on standard output or into FILE; repeatable")  # fmt: skip
    command("sanitize", "run every variant under compute-sanitizer: memcheck and racecheck", commands.sanitize,
            suite, places, chosen, measuring)  # fmt: skip
    command("profile", "all of it: build, check, bench, profile, record, report, gate", commands.profile,
            suite, places, chosen, measuring, profiling, reporting, gating)  # fmt: skip
    report = command(
        "report", "render a recorded run (default: the newest) as HTML", commands.report, places, reporting, gating
    )
    report.add_argument("recorded", nargs="?", metavar="RUN", help="a run's id or folder")
    gate = command("gate", "judge the present sources, or RUN alone, by the suite's budgets", commands.gate,
                   suite, places, chosen, gating)  # fmt: skip
    gate.add_argument("recorded", nargs="?", metavar="RUN", help="a run's id or folder")
    gate.add_argument("--format", action="append", default=[], metavar="FORMAT[=FILE]",
                      help="table, json, junit, sarif, markdown or github, on standard output or into FILE; "
                      "repeatable (default: table)")  # fmt: skip
    gate.add_argument("--baseline", metavar="FILE", help="the baseline to hold it to (default: the suite's own)")
    gate.add_argument("--ratchet", action="store_true", help="tighten the baseline where there is slack")
    gate.add_argument("--what-if", action="store_true", help="what would fit one block more, for each kernel")
    keep = command("baseline", "write the present static facts as the committed baseline of the gate",
                   commands.baseline, suite, places, chosen)  # fmt: skip
    keep.add_argument("action", choices=("save",), metavar="save")
    keep.add_argument("--ratchet", action="store_true", help="only tighten what is there already")
    metrics = command("metrics", "which metrics a chip has and under what name; needs no GPU", commands.metrics)
    metrics.add_argument("names", nargs="*", metavar="NAME", help="facts that must exist there (default: list all)")
    metrics.add_argument("--chip", metavar="CHIP", help="as ncu names it: gh100, ad104, ga102 (default: this GPU's)")
    metrics.add_argument("--learn", action="store_true", help="ask ncu, or nvidia-cuda-cupti, for the chip's table")
    metrics.add_argument("--table", metavar="FILE", help="read or, with --learn, write this table")
    diff = command("diff", "what changed between two runs or git revisions (built here, without a GPU)", commands.diff,
                   suite, places, chosen)  # fmt: skip
    diff.add_argument("a", metavar="A", help="a run's id or folder, a git revision, or . for the working tree")
    diff.add_argument("b", metavar="B", nargs="?", default=".", help="likewise (default: .)")
    bounds = command(
        "bounds", "the least time each resource allows, for any known device", commands.bounds, suite, places
    )
    bounds.add_argument(
        "--device", metavar="NAME", help="a device of the table (default: this GPU, or the newest run's)"
    )
    bounds.add_argument("--shape", action="append", default=[], metavar="NAME", help="only this shape; repeatable")
    roofs = command("roofs", "measure what this machine can really do", commands.roofs, places)
    roofs.add_argument(
        "--roofs", default="kernels/roofs", metavar="DIR", help="the suite that measures (default: kernels/roofs)"
    )
    roofs.add_argument("--fresh", action="store_true", help="measure again, even if this machine's roofs are recorded")
    init = command("init", "write a new suite to fill in", commands.init)
    init.add_argument("folder", metavar="DIR")
    return top
