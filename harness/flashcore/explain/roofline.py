"""Computes rooflines and time bounds: a kernel's points, and the least time that each resource allows.

Points by the problem's FLOPs have the time that ranks, so that the faster of two cases is the higher; points by the
counted FLOPs have ncu's. Each roof names its origin: the datasheet, the datasheet at the measured clock, or a
measurement, which is scaled to that clock.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

from flashcore.chips import devices
from flashcore.chips.devices import Device
from flashcore.model.catalogue import TENSOR_TYPES
from flashcore.model.cause import cause_text
from flashcore.model.causes import Caches
from flashcore.model.groups import grouped
from flashcore.model.record import CaseSubject, Record, Roof, RoofOrigin, plans_for, throttle_reasons
from flashcore.model.suite import TIMING_MODES, Stage, Variant
from flashcore.model.text import percentage, same_hardware, significant

Level = Literal["dram", "l2", "l1"]
LEVELS: tuple[Level, ...] = ("dram", "l2", "l1")
#: The source of a FLOP count.
Counted = Literal["hardware", "formula"]
#: A hardware count below this share of the formula's FLOPs is incomplete.
FAR_BELOW = 0.5


def roofs(device: Device | None, clock_mhz: float | None = None, measured: Sequence[Roof] = ()) -> tuple[Roof, ...]:
    """Returns a device's roofs: from its datasheet, at the measured clock, and measured.

    An unlisted GPU (``None``) has only measured roofs.
    """
    if device is None:
        return tuple(measured)
    title, source = device.title, device.source
    printed = [
        Roof(dtype, rate.tflops, "TFLOP/s", "datasheet", title, rate.clock_mhz, source)
        for dtype, rate in device.rates.items()
    ]
    dram = Roof("dram", device.dram_gbps, "GB/s", "datasheet", title, None, source)
    ceilings = (*printed, dram, *_clocked(device, device.clock_mhz, "datasheet"))
    if clock_mhz is None:
        return (*ceilings, *measured)
    scaled = [
        Roof(dtype, tflops, "TFLOP/s", "at clock seen", title, clock_mhz)
        for dtype in device.rates
        if (tflops := devices.peak(device, dtype, clock_mhz))
    ]
    return (*ceilings, *scaled, *_clocked(device, clock_mhz, "at clock seen"), *measured)


def _clocked(device: Device, clock_mhz: float, origin: RoofOrigin) -> Iterator[Roof]:
    """Yields the roofs that scale with the SM clock: the rate per SM and clock, times SMs, times the clock."""
    for resource, per_clock, unit, noun in (
        ("shared", device.smem_per_clock, "GB/s", "bytes of shared memory"),
        ("l1", device.smem_per_clock, "GB/s", "bytes of L1"),
        ("exp", device.mufu_per_clock, "Gop/s", "special functions"),
    ):
        note = f"{device.sms} SMs × {per_clock} {noun} per clock"
        yield Roof(resource, device.sms * per_clock * clock_mhz / 1e3, unit, origin, device.title, clock_mhz, note)


def pick(ceilings: Sequence[Roof], resource: str, order: Sequence[RoofOrigin]) -> Roof | None:
    """Returns the resource's roof whose origin comes first in ``order``; ``None`` if it has none."""
    origins = {roof.origin: roof for roof in reversed(ceilings) if roof.resource == resource}
    return next((origins[origin] for origin in order if origin in origins), None)


#: Origins by preference: limits that the hardware cannot exceed (THEORY), roofs that a kernel can reach (REACHABLE).
THEORY: tuple[RoofOrigin, ...] = ("at clock seen", "datasheet")
MEASURED: tuple[RoofOrigin, ...] = ("measured",)
REACHABLE: tuple[RoofOrigin, ...] = ("measured", *THEORY)


# --- points -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The roofs above one point; ``tflops`` is the lower of the known ones at the point's intensity."""

    compute: Roof | None
    bandwidth: Roof | None
    tflops: float | None


