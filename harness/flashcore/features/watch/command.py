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
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from flashcore.cli import options, terminal
from flashcore.errors import CapabilityError, Exit, FlashcoreError, MissingPackage
from flashcore.features.watch.screen import drawn
from flashcore.features.watch.serve import Live
from flashcore.features.watch.session import Obsolete, Save, Session
from flashcore.machine import python_process
from flashcore.model.settings import Settings

JSON_VERSION = 1
KEYS = {"b": "time longer", "p": "all again", "c": "compare with the commit", "r": "record", "q": "quit"}
#: ms: changes that follow each other this closely are one save.
_STEP, _MOST = 20, 200
#: ms between two looks at which folders the manifest includes.
_LOOK = 500
#: s: a change noticed later than this was no write.
_RECENT = 30.0

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


class Events(queue.SimpleQueue[Event]):
    """What happens, from every thread, until it is ``over``; inside it, SIGTERM and Ctrl-C quit."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, lambda *_: self.put(Event("key", "q")))
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def tell(self, event: str, **more: Any) -> None:
        """Shows an event."""
        self.put(Event("show", {"version": JSON_VERSION, "event": event, **more}))

    def say(self, text: str) -> None:
        """Shows what is being done."""
        self.tell("working", what=str(text))


def run(arguments: argparse.Namespace) -> int:
    settings = options.settings(arguments, upto="profile", join=False)
    with (
        Events() as events,
        Session(settings, events.say) as session,
        interface(arguments, settings, lambda: session.paths, events) as inputs,
    ):
        _answer(session, events, inputs)
    return Exit.OK


@contextlib.contextmanager
def interface(
    arguments: argparse.Namespace,
    settings: Settings,
    folders: Callable[[], Sequence[Path]],
    events: Events,
    keys: Mapping[str, str] = KEYS,
) -> Iterator[Iterator[Event]]:
    """The files that are saved in these folders, and the keys of a terminal or a pipe, until the user quits.

    Meanwhile events are shown in the form that the user chose.
    """
    if importlib.util.find_spec("watchfiles") is None:
        raise MissingPackage("watch", "watchfiles")
    on_terminal = terminal.is_rich(sys.stdout) and sys.stdin.isatty() and arguments.format != "jsonl"
    with contextlib.ExitStack() as stack:
        stack.callback(events.over.set)
        live = stack.enter_context(Live(arguments.serve)) if arguments.serve is not None else None
        shows = [stack.enter_context(drawn(keys)) if on_terminal else _written]
        if live:
            events.tell("serving", message=f"live page: {live.address}")
            shows.append(live.put)
        if on_terminal:
            stack.enter_context(_single_keys())
        threading.Thread(target=_watch, args=(folders, settings, events), daemon=True).start()
        if on_terminal or (sys.stdin and not sys.stdin.isatty()):  # a job in the background must not read a terminal
            threading.Thread(target=_read_keys, args=(events,), daemon=True).start()
        yield _inputs(events, shows)


def _inputs(events: Events, shows: Sequence[Callable[[Mapping[str, Any]], None]]) -> Iterator[Event]:
    for event in iter(events.get, Event("key", "q")):
        if event.kind == "crash":
            raise event.value
        if event.kind == "show":
            for show in shows:
                show(event.value)
        else:
            yield event
    events.over.set()


def _written(event: Mapping[str, Any]) -> None:
    print(json.dumps(event, ensure_ascii=False, allow_nan=False), flush=True)


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


def _watch(folders: Callable[[], Sequence[Path]], settings: Settings, events: Events) -> None:
    """The thread that notices saves; if it cannot, the command ends."""
    import watchfiles

    ignored = [str(Path(p).resolve()) for p in (settings.build, settings.profiles, "reports")]
    sources = watchfiles.DefaultFilter(ignore_paths=ignored)
    try:
        while not events.over.is_set():
            watched = folders()
            for changes in watchfiles.watch(
                *watched, watch_filter=sources, stop_event=events.over, step=_STEP, debounce=_MOST,
                rust_timeout=_LOOK, yield_on_timeout=True,
            ):  # fmt: skip
                added = {name for change, name in changes if change is watchfiles.Change.added}
                files = {Path(name) for _, name in changes if name not in added or os.path.exists(name)}
                if files:  # else an editor's temporary ones
                    events.put(Event("files", files))
                if folders() != watched:  # the manifest includes others now
                    break
    except (OSError, RuntimeError) as error:
        hint = "for a limit of inotify, raise fs.inotify.max_user_watches (sysctl)"
        events.put(Event("crash", CapabilityError(f"files cannot be watched: {error}", hint)))


def record(settings: Settings, events: Events, *more: str, **shown: Any) -> None:
    """Records a run of what is watched, as ``flashcore profile`` does; interrupts it if the user quits."""
    words = ["profile", "--suite", settings.suite, "--build-dir", settings.build, "--profiles", settings.profiles]
    words += options.selecting(settings)
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = python_process.command("flashcore", *words, *more)
    with subprocess.Popen(command, env=python_process.environment(), text=True, errors="replace", **pipes) as process:
        threading.Thread(target=_interrupt, args=(process, events.over), daemon=True).start()
        output, errors = process.communicate()
    lines = [x for x in output.splitlines() if x.startswith(("run:", "report:"))]
    events.tell("recorded", exit_code=process.returncode, lines=lines or errors.splitlines()[-3:], **shown)


def _interrupt(process: subprocess.Popen[str], over: threading.Event) -> None:
    over.wait()
    process.send_signal(signal.SIGINT)


def _answer(session: Session, events: Events, inputs: Iterable[Event]) -> None:
    """Has saves and keys answered in another thread, one after the other, until the inputs end."""
    jobs: queue.SimpleQueue[tuple[Save, Callable[[Save], None]] | None] = queue.SimpleQueue()

    def work() -> None:
        while job := jobs.get():
            save, do = job
            try:
                do(save)
            except Obsolete:
                continue
            except FlashcoreError as error:
                events.tell("error", save=save.number, message=str(error))
                continue
            except BaseException as error:
                events.put(Event("crash", error))
                return
            events.tell("idle", save=save.number)

    def answer(save: Save) -> None:
        for one in session.answers(save):
            events.tell("answer", **one)

    def save(files: Collection[Path] = (), *, longer: bool = False) -> None:
        age = min(map(_age, files), default=0.0)
        made = session.newest = Save(session.newest.number + 1, time.monotonic() - age, files, longer)
        events.tell("save", save=made.number, files=sorted(f.name for f in files))
        jobs.put((made, answer))

    def recorded(save: Save) -> None:
        session.release()
        record(session.settings, events, save=save.number)

    worker = threading.Thread(target=work)
    worker.start()
    save()
    try:
        for kind, value in inputs:
            if kind == "files" or value in ("b", "p"):
                save(value if kind == "files" else (), longer=value == "b")
            elif value == "c":
                jobs.put((session.newest, lambda _: session.compare_with_commit()))
            elif value == "r":
                jobs.put((session.newest, recorded))
    finally:
        session.newest = Save(0, time.monotonic())
        jobs.put(None)
        worker.join()


def _age(file: Path) -> float:
    """Seconds since a file was written; 0 if it was not written just now, but moved or removed."""
    with contextlib.suppress(OSError):
        age = time.time() - file.stat().st_mtime
        return age if 0.0 < age < _RECENT else 0.0
    return 0.0
