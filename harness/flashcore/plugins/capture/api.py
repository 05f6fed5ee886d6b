"""The Python API of capturing: a function's kernels as a frame of facts, for notebooks and scripts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec

from flashcore import frames
from flashcore.errors import FlashcoreError, UsageError
from flashcore.model.record import Fact
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


def sweep(function: Callable[..., Any], configs: Iterable[Mapping[str, Any]]) -> DataFrame:
    """The facts of a call with each config's keyword arguments, all in one process; columns of their names say which.

    The facts of a call that failed are unmeasured, with the reason in ``note``: the others are there.

    Raises:
        UsageError, CapabilityError: see :func:`capture`; or a config's name is that of a column.
    """
    calls = {f"c{i}_" + "_".join(f"{k}_{v}" for k, v in config.items()): config for i, config in enumerate(configs)}
    names = list(dict.fromkeys(name for config in calls.values() for name in config))
    result = functions.profiled(function, {call: ((), config) for call, config in calls.items()})
    facts = frames.frame(Fact, result.facts)
    if taken := [name for name in names if name in (*facts.columns, *facts.index.names)]:
        raise UsageError(f"expected arguments of other names than a frame's columns, found {', '.join(taken)}")
    by_shape = dict(zip([outcome.shape for outcome in result.outcomes], calls.values(), strict=True))
    for place, name in enumerate(names):
        facts.insert(place, name, [by_shape[shape].get(name) for shape in facts.index.get_level_values("shape")])
    return facts
