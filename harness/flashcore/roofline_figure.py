"""The roofline as a plotly figure: plain data, which the pages embed and :meth:`flashcore.api.Run.roofline` returns.

A mark stands at its facts: the FLOP per byte of a memory level, and the FLOP rate. A view shows one way to count FLOPs,
and one level or all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from math import inf, log10
from typing import Any

from flashcore.chips import devices
from flashcore.explain import compare_records, roofline
from flashcore.explain.readings import Readings
from flashcore.explain.roofline import LEVELS, MEASURED, THEORY, Counted, Point
from flashcore.explain.rows import Row
from flashcore.model.groups import grouped
from flashcore.model.record import CaseSubject, Record, Roof
from flashcore.model.text import as_words, percentage, significant, whole

LEVEL_NAMES = {"dram": "DRAM", "l2": "L2", "l1": "L1"}
#: Readable on white and on black.
COLORS = {"dram": "#c4622d", "l2": "#8a6bbf", "l1": "#2f9563"}
COMPUTE, FAULT = "#77818c", "#d0402b"
#: A role → the symbol of its marks, and its name in the legend.
ROLES = {
    "variant": ("circle", "variants"),
    "baseline": ("square", "baseline"),
    "reference": ("diamond", "references"),
    "part": ("circle", "kernels of a case"),
}
USEFUL: Counted = "formula"
COUNTED = {USEFUL: "useful FLOPs", "hardware": "FLOPs by counters"}
#: The columns of a mark's data, and of the CSV.
COLUMNS = (
    *("variant", "kernel", "shape", "level", "FLOPs by", "FLOP", "bytes", "time µs", "timing", "SM clock MHz"),
    *("FLOP per byte", "TFLOP/s", "GB/s", "percent of the roof", "roof", "percent of the measured roof"),
    *("counted over useful FLOPs", "mJ per call", "GFLOP/J", "fault"),
)
HEIGHT, TOP, BOTTOM = 620, 56, 52  # pixels
_TALL = HEIGHT - TOP - BOTTOM  # of the axes
_WIDTH = 700  # pixels between the axes, for which labels are placed
_LINE, _LETTER, _ARROW = 15, 6, 26  # pixels: a label's line and letter, and from its mark to it


@dataclass(frozen=True)
class Marks:
    """A record's points by case; its kernels' points only if a case has several."""

    record: Record

    @cached_property
    def by_case(self) -> dict[CaseSubject, list[Point]]:
        every = grouped((_case(p.subject), p) for p in roofline.points(self.record))
        several = {case for case, points in every.items() if len({p.subject.kernel for p in points} - {None}) > 1}
        return {case: [p for p in points if case in several or not p.subject.kernel] for case, points in every.items()}

    def of(self, cases: Iterable[CaseSubject]) -> list[Point]:
        return [p for case in cases for p in self.by_case.get(case, ())]


@dataclass(frozen=True)
class Chart:
    """The marks of some cases under their roofs.

    Args:
        cases: the cases with a mark, the most important first.
        labels: the cases with a label, and what they are: ``winner``.
        before: another run, from whose marks arrows come.
        weights: the share of the time by which a case's mark is sized.
    """

    marks: Marks
    cases: Sequence[CaseSubject]
    labels: Mapping[CaseSubject, str]
    before: Marks | None = None
    weights: Mapping[CaseSubject, float] | None = None

    @cached_property
    def points(self) -> list[Point]:
        return self.marks.of(self.cases)

    @cached_property
    def counts(self) -> list[Counted]:
        """The ways in which FLOPs are counted, the default first."""
        return [c for c in COUNTED if any(p.counted == c for p in self.points)]

    @cached_property
    def first(self) -> Point | None:
        """The mark that the chart opens with: the most important case's that is nearest its roof."""
        for case in (*self.labels, *self.cases):
            ours = [p for p in self.points if p.subject == case and p.counted == self.counts[0]]
            if ours:
                return max(ours, key=lambda p: (p.share or 0) * (p.ceiling.bandwidth is not None))
        return None

    def clock(self, counted: Counted) -> float | None:
        """The highest clock of the marks: no mark stands above the roofs at it only because of its clock."""
        return max((p.clock_mhz for p in self.points if p.counted == counted and p.clock_mhz), default=None)

    def padding(self, case: CaseSubject) -> float | None:
        """The FLOPs that the hardware counted over the problem's."""
        flop = {p.counted: p.flop for p in self.marks.by_case.get(case, ()) if p.subject == case}
        return flop["hardware"] / flop[USEFUL] if len(flop) == len(COUNTED) else None

    # --- roofs --------------------------------------------------------------------------------------

    def _roofs(self, counted: Counted) -> list[Roof]:
        """The datasheet's and the measured roof of each level and type, at the marks' highest clock."""
        record, clock = self.marks.record, self.clock(counted)
        by_gpu = {r for gpu in record.gpus for r in gpu.roofs} or record.roofs
        best = sorted((roofline.at_clock(r, clock) for r in by_gpu), key=lambda r: -r.value)
        every = roofline.roofs(devices.find(record.gpu), clock, best)
        resources = dict.fromkeys((*LEVELS, *(p.roof for p in self.points if p.counted == counted)))
        picked = (roofline.pick(every, r, order) for r in resources for order in (THEORY, MEASURED))
        return [r for r in picked if r and r.unit in ("TFLOP/s", "GB/s")]

    def _roof_traces(self, counted: Counted) -> Iterator[dict[str, Any]]:
        roofs = self._roofs(counted)
        flats = [r.value for r in roofs if r.unit == "TFLOP/s"]
        slopes = [r.value for r in roofs if r.unit != "TFLOP/s"]
        for roof in roofs:
            ends = (1e3 * roof.value / max(slopes, default=1e9), 1e9)
            if roof.unit != "TFLOP/s":
                ends = (1e-6, 1e3 * max(flats, default=1e9) / roof.value)
            sheet = next((r.value for r in roofs if r.resource == roof.resource and r.origin != "measured"), None)
            share = f", {percentage(100 * roof.value / sheet)} of it" if sheet and roof.origin == "measured" else ""
            yield {
                "name": f"{name(roof.resource)} {significant(roof.value)} {roof.unit} ({_origin(roof)}{share})",
                "x": ends,
                "y": [height(roof, x) for x in ends],
                **_line(COLORS.get(roof.resource, COMPUTE), "dot" if roof.origin == "measured" else "solid"),
                "legendrank": 2000,
                "meta": [counted, "" if roof.unit == "TFLOP/s" else roof.resource],
            }
        for level in LEVELS:
            if level not in [r.resource for r in roofs]:
                unknown = {"name": f"{name(level)} roof: unknown", "x": [None], "y": [None], "legendrank": 2001}
                yield {**unknown, **_line(COLORS[level]), "meta": [counted, level]}

    # --- marks --------------------------------------------------------------------------------------

    def _mark_traces(self, counted: Counted) -> Iterator[dict[str, Any]]:
        suite = self.marks.record.suite
        ours = [p for p in self.points if p.counted == counted]
        families = grouped(
            (("part" if p.subject.kernel else suite.role(suite.variants[p.subject.variant]), p.roof, p.level), p)
            for p in ours
        )
        several = len({roof for _, roof, _ in families}) > 1
        for (role, roof, level), marks in families.items():
            symbol, title = ROLES[role]
            dot = "-dot" * (several and not roof.endswith("tensor"))
            yield {
                "name": title + (f", {name(roof)}" if several else "") + f": {name(level)}",
                "mode": "markers",
                "x": [p.intensity for p in marks],
                "y": [p.tflops for p in marks],
                "marker": {
                    "symbol": ["x" if p.faults else symbol + "-open" * p.modeled + dot for p in marks],
                    "color": [FAULT if p.faults else COLORS[level] for p in marks],
                    "size": [self._size(p) for p in marks],
                    "opacity": [1 if p.subject in self.labels else 0.5 for p in marks],
                    "line": {"width": [2 if p.subject in self.labels or p.modeled else len(dot) / 4 for p in marks]},
                },
                "customdata": [self._data(p) for p in marks],
                "text": ["<br>".join(self._told(p)) for p in marks],
                "hovertemplate": "%{text}<extra></extra>",
                "meta": [counted, level, "legendonly" if role == "part" else True],
            }
        for case, title in self.labels.items():
            joined = [p for p in ours if p.subject == case]
            ends = {"x": [p.intensity for p in joined], "y": [p.tflops for p in joined]}
            yield {"name": f"{case.variant} ({title})", **ends, **_line(COMPUTE), "meta": [counted, "all"]}

    def _size(self, p: Point) -> float:
        """The diameter: of a kernel by its share of its case's time, of an imported one by its share of all."""
        share = (self.weights or {}).get(p.subject)
        if p.subject.kernel:
            whole = (q.time_us for q in self.points if q.subject == _case(p.subject) and q.counted == p.counted)
            share = p.time_us / next(whole, p.time_us)
        return 12.0 if share is None else round(6 + 22 * min(share, 1.0) ** 0.5, 1)

    def _data(self, p: Point) -> list[Any]:
        subject, number, roof = p.subject, self.marks.record.facts.number, _roof(p)
        energy = [None if subject.kernel else number(n, subject) for n in ("energy", "flop_per_joule")]
        shares = [s and 100 * s for s in (p.share, p.share_of_measured)]
        return [
            *(subject.variant, subject.kernel, subject.shape, p.level, p.counted, p.flop, p.bytes, p.time_us),
            *(p.mode, p.clock_mhz, p.intensity, p.tflops, p.gbps, shares[0], roof and roof.name, shares[1]),
            *(self.padding(subject), *energy, "; ".join(p.faults)),
        ]

    def _told(self, p: Point) -> Iterator[str]:
        """The lines of a mark's hover text: every figure with its unit."""
        *_, padding, joules, rate, _ = self._data(p)
        kernel = f" › {p.subject.kernel}" if p.subject.kernel else ""
        yield f"<b>{escape(p.subject.variant + kernel)}</b> {escape(self.labels.get(p.subject, ''))}"
        yield f"{significant(p.tflops)} TFLOP/s ({COUNTED[p.counted]}), {significant(p.time_us)} µs {p.mode}"
        formula = " of the formula" * p.modeled
        yield f"{significant(p.intensity)} FLOP/B: {whole(p.flop)} FLOP, {whole(p.bytes)} B{formula}"
        clock = f", SM at {whole(p.clock_mhz)} MHz" if p.clock_mhz else ""
        yield f"{significant(p.gbps)} GB/s of {name(p.level)}{clock}"
        yield share_text(p)
        if p.share_of_measured is not None:
            yield f"{percentage(100 * p.share_of_measured, 1)} of the measured roof"
        if padding:
            yield f"the hardware did {significant(padding, 3)} × the useful FLOPs"
        if joules and rate:
            yield f"{significant(joules)} mJ per call, {significant(rate)} GFLOP/J"
        yield from (f"impossible: {escape(fault)}" for fault in p.faults)

    def _arrows(self) -> Iterator[dict[str, Any]]:
        """From each case's mark in the other run to its mark here, unless only one's bytes were counted."""
        if self.before is None:
            return
        run, counted = self.before.record, self.counts[0]
        same = [c for c in self.cases if compare_records.same_shape(run, self.marks.record, c.shape or "")]
        old = {(p.subject, p.level, p.counted, p.modeled): p for p in self.before.of(same)}
        both = ((old.get((p.subject, p.level, p.counted, p.modeled)), p) for p in self.points if p.counted == counted)
        for level, pairs in grouped((p.level, (q, p)) for q, p in both if q).items():
            told = (
                f"<b>{escape(p.subject.variant)}</b>: {significant(q.time_us)} µs in run {run.id}, "
                f"{significant(p.time_us)} µs here: {significant(q.time_us / p.time_us, 3)} × faster"
                for q, p in pairs
            )
            yield {
                "name": f"from run {run.id.rpartition('-')[2]}: {name(level)}",
                "x": [v for q, p in pairs for v in (q.intensity, p.intensity, None)],
                "y": [v for q, p in pairs for v in (q.tflops, p.tflops, None)],
                "mode": "lines+markers",
                "line": {"color": COMPUTE, "width": 1},
                "marker": {
                    "symbol": ["circle-open", "arrow", "circle"] * len(pairs),
                    "angleref": "previous",
                    "size": 9,
                    "color": COMPUTE,
                },
                "text": [text for each in told for text in (each, each, "")],
                "hovertemplate": "%{text}<extra></extra>",
                "meta": [counted, level],
            }

    # --- the figure ---------------------------------------------------------------------------------

    def figure(self) -> dict[str, Any]:
        """Data and layout of a chart with points. The menu's buttons are the views."""
        places = {(p.counted, level) for p in self.points for level in (p.level, "all")}
        views = [(c, level) for c in self.counts for level in (*LEVELS, "all") if (c, level) in places]
        traces = [t for c in self.counts for t in (*self._roof_traces(c), *self._mark_traces(c))]
        traces += self._arrows()
        # The axis of the time shows only if a trace uses it.
        traces.append({"x": [None], "y": [None], "yaxis": "y2", "showlegend": False, "meta": ["", ""]})
        buttons: list[dict[str, Any]] = [
            {
                "label": f"{COUNTED[c]}, bytes of {name(level) if level != 'all' else 'all levels'}",
                "method": "update",
                "args": [{"visible": [_visible(t["meta"], c, level) for t in traces]}, self._view(c, level)],
            }
            for c, level in views
        ]
        active = views.index((self.first.counted, self.first.level)) if self.first else 0
        shown, layout = buttons[active]["args"]
        menu = {"buttons": buttons, "active": active, "x": 0, "xanchor": "left", "y": 1.01, "yanchor": "bottom"}
        return {
            "data": [{"type": "scatter", **t, "visible": v} for t, v in zip(traces, shown["visible"], strict=True)],
            "layout": {
                **layout,
                "updatemenus": [menu],
                "height": HEIGHT,
                "margin": {"l": 64, "r": 64, "t": TOP, "b": BOTTOM},
                "hovermode": "closest",
                "hoverlabel": {"align": "left"},
                "legend": {"x": 1.09, "y": 1, "font": {"size": 11}, "tracegroupgap": 0},
                "meta": {"columns": COLUMNS},
            },
        }

    def _view(self, counted: Counted, level: str) -> dict[str, Any]:
        """The axes and labels of a view; the axes fit its marks and their roofs."""
        marks = [p for p in self.points if p.counted == counted and level in (p.level, "all") and not p.subject.kernel]
        across = _fitted([p.intensity for p in marks])
        up = _fitted([*(p.tflops for p in marks), *(p.ceiling.tflops for p in marks if p.ceiling.tflops)])
        flop = {p.flop for p in marks}  # of several problems, a height is no time
        steps = (1, 2, 5) if up[1] - up[0] > 1.5 else (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8)
        times = [s * 10.0**d for d in range(-3, 8) for s in steps if len(flop) == 1]
        word = "Useful" if counted == USEFUL else "Counted"
        axis = {"type": "log", "exponentformat": "none", "minor": {"ticks": "outside"}}
        per = f"{word} FLOP per byte" + (f" of {name(level)}" if level != "all" else "")
        return {
            "xaxis": {**axis, "range": across, "title": {"text": per, "standoff": 8}},
            "yaxis": {**axis, "range": up, "title": {"text": f"{word} TFLOP/s", "standoff": 6}},
            "yaxis2": {
                "type": "log",
                "overlaying": "y",
                "matches": "y",
                "side": "right",
                "visible": bool(times),
                "title": {"text": f"time, µs ({marks[0].mode})", "standoff": 6},
                "tickvals": [min(flop) / us / 1e6 for us in times],
                "ticktext": [f"{us:,g}" for us in times],
                "griddash": "dot",
            },
            "annotations": [*self._labels(marks, self._roofs(counted), level, across, up)],
        }

    def _labels(
        self, marks: Sequence[Point], roofs: Sequence[Roof], level: str, across: Sequence[float], up: Sequence[float]
    ) -> Iterator[dict[str, Any]]:
        """Labels of roofs and of named marks. No two are at the same height, so that none covers another at any
        width."""
        bands = _Bands()
        yield from _roof_labels(roofs, level, across, up, bands)
        yield from self._mark_labels(marks, across, up, bands)

    def _mark_labels(
        self, marks: Sequence[Point], across: Sequence[float], up: Sequence[float], bands: _Bands
    ) -> Iterator[dict[str, Any]]:
        """Labels of the named marks, in the order of the marks' heights."""
        wide, scale = across[1] - across[0], _TALL / (up[1] - up[0])
        spots = [((log10(p.intensity) - across[0]) * _WIDTH / wide, (up[1] - log10(p.tflops)) * scale) for p in marks]
        nearest = {p.subject: p for p in sorted(marks, key=lambda p: p.share or 0) if p.subject in self.labels}
        at = 0.0
        for p in sorted(nearest.values(), key=lambda p: -p.tflops):
            x, y, lower = log10(p.intensity), (up[1] - log10(p.tflops)) * scale, _roof(p)
            share = f", {percentage(100 * (p.share or 0))} of {name(lower.resource)}" if lower else ""
            if p.counted != USEFUL and (padding := self.padding(p.subject)):
                share += f", {significant(padding, 2)} × useful FLOPs"
            title = f"<b>{escape(p.subject.variant)}</b> {escape(self.labels[p.subject])}"
            time = f"{significant(p.time_us, 3)} µs{share}"
            long = _LETTER * max(len(title) - len("<b></b>"), len(time))
            center, places = (x - across[0]) * _WIDTH / wide, []
            for side, near in (("left", center + _ARROW), ("right", center - _ARROW - long)):  # of the label
                covered = [b for a, b in spots if near < a < near + long]
                over = max(0.0, -near, near + long - _WIDTH) * _TALL
                cost, middle = bands.place(y, 2 * _LINE + 4, at, covered)
                places.append((over + cost, middle, side))
            _, at, side = min(places)
            bands.taken.append((at, 2 * _LINE + 4))
            yield {
                "x": x,
                "y": log10(p.tflops),
                "ax": -_ARROW if side == "right" else _ARROW,
                "ay": at - y,
                "xanchor": side,
                "align": side,
                "text": f"{title}<br>{time}",
                "arrowhead": 0,
                "arrowwidth": 0.8,
                "arrowcolor": COMPUTE,
                "standoff": 6,
                "bgcolor": "rgba(255,255,255,0.8)",
            }


