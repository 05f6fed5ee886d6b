"""The history of published runs: the times of each case in a committed CSV file, and the changes between runs.

Times of different runs are shown with the changes of their machines; ``flashcore trends`` judges recorded runs.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from flashcore.errors import RecordError
from flashcore.model.groups import grouped
from flashcore.model.record import Record, Subject
from flashcore.model.suite import REGIMES, Regime

#: A cell of the file; an empty one is unmeasured.
Figure = Annotated[float | None, BeforeValidator(lambda cell: cell or None)]


@dataclass(frozen=True, slots=True)
class Line:
    """One case of one run. Times are medians in us; the clock is NVML's median during the timing, in MHz. ``code`` is
    the machine code's hash; empty for a reference."""

    run: str
    suite: str
    variant: str
    shape: str
    params: str
    ranked_by: Regime
    isolated_us: Figure = None
    back_to_back_us: Figure = None
    cold_us: Figure = None
    clock_mhz: Figure = None
    gpu: str = ""
    driver: str = ""
    nvcc: str = ""
    code: str = ""
    commit: str = ""

    def us(self, regime: str) -> float | None:
        """The time in a regime."""
        time: float | None = getattr(self, f"{regime}_us")
        return time


_NAMES = [f.name for f in fields(Line)]


def lines(record: Record) -> list[Line]:
    """Returns a line per case that this run itself timed; joined times are in the history of their own run."""
    machine = record.environment
    commit = (machine.git_commit or "")[:12] + ("+" if machine.git_dirty else "")
    rows = []
    for o in record.outcomes:
        if o.stage != "bench" or o.status != "ok" or o.origin:
            continue
        subject = Subject(o.variant, shape=o.shape)
        # Events tick in 1/32 us: digits after the sixth are noise of the conversion.
        medians = {r: record.facts.number(f"{r}_p50", subject) for r in REGIMES}
        times: dict[str, Any] = {f"{r}_us": float(f"{us:.6g}") for r, us in medians.items() if us is not None}
        if not times:
            continue
        key, shape = record.keys.get(o.case), record.suite.shapes[o.shape]
        rows.append(
            Line(
                *(record.id, record.suite.name, o.variant, o.shape, shape.params_text, shape.rank_by),
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


def written(rows: Iterable[Line]) -> str:
    """Returns the lines as CSV, by run, in each run's order."""
    stream = io.StringIO()
    ordered = sorted(rows, key=lambda r: r.run)
    csv.writer(stream, lineterminator="\n").writerows([_NAMES, *(asdict(row).values() for row in ordered)])
    return stream.getvalue()


def read(text: str, name: str = "history.csv") -> list[Line]:
    """Returns the lines that :func:`written` wrote.

    Raises:
        RecordError: the text is something else.
    """
    table = csv.DictReader(io.StringIO(text))
    if table.fieldnames != _NAMES:
        raise RecordError(f"{name}: expected the columns {','.join(_NAMES)}, found {','.join(table.fieldnames or ())}")
    try:
        return TypeAdapter(list[Line]).validate_python([*table])
    except ValidationError as error:
        place, why = error.errors()[0]["loc"], error.errors()[0]["msg"]
        raise RecordError(
            f"{name}, line {int(place[0]) + 2}: expected a case's times, found: {place[-1]}: {why}"
        ) from None


def series(rows: Iterable[Line]) -> dict[tuple[str, ...], list[Line]]:
    """Returns the lines of each (suite, GPU, variant, shape, its parameters), oldest first."""
    ordered = sorted(rows, key=lambda r: r.run)
    return grouped(((r.suite, r.gpu, r.variant, r.shape, r.params), r) for r in ordered)


def changes(before: Line, after: Line) -> dict[str, str]:
    """Returns the other differences between two times of a case, any of which may have changed the time: ``driver``,
    ``nvcc``, ``clock`` or ``code`` → in words."""
    tools = {name: (getattr(before, name), getattr(after, name)) for name in ("driver", "nvcc")}
    differences = {n: f"{n} {was or 'unknown'} → {now or 'unknown'}" for n, (was, now) in tools.items() if was != now}
    was_mhz, now_mhz = before.clock_mhz, after.clock_mhz
    if was_mhz and now_mhz and abs(now_mhz / was_mhz - 1) > 0.02:
        differences["clock"] = f"clock {was_mhz:,.0f} → {now_mhz:,.0f} MHz"
    if before.code and after.code:
        differences["code"] = "same machine code" if before.code == after.code else "other machine code"
    return differences


def regime(rows: Sequence[Line]) -> Regime:
    """Returns the timing mode of a case's history: the one with the most times; of several, the one by which the newest
    run ranks."""
    ranked_by = rows[-1].ranked_by
    return max(REGIMES, key=lambda r: (sum(x.us(r) is not None for x in rows), r == ranked_by))
