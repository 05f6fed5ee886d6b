"""Computes counts that a report lacks from others that it has: NVIDIA's sets of sections collect some counts only per
cycle. Nothing here is an estimate: a result that is no whole number is discarded.
"""

from __future__ import annotations

from collections.abc import Callable

from flashcore.model.causes import NotReturned
from flashcore.readers.ncu.results import Reading, Result

#: A metric → another that counts the same.
_SAME = {
    f"smsp__inst_executed_op_local_{access}.sum": f"smsp__sass_inst_executed_op_local_{access}.sum"
    for access in ("ld", "st")
} | {
    # On all chips since GA100 it is made of no other counters (libnvperf_host).
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "smsp__inst_executed.sum": "inst_executed",
}
#: A metric → what it is the sum of, where all parts are 0: of others it is not known how they add up.
_NOTHING = {
    "sm__ops_path_tensor_src_fp8.sum": (
        "sm__ops_path_tensor_src_fp8_sparsity_off.sum",
        "sm__ops_path_tensor_src_fp8_sparsity_on.sum",
    ),
}
#: A metric → another and how many of its units one is: a sector is 32 bytes on every chip since 2016.
_TIMES = {
    "lts__t_bytes.sum": ("lts__t_sectors.sum", 32, "byte"),
    "l1tex__t_bytes.sum": ("l1tex__t_sectors.sum", 32, "byte"),
} | {
    f"{bytes_}_{memory}.sum": (f"{bytes_.replace('_bytes', '_sectors')}_{memory}.sum", 32, "byte")
    for bytes_, memory in (
        ("l1tex__t_bytes_pipe_lsu", "mem_global_op_ld"),
        ("l1tex__t_bytes_pipe_lsu", "mem_global_op_st"),
        ("l1tex__m_l1tex2xbar_write_bytes", "mem_global_op_atom"),
        ("l1tex__m_l1tex2xbar_write_bytes", "mem_global_op_red"),
    )
}
_PER_CYCLE = ".per_cycle_elapsed"
_WHOLE = 1e-9  # relative rounding error of 64-bit arithmetic on a whole number


class Completed(Result):
    """An imported result: a metric that the report lacks is computed from equivalent ones, where that is exact."""

    @classmethod
    def of(cls, result: Result, number: int) -> Completed:
        """The same result under another number."""
        return cls(**{**vars(result), "id": number})

    def read(self, metric: str) -> Reading:
        if metric in self and self.metrics[metric].value is not None:
            return super().read(metric)
        equivalent = reading(metric, lambda other: self.number(other) if other in self else None)
        return equivalent or Reading(None, detail=NotReturned(report=True))


def reading(metric: str, number: Callable[[str], float | None]) -> Reading | None:
    """The same count computed from others, with a note of which; ``None`` where they do not give it.

    Args:
        number: the value of a metric that the report has.
    """
    if (same := _SAME.get(metric)) and (value := number(same)) is not None:
        return Reading(value, "%" if ".pct_" in same else "inst", detail=f"as {same}")
    if metric in _NOTHING and all(number(part) == 0 for part in _NOTHING[metric]):
        return Reading(0.0, detail=f"as {' + '.join(_NOTHING[metric])}")
    if metric in _TIMES:
        other, factor, unit = _TIMES[metric]
        if (value := number(other)) is not None:
            return Reading(factor * value, unit, detail=f"as {factor} × {other}")
    return _by_cycle(metric, number) if metric.endswith(".sum") else None


def _by_cycle(metric: str, number: Callable[[str], float | None]) -> Reading | None:
    """A sum of its rate and the cycles that ncu made the rate with: those of the unit, on average. Rates of another
    pass than the cycles do not give a whole number, nor do printed ones."""
    rate, cycles = number(metric + _PER_CYCLE), number(f"{metric.split('__')[0]}__cycles_elapsed.avg")
    if rate is None or cycles is None:
        return None
    value = rate * cycles
    if abs(value - round(value)) > _WHOLE * max(value, 1.0):
        return None
    return Reading(float(round(value)), detail=f"as {metric}{_PER_CYCLE} × its unit's cycles")
