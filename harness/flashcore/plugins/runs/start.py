"""``flashcore start``: lists the current folder's files, and commands for them. Imports nothing slow."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from flashcore.cli import options
from flashcore.errors import Exit, UsageError
from flashcore.measure.machine.gpu import Gpu
from flashcore.plugins.runs.command import Summary, summaries
from flashcore.suites import find

REPORTS = (".ncu-rep", ".sqlite")
BINARIES = (".cubin", ".ptx", ".so")

EXAMPLES = (
    ("flashcore start", "this folder"),
    ("flashcore start --profiles elsewhere", "with the runs of another folder"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_profiles(parser)


def run(arguments: argparse.Namespace) -> int:
    here = Path()
    try:
        suite = str(find.near(find.base()))
        missing = ""
    except UsageError as error:
        suite, missing = "", str(error).partition("found ")[2].partition("\n")[0]
    runs = summaries([Path(arguments.profiles)])
    reports, binaries = (_files(here, suffixes) for suffixes in (REPORTS, BINARIES))
    gpu = Gpu.find()
    newest = f"{len(runs)}, newest {runs[0].id} of {runs[0].suite}" if runs else "none"
    for name, value in (
        ("suite", suite or missing), ("runs", newest), ("reports", _listed(reports)),
        ("binaries", _listed(binaries)), ("GPU", gpu.name if gpu else "none"),
    ):  # fmt: skip
        print(f"{name + ':':<10} {value}")
    print("\nnext:")
    for command, purpose in list(_proposals(suite, runs, reports, binaries, gpu))[:4]:
        print(f"  {command:<36} {purpose}")
    print("  flashcore --help                     all commands")
    return Exit.OK


def _proposals(
    suite: str, runs: list[Summary], reports: list[str], binaries: list[str], gpu: Gpu | None
) -> Iterator[tuple[str, str]]:
    """Commands for the files here, with their purposes, the most useful first."""
    if suite and gpu:
        yield "flashcore profile", "build, check, time and profile the suite"
    elif suite:
        yield "flashcore gate", "build the suite and check its budgets; needs no GPU"
    if reports:
        yield f"flashcore import {reports[0]}", "list its kernels and what limits them"
    if binaries:
        yield f"flashcore audit {binaries[0]}", "its kernels' registers, spills and occupancy"
    if runs:
        yield "flashcore explain", "what to change, by the newest run"
        yield "flashcore report", "the newest run as pages"
    if not (suite or reports or binaries):
        yield "flashcore init my_suite", "write a small suite to fill in"


def _files(folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.suffix in suffixes)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "") or "none"
