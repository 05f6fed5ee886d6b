"""Profile: one ``ncu`` process for many cases, read back by the NVTX range that each case ran in.

The folder of a run holds ``round-N/``: journals, the children's logs, and of each batch what ncu
recorded, first as ``.ncu-rep``, then as gzipped CSV. All state is in those files: a run that was ended
at any moment, even by kill -9, is finished by calling :func:`run` again with the same folder.

A case counts as profiled when its journal says that it ran *and* ncu returned rows for its range. One
that ran while its rows were lost (ncu itself died) is run again in another round.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from harness import ncu_csv, ncu_facts, worker
from harness.errors import CapabilityError, FlashcoreError
from harness.model import CaseOutcome, Fact, Plan, StageResult
from harness.operators import Case

ROUNDS = 3  # a case whose rows get lost this often is failed
TARGET = "harness.target"

ClockControl = Literal["none", "base"]
CacheControl = Literal["all", "none"]


# --- ncu: where it is, what it is told, what its errors mean -------------------------------------


def find_ncu(explicit: str | None = None) -> Path:
    """Nsight Compute's command line: what the user names, ``PATH``, or where NVIDIA installs it.

    Raises:
        CapabilityError: there is none.
    """
    if explicit is not None:
        found = shutil.which(explicit)
        if found is None:
            raise CapabilityError(f"no Nsight Compute at {explicit}", "name the ncu executable itself")
        return Path(found)
    if found := shutil.which("ncu"):
        return Path(found)
    candidates = [Path("/usr/local/cuda/bin/ncu"), *_installed(Path("/opt/nvidia/nsight-compute"))]
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    raise CapabilityError(
        "no Nsight Compute: ncu is neither on PATH nor in /usr/local/cuda/bin or /opt/nvidia/nsight-compute",
        "install nsight-compute (apt install nsight-compute, or with the CUDA toolkit), or name it with --ncu",
    )


def _installed(root: Path) -> list[Path]:
    """``root/<version>/ncu``, the newest version first."""

    def version(path: Path) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", path.parent.name)]

    return sorted(root.glob("*/ncu"), key=version, reverse=True)


def ncu_version(ncu: Path | str) -> str | None:
    """Its version as ``2025.3.1.0``, ``None`` if it does not say."""
    try:
        said = subprocess.run([str(ncu), "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"Version (\d+(?:\.\d+)+)", said.stdout)
    return match[1] if match else None


def command_line(
    ncu: Path | str,
    report: Path,
    metrics: Sequence[str],
    target: Sequence[str],
    *,
    clock_control: ClockControl = "none",
    cache_control: CacheControl = "all",
) -> list[str]:
    """The argv that profiles the ranges of ``target`` into ``report`` (``….ncu-rep``).

    Only the target itself is profiled: the compilers that a peer may start are none of our business, and
    loading ncu into them costs seconds.
    """
    return [
        str(ncu),
        "--target-processes", "application-only",
        "--nvtx", "--nvtx-include", "regex:flashcore@.*/",
        "--clock-control", clock_control,
        "--cache-control", cache_control,
        "--metrics", ",".join(metrics),
        "--force-overwrite",
        "--export", str(report.with_suffix("")).replace("%", "%%"),  # ncu expands %h, %p, %q{…}
        *target,
    ]  # fmt: skip


def import_report(ncu: Path | str, report: Path, *, time_limit: float = 300.0) -> str:
    """The raw page of a report as CSV, in base units.

    Raises:
        FlashcoreError: ncu could not read the report, or took longer than ``time_limit`` seconds.
    """
    argv = [str(ncu), "--import", str(report), "--csv", "--page", "raw", "--print-units", "base",
            "--print-metric-instances", "details"]  # fmt: skip
    env = os.environ | {"LC_ALL": "C"}  # a decimal point, whatever the user's language
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=time_limit, env=env, check=False
        )
    except subprocess.TimeoutExpired:
        raise FlashcoreError(f"{report.name}: ncu --import gave no answer within {time_limit:g} s") from None
    except OSError as error:
        raise CapabilityError(f"{ncu} cannot be run: {error.strerror}", "name another ncu with --ncu") from None
    if done.returncode != 0:
        words = _last_words(done.stderr + done.stdout)
        raise FlashcoreError(f"{report.name}: ncu --import failed with exit code {done.returncode}: {words}")
    return done.stdout


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("==ERROR==")]
    return " · ".join((errors or lines)[-3:])[:400] or "it said nothing"


#: What a child's log may hold → what the machine lacks, and the way to mend it.
_CAPABILITIES: tuple[tuple[str, str, str], ...] = (
    (
        r"ERR_NVGPUCTRPERM",
        "no permission to read the GPU's performance counters (ERR_NVGPUCTRPERM)",
        "run as root or with CAP_SYS_ADMIN (a container: --cap-add=SYS_ADMIN), or let every user read them: "
        "put 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' in /etc/modprobe.d/nvidia.conf and reboot",
    ),
    (
        r"==ERROR==.*(?:LibraryNotLoaded|not compatible with Nsight Compute|driver version is insufficient"
        r"|driver is not compatible|Profiling is not supported on|unsupported GPU)",
        "this Nsight Compute does not fit the driver or the GPU",
        "install the Nsight Compute of the driver's CUDA release, or a newer one, and name it with --ncu",
    ),
    (
        r"==ERROR==.*failed to connect to the CUDA driver",
        "Nsight Compute finds no CUDA driver",
        "install the NVIDIA driver (a container: --gpus all), and keep CUDA's stub libcuda out of LD_LIBRARY_PATH",
    ),
    (
        r"No CUDA GPUs are available|no CUDA-capable device|Found no NVIDIA driver|not compiled with CUDA enabled",
        "no GPU that torch can use",
        "run where there is an NVIDIA GPU and a torch built for CUDA; elsewhere the recorded run is used",
    ),
    (
        r"==ERROR==.*concurrently collecting profiling data",
        "another tool is reading this GPU's performance counters",
        "end it (dcgm: systemctl stop nvidia-dcgm, or dcgmi profile --pause), then resume",
    ),
    (r"No module named 'nvtx'", "the Python package nvtx is missing", "pip install nvtx"),
)
_REFUSED = re.compile(r"==ERROR== (Failed to find metric (?:regex:\^?)?((?:\w|\\?\.)+).*)")


def capability_missing(log: str) -> CapabilityError | None:
    """What the machine lacks, if the log of a child says so."""
    for pattern, what, mend in _CAPABILITIES:
        if match := re.search(pattern, log):
            line = next((x.strip() for x in log.splitlines() if match[0] in x), match[0])
            return CapabilityError(f"{what}: {line[:300]}", mend)
    return None


def refused_metrics(log: str, asked: Sequence[str]) -> dict[str, str]:
    """Those of the metrics asked for that ncu says it cannot find, with its words.

    One such name makes ncu fail the whole target. It names them as we did, or as a pattern without the suffix.
    """
    refused: dict[str, str] = {}
    for words, name in _REFUSED.findall(log):
        base = name.replace("\\", "").rstrip(".")
        for metric in asked:
            if metric == base or metric.startswith(base + "."):
                refused[metric] = words.strip()[:200]
    return refused


# --- the stage -----------------------------------------------------------------------------------


class _Refused(Exception):
    """ncu refused metrics: ask again without them."""

    def __init__(self, metrics: dict[str, str]) -> None:
        self.metrics = metrics


@dataclass(slots=True)
class _Settled:
    """What is known of the cases so far: rows of the profiled, reasons of the failed, seconds of both."""

    rows: dict[str, list[ncu_csv.KernelRow]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)  # ran, but without rows: why, the last time
    seconds: dict[str, float] = field(default_factory=dict)


def run(
    cases: Sequence[Case],
    folder: Path,
    *,
    ncu: Path | str,
    chip: str,
    plans: Mapping[str, Plan],
    clock_control: ClockControl = "none",
    cache_control: CacheControl = "all",
    keep_report: bool = False,
    progress: Callable[[str], None] = lambda line: None,
    time_limit: float = 120.0,
    startup_limit: float = 180.0,
    batch: int = 16,
) -> StageResult:
    """Profiles the cases, or what is left of them if ``folder`` holds an earlier attempt.

    Args:
        ncu: Nsight Compute, see :func:`find_ncu`.
        chip: the GPU's chip as ncu names it (``gh100``): decides how metrics are called.
        plans: case (``variant/shape``) → what it launches; peers have none.
        clock_control: ``base`` locks the clocks while measuring, ``none`` leaves them alone.
        cache_control: ``all`` flushes the caches before each pass (cold), ``none`` leaves them warm.
        keep_report: keep ncu's own reports beside the CSV.
        time_limit: seconds one case may take, all passes together.
        startup_limit: seconds from the start of a child to its first case.
        batch: cases a process; bounds what a fault of ncu itself can cost.

    Raises:
        CapabilityError: no GPU, no permission to read counters, no nvtx, or an ncu that does not fit.
        FlashcoreError: ncu refuses metrics that were not asked for.
    """
    if importlib.util.find_spec("nvtx") is None:
        raise CapabilityError("the Python package nvtx is missing", "pip install nvtx")
    names = [f"{case.variant}/{case.shape}" for case in cases]
    stage = _Stage(
        folder, ncu, chip, clock_control, cache_control, keep_report, progress, time_limit, startup_limit, batch
    )
    settled = stage.settle({name: case.to_json() for name, case in zip(names, cases, strict=True)})
    refused = stage.refused()
    facts: list[Fact] = []
    outcomes: list[CaseOutcome] = []
    for name, case in zip(names, cases, strict=True):
        if name in settled.rows:
            facts += ncu_facts.facts_of(
                case.variant, case.shape, settled.rows[name], chip=chip, plan=plans.get(name), refused=refused
            )
            reason = ""
        else:
            reason = settled.failed.get(name) or settled.lost.get(name) or "it was not run"
            facts += ncu_facts.unmeasured(case.variant, case.shape, f"not profiled: {reason}")
        status: Literal["ok", "failed"] = "failed" if reason else "ok"
        outcomes.append(
            CaseOutcome(case.variant, case.shape, "profile", status, reason, settled.seconds.get(name))
        )
    return StageResult(tuple(facts), tuple(outcomes))


@dataclass(frozen=True, slots=True)
class _Stage:
    folder: Path
    ncu: Path | str
    chip: str
    clock_control: ClockControl
    cache_control: CacheControl
    keep_report: bool
    progress: Callable[[str], None]
    time_limit: float
    startup_limit: float
    batch: int

    def settle(self, payloads: Mapping[str, dict[str, object]]) -> _Settled:
        """Runs rounds until each case is profiled, failed, or has lost its rows too often."""
        settled = _Settled()
        number = 0
        while number < ROUNDS + len(self.refused()):  # a refusal costs a round, and at least a metric
            pending = [n for n in payloads if n not in settled.rows and n not in settled.failed]
            if not pending:
                break
            self._round(self.folder / f"round-{number}", {n: payloads[n] for n in pending}, settled)
            number += 1
        return settled
