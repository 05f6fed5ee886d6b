"""The Python API of capturing: a function's kernels as a frame of facts, for notebooks and scripts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec

from flashcore import frames
from flashcore.errors import FlashcoreError, UsageError
from flashcore.model.record import Fact
from flashcore.model.text import shortened
from flashcore.plugins.capture import functions

if TYPE_CHECKING:
    from pandas import DataFrame

P = ParamSpec("P")


def capture(function: Callable[..., Any], *args: Any, **kwargs: Any) -> DataFrame:
    """The facts of one call of a function on this machine's GPU, as :meth:`Run.facts_frame` has them; ``launch``
    counts the call's kernels. See ``docs/how-to/capture-a-command.md`` for how it is run under ncu: in another process,
    after three calls to warm up.

    Raises:
        UsageError: the function or an argument cannot be sent there.
        CapabilityError: this machine has no GPU, no ncu or no permission to read counters.
        FlashcoreError: the call failed there, as it says.
    """
    result = functions.profiled(function, {"call": (args, kwargs)})
    if result.outcomes[0].status != "ok":
        raise FlashcoreError(f"{function.__qualname__}: expected a call that ends, found: {result.outcomes[0].reason}")
    return frames.frame(Fact, result.facts)


def captured(function: Callable[P, Any]) -> Callable[P, DataFrame]:
    """A decorator: a call of the function is captured, and gives the frame of :func:`capture` for its answer."""

    @functools.wraps(function)
    def capturing(*args: P.args, **kwargs: P.kwargs) -> DataFrame:
        return function(*args, **kwargs) if functions.is_inside() else capture(capturing, *args, **kwargs)

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
    result = functions.profiled(function, dict(zip(calls, given, strict=True)))
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
