"""Runs every kernel once under ``compute-sanitizer``, for faults that wrong answers do not show.

``memcheck`` finds accesses outside of allocations, ``racecheck`` unordered accesses to shared memory, ``synccheck``
misused barriers. A process runs many cases, because its start takes longer than they do, but the tool counts errors
per process. A clean batch clears all its cases. The cases of any other batch run again alone, so that no count is
attributed to the wrong case. All state is in the folder's files, so a second call of :func:`run` continues an
interrupted one. The tool runs :mod:`flashcore.stages.sanitize.child`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flashcore.machine import python_process, toolchain
from flashcore.machine.capabilities import lacking
from flashcore.model.catalogue import fact_of
from flashcore.model.cause import Cause
from flashcore.model.causes import (
    BATCH_NOT_CLEAN,
    MESSAGE,
    SANITIZER_ERRORS,
    UNANSWERED,
    Hang,
    HungBefore,
    NotSanitized,
    Several,
)
from flashcore.model.files import writing
from flashcore.model.progress import Say
from flashcore.model.record import CaseOutcome, CaseStatus, Fact, Source, StageResult, Subject
from flashcore.model.settings import Limits, Sanitize, SanitizerTool
from flashcore.runner import rounds
from flashcore.runner.journal import Task, TaskResult, begun
from flashcore.runner.kernel_call import KernelCall
from flashcore.runner.process import Program
from flashcore.runner.queue import Pool
from flashcore.runner.rounds import Settled
from flashcore.stages.context import Context

_PLACES = (toolchain.CUDA, "/usr/local/cuda/compute-sanitizer")


def find_sanitizer() -> Path:
    """The path of ``compute-sanitizer``: in ``CUDA_HOME``, on ``PATH``, or where CUDA installs it.

    Raises:
        CapabilityError: it is not installed.
    """
    if path := toolchain.program("compute-sanitizer", toolchain.cuda_home(), _PLACES):
        return path
    raise lacking("compute-sanitizer")


def command_line(sanitizer: Path | str, tool: SanitizerTool, log: Path, target: Sequence[str]) -> list[str]:
    """The command line that runs a target under the tool.

    Failed API calls do not count: libraries make some on purpose, and the stage *check* reports the others.
    """
    return [
        *(str(sanitizer), "--tool", tool, "--log-file", str(log).replace("%", "%%")),
        *("--launch-timeout", "0"),  # torch takes long to reach its first CUDA call
        *("--check-exit-code", "no"),  # the outcome of the target is in its journal
        *(("--report-api-errors", "no") if tool == "memcheck" else ()),
        *target,
    ]


@dataclass(frozen=True, slots=True)
class SanitizerReport:
    """The counts of one process, and the tool's first complaint."""

    errors: int
    warnings: int = 0
    first: str = ""

    @property
    def clean(self) -> bool:
        return self.errors == 0 and self.warnings == 0


_ERRORS = r"(?m)^=+ ERROR SUMMARY: ([\d,]+) errors?\s*$"
_RACECHECK = r"(?m)^=+ RACECHECK SUMMARY: [\d,]+ hazards? displayed \(([\d,]+) errors?, ([\d,]+) warnings?\)"
_LINE = r"(?m)^=+ ?(.*)$"
#: The tool failed, so its count is not about the kernels.
_BLIND = r"(?m)^=+ .*(?:Internal Sanitizer Error|[Oo]ut of memory|is not supported|Unsupported).*$"


def parse(text: str, tool: SanitizerTool) -> SanitizerReport | str:
    """The counts in a tool's log, or why it has none."""
    if blind := re.search(_BLIND, text):
        return f"compute-sanitizer did not work: {blind[0].lstrip('= ')}"
    summary = re.search(_RACECHECK if tool == "racecheck" else _ERRORS, text)
    if summary is None:
        lines = [line.strip() for line in re.findall(_LINE, text) if line.strip()]
        return "compute-sanitizer gave no count" + (f": {' | '.join(lines[-2:])}" if lines else "")
    errors, *warnings = (int(n.replace(",", "")) for n in summary.groups())
    return SanitizerReport(errors, sum(warnings), _first(text))


def _first(text: str) -> str:
    """The first complaint, with the line of its place if there is one."""
    lines = [m.rstrip() for m in re.findall(_LINE, text)]
    for i, line in enumerate(lines):
        if line.strip() and not line.startswith(" ") and "SUMMARY" not in line and line.strip() != "COMPUTE-SANITIZER":
            where = lines[i + 1].strip() if i + 1 < len(lines) else ""
            return f"{line.strip()} {where}" if where.startswith(("at ", "by ")) else line.strip()
    return ""


