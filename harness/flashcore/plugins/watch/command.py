"""``flashcore watch``: answers the four questions after each save."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from flashcore.cli import options, terminal
from flashcore.errors import CapabilityError, Exit, FlashcoreError
from flashcore.measure.machine import python_process
from flashcore.plugins.watch.screen import Screen
from flashcore.plugins.watch.serve import Live
from flashcore.plugins.watch.session import Obsolete, Save, Session

JSON_VERSION = 1
KEYS = {"b": "time longer", "p": "all again", "c": "compare with the commit", "r": "record", "q": "quit"}
#: ms: changes that follow each other this closely are one save.
_STEP, _MOST = 20, 200
_TICK = 0.5  # seconds

EXAMPLES = (
    ("flashcore watch --variant wide --shape small", "one case, after each save"),
    ("flashcore watch --format jsonl", "one JSON object per line, for editors and programs"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_cases(parser)
    text = "one JSON object per line, also on a terminal"
    parser.add_argument("--format", choices=("jsonl",), help=text)
    text = "show the answers on a page at 127.0.0.1 too, on this port (default: any free one)"
    parser.add_argument("--serve", type=int, nargs="?", const=0, metavar="PORT", help=text)


class _Event(NamedTuple):
    """``files`` were saved, a ``key`` was pressed, or there is something to ``show``."""

    kind: Literal["files", "key", "show", "crash"]
    value: Any


def run(arguments: argparse.Namespace) -> int:
    if importlib.util.find_spec("watchfiles") is None:
        raise CapabilityError("watchfiles is missing", "pip install watchfiles, or flashcore-harness[watch]")
    settings = options.settings(arguments, upto="profile", join=False)
    events: queue.Queue[_Event] = queue.Queue()

    def say(text: str) -> None:
        events.put(_Event("show", {"event": "working", "what": str(text)}))

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: events.put(_Event("key", "q")))
    on_terminal = terminal.is_rich(sys.stdout) and sys.stdin.isatty() and arguments.format != "jsonl"
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(Session(settings, say))
        live = stack.enter_context(Live(arguments.serve)) if arguments.serve is not None else None
        shown = stack.enter_context(Screen(KEYS)).show if on_terminal else _written

        def show(event: Mapping[str, Any]) -> None:
            if live and event:
                live.put({"version": JSON_VERSION, **event})
            shown(event)

        if live:
            shown({"event": "serving", "message": f"live page: {live.address}"})
        loop = _Loop(session, events, show)
        if on_terminal:
            stack.enter_context(_single_keys())
            threading.Thread(target=loop.read_keys, daemon=True).start()
        loop.run()
    return Exit.OK


def _written(event: Mapping[str, Any]) -> None:
    if event:
        print(json.dumps({"version": JSON_VERSION, **event}, ensure_ascii=False, allow_nan=False), flush=True)


@contextlib.contextmanager
def _single_keys() -> Iterator[None]:
    """The terminal gives each key at once, and does not show it."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


class _Loop:
    """Takes saves and keys; another thread answers them, one after the other.

    Args:
        show: takes an event as JSON, and an empty one twice a second while nothing is measured.
    """

    def __init__(
        self, session: Session, events: queue.Queue[_Event], show: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self._session, self._events, self._show = session, events, show
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._number = 0
        self._left: set[Path] = set()  # saved, and not answered to the end
        self._all = True  # everything selected is to be answered
        self._over = threading.Event()

    def run(self) -> None:
        """Goes on until the user quits."""
        worker = threading.Thread(target=self._work)
        worker.start()
        threading.Thread(target=self._watch, daemon=True).start()
        self._save(())
        try:
            while True:
                try:
                    kind, value = self._events.get(timeout=_TICK)
                except queue.Empty:
                    if self._jobs.empty():
                        self._show({})
                    continue
                if kind == "crash":
                    raise value
                if (kind, value) == ("key", "q"):
                    return
                if kind == "show":
                    self._show(value)
                elif kind == "files":
                    self._save(value)
                else:
                    self._press(value)
        finally:
            self._over.set()
            self._session.interrupt()
            self._jobs.put(None)
            worker.join()

    def read_keys(self) -> None:
        """Passes on each key."""
        while key := sys.stdin.read(1):
            self._events.put(_Event("key", key))

    def _watch(self) -> None:
        """The thread that notices saves; if it cannot, the command ends."""
        try:
            self._watch_files()
        except (OSError, RuntimeError) as error:
            hint = "for a limit of inotify, raise fs.inotify.max_user_watches (sysctl)"
            self._events.put(_Event("crash", CapabilityError(f"files cannot be watched: {error}", hint)))

    def _watch_files(self) -> None:
        import watchfiles

        session = self._session
        ignored = [str(Path(p).resolve()) for p in (session.settings.build, session.settings.profiles, "reports")]
        sources = watchfiles.DefaultFilter(ignore_paths=ignored)
        for changes in watchfiles.watch(
            *session.paths, watch_filter=sources, step=_STEP, debounce=_MOST, stop_event=self._over
        ):
            # An editor's temporary file is gone by now; of a removed source, the variants that need it are unknown.
            files = [path for _, name in changes if (path := Path(name)).exists()]
            self._events.put(_Event("files", files or [Path(name) for _, name in changes]))

    def _save(self, files: Collection[Path], *, longer: bool = False) -> None:
        """Has a save answered, instead of what is under way."""
        times = [f.stat().st_mtime for f in files if f.exists()]
        began = time.monotonic() - max(0.0, time.time() - max(times)) if times else time.monotonic()
        self._number += 1
        save = Save(self._number, began, files, longer)
        self._show({"event": "save", "save": save.number, "files": sorted(f.name for f in files)})
        self._session.interrupt()
        self._jobs.put(lambda: self._answer(save))

    def _press(self, key: str) -> None:
        session = self._session
        if key in ("b", "p"):
            self._save((), longer=key == "b")
        elif key == "c":
            self._jobs.put(lambda: session.compare_with("HEAD"))
        elif key == "r":
            self._jobs.put(self._record)

    def _work(self) -> None:
        """The thread that answers: one job after the other."""
        while job := self._jobs.get():
            try:
                job()
            except Obsolete:
                continue
            except FlashcoreError as error:
                self._tell("error", message=str(error))
                continue
            except BaseException as error:
                self._events.put(_Event("crash", error))
                return
            self._tell("idle")

    def _answer(self, save: Save) -> None:
        self._left.update(save.files)
        if save.number != self._number:
            raise Obsolete
        self._all |= not save.files
        for answer in self._session.answers(replace(save, files=() if self._all else frozenset(self._left))):
            self._events.put(_Event("show", answer.as_json()))
        self._left.clear()
        self._all = False

    def _record(self) -> None:
        """Records a run of what is watched, as ``flashcore profile`` does."""
        settings = self._session.settings
        self._session.release()
        words = ["profile", "--suite", settings.suite, "--build-dir", settings.build, "--profiles", settings.profiles]
        words += ["--variant", settings.variant] if settings.variant else []
        words += [word for shape in settings.shapes for word in ("--shape", shape)]
        done = subprocess.run(
            python_process.command("flashcore", *words), env=python_process.environment(),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        lines = [x for x in done.stdout.splitlines() if x.startswith(("run:", "report:"))]
        self._tell("recorded", exit_code=done.returncode, lines=lines or done.stderr.splitlines()[-3:])

    def _tell(self, event: str, **more: Any) -> None:
        self._events.put(_Event("show", {"event": event, "save": self._number, **more}))
