"""Converts ncu's results to facts of each kernel launch and of the whole case. Pure functions.

Every profiled case gets every fact of the catalogue, measured or unmeasured with its cause: the chip lacks the metric,
or ncu refused it, did not return it, or returned no number.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flashcore.chips import occupancy
from flashcore.model import catalogue
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS, PHASE_SHARE, FactSpec, Kind, fact_of
from flashcore.model.cause import Cause, Detail, Noted
from flashcore.model.causes import (
    CANNOT_COMBINE,
    COUNTER_CONTRADICTS,
    COUNTER_REFUSED,
    LAUNCH_UNMEASURED,
    MESSAGE,
    NO_COUNTER,
    NO_NUMBER,
    NO_PLAN,
    NO_SAMPLES,
    NO_STALLS,
    NONE_OF,
    NOT_ADDITIVE,
    PART_UNMEASURED,
    PHASES_UNKNOWN,
    PLAN_FAILED,
    ZERO_DENOMINATOR,
    NotReturned,
    Sampled,
)
from flashcore.model.record import CaseSubject, Fact, Launch, Listing, Plan, Source, Subject
from flashcore.readers import phases
from flashcore.readers.kernel_names import canonical, without_arguments
from flashcore.readers.ncu.numerals import convert
from flashcore.readers.ncu.results import BY_ADDRESS, EXECUTED, SAMPLES, STALLED, MetricReading, Result
from flashcore.stages.profile import crosschecks

DERIVED = {
    "memory_stalls",
    "dram_bytes",
    "tensor_flop",
    "cuda_core_flop",
    "barriers_per_block",
    "kernel_launches",
    "plan_matches",
}

#: The catalogue's entries that a profile measures: ncu's metrics and facts derived from them.
MEASURED: dict[str, FactSpec] = {
    name: spec for name, spec in FACTS.items() if spec.is_metric or name in DERIVED or name.startswith("stall_share_")
}
#: ncu returns the counts of spilling instructions only together with the per-opcode counts.
_REQUIRES = {"sass__inst_executed_register_spilling": "sass__inst_executed_per_opcode"}
_TENSOR = "tensor_flop_"
#: Tensor types whose counters take 4 of 16 passes on GH100; their FLOPs follow from the executed instructions.
INFERRED = {_TENSOR + kind for kind in ("tf32", "fp64", "int8", "int1")}
#: The other types, whose counters take 2 passes, are counted in runs of few cases, to compare both ways.
_INFERRABLE = INFERRED | {_TENSOR + kind for kind in ("fp16", "bf16", "fp8")}
#: Facts that only runs of few cases measure, unless they are required: 7 of 23 passes on GH100.
RARE = _INFERRABLE | {"sm_throughput"}
#: Facts whose metrics need many passes or long ones.
COSTLY = _INFERRABLE | {name for name, spec in FACTS.items() if spec.many_passes}
_COUNT_TOLERANCE = 0.5  # counts are integers: parts must add up to the total


@dataclass(frozen=True, slots=True)
class CounterValue(Noted):
    """A value, or ``None`` and its cause. ``weight`` is the denominator of a ratio, if measured."""

    value: float | None
    detail: Detail | str = ""
    weight: float | None = None

    @property
    def cause(self) -> Cause:
        """Why there is no value."""
        return self.detail if isinstance(self.detail, Cause) else MESSAGE(self.note)


Values = dict[str, CounterValue]


@dataclass(frozen=True, slots=True)
class CaseBuild:
    """A case's data from the build.

    Args:
        plan: the variant's launch plan; ``None`` for a reference.
        code: the phases of the variant's code; ``None`` if its sources mark none.
        registers: kernel → registers per thread in the cubin.
        is_linked: a linked library may launch kernels of its own, which no plan has.
        names: a kernel's canonical name in the cubin → its name in the plan, where a language gives it another.
    """

    plan: Plan | None = None
    code: phases.Code | None = None
    registers: Mapping[str, int] = field(default_factory=dict)
    is_linked: bool = False
    names: Mapping[str, str] = field(default_factory=dict)

    def named(self, rows: Sequence[Result]) -> list[Result]:
        """The launches, with the plan's names of their kernels."""
        return [replace(row, kernel=self.names.get(canonical(row.kernel), row.kernel)) for row in rows]


