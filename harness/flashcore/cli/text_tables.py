"""Tables of recorded results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flashcore.cli.grid import cell, grid
from flashcore.model.record import CaseOutcome, Record, Subject
from flashcore.model.suite import Stage

_TIMES = {
    "isolated_p50": "isolated p50 µs",
    "isolated_p90": "p90",
    "back_to_back_p50": "back to back p50",
    "cold_p50": "cold p50",
    "eager_p50": "eager p50",
    "speedup_vs_baseline": "x baseline",
    "speedup_vs_peer": "x peer",
}


def ladder(record: Record) -> str:
    """Times of each shape, fastest first, against the baseline and the fastest peer."""
    parts: list[str] = []
    facts = record.facts
    for shape in record.suite.shapes.values():
        rows: list[tuple[float, list[str]]] = []
        for variant in record.suite.variants.values() if "bench" in shape.stages else ():
            subject = Subject(variant.name, shape=shape.name)
            time = facts.get(shape.time, subject)
            if time is not None:
                name = variant.name + (" (peer)" if variant.is_reference else "")
                cells = [name, *(cell(facts.get(n, subject), 2) for n in _TIMES), cell(facts.get("tflops", subject))]
                rows.append((float("inf") if time.number is None else time.number, cells))
        if rows:
            table = grid(("variant", *_TIMES.values(), "TFLOP/s"), [cells for _, cells in sorted(rows)])
            parts.append(f"{shape.name} ({shape.params_text}), ranked by {shape.rank_by}\n{table}")
    return "\n\n".join(parts) or "no times were recorded"


def checked(record: Record) -> str:
    """The outcome of each case in check, failures first."""

    def cells(subject: Subject) -> list[str]:
        error = record.facts.number("max_error", subject)
        over = record.facts.get("frobenius_over_class", subject)
        return ["-" if error is None else f"{error:.2e}", cell(over, 2)]

    return grid(
        ("case", "status", "max error", "x class", "reason"),
        [[o.case, o.status, *cells(Subject(o.variant, shape=o.shape)), o.reason] for o in outcomes(record, "check")],
    )


def outcomes(record: Record, stage: Stage) -> list[CaseOutcome]:
    """The outcomes of a stage, failures first."""
    return sorted((o for o in record.outcomes if o.stage == stage), key=lambda o: o.status == "ok")


def show(table: Callable[[Record], str], records: Sequence[Record]) -> None:
    """Prints a table of each run, with a heading if there are several."""
    for record in records:
        text = table(record)
        print(f"{record.gpu}, run {record.id}:\n{text}\n" if len(records) > 1 else text)
