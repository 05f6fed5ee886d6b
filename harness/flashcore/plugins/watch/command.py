"""``flashcore watch``: answers the four questions after each save."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from flashcore.cli import options, terminal
from flashcore.errors import CapabilityError, Exit, FlashcoreError
from flashcore.measure.machine import python_process
from flashcore.measure.settings import Settings
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


class Event(NamedTuple):
    """``files`` were saved, a ``key`` was pressed, there is JSON to ``show``, or an error ends the command."""

    kind: Literal["files", "key", "show", "crash"]
    value: Any


class Events(queue.Queue[Event]):
    """What happens, from every thread; SIGTERM and Ctrl-C quit."""

    def __init__(self) -> None:
        super().__init__()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.put(Event("key", "q")))

    def tell(self, event: str, **more: Any) -> None:
        """Shows an event."""
        self.put(Event("show", {"event": event, **more}))

    def say(self, text: str) -> None:
        """Shows what is being done."""
        self.tell("working", what=str(text))


def run(arguments: argparse.Namespace) -> int:
    events, settings = Events(), options.settings(arguments, upto="profile", join=False)
    with (
        Session(settings, events.say) as session,
        interface(arguments, settings, session.paths, events) as inputs,
    ):
        _Loop(session, events).run(inputs)
    return Exit.OK


@contextlib.contextmanager
def interface(
    arguments: argparse.Namespace,
    settings: Settings,
    folders: Sequence[Path],
    events: Events,
    keys: Mapping[str, str] = KEYS,
) -> Iterator[Iterator[Event]]:
    """The files that are saved in these folders, and the keys of a terminal or a pipe, until the user quits.

    Meanwhile events are shown in the form that the user chose.
    """
    if importlib.util.find_spec("watchfiles") is None:
        raise CapabilityError("watchfiles is missing", "pip install watchfiles, or flashcore-harness[watch]")
    on_terminal = terminal.is_rich(sys.stdout) and sys.stdin.isatty() and arguments.format != "jsonl"
    over = threading.Event()
    with contextlib.ExitStack() as stack:
        stack.callback(over.set)
        live = stack.enter_context(Live(arguments.serve)) if arguments.serve is not None else None
        shown = stack.enter_context(Screen(keys)).show if on_terminal else _written
        if live:
            shown({"event": "serving", "message": f"live page: {live.address}"})
        if on_terminal:
            stack.enter_context(_single_keys())
        threading.Thread(target=_watch, args=(folders, settings, events, over), daemon=True).start()
        if on_terminal or (sys.stdin and not sys.stdin.isatty()):  # a job in the background must not read a terminal
            threading.Thread(target=_read_keys, args=(events,), daemon=True).start()

        def show(event: Mapping[str, Any]) -> None:
            if live and event:
                live.put({"version": JSON_VERSION, **event})
            shown(event)

        yield _inputs(events, show)


def _inputs(events: Events, show: Callable[[Mapping[str, Any]], None]) -> Iterator[Event]:
    while True:
        try:
            event = events.get(timeout=_TICK)
        except queue.Empty:
            event = Event("show", {})  # lets the ages grow
        if event.kind == "crash":
            raise event.value
        if event == ("key", "q"):
            return
        if event.kind == "show":
            show(event.value)
        else:
            yield event


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


def _read_keys(events: Events) -> None:
    while key := os.read(0, 1):
        events.put(Event("key", key.decode(errors="replace")))


def _watch(folders: Sequence[Path], settings: Settings, events: Events, over: threading.Event) -> None:
    """The thread that notices saves; if it cannot, the command ends."""
    import watchfiles

    ignored = [str(Path(p).resolve()) for p in (settings.build, settings.profiles, "reports")]
    sources = watchfiles.DefaultFilter(ignore_paths=ignored)
    try:
        for changes in watchfiles.watch(*folders, watch_filter=sources, step=_STEP, debounce=_MOST, stop_event=over):
            # An editor's temporary file is gone by now; of a removed source, the variants that need it are unknown.
            files = [path for _, name in changes if (path := Path(name)).exists()]
            events.put(Event("files", files or [Path(name) for _, name in changes]))
    except (OSError, RuntimeError) as error:
        hint = "for a limit of inotify, raise fs.inotify.max_user_watches (sysctl)"
        events.put(Event("crash", CapabilityError(f"files cannot be watched: {error}", hint)))


def record(settings: Settings, events: Events, *more: str, **shown: Any) -> None:
    """Records a run of what is watched, as ``flashcore profile`` does."""
    words = ["profile", "--suite", settings.suite, "--build-dir", settings.build, "--profiles", settings.profiles]
    words += ["--variant", settings.variant] if settings.variant else []
    words += [word for shape in settings.shapes for word in ("--shape", shape)]
    done = subprocess.run(
        python_process.command("flashcore", *words, *more), env=python_process.environment(),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    lines = [x for x in done.stdout.splitlines() if x.startswith(("run:", "report:"))]
    events.tell("recorded", exit_code=done.returncode, lines=lines or done.stderr.splitlines()[-3:], **shown)


class _Loop:
    """Takes saves and keys; another thread answers them, one after the other."""

    def __init__(self, session: Session, events: Events) -> None:
        self._session, self._events = session, events
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._number = 0
        self._left: set[Path] = set()  # saved, and not answered to the end
        self._all = True  # everything selected is to be answered

    def run(self, inputs: Iterable[Event]) -> None:
        """Goes on until the inputs end."""
        worker = threading.Thread(target=self._work)
        worker.start()
        self._save(())
        try:
            for kind, value in inputs:
                if kind == "files" or value in ("b", "p"):
                    self._save(value if kind == "files" else (), longer=value == "b")
                elif value == "c":
                    self._jobs.put(lambda: self._session.compare_with("HEAD"))
                elif value == "r":
                    self._jobs.put(self._record)
        finally:
            self._session.interrupt()
            self._jobs.put(None)
            worker.join()

    def _save(self, files: Collection[Path], *, longer: bool = False) -> None:
        """Has a save answered, instead of what is under way."""
        times = [f.stat().st_mtime for f in files if f.exists()]
        began = time.monotonic() - max(0.0, time.time() - max(times)) if times else time.monotonic()
        self._number += 1
        save = Save(self._number, began, files, longer)
        self._events.tell("save", save=save.number, files=sorted(f.name for f in files))
        self._session.interrupt()
        self._jobs.put(lambda: self._answer(save))

    def _work(self) -> None:
        """The thread that answers: one job after the other."""
        while job := self._jobs.get():
            try:
                job()
            except Obsolete:
                continue
            except FlashcoreError as error:
                self._events.tell("error", save=self._number, message=str(error))
                continue
            except BaseException as error:
                self._events.put(Event("crash", error))
                return
            self._events.tell("idle", save=self._number)

    def _answer(self, save: Save) -> None:
        self._left.update(save.files)
        if save.number != self._number:
            raise Obsolete
        self._all |= not save.files
        for answer in self._session.answers(replace(save, files=() if self._all else frozenset(self._left))):
            self._events.tell("answer", **asdict(answer))
        self._left.clear()
        self._all = False

    def _record(self) -> None:
        self._session.release()
        record(self._session.settings, self._events, save=self._number)
