"""``flashcore bounds``: how fast each shape could be at best."""

from __future__ import annotations

import argparse
from pathlib import Path

from flashcore.cli import options
from flashcore.errors import Exit, UsageError

HELP = "the least time each resource allows, for any known device"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_suite(parser)
    options.add_places(parser)
    options.add_shapes(parser)
    parser.add_argument("--device", metavar="NAME",
                        help="a device of the table (default: this GPU, or the newest run's)")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    from flashcore.analysis import roofline
    from flashcore.cli import text_tables
    from flashcore.hardware import devices
    from flashcore.machine.gpu import Gpu
    from flashcore.manifest.find import suite_folder
    from flashcore.manifest.load import load, select
    from flashcore.model.suggest import did_you_mean
    from flashcore.runs import store
    from flashcore.worker.kernel_call import load_problem

    suite = load(suite_folder(arguments.suite))
    _, shapes = select(suite, None, tuple(arguments.shapes))
    if arguments.device is not None:
        device = devices.find(arguments.device)
        if device is None:
            known = ", ".join(devices.load())
            raise UsageError(
                f"--device {arguments.device}: expected one of {known}{did_you_mean(arguments.device, devices.load())}"
            )
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
    work = {s.name: load_problem(suite.root, suite.problems[s.problem].file).work(dict(s.params)) for s in shapes}
    print(text_tables.bounds(suite, ceilings, shapes, work))
    return Exit.OK
