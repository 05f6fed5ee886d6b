"""GPUs of a Ray cluster: several nodes on this machine, stand-ins for GPUs, real processes that are killed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import CapabilityError, UsageError
from flashcore.machine.gpu import Gpu
from flashcore.model.settings import Settings
from flashcore.pipeline.opening import open_context
from flashcore.runner.journal import Task, TaskResult, answers, lost_in, measured_on
from flashcore.runner.process import LocalGpu
from flashcore.runner.queue import Pool
from flashcore.stages.profile import profile
from flashcore_cluster import cluster
from tests.conftest import TOY
from tests.support import staged
from tests.support.processes import actor, does, until
from tests.support.profiled import NAMES, RECORDED_NS, case, durations, profiling


def test_archives_depend_on_names_and_contents_alone(tmp_path: Path) -> None:
    for name in ("one", "two"):
        suite = tmp_path / name / "suite"
        for file in ("suite.toml", "problems/a.py", "build/object.o", ".git/HEAD", "__pycache__/a.pyc"):
            (suite / file).parent.mkdir(parents=True, exist_ok=True)
            (suite / file).write_text(file)
    first, second = (cluster._archive(tmp_path / name / "suite") for name in ("one", "two"))
    assert first == second and b"problems/a.py" in first and b"object.o" not in first and b"HEAD" not in first
    (tmp_path / "two" / "suite" / "suite.toml").write_text("another")
    assert cluster._archive(tmp_path / "two" / "suite") != first


def test_what_is_too_large_to_send_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weights").write_bytes(bytes(100))
    monkeypatch.setattr(cluster, "_MOST_BYTES", 99)
    with pytest.raises(UsageError, match="expected at most 0 MiB to send"):
        cluster._archive(tmp_path / "weights")


def test_the_gpus_of_a_cluster_take_the_place_of_this_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h200 = Gpu("NVIDIA H200", (9, 0), 132, 1, 1, 1980.0, "580")
    described = [cluster.Description(f"GPU-{i}", "node2", h200 if i else None, "1", 1) for i in range(3)]
    places = [cluster.RayGpu(None, one) for one in described]
    released: list[str] = []
    monkeypatch.setattr(cluster.RayGpu, "release", lambda place: released.append(place.gpu))
    monkeypatch.setattr(cluster, "connect", lambda address: {"head:6379": places}[address])
    chosen = Settings(suite=str(TOY), build=str(tmp_path), upto=None, executor="cluster=head:6379")
    context = open_context(chosen)
    assert (context.gpu, context.gpu_arch, context.workers.uuids) == (h200, "sm_90a", ())
    assert [p.gpu for p in context.workers.places] == ["GPU-1", "GPU-2"] and released == ["GPU-0"], (
        "no driver there tells its kind"
    )
    assert [p.gpu for p in open_context(replace(chosen, gpus="1")).workers.places] == ["GPU-1"] and released == [
        "GPU-0",
        "GPU-2",
    ]
    with pytest.raises(UsageError, match="expected one GPU's UUID"):
        open_context(replace(chosen, gpus="GPU-0"))


# --- with Ray -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of a head without GPUs and two nodes with one stand-in each."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    ray_cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    try:
        ray_cluster.nodes = [ray_cluster.add_node(num_cpus=1, num_gpus=1) for _ in range(2)]
        yield ray_cluster
    finally:
        ray.shutdown()
        ray_cluster.shutdown()


def share(folder: Path, tasks: list[Task], nodes: Any, how: str = "", **more: Any) -> list[TaskResult]:
    limited = {"time_limit": 600.0, "startup_limit": 600.0, "finish_limit": 5.0}
    return staged.run(tasks, folder, actor(how), cluster.connect(nodes.address), **limited, **more)


pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


def test_tasks_are_shared_and_what_they_need_goes_along(nodes: Any, tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "problem.py").write_text("x = 1\n")
    tasks = [does(f"{v}/s{i}", root=str(suite), echo=i) for i in range(6) for v in ("base", "reference")]
    results = share(tmp_path / "stage", tasks, nodes)
    assert {r.status for r in results} == {"ok"} and [r.name for r in results] == [t.name for t in tasks]
    on = measured_on(tmp_path / "stage")
    assert set(on.values()) == {p.gpu for p in cluster.connect(nodes.address)} and len(set(on.values())) == 2
    assert all(on[f"base/s{i}"] == on[f"reference/s{i}"] for i in range(6))
    (there,) = {r.data["root"] for r in results if r.data}
    assert there != str(suite) and (Path(there) / "problem.py").read_text() == "x = 1\n"
    assert share(tmp_path / "stage", tasks, nodes) == results, "what is answered is not run again"


def test_a_profiler_there_brings_its_tables_back(nodes: Any, tmp_path: Path) -> None:
    """The rounds of a stand-in for ncu: commands go along, and what it writes beside the journals comes back."""
    cases = [case(name) for name in NAMES]
    # Cases are dealt to the GPUs in turn, and the stand-in plays its recording from the start for each batch.
    two = Pool([LocalGpu("GPU-0"), LocalGpu("GPU-1")])
    here = profile.profiled(cases, tmp_path / "here", profiling(batch=2, workers=two))
    assert durations(here) == [RECORDED_NS[i] for i in (0, 0, 1, 1, 0)]
    workers = Pool(cluster.connect(nodes.address))
    there = profile.profiled(cases, tmp_path / "there", profiling(batch=2, workers=workers))
    assert there.facts == here.facts and {o.status for o in there.outcomes} == {"ok"}
    assert len(list((tmp_path / "there" / "round-0").glob("report-*.csv.xz"))) == 3
    assert measured_on(tmp_path / "there").keys() == set(NAMES)


def test_faults_there_are_told_here(nodes: Any, tmp_path: Path) -> None:
    tasks = [does("bad/a", "segv"), does("good/a"), does("wrong/b", "raise"), does("good/b")]
    results = {r.name: r for r in share(tmp_path, tasks, nodes)}
    assert [r.status for r in results.values()] == ["failed", "ok", "failed", "ok"]
    assert results["bad/a"].reason == "killed by SIGSEGV" and "three wide" in results["wrong/b"].reason
    assert answers(tmp_path) == results, "all of it stands in this folder"
    with pytest.raises(CapabilityError, match="no CUDA GPU that this process can use"):
        share(tmp_path / "incapable", tasks[:1], nodes, "incapable")


def test_a_host_without_what_children_need_fails_no_task(nodes: Any, tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="never started a task: exit code 1: ImportError: no module named"):
        share(tmp_path, [does(f"v/s{i}") for i in range(4)], nodes, "broken")
    assert not answers(tmp_path) and len(lost_in(tmp_path)) == 1
    assert {r.status for r in share(tmp_path, [does(f"v/s{i}") for i in range(4)], nodes)} == {"ok"}


def test_killed_workers_cost_what_they_were_at(nodes: Any, tmp_path: Path) -> None:
    """Kills each actor while it works: every task is answered, and only those in progress were begun twice.

    All but five tasks wait until the five answers have arrived and the actors are killed: no answer is lost under way.
    """
    note, killed = tmp_path / "performed", tmp_path / "killed"
    tasks = [does(f"v/s{i}", "await" if i > 4 else "", file=str(killed), note=str(note)) for i in range(15)]
    places = cluster.connect(nodes.address)
    for place in places:
        until(place.is_back)  # its description has the present process's id
    seen: Counter[str] = Counter()

    def receive(result: TaskResult) -> None:
        seen[result.name] += 1
        if len(seen) == 5:
            for place in places:
                os.kill(place.description.pid, signal.SIGKILL)
            killed.touch()

    results = share(tmp_path / "stage", tasks, nodes, on_result=receive, batch=8)
    assert {r.status for r in results} == {"ok"} and set(seen.values()) == {1}
    assert len(lost_in(tmp_path / "stage")) >= 1
    begun = Counter(line.split()[0] for line in note.read_text().splitlines())
    assert begun.keys() == seen.keys() and begun.total() <= 15 + 2, "what was answered was not run again"
