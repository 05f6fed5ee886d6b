"""The roofline as a plotly figure: plain data, which the pages embed and :meth:`flashcore.api.Run.roofline` returns.

A mark stands at its facts: the FLOP per byte of a memory level, and the FLOP rate. A view shows one way to count FLOPs,
and one level or all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from math import log10
from typing import Any

from flashcore.chips import devices
from flashcore.explain import diff, roofline
from flashcore.explain.predictions import Readings
from flashcore.explain.roofline import LEVELS, MEASURED, THEORY, Counted, Point
from flashcore.explain.rows import Row
from flashcore.model.groups import grouped
from flashcore.model.record import Record, Roof, Subject
from flashcore.model.text import significant

LEVEL_NAMES = {"dram": "DRAM", "l2": "L2", "l1": "L1"}
#: Readable on white and on black.
COLORS = {"dram": "#c4622d", "l2": "#8a6bbf", "l1": "#2f9563"}
COMPUTE, FAULT = "#77818c", "#d0402b"
SYMBOLS = {"variant": "circle", "baseline": "square", "peer": "diamond"}
WORDS = {"variant": "variants", "baseline": "baseline", "peer": "references"}
USEFUL: Counted = "formula"
COUNTED = {USEFUL: "useful FLOPs", "hardware": "FLOPs by counters"}
#: The columns of a mark's data, and of the CSV.
COLUMNS = (
    *("variant", "kernel", "shape", "level", "FLOPs by", "FLOP", "bytes", "time µs", "timing", "SM clock MHz"),
    *("FLOP per byte", "TFLOP/s", "GB/s", "percent of the roof", "roof", "percent of the measured roof"),
    *("counted over useful FLOPs", "mJ per call", "GFLOP/J", "fault"),
)
HEIGHT, TOP, BOTTOM = 620, 16, 52  # pixels
_LINE = 15  # of a label's text
#: Beyond any zoom.
_FAR = (1e-6, 1e9)


def name(resource: str) -> str:
    """A resource's name: ``DRAM``, ``fp16 tensor``."""
    return LEVEL_NAMES.get(resource, resource.replace("_", " "))


def height(roof: Roof, intensity: float) -> float:
    """A roof's TFLOP/s at an intensity."""
    return roof.value if roof.unit == "TFLOP/s" else roof.value * intensity / 1e3


