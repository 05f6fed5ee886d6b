"""Writes the packed runs of edge cases in ``runs.tar``: ``.venv/bin/python -m tests.contract.make_runs``.

To run again when the schema of records changes. The other files there are recordings, and what sessions gate them by.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from flashcore.model.case import Case
from flashcore.model.causes import (
    BELOW_EMPTY_KERNEL,
    CLOCKS_DISAGREE,
    MESSAGE,
    OTHER_PROCESSES,
    REFERENCE_CHANGED,
    HungBefore,
    PlanRefused,
    VoidTiming,
    WrongAnswer,
    WrongElements,
)
from flashcore.model.record import CaseSubject, Facts, Origin, Record, Roof, SharingGpu
from flashcore.records import packed, store
from tests import factory
from tests.recorded import RUNS, RUNS_ARCHIVE

CASES = tuple(Case(v, s) for v in ("slow", "fast", "split", "cudnn") for s in ("mission", "long"))


def time_budget(*waivers: Any) -> dict[str, Any]:
    """A suite's budget on time that ``fast`` misses, with waivers."""
    return {"budgets": [factory.budget("isolated_p50", maximum=30.0, variants=("fast",))], "waivers": waivers}


def waived(**scope: Any) -> Any:
    return factory.waiver("isolated_p50_limit", 50.0, variants=("fast",), **scope)


def roof(resource: str, value: float, unit: str = "TFLOP/s", **more: Any) -> Roof:
    return Roof(resource, value, unit, "measured", factory.GPU, **more)


def budgets() -> Record:
    """Budgets of every tier and scope, with facts on both sides of their limits."""
    scopes: list[Any] = [
        factory.budget("registers", "registers_some", maximum=96, archs=("sm_8*",)),
        factory.budget("registers", maximum=100),
        factory.budget("theoretical_occupancy", minimum=30),
        factory.budget("smem", minimum=30_000, maximum=33_000, shapes=("long",)),
        factory.budget("isolated_p50", "of_this_gpu", maximum=30.0, device="H200"),
        factory.budget("isolated_p50", "of_another_gpu", maximum=1.0, device="L4"),
        factory.budget("back_to_back_p50", "of_another_arch", maximum=1.0, archs=("sm_80",)),
        factory.budget("bank_conflicts", "of_a_kernel", maximum=60, kernels=("*combine",)),
        factory.budget("instructions", "of_a_kernel_here", maximum=1e6, kernels=("split_*",), shapes=("mission",)),
        factory.budget("tensor_active", "unmeasured_counter", minimum=10, variants=("fast",)),
        factory.goal("dram_throughput", minimum=8, stretch=60),
        factory.goal("isolated_p50", maximum=10.0),
    ]
    waivers = [
        factory.waiver("theoretical_occupancy_limit", 25.0, variants=("slow",)),
        factory.waiver("theoretical_occupancy_limit", 26.0, variants=("fast",)),
        factory.waiver("smem_limit", 34_000, variants=("slow",)),
        factory.waiver("smem_limit", 29_000, variants=("fast",)),
        factory.waiver("registers_limit", 140, variants=("split",)),
        factory.waiver("runs", 1, variants=("split",), shapes=("long",)),
    ]
    facts = [
        factory.fact("registers", 140, "fast", arch="sm_89", kernel="fast_kernel"),
        factory.fact("registers", 100, "slow", arch="sm_89", kernel="slow_kernel"),
        factory.fact("tensor_active", None, "fast", shape="long", detail="the chip has no such counter"),
        factory.fact("plan_matches", 0, "slow", shape="long"),
    ]
    made = factory.record(factory.suite(budgets=scopes, waivers=waivers), facts)
    made = outcome(made, Case("split", "long"), "profile", status="failed", cause=MESSAGE("ncu died"))
    lost = [
        replace(a, status="unsupported", cause=MESSAGE("no TMA")) if (a.variant, a.arch) == ("slow", "sm_80") else a
        for a in made.artifacts
        if (a.variant, a.arch) != ("fast", "sm_80")
    ]
    return replace(made, artifacts=tuple(lost))


def gpu(uuid: str, scale: float, **stages: tuple[Case, ...]) -> SharingGpu:
    """A GPU with roofs of its own, and the cases that it ran by stage."""
    roofs = (roof("fp16_tensor", 700 * scale, clock_mhz=1700.0), roof("dram", 4000 * scale, "GB/s"))
    return SharingGpu(uuid, "host", 1700.0, 60.0, (), stages, "", roofs)


def outcome(record: Record, case: Case, stage: str, **changes: Any) -> Record:
    """The record with another outcome of a case in a stage."""
    changed = [replace(o, **changes) if (o.case, o.stage) == (case, stage) else o for o in record.outcomes]
    return replace(record, outcomes=tuple(changed))


def lacking(record: Record, case: Case, cause: Any, *names: str) -> Record:
    """The record without values of a case's facts of those groups of names; samples of void times remain."""
    subject = CaseSubject(case)
    facts = [
        replace(f, value=None, detail=cause) if f.subject == subject and f.name.startswith(names) else f
        for f in record.facts
    ]
    void = isinstance(cause, VoidTiming)
    samples = {key: times for key, times in record.raw_samples.items() if void or key[0] != case}
    return replace(record, facts=Facts(facts), raw_samples=samples)


