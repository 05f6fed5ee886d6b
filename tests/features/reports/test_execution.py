"""The captured command: its environment, output and exit code, and its end with all that it started."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import pytest

from flashcore.errors import CapabilityError
from flashcore.features.reports.execution import Execution, execute
from flashcore.model.causes import Hang
from flashcore.runner.child import has_ended
from tests.support.processes import until


def run(
    folder: Path, body: str, wrapper: tuple[str, ...] = (), time_limit: float = 60.0, finish_limit: float = 10.0
) -> Execution:
    command = [sys.executable, "-c", f"import os, signal, subprocess, sys, time\n{body}"]
    limits = {"time_limit": time_limit, "finish_limit": finish_limit}
    return execute(command, folder / "output", wrapper=wrapper, environment={"GIVEN": "1"}, **limits)


@pytest.mark.parametrize(("ending", "code"), [("os.kill(os.getpid(), 9)", -9), ("sys.exit(3)", 3), ("", 0)])
def test_the_command_gets_its_variables_and_answers_with_its_code(tmp_path: Path, ending: str, code: int) -> None:
    ended = run(tmp_path, f"print(os.environ['GIVEN'], flush=True); {ending}")
    assert (ended.code, ended.cause) == (code, None)
    assert (tmp_path / "output").read_text() == "1\n"


def test_nothing_is_between_ncu_and_the_command(tmp_path: Path) -> None:
    """ncu measures a grandchild at a fraction of the speed."""
    starts = "import subprocess, sys; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); p.wait()"
    wrapper = (sys.executable, "-c", starts)
    run(tmp_path, "print(os.getpid())", wrapper)
    started, command = (tmp_path / "output").read_text().split()
    assert started == command


STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"
STARTS = f"""
pids = [os.getpid()]
for code in ({STUBBORN!r}, "print(flush=True); import time; time.sleep(600)"):
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    child.stdout.readline()
    pids.append(child.pid)
print(*pids, flush=True)
time.sleep(600)
"""


def test_what_the_command_started_ends_with_it_before_the_wrapper(tmp_path: Path) -> None:
    """Also what does not heed SIGTERM; the wrapper then still writes its report."""
    report = tmp_path / "report"
    wrapped = f"import subprocess, sys, time; subprocess.call(sys.argv[1:]); time.sleep(1); open({str(report)!r}, 'w')"
    assert run(tmp_path, STARTS, (sys.executable, "-c", wrapped), time_limit=5).cause == Hang(5)
    pids = [int(pid) for pid in (tmp_path / "output").read_text().split()]
    assert len(pids) == 3 and all(map(has_ended, pids)) and report.exists()


def test_a_wrapper_that_never_ends_is_ended_too(tmp_path: Path) -> None:
    wrapped = "import subprocess, sys, time; subprocess.call(sys.argv[1:]); time.sleep(600)"
    ended = run(tmp_path, "time.sleep(600)", (sys.executable, "-c", wrapped), time_limit=2, finish_limit=1)
    assert ended.code is None


def test_an_interrupted_user_leaves_no_process(tmp_path: Path) -> None:
    output = tmp_path / "output"
    ended = threading.Event()

    def interrupt() -> None:
        until(lambda: output.exists() and output.read_text().endswith("\n"))
        os.kill(os.getpid(), signal.SIGINT)
        while not ended.wait(20):  # Python drops an interrupt that arrives in a callback of the garbage collector
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, STARTS)
    finally:
        ended.set()
    pids = output.read_text().split()
    assert len(pids) == 3 and all(has_ended(int(pid)) for pid in pids)


def test_a_wrapper_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert shutil.which("no-such-ncu") is None
    with pytest.raises(CapabilityError, match="cannot start no-such-ncu"):
        run(tmp_path, "", ("no-such-ncu",))
