"""Loads a problem's Python file as a module, and evaluates its formulas."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from flashcore.errors import FlashcoreError, UsageError
from flashcore.runner import opened_files

_CONTRACT = ("make_inputs", "reference", "emulate", "work", "KINDS", "TOLERANCES", "FENCE")


def load_problem(root: str | Path, file: str) -> ModuleType:
    """The problem's Python file as a module, loaded once per process.

    Raises:
        UsageError: there is no such file, or it lacks a required name.
        FlashcoreError: its import raises.
    """
    module = load_file(str(Path(root).resolve() / file))
    missing = [name for name in _CONTRACT if not hasattr(module, name)]
    if missing:
        raise UsageError(
            f"{module.__file__}: expected {', '.join(_CONTRACT)}, found no {', '.join(missing)}\n"
            "  hint: define them; kernels/attention/problem.py is an example"
        )
    return module


def all_kinds(problem: ModuleType) -> list[str]:
    """The kinds of input that the suite's own variants must handle."""
    return [*problem.KINDS, *getattr(problem, "EDGE_KINDS", ())]


def work_of(problem: ModuleType, params: Mapping[str, Any], roof: str) -> dict[str, float]:
    """The problem's amounts (FLOP, bytes, …) for a variant on the compute roof ``roof``, which ``work()`` may take as
    an argument: the units that do the FLOPs depend on the variant.

    Raises:
        UsageError: ``work()`` raises, or a value is not a number from 0 to 1e30.
    """
    more = {"roof": roof} if "roof" in inspect.signature(problem.work).parameters else {}
    try:
        work: dict[str, Any] = dict(problem.work(dict(params), **more))
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == problem.__file__]
        raise UsageError(
            f"{problem.__file__}:{lines[-1] if lines else 1}: expected work() to return amounts for {dict(params)}, "
            f"found {type(error).__name__}: {error}"
        ) from error
    for key, value in work.items():
        if not isinstance(value, (int, float)) or not 0 <= value <= 1e30:  # false for NaN
            value_text = f"{value:g}" if isinstance(value, float) else f"a value of type {type(value).__name__}"
            raise UsageError(
                f"{problem.__name__}: work() returns {key!r}: expected a number from 0 to 1e30, found {value_text}"
            )
    return work


#: Modules that a suite's files imported from each other → their folder.
_siblings: dict[str, Path] = {}


class _Lazily(MetaPathFinder):
    """Finds modules that a suite's function imports lazily, after its file was loaded: next to the importing file, or
    next to a suite file that called it."""

    folders: ClassVar[set[Path]] = set()

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        frame = None if "." in name else sys._getframe(1)
        while frame is not None:
            folder = Path(str(frame.f_globals.get("__file__", ""))).parent
            if folder in self.folders:
                spec = PathFinder.find_spec(name, [str(folder)])
                if spec is not None:
                    _siblings[name] = folder
                return spec
            frame = frame.f_back
        return None


@functools.cache
def load_file(path: str) -> ModuleType:
    """A Python file of a suite as a module, loaded once per process. A suite's files can import each other.

    Raises:
        UsageError: there is no such file.
        FlashcoreError: its import raises.
    """
    file = Path(path)
    opened_files.track(path)
    if not any(isinstance(finder, _Lazily) for finder in sys.meta_path):
        sys.meta_path.append(_Lazily())
    _Lazily.folders.add(file.parent)
    for name, folder in list(_siblings.items()):
        if folder != file.parent:  # from another suite, or another revision of this one
            sys.modules.pop(name, None)
            del _siblings[name]
    spec = importlib.util.spec_from_file_location(f"flashcore_{file.stem}_{abs(hash(path)):x}", file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise UsageError(f"{path}: expected a Python file of the suite, found no such file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(file.parent))  # for imports between the suite's files
    # Compiled files are recognized by size and whole seconds: an edit within the second could be missed. A suite's
    # functions import more files later.
    sys.dont_write_bytecode = True
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        raise FlashcoreError(f"{path}: its import failed with {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(file.parent))
        for other in file.parent.glob("*.py"):
            if getattr(sys.modules.get(other.stem), "__file__", None) == str(other):
                _siblings[other.stem] = file.parent
    return module
