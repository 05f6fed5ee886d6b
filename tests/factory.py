"""Synthetic suites and records for tests: small by default, honest in form, quick to change.

Everything has a default, so that a test names only what it is about::

    record = factory.record(
        suite=factory.suite(budgets=[factory.budget("registers", maximum=128)]),
        facts=[factory.fact("registers", 140, "fast", arch="sm_90a", kernel="fast_kernel")],
    )

``record()`` alone is a complete run of the default suite on an H200: three variants and a reference, two
shapes, static facts for three archs, check, counters, timing and samples. ``bare_record()`` has the
suite and the builds only; ``large_record(cases)`` has many.
"""

from __future__ import annotations

import functools
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flashcore.model.case import Case, TimeKey
from flashcore.model.catalogue import FACTS, STALL_REASONS
from flashcore.model.cause import Detail
from flashcore.model.causes import MESSAGE, NOT_BUILT, UNSUPPORTED_ARCH, PlanRefused, SourceLine
from flashcore.model.record import (
    Artifact,
    CaseKey,
    CaseOutcome,
    Environment,
    Fact,
    Facts,
    Launch,
    Plan,
    Record,
    Source,
    StageNote,
    Subject,
    Value,
    subject_of,
)
from flashcore.model.suite import (
    Argument,
    Budget,
    CudaSource,
    Problem,
    PythonCallable,
    Shape,
    Stage,
    Suite,
    Variant,
    Waiver,
    Where,
)
from flashcore.readers.compiler_log import compile_failed

ARCHS = ("sm_80", "sm_89", "sm_90a")
STAGES: tuple[Stage, ...] = ("check", "bench", "profile")
GPU = "NVIDIA H200"
MISSION = {"B": 1, "H": 8, "S": 512, "D": 64}
LONG = {"B": 1, "H": 8, "S": 2048, "D": 64}


# --- what a suite declares ----------------------------------------------------------------------


def shape(
    name: str = "mission",
    params: Mapping[str, int | float | str | bool] | None = None,
    stages: Sequence[Stage] = STAGES,
) -> Shape:
    """A shape of the problem ``attention``; the mission's parameters unless others are given."""
    return Shape(name, "attention", dict(params or MISSION), tuple(stages))


def variant(name: str, **changes: Any) -> Variant:
    """A CUDA variant of the problem ``attention``; any field can be given by name.

    ``archs``, ``shapes`` and ``unsupported`` go into its ``where``.
    """
    where = Where(
        tuple(changes.pop("archs", ARCHS)),
        tuple(changes.pop("shapes", ("*",))),
        changes.pop("unsupported", {}),
    )
    fields: dict[str, Any] = {
        "name": name,
        "problem": "attention",
        "technique": f"what {name} adds",
        "where": where,
        "roof": "fp16_tensor",
        "tolerance": "fused",
        "tolerance_reason": "P is rounded to fp16",
        "kind": CudaSource(f"{name}.cu"),
        "document": "000",
    }
    return Variant(**{**fields, **changes})


def reference(name: str = "cudnn", **changes: Any) -> Variant:
    """A Python callable as a variant."""
    return variant(name, **{"kind": PythonCallable(f"peers.py:{name}"), "document": None, **changes})


def budget(fact: str, name: str | None = None, **changes: Any) -> Budget:
    """A limit on ``fact``; unit and tier come from the catalogue. Give ``maximum`` or ``minimum``."""
    spec = FACTS[fact]
    assert spec.tier is not None, f"{fact} has no number to limit"
    fields: dict[str, Any] = {
        "name": name or f"{fact}_limit",
        "fact": fact,
        "unit": spec.unit,
        "tier": spec.tier,
        "severity": "limit",
        "source": "FlashCore design 000",
    }
    return Budget(**{**fields, **changes})


def goal(fact: str, name: str | None = None, **changes: Any) -> Budget:
    """A goal on ``fact``: shown as progress, never a failure."""
    return budget(fact, name or f"{fact}_goal", **{"severity": "goal", **changes})


