"""What each command does: a few lines that name the module where it is done. Gives the exit code.

Each takes the arguments that :mod:`flashcore.cli.main` parsed. Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.errors import Exit, UsageError
from flashcore.machine import metric_lists

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable

    from flashcore.model.record import Record
    from flashcore.pipeline.state import Settings


def _settings(arguments: argparse.Namespace, upto: str | None) -> Settings:
    from flashcore.pipeline.state import Settings

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


def build(arguments: argparse.Namespace) -> int:
    from flashcore.cli import text_tables
    from flashcore.pipeline import compile_ahead, run
    from flashcore.pipeline.state import printer

    line = run.start(_settings(arguments, None), printer())
    compile_ahead.compile_all(line)
    print(text_tables.static(line.suite, line.artifacts, line.facts))
    return Exit.FAILED if any(note.status == "failed" for note in line.notes) else Exit.OK


def measure(arguments: argparse.Namespace) -> int:
    from flashcore.cli import text_tables
    from flashcore.pipeline import run
    from flashcore.pipeline.state import printer

    settings = _settings(arguments, arguments.command)
    line_say = printer()
    run.require_gpu(settings)
    record = run.run(settings, line_say, resume=arguments.resume).record
    print(text_tables.checked(record) if arguments.command == "check" else text_tables.ladder(record))
    return _failed(record)


def bench(arguments: argparse.Namespace) -> int:
    own = {"processes": arguments.processes, "alpha": arguments.alpha, "effect": arguments.effect}
    given = {name: value for name, value in own.items() if value is not None}
    if arguments.against is None:
        for name in [*given, *(["format"] if arguments.format else [])]:
            raise UsageError(f"--{name}: expected together with --against REV, found it alone")
        return measure(arguments)
    from flashcore.pipeline.state import printer
    from flashcore.revisions import against

    if "effect" in given:
        given["effect"] /= 100
    options = against.Options(arguments.against, formats=arguments.format, resume=arguments.resume, **given)
    return against.run(_settings(arguments, None), options, printer())


def sanitize(arguments: argparse.Namespace) -> int:
    import dataclasses

    from flashcore.cli import text_tables
    from flashcore.manifest.load import load
    from flashcore.pipeline import run
    from flashcore.pipeline.state import printer
    from flashcore.stages.sanitize import sanitize

    settings = dataclasses.replace(_settings(arguments, None), sanitize=True)
    if not settings.shapes and not any("sanitize" in s.stages for s in load(settings.suite).shapes.values()):
        raise UsageError(
            f"{settings.suite}: expected a shape with `sanitize` among its stages, found none\n"
            '  to mend: give a small shape stages = ["check", "sanitize"], or name one with --shape'
        )
    sanitize.find_sanitizer()
    run.require_gpu(settings)
    done = run.run(settings, printer(), resume=arguments.resume)
    print(text_tables.sanitized(done.record))
    print(f"run: {done.folder}")
    return _failed(done.record)


def _failed(record: Record) -> int:
    bad = any(o.status == "failed" and not o.origin for o in record.outcomes)
    bad = bad or any(p.crashed for p in record.plans)
    return Exit.FAILED if bad or any(a.status == "failed" for a in record.artifacts) else Exit.OK


def profile(arguments: argparse.Namespace) -> int:
    from flashcore.cli import gate_command, inner_loop, text_tables
    from flashcore.pipeline import run
    from flashcore.pipeline.state import printer
    from flashcore.runs import store

    say = printer()
    done = run.run(_settings(arguments, "profile"), say, resume=arguments.resume)
    record, variants = done.record, _chosen(done.settings.variant, done.record)
    held_to = gate_command.baseline_path(record)
    pages = _render(arguments, record, say, held_to)
    print(text_tables.ladder(record))
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
            print("\n".join(inner_loop.answers(record, previous, name)))
    print(f"run:    {done.folder}\nreport: {pages[0]}")
    return max(_failed(record), int(verdict), key=_gravity)


def _chosen(glob: str | None, record: Record) -> list[str] | None:
    """The variants to judge; ``None`` for all."""

    return None if glob is None else record.suite.matching(glob)


def _gravity(code: int) -> int:
    """A failure outweighs an unmeasured fact, which outweighs success."""
    return (Exit.OK, Exit.UNMEASURED, Exit.INCAPABLE, Exit.USAGE, Exit.FAILED).index(Exit(code))


def _render(
    arguments: argparse.Namespace, record: Record, say: Callable[[str], None] | None, held_to: Path | None = None
) -> list[Path]:
    from flashcore import report
    from flashcore.gate import baseline

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


def report(arguments: argparse.Namespace) -> int:
    from flashcore.runs import store

    record = store.read(store.find(Path(arguments.profiles), arguments.recorded))
    print(_render(arguments, record, None)[0])
    return Exit.OK


def gate(arguments: argparse.Namespace) -> int:
    from flashcore.cli import gate_command
    from flashcore.gate import formats
    from flashcore.pipeline import run
    from flashcore.pipeline.state import printer
    from flashcore.runs import store

    formats.parse(arguments.format)
    if arguments.recorded is not None:
        record = store.read(store.find(Path(arguments.profiles), arguments.recorded))
    else:
        record = run.present(_settings(arguments, None), printer())
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


def baseline(arguments: argparse.Namespace) -> int:
    from flashcore.cli import gate_command
    from flashcore.pipeline import run
    from flashcore.pipeline.state import printer

    record = run.present(_settings(arguments, None), printer())
    return gate_command.save(record, gate_command.baseline_path(record), ratchet=arguments.ratchet)


def metrics(arguments: argparse.Namespace) -> int:
    from flashcore.hardware.metric_tables import lookup
    from flashcore.machine.gpu import Gpu
    from flashcore.model.catalogue import CHIPS

    file = Path(arguments.table) if arguments.table else None
    gpu = None if arguments.chip else Gpu.find()
    chip = arguments.chip or (CHIPS.get(gpu.capability) if gpu else None)
    if chip is None:
        raise UsageError(f"no GPU here: expected --chip, one of {', '.join(lookup.chips())}")
    if arguments.learn:
        print(metric_lists.learn(chip, file))
        return Exit.OK
    table = lookup.table(chip, file)
    lookup.require(table, arguments.names)
    print(lookup.report(table, arguments.names))
    return Exit.OK


def diff(arguments: argparse.Namespace) -> int:
    from flashcore.cli import text_tables
    from flashcore.pipeline.state import printer
    from flashcore.revisions import checkout

    settings, say = _settings(arguments, None), printer()
    a, b = (checkout.record(name, settings, say) for name in (arguments.a, arguments.b))
    print(text_tables.difference(a, b))
    return Exit.OK


def roofs(arguments: argparse.Namespace) -> int:
    from flashcore.cli import text_tables
    from flashcore.pipeline import run
    from flashcore.pipeline.state import Settings, printer

    settings = Settings(
        suite=arguments.roofs,
        profiles=arguments.profiles,
        build=arguments.build_dir,
        roofs=arguments.roofs,
        command=shlex.join(["flashcore", *sys.argv[1:]]),
    )
    record, found = run.measure_roofs(settings, printer(), fresh=arguments.fresh)
    print(f"run {record.id}, {record.gpu}, driver {record.environment.driver}")
    print(text_tables.roofs(found))
    return _failed(record)


def bounds(arguments: argparse.Namespace) -> int:
    from flashcore.analysis import roofline
    from flashcore.cli import text_tables
    from flashcore.hardware import devices
    from flashcore.machine.gpu import Gpu
    from flashcore.manifest.load import load, select
    from flashcore.runs import store

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
        gpu = Gpu.find()
        name = gpu.name if gpu else record.gpu if record else None
        if name is None:
            raise UsageError(
                f"expected --device, one of {', '.join(devices.load())}: there is no GPU and no recorded run"
            )
        ceilings = roofline.roofs(devices.find(name), measured=record.roofs if record and record.gpu == name else ())
        print(f"{name}")
    print(text_tables.bounds(suite, ceilings, shapes))
    return Exit.OK


def list_suite(arguments: argparse.Namespace) -> int:
    from flashcore.cli import text_tables

    if arguments.facts:
        print(text_tables.facts())
        return Exit.OK
    from flashcore.manifest.load import load

    print(text_tables.suite(load(arguments.suite)))
    return Exit.OK


def doctor(_: argparse.Namespace) -> int:
    from flashcore.cli import doctor

    lines, can_build = doctor.examine()
    print("\n".join(lines))
    return Exit.OK if can_build else Exit.INCAPABLE


def init(arguments: argparse.Namespace) -> int:
    from flashcore.manifest import template

    for path in template.write(Path(arguments.folder)):
        print(path)
    print(f"next: flashcore build --suite {arguments.folder}")
    return Exit.OK
