"""Ranks the limiters of a case, with counters as evidence, and finds remedies on the ladder.

Three kinds of limiters are ranked by the share of time, or of the GPU's capacity, that they take:

- a resource near its roof: DRAM, L2, shared memory, the tensor pipe, issue slots, special functions;
- stalled warps: a stall reason's share of all stalls, scaled by the share of cycles without an issue;
- idle SMs: fewer blocks than SMs, or a partly filled last wave.

Without counters, the problem's formulas and the measured time give each resource's share of its roof. If all are far
below it, a resource without a known roof is named. The launch is a bound, not a limiter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from weakref import WeakKeyDictionary

from flashcore.chips import devices
from flashcore.explain import roofline
from flashcore.explain.readings import Readings
from flashcore.model.catalogue import PHASE_SHARE
from flashcore.model.causes import Sampled
from flashcore.model.record import Fact, Record, Roof, Subject
from flashcore.model.suite import Variant
from flashcore.model.text import in_words, significant

#: NVIDIA's rule of thumb: a resource that is busy for a smaller share of the time, %, does not bound a kernel.
NEAR = 60.0
#: A limiter with a smaller share, %, is not named.
WORTH = 2.0
#: A case within this factor of its launches' least time is limited by launches alone.
AT_LAUNCH = 1.25

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
_NAMES = {
    "dram": "DRAM",
    "l2": "L2",
    "l1": "L1",
    "shared": "shared memory",
    "exp": "special functions",
    "issue": "issue slots",
    "fp32": "fp32 pipes",
    "barrier": "barriers",
}
#: A formula's amount → the resource that executes it.
_WORK = {
    "dram_bytes": "dram",
    "l2_bytes": "l2",
    "l1_bytes": "l1",
    "shared_bytes": "shared",
    "exp": "exp",
    "instructions": "issue",
    "barriers": "barrier",
}


@dataclass(frozen=True, slots=True)
class Limiter:
    """One limiter of a case.

    Args:
        kind: a resource (``dram``, ``exp``), ``stall_<reason>``, ``bank_conflicts`` or ``idle_sms``; comparable across
            cases.
        brief: a few words with its share: ``wait stalls 23 %``.
        share: the share of time or capacity that it takes, %; for a stall reason, its share of all stalls.
        evidence: the counters that show it, with their values.
        facts: the names of these counters.
        idle: for a stall reason, the share of cycles without an issue, since a stall costs no time in the others.
    """

    kind: str
    brief: str
    share: float
    evidence: str
    facts: tuple[str, ...]
    idle: float = 1.0

    @property
    def rank(self) -> float:
        """The share of time by which it is ranked, %."""
        return self.share * self.idle


@dataclass(frozen=True, slots=True)
class Remedy:
    """A step of the ladder that reduced a limiter's share and was faster."""

    variant: str
    parent: str
    before: float
    after: float
    faster: float
    technique: str


@dataclass(frozen=True, slots=True)
class Limiters:
    """A case's limiters, largest first; empty if nothing was measured, or launches take all the time.

    Args:
        phase: the phase with the largest share of warp time: ``load phase 39 ± 2 %``; empty if the sources mark none.
        note: the source of the limiters if not counters, or that launches take all the time.
    """

    limiters: tuple[Limiter, ...]
    phase: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        """One line: the first limiter, its phase, and two more limiters."""
        return self._words(3)

    @property
    def short(self) -> str:
        """The first limiter and its phase."""
        return self._words(1)

    def _words(self, count: int) -> str:
        words = [x.brief for x in self.limiters[:count]]
        if self.phase:
            words.insert(1, self.phase)
        return "; ".join(words) or self.note


def limiter(readings: Readings, variant: str | None, shape: str) -> str:
    """Returns a case's limiters in one line."""
    return limiters(readings, variant, shape).text