@dataclass(frozen=True)
class Marks:
    """A record's points by case; its kernels' points only if a case has several."""

    record: Record

    @cached_property
    def by_case(self) -> dict[Subject, list[Point]]:
        every = grouped((_case(p.subject), p) for p in roofline.points(self.record))
        kernels = {case: len({p.subject.kernel for p in points} - {None}) for case, points in every.items()}
        return {
            case: [p for p in points if not p.subject.kernel or kernels[case] > 1] for case, points in every.items()
        }

    def of(self, cases: Iterable[Subject]) -> list[Point]:
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
    cases: Sequence[Subject]
    labels: Mapping[Subject, str]
    before: Marks | None = None
    weights: Mapping[Subject, float] | None = None

    @property
    def record(self) -> Record:
        return self.marks.record

    @cached_property
    def points(self) -> list[Point]:
        return self.marks.of(self.cases)

    @cached_property
    def counts(self) -> list[Counted]:
        """The ways in which FLOPs are counted, the default first."""
        return [c for c in COUNTED if any(p.counted == c for p in self.points)]

    def of(self, case: Subject) -> list[Point]:
        """A case's marks by the default count, the one nearest its roof first."""
        ours = [p for p in self.points if p.subject == case and p.counted == self.counts[0]]
        return sorted(ours, key=lambda p: -(p.share or 0) * (p.ceiling.bandwidth is not None))

    @cached_property
    def first(self) -> Point | None:
        """The mark that the chart opens with: the most important case's that is nearest its roof."""
        return next((p for case in (*self.labels, *self.cases) for p in self.of(case)), None)

    # --- roofs --------------------------------------------------------------------------------------

    def clock(self, counted: Counted) -> float | None:
        """The highest clock of the marks: no mark stands above the roofs at it only because of its clock."""
        return max((p.clock_mhz for p in self.points if p.counted == counted and p.clock_mhz), default=None)

    def roofs(self, counted: Counted) -> list[Roof]:
        """The datasheet's and the measured roof of each level and type, at the marks' highest clock."""
        record, clock = self.record, self.clock(counted)
        by_gpu = {r for gpu in record.gpus for r in gpu.roofs} or record.roofs
        best = sorted((roofline.at_clock(r, clock) for r in by_gpu), key=lambda r: -r.value)
        every = roofline.roofs(devices.find(record.gpu), clock, best)
        resources = dict.fromkeys((*LEVELS, *(p.roof for p in self.points if p.counted == counted)))
        picked = (roofline.pick(every, r, order) for r in resources for order in (THEORY, MEASURED))
        return [r for r in picked if r and r.unit in ("TFLOP/s", "GB/s")]

    def label(self, roof: Roof, roofs: Sequence[Roof]) -> str:
        """A roof's name, value and origin; of a measured one its share of the datasheet's at the same clock."""
        sheet = next((r.value for r in roofs if r.resource == roof.resource and r.origin != "measured"), None)
        share = f", {100 * roof.value / sheet:.0f} % of it" if sheet else ""
        origin = f"measured{share}" if roof.origin == "measured" else "datasheet"
        return f"{name(roof.resource)} {significant(roof.value)} {roof.unit} ({origin})"

    def _roof_traces(self, counted: Counted) -> Iterator[dict[str, Any]]:
        roofs = self.roofs(counted)
        flats = [r.value for r in roofs if r.unit == "TFLOP/s"]
        slopes = [r.value for r in roofs if r.unit != "TFLOP/s"]
        for roof in roofs:
            flat, is_measured = roof.unit == "TFLOP/s", roof.origin == "measured"
            ends = [1e3 * roof.value / max(slopes, default=0) if slopes else _FAR[0], _FAR[1]]
            if not flat:
                ends = [_FAR[0], 1e3 * max(flats, default=_FAR[1]) / roof.value]
            yield {
                "name": self.label(roof, roofs),
                "legendgroup": f"roof {roof.resource} {roof.origin}",
                "mode": "lines",
                "x": ends,
                "y": [height(roof, x) for x in ends],
                "line": {
                    "color": COLORS.get(roof.resource, COMPUTE),
                    "width": 1.5,
                    "dash": "dot" if is_measured else "solid",
                },
                "hoverinfo": "skip",
                "legendrank": 2000,
                "meta": [counted, "" if flat else roof.resource],
            }
        for level in LEVELS:
            if not any(r.resource == level for r in roofs):
                yield {"name": f"{name(level)} roof: unknown", "mode": "lines", "x": [None], "y": [None],
                       "line": {"color": COLORS[level]}, "legendrank": 2000, "meta": [counted, level]}  # fmt: skip

    # --- marks --------------------------------------------------------------------------------------

    def _mark_traces(self, counted: Counted) -> Iterator[dict[str, Any]]:
        suite = self.record.suite
        ours = [p for p in self.points if p.counted == counted]
        families = grouped(
            (("kernels of a case" if p.subject.kernel else suite.role(suite.variants[p.subject.variant]), p.roof), p)
            for p in ours
        )
        several = len({roof for _, roof in families}) > 1
        for (role, roof), family in families.items():
            for level in LEVELS:
                marks = [p for p in family if p.level == level]
                if marks:
                    title = WORDS.get(role, role) + (f", {name(roof)}" if several else "")
                    yield {
                        "name": f"{title}: {name(level)}",
                        "legendgroup": f"{role} {roof}",
                        **self._marks(marks, SYMBOLS.get(role, "circle")),
                        "meta": [counted, level],
                        "part": bool(role not in WORDS),
                    }
        for case, title in self.labels.items():
            joined = [p for p in ours if p.subject == case]
            if len(joined) > 1:
                yield {
                    "name": f"{case.variant} ({title})",
                    "mode": "lines",
                    "x": [p.intensity for p in joined],
                    "y": [p.tflops for p in joined],
                    "line": {"color": COMPUTE, "width": 1},
                    "hoverinfo": "skip",
                    "meta": [counted, "all"],
                }

    def _marks(self, marks: Sequence[Point], symbol: str) -> dict[str, Any]:
        return {
            "mode": "markers",
            "x": [p.intensity for p in marks],
            "y": [p.tflops for p in marks],
            "marker": {
                "symbol": ["x" if p.faults else symbol + "-open" * p.modeled for p in marks],
                "color": [FAULT if p.faults else COLORS[p.level] for p in marks],
                "size": [self._size(p) for p in marks],
                "opacity": [1 if p.subject in self.labels else 0.5 for p in marks],
                "line": {"width": [2 if p.subject in self.labels or p.modeled else 0 for p in marks]},
            },
            "customdata": [self._data(p) for p in marks],
            "text": ["<br>".join(self._told(p)) for p in marks],
            "hovertemplate": "%{text}<extra></extra>",
        }

    def _size(self, p: Point) -> float:
        """The diameter: of a kernel by its share of its case's time, of an imported one by its share of all."""
        share = (self.weights or {}).get(p.subject)
        if p.subject.kernel:
            whole = next((q for q in self.points if q.subject == _case(p.subject) and q.counted == p.counted), None)
            share = p.time_us / whole.time_us if whole else None
        return 12.0 if share is None else round(6 + 22 * min(share, 1.0) ** 0.5, 1)

    def _data(self, p: Point) -> list[Any]:
        subject, number, roof = p.subject, self.record.facts.number, _roof(p)
        energy = [None if subject.kernel else number(n, subject) for n in ("energy", "flop_per_joule")]
        return [
            *(subject.variant, subject.kernel, subject.shape, p.level, p.counted, p.flop, p.bytes, p.time_us),
            *(p.regime, p.clock_mhz, p.intensity, p.tflops, p.gbps, p.share and 100 * p.share, roof and roof.name),
            *(p.share_of_measured and 100 * p.share_of_measured, self.padding(subject), *energy, "; ".join(p.faults)),
        ]

    def padding(self, case: Subject) -> float | None:
        """The FLOPs that the hardware counted over the problem's."""
        ours = {p.counted: p.flop for p in self.points if p.subject == case}
        return ours["hardware"] / ours[USEFUL] if len(ours) == len(COUNTED) else None

    def _told(self, p: Point) -> Iterator[str]:
        """The lines of a mark's hover text: every figure with its unit."""
        *_, times, joules, rate, _ = self._data(p)
        level, counted = name(p.level), "useful TFLOP/s" if p.counted == USEFUL else "TFLOP/s by counters"
        kernel = f" › {p.subject.kernel}" if p.subject.kernel else ""
        yield f"<b>{escape(p.subject.variant + kernel)}</b> {escape(self.labels.get(p.subject, ''))}"
        yield f"{significant(p.tflops)} {counted}, {significant(p.time_us)} µs {p.regime}"
        bytes_ = "bytes of the formula" if p.modeled else f"bytes of {level}"
        yield f"{significant(p.intensity)} FLOP/B: {p.flop:,.0f} FLOP, {p.bytes:,.0f} {bytes_}"
        yield f"{significant(p.gbps)} GB/s of {level}" + (f", SM at {p.clock_mhz:,.0f} MHz" if p.clock_mhz else "")
        yield share_text(p)
        if p.share_of_measured is not None:
            yield f"{100 * p.share_of_measured:.1f} % of the measured roof"
        if times:
            yield f"the hardware did {significant(times, 3)} × the useful FLOPs"
        if joules and rate:
            yield f"{significant(joules)} mJ per call, {significant(rate)} GFLOP/J"
        yield from (f"impossible: {escape(fault)}" for fault in p.faults)

    def _arrows(self) -> Iterator[dict[str, Any]]:
        """From each case's mark in the other run to its mark here."""
        if self.before is None:
            return
        before = self.before.record
        same = [c for c in self.cases if diff.same_shape(before, self.record, c.shape or "")]
        old = {(p.subject, p.level): p for p in self.before.of(same) if p.counted == self.counts[0]}
        run = before.id
        for level in LEVELS:
            pairs = [(q, p) for p in self.points if p.counted == self.counts[0] and p.level == level
                     and (q := old.get((p.subject, level)))]  # fmt: skip
            if pairs:
                yield {
                    "name": f"from run {run.rpartition('-')[2]}: {name(level)}",
                    "legendgroup": "before",
                    "mode": "lines+markers",
                    "x": [v for q, p in pairs for v in (q.intensity, p.intensity, None)],
                    "y": [v for q, p in pairs for v in (q.tflops, p.tflops, None)],
                    "marker": {
                        "symbol": ["circle-open", "arrow", "circle"] * len(pairs),
                        "angleref": "previous",
                        "size": 9,
                        "color": COMPUTE,
                    },
                    "line": {"color": COMPUTE, "width": 1},
                    "text": [
                        text
                        for q, p in pairs
                        for text in (
                            f"<b>{escape(q.subject.variant)}</b> in run {run}<br>"
                            f"{significant(q.tflops)} TFLOP/s, {significant(q.time_us)} µs",
                            f"{significant(q.time_us / p.time_us, 3)} × faster than in run {run}",
                            "",
                        )
                    ],
                    "hovertemplate": "%{text}<extra></extra>",
                    "meta": [self.counts[0], level],
                }

    # --- the figure ---------------------------------------------------------------------------------

    def figure(self) -> dict[str, Any]:
        """Data and layout; without a point an empty figure."""
        views = [(counted, level) for counted in self.counts for level in (*LEVELS, "all")]
        views = [v for v in views if any(p.counted == v[0] and v[1] in (p.level, "all") for p in self.points)]
        traces = [t for c in self.counts for t in (*self._roof_traces(c), *self._mark_traces(c))] + [*self._arrows()]
        parts = [t.pop("part", False) for t in traces]
        first = next((i for i, v in enumerate(views) if self.first and v == (self.first.counted, self.first.level)), 0)
        buttons = []
        for counted, level in views:
            seen = [t["meta"][0] == counted and (t["meta"][1] in ("", level) or level == "all") for t in traces]
            buttons.append(
                {
                    "label": f"{COUNTED[counted]}, bytes of {name(level) if level != 'all' else 'all levels'}",
                    "method": "update",
                    "args": [
                        {"visible": [s and ("legendonly" if p else True) for s, p in zip(seen, parts, strict=True)]},
                        self._view(counted, level),
                    ],
                }
            )
        if not buttons:
            return {"data": [], "layout": {}}
        shown, layout = buttons[first]["args"]
        # The time's axis shows only if a trace uses it.
        times = {"x": [None], "y": [None], "yaxis": "y2", "mode": "markers", "showlegend": False, "hoverinfo": "skip"}
        for trace, visible in zip(traces, shown["visible"], strict=True):
            trace["visible"] = visible
        for button in buttons:
            button["args"][0]["visible"].append(True)
        menu = {"buttons": buttons, "active": first, "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom",
                "pad": {"b": 8}, "name": "View"}  # fmt: skip
        return {
            "data": [{"type": "scatter", **t} for t in (*traces, times)],
            "layout": {
                **layout,
                "updatemenus": [menu] if len(buttons) > 1 else [],
                "height": HEIGHT,
                "margin": {"l": 64, "r": 64, "t": TOP + 40, "b": BOTTOM},
                "hovermode": "closest",
                "hoverlabel": {"align": "left"},
                "legend": {"x": 1.09, "y": 1, "font": {"size": 11}, "tracegroupgap": 0},
                "meta": {"columns": COLUMNS},
            },
        }

    def _view(self, counted: Counted, level: str) -> dict[str, Any]:
        """The axes and labels of a view; the axes fit its marks and their roofs."""
        marks = [p for p in self.points if p.counted == counted and level in (p.level, "all") and not p.subject.kernel]
        roofs = self.roofs(counted)
        heights = [*(p.tflops for p in marks), *(p.ceiling.tflops for p in marks if p.ceiling.tflops)]
        across, up = _fitted([p.intensity for p in marks]), _fitted(heights)
        flop = {p.flop for p in marks}
        steps = (1, 2, 5) if up[1] - up[0] > 1.5 else (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8)
        # Of several problems, a height is no time.
        times = [s * 10.0**d for d in range(-3, 8) for s in steps] if len(flop) == 1 else []
        of = "" if level == "all" else f" of {name(level)}"
        useful = "Useful" if counted == USEFUL else "Counted"
        axis = {"type": "log", "exponentformat": "none", "separatethousands": True, "minor": {"ticks": "outside"}}
        clock = self.clock(counted)
        return {
            "xaxis": {**axis, "range": across, "title": {"text": f"{useful} FLOP per byte{of}", "standoff": 8}},
            "yaxis": {**axis, "range": up, "title": {"text": f"{useful} TFLOP/s", "standoff": 6}},
            "yaxis2": {
                "type": "log",
                "overlaying": "y",
                "matches": "y",
                "side": "right",
                "visible": bool(times),
                "title": {"text": f"time, µs ({marks[0].regime})" if marks else "", "standoff": 6},
                "tickvals": [flop_ / us / 1e6 for flop_ in flop for us in times],
                "ticktext": [f"{us:,g}" for us in times],
                "griddash": "dot",
            },
            "annotations": [*self._labels(marks, roofs, level, across, up)],
            "meta": {"columns": COLUMNS, "clock": clock},
        }

    def _labels(
        self, marks: Sequence[Point], roofs: Sequence[Roof], level: str, across: Sequence[float], up: Sequence[float]
    ) -> Iterator[dict[str, Any]]:
        """Labels of roofs and of named marks. No two are at the same height, so that none covers another at any
        width."""
        tall = HEIGHT - TOP - 40 - BOTTOM
        taken: list[tuple[float, float]] = []
        above = 0.0  # labels of marks are in the order of the marks

        def down(value: float) -> float:
            return tall * (up[1] - log10(value)) / (up[1] - up[0])

        def free(at: float, size: float) -> float:
            """The center nearest ``at`` of a free band of that size."""
            places = sorted(range(int(size / 2), int(tall - size / 2)), key=lambda y: (abs(y - at), y))
            inside = (y for y in places if y >= above)
            return next((y for y in inside if all(abs(y - t) >= (size + s) / 2 for t, s in taken)), at)

        named = {r.resource: r for r in reversed(roofs) if level in (r.resource, "all") or r.unit == "TFLOP/s"}
        for roof in named.values():
            flat = roof.unit == "TFLOP/s"
            # Where the roof leaves the view: there are no marks above it.
            top = min(up[1], log10(max((r.value for r in roofs if r.unit == "TFLOP/s"), default=1e9)))
            x = across[1] if flat else min(across[1], log10(1e3 * 10 ** (top - 0.07 * (up[1] - up[0])) / roof.value))
            y = down(height(roof, 10**x)) - 9 * flat
            if x < across[0] + 0.3 * (across[1] - across[0]) or not 0 < y < tall:
                continue  # the legend has it
            y = free(y, _LINE + 2)
            taken.append((y, _LINE + 2))
            yield {
                "x": x,
                "y": up[1] - y * (up[1] - up[0]) / tall,
                "text": f"{name(roof.resource)} {significant(roof.value, 3)} {roof.unit}",
                "xanchor": "right",
                "showarrow": False,
                "xshift": -4 if flat else -12,
                "font": {"color": COLORS.get(roof.resource, COMPUTE)},
            }
        nearest = {p.subject: p for p in sorted(marks, key=lambda p: p.share or 0) if p.subject in self.labels}
        size = 2 * _LINE + 4
        for p in sorted(nearest.values(), key=lambda p: -p.tflops):
            x, y, title = log10(p.intensity), down(p.tflops), self.labels[p.subject]
            above = at = free(max(y, above), size)
            taken.append((at, size))
            left = _left(marks, p, at / tall, across, up)
            share = f", {100 * p.share:.0f} % of {name(_roof(p).resource)}" if p.share and _roof(p) else ""
            yield {
                "x": x,
                "y": log10(p.tflops),
                "ax": -26 if left else 26,
                "ay": at - y,
                "xanchor": "right" if left else "left",
                "align": "right" if left else "left",
                "text": f"<b>{escape(p.subject.variant)}</b> {escape(title)}<br>{significant(p.time_us, 3)} µs{share}",
                "arrowhead": 0,
                "arrowwidth": 0.8,
                "arrowcolor": COMPUTE,
                "standoff": 6,
                "bgcolor": "rgba(255,255,255,0.8)",
            }


