"""What code in the sandbox cannot do, in each kind of sandbox that this machine has."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from flashcore.errors import CapabilityError, UsageError
from flashcore_judge import sandbox
from tests.support.processes import until

PROBE = """
import ctypes, json, os, socket, sys
def fails(what):
    try:
        what()
    except OSError:
        return True
    return False
libc = ctypes.CDLL(None)
print(json.dumps({
    "environment": sorted(os.environ),
    "secret": os.path.exists(sys.argv[1]),
    "given": open(sys.argv[2] + "/file").read(),
    "network": fails(lambda: socket.create_connection(("127.0.0.1", 1), 1)) and fails(socket.socket),
    "sockets": fails(socket.socketpair),
    "writes": [path for path in sys.argv[2:] if not fails(lambda: open(path + "/hostname", "w"))],
    "modes": [path for path in ("/dev/null", "/dev/urandom") if not fails(lambda: os.chmod(path, 0o666))],
    "tmp": open("/tmp/x", "w").write("x"),
    "gpus": [name for name in os.listdir("/dev") if name.startswith("nvidia")],
    "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
    "user namespace": libc.unshare(0x10000000),
    "trace": libc.ptrace(0, 0, 0, 0),
    "processors": len(os.sched_getaffinity(0)),
    "more": fails(lambda: os.sched_setaffinity(0, range(os.cpu_count()))),
    "nice": os.nice(0),
    "capabilities": [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")],
}))
"""


def bubblewrap() -> str:
    return os.path.dirname(shutil.which("bwrap") or "")


@pytest.fixture(params=["bubblewrap", "namespaces"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this kind of sandbox works."""
    if request.param == "bubblewrap" and (not bubblewrap() or os.getuid() == 0):
        pytest.skip("tool: no bwrap on this machine, or root, who does not get it")
    if request.param == "namespaces":
        if subprocess.run(["unshare", "-Ur", "true"], check=False, capture_output=True).returncode:
            pytest.skip("tool: no user namespaces on this machine")
        without = [p for p in os.environ["PATH"].split(os.pathsep) if p != bubblewrap()]
        monkeypatch.setenv("PATH", os.pathsep.join(without))


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-c", code, *arguments]


def test_the_sandbox_has_nothing_of_the_users(path: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "x")
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-allow-unsupported-compiler")  # without which nvcc may refuse
    (tmp_path / "secret").write_text("x")
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "file").write_text("content")
    folders = (str(tmp_path / "given"), "/proc/sys/kernel", "/usr", "/dev", "/dev/shm", "/")
    command = python(PROBE, str(tmp_path / "secret"), *folders)
    answer = json.loads(sandbox.run(command, [tmp_path / "given"]))
    environment = answer.pop("environment")
    assert "A_SECRET" not in environment and "NVCC_APPEND_FLAGS" in environment
    assert answer.pop("processes") < 5
    assert answer == {
        "secret": False,
        "given": "content",
        "network": True,
        "sockets": True,
        "writes": [],
        "modes": [],
        "tmp": 1,
        "gpus": [],
        "user namespace": -1,
        "trace": -1,
        "processors": max(len(os.sched_getaffinity(0)) // 4, 1),
        "more": True,
        "nice": 19,
        "capabilities": ["0000000000000000"],
    }


#: Seconds for which no other process sleeps.
LONG = 3000 + os.getpid()


def asleep() -> int:
    """The processes whose command line has a sleep of that length."""
    found = subprocess.run(["pgrep", "-f", f"time.sleep[(]{LONG}[)]"], check=False, capture_output=True)
    return len(found.stdout.split())


def test_it_does_not_outlive_a_judge_that_is_killed(path: None, tmp_path: Path) -> None:
    code = f"import time; time.sleep({LONG})"
    outer = f"from flashcore_judge import sandbox; sandbox.run([{sys.executable!r}, '-c', {code!r}], [])"
    judge = subprocess.Popen(python(outer))
    until(lambda: asleep() >= 2)
    time.sleep(0.5)
    judge.kill()
    judge.wait()
    until(lambda: not asleep())


def test_what_it_started_ends_with_it(path: None) -> None:
    code = f"import os, sys, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep({LONG})\nprint('done')"
    assert sandbox.run(python(code), [], 60.0) == b"done\n"
    until(lambda: not asleep())


def test_what_a_process_does_to_itself_does_not_let_it_outlive_the_limit(path: None, tmp_path: Path) -> None:
    code = f"""if 1:
        import ctypes, os, time
        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # no signal at its parent's death
        if os.getpid() != os.getpgid(0):
            os.setsid()
        time.sleep({LONG})
    """
    with pytest.raises(CapabilityError, match="within 2 s"):
        sandbox.run(python(code), [], 2.0)
    until(lambda: not asleep())


def test_a_mount_below_a_readable_folder_is_read_only_too(path: None, tmp_path: Path) -> None:
    (tmp_path / "given" / "mount").mkdir(parents=True)
    inner = f"open({str(tmp_path / 'given' / 'mount' / 'x')!r}, 'w')"
    outer = (
        "import sys, pathlib; from flashcore_judge import sandbox;"
        f"sandbox.run([sys.executable, '-P', '-c', {inner!r}], [pathlib.Path({str(tmp_path / 'given')!r})])"
    )
    mount = f"mount -t tmpfs none {tmp_path}/given/mount && exec {shlex.join(python(outer))}"
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", mount], check=False, capture_output=True, text=True)
    assert "Read-only file system" in done.stderr


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import time; time.sleep(100)", "within 2 s"),
        ("x = bytearray(1 << 40)", "MemoryError"),
        ("open('/tmp/x', 'wb').truncate(1 << 34)", "File too large"),
        ("print('x' * (25 << 20))", "at most 24 MiB of launches and cubins .* found 25.0 MiB"),
        ("import sys; sys.exit(3)", "exit code 3"),
        (
            "import os, time\nfor _ in range(600):\n    os.fork() or time.sleep(9)\ntime.sleep(9)",
            "at most 512 threads|Resource temporarily",  # root's have no limit of their number
        ),
        (
            "import threading, time\nfor _ in range(2000):\n    threading.Thread(target=time.sleep, args=(9,)).start()",
            "at most 512 threads|can't start new thread",
        ),
        # It says what a sandbox says that could not begin.
        ("import os; os.write(2, b'cannot confine: no namespaces'); os._exit(125)", "exit code 125"),
        ("import os; os.write(2, b'bwrap: No permissions'); os._exit(1)", "exit code 1"),
    ],
)
def test_limits(path: None, code: str, reason: str) -> None:
    with pytest.raises(CapabilityError if "within" in reason else UsageError, match=reason):
        sandbox.run(python(code), [], 2.0 if "within" in reason else 60.0)


