"""The catalogue of facts: every name a budget, a prediction or a page may use, written once.

For what Nsight Compute measures, a fact is a *logical metric*: its name stays the same on every chip
while ``ncu`` holds the chip's own name for it. What a chip lacks is unmeasured there, never zero.

How a value over a case is formed from those of its kernel launches depends on :class:`Kind`. Counters
add up. Percentages are weighted by time. A ratio is weighted by its own denominator, which makes it the
ratio of the sums.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from flashcore.model import plugin
from flashcore.model.suite import Stage, Tier


class Kind(StrEnum):
    """How a fact adds up over several launches."""

    COUNTER = "counter"  # sum
    PERCENTAGE = "percentage"  # mean weighted by duration
    RATIO = "ratio"  # mean weighted by `weight`, the ratio's denominator
    MAXIMUM = "maximum"  # a property of a launch: the largest
    NONE = "none"  # does not add up: text, or a value of a case as a whole


@dataclass(frozen=True, slots=True)
class FactSpec:
    """What a fact's name means.

    Args:
        unit: ``us``, ``B``, ``pct``, ``1`` (a count or ratio), ``text``, …
        tier: the tier a budget on it belongs to; ``None`` for text.
        why: what a person looks at it for, one line.
        better: ``lower``, ``higher`` or empty where neither is.
        ncu: ncu's metric name; ``chips`` overrides it per chip (``None``: the chip has none).
        weight: for a ratio, the ncu metric of its denominator.
        opcode: the SASS opcodes whose executed count it is, read from the per-opcode instances.
        many_passes: it takes ncu so many passes that runs of many cases measure it only on a variant's first shape.
    """

    name: str
    unit: str
    tier: Tier | None
    kind: Kind
    why: str
    better: str = ""
    ncu: str | None = None
    chips: Mapping[str, str | None] = field(default_factory=dict)
    weight: str | None = None
    opcodes: tuple[str, ...] = ()
    group: str = ""
    many_passes: bool = False

    @property
    def is_metric(self) -> bool:
        """Whether ncu has it on some chip."""
        return self.ncu is not None or bool(self.chips)

    def ncu_name(self, chip: str) -> str | None:
        """ncu's name on ``chip`` (as ``gh100``), ``None`` if the chip has no such metric."""
        for prefix, name in self.chips.items():
            if chip.startswith(prefix):
                return name
        return self.ncu


class _Catalogue(Mapping[str, FactSpec]):
    """Facts by name, those of plugins last. A look-up also finds the share of any phase (sources choose the names);
    iteration does not give these."""

    def __init__(self) -> None:
        self.written: dict[str, FactSpec] = {}

    def __getitem__(self, name: str) -> FactSpec:
        if name in self.written:
            return self.written[name]
        if reference := dict(plugin.entries("facts")).get(name):
            spec: FactSpec = plugin.resolve(reference)
            return spec
        if _PHASE_SHARE.fullmatch(name):
            why = f"share of the time that warps spend in the phase {name.removeprefix(PHASE_SHARE)}"
            return FactSpec(name, "pct", "counters", Kind.PERCENTAGE, why, group="phases")
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter([*self.written, *dict(plugin.entries("facts"))])

    def __len__(self) -> int:
        return sum(1 for _ in self)


#: What the share of a phase begins with; the phase's name follows: ``phase_share_softmax``.
PHASE_SHARE = "phase_share_"
#: The phase of code that no source gives another.
OTHER_PHASE = "other"
_PHASE_SHARE = re.compile(rf"{PHASE_SHARE}[a-z][a-z0-9_]*")

_CATALOGUE = _Catalogue()
FACTS: Mapping[str, FactSpec] = _CATALOGUE

#: Names that ncu gives: ``unit__counter.rollup``, those of its counters by instruction (``inst_executed``) and others.
_NCU_NAME = re.compile(r"(?=.*[_.])[A-Za-z][\w.:-]{0,299}", re.ASCII)
#: What the name of a finding by one of ncu's rules begins with.
RULE = "rule__"


