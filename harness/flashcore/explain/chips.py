"""Runs of one suite on several chips, side by side: what each chip is called, and what no chip of them runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flashcore.errors import UsageError
from flashcore.model.record import Record
from flashcore.model.suite import Shape, Variant
from flashcore.model.text import same_hardware


def names(records: Sequence[Record]) -> list[str]:
    """What the chip of each run is called; two of one name are told apart by their memory.

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
        own = record.environment.gpu_memory_bytes  # None where what was measured was joined
        same = (r for (gpu, b), r in seen.items() if gpu == record.gpu and (b == own or b is None or own is None))
        if other := next(same, None):
            which = "the same run twice" if other.id == record.id else f"{other.id} and {record.id} of {record.gpu}"
            raise UsageError(
                f"expected one run of each chip, found {which}\n"
                f"  hint: hold two runs of one chip against each other: flashcore report {record.id} --against RUN"
            )
        seen[record.gpu, own] = record
    twice = [gpu for gpu, _ in seen]
    return [f"{gpu}, {(memory or 0) / 2**20:,.0f} MiB" if twice.count(gpu) > 1 else gpu for gpu, memory in seen]


def _kind(record: Record) -> str:
    return "import" if any(v.imported for v in record.suite.variants.values()) else "run"


def why_not(record: Record) -> Callable[[Variant, Shape], str]:
    """Tells why the run's chip does not run a case at all; empty if it does, with any outcome."""
    ran = {o.case for o in record.outcomes if o.status == "ok"}
    refused = {o.case: o.reason for o in record.outcomes if o.status == "unsupported" and o.case not in ran}
    arch = record.gpu_arch

    def why(variant: Variant, shape: Shape) -> str:
        own, at = record.suite.variants.get(variant.name), record.suite.shapes.get(shape.name)
        if own is None or at is None or not own.runs_on(at):
            return "not in this run's suite"
        if arch and not own.is_reference and not any(same_hardware(arch, a) for a in own.where.archs):
            return own.where.unsupported.get(arch) or f"for {', '.join(own.where.archs)}, not {arch}"
        return refused.get(f"{variant.name}/{shape.name}", "")

    return why


def notes(records: Sequence[Record]) -> list[str]:
    """What keeps chips from being compared like for like, and the cases that none of them runs, each said."""
    called = names(records)
    found = []
    machines = [r.environment for r in records]
    sources = [f"{(e.git_commit or 'unknown')[:12]}{' and changes' * bool(e.git_dirty)}" for e in machines]
    for what, values in (("source", sources), ("nvcc", [e.nvcc or "absent" for e in machines])):
        if len(set(values)) > 1:
            found.append(f"{what} differs: " + "; ".join(f"{c}: {v}" for c, v in zip(called, values, strict=True)))
    if any((r.suite.budgets, r.suite.waivers) != (records[0].suite.budgets, records[0].suite.waivers) for r in records):
        found.append("budgets differ: each run is judged by those that it was recorded with")
    each = [why_not(r) for r in records]
    nowhere: dict[tuple[str, str], list[str]] = {}
    for variant, shape in {(v.name, s.name): (v, s) for r in records for s in r.suite.shapes.values()
                           for v in r.suite.variants.values() if v.runs_on(s)}.values():  # fmt: skip
        reasons = [why(variant, shape) for why in each]
        if all(reasons):
            said = "; ".join(f"{c}: {why}" for c, why in zip(called, reasons, strict=True))
            nowhere.setdefault((variant.name, said), []).append(shape.name)
    return [*found, *(f"no chip here runs {v} on {', '.join(on)} ({said})" for (v, said), on in nowhere.items())]
