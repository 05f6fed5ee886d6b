"""``flashcore metrics``: which metrics a chip has."""

from __future__ import annotations

import argparse
from pathlib import Path

from flashcore.chips.metric_tables import lookup
from flashcore.errors import Exit, UsageError
from flashcore.measure.machine import metric_lists
from flashcore.measure.machine.gpu import Gpu
from flashcore.model.catalogue import CHIPS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="facts that must exist there (default: list all)")
    parser.add_argument("--chip", metavar="CHIP", help="as ncu names it: gh100, ad104, ga102 (default: this GPU's)")
    text = "ask ncu, or nvidia-cuda-cupti, for the chip's table, and write it into --table FILE"
    parser.add_argument("--learn", action="store_true", help=text)
    parser.add_argument("--table", metavar="FILE", help="read or, with --learn, write this table")


def run(arguments: argparse.Namespace) -> int:
    file = Path(arguments.table) if arguments.table else None
    if arguments.learn and file is None:
        raise UsageError(
            "--learn: expected together with --table FILE, the table to write, found it alone\n"
            "  hint: `flashcore metrics --chip CHIP --table FILE` then reads it"
        )
    gpu = None if arguments.chip else Gpu.find()
    chip = arguments.chip or (CHIPS.get(gpu.capability) if gpu else None)
    if chip is None:
        raise UsageError(f"no GPU here: expected --chip, one of {', '.join(lookup.chips())}")
    if arguments.learn and file is not None:
        print(metric_lists.learn(chip, file))
        return Exit.OK
    table = lookup.table(chip, file)
    lookup.require(table, arguments.names)
    print(lookup.report(table, arguments.names))
    return Exit.OK