def spec_of(name: str) -> FactSpec | None:
    """The meaning of a fact's name: from the catalogue, else of a metric under ncu's own name (imported reports);
    ``None`` if it is neither. Such a metric has the unit that ncu gave, so its unit here is empty."""
    if (spec := FACTS.get(name)) is not None:
        return spec
    if isinstance(name, str) and _NCU_NAME.fullmatch(name):
        return FactSpec(name, "", "counters", Kind.NONE, "as ncu names it", ncu=name, group="ncu")
    return None


@dataclass(frozen=True, slots=True)
class _Group:
    """Adds facts of one group to the catalogue; ``kind`` and ``better`` are defaults."""

    name: str
    kind: Kind
    better: str = ""
    tier: Tier | None = "counters"

    def add(self, name: str, unit: str, why: str, ncu: str | None = None, **options: Any) -> None:
        options = {"kind": self.kind, "better": self.better, "group": self.name} | options
        _CATALOGUE.written[name] = FactSpec(name, unit, self.tier, why=why, ncu=ncu, **options)


# --- static: from the compiler, the cubin and the plan; no GPU needed ---------------------------

_STATIC = _Group("static", Kind.MAXIMUM, tier="static")
for _name, _unit, _why, _better in (
    (
        "registers",
        "1",
        "registers per thread, as compiled; decides how many warps fit. As launched: ncu_registers",
        "lower",
    ),
    ("spill_store_bytes", "B", "bytes spilled per thread: stores to local memory (ptxas)", "lower"),
    ("spill_load_bytes", "B", "bytes spilled per thread: loads from local memory (ptxas)", "lower"),
    ("stack_bytes", "B", "stack frame per thread: spills and run-time-indexed arrays", "lower"),
    ("static_smem", "B", "static shared memory per block, as ptxas counts it", "lower"),
    ("dynamic_smem", "B", "dynamic shared memory per block, from the launch plan", "lower"),
    ("smem", "B", "static and dynamic shared memory per block", "lower"),
    ("barriers", "1", "named barriers per block", ""),
    ("parameter_bytes", "B", "kernel parameters", ""),
    ("threads", "1", "threads per block", ""),
    ("blocks", "1", "blocks in the grid", ""),
    ("workspace_bytes", "B", "global scratch memory the variant needs", "lower"),
    ("theoretical_occupancy", "pct", "warps that fit on an SM over the most it holds", "higher"),
    ("blocks_per_sm", "1", "blocks that fit on an SM at once", "higher"),
    ("waves", "1", "grid over the blocks that the whole chip holds at once", ""),
    ("compiler_warnings", "1", "C75xx warnings: wgmma serialized, setmaxnreg ignored", "lower"),
    ("sass_instructions", "1", "instructions in the kernel's code", "lower"),
    ("sass_hmma", "1", "warp-wide tensor-core instructions in the code", ""),
    ("sass_hgmma", "1", "warpgroup tensor-core instructions in the code", ""),
    ("sass_ffma", "1", "fp32 fused multiply-adds in the code", ""),
    ("sass_mufu", "1", "special-function instructions in the code", ""),
    ("sass_bar", "1", "barrier instructions in the code", "lower"),
    ("sass_cluster_bar", "1", "cluster barrier arrivals in the code", ""),
    ("sass_integer", "1", "integer adds and multiply-adds in the code", ""),
    ("sass_ldl", "1", "loads from local memory in the code", "lower"),
    ("sass_stl", "1", "stores to local memory in the code", "lower"),
    ("sass_local_loop", "1", "local-memory loads and stores in the code that lie in a loop", "lower"),
    ("sass_ldg", "1", "loads from global memory in the code", ""),
    ("sass_ldg_128", "1", "16-byte loads from global memory in the code", "higher"),
    ("sass_stg", "1", "stores to global memory in the code", ""),
    ("sass_stg_128", "1", "16-byte stores to global memory in the code", "higher"),
    ("sass_lds", "1", "loads from shared memory in the code", ""),
    ("sass_sts", "1", "stores to shared memory in the code", ""),
    ("sass_ldsm", "1", "matrix loads from shared memory in the code", ""),
    ("sass_ldgsts", "1", "asynchronous copies global to shared (cp.async) in the code", ""),
    ("sass_utmaldg", "1", "bulk tensor loads (TMA) in the code", ""),
    ("sass_atom", "1", "atomics and reductions in the code", ""),
):
    _STATIC.add(_name, _unit, _why, better=_better)
