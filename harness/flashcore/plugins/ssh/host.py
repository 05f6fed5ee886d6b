"""Records runs on another host through the system's ``ssh``, and brings them into this machine's folder of runs.

The suite, its include folders and this package are sent, each file once by content hash; builds stay there. The run
goes on while the connection is broken, and a new connection joins it. Nothing listens there but what ssh starts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, NoReturn

import flashcore
from flashcore.errors import CapabilityError, Exit, FlashcoreError, UsageError
from flashcore.measure.machine.environment import commit_of
from flashcore.measure.settings import Settings
from flashcore.model.progress import Failure, Step, prefixed
from flashcore.pipeline.run import Run
from flashcore.plugins.ssh import agent
from flashcore.records import store
from flashcore.suites.load import load

Say = Callable[[str], None]

_SSH = "ssh -TC -oBatchMode=yes -oClearAllForwardings=yes -oConnectTimeout=10 -oServerAliveInterval=15 --"
_SSH_FAILED = 255
_ATTEMPTS = 100  # to make a broken connection again, one per second or slower
_ENVIRONMENT = ("CUDA_ARCH", "DEBUG", "FLASHCORE_HOST")  # the user's choices that hold there too
_LINES = {kind.__name__: kind for kind in (str, Step, Failure)}


@dataclass(frozen=True, slots=True)
class Host:
    """A host, as an executor of whole runs (:class:`flashcore.pipeline.run.Elsewhere`): ``[user@]host[:python]``."""

    address: str

    def places(self, requested: str, say: Say) -> NoReturn:
        """Only whole runs are recorded there."""
        raise UsageError("--host: expected with profile, check, bench or sanitize, found with another command")

    def record_run(self, settings: Settings, say: Say, *, resume: bool = False, needed: bool = False) -> Run:
        """See :func:`flashcore.pipeline.run.record_run`. ``resume`` first joins a run that a lost
        connection left there.

        Raises:
            UsageError: the address is none.
            CapabilityError: ssh cannot connect, or Python is missing there.
            FlashcoreError: as the run there.
        """
        remote = Remote(self.address, settings, say)
        while True:
            try:
                with remote.connected(resume=resume, needed=needed) as ssh:
                    return remote.recorded(ssh)
            except Broken as broken:
                say(Failure(f"{remote.host}: the connection ended ({broken}); connecting again"))
                time.sleep(1.0)
            except KeyboardInterrupt:
                say(Failure(f"{remote.host}: ending the run there"))
                with contextlib.suppress(Broken), remote.connected(stop=True):
                    pass
                raise


class Broken(Exception):
    """A connection ended before its work; it can be tried again."""


class Remote:
    """The work of one command on a host, over one connection or several.

    Attributes:
        folders: of the suite's sources.

    Raises:
        UsageError: the address is none.
        CapabilityError: there is no ssh.
    """

    def __init__(self, address: str, settings: Settings, say: Say) -> None:
        self.host, _, python = address.partition(":")
        if not re.fullmatch(r"[^\s-]\S*", self.host) or python.startswith("-"):
            raise UsageError(f"--host {address}: expected [user@]host[:python], as ssh takes it")
        if not shutil.which("ssh"):
            raise CapabilityError("no ssh found", "install OpenSSH (Debian: apt-get install openssh-client)")
        self._python, self._settings, self._say = python or "python3", settings, say
        self._attempts = self._shown = 0  # to connect again; lines of the job's log
        suite, package = load(settings.suite, Path(settings.build)), Path(flashcore.__file__).parent
        self.folders = [Path(os.path.abspath(Path(suite.root, name))) for name in (".", *suite.include)]
        self._skipped = {os.path.abspath(name) for name in (settings.profiles, settings.build, "reports")}
        commit, dirty = commit_of(Path(suite.root))
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        there = asdict(replace(settings, suite=os.path.relpath(self.folders[0]), executor="", records=(), reuse=""))
        del there["check"]["lanes"]  # by the cores there
        self._request = {
            "id": uuid.uuid4().hex,
            "key": hashlib.sha256(f"{platform.node()}:{self.folders[0]}".encode()).hexdigest()[:16],
            "cwd": os.getcwd()[1:],
            "package": str(package.parent)[1:],
            "environment": environment | {"FLASHCORE_COMMIT": f"{commit or ''}{'-dirty' * bool(dirty)}"},
            "settings": there,
            **dict.fromkeys(("resume", "needed", "stop", "watch"), False),
        }

    @contextlib.contextmanager
    def connected(self, **more: bool) -> Iterator[Any]:
        """An ssh with the agent, which has a request with ``more`` in it.

        Raises:
            Broken: the connection ended.
            CapabilityError: ssh cannot connect, or Python is missing there.
        """
        source, request = Path(agent.__file__).read_text(encoding="utf-8"), json.dumps(self._request | more)
        command = [*_SSH.split(), self.host, f"exec {shlex.join([self._python, '-I', '-c', source, request])}"]
        with tempfile.TemporaryFile() as errors:
            ends: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            try:
                # In a session of its own: Ctrl-C must not end it before the run there.
                with subprocess.Popen(command, **ends, start_new_session=True) as ssh:
                    yield ssh
                return
            except (EOFError, BrokenPipeError, tarfile.ReadError):
                errors.seek(0)
                reason = errors.read().decode(errors="replace").strip() or f"exit code {ssh.returncode} of ssh"
        if self._attempts and (ssh.returncode < 0 or ssh.returncode == _SSH_FAILED):
            self._attempts -= 1
            raise Broken(reason)
        hint = (
            f"{_SSH} {self.host} {self._python} --version must print 3.11 or newer; --resume joins a run that goes on"
        )
        raise CapabilityError(f"{self.host}: expected a connection with Python there, found: {reason}", hint)

    def hashes(self) -> dict[str, str]:
        """The files to send by their names there, each with its content's hash."""
        folders = (*self.folders, Path(flashcore.__file__).parent)
        paths = (path for folder in folders for path in _visible(folder, self._skipped))
        return {str(path)[1:]: agent.hashed(path) for path in paths}

    def messages(self, ssh: Any, hashes: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """What the agent says, without the name of its folder; it is sent the files that it needs.

        Raises:
            EOFError: the connection ended.
        """
        ssh.stdin.write(json.dumps(hashes).encode() + b"\n")
        ssh.stdin.flush()
        sources = "\0"
        while line := ssh.stdout.readline():
            try:
                message = dict(json.loads(line.replace(sources.encode(), b"")))
            except (TypeError, ValueError):  # printed by a shell, or cut by a kill
                continue
            if "needed" in message:
                self._attempts, self._request["id"] = _ATTEMPTS, message["id"]
                sources, needed = f"{message['folder']}/sources", message["needed"]
                if needed is not None:  # by a job that does not have all
                    self._say(f"{self.host}: sending {len(needed)} of {len(hashes)} files")
                    send(ssh.stdin, needed)
            yield message
        raise EOFError

    def failure(self, outcome: Mapping[str, Any], ended: str) -> FlashcoreError:
        """The error of a job; ``ended``: if it names none."""
        error = FlashcoreError(f"{self.host}: {outcome.get('error', ended)}")
        error.exit_code = Exit(outcome.get("code", Exit.INCAPABLE))  # type: ignore[call-arg]
        return error

    def recorded(self, ssh: Any) -> Run:
        """The run of the job there, brought here."""
        outcome: dict[str, Any] = {}
        for number, message in enumerate(self.messages(ssh, self.hashes())):
            outcome |= message
            if "over" in message:
                break
            if "say" in message and number >= self._shown:
                self._shown = number + 1
                kind, *words = message["say"]
                self._say(prefixed(f"{self.host}: ", _LINES[kind](*words)))
        profiles = Path(self._settings.profiles)
        if run := outcome.get("run"):
            profiles.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".", dir=profiles) as temporary:
                agent.unpack(ssh.stdout, Path(temporary))
                for folder in Path(temporary).iterdir():
                    if not (profiles / folder.name).exists():
                        folder.rename(profiles / folder.name)
        if "folder" in outcome:  # else the agent has ended, and waits for no receipt
            ssh.stdin.write(b"\n")
        if not run:
            ended = f"expected a run, found its end: {outcome['over']}\n  hint: continue with --resume"
            raise self.failure(outcome, ended)
        name, variants, shapes = run
        settings = replace(self._settings, variants=tuple(variants), shapes=tuple(shapes))
        return Run(store.read(profiles / name), profiles / name, settings)


def send(to: IO[bytes], names: Iterable[str]) -> None:
    """Sends files by their names there; those that are gone are left out."""
    with tarfile.open(fileobj=to, mode="w|", dereference=True) as archive:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                archive.add(f"/{name}", name)
    to.flush()


def _visible(folder: Path, skipped: Collection[str]) -> Iterator[Path]:
    """The files below a folder, but hidden ones."""
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [
            n for n in folders if n[0] != "." and n != "__pycache__" and os.path.join(place, n) not in skipped
        ]
        yield from (path for name in names if name[0] != "." and (path := Path(place, name)).is_file())
