"""Makes a run record from the content of reports. Pure.

A function is a variant and a launch configuration is a shape, so a case is one kernel launched in one way. A launch's
facts are recorded under its number, the report's ID. The case has the facts of its launch of median duration: values of
one launch belong together, unlike the means of each value. Counts that a report lacks are computed from equivalent
ones where that is exact, since NVIDIA's section sets collect some counts only per cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import fsum

from flashcore import __version__
from flashcore.errors import FlashcoreError, UsageError
from flashcore.features.reports import traces
from flashcore.features.reports.benchmarks import CLOCK, HOST, TimedBenchmark
from flashcore.model import intervals
from flashcore.model.case import Case, TimeKey
from flashcore.model.catalogue import FACTS, RULE, TENSOR_TYPES, chip_of, fact_of
from flashcore.model.cause import Cause
from flashcore.model.causes import COUNTER_CONTRADICTS, IMPOSSIBLE, NOT_TIMED, NotReturned
from flashcore.model.groups import grouped
from flashcore.model.record import (
    CaseOutcome,
    CaseSubject,
    CodeSubject,
    Environment,
    Fact,
    Facts,
    Listing,
    Record,
    Source,
    StageNote,
    Subject,
    outcome_of,
)
from flashcore.model.suite import ImportedKernel, Problem, RankMode, Shape, Suite, Variant, Where
from flashcore.readers import cubin
from flashcore.readers.kernel_names import canonical
from flashcore.readers.ncu.results import (
    BY_ADDRESS,
    EXECUTED,
    SAMPLES,
    Container,
    Metric,
    MetricReading,
    Report,
    Result,
    plain,
)
from flashcore.records import slugs, soundness
from flashcore.stages.profile import ncu_facts

PROBLEM = "imported"


def record_of(
    run_id: str,
    reports: Sequence[Report],
    *,
    name: str = PROBLEM,
    command: str = "",
    sources: bool = True,
) -> Record:
    """The record of one or several reports of one GPU.

    Args:
        name: the suite's name: records of one name are compared with each other.
        sources: whether to keep instructions and their source lines.

    Raises:
        UsageError: the reports are from several GPU models (:func:`by_gpu`), or traces, benchmarks and others.
    """
    timed = [r for report in reports for r in report.results if isinstance(r, TimedBenchmark)]
    if timed:
        return _record_of_times(run_id, reports, timed, name=name, command=command)
    results = list(_numbered(reports))
    traced = any(traces.TIME in r for r in results)
    if traced and not all(traces.TIME in r for r in results):
        raise UsageError("expected traces or reports with counters, found both\n  hint: import each separately")
    gpu = _environment(results, reports)
    results = list(_merged(results))
    chip = chip_of(results[0].cc) or "unknown"  # then metrics have the names of most chips
    arch = gpu.gpu_arch or "unknown"
    kernels = _cubins(reports, arch)
    registers = {name: kernel.registers for name, kernel in kernels.items()}
    values = {r.id: ncu_facts.launch_values(r, chip, registers=registers.get(r.mangled)) for r in results}
    cases = _cases(results)
    facts = [f for case, launches in cases.items() for f in _case(case, launches, values, chip)]
    facts += _static_facts(cases, arch, kernels)
    if traced:
        facts = [replace(f, source=Source.CUPTI) for f in facts]
    return Record(
        *(run_id, command, _suite(name, _title(reports), arch, cases, _shapes(cases), _roofs(cases, values)), gpu),
        outcomes=tuple(outcome_of(case, "profile", None) for case in cases),
        stages=(_note(reports),),
        facts=Facts(facts),
        listings=tuple(_listings(cases, reports)) if sources else (),
    )


def record_of_call(run_id: str, case: Case, results: Sequence[Result], facts: Sequence[Fact]) -> Record:
    """The record of one call of a function with these launches and facts: one case."""
    gpu = _environment(results, [Report("", ())])
    arch = gpu.gpu_arch or "unknown"
    values = {r.id: ncu_facts.launch_values(r, chip_of(r.cc) or "unknown") for r in results}
    cases = {case: results}
    return Record(
        *(run_id, "", _suite(PROBLEM, case.variant, arch, cases, _shapes(cases), _roofs(cases, values)), gpu),
        outcomes=(outcome_of(case, "profile", None),),
        facts=Facts(facts),
    )


def _record_of_times(
    run_id: str, reports: Sequence[Report], results: Sequence[TimedBenchmark], *, name: str, command: str
) -> Record:
    """The record of benchmarks. The times of one case in several processes, or on several GPUs, are together."""
    if len(results) < sum(len(report.results) for report in reports):
        raise UsageError("expected benchmarks or reports of kernels, found both\n  hint: import each separately")
    gpu = replace(_environment(results, reports), host=results[0].text(HOST) or None)
    mode: RankMode = "cold" if gpu.gpu_arch else "eager"
    variants, shapes = slugs.variants(r.kernel for r in results), slugs.arguments(r.arguments for r in results)
    cases = grouped((Case(variants[r.kernel], shapes[r.arguments]), r) for r in results)
    table = {c.shape: Shape(c.shape, PROBLEM, of[0].parameters, ("bench",), mode) for c, of in cases.items()}
    lost = {case: next((part.why for part in parts if part.why), None) for case, parts in cases.items()}
    facts: list[Fact] = []
    samples: dict[TimeKey, tuple[float, ...]] = {}
    for case, parts in cases.items():
        times = grouped(item for part in parts for item in part.times.items())
        for timing, of in (times or {mode: [((), "")]}).items():
            us = tuple(x for series, _ in of for x in series)
            cause = lost[case] or (None if us else NOT_TIMED(timing))
            if not all(map(soundness.is_time, us)):
                cause = cause or IMPOSSIBLE("finite times above 0", f"{min(us):g} to {max(us):g} µs")
            facts += _times(CaseSubject(case), timing, us, of[0][1], cause)
            samples |= {(case, timing): us} if us[1:] and not cause else {}
        if hz := parts[0].number(CLOCK):
            facts.append(Fact(CaseSubject(case), "kernel_sm_clock", hz / 1e6, "MHz", Source.KERNEL))
    suite = _suite(name, _title(reports), gpu.gpu_arch or "unknown", cases, table, {})
    return Record(
        *(run_id, command, suite, gpu),
        outcomes=tuple(
            CaseOutcome(case.variant, case.shape, "bench", "skipped" if why else "ok", why)
            for case, why in lost.items()
        ),
        stages=(_note(reports),),
        facts=Facts(facts),
        raw_samples=samples,
    )


def _times(subject: CaseSubject, mode: str, us: Sequence[float], each: str, cause: Cause | None) -> Iterator[Fact]:
    """The facts of a case's times in a mode; of a single one, which is no sample, only the time and what it is."""
    values = {"p50": None} if cause else intervals.of_samples(us) if us[1:] else {"p50": us[0]}
    note = f"each sample is {each}" if us[1:] and each else each and f"{each}, without samples"
    for name, value in values.items():
        unit, source = "1" if name == "samples" else "us", Source.HOST if mode == "eager" else Source.EVENTS
        yield Fact(subject, f"{mode}_{name}", value, unit, source, cause or note)