def metrics_to_request(
    chip: str, refused: Collection[str] = (), *, sampled: bool = False, without: Collection[str] = ()
) -> list[str]:
    """Every ncu metric that the catalogue needs on ``chip``, including weights, without the refused ones.

    Args:
        sampled: whether to sample warps by address, for the phases' shares.
        without: facts to leave out; those that can be inferred only if ncu can count the executed instructions.
    """
    inferred = crosschecks.FORMS not in refused and not chip.startswith(crosschecks.PACKED)
    metrics: list[str | None] = []
    if sampled:
        lacking = {name for name in STALLED if FACTS[name].ncu_name(chip) is None}
        metrics += [m for name, m in BY_ADDRESS.items() if name not in lacking and m != EXECUTED]
    if without and inferred:
        metrics.append(crosschecks.FORMS)
    for spec in FACTS.values():
        if spec.name in without and (inferred or spec.name not in _INFERRABLE):
            continue
        if name := spec.ncu_name(chip):
            metrics += [_REQUIRES.get(name), name, spec.weight]
    return [metric for metric in dict.fromkeys(metrics) if metric and metric not in refused]


def facts_of(
    case: CaseSubject,
    rows: Sequence[Result],
    *,
    chip: str,
    refused: Mapping[str, str] | None = None,
    built: CaseBuild = CaseBuild(),  # frozen
) -> list[Fact]:
    """All facts of one case: first the case's, then each kernel's over all its launches, then, for kernels launched
    more than once, each launch's, by its index among the case's launches.

    Args:
        rows: the case's launches; at least one.
        chip: ncu's name of the chip (``gh100``).
        refused: ncu metric → ncu's reason for not measuring it.
    """
    refused = refused or {}
    launches = [launch_values(row, chip, refused, built.registers.get(without_arguments(row.kernel))) for row in rows]
    if built.code is not None:
        for row, values in zip(rows, launches, strict=True):
            values |= _phase_shares(row, built.code, refused.get(SAMPLES, ""))
    combined = _combine(launches, chip)
    combined["kernel_launches"] = CounterValue(float(len(rows)))
    combined["plan_matches"] = _plan_matches(rows, built)
    facts = as_facts(case, combined)
    kernels: dict[str, list[int]] = {}
    planned = built.plan.launches if built.plan is not None and combined["plan_matches"].value == 1 else ()
    planned = planned if len(planned) == len(rows) else ()
    for i, row in enumerate(rows):
        # Kernels built here are named as in their static facts; library kernels lose their long argument lists.
        name = without_arguments(row.kernel) if built.plan is None else canonical(row.kernel)
        kernels.setdefault(planned[i].kernel if planned and "<" not in name else name, []).append(i)
    for kernel, indices in kernels.items():
        facts += as_facts(replace(case, kernel=kernel), _combine([launches[i] for i in indices], chip))
    for kernel, indices in kernels.items():
        for i in indices if len(indices) > 1 else ():
            facts += as_facts(replace(case, kernel=kernel, launch=i), launches[i])
    return facts


def unmeasured(case: Case, cause: Cause) -> list[Fact]:
    """The facts of a case that could not be profiled: all unmeasured, with one cause."""
    return as_facts(CaseSubject(case), dict.fromkeys(MEASURED, CounterValue(None, cause)))


def as_facts(subject: Subject, values: Mapping[str, CounterValue]) -> list[Fact]:
    """One subject's facts, in the catalogue's order."""
    names = [n for n in MEASURED if n in values] + [n for n in values if n.startswith(PHASE_SHARE)]
    return [fact_of(subject, n, values[n].value, Source.NCU, values[n].detail) for n in names]


# --- one launch ----------------------------------------------------------------------------------


def launch_values(
    row: Result, chip: str, refused: Mapping[str, str] | None = None, registers: int | None = None
) -> Values:
    """All facts of one launch, measured or unmeasured with the cause. Impossible values are unmeasured.

    Args:
        registers: per thread in the cubin; ``None`` if unknown.
    """
    specs = {name: spec for name, spec in MEASURED.items() if spec.is_metric}
    values = {name: _read(row, spec, chip, refused or {}) for name, spec in specs.items()}
    metrics = {name: metric for name, spec in specs.items() if (metric := spec.ncu_name(chip)) and not spec.opcodes}
    numbers = {name: value for name in metrics if (value := values[name].value) is not None}
    launch = crosschecks.CountedLaunch(row, numbers, metrics, chip, registers)
    for name, reason in crosschecks.impossible(launch).items():
        values[name] = replace(values[name], value=None, detail=COUNTER_CONTRADICTS(reason))
    launched = values["ncu_registers"]
    if registers is not None and launched.value is not None and launched.value != registers:
        note = f"the code needs {registers}; the driver allocates more"
        values["ncu_registers"] = replace(launched, detail=note)
    _derive(values, chip)
    values["barriers_per_block"] = _barriers_per_block(row, values["barrier_instructions"])
    return values