def test_files_without_content_are_limited_too(path: None) -> None:
    if bubblewrap() and os.getuid():
        pytest.skip("tool: bubblewrap has no limit of files")
    with pytest.raises(UsageError, match="No space left"):
        sandbox.run(python("import os\nfor i in range(1 << 16):\n    os.symlink('x', f'/tmp/{i}')"), [], 60.0)


def test_memory_is_limited_in_all(path: None, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os, time\nfor _ in range(8):\n    os.fork() or (bytearray(64 << 20), time.sleep(9))\ntime.sleep(9)"
    assert sandbox.run(python("bytearray(64 << 20)"), []) == b""
    monkeypatch.setattr(sandbox, "MEMORY", 400 << 20)
    with pytest.raises(UsageError, match="400 MiB of memory in the sandbox"):
        sandbox.run(python(code), [], 60.0)


def test_nothing_runs_where_nothing_confines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("bwrap", "confine"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name}: No permissions to create namespaces >&2\nexit 125\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(sandbox, "built", lambda *_, **__: tmp_path / "confine")
    with pytest.raises(CapabilityError, match="nothing on this machine can confine"):
        sandbox.run(python("open('/tmp/escaped', 'w')"), [])


def test_compilers_are_shown_wherever_they_are_but_never_the_home(
    compiler: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home, other = tmp_path / "home" / "user", tmp_path / "opt" / "gcc"
    programs = [home / "bin" / "g++", other / "bin" / "g++"]
    for program in programs:
        program.parent.mkdir(parents=True)
        program.touch()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("flashcore.machine.toolchain.compilers", lambda _: programs)
    shown = sandbox.readable([])
    assert str(other) in shown and not any(home.is_relative_to(path) for path in shown)


def test_a_batch_that_ends_ends_its_compilers(path: None) -> None:
    def stop() -> None:
        until(lambda: asleep() >= 2)
        time.sleep(0.5)
        sandbox.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(UsageError, match="exit code -9"):
        sandbox.run(python(f"import time; time.sleep({LONG})"), [], 120.0)
    thread.join()
