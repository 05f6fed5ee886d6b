"""The charts, as the plain dicts that plotly.js draws.

Building dicts by hand keeps ``plotly.graph_objects`` (most of its import time) out of a render.
Colours are roles (``"@peer"``): the page's script fills them in from the style sheet, so that a chart
follows light and dark. No meaning hangs on colour alone: peers are hatched, faults are crosses.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10
from statistics import median
from typing import Any

from flashcore.analysis.ladder import Ladder
from flashcore.analysis.roofline import Point
from flashcore.model.catalogue import MEMORY_STALLS
from flashcore.model.record import Roof
from flashcore.model.suite import Shape
from flashcore.model.text import UNMEASURED, significant
from flashcore.report.view import MAX_BARS, Figure

Dict = dict[str, Any]


def _round(value: float) -> float:
    return float(f"{value:.5g}")


def _log_range(values: Sequence[float], below: float = 0.8, above: float = 1.25) -> list[float]:
    return [round(log10(min(values) * below), 4), round(log10(max(values) * above), 4)]


def _axis(title: str, **more: Any) -> Dict:
    return {"title": {"text": title, "standoff": 8}, "automargin": True, "zeroline": False, **more}


def _log_axis(title: str, span: Sequence[float], **more: Any) -> Dict:
    """A log axis with ticks at 1, 2 and 5 where it is short, at decades where it is long."""
    length = span[1] - span[0]
    steps: tuple[float, ...] = (1, 1.5, 2, 3, 5, 7) if length < 1 else (1, 2, 5) if length < 2.5 else (1,)
    if 2.5 <= length < 4:
        steps = (1, 3)
    decades = range(floor(span[0]) - 1, ceil(span[1]) + 1)
    ticks = [s * 10.0**d for d in decades for s in steps if span[0] <= log10(s * 10.0**d) <= span[1]]
    text = [f"{t:,.0f}" if t >= 100 else f"{t:g}" for t in ticks]
    return _axis(title, type="log", range=list(span), tickvals=[_round(t) for t in ticks], ticktext=text, **more)


def _pattern(shape: str) -> Dict:
    """Hatching in the colour of the page over a bar's own colour."""
    return {"shape": shape, "fillmode": "overlay", "fgcolor": "@bg", "size": 7, "solidity": 0.2}


def _bars(
    names: Sequence[str],
    values: Sequence[float],
    text: Sequence[str],
    colour: str,
    pattern: str,
    hover: str,
    base: Sequence[float] | None = None,
    *,
    label: str = "",
    **more: Any,
) -> Dict:
    """One series of lying bars, each with its text behind it."""
    return {
        "type": "bar",
        "orientation": "h",
        **({"name": label} if label else {}),
        "y": names,
        **({"base": [_round(x) for x in base]} if base is not None else {}),
        "x": [_round(x) for x in values],
        "text": text,
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": colour, "pattern": _pattern(pattern)},
        **more,
        "hovertemplate": f"{hover}<extra></extra>",
    }  # fmt: skip


def _names_axis(names: Sequence[str]) -> Dict:
    return {"automargin": True, "categoryorder": "array", "categoryarray": names, "ticksuffix": " "}


def times(key: str, shape: Shape, bars: Sequence[tuple[str, str, float, float | None]]) -> Figure:
    """Warm medians on a log axis, fastest on top.

    Args:
        bars: (name, role, p50, p90) with role ``peer``, ``baseline`` or ``variant``; us.
    """
    shown = sorted(bars, key=lambda b: (b[2], b[0]))[:MAX_BARS]
    span = _log_range([b[2] for b in shown] + [b[3] for b in shown if b[3]], 0.7, 1.9)
    data: list[Dict] = []
    for role, label, pattern in (("variant", "variant", ""), ("baseline", "baseline", "x"), ("peer", "peer", "/")):
        own = [b for b in shown if b[1] == role]
        if own:
            above = [_round(max((b[3] or b[2]) - b[2], 0.0)) for b in own]
            data.append(
                _bars(
                    [escape(b[0]) for b in own], [b[2] for b in own], [f"{significant(b[2])} µs" for b in own],
                    f"@{role}", pattern, "%{y}<br>p50 %{text}<br>p90 %{customdata} µs", label=label,
                    error_x={"type": "data", "symmetric": False, "array": above, "arrayminus": [0] * len(own),
                             "thickness": 1, "width": 3, "color": "@text"},
                    customdata=[significant(b[3]) if b[3] else UNMEASURED for b in own],
                )
            )  # fmt: skip
    layout = {
        "xaxis": _log_axis(f"{shape.rank_by} p50, µs (log; whisker: p90)", span),
        "yaxis": _names_axis([escape(b[0]) for b in reversed(shown)]),
        "barmode": "overlay",
        "bargap": 0.3,
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
    }
    label = f"Bar chart of kernel times, {shape.rank_by}, at {shape.name}, fastest first: " + ", ".join(
        f"{b[0]} {significant(b[2])} µs" for b in shown[:6]
    )
    return Figure(key, data, layout, label, 110 + 24 * len(shown))


