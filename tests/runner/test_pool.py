"""Children started ahead of their tasks: they are used, or ended, and never in the way."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from flashcore.errors import CapabilityError
from flashcore.runner.journal import Share, Task, answers, measured_on
from flashcore.runner.process import Child, LocalGpu, Program
from flashcore.runner.queue import Pool
from tests.conftest import ROOT
from tests.support.processes import actor, does, gone, until
from tests.support.staged import program, run

TWO = (LocalGpu("GPU-a"), LocalGpu("GPU-b"))


def pids(folder: Path) -> list[int]:
    """The processes that were started for a folder."""
    logs = sorted(folder.glob("child-*.log"))
    return [int(pid) for p in logs for pid in re.findall(r"^process (\d+)$", p.read_text(), re.MULTILINE)]


def pids_of(folder: Path, count: int = 1) -> list[int]:
    """So many processes, once they have imported."""
    until(lambda: sum("imported" in log.read_text() for log in folder.glob("child-*.log")) == count)
    return pids(folder)


def test_the_child_that_waits_is_given_the_tasks(tmp_path: Path) -> None:
    two = program(actor(), batch=2)
    with Pool() as pool:
        pool.prepare(two, tmp_path)
        waits = pids_of(tmp_path)
        results = pool.run([does(n) for n in "abc"], two, tmp_path)
    assert [r.status for r in results] == ["ok"] * 3
    assert [r.data["pid"] for r in results if r.data][:2] == waits * 2
    assert len(pids(tmp_path)) == 2, "a batch is of so many, ahead or not"
    assert run([does(n) for n in "abc"], tmp_path, actor()) == results


def test_on_each_gpu_one_waits_and_is_refilled(tmp_path: Path) -> None:
    tasks = [does(f"{v}/{s}", "sleep", seconds=0.1) for s in "abcdef" for v in ("x", "y")]
    refilled = program(actor())
    with Pool(TWO) as pool:
        pool.prepare(refilled, tmp_path)
        results = pool.run(tasks, refilled, tmp_path)
    assert {r.status for r in results} == {"ok"} and len(pids(tmp_path)) == 2
    assert set(measured_on(tmp_path).values()) == {"GPU-a", "GPU-b"}


def test_a_process_stays_for_the_next_run_in_another_folder(tmp_path: Path) -> None:
    staying = program(actor())
    with Pool() as pool:
        pool.stays = True
        first = pool.run([does("a/x")], staying, tmp_path / "1")
        pool.prepare(staying, tmp_path / "2")  # one waits already
        second = pool.run([does("a/x"), does("b/x")], staying, tmp_path / "2")
        assert [r.status for r in (*first, *second)] == ["ok"] * 3
        [pid] = {r.data["pid"] for r in (*first, *second) if r.data}
        assert pids(tmp_path / "1") == [pid] and [*answers(tmp_path / "2")] == ["a/x", "b/x"]
        assert len(list((tmp_path / "2").glob("tasks-*"))) == 0, "it was started once"
    until(lambda: gone(pid))


def test_one_that_stayed_ends_when_another_program_runs(tmp_path: Path) -> None:
    """It keeps a context on the GPU, which would void what the other times."""
    other = program(actor("other"))
    with Pool() as pool:
        pool.stays = True
        pool.prepare(other, tmp_path / "other")  # has no task, and so uses no GPU
        (idle,) = pids_of(tmp_path / "other")
        pool.run([does("a/x")], program(actor()), tmp_path / "1")
        (used,) = pids(tmp_path / "1")
        assert not gone(used, 0.2) and not gone(idle, 0.0)
        pool.run([does("a/x")], other, tmp_path / "2")
        assert gone(used) and not gone(idle, 0.2)


def test_a_process_that_crashed_or_hung_is_replaced(tmp_path: Path) -> None:
    staying = program(actor(), time_limit=5.0)
    with Pool() as pool:
        pool.stays = True
        bad = [pool.run([does("a/x", how)], staying, tmp_path / how)[0] for how in ("segv", "loop")]
        good = pool.run([does("a/x")], staying, tmp_path / "3")
    assert [r.status for r in (*bad, *good)] == ["failed", "failed", "ok"]


def test_a_run_that_is_stopped_ends_the_process_at_work_alone(tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stop() -> None:
        if has_begun:
            raise Stopped

    has_begun: list[object] = []
    staying = program(actor())
    with Pool() as pool:
        pool.stays = True
        [idle] = pool.run([does("a/x")], staying, tmp_path / "1")
        pool.stop = stop
        with pytest.raises(Stopped):
            pool.run([does("a/x"), does("b/x", "sleep", seconds=60)], staying, tmp_path / "2", has_begun.append)
        pool.stop = lambda: None
        [again] = pool.run([does("a/x")], staying, tmp_path / "3")
    assert idle.data and again.data and idle.data["pid"] != again.data["pid"]


def test_no_more_wait_than_there_are_tasks(tmp_path: Path) -> None:
    with Pool() as pool:
        pool.prepare(program(actor(), children=4), tmp_path, most=1)
        assert len(list(tmp_path.glob("tasks-*"))) == 1


def test_those_of_the_next_runs_wait_too_one_for_two_cores(tmp_path: Path) -> None:
    runs, one = max(1, (os.cpu_count() or 1) // 2) + 1, program(actor())
    with Pool() as pool:
        pool.prepare(one, tmp_path / "0", runs=runs)
        waiting = pids_of(tmp_path / "0", runs - 1)
        results = [pool.run([does("a")], one, tmp_path / str(number)) for number in range(runs)]
    used = [r.data["pid"] for [r] in results if r.data]
    assert len({*used}) == runs and {*used} > {*waiting}


@dataclass
class Elsewhere:
    """A GPU of another host."""

    gpu: str = "GPU-c"
    host: str = "node2"

    def child(self, folder: Path, tasks: list[Task], program: Program) -> Child:
        raise NotImplementedError

    def is_back(self) -> bool:
        return True


def test_none_is_started_ahead_on_another_host(tmp_path: Path) -> None:
    with Pool([Elsewhere(), TWO[0]]) as pool:
        pool.prepare(program(actor()), tmp_path)
        assert len(list(tmp_path.glob("tasks-*"))) == 1


def test_a_child_of_another_command_is_not_taken_and_is_ended(tmp_path: Path) -> None:
    with Pool() as pool:
        pool.prepare(program(actor("other")), tmp_path)
        (other,) = pids_of(tmp_path)
        (result,) = pool.run([does("a")], program(actor()), tmp_path)
        assert result.data is not None and result.data["pid"] != other and not gone(other, 0.0)
    assert gone(other)


def test_a_child_that_waits_behind_one_of_another_command_is_taken(tmp_path: Path) -> None:
    with Pool() as pool:
        pool.prepare(program(actor("other")), tmp_path)
        pool.prepare(program(actor()), tmp_path)
        waiting = pids_of(tmp_path, 2)
        (result,) = pool.run([does("a")], program(actor()), tmp_path)
    assert result.data is not None and result.data["pid"] in waiting and set(pids(tmp_path)) == set(waiting)


def test_a_child_that_needs_an_environment_of_its_own_is_not_one_that_waited(tmp_path: Path) -> None:
    with Pool() as pool:
        pool.prepare(program(actor()), tmp_path)
        (waits,) = pids_of(tmp_path)
        (result,) = pool.run([does("a")], program(actor(), environment={"OWN": "1"}), tmp_path)
    assert result.data is not None and result.data["pid"] != waits


def test_one_that_died_while_it_waited_is_replaced(tmp_path: Path) -> None:
    with Pool() as pool:
        pool.prepare(program(actor()), tmp_path)
        (dead,) = pids_of(tmp_path)
        os.kill(dead, signal.SIGKILL)
        gone(dead)
        (result,) = pool.run([does("a")], program(actor()), tmp_path)
    assert result.status == "ok" and result.data is not None and result.data["pid"] != dead


def test_what_cannot_be_started_ahead_is_left_to_its_stage(tmp_path: Path) -> None:
    missing = program(lambda *_: [str(tmp_path / "no such program")])
    with Pool() as pool:
        pool.prepare(missing, tmp_path)
        with pytest.raises(CapabilityError, match="cannot start"):
            pool.run([does("a")], missing, tmp_path)


def test_what_is_wrong_with_the_machine_is_still_said(tmp_path: Path) -> None:
    with Pool() as pool:
        pool.prepare(program(actor("incapable")), tmp_path)
        with pytest.raises(CapabilityError, match="no CUDA GPU"):
            pool.run([does("a")], program(actor("incapable")), tmp_path)


def test_a_killed_driver_leaves_nobody_waiting(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from flashcore.runner.queue import Pool\nfrom tests.support.staged import program\n"
        "from tests.support.processes import actor\n"
        "Pool().prepare(program(actor()), Path(sys.argv[1]))\ntime.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/harness:{ROOT}"}
    driver = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=environment)
    (waits,) = pids_of(tmp_path)
    driver.kill()
    driver.wait()
    assert gone(waits)
    (result,) = run([does("a")], tmp_path, actor())
    assert result.status == "ok"
    assert Share.decode((tmp_path / "tasks-001.json").read_bytes()).tasks == ()


@pytest.mark.parametrize("waits", [True, False])
def test_what_tasks_will_need_is_imported_while_there_are_none(tmp_path: Path, waits: bool) -> None:
    (tmp_path / "needed.py").write_text("open(__file__ + '.imported', 'w')")
    code = (
        f"import sys, types\nsys.path.append({str(tmp_path)!r})\n"
        "sys.modules['torch'] = types.ModuleType('torch')\n"  # its import takes seconds
        "from flashcore.runner.kernel_call import serve\n"
        "def perform(task, journal): return {'there': 'needed' in sys.modules}\n"
        "serve(perform, modules=('no_such_module', 'needed'))"
    )

    def command(tasks: Path, journal: Path) -> list[str]:
        return [sys.executable, "-c", code, str(tasks), str(journal)]

    with Pool() as pool:
        if waits:
            pool.prepare(program(command), tmp_path)
            until((tmp_path / "needed.py.imported").exists)
        (result,) = pool.run([Task("a", {"device": "cpu"})], program(command), tmp_path)
    assert result.data == {"there": waits}
