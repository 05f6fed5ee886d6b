"""Sanitize: every kernel once under ``compute-sanitizer``, for what no comparison of answers shows.

``memcheck`` finds accesses outside of what was allocated, ``racecheck`` unordered accesses to shared memory.
One process takes many cases, since starting costs more than running, but the tool gives one count a
process. A batch that is clean clears all its cases; one that is not is taken apart, and each of its cases
runs alone, so that a count is never laid at the wrong door. All state is in the folder's files: called
again, :func:`run` goes on where it was ended.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flashcore.machine import python_process
from flashcore.machine.compute_sanitizer import TOOLS, Report, Tool, command_line, parse
from flashcore.model.catalogue import FACTS
from flashcore.model.record import CaseOutcome, Fact, Source, StageResult, Subject
from flashcore.worker import supervisor
from flashcore.worker.journal import Journal, Result, Task, child, read_journal

if TYPE_CHECKING:
    from torch import Tensor

    from flashcore.worker.kernel_call import Case

TARGET = "flashcore.stages.sanitize.sanitize"
DEVICE = "cuda"
SEED = 0
ROUNDS = 3  # together, then alone; once more where the tool gave no count
FINISH_LIMIT = 60.0  # seconds that the tool has to write its count, once the target is over
#: Every tensor gets an allocation of its own, so that one kernel cannot stray into another's unseen.
ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}

# --- the stage ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Settled:
    """What a tool has said of the cases so far: counts, and of the others why there is none."""

    reports: dict[str, Report] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # by its own fault: not run again
    open: dict[str, str] = field(default_factory=dict)  # to be run alone
    seconds: dict[str, float] = field(default_factory=dict)


def run(
    cases: Sequence[Case],
    folder: Path,
    *,
    sanitizer: Path | str,
    tools: Sequence[Tool] = TOOLS,
    progress: Callable[[str], None] = lambda line: None,
    time_limit: float = 300.0,
    startup_limit: float = 300.0,
    batch: int = 32,
) -> StageResult:
    """Runs the cases under each tool, or what is left of them if ``folder`` holds an earlier attempt.

    Args:
        sanitizer: see :func:`find_sanitizer`.
        time_limit: seconds one case may take under one tool.
        startup_limit: seconds from the start of a child to its first case.
        batch: cases a process, as long as they are clean.

    Raises:
        CapabilityError: no GPU, or the tool cannot be started.
        FlashcoreError: ``folder`` cannot be written; what was found is kept.
    """
    payloads = {f"{case.variant}/{case.shape}": case.to_json() for case in cases}
    stage = _Stage(folder, sanitizer, progress, time_limit, startup_limit, batch)
    settled = {tool: stage.settle(tool, payloads) for tool in tools}
    facts: list[Fact] = []
    outcomes: list[CaseOutcome] = []
    for case in cases:
        name = f"{case.variant}/{case.shape}"
        subject = Subject(case.variant, shape=case.shape)
        complaints = []
        for tool in tools:
            own = settled[tool]
            report = own.reports.get(name)
            why = own.failed.get(name) or own.open.get(name) or "it was not run"
            facts += _facts(subject, tool, report, why)
            if report is None:
                complaints.append(f"{tool}: unmeasured: {why}")
            elif not report.clean:
                complaints.append(f"{tool}: {_counted(report)}: {report.first}".removesuffix(": "))
        seconds = sum(own.seconds.get(name, 0.0) for own in settled.values())
        status: Literal["ok", "failed"] = "failed" if complaints else "ok"
        outcomes.append(CaseOutcome(case.variant, case.shape, "sanitize", status, "; ".join(complaints), seconds))
    return StageResult(tuple(facts), tuple(outcomes))


def _facts(subject: Subject, tool: Tool, report: Report | None, why: str) -> list[Fact]:
    names = ["errors"] + (["warnings"] if tool == "racecheck" else [])
    values: list[int | None] = [None, None] if report is None else [report.errors, report.warnings]
    note = f"not sanitized: {why}" if report is None else report.first
    found = []
    for kind, value in zip(names, values, strict=False):
        name = f"sanitizer_{tool}_{kind}"
        found.append(Fact(subject, name, value, FACTS[name].unit, Source.SANITIZER, note))
    return found


def _counted(report: Report) -> str:
    parts = [
        f"{n} {word}{'s' if n != 1 else ''}"
        for n, word in ((report.errors, "error"), (report.warnings, "warning"))
        if n
    ]
    return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class _Stage:
    folder: Path
    sanitizer: Path | str
    progress: Callable[[str], None]
    time_limit: float
    startup_limit: float
    batch: int

    def settle(self, tool: Tool, payloads: Mapping[str, dict[str, object]]) -> _Settled:
        """All cases together, then each of those that are in doubt alone."""
        settled = _Settled()
        for number in range(ROUNDS):
            pending = [n for n in payloads if n not in settled.reports and n not in settled.failed]
            if not pending:
                break
            path = self.folder / f"{tool}-{number}"
            results = self._round(path, tool, [Task(n, payloads[n]) for n in pending], self.batch if number == 0 else 1)
            self._harvest(path, tool, results, settled)
        return settled

    def _round(self, path: Path, tool: Tool, tasks: list[Task], batch: int) -> list[Result]:
        def command(task_file: Path, journal: Path) -> list[str]:
            target = python_process.command(TARGET, str(task_file), str(journal))
            return command_line(self.sanitizer, tool, _log(journal), target)

        def tell(result: Result) -> None:
            ending = "ran" if result.status == "ok" else f"failed: {result.reason.partition(chr(10))[0]}"
            self.progress(f"{tool} {result.name}: {result.seconds:.1f} s, {ending}")

        return supervisor.supervise(
            tasks,
            path,
            command,
            time_limit=self.time_limit,
            startup_limit=self.startup_limit,
            batch=batch,
            finish_limit=FINISH_LIMIT,
            on_progress=tell,
            environment=ENVIRONMENT,
        )

    def _harvest(self, path: Path, tool: Tool, results: Sequence[Result], settled: _Settled) -> None:
        """Adds what a round gave. Reads files alone, so it says the same however often it is asked."""
        answers = {r.name: r for r in results}
        for name in answers:
            settled.open[name] = answers[name].reason or "its process did not say"
        for journal in sorted(path.glob("journal-*.jsonl")):
            begun = [line["name"] for line in read_journal(journal) if line.get("event") == "begin"]
            log = _log(journal)
            said = parse(log.read_text(errors="replace") if log.exists() else "", tool)
            alone = len(begun) == 1
            for name in begun:
                if name not in answers:
                    continue
                result = answers[name]
                settled.seconds[name] = settled.seconds.get(name, 0.0) + result.seconds
                if isinstance(said, str):
                    settled.open[name] = f"{result.reason}; {said}" if result.reason else said
                elif (said.clean and result.status == "ok") or (alone and not said.clean):
                    settled.reports[name] = said
                elif alone:
                    settled.failed[name] = result.reason
                else:
                    settled.open[name] = result.reason or f"its batch is not clean: {_counted(said)}"


def _log(journal: Path) -> Path:
    """Where the tool writes beside a journal."""
    return journal.with_name(f"{journal.stem.replace('journal', 'sanitizer')}.log")


# --- the target -----------------------------------------------------------------------------------


def perform(task: Task, journal: Journal) -> None:
    """One case: its inputs, one call, and a wait for what it does."""
    from flashcore.worker.kernel_call import Caller, Case, load_problem, synchronize

    case = Case.from_json(task.payload)
    problem = load_problem(case.root, case.problem_file)
    caller = Caller(case, problem, DEVICE)
    inputs = problem.make_inputs(dict(case.params), SEED, DEVICE)
    call = caller.bind(inputs, _outputs(case))
    journal.step(task.name, "call")
    call()
    synchronize(DEVICE)


def _outputs(case: Case) -> dict[str, Tensor]:
    """Outputs of just their size: the bands that the check lays around them would hide a write beside them."""
    import torch

    return {
        a.name: torch.empty([int(case.params[d]) for d in a.dims], dtype=getattr(torch, a.dtype), device=DEVICE)
        for a in case.arguments
        if a.mutable
    }


def prepare() -> None:
    """Looks for a GPU.

    Raises:
        CapabilityError: there is none.
    """
    from flashcore.worker.kernel_call import require_device

    require_device(DEVICE)


if __name__ == "__main__":
    from flashcore.worker.kernel_call import is_poisoned

    sys.exit(child(sys.argv[1:], perform, prepare=prepare, is_poisoned=lambda: is_poisoned(DEVICE)))
