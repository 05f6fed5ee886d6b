"""The least share of a case's time that each resource needs: what the bullet bars of the overview show.

Where counters were read, the amounts are those that the hardware counted for this variant. Else they are the problem's
own. A share near 100 % says that the resource is the limit; all of them small, that something else is.
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

#: In the order of the page; ``tensor`` stands for the variant's own compute roof.
RESOURCES = ("DRAM", "L2", "shared", "compute", "exp", "issue", "launch")
#: Warp instructions that an SM's four schedulers issue in a clock, on every GPU since compute capability 7.0.
ISSUES_PER_CLOCK = 4


@dataclass(frozen=True, slots=True)
class Need:
    """One resource's least time over the time measured, %; ``text`` says what it was made of, ``counted`` that the
    hardware counted the amount."""

    resource: str
    percent: float
    text: str
    counted: bool


def shared_busy(known: Readings, subject: Subject) -> float | None:
    """Passes through shared memory over those that its SMs could have done under ncu, %."""
    device = devices.find(known.record.gpu)
    sms = known.record.environment.gpu_sms or (device.sms if device else None)
    passes, cycles = (known.record.facts.number(n, subject) for n in ("shared_wavefronts", "elapsed_cycles"))
    return 100 * passes / (cycles * sms) if sms and cycles and passes is not None else None


def needs(known: Readings, variant: Variant, shape: Shape) -> dict[str, Need]:
    """By resource; unknown ones are left out."""
    return {n.resource: n for n in _needs(known, variant, shape)}


def _needs(known: Readings, variant: Variant, shape: Shape) -> Iterator[Need]:
    record, subject = known.record, Subject(variant.name, shape=shape.name)

    def number(name: str) -> float | None:
        return record.facts.number(name, subject)

    time, cold, clock = number(shape.time), number("cold_p50"), number("bench_sm_clock")
    device = devices.find(record.gpu)
    ceilings = (
        *roofline.roofs(device, clock, known.roofs(subject)),
        *_of_the_sm(record.environment.gpu_sms, device, clock),
    )
    launches = number("kernel_launches") or sum(
        len(p.launches) for p in record.plans if (p.variant, p.shape) == (variant.name, shape.name)
    )
    compute = next((n for n in ("tensor_flop", "formula_tensor_flop", "formula_flop") if number(n)), "")
    if not variant.roof.endswith("_tensor"):
        compute = "formula_flop"
    for resource, roof, names, over in (
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
        if over and fact and ceiling and (amount := number(fact)):
            yield _need(resource, ceiling.us(amount), over, fact, ceiling, counted=not fact.startswith("formula_"))
    least = roofline.pick(ceilings, "launch", roofline.REACHABLE)
    if time and least and launches:
        yield _need("launch", least.us(launches), time, f"{launches:.0f} launches", least)


def _need(resource: str, us: float, over: float, of: str, roof: Roof, counted: bool = False) -> Need:
    text = f"{significant(us, 3)} of {significant(over, 3)} µs: {of}, roof {roof.origin}"
    return Need(resource, 100 * us / over, text, counted)


def _of_the_sm(sms: int | None, device: devices.Device | None, clock: float | None) -> Sequence[Roof]:
    """Passes through shared memory, one a clock and SM; and issue slots."""
    mhz, count = clock or (device.clock_mhz if device else None), sms or (device.sms if device else None)
    if not mhz or not count:
        return ()
    rates = (("passes", 1), ("slots", ISSUES_PER_CLOCK))
    return [Roof(name, n * count * mhz / 1e3, "Gop/s", "at clock seen", "", mhz) for name, n in rates]
