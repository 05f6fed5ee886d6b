"""The Python API: a report's kernels as a run, and a function's as a frame of facts, for notebooks and scripts.

ncu cannot attach to a running process, so each call runs in a range in a process that ncu starts. That process imports
the function as :mod:`multiprocessing`'s spawned processes do: by its module, or by the script that defines it, which
runs again up to the capture, without being ``__main__``. A function that is in neither, as in a notebook, is sent by
cloudpickle. Arguments are pickled.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import inspect
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from multiprocessing import spawn
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from flashcore import frames
from flashcore.api import Run
from flashcore.errors import FlashcoreError, UsageError
from flashcore.features.reports import script
from flashcore.features.reports.assemble import record_of
from flashcore.features.reports.call import INSIDE, TARGET
from flashcore.features.reports.read import read_report
from flashcore.machine.capabilities import lacking
from flashcore.machine.gpu import Gpu
from flashcore.machine.ncu import find_ncu
from flashcore.model.record import Fact, Facts, StageResult
from flashcore.model.text import shortened
from flashcore.records import soundness, store
from flashcore.records.names import slug
from flashcore.runner.journal import Task
from flashcore.stages.profile import profile
from flashcore.stages.settings import Profile

if TYPE_CHECKING:
    from pandas import DataFrame

P = ParamSpec("P")
WARM_UP = 3  # calls before the one that is measured
TIME_LIMIT = 60.0  # seconds that one call may take, all of ncu's passes together
_results: list[StageResult] = []  # of this process's captures


def import_report(*files: Path | str) -> Run:
    """The run that ``flashcore import`` would record of these reports of one kind of GPU; nothing is written.

    Raises:
        CapabilityError: reading a report needs a package that is not installed.
        RecordError: a report is damaged, cut short, or in a form that cannot be read without guessing.
        UsageError: there is no such file.
        FlashcoreError: the reports do not make one record.
    """
    record = record_of(store.new_id(), [read_report(Path(file)) for file in files])
    # As when a run is written: a value that is no number is unmeasured.
    facts = [replace(f, value=value, detail=detail) for f in record.facts for value, detail in [soundness.measured(f)]]
    return Run(replace(record, facts=Facts(facts)))


def capture(function: Callable[..., Any], *args: Any, **kwargs: Any) -> DataFrame:
    """The facts of one call of a function on this machine's GPU, as in :meth:`Run.facts_frame`; ``launch`` counts the
    call's kernels. See ``docs/how-to/capture-a-command.md`` for how it is run under ncu: in another process,
    after three calls to warm up.

    Raises:
        UsageError: the function or an argument cannot be sent there.
        CapabilityError: this machine has no GPU, no ncu or no permission to read counters.
        FlashcoreError: the call failed there.
    """
    result = profiled(function, {"call": (args, kwargs)})
    if result.outcomes[0].status != "ok":
        raise FlashcoreError(f"{function.__qualname__}: expected a call that ends, found: {result.outcomes[0].reason}")
    return frames.frame(Fact, result.facts)


def captured(function: Callable[P, Any]) -> Callable[P, DataFrame]:
    """A decorator: a call of the function is captured, and gives the frame of :func:`capture` for its answer."""

    @functools.wraps(function)
    def capturing(*args: P.args, **kwargs: P.kwargs) -> DataFrame:
        if is_inside() and not script.is_running():
            return function(*args, **kwargs)
        return capture(capturing, *args, **kwargs)

    return capturing


def sweep(function: Callable[..., Any], configs: Iterable[Any]) -> DataFrame:
    """The facts of a call with each config, all in one process. A config is a mapping of keyword arguments, a tuple or
    list of positional ones, or one argument. Columns of their names (as the function has them) say which.

    The facts of a call that failed are unmeasured, with the reason in ``note``: the others are there.

    Raises:
        UsageError, CapabilityError: see :func:`capture`; or the function does not take a config, or a config's name is
            that of a column.
    """
    given = [_arguments(config) for config in configs]
    named = [_named(function, *arguments) for arguments in given]
    calls = {f"c{i}_" + "_".join(f"{k}_{v}" for k, v in config.items()): config for i, config in enumerate(named)}
    names = list(dict.fromkeys(name for config in named for name in config))
    result = profiled(function, dict(zip(calls, given, strict=True)))
    facts = frames.frame(Fact, result.facts)
    if taken := [name for name in names if name in (*facts.columns, *facts.index.names)]:
        raise UsageError(f"expected arguments of other names than a frame's columns, found {', '.join(taken)}")
    by_shape = dict(zip([outcome.shape for outcome in result.outcomes], calls.values(), strict=True))
    for place, name in enumerate(names):
        facts.insert(place, name, [by_shape[shape].get(name) for shape in facts.index.get_level_values("shape")])
    return facts


def _arguments(config: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """The positional and the keyword arguments of a config."""
    if isinstance(config, Mapping):
        return (), config
    return tuple(config) if isinstance(config, (tuple, list)) else (config,), {}


def _named(function: Callable[..., Any], positional: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by the function's names for them.

    Raises:
        UsageError: the function does not take them.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions in C have none
        return {**{f"arg{i}": value for i, value in enumerate(positional)}, **keywords}
    try:
        bound = signature.bind(*positional, **keywords).arguments
    except TypeError as error:
        config = shortened(dict(keywords) or tuple(positional))
        raise UsageError(f"{config}: expected arguments of {function.__name__}{signature}, found: {error}") from error
    names: dict[str, Any] = {}
    for name, value in bound.items():
        match signature.parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                names |= {f"{name}{i}": part for i, part in enumerate(value)}
            case inspect.Parameter.VAR_KEYWORD:
                names |= value
            case _:
                names[name] = value
    return names


def profiled(
    function: Callable[..., Any],
    calls: Mapping[str, tuple[Sequence[Any], Mapping[str, Any]]],
) -> StageResult:
    """Calls a function with each of these arguments, the last time under ncu.

    Args:
        calls: name in the facts → arguments and keyword arguments.

    Raises:
        UsageError: the function captures itself, or it or an argument cannot be sent.
        CapabilityError: no GPU, ncu, nvtx or permission.
    """
    if is_inside():
        return script.result_of_earlier()
    if (gpu := Gpu.find()) is None:
        raise lacking("gpu")
    main, names = _main(), [*map(slug, calls)]
    tasks = []
    for index, (name, (args, more)) in enumerate(zip(names, calls.values(), strict=True)):
        shape = name if names.count(name) == 1 else f"{name}_{index}"
        call = _pickled((function, tuple(args), dict(more)), main)
        payload = {"main": main, "warm_up": WARM_UP, "call": call}
        tasks.append(Task(f"{slug(function.__name__)}/{shape}", {"case": payload}))
    settings = Profile(limits=replace(Profile().limits, time_limit=TIME_LIMIT))
    profiling = profile.Profiling(
        ncu=find_ncu(), chip=profile.chip_of(gpu.capability), settings=settings, target=TARGET
    )
    with tempfile.TemporaryDirectory(prefix="flashcore-capture-") as folder:
        main["earlier"] = str(earlier := Path(folder, "earlier"))
        earlier.write_bytes(pickle.dumps(_results))
        _results.append(profile.profiled(tasks, Path(folder, "profile"), profiling))
    return _results[-1]


def is_inside() -> bool:
    """Whether this is the process under ncu."""
    return bool(os.environ.get(INSIDE))


def _main() -> dict[str, Any]:
    """The data with which a spawned process imports the modules of this one; in a notebook without a script."""
    preparation = spawn.get_preparation_data("flashcore")
    if not os.path.isfile(preparation.get("init_main_from_path", __file__)):  # <stdin>
        del preparation["init_main_from_path"]
    wanted = ("sys_path", "sys_argv", "dir", "init_main_from_name", "init_main_from_path")
    return {name: preparation[name] for name in wanted if name in preparation}


def _pickled(call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]], main: Mapping[str, Any]) -> str:
    """The call as text.

    Raises:
        UsageError: something in it cannot be pickled.
    """
    function = call[0]
    scripted = any(name.startswith("init_main") for name in main)
    local = "<" in function.__qualname__ or (function.__module__ == "__main__" and not scripted)
    if local and importlib.util.find_spec("cloudpickle") is None:
        raise UsageError(
            f"{function.__qualname__}: expected a function that another process can import, found one of a "
            "notebook, a lambda or a function within a function\n"
            "  hint: pip install cloudpickle, or put it in a separate module"
        )
    try:
        return base64.b64encode(importlib.import_module("cloudpickle" if local else "pickle").dumps(call)).decode()
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{function.__qualname__}: expected arguments and a function that can be pickled, found: {error}\n"
            "  hint: put the function in a module, and create in it the objects that cannot be pickled"
        ) from error
