"""The worker against real processes that crash, hang, lie and are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.runner.hung_variants import hung_before
from flashcore.runner.journal import (
    Begun,
    Journal,
    Share,
    Started,
    Task,
    TaskResult,
    TaskStep,
    answers,
    read_journal,
)
from tests.conftest import ROOT
from tests.support import staged
from tests.support.processes import CHILDREN, actor, does, gone, until


def supervise(folder: Path, tasks: list[Task], how: str = "", **options: Any) -> list[TaskResult]:
    usual = {"time_limit": 120.0, "startup_limit": 120.0, "finish_limit": 5.0}
    return staged.run(tasks, folder, actor(how), **{**usual, **options})


def pid(journal: Path) -> int:
    first = next(read_journal(journal))
    assert isinstance(first, Started)
    return first.pid


def test_one_process_answers_all_in_order(tmp_path: Path) -> None:
    seen: list[TaskResult] = []
    results = supervise(tmp_path, [does(n, echo=n) for n in "cab"], on_result=seen.append)
    assert [r.name for r in results] == ["c", "a", "b"]
    assert [r.data["echo"] for r in results if r.data] == ["c", "a", "b"]
    assert seen == results
    assert len({r.data["pid"] for r in results if r.data}) == 1
    assert "performing a" in (tmp_path / "child-001.log").read_text()


def test_children_pull_shape_after_shape(tmp_path: Path) -> None:
    tasks = [
        does(f"{v}/{s}", what) for s in ("s", "m", "l") for v, what in (("good", ""), ("bad", "segv"), ("last", ""))
    ]
    seen: list[TaskResult] = []
    results = supervise(tmp_path, tasks, children=2, on_result=seen.append)
    assert [r.name for r in results] == [t.name for t in tasks] and {r.name for r in seen} == {r.name for r in results}
    assert [r.status for r in results] == ["ok", "failed", "ok"] * 3, "what dies takes its own task alone along"
    shares = [Share.decode(line) for p in tmp_path.glob("tasks-*") for line in p.read_bytes().splitlines(True)]
    assert all(len({t.shape for t in share.tasks}) <= 1 for share in shares)
    assert supervise(tmp_path, tasks, children=2) == results, "what is answered is not run again"


def test_an_error_of_one_child_ends_the_others(tmp_path: Path) -> None:
    def started() -> list[Path]:
        return [path for path in tmp_path.glob("journal-*") if path.stat().st_size]

    def stop(result: TaskResult) -> None:
        until(lambda: len(started()) == 2)
        raise KeyboardInterrupt

    tasks = [does("a/s"), does("a/m", "loop")]
    with pytest.raises(KeyboardInterrupt):
        supervise(tmp_path, tasks, children=2, on_result=stop)
    assert all(gone(pid(p)) for p in started())


def test_batches_bound_what_a_process_takes(tmp_path: Path) -> None:
    results = supervise(tmp_path, [does(n) for n in "abcde"], batch=2)
    assert len({r.data["pid"] for r in results if r.data}) == 3


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("segv", "killed by SIGSEGV"),
        ("exit", "exit code 3: performing before | performing bad | giving up"),
        ("quiet exit", "ended with exit code 0 without a result"),
        ("abort", "what a C++ library says"),
        ("raise", "ValueError: three wide and two high"),
        ("nan", "Out of range float"),
        ("torn", "exit code 1"),
        ("poison", "illegal memory access"),
    ],
)
def test_a_fault_fails_its_task_alone(tmp_path: Path, what: str, reason: str) -> None:
    before, bad, after = supervise(tmp_path, [does("before"), does("bad", what), does("after")])
    assert (before.status, after.status) == ("ok", "ok")
    assert bad.status == "failed"
    assert reason in bad.reason


def test_an_exception_keeps_the_process_and_poison_ends_it(tmp_path: Path) -> None:
    results = supervise(tmp_path, [does("a"), does("b", "raise"), does("c"), does("d", "poison"), does("e")])
    a, _, c, _, e = (r.data["pid"] if r.data else 0 for r in results)
    assert a == c != e


def test_a_variant_that_hung_is_not_run_on_its_other_cases(tmp_path: Path) -> None:
    tasks = [does("stuck/b", "loop"), does("fine/a"), does("stuck/a"), does("stuck/c", "loop"), does("fine/b")]
    seen: list[str] = []
    for batch in (64, 1):  # the second goes on where the first ended: there is nothing left to do
        result = supervise(tmp_path, tasks, time_limit=5.0, batch=batch, on_result=lambda r: seen.append(r.name))
        assert [r.status for r in result] == ["failed", "ok", "skipped", "skipped", "ok"]
        assert result[2].reason == "skipped: hung on b: no answer within 5 s: hang?"
    assert sorted(seen) == sorted(t.name for t in tasks), "each is told once"
    assert hung_before(tmp_path).keys() == {"stuck"}


def test_a_hang_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    (result,) = supervise(tmp_path, [does("loop", "stubborn loop")], time_limit=0.3, finish_limit=0.1)
    assert "hang?" in result.reason
    assert gone(pid(tmp_path / "journal-001.jsonl"))


def test_steps_restart_the_clock_and_name_the_culprit(tmp_path: Path) -> None:
    (result,) = supervise(tmp_path, [does("task", "steps")], time_limit=5.0)
    assert result.step == TaskStep("third")
    assert result.reason.startswith("exit code 1")
    assert result.seconds is not None and result.seconds > 5.0, "all steps together may take longer"


@pytest.mark.parametrize("what", ["grandchild", "other group"])
def test_what_a_child_leaves_running_is_ended_with_it(tmp_path: Path, what: str) -> None:
    (result,) = supervise(tmp_path, [does("parent", what)])
    assert result.data is not None
    assert gone(result.data["pid"])


def wrapped(tasks: Path, journal: Path) -> list[str]:
    """As a profiler stands between: it outlives its target and then writes its report."""
    inner = " ".join(actor()(tasks, journal))
    return ["sh", "-c", f"{inner}; echo $? > {journal.parent}/report"]


def test_below_a_profiler_the_target_is_ended_first(tmp_path: Path) -> None:
    tasks = [does("loop", "loop"), does("after")]
    loop, after = staged.run(tasks, tmp_path, wrapped, time_limit=5.0, finish_limit=60.0, batch=1)
    assert "hang?" in loop.reason
    assert after.status == "ok"
    assert (tmp_path / "report").read_text() == "0\n"
    (tmp_path / "report").unlink()
    (loop,) = staged.run([does("again", "loop")], tmp_path, wrapped, time_limit=0.5, finish_limit=60.0)
    assert (tmp_path / "report").read_text() == "143\n", "the profiler saw its target end by SIGTERM"


def test_below_a_profiler_nothing_outlives_the_supervisor(tmp_path: Path) -> None:
    task_file = tmp_path / "tasks-001.json"
    task_file.write_bytes(Share((does("a", "loop"),)).encode())
    supervisor = subprocess.Popen(["sleep", "600"])
    journal = tmp_path / "journal-001.jsonl"
    environment = {**os.environ, "FLASHCORE_SUPERVISOR": str(supervisor.pid), "PYTHONPATH": str(ROOT / "harness")}
    with subprocess.Popen(actor()(task_file, journal), env=environment) as child:
        until(lambda: any(isinstance(m, Begun) for m in read_journal(journal)))
        supervisor.kill()
        supervisor.wait()
        assert child.wait(120) != 0


def test_a_child_whose_supervisor_ended_and_is_not_reaped_begins_nothing(tmp_path: Path) -> None:
    task_file, journal = tmp_path / "tasks-001.json", tmp_path / "journal-001.jsonl"
    task_file.write_bytes(Share((does("a"),)).encode())
    with subprocess.Popen(["true"]) as supervisor:
        until(lambda: os.waitid(os.P_PID, supervisor.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
        environment = {**os.environ, "FLASHCORE_SUPERVISOR": str(supervisor.pid), "PYTHONPATH": str(ROOT / "harness")}
        assert subprocess.run(actor()(task_file, journal), env=environment).returncode == 74
    assert not list(read_journal(journal))


def test_a_child_that_never_starts_ends_the_stage_after_two_tries(tmp_path: Path) -> None:
    results = supervise(tmp_path, [does(n) for n in "abc"], "broken")
    assert [r.status for r in results] == ["failed"] * 3
    assert all("no module named anything" in r.reason for r in results)
    assert len(list(tmp_path.glob("child-*.log"))) == 2


def test_a_child_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    results = supervise(tmp_path, [does("a"), does("b"), does("c")], "mute", startup_limit=0.3, finish_limit=0.1)
    assert all("no task started within 0.3 s" in r.reason for r in results)


def test_missing_permission_is_a_lack_of_the_machine(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="NVreg_RestrictProfilingToAdminUsers"):
        supervise(tmp_path, [does("a")], "no permission")


def test_the_childs_own_capability_error_comes_through(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError) as caught:
        supervise(tmp_path, [does("a")], "incapable")
    assert (caught.value.what, caught.value.hint) == ("no CUDA GPU that this process can use", "plug one in")


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="cannot start /no/such/ncu"):
        staged.run([does("a")], tmp_path, lambda *_: ["/no/such/ncu"], time_limit=1)


def test_names_are_unique(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="found more than once: a"):
        supervise(tmp_path, [does("a"), does("b"), does("a")])


# --- the journal --------------------------------------------------------------------------------


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with pytest.raises(FlashcoreError, match=r"/dev/full: cannot write the journal: No space left"):
        Journal("/dev/full")
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(FlashcoreError, match="Not a directory"):
        supervise(blocked / "folder", [does("a")])


def test_a_disk_that_fills_up_ends_the_stage_and_keeps_what_is_answered(tmp_path: Path) -> None:
    tasks = [does("a"), does("b", "journal full"), does("c")]
    with pytest.raises(FlashcoreError, match=r"journal-001.jsonl: .*No space left on device\n.*--resume"):
        supervise(tmp_path, tasks)
    assert set(answers(tmp_path)) == {"a"}


# --- stopped from outside -----------------------------------------------------------------------


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[Task], Path, Path]]:
    """A supervisor at work in a process of its own: `a` is answered, `b` is in progress."""
    folder, note = tmp_path / "stage", tmp_path / "note"
    tasks = [
        does("a", note=str(note)),
        does("b", "sleep", seconds=600, note=str(note)),
        does("c", note=str(note)),
    ]
    text = json.dumps([{"name": t.name, "payload": dict(t.payload)} for t in tasks])
    process = subprocess.Popen(
        [sys.executable, str(CHILDREN / "supervisor.py"), str(folder), text],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "harness")},
    )
    with process:
        until(lambda: note.exists() and "b " in note.read_text() and bool(answers(folder)))
        yield process, tasks, folder, note
        process.kill()


def test_killed_supervisor_leaves_no_orphan_and_is_resumed(
    stage: tuple[subprocess.Popen[str], list[Task], Path, Path],
) -> None:
    process, tasks, folder, note = stage
    child = pid(folder / "journal-001.jsonl")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert gone(child)
    # What was in progress is run again, what is answered is not.
    tasks[1] = does("b", note=str(note))
    results = supervise(folder, tasks)
    assert [r.status for r in results] == ["ok"] * 3
    assert [line.split()[0] for line in note.read_text().splitlines()] == ["a", "b", "b", "c"]


def test_interrupt_ends_the_group_and_leaves_journals_whole(
    stage: tuple[subprocess.Popen[str], list[Task], Path, Path],
) -> None:
    process, _, folder, _ = stage
    child = pid(folder / "journal-001.jsonl")
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    assert gone(child)
    for path in folder.glob("*.jsonl"):
        text = path.read_text()
        assert text.endswith("\n")
        assert len(list(read_journal(path))) == len(text.splitlines())
    assert set(answers(folder)) == {"a"}


def test_a_failure_is_not_tried_again_on_resume(tmp_path: Path) -> None:
    note = tmp_path / "note"
    tasks = [does("a", "exit", note=str(note)), does("b", note=str(note))]
    first = supervise(tmp_path / "stage", tasks)
    again = supervise(tmp_path / "stage", tasks)
    assert again == first
    assert len(note.read_text().splitlines()) == 2
