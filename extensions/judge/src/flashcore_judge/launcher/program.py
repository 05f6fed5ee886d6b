"""Runs plans: in a process of the launcher's program, or through its library in place of a case's host code."""

from __future__ import annotations

import contextlib
import ctypes
import json
import select
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.measure.machine.toolchain import host_program
from flashcore.measure.workers.kernel_call import Case
from flashcore_judge.launcher.plan import Plan
from flashcore_judge.launcher.planned import planned


class LauncherError(FlashcoreError):
    """The program refused a plan or a command, a call of the driver failed, or the process ended."""


_SOURCE = Path(__file__).with_name("launcher.cpp")


def built(name: str, *flags: str, source: Path = _SOURCE) -> Path:
    """The program or, with flags, its library, or another program that runs plans; compiled if this machine has none of
    this source yet."""
    flags = (*flags, f"-I{_SOURCE.parent}", "-std=c++17", "-O2", "-static-libstdc++", "-static-libgcc", "-ldl")
    return host_program(source, flags, name)


class Launcher:
    """A process that answers each line with a line, as the launcher's program does. Its methods raise a
    :class:`LauncherError`.

    Attributes:
        limit: seconds for each answer.
        device, sets: the GPU, and how many sets of tensors the calls rotate through, if it has loaded a plan.
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
        self.sets = 0

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

    def read(self, tensor: str, call: int = 0) -> bytes:
        """The content of a tensor after a call."""
        self.ask("read", tensor, "answer.raw", call)
        return (self.folder / "answer.raw").read_bytes()

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


@contextlib.contextmanager
def launcher(
    plan: Plan,
    folder: Path,
    limit: float = 60.0,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Launcher]:
    """A process that has loaded a plan, until the ``with`` block ends.

    Args:
        folder: where the plan's cubins and files are.
        limit: seconds for each answer; a process that takes longer is ended.

    Raises:
        CapabilityError: there is no compiler, driver or GPU.
        LauncherError: the plan is refused, or a call of the driver failed.
    """
    path = folder / "plan.words"
    path.write_text(plan.words())
    with contextlib.closing(Launcher([built("launcher"), path], folder, limit, environment)) as made:
        made.device = made.event()
        made.sets = made.event()["sets"]
        yield made


def target(case: Case) -> Callable[..., None]:
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