_STATIC_TEXT = _Group("static", Kind.NONE, tier=None)
_STATIC_TEXT.add("occupancy_limiter", "text", "what keeps more blocks off an SM")
_STATIC_TEXT.add("local_memory", "text", "what local memory is used for: spills, arrays or both")
_STATIC_TEXT.add("local_memory_site", "text", "the source line that uses local memory the most")

# --- counters: Nsight Compute -------------------------------------------------------------------

_TIME = _Group("time", Kind.COUNTER)
_TIME.add("ncu_duration", "ns", "time under ncu, caches as ncu leaves them", "gpu__time_duration.sum")
_TIME.add("elapsed_cycles", "1", "SM clocks from start to end", "sm__cycles_elapsed.max")
_TIME.add("sm_clock", "Hz", "SM clock while profiled", "smsp__cycles_elapsed.avg.per_second", kind=Kind.PERCENTAGE)

_TENSOR = _Group("tensor", Kind.COUNTER)
_TENSOR.add(
    "tensor_active",
    "pct",
    "share of active cycles in which the tensor pipe works",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    kind=Kind.PERCENTAGE,
    better="higher",
    chips={"ad": "sm__pipe_tensor_cycles_active_v2.avg.pct_of_peak_sustained_active"},
)
_TENSOR.add(
    "tensor_instructions",
    "1",
    "tensor-core instructions executed",
    "sm__inst_executed_pipe_tensor.sum",
    chips={"ad": "sm__inst_executed_pipe_tensor_v2.sum"},
)
_TENSOR.add(
    "tensor_gmma_instructions",
    "1",
    "wgmma instructions executed",
    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    chips={"ga": None, "ad": None, "gb": None},
)
_TENSOR.add(
    "tensor_hfma2_instructions",
    "1",
    "of the tensor pipe's instructions, those that multiply no matrices: HFMA2.MMA, which also moves constants",
    "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum",
    chips={"ga100": "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum", "ga": None, "ad": None, "gb": None},
)
_NOT_BEFORE_BLACKWELL: dict[str, str | None] = {"ga": None, "ad": None, "gh": None}
#: What the tensor cores multiply → ncu's name of it, and where that is another (``None``: the chip cannot).
TENSOR_TYPES: dict[str, tuple[str, dict[str, str | None]]] = {
    "fp16": ("fp16_dst_fp32", {"gh": "fp16"}),
    "fp16_sum16": ("fp16_dst_fp16", {"gh": None}),
    "bf16": ("bf16_dst_fp32", {}),
    "tf32": ("tf32_dst_fp32", {}),
    "fp64": ("fp64", {}),
    "fp8": ("fp8", {"ga": None, "gb10": "fp4_fp6_fp8_dst_fp32", "gb20": "fp8_dst_fp32"}),
    "fp8_sum16": ("fp8_dst_fp16", {**_NOT_BEFORE_BLACKWELL, "gb10": "fp4_fp6_fp8_dst_fp16"}),
    "fp6": ("fp4_fp6_dst_fp32", {**_NOT_BEFORE_BLACKWELL, "gb10": None}),
    "fp6_sum16": ("fp4_fp6_dst_fp16", {**_NOT_BEFORE_BLACKWELL, "gb10": None}),
    "fp4": ("fp4_dst_fp32", _NOT_BEFORE_BLACKWELL),
    "int8": ("int8", {}),
    "int4": ("int4", {"gh": None, "gb": None}),
    "int1": ("int1", {"gb": None}),
}
for _name, (_source, _elsewhere) in TENSOR_TYPES.items():
    _TENSOR.add(
        f"tensor_flop_{_name}",
        "1",
        f"{_name.replace('_sum16', ' (summed up in fp16)')} operations of the tensor cores; sparse ones as if dense",
        f"sm__ops_path_tensor_src_{_source}.sum",
        chips={k: s and f"sm__ops_path_tensor_src_{s}.sum" for k, s in _elsewhere.items()},
    )