def waiver(budget: str, accepted: float, **changes: Any) -> Waiver:
    """A known miss of the budget of that name, everywhere unless globs are given."""
    fields: dict[str, Any] = {
        "budget": budget,
        "variants": ("*",),
        "archs": ("*",),
        "shapes": ("*",),
        "kernels": ("*",),
        "accepted": accepted,
        "reason": "known, to be fixed",
    }
    return Waiver(**{**fields, **changes})


def suite(
    variants: Iterable[Variant] | None = None,
    shapes: Iterable[Shape] | None = None,
    budgets: Iterable[Budget] = (),
    waivers: Iterable[Waiver] = (),
    archs: Sequence[str] = ARCHS,
    **changes: Any,
) -> Suite:
    """A suite of attention kernels: ``slow`` (the baseline), ``fast``, ``split`` (two kernels) and
    the reference ``cudnn``, on the shapes ``mission`` and ``long``.
    """
    if variants is None:
        variants = (
            variant("slow", roof="fp32"),
            variant("fast", parent="slow"),
            variant("split", parent="fast", archs=("sm_90a",), unsupported={
                "sm_80": "no TMA before sm_90", "sm_89": "no TMA before sm_90"}),
            reference(),
        )  # fmt: skip
    chosen = tuple(variants)
    tensors = ("q", "k", "v")
    problem = Problem(
        name="attention",
        file="problem.py",
        schema="(Tensor q, Tensor k, Tensor v, Tensor(a!) out, float scale) -> ()",
        arguments=(
            *(Argument(t, "tensor", False, ("B", "H", "S", "D"), "float16") for t in tensors),
            Argument("out", "tensor", True, ("B", "H", "S", "D"), "float16"),
            Argument("scale", "float"),
        ),
        dims=("B", "H", "S", "D"),
        seeds=(0, 1, 2),
    )
    fields: dict[str, Any] = {
        "name": "attention",
        "title": "Attention forward",
        "root": "kernels/attention",
        "nvcc": "13.0",
        "archs": tuple(archs),
        "baseline": chosen[0].name,
        "problems": {"attention": problem},
        "shapes": {s.name: s for s in (shapes or (shape(), shape("long", LONG)))},
        "variants": {v.name: v for v in chosen},
        "budgets": tuple(budgets),
        "waivers": tuple(waivers),
    }
    return Suite(**{**fields, **changes})


# --- facts --------------------------------------------------------------------------------------


def fact(
    name: str,
    value: Value | None,
    variant: str = "fast",
    *,
    arch: str | None = None,
    shape: str | None = None,
    kernel: str | None = None,
    launch: int | None = None,
    source: Source | None = None,
    detail: Detail | str = "",
) -> Fact:
    """A fact of the catalogue with its unit and its usual source; no check of the value."""
    return _fact(subject_of(variant, shape, kernel, launch, arch), name, value, source, detail)


def _fact(
    subject: Subject, name: str, value: Value | None, source: Source | None = None, detail: Detail | str = ""
) -> Fact:
    return Fact(
        subject,
        name,
        value,
        FACTS[name].unit,
        source or usual_source(name),
        detail if value is not None else detail if isinstance(detail, Detail) else MESSAGE(detail or "no reason given"),
    )


@functools.cache  # as the statistics of times below: records are made by the thousand
def usual_source(name: str) -> Source:
    """The usual source of a fact."""
    spec = FACTS[name]
    if spec.group == "formula":
        return Source.FORMULA
    if spec.group == "check":
        return Source.CHECK
    if spec.group == "sanitizer":
        return Source.SANITIZER
    if spec.group == "timing":
        return Source.NVML if name.startswith(("bench_", "throttle")) else Source.EVENTS
    if spec.group != "static":
        return Source.NCU
    if name in ("theoretical_occupancy", "blocks_per_sm", "waves", "occupancy_limiter"):
        return Source.OCCUPANCY
    if name in ("dynamic_smem", "smem", "threads", "blocks", "workspace_bytes"):
        return Source.PLAN
    if name.startswith("sass_"):
        return Source.SASS
    return Source.PTXAS if name.startswith(("spill_", "compiler_")) else Source.CUBIN