def _left(marks: Sequence[Point], p: Point, at: float, across: Sequence[float], up: Sequence[float]) -> bool:
    """Whether a label is left of its mark: on the side with fewer marks, if both have room.

    ``at`` is its center's distance from the top, as a share of the height.
    """

    def place(q: Point) -> tuple[float, float]:
        return (log10(q.intensity) - across[0]) / (across[1] - across[0]), (up[1] - log10(q.tflops)) / (up[1] - up[0])

    x = place(p)[0]
    if not 0.35 < x < 0.65:
        return x > 0.5
    near = [u - x for u, v in map(place, marks) if abs(v - at) < 0.04 and 0.02 < abs(u - x) < 0.35]
    return sum(side > 0 for side in near) > len(near) / 2


def _fitted(values: Sequence[float]) -> list[float]:
    """The ends of a logarithmic axis around the values, at least a decade apart."""
    low, high = log10(min(values)), log10(max(values))
    room = max(0.2, (1 - (high - low)) / 2)
    return [low - room, high + room]


def _case(subject: Subject) -> Subject:
    return Subject(subject.variant, shape=subject.shape)


def _roof(p: Point) -> Roof | None:
    """The lower of the two roofs above a mark."""
    known = [r for r in (p.ceiling.compute, p.ceiling.bandwidth) if r]
    return min(known, key=lambda r: height(r, p.intensity), default=None)