def _read(row: Result, spec: FactSpec, chip: str, refused: Mapping[str, str]) -> CounterValue:
    metric = spec.ncu_name(chip)
    if metric is None:
        return CounterValue(None, NO_COUNTER(chip))
    if metric in refused and metric not in row:  # ncu returns some refused metrics nevertheless
        return CounterValue(None, COUNTER_REFUSED(metric, refused[metric]))
    if metric not in row and spec.name.startswith(_TENSOR) and (flop := _by_instructions(row, spec, chip)) is not None:
        return CounterValue(flop, "as the instructions executed do, by their shapes and types")
    reading = row.read(metric)
    if spec.many_passes and metric not in row:
        return CounterValue(None, NotReturned(isinstance(reading.detail, NotReturned) and reading.detail.report, True))
    if spec.opcodes:
        return _opcodes(reading, spec.opcodes)
    weight = row.number(spec.weight) if spec.weight is not None else None
    if spec.kind is Kind.RATIO and weight == 0:
        return CounterValue(None, ZERO_DENOMINATOR(spec.weight or ""), weight)
    if reading.value is None:
        return CounterValue(None, reading.detail, weight)
    value = convert(reading.value, reading.unit, spec.unit)
    if value is None or not math.isfinite(value):
        actual = f"{reading.value:g} {reading.unit or '(no unit)'}"
        return CounterValue(None, NO_NUMBER(actual, f"expected a value in {spec.unit}"), weight)
    return CounterValue(value, reading.detail, weight)


def _by_instructions(row: Result, spec: FactSpec, chip: str) -> float | None:
    """The FLOPs of a tensor type, if the instructions executed tell them: not what they are summed up in."""
    flop = None if chip.startswith(crosschecks.PACKED) else crosschecks.tensor_flop(row)
    kind = spec.name.removeprefix(_TENSOR).removesuffix("_sum16")
    value = None if flop is None else flop.get(kind, 0.0)
    sums = FACTS.get(f"{_TENSOR}{kind}_sum16")
    return None if value and sums and sums.ncu_name(chip) else value


def _opcodes(reading: MetricReading, opcodes: Sequence[str]) -> CounterValue:
    """Executions of these opcodes. A missing opcode counts as 0 only if the listed ones add up to ncu's total."""
    total = reading.value
    if total is None:
        return CounterValue(None, reading.detail)
    if reading.instances is None and total > 0:
        return CounterValue(None, NO_NUMBER("no counts per opcode (--print-metric-instances details)"))
    listed = reading.instances or {}
    added = math.fsum(listed.values())
    if abs(added - total) > _COUNT_TOLERANCE:
        evidence = f"ncu's counts per opcode add up to {added:,.0f}, not to its total {total:,.0f}"
        return CounterValue(None, COUNTER_CONTRADICTS(evidence))
    return CounterValue(math.fsum(listed.get(opcode, 0.0) for opcode in opcodes))


def _barriers_per_block(row: Result, executed: CounterValue) -> CounterValue:
    if executed.value is None:
        return executed
    warps = math.prod(row.grid) * occupancy.warps_of(math.prod(row.block))
    return CounterValue(executed.value / warps) if warps else CounterValue(None, NO_NUMBER("an empty grid or block"))


# --- phases --------------------------------------------------------------------------------------


def _phase_shares(row: Result, code: phases.Code, refused: str) -> Values:
    """Each phase's share of a launch's samples, %, with its binomial standard error."""
    names = [PHASE_SHARE + phase for phase in code.names]
    samples = COUNTER_REFUSED(SAMPLES, refused) if refused else _samples_by_phase(row, code)
    if isinstance(samples, Cause):
        return dict.fromkeys(names, CounterValue(None, samples))
    total = math.fsum(samples.values())
    if total == 0:
        return dict.fromkeys(names, CounterValue(None, NO_SAMPLES()))
    values: Values = {}
    for name, phase in zip(names, code.names, strict=True):
        share = samples.get(phase, 0.0) / total
        error = 100 * math.sqrt(share * (1 - share) / total)
        values[name] = CounterValue(100 * share, Sampled(total, round(error, 1)))
    return values