#: Limiters by case, for the lifetime of the readings: each case is looked up as a variant, as a parent and by pages.
_CACHE: WeakKeyDictionary[Readings, dict[tuple[str, str], Limiters]] = WeakKeyDictionary()
#: Remedies by shape, for the lifetime of the readings.
_REMEDIES: WeakKeyDictionary[Readings, dict[str, dict[str, list[Remedy]]]] = WeakKeyDictionary()


def limiters(readings: Readings, name: str | None, shape: str) -> Limiters:
    """Returns a case's limiters, ranked by their share of the time; computed once per readings."""
    variant = readings.record.suite.variants.get(name or "")
    if variant is None:
        return Limiters(())
    cached = _CACHE.setdefault(readings, {})
    if (variant.name, shape) not in cached:
        cached[variant.name, shape] = _limiters(_Case(readings, variant, shape))
    return cached[variant.name, shape]


def idle_sms(readings: Readings, variant: Variant, shape: str) -> Limiter | None:
    """Returns the SMs without a block as a limiter, by the launch plan and the device table; ``None`` if all SMs have
    blocks to the end, or if either is unknown."""
    return next(_Case(readings, variant, shape).idle(), None)


def _limiters(case: _Case) -> Limiters:
    if note := case.launch_only():
        return Limiters((), note=note)
    if case("ncu_duration") is None:
        return case.by_formula()
    # Waits for a busy resource rank below it, and L2 below DRAM, whose bytes pass through it.
    resources = sorted(case.resources(), key=lambda x: (x.kind != "dram", -x.share))
    waits = sorted((x for x in (*case.stalls(), *case.idle()) if x.rank >= WORTH), key=lambda x: (-x.rank, x.kind))
    return Limiters((*resources, *waits), _longest_phase(case.record, case.subject))


