"""Derives a machine's measured roofs from a run of the roofs suite.

Each case of that suite saturates one resource; its problem names the amount whose rate is the ceiling. Kernels time
themselves with the GPU's nanosecond timer, which excludes ramps and launches. Launches, and writes that reach DRAM only
after the kernel ends, are timed by graph replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from flashcore.chips import devices
from flashcore.explain import roofline
from flashcore.model.groups import grouped
from flashcore.model.record import CaseSubject, Record, Roof, Subject
from flashcore.model.text import fixed, percentage, whole
from flashcore.records.lookup import ROOFS_SUITE

#: Operations or bytes per second in one unit of a ceiling.
_PER_SECOND = {"GB/s": 1e9, "TFLOP/s": 1e12, "Gop/s": 1e9}
#: The times of an amount, in order of preference. Library kernels do not time themselves: graph replay does.
_KERNEL_TIMES = ("kernel_span", "back_to_back_p50")
_TIMES = {
    "launches": ("back_to_back_p50",),
    "dram_bytes": ("back_to_back_p50",),  # the last written bytes are still in L2 when the kernel ends
    "barriers": ("kernel_block_span",),
}


@dataclass(frozen=True, slots=True)
class MeasuredRoof:
    """One case as a ceiling.

    Args:
        name: the problem's name, finer than ``resource`` (``dram_read``, ``wgmma_fp16``).
        resource: the resource that it bounds (``dram``, ``fp16_tensor``): the variant's ``roof``.
        value: in ``unit``: a rate, or microseconds per operation (``us``).
        spread: standard deviation over median of the samples.
        per_clock: rate per SM and clock; for L2, bytes per clock of the whole GPU.
        datasheet: the datasheet's value at the measured clock; ``None`` if it has none.
        library: whether a library implements it, for comparison.
    """

    name: str
    resource: str
    subject: Subject
    value: float
    unit: str
    clock_mhz: float | None = None
    spread: float | None = None
    temperature: float | None = None
    per_clock: float | None = None
    datasheet: float | None = None
    library: bool = False

    @property
    def ratio(self) -> float | None:
        """Measured over datasheet."""
        return self.value / self.datasheet if self.datasheet else None


#: The resource that a case saturates → its amount and the unit of the ceiling; of others, bytes or tensor FLOPs.
_AMOUNTS = {
    "fp32": ("fp32_flop", "TFLOP/s"),
    "exp": ("exp", "Gop/s"),
    "issue": ("instructions", "Gop/s"),
    "barrier": ("barriers", "us"),
    "cluster_barrier": ("barriers", "us"),
    "launch": ("launches", "us"),
}


def rates(record: Record) -> dict[Subject, MeasuredRoof]:
    """Each timed case of a roofs run as a ceiling; empty for other runs."""
    if record.suite.name != ROOFS_SUITE:
        return {}
    roofs = {o.shape: record.suite.variants[o.variant].roof for o in record.outcomes}
    tensor, memory = ("tensor_flop", "TFLOP/s"), "GB/s"
    amounts = {
        shape: _AMOUNTS.get(roof, tensor if roof.endswith("_tensor") else (f"{roof}_bytes", memory))
        for shape, roof in roofs.items()
    }
    return {one.subject: one for one in measured(record, amounts) if one.resource != "launch_plain"}


def measured(record: Record, amounts: Mapping[str, tuple[str, str]]) -> list[MeasuredRoof]:
    """Returns every timed case of a roofs run as a ceiling; failed cases are left out.

    Args:
        amounts: shape → (key of the problem's ``work``, unit), from the problem's ``ceiling``.
    """
    device, sms = devices.find(record.gpu), record.environment.gpu_sms
    results = []
    for outcome in record.outcomes:
        if outcome.stage != "bench" or outcome.status != "ok" or outcome.shape not in amounts:
            continue
        key, unit = amounts[outcome.shape]
        subject = CaseSubject(outcome.case)
        variant = record.suite.variants[outcome.variant]
        number = partial(record.facts.number, subject=subject)
        amount = number(f"formula_{key}")
        time = next(filter(None, map(number, _TIMES.get(key, _KERNEL_TIMES))), None)
        if not amount or not time:
            continue
        p50, std, clock = (number(name) for name in ("back_to_back_p50", "back_to_back_std", "kernel_sm_clock"))
        per_clock = None
        if clock is not None and sms is not None and unit != "us" and variant.roof != "dram":
            per_clock = amount / (time * clock) / (1 if variant.roof == "l2" else sms)
        datasheet = roofline.pick(roofline.roofs(device, clock), variant.roof, roofline.THEORY)
        results.append(
            MeasuredRoof(
                name=variant.name if unit == "us" else variant.problem,
                resource=variant.roof,
                subject=subject,
                value=time / amount if unit == "us" else amount / time * 1e6 / _PER_SECOND[unit],
                unit=unit,
                clock_mhz=clock,
                spread=std / p50 if p50 and std is not None else None,
                temperature=number("bench_temperature"),
                per_clock=per_clock,
                datasheet=datasheet.value if datasheet is not None and datasheet.unit == unit else None,
                library=variant.is_reference,
            )
        )
        if key == "launches" and (eager := number("eager_p50")):
            results.append(MeasuredRoof(f"{variant.name}_plain", "launch_plain", subject, eager / amount, "us"))
    return results


def ceilings(record: Record, results: Sequence[MeasuredRoof]) -> tuple[Roof, ...]:
    """Returns the best case per problem and per resource as roofs, named after the problem or the resource.

    For units of time, the smallest value is best.
    """
    candidates = grouped(
        (name, one) for one in results if not one.library for name in dict.fromkeys((one.resource, one.name))
    )
    roofs = []
    for name, measured in candidates.items():
        best = min(measured, key=lambda m: m.value if m.unit == "us" else -m.value)
        note = _note(record, best)
        roofs.append(Roof(name, best.value, best.unit, "measured", record.gpu or "", best.clock_mhz, note))
    return tuple(roofs)


def _note(record: Record, one: MeasuredRoof) -> str:
    parts = [f"{one.subject.case} of run {record.id}", *(f"on {gpu.uuid}" for gpu in record.gpus)]
    if one.spread is not None:
        parts.append(f"std/p50 {fixed(one.spread, 4)}")
    if one.temperature is not None:
        parts.append(f"{whole(one.temperature)} °C")
    if one.ratio is not None:
        parts.append(f"{percentage(100 * one.ratio, 1)} of the datasheet at this clock")
    return ", ".join(parts)
