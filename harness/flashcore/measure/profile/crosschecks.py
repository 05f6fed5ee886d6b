"""Impossible counters: values of one launch that are related must agree. Pure.

Versions of ncu exist that report zeros, NaN, or a part of what was counted, and exit 0. So each launch is checked
against what must hold: a kernel that ran took cycles, a sector is 32 bytes, an instruction that multiplies matrices is
so many FLOPs. Values that disagree are unmeasured, with the reason; which of two is wrong is not known, so both are.

Passes of one kernel differ where it waits for others in a loop: counts of instructions agreed within 5 % in the runs
that are recorded, so a factor of :data:`FAR` is what counts as disagreement between passes. What follows from the code
alone agreed exactly, and must agree within :data:`NEAR`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from flashcore.chips import occupancy
from flashcore.readers.ncu.results import Result

FAR, NEAR = 1.5, 1.02
#: Facts that are above 0 for a kernel that ran.
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
#: The smallest product of matrices that a warp's instruction does, m8n8k4: whatever its type, no less.
_LEAST_TENSOR_FLOP = 512
_SECTOR = 32  # bytes
_MOST_PCT = 110.0  # of a peak: passes of several lengths lift it above 100
#: m · n · k by the modifier of HMMA, IMMA, DMMA, QMMA.
_SHAPES = {
    "884": 256,
    "1684": 512,
    "1688": 1024,
    "16816": 2048,
    "16832": 4096,
    "16864": 8192,
    "8816": 1024,
    "8832": 2048,
}
_TYPES = {"H": "fp16", "D": "fp64", "I": "int8", "Q": "fp8", "B": "int1"}  # by a product's first letter
_GROUP = re.compile(r"(\d+)x(\d+)x(\d+)")  # of the warpgroup's, whose four warps count one each
#: Facts of thread instructions → the opcodes that they count.
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

Contradictions = Iterator[tuple[tuple[str, ...], str]]  # facts that are impossible, and why


def impossible(
    row: Result, values: Mapping[str, float], metrics: Mapping[str, str], chip: str, registers: int | None = None
) -> dict[str, str]:
    """The facts of a launch that are impossible, each with the reason.

    Args:
        values: what was read, by fact; without what is unmeasured.
        metrics: ncu's name of each fact.
        chip: as ncu names it.
        registers: a thread's, as the cubin has them, where it is known.
    """
    reasons: dict[str, str] = {}
    for names, reason in contradictions(Launch(row, values, metrics, chip, registers)):
        for name in names:
            if name in values:
                reasons.setdefault(name, f"cannot be: {reason}")
    return reasons


def too_few_flops(flop: float, instructions: float) -> str:
    """Why this number of tensor FLOPs cannot be that of so many matrix instructions; empty if it can."""
    if flop >= _LEAST_TENSOR_FLOP * instructions:
        return ""
    return f"{instructions:,.0f} tensor-core instructions, but {flop:,.0f} FLOPs of the types counted"


@dataclass(frozen=True)
class Launch:
    """A launch and what was read of it; see :func:`impossible`."""

    row: Result
    values: Mapping[str, float]
    metrics: Mapping[str, str]
    chip: str
    registers: int | None = None

    @cached_property
    def warps_per_block(self) -> int:
        return -(-math.prod(self.row.block) // 32)

    @cached_property
    def executed(self) -> Mapping[str, float]:
        """Opcode → how often warps executed it; nothing if the list does not add up to ncu's total."""
        reading = self.row.read(_OPCODES)
        listed = reading.instances or {}
        return listed if reading.value and abs(math.fsum(listed.values()) - reading.value) < 0.5 else {}

    def executions(self, *opcodes: str) -> float:
        """How often warps executed any of these."""
        return sum(self.executed.get(opcode, 0.0) for opcode in opcodes)

    def number(self, metric: str) -> float | None:
        """A metric that the launch has."""
        return self.row.number(metric) if metric in self.row else None


