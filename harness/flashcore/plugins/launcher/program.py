"""The launcher's program, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.measure.machine.host_program import compiled
from flashcore.plugins.launcher.plan import Plan

_SOURCE = Path(__file__).with_name("launcher.cpp")
_FLAGS = ("-std=c++17", "-O2", "-static-libstdc++", "-static-libgcc", "-ldl")
_PLAN, _ANSWER = "plan.words", "answer.raw"  # in the plan's folder


class LauncherError(FlashcoreError):
    """The program refuses something, or a call of the driver failed: its event says which."""

    def __init__(self, **event: Any) -> None:
        self.event = event
        words = (event.get(key) for key in ("where", "call", "message"))
        super().__init__("launcher: " + ": ".join(filter(None, words)))


def executable() -> Path:
    """The program, compiled if this machine has none of this source yet."""
    return compiled(_SOURCE, _FLAGS, "launcher")


def library() -> Path:
    """The program as a library."""
    return compiled(_SOURCE, ("-shared", "-fPIC", *_FLAGS), "launcher.so")


class Launcher:
    """A process that has loaded a plan, and ends with its ``with`` block.

    Args:
        folder: where the plan's cubins and files lie.
        limit: seconds for each answer; a process that takes longer is ended.

    Raises:
        CapabilityError: there is no compiler, driver or GPU.
        LauncherError: the plan is refused, or a call of the driver failed. So does every method.
    """

    def __init__(
        self, plan: Plan, folder: Path, limit: float = 60.0, environment: Mapping[str, str] | None = None
    ) -> None:
        self._folder, self._limit, self._rest = folder, limit, b""
        (folder / _PLAN).write_text(plan.words(folder), encoding="utf-8")
        command = [executable(), folder / _PLAN]
        pipe, silent = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=silent, env=environment)
        try:
            #: The GPU; and how many sets of tensors the calls rotate through.
            self.device = self._event()
            self.sets: int = self._event()["sets"]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()

    def ask(self, *command: object) -> dict[str, Any]:
        """The answer to a command."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its last words are still to be read
            self._process.stdin.write(" ".join(map(str, command)).encode() + b"\n")
            self._process.stdin.flush()
        return self._event()

    def read(self, tensor: str, call: int = 0) -> bytes:
        """What a call left in a tensor."""
        self.ask("read", tensor, _ANSWER, call)
        return (self._folder / _ANSWER).read_bytes()

    def _event(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        until = time.monotonic() + self._limit
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, until - time.monotonic())):
                    self.close()
                    raise LauncherError(message=f"no answer within {self._limit:g} s")
                if not (part := os.read(self._process.stdout.fileno(), 1 << 16)):
                    raise LauncherError(message=f"it ended with exit code {self._process.wait()}")
                self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        if event.get("kind") == "machine":
            raise CapabilityError(f"launcher: {event['message']}", "see what nvidia-smi says")
        if event["event"] == "error":
            raise LauncherError(**event)
        return event