TARGET = python_process.child("flashcore.stages.sanitize.child")
#: Gives every tensor a separate allocation, so that the tool notices accesses to another tensor's memory.
ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def run(context: Context, cases: Sequence[KernelCall]) -> StageResult:
    """Runs the cases under each tool; see :data:`flashcore.stages.gpu_stages.Run`.

    Raises:
        CapabilityError: no GPU, or the tool cannot be started.
        FlashcoreError: the folder cannot be written; completed cases are kept.
    """
    chosen = context.settings.sanitize or Sanitize()
    sanitizer = find_sanitizer()
    folder = context.folder / "sanitize"
    progress = context.progress("sanitize", len(cases))
    tasks = [case.task(context.device) for case in cases]
    settled: dict[SanitizerTool, Settled[SanitizerReport]] = {}
    stuck: dict[str, HungBefore] = {}
    with writing(folder):
        for tool in chosen.tools:
            stage = _UnderTool(tool, sanitizer, chosen.limits, context.workers, progress)
            ready = [t for t in tasks if t.variant not in stuck]
            results = settled[tool] = rounds.settle(folder / tool, ready, stage.perform, stage.harvest)
            results.failed |= {t.name: stuck[t.variant] for t in tasks if t not in ready}
            stuck |= results.hung
    facts: list[Fact] = []
    outcomes: list[CaseOutcome] = []
    for case in cases:
        causes: list[Cause] = []
        for tool, results in settled.items():
            report = results.reports.get(case.name)
            missing = NotSanitized(tool, results.cause(case.name))
            facts += _facts(case.subject, tool, report, missing)
            if report is None:
                causes.append(missing)
            elif not report.clean:
                causes.append(SANITIZER_ERRORS(tool, report.errors, report.warnings, report.first))
        seconds = sum(results.seconds.get(case.name, 0.0) for results in settled.values())
        skipped = all(isinstance(x, NotSanitized) and isinstance(x.because, HungBefore) for x in causes)
        status: CaseStatus = "ok" if not causes else "skipped" if skipped else "failed"
        cause = causes[0] if len(causes) == 1 else Several(tuple(causes)) if causes else None
        outcomes.append(CaseOutcome(case.variant, case.shape, "sanitize", status, cause, seconds))
    return StageResult(tuple(facts), tuple(outcomes))


def _facts(subject: Subject, tool: SanitizerTool, report: SanitizerReport | None, missing: Cause) -> Iterator[Fact]:
    for kind in ("errors", "warnings") if tool == "racecheck" else ("errors",):
        value: int | None = getattr(report, kind, None)
        detail = report.first if report else missing
        yield fact_of(subject, f"sanitizer_{tool}_{kind}", value, Source.SANITIZER, detail)


@dataclass(frozen=True, slots=True)
class _UnderTool:
    tool: SanitizerTool
    sanitizer: Path
    limits: Limits
    workers: Pool
    progress: Say

    def perform(self, path: Path, tasks: list[Task], settled: Settled[SanitizerReport]) -> None:
        """Runs the cases together, and each doubtful one alone."""
        sanitizer, tool = self.sanitizer, self.tool  # these may be sent to another host

        def command(task_file: Path, journal: Path) -> list[str]:
            return command_line(sanitizer, tool, _log(journal), TARGET(task_file, journal))

        def tell(result: TaskResult) -> None:
            self.progress(f"{self.tool} {rounds.progress_line(result, 'ran')}")

        together = [t for t in tasks if t.name not in settled.open]
        alone = [t for t in tasks if t.name in settled.open]
        for group, batch in ((together, self.limits.batch), (alone, 1)):
            limits = replace(self.limits, batch=batch)
            program = Program(command=command, limits=limits, environment=ENVIRONMENT, at_once=True)
            self.workers.run(group, program, path, tell)

    def harvest(self, path: Path, answers: Mapping[str, TaskResult], settled: Settled[SanitizerReport]) -> None:
        """Attributes each process' counts to its cases."""
        for name, result in answers.items():
            over = settled.failed if isinstance(result.cause, Hang | HungBefore) else settled.open
            over[name] = result.cause or UNANSWERED()
        for journal in sorted(path.glob("journal-*.jsonl")):
            ran = begun(journal)
            log = _log(journal)
            report = parse(log.read_text(errors="replace") if log.exists() else "", self.tool)
            alone = len(ran) == 1
            for name in ran:
                if name not in answers:
                    continue
                result = answers[name]
                settled.seconds[name] = settled.seconds.get(name, 0.0) + result.seconds
                if name in settled.failed:
                    continue
                if isinstance(report, str):
                    settled.open[name] = Several((result.cause, MESSAGE(report))) if result.cause else MESSAGE(report)
                elif (report.clean and result.status == "ok") or (alone and not report.clean):
                    settled.reports[name] = report
                elif alone:
                    settled.failed[name] = result.cause or UNANSWERED()
                else:
                    settled.open[name] = result.cause or BATCH_NOT_CLEAN(report.errors, report.warnings)


def _log(journal: Path) -> Path:
    """The path of the tool's log for a journal."""
    return journal.with_name(f"{journal.stem.replace('journal', 'sanitizer')}.log")
