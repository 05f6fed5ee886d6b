"""Facts about energy, from readings of NVML. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flashcore.model.catalogue import FactSpec, Kind
from flashcore.model.cause import Cause, Template
from flashcore.model.causes import NO_FORMULA, NO_NVML, OTHER_PROCESSES
from flashcore.model.intervals import Ratio
from flashcore.model.record import Fact, Source, Subject

#: Parts of the readings whose spread gives the interval; Student's t of 95 % for their number.
_PARTS, _T = 8, 2.365
#: Relative difference of the energy counter's mean power and the momentary one from which neither is trusted.
_APART = 0.05

_MEANINGS = {
    "power": ("W", "mean power during back-to-back calls, by the energy counter", ""),
    "power_idle": ("W", "power before the calls, by the energy counter: the process has a context, and no work", ""),
    "energy": ("mJ", "energy of a back-to-back call, including the idle power", "lower"),
    "energy_above_idle": ("mJ", "energy of a back-to-back call, less the idle power over its time", "lower"),
    "flop_per_joule": ("GFLOP/J", "formula FLOPs over the energy, including the idle power", "higher"),
}


def __getattr__(name: str) -> FactSpec:
    """The definition of a fact, by its name."""
    fact, _, end = name.rpartition("_") if name.endswith(("_low", "_high")) else (name, "", "")
    if fact not in _MEANINGS:
        raise AttributeError(name)
    unit, why, better = _MEANINGS[fact]
    why = f"… {end}er end of its 95 % interval" if end else why
    return FactSpec(name, unit, "timing", Kind.NONE, why, better, group="timing")


POWER_DISAGREES = Template(
    "power_disagrees", "the energy counter gives {by_counter:.0f} W, the power sensor {by_sensor:.0f} W"
)


def watts(readings: Mapping[str, Any]) -> Ratio | Cause:
    """The mean power (W) with its interval, or why it is not trusted."""
    updates, sensor = readings["updates"], readings["power"]
    if readings["others"] > 0:
        return OTHER_PROCESSES(readings["others"])
    if len(updates) <= _PARTS or not sensor:
        return NO_NVML(f"{len(updates)} changes of the energy counter and {len(sensor)} readings of the power")
    edges = [updates[i * (len(updates) - 1) // _PARTS] for i in range(_PARTS + 1)]
    mean = _power(edges[0], edges[-1])
    error = _T * statistics.stdev(itertools.starmap(_power, itertools.pairwise(edges))) / math.sqrt(_PARTS)
    by_sensor = statistics.fmean(sensor)
    if mean <= error or abs(by_sensor - mean) > _APART * mean:  # no power within the error, or another one
        return POWER_DISAGREES(mean, by_sensor)
    return Ratio(mean, mean - error, mean + error)


def _power(first: Sequence[float], last: Sequence[float]) -> float:
    """W between two updates (s, mJ)."""
    return (last[1] - first[1]) / (last[0] - first[0]) / 1000


def facts(subject: Subject, flop: float | None, readings: Mapping[str, Any] | Cause) -> Iterator[Fact]:
    """The facts of a case.

    Args:
        readings: what :func:`flashcore.features.energy.child.perform` returns, or why there is nothing.
    """
    if isinstance(readings, Cause):
        work: Ratio | Cause = readings
        idle, us = work, 0.0
    else:
        work, idle, us = watts(readings["work"]), watts(readings["idle"]), readings["us"]
    values = {name: idle if name == "power_idle" else work for name in _MEANINGS}
    if isinstance(work, Ratio):
        values["energy"] = energy = Ratio(*(w * us / 1000 for w in (work.value, work.low, work.high)))
        values["energy_above_idle"] = _above(work, idle, us) if isinstance(idle, Ratio) else idle
        ends = (energy.value, energy.high, energy.low)
        values["flop_per_joule"] = Ratio(*(flop / mj / 1e6 for mj in ends)) if flop else NO_FORMULA("flop")
    for name, value in values.items():
        note = "without work" if name == "power_idle" else f"back-to-back calls of {us:.4g} µs"
        for end, field in (("", "value"), ("_low", "low"), ("_high", "high")):
            if end and name.startswith("power"):
                continue
            number, detail = (None, value) if isinstance(value, Cause) else (getattr(value, field), note)
            yield Fact(subject, name + end, number, _MEANINGS[name][0], Source.NVML, detail)


def _above(work: Ratio, idle: Ratio, us: float) -> Ratio:
    """mJ of a call, less those without work."""
    error = math.hypot(work.high - work.value, idle.high - idle.value)
    return Ratio(*((work.value - idle.value + e) * us / 1000 for e in (0, -error, error)))