class _Case:
    """The measurements of a case; a call returns one fact's value."""

    def __init__(self, readings: Readings, variant: Variant, shape: str) -> None:
        self.readings, self.variant, self.shape = readings, variant, shape
        self.record = readings.record
        self.subject = Subject(variant.name, shape=shape)

    def __call__(self, name: str) -> float | None:
        return self.readings.of(name, self.variant.name, self.shape).value

    @property
    def time_us(self) -> float | None:
        """ncu's duration, which matches its counters; else the ranking time."""
        duration = self("ncu_duration")
        return duration / 1e3 if duration else self(self.record.suite.shapes[self.shape].time)

    def ceilings(self) -> Sequence[Roof]:
        hertz = self("sm_clock")
        mhz = hertz / 1e6 if hertz else self("bench_sm_clock")
        return roofline.roofs(devices.find(self.record.gpu), mhz, self.readings.roofs(self.subject))

    def launch_only(self) -> str:
        """Returns a note if launches take all of the case's time, else an empty string."""
        time, launch = self(self.record.suite.shapes[self.shape].time), self("formula_launches")
        work = [n for n in _WORK if self(f"formula_{n}")] + [n for n in ("flop", "bytes") if self(f"formula_{n}")]
        if time and launch and not work:
            return f"nothing: {launch:,.0f} empty launches, {significant(time / launch, 3)} µs each"
        roof = roofline.pick(self.ceilings(), "launch", roofline.REACHABLE)
        launches = self("kernel_launches") or 1.0
        if time and roof and time <= AT_LAUNCH * roof.us(launches):
            return f"nothing: {launches:,.0f} launches alone take {significant(time, 3)} µs"
        return ""

    # --- resources -------------------------------------------------------------------------------

    def resources(self) -> Iterator[Limiter]:
        """Yields the resources that are busy for at least ``NEAR`` percent of the time."""
        for name, share, facts in self._busy():
            if share < NEAR:
                continue
            if name == "shared" and (lost := self._conflicts()) is not None and lost >= 50:
                brief = f"bank conflicts, {lost:.0f} % of the passes through shared memory"
                passes = f"{self._with_value('bank_conflicts')} of {self._with_value('shared_wavefronts')}"
                evidence = f"{passes}; shared memory {share:.0f} % busy"
                yield Limiter("bank_conflicts", brief, share, evidence, ("bank_conflicts", *facts))
                continue
            yield Limiter(name, f"{title(name)} {share:.0f} % busy", share, self._evidence(facts), facts)

    def _busy(self) -> Iterator[tuple[str, float, tuple[str, ...]]]:
        for name, fact in (
            ("dram", "dram_throughput"),
            ("l2", "l2_throughput"),
            (self.variant.roof, "tensor_active"),
            ("issue", "issue_active"),
        ):
            if (share := self(fact)) is not None and (name.endswith("_tensor") or fact != "tensor_active"):
                yield name, share, (fact,)
        if (share := roofline.shared_busy(self.record, self.subject)) is not None:
            yield "shared", share, ("shared_wavefronts", "elapsed_cycles")
        if (share := roofline.l1_busy(self.record, self.subject)) is not None:
            yield "l1", share, ("l1_bytes", "elapsed_cycles")
        time, ceilings = self.time_us, self.ceilings()
        for name, fact in (("fp32", "cuda_core_flop"), ("exp", "formula_exp")):
            amount, roof = self(fact), roofline.pick(ceilings, name, roofline.REACHABLE)
            if amount and roof and time:
                yield name, roof.percent(amount, time), (fact, "ncu_duration")

    def _conflicts(self) -> float | None:
        """Bank conflicts as a share of the passes through shared memory, %."""
        lost, passes = self("bank_conflicts"), self("shared_wavefronts")
        return 100 * min(lost / passes, 1.0) if lost is not None and passes else None

    # --- waits ------------------------------------------------------------------------------------

    def stalls(self) -> Iterator[Limiter]:
        """Yields each stall reason with its share of all stalls."""
        idle = 1 - (self("issue_active") or 0.0) / 100
        longest = max((self(f"stall_share_{reason}") or 0.0 for reason in WAITS), default=0.0)
        for reason, what in WAITS.items():
            fact = f"stall_share_{reason}"
            share = self(fact)
            if share is None:
                continue
            text = f"{self._evidence((fact, 'issue_active'))}: warps wait for {what}"
            if reason in _SHARED_MEMORY_STALLS and (lost := self._conflicts()) is not None and lost >= 10:
                text += f"; bank conflicts are {lost:.0f} % of the passes through shared memory"
            if share == longest and (occupancy := self("achieved_occupancy")) is not None and occupancy < 25:
                text += f"; few warps to hide it (achieved occupancy {occupancy:.0f} %)"
            words = reason.replace("_", " ").removesuffix(" stall")
            yield Limiter(f"stall_{reason}", f"{words} stalls {share:.0f} %", share, text, (fact, "issue_active"), idle)

    # --- SMs without work -------------------------------------------------------------------------

    def idle(self) -> Iterator[Limiter]:
        """Yields a limiter if SMs have no block, throughout or in the last wave."""
        name = "blocks" if self("blocks") is not None else "ncu_grid_size"
        blocks, sms, per_sm = self(name), roofline.sm_count(self.record), self("blocks_per_sm")
        if not blocks or not sms:
            return
        if blocks < sms:
            lost, text = 1 - blocks / sms, f"{name} {blocks:,.0f}, {sms} SMs: {sms - blocks:.0f} have no block"
            yield Limiter("idle_sms", f"{blocks:,.0f} blocks on {sms} SMs", 100 * lost, text, (name,))
        elif per_sm and (waves := blocks / (sms * per_sm)) > 1:
            last = 100 * (waves - ceil(waves) + 1)
            text = f"{name} {blocks:,.0f}, {per_sm:.0f} per SM: the last wave fills {last:.0f} % of the chip"
            brief = f"{waves:.2f} waves of blocks"
            yield Limiter("idle_sms", brief, 100 * (1 - waves / ceil(waves)), text, (name, "blocks_per_sm"))

    # --- without counters -------------------------------------------------------------------------

    def by_formula(self) -> Limiters:
        """Ranks resources by their least time for the formulas' amounts over the measured time.

        If none is near its roof, resources without a known roof come first.
        """
        shape, ceilings = self.record.suite.shapes[self.shape], self.ceilings()
        time = self.time_us
        if not time:
            return Limiters(())
        counted = {r: (v, f"formula_{n}") for n, r in _WORK.items() if (v := self(f"formula_{n}"))}
        work = {n: v for n in roofline.WORK if (v := self(f"formula_{n}"))}
        flops = {b.resource: (b.amount, "formula_flop") for b in roofline.bounds(work, self.variant.roof, ())}
        warm = shape.rank_by != "cold" and roofline.fits_l2(self.record, work.get("bytes"))
        ranked: list[Limiter] = []
        without_roof: list[Limiter] = []
        for name, (amount, fact) in (flops | counted).items():
            if not amount or name == "launch" or (warm and name == "dram"):
                continue
            roof = roofline.pick(ceilings, name, roofline.REACHABLE)
            if roof is not None:
                share = roof.percent(amount, time)
                text = f"{significant(roof.us(amount), 3)} µs of {significant(time)} µs at {roof.name}"
                ranked.append(Limiter(name, f"{title(name)} at {share:.0f} % of its roof", share, text, (fact,)))
            elif name in counted:
                rate = f"{significant(amount / time / 1e3, 4)} {'GB/s' if fact.endswith('bytes') else 'Gop/s'}"
                rate = f"{significant(1e3 * time / amount, 3)} ns each" if name == "barrier" else rate
                text = f"{fact} {in_words(amount, '1')} in {significant(time)} µs"
                without_roof.append(Limiter(name, f"{title(name)} ({rate}; no roof is known)", 0.0, text, (fact,)))
        ranked.sort(key=lambda x: (-x.share, x.kind))
        if not ranked or ranked[0].share < NEAR:
            if ranked and not without_roof:
                ranked[0] = replace(ranked[0], brief=f"nothing near its roof; nearest {ranked[0].brief}")
            ranked = without_roof + ranked
        note = "no counters: by the problem's formulas and the measured time"
        return Limiters(tuple(x for i, x in enumerate(ranked) if i == 0 or x.share >= WORTH), note=note)

    def _with_value(self, name: str) -> str:
        value = self(name)
        spec = self.record.facts.get(name, self.subject)
        return "unmeasured" if value is None else f"{name} {in_words(value, spec.unit if spec else '1')}"

    def _evidence(self, names: Sequence[str]) -> str:
        return ", ".join(self._with_value(n) for n in names)