def _samples_by_phase(row: Result, code: phases.Code) -> dict[str, float] | Cause:
    """Phase → samples, or why they cannot be attributed.

    ncu identifies instructions by address in memory. It lists executions of all the kernel's instructions, so the
    lowest address is the kernel's start, and the others' distances from it must be offsets in the built code.
    """
    if code.why:
        return PHASES_UNKNOWN(code.why)
    kernel = canonical(row.kernel)
    if kernel not in code.kernels:
        return PHASES_UNKNOWN(f"the kernel {kernel} is not in the variant's code")
    phase_at = code.kernels[kernel]
    reading = row.read(SAMPLES)
    if reading.value is None:
        return CounterValue(None, reading.detail).cause
    sampled, executed = _addresses(reading.instances), _addresses(row.read(EXECUTED).instances)
    if abs(math.fsum(sampled.values()) - reading.value) > _COUNT_TOLERANCE:
        return COUNTER_CONTRADICTS(f"ncu's samples per address do not add up to its total {reading.value:,.0f}")
    if not executed:
        return NO_NUMBER(f"no {EXECUTED} per address", "which gives the kernel's start")
    start = min(executed)
    if unknown := sorted({*executed, *sampled} - {start + offset for offset in phase_at}):
        at = f"{unknown[0] - start:#x} in the kernel"
        return PHASES_UNKNOWN(f"ncu reports an instruction at {at}, where the built code has none")
    samples: dict[str, float] = {}
    for address, count in sampled.items():
        phase = phase_at[address - start]
        samples[phase] = samples.get(phase, 0.0) + count
    return samples


def listings(case: CaseSubject, rows: Sequence[Result], code: phases.Code) -> list[Listing]:
    """The SASS listings of a case's sampled kernels. Omits kernels whose samples cannot be attributed; the cause is in
    their phase shares."""
    counts: dict[str, dict[int, dict[str, float]]] = {}  # kernel → offset → name → count
    for row in rows:
        kernel = canonical(row.kernel)
        if kernel not in code.listing or isinstance(_samples_by_phase(row, code), Cause):
            continue
        start = min(_addresses(row.read(EXECUTED).instances))
        by_offset = counts.setdefault(kernel, {})
        for name, metric in BY_ADDRESS.items():
            for address, count in _addresses(row.read(metric).instances).items():
                values = by_offset.setdefault(address - start, {})
                values[name] = values.get(name, 0.0) + count
    return [
        Listing(
            replace(case, kernel=kernel),
            tuple(replace(i, values=by_offset.get(i.offset, {})) for i in code.listing[kernel]),
            code.files,
        )
        for kernel, by_offset in counts.items()
    ]


def _addresses(instances: Mapping[str, float] | None) -> dict[int, float]:
    """Instances by address, which ncu writes in decimal or hexadecimal; empty if any key is not an address."""
    try:
        return {int(address, 0): count for address, count in (instances or {}).items()}
    except ValueError:
        return {}


# --- derived facts --------------------------------------------------------------------------------


def _derive(values: Values, chip: str) -> None:
    """Adds the facts derived from others of the same subject."""
    has = {n for n in values if FACTS[n].ncu_name(chip) is not None}
    values["dram_bytes"] = _sum(values, {"dram_read_bytes": 1, "dram_write_bytes": 1}, has)
    flop = _sum(values, {f"tensor_flop_{name}": 1 for name in catalogue.TENSOR_TYPES}, has)
    values["tensor_flop"] = _plausible(flop, values)
    values["cuda_core_flop"] = _sum(values, catalogue.CUDA_CORE_FLOP, has)
    reasons = [r for r in catalogue.STALL_REASONS if f"stall_share_{r}" in FACTS]
    total = _sum(values, {f"stall_{r}": 1 for r in reasons}, has)
    for reason in reasons:
        values[f"stall_share_{reason}"] = _share(values[f"stall_{reason}"], total)
    memory = _sum(values, {f"stall_{r}": 1 for r in catalogue.MEMORY_STALLS}, has)
    values["memory_stalls"] = _share(memory, total)


def _plausible(flop: CounterValue, values: Values) -> CounterValue:
    """The tensor FLOPs; unmeasured if they are too few for the matrix instructions: some had a type without a
    counter."""
    products = (values["tensor_instructions"].value or 0) - (values["tensor_hfma2_instructions"].value or 0)
    reason = "" if flop.value is None else crosschecks.too_few_flops(flop.value, products)
    return CounterValue(None, COUNTER_CONTRADICTS(reason)) if reason else flop


def _sum(values: Values, factors: Mapping[str, int], has: set[str]) -> CounterValue:
    """The weighted sum of the facts that the chip has; unmeasured if any of those is."""
    parts = {name: factor for name, factor in factors.items() if name in has}
    if not parts:
        return CounterValue(None, NONE_OF(tuple(factors)))
    result = 0.0
    for name, factor in parts.items():
        value = values[name].value
        if value is None:
            return CounterValue(None, PART_UNMEASURED(name, values[name].cause))
        result += factor * value
    return CounterValue(result)