def runs() -> Iterator[tuple[str, Record]]:
    """The runs by the names of their files."""
    plain = factory.record()
    yield "waiver_expired", factory.record(factory.suite(**time_budget(waived(expires="2026-02-01"))))
    yield "waiver_holds", factory.record(factory.suite(**time_budget(waived(expires="2999-12-31"))))
    yield "waiver_of_this_arch", factory.record(factory.suite(**time_budget(waived(archs=("sm_90a",)))))
    yield "waiver_of_another_arch", factory.record(factory.suite(**time_budget(waived(archs=("sm_80",)))))
    yield (
        "waiver_exceeded",
        factory.record(factory.suite(**time_budget(waived(shapes=("mission",)))), times={"fast": 60.0}),
    )
    yield "budgets", budgets()
    half = {"bench": CASES[::2], "profile": CASES[1::2]}
    other = {"bench": CASES[1::2], "profile": CASES[::2]}
    slow = factory.record(times={"split": 100.0})
    yield "several_gpus", replace(slow, gpus=(gpu("GPU-0", 1.0, **half), gpu("GPU-1", 0.5, **other)))
    compilers = (("host", "g++ 13", "g++ 14"),)
    joined = (
        Origin("20260101T030405Z-0001", factory.GPU, "sm_90a", "bench of 4 cases", compilers),
        Origin("20260102T030405Z-0002", factory.GPU, "sm_90a", "profile of 8 cases"),
    )
    origins = {"bench": joined[0].run, "profile": joined[1].run}
    twice = tuple(replace(o, origin=origins.get(o.stage, "")) for o in plain.outcomes)
    without_gpu = factory.environment(gpu=None)
    yield "joined_twice", replace(plain, outcomes=twice, joined=joined, environment=without_gpu)
    void = outcome(
        plain, Case("fast", "mission"), "bench", status="failed", cause=BELOW_EMPTY_KERNEL("isolated", 0.2, 0.8)
    )
    void = lacking(
        void, Case("fast", "mission"), BELOW_EMPTY_KERNEL("isolated", 0.2, 0.8), "isolated", "back", "cold", "eager"
    )
    void = lacking(void, Case("fast", "long"), OTHER_PROCESSES(2), "isolated", "back", "cold", "eager")
    void = lacking(void, Case("split", "long"), CLOCKS_DISAGREE(9.0, 20.0), "isolated", "back", "cold", "eager")
    timed = [factory.budget("isolated_p50", maximum=500.0), factory.budget("cold_p50", maximum=500.0)]
    yield "void_times", replace(void, suite=factory.suite(budgets=timed))
    stale = lacking(plain, Case("cudnn", "mission"), REFERENCE_CHANGED(), "isolated", "back", "cold", "eager")
    stale = lacking(stale, Case("cudnn", "long"), REFERENCE_CHANGED(), "isolated", "back", "cold", "eager")
    kept = [o for o in plain.outcomes if o.variant != "cudnn"]
    both = {Case("cudnn", "mission"): REFERENCE_CHANGED(), Case("cudnn", "long"): REFERENCE_CHANGED()}
    yield "stale_reference", replace(stale, outcomes=tuple(kept), stale=both)
    elements = WrongElements("out", 3, 64, (1, 2), "0.5", "0.75", "one_element")
    wrong = outcome(plain, Case("fast", "long"), "check", status="failed", cause=WrongAnswer(("off",), elements))
    wrong = outcome(wrong, Case("split", "mission"), "check", status="failed", cause=MESSAGE("no answer within 60 s"))
    wrong = outcome(
        wrong, Case("split", "long"), "check", status="skipped", cause=HungBefore("mission", MESSAGE("no answer"))
    )
    yield "wrong_answers", wrong
    refused = tuple(
        replace(p, launches=(), cause=PlanRefused("S must be a multiple of 1024")) if p.shape == "mission" else p
        for p in plain.plans
    )
    yield "plan_refuses", replace(plain, plans=refused)
    first, *others = plain.plans
    renamed = replace(first, launches=tuple(replace(x, kernel="renamed_kernel") for x in first.launches))
    yield "plan_names_another_kernel", replace(plain, plans=(renamed, *others))
    large = replace(first, launches=tuple(replace(x, dynamic_smem=400_000) for x in first.launches))
    yield "launch_does_not_fit", replace(plain, plans=(large, *others))
    yield (
        "another_compiler",
        replace(
            factory.record(factory.suite(budgets=[factory.budget("registers", maximum=10)])),
            environment=factory.environment(nvcc="12.9.1"),
        ),
    )
    clocks = [
        *(factory.fact("bench_sm_clock", 990.0, v, shape="mission") for v in ("slow", "fast", "split")),
        factory.fact("tensor_active", None, "fast", shape="mission", detail=MESSAGE("the chip has no such counter")),
    ]
    yield "two_clocks", factory.record(None, clocks, roofs=(roof("fp16_tensor", 700.0, clock_mhz=1700.0),))


def written(record: Record) -> bytes:
    """A packed run."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made, record.id)
        folder.mkdir()
        store.write(record, folder)
        return packed.packed(folder)


if __name__ == "__main__":
    files = {path.name: path.read_bytes() for path in RUNS.iterdir()}
    for number, (name, record) in enumerate(runs(), 10):
        files[f"{name}.run.zip"] = written(replace(record, id=f"20260105T0304{number}Z-00{number}"))
    with tarfile.open(RUNS_ARCHIVE, "w") as tar:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
