"""Several GPUs share tasks: stand-ins by name, and real processes that are told which one they see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import CapabilityError
from flashcore.model.causes import Hang
from flashcore.runner.journal import (
    NO_STEP,
    Begun,
    Journal,
    Lacks,
    Message,
    Reached,
    Started,
    Task,
    TaskResult,
    TaskStep,
    answers,
    lost_in,
    measured_on,
    read_journal,
)
from flashcore.runner.process import Child, LocalGpu, Program, _temporary
from flashcore.runner.queue import Pool
from tests.conftest import ROOT
from tests.support import staged
from tests.support.processes import CHILDREN, actor, does, gone, until

TWO = (LocalGpu("GPU-a"), LocalGpu("GPU-b"))


def share(folder: Path, tasks: list[Task], how: str = "", **options: Any) -> list[TaskResult]:
    usual = {"time_limit": 120.0, "startup_limit": 120.0, "finish_limit": 5.0, "places": TWO}
    return staged.run(tasks, folder, actor(how), **{**usual, **options})


def grid(shapes: str, **payload: Any) -> list[Task]:
    return [does(f"{v}/{s}", **payload) for s in shapes for v in ("base", "child", "reference")]


def gpus_of(results: list[TaskResult]) -> dict[str, str]:
    return {r.name: r.data["gpu"] for r in results if r.data}


def test_a_shape_is_on_one_gpu_and_both_work(tmp_path: Path) -> None:
    tasks = grid("abcdefgh", what="sleep", seconds=0.02)
    results = share(tmp_path, tasks)
    assert [r.name for r in results] == [t.name for t in tasks] and {r.status for r in results} == {"ok"}
    on = gpus_of(results)
    by_shape = {t.shape: {on[u.name] for u in tasks if u.shape == t.shape} for t in tasks}
    assert all(len(gpus) == 1 for gpus in by_shape.values()), "what is compared was timed on one GPU"
    assert set(on.values()) == {"GPU-a", "GPU-b"}
    assert measured_on(tmp_path) == on, "the journals say which GPU each ran on"
    processes = {r.data["pid"] for r in results if r.data}
    assert len(processes) == len(list(tmp_path.glob("child-*"))) == 2, "one process on each pulls shape after shape"
    assert share(tmp_path, tasks) == results, "what is answered is not run again"


def test_each_gpu_has_temporary_files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ncu locks a file there: processes on two GPUs would wait for each other."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    results = share(tmp_path / "stage", grid("abcd", what="sleep", seconds=0.02))
    folders = {(r.data["gpu"], r.data["temporary"]) for r in results if r.data}
    assert len(folders) == len({folder for _, folder in folders}) == 2
    assert all(Path(folder).is_dir() and tmp_path in Path(folder).parents for _, folder in folders)


def test_so_has_a_gpu_that_the_environment_chose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a")
    (result,) = share(tmp_path / "stage", grid("a", what="sleep", seconds=0)[:1], places=())
    assert result.data and Path(result.data["temporary"]).name == f"flashcore-{os.getuid()}-GPU-a"


def test_what_others_have_made_is_no_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (tmp_path / f"flashcore-{os.getuid()}-GPU-a").symlink_to(elsewhere)
    (tmp_path / f"flashcore-{os.getuid()}-GPU-b").touch()
    assert {_temporary(p.gpu) for p in TWO} == {str(tmp_path)}


@pytest.mark.parametrize(("cores", "processes"), [(64, 10), (16, 8), (2, 2)])
def test_children_are_on_each_gpu_if_there_are_cores_for_them(
    monkeypatch: pytest.MonkeyPatch, cores: int, processes: int
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    result = Pool(TWO).children(staged.program(actor(), children=5))
    assert len(result) == processes and set(result) == set(TWO)
    assert Pool(TWO).children(staged.program(actor())) == list(TWO), "what is timed has a GPU for itself"


def test_groups_use_both_though_of_one_shape(tmp_path: Path) -> None:
    tasks = [does(f"c{i}/trial", "sleep", seconds=0.3) for i in range(8)]
    apart = [replace(task, group=task.name) for task in tasks]
    assert set(gpus_of(share(tmp_path / "apart", apart)).values()) == {"GPU-a", "GPU-b"}
    assert set(gpus_of(share(tmp_path / "at once", tasks, at_once=True)).values()) == {"GPU-a", "GPU-b"}
    assert len(set(gpus_of(share(tmp_path / "together", tasks)).values())) == 1


def test_a_crash_costs_its_task_and_its_gpu_goes_on(tmp_path: Path) -> None:
    tasks = [*grid("abcd"), does("bad/a", "segv"), *grid("xy")]
    results = {r.name: r for r in share(tmp_path, tasks)}
    assert [n for n, r in results.items() if r.status != "ok"] == ["bad/a"]
    assert results["bad/a"].reason == "killed by SIGSEGV"
    assert "bad/a" in measured_on(tmp_path) and not lost_in(tmp_path)


def test_under_a_tool_each_process_has_an_even_share_at_once(tmp_path: Path) -> None:
    tasks = [does(f"v{i}/s", "sleep", seconds=0.5) for i in range(10)]
    results = share(tmp_path, tasks, at_once=True, batch=3)
    sizes = Counter(r.data["pid"] for r in results if r.data)
    assert max(sizes.values()) == 3 and len(sizes) == 4 and set(gpus_of(results).values()) == {"GPU-a", "GPU-b"}


def test_a_process_pulls_no_more_than_its_batch(tmp_path: Path) -> None:
    results = share(tmp_path, grid("abcdefgh"), batch=4)
    assert max(Counter(r.data["pid"] for r in results if r.data).values()) <= 4
    assert {r.status for r in results} == {"ok"}


@pytest.mark.parametrize(("what", "reason"), [("segv", "killed by SIGSEGV"), ("loop", "no answer within 5 s")])
def test_what_breaks_in_a_later_share_is_named_as_in_the_first(tmp_path: Path, what: str, reason: str) -> None:
    tasks = [*grid("abcdf"), does("bad/e", what)]
    results = {r.name: r for r in share(tmp_path, tasks, time_limit=5.0)}
    assert [n for n, r in results.items() if r.status != "ok"] == ["bad/e"] and reason in results["bad/e"].reason
    (file,) = [p for p in tmp_path.glob("tasks-*") if "bad/e" in p.read_text()]
    first, *later = file.read_text().splitlines()
    assert "bad/e" not in first and "bad/e" in "".join(later)


@pytest.mark.parametrize("performed", [3, 9, 17])
def test_a_killed_supervisor_is_resumed(tmp_path: Path, performed: int) -> None:
    folder, note = tmp_path / "stage", tmp_path / "note"
    tasks = grid("abcdefgh", what="sleep", seconds=0.05, note=str(note))
    text = json.dumps([{"name": t.name, "payload": dict(t.payload)} for t in tasks])
    argv = [sys.executable, str(CHILDREN / "supervisor.py"), str(folder), text, *(p.gpu for p in TWO)]
    with subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(ROOT / "harness")}) as process:
        # Both children have begun: one that still starts notices only then that it is alone.
        until(lambda: note.exists() and len({p.split()[1] for p in note.read_text().splitlines()}) == len(TWO))
        until(lambda: len(note.read_text().splitlines()) >= performed)
        process.kill()
    assert all(gone(m.pid) for p in folder.glob("journal-*") for m in read_journal(p) if isinstance(m, Started))
    before = answers(folder).keys()
    assert {r.status for r in share(folder, tasks)} == {"ok"}
    begun = Counter(line.split()[0] for line in note.read_text().splitlines())
    assert all(begun[name] == 1 for name in before) and begun.keys() == {t.name for t in tasks}
    # What was in progress, and what the supervisor had not read yet.
    assert sum(begun.values()) <= len(tasks) + 2 * len(TWO)


def test_a_gpu_without_children_is_named_and_its_tasks_move(tmp_path: Path) -> None:
    tasks = grid("abcdef")
    results = share(tmp_path, tasks, "without GPU-a")
    assert {r.status for r in results} == {"ok"} and set(gpus_of(results).values()) == {"GPU-b"}
    assert lost_in(tmp_path) == {"GPU-a": "no CUDA GPU that this process can use"}


def test_what_every_gpu_lacks_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="no CUDA GPU that this process can use"):
        share(tmp_path, grid("ab"), "incapable")
    assert {r.status for r in share(tmp_path, grid("ab"))} == {"ok"}, "and nothing is lost by it"


def test_a_child_that_cannot_start_anywhere_fails_its_tasks_as_with_one_gpu(tmp_path: Path) -> None:
    results = share(tmp_path, grid("a"), "broken")
    assert all("the process never started a task: exit code 1: ImportError" in r.reason for r in results)
    assert len(lost_in(tmp_path)) == 1, "all but the last are left out"


def test_children_are_spread_over_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    results = share(tmp_path, [does(f"v/s{i}", "sleep", seconds=0.3) for i in range(8)], children=4)
    pids = {(r.data["gpu"], r.data["pid"]) for r in results if r.data}
    assert Counter(gpu for gpu, _ in pids).keys() == {"GPU-a", "GPU-b"} and len(pids) >= 4


def test_a_hang_spares_the_other_gpu_the_wait(tmp_path: Path) -> None:
    tasks = [does(f"stuck/s{i}", "loop") for i in range(6)] + [does(f"fine/s{i}") for i in range(6)]
    results = {r.name: r for r in share(tmp_path, tasks, time_limit=5.0)}
    statuses = Counter(r.status for n, r in results.items() if n.startswith("stuck"))
    assert statuses["failed"] <= 2 and statuses["skipped"] >= 4
    assert {r.status for n, r in results.items() if n.startswith("fine")} == {"ok"}


def test_one_gpu_without_a_choice_says_nothing_of_gpus(tmp_path: Path) -> None:
    share(tmp_path, grid("ab"), places=())
    assert not measured_on(tmp_path)


def test_a_journal_is_synced_at_most_once_per_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, synced = 100.0, list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(now))
    log = Journal(tmp_path / "journal-001.jsonl")
    for _ in range(25):  # exact in binary
        log.begin("a/s")
        log.result("a/s")
        now += 0.125
    assert synced == [100.0, 101.0, 102.0, 103.0]


class Quiet(Child):
    """A process that does nothing."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def poll(self) -> list[TaskResult]:
        return []


def test_a_child_follows_its_own_tasks_alone(tmp_path: Path) -> None:
    child = Quiet(tmp_path, [Task("a", {}), Task("b", {})], Program(command=lambda *_: ()))

    def follow(*news: Message) -> list[str]:
        return [result.name for result in child.follow(news)]

    assert follow(Begun("a", 1.0), Reached("a", TaskStep("warm-up", "v"))) == []
    assert (child.current, child.step, child.has_answered) == ("a", TaskStep("warm-up", "v"), False)
    assert follow(TaskResult("other", "ok")) == [] and child.open == {"a", "b"}
    assert follow(TaskResult("a", "ok"), TaskResult("a", "ok")) == ["a"]
    assert child.has_answered and child.open == {"b"} and child.current is None
    follow(Begun("b", 2.0))
    assert child.step == NO_STEP
    follow(TaskResult("b", "failed", Hang(2), poisoned=True))
    assert child.poisoned
    child.raise_if_unrecoverable()
    follow(Lacks("no GPU", "use one"))
    with pytest.raises(CapabilityError, match="no GPU"):
        child.raise_if_unrecoverable()
