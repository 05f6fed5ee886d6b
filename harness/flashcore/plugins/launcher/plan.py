"""A plan: which kernels of which cubins are launched, on what.

Its JSON is read as data that nobody vouches for: here its form, and the arguments against the cubins' parameters; the
launcher's program checks every number against its limits.
"""

from __future__ import annotations

import itertools
import json
import math
import struct
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, ValidationError

from flashcore.errors import FlashcoreError, ManifestError
from flashcore.measure.workers.kernel_call import Case
from flashcore.readers import cubin
from flashcore.suites.operator_schema import SCALAR_TYPES
from flashcore.suites.schema import Form, mistakes

_MOST_BYTES = 1 << 24
_NUMBERS = {
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "u8": "B",
    "u32": "I",
    "u64": "Q",
    "f16": "e",
    "f32": "f",
    "f64": "d",
}
_MapType = Literal[
    "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64", "bfloat16",
    "float32_ftz", "tfloat32", "tfloat32_ftz",
]  # fmt: skip
_Swizzle = Literal["none", "32B", "64B", "128B"]
_Promotion = Literal["none", "64B", "128B", "256B"]
_Fill = Literal["zero", "nan"]
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_$][A-Za-z0-9_$.-]*$", max_length=4096)]
_Dims = Annotated[list[int], Field(min_length=3, max_length=3)]


