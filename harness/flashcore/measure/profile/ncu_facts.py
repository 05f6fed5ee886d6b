"""Turns ncu's results into facts of each kernel launch, and of the case that made the launches. Pure.

Every fact of the catalogue appears for every profiled case, measured or unmeasured with its reason:
the chip has no such metric, ncu refused it, did not return it, or gave no number for it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flashcore.measure.profile import crosschecks
from flashcore.model import catalogue
from flashcore.model.catalogue import FACTS, PHASE_SHARE, FactSpec, Kind
from flashcore.model.cause_text import text
from flashcore.model.causes import (
    CannotCombine,
    Cause,
    CounterContradicts,
    CounterRefused,
    Detail,
    LaunchUnmeasured,
    Message,
    NoCounter,
    NoneOf,
    NoNumber,
    NoPlan,
    NoSamples,
    NotAdditive,
    NotReturned,
    PartUnmeasured,
    PhasesUnknown,
    PlanFailed,
    Sampled,
    ZeroDenominator,
)
from flashcore.model.record import Fact, Launch, Listing, Plan, Source, Subject
from flashcore.readers import phases
from flashcore.readers.kernel_names import canonical, without_arguments
from flashcore.readers.ncu.numerals import convert
from flashcore.readers.ncu.results import BY_ADDRESS, EXECUTED, SAMPLES, STALLED, Reading, Result

DERIVED = {
    "memory_stalls",
    "dram_bytes",
    "tensor_flop",
    "cuda_core_flop",
    "barriers_per_block",
    "kernel_launches",
    "plan_matches",
}

#: The catalogue's entries that a profile measures: ncu's own and those derived from them.
MEASURED: dict[str, FactSpec] = {
    name: spec for name, spec in FACTS.items() if spec.is_metric or name in DERIVED or name.startswith("stall_share_")
}
#: With the per-opcode counts, and not without them, ncu returns the counts of spilling instructions.
_COMPANIONS = {"sass__inst_executed_register_spilling": "sass__inst_executed_per_opcode"}
_TENSOR = "tensor_flop_"
_COUNT_TOLERANCE = 0.5  # counts are integers: parts whose sum differs from the total by one are not its parts


@dataclass(frozen=True, slots=True)
class Measured:
    """A value, or ``None`` and its cause. ``weight`` is the denominator of a ratio, if that was read."""

    value: float | None
    detail: Detail | str = ""
    weight: float | None = None

    @property
    def cause(self) -> Cause:
        """Why there is no value."""
        return self.detail if isinstance(self.detail, Cause) else Message(self.note)

    @property
    def note(self) -> str:
        """The detail in words, for people."""
        return text(self.detail)


Values = dict[str, Measured]


@dataclass(frozen=True, slots=True)
class Built:
    """What the build knows about a case.

    Args:
        plan: the launches that the variant announces; ``None`` for a reference.
        code: the phases of the variant's code; ``None`` if its sources mark none.
        registers: kernel → registers per thread in the cubin.
    """

    plan: Plan | None = None
    code: phases.Code | None = None
    registers: Mapping[str, int] = field(default_factory=dict)


def metrics_to_ask(
    chip: str, refused: Collection[str] = (), *, sampled: bool = False, types: Collection[str] | None = None
) -> list[str]:
    """Every ncu metric that the catalogue needs on ``chip``, weights too, without the refused ones.

    Args:
        sampled: whether to sample where the warps are, which the shares of phases are made of.
        types: count the FLOPs of these tensor types only, where those of the others follow from the instructions
            executed; ``None``: of all. On GH100 the others take 4 of 16 passes.
    """
    if types is not None and (crosschecks.FORMS in refused or chip.startswith(crosschecks.PACKED)):
        types = None
    metrics: list[str | None] = []
    if sampled:
        lacking = {name for name in STALLED if FACTS[name].ncu_name(chip) is None}
        metrics += [m for name, m in BY_ADDRESS.items() if name not in lacking and m != EXECUTED]
    if types is not None:
        metrics.append(crosschecks.FORMS)
    for spec in FACTS.values():
        if types is not None and spec.name.startswith(_TENSOR) and type_of(spec.name) not in types:
            continue
        if name := spec.ncu_name(chip):
            metrics += [_COMPANIONS.get(name), name, spec.weight]
    return [metric for metric in dict.fromkeys(metrics) if metric and metric not in refused]


def type_of(fact: str) -> str:
    """The type that the FLOPs of a fact are of, whatever they are summed up in."""
    return fact.removeprefix(_TENSOR).removesuffix("_sum16")


def facts_of(
    case: Subject,
    rows: Sequence[Result],
    *,
    chip: str,
    refused: Mapping[str, str] | None = None,
    built: Built = Built(),  # frozen
) -> list[Fact]:
    """All facts of one case: of the case first, then of each kernel summed over its launches, then, for a
    kernel launched more than once, of each launch by its index among the case's launches.

    Args:
        rows: the case's launches; at least one.
        chip: as ncu names it (``gh100``).
        refused: ncu metric → ncu's reason for not measuring it.
    """
    refused = refused or {}
    launches = [launch_values(row, chip, refused, built.registers.get(without_arguments(row.kernel))) for row in rows]
    if built.code is not None:
        for row, values in zip(rows, launches, strict=True):
            values |= _phase_shares(row, built.code, refused.get(SAMPLES, ""))
    combined = _combine(launches, chip)
    combined["kernel_launches"] = Measured(float(len(rows)))
    combined["plan_matches"] = _plan_matches(rows, built.plan)
    facts = as_facts(case, combined)
    kernels: dict[str, list[int]] = {}
    planned = built.plan.launches if built.plan is not None and combined["plan_matches"].value == 1 else ()
    for i, row in enumerate(rows):
        # A kernel built here has the name of its static facts; template names of libraries are too long.
        name = without_arguments(row.kernel) if built.plan is None else canonical(row.kernel)
        kernels.setdefault(planned[i].kernel if planned and "<" not in name else name, []).append(i)
    for kernel, indices in kernels.items():
        facts += as_facts(replace(case, kernel=kernel), _combine([launches[i] for i in indices], chip))
    for kernel, indices in kernels.items():
        for i in indices if len(indices) > 1 else ():
            facts += as_facts(replace(case, kernel=kernel, launch=i), launches[i])
    return facts


def unmeasured(variant: str, shape: str, cause: Cause) -> list[Fact]:
    """Every fact a profile measures, unmeasured for one cause: of a case that could not be profiled."""
    return as_facts(Subject(variant, shape=shape), dict.fromkeys(MEASURED, Measured(None, cause)))


def as_facts(subject: Subject, values: Mapping[str, Measured]) -> list[Fact]:
    """The facts of one subject, in the catalogue's order."""
    names = [n for n in MEASURED if n in values] + [n for n in values if n.startswith(PHASE_SHARE)]
    return [Fact(subject, n, values[n].value, FACTS[n].unit, Source.NCU, values[n].detail) for n in names]


