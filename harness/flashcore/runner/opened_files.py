"""Records the files that a suite's Python code opens: what its answers, or the kernels that it launches, depend on.

Every file counts that is not installed, wherever it is: modules found in any way, data, libraries, the names in a
listed folder, and files that were looked for in vain. Of what is installed, only modules with kernels count, and only
where kernels are compiled. Code depends on what is opened while it is on the stack, and on
what the modules depend on that it imports, even if they were imported before. It cannot be told what a process opens
that the code starts.
"""

from __future__ import annotations

import builtins
import contextlib
import csv
import functools
import importlib
import importlib.util
import os
import re
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from flashcore.model.files import content_hash
from flashcore.model.record import Reads

#: Packages, and the system's folders. A suite may be anywhere else.
_INSTALLED = re.compile(
    r".*/(site|dist)-packages/|/(proc|sys|dev(?!/shm)|etc|lib(32|64)?|s?bin)/"
    r"|/usr/(local/)?(lib\w*|share|include|s?bin|cuda[^/]*)/"
)
#: Python's own files, also its library as an archive, and this package's.
_FOLDERS = (f"{Path(sysconfig.get_path('stdlib')).parent}/python3", f"{Path(__file__).parents[1]}/")
#: Environment variables that name folders of tools, or of what can be made again.
_TOOLS = re.compile(r"CUDA_(HOME|PATH)|XDG_CACHE_HOME|\w+_CACHE_DIR")
_TEMPORARY = f"{tempfile.gettempdir()}/"
_CACHES = (*map(os.path.expanduser, ("~/.cache", "~/.triton", "~/.nv")), f"{_TEMPORARY}torchinductor_")
_PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn")
#: Python's modules that list folders and start processes for their callers.
_SERVANTS = {"os", "glob", "pathlib", "shutil", "subprocess", "multiprocessing", "concurrent", "asyncio", "threading"}

#: A file with code → the files that it opened, and the modules that it imported.
_opened: dict[str, dict[str, None]] = {}
#: A file → the hash of its content when it was first opened; empty if that cannot be told.
_contents: dict[str, str] = {}
#: The files whose dependencies are recorded. Any of them may have started a thread.
_tracked: list[str] = []
_made: list[str] = []
#: The types of kernels, and the modules that were imported before.
_kernels: tuple[type, ...] = ()
_before: frozenset[str] = frozenset()


def track(file: str) -> None:
    """Records what a file of a suite depends on, from :func:`watch` on."""
    _tracked.append(file)


def dependencies(file: str, root: str) -> dict[str, str]:
    """The files on which a file's code depends, without itself, with the hashes of their content when they were first
    opened. Their paths are relative to the suite's folder, unless only the topmost folder contains both."""
    pending, files = [file], dict.fromkeys(_with_kernels())
    while pending:
        more = _opened.get(os.path.abspath(pending.pop()), {}).keys() - files
        files |= dict.fromkeys(more)
        pending += more
    root = os.path.realpath(root)
    shared = (
        (path, os.path.commonpath((path, root)) != os.sep) for path in sorted(files) if path != os.path.abspath(file)
    )
    return {os.path.relpath(path, root) if near else path: _contents[path] for path, near in shared}


def reads(root: str) -> Reads:
    """The :func:`dependencies` of each tracked file."""
    return {os.path.relpath(file, os.path.realpath(root)): dependencies(file, root) for file in _tracked}


@functools.cache
def watch(made: str = "", kernels: tuple[type, ...] = ()) -> None:
    """From now on, this process and those that it forks record what is opened and imported.

    Args:
        made: a folder whose files they make, which do not count.
        kernels: the types of kernels that are compiled here: installed modules with such values count too.
    """
    global _kernels, _before
    _kernels, _before = kernels, frozenset(sys.modules)
    if made:
        _made.append(f"{os.path.realpath(made)}/")
    since, written = time.time_ns(), set[str]()
    _listed_by_packages()  # now, since it opens files

    def opened(name: object, flags: int = 0) -> None:
        if not isinstance(name, str | bytes | os.PathLike) or not (path := _counted(os.fsdecode(name))):
            return
        if flags & (os.O_WRONLY | os.O_CREAT):
            written.add(os.path.abspath(os.fsdecode(name)))
        elif written.isdisjoint((path, *map(str, Path(path).parents))) and not _is_temporary(path, since):
            readers = {_counted(str(frame.f_globals.get("__file__", ""))) for frame in _stack()}
            if threading.current_thread() is not threading.main_thread():
                readers.update(_tracked)
            for reader in readers - {""}:
                _depend(reader, path)

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and not os.path.isdir(arguments[0]):  # tempfile opens the folder of a file that it makes
            opened(arguments[0], arguments[2] or 0)
        elif event in ("os.mkdir", "sqlite3.connect") and not os.path.exists(arguments[0]):
            opened(arguments[0], os.O_CREAT)
        elif event in ("import", "ctypes.dlopen", "sqlite3.connect"):
            opened(arguments[event == "import"])  # of a library that is imported, its file
        elif event in ("os.listdir", "os.scandir") and _caller():
            opened("." if arguments[0] is None else arguments[0])
        elif event in _PROCESSES and (caller := _caller()):
            _contents[process := f"{caller}, a process that it starts"] = ""
            _opened.setdefault(caller, {})[process] = None

    sys.addaudithook(heard)
    for module, name in ((builtins, "__import__"), (importlib, "import_module")):
        setattr(module, name, _noticing(getattr(module, name)))


