"""Finds Nsight Compute's command line tool, builds its arguments, and interprets its errors."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.machine.capabilities import lacking
from flashcore.machine.toolchain import CUDA, program
from flashcore.model.settings import ClockControl

_INSTALLED = Path("/opt/nvidia/nsight-compute")  # one folder per release


def find_ncu(explicit: str | None = None) -> Path:
    """The ncu executable: ``explicit``, else from ``PATH``, else from NVIDIA's default folders, the newest first.

    Raises:
        CapabilityError: ncu is not installed.
    """

    def release(folder: Path) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", folder.name)]

    installed = sorted(_INSTALLED.glob("*/"), key=release, reverse=True)
    if path := program(explicit or "ncu", after=[CUDA, *installed]):
        return path
    if explicit:
        raise CapabilityError(f"no Nsight Compute at {explicit}", "give the path of the ncu executable")
    raise lacking("ncu")


#: ncu's options for FlashCore's children. Only the target process is profiled: loading ncu into compilers that a
#: library may start would cost seconds.
OUR_RANGES = ("--target-processes", "application-only", "--nvtx", "--nvtx-include", "regex:flashcore@.*/")


def command_line(
    ncu: Path | str,
    report: Path,
    metrics: Sequence[str],
    target: Sequence[str],
    *,
    options: Sequence[str] = OUR_RANGES,
    clock_control: ClockControl = "none",
) -> list[str]:
    """The argv that profiles ``target`` into ``report`` (``….ncu-rep``).

    Args:
        options: ncu's, which select processes and launches. Unless they say otherwise, ncu flushes the caches before
            each pass.
    """
    return [
        str(ncu),
        *options,
        *("--clock-control", clock_control),
        *("--metrics", ",".join(metrics)),
        *("--force-overwrite", "--export", str(report.with_suffix("")).replace("%", "%%")),  # ncu expands %h, %p, %q{…}
        *target,
    ]


#: The options of the raw page, which is read without guessing.
RAW_PAGE = "--page raw --print-units base --print-metric-instances details"


def raw_page_of(ncu: Path | str, report: Path, *, time_limit: float = 300.0, names: str = "demangled") -> str:
    """A report's raw page as CSV, in base units.

    Args:
        names: kernel names: ``demangled``, which ncu may spell differently in each run, or ``mangled``.

    Raises:
        FlashcoreError: ncu could not read the report, or took longer than ``time_limit`` seconds.
        CapabilityError: ncu cannot be executed.
    """
    argv = [str(ncu), "--import", str(report), "--csv", *RAW_PAGE.split(), "--print-kernel-base", names]
    env = os.environ | {"LC_ALL": "C"}  # a decimal point, whatever the user's language
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=time_limit, env=env, check=False
        )
    except subprocess.TimeoutExpired:
        raise FlashcoreError(f"{report.name}: ncu --import did not finish within {time_limit:g} s") from None
    except OSError as error:
        raise CapabilityError(f"{ncu} cannot be run: {error.strerror}", "put another ncu on PATH") from None
    if done.returncode != 0:
        message = last_lines(done.stderr + done.stdout)
        raise FlashcoreError(f"{report.name}: ncu --import failed with exit code {done.returncode}: {message}")
    return done.stdout


def last_lines(text: str) -> str:
    """The last three error lines of ncu's output, or its last lines if none is an error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("==ERROR==")]
    return " · ".join((errors or lines)[-3:])[:400] or "no output"


_REFUSED = r"==ERROR== (Failed to find metric (?:regex:\^?)?((?:\w|\\?\.)+).*)"


def refused_metrics(log: str, requested: Sequence[str]) -> dict[str, str]:
    """The requested metrics that ncu cannot find → its message.

    A single unknown name makes ncu fail for the whole target. ncu prints the name literally or as a pattern.
    """
    refused: dict[str, str] = {}
    for message, name in re.findall(_REFUSED, log):
        base = name.replace("\\", "").rstrip(".")
        for metric in requested:
            if metric == base or metric.startswith(base + "."):
                refused[metric] = message.strip()[:200]
    return refused
