"""The part of ``--host`` that runs on the host: ssh passes this text to the host's Python, with a request in JSON.

It imports only the standard library. A folder in the user's cache holds a suite's files and this package below
``sources``, by their paths on the sender's machine, and the builds and runs. The job that records runs is a separate
process, which a broken connection does not end: every connection forwards its log from the beginning. A process that
watches ends with its connection, or when another takes its place. Messages are JSON, one per line; files are tar
archives.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

#: Starts the job from the package that was sent.
_JOB = "import sys; sys.path.insert(0, sys.argv[1]); from flashcore.plugins.ssh import job; job.main(*sys.argv[2:])"
_LOOK = 0.2  # seconds between two looks at the log


def main(request: Mapping[str, Any], given: IO[bytes], out: IO[bytes]) -> None:
    """Serves one connection: stops the job, or starts or joins it, forwards its log and sends its runs."""
    if sys.version_info < (3, 11):  # noqa: UP036  the host's Python may be any
        sys.exit(f"expected Python 3.11 or newer, found {sys.version}")
    os.umask(0o077)
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "flashcore", "ssh", request["key"])
    folder.mkdir(parents=True, exist_ok=True)
    state = folder / "job.json"
    job: dict[str, Any] = json.loads(state.read_bytes()) if state.exists() else {"id": ""}
    if request["stop"]:
        if job["id"] == request["id"]:
            _stop(folder, job["pid"])
            state.unlink()
        return
    lock, files, watch = _lock(folder), json.loads(given.readline()), request["watch"]
    if watch and not lock and "pid" in job and not job["id"]:  # of a connection that was lost
        _stop(folder, job["pid"])
        lock = _lock(folder)
    if job["id"] == request["id"] or (job["id"] and request["resume"]):
        if job["files"] != files:
            _put(out, error="expected the sources that the run there began with, found others", code=2, over="")
            return
        _put(out, id=job["id"], folder=str(folder), needed=None)
    elif lock:
        _put(out, id=request["id"], folder=str(folder), needed=_needed(folder / "sources", files))
        unpack(given, folder / "sources")
        process = _start(folder, request, lock)
        # A session can be neither joined nor stopped by its id.
        state.write_text(json.dumps({"id": "" if watch else request["id"], "files": files, "pid": process.pid}))
    else:
        hint = "join it with --resume, or wait for its end" if job["id"] else "end its `flashcore watch --host`"
        _put(out, error=f"expected no run of this suite under way there, found one\n  hint: {hint}", code=2, over="")
        return
    lock = None  # closes it
    if watch:
        threading.Thread(target=_follow, args=(given, process, folder / "sources"), daemon=True).start()
        try:
            while line := process.stdout.readline():
                out.write(line)
                out.flush()
        finally:
            process.terminate()
            process.wait()
        _put(out, over=_errors(folder))
        os._exit(0)  # a thread still reads
    with open(folder / "log", "rb") as log:
        over = False
        while not over:
            over = _lock(folder) is not None  # before the log is read, so that no last line is missed
            shutil.copyfileobj(log, out)
            out.flush()
            if not over and select.select([given], [], [], _LOOK)[0]:  # the connection ended
                return
    _put(out, over=_errors(folder))
    with open(folder / "runs.tar", "rb") as runs:
        shutil.copyfileobj(runs, out)
    out.flush()
    if given.readline():  # the runs, or the error, have arrived
        state.unlink()


def unpack(archive: IO[bytes], folder: Path, later: float = 0.0) -> None:
    """Unpacks a tar archive from a stream, its files' times so many seconds later."""
    with tarfile.open(fileobj=archive, mode="r|") as files:
        if safe := getattr(tarfile, "data_filter", None):  # since Python 3.11.4
            files.extraction_filter = lambda file, to: safe(file.replace(mtime=file.mtime + later, deep=False), to)
        files.extractall(folder)
        files.fileobj.read(tarfile.BLOCKSIZE)  # the second of the last two blocks, in a record of its own or not


def _follow(given: IO[bytes], session: Any, sources: Path) -> None:
    """Passes on keys and changed files to a session, and ends it when the connection ends."""
    try:
        while line := given.readline():
            message = json.loads(line)
            os.write(session.stdin.fileno(), message["keys"].encode())
            for name in message["gone"]:
                (sources / name).unlink(missing_ok=True)
            unpack(given, sources, time.time() - message["time"])  # the clocks may differ
    finally:
        session.terminate()


def _errors(folder: Path) -> str:
    """The end of what the job wrote to standard error."""
    return (folder / "errors").read_text(errors="replace")[-2000:]


def _put(out: IO[bytes], **message: Any) -> None:
    out.write(b"\n%s\n" % json.dumps(message).encode())  # the line before may be cut
    out.flush()


def _lock(folder: Path) -> IO[bytes] | None:
    """The lock that the job has until it ends, however it ends; ``None`` while it has it."""
    lock = open(folder / "lock", "ab")  # noqa: SIM115  its last reference closes it
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    return lock


def _needed(sources: Path, files: Mapping[str, str]) -> list[str]:
    """Removes what is not among the files; the names of those that are missing or have another hash."""
    for path in sorted(sources.rglob("*"), reverse=True):  # a folder after what is in it
        if path.is_dir():
            with contextlib.suppress(OSError):
                path.rmdir()
        elif str(path.relative_to(sources)) not in files:
            path.unlink()
    return [name for name, digest in files.items() if hashed(sources / name) != digest]


def hashed(path: Path) -> str:
    """The SHA-256 of a file; empty if there is none."""
    with contextlib.suppress(FileNotFoundError):
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return ""


def _start(folder: Path, request: Mapping[str, Any], lock: IO[bytes]) -> Any:
    """Starts the job in a session of its own, with the lock."""
    package, cwd = (folder / "sources" / request[name] for name in ("package", "cwd"))
    cwd.mkdir(parents=True, exist_ok=True)
    (folder / "runs.tar").write_bytes(b"")
    with open(folder / "log", "wb") as log, open(folder / "errors", "wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _JOB, package, folder, json.dumps(request)],
            cwd=cwd,
            env={**os.environ, **request["environment"], "PYTHONPYCACHEPREFIX": str(folder / "bytecode")},
            stdin=subprocess.PIPE if request["watch"] else subprocess.DEVNULL,
            stdout=subprocess.PIPE if request["watch"] else log,
            stderr=errors,
            start_new_session=True,
            pass_fds=[lock.fileno()],
        )


def _stop(folder: Path, pid: int) -> None:
    """Interrupts the job as Ctrl-C would, and waits for its end."""
    if not _lock(folder):
        os.killpg(pid, signal.SIGINT)
    while not _lock(folder):
        time.sleep(_LOOK)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