def contradictions(launch: Launch) -> Contradictions:
    """Everything about the launch that cannot be."""
    checks = (
        _alone,
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
    for check in checks:
        yield from check(launch)


def _differ(one: float, other: float, factor: float) -> bool:
    return max(one, other) > factor * min(one, other)


def _alone(launch: Launch) -> Contradictions:
    """Values that are impossible whatever the others are, and occupancies."""
    values = launch.values
    for name in POSITIVE:
        if values.get(name) == 0:
            yield (name,), "a kernel that ran has more than 0"
    for name, value in values.items():
        if value > _MOST_PCT and re.search(r"pct(_of_|$)", launch.metrics.get(name, "")):
            yield (name,), f"{value:,.1f} % of the most there is"
    names = ("achieved_occupancy", "ncu_theoretical_occupancy")
    achieved, most = map(values.get, names)
    if achieved is not None and most and achieved > NEAR * most + 1:
        yield names, f"{achieved:.1f} % of the warps were there, of {most:.1f} % that fit"


def _clock(launch: Launch) -> Contradictions:
    names = ("ncu_duration", "elapsed_cycles", "sm_clock")
    time, cycles, clock = map(launch.values.get, names)
    if time and cycles and clock and _differ(cycles, time * 1e-9 * clock, FAR):
        yield names, f"{cycles:,.0f} cycles in {time:,.0f} ns are no clock of {clock / 1e6:,.0f} MHz"


def _size(launch: Launch) -> Contradictions:
    for name, dims in (("ncu_grid_size", launch.row.grid), ("ncu_block_size", launch.row.block)):
        size = math.prod(dims)
        if size and launch.values.get(name, size) != size:
            yield (name,), f"{launch.values[name]:,.0f}, where the launch has {dims}"


def _occupancy(launch: Launch) -> Contradictions:
    """What fits on an SM, worked out from the limits; and the limit of registers from the registers."""
    row, values, warps = launch.row, launch.values, launch.warps_per_block
    limits = [values.get(f"occupancy_limit_{r}") for r in ("registers", "shared_mem", "warps", "blocks", "barriers")]
    numbers = [limit for limit in limits if limit is not None]
    if not warps or len(numbers) < len(limits):
        return
    blocks = min(numbers)
    holds = row.number("device__attribute_max_warps_per_multiprocessor")
    theory, waves = values.get("ncu_theoretical_occupancy"), values.get("waves_per_sm")
    if holds and theory is not None and abs(100 * blocks * warps / holds - theory) > 0.5:
        yield ("ncu_theoretical_occupancy",), f"{theory:.1f} %, where {blocks:.0f} blocks of {warps} warps fit"
    sms = row.number("launch__sm_count") or row.number("device__attribute_multiprocessor_count")
    if sms and blocks and waves and abs(math.prod(row.grid) / (sms * blocks) - waves) > max(0.01, 0.01 * waves):
        yield ("waves_per_sm",), f"{waves:.2f} waves, where {blocks:.0f} blocks fit on each of {sms:.0f} SMs"
    if registers := values.get("ncu_registers"):
        fit = occupancy.blocks_by_registers(warps, int(registers))
        if fit != numbers[0]:
            reason = f"{registers:.0f} registers let {fit} blocks fit, not {numbers[0]:.0f}"
            yield ("ncu_registers", "occupancy_limit_registers"), reason


def _registers(launch: Launch) -> Contradictions:
    """A driver gives no fewer than the code needs, and at least 16; it rounds up to 8."""
    given, needed = launch.values.get("ncu_registers"), launch.registers
    if needed is not None and given is not None and not needed <= given <= max(16, -(-needed // 8) * 8):
        yield ("ncu_registers",), f"{given:.0f} registers a thread, where the cubin has {needed}"


def _sectors(launch: Launch) -> Contradictions:
    for name, size in launch.values.items():
        metric = launch.metrics.get(name, "")
        if "__t_bytes." in metric or metric.startswith("dram__bytes"):
            sectors = launch.number(metric.replace("_bytes", "_sectors"))
            if sectors is not None and abs(size - _SECTOR * sectors) > 0.001 * size + _SECTOR:
                yield (name,), f"{size:,.0f} bytes are not {sectors:,.0f} sectors of {_SECTOR}"


def _instructions(launch: Launch) -> Contradictions:
    executed, issued = launch.values.get("instructions"), launch.values.get("instructions_issued")
    total = sum(launch.executed.values())
    if executed and total and _differ(executed, total, FAR):
        yield ("instructions",), f"{executed:,.0f} instructions, but {total:,.0f} by opcode"
    most = total or executed
    if issued and most and issued * FAR < most:
        yield ("instructions_issued",), f"{issued:,.0f} issued, but {most:,.0f} executed"
    warps = math.prod(launch.row.grid) * launch.warps_per_block
    if executed and executed < warps:
        yield ("instructions",), f"{executed:,.0f} instructions of {warps:,} warps, which each end with one"


def _opcodes(launch: Launch) -> Contradictions:
    """Counts against the code's own: of what threads did at most 32 a warp, and none only where no warp did."""
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
            yield (name,), f"{value:,.0f} by threads, where warps executed {warps:,.0f} of {' and '.join(opcodes)}"
        elif threads and value and _differ(value, exact, NEAR):
            yield (name,), f"{value:,.0f}, where ncu lists {exact:,.0f} of {' and '.join(opcodes)}"
    for name, opcode in (("local_load_instructions", "LDL"), ("local_store_instructions", "STL")):
        warps = launch.executions(opcode)
        if name in values and _differ(values[name], warps, FAR):
            yield (name,), f"{values[name]:,.0f}, where warps executed {warps:,.0f} of {opcode}"
    shared = launch.executions("LDS", "STS", "LDSM", "STSM")
    conflicts, passes = values.get("bank_conflicts", 0.0), values.get("shared_wavefronts")
    if shared and passes == 0:
        yield ("shared_wavefronts",), f"none, where warps executed {shared:,.0f} accesses to shared memory"
    if passes is not None and conflicts > FAR * passes:
        yield ("bank_conflicts", "shared_wavefronts"), f"{conflicts:,.0f} conflicts in {passes:,.0f} passes"


def _tensor(launch: Launch) -> Contradictions:
    """Instructions that multiply matrices against the pipe's, and their FLOPs against those counted of all types."""
    if launch.chip.startswith(PACKED):
        return
    values = launch.values
    products = launch.executions(*(opcode for opcode in launch.executed if _multiplies(opcode)))
    executed = values.get("tensor_instructions")
    if executed is not None and products:
        moved = values.get("tensor_hfma2_instructions", 0.0)
        if not executed or (launch.chip == "gh100" and _differ(executed - moved, products, FAR)):
            yield ("tensor_instructions",), f"{executed:,.0f}, where warps executed {products:,.0f} products"
    if products and values.get("tensor_active") == 0 and products > 0.01 * values.get("elapsed_cycles", 0.0):
        yield ("tensor_active",), f"0 %, where warps executed {products:,.0f} products of matrices"
    for kind, due in (tensor_flop(launch.row) or {}).items():
        names = tuple(n for n in (f"tensor_flop_{kind}", f"tensor_flop_{kind}_sum16") if n in launch.metrics)
        counted = [values[n] for n in names if n in values]
        if counted and len(counted) == len(names) and _differ(sum(counted), due, NEAR):
            yield names, f"{sum(counted):,.0f} FLOPs, where the instructions executed do {due:,.0f} of {kind}"


def _multiplies(opcode: str) -> bool:
    return "MMA" in opcode and opcode != "HFMA2"


def tensor_flop(row: Result) -> dict[str, float] | None:
    """Type → FLOPs of the instructions executed, by their shapes; ``None`` if one is of an unknown form, or not all are
    listed."""
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
        group = _GROUP.fullmatch(shape)
        size = math.prod(int(n) for n in group.groups()) / 4 if group else _SHAPES.get(shape)
        kind = next((w.lower() for w in words if w in ("BF16", "TF32")), _TYPES.get(name[0]))
        if size is None or kind is None or {"S4", "U4", "SP"} & {*words}:
            return None
        flop[kind] = flop.get(kind, 0.0) + 2 * size * count
    return flop


def _dram(launch: Launch) -> Contradictions:
    """Bytes and time against the busy share of DRAM, where that is large enough to be known."""
    names = ("dram_read_bytes", "dram_write_bytes", "dram_throughput")
    (read, write, share), time = map(launch.values.get, names), launch.values.get("ncu_duration")
    clock = launch.row.number("device__attribute_memory_clock_rate")  # kHz
    width = launch.row.number("device__attribute_global_memory_bus_width")  # bits
    if read is None or write is None or not time or share is None or not clock or not width:
        return
    peak = 2 * clock * 1e3 * width / 8 * 1e-9  # bytes a ns, two a clock
    reached = 100 * (read + write) / time / peak
    if max(reached, share) > 5 and _differ(max(reached, 0.1), max(share, 0.1), 1.8):
        yield (
            names,
            f"{read + write:,.0f} bytes in {time:,.0f} ns are {reached:.1f} % of DRAM's peak, not {share:.1f} %",
        )


def _rollups(launch: Launch) -> Contradictions:
    """A sum is the average times the units of the chip, as many for one counter as for its neighbors. Those that
    contradict the most others are impossible; where two contradict each other, both."""
    units: dict[str, list[tuple[str, float]]] = {}
    for name, value in launch.values.items():
        base, _, rollup = launch.metrics.get(name, "").rpartition(".")
        average = launch.number(f"{base}.avg") if base and rollup == "sum" else None
        if average is None:
            continue
        if (value == 0) != (average == 0) and max(value, average) > 1:
            yield (name,), f"a sum of {value:,.0f} of {average:,.2f} on average"
        elif average > 1:  # printed with two decimals
            units.setdefault(base.split("__")[0], []).append((name, value / average))
    for ratios in units.values():
        counts = Counter(round(ratio) for _, ratio in ratios)
        usual, times = counts.most_common(1)[0]
        for name, ratio in ratios:
            if _differ(ratio, usual, NEAR) or (times == 1 and len(counts) > 1):
                others = ", ".join(f"{other:,.0f}" for other in counts if other != round(ratio))
                yield (name,), f"its sum is {ratio:,.0f} times its average, that of others {others or usual}"
