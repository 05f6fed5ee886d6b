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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flashcore.errors import UsageError
from flashcore.measure.machine.capabilities import lacking
from flashcore.measure.machine.gpu import Gpu
from flashcore.measure.machine.ncu import find_ncu
from flashcore.measure.profile import profile
from flashcore.measure.settings import Profile
from flashcore.model.record import StageResult
from flashcore.plugins.capture.call import INSIDE, TARGET
from flashcore.plugins.imports.names import slug


@dataclass(frozen=True, slots=True)
class Call:
    """A function with arguments, as a case of the profile stage: ``shape`` tells its calls apart."""

    variant: str
    shape: str
    payload: Mapping[str, Any]
    is_reference: bool = False

    @property
    def name(self) -> str:
        return f"{self.variant}/{self.shape}"

    def to_json(self) -> dict[str, Any]:
        return dict(self.payload)


def profiled(
    function: Callable[..., Any],
    calls: Mapping[str, tuple[Sequence[Any], Mapping[str, Any]]],
    folder: Path,
    *,
    warm_up: int = 3,
    time_limit: float = 60.0,
    ncu: str | None = None,
) -> StageResult:
    """Calls a function with each of some arguments, the last time under ncu.

    Args:
        calls: arguments and keyword arguments by what names them in the facts.
        folder: for the output of ncu and of the process.
        warm_up: calls before the one that is measured.
        time_limit: seconds that one call may take, all of ncu's passes together.

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
    names = {name: slug(name) for name in calls}
    taken = list(names.values())
    cases = [
        Call(
            slug(function.__name__),
            names[name] if taken.count(names[name]) == 1 else f"{names[name]}_{index}",
            {"main": main, "warm_up": warm_up, "call": _sent((function, tuple(args), dict(more)), main)},
        )
        for index, (name, (args, more)) in enumerate(calls.items())
    ]
    settings = Profile(limits=replace(Profile().limits, time_limit=time_limit))
    chip = profile.chip_of(gpu.capability)
    profiling = profile.Profiling(ncu=find_ncu(ncu), chip=chip, settings=settings, target=TARGET)
    return profile.profiled(cases, folder, profiling)


def is_inside() -> bool:
    """Whether this is the process under ncu."""
    return bool(os.environ.get(INSIDE))


def _main() -> dict[str, Any]:
    """What a spawned process needs to import the same modules as this one; nothing about a script if there is none (a
    notebook)."""
    from multiprocessing import spawn

    told = spawn.get_preparation_data("flashcore")
    if not os.path.isfile(told.get("init_main_from_path", __file__)):  # <stdin>
        del told["init_main_from_path"]
    wanted = ("sys_path", "dir", "init_main_from_name", "init_main_from_path")
    return {name: told[name] for name in wanted if name in told}


def _sent(call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]], main: Mapping[str, Any]) -> str:
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
