"""Runs plans: through the launcher's library in place of a case's host code, and in processes of other programs."""

from __future__ import annotations

import contextlib
import ctypes
import json
import select
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.machine.toolchain import host_program
from flashcore.runner.kernel_call import KernelCall
from flashcore_judge.launcher.planned import planned


class LauncherError(FlashcoreError):
    """The program refused a plan or a command, a call of the driver failed, or the process ended."""


_SOURCE = Path(__file__).with_name("launcher.cpp")


def built(name: str, *flags: str, source: Path = _SOURCE) -> Path:
    """The program that checks a plan or, with flags, the library that launches one, or another program that runs plans;
    compiled if this machine has none of this source yet."""
    flags = (*flags, f"-I{_SOURCE.parent}", "-std=c++17", "-O2", "-static-libstdc++", "-static-libgcc", "-ldl")
    return host_program(source, flags, name)


class Launcher:
    """A process that answers each line with a line of JSON. Its methods raise a :class:`LauncherError`.

    Attributes:
        limit: seconds for each answer.
        device: the GPU, if it has one.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        folder: Path,
        limit: float,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, stderr=nothing, env=environment)
        self.folder, self.limit = folder, limit
        self.device: dict[str, Any] = {}

    def ask(self, *command: object) -> Any:
        """The answer to a command."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # its last event is still to be read
            self._process.stdin.write(" ".join(map(str, command)).encode() + b"\n")
        return self.event()

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Ends the process, and waits until it has ended."""
        with self._process:
            self.kill()

    def event(self) -> Any:
        """What it writes next."""
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], self.limit)[0]:
            self.kill()
            raise LauncherError(f"launcher: no answer within {self.limit:g} s")
        if not (line := self._process.stdout.readline()).endswith(b"\n"):
            raise LauncherError(f"launcher: it ended with exit code {self._process.wait()}")
        event = json.loads(line)
        if event.get("kind") == "machine":
            raise CapabilityError(f"launcher: {event['message']}", "see what nvidia-smi says")
        if event.pop("event") == "error":
            raise LauncherError(f"launcher: {event['message']}")
        return event


def target(case: KernelCall) -> Callable[..., None]:
    """The function that calls a case from its plan, on the given tensors and torch's current stream.

    Raises:
        FlashcoreError: the plan is refused, or cannot be loaded.
    """
    import torch

    program = ctypes.CDLL(str(built("launcher.so", "-shared", "-fPIC")))
    program.flashcore_plan_open.restype = program.flashcore_plan_launch.restype = ctypes.c_char_p
    torch.cuda.synchronize()  # makes the context
    opened = ctypes.c_void_p()
    with tempfile.TemporaryDirectory() as folder:
        plan, path = planned(case, Path(folder)), Path(folder, "plan")
        path.write_text(plan.words())
        _raise(program.flashcore_plan_open(str(path).encode(), ctypes.byref(opened)))
    workspaces = [  # the plan's last tensors
        torch.zeros(tensor.sizes, dtype=torch.uint8, device="cuda")
        for tensor in plan.tensors.values()
        if tensor.role == "workspace"
    ]

    def call(*given: Any) -> None:
        tensors = []
        for a, value in zip(case.arguments, given, strict=True):
            if a.name in plan.tensors:
                tensors.append(value)
                fits = value.is_contiguous() and value.data_ptr() % 16 == 0
            else:
                fits = value in (None, case.params.get(a.name, a.default))
            if not fits:
                raise FlashcoreError(
                    f"{a.name}: expected the plan's number, or a contiguous tensor on 16 bytes, found another"
                )
        addresses = (ctypes.c_uint64 * len(plan.tensors))(*(t.data_ptr() for t in [*tensors, *workspaces]))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _raise(program.flashcore_plan_launch(opened, addresses, stream))

    return call


def _raise(message: bytes | None) -> None:
    if message:
        raise LauncherError(f"launcher: {message.decode(errors='replace')}")
