"""A plan of launches: kernels of cubins with their arguments, as validated JSON.

The forms check types and names. The launcher's program, which reads a plan as words, checks the values.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from flashcore.errors import ManifestError
from flashcore.runner.kernel_call import KernelCall
from flashcore.suites.operator_schema import SCALAR_TYPES
from flashcore.suites.schema import Form, mistakes

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_$][A-Za-z0-9_$.-]*$")]
_Dims = Annotated[Sequence[int], Field(min_length=3, max_length=3)]


class Tensor(Form):
    """A contiguous tensor or a workspace."""

    dtype: Literal[tuple(SCALAR_TYPES)]  # type: ignore[valid-type]
    sizes: Sequence[int]
    role: Literal["input", "output", "inout", "workspace"] = "input"


class TensorMap(Form):
    """The arguments of ``cuTensorMapEncodeTiled``, the innermost dimension first; ``strides``, in bytes, omit it."""

    dtype: Word
    sizes: list[int]
    strides: list[int]
    box: list[int]
    steps: list[int]
    swizzle: Word = "none"
    promotion: Word = "none"
    fill: Word = "zero"


class Value(Form):
    """The content of an argument from byte ``at``: a tensor's address, a ``map`` of the tensor, or bytes as ``hex``."""

    at: int = 0
    tensor: Word | None = None
    offset: int = 0
    map: TensorMap | None = None
    hex: Annotated[str, Field(pattern=r"^([0-9a-f]{2})+$")] | None = None


class Launch(Form):
    """A launch of a kernel. An argument is a list of values: one, or the parts of a struct."""

    cubin: Word
    kernel: Word
    grid: _Dims
    block: _Dims
    cluster: _Dims = (1, 1, 1)
    dynamic_smem: int = 0
    programmatic: bool = False
    cooperative: bool = False
    arguments: list[list[Value]]


class Plan(Form):
    """Launches in their order, and their tensors. Cubins are in the plan's folder."""

    version: Literal[1] = 1
    tensors: dict[Word, Tensor]
    launches: list[Launch]

    def words(self) -> str:
        """The plan as the launcher's program reads it."""
        return f"flashcore-plan {_words(self)} end\n"


def _words(part: Any) -> str:
    """A form's values in the order of its fields; a list or table follows its length."""
    if isinstance(part, Form):
        return " ".join(map(_words, vars(part).values()))
    if isinstance(part, dict):
        return " ".join([str(len(part)), *(f"{name} {_words(value)}" for name, value in part.items())])
    if isinstance(part, (list, tuple)):
        return " ".join([str(len(part)), *map(_words, part)])
    return "-" if part is None else str(part)


def tensors_of(case: KernelCall) -> dict[str, Tensor]:
    """The tensors of a case's operator."""
    return {
        a.name: Tensor(
            dtype=a.dtype,
            sizes=a.sizes(case.params),
            role="inout" if a.inout else "output" if a.mutable else "input",
        )
        for a in case.arguments
        if a.kind == "tensor" and not a.absent(case.params)
    }


def read(path: Path) -> Plan:
    """Reads a plan's JSON.

    Raises:
        ManifestError: every mistake in its form.
    """
    try:
        data = json.loads(path.read_bytes())
        return Plan.model_validate(data)
    except ValidationError as error:
        wrong = [*map(": ".join, mistakes(error.errors(), data, Plan))]
    except (OSError, ValueError, RecursionError) as error:
        wrong = [f"expected a plan as JSON: {error}"]
    raise ManifestError(str(path), wrong)