@dataclass(frozen=True, slots=True)
class Point:
    """A case, or one kernel of it, on a roofline.

    Args:
        subject: (variant, shape), with ``kernel`` for one kernel of a case.
        level: the memory level of the bytes.
        counted: the source of the FLOPs: hardware counters, or the problem's formula.
        mode: the cache state and the timer of the time.
        roof: the variant's compute roof, from the manifest.
        theory: the ceiling by the datasheet, at the measured clock if known.
        measured: the ceiling by measured roofs, at the same clock.
        clock_mhz: the SM clock while it ran.
        resident: whether the data stays in L2 at this time, so that DRAM is no limit.
        modeled: whether the bytes are the formula's, because they were not counted.
        faults: why the point is impossible, with likely causes; empty for a plausible point.
    """

    subject: CaseSubject
    level: Level
    counted: Counted
    mode: str
    flop: float
    bytes: float
    time_us: float
    roof: str
    theory: Ceiling
    measured: Ceiling
    clock_mhz: float | None = None
    resident: bool = False
    modeled: bool = False
    faults: tuple[str, ...] = ()

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flop / self.bytes

    @property
    def tflops(self) -> float:
        return self.flop / self.time_us / 1e6

    @property
    def gbps(self) -> float:
        return self.bytes / self.time_us / 1e3

    @property
    def ceiling(self) -> Ceiling:
        """The datasheet's roofs above it, or a measured roof if the datasheet states none, as for L2."""
        compute = self.theory.compute or self.measured.compute
        return _lower_of(compute, self.theory.bandwidth or self.measured.bandwidth, self.intensity)

    @property
    def share(self) -> float | None:
        """The achieved share of the ceiling; ``None`` if no roof is known."""
        tflops = self.ceiling.tflops
        return self.tflops / tflops if tflops else None

    @property
    def share_of_measured(self) -> float | None:
        """The achieved share of the measured ceiling; ``None`` if none was measured."""
        return self.tflops / self.measured.tflops if self.measured.tflops else None


def points(record: Record) -> list[Point]:
    """Returns the points of every case and its kernels, at each measured level."""
    return [p for p in _walk(record) if isinstance(p, Point)]


def missing(record: Record) -> list[tuple[CaseSubject, str]]:
    """Returns each missing point's subject and the reason."""
    return [p for p in _walk(record) if not isinstance(p, Point)]


def _walk(record: Record) -> Iterator[Point | tuple[CaseSubject, str]]:
    facts, variants = record.facts, record.suite.variants
    subjects = (fact.subject for name in ("formula_flop", "ncu_duration") for fact in facts.named(name))
    about = ((s.case, s) for s in subjects if s.case and s.launch is None and s.variant in variants)
    for case, parts in grouped(about).items():
        whole = CaseSubject(case)
        if (stale := record.stale.get(case)) is not None:
            yield whole, cause_text(stale)
            continue
        for subject in dict.fromkeys((whole, *parts)):
            yield from _points_of(record, variants[case.variant], subject)


def timing_mode(record: Record, subject: CaseSubject) -> str:
    """Returns the cache state of ncu's time and bytes: cold, because ncu flushes caches, unless the fact differs."""
    fact = record.facts.get("ncu_duration", subject)
    if fact is None or not isinstance(fact.detail, Caches):
        return "cold, ncu (caches flushed)"
    return "warm, ncu (caches kept)" if fact.detail.kept else "ncu (cache control unknown)"


class _Rate(NamedTuple):
    """FLOPs over a time: where both come from; the stage, clock (MHz) and caches of the time."""

    counted: Counted
    flop: float
    us: float
    mode: str
    stage: Stage
    clock_mhz: float | None
    warm: bool = False


def _rates(record: Record, subject: CaseSubject) -> Iterator[_Rate | tuple[CaseSubject, str]]:
    """Yields the counted FLOPs over ncu's time, and the problem's over the time that ranks, else over ncu's."""
    number = partial(record.facts.number, subject=subject)
    ncu, hertz, formula = number("ncu_duration") or 0.0, number("sm_clock"), number("formula_flop")
    lacking = next((n for n in ("ncu_duration", "tensor_flop", "cuda_core_flop") if number(n) is None), None)
    counted = (number("tensor_flop") or 0.0) + (number("cuda_core_flop") or 0.0)
    launch = _Rate("hardware", counted, ncu / 1e3, timing_mode(record, subject), "profile", hertz and hertz / 1e6)
    if lacking or ncu <= 0:
        yield subject, _reason(record, subject, lacking or "ncu_duration")
    elif counted > 0:
        yield launch
    shape = record.suite.shapes.get(subject.shape or "")
    if formula and shape and (us := number(shape.time)):
        mode = f"{shape.rank_by.replace('_', ' ')} p50"
        yield _Rate("formula", formula, us, mode, "bench", number("bench_sm_clock"), shape.rank_by != "cold")
    elif formula and ncu > 0:
        yield launch._replace(counted="formula", flop=formula)


