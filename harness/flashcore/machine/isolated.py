"""Calls a function in a forked process, so that a suite's code cannot affect this process."""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

_MOST_BYTES = 16 << 20  # of an answer
_OUTPUT = 200  # characters kept of the process's output


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended without an answer.

    Args:
        exit_code: negative after a signal; ``None`` after a timeout.
        output: the end of its output, on one line.
    """

    exit_code: int | None
    output: str


def isolated(limit: float, function: Callable[[], Any]) -> Any:
    """The function's JSON-serializable return value, or how its process :class:`Ended` instead."""
    *_, answer = started(limit, function)
    return answer


def started(limit: float, function: Callable[[], Any]) -> Generator[Any, None, None]:
    """Starts a process and yields ``None``; then waits and yields what :func:`isolated` returns.

    Several may run at the same time. Closing the generator kills its process. The value is passed through shared
    memory, so that nothing the function prints can be taken for it.

    Args:
        limit: time limit in seconds, from the start of the process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with mmap.mmap(-1, _MOST_BYTES) as memory, tempfile.TemporaryFile() as output:
        until = time.monotonic() + limit
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a killed parent cannot kill it
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                os.closerange(3, 1 + max(map(int, os.listdir("/proc/self/fd"))))
                sys.stdout = sys.stderr = os.fdopen(2, "w", closefd=False)
                memory.write(json.dumps(function()).encode() + b"\n")
                os._exit(0)
            except BaseException:
                print(*traceback.format_exception_only(*sys.exc_info()[:2]), sep="", end="")
                sys.stderr.flush()
            finally:
                os._exit(1)
        process = os.pidfd_open(child)
        try:
            yield None
            ended = select.select([process], [], [], max(0.0, until - time.monotonic()))[0]
        finally:
            os.close(process)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            exit_code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answer = memory.readline()
        if ended and exit_code == 0 and answer.endswith(b"\n"):
            yield json.loads(answer)
            return
        output.seek(begin := max(0, os.fstat(output.fileno()).st_size - _OUTPUT))
        lines = output.read().decode(errors="replace").strip().splitlines()
        whole = lines[1:] if begin and len(lines) > 1 else lines  # the first one is cut
        yield Ended(exit_code if ended else None, " ".join(map(str.strip, whole)))