def facts_of(
    values: Mapping[str, Value | None],
    variant: str,
    *,
    arch: str | None = None,
    shape: str | None = None,
    kernel: str | None = None,
) -> list[Fact]:
    """One fact for each name and value, all about the same subject."""
    subject = subject_of(variant, shape, kernel, arch=arch)
    return [_fact(subject, name, value) for name, value in values.items()]


STATIC: dict[str, Value] = {
    "registers": 96, "spill_store_bytes": 0, "spill_load_bytes": 0, "stack_bytes": 0,
    "static_smem": 1024, "barriers": 1, "parameter_bytes": 64, "compiler_warnings": 0,
    "sass_instructions": 1200, "sass_hmma": 64, "sass_bar": 6, "sass_ldl": 0, "sass_stl": 0,
}  # fmt: skip
PLANNED: dict[str, Value] = {
    "dynamic_smem": 32768, "smem": 33792, "threads": 256, "blocks": 128,
    "theoretical_occupancy": 25.0, "blocks_per_sm": 2, "waves": 0.5,
    "occupancy_limiter": "registers",
}  # fmt: skip


def kernels(variant: str) -> tuple[str, ...]:
    """The kernels that a variant of the default suite launches."""
    return ("split_kernel", "split_combine") if variant == "split" else (f"{variant}_kernel",)


def static_facts(variant: str, archs: Iterable[str] = ARCHS, shapes: Iterable[str] = ()) -> list[Fact]:
    """The facts of build and static of a variant: per kernel and arch, and per shape from the plan."""
    results: list[Fact] = []
    for arch in archs:
        for kernel in kernels(variant):
            results += facts_of(STATIC, variant, arch=arch, kernel=kernel)
            for name in shapes:
                results += facts_of(PLANNED, variant, arch=arch, shape=name, kernel=kernel)
    return results


def counter_facts(variant: str, shape: Shape, *, us: float = 10.0) -> list[Fact]:
    """The facts of profile of a case that takes ``us`` under ncu: of the case, and of each of its kernels."""
    flop = 4.0 * _size(shape, "B") * _size(shape, "H") * _size(shape, "S") ** 2 * _size(shape, "D")
    least = formula_values(shape)["formula_bytes"]
    values: dict[str, Value | None] = {
        "ncu_duration": us * 1000, "elapsed_cycles": us * 1970, "sm_clock": 1.97e9,
        "tensor_active": 20.0, "tensor_flop": flop, "cuda_core_flop": flop / 64,
        "tensor_flop_fp16": flop, "tensor_instructions": flop / 4096,
        "achieved_occupancy": 14.0, "ncu_theoretical_occupancy": 25.0, "memory_stalls": 40.0,
        "local_load_instructions": 0, "local_store_instructions": 0, "spill_instructions": 0,
        "barrier_instructions": 8448, "barriers_per_block": 16, "instructions": 2e6,
        "issue_active": 30.0, "bank_conflicts": 120, "shared_efficiency": 97.0, "l1_hit": 10.0,
        "l2_hit": 80.0, "l1_bytes": 8 * least, "l2_bytes": 4 * least, "dram_read_bytes": 0.75 * least,
        "dram_write_bytes": 0.25 * least, "dram_bytes": least, "dram_throughput": 8.0,
        "sm_throughput": 30.0, "kernel_launches": len(kernels(variant)), "plan_matches": 1,
    }  # fmt: skip
    stalls = {f"stall_share_{r}": 100.0 / (len(STALL_REASONS) - 1) for r in STALL_REASONS if r != "selected"}
    values.update(stalls)
    result = facts_of(values, variant, shape=shape.name)
    parts = len(kernels(variant))
    for kernel in kernels(variant):
        share: dict[str, Value | None] = {
            n: v / parts if FACTS[n].kind == "counter" and isinstance(v, (int, float)) else v
            for n, v in values.items()
            if n not in ("kernel_launches", "plan_matches")
        }
        result += facts_of(share, variant, shape=shape.name, kernel=kernel)
    return result


def formula_values(shape: Shape) -> dict[str, float]:
    """The problem's own counts at a shape of dimensions B, H, S, D (fp16)."""
    b, h, s, d = (_size(shape, n) for n in "BHSD")
    return {
        "formula_flop": 4 * b * h * s * s * d,
        "formula_bytes": 4 * b * h * s * d * 2,
        "formula_exp": b * h * s * s,
    }


