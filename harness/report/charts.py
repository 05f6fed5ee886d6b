"""The charts, as the plain dicts that plotly.js draws.

Building dicts by hand keeps ``plotly.graph_objects`` (most of its import time) out of a render.
Colours are roles (``"@peer"``): the page's script fills them in from the style sheet, so that a chart
follows light and dark. No meaning hangs on colour alone: peers are hatched, faults are crosses.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10
from typing import Any

from harness.metrics import MEMORY_STALLS
from harness.report.book import MAX_BARS, Figure
from harness.report.values import significant
from harness.roofline import Point, Roof

Dict = dict[str, Any]


def _round(value: float) -> float:
    return float(f"{value:.5g}")


def _log_range(values: Sequence[float], below: float = 0.8, above: float = 1.25) -> list[float]:
    return [round(log10(min(values) * below), 4), round(log10(max(values) * above), 4)]


def _axis(title: str, **more: Any) -> Dict:
    return {"title": {"text": title, "standoff": 8}, "automargin": True, "zeroline": False, **more}


def _log_axis(title: str, span: Sequence[float], **more: Any) -> Dict:
    """A log axis with ticks at 1, 2 and 5 where it is short, at decades where it is long."""
    steps = (1, 2, 5) if span[1] - span[0] < 2.5 else (1, 3) if span[1] - span[0] < 4 else (1,)
    decades = range(floor(span[0]) - 1, ceil(span[1]) + 1)
    ticks = [s * 10.0**d for d in decades for s in steps if span[0] <= log10(s * 10.0**d) <= span[1]]
    text = [f"{t:,.0f}" if t >= 1 else f"{t:g}" for t in ticks]
    return _axis(title, type="log", range=list(span), tickvals=[_round(t) for t in ticks], ticktext=text, **more)


def times(key: str, shape: str, bars: Sequence[tuple[str, str, float, float | None]]) -> Figure:
    """Warm medians on a log axis, fastest on top.

    Args:
        bars: (name, role, p50, p90) with role ``peer``, ``baseline`` or ``variant``; us.
    """
    shown = sorted(bars, key=lambda b: (b[2], b[0]))[:MAX_BARS]
    span = _log_range([b[2] for b in shown] + [b[3] for b in shown if b[3]], 0.7, 1.9)
    data: list[Dict] = []
    for role, label, pattern in (("variant", "variant", ""), ("baseline", "baseline", "x"), ("peer", "peer", "/")):
        own = [b for b in shown if b[1] == role]
        if not own:
            continue
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": label,
                "y": [escape(b[0]) for b in own],
                "x": [_round(b[2]) for b in own],
                "text": [f"{significant(b[2])} µs" for b in own],
                "textposition": "outside",
                "cliponaxis": False,
                "marker": {"color": f"@{role}", "pattern": {"shape": pattern, "size": 6, "solidity": 0.25}},
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [_round(max((b[3] or b[2]) - b[2], 0.0)) for b in own],
                    "arrayminus": [0] * len(own),
                    "thickness": 1,
                    "width": 3,
                    "color": "@text",
                },
                "customdata": [significant(b[3]) if b[3] else "unmeasured" for b in own],
                "hovertemplate": "%{y}<br>p50 %{text}<br>p90 %{customdata} µs<extra></extra>",
            }
        )
    order = [escape(b[0]) for b in reversed(shown)]
    layout = {
        "xaxis": _log_axis("warm kernel time, µs (log; shorter is faster; whisker: p90)", span),
        "yaxis": _axis("", categoryorder="array", categoryarray=order, ticksuffix=" "),
        "barmode": "overlay",
        "bargap": 0.3,
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
    }
    del layout["yaxis"]["title"]
    label = f"Bar chart of warm kernel times at {shape}, fastest first: " + ", ".join(
        f"{b[0]} {significant(b[2])} µs" for b in shown[:6]
    )
    return Figure(key, data, layout, label, 110 + 24 * len(shown))


def samples(key: str, case: str, series: Sequence[tuple[str, Sequence[float]]]) -> Figure:
    """The share of samples at or below each time, by mode: steps show levels, slopes show spread."""
    data: list[Dict] = []
    dashes = {"warm": "solid", "cold": "dash", "eager": "dot"}
    for mode, values in series:
        ordered = sorted(values)
        count = len(ordered)
        # Enough ranks to see every level; all of them where there are few.
        ranks = range(count) if count <= 200 else sorted({round(i * (count - 1) / 200) for i in range(201)})
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{mode} (n = {count:,})",
                "x": [_round(ordered[r]) for r in ranks],
                "y": [_round(100 * (r + 1) / count) for r in ranks],
                "line": {"shape": "hv", "dash": dashes.get(mode, "solid"), "width": 1.8, "color": f"@{mode}"},
                "hovertemplate": "%{y:.0f} % of samples ≤ %{x:.4g} µs<extra></extra>",
            }
        )
    every = [v for _, values in series for v in values]
    layout = {
        "xaxis": _log_axis("sample, µs (log)", _log_range(every, 0.95, 1.05)),
        "yaxis": _axis("samples at or below, %", range=[0, 102]),
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
    }
    return Figure(key, data, layout, f"Cumulative distribution of the timing samples of {case}", 320)


def stalls(key: str, case: str, shares: Sequence[tuple[str, float]]) -> Figure:
    """Stall reasons by their share of all stalls, largest on top; those of memory are hatched."""
    shown = sorted((s for s in shares if s[1] >= 0.05), key=lambda s: s[1])
    memory = [s[0] in MEMORY_STALLS for s in shown]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [s[0].replace("_", " ") + (" (memory)" if m else "") for s, m in zip(shown, memory, strict=True)],
            "x": [_round(s[1]) for s in shown],
            "text": [f"{s[1]:.1f} %" for s in shown],
            "textposition": "outside",
            "cliponaxis": False,
            "marker": {
                "color": ["@memory" if m else "@variant" for m in memory],
                "pattern": {"shape": ["/" if m else "" for m in memory], "size": 6, "solidity": 0.25},
            },
            "hovertemplate": "%{y}: %{text} of all stalls<extra></extra>",
        }
    ]
    layout = {
        "xaxis": _axis("share of all stall reasons, %", range=[0, 1.18 * max((s[1] for s in shown), default=1.0)]),
        "yaxis": {"automargin": True, "ticksuffix": " "},
        "showlegend": False,
        "bargap": 0.3,
    }
    top = ", ".join(f"{n.replace('_', ' ')} {v:.0f} %" for n, v in reversed(shown[-4:]))
    return Figure(key, data, layout, f"Bar chart of stall reasons of {case}: {top}", 100 + 22 * len(shown))


_KINDS: tuple[tuple[str, str, str], ...] = (
    ("variant", "circle", "variant"),
    ("baseline", "square", "baseline"),
    ("peer", "diamond", "peer"),
    ("fault", "x", "cannot be right"),
)


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
    across, up = _log_range(xs, 0.4, 4), _log_range(ys, 0.4, 2.2)
    left, right = 10 ** across[0], 10 ** across[1]
    data: list[Dict] = []
    dashes = {"datasheet": "dash", "at clock seen": "solid", "measured": "dot"}
    top = max((c.value for c in computes), default=None)
    for roof in bandwidths:
        end = min(right, top / roof.value * 1e3) if top else right
        name = f"{escape(roof.name)}: {roof.value:,.0f} {roof.unit}"
        data.append(_line(name, [left, end], [left * roof.value / 1e3, end * roof.value / 1e3], dashes[roof.origin]))
    fastest = max((b.value for b in bandwidths), default=None)
    for roof in computes:
        begin = max(left, roof.value / fastest * 1e3) if fastest else left
        name = f"{escape(roof.name)}: {roof.value:,.0f} {roof.unit}"
        data.append(_line(name, [begin, right], [roof.value, roof.value], dashes[roof.origin]))
    label_all = len({p.subject.variant for p, _ in points}) <= 14
    for kind, symbol, legend in _KINDS:
        for counted in ("hardware", "formula"):
            own = [
                (p, r) for p, r in points if p.counted == counted and (kind == "fault" if p.faults else kind == r)
            ]
            if not own:
                continue
            named = label_all and counted == ("hardware" if any(p.counted == "hardware" for p, _ in points) else counted)
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers+text" if named else "markers",
                    "name": f"{legend}, FLOPs by {counted}",
                    "x": [_round(p.intensity) for p, _ in own],
                    "y": [_round(p.tflops) for p, _ in own],
                    "text": [_label(p) for p, _ in own],
                    "textposition": ["top center" if i % 2 == 0 else "bottom center" for i in range(len(own))],
                    "textfont": {"size": 10},
                    "marker": {
                        "symbol": symbol + ("" if counted == "hardware" else "-open"),
                        "size": [7 if p.subject.kernel else 10 for p, _ in own],
                        "color": f"@{kind}",
                    },
                    "customdata": [_hover(p) for p, _ in own],
                    "hovertemplate": "%{customdata}<extra></extra>",
                }
            )
    layout = {
        "xaxis": _log_axis(f"FLOP per byte of {level.upper()} (log)", across),
        "yaxis": _log_axis("TFLOP/s (log)", up),
        "legend": {"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top", "font": {"size": 11}},
        "hovermode": "closest",
    }
    label = f"{level.upper()} roofline at {shape}: {len(points)} points under {len(computes)} compute roofs"
    return Figure(key, data, layout, label, 520)


def _line(name: str, xs: list[float], ys: list[float], dash: str) -> Dict:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [_round(x) for x in xs],
        "y": [_round(y) for y in ys],
        "line": {"color": "@text", "width": 1.4, "dash": dash},
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
