"""Runs a candidate's compilers and host code: no GPU, no network, nothing of the user's to read or write."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import flashcore
from flashcore.errors import CapabilityError, Exit, UsageError
from flashcore.machine import python_process, toolchain
from flashcore_judge.launcher.program import built

_SECONDS, _POLL, _MOST_OUTPUT, _MOST_THREADS = 300.0, 0.1, 24 << 20, 512
#: Resident bytes of all processes together: a quarter of the machine's, or less.
MEMORY = min(16 << 30, os.sysconf("SC_PHYS_PAGES") * resource.getpagesize() // 4)
_BUBBLEWRAP = (
    "--unshare-all --die-with-parent --new-session --cap-drop ALL --proc /proc --remount-ro /proc --dev /dev"
    f" --remount-ro /dev --size {2 << 30} --tmpfs /tmp"
)
_VARIABLES = re.compile("PATH|PYTHONPATH|LANG|NVCC|CUDA_HOME|CXX|NVCC_(CCBIN|PREPEND_FLAGS|APPEND_FLAGS)")
_running = set[int]()
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives", "/etc/ld.so.cache")


def run(command: Sequence[str], folders: Sequence[Path], seconds: float = _SECONDS) -> bytes:
    """What a command writes to its standard output.

    Args:
        folders: what it may read besides compilers, FlashCore and this package.

    Raises:
        CapabilityError: neither bubblewrap nor namespaces of our own work here, it took too long, or its exit code says
            that the machine is at fault.
        UsageError: the command failed, or wrote too much.
    """
    paths, bubblewrap = readable(folders), shutil.which("bwrap")
    program = str(built("confine", source=Path(__file__).with_name("confine.cpp")))
    shown = [word for path in (*paths, program) for word in ("--ro-bind", path, path)]
    outers = [list[str]()]
    if bubblewrap and os.getuid():  # root could change the mode of the host's /dev/null there
        outers.append([bubblewrap, *_BUBBLEWRAP.split(), *shown, "--remount-ro", "/", "--chdir", "/tmp"])
    errors = []
    for outer in outers:
        began, code, output, error = _ended([*outer, program, *([] if outer else paths), "--", *command], seconds)
        text = error[-600:].decode(errors="replace")
        if began and code == Exit.INCAPABLE:
            raise CapabilityError(f"its compilers say: {text}", "see flashcore doctor")
        if began and code:
            raise UsageError(f"the sandbox ended with exit code {code}: {text}")
        if began:
            return output
        errors.append(text)
    raise CapabilityError(
        f"nothing on this machine can confine a candidate's compilers: {'; '.join(errors)}",
        "install bubblewrap and allow unprivileged user namespaces, or judge candidates of cubins and launches",
    )


def stop() -> None:
    """Ends all commands."""
    for process in [*_running]:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)


def readable(folders: Iterable[Path]) -> list[str]:
    """What a command may read: these folders, compilers, and FlashCore and this package with what they import."""
    nvcc = toolchain.find_nvcc() if toolchain.optional_tool("nvcc") else None
    compilers = [nvcc.root, *(path.resolve().parents[1] for path in toolchain.compilers(nvcc))] if nvcc else []
    here = Path.cwd()  # it may have runs and verdicts
    searched = [*python_process.environment().get("PYTHONPATH", "").split(os.pathsep), *sys.path]
    packages = (p for p in searched if os.path.isabs(p) and not here.is_relative_to(p))
    ours = [
        *map(Path, (sys.prefix, sys.base_prefix, *packages)),
        Path(__file__).parents[1],
        Path(flashcore.__file__).parents[1],
        *compilers,
        *toolchain.site_packages(),
    ]
    no_homes = (p for p in ours if not (Path.home().is_relative_to(p) or (p / ".ssh").exists()))
    wanted = (*map(Path, _SYSTEM), *folders, *no_homes)
    return list(dict.fromkeys(os.path.abspath(path) for path in wanted if os.path.exists(path)))


def _ended(command: Sequence[str], seconds: float) -> tuple[bool, int, bytes, bytes]:
    """Whether a command was confined, its exit code, output and errors; kills it with all that it started."""
    kept = {name: value for name, value in os.environ.items() if _VARIABLES.fullmatch(name)}
    environment = python_process.environment({**kept, "HOME": "/tmp"})
    reader, writer = os.pipe()
    with open(reader, "rb") as confined, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as error:
        process = subprocess.Popen(
            command, stdin=writer, stdout=output, stderr=error, env=environment, start_new_session=True
        )
        os.close(writer)
        _running.add(process.pid)
        until = time.monotonic() + seconds
        try:
            while process.poll() is None:
                time.sleep(_POLL)
                if time.monotonic() > until:
                    late = f"expected an answer of the sandbox within {seconds:g} s"
                    raise CapabilityError(late, "judge it alone: other candidates' compilers may take the processors")
                threads, memory = _used(process.pid)
                if threads > _MOST_THREADS or memory > MEMORY:
                    limits = f"{_MOST_THREADS} threads and {MEMORY >> 20} MiB of memory"
                    raise UsageError(f"expected at most {limits} in the sandbox")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            _running.discard(process.pid)
            process.wait()
        if (size := os.fstat(output.fileno()).st_size) > _MOST_OUTPUT:
            limit = f"at most {_MOST_OUTPUT >> 20} MiB of launches and cubins (as base64)"
            raise UsageError(f"expected {limit} from the sandbox, found {size / 2**20:.1f} MiB")
        output.seek(0)
        error.seek(0)
        return confined.read() != b"", process.returncode, output.read(), error.read(1 << 20)


def _used(process: int) -> tuple[int, int]:
    """The threads of a process and its descendants, counted up to more than they may be, and the bytes of memory that
    they have, shared ones each: nothing else limits their sum, nor the number of root's threads."""
    left, count, pages = [process], 0, 0
    while left and count <= _MOST_THREADS:
        with contextlib.suppress(OSError):  # it may have ended
            folder = Path(f"/proc/{left.pop()}")
            pages += int((folder / "statm").read_text().split()[1])
            for children in (folder / "task").glob("*/children"):
                count += 1
                left += map(int, children.read_text().split())
    return count, pages * resource.getpagesize()
