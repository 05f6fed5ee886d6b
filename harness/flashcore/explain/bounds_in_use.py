"""Computes the least share of a case's time that each resource needs, for the overview's bullet bars.

Amounts are hardware counts of the variant if available, else the problem's formulas. A share near 100 % means that the
resource limits the case; if all shares are small, something else does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flashcore.chips import devices
from flashcore.explain import roofline
from flashcore.explain.predictions import Readings
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