def _points_of(record: Record, variant: Variant, subject: CaseSubject) -> Iterator[Point | tuple[CaseSubject, str]]:
    """Yields a point per rate and level. A case without counters has the formula's bytes, which know no L1.

    DRAM bytes were counted with caches flushed: they do not limit a warm time of data that fits into L2.
    """
    number = partial(record.facts.number, subject=subject)
    amounts = {level: number(f"{level}_bytes") for level in LEVELS}
    modeled = number("ncu_duration") is None and number("formula_bytes") is not None
    if modeled:
        amounts = {"dram": number("formula_bytes"), "l2": number("formula_l2_bytes") or number("formula_bytes")}
    for rate in _rates(record, subject):
        if not isinstance(rate, _Rate):
            yield rate
            continue
        measured = (at_clock(roof, rate.clock_mhz) for roof in record.roofs_by(rate.stage)(subject))
        ceilings = roofs(devices.find(record.gpu), rate.clock_mhz, tuple(measured))
        for level, amount in amounts.items():
            if not amount or amount <= 0:
                yield subject, _reason(record, subject, f"{level}_bytes")
                continue
            resident = rate.warm and level == "dram" and fits_l2(record, number("formula_bytes"))
            theory, reached = (
                _lower_of(
                    pick(ceilings, variant.roof, order),
                    None if resident else pick(ceilings, level, order),
                    rate.flop / amount,
                )
                for order in (THEORY, MEASURED)
            )
            point = Point(
                *(subject, level, rate.counted, rate.mode, rate.flop, amount, rate.us, variant.roof, theory, reached),
                clock_mhz=rate.clock_mhz,
                resident=resident,
                modeled=modeled,
            )
            yield replace(point, faults=tuple(_faults(record, point)))


def at_clock(roof: Roof, clock_mhz: float | None) -> Roof:
    """The roof at another SM clock; DRAM's and L2's do not depend on it."""
    if not clock_mhz or not roof.clock_mhz or roof.resource in ("dram", "l2"):
        return roof
    return replace(roof, value=roof.value * clock_mhz / roof.clock_mhz, clock_mhz=clock_mhz)


def _reason(record: Record, subject: CaseSubject, name: str) -> str:
    fact = record.facts.get(name, subject)
    if fact is None:
        return f"{name} is unmeasured"
    return f"{name} is unmeasured: {fact.note}" if fact.value is None else f"{name} is {fact.value}"


def _lower_of(compute: Roof | None, bandwidth: Roof | None, intensity: float) -> Ceiling:
    """Returns the ceiling at this intensity (FLOP per byte)."""
    tflops = [compute.value] if compute else []
    tflops += [bandwidth.value * intensity / 1e3] if bandwidth else []
    return Ceiling(compute, bandwidth, min(tflops, default=None))


def _faults(record: Record, point: Point) -> Iterator[str]:
    """Yields why a point is impossible, with the likely cause: it is above a roof, or has far too few FLOPs."""
    formula = record.facts.number("formula_flop", point.subject) or 0.0
    if point.counted == "hardware" and point.flop < FAR_BELOW * formula:
        share = f"the hardware counted {100 * point.flop / formula:.2g} % of the formula's FLOPs"
        yield f"{share}: uncounted FLOP types, skipped work, or a formula that is too high"
    for ceiling in (point.theory, point.measured):
        compute, bandwidth = ceiling.compute, ceiling.bandwidth
        if compute is not None and point.tflops > compute.value:
            share = f"{percentage(100 * point.tflops / compute.value)} of the roof {compute.name}"
            yield f"{share}: {_flop_fault(record, point, compute)}"
        if bandwidth is not None and point.gbps > bandwidth.value:
            share = f"{percentage(100 * point.gbps / bandwidth.value)} of the roof {bandwidth.name}"
            cause = "its bytes and its time are of different timing modes"
            if point.level == "dram":
                cause += " (data that stays in L2?)"
            yield f"{share}: {_above_roof(bandwidth, cause)}"


