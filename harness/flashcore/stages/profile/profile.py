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
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flashcore.errors import CapabilityError, FlashcoreError, RecordError, UsageError, WriteError
from flashcore.machine import python_process
from flashcore.machine.capabilities import lacking, said_in
from flashcore.machine.ncu import (
    CacheControl,
    ClockControl,
    command_line,
    import_report,
    last_words,
    refused_metrics,
)
from flashcore.model.catalogue import CHIPS, FACTS
from flashcore.model.files import write_atomically
from flashcore.model.record import CaseOutcome, Fact, Plan, StageResult
from flashcore.stages.profile import ncu_csv, ncu_facts
from flashcore.static import phases
from flashcore.worker import supervisor
from flashcore.worker.journal import Result, Task, answers

if TYPE_CHECKING:
    from flashcore.worker.kernel_call import Case

ROUNDS = 3  # a case whose rows get lost this often is failed
FEW = 32  # cases that are all measured in depth, whatever it costs
TARGET = "flashcore.stages.profile.target"
FINISH_LIMIT = 60.0  # seconds ncu has to write its report, once the target is over


class _Refused(Exception):
    """ncu refused metrics: ask again without them."""


def chip_of(capability: tuple[int, int]) -> str:
    """The chip as ncu names it, of a compute capability; of an unknown minor, its family's nearest older one.

    Raises:
        CapabilityError: no metric names are known for that family.
    """
    family = [known for known in CHIPS if known[0] == capability[0] and known <= capability]
    if not family:
        raise CapabilityError(
            f"compute capability {capability[0]}.{capability[1]}: no metric names are known for this GPU",
            "add its chip and its metric names to flashcore/model/catalogue.py (ncu --query-metrics lists them)",
        )
    return CHIPS[max(family)]


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
    codes: Mapping[str, phases.Code] | None = None,
    clock_control: ClockControl = "none",
    cache_control: CacheControl = "all",
    keep_report: bool = False,
    progress: Callable[[str], None] = lambda line: None,
    time_limit: float = 120.0,
    startup_limit: float = 180.0,
    batch: int = 128,
) -> StageResult:
    """Profiles the cases, or what is left of them if ``folder`` holds an earlier attempt.

    Of more than :data:`FEW` cases, each variant's first one alone is measured in depth: what takes ncu many passes,
    and where the warps are (see :func:`by_depth`).

    Args:
        ncu: Nsight Compute, see :func:`find_ncu`.
        chip: the GPU's chip as ncu names it (``gh100``): decides how metrics are called.
        plans: case (``variant/shape``) → what it launches; peers have none.
        codes: variant → the phases of its code, where its sources mark some.
        clock_control: ``base`` locks the clocks while measuring, ``none`` leaves them alone.
        cache_control: ``all`` flushes the caches before each pass (cold), ``none`` leaves them warm.
        keep_report: keep ncu's own reports beside the CSV.
        time_limit: seconds one case may take, all passes together.
        startup_limit: seconds from the start of a child to its first case.
        batch: cases a process; bounds what a fault of ncu itself can cost.

    Raises:
        CapabilityError: no GPU, no permission to read counters, no nvtx, or an ncu that does not fit.
        UsageError: the earlier attempt in ``folder`` was measured in another way.
        FlashcoreError: ``folder`` cannot be written; what was measured is kept.
    """
    if importlib.util.find_spec("nvtx") is None:
        raise lacking("nvtx")
    names = [f"{case.variant}/{case.shape}" for case in cases]
    codes = codes or {}
    deep = frozenset(case.name for case in by_depth(cases)[0])
    stage = _Stage(
        folder, ncu, chip, clock_control, cache_control, keep_report, progress, time_limit, startup_limit, batch,
        deep=deep, sampled=any(case.variant in codes for case in cases if case.name in deep),
    )  # fmt: skip
    # Peers last: libraries keep workspaces, which ncu would save and restore around every pass of what follows.
    payloads = {case.name: case.to_json() for case in sorted(cases, key=lambda case: case.is_peer)}
    try:
        stage.claim()
        settled = stage.settle(payloads)
    except OSError as error:
        raise FlashcoreError(
            f"{error.filename or folder}: expected to keep the profile here, found: {error.strerror}\n"
            "  to mend: make room (or give another folder) and continue with --resume"
        ) from error
    facts: list[Fact] = []
    outcomes: list[CaseOutcome] = []
    for name, case in zip(names, cases, strict=True):
        if name in settled.rows:
            facts += ncu_facts.facts_of(
                case.variant, case.shape, settled.rows[name],
                chip=chip, plan=plans.get(name), refused=settled.refused,
                code=codes.get(case.variant) if name in deep else None,
            )  # fmt: skip
            reason = ""
        else:
            reason = settled.failed.get(name) or settled.lost.get(name) or "it was not run"
            facts += ncu_facts.unmeasured(case.variant, case.shape, f"not profiled: {reason}")
        status: Literal["ok", "failed"] = "failed" if reason else "ok"
        outcomes.append(CaseOutcome(case.variant, case.shape, "profile", status, reason, settled.seconds.get(name)))
    return StageResult(tuple(facts), tuple(outcomes))


def by_depth(cases: Sequence[Case]) -> tuple[list[Case], list[Case]]:
    """The cases to measure in depth, and those to leave what is dear out of: of more than :data:`FEW`, peers and all
    but each variant's first case. Each group gets ncu processes of its own."""
    if len(cases) <= FEW:
        return list(cases), []
    first: dict[str, Case] = {}
    for case in cases:
        first.setdefault(case.variant, case)
    deep = [case for case in first.values() if not case.is_peer]
    return deep, [case for case in cases if case not in deep]