# --- one launch ----------------------------------------------------------------------------------


def launch_values(
    row: Result, chip: str, refused: Mapping[str, str] | None = None, registers: int | None = None
) -> Values:
    """Every fact that a profile measures of one launch, measured or with the reason why not: impossible values are
    unmeasured.

    Args:
        registers: per thread, from the cubin; ``None`` where they are not known.
    """
    specs = {name: spec for name, spec in MEASURED.items() if spec.is_metric}
    values = {name: _read(row, spec, chip, refused or {}) for name, spec in specs.items()}
    metrics = {name: metric for name, spec in specs.items() if (metric := spec.ncu_name(chip)) and not spec.opcodes}
    numbers = {name: value for name in metrics if (value := values[name].value) is not None}
    for name, reason in crosschecks.impossible(row, numbers, metrics, chip, registers).items():
        values[name] = replace(values[name], value=None, detail=CounterContradicts(reason))
    launched = values["ncu_registers"]
    if registers is not None and launched.value is not None and launched.value != registers:
        note = f"the code needs {registers}; the driver gives no fewer than these"
        values["ncu_registers"] = replace(launched, detail=note)
    _derive(values, chip)
    values["barriers_per_block"] = _barriers_per_block(row, values["barrier_instructions"])
    return values


def _read(row: Result, spec: FactSpec, chip: str, refused: Mapping[str, str]) -> Measured:
    metric = spec.ncu_name(chip)
    if metric is None:
        return Measured(None, NoCounter(chip))
    if metric in refused and metric not in row:  # some are returned even so
        return Measured(None, CounterRefused(metric, refused[metric]))
    if metric not in row and spec.name.startswith(_TENSOR) and (flop := _by_instructions(row, spec, chip)) is not None:
        return Measured(flop, "as the instructions executed do, by their shapes and types")
    reading = row.read(metric)
    if spec.many_passes and metric not in row:
        return Measured(None, NotReturned(isinstance(reading.detail, NotReturned) and reading.detail.report, True))
    if spec.opcodes:
        return _opcodes(reading, spec.opcodes)
    weight = row.number(spec.weight) if spec.weight is not None else None
    if spec.kind is Kind.RATIO and weight == 0:
        return Measured(None, ZeroDenominator(spec.weight or ""), weight)
    if reading.value is None:
        return Measured(None, reading.detail, weight)
    value = convert(reading.value, reading.unit, spec.unit)
    if value is None or not math.isfinite(value):
        given = f"{reading.value:g} {reading.unit or '(no unit)'}"
        return Measured(None, NoNumber(given, f"expected a value in {spec.unit}"), weight)
    return Measured(value, reading.detail, weight)