def _above_roof(roof: Roof, cause: str) -> str:
    return "the measured roof is too low" if roof.origin == "measured" else cause


def _flop_fault(record: Record, point: Point, roof: Roof) -> str:
    facts, subject = record.facts, point.subject
    tensor = facts.number("tensor_flop", subject) or 0.0
    counted = tensor + (facts.number("cuda_core_flop", subject) or 0.0)
    if point.counted == "formula" and 0 < counted < 0.99 * point.flop:
        share = 100 * counted / point.flop
        return (
            f"the hardware did {percentage(share)} of the formula's FLOPs (skipped work, or a formula that is too high)"
        )
    if tensor > 0 and not point.roof.endswith("_tensor"):
        return f"wrong dtype: tensor cores did {percentage(100 * tensor / counted)} of its FLOPs"
    for name in TENSOR_TYPES:
        dtype = name.removesuffix("_sum16")
        if tensor > 0 and facts.number(f"tensor_flop_{name}", subject) == tensor and dtype not in point.roof:
            return f"wrong dtype: its tensor FLOPs are {dtype}"
    if roof.origin == "datasheet":
        return f"the clock is unknown, and may have been above {roof.clock_mhz:,.0f} MHz"
    return _above_roof(
        roof,
        "its FLOPs and its time are from different launches, the clock rose in between, or its products are sparse and "
        "count as dense",
    )


# --- bounds -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bound:
    """The least time that one resource allows.

    ``us`` is ``None`` if the amount or the roof is unknown; ``note`` names the unknown one.
    """

    resource: str
    amount: float | None
    unit: str
    roof: Roof | None
    us: float | None
    note: str = ""


#: Keys of a problem's ``work(params)``; each is a fact ``formula_<name>`` of the case.
WORK = ("flop", "bytes", "tensor_flop", "fp32_flop", "exp", "shared_bytes", "l2_bytes")


def bounds(work: Mapping[str, float], dtype: str, ceilings: Sequence[Roof], *, launches: int = 1) -> tuple[Bound, ...]:
    """Returns each resource's bound by its best known roof: measured, else datasheet at the measured clock, else
    datasheet.

    Args:
        work: a problem's ``work(params)``, any of :data:`WORK`. ``bytes`` replaces a missing ``l2_bytes``, because all
            DRAM bytes pass through L2. ``tensor_flop`` and ``fp32_flop`` are parts of ``flop``, and are never added to
            it; their sum may exceed it if ``flop`` counts useful FLOPs only.
        dtype: the compute roof: ``fp16_tensor`` bounds only the tensor FLOPs, ``fp32`` all.
        ceilings: the machine's :func:`roofs`.
    """
    flop, products, rest = (work.get(name) for name in ("flop", "tensor_flop", "fp32_flop"))
    amounts: dict[str, tuple[float | None, str]] = {}
    if dtype.endswith("_tensor"):
        if products is None and flop is not None:
            products = flop - (rest or 0.0)
            if products <= 0:  # the formula's fp32 FLOPs are for CUDA-core variants, but this one uses tensor cores
                products, rest = flop, None
        amounts[dtype] = products, "FLOP"
        amounts["fp32"] = rest, "FLOP"
    elif flop is products is rest is None:
        amounts[dtype] = None, "FLOP"
    else:
        amounts[dtype] = max(flop or 0.0, (products or 0.0) + (rest or 0.0)), "FLOP"
    amounts["exp"] = work.get("exp"), "op"
    amounts["shared"] = work.get("shared_bytes"), "B"
    amounts["l2"] = work.get("l2_bytes", work.get("bytes")), "B"
    amounts["dram"] = work.get("bytes"), "B"
    amounts["launch"] = float(launches), "launches"
    results = []
    for resource, (amount, unit) in amounts.items():
        roof = pick(ceilings, resource, REACHABLE)
        note = "not in the problem's formulas" if amount is None else "" if roof else "no roof is known"
        us = roof.us(amount) if roof is not None and amount is not None else None
        results.append(Bound(resource, amount, unit, roof, us, note))
    return tuple(results)


