"""Measured roofs: what this machine reaches, from a run of the roofs suite.

Each case of that suite saturates one resource. Its problem names the amount that is the ceiling. The time is the
kernel's own, from the GPU's nanosecond timer, so it excludes ramps and launches. Launches themselves, and writes that
reach DRAM only after the kernel ends, are timed by graph replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flashcore.chips import devices
from flashcore.explain import roofline
from flashcore.model.record import Record, Roof, Subject

#: Operations or bytes per second in one unit of a ceiling.
_PER_SECOND = {"GB/s": 1e9, "TFLOP/s": 1e12, "Gop/s": 1e9}


@dataclass(frozen=True, slots=True)
class Measured:
    """One case as a ceiling.

    Args:
        name: the problem's name, finer than ``resource`` (``dram_read``, ``wgmma_fp16``).
        resource: what it is a roof for (``dram``, ``fp16_tensor``): the variant's ``roof``.
        value: in ``unit``; a rate, or microseconds for what costs time (``us``).
        spread: standard deviation over median of the samples.
        per_clock: rate per SM and clock; for L2, bytes per clock of the whole GPU.
        datasheet: the datasheet's value at the clock seen; ``None`` if it has none.
        peer: measured through a library, for comparison.
    """

    name: str
    resource: str
    subject: Subject
    value: float
    unit: str
    clock_mhz: float | None
    spread: float | None
    temperature: float | None
    per_clock: float | None
    datasheet: float | None
    peer: bool

    @property
    def ratio(self) -> float | None:
        """Measured over datasheet."""
        return self.value / self.datasheet if self.datasheet else None


def measured(record: Record, amounts: Mapping[str, tuple[str, str]]) -> list[Measured]:
    """Returns every timed case of a roofs run as a ceiling; failed cases are left out.

    Args:
        amounts: shape → (key of the problem's ``work``, unit), from the problem's ``ceiling``.
    """
    device = devices.find(record.gpu)
    results = []
    for outcome in record.outcomes:
        if outcome.stage != "bench" or outcome.status != "ok" or outcome.shape not in amounts:
            continue
        key, unit = amounts[outcome.shape]
        subject = Subject(outcome.variant, shape=outcome.shape)
        variant = record.suite.variants[outcome.variant]
        amount = record.facts.number(f"formula_{key}", subject)
        time = _time(record, subject, key)
        if not amount or not time:
            continue
        p50, std = (record.facts.number(n, subject) for n in ("back_to_back_p50", "back_to_back_std"))
        clock = record.facts.number("kernel_sm_clock", subject)
        value = time / amount if unit == "us" else amount / time * 1e6 / _PER_SECOND[unit]
        results.append(
            Measured(
                name=variant.name if unit == "us" else variant.problem,
                resource=variant.roof,
                subject=subject,
                value=value,
                unit=unit,
                clock_mhz=clock,
                spread=std / p50 if p50 and std is not None else None,
                temperature=record.facts.number("bench_temperature", subject),
                per_clock=_per_clock(record, variant.roof, amount, time, clock, unit),
                datasheet=_datasheet(device, variant.roof, clock, unit),
                peer=variant.is_reference,
            )
        )
        if key == "launches" and (eager := record.facts.number("eager_p50", subject)):
            plain = eager / amount
            results.append(
                Measured(
                    f"{variant.name}_plain", "launch_plain", subject, plain, "us", None, None, None, None, None, False
                )
            )
    return results


def _time(record: Record, subject: Subject, key: str) -> float | None:
    """Returns the µs that the amount took; library kernels do not time themselves, so theirs is of graph replay."""
    names = {
        "launches": ("back_to_back_p50",),
        "dram_bytes": ("back_to_back_p50",),  # what was written last is still in L2 when the kernel ends
        "barriers": ("kernel_block_span",),
    }.get(key, ("kernel_span", "back_to_back_p50"))
    return next((t for n in names if (t := record.facts.number(n, subject))), None)


def _per_clock(record: Record, resource: str, amount: float, us: float, clock: float | None, unit: str) -> float | None:
    sms = record.environment.gpu_sms
    if clock is None or sms is None or unit == "us" or resource == "dram":
        return None
    return amount / (us * clock) / (1 if resource == "l2" else sms)


def _datasheet(device: devices.Device | None, resource: str, clock: float | None, unit: str) -> float | None:
    ceilings = roofline.roofs(device, clock)
    roof = roofline.pick(ceilings, resource, roofline.THEORY)
    return roof.value if roof is not None and roof.unit == unit else None


def ceilings(record: Record, results: Sequence[Measured]) -> tuple[Roof, ...]:
    """Returns the best case per problem and per resource as roofs, named after the problem or the resource.

    For units of time, the smallest value is best.
    """
    best: dict[str, Measured] = {}
    for one in results:
        if one.peer:
            continue
        for name in dict.fromkeys((one.resource, one.name)):
            if name not in best or _better(one, best[name]):
                best[name] = one
    return tuple(
        Roof(name, one.value, one.unit, "measured", record.gpu or "", one.clock_mhz, _note(record, one))
        for name, one in best.items()
    )


def _better(one: Measured, other: Measured) -> bool:
    return one.value < other.value if one.unit == "us" else one.value > other.value


def _note(record: Record, one: Measured) -> str:
    parts = [f"{one.subject.case} of run {record.id}", *(f"on {gpu.uuid}" for gpu in record.gpus)]
    if one.spread is not None:
        parts.append(f"std/p50 {one.spread:.4f}")
    if one.temperature is not None:
        parts.append(f"{one.temperature:.0f} °C")
    if one.ratio is not None:
        parts.append(f"{100 * one.ratio:.1f} % of the datasheet at this clock")
    return ", ".join(parts)