def formula_facts(variant: str, shape: Shape) -> list[Fact]:
    """The formulas' values as facts of a case."""
    return facts_of(formula_values(shape), variant, shape=shape.name)


@functools.lru_cache(10_000)
def samples(us: float, count: int = 100, *, spread: float = 0.01, seed: int = 0) -> tuple[float, ...]:
    """Bench samples in microseconds around ``us`` with a relative standard deviation ``spread``."""
    source = random.Random(f"{seed}/{us}")
    return tuple(us * (1 + abs(source.gauss(0, spread))) for _ in range(count))


def timing_facts(variant: str, shape: str, mode: str, times: Sequence[float]) -> list[Fact]:
    """The statistics that bench makes of its samples; ``mode`` is a timing mode or eager."""
    return facts_of(_statistics(mode, tuple(times)), variant, shape=shape)


@functools.lru_cache(10_000)
def _statistics(mode: str, times: tuple[float, ...]) -> dict[str, Value | None]:
    ordered = sorted(times)
    values: dict[str, Value | None] = {
        f"{mode}_p50": statistics.median(times),
        f"{mode}_mean": statistics.fmean(times),
        f"{mode}_std": statistics.stdev(times),
        f"{mode}_samples": len(times),
    }
    if mode in ("isolated", "cold"):
        values[f"{mode}_p90"] = ordered[int(0.9 * (len(ordered) - 1))]
    return values


def check_facts(variant: str, shape: str) -> list[Fact]:
    """The facts of check of a correct case."""
    values: dict[str, Value | None] = {
        "max_error": 2e-4, "mean_error": 3e-5, "frobenius_error": 2.8e-4,
        "max_error_over_class": 1.1, "frobenius_over_class": 1.0,
    }  # fmt: skip
    return facts_of(values, variant, shape=shape)


def _size(shape: Shape, name: str) -> float:
    value = shape.params[name]
    assert isinstance(value, (int, float))
    return float(value)


# --- records ------------------------------------------------------------------------------------


def environment(**changes: Any) -> Environment:
    """An H200 machine with its tools. ``gpu=None`` makes a machine without a GPU."""
    fields: dict[str, Any] = {
        "host": "testhost", "os": "Linux 6.8", "cpu": "16 cores", "python": "3.12.3",
        "harness": "0.1.0", "gpu": GPU, "gpu_arch": "sm_90a", "gpu_sms": 132,
        "gpu_memory_bytes": 150_000_000_000, "gpu_l2_bytes": 60 << 20, "gpu_sm_clock_mhz": 1980.0,
        "driver": "580.65", "cuda_runtime": "13.0", "nvcc": "13.0.88", "ncu": "2025.3.1",
        "torch": "2.11.0", "git_commit": "0" * 40, "git_dirty": False,
    }  # fmt: skip
    if "gpu" in changes and changes["gpu"] is None:
        for name in ("gpu_arch", "gpu_sms", "gpu_memory_bytes", "gpu_l2_bytes", "gpu_sm_clock_mhz", "driver"):
            fields[name] = None
    return Environment(**{**fields, **changes})


def on_l4(record: Record, **changes: Any) -> Record:
    """A run like ``record`` as if an L4 had recorded it: what needs sm_90a is unsupported there, without facts, and
    times are 10 times as long. Its counters are the other chip's, so no test may take it for a measurement."""
    here = {v.name for v in record.suite.variants.values() if v.is_reference or "sm_89" in v.where.archs}
    outcomes = [
        o if o.variant in here else replace(o, status="unsupported", cause=NOT_BUILT("sm_89")) for o in record.outcomes
    ]
    facts = [
        replace(f, value=10 * f.value) if f.unit in ("us", "ns") and isinstance(f.value, float) else f
        for f in record.facts
        if f.subject.variant in here or f.subject.arch or f.source is Source.FORMULA
    ]
    samples = {k: tuple(10 * x for x in v) for k, v in record.samples.items() if k[0].variant in here}
    environment_l4 = environment(gpu="NVIDIA L4", gpu_arch="sm_89", gpu_sms=58, gpu_memory_bytes=24 * 10**9,
                      gpu_l2_bytes=48 << 20, gpu_sm_clock_mhz=2040.0)  # fmt: skip
    fields: dict[str, Any] = {"id": "20260102T040000Z-0002", "environment": environment_l4, "outcomes": tuple(outcomes),
                              "facts": Facts(facts), "roofs": (), "raw_samples": samples}  # fmt: skip
    return replace(record, **{**fields, **changes})


