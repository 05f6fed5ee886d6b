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
from harness.errors import CapabilityError, FlashcoreError, RecordError
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


class _Refused(Exception):  # noqa: N818  (it is no error, it ends a round)
    """ncu refused metrics: ask again without them."""


@dataclass(slots=True)
class _Settled:
    """What is known of the cases so far: rows of the profiled, reasons of the failed, seconds of both."""

    rows: dict[str, list[ncu_csv.KernelRow]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)  # ran, but its rows are not all there: why
    refused: dict[str, str] = field(default_factory=dict)
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
    facts: list[Fact] = []
    outcomes: list[CaseOutcome] = []
    for name, case in zip(names, cases, strict=True):
        if name in settled.rows:
            facts += ncu_facts.facts_of(
                case.variant, case.shape, settled.rows[name], chip=chip, plan=plans.get(name), refused=settled.refused
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
        """Reads what earlier attempts left, then runs rounds until each case is profiled, has failed, or
        has lost its rows too often."""
        settled = _Settled()
        earlier = sorted(self.folder.glob("round-*"), key=lambda path: int(path.name.removeprefix("round-")))
        for path in earlier:
            self._harvest(path, worker.answered(path), settled)
        first = 1 + int(earlier[-1].name.removeprefix("round-")) if earlier else 0
        number = first
        while number < first + ROUNDS + len(settled.refused):  # each refusal costs a round, and a metric
            pending = [n for n in payloads if n not in settled.rows and n not in settled.failed]
            if not pending:
                break
            path = self.folder / f"round-{number}"
            results = self._round(path, [worker.Task(n, payloads[n]) for n in pending], settled)
            self._harvest(path, results, settled)
            if missing := capability_missing(_logs(path)):
                raise missing
            number += 1
        return settled

    def _round(
        self, path: Path, tasks: list[worker.Task], settled: _Settled
    ) -> list[worker.Result]:
        """Runs the tasks in batches, an ncu each. Ends early when ncu's words say that going on is vain."""
        path.mkdir(parents=True)
        metrics = ncu_facts.metrics_to_ask(self.chip, settled.refused)

        def command(task_file: Path, journal: Path) -> list[str]:
            log = _logs(path)
            if missing := capability_missing(log):
                raise missing
            if refused_metrics(log, metrics):
                raise _Refused
            report = path / f"{journal.stem}.ncu-rep"
            target = [sys.executable, "-m", TARGET, str(task_file), str(journal)]
            return command_line(
                self.ncu, report, metrics, target,
                clock_control=self.clock_control, cache_control=self.cache_control,
            )  # fmt: skip

        try:
            return worker.supervise(
                tasks,
                path,
                command,
                time_limit=self.time_limit,
                startup_limit=self.startup_limit,
                batch=self.batch,
                on_progress=self._tell,
            )
        except _Refused:
            return worker.answered(path)

    def _tell(self, result: worker.Result) -> None:
        ending = "" if result.status == "ok" else f": {result.reason.splitlines()[0] if result.reason else 'failed'}"
        self.progress(f"profile {result.name} {result.seconds:.1f} s{ending}")

    def _harvest(self, path: Path, results: Sequence[worker.Result], settled: _Settled) -> None:
        """Adds what a round gave. Reads files alone, so it says the same however often it is asked."""
        log = _logs(path)
        refused = refused_metrics(log, ncu_facts.metrics_to_ask(self.chip))
        settled.refused |= refused
        # Where ncu itself could not work, a case that failed did not fail by its own fault.
        excused = bool(refused) or capability_missing(log) is not None
        rows, unreadable, incomplete = self._tables(path)
        for result in results:
            name = result.name
            if result.status != "ok":
                if not excused:
                    settled.failed[name] = result.reason or "failed without a reason"
                    settled.seconds[name] = result.seconds
            elif name in rows and name not in incomplete:
                settled.rows[name] = rows[name]
                settled.seconds[name] = result.seconds
            elif unreadable:
                settled.failed[name] = unreadable
            else:
                settled.lost[name] = incomplete.get(name) or (
                    "it ran, but ncu returned no kernel launch for its range: ncu ended before it wrote its "
                    f"report, or the case launches no kernel ({_last_words(log)})"
                )

    def _tables(
        self, path: Path
    ) -> tuple[dict[str, list[ncu_csv.KernelRow]], str, dict[str, str]]:
        """The rows of a round by case; why a report cannot be read (empty if all can); and the cases whose
        rows are perhaps not all there, with why. What a later report says of a case replaces the earlier."""
        rows: dict[str, list[ncu_csv.KernelRow]] = {}
        incomplete: dict[str, str] = {}
        unreadable = ""
        stems = {f.name.split(".")[0] for f in (*path.glob("*.ncu-rep"), *path.glob("*.csv.gz"))}
        for stem in sorted(stems, key=lambda s: [int(n) for n in re.findall(r"\d+", s)]):
            try:
                table = self._table(path / f"{stem}.ncu-rep", path / f"{stem}.csv.gz")
            except FlashcoreError as error:
                unreadable = str(error)
                continue
            for name, launches in table.by_range().items():
                rows[name] = launches
                incomplete.pop(name, None)
                if name in table.suspects:
                    incomplete[name] = "its rows may be incomplete: " + "; ".join(table.notes)
        return rows, unreadable, incomplete

    def _table(self, report: Path, saved: Path) -> ncu_csv.Table:
        """A batch's table: from the saved CSV if that is whole, else from ncu's report."""
        if saved.exists():
            try:
                table = ncu_csv.parse(gzip.decompress(saved.read_bytes()).decode())
            except (OSError, EOFError, zlib.error, UnicodeDecodeError, ncu_csv.LayoutError) as error:
                if not report.exists():
                    raise RecordError(
                        f"{saved}: expected gzipped CSV of ncu, found: {error}; delete it and resume"
                    ) from None
            else:
                if not table.notes or not report.exists():
                    return table
        text = import_report(self.ncu, report)
        _write(saved, gzip.compress(text.encode(), mtime=0))
        table = ncu_csv.parse(text)
        if not self.keep_report and not table.notes:
            report.unlink()
        return table


def _logs(path: Path) -> str:
    """What the children of a round said."""
    return "\n".join(log.read_text(errors="replace") for log in sorted(path.glob("*.log")))


def _write(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
