"""The share of a case's time that each resource takes: the only definition of a resource's share.

Hardware counters give it where they exist: the busy share under ncu, of the time beside the launch. Else it is the
least time for the problem's amount at the best known roof, over the measured time. A share near 100 % means that the
resource limits the case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from flashcore.chips import devices
from flashcore.explain import roofline
from flashcore.explain.readings import Readings
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject, Roof
from flashcore.model.suite import Shape, Variant
from flashcore.model.text import in_words, percentage, significant, whole

#: Warp instructions that an SM's four schedulers issue per clock, on every GPU since compute capability 7.0.
ISSUES_PER_CLOCK = 4
#: Resource → the facts of its amount by the problem's formulas, and its roof's resource if that has another name.
_AMOUNTS = {
    "dram": ("formula_bytes",),
    "l2": ("formula_l2_bytes", "formula_bytes"),
    "l1": ("formula_l1_bytes",),
    "shared": ("formula_shared_bytes",),
    "exp": ("formula_exp",),
    "issue": ("formula_instructions",),
}
_NAMES = {
    "dram": "DRAM",
    "l2": "L2",
    "l1": "L1",
    "shared": "shared memory",
    "exp": "special functions",
    "issue": "issue slots",
    "fp32": "fp32 pipes",
    "launch": "launches",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a case's time.

    Args:
        kind: a resource (``dram``, ``exp``), ``launch``, ``stall_<reason>``, ``bank_conflicts``, ``idle_sms``,
            ``empty_sms`` or ``unattributed``; comparable across cases.
        text: a few words.
        share: its share of the whole time, %.
        evidence: the facts that show it with their values, and its derivation.
        facts: the names of these facts.
        overlaps: whether it takes place while the parts do, so that it is none of them.
        counted: whether the hardware counted a resource's share.
    """

    kind: str
    text: str
    share: float
    evidence: str
    facts: tuple[str, ...] = ()
    overlaps: bool = False
    counted: bool = False

    @property
    def brief(self) -> str:
        """``DRAM busy 85 %``."""
        return f"{self.text} {percentage(self.share)}"