def samples(key: str, case: str, series: Sequence[tuple[str, Sequence[float]]]) -> Figure:
    """The share of samples at or below each time, by mode, each against its own median.

    Steps show levels, slopes show spread; an axis in microseconds would show where the modes are and
    hide how they scatter.
    """
    data: list[Dict] = []
    edges: list[float] = []
    dashes = {"isolated": "solid", "back_to_back": "longdash", "cold": "dash", "eager": "dot"}
    for mode, values in series:
        ordered = sorted(values)
        count = len(ordered)
        colour = "@" + mode.replace("_", "")
        middle = median(ordered)
        # Enough ranks to see every level; all of them where there are few.
        ranks = range(count) if count <= 200 else sorted({round(i * (count - 1) / 200) for i in range(201)})
        apart = [100 * (ordered[r] / middle - 1) for r in ranks]
        edges += [apart[int(0.005 * (len(apart) - 1))], apart[int(0.985 * (len(apart) - 1))]]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{mode} {significant(middle)} µs (n = {count:,})",
                "x": [_round(x) for x in apart],
                "y": [_round(100 * (r + 1) / count) for r in ranks],
                "customdata": [_round(ordered[r]) for r in ranks],
                "line": {
                    "shape": "hv",
                    "dash": dashes.get(mode, "solid"),
                    "width": 1.8,
                    "color": colour,
                },
                "hovertemplate": "%{y:.0f} % of samples ≤ %{customdata} µs (%{x:+.2f} %)<extra></extra>",
            }
        )
    room = 0.06 * (max(edges) - min(edges)) or 0.1
    layout = {
        "xaxis": _axis("sample against its median, % (axis: the middle 98 %)",
                       range=[_round(min(edges) - room), _round(max(edges) + room)]),
        "yaxis": _axis("samples at or below, %", range=[0, 103]),
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
    }  # fmt: skip
    return Figure(key, data, layout, f"Cumulative distribution of the timing samples of {case}", 340)


def stalls(key: str, case: str, shares: Sequence[tuple[str, float]]) -> Figure:
    """Stall reasons by their share of all stalls, largest on top; those of memory are hatched."""
    shown = sorted((s for s in shares if s[1] >= 0.05), key=lambda s: s[1])
    named = {reason: reason.replace("_", " ") + (" (memory)" if reason in MEMORY_STALLS else "") for reason, _ in shown}
    data = []
    for memory, role, pattern in ((False, "@variant", ""), (True, "@memory", "/")):
        own = [s for s in shown if (s[0] in MEMORY_STALLS) == memory]
        text = [f"{s[1]:.1f} %" for s in own]
        data.append(
            _bars([named[s[0]] for s in own], [s[1] for s in own], text, role, pattern, "%{y}: %{text} of all stalls")
        )
    layout = {
        "xaxis": _axis("share of all stall reasons, %", range=[0, 1.18 * max((s[1] for s in shown), default=1.0)]),
        "yaxis": _names_axis(list(named.values())),
        "barmode": "overlay",
        "showlegend": False,
        "bargap": 0.3,
    }
    top = ", ".join(f"{n.replace('_', ' ')} {v:.0f} %" for n, v in reversed(shown[-4:]))
    return Figure(key, data, layout, f"Bar chart of stall reasons of {case}: {top}", 100 + 22 * len(shown))


_SYMBOLS = {"variant": "circle", "baseline": "square", "peer": "diamond", "fault": "x"}
_DASHES = {"datasheet": "dash", "at clock seen": "solid", "measured": "dot"}


