"""Numba-CUDA's launches: it writes PTX, and ptxas a cubin, whose parameters are those of Numba's own calls."""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from flashcore.errors import FlashcoreError
from flashcore.features.languages.launches import Call, StandIn
from flashcore.features.languages.traced import Package, Traced
from flashcore.machine import toolchain


def prepare() -> tuple[type, ...]:
    from numba.cuda.dispatcher import CUDADispatcher

    return (CUDADispatcher,)


def launches(
    function: Callable[..., Any], arguments: Sequence[Any], config: Mapping[str, Any], arch: str
) -> list[Call]:
    (dispatcher,) = prepare()
    calls: list[Call] = []

    def call(kernel: Any, values: Any, launch: Any) -> None:
        calls.append(_call(kernel, values, launch, arch))

    with mock.patch.object(dispatcher, "call", call):
        function(*arguments, **config)
    return calls


def _call(kernel: Any, values: Sequence[Any], launch: Any, arch: str) -> Call:
    from numba import cuda, types

    options = kernel.targetoptions
    if options.get("link"):
        raise NotImplementedError(f"{kernel.py_func.__name__}: kernels with link= are not compiled ahead of time")
    kinds = [
        types.Array(getattr(types, str(v.dtype).rpartition(".")[2]), v.ndim, "C")
        if isinstance(v, StandIn)
        else kernel.typeof_pyval(v)
        for v in values
    ]
    capability = int(arch.removeprefix("sm_").rstrip("af"))
    chosen = {name: options[name] for name in ("fastmath", "opt", "launch_bounds") if name in options}
    chosen |= {"cc": divmod(capability, 10), "device": False, "abi": "numba", "lineinfo": True}
    ptx, _ = cuda.compile(kernel.py_func, types.void(*kinds), **chosen)
    ptx = ptx.replace(f".target sm_{capability}\n", f".target {arch}\n")
    # The mangled name has a hash of Numba's flags, and tools demangle it differently: ncu drops some namespaces.
    for entry in re.findall(r"\.entry (\w+)\(", ptx):
        ptx = re.sub(rf"\b{entry}(?=\(|_param_)", kernel.py_func.__name__, ptx)
    code, log = _assembled(ptx, arch, options.get("max_registers"))
    constants = inspect.getclosurevars(kernel.py_func).nonlocals
    labels = [f"{name}={value}" for name, value in constants.items() if isinstance(value, (int, float))]
    labels += [f"{name}:{kind}" for name, kind in zip(inspect.signature(kernel.py_func).parameters, kinds, strict=True)]
    return Call(
        symbol=kernel.py_func.__name__,
        labels=labels,
        code=code,
        log=log,
        grid=[*launch.griddim],
        threads=[*launch.blockdim],
        shared=launch.sharedmem,
        arguments=[word for value in values for word in _words(value)],
    )


def _words(value: Any) -> Iterator[str]:
    """An argument's parameters. An array has an owner and a parent, which are unused, its numbers of elements and of
    bytes of each, the address, sizes, and strides in bytes."""
    if isinstance(value, StandIn):
        strides = [stride * value.itemsize for stride in value.stride()]
        head = ("None", "None", value.numel(), value.itemsize)
        yield from (*map(str, head), value.name, *map(str, (*value.shape, *strides)))
    elif isinstance(value, tuple):
        for part in value:
            yield from _words(part)
    else:
        yield repr(value)


def _assembled(ptx: str, arch: str, max_registers: int | None) -> tuple[bytes, str]:
    """A cubin and ptxas's output."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx, encoding="utf-8")
        limit = [f"-maxrregcount={max_registers}"] if max_registers else []
        ptxas = toolchain.find_tool("ptxas", "nvcc")
        done = toolchain.ask([ptxas, "-v", "-lineinfo", f"-arch={arch}", *limit, source, "-o", made])
        if done.returncode:
            raise FlashcoreError(f"ptxas: {done.stderr}")
        return made.read_bytes(), done.stderr


LANGUAGE = Traced(
    "numba",
    Package("numba-cuda", "./extensions/languages-more[numba]"),
    __name__,
    variables="NUMBA_",
    launcher="flashcore_judge.launcher.program:target",
)
