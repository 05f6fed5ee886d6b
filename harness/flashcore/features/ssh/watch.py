"""``flashcore watch --host``: files are edited and answers shown here, and a ``flashcore watch`` answers there.

A lost connection ends the session there. The next one sends what changed and starts another, which has all builds.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import subprocess
import threading
from pathlib import Path
from typing import Any

from flashcore.cli import options
from flashcore.errors import CapabilityError, Exit
from flashcore.features.ssh import HELP
from flashcore.features.ssh.host import ALONE, CHANGED, FRESH, WATCH, Remote, archive
from flashcore.model.settings import Settings
from flashcore.pipeline import plugins

_PATIENCE = 5.0  # seconds for the session there to end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", metavar="ADDRESS", help=HELP)


def run(arguments: argparse.Namespace) -> int | None:
    if arguments.host is None:
        return None
    watch = plugins.find("commands", "watch")
    settings = options.settings(arguments, upto="profile", join=False)
    keys = {key: does for key, does in watch.KEYS.items() if key != "c"}  # what is sent has no revisions
    with watch.Events() as events:
        session = _Session(arguments.host, settings, events, watch)

        def folders() -> list[Path]:
            return [folder for folder in session.remote.folders if folder.is_dir()]

        with watch.interface(arguments, settings, folders, events, keys) as inputs:
            session.start()
            try:
                for kind, value in inputs:
                    session.tell(value if kind == "key" else "")
            finally:
                session.close()
    return Exit.OK


class _Session(threading.Thread):
    """The session there, over one connection after the other."""

    def __init__(self, address: str, settings: Settings, events: Any, watch: Any) -> None:
        super().__init__(daemon=True)
        self.remote = Remote(address, settings, events.say)
        self._address, self._settings, self._events, self._watch = address, settings, events, watch
        self._ssh: Any = None
        self._sent: dict[str, tuple[int, int]] = {}  # the files there
        self._sending = threading.Lock()
        self._records = False  # a run, as soon as the session there has ended
        self._over = threading.Event()
        self._save = 0

    def tell(self, keys: str = "") -> None:
        """Passes on keys, and the files that changed."""
        if keys == "r":
            self._records, keys = True, "q"
        with self._sending, contextlib.suppress(OSError, ValueError, CapabilityError):  # the connection ended
            if (ssh := self._ssh) is None:
                return
            before, self._sent = self._sent, self.remote.files()
            changed = [name for name, state in self._sent.items() if before.get(name) != state]
            gone = [*before.keys() - self._sent.keys()]
            if changed or gone:
                self.remote.ask(f"{CHANGED} {shlex.join(gone)}", archive(changed))
            ssh.stdin.write(keys.encode())
            ssh.stdin.flush()

    def run(self) -> None:
        """Connects until it is closed, or until a new connection would not help."""
        try:
            while not self._over.is_set():
                if self._records:
                    self._records = False
                    self._events.say("recording a run")
                    self._watch.record(self._settings, self._events, "--host", self._address)
                self._sent = self.remote.files()
                self._events.say(f"{self.remote.host}: sending {len(self._sent)} files")
                self.remote.ask(ALONE + FRESH, archive(self._sent))
                script = self.remote.job(WATCH, watch=True)
                ssh, errors = self.remote.ssh(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE), b""
                with contextlib.suppress(BrokenPipeError), ssh:  # of keys that were not sent
                    self._ssh = ssh
                    self.tell()  # what was saved meanwhile
                    self._answer()
                    self._ssh, errors = None, ssh.stderr.read()
                if ssh.returncode and not self._over.is_set():
                    self.remote.failed(ssh.returncode, errors)
        except BaseException as error:
            self._events.put(self._watch.Event("crash", error))

    def _answer(self) -> None:
        """Shows what the session there answers, until it or the connection ends."""
        before, outcome = self._save, dict[str, Any]()
        for line in self._ssh.stdout:
            message = self.remote.plain(line)
            outcome |= message
            if "event" in message:
                if "save" in message:
                    message["save"] = self._save = before + message["save"]
                self._events.tell(**message)
        if "error" in outcome:
            raise self.remote.failure(outcome, "")

    def close(self) -> None:
        """Ends the session there."""
        self._over.set()
        self.tell("q")
        self.join(_PATIENCE if self._ssh else 0.0)
        if self._ssh:
            self._ssh.terminate()
        self.join()