def roofline(
    key: str, level: str, shape: str, points: Sequence[tuple[Point, str]], roofs: Sequence[Roof]
) -> Figure | None:
    """One level's roofline at one shape; ``None`` without points.

    Args:
        points: each with its role: ``variant``, ``baseline`` or ``peer``. Hardware FLOPs are filled
            marks, formula FLOPs open ones.
        roofs: the compute roofs and those of this level, already one for each (resource, origin).
    """
    if not points:
        return None
    bandwidths = [r for r in roofs if r.resource == level]
    computes = [r for r in roofs if r.unit == "TFLOP/s"]
    # As far right as the ridge, so that both slopes of the roof are seen.
    ridges = [c.value / b.value * 1e3 for c in computes for b in bandwidths]
    xs = [p.intensity for p, _ in points] + ridges
    ys = [p.tflops for p, _ in points] + [c.value for c in computes]
    across, up = _log_range(xs, 0.4, 6), _log_range(ys, 0.4, 2.4)
    left, right = 10 ** across[0], 10 ** across[1]
    top = max((c.value for c in computes), default=None)
    fastest = max((b.value for b in bandwidths), default=None)
    data: list[Dict] = []
    for roof in bandwidths:
        end = min(right, top / roof.value * 1e3) if top else right
        data.append(_line(roof, [left, end], [left * roof.value / 1e3, end * roof.value / 1e3]))
    for roof in computes:
        begin = max(left, roof.value / fastest * 1e3) if fastest else left
        data.append(_line(roof, [begin, right], [roof.value, roof.value]))
    named = _named([p for p, _ in points], across, up)
    for kind, symbol in _SYMBOLS.items():
        for counted in ("hardware", "formula"):
            own = [p for p, r in points if p.counted == counted and (kind == "fault" if p.faults else kind == r)]
            if own:
                data.append(_marks(own, kind, symbol + ("" if counted == "hardware" else "-open"), named))
    layout = {
        "xaxis": _log_axis(f"FLOP per byte of {level.upper()} (log)", across),
        "yaxis": _log_axis("TFLOP/s (log)", up),
        "showlegend": False,
        "hovermode": "closest",
        "annotations": [*_slope_labels(bandwidths, left), *_ceiling_labels(computes, across[1])],
    }
    label = f"{level.upper()} roofline at {shape}: {len(points)} points under {len(computes)} compute roofs"
    return Figure(key, data, layout, label, 460)


def _named(points: Sequence[Point], across: Sequence[float], up: Sequence[float]) -> frozenset[int]:
    """The points (by identity) whose names can be written without covering another's.

    Whole cases go before single kernels and hardware counts before formulas; the rest have their names on hover.
    """
    wide, high = across[1] - across[0], up[1] - up[0]
    placed: list[tuple[float, float]] = []
    cases: set[object] = set()
    chosen: set[int] = set()
    for p in sorted(points, key=lambda p: (bool(p.subject.kernel), p.counted != "hardware", -p.tflops)):
        x, y = log10(p.intensity) / wide, log10(p.tflops) / high
        if p.subject in cases or any(abs(x - a) < 0.3 and abs(y - b) < 0.045 for a, b in placed):
            continue
        placed.append((x, y))
        cases.add(p.subject)
        chosen.add(id(p))
    return frozenset(chosen)


def _marks(own: Sequence[Point], kind: str, symbol: str, named: frozenset[int]) -> Dict:
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": kind,
        "x": [_round(p.intensity) for p in own],
        "y": [_round(p.tflops) for p in own],
        "text": ["  " + _label(p) if id(p) in named else "" for p in own],
        "textposition": "middle right",
        "textfont": {"size": 10},
        "cliponaxis": False,
        "marker": {"symbol": symbol, "size": [7 if p.subject.kernel else 10 for p in own], "color": f"@{kind}"},
        "customdata": [_hover(p) for p in own],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _slope_labels(bandwidths: Sequence[Roof], left: float) -> list[Dict]:
    """One label for each bandwidth, at the left end of its slope, below the line."""
    text = "; ".join(f"{r.value:,.0f} {r.unit} {_origin(r)}" for r in bandwidths)
    if not bandwidths:
        return []
    lowest = min(bandwidths, key=lambda r: r.value)
    at = {"x": log10(left), "y": log10(left * lowest.value / 1e3)}
    return [{**at, "text": f"{lowest.resource.upper()} {text}", "xanchor": "left", "yanchor": "top", "yshift": -2,
             "xshift": 26, "showarrow": False, "font": {"size": 10}}]  # fmt: skip


