"""A case on its variant's page: the answer, limiters, memory traffic and source lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median
from typing import Any

from flashcore.explain import heat, roofline
from flashcore.explain.advice import Advice, precedents
from flashcore.explain.compare_records import MODES
from flashcore.explain.limiter import Remedy, phase_shares
from flashcore.explain.predictions import predicted_share
from flashcore.explain.resources import Part
from flashcore.model.record import Listing, SourcePlace
from flashcore.model.text import as_words, percentage, significant, whole
from flashcore.report.cells import (
    Cell,
    fact_cell,
    missing,
    not_applicable,
    number_cell,
    unbroken,
    whole_cell,
)
from flashcore.report.view import ShownCase

MOST_LINES = 10
QUANTILES = (1, *range(5, 100, 5), 99)  # percent
MOST_CONTEXT = 30  # lines without code shown between two with code
MOST_INSTRUCTIONS = 5
MOST_LIMITERS = 12
MOST_STEPS = 3
#: ncu's Speed of Light pair, then the SM's pipes and the memory levels: (name, fact or computed share).
SPEED_OF_LIGHT = (
    ("Compute", "sm_throughput"),
    ("Memory", "memory_throughput"),
    ("tensor pipe", "tensor_active"),
    ("FMA pipe", "fma_active"),
    ("ALU pipe", "alu_active"),
    ("LSU pipe", "lsu_active"),
    ("XU pipe", "xu_active"),
    ("shared memory", "shared_busy"),
    ("L1/TEX", "l1_throughput"),
    ("bytes of L1", "l1_busy"),
    ("L2", "l2_throughput"),
    ("DRAM", "dram_throughput"),
)
#: Paths between memories: (name, its fact, the facts that replace it). L2's have those of TMA and clusters too.
PATHS = (
    ("shared memory → registers", "shared_load_wavefronts"),
    ("registers → shared memory", "shared_store_wavefronts"),
    ("shared memory ↔ registers", "shared_wavefronts", "shared_load_wavefronts"),
    ("L1 → registers", "global_load_bytes"),
    ("registers → L1", "global_store_bytes"),
    ("L1 ↔ registers", "l1_bytes", "global_load_bytes"),
    ("L2 → SMs", "l2_read_bytes"),
    ("SMs → L2", "l2_write_bytes"),
    ("L2 ↔ SMs", "l2_bytes", "l2_read_bytes"),
    ("by TMA, L2 → shared memory", "tma_read_bytes"),
    ("by TMA, shared memory → L2", "tma_write_bytes"),
    ("between SMs of a cluster", "cluster_bytes"),
    ("atomics in L2", "atomic_bytes"),
    ("reductions in L2", "reduction_bytes"),
    ("DRAM → L2", "dram_read_bytes"),
    ("L2 → DRAM", "dram_write_bytes"),
)
#: Computed share → (its function, the counter that it needs).
_COMPUTED = {
    "shared_busy": (roofline.shared_busy, "shared_wavefronts"),
    "l1_busy": (roofline.l1_busy, "l1_bytes"),
}


@dataclass(frozen=True, slots=True)
class HotLine:
    """A source line with its machine code; ``parent`` is the parent's share of the samples, %."""

    line: heat.Line
    parent: float | None
    cells: list[Cell]
    sass: str


