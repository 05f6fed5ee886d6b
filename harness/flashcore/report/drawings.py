"""Small pictures as plain SVG in the style sheet's colors, which need no scripts and print well.

All are 360 pixels wide, so that a phone shows them unscaled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Any, Literal

from markupsafe import Markup

from flashcore.chips import occupancy
from flashcore.explain.explain import Step
from flashcore.model.text import quantity, significant

Read = Callable[[str], float | None]
WIDTH = 360


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture, and the values it shows, headings first."""

    svg: Markup
    table: list[list[Any]]


def tenth(value: float) -> float:
    """A coordinate rounded to a tenth of a pixel, as an integer if possible."""
    short = round(value, 1)
    return int(short) if short == int(short) else short


# --- samples ------------------------------------------------------------------------------------------

_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 350, 12, 178
_CLASSES = {"isolated": "isolated", "back_to_back": "backtoback", "cold": "cold"}
_MOST_STEPS = 30


def samples(case: str, series: Sequence[tuple[str, Sequence[float]]]) -> Drawing:
    """Each mode's cumulative distribution of samples, relative to its median.

    Steps show levels, slopes show spread, which an axis in microseconds would hide.
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


@dataclass(frozen=True, slots=True)
class _Link:
    """The arrows between two boxes: one per direction, or one for both if only their sum is counted.

    Args:
        left, top, bottom: the arrows' position; the text is to their right.
        reads, writes, both: facts of bytes, or of shared-memory wavefronts.
        busy: the fact of the link's share of its peak, %; empty if the peak is unknown.
        more: another fact and its label.
        within: facts of bytes included in ``reads`` and ``writes`` but drawn on other paths.
    """

    left: int
    top: int
    bottom: int
    reads: str
    writes: str
    both: str = ""
    busy: str = ""
    more: tuple[str, str] = ("", "")
    within: tuple[Sequence[str], ...] = ()
    name: str = ""


_LINKS = (
    _Link(
        *(18, 42, 126, "shared_load_wavefronts", "shared_store_wavefronts", "shared_wavefronts", "shared_busy"),
        ("bank_conflicts", "conflicts"),
    ),
    _Link(200, 42, 126, "global_load_bytes", "global_store_bytes", "l1_bytes", "l1_busy", ("l1_hit", "hit")),
    _Link(
        *(200, 160, 276, "l2_read_bytes", "l2_write_bytes", "l2_bytes", "l2_throughput", ("l2_hit", "hit")),
        (
            ("tma_read_bytes", "cluster_bytes"),
            ("tma_write_bytes", "atomic_bytes", "reduction_bytes"),
        ),
    ),
    _Link(100, 310, 386, "dram_read_bytes", "dram_write_bytes", "", "dram_throughput"),
)
#: Optional paths, drawn if their counters are not 0.
_TMA = _Link(18, 160, 276, "tma_read_bytes", "tma_write_bytes", name="TMA ")
_ATOMICS = ("atomic_bytes", "reduction_bytes")
#: Name, left, top and width of each box.
_BOXES = (
    ("registers", 10, 8, 346),
    ("shared memory", 10, 126, 150),
    ("L1", 200, 126, 156),
    ("L2", 10, 276, 346),
    ("DRAM", 10, 386, 346),
)
_WIDEST, _PASS = 13, 128  # width of the widest arrow in pixels; bytes of a shared-memory wavefront


def memory(case: str, read: Read, read_parent: Read | None, *, tma: bool = False) -> Drawing:
    """The traffic between registers, shared memory, L1, L2 and DRAM. An arrow's width shows bytes, its filled part the
    share of the link's peak; smaller text shows the parent's values. TMA copies bypass L1.

    Args:
        tma: whether the code uses TMA; without TMA counters, its bytes are part of L2's.
        read, read_parent: counter (or a computed share, %) → value in the catalogue's unit; ``None`` if unmeasured.
    """
    table: list[list[Any]] = [["counter", "value", "parent"]]

    def recorded(*facts: str) -> None:
        table.extend([n, read(n), read_parent(n) if read_parent else None] for n in facts if n)

    parts = [
        f'<rect x="{x}" y="{y}" width="{w}" height="34" rx="5"/>'
        f'<text x="{tenth(x + w / 2)}" y="{y + 22}" class="middle strong">{name}</text>'
        for name, x, y, w in _BOXES
    ]
    links = [*_LINKS, _TMA] if tma or _moved(read, _TMA.reads, _TMA.writes) else list(_LINKS)
    most = max((_bytes(n, x) for link in links for _, n, x in _arrows(link, read)), default=0.0) or 1.0
    for link in links:
        arrows, share = _arrows(link, read), read(link.busy) if link.busy else None
        before = {fact: value for _, fact, value in _arrows(link, read_parent)} if read_parent else {}
        lines = []
        for i, (word, fact, value) in enumerate(arrows):
            middle = link.left + (16 if len(arrows) == 1 else 8 + 23 * i)
            parts.append(_arrow(middle, link.top, link.bottom, _bytes(fact, value) / most, word, link.busy, share))
            lines.append((link.name + _figure(fact, value, word), ""))
            if fact in before:
                lines.append((f"parent {_figure(fact, before[fact], '')}", "was"))
        if not arrows:
            parts.append(f'<path class="unknown" d="M{link.left + 16} {link.top + 4}V{link.bottom - 4}"/>')
            lines.append((f"{link.name}unmeasured", ""))
            if link is _TMA:
                lines.append(("part of L2's bytes", ""))
        if share is not None:
            lines.append((f"{share:.0f} % of its peak", ""))
        if link.more[0]:
            lines.append((_figure(link.more[0], read(link.more[0]), link.more[1]), ""))
        if link.within and _moved(read, *_ATOMICS):
            size = sum(read(n) or 0.0 for n in _ATOMICS)
            parts.append(_arrow(351, link.top, link.bottom, size / most, "written"))
            lines.append((_figure(_ATOMICS[0], size, "atomics"), ""))
            recorded(*_ATOMICS)
        y = link.top + (54 if link is _TMA else 3)
        for text, style in lines:
            y += 11 if style else 14
            parts.append(f'<text x="{link.left + 44}" y="{y}" class="{style}">{escape(text)}</text>')
        recorded(*[fact for _, fact, _ in arrows] or [link.both or link.reads], link.busy, link.more[0])
    if between := read("cluster_bytes"):
        parts.append('<path class="flow" d="M104 160v14h22v-10m-4 5l4 -6l4 6"/>')
        words = enumerate((_figure("cluster_bytes", between, ""), "in the cluster"))
        parts += [f'<text x="134" y="{176 + 13 * i}">{escape(text)}</text>' for i, text in words]
        recorded("cluster_bytes")
    label = f"Memory chart of {case}: bytes between registers, shared memory, L1, L2 and DRAM"
    return Drawing(svg(label, 428, parts), table)


def _moved(read: Read, *facts: str) -> bool:
    return any(read(fact) for fact in facts)


def _arrows(link: _Link, read: Read) -> list[tuple[str, str, float]]:
    """(label, fact, value) of each arrow; empty if nothing was counted."""
    reads, writes = read(link.reads), read(link.writes)
    if reads is None or writes is None:
        total = read(link.both) if link.both else None
        return [] if total is None else [("both ways", link.both, total)]
    rest = [sum(read(other) or 0.0 for other in others) for others in link.within or ((), ())]
    return [("read", link.reads, max(reads - rest[0], 0)), ("written", link.writes, max(writes - rest[1], 0))]


def _bytes(fact: str, value: float) -> float:
    return value * (_PASS if "wavefronts" in fact else 1)


def _arrow(x: int, top: int, bottom: int, size: float, word: str, busy: str = "", share: float | None = None) -> str:
    """An arrow, up for reads and down for writes, filled from its start by its share of the peak, %.

    ``size``: its bytes over the widest arrow's.
    """
    half, (start, end) = tenth(max(_WIDEST * size, 2.5 if size else 0.5) / 2), (top + 3, bottom - 3)
    up, down = word != "written", word != "read"
    first, last = start + 8 * up, end - 8 * down
    full = tenth((last - first) * min(share or 0.0, 100.0) / 100)
    wide = tenth(2 * half)
    head = tenth(half + 4)
    tips = [f"M{x} {start}l{head} 8h{tenth(-2 * head)}z"] * up + [f"M{x} {end}l{head} -8h{tenth(-2 * head)}z"] * down
    box = f'x="{tenth(x - half)}" width="{wide}"'
    return (
        f'<rect class="link{" unknown" if share is None else ""}" {box} y="{first}" height="{last - first}"/>'
        f'<rect class="share {busy.split("_")[0]}" {box} y="{tenth(last - full) if up else first}" height="{full}"/>'
        f'<path class="head" d="{"".join(tips)}"/>'
    )


def _figure(fact: str, value: float | None, word: str) -> str:
    if value is None:
        return f"{word} unmeasured".strip()
    unit = "B" if fact.endswith("bytes") else "pct" if fact.endswith("hit") else "1"
    word = f"passes {word}".strip() if fact.endswith("wavefronts") else word
    return " ".join(filter(None, (*quantity(value, unit), word)))


def svg(label: str, height: int, parts: Sequence[str]) -> Markup:
    """The SVG element; the label is its title and for screen readers."""
    shown = escape(label)
    return Markup(
        f'<svg class="drawing" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="{shown}"><title>{shown}</title>{"".join(parts)}</svg>'
    )


# --- occupancy ----------------------------------------------------------------------------------------

_Scale = Callable[[float], float]

HEIGHT = 150  # of a chart of occupancy
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