def _ceiling_labels(computes: Sequence[Roof], right: float) -> list[Dict]:
    """One label for each dtype, above its roofs at their right end."""
    found = []
    for dtype in dict.fromkeys(r.resource for r in computes):
        own = [r for r in computes if r.resource == dtype]
        text = "; ".join(f"{significant(r.value, 3)} {_origin(r)}" for r in own)
        found.append({"x": right, "y": log10(max(r.value for r in own)), "text": f"{dtype} TFLOP/s: {text}",
                      "xanchor": "right", "yanchor": "bottom", "showarrow": False, "font": {"size": 10}})  # fmt: skip
    return found


def _origin(roof: Roof) -> str:
    clock = f"at {roof.clock_mhz:,.0f} MHz" if roof.clock_mhz else ""
    return clock if roof.origin == "at clock seen" and clock else f"({roof.origin})"


def _line(roof: Roof, xs: list[float], ys: list[float]) -> Dict:
    name = f"{escape(roof.name)}: {roof.value:,.0f} {roof.unit}"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [_round(x) for x in xs],
        "y": [_round(y) for y in ys],
        "line": {"color": "@text", "width": 1.3, "dash": _DASHES[roof.origin]},
        "hovertemplate": name + "<extra></extra>",
    }


def _label(point: Point) -> str:
    s = point.subject
    return escape(s.variant + (f" › {s.kernel}" if s.kernel else ""))


def _hover(point: Point) -> str:
    share = f"{100 * point.share:.1f} % of the roof above it" if point.share is not None else "no roof is known"
    lines = [
        f"<b>{_label(point)}</b>",
        f"{significant(point.tflops, 3)} TFLOP/s, {significant(point.intensity, 3)} FLOP/B, {share}",
        f"{significant(point.time_us)} µs, {significant(point.gbps, 3)} GB/s",
        f"FLOPs by {point.counted}; {escape(point.regime)}",
        *(f"cannot be right: {escape(f)}" for f in point.faults),
    ]
    return "<br>".join(lines)


def waterfall(key: str, ladder: Ladder) -> Figure:
    """From the baseline to the best, a bar a step: what it took off its predecessor's time, or added.

    Needs two steps on the way. The fastest peer and the floor are lines across.
    """
    way, regime = ladder.way, ladder.shape.rank_by
    times = [s.after.value or 0.0 for s in way]
    bars: dict[str, list[tuple[str, float, float, str]]] = {"baseline": [], "variant": [], "fault": []}
    for i, (step, now) in enumerate(zip(way, times, strict=True)):
        name = escape(step.variant.name)
        if i == 0:
            bars["baseline"].append((name, 0.0, now, f"{significant(now)} µs"))
            continue
        role = "fault" if now > times[i - 1] else "variant"
        text = f"{significant(now)} µs ({now / times[i - 1]:.2f}×)"
        bars[role].append((name, min(now, times[i - 1]), abs(now - times[i - 1]), text))
    data: list[Dict] = []
    labels = (("baseline", "start", "x"), ("variant", "faster", ""), ("fault", "slower", "/"))
    for role, label, pattern in labels:
        if bars[role]:
            names, bases, sizes, texts = zip(*bars[role], strict=True)
            data.append(_bars(names, sizes, texts, f"@{role}", pattern, "%{y}<br>%{text}", bases, label=label))
    # Their words one above the other: the two may lie close together.
    lines = [(ladder.peer[1], f"{ladder.peer[0]} {significant(ladder.peer[1])} µs", 0)] if ladder.peer else []
    lines += [(g.floor_us, f"floor {significant(g.floor_us, 3)} µs", 13)] if (g := ladder.floor) else []
    layout = {
        "xaxis": _axis(f"{regime} p50, µs: what a step took off, or added", range=[0, _round(1.3 * max(times))]),
        "yaxis": _names_axis([escape(s.variant.name) for s in reversed(way)]),
        "barmode": "overlay",
        "bargap": 0.25,
        "showlegend": False,
        "shapes": [
            {"type": "line", "x0": _round(x), "x1": _round(x), "y0": 0, "y1": 1, "yref": "paper",
             "line": {"color": "@peer", "width": 1.3, "dash": "dot"}}
            for x, _, _ in lines
        ],
        "annotations": [
            {"x": _round(x), "y": 1, "yref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": shift,
             "text": escape(text), "showarrow": False, "font": {"size": 10}}
            for x, text, shift in lines
        ],
    }  # fmt: skip
    said = ", ".join(f"{s.variant.name} {significant(t)} µs" for s, t in zip(way, times, strict=True))
    label = f"Waterfall of kernel times, {regime}, at {ladder.shape.name}: {said}"
    return Figure(key, data, layout, label, 110 + 28 * len(way))