def floor(bounds: Sequence[Bound], without: Sequence[str] = ()) -> Bound | None:
    """Returns the largest known bound, excluding the resources in ``without``; ``None`` if no bound is known."""
    with_time = [b for b in bounds if b.us is not None and b.resource not in without]
    return max(with_time, key=lambda b: b.us or 0.0, default=None)


def _at(clock: float | None, bound: Bound) -> float:
    """The bound, us, if the SM clock is higher, MHz, than its roof's."""
    given = bound.roof.clock_mhz if bound.roof else None
    return (bound.us or 0.0) * (min(given / clock, 1.0) if given and clock else 1.0)


#: A time below this share of its floor is impossible. Measured roofs vary by the rest.
LEAST_OF_FLOOR = 0.95


@dataclass(frozen=True, slots=True)
class Gap:
    """A measured time and the floor of its problem in its timing mode; ``time`` is the fact's name.

    Args:
        floor: the same for all variants of the problem on one GPU (:func:`_floors`).
        largest: the largest bound of the variant itself, by its compute roof and its launches.
        least_us: ``largest`` at the highest SM clock that the call may have had.
    """

    time: str
    time_us: float
    floor: Bound
    largest: Bound
    least_us: float
    note: str = ""

    @property
    def floor_us(self) -> float:
        return self.floor.us or 0.0

    @property
    def ratio(self) -> float:
        return self.time_us / self.floor_us

    @property
    def is_impossible(self) -> bool:
        return self.time_us < LEAST_OF_FLOOR * self.least_us

    @property
    def text(self) -> str:
        """The gap in words: ``1.40 × its floor of 3.02 µs (dram)``."""
        ratio, floor = significant(self.ratio, 3), significant(self.floor_us, 3)
        return f"{ratio} × its floor of {floor} µs ({self.floor.resource})"


@dataclass(frozen=True, slots=True)
class CaseBounds:
    """A case's bounds, the floor of its problem with cold caches, and the gap of each measured time."""

    subject: CaseSubject
    bounds: tuple[Bound, ...]
    floor: Bound | None
    gaps: tuple[Gap, ...]

    def gap(self, time: str) -> Gap | None:
        """Returns the gap of a time (``isolated_p50``); ``None`` if it was not measured."""
        return next((g for g in self.gaps if g.time == time), None)


def _assumed(record: Record) -> Device | None:
    """The recorded GPU's entry in the device table; without a GPU, that of the largest of the suite's usual arch."""
    same = (d for d in devices.load().values() if same_hardware(d.arch, record.suite.usual_arch))
    return devices.find(record.gpu) if record.gpu else max(same, key=lambda d: d.sms, default=None)


def assumed_gpu(record: Record) -> str | None:
    """Returns the name of the recorded GPU; without one, of the largest GPU of the suite's usual arch."""
    device = _assumed(record)
    return record.gpu or (device.title if device else None)


def sm_count(record: Record) -> int | None:
    """Returns the number of SMs of :func:`assumed_gpu`, from the record or the device table."""
    device = _assumed(record)
    return record.environment.gpu_sms or (device.sms if device else None)


def shared_busy(record: Record, subject: CaseSubject) -> float | None:
    """Returns shared-memory wavefronts in percent of the SMs' elapsed cycles under ncu: an SM does one per clock."""
    passes, cycles = (record.facts.number(n, subject) for n in ("shared_wavefronts", "elapsed_cycles"))
    sms = sm_count(record)
    return 100 * passes / (cycles * sms) if sms and cycles and passes is not None else None


def l1_busy(record: Record, subject: CaseSubject) -> float | None:
    """Returns bytes through L1 in percent of the maximum in the SMs' elapsed cycles under ncu."""
    size, cycles = (record.facts.number(n, subject) for n in ("l1_bytes", "elapsed_cycles"))
    sms, device = sm_count(record), devices.find(record.gpu)
    if not sms or not cycles or device is None or size is None:
        return None
    return 100 * size / (cycles * sms * device.smem_per_clock)


def fits_l2(record: Record, size: float | None) -> bool:
    """Returns whether ``size`` bytes fit into the recorded GPU's L2; false if either is unknown."""
    device = devices.find(record.gpu)
    l2 = record.environment.gpu_l2_bytes or (device.l2_mib * 2**20 if device else None)
    return l2 is not None and size is not None and size <= l2


