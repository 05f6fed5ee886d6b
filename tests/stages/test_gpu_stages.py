"""GPUs that share a run: stand-ins that time real child processes on the CPU."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.machine import gpu_choice, toolchain
from flashcore.machine.gpu import Gpu
from flashcore.model.case import Case
from flashcore.model.progress import ProgressLine, Say, silent
from flashcore.model.record import CaseSubject, Facts, Measured, StageNote, StageResult
from flashcore.model.settings import Bench, Settings
from flashcore.pipeline.opening import open_context
from flashcore.runner.process import LocalGpu
from flashcore.runner.queue import Pool
from flashcore.stages import gpu_stages
from flashcore.stages.bench import bench
from flashcore.stages.context import Context
from tests import factory
from tests.conftest import TOY
from tests.softmax_cases import case
from tests.support import staged

pytestmark = pytest.mark.usefixtures("forked")

TWO = (LocalGpu("GPU-a"), LocalGpu("GPU-b"))
SHAPES = ("small", "wide", "tall")
CASES = [
    case(v, s, columns=37 + 10 * i, reference=v == "library")
    for i, s in enumerate(SHAPES)
    for v in ("right", "slower", "library")
]
BENCH = Bench(samples=5, max_samples=6, seconds=0.1, modes=("isolated",))
NOTE = StageNote("bench", "ok", 1.0)


def progressed(message: list[str]) -> Say:
    """Keeps the messages that are not about the progress of cases."""
    return lambda text: None if isinstance(text, ProgressLine) else message.append(text)


def on(folder: Path, *places: LocalGpu, say: Say = silent) -> Context:
    return staged.context(folder, "slower", bench=BENCH, workers=Pool(places), say=say)


def test_the_record_says_which_gpu_timed_what(tmp_path: Path) -> None:
    messages: list[str] = []
    result = bench.run(on(tmp_path, *TWO, say=progressed(messages)), CASES)
    assert {o.status for o in result.outcomes} == {"ok"} and not messages
    facts = Facts(result.facts)
    for s in SHAPES:  # compared with what the same GPU timed
        speedup = facts.get("speedup_vs_baseline", CaseSubject(Case("right", s)))
        assert speedup is not None and speedup.number is not None
    gpus = gpu_stages.used(TWO, tmp_path, Measured().plus(result, NOTE))
    assert [g.uuid for g in gpus] == ["GPU-a", "GPU-b"] and not any(g.remark for g in gpus)
    shapes = [{c.shape for c in g.cases["bench"]} for g in gpus]
    assert shapes[0] | shapes[1] == set(SHAPES) and not shapes[0] & shapes[1] and all(shapes)
    assert sorted(c for g in gpus for c in g.cases["bench"]) == sorted(c.case for c in CASES)
    seen: dict[str, tuple[float | str, ...]] = {
        "bench_sm_clock": (1800.0, 1900.0),
        "bench_temperature": (60.0, 50.0),
        "throttle": ("none", "power_cap"),
    }
    cases = [(c.variant, c.shape) for c in gpus[0].cases["bench"][:2]]
    timing_facts = [
        factory.fact(n, x, v, shape=s) for n, xs in seen.items() for x, (v, s) in zip(xs, cases, strict=True)
    ]
    first, second = gpu_stages.used(TWO, tmp_path, Measured().plus(replace(result, facts=tuple(timing_facts)), NOTE))
    assert (first.sm_clock_mhz, first.temperature, first.throttle) == (1850.0, 60.0, ("power_cap",))
    assert (second.sm_clock_mhz, second.temperature, second.throttle) == (None, None, ())


def test_a_single_gpu_has_an_entry_if_it_was_named(tmp_path: Path) -> None:
    result = bench.run(on(tmp_path), CASES[:2])
    assert {o.status for o in result.outcomes} == {"ok"}
    result = bench.run(on(tmp_path / "named", TWO[1]), CASES[:2])
    (gpu,) = gpu_stages.used(TWO[1:], tmp_path / "named", Measured().plus(result, NOTE))
    assert gpu.uuid == "GPU-b" and len(gpu.cases["bench"]) == 2


def test_gpus_are_leased_while_they_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(toolchain, "torch_root", lambda: tmp_path)
    gpu = Gpu("NVIDIA H200", (9, 0), 132, 1, 1, 1980.0, "580")
    workers = Pool(uuids=("GPU-b", "GPU-a"))
    context = open_context(Settings(suite=str(TOY), build=str(tmp_path), upto="check"))
    context = replace(context, gpu=gpu, gpu_arch="sm_90a", workers=workers, folder=tmp_path)
    seen = []

    def run(*_: object) -> StageResult:
        seen.append([gpu_choice.is_free(uuid) for uuid in workers.uuids])
        return StageResult((), ())

    monkeypatch.setitem(gpu_stages.STAGES, "check", run)
    for one in (context, replace(context, gpu=None)):
        gpu_stages.measure(one)
    assert seen == [[False, False]] and gpu_choice.is_free("GPU-a")
