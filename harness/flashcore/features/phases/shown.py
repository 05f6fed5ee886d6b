"""What is shown of a recording: a table, notes, a self-contained HTML page, and a Chrome trace."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from flashcore.features.phases.record import Recording
from flashcore.features.phases.timeline import UNMARKED
from flashcore.model.intervals import ratio
from flashcore.model.text import bracketed, percentage, significant
from flashcore.report import write_standalone
from flashcore.report.cells import Cell
from flashcore.report.view import CHARTS

HEADINGS = ("role", "phase", "warps", "entered per warp", "ns per warp", "share of its block's time", "largest overlap")


def write(recording: Recording, file: Path) -> None:
    """Writes the page.

    Raises:
        WriteError: it cannot be written.
    """
    write_standalone(
        Path(__file__).with_name("phases.html.j2"),
        file,
        *CHARTS,
        recording=recording,
        notes=notes(recording),
        figure=figure(recording.line.spans),
        headings=HEADINGS,
        rows=[[*map(Cell, row)] for row in table(recording.line.spans)],
    )


def figure(spans: Any) -> dict[str, Any]:
    """A plotly figure: a lane for each warp, by block and role, and a color for each phase; time is in ns."""
    marked = spans[spans.phase != UNMARKED].round(1)
    lanes = [f"block {s.block}, SM {s.sm}: {s.role}, warp {s.warp:2}" for s in marked.itertuples()]
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": phase,
            "x": [x for s in of.itertuples() for x in (s.start, s.end, None)],
            "y": [lane for lane in of.lane for _ in range(3)],
            "line": {"width": 9},
        }
        for phase, of in marked.assign(lane=lanes).groupby("phase", sort=False)
    ]
    layout = {
        "xaxis": {"title": {"text": "ns"}, "exponentformat": "none"},
        "yaxis": {"categoryorder": "category descending", "dtick": 1, "automargin": True, "showgrid": False},
        "legend": {"orientation": "h", "y": 1, "yanchor": "bottom"},
        "height": 140 + 15 * len({*lanes}),
        "margin": {"t": 40, "b": 50},
    }
    return {"data": data, "layout": layout}


def notes(recording: Recording) -> list[str]:
    """How it was recorded, and what that changes."""
    line, slower = recording.line, ratio(*recording.times)
    marked, plain = (significant(statistics.median(times)) for times in recording.times)
    dropped = f"{line.dropped:,} later phases had no place and are missing (raise --events)"
    return [
        f"overhead: {marked} µs with markers, {plain} µs without ({recording.mode.replace('_', ' ')}): "
        f"{slower.value:.3f} times as long {bracketed(slower.low, slower.high)}. These times are no results",
        f"clock: clock64 of each SM, {line.ghz:.3f} cycles per ns by globaltimer, which places SMs against each other "
        "to within one of its steps; the compiler may move arithmetic over a marker",
        f"recorded: {(line.spans.phase == UNMARKED).sum()} warps of {line.spans.block.nunique()} blocks "
        f"in {line.spans.end.max():,.0f} ns, of a call of {recording.call_us:.3f} µs with its launch, "
        f"the median of several; {dropped if line.dropped else 'no phase was dropped'}",
    ]


def table(spans: Any) -> list[list[str]]:
    """The time of every phase of every role, in the order of their first start, as in :data:`HEADINGS`.

    The largest overlap is with the phase of the block's other warps that goes on most of this one's time: its role and
    name, and the share of this one's time.
    """
    import numpy as np

    phases = spans.groupby(["role", "phase"], sort=False)
    keys = list(phases.groups)
    marked = spans.assign(key=phases.ngroup())[spans.phase != UNMARKED]
    times = marked[["start", "end"]].add(2 * spans.end.max() * marked.block, axis=0)  # no block overlaps another
    edges = np.unique(times)
    active = np.zeros((len(keys), len(edges)))
    for key, (first, last) in zip(marked.key, np.searchsorted(edges, times), strict=True):
        active[key, first:last] = 1
    both = active * np.diff(edges, append=0) @ active.T  # ns in which two phases go on at once
    others = both - np.diag(both.diagonal())
    warps = spans[spans.phase == UNMARKED].role.value_counts()  # each is that once
    blocks = spans.groupby("block")
    whole = blocks.end.max() - blocks.start.min()
    rows = []
    for i, ((role, phase), of) in enumerate(phases):
        ns, count, other = of.end - of.start, warps[role], others[i].argmax()
        overlap = (
            f"{' '.join(keys[other])}, {percentage(100 * others[i, other] / both[i, i])}" if others[i, other] else "-"
        )
        times = f"{ns.sum() / count:,.0f}", percentage(100 * (ns / of.block.map(whole)).sum() / count, 1)
        rows.append([role, phase, f"{count}", f"{len(of) / count:.4g}", *times, overlap])
    return rows


def trace(recording: Recording) -> dict[str, Any]:
    """The phases in the Trace Event Format: a process is a block, a thread is a warp, times are in µs."""
    events = []
    for s in recording.line.spans.itertuples():
        place = {"pid": s.block, "tid": s.warp}
        if s.phase == UNMARKED:  # once of each warp
            name = f"{s.role}, warp {s.warp}, block {s.block}, SM {s.sm}"
            events.append({"ph": "M", "name": "thread_name", **place, "args": {"name": name}})
        events.append(
            {
                "ph": "X",
                "name": s.phase,
                "cat": s.role,
                **place,
                "ts": s.start / 1e3,
                "dur": (s.end - s.start) / 1e3,
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"notes": notes(recording)}}