class CaseReader:
    """The measurements of a case; a call returns one fact's value."""

    def __init__(self, readings: Readings, variant: Variant, shape: Shape) -> None:
        self.readings, self.variant, self.shape = readings, variant, shape
        self.record = readings.record
        self.subject = CaseSubject(Case(variant.name, shape.name))

    def __call__(self, name: str) -> float | None:
        return self.readings.of(name, self.subject.case).value

    @cached_property
    def uses(self) -> Mapping[str, Part]:
        """The share of each resource that has one."""
        results = {"launch": self.launch} if self.launch else {}
        results |= {use.kind: use for use in self._by_formula()}
        return results | {use.kind: use for use in self._counted()}

    @property
    def is_counted(self) -> bool:
        """Whether it was measured under ncu."""
        return bool(self("ncu_duration"))

    @cached_property
    def running(self) -> float:
        """The share of the time beside the launch, %."""
        return 100 - min(self.launch.share, 100) if self.launch else 100.0

    @cached_property
    def active(self) -> float | None:
        """The share of the time in which SMs have warps, %; ``None`` unless counted.

        It is the share of all SMs' issue slots that issue, over the share of active cycles that issue.
        """
        sms, issue = roofline.sm_count(self.record), self("issue_active")
        issued, cycles = self("instructions_issued"), self("elapsed_cycles")
        if not (sms and issue and issued and cycles):
            return None
        slots = 100 * issued / (ISSUES_PER_CLOCK * sms * cycles)
        return min(100 * slots / issue, 100.0) * self.running / 100

    def evidence(self, *names: str) -> str:
        """Facts with their values."""
        return ", ".join(map(self._with_value, names))

    def _with_value(self, name: str) -> str:
        value, spec = self(name), self.record.facts.get(name, self.subject)
        return "unmeasured" if value is None else f"{name} {in_words(value, spec.unit if spec else '1')}"

    # --- by counters ------------------------------------------------------------------------------

    def _counted(self) -> Iterator[Part]:
        for name, share, facts in self._busy() if self.is_counted else ():
            yield _busy(name, share * self.running / 100, self.evidence(*facts), facts, counted=True)

    def _busy(self) -> Iterator[tuple[str, float, tuple[str, ...]]]:
        """Each resource's share of ncu's time."""
        for name in ("dram", "l2"):
            if (share := self(fact := f"{name}_throughput")) is not None:
                yield name, share, (fact,)
        active = self.active
        awake = 1.0 if active is None or not self.running else active / self.running
        pipes = [("issue", "issue_active")]
        pipes += [(self.variant.roof, "tensor_active")] if self.variant.roof.endswith("_tensor") else []
        for name, fact in pipes:  # ncu's shares of the cycles in which an SM has warps
            if (share := self(fact)) is not None:
                yield name, share * awake, (fact,)
        for name, busy, fact in (
            ("shared", roofline.shared_busy, "shared_wavefronts"),
            ("l1", roofline.l1_busy, "l1_bytes"),
        ):
            if (share := busy(self.record, self.subject)) is not None:
                yield name, share, (fact, "elapsed_cycles")
        flop, roof = self("cuda_core_flop"), roofline.pick(self._ceilings, "fp32", roofline.REACHABLE)
        if flop and roof:
            yield "fp32", roof.percent(flop, (self("ncu_duration") or 0) / 1e3), ("cuda_core_flop", "ncu_duration")

    # --- by formulas ------------------------------------------------------------------------------

    @cached_property
    def _ceilings(self) -> Sequence[Roof]:
        hertz = self("sm_clock") if self.is_counted else None
        mhz = hertz / 1e6 if hertz else self("bench_sm_clock")
        device, sms = devices.find(self.record.gpu), roofline.sm_count(self.record)
        clock = mhz or (device.clock_mhz if device else None)
        slots = []
        if clock and sms:
            rate = ISSUES_PER_CLOCK * sms * clock / 1e3
            slots = [Roof("issue", rate, "Gop/s", "at clock seen", "", clock)]
        return (*roofline.roofs(device, mhz, self.readings.roofs(self.subject)), *slots)

    def _by_formula(self) -> Iterator[Part]:
        duration, time = self("ncu_duration"), self(self.shape.time)
        us, scale = (duration / 1e3, self.running / 100) if duration else (time, 1.0)
        if not us:
            return
        work = {n: v for n in roofline.WORK if (v := self(f"formula_{n}"))}
        amounts = {b.resource: (b.amount, "formula_flop") for b in roofline.bounds(work, self.variant.roof, ())}
        amounts |= {r: (self(n), n) for r, names in _AMOUNTS.items() if (n := next(filter(self, names), ""))}
        warm = not duration and self.shape.rank_by != "cold" and roofline.fits_l2(self.record, work.get("bytes"))
        for resource, (amount, fact) in amounts.items():
            roof = roofline.pick(self._ceilings, resource, roofline.REACHABLE)
            if not amount or roof is None or resource == "launch" or (warm and resource == "dram"):
                continue
            text = f"{significant(roof.us(amount), 3)} µs of {significant(us)} µs: {fact} at {roof.name}"
            yield _busy(resource, roof.percent(amount, us) * scale, text, (fact,))

    @cached_property
    def launch(self) -> Part | None:
        """The share of its launches alone: at least the empty launch of the same mode and rounds; that many of them if
        the machine's roof is unknown."""
        time = self(self.shape.time)
        plan = self.readings.plans(self.record.gpu_arch).get(self.subject.case)
        launches = self("formula_launches") or self("kernel_launches") or len(plan.launches if plan else ())
        if not time or not launches:
            return None
        roof = roofline.pick(self._ceilings, "launch", roofline.REACHABLE)
        empty = self(fact := f"{self.shape.rank_by}_launch_floor")
        least = max(roof.us(launches), empty or 0.0) if roof else launches * (empty or 0.0)
        alone = f"{whole(launches)} empty launch{'es' * (launches > 1)} in {significant(least, 3)}"
        text = f"{alone} of {significant(time, 3)} µs"
        return Part("launch", _NAMES["launch"], 100 * least / time, text, (fact,) if empty else ()) if least else None


def title(resource: str) -> str:
    """The name of a resource for people: ``L2``."""
    return _NAMES.get(resource, resource.replace("_tensor", " tensor cores"))


def _busy(resource: str, share: float, evidence: str, facts: tuple[str, ...], *, counted: bool = False) -> Part:
    return Part(resource, f"{title(resource)} busy", share, evidence, facts, counted=counted)
