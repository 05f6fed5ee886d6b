"""Sanitize: every kernel once under ``compute-sanitizer``, for faults that no comparison of answers shows.

``memcheck`` finds accesses outside of what was allocated, ``racecheck`` unordered accesses to shared memory,
``synccheck`` barriers that are used wrongly.
One process takes many cases, since starting costs more than running, but the tool gives one count a
process. A clean batch clears all its cases; otherwise each of its cases runs again alone, so that a count is never
attributed to the wrong case. All state is in the folder's files: called again, :func:`run` continues where it was
ended. :mod:`flashcore.plugins.sanitize.child` is what the tool runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flashcore.measure.context import Context, Say
from flashcore.measure.machine import python_process
from flashcore.measure.settings import Sanitize, Tool
from flashcore.measure.workers import rounds
from flashcore.measure.workers.journal import Result, Task, hung, read_journal
from flashcore.measure.workers.kernel_call import Case
from flashcore.measure.workers.pool import Pool
from flashcore.measure.workers.program import Limits, Program
from flashcore.measure.workers.rounds import Settled
from flashcore.model.catalogue import FACTS
from flashcore.model.causes import (
    BatchNotClean,
    Cause,
    Hang,
    HungBefore,
    Message,
    NotSanitized,
    SanitizerErrors,
    Several,
    Unanswered,
)
from flashcore.model.files import writing
from flashcore.model.record import CaseOutcome, CaseStatus, Fact, Source, StageResult, Subject
from flashcore.plugins.sanitize.compute_sanitizer import Report, command_line, find_sanitizer, parse

TARGET = python_process.child("flashcore.plugins.sanitize.child")
#: Every tensor gets an allocation of its own, so that an access to another tensor's memory is noticed.
ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def prepare(context: Context) -> None:
    """Starts nothing: one tool follows the other, and few runs sanitize."""


def run(context: Context, cases: Sequence[Case]) -> StageResult:
    """Runs the cases under each tool; see :class:`flashcore.measure.stage.Stage`.

    Raises:
        CapabilityError: no GPU, or the tool cannot be started.
        FlashcoreError: the folder cannot be written; what was found is kept.
    """
    chosen = context.settings.sanitize or Sanitize()
    sanitizer = find_sanitizer()
    folder = context.folder / "sanitize"
    progress = context.progress("sanitize", len(cases))
    tasks = [Task(case.name, {"case": case.to_json(), "device": context.device}) for case in cases]
    settled: dict[Tool, Settled[Report]] = {}
    stuck: dict[str, HungBefore] = {}
    with writing(folder):
        for tool in chosen.tools:
            stage = _UnderTool(tool, sanitizer, chosen.limits, context.workers, progress)
            ready = [t for t in tasks if t.variant not in stuck]
            results = settled[tool] = rounds.settle(folder / tool, ready, stage.perform, stage.harvest)
            results.failed |= {t.name: stuck[t.variant] for t in tasks if t not in ready}
            stuck |= hung(Result(name, "failed", cause) for name, cause in results.failed.items())
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
                causes.append(SanitizerErrors(tool, report.errors, report.warnings, report.first))
        seconds = sum(results.seconds.get(case.name, 0.0) for results in settled.values())
        skipped = all(isinstance(x, NotSanitized) and isinstance(x.because, HungBefore) for x in causes)
        status: CaseStatus = "ok" if not causes else "skipped" if skipped else "failed"
        cause = causes[0] if len(causes) == 1 else Several(tuple(causes)) if causes else None
        outcomes.append(CaseOutcome(case.variant, case.shape, "sanitize", status, cause, seconds))
    return StageResult(tuple(facts), tuple(outcomes))


def _facts(subject: Subject, tool: Tool, report: Report | None, missing: Cause) -> list[Fact]:
    names = ["errors"] + (["warnings"] if tool == "racecheck" else [])
    values: list[int | None] = [None, None] if report is None else [report.errors, report.warnings]
    detail = missing if report is None else report.first
    facts = []
    for kind, value in zip(names, values, strict=False):
        name = f"sanitizer_{tool}_{kind}"
        facts.append(Fact(subject, name, value, FACTS[name].unit, Source.SANITIZER, detail))
    return facts


@dataclass(frozen=True, slots=True)
class _UnderTool:
    tool: Tool
    sanitizer: Path
    limits: Limits
    workers: Pool
    progress: Say

    def perform(self, path: Path, tasks: list[Task], settled: Settled[Report]) -> None:
        """All cases together, and each of those that are in doubt alone."""
        sanitizer, tool = self.sanitizer, self.tool  # what is sent to another host

        def command(task_file: Path, journal: Path) -> list[str]:
            return command_line(sanitizer, tool, _log(journal), TARGET(task_file, journal))

        def tell(result: Result) -> None:
            self.progress(f"{self.tool} {rounds.progress_line(result, 'ran')}")

        together = [t for t in tasks if t.name not in settled.open]
        alone = [t for t in tasks if t.name in settled.open]
        for group, batch in ((together, self.limits.batch), (alone, 1)):
            limits = replace(self.limits, batch=batch)
            program = Program(command=command, limits=limits, environment=ENVIRONMENT, chunk=1)
            self.workers.run(group, program, path, tell)

    def harvest(self, path: Path, answers: Mapping[str, Result], settled: Settled[Report]) -> None:
        """Attributes each process' count to the cases that it ran."""
        for name, result in answers.items():
            over = settled.failed if isinstance(result.cause, Hang | HungBefore) else settled.open
            over[name] = result.cause or Unanswered()
        for journal in sorted(path.glob("journal-*.jsonl")):
            begun = [line["name"] for line in read_journal(journal) if line.get("event") == "begin"]
            log = _log(journal)
            report = parse(log.read_text(errors="replace") if log.exists() else "", self.tool)
            alone = len(begun) == 1
            for name in begun:
                if name not in answers:
                    continue
                result = answers[name]
                settled.seconds[name] = settled.seconds.get(name, 0.0) + result.seconds
                if name in settled.failed:
                    continue
                if isinstance(report, str):
                    settled.open[name] = Several((result.cause, Message(report))) if result.cause else Message(report)
                elif (report.clean and result.status == "ok") or (alone and not report.clean):
                    settled.reports[name] = report
                elif alone:
                    settled.failed[name] = result.cause or Unanswered()
                else:
                    settled.open[name] = result.cause or BatchNotClean(report.errors, report.warnings)


def _log(journal: Path) -> Path:
    """Where the tool writes beside a journal."""
    return journal.with_name(f"{journal.stem.replace('journal', 'sanitizer')}.log")
