"""Records runs on another host through the system's ``ssh``, and brings them into this machine's folder of runs.

The suite, its include folders and this package are sent as a tar archive; builds stay there. The run there is a process
of its own, which writes a log: a connection only follows that, and the next one continues where the last one broke. The
host needs Python, ``sh``, ``tar``, ``tail`` and ``flock``.
"""

from __future__ import annotations

import io
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
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import flashcore
from flashcore.errors import CapabilityError, Exit, FlashcoreError, UsageError
from flashcore.machine.environment import commit_of
from flashcore.model.files import text_hash
from flashcore.model.progress import FailureLine, ProgressLine, Say, prefixed
from flashcore.model.settings import Settings
from flashcore.pipeline.run import RecordedRun
from flashcore.records import store
from flashcore.suites.load import load

_SSH = "ssh -TC -oBatchMode=yes -oClearAllForwardings=yes -oConnectTimeout=10 -oServerAliveInterval=15 --"
_SSH_FAILED, _BUSY = 255, 75
_BEGIN = b"flashcore begins\n"  # after what a shell prints
_ATTEMPTS = 100  # to make a broken connection again, one per second or slower
_ENVIRONMENT = ("CUDA_ARCH", "DEBUG", "FLASHCORE_HOST")  # the user's choices that hold there too
_LINES = {kind.__name__: kind for kind in (str, ProgressLine, FailureLine)}
_JOB = "import sys; sys.path.insert(0, sys.argv[1]); from flashcore.features.ssh import job; job.main(*sys.argv[2:])"
#: Scripts there, in the suite's folder, which has ``sources``, ``build``, ``profiles``, and of the last job ``lock``,
#: ``pid``, ``log`` and ``errors``; ``watcher`` is the process of a session.
_STATE = "flock -n lock true || echo busy; [ ! -e log ] || echo log"
ALONE = "flock -n lock true || { [ -e watcher ] && { kill $(cat watcher); flock -w 20 lock true; }; } || exit 75\n"
FRESH = "rm -rf new && mkdir new && tar xzf - -C new && rm -rf sources && mv new sources"
CHANGED = "tar xzmf - -C sources && cd sources && rm -f --"
_RUN = "rm -f watcher; setsid {} > $f/log 2> $f/errors < /dev/null & echo $! > $f/pid"
WATCH = "echo $$ > $f/watcher; exec {} 2> $f/errors"
_STOP = "kill -INT -$(cat pid) && flock lock true || true"


@dataclass(frozen=True, slots=True)
class Host:
    """A host, as an executor of whole runs (:class:`flashcore.pipeline.run.Elsewhere`): ``[user@]host[:python]``."""

    address: str

    def places(self, requested: str, say: Say) -> NoReturn:
        """Only whole runs are recorded there."""
        raise UsageError("--host: expected with profile, check, bench or sanitize, found with another command")

    def record_run(self, settings: Settings, say: Say, *, resume: bool, needed: bool) -> RecordedRun:
        """See :func:`flashcore.pipeline.run.record_run`. ``resume`` first joins a run that a lost connection left
        there, or fetches it.

        Raises:
            UsageError: the address is none, or another run is under way there.
            CapabilityError: ssh cannot connect, or Python is missing there.
            FlashcoreError: as the run there.
        """
        remote = Remote(self.address, settings, say)
        state = {*remote.ask(_STATE).split()}
        try:
            if not (resume and state):
                if b"busy" in state:
                    raise remote.busy()
                remote.ask(FRESH, archive(remote.files()))
                remote.ask(remote.job(_RUN, resume=resume, needed=needed))
            return remote.recorded()
        except KeyboardInterrupt:
            say(FailureLine(f"{remote.host}: ending the run there"))
            remote.ask(_STOP)
            raise


