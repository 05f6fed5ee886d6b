"""C = alpha A B + beta C, and a bias where one is given.

In a child of a test it brings operators for the CPU, which are wrong in every way that a tensor which is input and
output makes possible.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("normal",)
TOLERANCES = {"fp32": "products summed up in fp32"}
FENCE = {"max": 1e-2, "mean": 1e-3}
SCHEMA = "(Tensor a, Tensor b, Tensor(a!) c, Tensor? bias, float alpha, float beta) -> ()"
#: C as inputs have it is smaller: what is added up in it, call after call, is not.
MOST = 10.0


def make_inputs(params: dict[str, Any], seed: int, device: str, kind: str = "normal") -> dict[str, Any]:
    """A is the left part of a wider matrix."""
    import torch

    made = torch.Generator().manual_seed(seed)
    m, n, k = params["M"], params["N"], params["K"]
    bias = torch.randn(n, generator=made) if params["bias"] else None
    a, b, c = (torch.randn(shape, generator=made) for shape in ((m, k + 4), (k, n), (m, n)))
    tensors = {"a": a.to(device)[:, :k], "b": b.to(device), "c": c.clamp(-4, 4).to(device)}
    return {**tensors, "bias": None if bias is None else bias.to(device), "alpha": 0.01, "beta": 2.0}


def reference(inputs: dict[str, Any], params: dict[str, Any]) -> dict[str, Tensor]:
    a, b, c = (inputs[name].double() for name in "abc")
    result = inputs["alpha"] * (a @ b) + inputs["beta"] * c
    return {"c": result if inputs["bias"] is None else result + inputs["bias"].double()}


def emulate(tolerance: str, inputs: dict[str, Any], params: dict[str, Any]) -> dict[str, Tensor]:
    """Each product added to beta C and rounded, one after the other, as libraries do on some CPUs."""
    a, b, c = (inputs[name] for name in "abc")
    result = inputs["beta"] * c
    for k in range(params["K"]):
        result += inputs["alpha"] * a[:, k : k + 1] * b[k]
    return {"c": result if inputs["bias"] is None else result + inputs["bias"]}


def work(params: dict[str, Any]) -> dict[str, float]:
    m, n, k = (float(params[name]) for name in "MNK")
    return {"flop": 2 * m * n * k, "bytes": 4 * (m * k + k * n + 2 * m * n)}


def answer(a: Tensor, b: Tensor, c: Tensor, bias: Tensor | None, alpha: float, beta: float) -> Tensor:
    result = alpha * (a @ b) + beta * c
    return result if bias is None else result + bias


def _register() -> None:
    import torch

    library = torch.library.Library("flashcore_update", "FRAGMENT")  # type: ignore[no-untyped-call]
    globals()["_library"] = library  # it unregisters when it is collected
    calls: dict[str, int] = {}

    def operator(function: Callable[..., Tensor | None]) -> None:
        def call(*given: Any) -> None:
            calls[function.__name__] = calls.get(function.__name__, 0) + 1
            if (result := function(*given)) is not None:
                given[2].copy_(result)

        library.define(function.__name__ + SCHEMA)  # type: ignore[no-untyped-call]
        library.impl(function.__name__, call, "CPU")  # type: ignore[no-untyped-call]

    @operator
    def right(*given: Any) -> Tensor:
        return answer(*given)

    @operator
    def strict(a: Tensor, b: Tensor, c: Tensor, *rest: Any) -> Tensor:
        if not bool((c.abs() < MOST).all()):
            raise RuntimeError("c holds what an earlier call left")
        return answer(a, b, c, *rest)

    @operator
    def ignores_beta(a: Tensor, b: Tensor, c: Tensor, bias: Tensor | None, alpha: float, beta: float) -> Tensor:
        return answer(a, b, c, bias, alpha, 0.0)

    @operator
    def ignores_bias(a: Tensor, b: Tensor, c: Tensor, bias: Tensor | None, alpha: float, beta: float) -> Tensor:
        return answer(a, b, c, None, alpha, beta)

    @operator
    def first_call_only(*given: Any) -> Tensor | None:
        return answer(*given) if calls["first_call_only"] == 1 else None

    @operator
    def stops(*given: Any) -> Tensor | None:
        return answer(*given) if calls["stops"] < 20 else None

    @operator
    def writes_input(a: Tensor, b: Tensor, *rest: Any) -> Tensor:
        result = answer(a, b, *rest)
        b.mul_(2)
        return result

    @operator
    def writes_strided_input(a: Tensor, *rest: Any) -> Tensor:
        result = answer(a, *rest)
        a[1, 1] += 1
        return result

    @operator
    def writes_between(a: Tensor, *rest: Any) -> Tensor:
        if not a.is_contiguous():
            a.as_strided((1,), (1,), a.storage_offset() + a.shape[1]).fill_(0)
        return answer(a, *rest)

    @operator
    def past_the_end(a: Tensor, b: Tensor, c: Tensor, *rest: Any) -> Tensor:
        c.as_strided((1,), (1,), c.storage_offset() + c.numel()).fill_(0)
        return answer(a, b, c, *rest)

    @operator
    def ignores_strides(a: Tensor, *rest: Any) -> Tensor:
        return answer(a.as_strided(a.shape, (a.shape[1], 1), a.storage_offset()), *rest)

    recorded: set[Any] = set()

    @operator
    def knows_tensors(a: Tensor, b: Tensor, c: Tensor, *rest: Any) -> Tensor | None:
        # As if C held the answer already where it has been before.
        if c.data_ptr() in recorded:
            return None
        recorded.add(c.data_ptr())
        return answer(a, b, c, *rest)

    kept: dict[Any, Tensor] = {}

    @operator
    def keeps_answers(a: Tensor, b: Tensor, c: Tensor, *rest: Any) -> Tensor:
        # By the address of its input.
        if a.data_ptr() not in kept:
            kept[a.data_ptr()] = answer(a, b, c, *rest)
        return kept[a.data_ptr()]


if len(sys.argv) > 2 and sys.argv[-1].endswith(".jsonl"):
    _register()
