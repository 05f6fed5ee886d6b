"""What a Python function launches through Triton: each kernel as it was compiled, its grid and its arguments.

The same recorder is used in two places. Without a GPU a function is called with stand-ins for its tensors, and
Triton compiles what it would launch for a named arch (:func:`ahead_of_time`). Triton's own rules decide about types,
divisibility and constants, so the kernel is the one that a launch would load. On a GPU the recorder tells which kernels
were loaded. Only children import Triton, so it is imported inside the functions here.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flashcore.errors import FlashcoreError
from flashcore.readers import cubin

#: Options of a kernel that tell its configurations apart, where they differ.
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


@dataclass(frozen=True, slots=True)
class Call:
    """One launch.

    Args:
        labels: which of several kernels of one name it is: constants, types, divisibility, options.
        identity: what makes it this launch, as plain JSON: the hash of its code, ``grid``, ``threads``, blocks a
            ``cluster``, ``shared`` memory in bytes a block, ``flags`` (programmatic, cooperative) and ``arguments``.
            Tensors stand by their names in the problem; nothing stands by a name that only the source has.
        workspace: bytes.
        choice: launches of one choice above 0 are configurations of one launch, of which a GPU takes the fastest.
    """

    symbol: str
    labels: tuple[str, ...]
    code: bytes
    log: str
    identity: dict[str, Any]
    workspace: int = 0
    choice: int = 0


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


def ahead_of_time(capability: int) -> None:
    """Makes this process compile for that compute capability (``90``), whatever GPU there is or is not."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class Target:
        def __getattr__(self, name: str) -> Any:
            target = GPUTarget("cuda", capability, 32)
            answers = {"get_current_device": 0, "get_current_stream": 0, "get_current_target": target}
            if name not in answers:
                raise FlashcoreError(f"Triton's driver was asked for {name}, which needs a GPU")
            return lambda *_: answers[name]

    driver.set_active(Target())


@contextlib.contextmanager
def recorded(names: Mapping[int, str], *, launch: bool) -> Iterator[list[Call]]:
    """The launches of Triton kernels in this context, in their order.

    Args:
        names: tensors by their address; another one is workspace.
        launch: ``False`` compiles only.
    """
    from triton import compiler, knobs, runtime

    jit, tuner = runtime.jit.JITFunction, runtime.autotuner.Autotuner
    ignored = (compiler.errors.CompileTimeAssertionFailure, runtime.errors.PTXASError)  # Triton ignores them too
    calls: list[Call] = []
    logs: dict[int, str] = {}
    spaces: dict[int, str] = {}
    run, tune = jit.run, tuner.run

    def name_of(value: Any) -> str:
        address = value.data_ptr()
        return names.get(address) or spaces.setdefault(address, f"workspace {len(spaces)}")

    def recording(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        output = io.StringIO()
        with contextlib.nullcontext() if launch else _compiling(output):
            kernel = run(self, *args, grid=grid, warmup=warmup or not launch, **kwargs)
        log = logs.setdefault(id(kernel), output.getvalue())
        if not warmup:
            calls.append(_call(self, kernel, log, grid, args, kwargs, name_of))
        return kernel

    def tuned(self: Any, *args: Any, **kwargs: Any) -> Any:
        at, result = len(calls), None
        if launch:
            result = tune(self, *args, **kwargs)
            del calls[at:-1]  # the last is the launch, those before it searched for the fastest
            return result
        for config in self.configs:
            with contextlib.suppress(*ignored):
                result = self.fn.run(*args, **kwargs, **config.all_kwargs())
        if len(calls) > at + 1:
            calls[at:] = [replace(call, choice=at + 1) for call in calls[at:]]
        return result

    before = knobs.nvidia.dump_ptxas_log, knobs.compilation.always_compile
    if not launch:  # what comes from Triton's cache says nothing about spills
        knobs.nvidia.dump_ptxas_log = knobs.compilation.always_compile = True
    jit.run, tuner.run = recording, tuned
    try:
        yield calls
    finally:
        jit.run, tuner.run = run, tune
        knobs.nvidia.dump_ptxas_log, knobs.compilation.always_compile = before


class _NoTorch:
    """Makes ``import torch`` fail. Triton 3.9 would take a ``None`` in ``sys.modules`` for the module."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        if name == "torch":
            raise ModuleNotFoundError("torch is not imported to compile", name=name)


@contextlib.contextmanager
def _compiling(output: io.StringIO) -> Iterator[None]:
    """Records ptxas's output. Triton imports torch, if it can, to know its tensors: here there are none."""
    sys.meta_path.insert(0, _NoTorch)
    try:
        with contextlib.redirect_stdout(output):
            yield
    finally:
        sys.meta_path.remove(_NoTorch)


def _call(
    jit: Any, kernel: Any, log: str, grid: Any, args: Any, kwargs: Mapping[str, Any], name_of: Callable[[Any], str]
) -> Call:
    bound = jit.signature.bind(*args, **{k: v for k, v in kwargs.items() if k in jit.signature.parameters})
    bound.apply_defaults()
    sizes = [*map(int, grid(dict(bound.arguments)) if callable(grid) else grid), 1, 1][:3]
    names, src, meta = list(bound.arguments), kernel.src, kernel.metadata
    labels = [f"{names[path[0]]}={value}" for path, value in src.constants.items()]
    labels += [f"{name}:{kind}" for name, kind in src.signature.items() if kind != "constexpr"]
    labels += [f"{names[path[0]]}%16" for path, attrs in src.attrs.items() if attrs]
    labels += [f"{name}={value}" for name in _OPTIONS if (value := getattr(meta, name, None)) is not None]
    constants = {names[path[0]] for path in src.constants}  # they are in the code
    values = [value for name, value in bound.arguments.items() if name not in constants]
    identity = {
        "code": cubin.code_of(kernel.asm["cubin"]),
        "grid": sizes,
        "threads": meta.num_warps * 32,
        "cluster": getattr(meta, "num_ctas", 1),
        "shared": meta.shared,
        "flags": [bool(getattr(meta, name, False)) for name in ("launch_pdl", "launch_cooperative_grid")],
        "arguments": [name_of(value) if hasattr(value, "data_ptr") else repr(value) for value in values],
    }
    scratch = (getattr(meta, "global_scratch_size", 0) or 0) * math.prod(sizes)
    words = tuple("".join(label.split()) for label in labels)  # a kernel's name is one word
    return Call(meta.name, words, kernel.asm["cubin"], log, identity, scratch)


def names(calls: Sequence[Call]) -> list[str]:
    """A name for the kernel of each call: its own, and in ``<>`` what distinguishes it from others of the same name."""
    made = []
    for call in calls:
        common = set.intersection(*(set(c.labels) for c in calls if c.symbol == call.symbol))
        rest = ",".join(label for label in call.labels if label not in common)
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