class _Case(NamedTuple):
    """A case with formulas: its bounds, those of a variant with one launch, and the clock while it was timed."""

    subject: CaseSubject
    computation: Hashable
    bounds: tuple[Bound, ...]
    single: tuple[Bound, ...]
    resident: bool
    clock_mhz: float | None


def _floors(record: Record, cases: Sequence[_Case]) -> dict[tuple[Hashable, str], Bound]:
    """The floor of each computation in each timing mode (``""``: cold caches, whatever the mode).

    It is the least of its variants' largest bounds, each with one launch, at the highest clock at which one was timed;
    and at least the shortest empty launch of the same mode in the same run.
    """
    floors: dict[tuple[Hashable, str], Bound] = {}
    for computation, alike in grouped((case.computation, case) for case in cases).items():
        clock = max((case.clock_mhz for case in alike if case.clock_mhz), default=None)
        for mode in ("", *TIMING_MODES):
            lowest = [
                replace(bound, us=_at(clock, bound)) if clock else bound
                for case in alike
                if (bound := floor(case.single, ("dram",) if mode not in ("", "cold") and case.resident else ()))
            ]
            empty = [us for case in alike if mode and (us := record.facts.number(f"{mode}_launch_floor", case.subject))]
            least = min(lowest, key=lambda b: b.us or 0.0, default=None)
            if least and empty and min(empty) > (least.us or 0.0):
                note = f"the shortest empty launch of the run, {mode.replace('_', ' ')}"
                least = Bound("launch", 1.0, "launches", None, min(empty), note)
            if least:
                floors[computation, mode] = least
    return floors


def case_bounds(record: Record) -> list[CaseBounds]:
    """Returns the bounds of every case with recorded formulas.

    A warm time has no DRAM bound if the problem's data fits into L2, where it may stay.
    """
    device = devices.find(record.gpu)
    cases = list(_cases(record, device))
    floors = _floors(record, cases)
    results = []
    for case in cases:
        number = partial(record.facts.number, subject=case.subject)
        throttle = record.facts.get("throttle", case.subject)
        highest = None
        if device and "power_cap" in throttle_reasons([throttle]):
            highest = device.clock_mhz  # at the power limit the clock changes between its readings
        gaps = []
        for mode in TIMING_MODES if case.subject.case not in record.stale else ():
            warm = mode != "cold" and case.resident
            without = ("dram",) if warm else ()
            largest, lowest = floor(case.bounds, without), floors.get((case.computation, mode))
            time = number(f"{mode}_p50")
            if time is not None and largest and largest.us and lowest:
                note = "its data fits into L2: no DRAM bound" if warm else ""
                least = max(_at(highest, bound) for bound in case.bounds if bound.us and bound.resource not in without)
                gaps.append(Gap(f"{mode}_p50", time, lowest, largest, least, note))
        results.append(CaseBounds(case.subject, case.bounds, floors.get((case.computation, "")), tuple(gaps)))
    return results


def _cases(record: Record, device: Device | None) -> Iterator[_Case]:
    planned, measured = plans_for(record.plans, record.gpu_arch), record.roofs_by("bench")
    by_clock: dict[float | None, tuple[Roof, ...]] = {}
    for subject in dict.fromkeys(f.subject for f in record.facts.named("formula_flop")):
        variant, shape = record.suite.variants.get(subject.variant), record.suite.shapes.get(subject.shape or "")
        if variant is None or subject.shape is None:
            continue
        number = partial(record.facts.number, subject=subject)
        work = {name: value for name in WORK if (value := number(f"formula_{name}")) is not None}
        plan = planned.get(subject.case)
        launches = len(plan.launches if plan else ()) or int(number("kernel_launches") or 1)
        clock = number("bench_sm_clock")
        if clock not in by_clock:
            by_clock[clock] = roofs(device, clock)
        ceilings = (*by_clock[clock], *measured(subject))
        case, single = (bounds(work, variant.roof, ceilings, launches=n) for n in (launches, 1))
        computation = record.suite.computation(shape) if shape else (variant.problem, subject.shape)
        resident = fits_l2(record, work.get("bytes"))
        yield _Case(subject, computation, case, single, resident, clock)
