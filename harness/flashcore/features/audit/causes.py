"""The facts of compiled kernels, and the causes of unreadable device code."""

from __future__ import annotations

from flashcore.model.catalogue import FactSpec, Kind
from flashcore.model.cause_text import FORMS
from flashcore.model.causes import Cause


class Damaged(Cause):
    """A part of the file is truncated or altered."""

    code = "damaged_code"
    message: str


class NeedsPackage(Cause):
    """The package that decompresses the code is not installed."""

    code = "needs_package"
    package: str


class TooLarge(Cause):
    """The decompressed code would exceed the size limit."""

    code = "code_too_large"
    bytes: int
    most: int


class NotRead(Cause):
    """An archive of a format that is not opened."""

    code = "format_not_read"
    format: str


class NoDeviceCode(Cause):
    """The file has no CUDA code."""

    code = "no_device_code"


class SpillsUnlisted(Cause):
    """The cubin has no spill notes, which older compilers do not write, or it calls functions with stack frames."""

    code = "spills_unlisted"
    stack_bytes: int


FORMS[Damaged] = "damaged: {message}"
FORMS[NeedsPackage] = "compressed: pip install {package} (the extra `audit` of flashcore-harness has it)"
FORMS[TooLarge] = "refused: {bytes} bytes when decompressed, at most {most} are read"
FORMS[NotRead] = "not read: {format}"
FORMS[NoDeviceCode] = "no CUDA code: expected a library, an object, an archive, a wheel, a fatbin, a cubin or PTX"
FORMS[SpillsUnlisted] = "the cubin does not list them, or not all; its stack frame has {stack_bytes} B"


def _spec(name: str, unit: str, why: str, better: str = "lower", group: str = "static") -> FactSpec:
    return FactSpec(name, unit, "static", Kind.MAXIMUM, why, better, group=group)


CODE_BYTES = _spec("code_bytes", "B", "machine code of the kernel")
CONSTANT_BYTES = _spec("constant_bytes", "B", "constant memory of the kernel, its parameters included")
SASS_TENSOR = _spec("sass_tensor", "1", "tensor-core instructions of every kind in the code", "higher")
SASS_TMA = _spec("sass_tma", "1", "bulk copies, reductions and prefetches (TMA) in the code", "")
SASS_128 = _spec("sass_128", "1", "16-byte accesses to global and shared memory in the code", "higher")
OCCUPANCY_LOW = _spec("occupancy_low", "pct", "theoretical occupancy with the worst block size allowed", "higher")
OCCUPANCY_HIGH = _spec("occupancy_high", "pct", "theoretical occupancy with the best block size allowed", "higher")
NATIVE_KERNELS = _spec("native_kernels", "1", "kernels with machine code that a GPU runs", "higher", "formula")