class Tensor(Form):
    """A contiguous tensor or a workspace, and what it holds at first: one byte again and again, numbers drawn near a
    standard normal, or raw files beside the plan, one for each set of tensors."""

    dtype: Literal[tuple(SCALAR_TYPES)]  # type: ignore[valid-type]
    sizes: list[int] = Field(max_length=8)
    role: Literal["input", "output", "inout", "workspace"] = "input"
    byte: int = 255
    seed: int | None = None
    files: list[Word] = Field(default=[])

    @property
    def bytes(self) -> int:
        return math.prod(self.sizes) * next((bits // 8 for bits in (64, 32, 16) if str(bits) in self.dtype), 1)

    def words(self) -> list[object]:
        """It as the program reads it."""
        content = ["byte", self.byte] if self.seed is None else ["normal", self.seed]
        content = ["files", len(self.files), *self.files] if self.files else content
        return [self.dtype, self.bytes, self.role, *content]


class TensorMap(Form):
    """The arguments of ``cuTensorMapEncodeTiled``; ``strides``, in bytes, of all dimensions but the first, which is the
    innermost."""

    dtype: _MapType
    sizes: list[int]
    strides: list[int]
    box: list[int]
    steps: list[int]
    swizzle: _Swizzle = "none"
    promotion: _Promotion = "none"
    fill: _Fill = "zero"

    def words(self) -> list[object]:
        """It as the program reads it.

        Raises:
            ValueError: its lists have different lengths.
        """
        modes = ((_Swizzle, self.swizzle), (_Promotion, self.promotion), (_Fill, self.fill))
        dimensions = zip(self.sizes, [1, *self.strides], self.box, self.steps, strict=True)
        numbers = [number for dimension in dimensions for number in dimension]
        return [
            get_args(_MapType).index(self.dtype),
            len(self.sizes),
            *numbers,
            *(get_args(t).index(m) for t, m in modes),
        ]


class Value(Form):
    """What stands ``at`` a byte of an argument: a tensor's address, a ``map`` of it, a number, or bytes as ``hex``."""

    at: int = Field(default=0, ge=0)
    tensor: Word | None = None
    offset: int = 0
    map: TensorMap | None = None
    type: Literal[tuple(_NUMBERS)] | None = None  # type: ignore[valid-type]
    value: int | float = 0
    hex: str | None = Field(default=None, pattern=r"^([0-9a-f]{2})*$")

    def content(self) -> bytes:
        """Its bytes; 0 where the program writes an address or a map.

        Raises:
            struct.error, OverflowError, ValueError: it is not one value, or a number that does not fit its type.
        """
        if [self.tensor, self.hex, self.type].count(None) != 2:
            raise ValueError("expected one of tensor, hex, type")
        if self.type is not None:
            return struct.pack(f"<{_NUMBERS[self.type]}", self.value)
        return bytes(128 if self.map else 8) if self.hex is None else bytes.fromhex(self.hex)


class Launch(Form):
    """A launch of a kernel; ``shared`` is dynamic shared memory in bytes. An argument is a list of values: one, or the
    parts of a struct."""

    cubin: Word
    kernel: Word
    grid: _Dims
    block: _Dims
    cluster: _Dims = Field(default=[1, 1, 1])
    shared: int = 0
    programmatic: bool = False
    cooperative: bool = False
    arguments: list[list[Value]]


class Plan(Form):
    """Launches in their order, and what they use: cubins, which are files beside the plan, and tensors."""

    version: Literal[1] = 1
    cubins: dict[Word, Word]
    tensors: dict[Word, Tensor]
    launches: list[Launch]

    def words(self, folder: Path) -> str:
        """The plan as the launcher's program reads it.

        Args:
            folder: where the cubins lie.

        Raises:
            FlashcoreError: a launch does not fit its kernel.
        """
        kernels = {
            (n, k.name): k for n, file in self.cubins.items() for k in cubin.read(folder / file, "sm_90").kernels
        }
        words: list[object] = ["flashcore-plan", self.version, len(self.cubins), *itertools.chain(*self.cubins.items())]
        words.append(len(self.tensors))
        for name, tensor in self.tensors.items():
            words += [name, *tensor.words()]
        words.append(len(self.launches))
        for i, x in enumerate(self.launches):
            flags = (x.shared, int(x.programmatic), int(x.cooperative))
            words += [x.cubin, x.kernel, *x.grid, *x.block, *x.cluster, *flags, len(x.arguments)]
            if (kernel := kernels.get((x.cubin, x.kernel))) is None:
                raise FlashcoreError(f"launches[{i}]: expected a kernel of its cubin, found {x.kernel} of {x.cubin}")
            if len(x.arguments) != (count := len(kernel.parameters)):
                raise FlashcoreError(
                    f"launches[{i}]: expected {count} arguments of {x.kernel}, found {len(x.arguments)}"
                )
            for j, (values, size) in enumerate(zip(x.arguments, kernel.parameters, strict=True)):
                try:
                    words += self._argument(values, size)
                except (OverflowError, ValueError, struct.error) as error:
                    raise FlashcoreError(f"launches[{i}].arguments[{j}]: expected {size} bytes: {error}") from None
        return "\n".join(map(str, [*words, "end\n"]))

    def _argument(self, values: list[Value], size: int) -> list[object]:
        content, references = bytearray(size), list[object]()
        for value in values:
            part = value.content()
            if value.at + len(part) > size or (len(values) == 1 and len(part) != size):
                raise ValueError(f"found {len(part)} at {value.at}")
            content[value.at : value.at + len(part)] = part
            if value.tensor is not None:
                if value.tensor not in self.tensors:
                    raise ValueError(f"found no tensor {value.tensor}")
                kind = "map" if value.map else "address"
                references += [kind, value.at, [*self.tensors].index(value.tensor), value.offset]
                references += value.map.words() if value.map else []
        return [size, content.hex(), sum(value.tensor is not None for value in values), *references]


def tensors_of(case: Case) -> dict[str, Tensor]:
    """The tensors of a case's operator."""
    made = {}
    for a in case.arguments:
        if a.kind == "tensor" and not a.absent(case.params):
            role = "inout" if a.inout else "output" if a.mutable else "input"
            made[a.name] = Tensor.model_validate({"dtype": a.dtype, "sizes": [*a.sizes(case.params)], "role": role})
    return made


def read(path: Path) -> Plan:
    """A plan's form.

    Raises:
        ManifestError: every mistake in it.
    """
    data = None
    try:
        with path.open("rb") as file:
            data = json.loads(file.read(_MOST_BYTES))
        return Plan.model_validate(data)
    except ValidationError as error:
        wrong = [f"{key}: {text}" for key, text in mistakes(error.errors(), data, Plan)]
    except (OSError, ValueError, RecursionError) as error:
        wrong = [f"expected a plan as JSON: {error}"]
    raise ManifestError(str(path), wrong)
