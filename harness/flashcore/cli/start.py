"""What ``flashcore`` alone prints: the current folder's files, and commands for them. Imports nothing slow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flashcore.cli import options
from flashcore.machine.gpu import Gpu
from flashcore.model.text import abbreviated
from flashcore.records import lookup
from flashcore.suites import find

REPORTS = (".ncu-rep", ".sqlite")
BINARIES = (".cubin", ".ptx", ".so")


def show() -> None:
    """Prints the current folder's suites, runs, reports and binaries, and at most four commands for them."""
    suites = [str(suite) for suite in find.all_near(find.base())]
    profiles = Path(find.of_project(options.default("profiles")))
    runs = [run.name for run in lookup.runs(profiles)]
    runs += [file.name.removesuffix(lookup.PACKED) for file in profiles.glob(f"*{lookup.PACKED}")]
    reports, binaries = (_files(suffixes) for suffixes in (REPORTS, BINARIES))
    gpu = Gpu.find()
    newest = f"{len(runs)}, newest {max(runs)}" if runs else ""
    for name, value in (
        ("suite", abbreviated(suites)), ("runs", newest), ("reports", abbreviated(reports)),
        ("binaries", abbreviated(binaries)), ("GPU", gpu.name if gpu else ""),
    ):  # fmt: skip
        print(f"{name + ':':<10} {value or 'none'}")
    print("\nnext:")
    for command, purpose in list(_proposals(suites, runs, reports, binaries, gpu))[:4]:
        print(f"  {command:<36} {purpose}")
    print("  flashcore --help                     all commands")


def _proposals(
    suites: list[str], runs: list[str], reports: list[str], binaries: list[str], gpu: Gpu | None
) -> Iterator[tuple[str, str]]:
    """Commands for the files here, with their purposes, the most useful first."""
    if suites:
        suite = f" --suite {suites[0]}" if suites[1:] else ""
        if gpu:
            yield f"flashcore profile{suite}", "build, check, time and profile the suite"
        else:
            yield f"flashcore gate{suite}", "build the suite and check its budgets; needs no GPU"
    if reports:
        yield f"flashcore import {reports[0]}", "list its kernels and what limits them"
    if binaries:
        yield f"flashcore audit {binaries[0]}", "its kernels' registers, spills and occupancy"
    if runs:
        yield "flashcore explain", "what to change, by the newest run"
        yield "flashcore report", "the newest run as pages"
    if not (suites or reports or binaries):
        yield "flashcore init my_suite", "write a small suite to fill in"


def _files(suffixes: tuple[str, ...]) -> list[str]:
    return sorted(p.name for p in Path().iterdir() if p.suffix in suffixes)
