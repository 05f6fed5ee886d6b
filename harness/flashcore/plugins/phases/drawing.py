"""The picture of a timeline: a lane for each warp, grouped by block and role, in plain SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from markupsafe import Markup

from flashcore.model.groups import grouped
from flashcore.plugins.phases.timeline import Timeline
from flashcore.report.drawings import tenth

COLORS = 8  # phases after so many have the colors of the first ones again
_WIDTH, _LEFT, _LANE, _TICKS = 1000, 130, 13, 8


def drawing(line: Timeline) -> Markup:
    """Phases over time in ns. A path holds all times that a warp is in a phase."""
    scale = (_WIDTH - _LEFT - 10) / line.ns
    parts, y, drawn = [], 0, (-1, "")
    lanes = grouped(((s.block, s.role, s.warp, s.sm), s) for s in line.spans)
    for (block, role, warp, sm), spans in sorted(lanes.items()):
        if block != drawn[0]:
            y += 20
            parts.append(f'<text class="strong" x="0" y="{y}">block {block}, SM {sm}</text>')
        y += _LANE if (block, role) == drawn else _LANE + 5
        drawn = block, role
        parts.append(f'<text x="0" y="{y}">{escape(role)}, warp {warp}</text>')
        for number, phase in enumerate(line.phases):
            boxes = (
                (tenth(_LEFT + s.start * scale), tenth((s.end - s.start) * scale)) for s in spans if s.phase == phase
            )
            if path := "".join(f"M{x} {y}v-10h{width}v10z" for x, width in boxes):
                parts.append(f'<path class="phase{number % COLORS}" d="{path}"><title>{escape(phase)}</title></path>')
    for i in range(_TICKS + 1):
        ns = line.ns * i / _TICKS
        x = tenth(_LEFT + ns * scale)
        end = "end" if i == _TICKS else "middle"
        parts.append(f'<path class="grid" d="M{x} 4V{y}"/><text x="{x}" y="{y + 14}" class="{end}">{ns:,.0f} ns</text>')
    label = "Phases of each recorded warp over time in ns"
    return Markup(
        f'<svg class="timeline" viewBox="0 0 {_WIDTH} {y + 20}" width="{_WIDTH}" height="{y + 20}" role="img" '
        f'aria-label="{label}"><title>{label}</title>{"".join(parts)}</svg>'
    )


def legend(phases: Sequence[str]) -> Markup:
    """The colors of the phases."""
    items = (f'<li><i class="phase{i % COLORS}"></i>{escape(name)}</li>' for i, name in enumerate(phases))
    return Markup(f'<ul class="phases">{"".join(items)}</ul>')