def _with_kernels() -> Iterator[str]:
    """The installed modules with kernels that were imported since, without those of the language."""
    languages = {kind.__module__.partition(".")[0] for kind in _kernels}
    for name in sys.modules.keys() - _before if _kernels else ():
        path = os.path.realpath(getattr(module := sys.modules[name], "__file__", None) or "")
        has_kernel = path.endswith(".py") and any(isinstance(value, _kernels) for value in vars(module).values())
        if has_kernel and not _counted(path) and name.partition(".")[0] not in languages:
            _contents[path] = content_hash(path)
            yield path


def _depend(reader: str, path: str) -> None:
    if path not in _contents:
        _contents[path] = ""  # so that hashing it, which opens it, does not recurse
        _contents[path] = content_hash(path)
    _opened.setdefault(reader, {})[path] = None


def _noticing(imports: Callable[..., Any]) -> Callable[..., Any]:
    """A function that imports, and also notices modules that are loaded already: no file is opened for them."""

    @functools.wraps(imports)
    def wrapped(name: str, *arguments: Any, **more: Any) -> Any:
        module = imports(name, *arguments, **more)
        if importer := _counted(str(sys._getframe(1).f_globals.get("__file__", ""))):
            members = more.get("fromlist", arguments[2] if len(arguments) > 2 else ()) or ()
            whole = name if imports.__name__ == "__import__" and not members else module.__name__
            parts = whole.split(".")
            names = [".".join(parts[: i + 1]) for i in range(len(parts))] + [f"{whole}.{member}" for member in members]
            for file in (getattr(sys.modules.get(one), "__file__", None) for one in names):
                if file and (path := _counted(file)):
                    _depend(importer, path)
        return module

    return wrapped


def _stack() -> Iterator[FrameType]:
    """The frames of the present code, innermost first, without this module's."""
    frame: FrameType | None = sys._getframe(1)
    while frame:
        if frame.f_globals is not globals():
            yield frame
        frame = frame.f_back


def _caller() -> str:
    """The file of the code that lists a folder or starts a process; empty if it is installed."""
    frames = (f for f in _stack() if str(f.f_globals.get("__name__")).partition(".")[0] not in _SERVANTS)
    return next((_counted(str(frame.f_globals.get("__file__", ""))) for frame in frames), "")


def _counted(name: str) -> str:
    """The absolute path of a file that counts; empty for others."""
    return _path(name if os.path.isabs(name) else os.path.abspath(name)) if name else ""


@functools.cache
def _path(name: str) -> str:
    path = os.path.abspath(name)
    if path.endswith(".pyc"):
        with contextlib.suppress(ValueError):
            path = importlib.util.source_from_cache(path)
    real = os.path.realpath(path)
    tools = tuple(f"{os.path.realpath(folder)}/" for name, folder in os.environ.items() if _TOOLS.fullmatch(name))
    is_installed = _INSTALLED.match(real) or real in _listed_by_packages()
    return "" if is_installed or real.startswith((*_FOLDERS, *_CACHES, *_made, *tools)) else path


@functools.cache
def _listed_by_packages() -> frozenset[str]:
    """What packages outside of ``site-packages`` list as installed (``pip install --target``), and its folders. Files
    beside them are the user's."""
    listed: set[str] = set()
    for folder in {os.path.realpath(name) for name in sys.path}:
        if not _INSTALLED.match(f"{folder}/"):
            for record in Path(folder).glob("*.dist-info/RECORD"):
                for row in csv.reader(record.read_text(encoding="utf-8").splitlines()):
                    file = Path(*row[:1])
                    listed.update(os.path.join(folder, part) for part in (file, *file.parents) if part.name)
    return frozenset(listed)


def _is_temporary(path: str, since: int) -> bool:
    """Whether a process that this one started made the file."""
    return path.startswith(_TEMPORARY) and os.path.isfile(path) and os.stat(path).st_ctime_ns > since