def _share(part: CounterValue, total: CounterValue) -> CounterValue:
    if part.value is None:
        return part
    if total.value is None:
        return total
    if total.value == 0:
        return CounterValue(None, NO_STALLS())
    return CounterValue(100.0 * part.value / total.value)


# --- the case ------------------------------------------------------------------------------------


def _combine(launches: Sequence[Values], chip: str) -> Values:
    """A case's values, combined from its launches according to each fact's kind.

    Derived facts are recomputed from the combined values, so that shares are over all the case's warps.
    """
    case = {
        name: _combine_one(name, launches)
        for name in launches[0]
        if FACTS[name].is_metric or name == "barriers_per_block" or name.startswith(PHASE_SHARE)
    }
    _derive(case, chip)
    return case


def _combine_one(name: str, launches: Sequence[Values]) -> CounterValue:
    values = [launch[name] for launch in launches]
    if len(values) == 1:
        return values[0]
    kind = FACTS[name].kind
    # A launch whose denominator is 0 adds nothing to either sum of a ratio.
    counted = [(i, v) for i, v in enumerate(values) if kind is not Kind.RATIO or v.weight != 0]
    if not counted:
        return values[0]
    numbers: list[float] = []
    for i, measured in counted:
        if measured.value is None:
            same = all(v.value is None and v.detail == measured.detail for _, v in counted)
            return CounterValue(None, measured.detail if same else LAUNCH_UNMEASURED(i, measured.cause))
        numbers.append(measured.value)
    match kind:
        case Kind.COUNTER:
            return CounterValue(math.fsum(numbers))
        case Kind.MAXIMUM:
            return CounterValue(max(numbers))
        case Kind.PERCENTAGE:
            return _mean(numbers, [launch["ncu_duration"].value for launch in launches], "ncu_duration")
        case Kind.RATIO:
            weights = [v.weight for _, v in counted]
            return _mean(numbers, weights, FACTS[name].weight or "its denominator")
        case Kind.NONE:
            return CounterValue(None, NOT_ADDITIVE())


def _mean(numbers: Sequence[float], weights: Sequence[float | None], weight: str) -> CounterValue:
    factors = [w for w in weights if w is not None]
    if len(factors) < len(weights):
        return CounterValue(None, CANNOT_COMBINE(len(weights), weight, "unmeasured"))
    total = math.fsum(factors)
    if total <= 0:
        return CounterValue(None, CANNOT_COMBINE(len(weights), weight, "0"))
    return CounterValue(math.fsum(n * w for n, w in zip(numbers, factors, strict=True)) / total)


def _plan_matches(rows: Sequence[Result], built: CaseBuild) -> CounterValue:
    """1 if ncu's launches match the plan in number and order, else 0 with the first difference."""
    plan = built.plan
    if built.is_linked:
        rows = [row for row in rows if canonical(row.kernel) in built.registers]
    if plan is None:
        return CounterValue(None, NO_PLAN(profiled=True))
    if plan.cause:
        return CounterValue(None, PLAN_FAILED(plan.cause))
    if len(rows) != len(plan.launches):
        seen = ", ".join(canonical(row.kernel) for row in rows)
        return CounterValue(0.0, f"launches in the plan: {len(plan.launches)}, seen by ncu: {len(rows)}: {seen}")
    for i, (row, launch) in enumerate(zip(rows, plan.launches, strict=True)):
        if difference := _difference(row, launch):
            return CounterValue(0.0, f"launch {i}: {difference}")
    return CounterValue(1.0)


def _difference(row: Result, launch: Launch) -> str:
    planned, seen = canonical(launch.kernel), canonical(row.kernel)
    if "<" not in seen:  # only the plan's name contains a Triton kernel's specialization
        planned = planned.partition("<")[0]
    pairs: list[tuple[str, object, object]] = [
        ("kernel", planned, seen),
        ("grid", launch.grid, row.grid),
        ("block", launch.block, row.block),
    ]
    dynamic = row.read("launch__shared_mem_per_block_dynamic")
    size = None if dynamic.value is None else convert(dynamic.value, dynamic.unit, "B")
    if size is not None:
        pairs.append(("dynamic shared memory (B)", launch.dynamic_smem, int(size)))
    cluster = [row.number(f"launch__cluster_dim_{axis}") for axis in "xyz"]
    if None not in cluster:  # ncu gives 0 for a launch without clusters
        pairs.append(("cluster", launch.cluster, tuple(max(1, int(c or 0)) for c in cluster)))
    return "; ".join(f"{name} is {a} in the plan, {b} in ncu" for name, a, b in pairs if a != b)
