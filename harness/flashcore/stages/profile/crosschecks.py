"""Checks a launch's counters against each other, to find impossible values. Pure functions.

Some versions of ncu report zeros, NaN or partial counts, and exit 0. Each launch is checked against invariants: a
kernel that ran took cycles, a sector is 32 bytes, a matrix instruction does a fixed number of FLOPs. Values that
disagree become unmeasured, with the reason. If two values disagree and either may be wrong, both do.

Passes of one kernel differ if it polls for other blocks or for copies. In the recorded runs instruction counts of
passes agreed within 5 %, and of a kernel that polls for bulk copies within a factor of 1.62, so only a factor above
:data:`FAR` is a contradiction. Values determined by the code agreed exactly and must agree within :data:`NEAR`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from flashcore.chips import occupancy
from flashcore.model.text import fixed, percentage, whole
from flashcore.readers.ncu.results import Result

FAR, NEAR = 1.75, 1.02
#: Facts that are positive for a kernel that ran.
POSITIVE = (
    "ncu_duration",
    "elapsed_cycles",
    "sm_clock",
    "instructions",
    "instructions_issued",
    "achieved_occupancy",
    "ncu_theoretical_occupancy",
    "ncu_registers",
    "ncu_grid_size",
    "ncu_block_size",
)
#: FLOPs of a warp's smallest matrix instruction of any type, m8n8k4.
_LEAST_TENSOR_FLOP = 512
_SECTOR = 32  # bytes
_MOST_PCT = 110.0  # of a peak; passes of different length can exceed 100
_TYPES = {"H": "fp16", "D": "fp64", "I": "int8", "Q": "fp8", "B": "int1"}  # by the opcode's first letter
#: m, n and k of a matrix instruction: 64x128x16 of a warpgroup, counted once for each of its four warps; or 16816.
_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)|(8|16)(8)(\d+)")
#: Thread instruction facts → the opcodes that they count.
_THREAD_OPCODES = {
    "op_fadd": ("FADD", "FADD32I"),
    "op_fmul": ("FMUL", "FMUL32I"),
    "op_ffma": ("FFMA", "FFMA32I"),
    "op_hadd": ("HADD2", "HADD2_32I"),
    "op_hmul": ("HMUL2", "HMUL2_32I"),
    "op_hfma": ("HFMA2", "HFMA2_32I"),
    "op_dadd": ("DADD",),
    "op_dmul": ("DMUL",),
    "op_dfma": ("DFMA",),
}
#: Chips whose packed opcodes have other names, and whose products are issued by single threads.
PACKED = "gb"
_OPCODES = "sass__inst_executed_per_opcode"
#: The same with the forms of the instructions: a matrix product's shape and types.
FORMS = f"{_OPCODES}_with_modifier_all"

Contradictions = Iterator[tuple[tuple[str, ...], str]]  # impossible facts and the reason


def too_few_flops(flop: float, instructions: float) -> str:
    """Why this number of tensor FLOPs is too small for the number of matrix instructions; empty if it is not."""
    if flop >= _LEAST_TENSOR_FLOP * instructions:
        return ""
    return f"{whole(instructions)} tensor-core instructions, but only {whole(flop)} FLOPs of the counted types"


@dataclass(frozen=True)
class CountedLaunch:
    """A launch and its values.

    Args:
        values: fact → value, without unmeasured ones.
        metrics: fact → ncu's metric name.
        chip: ncu's name of the chip.
        registers: per thread in the cubin; ``None`` if unknown.
    """

    row: Result
    values: Mapping[str, float]
    metrics: Mapping[str, str]
    chip: str
    registers: int | None = None

    @cached_property
    def warps_per_block(self) -> int:
        return occupancy.warps_of(math.prod(self.row.block))

    @cached_property
    def executed(self) -> Mapping[str, float]:
        """Opcode → executions by warps; empty if they do not add up to ncu's total."""
        reading = self.row.read(_OPCODES)
        listed = reading.instances or {}
        return listed if reading.value and abs(math.fsum(listed.values()) - reading.value) < 0.5 else {}

    def executions(self, *opcodes: str) -> float:
        """Executions of these opcodes by warps."""
        return sum(self.executed.get(opcode, 0.0) for opcode in opcodes)

    def number(self, metric: str) -> float | None:
        """The metric's value, if the launch has it."""
        return self.row.number(metric) if metric in self.row else None


