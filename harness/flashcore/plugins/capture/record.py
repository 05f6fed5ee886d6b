"""Makes an ordinary run record from a capture: the chosen cases of ncu's reports, and how the command ran."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from flashcore.errors import CapabilityError, FlashcoreError, RecordError
from flashcore.measure.machine.environment import of_this_machine
from flashcore.measure.machine.gpu import Gpu
from flashcore.model.cause_text import text
from flashcore.model.record import Record, StageNote
from flashcore.plugins.capture.capture import Captured, Ran, Stopped
from flashcore.plugins.capture.survey import Case
from flashcore.plugins.imports.assemble import record_of
from flashcore.plugins.imports.read_report import read_report
from flashcore.readers.ncu.results import Report


def record(run_id: str, name: str, command: str, captured: Captured, ncu: str | None) -> tuple[Record, list[Report]]:
    """The record of the chosen cases, and the reports that it is made from.

    Args:
        name: of its suite; records of one name are compared with each other.
        command: as a person would type it.
        ncu: its version.

    Raises:
        FlashcoreError: none of the chosen cases was measured; says why.
    """
    wanted = {case.key for case in captured.cases}
    reports = []
    for run in captured.runs:
        ids = {row.id for row in run.rows if captured.survey.key_of(row) in wanted}
        if run.name.startswith("measure") and run.report is not None and ids:
            whole = _read(run.report)
            reports.append(replace(whole, results=tuple(r for r in whole.results if r.id in ids)))
    if not reports:
        why = "; ".join(text(run.cause) for run in captured.runs if run.cause) or "it launched them in no later run"
        raise FlashcoreError(f"expected one of the {len(wanted)} kernels to be measured, found none: {why}")
    made = record_of(run_id, reports, name=name, command=command)
    gpu, arch = Gpu.find(), made.environment.gpu_arch
    here = of_this_machine(Path.cwd(), None, gpu, arch, ncu) if gpu is not None else made.environment
    suite = replace(made.suite, title=f"captured: {command}", notes=tuple(remarks(captured)))
    notes = tuple(
        StageNote(
            run.name, "ok" if run.code == 0 or isinstance(run.cause, Stopped) else "failed", run.seconds, ended(run)
        )
        for run in captured.runs
    )
    return replace(made, suite=suite, environment=here, stages=notes), reports


def _read(report: Path) -> Report:
    """A report as NVIDIA's reader has it; where there is none, or none of that form, as ncu itself printed it."""
    try:
        return read_report(report)
    except (CapabilityError, RecordError):
        return read_report(report.with_suffix(".csv"))


def ended(run: Ran) -> str:
    """How the command ended, in words; empty if it succeeded."""
    if run.code is None:
        return text(run.cause)
    if run.code < 0:
        return f"the command was ended by signal {-run.code}"
    return f"the command ended with exit code {run.code}" if run.code else ""


#: What :func:`rows` says of each case.
COLUMNS = ("kernel", "launches", "µs", "% of all", "median µs", "")


def rows(captured: Captured) -> list[tuple[str, ...]]:
    """What the survey saw of each chosen case, and of those that an autotuner dropped; see :data:`COLUMNS`."""
    wanted, missed = {case.key for case in captured.cases}, {case.key for case in captured.missed}
    whole = captured.survey.total_us
    return [
        (
            str(case.key),
            f"{len(case.us)}",
            f"{case.total_us:,.1f}",
            f"{100 * case.total_us / whole:.1f}",
            f"{sorted(case.us)[len(case.us) // 2]:,.1f}",
            _remark(case, case.key in missed),
        )
        for case in captured.survey.cases
        if case.key in wanted or case.dropped
    ]


def remarks(captured: Captured) -> Iterator[str]:
    """The same in words, with what was left out and what ncu refused."""
    shown = rows(captured)
    for kernel, launches, _, share, _, more in shown:
        yield f"{kernel}: {launches} launches, {share} % of the time; {more}"
    if left := len(captured.survey.cases) - len(shown):
        yield f"{left} more kernels and configurations are not measured: --top"
    yield from (f"ncu refused {metric}: {words}" for metric, words in captured.refused.items())
    if captured.by_ncu:
        yield f"the survey ran under ncu, which takes about 80 ms a launch: {text(captured.by_ncu)}"
    if any(case.dropped for case in captured.survey.cases) and captured.runs[0].name == "survey":
        yield "its autotuner chose under ncu, where times are not its own: --settle lets it choose before"


def _remark(case: Case, missed: bool) -> str:
    if case.dropped:
        return "an autotuner tried it and took another"
    if missed:
        return "not measured: no later run launched it again"
    return "launched once: nothing was warm" if len(case.us) == 1 else f"first {case.warm_up} are warm-up"
