"""``flashcore watch --host``: files are edited and answers shown here, and a ``flashcore watch`` answers there.

A lost connection ends the session there. The next one sends what changed and starts another, which has all builds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import threading
import time
from pathlib import Path
from typing import Any

from flashcore.cli import options
from flashcore.errors import Exit
from flashcore.measure.settings import Settings
from flashcore.plugins.ssh import PLUGIN
from flashcore.plugins.ssh.host import Broken, Remote, send
from flashcore.plugins.watch import command

#: What is sent has no revisions.
_KEYS = {key: does for key, does in command.KEYS.items() if key != "c"}
_LONGEST = 30.0  # seconds between two attempts to connect
_PATIENCE = 5.0  # seconds for the session there to end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", metavar="ADDRESS", help=PLUGIN.help["--host"])


def run(arguments: argparse.Namespace) -> int | None:
    if arguments.host is None:
        return None
    settings, events = options.settings(arguments, upto="profile", join=False), command.Events()
    session = _Session(arguments.host, settings, events)

    def folders() -> list[Path]:
        return [folder for folder in session.remote.folders if folder.is_dir()]

    with command.interface(arguments, settings, folders, events, _KEYS) as inputs:
        session.start()
        try:
            for kind, value in inputs:
                session.tell(value if kind == "key" else "")
        finally:
            session.close()
    return Exit.OK


class _Session(threading.Thread):
    """The session there, over one connection after the other."""

    def __init__(self, address: str, settings: Settings, events: command.Events) -> None:
        super().__init__(daemon=True)
        self.remote = Remote(address, settings, events.say)
        self._address, self._settings, self._events = address, settings, events
        self._ssh: Any = None
        self._hashes: dict[str, str] = {}  # of the files there; none: a connection has not sent them yet
        self._sending = threading.Lock()
        self._records = False  # a run, as soon as the session there has ended
        self._over = threading.Event()
        self._save = 0

    def tell(self, keys: str = "") -> None:
        """Passes on keys, and the files that changed."""
        if keys == "r":
            self._records, keys = True, "q"
        with self._sending, contextlib.suppress(OSError, ValueError):  # the connection ended
            if not self._hashes:
                return
            before, self._hashes = self._hashes, self.remote.hashes()
            files = [name for name, digest in self._hashes.items() if before.get(name) != digest]
            gone = [*before.keys() - self._hashes.keys()]
            message = {"keys": keys, "gone": gone, "time": time.time()}
            self._ssh.stdin.write(json.dumps(message).encode() + b"\n")
            send(self._ssh.stdin, files)

    def run(self) -> None:
        """Connects until it is closed, or until a new connection would not help."""
        wait = 1.0
        try:
            while not self._over.is_set():
                if self._records:
                    self._records = False
                    self._events.say("recording a run")
                    command.record(self._settings, self._events, "--host", self._address)
                try:
                    with self.remote.connected(watch=True) as self._ssh:
                        self._answer()
                except Broken as broken:
                    wait = 1.0 if self._hashes else min(2 * wait, _LONGEST)
                    self._events.say(f"{self.remote.host}: the connection ended ({broken}); connecting again")
                    self._over.wait(wait)
                finally:
                    with self._sending:
                        self._ssh, self._hashes = None, {}
        except BaseException as error:
            self._events.put(command.Event("crash", error))

    def _answer(self) -> None:
        """Shows what the session there answers, until it ends."""
        before, outcome, hashes = self._save, dict[str, Any](), self.remote.hashes()
        for message in self.remote.messages(self._ssh, hashes):
            outcome |= message
            if "needed" in message:
                self._hashes = hashes
                self.tell()  # what was saved meanwhile
            elif "event" in message:
                if "save" in message:
                    message["save"] = self._save = before + message["save"]
                self._events.tell(**message)
            elif "over" in message:
                break
        if not (self._records or self._over.is_set()):
            raise self.remote.failure(outcome, f"expected answers, found the session's end: {outcome['over']}")

    def close(self) -> None:
        """Ends the session there."""
        self._over.set()
        self.tell("q")
        self.join(_PATIENCE if self._hashes else 0.0)
        if self._ssh:
            self._ssh.terminate()
        self.join()
