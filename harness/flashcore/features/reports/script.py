"""Runs the caller's script again in the process under ncu, up to the capture whose function is wanted there."""

from __future__ import annotations

import importlib.util
import pickle
import sys
from collections.abc import Iterator, Mapping
from multiprocessing import spawn
from pathlib import Path
from types import ModuleType
from typing import Any

from flashcore.errors import UsageError
from flashcore.model.record import StageResult

_earlier: Iterator[StageResult] | None = None  # while the script runs again


class Reached(BaseException):
    """The script came to the capture whose function is wanted: what that needs is defined."""


def rerun(preparation: Mapping[str, Any]) -> None:
    """Prepares this process as a spawned one, and runs the script as that would, but no further than needed.

    Args:
        preparation: what :func:`multiprocessing.spawn.get_preparation_data` returns, and the file ``earlier`` with the
            results of the script's captures before that one, which it gets again.
    """
    global _earlier
    spawn.prepare({name: value for name, value in preparation.items() if not name.startswith("init_main")})
    module, file = ModuleType("__mp_main__"), preparation.get("init_main_from_path")
    if (name := preparation.get("init_main_from_name")) and (spec := importlib.util.find_spec(name)):
        file, module.__package__ = spec.origin, spec.parent
    if file is None:
        return
    module.__file__ = file
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    _earlier = iter(pickle.loads(Path(preparation["earlier"]).read_bytes()))
    try:
        exec(compile(Path(file).read_bytes(), file, "exec"), vars(module))
    except Reached:
        pass
    finally:
        _earlier = None


def is_running() -> bool:
    """Whether the script runs again."""
    return _earlier is not None


def result_of_earlier() -> StageResult:
    """The result of the capture that the script has come to.

    Raises:
        Reached: it is the one whose function is wanted.
        UsageError: the function itself captures.
    """
    if _earlier is None:
        raise UsageError(
            "expected a function that captures nothing itself, found a capture in the process under ncu\n"
            "  hint: capture the inner function instead"
        )
    for result in _earlier:
        return result
    raise Reached
