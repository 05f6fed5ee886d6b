"""out = factor · x, with operators that stand in for the compiled ones."""

from __future__ import annotations

import os
import sys
import time
import types
from collections.abc import Mapping
from typing import Any

KINDS = ("normal",)
TOLERANCES = {"rounded_once": "the product is rounded once, to fp32"}
FENCE = {"max": 1e-5, "mean": 1e-6}
#: Shared with the stand-in's timer.
CLOCK: Any = sys.modules.setdefault("standin_clock", types.SimpleNamespace(us=0.0))  # type: ignore[arg-type]
#: µs of a call.
DURATIONS = {"slow": 11.0, "fast": 8.5, "overlaps": 1.2, "below_empty": 0.2}
SCHEMA = "(Tensor x, Tensor(a!) out, float factor) -> ()"


def make_inputs(params: Mapping[str, Any], seed: int, device: str, kind: str = "normal") -> dict[str, Any]:
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    return {"x": torch.randn(params["N"], generator=generator, device=device), "factor": 0.5 + seed}


def reference(inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    return {"out": inputs["x"].double() * inputs["factor"]}


def emulate(tolerance: str, inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    return {"out": inputs["x"] * inputs["factor"]}


def work(params: Mapping[str, Any]) -> dict[str, float]:
    return {"flop": params["N"], "fp32_flop": params["N"], "bytes": 8 * params["N"]}


def scale(name: str, x: Any, out: Any, factor: float) -> None:
    """What the operator of that name does instead of a kernel."""
    CLOCK.us += DURATIONS.get(name, 10.0)
    if name == "hangs" and not os.path.exists("fixed"):
        time.sleep(600)
    if name == "crashes":
        os.abort()
    if name == "raises":
        raise RuntimeError("invalid configuration argument")
    out.copy_(x * factor * (1.01 if name == "wrong" else 1.0))


def _register() -> None:
    import torch

    library = torch.library.Library("flashcore_standin", "FRAGMENT")  # type: ignore[no-untyped-call]
    globals()["_library"] = library  # collected, it would take the operators along

    def operator(name: str) -> None:
        def call(x: Any, out: Any, factor: float) -> None:
            scale(name, x, out, factor)

        library.define(name + SCHEMA)  # type: ignore[no-untyped-call]
        library.impl(name, call, "CPU")  # type: ignore[no-untyped-call]

    for name in (*DURATIONS, "wrong", "hangs", "crashes", "raises"):
        operator(name)


if os.environ.get("STANDIN_PARENT") != str(os.getpid()):  # only processes that run kernels need torch
    _register()