def impossible(launch: CountedLaunch) -> dict[str, str]:
    """A launch's impossible facts, each with the reason."""
    reasons: dict[str, str] = {}
    checks = (
        _range,
        _clock,
        _size,
        _occupancy,
        _registers,
        _sectors,
        _instructions,
        _opcodes,
        _tensor,
        _dram,
        _rollups,
    )
    for names, reason in itertools.chain.from_iterable(check(launch) for check in checks):
        for name in names:
            if name in launch.values:
                reasons.setdefault(name, f"impossible: {reason}")
    return reasons


def _differ(one: float, other: float, factor: float) -> bool:
    return max(one, other) > factor * min(one, other)


def _range(launch: CountedLaunch) -> Contradictions:
    """Values out of range, and an achieved occupancy above the theoretical one."""
    values = launch.values
    for name in POSITIVE:
        if values.get(name) == 0:
            yield (name,), "0, for a kernel that ran"
    for name, value in values.items():
        if value > _MOST_PCT and re.search(r"pct(_of_|$)", launch.metrics.get(name, "")):
            yield (name,), f"{percentage(value, 1)} of a peak"
    names = ("achieved_occupancy", "ncu_theoretical_occupancy")
    achieved, most = map(values.get, names)
    if achieved is not None and most and achieved > NEAR * most + 1:
        yield names, f"an achieved occupancy of {percentage(achieved, 1)}, above the theoretical {percentage(most, 1)}"


def _clock(launch: CountedLaunch) -> Contradictions:
    names = ("ncu_duration", "elapsed_cycles", "sm_clock")
    time, cycles, clock = map(launch.values.get, names)
    if time and cycles and clock and _differ(cycles, time * 1e-9 * clock, FAR):
        yield names, f"{whole(cycles)} cycles in {whole(time)} ns contradict a clock of {whole(clock / 1e6)} MHz"


def _size(launch: CountedLaunch) -> Contradictions:
    for name, dims in (("ncu_grid_size", launch.row.grid), ("ncu_block_size", launch.row.block)):
        size = math.prod(dims)
        if size and launch.values.get(name, size) != size:
            yield (name,), f"{whole(launch.values[name])}, but the launch has {dims}"


def _occupancy(launch: CountedLaunch) -> Contradictions:
    """Occupancy and waves, recomputed from the limits, and the register limit, recomputed from the registers."""
    row, values, warps = launch.row, launch.values, launch.warps_per_block
    limits = [values.get(f"occupancy_limit_{r}") for r in ("registers", "shared_mem", "warps", "blocks", "barriers")]
    numbers = [limit for limit in limits if limit is not None]
    if not warps or len(numbers) < len(limits):
        return
    blocks = min(numbers)
    max_warps = row.number("device__attribute_max_warps_per_multiprocessor")
    theory, waves = values.get("ncu_theoretical_occupancy"), values.get("waves_per_sm")
    if max_warps and theory is not None and abs(100 * blocks * warps / max_warps - theory) > 0.5:
        yield (
            ("ncu_theoretical_occupancy",),
            (f"{percentage(theory, 1)}, but {whole(blocks)} blocks of {warps} warps fit per SM"),
        )
    sms = row.number("launch__sm_count") or row.number("device__attribute_multiprocessor_count")
    if sms and blocks and waves and abs(math.prod(row.grid) / (sms * blocks) - waves) > max(0.01, 0.01 * waves):
        yield ("waves_per_sm",), f"{fixed(waves, 2)} waves, but {whole(blocks)} blocks fit on each of {whole(sms)} SMs"
    if registers := values.get("ncu_registers"):
        fit = occupancy.blocks_by_registers(warps, int(registers))
        if fit != numbers[0]:
            reason = f"with {whole(registers)} registers {fit} blocks fit, not {whole(numbers[0])}"
            yield ("ncu_registers", "occupancy_limit_registers"), reason


