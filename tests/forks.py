"""Children that need not import first what this package and torch take seconds to import.

A process imports it once (for each worker of a test run), and forks one child for each that is asked for. Such a child
is a process like any other: with its own arguments, environment, folder, files, session and end, and a child of the
process that asked. It does not inherit what a test did to its own process. What is about a process's start, its
terminal or its encoding needs a real start, and so does one whose environment decides what Python or a library does
as it is loaded: :func:`can` says whether it may be forked.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from flashcore.machine import python_process
from flashcore.runner import process

#: What the command line imports for nearly every command; pages, tables and other packages are left to who needs them.
COMMANDS = (
    "flashcore.cli.main", "flashcore.cli.gate", "flashcore.cli.profile", "flashcore.suites.load",
    "flashcore.suites.resolve", "flashcore.cli.verdict_table", "flashcore.pipeline.run", "flashcore.gate.formats",
    "flashcore.records.store",
)  # fmt: skip
#: What those import that run kernels.
KERNELS = (
    "torch",
    "torch._dynamo",  # opcheck imports it, which takes a second and a half
    "torch.testing._internal.optests",
    "flashcore.runner.kernel_call",
    "flashcore.runner.problem_file",
    "flashcore.stages.bench.timing",
)
_CHILDREN = (
    "flashcore.stages.bench.", "flashcore.stages.check.",
    "flashcore_judge.answers", "flashcore_map.",
)  # fmt: skip
#: Of a library's or Python's own start; the child would come too late to be told.
_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "GOMP_", "TORCH_")
_PR_SET_CHILD_SUBREAPER = 36
_STARTED: list[Forks] = []


class Forks:
    """The process that forks."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._lock = threading.Lock()  # one question at a time
        self._own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._given = {**python_process.environment(), "PYTHONDONTWRITEBYTECODE": "1"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno()), *modules],
                env=self._given, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            )  # fmt: skip

    def can(self, environment: Mapping[str, str], but: str = "") -> bool:
        """True if a child with this environment can be forked. ``but`` names a variable that does not matter."""
        differs = {k for k in {*environment, *self._given} if environment.get(k) != self._given.get(k)}
        return not any(k.startswith(_AT_START) for k in differs - {but})

    def start(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], files: Sequence[int], session: bool
    ) -> int:
        """Forks one; gives its number.

        Args:
            words: ``-m MODULE …`` or ``-c CODE …``, as Python takes them.
            files: standard input, output and error.
            session: whether it begins one of its own.
        """
        task = {"words": [*words], "environment": {**environment}, "folder": str(folder), "session": session}
        with self._lock, open(os.memfd_create("task"), "w+b", buffering=0) as file:
            file.write(json.dumps(task).encode())
            handles = array.array("i", [*files, file.fileno()])
            libc = ctypes.CDLL(None)
            # Whose parent ends goes to the nearest such process above: it becomes our child.
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                self._own.sendmsg([b"fork"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handles)])
                answer = self._own.recv(100)
            finally:
                libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        if not answer:
            raise RuntimeError(f"the process that forks ended with exit code {self._process.wait()}")
        return int(answer)

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Forks one and waits for its end.

        Raises:
            TimeoutError: it came to none; the child was killed.
        """
        (out, to_out), (err, to_err) = os.pipe(), os.pipe()
        with open(os.devnull, "rb") as nothing:
            pid = self.start(words, folder, environment, [nothing.fileno(), to_out, to_err], session=False)
        for end in (to_out, to_err):
            os.close(end)
        messages = {out: b"", err: b""}
        until = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for pipe in messages:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select(1.0):
                    if new := os.read(key.fd, 1 << 16):
                        messages[key.fd] += new
                    else:
                        selector.unregister(key.fd)
                        os.close(key.fd)
                if time.monotonic() > until:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    raise TimeoutError(f"no end within {timeout:g} s: {' '.join(words)}")
        text = [messages[pipe].decode().replace("\r\n", "\n").replace("\r", "\n") for pipe in (out, err)]
        return subprocess.CompletedProcess([*words], Forked(pid).wait(), *text)

    def close(self) -> None:
        self._own.close()
        self._process.wait()


@functools.cache
def of(modules: Sequence[str]) -> Forks:
    """The process that has imported these; started when it is first asked for."""
    made = Forks(modules)
    _STARTED.append(made)
    return made


def close() -> None:
    """Ends them."""
    while _STARTED:
        _STARTED.pop().close()
    of.cache_clear()


class Forked:
    """As much of ``subprocess.Popen`` as those who start children need."""

    def __init__(self, pid: int, stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in filter(None, (self.stdin, self.stdout)):
            pipe.close()
        self.wait()


@contextlib.contextmanager
def supervised(forks: Forks) -> Iterator[None]:
    """The children of stages are forked meanwhile, wherever the supervisor or the judge of this process starts one."""

    def start(argv: list[str], *, env: dict[str, str], start_new_session: bool = False, **more: Any) -> Any:
        given = {**env, "PYTHONDONTWRITEBYTECODE": "1"}
        is_child = argv[:3] == python_process.command("")[:3] and argv[3].startswith(_CHILDREN)
        # Where the driver's stand-in is: these children start no program that loads it, and torch finds no GPU with it.
        if not (is_child and forks.can(given, but="LD_LIBRARY_PATH")):
            return subprocess.Popen(argv, env=env, start_new_session=start_new_session, **more)
        ours: dict[str, IO[bytes]] = {}
        files: list[int] = []
        with contextlib.ExitStack() as stack:
            for name in ("stdin", "stdout", "stderr"):
                if more[name] == subprocess.PIPE:
                    ends = os.pipe()
                    writes = int(name == "stdin")
                    ours[name] = os.fdopen(ends[writes], "wb" if writes else "rb", 0)
                    files.append(ends[1 - writes])
                    stack.callback(os.close, files[-1])
                elif more[name] == subprocess.STDOUT:
                    files.append(files[-1])
                else:
                    nothing = more[name] == subprocess.DEVNULL
                    files.append((stack.enter_context(open(os.devnull, "r+b")) if nothing else more[name]).fileno())
            return Forked(forks.start(argv[2:], Path.cwd(), given, files, start_new_session), **ours)

    class Starter:
        """The module as theirs, with another way to start."""

        Popen = staticmethod(start)
        PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT

    import pytest  # which the process that forks need not

    starters = [process]
    with contextlib.suppress(ImportError):
        starters.append(importlib.import_module("flashcore_judge.launcher.program"))
    with pytest.MonkeyPatch.context() as patch:
        for module in starters:
            patch.setattr(module, "subprocess", Starter)
        yield


# --- the process that forks -----------------------------------------------------------------------


def _serve(connection: socket.socket) -> None:
    while True:
        word, handles, _, _ = socket.recv_fds(connection, 100, 4)
        if not word:
            return
        (listed, tells), (waits, begins) = os.pipe(), os.pipe()
        between = os.fork()
        if between == 0:
            if os.fork():
                os._exit(0)
            task = json.loads(os.pread(handles[3], os.fstat(handles[3]).st_size, 0))
            if task["session"]:
                os.setsid()  # before its asker knows its number, which is then that of a group to kill
            os.write(tells, str(os.getpid()).encode())
            for handle in (listed, tells, begins):
                os.close(handle)
            connection.close()
            os.read(waits, 1)  # until it is its asker's child
            os.close(waits)
            _begin(task, handles)
        os.close(tells)
        os.close(waits)
        number = os.read(listed, 100)
        os.waitpid(between, 0)
        connection.send(number)
        for handle in (listed, begins, *handles):
            os.close(handle)


def _begin(task: dict[str, Any], handles: Sequence[int]) -> None:
    """In the child: never comes back."""
    code = 1
    try:
        for standard, handle in enumerate(handles[:3]):
            os.dup2(handle, standard)
        for handle in handles:
            os.close(handle)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = _run(task)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _run(task: dict[str, Any]) -> int:
    os.environ.clear()
    os.environ.update(task["environment"])
    os.chdir(task["folder"])
    (how, what), rest = task["words"][:2], task["words"][2:]
    code = 0
    try:
        if how == "-c":
            sys.argv = ["-c", *rest]
            sys.path.insert(0, "")
            exec(what, {"__name__": "__main__"})
        else:
            sys.argv = [what, *rest]
            runpy.run_module(what, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    return code & 0xFF


if __name__ == "__main__":
    connection = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()  # no child looks through what was imported, which would copy its memory
    gc.set_threshold(20_000, 50, 1_000)
    _serve(connection)