class _Bands:
    """Horizontal bands of the chart that labels take. ``taken`` has the center and the size of each, pixels from the
    top."""

    def __init__(self) -> None:
        self.taken: list[tuple[float, float]] = []

    def place(self, at: float, size: int, above: float = 0.0, avoided: Sequence[float] = ()) -> tuple[float, float]:
        """The free band of that size that is nearest ``at``, not above ``above``, and covers the fewest of the heights
        ``avoided``: its cost, and its center."""
        every = range(size // 2, _TALL - size // 2, 4)
        free = (y for y in every if y >= above and all(abs(y - t) >= (size + s) / 2 for t, s in self.taken))
        costs = ((abs(y - at) + 2 * _LINE * sum(abs(y - b) < size / 2 + 4 for b in avoided), y) for y in free)
        return min(costs, default=(inf, at))


def _roof_labels(
    roofs: Sequence[Roof], level: str, across: Sequence[float], up: Sequence[float], bands: _Bands
) -> Iterator[dict[str, Any]]:
    """Labels of the roofs of a level and of those that are flat, at the right."""
    wide, scale = across[1] - across[0], _TALL / (up[1] - up[0])
    named = {r.resource: r for r in reversed(roofs) if level in (r.resource, "all") or r.unit == "TFLOP/s"}
    highest = log10(max((r.value for r in roofs if r.unit == "TFLOP/s"), default=1e9))
    for roof in named.values():
        flat = roof.unit == "TFLOP/s"
        # A slope's is near the highest flat roof, or where the slope leaves the view: no mark is above a roof.
        end = min(across[1], min(up[1], highest) - 36 / scale - log10(roof.value / 1e3))
        x = across[1] if flat else end
        y = (up[1] - log10(height(roof, 10**x))) * scale - 9 * flat
        if x > across[0] + 0.3 * wide and 0 < y < _TALL:  # the legend has the others
            middle = bands.place(y, _LINE + 2)[1]
            bands.taken.append((middle, _LINE + 2))
            yield {
                "x": x,
                "y": up[1] - middle / scale,
                "text": f"{name(roof.resource)} {significant(roof.value, 3)} {roof.unit}",
                "xanchor": "right",
                "showarrow": False,
                "xshift": -4 if flat else -12,
                "font": {"color": COLORS.get(roof.resource, COMPUTE)},
            }


def name(resource: str) -> str:
    """A resource's name: ``DRAM``, ``fp16 tensor``."""
    return LEVEL_NAMES.get(resource, as_words(resource))


def height(roof: Roof, intensity: float) -> float:
    """A roof's TFLOP/s at an intensity."""
    return roof.value if roof.unit == "TFLOP/s" else roof.value * intensity / 1e3


def share_text(p: Point) -> str:
    """A mark's share of its roof in words, and what is unknown about it."""
    roof, share = _roof(p), "no roof is known"
    if roof is not None:
        clock = f" at {whole(roof.clock_mhz)} MHz" if roof.clock_mhz and roof.unit == "TFLOP/s" else ""
        value = f"{significant(roof.value)} {roof.unit}{clock}, {_origin(roof)}"
        share = f"{percentage(100 * (p.share or 0), 1)} of the {name(roof.resource)} roof ({value})"
    if p.resident:
        return f"{share}; DRAM is no limit, since the data fits into L2"
    return share if p.ceiling.bandwidth else f"{share}; the bandwidth of {name(p.level)} is unmeasured"


def _origin(roof: Roof) -> str:
    return "measured" if roof.origin == "measured" else "datasheet"


def _roof(p: Point) -> Roof | None:
    """The lower of the two roofs above a mark."""
    roofs = [r for r in (p.ceiling.compute, p.ceiling.bandwidth) if r]
    return min(roofs, key=lambda r: height(r, p.intensity), default=None)


def _case(subject: CaseSubject) -> CaseSubject:
    return CaseSubject(subject.case)


def _line(color: str, dash: str = "solid") -> dict[str, Any]:
    return {"mode": "lines", "line": {"color": color, "width": 1.4, "dash": dash}, "hoverinfo": "skip"}


def _visible(meta: Sequence[Any], counted: str, level: str) -> bool | str:
    """Whether a view has a trace, whose ``meta`` is its count, its level and how it is shown, if not always."""
    of, at, *shown = meta
    fits = of in (counted, "") and (at in (level, "") or level == "all")
    return shown[0] if fits and shown else fits


def _fitted(values: Sequence[float]) -> list[float]:
    """The ends of a logarithmic axis around the values, at least a decade apart."""
    low, high = log10(min(values)), log10(max(values))
    room = max(0.2, (1 - (high - low)) / 2)
    return [low - room, high + room]


# --- charts of a record -------------------------------------------------------------------------------


def of_row(row: Row, marks: Marks, before: Marks | None = None) -> Chart:
    """The chart of one computation: each variant's case, with labels for the winner, its parent, the baseline and the
    fastest reference."""
    suite = marks.record.suite
    best = next((v for v in row.times if not suite.variants[v].is_reference), None)
    wins = best is not None and (row.reference is None or row.times[best] <= row.times[row.reference])
    titles = {best: "winner" if wins else "fastest variant", row.reference: "fastest reference"}
    parent = suite.variants[best].parent if best else None
    for variant, title in ((suite.baseline, "baseline"), (parent, "its parent")):
        titles.setdefault(variant, title)
    cases = {name: CaseSubject(case) for name, case in row.cases.items()}
    return Chart(marks, [*cases.values()], {cases[v]: title for v, title in titles.items() if v in cases}, before)


def of_imports(marks: Marks) -> Chart:
    """The chart of all kernels of an import, sized by their share of the time, with labels for the longest."""
    named = marks.record.facts.named("ncu_duration")
    every = [(s, f.number or 0.0) for f in named if isinstance(s := f.subject, CaseSubject)]
    launches = [(s, time) for s, time in every if s.launch is not None] or every
    times = grouped((_case(s), time) for s, time in launches)
    total = sum(map(sum, times.values())) or 1.0
    shares = {case: sum(each) / total for case, each in times.items()}
    cases = sorted(shares, key=lambda case: -shares[case])
    return Chart(marks, cases, {c: f"{percentage(100 * shares[c])} of the time" for c in cases[:3]}, weights=shares)


def of_record(record: Record, shape: str, before: Record | None = None) -> Chart:
    """The chart of the row of a shape; of an import, of all kernels."""
    if record.suite.is_imported:
        return of_imports(Marks(record))
    readings = Readings(record)
    return of_row(Row(readings, readings.alike[shape]), Marks(record), Marks(before) if before else None)
