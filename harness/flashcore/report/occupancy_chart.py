"""Two small pictures of blocks per SM over registers and over shared memory, with the present and the next step.

Plain SVG in the style sheet's colors: it needs no script, follows light and dark mode, and prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from markupsafe import Markup

from flashcore.chips import occupancy
from flashcore.explain.explain import Step
from flashcore.report.drawings import tenth

_Scale = Callable[[float], float]

WIDTH, HEIGHT = 360, 150
LEFT, RIGHT, TOP, BOTTOM = 30, 350, 18, 112  # the plot area


@dataclass(frozen=True, slots=True)
class _Panel:
    """One resource, with its present and next amount.

    Args:
        scale: the axis shows the resource divided by this.
        stairs: (end, blocks) of each step at the other resource's present amount; ``alone``: without the other's limit.
    """

    title: str
    unit: str
    scale: int
    tick: int
    now: int
    next: int
    stairs: Sequence[tuple[int, int]]
    alone: Sequence[tuple[int, int]]

    def number(self, value: int) -> str:
        return f"{value / self.scale:,.1f}".removesuffix(".0")

    def quantity(self, value: int) -> str:
        return f"{self.number(value)} {self.unit}"


def charts(step: Step) -> Markup:
    """The two pictures side by side; empty if occupancy is unmeasured."""
    arch = step.subject.arch
    if step.then is None or arch is None or step.now.blocks_per_sm is None:
        return Markup("")
    threads, registers, smem = step.threads, step.registers, step.smem

    def stairs(resource: Literal["registers", "shared memory"], r: int, s: int) -> tuple[tuple[int, int], ...]:
        return occupancy.staircase(arch, resource, threads, r, s)

    panels = (
        _Panel(
            title="registers per thread",
            unit="registers",
            scale=1,
            tick=32,
            now=registers,
            next=registers - step.then.fewer_registers,
            stairs=stairs("registers", registers, smem),
            alone=stairs("registers", registers, 0),
        ),
        _Panel(
            title="shared memory per block, KiB",
            unit="KiB of shared memory",
            scale=occupancy.KIB,
            tick=32 * occupancy.KIB,
            now=smem,
            next=smem - step.then.fewer_smem,
            stairs=stairs("shared memory", registers, smem),
            alone=stairs("shared memory", 1, smem),
        ),
    )
    drawn = "".join(_svg(panel, step.now.blocks_per_sm, step.then.target) for panel in panels)
    return Markup(f'<div class="stairs">{drawn}</div>')


def _svg(panel: _Panel, blocks: int, target: int | None) -> str:
    most = max(panel.stairs[-1][0], panel.now)
    top = max(4, min(max(n for _, n in panel.alone), 2 * ((target or blocks) + 1)))

    def x(value: float) -> float:
        return tenth(LEFT + (RIGHT - LEFT) * value / most)

    def y(count: float) -> float:
        return tenth(BOTTOM - (BOTTOM - TOP) * count / top)

    def path(stairs: Sequence[tuple[int, int]]) -> str:
        """The path from the first step within the picture; higher steps enter at the top."""
        d = ""
        before = 0
        for end, count in stairs:
            if count <= top:
                d += f"{'V' if d else f'M{x(before)} {y(top if before else count)}V'}{y(count)}H{x(end)}"
            before = end
        return d

    goal = target if panel.next < panel.now else None
    label = f"{panel.quantity(panel.now)}: {_blocks(blocks)} per SM"
    label += f"; {panel.quantity(panel.next)} for {_blocks(goal)}" if goal is not None else ""
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}"><title>{escape(label)}</title>',
        f'<text x="2" y="11">blocks per SM</text>'
        f'<text x="{RIGHT}" y="11" class="end">dotted: without the other resource\'s limit</text>'
        f'<text x="{RIGHT}" y="{HEIGHT - 4}" class="end">{escape(panel.title)}</text>',
        *_grid(panel, most, top, x, y),
        f'<path class="alone" d="{path(panel.alone)}"/><path class="step" d="{path(panel.stairs)}"/>',
    ]
    # The stairs descend to the right, so labels fit above them to the right and below them to the left.
    if goal is not None:
        parts.append(f'<circle cx="{x(panel.next)}" cy="{y(goal)}" r="4.5"/>')
        parts.append(_label(x(panel.next), y(goal) - 5, f"next: {panel.number(panel.next)}", x(panel.next) > 270))
    before = x(panel.now) > 100
    above = y(blocks) + 15 >= BOTTOM or (goal is None and not before)
    parts.append(f'<circle class="now" cx="{x(panel.now)}" cy="{y(blocks)}" r="4"/>')
    parts.append(_label(x(panel.now), y(blocks) + (-5 if above else 15), f"now: {panel.number(panel.now)}", before))
    return "".join([*parts, "</svg>"])


def _grid(panel: _Panel, most: int, top: int, x: _Scale, y: _Scale) -> Iterator[str]:
    counts = sorted({0, *range(0, top + 1, max(1, top // 4))})
    yield f'<path class="grid" d="{"".join(f"M{LEFT} {y(count)}H{RIGHT}" for count in counts)}"/>'
    for count in counts:
        yield f'<text x="{LEFT - 5}" y="{tenth(y(count) + 4)}" class="end">{count}</text>'
    for value in range(0, most + 1, panel.tick):
        yield f'<text x="{x(value)}" y="{BOTTOM + 14}" class="middle">{value // panel.scale}</text>'


def _label(x: float, y: float, text: str, before: bool) -> str:
    at, side = (x - 7, "end mark") if before else (x + 7, "mark")
    return f'<text x="{tenth(at)}" y="{tenth(y)}" class="{side}">{escape(text)}</text>'


def _blocks(count: int | None) -> str:
    return f"{count} block{'s' if count != 1 else ''}"
