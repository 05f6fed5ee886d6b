"""``flashcore build``: compiles, and prints each kernel's resources and occupancy, or shows nvcc's commands."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from flashcore.build import build
from flashcore.cli import options, progress
from flashcore.cli.grid import cell, grid
from flashcore.errors import Exit
from flashcore.model.causes import MachineStopped
from flashcore.model.groups import grouped
from flashcore.model.record import Artifact, Fact, Facts, Plan, unlaunched_note
from flashcore.model.text import count
from flashcore.pipeline.opening import open_context
from flashcore.stages.compiling import compile_all

_OF_KERNELS = {
    "registers": "regs",
    "spill_store_bytes": "spill st B",
    "spill_load_bytes": "spill ld B",
    "stack_bytes": "stack B",
}

EXAMPLES = (
    ("flashcore build", "every variant for every arch"),
    ("flashcore build --variant wide", "one variant"),
    ("flashcore build --variant wide --commands", "nvcc's command for each of its archs"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_suite(parser)
    options.add_build(parser)
    options.add_selection(parser)
    options.add_quiet(parser)
    parser.add_argument(
        "--commands", action="store_true", help="compile nothing; print nvcc's command for each variant and arch"
    )


def run(arguments: argparse.Namespace) -> int:
    settings = options.settings(arguments, upto=None)
    context = open_context(settings)
    if arguments.commands:
        print(f"cd {shlex.quote(context.suite.root)}")
        choice = context.options, context.variants, context.gpu_arch
        for name, command in build.commands(context.suite, context.build_folder, *choice):
            print(f"\n# {name}\n{command}")
        return Exit.OK
    with progress.shown(arguments.quiet) as say:
        built = compile_all(replace(context, say=say))
    print("\n".join([table(built.artifacts, built.facts), *unlaunched_note(built.artifacts), *unplanned(built.plans)]))
    return exit_code(built.artifacts, built.plans)


def exit_code(artifacts: Iterable[Artifact], plans: Iterable[Plan]) -> Exit:
    """The exit code of a build: whether a variant or its plan failed, or the machine stopped one."""
    failures = [*(a.cause for a in artifacts if a.status == "failed"), *(p.cause for p in plans if p.failed)]
    if not all(isinstance(cause, MachineStopped) for cause in failures):
        return Exit.FAILED
    return Exit.INCAPABLE if failures else Exit.OK


def unplanned(plans: Iterable[Plan]) -> Iterator[str]:
    """A line for each reason why a variant's launches are unknown, with the shapes that it is for."""
    reasons = grouped(((p.variant, p.error), p.shape) for p in plans if p.cause)
    for (variant, error), shapes in reasons.items():
        first, *others = dict.fromkeys(shapes)
        more = f" and {count(len(others), 'more shape')}" if others else ""
        yield f"no launches: {variant}/{first}{more}: {error}"


def table(artifacts: Sequence[Artifact], measured: Iterable[Fact]) -> str:
    """Registers, spills, shared memory and theoretical occupancy of each kernel, by arch."""
    facts = Facts(measured)
    rows: list[list[str]] = []
    for artifact in artifacts:
        if artifact.status != "ok":
            rows.append([artifact.variant, artifact.arch, artifact.status, *["-"] * 7])
            continue
        of_arch = [f for f in facts.of(artifact.variant) if f.subject.arch == artifact.arch]
        occupancies = {f.subject.kernel: f for f in reversed(of_arch) if f.name == "theoretical_occupancy"}
        for kernel in (f.subject for f in of_arch if f.name == "registers"):
            occupancy = occupancies.get(kernel.kernel)
            values = [facts.get(name, kernel) for name in _OF_KERNELS]
            if occupancy is None:
                values += [facts.get("static_smem", kernel), None, None]
            else:
                launch = occupancy.subject
                values += [facts.get("smem", launch), occupancy, facts.get("occupancy_limiter", launch)]
            rows.append([artifact.variant, artifact.arch, kernel.kernel or "", *map(cell, values)])
    header = ("variant", "arch", "kernel", *_OF_KERNELS.values(), "smem B", "occupancy %", "limited by")
    return grid(header, rows)
