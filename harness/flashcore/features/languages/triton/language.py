"""Triton's launches, recorded.

The same recorder is used in two places. Without a GPU a function is called with stand-ins for its tensors, and
Triton compiles what it would launch for a named arch (:func:`launches`). Triton's own rules decide about types,
divisibility and constants, so the kernel is the one that a launch would load. On a GPU the recorder tells which kernels
were loaded.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flashcore.errors import FlashcoreError
from flashcore.features.languages.launches import Call, StandIn
from flashcore.features.languages.traced import Package, Traced

#: Options of a kernel that tell its configurations apart, where they differ.
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def prepare() -> tuple[type, ...]:
    """Imports Triton and hashes its files, which takes a second; the type of its kernels."""
    from triton.runtime import jit

    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("triton.runtime.cache").triton_key()
    return (jit.JITFunction,)


def launches(
    function: Callable[..., Any], arguments: Sequence[Any], config: Mapping[str, Any], arch: str
) -> list[Call]:
    """The kernels that a function launches, compiled for that arch, whatever GPU there is or is not."""
    ahead_of_time(int(arch.removeprefix("sm_").rstrip("af")))
    names = {t.data_ptr(): t.name for t in arguments if isinstance(t, StandIn)}
    with recorded(names, launch=False) as calls:
        function(*arguments, **config)
    return calls


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
            arguments = _arguments(self, args, kwargs)
            sizes = [*map(int, grid(dict(arguments)) if callable(grid) else grid), 1, 1][:3]
            calls.append(_call(kernel, log, sizes, arguments, name_of))
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


def _arguments(jit: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of a launch by name, with defaults, without options of the launch."""
    bound = jit.signature.bind(*args, **{k: v for k, v in kwargs.items() if k in jit.signature.parameters})
    bound.apply_defaults()
    arguments: Mapping[str, Any] = bound.arguments
    return arguments


def _call(
    kernel: Any, log: str, sizes: Sequence[int], arguments: Mapping[str, Any], name_of: Callable[[Any], str]
) -> Call:
    names, src, meta = list(arguments), kernel.src, kernel.metadata
    labels = [f"{names[path[0]]}={value}" for path, value in src.constants.items()]
    labels += [f"{name}:{kind}" for name, kind in src.signature.items() if kind != "constexpr"]
    labels += [f"{names[path[0]]}%16" for path, attrs in src.attrs.items() if attrs]
    labels += [f"{name}={value}" for name in _OPTIONS if (value := getattr(meta, name, None)) is not None]
    constants = {names[path[0]] for path in src.constants}  # they are in the code
    values = [value for name, value in arguments.items() if name not in constants]
    return Call(
        symbol=meta.name,
        labels=labels,
        code=kernel.asm["cubin"],
        log=log,
        grid=sizes,
        threads=meta.num_warps * 32,
        cluster=getattr(meta, "num_ctas", 1),
        shared=meta.shared,
        flags=[bool(getattr(meta, name, False)) for name in ("launch_pdl", "launch_cooperative_grid")],
        arguments=[name_of(value) if hasattr(value, "data_ptr") else repr(value) for value in values],
        workspace=(getattr(meta, "global_scratch_size", 0) or 0) * math.prod(sizes),
    )


PACKAGE = Package("triton", "flashcore-harness[triton]")
LANGUAGE = Traced(
    "triton",
    PACKAGE,
    __name__,
    variables="TRITON_",
    recorder=f"{__name__}:recorded",
)
