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


def _add(
    group: str,
    tier: Tier | None,
    kind: Kind,
    name: str,
    unit: str,
    why: str,
    *,
    better: str = "",
    ncu: str | None = None,
    chips: Mapping[str, str | None] | None = None,
    weight: str | None = None,
    opcodes: tuple[str, ...] = (),
    many_passes: bool = False,
) -> None:
    _CATALOGUE.written[name] = FactSpec(
        name, unit, tier, kind, why, better, ncu, chips or {}, weight, opcodes, group, many_passes
    )


# --- static: from the compiler, the cubin and the plan; no GPU needed ---------------------------

for _name, _unit, _why, _better in (
    (
        "registers",
        "1",
        "registers a thread, as compiled; decides how many warps fit. As launched: ncu_registers",
        "lower",
    ),
    ("spill_store_bytes", "B", "bytes a thread spills to local memory, stores (ptxas)", "lower"),
    ("spill_load_bytes", "B", "bytes a thread spills to local memory, loads (ptxas)", "lower"),
    ("stack_bytes", "B", "stack frame a thread: spills and run-time-indexed arrays", "lower"),
    ("static_smem", "B", "static shared memory a block, as ptxas counts it", "lower"),
    ("dynamic_smem", "B", "dynamic shared memory a block, from the launch plan", "lower"),
    ("smem", "B", "static and dynamic shared memory a block", "lower"),
    ("barriers", "1", "named barriers a block uses", ""),
    ("parameter_bytes", "B", "kernel parameters", ""),
    ("threads", "1", "threads a block", ""),
    ("blocks", "1", "blocks in the grid", ""),
    ("workspace_bytes", "B", "global scratch memory the variant needs", "lower"),
    ("theoretical_occupancy", "pct", "warps that fit on an SM over the most it holds", "higher"),
    ("blocks_per_sm", "1", "blocks that fit on an SM at once", "higher"),
    ("waves", "1", "grid over the blocks that the whole chip holds at once", ""),
    ("compiler_warnings", "1", "C75xx warnings: wgmma serialised, setmaxnreg ignored", "lower"),
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
    _add("static", "static", Kind.MAXIMUM, _name, _unit, _why, better=_better)
_add("static", None, Kind.NONE, "occupancy_limiter", "text", "what keeps more blocks off an SM")
_add("static", None, Kind.NONE, "local_memory", "text", "what local memory is used for: spills, arrays or both")
_add("static", None, Kind.NONE, "local_memory_site", "text", "the source line that uses local memory the most")

# --- counters: Nsight Compute -------------------------------------------------------------------

C = Kind.COUNTER
P = Kind.PERCENTAGE
R = Kind.RATIO


def _ncu(
    group: str,
    kind: Kind,
    name: str,
    unit: str,
    ncu: str | None,
    why: str,
    *,
    better: str = "",
    chips: Mapping[str, str | None] | None = None,
    weight: str | None = None,
    opcodes: tuple[str, ...] = (),
    many_passes: bool = False,
) -> None:
    _add(
        group,
        "counters",
        kind,
        name,
        unit,
        why,
        better=better,
        ncu=ncu,
        chips=chips,
        weight=weight,
        opcodes=opcodes,
        many_passes=many_passes,
    )


_ncu("time", C, "ncu_duration", "ns", "gpu__time_duration.sum", "time under ncu, caches as ncu leaves them")
_ncu("time", C, "elapsed_cycles", "1", "sm__cycles_elapsed.max", "SM clocks from start to end")
_ncu("time", P, "sm_clock", "Hz", "smsp__cycles_elapsed.avg.per_second", "SM clock while profiled")

_ncu("tensor", P, "tensor_active", "pct",
     "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
     "share of active cycles in which the tensor pipe works", better="higher",
     chips={"ad": "sm__pipe_tensor_cycles_active_v2.avg.pct_of_peak_sustained_active"})  # fmt: skip
_ncu("tensor", C, "tensor_instructions", "1", "sm__inst_executed_pipe_tensor.sum",
     "tensor-core instructions executed",
     chips={"ad": "sm__inst_executed_pipe_tensor_v2.sum"})  # fmt: skip
_ncu("tensor", C, "tensor_gmma_instructions", "1", "sm__inst_executed_pipe_tensor_op_gmma.sum",
     "wgmma instructions executed",
     chips={"ga": None, "ad": None, "gb": None})  # fmt: skip
_ncu("tensor", C, "tensor_hfma2_instructions", "1", "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum",
     "of the tensor pipe's instructions, those that multiply no matrices: HFMA2.MMA, which also moves constants",
     chips={"ga100": "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum", "ga": None, "ad": None, "gb": None}
     )  # fmt: skip
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
    _ncu("tensor", C, f"tensor_flop_{_name}", "1", f"sm__ops_path_tensor_src_{_source}.sum",
         f"{_name.replace('_sum16', ' (summed up in fp16)')} operations of the tensor cores; sparse ones as if dense",
         chips={k: s and f"sm__ops_path_tensor_src_{s}.sum" for k, s in _elsewhere.items()})  # fmt: skip
#: FLOPs of an executed thread-level instruction. HADD2, HMUL2 and HFMA2 work on two halves.
CUDA_CORE_FLOP = {f"op_{p}{op}": n * m for p, n in (("f", 1), ("h", 2), ("d", 1))
                  for op, m in (("add", 1), ("mul", 1), ("fma", 2))}  # fmt: skip
for _name, _flop in CUDA_CORE_FLOP.items():
    _ncu("cuda cores", C, _name, "1", f"smsp__sass_thread_inst_executed_{_name}_pred_on.sum",
         f"{_name[3:]} instructions of all threads; each counts {_flop} FLOP")  # fmt: skip

_ncu("occupancy", P, "achieved_occupancy", "pct",
     "sm__warps_active.avg.pct_of_peak_sustained_active",
     "warps that were there over the most an SM holds", better="higher")  # fmt: skip
_ncu("occupancy", Kind.MAXIMUM, "ncu_theoretical_occupancy", "pct",
     "sm__maximum_warps_per_active_cycle_pct", "the ceiling that the launch allows")  # fmt: skip
for _limit in ("registers", "shared_mem", "warps", "blocks", "barriers"):
    _ncu("occupancy", Kind.MAXIMUM, f"occupancy_limit_{_limit}", "1",
         f"launch__occupancy_limit_{_limit}", f"blocks an SM could hold by {_limit} alone")  # fmt: skip

#: ncu's stall reasons.
STALL_REASONS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle",
    "long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction",
    "not_selected", "selected", "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip
#: The reasons that only some chips know: `gmma` only GH100, `imc_miss` all before Blackwell.
_NOT_THERE: dict[str, dict[str, str | None]] = {
    "gmma": {"ga": None, "ad": None, "gb": None},
    "imc_miss": {"gb": None},
}
#: What "memory stalls" means: waits on global or local data, and queues to the memory pipes.
MEMORY_STALLS = ("long_scoreboard", "lg_throttle", "mio_throttle")
for _reason in STALL_REASONS:
    _ncu("stalls", R, f"stall_{_reason}", "1",
         f"smsp__average_warps_issue_stalled_{_reason}_per_issue_active.ratio",
         "warps stalled for this reason, per issued instruction", better="lower",
         weight="smsp__inst_issued.sum",
         chips=_NOT_THERE.get(_reason))  # fmt: skip
    if _reason != "selected":  # a warp that issues is not held
        _add("stall shares", "counters", P, f"stall_share_{_reason}", "pct",
         "this reason's share of all stall reasons (selected left out)", better="lower")  # fmt: skip
_add("stall shares", "counters", P, "memory_stalls", "pct",
     "share of long scoreboard, LG throttle and MIO throttle among the stalls", better="lower")  # fmt: skip

_ncu("local memory", C, "local_load_instructions", "1", "smsp__inst_executed_op_local_ld.sum",
     "loads from local memory executed", better="lower")  # fmt: skip
_ncu("local memory", C, "local_store_instructions", "1", "smsp__inst_executed_op_local_st.sum",
     "stores to local memory executed", better="lower")  # fmt: skip
_ncu("local memory", C, "spill_instructions", "1", "sass__inst_executed_register_spilling",
     "instructions executed that spill or refill registers", better="lower")  # fmt: skip

_ncu("barriers", C, "barrier_instructions", "1", "sass__inst_executed_per_opcode",
     "barrier instructions executed by all warps", better="lower", opcodes=("BAR",))  # fmt: skip
_add("barriers", "counters", Kind.MAXIMUM, "barriers_per_block", "1",
     "barrier instructions that each warp of a block executes", better="lower")  # fmt: skip
_ncu("instructions", C, "instructions", "1", "smsp__inst_executed.sum", "instructions executed",
     better="lower")  # fmt: skip
_ncu("instructions", C, "instructions_issued", "1", "smsp__inst_issued.sum", "instructions issued",
     better="lower")  # fmt: skip
_ncu("instructions", P, "issue_active", "pct", "smsp__issue_active.avg.pct_of_peak_sustained_active",
     "share of active cycles in which a scheduler issues", better="higher")  # fmt: skip

_ncu("shared memory", C, "bank_conflicts", "1", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
     "shared-memory bank conflicts", better="lower")  # fmt: skip
_ncu("shared memory", C, "bank_conflicts_load", "1",
     "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", "… of loads", better="lower")  # fmt: skip
_ncu("shared memory", C, "bank_conflicts_store", "1",
     "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", "… of stores", better="lower")  # fmt: skip
_ncu("shared memory", C, "shared_wavefronts", "1",
     "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
     "passes through the shared-memory data path", better="lower")  # fmt: skip
_ncu("shared memory", R, "shared_efficiency", "pct",
     "smsp__sass_average_data_bytes_per_wavefront_mem_shared.pct",
     "useful bytes over the most a wavefront can carry", better="higher",
     weight="l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")  # fmt: skip

_ncu("caches", R, "l1_hit", "pct", "l1tex__t_sector_hit_rate.pct", "L1 hits over sectors asked",
     better="higher", weight="l1tex__t_sectors.sum")  # fmt: skip
_ncu("caches", R, "l2_hit", "pct", "lts__t_sector_hit_rate.pct", "L2 hits over sectors asked",
     better="higher", weight="lts__t_sectors.sum")  # fmt: skip
_ncu("bytes", C, "l1_bytes", "B", "l1tex__t_bytes.sum", "bytes through L1 (without TMA fills)",
     better="lower")  # fmt: skip
_ncu("bytes", C, "l2_bytes", "B", "lts__t_bytes.sum", "bytes through L2", better="lower")
_ncu("bytes", C, "dram_read_bytes", "B", "dram__bytes_read.sum", "bytes read from DRAM",
     better="lower", chips={"gb20": "dram__bytes_op_read.sum"})  # fmt: skip
_ncu("bytes", C, "dram_write_bytes", "B", "dram__bytes_write.sum", "bytes written to DRAM",
     better="lower", chips={"gb20": "dram__bytes_op_write.sum"})  # fmt: skip
_add("bytes", "counters", C, "dram_bytes", "B", "bytes read from and written to DRAM", better="lower")
# On GH100 it alone takes 7 of 25 passes: it is the largest of many metrics, most of which nothing else needs.
_ncu("throughput", P, "sm_throughput", "pct", "sm__throughput.avg.pct_of_peak_sustained_elapsed",
     "utilisation of the busiest part of the SM over the kernel's time", many_passes=True)  # fmt: skip
_ncu("throughput", P, "dram_throughput", "pct", "dram__throughput.avg.pct_of_peak_sustained_elapsed",
     "DRAM's busy share")  # fmt: skip
_ncu("throughput", P, "l2_throughput", "pct", "lts__throughput.avg.pct_of_peak_sustained_elapsed",
     "L2's busy share")  # fmt: skip
_ncu("launch", Kind.MAXIMUM, "ncu_registers", "1", "launch__registers_per_thread",
     "registers a thread, as launched: those of the code (registers), but 16 at least, and with some drivers rounded "
     "up to eights")  # fmt: skip
_ncu("launch", Kind.MAXIMUM, "ncu_static_smem", "B", "launch__shared_mem_per_block_static",
     "static shared memory a block, as launched")  # fmt: skip
_ncu("launch", Kind.MAXIMUM, "ncu_dynamic_smem", "B", "launch__shared_mem_per_block_dynamic",
     "dynamic shared memory a block, as launched")  # fmt: skip
_ncu("launch", Kind.MAXIMUM, "ncu_grid_size", "1", "launch__grid_size", "blocks launched")
_ncu("launch", Kind.MAXIMUM, "ncu_block_size", "1", "launch__block_size", "threads a block, as launched")
_ncu("launch", Kind.MAXIMUM, "waves_per_sm", "1", "launch__waves_per_multiprocessor",
     "how many times the grid fills the chip")  # fmt: skip
for _name, _unit, _why in (
    ("tensor_flop", "1", "FLOPs of the tensor cores, all dtypes"),
    ("cuda_core_flop", "1", "FLOPs of the CUDA cores (an FMA counts 2)"),
    ("kernel_launches", "1", "kernels that one call launches"),
    ("plan_matches", "1", "1 if ncu saw the launches of the plan, else 0"),
):
    _add("derived", "counters", Kind.COUNTER, _name, _unit, _why)

_add("imported", None, Kind.NONE, "profiled_launches", "1",
     "launches of this kernel and configuration in an imported report")  # fmt: skip

# --- timing: CUDA events and graph replay -------------------------------------------------------

_OF_MEANS = ("p50", "mean", "std")
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
        _add("timing", "timing", Kind.NONE, f"{_mode}_{_stat}", "us", f"{_text}: {_stat}",
             better="lower")  # fmt: skip
    _add("timing", "timing", Kind.NONE, f"{_mode}_samples", "1", f"{_text}: number of samples")
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
    _add("timing", "timing", Kind.NONE, _name, _unit, _why, better=_better)
_add("timing", None, Kind.NONE, "throttle", "text", "reasons NVML gave for a lowered clock, or none")
_why = "other processes on the GPU while timed, as NVML lists them: they spoil a timing"
_add("timing", None, Kind.NONE, "bench_other_processes", "1", _why, better="lower")

# --- check --------------------------------------------------------------------------------------

for _name, _why in (
    ("max_error", "largest absolute error against fp64"),
    ("mean_error", "mean absolute error against fp64"),
    ("normal_max_error", "largest absolute error against fp64 on typical inputs: the problem's first kind"),
    ("normal_mean_error", "mean absolute error against fp64 on typical inputs: the problem's first kind"),
    ("frobenius_error", "relative Frobenius error against fp64"),
    ("max_error_over_class", "largest error over that of the tolerance class's emulation"),
    ("frobenius_over_class", "Frobenius error over that of the tolerance class's emulation"),
    ("quantization_max_error", "largest absolute error that quantised inputs alone cause, in fp64"),
    ("quantization_frobenius_error", "relative Frobenius error that quantised inputs alone cause, in fp64"),
):
    _add("check", "counters", Kind.NONE, _name, "1", _why, better="lower")

#: Groups of the tier counters that other stages than profile measure.
OWN_STAGE: Mapping[str, Stage] = {"check": "check", "sanitizer": "sanitize"}

# --- compute-sanitizer --------------------------------------------------------------------------

for _name, _why in (
    ("sanitizer_memcheck_errors", "accesses outside of what is allocated, misaligned ones and the like"),
    ("sanitizer_racecheck_errors", "unordered accesses to shared memory of which one writes"),
    ("sanitizer_racecheck_warnings", "… that the tool considers harmless on present hardware"),
    ("sanitizer_synccheck_errors", "barriers that not all threads reach, or that are used in another wrong way"),
):
    _add("sanitizer", "counters", Kind.NONE, _name, "1", _why, better="lower")

# --- formulas of the problem --------------------------------------------------------------------

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
    _add("formula", "static", Kind.NONE, _name, _unit, _why)


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
    family = [known for known in CHIPS if known[0] == capability[0] and known <= capability]
    return CHIPS[max(family)] if family else None
