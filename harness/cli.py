"""The command line. Each command is a few lines here; what it does lies in the module it names.

Nothing heavy is imported before a command is known, so that ``flashcore --help`` answers at once.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness import __version__
from harness.errors import Exit, FlashcoreError, UsageError

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable

    from harness.line import Settings
    from harness.model import Record

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
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, run: object, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text, parents=list(parents), epilog=_EXITS,
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

    command("doctor", "say what this machine can do, and how to mend what it cannot", _doctor)
    listing = command("list", "list a suite's variants, shapes and budgets", _list, suite)
    listing.add_argument("--facts", action="store_true", help="list every fact's name, unit and meaning instead")
    command("build", "compile every variant; print registers, spills, shared memory, occupancy", _build,
            suite, places, chosen)  # fmt: skip
    command("check", "prove every variant right against fp64", _measure, suite, places, chosen, measuring)
    bench = command("bench", "check, then time", _bench, suite, places, chosen, measuring)
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
    command("sanitize", "run every variant under compute-sanitizer: memcheck and racecheck", _sanitize,
            suite, places, chosen, measuring)  # fmt: skip
    command("profile", "all of it: build, check, bench, profile, record, report, gate", _profile,
            suite, places, chosen, measuring, profiling, reporting, gating)  # fmt: skip
    report = command(
        "report", "render a recorded run (default: the newest) as HTML", _report, places, reporting, gating
    )
    report.add_argument("recorded", nargs="?", metavar="RUN", help="a run's id or folder")
    gate = command("gate", "judge the present sources, or RUN alone, by the suite's budgets", _gate,
                   suite, places, chosen, gating)  # fmt: skip
    gate.add_argument("recorded", nargs="?", metavar="RUN", help="a run's id or folder")
    gate.add_argument("--format", action="append", default=[], metavar="FORMAT[=FILE]",
                      help="table, json, junit, sarif, markdown or github, on standard output or into FILE; "
                      "repeatable (default: table)")  # fmt: skip
    gate.add_argument("--baseline", metavar="FILE", help="the baseline to hold it to (default: the suite's own)")
    gate.add_argument("--ratchet", action="store_true", help="tighten the baseline where there is slack")
    gate.add_argument("--what-if", action="store_true", help="what would fit one block more, for each kernel")
    keep = command("baseline", "write the present static facts as the committed baseline of the gate", _baseline,
                   suite, places, chosen)  # fmt: skip
    keep.add_argument("action", choices=("save",), metavar="save")
    keep.add_argument("--ratchet", action="store_true", help="only tighten what is there already")
    metrics = command("metrics", "which metrics a chip has and under what name; needs no GPU", _metrics)
    metrics.add_argument("names", nargs="*", metavar="NAME", help="facts that must exist there (default: list all)")
    metrics.add_argument("--chip", metavar="CHIP", help="as ncu names it: gh100, ad104, ga102 (default: this GPU's)")
    metrics.add_argument("--learn", action="store_true", help="ask ncu, or nvidia-cuda-cupti, for the chip's table")
    metrics.add_argument("--table", metavar="FILE", help="read or, with --learn, write this table")
    diff = command("diff", "what changed between two runs or git revisions (built here, without a GPU)", _diff,
                   suite, places, chosen)  # fmt: skip
    diff.add_argument("a", metavar="A", help="a run's id or folder, a git revision, or . for the working tree")
    diff.add_argument("b", metavar="B", nargs="?", default=".", help="likewise (default: .)")
    bounds = command("bounds", "the least time each resource allows, for any known device", _bounds, suite, places)
    bounds.add_argument(
        "--device", metavar="NAME", help="a device of the table (default: this GPU, or the newest run's)"
    )
    bounds.add_argument("--shape", action="append", default=[], metavar="NAME", help="only this shape; repeatable")
    roofs = command("roofs", "measure what this machine can really do", _roofs, places)
    roofs.add_argument(
        "--roofs", default="kernels/roofs", metavar="DIR", help="the suite that measures (default: kernels/roofs)"
    )
    roofs.add_argument("--fresh", action="store_true", help="measure again, even if this machine's roofs are recorded")
    asking = command("introspect", "ask this GPU what the suite's sources rest on, and write it there", _introspect,
                     suite, places)  # fmt: skip
    asking.add_argument("--check", action="store_true", help="compare with what is there, and write nothing")
    init = command("init", "write a new suite to fill in", _init)
    init.add_argument("folder", metavar="DIR")
    return top


def _settings(arguments: argparse.Namespace, upto: str | None) -> Settings:
    from harness.line import Settings

    return Settings(
        suite=arguments.suite,
        profiles=arguments.profiles,
        build=arguments.build_dir,
        variant=getattr(arguments, "variant", None),
        shapes=tuple(getattr(arguments, "shape", ())),
        upto=upto,
        clock_control=getattr(arguments, "clock_control", "none"),
        keep_report=getattr(arguments, "keep_report", False),
        sanitize=getattr(arguments, "sanitize", False),
        roofs=None if getattr(arguments, "no_roofs", False) else "kernels/roofs",
        time_limit=getattr(arguments, "time_limit", 60.0),
        repeats=getattr(arguments, "repeats", 20),
        samples=getattr(arguments, "samples", 100),
        command=shlex.join(["flashcore", *sys.argv[1:]]),
    )


def _build(arguments: argparse.Namespace) -> int:
    from harness import compiling, pipeline, tables
    from harness.line import printer

    line = pipeline.start(_settings(arguments, None), printer())
    compiling.compile_all(line)
    print(tables.static(line.suite, line.artifacts, line.facts))
    return Exit.FAILED if any(note.status == "failed" for note in line.notes) else Exit.OK


def _measure(arguments: argparse.Namespace) -> int:
    from harness import pipeline, tables
    from harness.line import printer

    settings = _settings(arguments, arguments.command)
    line_say = printer()
    pipeline.require_gpu(settings)
    record = pipeline.run(settings, line_say, resume=arguments.resume).record
    print(tables.checked(record) if arguments.command == "check" else tables.ladder(record))
    return _failed(record)


def _bench(arguments: argparse.Namespace) -> int:
    own = {"processes": arguments.processes, "alpha": arguments.alpha, "effect": arguments.effect}
    given = {name: value for name, value in own.items() if value is not None}
    if arguments.against is None:
        for name in [*given, *(["format"] if arguments.format else [])]:
            raise UsageError(f"--{name}: expected together with --against REV, found it alone")
        return _measure(arguments)
    from harness import against_command
    from harness.line import printer

    if "effect" in given:
        given["effect"] /= 100
    options = against_command.Options(arguments.against, formats=arguments.format, resume=arguments.resume, **given)
    return against_command.run(_settings(arguments, None), options, printer())


def _sanitize(arguments: argparse.Namespace) -> int:
    import dataclasses

    from harness import pipeline, sanitize, tables
    from harness.line import printer
    from harness.suite import load

    settings = dataclasses.replace(_settings(arguments, None), sanitize=True)
    if not settings.shapes and not any("sanitize" in s.stages for s in load(settings.suite).shapes.values()):
        raise UsageError(
            f"{settings.suite}: expected a shape with `sanitize` among its stages, found none\n"
            '  to mend: give a small shape stages = ["check", "sanitize"], or name one with --shape'
        )
    sanitize.find_sanitizer()
    pipeline.require_gpu(settings)
    done = pipeline.run(settings, printer(), resume=arguments.resume)
    print(tables.sanitized(done.record))
    print(f"run: {done.folder}")
    return _failed(done.record)


def _introspect(arguments: argparse.Namespace) -> int:
    from harness import introspect_command
    from harness.line import printer

    return introspect_command.run(_settings(arguments, None), printer(), check=arguments.check)


def _failed(record: Record) -> int:
    bad = any(o.status == "failed" and not o.origin for o in record.outcomes)
    bad = bad or any(p.crashed for p in record.plans)
    return Exit.FAILED if bad or any(a.status == "failed" for a in record.artifacts) else Exit.OK


def _profile(arguments: argparse.Namespace) -> int:
    from harness import diff, gate_command, pipeline, store, tables
    from harness.line import printer

    say = printer()
    done = pipeline.run(_settings(arguments, "profile"), say, resume=arguments.resume)
    record, variants = done.record, _chosen(done.settings.variant, done.record)
    held_to = gate_command.baseline_path(record)
    pages = _render(arguments, record, say, held_to)
    print(tables.ladder(record))
    verdict = gate_command.gate(
        record,
        formats=[],
        require=arguments.require,
        today=_today(),
        variants=variants,
        held_to=held_to,
    )
    if variants is not None:
        previous = store.latest(Path(arguments.profiles), record.suite.name, before=record.id)
        for name in variants:
            print("\n".join(diff.inner_loop(record, previous, name)))
    print(f"run:    {done.folder}\nreport: {pages[0]}")
    return max(_failed(record), int(verdict), key=_gravity)


def _chosen(glob: str | None, record: Record) -> list[str] | None:
    """The variants to judge; ``None`` for all."""
    from harness.suite import matching

    return None if glob is None else matching(record.suite, glob)


def _gravity(code: int) -> int:
    """A failure outweighs an unmeasured fact, which outweighs success."""
    return (Exit.OK, Exit.UNMEASURED, Exit.INCAPABLE, Exit.USAGE, Exit.FAILED).index(Exit(code))


def _render(
    arguments: argparse.Namespace, record: Record, say: Callable[[str], None] | None, held_to: Path | None = None
) -> list[Path]:
    from harness import baseline, report

    old = baseline.read(held_to) if held_to is not None else None
    output = Path(arguments.output) if arguments.output else Path("reports") / record.id
    pages = report.render(
        record,
        output,
        single_file=arguments.single_file,
        require=arguments.require,
        today=_today(),
        baseline=old,
    )
    if say is not None:
        say(f"report: {len(pages)} pages in {output}")
    return pages


def _today() -> datetime.date:
    import datetime

    return datetime.datetime.now(datetime.UTC).date()


def _report(arguments: argparse.Namespace) -> int:
    from harness import store

    record = store.read(store.find(Path(arguments.profiles), arguments.recorded))
    print(_render(arguments, record, None)[0])
    return Exit.OK


def _gate(arguments: argparse.Namespace) -> int:
    from harness import gate_command, gate_formats, pipeline, store
    from harness.line import printer

    gate_formats.parse(arguments.format)
    if arguments.recorded is not None:
        record = store.read(store.find(Path(arguments.profiles), arguments.recorded))
    else:
        record = pipeline.present(_settings(arguments, None), printer())
    held = arguments.recorded is None or arguments.baseline is not None
    return gate_command.gate(
        record,
        formats=arguments.format,
        require=arguments.require,
        today=_today(),
        variants=_chosen(arguments.variant, record),
        held_to=gate_command.baseline_path(record, arguments.baseline) if held else None,
        ratchet=arguments.ratchet,
        what_if=arguments.what_if,
    )


def _baseline(arguments: argparse.Namespace) -> int:
    from harness import gate_command, pipeline
    from harness.line import printer

    record = pipeline.present(_settings(arguments, None), printer())
    return gate_command.save(record, gate_command.baseline_path(record), ratchet=arguments.ratchet)


def _metrics(arguments: argparse.Namespace) -> int:
    from harness import planner, toolchain
    from harness.metrics import CHIPS

    file = Path(arguments.table) if arguments.table else None
    gpu = None if arguments.chip else toolchain.find_gpu()
    chip = arguments.chip or (CHIPS.get(gpu.capability) if gpu else None)
    if chip is None:
        raise UsageError(f"no GPU here: expected --chip, one of {', '.join(planner.chips())}")
    if arguments.learn:
        print(planner.learn(chip, file))
        return Exit.OK
    table = planner.table(chip, file)
    planner.require(table, arguments.names)
    print(planner.report(table, arguments.names))
    return Exit.OK


def _diff(arguments: argparse.Namespace) -> int:
    from harness import diff, revisions
    from harness.line import printer

    settings, say = _settings(arguments, None), printer()
    a, b = (revisions.record(name, settings, say) for name in (arguments.a, arguments.b))
    print(diff.table(a, b))
    return Exit.OK


def _roofs(arguments: argparse.Namespace) -> int:
    from harness import pipeline, tables
    from harness.line import Settings, printer

    settings = Settings(
        suite=arguments.roofs,
        profiles=arguments.profiles,
        build=arguments.build_dir,
        roofs=arguments.roofs,
        command=shlex.join(["flashcore", *sys.argv[1:]]),
    )
    record, found = pipeline.measure_roofs(settings, printer(), fresh=arguments.fresh)
    print(f"run {record.id}, {record.gpu}, driver {record.environment.driver}")
    print(tables.roofs(found))
    return _failed(record)


def _bounds(arguments: argparse.Namespace) -> int:
    from harness import devices, roofline, store, tables, toolchain
    from harness.suite import load, select

    suite = load(arguments.suite)
    _, shapes = select(suite, None, tuple(arguments.shape))
    if arguments.device is not None:
        device = devices.find(arguments.device)
        if device is None:
            known = ", ".join(devices.load())
            raise UsageError(f"--device {arguments.device}: expected one of {known}")
        ceilings = roofline.roofs(device)
    else:
        record = store.latest(Path(arguments.profiles), suite.name)
        gpu = toolchain.find_gpu()
        name = gpu.name if gpu else record.gpu if record else None
        if name is None:
            raise UsageError(
                f"expected --device, one of {', '.join(devices.load())}: there is no GPU and no recorded run"
            )
        ceilings = roofline.roofs(devices.find(name), measured=record.roofs if record and record.gpu == name else ())
        print(f"{name}")
    print(tables.bounds(suite, ceilings, shapes))
    return Exit.OK


def _list(arguments: argparse.Namespace) -> int:
    from harness import tables

    if arguments.facts:
        print(tables.facts())
        return Exit.OK
    from harness.suite import load

    print(tables.suite(load(arguments.suite)))
    return Exit.OK


def _doctor(_: argparse.Namespace) -> int:
    from harness import doctor

    lines, can_build = doctor.examine()
    print("\n".join(lines))
    return Exit.OK if can_build else Exit.INCAPABLE


def _init(arguments: argparse.Namespace) -> int:
    from harness import new_suite

    for path in new_suite.write(Path(arguments.folder)):
        print(path)
    print(f"next: flashcore build --suite {arguments.folder}")
    return Exit.OK
