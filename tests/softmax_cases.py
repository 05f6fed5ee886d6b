"""Cases of the stand-in suite in ``children/softmax``, which run on the CPU."""

from __future__ import annotations

from pathlib import Path

from flashcore.model.suite import Argument
from flashcore.runner.kernel_call import KernelCall, Operator, Reference

ROOT = Path(__file__).parent / "children" / "softmax"
ARGUMENTS = (
    Argument("x", "tensor", False, ("R", "C"), "float32"),
    Argument("out", "tensor", True, ("R", "C"), "float16"),
    Argument("scale", "float"),
)


def case(
    variant: str, shape: str = "small", *, reference: bool = False, rows: int = 6, columns: int = 37
) -> KernelCall:
    return KernelCall(
        variant=variant,
        shape=shape,
        suite="softmax",
        root=str(ROOT),
        problem_file="problem.py",
        params={"R": rows, "C": columns},
        arguments=ARGUMENTS,
        target=Reference(f"peers.py:{variant}") if reference else Operator(),
        tolerance="fp16_out",
        seeds=(0, 1),
        flop=5.0 * rows * columns,
    )