#: FLOPs of an executed thread-level instruction. HADD2, HMUL2 and HFMA2 work on two halves.
CUDA_CORE_FLOP = {
    f"op_{p}{op}": n * m for p, n in (("f", 1), ("h", 2), ("d", 1)) for op, m in (("add", 1), ("mul", 1), ("fma", 2))
}
_CUDA_CORES = _Group("cuda cores", Kind.COUNTER)
for _name, _flop in CUDA_CORE_FLOP.items():
    _CUDA_CORES.add(
        _name,
        "1",
        f"{_name[3:]} instructions of all threads; each counts {_flop} FLOP",
        f"smsp__sass_thread_inst_executed_{_name}_pred_on.sum",
    )

_OCCUPANCY = _Group("occupancy", Kind.MAXIMUM)
_OCCUPANCY.add(
    "achieved_occupancy",
    "pct",
    "warps that were there over the most an SM holds",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    kind=Kind.PERCENTAGE,
    better="higher",
)
_OCCUPANCY.add(
    "ncu_theoretical_occupancy", "pct", "the ceiling that the launch allows", "sm__maximum_warps_per_active_cycle_pct"
)
for _limit in ("registers", "shared_mem", "warps", "blocks", "barriers"):
    _OCCUPANCY.add(
        f"occupancy_limit_{_limit}",
        "1",
        f"blocks an SM could hold by {_limit} alone",
        f"launch__occupancy_limit_{_limit}",
    )

#: ncu's stall reasons.
STALL_REASONS = (
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "gmma",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instruction",
    "not_selected",
    "selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
)
#: The reasons that only some chips know: `gmma` only GH100, `imc_miss` all before Blackwell.
_NOT_THERE: dict[str, dict[str, str | None]] = {
    "gmma": {"ga": None, "ad": None, "gb": None},
    "imc_miss": {"gb": None},
}
#: What "memory stalls" means: waits on global or local data, and queues to the memory pipes.
MEMORY_STALLS = ("long_scoreboard", "lg_throttle", "mio_throttle")
_STALLS = _Group("stalls", Kind.RATIO, better="lower")
_STALL_SHARES = _Group("stall shares", Kind.PERCENTAGE, better="lower")
for _reason in STALL_REASONS:
    _STALLS.add(
        f"stall_{_reason}",
        "1",
        "warps stalled for this reason, per issued instruction",
        f"smsp__average_warps_issue_stalled_{_reason}_per_issue_active.ratio",
        weight="smsp__inst_issued.sum",
        chips=_NOT_THERE.get(_reason, {}),
    )
    if _reason != "selected":  # a warp that issues is not held
        _STALL_SHARES.add(
            f"stall_share_{_reason}", "pct", "this reason's share of all stall reasons (selected left out)"
        )
_STALL_SHARES.add("memory_stalls", "pct", "share of long scoreboard, LG throttle and MIO throttle among the stalls")

_LOCAL_MEMORY = _Group("local memory", Kind.COUNTER, better="lower")
_LOCAL_MEMORY.add(
    "local_load_instructions", "1", "loads from local memory executed", "smsp__inst_executed_op_local_ld.sum"
)
_LOCAL_MEMORY.add(
    "local_store_instructions", "1", "stores to local memory executed", "smsp__inst_executed_op_local_st.sum"
)
_LOCAL_MEMORY.add(
    "spill_instructions",
    "1",
    "instructions executed that spill or refill registers",
    "sass__inst_executed_register_spilling",
)

