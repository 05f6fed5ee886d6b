"""What limits a case: ranked, each limiter with the counter that shows it, and what other steps of the ladder did about
it.

Three kinds of evidence, made comparable as a share (of time, or of what the chip could do) that goes there:

- a resource near its roof: DRAM, L2, shared memory, the tensor pipe, issue slots, special functions;
- warps that wait: a stall reason's share, as far as the schedulers have nothing to issue meanwhile;
- SMs without work: fewer blocks than SMs, or a last wave that fills them in part.

Without counters the problem's formulas and the measured time say how near its roof each resource is; if none is near, a
resource of the formulas without a known roof is named. The launch is a bound, not a limiter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from weakref import WeakKeyDictionary

from flashcore.chips import devices
from flashcore.explain import roofline
from flashcore.explain.predictions import Readings
from flashcore.model.catalogue import PHASE_SHARE
from flashcore.model.causes import Sampled
from flashcore.model.record import Fact, Record, Roof, Subject
from flashcore.model.suite import Variant
from flashcore.model.text import in_words, significant

#: NVIDIA's own rule of thumb: a resource that is busy for less of the time does not bound a kernel.
NEAR = 60.0
#: A limiter with less than this share is not worth naming.
WORTH = 2.0
#: A case whose time is this near the least time of a launch is limited by nothing else.
AT_LAUNCH = 1.25

#: What warps wait for, by ncu's stall reason.
_WAITS = {
    "barrier": "the block's other warps at a barrier",
    "branch_resolving": "a branch to be resolved",
    "dispatch_stall": "the dispatcher",
    "drain": "stores to leave before the warp ends",
    "gmma": "warp-group matrix products",
    "imc_miss": "constants that are not cached",
    "lg_throttle": "room in the queue of global and local memory",
    "long_scoreboard": "data from global or local memory",
    "math_pipe_throttle": "an arithmetic pipe that is busy",
    "membar": "a memory fence",
    "mio_throttle": "room in the queue of shared memory and special functions",
    "misc": "something else",
    "no_instruction": "instructions to be fetched",
    "short_scoreboard": "data from shared memory or special functions",
    "sleeping": "warps that sleep",
    "tex_throttle": "room in the texture queue",
    "wait": "the fixed latency of the instruction before",
}
_OF_SHARED = ("mio_throttle", "short_scoreboard")
_NAMES = {"dram": "DRAM", "l2": "L2", "l1": "L1", "shared": "shared memory", "exp": "special functions",
          "issue": "issue slots", "fp32": "fp32 pipes", "barrier": "barriers"}  # fmt: skip
#: What a formula counts → the resource that executes it.
_WORK = {"dram_bytes": "dram", "l2_bytes": "l2", "l1_bytes": "l1", "shared_bytes": "shared", "exp": "exp",
         "instructions": "issue", "barriers": "barrier"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limiter:
    """One limiter of a case.

    Args:
        kind: what it is, to compare cases by: a resource (``dram``, ``exp``), ``stall_<reason>``,
            ``bank_conflicts``, ``idle_sms``.
        brief: in a few words, with its number: ``wait stalls 23 %``.
        share: how much goes there, %; what they are ranked by.
        evidence: the counters that say so, with their values.
        facts: their names.
    """

    kind: str
    brief: str
    share: float
    evidence: str
    facts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remedy:
    """A step elsewhere on the ladder that took much of a limiter away, and was faster."""

    variant: str
    parent: str
    before: float
    after: float
    faster: float
    technique: str


@dataclass(frozen=True, slots=True)
class Held:
    """The limiters of a case, the largest first; empty only where nothing was measured.

    Args:
        phase: where its warps spend the most time: ``load phase 39 ± 2 %``; empty where its sources mark none.
        note: what it was derived from if not from counters, or that the case is only a launch.
    """

    limiters: tuple[Limiter, ...]
    phase: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        """In one line: the first limiter, where, and two more."""
        return self._words(3)

    @property
    def short(self) -> str:
        """Only the first limiter, and where."""
        return self._words(1)

    def _words(self, count: int) -> str:
        words = [x.brief for x in self.limiters[:count]]
        if self.phase:
            words.insert(1, self.phase)
        return "; ".join(words) or self.note


def limiter(known: Readings, variant: str | None, shape: str) -> str:
    """What limits a case, in a few words."""
    return held(known, variant, shape).text


#: What was found, for as long as the readings live: a case is asked about as a variant, as a parent and by each page.
_FOUND: WeakKeyDictionary[Readings, dict[tuple[str, str], Held]] = WeakKeyDictionary()


def held(known: Readings, variant: str | None, shape: str) -> Held:
    """The limiters of a case, ranked by share; worked out once for the same readings."""
    own = known.record.suite.variants.get(variant or "")
    if own is None:
        return Held(())
    found = _FOUND.setdefault(known, {})
    if (own.name, shape) not in found:
        found[own.name, shape] = _held(_Case(known, own, shape))
    return found[own.name, shape]


def _held(case: _Case) -> Held:
    if launched := case.launched():
        return Held((), note=launched)
    if not case.counted:
        return case.by_formula()
    # A wait for a busy resource is no second limiter, and L2 does not limit bytes that come from DRAM.
    resources = sorted(case.resources(), key=lambda x: (x.kind != "dram", -x.share))
    waits = sorted((x for x in (*case.stalls(), *case.idle()) if x.share >= WORTH), key=lambda x: (-x.share, x.kind))
    return Held((*resources, *waits), _longest_phase(case.record, case.subject))


@dataclass(frozen=True, slots=True)
class _Case:
    known: Readings
    variant: Variant
    shape: str

    @property
    def subject(self) -> Subject:
        return Subject(self.variant.name, shape=self.shape)

    @property
    def record(self) -> Record:
        return self.known.record

    @property
    def counted(self) -> bool:
        return self("ncu_duration") is not None

    def __call__(self, name: str) -> float | None:
        return self.known.of(name, self.variant.name, self.shape).value

    @property
    def sms(self) -> int | None:
        device = devices.find(self.record.gpu)
        return self.record.environment.gpu_sms or (device.sms if device else None)

    @property
    def time_us(self) -> float | None:
        """ncu's own duration, with its counters; else the time that ranks."""
        duration = self("ncu_duration")
        return duration / 1e3 if duration else self(self.record.suite.shapes[self.shape].time)

    def ceilings(self) -> Sequence[Roof]:
        hertz, clock = self("sm_clock"), self("bench_sm_clock")
        seen = hertz / 1e6 if hertz else clock
        return roofline.roofs(devices.find(self.record.gpu), seen, self.known.roofs(self.subject))

    def launched(self) -> str:
        """A note if the case is only a launch."""
        time, launch = self(self.record.suite.shapes[self.shape].time), self("formula_launches")
        work = [n for n in _WORK if self(f"formula_{n}")] + [n for n in ("flop", "bytes") if self(f"formula_{n}")]
        if time and launch and not work:
            return f"nothing: {launch:,.0f} empty launches, {significant(time / launch, 3)} µs each"
        roof = roofline.pick(self.ceilings(), "launch", roofline.REACHABLE)
        launches = self("kernel_launches") or 1.0
        if time and roof and time <= AT_LAUNCH * roof.us(launches):
            return f"nothing: {significant(time, 3)} µs is what {launches:,.0f} launches take"
        return ""

    # --- resources -------------------------------------------------------------------------------

    def resources(self) -> Iterator[Limiter]:
        """Those that are busy for most of the time."""
        for name, share, facts in self._busy():
            if share < NEAR:
                continue
            if name == "shared" and (lost := self._conflicts()) is not None and lost >= 50:
                brief = f"bank conflicts, {lost:.0f} % of the passes through shared memory"
                yield Limiter("bank_conflicts", brief, share, f"{self._said('bank_conflicts')} of "
                              f"{self._said('shared_wavefronts')}; shared memory {share:.0f} % busy",
                              ("bank_conflicts", *facts))  # fmt: skip
                continue
            yield Limiter(name, f"{_called(name)} {share:.0f} % busy", share, self._evidence(facts), facts)

    def _busy(self) -> Iterator[tuple[str, float, tuple[str, ...]]]:
        for name, fact in (("dram", "dram_throughput"), ("l2", "l2_throughput"), (self.variant.roof, "tensor_active"),
                           ("issue", "issue_active")):  # fmt: skip
            if (share := self(fact)) is not None and (name.endswith("_tensor") or fact != "tensor_active"):
                yield name, share, (fact,)
        cycles, sms = self("elapsed_cycles"), self.sms
        passes, through_l1 = self("shared_wavefronts"), self("l1_bytes")
        if cycles and sms and passes is not None:
            yield "shared", 100 * passes / (cycles * sms), ("shared_wavefronts", "elapsed_cycles")
        device = devices.find(self.record.gpu)
        if cycles and sms and device and through_l1 is not None:
            yield "l1", 100 * through_l1 / (cycles * sms * device.smem_per_clock), ("l1_bytes", "elapsed_cycles")
        time, ceilings = self.time_us, self.ceilings()
        for name, fact in (("fp32", "cuda_core_flop"), ("exp", "formula_exp")):
            amount, roof = self(fact), roofline.pick(ceilings, name, roofline.REACHABLE)
            if amount and roof and time:
                yield name, 100 * roof.us(amount) / time, (fact, "ncu_duration")

    def _conflicts(self) -> float | None:
        """Bank conflicts as a share of the passes through shared memory, %."""
        lost, passes = self("bank_conflicts"), self("shared_wavefronts")
        return 100 * min(lost / passes, 1.0) if lost is not None and passes else None

    # --- waits ------------------------------------------------------------------------------------

    def stalls(self) -> Iterator[Limiter]:
        """Waits hold a kernel back as far as its schedulers have nothing else to issue."""
        idle = 1 - (self("issue_active") or 0.0) / 100
        longest = max((self(f"stall_share_{reason}") or 0.0 for reason in _WAITS), default=0.0)
        for reason, what in _WAITS.items():
            fact = f"stall_share_{reason}"
            share = self(fact)
            if share is None:
                continue
            text = f"{self._evidence((fact, 'issue_active'))}: warps wait for {what}"
            if reason in _OF_SHARED and (lost := self._conflicts()) is not None and lost >= 10:
                text += f"; bank conflicts are {lost:.0f} % of the passes through shared memory"
            if share == longest and (there := self("achieved_occupancy")) is not None and there < 25:
                text += f"; few warps to hide it (achieved occupancy {there:.0f} %)"
            words = reason.replace("_", " ").removesuffix(" stall")
            yield Limiter(
                f"stall_{reason}", f"{words} stalls {share:.0f} %", share * idle, text, (fact, "issue_active")
            )

    # --- SMs without work -------------------------------------------------------------------------

    def idle(self) -> Iterator[Limiter]:
        """A grid that leaves SMs without a block, all along or in its last wave."""
        name = "blocks" if self("blocks") is not None else "ncu_grid_size"
        blocks, sms, each = self(name), self.sms, self("blocks_per_sm")
        if not blocks or not sms:
            return
        if blocks < sms:
            lost, text = 1 - blocks / sms, f"{name} {blocks:,.0f}, {sms} SMs: {sms - blocks:.0f} have no block"
            yield Limiter("idle_sms", f"{blocks:,.0f} blocks on {sms} SMs", 100 * lost, text, (name,))
        elif each and (waves := blocks / (sms * each)) > 1:
            last = 100 * (waves - ceil(waves) + 1)
            text = f"{name} {blocks:,.0f}, {each:.0f} an SM: the last wave fills {last:.0f} % of the chip"
            brief = f"{waves:.2f} waves of blocks"
            yield Limiter("idle_sms", brief, 100 * (1 - waves / ceil(waves)), text, (name, "blocks_per_sm"))

    # --- without counters -------------------------------------------------------------------------

    def by_formula(self) -> Held:
        """How near its roofs the problem's own amounts come in the measured time. Where none is near, what the
        formulas name and no roof is known of comes first: it is what is left."""
        shape, ceilings = self.record.suite.shapes[self.shape], self.ceilings()
        time = self.time_us
        if not time:
            return Held(())
        named = {r: (v, f"formula_{n}") for n, r in _WORK.items() if (v := self(f"formula_{n}"))}
        work = {n: v for n in roofline.WORK if (v := self(f"formula_{n}"))}
        every = {b.resource: (b.amount, "formula_flop") for b in roofline.bounds(work, self.variant.roof, ())} | named
        warm = shape.rank_by != "cold" and roofline.fits_l2(self.record, work.get("bytes"))
        near: list[Limiter] = []
        left: list[Limiter] = []
        for name, (amount, fact) in every.items():
            if not amount or name == "launch" or (warm and name == "dram"):
                continue
            roof = roofline.pick(ceilings, name, roofline.REACHABLE)
            if roof is not None:
                share = 100 * roof.us(amount) / time
                text = f"{significant(roof.us(amount), 3)} µs of {significant(time)} µs at {roof.name}"
                near.append(Limiter(name, f"{_called(name)} at {share:.0f} % of its roof", share, text, (fact,)))
            elif name in named:
                rate = f"{significant(amount / time / 1e3, 4)} {'GB/s' if fact.endswith('bytes') else 'Gop/s'}"
                rate = f"{significant(1e3 * time / amount, 3)} ns each" if name == "barrier" else rate
                text = f"{fact} {in_words(amount, '1')} in {significant(time)} µs"
                left.append(Limiter(name, f"{_called(name)} ({rate}; no roof is known)", 0.0, text, (fact,)))
        near.sort(key=lambda x: (-x.share, x.kind))
        if near and near[0].share < NEAR and not left:
            near[0] = replace(near[0], brief=f"nothing near its roof; nearest {near[0].brief}")
        found = near if near and near[0].share >= NEAR else left + near
        note = "no counters: by the problem's formulas and the measured time"
        return Held(tuple(x for i, x in enumerate(found) if i == 0 or x.share >= WORTH), note=note)

    def _said(self, name: str) -> str:
        value = self(name)
        spec = self.record.facts.get(name, self.subject)
        return "unmeasured" if value is None else f"{name} {in_words(value, spec.unit if spec else '1')}"

    def _evidence(self, names: Sequence[str]) -> str:
        return ", ".join(self._said(n) for n in names)


