"""Text tables of recorded results."""

from __future__ import annotations

from flashcore.cli.grid import cell, grid
from flashcore.explain.answer import duration
from flashcore.explain.readings import Readings
from flashcore.explain.rows import Row
from flashcore.model.record import CaseOutcome, CaseSubject, Record, Subject
from flashcore.model.suite import Stage
from flashcore.model.text import fixed

_TIMES = {
    "isolated_p50": "isolated p50 µs",
    "isolated_p90": "p90",
    "back_to_back_p50": "back to back p50",
    "cold_p50": "cold p50",
    "eager_p50": "eager p50",
}
_ENERGY = {"energy": "mJ", "flop_per_joule": "GFLOP/J"}


def ladder(record: Record) -> str:
    """Times on each row of shapes, fastest first, with speedups over the baseline and the fastest library."""
    parts: list[str] = []
    facts, suite, readings = record.facts, record.suite, Readings(record)
    energy = {name: unit for name, unit in _ENERGY.items() if any(facts.named(name))}
    for row in (Row(readings, s) for s in suite.rows(s for s in suite.shapes.values() if "bench" in s.stages)):
        lines: list[list[str]] = []
        for name in dict.fromkeys((*row.times, *sorted(row.cases))):
            subject = CaseSubject(row.cases[name])
            if facts.get(row.shape.time, subject) is not None:
                label = f"{subject.case if row.shapes[1:] else name}" + " (library)" * suite.variants[name].is_reference
                time = duration(row, subject.case)
                label += f" ({time.first_round})" if time.first_round else ""
                over = [x and x.value for x in (time.over.get("baseline"), time.over.get("reference"))]
                tflops = cell(facts.get("tflops", subject))
                lines.append(
                    [label, *(cell(facts.get(n, subject), 2) for n in _TIMES), *(fixed(x, 2) for x in over), tflops]
                    + [cell(facts.get(n, subject), 3) for n in energy]
                )
        if lines:
            table = grid(("variant", *_TIMES.values(), "x baseline", "x library", "TFLOP/s", *energy.values()), lines)
            parts.append(f"{row.name} ({row.shape.params_text}), ranked by {row.shape.rank_by}\n{table}")
    return "\n\n".join(parts) or "no times were recorded"


def checked(record: Record) -> str:
    """Each case's check outcome, failures first."""

    def cells(subject: Subject) -> list[str]:
        error = record.facts.number("max_error", subject)
        over = record.facts.get("frobenius_over_class", subject)
        return ["-" if error is None else f"{error:.2e}", cell(over, 2)]

    return grid(
        ("case", "status", "max error", "x class", "reason"),
        [[str(o.case), o.status, *cells(CaseSubject(o.case)), o.reason] for o in outcomes(record, "check")],
    )


def outcomes(record: Record, stage: Stage) -> list[CaseOutcome]:
    """A stage's outcomes, failures first."""
    return sorted((o for o in record.outcomes if o.stage == stage), key=lambda o: o.status == "ok")
