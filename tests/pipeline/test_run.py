"""What a run begins with: the suite as the user asks for it."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.errors import UsageError
from flashcore.gate import judge
from flashcore.machine.gpu import Gpu
from flashcore.pipeline.run import start
from flashcore.pipeline.state import Settings
from flashcore.worker import cluster
from tests import factory
from tests.conftest import TOY


def test_archs_that_are_not_asked_about_are_not_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Settings(suite=str(TOY), build=str(tmp_path), upto=None)
    assert start(chosen).suite.archs == ("sm_80", "sm_90a")
    monkeypatch.setenv("CUDA_ARCH", "9.0")
    assert start(chosen).suite.archs == start(chosen).archs == ("sm_90a",)


def test_what_was_not_asked_is_not_missed_and_what_was_is() -> None:
    whole = factory.record(factory.suite(budgets=[factory.budget("registers", maximum=128)]))
    one = replace(
        whole,
        suite=replace(whole.suite, archs=("sm_90a",)),
        artifacts=tuple(a for a in whole.artifacts if a.arch == "sm_90a"),
    )
    day = datetime.date(2026, 1, 1)
    judgement = judge.judge(one, today=day)
    assert any("judged for sm_90a alone" in note for note in judgement.notes)
    assert not any("alone" in note for note in judge.judge(whole, today=day).notes)
    judged = judgement.verdicts
    assert {v.subject.arch for v in judged if v.budget in ("builds", "registers")} == {"sm_90a"}
    assert not [v for v in judged if v.required and v.status == "unmeasured"]
    lost = replace(one, artifacts=())
    assert [v.status for v in judge.judge(lost, today=day).verdicts if v.budget == "builds"] == ["unmeasured"] * 3


def test_the_gpus_of_a_cluster_take_the_place_of_this_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h200 = Gpu("NVIDIA H200", (9, 0), 132, 1, 1, 1980.0, "580")
    described = [cluster.Description(f"GPU-{i}", "node2", h200 if i else None, "1", 1) for i in range(3)]
    places = [cluster.RayGpu(None, one) for one in described]
    released: list[str] = []
    monkeypatch.setattr(cluster.RayGpu, "release", lambda place: released.append(place.gpu))
    monkeypatch.setattr(cluster, "connect", lambda address: {"head:6379": places}[address])
    chosen = Settings(suite=str(TOY), build=str(tmp_path), upto=None, cluster="head:6379")
    job = start(chosen)
    assert (job.gpu, job.gpu_arch, job.uuids) == (h200, "sm_90a", ())
    assert [p.gpu for p in job.places] == ["GPU-1", "GPU-2"] and released == ["GPU-0"], "no driver there tells its kind"
    assert [p.gpu for p in start(replace(chosen, gpus="1")).places] == ["GPU-1"] and released == ["GPU-0", "GPU-2"]
    with pytest.raises(UsageError, match="expected the UUID of one GPU"):
        start(replace(chosen, gpus="GPU-0"))
