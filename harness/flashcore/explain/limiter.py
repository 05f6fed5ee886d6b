"""Divides a case's time into parts, of which the largest limits it. It is the only model of a limiter and its share.

The parts are the launch, the busiest resource, SMs without blocks or warps, and waits. The rest is unattributed. Shares
are never rescaled to fill the time. What takes place while a part does, such as waits for a busy resource, overlaps it
and is no part. Without counters, only the launch, a resource by the problem's formulas, and idle SMs are known; without
times, only idle SMs, as a share of the GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from flashcore.explain import roofline
from flashcore.explain.readings import Readings, per_readings
from flashcore.explain.resources import CaseReader, Part
from flashcore.model.case import Case
from flashcore.model.catalogue import PHASE_SHARE
from flashcore.model.causes import Sampled
from flashcore.model.record import Fact, Record, Subject
from flashcore.model.text import fixed, percentage, whole

#: NVIDIA's rule of thumb: a resource that is busy for a smaller share of the time, %, does not bound a kernel.
NEAR = 60.0
#: A smaller share of the time, %, is not worth a mention.
WORTH = 2.0
#: Bank conflicts that are this share of the passes through shared memory, %, are what keeps it busy.
CONFLICTS = 50.0

#: ncu's stall reason → the event that its warps wait for.
WAITS = {
    "barrier": "the block's other warps at a barrier",
    "branch_resolving": "a branch to resolve",
    "dispatch_stall": "the dispatcher",
    "drain": "final stores to drain",
    "gmma": "warpgroup matrix products",
    "imc_miss": "uncached constants",
    "lg_throttle": "space in the queue of global and local memory",
    "long_scoreboard": "data from global or local memory",
    "math_pipe_throttle": "a busy arithmetic pipe",
    "membar": "a memory fence",
    "mio_throttle": "space in the queue of shared memory and special functions",
    "misc": "other events",
    "no_instruction": "instruction fetches",
    "short_scoreboard": "data from shared memory or special functions",
    "sleeping": "the end of a sleep",
    "tex_throttle": "space in the texture queue",
    "wait": "the fixed latency of the previous instruction",
}
_SHARED_MEMORY_STALLS = ("mio_throttle", "short_scoreboard")
UNATTRIBUTED = "unattributed"


@dataclass(frozen=True, slots=True)
class TimeParts:
    """A case's whole time.

    Args:
        parts: they add up to 100 %; the last is unattributed.
        overlapping: what takes place meanwhile, largest first.
        timed: whether there is a time; if not, parts are shares of the GPU's capacity.
        room: the share of the time beside the launch, idle SMs and the resource, %, which waits cannot exceed.
        floor: the resource of the problem's floor, and the share of the time that the floor takes, %; empty and 0 if
            the floor is unknown.
        phase: ``load phase 39 ± 2 % of warp time``: the phase with the largest share; empty if the sources mark none.
        note: the source of the parts if not counters.
        uses: the share of the time that each resource takes (:mod:`flashcore.explain.resources`).
        idle: the share of the GPU's capacity without a block, throughout or in the last wave, %.
    """

    parts: tuple[Part, ...]
    overlapping: tuple[Part, ...]
    timed: bool
    room: float = 100.0
    floor: tuple[str, float] = ("", 0.0)
    phase: str = ""
    note: str = ""
    uses: Mapping[str, Part] = field(default_factory=dict)
    idle: float = 0.0

    @property
    def limiters(self) -> tuple[Part, ...]:
        """The parts that are worth a mention, largest first, then what overlaps them; empty if nothing was timed.

        Issuing instructions is work, and limits only a case that does it for half of the time.
        """
        if not self.timed:
            return ()
        named = (p for p in self.parts[:-1] if p.share >= WORTH and (p.kind != "issue" or p.share >= 50))
        return (*sorted(named, key=lambda p: -p.share), *self.overlapping)

    @property
    def limiter(self) -> Part | None:
        """The largest part; ``None`` if none is measured."""
        return next((p for p in self.limiters if not p.overlaps), None)

    @property
    def above_floor(self) -> float:
        """The share of the time above the floor, %; 100 if the floor is unknown."""
        return max(100 - self.floor[1], 0.0)

    @property
    def next(self) -> Part | None:
        """The part of which the most lies above the floor; ``None`` if nothing was timed, none is worth a step, or more
        of the time is unattributed."""
        taken = dict([self.floor])
        beyond = [(p.share - taken.get(p.kind, 0.0), p) for p in self.limiters if not p.overlaps]
        share, part = max(beyond, key=lambda x: x[0], default=(0.0, None))
        return part if min(share, self.above_floor) >= WORTH and share >= self.parts[-1].share else None

    @property
    def most(self) -> Mapping[str, float]:
        """By kind, the largest share of the time that its removal can save, %."""
        return {p.kind: p.share for p in self.parts} | {p.kind: min(p.share, self.room) for p in self.overlapping}

    def saved(self, kinds: Collection[str]) -> float:
        """The largest share of the time that the removal of all these kinds can save, %: what lies above the floor."""
        parts, meanwhile = (sum(p.share for p in of if p.kind in kinds) for of in (self.parts, self.overlapping))
        return min(parts + min(meanwhile, self.room), self.above_floor)

    def share(self, kind: str) -> float:
        """The share of a kind, whether it is a part or overlaps them, %; 0 if it was not seen."""
        return next((p.share for p in (*self.parts, *self.overlapping) if p.kind == kind), 0.0)

    @property
    def text(self) -> str:
        """One line: the largest part, the longest phase, and two more limiters; empty if none is known."""
        return self._words(3)

    @property
    def short(self) -> str:
        """The largest part and the longest phase."""
        return self._words(1)

    def _words(self, count: int) -> str:
        words = [p.brief for p in self.limiters[:count]]
        if words and self.phase:
            words.insert(1, self.phase)
        if words and self.parts[-1].share > self.limiters[0].share:
            words.append(self.parts[-1].brief)
        return "; ".join(words)


@per_readings
def time_parts(readings: Readings, case: Case) -> TimeParts:
    """The parts of a variant's time at a shape, which must be the suite's."""
    variant = readings.record.suite.variants.get(case.variant)
    if variant is None:
        return TimeParts((Part(UNATTRIBUTED, UNATTRIBUTED, 100.0, "nothing was timed"),), (), False)
    return _Division(CaseReader(readings, variant, readings.record.suite.shapes[case.shape])).result()


class _Division:
    """The division of one case's time."""

    def __init__(self, case: CaseReader) -> None:
        self.case = case
        self.parts: list[Part] = []

    @property
    def room(self) -> float:
        """The share of the time that no part takes yet, %."""
        return max(100 - sum(p.share for p in self.parts), 0.0)

    def add(self, part: Part) -> None:
        """Adds a part, or as much of it as there is room for."""
        self.parts.append(replace(part, share=min(part.share, self.room)))

    def result(self) -> TimeParts:
        case = self.case
        if launch := case.uses.get("launch"):
            self.add(launch)
        resources = self._resources()
        for part in resources[:1]:
            self.add(part)
        remaining = case.running
        without_block = 0.0
        if idle := _idle(case):
            without_block = idle.share
            self.add(idle := replace(idle, share=idle.share * case.running / 100))
            remaining -= idle.share
        active = remaining if case.active is None else min(remaining, case.active)
        if not resources and (issue := case.uses.get("issue")) and issue.counted:
            self.add(replace(issue, text="issuing instructions"))
        room, waits = self.room, list(self._waits(active))
        total = sum(p.share for p in waits)
        fits = not resources or total <= room + 0.5
        meanwhile = [*resources[1:], *(() if fits else waits)]
        for part in waits if fits else ():
            self.add(part)
        if case.active is not None and remaining - active >= WORTH:
            source = f"the time beside launch, idle SMs and {self._basis(active)}"
            empty = Part("empty_sms", "SMs without warps", remaining - active, source, ("instructions_issued",))
            if empty.share <= self.room + 0.5:
                self.add(empty)
            else:
                meanwhile.append(empty)
        timed = bool(case("issue_active") or case(case.shape.time) or case.is_counted)
        rest = (
            "smaller waits, and uncounted work" if fits else f"waits take {percentage(total)}, and overlap the resource"
        )
        self.parts.append(Part(UNATTRIBUTED, UNATTRIBUTED, self.room, rest if timed else "nothing was timed"))
        gap = case.readings.gap(case.subject.case)
        return TimeParts(
            tuple(self.parts),
            tuple(sorted((replace(p, overlaps=True) for p in meanwhile if p.share >= WORTH), key=lambda p: -p.share)),
            timed,
            room,
            (gap.floor.resource, 100 / gap.ratio) if gap else ("", 0.0),
            _longest_phase(case.record, case.subject),
            "" if case.is_counted or not timed else "no counters: by the problem's formulas and the measured time",
            case.uses,
            without_block,
        )

    def _resources(self) -> list[Part]:
        """The resources that bound the case, the first one first; without counters the nearest to its roof. DRAM comes
        before L2, through which its bytes pass."""
        busy = [use for name, use in self.case.uses.items() if name != "launch"]
        if self.case.is_counted:
            busy = [use for use in busy if use.share >= NEAR]
        near_dram = any(use.kind == "dram" and use.share >= NEAR for use in busy)
        busy.sort(key=lambda use: (near_dram and use.kind == "l2", -use.share, use.kind))
        return [self._conflicting(use) or use for use in busy]

    def _conflicting(self, use: Part) -> Part | None:
        """Shared memory that bank conflicts keep busy."""
        lost = self._conflicts()
        if use.kind != "shared" or lost is None or lost < CONFLICTS:
            return None
        passes = " of ".join(self.case.evidence(name) for name in ("bank_conflicts", "shared_wavefronts"))
        evidence = f"{passes}: {percentage(lost)} of the passes through shared memory"
        return Part("bank_conflicts", "bank conflicts", use.share, evidence, ("bank_conflicts", *use.facts))

    def _conflicts(self) -> float | None:
        """Bank conflicts as a share of the passes through shared memory, %."""
        lost, passes = self.case("bank_conflicts"), self.case("shared_wavefronts")
        return 100 * min(lost / passes, 1.0) if lost is not None and passes else None

    def _basis(self, active: float) -> str:
        if self.case.active is None:
            return f"at most: all of the other {percentage(active)}"
        return f"{percentage(active)} of the time, in which SMs have warps"

    def _waits(self, active: float) -> Iterator[Part]:
        """The waits, largest first. A stall reason's share of all stalls counts as far as nothing is issued meanwhile.

        Args:
            active: the share of the time in which SMs have warps, %.
        """
        case = self.case
        stalls = {reason: share for reason in WAITS if (share := case(f"stall_share_{reason}")) is not None}
        issuing, longest = (case("issue_active") or 0.0) / 100, max(stalls.values(), default=0.0)
        for reason, stalled in sorted(stalls.items(), key=lambda x: (-x[1], x[0])):
            rank = stalled * (1 - issuing)
            if rank < WORTH:
                continue
            facts = (f"stall_share_{reason}", "issue_active")
            text = f"{case.evidence(*facts)}, of {self._basis(active)}"
            if reason in _SHARED_MEMORY_STALLS and (lost := self._conflicts()) is not None and lost >= 10:
                text += f"; bank conflicts are {percentage(lost)} of the passes through shared memory"
            if stalled == longest and (occupancy := case("achieved_occupancy")) is not None and occupancy < 25:
                text += f"; few warps to hide it (achieved occupancy {percentage(occupancy)})"
            yield Part(f"stall_{reason}", f"waiting for {WAITS[reason]}", rank * active / 100, text, facts)


