"""Python functions under ncu: each call in a range of its own, in a process that ncu starts.

ncu cannot attach to a running process in this way, so a function is called in another one. That process imports it as
:mod:`multiprocessing`'s spawned processes do: by its module, or by the script that defines it (run again without being
``__main__``). A function that is in neither, as in a notebook, is sent by cloudpickle. Arguments are pickled.
"""

from __future__ import annotations

import base64
import importlib.util
import os
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing import spawn
from pathlib import Path
from typing import Any

from flashcore.errors import UsageError
from flashcore.measure.machine.capabilities import lacking
from flashcore.measure.machine.gpu import Gpu
from flashcore.measure.machine.ncu import find_ncu
from flashcore.measure.profile import profile
from flashcore.measure.settings import Profile
from flashcore.measure.workers.journal import Task
from flashcore.model.record import StageResult
from flashcore.plugins.capture.call import INSIDE, TARGET
from flashcore.plugins.imports.names import slug

WARM_UP = 3  # calls before the one that is measured
TIME_LIMIT = 60.0  # seconds that one call may take, all of ncu's passes together


def profiled(
    function: Callable[..., Any],
    calls: Mapping[str, tuple[Sequence[Any], Mapping[str, Any]]],
) -> StageResult:
    """Calls a function with each of some arguments, the last time under ncu.

    Args:
        calls: arguments and keyword arguments by what names them in the facts.

    Raises:
        UsageError: called where it would start itself again, or the function or an argument cannot be sent.
        CapabilityError: no GPU, ncu, nvtx or permission.
    """
    if is_inside():
        raise UsageError(
            "expected only the function to run in the process under ncu, found its script capturing again\n"
            '  hint: put what captures below `if __name__ == "__main__":`'
        )
    gpu = Gpu.find()
    if gpu is None:
        raise lacking("gpu")
    main = _main()
    counts = Counter(map(slug, calls))
    tasks = []
    for index, (name, (args, more)) in enumerate(calls.items()):
        shape = slug(name) if counts[slug(name)] == 1 else f"{slug(name)}_{index}"
        payload = {"main": main, "warm_up": WARM_UP, "call": _pickled((function, tuple(args), dict(more)), main)}
        tasks.append(Task(f"{slug(function.__name__)}/{shape}", {"case": payload}))
    settings = Profile(limits=replace(Profile().limits, time_limit=TIME_LIMIT))
    chip = profile.chip_of(gpu.capability)
    profiling = profile.Profiling(ncu=find_ncu(), chip=chip, settings=settings, target=TARGET)
    with tempfile.TemporaryDirectory(prefix="flashcore-capture-") as folder:
        return profile.profiled(tasks, Path(folder), profiling)


def is_inside() -> bool:
    """Whether this is the process under ncu."""
    return bool(os.environ.get(INSIDE))


def _main() -> dict[str, Any]:
    """What a spawned process needs to import the same modules as this one; nothing about a script if there is none (a
    notebook)."""
    preparation = spawn.get_preparation_data("flashcore")
    if not os.path.isfile(preparation.get("init_main_from_path", __file__)):  # <stdin>
        del preparation["init_main_from_path"]
    wanted = ("sys_path", "dir", "init_main_from_name", "init_main_from_path")
    return {name: preparation[name] for name in wanted if name in preparation}


def _pickled(call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]], main: Mapping[str, Any]) -> str:
    """The call as text.

    Raises:
        UsageError: something in it cannot be pickled; says how to fix that.
    """
    function = call[0]
    scripted = any(name.startswith("init_main") for name in main)
    local = "<" in function.__qualname__ or (function.__module__ == "__main__" and not scripted)
    try:
        if local and importlib.util.find_spec("cloudpickle"):
            import cloudpickle

            data = cloudpickle.dumps(call)
        elif local:
            raise UsageError(
                f"{function.__qualname__}: expected a function that another process can import, found one of a "
                "notebook, a lambda or a function within a function\n"
                "  hint: pip install cloudpickle, or put it in a module beside"
            )
        else:
            data = pickle.dumps(call)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{function.__qualname__}: expected arguments and a function that can be pickled, found: {error}\n"
            "  hint: put the function in a module, and make in it what cannot be sent"
        ) from error
    return base64.b64encode(data).decode()
