"""Cases of the stand-in suite in ``suites/update``, which run on the CPU: a tensor that is input and output, one with
strides, one that may be absent."""

from __future__ import annotations

from pathlib import Path

from flashcore.model.suite import Argument
from flashcore.runner.kernel_call import KernelCall, Operator, Reference

ROOT = Path(__file__).parent / "suites" / "update"
ARGUMENTS = (
    Argument("a", "tensor", False, ("M", "K"), "float32", strides="rows"),
    Argument("b", "tensor", False, ("K", "N"), "float32"),
    Argument("c", "tensor", True, ("M", "N"), "float32", inout=True),
    Argument("bias", "tensor", False, ("N",), "float32", optional=True),
    Argument("alpha", "float"),
    Argument("beta", "float"),
)


def case(variant: str, shape: str = "small", *, reference: bool = False, bias: bool = False) -> KernelCall:
    return KernelCall(
        variant=variant,
        shape=shape,
        suite="update",
        root=str(ROOT),
        problem_file="problem.py",
        params={"M": 5, "N": 7, "K": 12, "bias": bias},
        arguments=ARGUMENTS,
        target=Reference(f"peers.py:{variant}") if reference else Operator(),
        tolerance="fp32",
        seeds=(0, 1),
        flop=None,
    )