def _registers(launch: CountedLaunch) -> Contradictions:
    """The driver allocates at least the cubin's registers: at most 16, or the cubin's rounded up to a multiple of 8."""
    allocated, needed = launch.values.get("ncu_registers"), launch.registers
    if needed is not None and allocated is not None and not needed <= allocated <= max(16, -(-needed // 8) * 8):
        yield ("ncu_registers",), f"{whole(allocated)} registers per thread, but the cubin has {needed}"


def _sectors(launch: CountedLaunch) -> Contradictions:
    for name, size in launch.values.items():
        metric = launch.metrics.get(name, "")
        if "__t_bytes." in metric or metric.startswith("dram__bytes"):
            sectors = launch.number(metric.replace("_bytes", "_sectors"))
            if sectors is not None and abs(size - _SECTOR * sectors) > 0.001 * size + _SECTOR:
                yield (name,), f"{whole(size)} bytes are not {whole(sectors)} sectors of {_SECTOR}"


def _instructions(launch: CountedLaunch) -> Contradictions:
    executed, issued = launch.values.get("instructions"), launch.values.get("instructions_issued")
    total = sum(launch.executed.values())
    if executed and total and _differ(executed, total, FAR):
        yield ("instructions",), f"{whole(executed)} instructions, but {whole(total)} by opcode"
    most = total or executed
    if issued and most and issued * FAR < most:
        yield ("instructions_issued",), f"{whole(issued)} issued, but {whole(most)} executed"
    warps = math.prod(launch.row.grid) * launch.warps_per_block
    if executed and executed < warps:
        yield (
            ("instructions",),
            f"{whole(executed)} instructions by {warps:,} warps, each of which executes one at least",
        )


def _opcodes(launch: CountedLaunch) -> Contradictions:
    """Counters against executions per opcode: at most 32 threads per warp, and 0 only if no warp executed it."""
    if not launch.executed or launch.chip.startswith(PACKED):
        return
    values = launch.values
    threads = launch.row.read("sass__thread_inst_executed_true_per_opcode").instances or {}
    for name, opcodes in _THREAD_OPCODES.items():
        value, warps = values.get(name), launch.executions(*opcodes)
        exact = sum(threads.get(opcode, 0.0) for opcode in opcodes)
        if value is None:
            continue
        if (value == 0) != (warps == 0) or value > FAR * 32 * warps:
            yield (name,), f"{whole(value)} by threads, but warps executed {whole(warps)} of {' and '.join(opcodes)}"
        elif threads and value and _differ(value, exact, NEAR):
            yield (name,), f"{whole(value)}, but ncu lists {whole(exact)} of {' and '.join(opcodes)}"
    for name, opcode in (("local_load_instructions", "LDL"), ("local_store_instructions", "STL")):
        warps = launch.executions(opcode)
        if name in values and _differ(values[name], warps, FAR):
            yield (name,), f"{whole(values[name])}, but warps executed {whole(warps)} of {opcode}"
    shared = launch.executions("LDS", "STS", "LDSM", "STSM")
    conflicts, wavefronts = values.get("bank_conflicts", 0.0), values.get("shared_wavefronts")
    if shared and wavefronts == 0:
        yield ("shared_wavefronts",), f"0, but warps executed {whole(shared)} shared-memory accesses"
    if wavefronts is not None and conflicts > FAR * wavefronts:
        yield ("bank_conflicts", "shared_wavefronts"), f"{whole(conflicts)} conflicts in {whole(wavefronts)} wavefronts"


def _tensor(launch: CountedLaunch) -> Contradictions:
    """Matrix instructions against the tensor pipe's counters, and their FLOPs against the counters of each type."""
    if launch.chip.startswith(PACKED):
        return
    values = launch.values
    products = launch.executions(*(opcode for opcode in launch.executed if _multiplies(opcode)))
    executed = values.get("tensor_instructions")
    if executed is not None and products:
        moved = values.get("tensor_hfma2_instructions", 0.0)
        if not executed or (launch.chip == "gh100" and _differ(executed - moved, products, FAR)):
            reason = f"{whole(executed)}, but warps executed {whole(products)} matrix instructions"
            yield ("tensor_instructions",), reason
    if products and values.get("tensor_active") == 0 and products > 0.01 * values.get("elapsed_cycles", 0.0):
        yield ("tensor_active",), f"0 %, but warps executed {whole(products)} matrix instructions"
    for kind, expected in (tensor_flop(launch.row) or {}).items():
        names = tuple(n for n in (f"tensor_flop_{kind}", f"tensor_flop_{kind}_sum16") if n in launch.metrics)
        counted = [values[n] for n in names if n in values]
        if counted and len(counted) == len(names) and _differ(sum(counted), expected, NEAR):
            yield names, f"{whole(sum(counted))} FLOPs, but the executed instructions do {whole(expected)} of {kind}"


def _multiplies(opcode: str) -> bool:
    return "MMA" in opcode and opcode != "HFMA2"


def tensor_flop(row: Result) -> dict[str, float] | None:
    """Type → FLOPs of the executed instructions, from their shapes; ``None`` if any instruction is of an unknown form,
    or not all are listed."""
    flop: dict[str, float] = {}
    reading = row.read(FORMS)
    listed = reading.instances or {}
    if reading.value is None or abs(math.fsum(listed.values()) - reading.value) > 0.5:
        return None
    for opcode, count in listed.items():
        name, *words = opcode.split(".")
        if not _multiplies(name):
            continue
        shape = words[0] if words else ""
        match = _SHAPE.fullmatch(shape)
        kind = next((w.lower() for w in words if w in ("BF16", "TF32")), _TYPES.get(name[0]))
        if match is None or kind is None or {"S4", "U4", "SP"} & {*words}:
            return None
        size = math.prod(int(n) for n in match.groups() if n) / (4 if "x" in shape else 1)
        flop[kind] = flop.get(kind, 0.0) + 2 * size * count
    return flop


def _dram(launch: CountedLaunch) -> Contradictions:
    """DRAM bytes over time against DRAM throughput, if that is above 5 % of the peak."""
    names = ("dram_read_bytes", "dram_write_bytes", "dram_throughput")
    (read, write, share), time = map(launch.values.get, names), launch.values.get("ncu_duration")
    clock = launch.row.number("device__attribute_memory_clock_rate")  # kHz
    width = launch.row.number("device__attribute_global_memory_bus_width")  # bits
    if read is None or write is None or not time or share is None or not clock or not width:
        return
    peak = 2 * clock * 1e3 * width / 8 * 1e-9  # bytes per ns, at double data rate
    reached = 100 * (read + write) / time / peak
    if max(reached, share) > 5 and _differ(max(reached, 0.1), max(share, 0.1), 1.8):
        yield (
            names,
            f"{whole(read + write)} bytes in {whole(time)} ns are {percentage(reached, 1)} of DRAM's peak, "
            f"not {percentage(share, 1)}",
        )


def _rollups(launch: CountedLaunch) -> Contradictions:
    """Sum over average is the number of hardware units, the same for all counters of a unit. Counters that differ from
    the majority are impossible; without a majority, all are."""
    units: dict[str, list[tuple[str, float]]] = {}
    for name, value in launch.values.items():
        base, _, rollup = launch.metrics.get(name, "").rpartition(".")
        average = launch.number(f"{base}.avg") if base and rollup == "sum" else None
        if average is None:
            continue
        if (value == 0) != (average == 0) and max(value, average) > 1:
            yield (name,), f"a sum of {whole(value)}, but an average of {fixed(average, 2)}"
        elif average > 1:  # printed with two decimals
            units.setdefault(base.split("__")[0], []).append((name, value / average))
    for ratios in units.values():
        counts = Counter(round(ratio) for _, ratio in ratios)
        usual, times = counts.most_common(1)[0]
        for name, ratio in ratios:
            if _differ(ratio, usual, NEAR) or (times == 1 and len(counts) > 1):
                others = ", ".join(whole(other) for other in counts if other != round(ratio))
                usually = f"for other counters {others or usual} times"
                yield (name,), f"its sum is {whole(ratio)} times its average, {usually}"