@dataclass(frozen=True, slots=True)
class HotKernel:
    """The hottest lines of a kernel, and the others.

    ``conflicts``: whether bank conflicts were counted per instruction. ``code``: the data for source.js, rows of lines
    and instructions, each with its heat in %; an instruction also has the indices of its line and of the calls through
    which it was inlined.
    """

    kernel: str | None
    lines: list[HotLine]
    rest: list[heat.Line]
    conflicts: bool
    code: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of one timing mode, ascending."""

    mode: str
    times: Sequence[float]

    @property
    def quantiles(self) -> list[tuple[int, float, float]]:
        """(percent of the samples at or below, the time, its difference from the median in percent)."""
        middle = median(self.times)
        ranks = ((p, self.times[min(len(self.times) * p // 100, len(self.times) - 1)]) for p in QUANTILES)
        return [(p, time, 100 * (time / middle - 1)) for p, time in ranks]


class CaseView(ShownCase):
    """The content of a page about one case."""

    @property
    def sentence(self) -> list[str]:
        """The parts of a sentence: the time, compared with the parent, the best reference and the floor."""
        time = self.time
        if (name := self.variant.time_on(self.shape)) == "ncu_duration" and (ns := self.number(name)):
            return [f"{significant(ns / 1e3)} µs under ncu (the median of its launches)"]
        if time.us is None:
            return [f"no time: {self.book.why(self.shape.time, self.subject)}"]
        parts = [f"{significant(time.us)} µs {as_words(time.mode)}" + f" ({time.note})" * bool(time.note)]
        for role in ("parent", "reference"):
            if ratio := time.over.get(role):
                pair = f" ({time.pair(role)})" * bool(time.pair(role))
                parts.append(unbroken(ratio.than(f"its {role} {time.names[role]}")) + pair)
        return [*parts, time.gap.text] if time.gap else parts

    @property
    def ranked(self) -> list[tuple[Part, float | None, list[Remedy]]]:
        """The limiters, each with its share of the parent's time and the ladder's steps that reduced it most."""
        parts, readings = self.parts.limiters[:MOST_LIMITERS], self.book.readings
        was = self.parent.parts if self.parent else None
        return [
            (x, was.share(x.kind) if was else None, list(islice(precedents(readings, x.kind, self.subject), 2)))
            for x in parts
        ]

    @property
    def steps(self) -> tuple[Advice, ...]:
        """The first pieces of advice."""
        return self.answer.steps[:MOST_STEPS]

    @property
    def speed_of_light(self) -> dict[str, Cell]:
        """Utilization of compute and memory, then of their units, as bars; empty without counters."""
        here, before = _reader(self), _reader(self.parent) if self.parent else lambda _: None
        bars = {name: replace(self._share(fact), share=here(fact), tick=before(fact)) for name, fact in SPEED_OF_LIGHT}
        return bars if any(bar.share is not None for bar in bars.values()) else {}

    def _share(self, fact: str) -> Cell:
        if fact not in _COMPUTED:
            return self.book.cell(fact, self.subject, with_unit=False)
        share, counter = _reader(self)(fact), self.book.cell(_COMPUTED[fact][1], self.subject)
        if share is not None:
            return number_cell(share, title=f"{_COMPUTED[fact][1]} over its maximum in the elapsed cycles")
        return counter if counter.kind == "missing" else missing("this GPU's peak or the elapsed cycles are unmeasured")

    @property
    def phases(self) -> dict[str, Cell]:
        """Each phase's share of warp samples, and its prediction."""
        record, bars = self.book.record, {}
        before = phase_shares(record, self.parent.subject) if self.parent else {}
        for phase, share in phase_shares(record, self.subject).items():
            prediction = predicted_share(self.variant, phase, self.shape.name)
            text = "" if prediction is None or prediction.after is None else f"predicted {prediction.after:g} %"
            parent = before[phase].number if phase in before else None
            bars[phase] = replace(fact_cell(share, with_unit=False), share=share.number, tick=parent, detail=text)
        return bars

    @property
    def samples(self) -> list[Samples]:
        """The timing samples of each mode."""
        times = (self.book.record.time(self.subject, mode) for mode in MODES)
        return [Samples(as_words(time.mode), sorted(time.samples)) for time in times if time.samples]

    @property
    def memory(self) -> dict[str, Cell]:
        """The bytes on each path between memories, as shares of the most; a total only without its parts."""
        paths = [p for p in PATHS if self.number(p[1]) and all(self.number(x) is None for x in p[2:])]
        most = max((_bytes(self, fact) or 0.0 for _, fact, *_ in paths), default=0.0) or 1.0

        def share(case: ShownCase | None, fact: str) -> float | None:
            size = _bytes(case, fact) if case else None
            return None if size is None else 100 * size / most

        return {
            name: replace(
                self.book.cell(fact, self.subject),
                share=share(self, fact),
                tick=share(self.parent, fact),
                detail="passes" * ("wavefronts" in fact),
            )
            for name, fact, *_ in paths
        }

    @property
    def heat(self) -> list[HotKernel]:
        """The hottest lines of each kernel, with their machine instructions."""
        before = self.book.listings(self.parent.subject) if self.parent else []
        return [_kernel(*listing, before, self.book.sources) for listing in self.book.listings(self.subject)]


def _bytes(case: ShownCase, fact: str) -> float | None:
    """A fact in bytes: a pass through shared memory has 128."""
    value = case.number(fact)
    return value and value * (128 if "wavefronts" in fact else 1)


def _reader(case: ShownCase) -> Callable[[str], float | None]:
    """A function that returns the value of a fact or computed share."""
    record, subject = case.book.record, case.subject
    return lambda fact: _COMPUTED[fact][0](record, subject) if fact in _COMPUTED else case.number(fact)