def _by_instructions(row: Result, spec: FactSpec, chip: str) -> float | None:
    """The FLOPs of a tensor type, if the instructions executed tell them: not what they are summed up in."""
    flop = None if chip.startswith(crosschecks.PACKED) else crosschecks.tensor_flop(row)
    value = None if flop is None else flop.get(type_of(spec.name), 0.0)
    sums = FACTS.get(f"{_TENSOR}{type_of(spec.name)}_sum16")
    return None if value and sums and sums.ncu_name(chip) else value


def _opcodes(reading: Reading, opcodes: Sequence[str]) -> Measured:
    """How often these opcodes were executed. One that is not listed counts as 0, but only if the listed ones add up to
    ncu's total."""
    total = reading.value
    if total is None:
        return Measured(None, reading.detail)
    if reading.instances is None and total > 0:
        return Measured(None, NoNumber("no counts per opcode (--print-metric-instances details)"))
    listed = reading.instances or {}
    added = math.fsum(listed.values())
    if abs(added - total) > _COUNT_TOLERANCE:
        evidence = f"ncu's counts per opcode add up to {added:,.0f}, not to its total {total:,.0f}"
        return Measured(None, CounterContradicts(evidence))
    return Measured(math.fsum(listed.get(opcode, 0.0) for opcode in opcodes))


def _barriers_per_block(row: Result, executed: Measured) -> Measured:
    if executed.value is None:
        return executed
    warps = math.prod(row.grid) * math.ceil(math.prod(row.block) / 32)
    return Measured(executed.value / warps) if warps else Measured(None, NoNumber("an empty grid or block"))


# --- phases --------------------------------------------------------------------------------------


def _phase_shares(row: Result, code: phases.Code, refused: str) -> Values:
    """The share of each phase in the samples of one launch."""
    names = [PHASE_SHARE + phase for phase in code.names]
    samples = CounterRefused(SAMPLES, refused) if refused else _samples_by_phase(row, code)
    if isinstance(samples, Cause):
        return dict.fromkeys(names, Measured(None, samples))
    total = math.fsum(samples.values())
    if total == 0:
        return dict.fromkeys(names, Measured(None, NoSamples()))
    values: Values = {}
    for name, phase in zip(names, code.names, strict=True):
        share = samples.get(phase, 0.0) / total
        error = 100 * math.sqrt(share * (1 - share) / total)
        values[name] = Measured(100 * share, Sampled(total, round(error, 1)))
    return values


def _samples_by_phase(row: Result, code: phases.Code) -> dict[str, float] | Cause:
    """Phase → samples; or why they cannot be told apart.

    ncu names instructions by their address in memory. It lists all those of the kernel with how often they
    were executed, so the first of them is where the kernel begins, and their distances to it must be offsets
    of the code whose phases are known.
    """
    if code.why:
        return PhasesUnknown(code.why)
    kernel = canonical(row.kernel)
    if kernel not in code.kernels:
        return PhasesUnknown(f"the kernel {kernel} is not in the variant's own code")
    phase_at = code.kernels[kernel]
    reading = row.read(SAMPLES)
    if reading.value is None:
        return Measured(None, reading.detail).cause
    sampled, executed = _addresses(reading.instances), _addresses(row.read(EXECUTED).instances)
    if abs(math.fsum(sampled.values()) - reading.value) > _COUNT_TOLERANCE:
        return CounterContradicts(f"ncu's samples per address do not add up to its total {reading.value:,.0f}")
    if not executed:
        return NoNumber(f"no {EXECUTED} per address", "which tells where the kernel begins")
    start = min(executed)
    if strange := sorted({*executed, *sampled} - {start + offset for offset in phase_at}):
        at = f"{strange[0] - start:#x} of the kernel"
        return PhasesUnknown(f"ncu names an instruction at {at}, where the code built here has none")
    samples: dict[str, float] = {}
    for address, count in sampled.items():
        phase = phase_at[address - start]
        samples[phase] = samples.get(phase, 0.0) + count
    return samples


def listings(case: Subject, rows: Sequence[Result], code: phases.Code) -> list[Listing]:
    """The sampled kernels of a case, instruction by instruction; none of a kernel whose samples cannot be told
    apart (the shares of its phases say why)."""
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
    """Instances by address, which ncu writes as decimals or hexadecimals; none if one is no address."""
    try:
        return {int(address, 0): count for address, count in (instances or {}).items()}
    except ValueError:
        return {}


