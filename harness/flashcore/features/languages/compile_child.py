"""The child that compiles Python variants: calls each with stand-ins for its tensors, and keeps what was compiled.

Reads one JSON object, ``{"language": MODULE, "jobs": N, "limit": SECONDS, "tasks": [...]}``; every task runs in a
process of its own, forked when the compiler is imported, and leaves ``answer.json`` in its folder: what was made, the
``error``, or the time limit of a ``hang``. Each line of the output is a folder that is complete.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from flashcore.errors import FlashcoreError
from flashcore.features.languages.launches import Call, StandIn, names
from flashcore.features.languages.traced import ANSWER
from flashcore.machine import python_process
from flashcore.model.files import content_hash
from flashcore.model.suite import Argument
from flashcore.runner import opened_files


def main() -> None:
    """Runs the tasks, so many at once."""
    question = json.load(sys.stdin)
    answers = python_process.answers()
    language = importlib.import_module(question["language"])
    kernel_types = language.prepare()  # once, for all forked processes
    going: dict[int, Mapping[str, Any]] = {}
    hung = set[str]()  # a launcher that hangs would hang again for every other arch
    todo = list(question["tasks"])
    try:
        while todo or going:
            if todo and len(going) < question["jobs"]:
                task = todo.pop(0)
                if task["variant"] in hung:
                    _answer(Path(task["folder"]), {"hang": question["limit"]})
                elif pid := os.fork():
                    going[pid] = task
                else:
                    os.setpgid(0, 0)
                    signal.alarm(question["limit"])
                    _one(task, language, kernel_types)
                continue
            pid, status = os.wait()
            _end(pid)
            task = going.pop(pid)
            if (code := os.WTERMSIG(status)) == signal.SIGALRM:
                hung.add(task["variant"])
                _answer(Path(task["folder"]), {"hang": question["limit"]})
            elif code:
                _answer(Path(task["folder"]), {"error": f"ended by signal {code}"})
            if Path(task["folder"], ANSWER).is_file():
                print(task["folder"], file=answers)
    finally:
        for pid in going:
            _end(pid)


def _end(group: int) -> None:
    """Ends a task's process with all that it started, which would keep the output open."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _one(task: Mapping[str, Any], language: Any, kernel_types: tuple[type, ...]) -> None:
    """One task; ends the process."""
    folder = Path(task["folder"])
    try:
        _answer(folder, trace(task, folder, language, kernel_types))
    except FlashcoreError as error:
        _answer(folder, {"error": str(error)})
    except BaseException as error:
        _answer(folder, {"error": _message(error, os.path.realpath(task["root"]) + os.sep)})
    finally:
        os._exit(0)


def _message(error: BaseException, root: str) -> str:
    """The error as compilers put it, at the suite's last line that it names or came through; then the traceback."""
    lines = [line for line in str(error).strip().splitlines() if not line.startswith("Failed in ")] or [""]
    named = re.findall(re.escape(root) + r'([^\s"()]+)"?(?:, line | \(|:)(\d+)', str(error))
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        places.append((error.filename or "", error.lineno))
    inside = [(f.removeprefix(root), n) for name, n in places if (f := os.path.realpath(name)).startswith(root)]
    misnamed = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
    stopped = isinstance(error, OSError) and not isinstance(error, misnamed)  # by the machine, which rejects no source
    place = "{}({}): error: ".format(*[*inside, *named][-1]) if (inside or named) and not stopped else ""
    reason = error.msg if isinstance(error, SyntaxError) else lines[0 if named else -1]
    trace = "".join(traceback.format_exception(error, limit=-6))
    return f"{place}{type(error).__name__}: {reason}\n{trace}"


def _answer(folder: Path, answer: Mapping[str, Any]) -> None:
    (folder / ANSWER).write_text(json.dumps(answer), encoding="utf-8")


def trace(task: Mapping[str, Any], folder: Path, language: Any, kernel_types: tuple[type, ...]) -> dict[str, Any]:
    """Compiles what a variant launches on each shape, for one arch. Kernels' files lie in ``folder`` by their number.

    A ``ValueError`` or ``NotImplementedError`` of the function refuses a shape; anything else is a mistake.

    Raises:
        FlashcoreError: it launches nothing, or files changed meanwhile.
    """
    since = time.time_ns()
    file, _, name = task["callable"].partition(":")
    launcher = os.path.abspath(os.path.join(task["root"], file))
    opened_files.watch(os.getcwd(), kernel_types)
    opened_files.track(launcher)
    function = getattr(_module(Path(launcher)), name, None)
    if not callable(function):
        raise FlashcoreError(f"{file}: expected a function {name}, found {function!r}")
    shapes: dict[str, dict[str, Any]] = {}
    calls: dict[str, list[Call]] = {}
    for shape, params in task["shapes"].items():
        made: list[StandIn] = []
        given = [_stand_in(a, params, made) for a in task["arguments"]]
        error, calls[shape] = "", []
        try:
            calls[shape] = language.launches(function, given, task["config"], task["arch"])
        except (ValueError, NotImplementedError) as refusal:
            error = str(refusal) or type(refusal).__name__
        if not (calls[shape] or error):
            raise FlashcoreError(f"{task['callable']}: expected a launch of a kernel, found none on {shape}")
        workspace = sum(t.numel() * t.itemsize for t in made) + sum(c.workspace for c in calls[shape])
        shapes[shape] = {"error": error, "workspace": workspace}
    every = [call for launches in calls.values() for call in launches]
    called = dict(zip(map(id, every), names(every), strict=True))
    kernels: dict[str, str] = {}
    codes: dict[str, str] = {}
    for call in every:
        name, code = called[id(call)], call.identity["code"]
        if codes.setdefault(name, code) != code:
            raise FlashcoreError(f"{name}: expected one kernel of that name, found two that nothing distinguishes")
        if name not in kernels:
            kernels[name] = f"{len(kernels)}.cubin"
            (folder / kernels[name]).write_bytes(call.code)
            if call.log:
                (folder / kernels[name]).with_suffix(".log").write_text(call.log, encoding="utf-8")
    for shape, launches in calls.items():
        choices: dict[int, list[dict[str, Any]]] = {}
        for i, call in enumerate(launches):
            choices.setdefault(call.choice or -i - 1, []).append({"kernel": called[id(call)], **call.identity})
        shapes[shape]["calls"] = list(choices.values())
    read = {os.path.relpath(launcher, os.path.realpath(task["root"])): content_hash(launcher)}
    read |= opened_files.dependencies(launcher, task["root"])
    for path in (os.path.join(task["root"], file) for file in read):
        if os.path.isfile(path) and os.stat(path).st_ctime_ns > since:
            raise FlashcoreError(f"{path}: changed while it was compiled\n  hint: build again")
    return {"kernels": kernels, "shapes": shapes, "read": read}


def _stand_in(argument: Mapping[str, Any], params: Mapping[str, Any], made: list[StandIn]) -> Any:
    declared = Argument(**{**argument, "dims": tuple(argument["dims"])})
    name = declared.name
    if declared.absent(params):
        return None
    if declared.kind == "tensor":
        return StandIn(name, declared.sizes(params), declared.dtype, made)
    if (
        name not in params and declared.default is None
    ):  # it may decide which kernel is compiled, and it distinguishes launches
        raise FlashcoreError(f"{name}: expected its value among the shape's params, found none")
    return params.get(name, declared.default)


def _module(path: Path) -> ModuleType:
    module = ModuleType(f"flashcore_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(path.parent))
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)  # not what Python has cached of it
    return module


if __name__ == "__main__":
    main()
