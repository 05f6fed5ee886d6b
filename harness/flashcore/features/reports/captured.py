"""Makes a run record from a capture: the chosen cases of ncu's reports, and how the command ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import fsum
from pathlib import Path

from flashcore.errors import CapabilityError, FlashcoreError, RecordError
from flashcore.features.reports import traces
from flashcore.features.reports.assemble import record_of
from flashcore.features.reports.capture import Captured, Ran, Stopped
from flashcore.features.reports.read import read_report
from flashcore.features.reports.survey import CapturedCase, LaunchKey
from flashcore.machine.environment import of_this_machine
from flashcore.machine.gpu import Gpu
from flashcore.model.cause import cause_text
from flashcore.model.record import Fact, Facts, Record, Source, StageNote, Subject, subject_of
from flashcore.model.suite import Suite
from flashcore.readers.kernel_names import canonical, demangled
from flashcore.readers.ncu.results import Report, Result
from flashcore.records.slugs import shape, shape_parameters


def record(run_id: str, name: str, command: str, captured: Captured, ncu: str | None) -> Record:
    """The record of the chosen cases.

    Args:
        name: the suite's name; records of one name are compared with each other.
        command: as typed in a shell.
        ncu: ncu's version.

    Raises:
        FlashcoreError: none of the chosen cases was measured.
    """
    wanted = {case.key for case in captured.cases}
    reports: list[Report] = []
    measured: dict[LaunchKey, Result] = {}
    for run in captured.runs:
        keys = {row.id: key for row in run.rows if (key := captured.survey.key_of(row)) in wanted}
        if run.name.startswith("measure") and run.report is not None and keys:
            whole = _read(run.report)
            reports.append(replace(whole, results=tuple(r for r in whole.results if r.id in keys)))
            measured |= {keys[r.id]: r for r in reports[-1].results}
    if not reports:
        why = "; ".join(run.cause.text for run in captured.runs if run.cause) or "it launched them in no later run"
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
    facts = Facts((*made.facts, *_surveyed(captured, made.suite, measured)))
    return replace(made, suite=suite, environment=here, stages=notes, facts=facts)


def _surveyed(captured: Captured, suite: Suite, measured: Mapping[LaunchKey, Result]) -> Iterator[Fact]:
    """The number of the survey's launches of each kernel, and their mean time: at each measured configuration, and at
    all others together. A kernel that ncu did not measure has no variant."""
    source = Source.NCU if captured.by_ncu else Source.CUPTI
    variants = {variant.technique: name for name, variant in suite.variants.items()}
    times: dict[Subject, list[float]] = {}
    for case in captured.survey.cases:
        result = measured.get(case.key)
        kernel = result.kernel if result else demangled(case.key.kernel)
        at = shape(shape_parameters(result)) if result else None
        subject = subject_of(variants.get(canonical(kernel), ""), at, kernel)
        times.setdefault(subject, []).extend(case.us)
    for subject, us in times.items():
        yield Fact(subject, traces.TIME, 1e3 * fsum(us) / len(us), "ns", source)
        yield Fact(subject, traces.COUNT, float(len(us)), "1", source)


def _read(report: Path) -> Report:
    """Reads a report with NVIDIA's reader; else, if that lacks or refuses it, as ncu printed it."""
    try:
        return read_report(report)
    except (CapabilityError, RecordError):
        return read_report(report.with_suffix(".csv"))


def ended(run: Ran) -> str:
    """How the command ended, in words; empty if it succeeded."""
    if run.code is None:
        return cause_text(run.cause)
    if run.code < 0:
        return f"the command was ended by signal {-run.code}"
    return f"the command ended with exit code {run.code}" if run.code else ""


def remarks(captured: Captured) -> Iterator[str]:
    """Each chosen case's warm-up, the codes that an autotuner dropped, and the metrics that ncu refused."""
    wanted, missed = {case.key for case in captured.cases}, {case.key for case in captured.missed}
    for case in captured.survey.cases:
        if case.key in wanted or case.dropped:
            yield f"{case.key}: {_remark(case, case.key in missed)}"
    yield from (f"ncu refused {metric}: {words}" for metric, words in captured.refused.items())
    if captured.by_ncu:
        yield f"the survey ran under ncu, which takes about 80 ms per launch: {cause_text(captured.by_ncu)}"
    if any(case.dropped for case in captured.survey.cases) and captured.runs[0].name == "survey":
        yield "its autotuner chose under ncu, where times are not its own: --settle lets it choose before"


def _remark(case: CapturedCase, missed: bool) -> str:
    if case.dropped:
        return "an autotuner tried it and took another"
    if missed:
        return "not measured: no later run launched it again"
    count = len(case.us)
    warm_up = f"the first {case.warm_up} of {count} launches are warm-up"
    return "launched once: nothing was warm" if count == 1 else warm_up
