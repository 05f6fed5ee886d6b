"""Divides a case's time into the launch, SMs without blocks or warps, its busiest resource and its waits.

The rest is unattributed. Shares are never rescaled to fill the time. If the waits do not fit, they overlap the
resource, and are left out.

:func:`needs` computes the least share of the time that each resource needs, from hardware counts of the variant if
available, else from the problem's formulas. A share near 100 % means that the resource limits the case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from flashcore.chips import devices
from flashcore.explain import roofline
from flashcore.explain.limiter import WAITS, WORTH, idle_sms, limiters, title
from flashcore.explain.readings import Readings
from flashcore.explain.roofline import sm_count
from flashcore.model.record import Roof, Subject
from flashcore.model.suite import Shape, Variant
from flashcore.model.text import significant

#: In the page's order; ``compute`` is the variant's compute roof.
RESOURCES = ("DRAM", "L2", "shared", "compute", "exp", "issue", "launch")
#: Warp instructions that an SM's four schedulers issue per clock, on every GPU since compute capability 7.0.
ISSUES_PER_CLOCK = 4


@dataclass(frozen=True, slots=True)
class Need:
    """One resource's least time over the measured time, %.

    Args:
        text: both times, the amount's fact and the roof's origin.
        counted: whether the hardware counted the amount.
    """

    resource: str
    percent: float
    text: str
    counted: bool


def needs(readings: Readings, variant: Variant, shape: Shape) -> dict[str, Need]:
    """Returns the share of time that each resource needs; resources without an amount or a roof are left out."""
    return {n.resource: n for n in _needs(readings, variant, shape)}


def _needs(readings: Readings, variant: Variant, shape: Shape) -> Iterator[Need]:
    record, subject = readings.record, Subject(variant.name, shape=shape.name)

    def number(name: str) -> float | None:
        return record.facts.number(name, subject)

    time, cold, clock = number(shape.time), number("cold_p50"), number("bench_sm_clock")
    device = devices.find(record.gpu)
    ceilings = (
        *roofline.roofs(device, clock, readings.roofs(subject)),
        *_sm_roofs(roofline.sm_count(record), clock or (device.clock_mhz if device else None)),
    )
    plan = readings.plans(record.gpu_arch).get((variant.name, shape.name))
    launches = number("kernel_launches") or len(plan.launches if plan else ())
    compute = next((n for n in ("tensor_flop", "formula_tensor_flop", "formula_flop") if number(n)), "")
    if not variant.roof.endswith("_tensor"):
        compute = "formula_flop"
    for resource, roof, names, measured in (
        ("DRAM", "dram", ("dram_bytes", "formula_bytes"), cold),
        ("L2", "l2", ("l2_bytes", "formula_l2_bytes", "formula_bytes"), time),
        ("shared", "shared", ("formula_shared_bytes",), time),
        ("shared", "passes", ("shared_wavefronts",), time),
        ("compute", variant.roof, (compute,), time),
        ("exp", "exp", ("formula_exp",), time),
        ("issue", "slots", ("instructions_issued", "formula_instructions"), time),
    ):
        fact = next((n for n in names if number(n)), None)
        ceiling = roofline.pick(ceilings, roof, roofline.REACHABLE)
        if measured and fact and ceiling and (amount := number(fact)):
            yield _need(resource, amount, measured, fact, ceiling, counted=not fact.startswith("formula_"))
    least = roofline.pick(ceilings, "launch", roofline.REACHABLE)
    if time and least and launches:
        yield _need("launch", launches, time, f"{launches:.0f} launches", least)
    elif time and launches and (floor := number("isolated_launch_floor")):
        text = f"{launches:.0f} launches of {significant(floor, 3)} µs, the time of empty ones in the same rounds"
        yield Need("launch", 100 * launches * floor / time, text, counted=True)


def _need(resource: str, amount: float, us: float, source: str, roof: Roof, counted: bool = False) -> Need:
    text = f"{significant(roof.us(amount), 3)} of {significant(us, 3)} µs: {source}, roof {roof.origin}"
    return Need(resource, roof.percent(amount, us), text, counted)


def _sm_roofs(sms: int | None, mhz: float | None) -> Sequence[Roof]:
    """The roofs of passes through shared memory (one per clock and SM) and of issue slots."""
    if not mhz or not sms:
        return ()
    rates = (("passes", 1), ("slots", ISSUES_PER_CLOCK))
    return [Roof(name, n * sms * mhz / 1e3, "Gop/s", "at clock seen", "", mhz) for name, n in rates]


UNATTRIBUTED = "unattributed"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the time.

    Args:
        kind: ``launch``, ``issue``, ``unattributed``, or a limiter's kind.
        percent: its share of the whole time.
        source: its derivation.
    """

    kind: str
    text: str
    percent: float
    source: str