def title(resource: str) -> str:
    """The name of a resource for people: ``L2``."""
    return _NAMES.get(resource, resource.replace("_tensor", " tensor cores"))


# --- the rest of the ladder ---------------------------------------------------------------------------


def remedies(readings: Readings, shape: str) -> dict[str, list[Remedy]]:
    """Returns the faster steps at this shape that reduced a limiter, by its kind, largest reduction first."""
    cached = _REMEDIES.setdefault(readings, {})
    if shape not in cached:
        cached[shape] = _remedies(readings, shape)
    return cached[shape]


def _remedies(readings: Readings, shape: str) -> dict[str, list[Remedy]]:
    suite = readings.record.suite
    at = suite.shapes[shape]
    by_kind: dict[str, list[Remedy]] = {}
    for variant in (v for v in suite.variants.values() if v.parent in suite.variants and v.runs_on(at)):
        before, after = (limiters(readings, name, shape) for name in (variant.parent, variant.name))
        speedup = readings.speedup(at.time, variant.name, variant.parent, shape)
        if speedup is None or speedup[0] <= 1:
            continue
        shares = {x.kind: x.share for x in after.limiters}  # limiters that are too small are not listed
        for x in before.limiters:
            remaining = shares.get(x.kind, 0.0)
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
    error = f" ± {max(1.0, detail.error):.0f}" if isinstance(detail, Sampled) else ""
    return f"{longest} phase {share:.0f}{error} %"
