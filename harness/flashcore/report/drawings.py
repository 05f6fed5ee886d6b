"""Small pictures in plain SVG, in the colours of the style sheet: they need no script, and print.

All are 360 wide, so that a phone shows them as they are.
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
_COLOURS = {"isolated": "isolated", "back_to_back": "backtoback", "cold": "cold", "eager": "eager"}


def samples(case: str, series: Sequence[tuple[str, Sequence[float]]]) -> Drawing:
    """The share of samples at or below each time, by mode, each against its own median.

    Steps show levels, slopes show spread; an axis in microseconds would show where the modes are and hide how they
    scatter.
    """
    apart = [(mode, median(v), [100 * (x / median(v) - 1) for x in sorted(v)]) for mode, v in series]
    recorded = {mode: sorted(v) for mode, v in series}
    table: list[list[Any]] = [["mode", "percent of samples at or below", "µs"]]
    edges = [x for _, _, v in apart for x in (v[int(0.01 * (len(v) - 1))], v[int(0.98 * (len(v) - 1))])]
    low, high = min(edges), max(edges)
    room = 0.06 * (high - low) or 0.1
    low, high = low - room, high + room

    def x(value: float) -> float:
        return tenth(_LEFT + (_RIGHT - _LEFT) * (min(max(value, low), high) - low) / (high - low))

    def y(share: float) -> float:
        return tenth(_BOTTOM - (_BOTTOM - _TOP) * share)

    parts = []
    for share in (0, 0.5, 1):
        parts.append(f'<path class="grid" d="M{_LEFT} {y(share)}H{_RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{tenth(y(share) + 4)}" class="end">{100 * share:.0f} %</text>')
    for value in (low + room, 0.0, high - room):
        if value and abs(x(value) - x(0.0)) < 50:
            continue  # its label would overlap that of the median
        parts.append(f'<text x="{x(value)}" y="{_BOTTOM + 14}" class="middle">{value:+.2g} %</text>')
    for i, (mode, middle, values) in enumerate(apart):
        n = len(values)
        ranks = sorted({round(k * (n - 1) / 30) for k in range(31)}) if n > 31 else range(n)
        path = f"M{x(values[0])} {y(0)}" + "".join(f"V{y((r + 1) / n)}H{x(values[r])}" for r in ranks)
        parts.append(f'<path class="{_COLOURS.get(mode, "eager")}" d="{path}"/>')
        table += [[mode, round(100 * (r + 1) / n, 2), recorded[mode][r]] for r in ranks]
        words = f"{mode.replace('_', ' ')}, median {significant(middle)} µs, {n:,} samples"
        parts.append(f'<path class="{_COLOURS.get(mode, "eager")}" d="M{_LEFT} {_BOTTOM + 32 + 15 * i}h18"/>')
        parts.append(f'<text x="{_LEFT + 24}" y="{_BOTTOM + 36 + 15 * i}">{escape(words)}</text>')
    label = f"Timing samples of {case} against their medians"
    return Drawing(svg(label, _BOTTOM + 44 + 15 * len(apart), parts), table)


# --- memory -------------------------------------------------------------------------------------------


#: Where an arrow stands, and the two figures beside it: fact, word, and the fact of how busy it is.
_FLOWS = (
    (30, 42, (("shared_wavefronts", "passes", "shared_busy"), ("bank_conflicts", "conflicts", ""))),
    (300, 42, (("l1_bytes", "", ""), ("l1_hit", "hit", ""))),
    (300, 140, (("l2_bytes", "", "l2_throughput"), ("l2_hit", "hit", ""))),
    (300, 238, (("dram_read_bytes", "read", "dram_throughput"), ("dram_write_bytes", "written", ""))),
)
_BOXES = (("registers", 10, 8, 340), ("shared memory", 10, 106, 150), ("L1", 200, 106, 150), ("L2", 200, 204, 150),
          ("DRAM", 200, 302, 150))  # fmt: skip


def memory(case: str, own: Read, parent: Read | None) -> Drawing:
    """What moves between registers, shared memory, L1, L2 and DRAM, with hit rates and how busy each is; the
    parent's figures below, smaller.

    Args:
        own, parent: counter (or ``shared_busy``, %) → its value in the unit of the catalogue; ``None`` where it was
            not measured.
    """
    parts = [
        f'<rect x="{x}" y="{y}" width="{w}" height="34" rx="5"/>'
        f'<text x="{tenth(x + w / 2)}" y="{y + 22}" class="middle strong">{name}</text>'
        for name, x, y, w in _BOXES
    ]
    table: list[list[Any]] = [["counter", "value", "parent"]]
    for x, y, facts in _FLOWS:
        parts += _flow(x, y, facts, own, parent)
        names = [n for fact, _, busy in facts for n in (fact, busy) if n]
        table += [[n, own(n), parent(n) if parent else None] for n in names]
    label = f"Memory chart of {case}: bytes between registers, shared memory, L1, L2 and DRAM"
    return Drawing(svg(label, 344, parts), table)


def _flow(x: int, y: int, facts: Sequence[tuple[str, str, str]], own: Read, parent: Read | None) -> list[str]:
    """An arrow with two figures beside it, and the parent's below each."""
    parts = [f'<path class="flow" d="M{x} {y + 4}v54m-5 -7l5 8l5 -8"/>']
    for i, (fact, word, busy) in enumerate(facts):
        share = own(busy) if busy else None
        said = _said(fact, own(fact), word) + ("" if share is None else f", {share:.0f} % busy")
        # What is left in the picture has its words on the right of it.
        at, side = (x - 10, "end") if x > WIDTH / 2 else (x + 12, "begin")
        parts.append(f'<text x="{at}" y="{y + 16 + 25 * i}" class="{side}">{escape(said)}</text>')
        if parent is not None:
            was = "parent " + _said(fact, parent(fact), "")
            parts.append(f'<text x="{at}" y="{y + 27 + 25 * i}" class="{side} was">{escape(was)}</text>')
    return parts


def _said(fact: str, value: float | None, word: str) -> str:
    if value is None:
        return f"{word} unmeasured".strip()
    unit = "B" if fact.endswith("bytes") else "pct" if fact.endswith("hit") else "1"
    text = " ".join(quantity(float(f"{value:.4g}"), unit)).strip()
    return f"{text} {word}".strip()


def svg(label: str, height: int, parts: Sequence[str]) -> Markup:
    """The picture; its label is also for screen readers."""
    shown = escape(label)
    return Markup(
        f'<svg class="drawing" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="{shown}"><title>{shown}</title>{"".join(parts)}</svg>'
    )