@dataclass(frozen=True, slots=True)
class Whole:
    """A case's whole time.

    Args:
        parts: they add up to 100 %; the last is unattributed.
        timed: whether there is a time; if not, parts are shares of the GPU's capacity.
        most: by kind, the largest share of the time that its removal can save, %.
    """

    parts: tuple[Part, ...]
    timed: bool
    most: Mapping[str, float]

    @property
    def largest(self) -> Part | None:
        """The largest part that is not work, else the work; ``None`` if all of the time is unattributed."""
        parts = self.parts[:-1]
        return max([p for p in parts if p.kind != "issue"] or parts, key=lambda p: p.percent, default=None)

    @property
    def text(self) -> str:
        """One sentence: the largest part that is not work, else the work, and the unattributed part."""
        *parts, rest = self.parts
        largest = self.largest or rest
        text = f"{largest.text[:1].upper()}{largest.text[1:]}: {largest.percent:.0f} %"
        if not self.timed:
            return f"{text} of the GPU; nothing was timed" if parts else "Nothing was timed, and no SM is idle"
        return f"{text} of the time; {rest.percent:.0f} % is unattributed" if parts else f"{text} of the time"


def whole(readings: Readings, name: str, shape: str) -> Whole:
    """Returns the parts of a variant's time at a shape.

    Waits are shares of the time in which SMs have warps. That time is the share of all SMs' issue slots that issue,
    over the share of active cycles that issue. Without these counters, it is the time without launch and idle SMs.
    """
    suite = readings.record.suite

    def number(fact: str) -> float | None:
        return readings.of(fact, name, shape).value

    parts: list[Part] = []

    def add(kind: str, text: str, percent: float, source: str) -> None:
        parts.append(Part(kind, text, min(percent, 100 - sum(p.percent for p in parts)), source))

    if launch := needs(readings, suite.variants[name], suite.shapes[shape]).get("launch"):
        add("launch", "launch", launch.percent, launch.text)
    if (idle := idle_sms(readings, suite.variants[name], shape)) and idle.share:
        running = 100 - sum(p.percent for p in parts)
        add(idle.kind, "idle SMs", idle.share * running / 100, idle.evidence)
    active = 100 - sum(p.percent for p in parts)
    basis = f"at most: all of the other {active:.0f} %"
    empty: float | None = None  # the time in which SMs have no warps: starts and ends, and waiting for the slowest
    sms, issue = sm_count(readings.record), number("issue_active")
    issued, cycles = number("instructions_issued"), number("elapsed_cycles")
    if sms and issued and cycles and issue:
        others, active = active, min(active, 1e4 * issued / (ISSUES_PER_CLOCK * sms * cycles * issue))
        basis = f"{active:.0f} % of the time, in which SMs have warps"
        empty = others - active
    limits = limiters(readings, name, shape).limiters
    waits = [x for x in limits if x.kind.startswith("stall_")]
    resource = next((x for x in limits if x not in waits and x.kind != "idle_sms" and x.share), None)
    if resource:
        busy = "bank conflicts" if resource.kind == "bank_conflicts" else f"{title(resource.kind)} busy"
        add(resource.kind, busy, resource.share, resource.evidence)
    elif issue:
        add("issue", "issuing instructions", issue * active / 100, f"issue_active {issue:.0f} % of {basis}")
    room = 100 - sum(p.percent for p in parts)
    shares = {x.kind: x.rank * active / 100 for x in waits}
    rest = "smaller waits, and uncounted work"
    if sum(shares.values()) <= room + 0.5:
        for x in waits:
            add(x.kind, f"waiting for {WAITS[x.kind[6:]]}", shares[x.kind], f"{x.evidence}; of {basis}")
    else:
        rest = f"waits take {sum(shares.values()):.0f} %, and overlap the resource"
    if empty is not None and WORTH <= empty <= 100 - sum(p.percent for p in parts) + 0.5:
        add("empty_sms", "SMs without warps", empty, f"the time beside launch, idle SMs and {basis}")
    if empty is not None:
        shares["empty_sms"] = empty
    most = {p.kind: p.percent for p in parts} | {kind: min(share, room) for kind, share in shares.items()}
    timed = bool(issue or number(suite.shapes[shape].time))
    add(UNATTRIBUTED, UNATTRIBUTED, 100.0, rest if timed else "nothing was timed")
    return Whole(tuple(parts), timed, most)
