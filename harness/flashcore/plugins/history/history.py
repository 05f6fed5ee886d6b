"""The times of published runs, case by case, in a committed table, and what changed between runs.

Times of different runs are shown with the changes of their machines and never judged.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from flashcore.errors import RecordError
from flashcore.model.record import Record, Subject
from flashcore.model.suite import REGIMES

#: A time above this many times the previous one is reported.
SLOWER = 1.05


@dataclass(frozen=True, slots=True)
class Line:
    """One case of one run. Times are medians in us; the clock is the median by NVML while it was timed, in MHz.
    ``None`` is unmeasured. ``code`` names the machine code; it is empty for a reference."""

    run: str
    suite: str
    variant: str
    shape: str
    params: str
    ranked_by: str
    isolated_us: float | None
    back_to_back_us: float | None
    cold_us: float | None
    clock_mhz: float | None
    gpu: str
    driver: str
    nvcc: str
    code: str
    commit: str


def lines(record: Record) -> list[Line]:
    """A line for each case that this run itself timed; joined times are in the history of their own run."""
    machine = record.environment
    commit = (machine.git_commit or "")[:12] + ("+" if machine.git_dirty else "")
    rows = []
    for o in record.outcomes:
        if o.stage != "bench" or o.status != "ok" or o.origin:
            continue
        subject = Subject(o.variant, shape=o.shape)
        shape = record.suite.shapes[o.shape]
        times = {f"{r}_us": _rounded(record.facts.number(f"{r}_p50", subject)) for r in REGIMES}
        if all(t is None for t in times.values()):
            continue
        key = record.keys.get(o.case)
        rows.append(
            Line(
                record.id,
                record.suite.name,
                o.variant,
                o.shape,
                shape.params_text,
                shape.rank_by,
                **times,
                clock_mhz=record.facts.number("bench_sm_clock", subject),
                gpu=machine.gpu or "",
                driver=machine.driver or "",
                nvcc=machine.nvcc or "",
                code=key.code[:12] if key is not None and not key.peer else "",
                commit=commit,
            )
        )
    return rows


def _rounded(value: float | None) -> float | None:
    """To six digits: events tick in 1/32 us, smaller digits are noise of the conversion."""
    return None if value is None else float(f"{value:.6g}")


def written(rows: Iterable[Line]) -> str:
    """The lines as CSV, by run, in each run's order."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(f.name for f in fields(Line))
    for row in sorted(rows, key=lambda r: r.run):
        writer.writerow("" if v is None else v for v in asdict(row).values())
    return stream.getvalue()


def read(text: str, name: str = "history.csv") -> list[Line]:
    """The lines that :func:`written` wrote.

    Raises:
        RecordError: the text is something else.
    """
    names = [f.name for f in fields(Line)]
    head, *rows = list(csv.reader(io.StringIO(text))) or [[]]
    if head != names:
        raise RecordError(f"{name}: expected the columns {','.join(names)}, found {','.join(head)}")
    lines = []
    for number, row in enumerate(rows, 2):
        try:
            values: dict[str, Any] = dict(zip(names, row, strict=True))
            for key in names:
                if key.endswith(("_us", "_mhz")):
                    values[key] = float(values[key]) if values[key] else None
            if values["ranked_by"] not in REGIMES:
                raise ValueError(f"no regime {values['ranked_by']!r}")
        except ValueError as error:
            raise RecordError(f"{name}, line {number}: expected a case's times, found: {error}") from None
        lines.append(Line(**values))
    return lines


def series(rows: Iterable[Line]) -> dict[tuple[str, ...], list[Line]]:
    """The lines of each (suite, GPU, variant, shape, its parameters), oldest first."""
    cases: dict[tuple[str, ...], list[Line]] = {}
    for row in sorted(rows, key=lambda r: r.run):
        cases.setdefault((row.suite, row.gpu, row.variant, row.shape, row.params), []).append(row)
    return cases


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between two runs of a case. ``about`` is ``driver``, ``nvcc``, ``clock`` or ``code``."""

    about: str
    text: str


def changes(before: Line, after: Line) -> list[Change]:
    """The other differences between two times of a case: any of them may have changed the time."""
    versions = (("driver", before.driver, after.driver), ("nvcc", before.nvcc, after.nvcc))
    differences = [
        Change(name, f"{name} {was or 'unknown'} → {now or 'unknown'}") for name, was, now in versions if was != now
    ]
    was_mhz, now_mhz = before.clock_mhz, after.clock_mhz
    if was_mhz and now_mhz and abs(now_mhz / was_mhz - 1) > 0.02:
        differences.append(Change("clock", f"clock {was_mhz:,.0f} → {now_mhz:,.0f} MHz"))
    if before.code and after.code:
        differences.append(Change("code", "same machine code" if before.code == after.code else "other machine code"))
    return differences


def regime(rows: Sequence[Line]) -> str:
    """The regime of a case's history: the one with the most times; of several, the one that the newest run ranks by."""
    ranked_by = rows[-1].ranked_by
    return max(REGIMES, key=lambda r: (sum(getattr(x, f"{r}_us") is not None for x in rows), r == ranked_by))


def slower(rows: Sequence[Line]) -> list[tuple[Line, Line, float]]:
    """The steps at which a case got slower by more than :data:`SLOWER`, in the :func:`regime` of its history."""
    name = f"{regime(rows)}_us"
    timed = [(r, time) for r in rows if (time := getattr(r, name))]
    steps = ((before, after, now / was) for (before, was), (after, now) in itertools.pairwise(timed))
    return [step for step in steps if step[2] > SLOWER]
