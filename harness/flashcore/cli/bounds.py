"""``flashcore explain --bounds``: the least time of each shape of a suite, by resource. Needs no run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from flashcore.chips import devices
from flashcore.cli import options, output
from flashcore.cli.grid import grid
from flashcore.errors import UsageError
from flashcore.explain import roofline
from flashcore.explain.roofline import Bound
from flashcore.machine.gpu import Gpu
from flashcore.model.groups import picked
from flashcore.model.record import Roof
from flashcore.model.text import did_you_mean, fixed, unit_text
from flashcore.records import lookup
from flashcore.runner.problem_file import load_problem, work_of
from flashcore.suites.find import suite_folder
from flashcore.suites.load import load, select


def show(arguments: argparse.Namespace) -> None:
    """Prints the bounds of the selected variants' shapes, as a table or JSON.

    Raises:
        UsageError: there is no such device, or neither a device, a GPU nor a run.
    """
    suite = load(suite_folder(arguments.suite))
    variants, shapes = select(suite, arguments.variants, arguments.shapes)
    ceilings, device = _ceilings(arguments, suite.name)
    bounds = []
    for shape in shapes:
        problem = load_problem(suite.root, suite.problems[shape.problem].file)
        for dtype in dict.fromkeys(v.roof for v in variants if v.problem == shape.problem):
            work = work_of(problem, shape.params, dtype)
            bounds.append((shape.name, dtype, roofline.bounds(work, dtype, ceilings)))
    if arguments.format == "json":
        print(as_json(bounds, device))
    else:
        print(f"{device}\n" * (arguments.device is None) + as_table(bounds))


def _ceilings(arguments: argparse.Namespace, suite: str) -> tuple[Sequence[Roof], str]:
    """The roofs and name of the user's device, else of this GPU, else of the newest run's GPU."""
    by_name = devices.load()
    if arguments.device is not None:
        device = devices.find(arguments.device)
        if device is None:
            hint = did_you_mean(arguments.device, by_name)
            raise UsageError(f"--device {arguments.device}: expected one of {', '.join(by_name)}{hint}")
        return roofline.roofs(device), device.title
    gpu = Gpu.find()
    runs = lookup.measured_runs(options.places(arguments), suite)
    record = next((r for r in runs if gpu is None or r.gpu == gpu.name), None)
    name = gpu.name if gpu else record.gpu if record else None
    if name is None:
        no_device = "there is no GPU, and no recorded run of the suite has one"
        raise UsageError(f"expected --device, one of {', '.join(by_name)}: {no_device}")
    measured = record.roofs if record else ()
    return roofline.roofs(devices.find(name), measured=measured), name


def as_table(cases: Sequence[tuple[str, str, Sequence[Bound]]]) -> str:
    """The least time per resource for each shape and compute dtype; the largest is the floor."""
    rows: list[list[str]] = []
    for shape, dtype, bounds in cases:
        lowest = roofline.floor(bounds)
        for bound in bounds:
            mark = "floor" if bound is lowest else ""
            amount = "-" if bound.amount is None else f"{bound.amount:,.0f} {bound.unit}"
            roof = bound.roof
            ceiling = bound.note if roof is None else f"{roof.value:,.4g} {unit_text(roof.unit)}, {roof.origin}"
            rows.append([shape, dtype, bound.resource, amount, fixed(bound.us, 2), mark, ceiling])
    return grid(("shape", "compute", "resource", "amount", "least µs", "", "roof"), rows)


def as_json(cases: Sequence[tuple[str, str, Sequence[Bound]]], device: str) -> str:
    """``device`` and ``bounds``: for each shape and compute dtype of a variant the least ``us`` that each resource
    allows for the ``amount`` in ``unit``, its ``roof`` (``value``, ``unit``, ``origin``), and whether it is the
    ``floor``. If the amount or the roof is unknown, they are ``null`` and ``reason`` names the unknown one."""
    rows: list[dict[str, Any]] = []
    for shape, dtype, bounds in cases:
        lowest = roofline.floor(bounds)
        for bound in bounds:
            roof = None if bound.roof is None else picked(bound.roof, "value", "unit", "origin")
            row = {"shape": shape, "compute": dtype, **picked(bound, "resource", "amount", "unit", "us"), "roof": roof}
            rows.append({**row, "floor": bound is lowest, "reason": bound.note})
    return output.document(device=device, bounds=rows)