def _cases(results: Sequence[Result]) -> dict[Case, list[Result]]:
    """Case → its launches."""
    variants = slugs.variants(r.kernel for r in results)
    return grouped((Case(variants[r.kernel], slugs.shape(slugs.shape_parameters(r))), r) for r in results)


def _title(reports: Sequence[Report]) -> str:
    return f"imported from {', '.join(report.name for report in reports)}"


def _note(reports: Sequence[Report]) -> StageNote:
    return StageNote("import", "ok", 0.0, "; ".join(_remarks(reports)))


def _suite(
    name: str,
    title: str,
    arch: str,
    cases: Mapping[Case, Sequence[Result]],
    shapes: Mapping[str, Shape],
    roofs: Mapping[str, str],
) -> Suite:
    """A suite of the launched kernels, or of benchmarks. ``roofs`` are the compute roofs of variants."""
    variants: dict[str, Variant] = {}
    for variant, of in grouped((case.variant, (case.shape, launches)) for case, launches in cases.items()).items():
        kernel = of[0][1][0].kernel
        variants[variant] = Variant(
            *(variant, PROBLEM, ImportedKernel(kernel), canonical(kernel)),
            where=Where((arch,), tuple(shape for shape, _ in of)),
            roof=roofs.get(variant, ""),
            tolerance="",
            tolerance_reason="imported: no problem, and no answer to compare with",
        )
    return Suite(
        name=name,
        title=title,
        root=".",
        nvcc="",
        archs=(arch,),
        baseline="",
        problems={PROBLEM: Problem(PROBLEM, "", "", (), (), ())},
        shapes=dict(shapes),
        variants=variants,
        budgets=(),
        waivers=(),
    )


