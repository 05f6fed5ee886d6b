"""The Python API: a report's kernels as a run, and the counters of a function's call as a frame of facts, for notebooks
and scripts.

A function is called in the present process, whose counters CUPTI reads: no second process starts, nothing is pickled.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec

from flashcore import frames
from flashcore.api import Run, expect
from flashcore.errors import CapabilityError, FlashcoreError, UsageError
from flashcore.explain.limiter import time_parts
from flashcore.explain.readings import Readings
from flashcore.features.reports import traces
from flashcore.features.reports.assemble import record_of, record_of_call
from flashcore.features.reports.read import read_report
from flashcore.model.case import Case
from flashcore.model.causes import NOT_PROFILED
from flashcore.model.record import CaseSubject, Fact, Facts
from flashcore.model.text import count, fixed, function_name, shortened
from flashcore.readers.ncu.results import Result
from flashcore.records import soundness, store
from flashcore.records.slugs import slug
from flashcore.runner.journal import raised
from flashcore.runner.kernel_call import require_device
from flashcore.stages.profile import cupti, ncu_facts
from flashcore.stages.profile.cupti_child import counters_of, finalize_at_exit
from flashcore.stages.profile.profile import required_chip

if TYPE_CHECKING:
    from pandas import DataFrame

P = ParamSpec("P")
WARM_UP = 3  # calls before the one whose launches are recorded
MOST = 1000  # kernels of a call; all of them run once for each of CUPTI's passes
_WITH_NCU = "flashcore capture -- python SCRIPT measures with ncu"
_counting = threading.Lock()


def import_report(*files: Path | str) -> Run:
    """The run that ``flashcore import`` would record of these reports of one kind of GPU; nothing is written.

    Raises:
        CapabilityError: reading a report needs a package that is not installed.
        RecordError: a report is damaged, cut short, or in a form that cannot be read without guessing.
        UsageError: there is no such file.
        FlashcoreError: the reports do not make one record.
    """
    expect("a report", (str, Path), "fc.import_report('gemm.ncu-rep')", *files)
    record = record_of(store.new_id(), [read_report(Path(file)) for file in files])
    # As when a run is written: a value that is no number is unmeasured.
    facts = [replace(f, value=value, detail=detail) for f in record.facts for value, detail in [soundness.measured(f)]]
    return Run(replace(record, facts=Facts(facts)))


def capture(function: Callable[..., Any], *args: Any, **kwargs: Any) -> DataFrame:
    """The facts of one call of a function on the present GPU, as in :meth:`Run.facts_frame`; ``launch`` counts the
    call's kernels.

    The function is called three times to warm up, once to record its launches, and once for each of CUPTI's passes
    (some 30), always with the same arguments: what it overwrites is not restored. Caches are cold, as under ncu. What
    CUPTI cannot count is unmeasured, and ``note`` says why. What the function raises is raised.

    Raises:
        CapabilityError: no GPU, no CUPTI with a range profiler, or no permission to read counters.
        UsageError: the call launches no kernel or more than 1,000, or captures another call.
        FlashcoreError: its calls differ in their kernels, or CUPTI counts a CUDA graph as a whole.
    """
    return frames.frame(Fact, _counted(function, args, kwargs).facts)


def counters(function: Callable[..., Any], *args: Any, **kwargs: Any) -> DataFrame:
    """The frame of :func:`capture`; also prints one line: the call's kernels, their time under the counters, and what
    limits them most.

    Raises:
        CapabilityError, UsageError, FlashcoreError: see :func:`capture`.
    """
    call = _counted(function, args, kwargs)
    record = record_of_call(store.new_id(), call.case, call.rows, call.facts)
    limits = time_parts(Readings(record), call.case).short
    time = record.facts.number("ncu_duration", CaseSubject(call.case))
    took = f"{fixed(time / 1e3, 2)} µs" if time else "no time"
    print(
        f"{function_name(function)}: {count(len(call.rows), 'kernel')}, {took}, cold: {limits or 'limiter unmeasured'}"
    )
    return frames.frame(Fact, call.facts)


def captured(function: Callable[P, Any]) -> Callable[P, DataFrame]:
    """A decorator: a call of the function is captured, and gives the frame of :func:`capture` for its answer. Within
    another capture it is an ordinary call."""

    @functools.wraps(function)
    def capturing(*args: P.args, **kwargs: P.kwargs) -> DataFrame:
        return function(*args, **kwargs) if _counting.locked() else capture(function, *args, **kwargs)

    return capturing


def sweep(function: Callable[..., Any], configs: Iterable[Any]) -> DataFrame:
    """The facts of a call with each config. A config is a mapping of keyword arguments, a tuple or list of positional
    ones, or one argument. Columns of their names (as the function has them) say which.

    The facts of a call that failed are unmeasured, with the reason in ``note``: the others are there.

    Raises:
        CapabilityError: see :func:`capture`.
        UsageError: the function does not take a config, or a config's name is that of a column.
    """
    _expect_function(function)
    expect("a list of configs", Iterable, "fc.sweep(f, [1, 2])", configs)
    given = [_arguments(config) for config in configs]
    named = [_named(function, *arguments) for arguments in given]
    shapes = [slug(f"c{i}_" + "_".join(f"{k}_{v}" for k, v in config.items())) for i, config in enumerate(named)]
    names = list(dict.fromkeys(name for config in named for name in config))
    columns = frames.frame(Fact, facts := list[Fact]()).reset_index().columns
    if taken := [name for name in names if name in columns]:
        raise UsageError(f"expected arguments of other names than a frame's columns, found {', '.join(taken)}")
    for shape, (args, more) in zip(shapes, given, strict=True):
        try:
            facts += _counted(function, args, more, shape).facts
        except CapabilityError:
            raise
        except Exception as error:
            facts += ncu_facts.unmeasured(Case(slug(function_name(function)), shape), NOT_PROFILED(raised(error)))
    frame = frames.frame(Fact, facts)
    by_shape = dict(zip(shapes, named, strict=True))
    for place, name in enumerate(names):
        frame.insert(place, name, [by_shape[shape].get(name) for shape in frame.index.get_level_values("shape")])
    return frame


def _expect_function(function: object) -> None:
    expect("a function", Callable, "fc.capture(f, 1, 2) calls f(1, 2)", function)


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
        raise UsageError(
            f"{config}: expected arguments of {function_name(function)}{signature}, found: {error}"
        ) from error
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


class _Call(NamedTuple):
    """A counted call: its case, its launches with their metrics, and its facts."""

    case: Case
    rows: Sequence[Result]
    facts: Sequence[Fact]


def _counted(function: Callable[..., Any], args: Sequence[Any], more: Mapping[str, Any], shape: str = "call") -> _Call:
    """Counts a call of a function; see :func:`capture`."""
    _expect_function(function)
    require_device("cuda")
    import torch

    def call() -> None:
        function(*args, **more)
        torch.cuda.synchronize()

    name = function_name(function)
    if not _counting.acquire(blocking=False):
        raise UsageError(
            f"{name}: expected a call outside of other captures, found one within\n"
            "  hint: capture the inner function instead"
        )
    try:
        for _ in range(WARM_UP):
            call()
        launches = _recorded(call)
        if not 0 < len(launches) <= MOST:
            raise UsageError(
                f"{name}: expected a call that launches 1 to {MOST:,} kernels, found {count(len(launches), 'kernel')}\n"
                f"  hint: capture a function that does the GPU's work, or a part of it; {_WITH_NCU}"
            )
        chip = required_chip(launches[0].cc)
        by_cupti = counters_of(tuple(ncu_facts.metrics_to_request(chip)), torch.cuda.current_device())
        counts = by_cupti.of(lambda: None, call, len(launches))
    finally:
        _counting.release()
    if len(counts) != len(launches):
        raise FlashcoreError(
            f"{name}: expected the same kernels in each call, each counted alone, found {len(launches)} recorded and "
            f"{len(counts)} counted\n"
            f"  hint: fix what varies, or capture the function without its CUDA graph; {_WITH_NCU}"
        )
    case, rows = Case(slug(name), shape), cupti.rows_of(launches, counts, chip)
    refused = {metric: f"{why}; {_WITH_NCU}" for metric, why in by_cupti.refused.items()}
    return _Call(case, rows, cupti.facts_of(case, rows, chip, refused))


def _recorded(call: Callable[[], None]) -> list[Result]:
    """The launches of a call, in order."""
    from torch.profiler import ProfilerActivity, profile

    with contextlib.suppress(CapabilityError):  # what counts next raises it
        finalize_at_exit()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as record:  # else it warns
        call()
    with tempfile.TemporaryDirectory(prefix="flashcore-capture-") as folder:
        file = Path(folder, "trace.json")
        record.export_chrome_trace(str(file))
        return traces.launches(file.read_text(encoding="utf-8", errors="replace"))