def share_text(p: Point) -> str:
    """A mark's share of its roof in words, and what is unknown about it."""
    roof, share = _roof(p), "no roof is known"
    if roof is not None:
        clock = f" at {roof.clock_mhz:,.0f} MHz" if roof.clock_mhz and roof.resource not in ("dram", "l2") else ""
        origin = "measured" if roof.origin == "measured" else "datasheet"
        value = f"{significant(roof.value)} {roof.unit}{clock}, {origin}"
        share = f"{100 * (p.share or 0):.1f} % of the {name(roof.resource)} roof ({value})"
    if p.resident:
        return f"{share}; DRAM is no limit, since the data fits into L2"
    return share if p.ceiling.bandwidth else f"{share}; the bandwidth of {name(p.level)} is unmeasured"


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
    cases = {name: Subject(name, shape=shape.name) for name, shape in row.cases.items()}
    labels = {cases[v]: title for v, title in titles.items() if v in cases}
    return Chart(marks, [*cases.values()], labels, before)


def of_imports(marks: Marks) -> Chart:
    """The chart of all kernels of an import, sized by their share of the time, with labels for the longest."""
    every = [f for f in marks.record.facts.named("ncu_duration") if f.subject.shape]
    facts = [f for f in every if f.subject.launch is not None] or every
    times = grouped((_case(f.subject), f.number or 0.0) for f in facts)
    total = sum(map(sum, times.values())) or 1.0
    shares = {case: sum(each) / total for case, each in times.items()}
    cases = sorted(shares, key=lambda case: -shares[case])
    return Chart(marks, cases, {c: f"{100 * shares[c]:.0f} % of the time" for c in cases[:3]}, weights=shares)


def of_record(record: Record, shape: str, before: Record | None = None) -> Chart:
    """The chart of the row of a shape; of an import, of all kernels."""
    if all(v.imported for v in record.suite.variants.values()):
        return of_imports(Marks(record))
    readings = Readings(record)
    return of_row(Row(readings, readings.alike[shape]), Marks(record), before and Marks(before))