# --- from one another ----------------------------------------------------------------------------


def _derive(values: Values, chip: str) -> None:
    """Adds what follows from other facts of the same subject."""
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


def _plausible(flop: Measured, values: Values) -> Measured:
    """The tensor FLOPs, unless more instructions multiplied matrices than they can be of: then some were of a
    type that no counter tells, and their number is not known."""
    products = (values["tensor_instructions"].value or 0) - (values["tensor_hfma2_instructions"].value or 0)
    reason = "" if flop.value is None else crosschecks.too_few_flops(flop.value, products)
    return Measured(None, CounterContradicts(reason)) if reason else flop


def _sum(values: Values, factors: Mapping[str, int], has: set[str]) -> Measured:
    """The weighted sum of the facts that the chip has; unmeasured if one of those is."""
    parts = {name: factor for name, factor in factors.items() if name in has}
    if not parts:
        return Measured(None, NoneOf(tuple(factors)))
    result = 0.0
    for name, factor in parts.items():
        value = values[name].value
        if value is None:
            return Measured(None, PartUnmeasured(name, values[name].cause))
        result += factor * value
    return Measured(result)


def _share(part: Measured, total: Measured) -> Measured:
    if part.value is None:
        return part
    if total.value is None:
        return total
    if total.value == 0:
        return Measured(None, NoSamples(stalls=True))
    return Measured(100.0 * part.value / total.value)


# --- the case ------------------------------------------------------------------------------------


def _combine(launches: Sequence[Values], chip: str) -> Values:
    """The values of a case from those of its launches, each by its kind.

    Derived facts are computed again from the combined values: shares are then those of all the case's warps, and sums
    stay sums.
    """
    case = {
        name: _combine_one(name, launches)
        for name in launches[0]
        if FACTS[name].is_metric or name == "barriers_per_block" or name.startswith(PHASE_SHARE)
    }
    _derive(case, chip)
    return case


def _combine_one(name: str, launches: Sequence[Values]) -> Measured:
    values = [launch[name] for launch in launches]
    if len(values) == 1:
        return values[0]
    kind = FACTS[name].kind
    # A launch without a denominator adds nothing to either sum of a ratio.
    counted = [(i, v) for i, v in enumerate(values) if kind is not Kind.RATIO or v.weight != 0]
    if not counted:
        return values[0]
    numbers: list[float] = []
    for i, measured in counted:
        if measured.value is None:
            alike = all(v.value is None and v.detail == measured.detail for _, v in counted)
            return Measured(None, measured.detail if alike else LaunchUnmeasured(i, measured.cause))
        numbers.append(measured.value)
    match kind:
        case Kind.COUNTER:
            return Measured(math.fsum(numbers))
        case Kind.MAXIMUM:
            return Measured(max(numbers))
        case Kind.PERCENTAGE:
            return _mean(numbers, [launch["ncu_duration"].value for launch in launches], "ncu_duration")
        case Kind.RATIO:
            weights = [v.weight for _, v in counted]
            return _mean(numbers, weights, FACTS[name].weight or "its denominator")
        case Kind.NONE:
            return Measured(None, NotAdditive())


def _mean(numbers: Sequence[float], weights: Sequence[float | None], weight: str) -> Measured:
    factors = [w for w in weights if w is not None]
    if len(factors) < len(weights):
        return Measured(None, CannotCombine(len(weights), weight, zero=False))
    total = math.fsum(factors)
    if total <= 0:
        return Measured(None, CannotCombine(len(weights), weight, zero=True))
    return Measured(math.fsum(n * w for n, w in zip(numbers, factors, strict=True)) / total)


def _plan_matches(rows: Sequence[Result], plan: Plan | None) -> Measured:
    """1 if ncu saw the plan's launches in the plan's order, else 0 with the first difference."""
    if plan is None:
        return Measured(None, NoPlan(profiled=True))
    if plan.cause:
        return Measured(None, PlanFailed(plan.cause))
    if len(rows) != len(plan.launches):
        seen = ", ".join(canonical(row.kernel) for row in rows)
        return Measured(0.0, f"the plan has {len(plan.launches)} launches, ncu saw {len(rows)}: {seen}")
    for i, (row, launch) in enumerate(zip(rows, plan.launches, strict=True)):
        if difference := _difference(row, launch):
            return Measured(0.0, f"launch {i}: {difference}")
    return Measured(1.0)


def _difference(row: Result, launch: Launch) -> str:
    planned, seen = canonical(launch.kernel), canonical(row.kernel)
    if "<" not in seen:  # only the plan's name holds what Triton compiled a kernel for
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
    return "; ".join(f"{what} is {a} in the plan, {b} in ncu" for what, a, b in pairs if a != b)