def _called(resource: str) -> str:
    return _NAMES.get(resource, resource.replace("_tensor", " tensor cores"))


# --- the rest of the ladder ---------------------------------------------------------------------------


def remedies(known: Readings, shape: str, held_by: Mapping[str, Held]) -> dict[str, list[Remedy]]:
    """By kind of limiter: the steps that took the most of it away and were faster, at this shape.

    Args:
        held_by: the limiters of each variant; see :func:`held`.
    """
    suite = known.record.suite
    time = suite.shapes[shape].time
    found: dict[str, list[Remedy]] = {}
    for name, after in held_by.items():
        variant = suite.variants[name]
        before = held_by.get(variant.parent or "")
        was, now = (known.of(time, n, shape).value for n in (variant.parent, name))
        if before is None or not was or not now or was <= now:
            continue
        shares = {x.kind: x.share for x in after.limiters}  # of a limiter that is not listed: too little to count
        for x in before.limiters:
            left = shares.get(x.kind, 0.0)
            if x.share - left >= 5:
                remedy = Remedy(name, variant.parent or "", x.share, left, was / now, variant.technique)
                found.setdefault(x.kind, []).append(remedy)
    for own in found.values():
        own.sort(key=lambda r: (r.after - r.before, r.variant))
    return found


# --- phases ---------------------------------------------------------------------------------------------


def phase_shares(record: Record, subject: Subject) -> dict[str, Fact]:
    """Phase → its share of the warps' time, in the order of the sources; empty where they mark none."""
    own = record.facts.about(subject)
    return {f.name.removeprefix(PHASE_SHARE): f for f in own if f.name.startswith(PHASE_SHARE)}


def _longest_phase(record: Record, subject: Subject) -> str:
    shares = {p: (s, f.detail) for p, f in phase_shares(record, subject).items() if (s := f.number)}
    if not shares:
        return ""
    longest = max(shares, key=lambda p: shares[p][0])
    share, detail = shares[longest]
    between = f" ± {max(1.0, detail.error):.0f}" if isinstance(detail, Sampled) else ""
    return f"{longest} phase {share:.0f}{between} %"