def _idle(case: CaseReader) -> Part | None:
    """The SMs without a block, throughout or in the last wave, as a share of the GPU's capacity."""
    name = "blocks" if case("blocks") is not None else "ncu_grid_size"
    blocks, sms, per_sm = case(name), roofline.sm_count(case.record), case("blocks_per_sm")
    if not blocks or not sms:
        return None
    if blocks < sms:
        text = f"{name} {whole(blocks)}, {sms} SMs: {whole(sms - blocks)} have no block"
        return Part("idle_sms", "idle SMs", 100 * (1 - blocks / sms), text, (name,))
    if per_sm and (waves := blocks / (sms * per_sm)) > 1 and waves < ceil(waves):
        last = 100 * (waves - ceil(waves) + 1)
        text = f"{name} {whole(blocks)}, {whole(per_sm)} per SM: "
        text += f"the last of {fixed(waves, 2)} waves fills {percentage(last)} of the GPU"
        return Part("idle_sms", "idle SMs", 100 * (1 - waves / ceil(waves)), text, (name, "blocks_per_sm"))
    return None


# --- the rest of the ladder ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Remedy:
    """A step of the ladder that reduced the share of a limiter and was faster."""

    variant: str
    parent: str
    before: float
    after: float
    faster: float
    technique: str