def site(line: SourceLine) -> Fact:
    """The worst access to local memory of a kernel of the default suite."""
    return fact("local_memory_site", str(line), arch="sm_89", kernel="fast_kernel", detail=line)


def artifact(variant: str, arch: str, status: str = "ok", message: str = "", **changes: Any) -> Artifact:
    """The build of (variant, arch)."""
    fields: dict[str, Any] = {"code": f"code-{variant}-{arch}", "source_hash": f"source_hash-{variant}-{arch}"}
    causes = {"failed": compile_failed(message), "unsupported": UNSUPPORTED_ARCH(reason=message)}
    return Artifact(variant, arch, status, causes.get(status), **{**fields, **changes})  # type: ignore[arg-type]


def artifacts(suite: Suite) -> tuple[Artifact, ...]:
    """A successful build of every variant for every arch that it supports."""
    return tuple(
        artifact(v.name, a, "unsupported", v.where.unsupported[a]) if a in v.where.unsupported
        else artifact(v.name, a)
        for v in suite.variants.values() if not v.is_reference
        for a in suite.archs if a in v.where.archs or a in v.where.unsupported
    )  # fmt: skip


def plan(variant: str, shape: str, *, error: str = "") -> Plan:
    """The launches of a variant of the default suite."""
    launches = tuple(Launch(k, (16, 8, 1), (256, 1, 1), (1, 1, 1), 32768) for k in kernels(variant) if not error)
    return Plan(variant, shape, launches, 0, PlanRefused(error) if error else None)


def cases(suite: Suite) -> list[tuple[Variant, Shape]]:
    """Every case of the suite, in its order."""
    return [
        (v, s)
        for v in suite.variants.values()
        for s in suite.shapes.values()
        if v.problem == s.problem and (v.where.shapes == ("*",) or s.name in v.where.shapes)
    ]


def outcome(
    variant: str, shape: str, stage: Stage, status: str = "ok", reason: str = "", seconds: float | None = 0.1
) -> CaseOutcome:
    """The outcome of a case in a stage."""
    return CaseOutcome(variant, shape, stage, status, MESSAGE(reason) if reason else None, seconds)  # type: ignore[arg-type]


def case_key(variant: Variant, shape: Shape, *, code: str = "code", nvcc: str = "13.0.88") -> CaseKey:
    """The freshness key of a case; another ``code`` makes it another kernel."""
    if variant.is_reference:
        return CaseKey("", "", "", is_reference=True)
    name = f"{variant.name}-{shape.name}"
    return CaseKey(f"{code}-{name}", f"source_hash-{name}", nvcc, host=f"host-{name}", cxx="g++")


def bare_record(suite: Suite | None = None, facts: Iterable[Fact] = (), **changes: Any) -> Record:
    """A record with the suite, successful builds and their plans, and only the facts given."""
    chosen = suite if suite is not None else globals()["suite"]()
    fields: dict[str, Any] = {
        "id": "20260102T030405Z-0001",
        "command": "make profile",
        "suite": chosen,
        "environment": environment(),
        "artifacts": artifacts(chosen),
        "plans": tuple(plan(v.name, s.name) for v, s in cases(chosen) if not v.is_reference),
        "outcomes": (),
        "stages": (StageNote("build", "ok", 1.0),),
        "facts": Facts(facts),
    }
    return Record(**{**fields, **changes})


