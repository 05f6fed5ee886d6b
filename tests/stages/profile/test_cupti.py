"""What CUPTI counts becomes the same facts as ncu's rows, with their source."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import CapabilityError
from flashcore.machine.gpu import Gpu
from flashcore.model.causes import Hang
from flashcore.model.record import Source, StageResult
from flashcore.model.settings import Settings
from flashcore.pipeline.opening import open_context
from flashcore.runner.journal import Task, TaskResult
from flashcore.runner.queue import Pool
from flashcore.stages.compiling import compile_all
from flashcore.stages.profile import cupti
from flashcore.stages.runnable_cases import child_cases
from tests.conftest import TOY, Built

GPU = Gpu("NVIDIA H200", (9, 0), 132, 1 << 37, 60 << 20, 1980.0, "580.65")
Answer = Callable[[Task], TaskResult]


class Answering(Pool):
    """A pool whose process answers each task so."""

    answer: Answer

    def run(self, tasks: Any, *_: object, **__: object) -> list[TaskResult]:
        return [self.answer(task) for task in tasks]


@pytest.fixture
def count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: Built) -> Callable[[Answer], StageResult]:
    """Counts the toy suite's variant ``plain`` on its first shape."""
    shutil.copytree(TOY, tmp_path / "suite")
    shutil.copytree(toy.folder, tmp_path / "build")
    monkeypatch.chdir(tmp_path)
    pool = Answering()

    class Here:
        def places(self, *_: object) -> Any:
            return {"GPU-1": GPU}, pool

    opened = open_context(Settings("suite", variants=("plain",), upto="profile", join=False), executor=Here())
    arch = replace(opened.options, archs=("sm_90a",))
    context = replace(opened, options=arch, variants=tuple(v for v in opened.variants if v.name == "plain"))
    context = replace(context, built=compile_all(context), folder=tmp_path / "run")
    cases = child_cases(context, list(context.cases("profile"))[:1])

    def run(answer: Answer) -> StageResult:
        pool.answer = answer
        return cupti.run(context, cases, [replace(c, variant=f"{c.variant}@1234") for c in cases])

    return run


def launched(*kernels: dict[str, float]) -> Answer:
    refused = {"launch__registers_per_thread": "CUPTI has no such metric"}
    return lambda task: TaskResult(task.name, "ok", data={"launches": kernels, "refused": refused}, seconds=0.5)


def values(result: StageResult, name: str) -> Sequence[Any]:
    return [f.value for f in result.facts if f.name == name and not f.subject.kernel]


def test_counts_have_ncus_units_and_cuptis_name(count: Callable[[Answer], StageResult]) -> None:
    kernel = {
        "gpu__time_duration.sum": 2500.0, "smsp__inst_executed.sum": 640.0, "dram__bytes_read.sum": 4096.0,
        "dram__bytes_write.sum": 1024.0, "smsp__issue_active.avg.pct_of_peak_sustained_active": 12.5,
    }  # fmt: skip
    result = count(launched(kernel))
    assert values(result, "ncu_duration") == [2500.0] and values(result, "dram_bytes") == [5120.0]
    assert values(result, "instructions") == [640.0] and values(result, "issue_active") == [12.5]
    assert {f.source for f in result.facts} == {Source.CUPTI}
    (registers,) = (f for f in result.facts if f.name == "ncu_registers" and not f.subject.kernel)
    assert registers.value is None and "CUPTI has no such metric" in registers.note
    assert values(result, "l2_hit") == [None], "a counter without a value is unmeasured"
    assert [(o.variant, o.status) for o in result.outcomes] == [("plain", "ok")]


def test_what_cannot_be_counted_is_left_to_ncu(count: Callable[[Answer], StageResult]) -> None:
    with pytest.raises(CapabilityError, match="2 kernels, 1 in its plan"):
        count(launched({}, {}))
    with pytest.raises(CapabilityError, match="cuptiProfilerInitialize"):
        count(
            lambda task: TaskResult(
                task.name, "ok", data={"lacks": ["cuptiProfilerInitialize: no permission", "a hint"]}
            )
        )


def test_a_call_that_hangs_is_unmeasured_with_its_cause(count: Callable[[Answer], StageResult]) -> None:
    result = count(lambda task: TaskResult(task.name, "failed", Hang(10.0, "counted call")))
    assert [o.status for o in result.outcomes] == ["failed"] and all(f.value is None for f in result.facts)
