"""Small pictures in plain SVG, in the colors of the style sheet: they need no script, and print.

All are 360 wide, so that a phone shows them unscaled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Any

from markupsafe import Markup

from flashcore.model.text import quantity, significant

Read = Callable[[str], float | None]
WIDTH = 360


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture, and the recorded values it was made from, headings first."""

    svg: Markup
    table: list[list[Any]]


def tenth(value: float) -> float:
    """A coordinate to a tenth of a pixel, as short as it can be written."""
    short = round(value, 1)
    return int(short) if short == int(short) else short


# --- samples ------------------------------------------------------------------------------------------

_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 350, 12, 178
_CLASSES = {"isolated": "isolated", "back_to_back": "backtoback", "cold": "cold"}
_MOST_STEPS = 30


def samples(case: str, series: Sequence[tuple[str, Sequence[float]]]) -> Drawing:
    """The share of samples at or below each time, by mode, each against its own median.

    Steps show levels, slopes show spread; an axis in microseconds would show the modes' places and hide their spread.
    """
    modes = [(mode, median(times), sorted(times)) for mode, times in series]
    shares = [[100 * (time / middle - 1) for time in times] for _, middle, times in modes]
    table: list[list[Any]] = [["mode", "percent of samples at or below", "µs"]]
    edges = [x for v in shares for x in (v[int(0.01 * (len(v) - 1))], v[int(0.98 * (len(v) - 1))])]
    margin = 0.06 * (max(edges) - min(edges)) or 0.1
    low, high = min(edges) - margin, max(edges) + margin

    def x(value: float) -> float:
        return tenth(_LEFT + (_RIGHT - _LEFT) * (min(max(value, low), high) - low) / (high - low))

    def y(share: float) -> float:
        return tenth(_BOTTOM - (_BOTTOM - _TOP) * share)

    parts = []
    for share in (0, 0.5, 1):
        parts.append(f'<path class="grid" d="M{_LEFT} {y(share)}H{_RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{tenth(y(share) + 4)}" class="end">{100 * share:.0f} %</text>')
    for value in (low + margin, 0.0, high - margin):
        if value and abs(x(value) - x(0.0)) < 50:
            continue  # its label would overlap the median's
        parts.append(f'<text x="{x(value)}" y="{_BOTTOM + 14}" class="middle">{value:+.2g} %</text>')
    for i, ((mode, middle, times), values) in enumerate(zip(modes, shares, strict=True)):
        n, style = len(times), _CLASSES.get(mode, "eager")
        steps = range(_MOST_STEPS + 1)
        ranks = sorted({round(k * (n - 1) / _MOST_STEPS) for k in steps}) if n > len(steps) else range(n)
        path = f"M{x(values[0])} {y(0)}" + "".join(f"V{y((r + 1) / n)}H{x(values[r])}" for r in ranks)
        parts.append(f'<path class="{style}" d="{path}"/>')
        table += [[mode, round(100 * (r + 1) / n, 2), times[r]] for r in ranks]
        text = f"{mode.replace('_', ' ')}, median {significant(middle)} µs, {n:,} samples"
        parts.append(f'<path class="{style}" d="M{_LEFT} {_BOTTOM + 32 + 15 * i}h18"/>')
        parts.append(f'<text x="{_LEFT + 24}" y="{_BOTTOM + 36 + 15 * i}">{escape(text)}</text>')
    label = f"Timing samples of {case} against their medians"
    return Drawing(svg(label, _BOTTOM + 44 + 15 * len(modes), parts), table)


# --- memory -------------------------------------------------------------------------------------------


#: The place of an arrow, and the two figures next to it: fact, word, and the fact of how busy it is.
_FLOWS = (
    (30, 42, (("shared_wavefronts", "passes", "shared_busy"), ("bank_conflicts", "conflicts", ""))),
    (300, 42, (("l1_bytes", "", ""), ("l1_hit", "hit", ""))),
    (300, 140, (("l2_bytes", "", "l2_throughput"), ("l2_hit", "hit", ""))),
    (300, 238, (("dram_read_bytes", "read", "dram_throughput"), ("dram_write_bytes", "written", ""))),
)
#: Name, left, top and width of each box.
_BOXES = (
    ("registers", 10, 8, 340),
    ("shared memory", 10, 106, 150),
    ("L1", 200, 106, 150),
    ("L2", 200, 204, 150),
    ("DRAM", 200, 302, 150),
)


def memory(case: str, read: Read, read_parent: Read | None, *, tma: bool = False) -> Drawing:
    """The traffic between registers, shared memory, L1, L2 and DRAM, with hit rates and how busy each is; the
    parent's figures below, smaller.

    Args:
        tma: whether it copies tiles from L2 to shared memory past L1; L2's bytes then are those of both ways.
        read, read_parent: counter (or ``shared_busy``, %) → its value in the catalogue's unit; ``None`` if unmeasured.
    """
    parts = [
        f'<rect x="{x}" y="{y}" width="{w}" height="34" rx="5"/>'
        f'<text x="{tenth(x + w / 2)}" y="{y + 22}" class="middle strong">{name}</text>'
        for name, x, y, w in _BOXES
    ]
    if tma:
        parts.append('<path class="flow" d="M85 144V221H196m-7 -5l8 5l-8 5"/>')
        parts.append('<text x="20" y="240" class="begin">TMA, past L1</text>')
    table: list[list[Any]] = [["counter", "value", "parent"]]
    for x, y, facts in _FLOWS:
        parts.append(f'<path class="flow" d="M{x} {y + 4}v54m-5 -7l5 8l5 -8"/>')
        # Figures in the right half of the picture stand on the left of their arrow.
        at, side = (x - 10, "end") if x > WIDTH / 2 else (x + 12, "begin")
        for row, (fact, word, busy) in zip((y, y + 25), facts, strict=True):
            share = read(busy) if busy else None
            word = "both ways" if tma and fact == "l2_bytes" else word
            text = _figure(fact, read(fact), word) + ("" if share is None else f", {share:.0f} % busy")
            parts.append(f'<text x="{at}" y="{row + 16}" class="{side}">{escape(text)}</text>')
            if read_parent is not None:
                text = f"parent {_figure(fact, read_parent(fact), '')}"
                parts.append(f'<text x="{at}" y="{row + 27}" class="{side} was">{escape(text)}</text>')
            table += [[n, read(n), read_parent(n) if read_parent else None] for n in (fact, busy) if n]
    label = f"Memory chart of {case}: bytes between registers, shared memory, L1, L2 and DRAM"
    return Drawing(svg(label, 344, parts), table)


def _figure(fact: str, value: float | None, word: str) -> str:
    if value is None:
        return f"{word} unmeasured".strip()
    unit = "B" if fact.endswith("bytes") else "pct" if fact.endswith("hit") else "1"
    return " ".join(filter(None, (*quantity(value, unit), word)))


def svg(label: str, height: int, parts: Sequence[str]) -> Markup:
    """The picture; its label is also for screen readers."""
    shown = escape(label)
    return Markup(
        f'<svg class="drawing" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="{shown}"><title>{shown}</title>{"".join(parts)}</svg>'
    )
