"""What a Python function launches: each kernel as it was compiled, its grid and its arguments."""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flashcore.model.groups import picked
from flashcore.readers import cubin


@dataclass(frozen=True)
class Call:
    """One launch.

    Args:
        labels: which of several kernels of one name it is: constants, types, divisibility, options.
        code: the cubin; ``log``: the remarks of its compiler.
        grid, threads, cluster: blocks, threads per block, and blocks per cluster, each one number or three; a ``grid``
            counts clusters of one number.
        arguments: tensors stand by their names in the problem; nothing stands by a name that only the source has. An
            argument of several values is a list of its parts: ``{"hex": bytes}`` first, where something is no address,
            and ``{"at": byte, "tensor": name, "offset": bytes}``.
        shared: bytes of dynamic memory per block.
        flags: whether it is programmatic, and whether cooperative.
        workspace: bytes.
        choice: launches of one choice above 0 are configurations of one launch, of which a GPU takes the fastest.
    """

    symbol: str
    labels: Sequence[str]
    code: bytes
    log: str
    grid: Sequence[int]
    threads: int | Sequence[int]
    arguments: Sequence[Any]
    cluster: int | Sequence[int] = 1
    shared: int = 0
    flags: Sequence[bool] = (False, False)
    workspace: int = 0
    choice: int = 0

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """What makes it this launch, as plain JSON."""
        launch = picked(self, "grid", "threads", "cluster", "shared", "arguments")
        return {"code": cubin.code_of(self.code), **launch, "flags": [*self.flags]}


class StandIn:
    """A tensor without memory, with what a launcher may ask for: sizes, strides, element type, an aligned address.

    Args:
        dtype: torch's name of the element type; torch's own where torch is imported already.
        made: is called with the workspace that the launcher makes from it.
    """

    is_cuda, requires_grad = True, False
    _addresses = itertools.count(1 << 32, 1 << 32)

    def __init__(self, name: str, sizes: Sequence[int], dtype: str, made: list[StandIn]) -> None:
        torch = sys.modules.get("torch")
        self.name, self.shape, self.ndim, self._dtype, self._made = name, tuple(sizes), len(sizes), dtype, made
        self.dtype = getattr(torch, dtype) if torch else f"torch.{dtype}"
        self.device = torch.device("cuda", 0) if torch else "cuda:0"
        self.itemsize = next((n // 8 for n in (64, 32, 16, 8) if str(n) in dtype), 1)
        answers = {
            "data_ptr": next(self._addresses),
            "dim": self.ndim,
            "numel": math.prod(sizes),
            "element_size": self.itemsize,
            "is_contiguous": True,
            "contiguous": self,
        }
        self.__dict__.update({name: lambda answer=answer: answer for name, answer in answers.items()})

    def stride(self, dim: int | None = None) -> Any:
        strides = [math.prod(self.shape[i + 1 :]) for i in range(self.ndim)]
        return tuple(strides) if dim is None else strides[dim]

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def new_empty(self, *sizes: Any, dtype: Any = None) -> StandIn:
        """Workspace."""
        flat = sizes[0] if sizes and not isinstance(sizes[0], int) else sizes
        dtype_name = self._dtype if dtype is None else str(dtype).split(".")[-1]
        self._made.append(StandIn("workspace", flat, dtype_name, self._made))
        return self._made[-1]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"the tensor {self.name} was asked for .{name}: without a GPU it has only sizes, strides, element type, "
            "address and new_empty(); a launcher of Triton kernels needs no more"
        )


def names(calls: Sequence[Call]) -> list[str]:
    """A name for the kernel of each call: its own, and in ``<>`` what distinguishes it from others of the same name."""
    made = []
    for call in calls:
        common = set.intersection(*(set(c.labels) for c in calls if c.symbol == call.symbol))
        rest = "".join(",".join(label for label in call.labels if label not in common).split())  # one word
        made.append(call.symbol + (f"<{rest}>" if rest else ""))
    return made


def difference(expected: Sequence[Sequence[Mapping[str, Any]]], launches: Sequence[Mapping[str, Any]]) -> str:
    """How launches differ from those that were expected, each of which may be one of several; empty if they do not."""
    if len(expected) != len(launches):
        return f"{len(expected)} launches were compiled, {len(launches)} ran"
    for i, (configurations, launch) in enumerate(zip(expected, launches, strict=True)):
        if len(configurations) > 1 and launch not in configurations:
            return f"launch {i}: it ran as none of the {len(configurations)} configurations that were compiled"
        for what, compiled in configurations[0].items() if len(configurations) == 1 else ():
            if compiled != launch[what]:
                return f"launch {i}: {what} was {compiled} when it was compiled, {launch[what]} when it ran"
    return ""
