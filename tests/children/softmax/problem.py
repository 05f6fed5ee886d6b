"""Row softmax on the CPU, with operators that are wrong in every way that check is to find.

The operators stand in for a library: they are registered when a child imports this file. Importing it
without torch leaves them out, as the supervising process does.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("normal", "large")
EDGE_KINDS = ("shifted",)
TOLERANCES = {"fp16_out": "the output is rounded to fp16"}
FENCE = {"max": 0.06, "mean": 0.02}


def make_inputs(params: dict[str, Any], seed: int, device: str, kind: str = "normal") -> dict[str, Any]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(params["R"], params["C"], generator=generator)
    shown = {"large": x * 20, "shifted": x + 100}.get(kind, x)
    return {"x": shown.to(device), "scale": 1.0}


def reference(inputs: dict[str, Any], params: dict[str, Any]) -> dict[str, Tensor]:
    return {"out": inputs["x"].double().softmax(-1)}


def emulate(tolerance: str, inputs: dict[str, Any], params: dict[str, Any]) -> dict[str, Tensor]:
    return {"out": reference(inputs, params)["out"].half()}


def work(params: dict[str, Any]) -> dict[str, float]:
    return {"flop": 5.0 * params["R"] * params["C"], "bytes": 6.0 * params["R"] * params["C"]}


def invariants(call: Callable[..., Any], inputs: dict[str, Any], params: dict[str, Any]) -> list[str]:
    total = call(inputs)["out"].double().sum(-1)
    return [] if bool(((total - 1).abs() < 1e-2).all()) else ["rows do not add up to 1"]


def _work(seconds: float) -> None:
    """Takes this much of the thread's processor time, which the tests' timer counts."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def _register() -> None:
    import torch

    library = torch.library.Library("flashcore_softmax", "FRAGMENT")  # type: ignore[no-untyped-call]
    globals()["_library"] = library  # it unregisters when it is collected

    def operator(function: Callable[..., None], schema: str = "(Tensor x, Tensor(a!) out, float scale) -> ()") -> None:
        library.define(function.__name__ + schema)  # type: ignore[no-untyped-call]
        library.impl(function.__name__, function, "CPU")  # type: ignore[no-untyped-call]

    def right(x: Tensor, out: Tensor, scale: float) -> None:
        out.copy_(x.softmax(-1))

    def also_right(x: Tensor, out: Tensor, scale: float) -> None:
        out.copy_(x.double().softmax(-1))

    def wrong_scale(x: Tensor, out: Tensor, scale: float) -> None:
        out.copy_(x.softmax(-1) * 1.02)

    def no_maximum(x: Tensor, out: Tensor, scale: float) -> None:
        out.copy_(x.exp() / x.exp().sum(-1, keepdim=True))

    def far_off(x: Tensor, out: Tensor, scale: float) -> None:
        out.fill_(1.0)

    def nan(x: Tensor, out: Tensor, scale: float) -> None:
        out.copy_(x.softmax(-1))
        out[1, 2] = float("nan")

    def unwritten(x: Tensor, out: Tensor, scale: float) -> None:
        out[:-1].copy_(x[:-1].softmax(-1))

    def past_the_end(x: Tensor, out: Tensor, scale: float) -> None:
        out.copy_(x.softmax(-1))
        out.as_strided((8,), (1,), out.storage_offset() + out.numel()).fill_(0)

    def before_the_start(x: Tensor, out: Tensor, scale: float) -> None:
        out.copy_(x.softmax(-1))
        out.as_strided((1,), (1,), out.storage_offset() - 1).fill_(0)

    def far_past_the_end(x: Tensor, out: Tensor, scale: float) -> None:
        out.copy_(x.softmax(-1))
        out.as_strided((1,), (1,), out.storage_offset() + out.numel() + 8191).fill_(0)

    def writes_beside_input(x: Tensor, out: Tensor, scale: float) -> None:
        out.copy_(x.softmax(-1))
        x.as_strided((1,), (1,), x.storage_offset() + x.numel() + 4096).fill_(0)

    def reads_beyond(x: Tensor, out: Tensor, scale: float) -> None:
        # A column too many, as a tail without a mask takes in.
        rows = x.as_strided((x.shape[0], x.shape[1] + 1), x.stride(), x.storage_offset())
        out.copy_(rows.softmax(-1)[:, :-1])

    def writes_input(x: Tensor, out: Tensor, scale: float) -> None:
        out.copy_(x.softmax(-1))
        x.mul_(2)

    def random_bits(x: Tensor, out: Tensor, scale: float) -> None:
        out.copy_(x.softmax(-1))
        if random.random() < 0.5:
            out[0, 0] *= 1.001

    def raises(x: Tensor, out: Tensor, scale: float) -> None:
        raise RuntimeError("invalid configuration argument")

    seen = set()

    def raises_late(x: Tensor, out: Tensor, scale: float) -> None:
        """On other data than its first."""
        seen.add(float(x[0, 0]))
        if len(seen) > 1:
            raise RuntimeError("invalid device function")
        out.copy_(x.softmax(-1))

    def poisons(x: Tensor, out: Tensor, scale: float) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def exits(x: Tensor, out: Tensor, scale: float) -> None:
        print("gone", file=sys.stderr, flush=True)
        os._exit(9)

    def crashes(x: Tensor, out: Tensor, scale: float) -> None:
        ctypes.string_at(0)

    def hangs(x: Tensor, out: Tensor, scale: float) -> None:
        while True:
            time.sleep(0.1)

    def hangs_late(x: Tensor, out: Tensor, scale: float) -> None:
        out.copy_(x.softmax(-1))
        globals()["_calls"] = globals().get("_calls", 0) + 1
        while globals()["_calls"] > 20:
            time.sleep(0.1)

    def crowded(x: Tensor, out: Tensor, scale: float) -> None:
        # Finds no memory in the process that calls it first, as if another one had taken it.
        first = Path(os.environ["CROWDED"])
        if not first.exists():
            first.write_text(str(os.getpid()))
        if first.read_text() == str(os.getpid()):
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        out.copy_(x.softmax(-1))

    def slower(x: Tensor, out: Tensor, scale: float) -> None:
        for _ in range(4):
            out.copy_(x.softmax(-1))

    def far_slower(x: Tensor, out: Tensor, scale: float) -> None:
        _work(0.003)
        out.copy_(x.softmax(-1))

    def refuses(x: Tensor, out: Tensor, scale: float) -> None:
        for name, tensor in (("x", x), ("out", out)):
            if not tensor.is_contiguous():
                raise RuntimeError(f"refuses: {name} must be contiguous")
        out.copy_(x.softmax(-1))

    def refuses_mutely(x: Tensor, out: Tensor, scale: float) -> None:
        if not out.is_contiguous():
            raise RuntimeError("cannot")
        out.copy_(x.softmax(-1))

    def takes_anything(x: Tensor, out: Tensor, scale: float) -> None:
        # Never looks at strides.
        flat = x.as_strided(x.shape, (x.shape[1], 1), x.storage_offset())
        out.copy_(flat.softmax(-1))

    def knows_tensors(x: Tensor, out: Tensor, scale: float) -> None:
        # Does nothing for tensors that it has seen.
        recorded = globals().setdefault("_known", set())
        if out.data_ptr() not in recorded:
            recorded.add(out.data_ptr())
            out.copy_(x.softmax(-1))

    def keeps_answers(x: Tensor, out: Tensor, scale: float) -> None:
        # By the address of its input.
        kept = globals().setdefault("_kept", {})
        if x.data_ptr() not in kept:
            kept[x.data_ptr()] = x.softmax(-1)
        out.copy_(kept[x.data_ptr()])

    def stops(x: Tensor, out: Tensor, scale: float) -> None:
        globals()["_done"] = globals().get("_done", 0) + 1
        if globals()["_done"] < 20:
            out.copy_(x.softmax(-1))

    for function in list(locals().values()):
        if callable(function) and getattr(function, "__name__", "") not in ("operator", ""):
            operator(function)

    # Its schema keeps silent about what it writes: torch's opcheck finds that.
    def silent(x: Tensor, out: Tensor, scale: float) -> None:
        out.copy_(x.softmax(-1))

    operator(silent, "(Tensor x, Tensor out, float scale) -> ()")


def in_child() -> bool:
    return len(sys.argv) > 2 and sys.argv[-1].endswith(".jsonl")


if in_child():
    _register()