# --- source lines -----------------------------------------------------------------------------------


def _kernel(
    listing: Listing,
    ordered: Sequence[heat.Line],
    before: Sequence[tuple[Listing, Sequence[heat.Line]]],
    sources: Mapping[str, int],
) -> HotKernel:
    same = (x for parent, x in before if parent.subject.kernel == listing.subject.kernel)
    shares = heat.shares(next(same, before[0][1] if before else ()))
    lines = heat.hottest(ordered)
    counted = any(x.conflicts is not None for x in lines)
    hot = [HotLine(x, shares.get(x.source), _line(x, counted), _sass(x)) for x in lines[:MOST_LINES]]
    return HotKernel(listing.subject.kernel, hot, lines[MOST_LINES:], counted, _code(listing, ordered, sources))


def _code(listing: Listing, ordered: Sequence[heat.Line], sources: Mapping[str, int]) -> dict[str, Any]:
    """The listing's lines and instructions as columns, which compress better than rows. A line's text is 0 if it is
    that of its file in ``sources``."""
    sampled, total = any(x.samples for x in ordered), sum(x.executed for x in ordered)

    def row(text: str | int, x: heat.Line) -> tuple[Any, ...]:
        return text, round(x.share if sampled else 100 * x.executed / (total or 1.0), 2), _why(x)

    files = {name: text.split("\n") for name, text in listing.files.items()}
    lines: list[tuple[Any, ...]] = []
    places: dict[SourcePlace, int] = {}
    shown = ("", 0)
    for x in ordered:
        text = files.get(x.file, [])[: x.number]
        if shown[0] == x.file and x.number - shown[1] <= MOST_CONTEXT:
            lines += ((x.file, n, 0, 0, "") for n in range(shown[1] + 1, len(text)))
        places[x.file, x.number, x.source] = len(lines)
        recorded = bool(text) and text[-1].strip() == x.source
        lines.append((x.file, x.number, *row(0 if recorded else x.source, x)))
        shown = (x.file, x.number)
    # Differences of offsets, which are nearly all equal, compress to a third of the offsets' size.
    offsets = [0, *(i.offset for i in listing.instructions[:-1])]
    return {
        "by": "samples" if sampled else "executed instructions" if total else "",
        "files": {name: sources[text] for name, text in listing.files.items()},
        "lines": [*zip(*lines, strict=True)],
        "code": [
            *zip(
                *(
                    (i.offset - before, *row(i.text, x), [places[p] for p in ((i.file, i.line, i.source), *i.calls)])
                    for before, i, x in zip(offsets, listing.instructions, heat.alone(listing), strict=True)
                ),
                strict=True,
            )
        ],
    }


def _stall(x: heat.Line) -> str:
    return f"{as_words(x.stall[0])} {percentage(x.stall[1])}" if x.stall else ""


def _why(x: heat.Line) -> str:
    """The line's costs: inlined code, stall reason, bank conflicts, local memory."""
    parts = (
        f"inlined code {percentage(x.inlined, 1)}" if x.inlined else "",
        _stall(x),
        f"{whole(x.conflicts)} bank conflicts" if x.conflicts else "",
        f"local memory {whole(x.local)} ×" if x.local else "",
    )
    return ", ".join(filter(None, parts))


def _count(value: float | None) -> Cell:
    """The cell of a count that should be 0, marked if it is not."""
    if value is None:
        return missing("ncu did not count wavefronts per instruction")
    return whole_cell(value, "waived" if value else "")


def _line(line: heat.Line, counted: bool) -> list[Cell]:
    stall = _stall(line)
    return [
        Cell(stall, sort=stall) if stall else not_applicable("no warp stalled here"),
        whole_cell(line.executed),
        *([_count(line.conflicts)] if counted else []),
        _count(line.local),
    ]


def _sass(line: heat.Line) -> str:
    """The line's hottest instructions as a text table."""
    hottest = sorted(line.instructions, key=lambda i: -i.values.get("samples", 0))[:MOST_INSTRUCTIONS]
    executed = {i.offset: whole(i.values.get("executed", 0)) for i in hottest}
    wide = max(map(len, ("executed", *executed.values())))
    rows = [f"samples {'executed':>{wide}}  offset instruction"]
    for i in sorted(hottest, key=lambda i: i.offset):
        rows.append(f"{i.values.get('samples', 0):>7,.0f} {executed[i.offset]:>{wide}}  {i.offset:05x}  {i.text}")
    more = len(line.instructions) - len(hottest)
    return "\n".join([*rows, f"and {more} more"] if more else rows)