def by_gpu(reports: Iterable[Report]) -> list[list[Report]]:
    """The reports of each GPU model; those of several models are divided."""
    parts: dict[object, list[Report]] = {}
    for report in reports:
        for model, results in grouped((_model(result), result) for result in report.results).items():
            parts.setdefault(model, []).append(replace(report, results=tuple(results)))
    return list(parts.values())


def _numbered(reports: Sequence[Report]) -> Iterator[Result]:
    """All results, with consecutive launch numbers over the reports, and missing counts from equivalent ones."""
    first = 0
    for report in reports:
        yield from (Completed(**vars(r) | {"id": r.id + first}) for r in report.results)
        first += max(r.id for r in report.results) + 1


def _merged(results: Iterable[Result]) -> Iterator[Result]:
    """The results; averages over launches of one case are one. A number is then the average over all of them, and what
    differs in their configuration has no value: several pieces of code may have one name."""
    cases = grouped(((r.kernel, slugs.shape(slugs.shape_parameters(r))) if r.averaged else r.id, r) for r in results)
    for parts in cases.values():
        count, metrics = sum(part.averaged for part in parts), parts[0].metrics
        if len(parts) > 1:
            metrics = {name: _average(name, parts, count) for name in metrics}
        yield replace(parts[0], metrics=metrics, averaged=count)


def _average(name: str, parts: Sequence[Result], count: int) -> Metric:
    first = parts[0].metrics[name]
    if len({part.text(name) for part in parts}) == 1:
        return first
    sums = [number * part.averaged for part in parts if (number := part.number(name)) is not None]
    if len(sums) < len(parts) or name.startswith("launch__"):
        return Metric(None, first.unit, cause=COUNTER_CONTRADICTS("its launches have several values"))
    return Metric(fsum(sums) / count, first.unit)


def _remarks(reports: Iterable[Report]) -> Iterator[str]:
    for report in reports:
        yield f"{report.name}, read by {report.reader}"
        yield from report.notes
        if report.container and report.container.command:
            yield f"made by: {report.container.command}"


# --- facts ----------------------------------------------------------------------------------------