_BARRIERS = _Group("barriers", Kind.COUNTER, better="lower")
_BARRIERS.add(
    "barrier_instructions",
    "1",
    "barrier instructions executed by all warps",
    "sass__inst_executed_per_opcode",
    opcodes=("BAR",),
)
_BARRIERS.add("barriers_per_block", "1", "barrier instructions that each warp of a block executes", kind=Kind.MAXIMUM)

_INSTRUCTIONS = _Group("instructions", Kind.COUNTER, better="lower")
_INSTRUCTIONS.add("instructions", "1", "instructions executed", "smsp__inst_executed.sum")
_INSTRUCTIONS.add("instructions_issued", "1", "instructions issued", "smsp__inst_issued.sum")
_INSTRUCTIONS.add(
    "issue_active",
    "pct",
    "share of active cycles in which a scheduler issues",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    kind=Kind.PERCENTAGE,
    better="higher",
)

_SHARED_MEMORY = _Group("shared memory", Kind.COUNTER, better="lower")
_SHARED_MEMORY.add(
    "bank_conflicts", "1", "shared-memory bank conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
)
_SHARED_MEMORY.add("bank_conflicts_load", "1", "… of loads", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum")
_SHARED_MEMORY.add(
    "bank_conflicts_store", "1", "… of stores", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"
)
_SHARED_MEMORY.add(
    "shared_wavefronts",
    "1",
    "passes through the shared-memory data path",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
)
_SHARED_MEMORY.add(
    "shared_efficiency",
    "pct",
    "useful bytes over the most a wavefront can carry",
    "smsp__sass_average_data_bytes_per_wavefront_mem_shared.pct",
    kind=Kind.RATIO,
    better="higher",
    weight="l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
)

_CACHES = _Group("caches", Kind.RATIO, better="higher")
_CACHES.add(
    "l1_hit", "pct", "L1 hits over sectors asked", "l1tex__t_sector_hit_rate.pct", weight="l1tex__t_sectors.sum"
)
_CACHES.add("l2_hit", "pct", "L2 hits over sectors asked", "lts__t_sector_hit_rate.pct", weight="lts__t_sectors.sum")

_BYTES = _Group("bytes", Kind.COUNTER, better="lower")
_BYTES.add("l1_bytes", "B", "bytes through L1 (without TMA fills)", "l1tex__t_bytes.sum")
_BYTES.add("l2_bytes", "B", "bytes through L2", "lts__t_bytes.sum")
_BYTES.add(
    "dram_read_bytes", "B", "bytes read from DRAM", "dram__bytes_read.sum", chips={"gb20": "dram__bytes_op_read.sum"}
)
_BYTES.add(
    "dram_write_bytes",
    "B",
    "bytes written to DRAM",
    "dram__bytes_write.sum",
    chips={"gb20": "dram__bytes_op_write.sum"},
)
_BYTES.add("dram_bytes", "B", "bytes read from and written to DRAM")

_THROUGHPUT = _Group("throughput", Kind.PERCENTAGE)
# On GH100 it alone takes 7 of 25 passes: it is the largest of many metrics, most of which nothing else needs.
_THROUGHPUT.add(
    "sm_throughput",
    "pct",
    "utilization of the busiest part of the SM over the kernel's time",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    many_passes=True,
)
_THROUGHPUT.add("dram_throughput", "pct", "DRAM's busy share", "dram__throughput.avg.pct_of_peak_sustained_elapsed")
_THROUGHPUT.add("l2_throughput", "pct", "L2's busy share", "lts__throughput.avg.pct_of_peak_sustained_elapsed")

_LAUNCH = _Group("launch", Kind.MAXIMUM)
_LAUNCH.add(
    "ncu_registers",
    "1",
    "registers per thread, as launched: those of the code (registers), but 16 at least, and with some drivers rounded "
    "up to eights",
    "launch__registers_per_thread",
)
_LAUNCH.add(
    "ncu_static_smem", "B", "static shared memory per block, as launched", "launch__shared_mem_per_block_static"
)
_LAUNCH.add(
    "ncu_dynamic_smem", "B", "dynamic shared memory per block, as launched", "launch__shared_mem_per_block_dynamic"
)
_LAUNCH.add("ncu_grid_size", "1", "blocks launched", "launch__grid_size")
_LAUNCH.add("ncu_block_size", "1", "threads per block, as launched", "launch__block_size")
_LAUNCH.add("waves_per_sm", "1", "how many times the grid fills the chip", "launch__waves_per_multiprocessor")

_DERIVED = _Group("derived", Kind.COUNTER)
for _name, _unit, _why in (
    ("tensor_flop", "1", "FLOPs of the tensor cores, all dtypes"),
    ("cuda_core_flop", "1", "FLOPs of the CUDA cores (an FMA counts 2)"),
    ("kernel_launches", "1", "kernels that one call launches"),
    ("plan_matches", "1", "1 if ncu saw the launches of the plan, else 0"),
):
    _DERIVED.add(_name, _unit, _why)

_IMPORTED = _Group("imported", Kind.NONE, tier=None)
_IMPORTED.add("profiled_launches", "1", "launches of this kernel and configuration in an imported report")

# --- timing: CUDA events and graph replay -------------------------------------------------------

_OF_MEANS = ("p50", "mean", "std")
_TIMING = _Group("timing", Kind.NONE, better="lower", tier="timing")
for _mode, _text, _stats in (
    ("isolated", "a call by itself, its data in L2: a latency", (*_OF_MEANS, "p90", "p99", "launch_floor")),
    (
        "back_to_back",
        "launch-to-launch time of calls replayed in one graph: a throughput",
        (*_OF_MEANS, "launch_floor"),
    ),
    ("cold", "a call by itself, L2 flushed before it", (*_OF_MEANS, "p90", "p99", "launch_floor")),
    ("eager", "call time from Python, launches back to back", _OF_MEANS),
):
    for _stat in _stats:
        _TIMING.add(f"{_mode}_{_stat}", "us", f"{_text}: {_stat}")
    _TIMING.add(f"{_mode}_samples", "1", f"{_text}: number of samples", better="")
for _name, _unit, _why, _better in (
    ("launches_per_sample", "1", "calls in one graph replay; a back-to-back sample is a replay over these", ""),
    ("speedup_vs_baseline", "1", "the baseline's median time over this one's, in the regime that ranks", "higher"),
    ("speedup_vs_baseline_low", "1", "… lower end of its 95 % bootstrap interval", "higher"),
    ("speedup_vs_baseline_high", "1", "… upper end of its 95 % bootstrap interval", "higher"),
    ("speedup_vs_peer", "1", "the fastest peer's median time over this one's, in the regime that ranks", "higher"),
    ("speedup_vs_peer_low", "1", "… lower end of its 95 % bootstrap interval", "higher"),
    ("speedup_vs_peer_high", "1", "… upper end of its 95 % bootstrap interval", "higher"),
    ("bench_sm_clock", "MHz", "SM clock that NVML showed while timed, median", ""),
    ("bench_temperature", "C", "GPU temperature that NVML showed while timed, highest", ""),
    ("tflops", "TFLOP/s", "formula FLOPs over the median time of the regime that ranks", "higher"),
    ("kernel_sm_clock", "MHz", "SM clock that the kernel itself measured: cycles over the chip's nanoseconds", ""),
    ("kernel_span", "us", "from the first block's start to the last one's stop, by the chip's nanoseconds", "lower"),
    ("kernel_block_span", "us", "a block's own time, mean over blocks", "lower"),
    ("kernel_block_cycles", "1", "a block's own cycles, mean over blocks", "lower"),
):
    _TIMING.add(_name, _unit, _why, better=_better)
_TIMING_TEXT = _Group("timing", Kind.NONE, tier=None)
_TIMING_TEXT.add("throttle", "text", "reasons NVML gave for a lowered clock, or none")
_why = "other processes on the GPU while timed, as NVML lists them: they spoil a timing"
_TIMING_TEXT.add("bench_other_processes", "1", _why, better="lower")

# --- check --------------------------------------------------------------------------------------

_CHECK = _Group("check", Kind.NONE, better="lower")
for _name, _why in (
    ("max_error", "largest absolute error against fp64"),
    ("mean_error", "mean absolute error against fp64"),
    ("normal_max_error", "largest absolute error against fp64 on typical inputs: the problem's first kind"),
    ("normal_mean_error", "mean absolute error against fp64 on typical inputs: the problem's first kind"),
    ("frobenius_error", "relative Frobenius error against fp64"),
    ("max_error_over_class", "largest error over that of the tolerance class's emulation"),
    ("frobenius_over_class", "Frobenius error over that of the tolerance class's emulation"),
    ("quantization_max_error", "largest absolute error that quantized inputs alone cause, in fp64"),
    ("quantization_frobenius_error", "relative Frobenius error that quantized inputs alone cause, in fp64"),
):
    _CHECK.add(_name, "1", _why)

#: Groups of the tier counters that other stages than profile measure.
OWN_STAGE: Mapping[str, Stage] = {"check": "check", "sanitizer": "sanitize"}

# --- compute-sanitizer --------------------------------------------------------------------------

_SANITIZER = _Group("sanitizer", Kind.NONE, better="lower")
for _name, _why in (
    ("sanitizer_memcheck_errors", "accesses outside of what is allocated, misaligned ones and the like"),
    ("sanitizer_racecheck_errors", "unordered accesses to shared memory of which one writes"),
    ("sanitizer_racecheck_warnings", "… that the tool considers harmless on present hardware"),
    ("sanitizer_synccheck_errors", "barriers that not all threads reach, or that are used in another wrong way"),
):
    _SANITIZER.add(_name, "1", _why)

# --- formulas of the problem --------------------------------------------------------------------

_FORMULA = _Group("formula", Kind.NONE, tier="static")
for _name, _unit, _why in (
    ("formula_flop", "1", "FLOPs the problem needs"),
    ("formula_bytes", "B", "fewest bytes to and from DRAM: inputs once, outputs once"),
    ("formula_exp", "1", "exponentials the problem needs"),
    ("formula_tensor_flop", "1", "of its FLOPs, those that tensor cores can do"),
    ("formula_fp32_flop", "1", "of its FLOPs, those left to the CUDA cores"),
    ("formula_shared_bytes", "B", "bytes through shared memory the problem needs"),
    ("formula_l2_bytes", "B", "bytes through L2 the problem needs"),
    ("formula_l1_bytes", "B", "bytes through L1 the problem needs"),
    ("formula_dram_bytes", "B", "bytes to and from DRAM the problem moves"),
    ("formula_instructions", "1", "warp instructions the problem issues"),
    ("formula_barriers", "1", "barriers each block passes"),
    ("formula_launches", "1", "launches, one after the other"),
):
    _FORMULA.add(_name, _unit, _why)


#: GPU chip by compute capability, as ncu names them (``ncu --list-chips``).
CHIPS = {
    (7, 5): "tu102",
    (8, 0): "ga100",
    (8, 6): "ga102",
    (8, 7): "ga10b",
    (8, 9): "ad102",
    (9, 0): "gh100",
    (10, 0): "gb100",
    (12, 0): "gb202",
}


def chip_of(capability: tuple[int, int]) -> str | None:
    """The chip of a compute capability; of an unknown minor its family's nearest older one, ``None`` of an unknown
    family."""
    family = [cc for cc in CHIPS if cc[0] == capability[0] and cc <= capability]
    return CHIPS[max(family)] if family else None