def record(
    suite: Suite | None = None,
    facts: Iterable[Fact] = (),
    times: Mapping[str, float] | None = None,
    **changes: Any,
) -> Record:
    """A complete run: all stages ok on all cases. ``facts`` are added last, and replace the default
    ones of the same subject; ``times`` gives a variant's time by itself in microseconds at every shape.
    """
    chosen = suite if suite is not None else globals()["suite"]()
    results: list[Fact] = []
    outcomes: list[CaseOutcome] = []
    timed: dict[TimeKey, tuple[float, ...]] = {}
    us = {"slow": 400.0, "fast": 40.0, "split": 20.0, "cudnn": 9.0, **(times or {})}
    for v in chosen.variants.values():
        if not v.is_reference:
            names = [s.name for w, s in cases(chosen) if w is v]
            results += static_facts(v.name, v.where.archs, names)
    for v, s in cases(chosen):
        alone = us.get(v.name, 50.0)
        results += formula_facts(v.name, s)
        for stage in s.stages:
            outcomes.append(outcome(v.name, s.name, stage))
        if "check" in s.stages:
            results += check_facts(v.name, s.name)
        if "bench" in s.stages:
            for mode, factor in (("isolated", 1.0), ("back_to_back", 0.9), ("cold", 1.25), ("eager", 3.0)):
                series = samples(alone * factor, seed=len(timed))
                timed[Case(v.name, s.name), mode] = series
                results += timing_facts(v.name, s.name, mode, series)
            results.append(fact("bench_sm_clock", 1980.0, v.name, shape=s.name))
        if "profile" in s.stages:
            results += counter_facts(v.name, s, us=alone * 1.2)
    fields: dict[str, Any] = {
        "outcomes": tuple(outcomes),
        "raw_samples": timed,
        "keys": {Case(v.name, s.name): case_key(v, s) for v, s in cases(chosen)},
        "stages": tuple(StageNote(n, "ok", 1.0) for n in ("build", "static", "check", "bench", "profile")),
    }
    added = {(f.subject, f.name): f for f in facts}
    kept = [f for f in results if (f.subject, f.name) not in added]
    return bare_record(chosen, [*kept, *added.values()], **{**fields, **changes})


#: Counters that each case of a large record has.
FEW_COUNTERS: dict[str, Value | None] = {
    "ncu_duration": 10_000, "sm_clock": 1.97e9, "tensor_active": 20.0, "spill_instructions": 0,
    "bank_conflicts": 120, "tensor_flop": 5e8, "cuda_core_flop": 1e7, "dram_bytes": 2e6, "plan_matches": 1,
}  # fmt: skip


def profiled(present: Record, variant: str, shape: str, run_id: str) -> Record:
    """The record of present sources as if a GPU had profiled one case."""
    gpu = replace(present.environment, gpu=GPU, gpu_arch="sm_90a")
    facts = Facts([*present.facts, fact("plan_matches", 1, variant, shape=shape, source=Source.NCU)])
    ran = tuple(CaseOutcome(variant, shape, stage, "ok") for stage in ("check", "profile"))
    return replace(present, id=run_id, environment=gpu, facts=facts, outcomes=ran, stale={})


def large_record(count: int = 10_000, budgets: Iterable[Budget] = (), waivers: Iterable[Waiver] = ()) -> Record:
    """A record of ``count`` cases (on 100 shapes) with some 20 facts each."""
    shapes = [shape(f"s{i}", {**MISSION, "S": 64 * (i + 1)}) for i in range(100)]
    variants = [variant(f"v{i}", archs=("sm_90a",)) for i in range(max(1, count // len(shapes)))]
    made = suite(variants, shapes, budgets, waivers, archs=("sm_90a",))
    results: list[Fact] = []
    outcomes: list[CaseOutcome] = []
    for v in variants:
        results += static_facts(v.name, v.where.archs, made.shapes)
        for s in shapes:
            results += formula_facts(v.name, s)
            results += facts_of(FEW_COUNTERS, v.name, shape=s.name)
            results += facts_of({"isolated_p50": 1e4, "max_error": 2e-4}, v.name, shape=s.name)
            outcomes += [outcome(v.name, s.name, stage) for stage in STAGES]
    return bare_record(made, results, outcomes=tuple(outcomes))


def without(record: Record, name: str, **subject: Any) -> Record:
    """The record less the facts of that name (of the subjects whose given fields agree)."""
    kept = [f for f in record.facts if f.name != name or any(getattr(f.subject, k) != v for k, v in subject.items())]
    return replace(record, facts=Facts(kept))