def _case(case: Case, results: Sequence[Result], values: Mapping[int, ncu_facts.Values], chip: str) -> Iterator[Fact]:
    whole = CaseSubject(case)
    chosen = _median(results)
    yield from ncu_facts.as_facts(whole, values[chosen.id])
    yield Fact(whole, "kernel_launches", 1.0, "1", Source.NCU)
    note = "" if len(results) == 1 else f"the case's other facts are those of launch {chosen.id}, of median duration"
    count = sum(result.averaged or 1 for result in results)
    if chosen.averaged:
        note = "the report is a summary: the other facts are averages"
    yield Fact(whole, "profiled_launches", float(count), "1", Source.NCU, note)
    for result in results:
        launch = None if result.averaged else result.id
        subject = CaseSubject(case, kernel=result.kernel, launch=launch)
        yield from ncu_facts.as_facts(subject, values[result.id])
        yield from _unnamed(subject, result, chip)
        if traces.TIME in result:
            time = result.read(traces.TIME)
            yield from (Fact(s, traces.TIME, time.value, "ns", Source.CUPTI, time.detail) for s in (whole, subject))


def _median(results: Sequence[Result]) -> Result:
    """The launch of median duration, the lower of two; of launches without one, the first."""
    timed = [(time, r.id, r) for r in results if (time := r.number("gpu__time_duration.sum"))]
    return sorted(timed, key=lambda t: t[:2])[(len(timed) - 1) // 2][2] if timed else results[0]


def _unnamed(subject: Subject, result: Result, chip: str) -> Iterator[Fact]:
    """Metrics outside the catalogue, under ncu's names, and the findings of ncu's rules."""
    mapped = {traces.TIME, *(spec.ncu_name(chip) for spec in FACTS.values() if not spec.opcodes)}
    for name, metric in result.metrics.items():
        value = metric.value
        if name in mapped or value == "" or (value is None and metric.cause is None):
            continue
        unit = "text" if isinstance(value, str) else metric.unit or "1"
        exact = plain(value) if isinstance(value, int) else value
        yield Fact(subject, name, exact, unit, Source.NCU, metric.cause or "")
    if result.ranges:
        yield Fact(subject, "nvtx__ranges", " / ".join(result.ranges), "text", Source.NCU)
    times = Counter[str]()
    for finding in result.findings:
        times[finding.rule] += 1
        name = f"{RULE}{finding.rule}" + (f".{times[finding.rule]}" if times[finding.rule] > 1 else "")
        yield Fact(subject, name, finding.message, "text", Source.NCU)
        if finding.speedup is not None:
            note = f"estimated speed-up, {finding.scope or 'of unknown scope'}"
            yield Fact(subject, f"{name}.speedup", finding.speedup, "pct", Source.NCU, note)


def _static_facts(
    cases: Mapping[Case, Sequence[Result]], arch: str, kernels: Mapping[str, cubin.Kernel]
) -> Iterator[Fact]:
    """The facts of the kernels whose cubins the reports have."""
    for variant, (first, *_) in grouped((case.variant, results[0]) for case, results in cases.items()).items():
        if compiled := kernels.get(first.mangled):
            subject = CodeSubject(variant, arch, kernel=first.kernel)
            for name in ("registers", "stack_bytes", "static_smem", "barriers", "parameter_bytes"):
                value, detail = compiled.resource(name)
                yield fact_of(subject, name, value, Source.CUBIN, detail)


def _listings(cases: Mapping[Case, Sequence[Result]], reports: Iterable[Report]) -> Iterator[Listing]:
    """The instructions of each case, with its median launch's counts: under the listings' names, or else ncu's."""
    listed = {metric: name for name, metric in BY_ADDRESS.items()}
    code = {key: instructions for report in reports for key, instructions in report.code.items()}
    sources = {file: text for report in reports for file, text in report.sources.items()}
    for case, results in cases.items():
        chosen = _median(results)
        executed = {n: 0.0 for n, m in (("executed", EXECUTED), ("samples", SAMPLES)) if m in chosen}
        counted: dict[str, dict[str, float]] = {}
        for name, metric in chosen.metrics.items():
            for offset, value in metric.instances.items() if chosen.code else ():
                counted.setdefault(offset, {})[listed.get(name, name)] = value
        if instructions := code.get(chosen.code, ()):
            subject = CaseSubject(case, kernel=chosen.kernel)
            files = {i.file: sources[i.file] for i in instructions if i.file in sources}
            rows = (replace(i, values=executed | counted.get(hex(i.offset), {})) for i in instructions)
            yield Listing(subject, tuple(rows), files)


def _cubins(reports: Iterable[Report], arch: str) -> dict[str, cubin.Kernel]:
    """Mangled name → the cubin's facts about the kernel, from the reports; without names that several kernels have."""
    by_name: dict[str, set[cubin.Kernel]] = {}
    for report in reports:
        for data in report.container.cubins if report.container else ():
            try:
                kernels = cubin.parse(data, arch, report.name).kernels
            except FlashcoreError:
                continue  # the reader made its results without it
            for kernel in (k for k in kernels if k.registers):  # none has 0: the cubin is damaged
                by_name.setdefault(kernel.name, set()).add(kernel)
    return {name: next(iter(kernels)) for name, kernels in by_name.items() if len(kernels) == 1}


# --- the suite and the machine --------------------------------------------------------------------

#: The type of a compute roof → the facts that count its FLOPs, and the FLOPs per count.
_ROOFS: dict[str, dict[str, int]] = {
    "fp32": {"op_fadd": 1, "op_fmul": 1, "op_ffma": 2},
    "fp16": {"op_hadd": 2, "op_hmul": 2, "op_hfma": 4},
    "fp64": {"op_dadd": 1, "op_dmul": 1, "op_dfma": 2},
}
for _type in TENSOR_TYPES:
    _ROOFS.setdefault(f"{_type.removesuffix('_sum16')}_tensor", {})[f"tensor_flop_{_type}"] = 1


def _shapes(cases: Mapping[Case, Sequence[Result]]) -> dict[str, Shape]:
    """The shapes of launched kernels: a configuration is one."""
    return {c.shape: Shape(c.shape, PROBLEM, slugs.shape_parameters(of[0]), ("profile",)) for c, of in cases.items()}


def _roofs(cases: Mapping[Case, Sequence[Result]], values: Mapping[int, ncu_facts.Values]) -> dict[str, str]:
    """The dominant FLOP type of each variant."""
    launches = grouped((case.variant, values[r.id]) for case, of in cases.items() for r in of)
    return {variant: _roof(of) for variant, of in launches.items()}


def _roof(launches: Sequence[ncu_facts.Values]) -> str:
    """The dominant FLOP type; empty without FLOPs."""
    counted = dict.fromkeys(_ROOFS, 0.0)
    for values in launches:
        for roof, parts in _ROOFS.items():
            counted[roof] += sum(factor * (values[name].value or 0.0) for name, factor in parts.items())
    # HFMA2 also moves constants: by itself it does not show that a kernel computes in fp16.
    if any(counted[roof] for roof in counted if roof != "fp16"):
        counted["fp16"] = sum(v[n].value or 0.0 for v in launches for n in ("op_hadd", "op_hmul")) and counted["fp16"]
    best = max(counted, key=counted.__getitem__)
    return best if counted[best] else ""


_ATTRIBUTE = "device__attribute_"


def _model(result: Result) -> tuple[str, tuple[int, int]]:
    """The GPU model's name, empty if unknown, and its compute capability."""
    return result.text(f"{_ATTRIBUTE}display_name"), result.cc


def _environment(results: Sequence[Result], reports: Sequence[Report]) -> Environment:
    """The reports' machine.

    Raises:
        UsageError: they are from several GPU models.
    """
    gpus = {*map(_model, results)}
    if len(gpus) > 1:
        named = ", ".join(sorted(f"{name or 'a GPU'} ({cc[0]}.{cc[1]})" for name, cc in gpus))
        raise UsageError(
            f"expected results of one GPU model, found {named}\n  hint: flashcore import makes a run for each"
        )
    first, container = results[0], reports[0].container or Container(None)

    def whole(name: str) -> int | None:
        value = first.number(_ATTRIBUTE + name)
        return int(value) if value else None

    clock = first.number(f"{_ATTRIBUTE}max_gpu_frequency_khz")
    return Environment(
        *(None, "", "", "", __version__),
        gpu=_model(first)[0] or None,
        gpu_arch=f"sm_{first.cc[0]}{first.cc[1]}" if first.cc[0] else None,
        gpu_sms=whole("multiprocessor_count"),
        gpu_memory_bytes=whole("total_memory"),
        gpu_l2_bytes=whole("l2_cache_size"),
        gpu_sm_clock_mhz=clock / 1e3 if clock else None,
        cuda_runtime=container.cuda or None,
        ncu=container.ncu or None,
        libraries=dict([report.reader.rsplit(" ", 1) for report in reports if report.reader[-1:].isdigit()][:1]),
    )


# --- equivalent counts ----------------------------------------------------------------------------

#: A metric → the metrics whose sum it is. Of several metrics the sum is used only if it is 0: how other values add up
#: is not documented.
_EQUIVALENT = {
    "smsp__inst_executed_op_local_ld.sum": ("smsp__sass_inst_executed_op_local_ld.sum",),
    "smsp__inst_executed_op_local_st.sum": ("smsp__sass_inst_executed_op_local_st.sum",),
    # On all chips since GA100 it is made of no other counters (libnvperf_host).
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("dram__cycles_active.avg.pct_of_peak_sustained_elapsed",),
    "smsp__inst_executed.sum": ("inst_executed",),
    "sm__ops_path_tensor_src_fp8.sum": (
        "sm__ops_path_tensor_src_fp8_sparsity_off.sum",
        "sm__ops_path_tensor_src_fp8_sparsity_on.sum",
    ),
}
#: Bytes that are counted as sectors too, which have 32 bytes on every chip since 2016.
_OF_SECTORS = (
    "lts__t_bytes.sum",
    "l1tex__t_bytes.sum",
    "l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum",
    "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_atom.sum",
    "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_red.sum",
)
_PER_CYCLE = ".per_cycle_elapsed"
_WHOLE = 1e-9  # relative rounding error of 64-bit arithmetic on an integer


class Completed(Result):
    """An imported result: a metric that the report lacks is computed from equivalent ones, where that is exact."""

    def read(self, metric: str) -> MetricReading:
        if metric in self and self.metrics[metric].value is not None:
            return super().read(metric)
        return equivalent(metric, lambda name: self.number(name) if name in self else None) or MetricReading(
            None, detail=NotReturned(report=True)
        )


def equivalent(metric: str, number: Callable[[str], float | None]) -> MetricReading | None:
    """Returns the same count computed from others, with a note of which; ``None`` where they do not give it.

    A sum may be its rate times its unit's average cycles. The product is not an integer if the rate is of another pass
    than the cycles, or was printed; it is discarded then.

    Args:
        number: the value of a metric that the report has.
    """
    others = _EQUIVALENT.get(metric, ())
    values = [value for name in others if (value := number(name)) is not None]
    if others and len(values) == len(others) and (len(others) == 1 or not any(values)):
        unit = "%" if ".pct_of_peak" in metric else ""
        return MetricReading(sum(values), unit, detail=f"as {' + '.join(others)}")
    sectors = metric.replace("_bytes", "_sectors")
    if metric in _OF_SECTORS and (count := number(sectors)) is not None:
        return MetricReading(32 * count, "byte", detail=f"as 32 × {sectors}")
    rate, cycles = number(metric + _PER_CYCLE), number(f"{metric.split('__')[0]}__cycles_elapsed.avg")
    if rate is None or cycles is None or not metric.endswith(".sum"):
        return None
    value = rate * cycles
    if abs(value - round(value)) > _WHOLE * max(value, 1.0):
        return None
    return MetricReading(float(round(value)), detail=f"as {metric}{_PER_CYCLE} × its unit's cycles")