def shallow(metrics: Iterable[str], chip: str) -> list[str]:
    """The metrics without those that take ncu many passes, and without samples of warps."""
    dear = {spec.ncu_name(chip) for spec in FACTS.values() if spec.dear} | {ncu_facts.SAMPLES}
    return [metric for metric in metrics if metric not in dear]


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
    deep: frozenset[str]  # names of the cases to measure in depth
    sampled: bool

    def claim(self) -> None:
        """Makes the folder ours, or refuses one whose facts were measured otherwise: warm and cold caches, or
        two chips, are never mixed in one profile."""
        path = self.folder / "settings.json"
        ours = {"chip": self.chip, "clock_control": self.clock_control, "cache_control": self.cache_control}
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(ours).encode())
        elif (theirs := json.loads(path.read_text())) != ours:
            raise UsageError(
                f"{self.folder}: expected to go on with a profile taken with {ours}, found one with {theirs}\n"
                "  to mend: resume with the same settings, or start a new run"
            )

    def settle(self, payloads: Mapping[str, dict[str, object]]) -> _Settled:
        """Reads what earlier attempts left, then runs rounds until each case is profiled, has failed, or
        has lost its rows too often."""
        settled = _Settled()
        earlier = sorted(self.folder.glob("round-*"), key=lambda path: int(path.name.removeprefix("round-")))
        for path in earlier:
            self._harvest(path, answers(path).values(), settled)
        first = 1 + int(earlier[-1].name.removeprefix("round-")) if earlier else 0
        number = first
        while number < first + ROUNDS + len(settled.refused):  # each refusal costs a round, and a metric
            pending = [n for n in payloads if n not in settled.rows and n not in settled.failed]
            if not pending:
                break
            path = self.folder / f"round-{number}"
            results = self._round(path, [Task(n, payloads[n]) for n in pending], settled)
            self._harvest(path, results, settled)
            if missing := said_in(_logs(path)):
                raise missing
            number += 1
        return settled

    def _round(self, path: Path, tasks: list[Task], settled: _Settled) -> list[Result]:
        """Runs the tasks in batches, an ncu each. Ends early when ncu's words say that going on is vain."""
        path.mkdir(parents=True)
        metrics = ncu_facts.metrics_to_ask(self.chip, settled.refused, sampled=self.sampled)
        deep = [task for task in tasks if task.name in self.deep]
        rest = [task for task in tasks if task.name not in self.deep]
        try:
            results = self._batches(path, deep, metrics) if deep else []
            return results + (self._batches(path, rest, shallow(metrics, self.chip)) if rest else [])
        except _Refused:
            return list(answers(path).values())

    def _batches(self, path: Path, tasks: list[Task], metrics: list[str]) -> list[Result]:
        def command(task_file: Path, journal: Path) -> list[str]:
            report = path / f"{journal.stem.replace('journal', 'report')}.ncu-rep"
            target = python_process.command(TARGET, str(task_file), str(journal))
            return command_line(
                self.ncu, report, metrics, target,
                clock_control=self.clock_control, cache_control=self.cache_control,
            )  # fmt: skip

        def tell(result: Result) -> None:
            if result.status == "failed":
                log = _logs(path)
                if missing := said_in(log):
                    raise missing
                if refused_metrics(log, metrics):
                    raise _Refused
            ending = "ok" if result.status == "ok" else f"failed: {result.reason.partition(chr(10))[0]}"
            self.progress(f"{result.name}: {result.seconds:.1f} s, {ending}")

        return supervisor.supervise(
            tasks,
            path,
            command,
            time_limit=self.time_limit,
            startup_limit=self.startup_limit,
            batch=self.batch,
            finish_limit=FINISH_LIMIT,
            on_progress=tell,
        )

    def _harvest(self, path: Path, results: Iterable[Result], settled: _Settled) -> None:
        """Adds what a round gave. Reads files alone, so it says the same however often it is asked."""
        log = _logs(path)
        refused = refused_metrics(log, ncu_facts.metrics_to_ask(self.chip, sampled=self.sampled))
        settled.refused |= refused
        # Where ncu itself could not work, a case that failed did not fail by its own fault.
        excused = bool(refused) or said_in(log) is not None
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
            elif unreadable and name not in incomplete:
                settled.failed[name] = unreadable
            else:
                settled.lost[name] = incomplete.get(name) or (
                    "it ran, but ncu returned no kernel launch for its range: ncu ended before it wrote its "
                    f"report, or the case launches no kernel ({last_words(log)})"
                )

    def _tables(self, path: Path) -> tuple[dict[str, list[ncu_csv.KernelRow]], str, dict[str, str]]:
        """The rows of a round by case; why a report cannot be read (empty if all can); and the cases whose
        rows are perhaps not all there, with why. What a later report says of a case replaces the earlier."""
        rows: dict[str, list[ncu_csv.KernelRow]] = {}
        incomplete: dict[str, str] = {}
        unreadable = ""
        stems = {f.name.split(".")[0] for f in (*path.glob("*.ncu-rep"), *path.glob("*.csv.gz"))}
        for stem in sorted(stems, key=lambda s: [int(n) for n in re.findall(r"\d+", s)]):
            try:
                table = self._table(path / f"{stem}.ncu-rep", path / f"{stem}.csv.gz")
            except WriteError:
                raise
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
        write_atomically(saved, gzip.compress(text.encode(), mtime=0))
        table = ncu_csv.parse(text)
        if not self.keep_report and not table.notes:
            report.unlink()
        return table


def _logs(path: Path) -> str:
    """What the children of a round said."""
    return "\n".join(log.read_text(errors="replace") for log in sorted(path.glob("*.log")))