class Remote:
    """The work of one command on a host, over one connection after another.

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
        home = "$HOME/" if "/" in python and not python.startswith("/") else ""
        self._python, self._settings, self._say = home + shlex.quote(python or "python3"), settings, say
        self._attempts = 0  # to connect again; none before the first connection
        suite, self._package = load(settings.suite, Path(settings.build)), Path(flashcore.__file__).parent
        self.folders = [Path(os.path.abspath(Path(suite.root, name))) for name in (".", *suite.include)]
        self._skipped = {os.path.abspath(name) for name in (settings.profiles, settings.build, "reports")}
        commit, dirty = commit_of(Path(suite.root))
        self._environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        self._environment["FLASHCORE_COMMIT"] = f"{commit or ''}{'-dirty' * bool(dirty)}"
        key = text_hash(f"{platform.node()}:{self.folders[0]}")[:16]
        self._folder = f"${{XDG_CACHE_HOME:-$HOME/.cache}}/flashcore/ssh/{key}"

    def ssh(self, script: str, **ends: Any) -> Any:
        """A process of ssh that runs a script of ``sh`` in the suite's folder there."""
        version = "import sys; sys.exit(sys.version_info < (3, 11))"
        begin = f'umask 077; f="{self._folder}"; mkdir -p "$f/profiles" && cd "$f" && {self._python} -c "{version}" >&2'
        script = f"{begin} || exit\necho; echo {_BEGIN.decode().strip()}\n{script}"
        # In a session of its own: Ctrl-C must not end it before the run there.
        command = [*_SSH.split(), self.host, f"exec sh -c {shlex.quote(script)}"]
        return subprocess.Popen(command, **ends, stderr=subprocess.PIPE, start_new_session=True)

    def ask(self, script: str, given: bytes = b"") -> bytes:
        """What a script prints, which gets ``given``; connects again if the connection breaks.

        Raises:
            UsageError, CapabilityError: see :meth:`failed`.
        """
        while True:
            process = self.ssh(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            out, errors = process.communicate(given)
            if process.returncode == 0:
                self._attempts = _ATTEMPTS
                return bytes(out).partition(_BEGIN)[2]
            self.failed(process.returncode, errors)

    def failed(self, code: int, errors: bytes) -> None:
        """Waits before the next attempt to connect.

        Raises:
            UsageError: another job is under way there.
            CapabilityError: ssh cannot connect, or Python is missing there.
        """
        if code == _BUSY:
            raise self.busy()
        reason = errors.decode(errors="replace").strip() or f"exit code {code} of ssh"
        if not self._attempts or not (code < 0 or code == _SSH_FAILED):
            hint = f"{_SSH} {self.host} {self._python} --version must print 3.11 or newer; --resume joins a run there"
            raise CapabilityError(f"{self.host}: expected a connection with Python there, found: {reason}", hint)
        self._attempts -= 1
        self._say(FailureLine(f"{self.host}: the connection ended ({reason}); connecting again"))
        time.sleep(1.0)

    def busy(self) -> UsageError:
        """The error where another job of the suite is under way there."""
        hint = "join it with --resume, or wait for its end; end its `flashcore watch --host`"
        return UsageError(f"{self.host}: expected no run of this suite under way there, found one\n  hint: {hint}")

    def files(self) -> dict[str, tuple[int, int]]:
        """The files to send by their names there, each with its time and size."""
        paths = (path for folder in (*self.folders, self._package) for path in _visible(folder, self._skipped))
        return {str(path)[1:]: (s.st_mtime_ns, s.st_size) for path in paths for s in [path.stat()]}

    def job(self, start: str, **requested: bool) -> str:
        """The script that starts a process of :mod:`flashcore.features.ssh.job`, which alone has the lock until it
        ends, however it ends."""
        settings = asdict(
            replace(self._settings, suite=os.path.relpath(self.folders[0]), executor="", records=(), reuse="")
        )
        del settings["check"]["children"]  # by the cores there
        request = shlex.quote(json.dumps({"settings": settings, "resume": False, "needed": False, **requested}))
        variables = shlex.join(f"{name}={value}" for name, value in self._environment.items())
        package, cwd = shlex.quote(str(self._package.parent)[1:]), shlex.quote(os.getcwd()[1:])
        program = f'{self._python} -P -c {shlex.quote(_JOB)} "$f"/sources/{package} "$f" {request}'
        line = start.replace("$f", '"$f"').format(f'env {variables} PYTHONPYCACHEPREFIX="$f"/bytecode {program}')
        return f"exec 9>>lock; flock -n 9 || exit {_BUSY}\nmkdir -p sources/{cwd} && cd sources/{cwd} || exit\n{line}"

    def failure(self, outcome: Mapping[str, Any], ended: str) -> FlashcoreError:
        """The error of a job; ``ended``: if it names none."""
        error = FlashcoreError(f"{self.host}: {outcome.get('error', ended)}")
        error.exit_code = Exit(outcome.get("code", Exit.INCAPABLE))  # type: ignore[call-arg]
        return error

    def plain(self, line: bytes) -> dict[str, Any]:
        """A message of the job, without the name of its folder; empty for other lines."""
        try:
            return dict(json.loads(re.sub(rb"[^\s\"']*/flashcore/ssh/[0-9a-f]{16}/sources(?=/)", b"", line)))
        except (TypeError, ValueError):  # printed by a shell, or cut by a kill
            return {}

    def recorded(self) -> RecordedRun:
        """The run of the job there, brought here when it has ended."""
        seen, over, outcome = 0, False, dict[str, Any]()
        while not over:
            script = f"exec tail -c +{seen + 1} -s 0.2 --pid=$(cat pid) -f log"
            with self.ssh(script, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as tail:
                lines = iter(tail.stdout)
                any(line == _BEGIN for line in lines)
                for line in lines:
                    if line.endswith(b"\n"):
                        seen += len(line)
                        outcome |= (message := self.plain(line))
                        if kind := message.get("say"):
                            prefixed(self._say, f"{self.host}: ")(_LINES[kind[0]](*kind[1:]))
                errors = tail.stderr.read()
            if over := tail.returncode == 0:
                break
            self.failed(tail.returncode, errors)
        if "run" not in outcome:
            last = "" if "error" in outcome else self.ask("tail -c 2000 errors").decode(errors="replace")
            self.ask("rm -f log")
            raise self.failure(outcome, f"expected a run, found its end: {last}\n  hint: continue with --resume")
        name, variants, shapes = outcome["run"]
        folder = Path(self._settings.profiles, name)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent) as temporary:
            with tarfile.open(fileobj=io.BytesIO(self.ask(f"tar c -C profiles {name}"))) as packed:
                packed.extractall(temporary, filter="data")
            if not folder.exists():
                Path(temporary, name).rename(folder)
        self.ask("rm -f log")
        settings = replace(self._settings, variants=tuple(variants), shapes=tuple(shapes))
        return RecordedRun(store.read(folder), folder, settings)


def archive(names: Iterable[str]) -> bytes:
    """A tar archive of files by their names there; those that are gone are left out."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", dereference=True, compresslevel=1) as files:
        for name in filter(lambda name: os.path.isfile(f"/{name}"), names):
            files.add(f"/{name}", name)
    return packed.getvalue()


def _visible(folder: Path, skipped: Collection[str]) -> Iterator[Path]:
    """The files below a folder, but hidden ones."""
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [
            n for n in folders if n[0] != "." and n != "__pycache__" and os.path.join(place, n) not in skipped
        ]
        yield from (path for name in names if name[0] != "." and (path := Path(place, name)).is_file())
