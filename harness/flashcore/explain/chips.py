"""Compares runs of one suite on several chips: their names, their differences, and the cases that no chip runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flashcore.errors import UsageError
from flashcore.model.groups import grouped
from flashcore.model.record import Record
from flashcore.model.suite import Shape, Variant
from flashcore.model.text import same_hardware


def names(records: Sequence[Record]) -> list[str]:
    """The name of each run's chip, with its memory if two have the same name.

    Raises:
        UsageError: the runs are not of one suite, or two are of the same chip.
    """
    first = records[0]
    seen: dict[tuple[str, int | None], Record] = {}
    for record in records:
        if (_kind(record), record.suite.name) != (_kind(first), first.suite.name):
            raise UsageError(
                f"expected runs of one suite, found {_kind(first)} {first.id} of {first.suite.name} and "
                f"{_kind(record)} {record.id} of {record.suite.name}"
            )
        if record.gpu is None:
            raise UsageError(f"run {record.id}: expected GPU results to compare chips, found none")
        memory = record.environment.gpu_memory_bytes  # None if the measurements were joined
        same = (r for (gpu, m), r in seen.items() if gpu == record.gpu and (m == memory or m is None or memory is None))
        if other := next(same, None):
            which = "the same run twice" if other.id == record.id else f"{other.id} and {record.id} of {record.gpu}"
            raise UsageError(
                f"expected one run of each chip, found {which}\n"
                f"  hint: to compare two runs of one chip: flashcore report {record.id} --against RUN"
            )
        seen[record.gpu, memory] = record
    gpus = [gpu for gpu, _ in seen]
    return [f"{gpu}, {(memory or 0) / 2**20:,.0f} MiB" if gpus.count(gpu) > 1 else gpu for gpu, memory in seen]


def _kind(record: Record) -> str:
    return "import" if any(v.imported for v in record.suite.variants.values()) else "run"


def why_not(record: Record) -> Callable[[Variant, Shape], str]:
    """A function that returns why the run's chip does not run a case; empty if it does, whatever the outcome."""
    ran = {o.case for o in record.outcomes if o.status == "ok"}
    refused = {o.case: o.reason for o in record.outcomes if o.status == "unsupported" and o.case not in ran}
    arch = record.gpu_arch

    def why(variant: Variant, shape: Shape) -> str:
        declared, at = record.suite.variants.get(variant.name), record.suite.shapes.get(shape.name)
        if declared is None or at is None or not declared.runs_on(at):
            return "not in this run's suite"
        where = declared.where
        if arch and not declared.is_reference and not any(same_hardware(arch, a) for a in where.archs):
            return where.unsupported.get(arch) or f"only for {', '.join(where.archs)}, not {arch}"
        return refused.get(f"{variant.name}/{shape.name}", "")

    return why


def notes(records: Sequence[Record]) -> list[str]:
    """The differences that make the chips hard to compare, and the cases that no chip runs, with the reasons."""
    chips = names(records)
    machines = [r.environment for r in records]
    sources = [f"{(e.git_commit or 'unknown')[:12]}{' and changes' * bool(e.git_dirty)}" for e in machines]
    lines = [
        f"{tool} differs: " + _each(chips, values)
        for tool, values in (("source", sources), ("nvcc", [e.nvcc or "absent" for e in machines]))
        if len(set(values)) > 1
    ]
    if any((r.suite.budgets, r.suite.waivers) != (records[0].suite.budgets, records[0].suite.waivers) for r in records):
        lines.append("budgets differ: each run is checked against the budgets it was recorded with")
    reasons = [why_not(r) for r in records]
    cases = {
        (v.name, s.name): (v, s)
        for r in records
        for s in r.suite.shapes.values()
        for v in r.suite.variants.values()
        if v.runs_on(s)
    }
    nowhere = grouped(
        ((variant.name, _each(chips, each)), shape.name)
        for variant, shape in cases.values()
        if all(each := [why(variant, shape) for why in reasons])
    )
    return [*lines, *(f"no chip here runs {v} on {', '.join(on)} ({why})" for (v, why), on in nowhere.items())]


def _each(chips: Sequence[str], values: Sequence[str]) -> str:
    return "; ".join(f"{chip}: {value}" for chip, value in zip(chips, values, strict=True))