@per_readings
def remedies(readings: Readings, shape: str) -> dict[str, list[Remedy]]:
    """Returns the faster steps at this shape that reduced a limiter, by its kind, largest reduction first."""
    suite = readings.record.suite
    at = suite.shapes[shape]
    by_kind: dict[str, list[Remedy]] = {}
    for variant in (v for v in suite.variants.values() if v.parent in suite.variants and v.runs_on(at)):
        case, parent = (Case(name or "", shape) for name in (variant.name, variant.parent))
        before, after = time_parts(readings, parent), time_parts(readings, case)
        speedup = readings.speedup(at.time, case, parent)
        if speedup is None or speedup[0] <= 1:
            continue
        for x in before.limiters:
            remaining = after.share(x.kind)
            if x.share - remaining >= 5:
                remedy = Remedy(variant.name, variant.parent or "", x.share, remaining, speedup[0], variant.technique)
                by_kind.setdefault(x.kind, []).append(remedy)
    for steps in by_kind.values():
        steps.sort(key=lambda r: (r.after - r.before, r.variant))
    return by_kind


# --- phases ---------------------------------------------------------------------------------------------


def phase_shares(record: Record, subject: Subject) -> dict[str, Fact]:
    """Returns each phase's share of the warps' time, in source order; empty if the sources mark none."""
    facts = record.facts.about(subject)
    return {f.name.removeprefix(PHASE_SHARE): f for f in facts if f.name.startswith(PHASE_SHARE)}


def _longest_phase(record: Record, subject: Subject) -> str:
    shares = {p: (s, f.detail) for p, f in phase_shares(record, subject).items() if (s := f.number)}
    if not shares:
        return ""
    longest = max(shares, key=lambda p: shares[p][0])
    share, detail = shares[longest]
    error = f" ± {whole(max(1.0, detail.error))}" if isinstance(detail, Sampled) else ""
    return f"{longest} phase {whole(share)}{error} % of warp time"
