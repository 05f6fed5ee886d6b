"""Runs of one suite on several chips: the chips' names, and the cases that none of them runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flashcore.errors import UsageError
from flashcore.model.groups import grouped
from flashcore.model.record import Record
from flashcore.model.suite import Shape, Variant
from flashcore.model.text import same_hardware


def names(records: Sequence[Record]) -> list[str]:
    """The name of each run's chip; two of one name are told apart by their memory.

    Raises:
        UsageError: the runs are not of one suite, or not each of another chip.
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
            raise UsageError(f"run {record.id}: expected a run that a GPU measured, beside others, found none")
        memory = record.environment.gpu_memory_bytes  # None where the measurements were joined
        same = (r for (gpu, m), r in seen.items() if gpu == record.gpu and (m == memory or m is None or memory is None))
        if other := next(same, None):
            which = "the same run twice" if other.id == record.id else f"{other.id} and {record.id} of {record.gpu}"
            raise UsageError(
                f"expected one run of each chip, found {which}\n"
                f"  hint: hold two runs of one chip against each other: flashcore report {record.id} --against RUN"
            )
        seen[record.gpu, memory] = record
    gpus = [gpu for gpu, _ in seen]
    return [f"{gpu}, {(memory or 0) / 2**20:,.0f} MiB" if gpus.count(gpu) > 1 else gpu for gpu, memory in seen]


def _kind(record: Record) -> str:
    return "import" if any(v.imported for v in record.suite.variants.values()) else "run"


def why_not(record: Record) -> Callable[[Variant, Shape], str]:
    """A function that says why the run's chip does not run a case at all; empty if it does, with any outcome."""
    ran = {o.case for o in record.outcomes if o.status == "ok"}
    refused = {o.case: o.reason for o in record.outcomes if o.status == "unsupported" and o.case not in ran}
    arch = record.gpu_arch

    def why(variant: Variant, shape: Shape) -> str:
        declared, at = record.suite.variants.get(variant.name), record.suite.shapes.get(shape.name)
        if declared is None or at is None or not declared.runs_on(at):
            return "not in this run's suite"
        where = declared.where
        if arch and not declared.is_reference and not any(same_hardware(arch, a) for a in where.archs):
            return where.unsupported.get(arch) or f"for {', '.join(where.archs)}, not {arch}"
        return refused.get(f"{variant.name}/{shape.name}", "")

    return why


def notes(records: Sequence[Record]) -> list[str]:
    """The differences that make the chips hard to compare, and the cases that none of them runs with each reason."""
    chips = names(records)
    machines = [r.environment for r in records]
    sources = [f"{(e.git_commit or 'unknown')[:12]}{' and changes' * bool(e.git_dirty)}" for e in machines]
    lines = [
        f"{tool} differs: " + _each(chips, values)
        for tool, values in (("source", sources), ("nvcc", [e.nvcc or "absent" for e in machines]))
        if len(set(values)) > 1
    ]
    if any((r.suite.budgets, r.suite.waivers) != (records[0].suite.budgets, records[0].suite.waivers) for r in records):
        lines.append("budgets differ: each run is judged by those that it was recorded with")
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
