"""The facts of compiled kernels, and the causes of unreadable device code."""

from __future__ import annotations

from flashcore.model.catalogue import FactSpec, Kind
from flashcore.model.cause import Template

DAMAGED = Template("damaged_code", "damaged: {message}")
NEEDS_PACKAGE = Template(
    "needs_package", "compressed: pip install {package} (the extra `audit` of flashcore-harness has it)"
)
TOO_LARGE = Template("code_too_large", "refused: {bytes} bytes when decompressed, at most {most} are read")
#: An archive of a format that is not opened.
NOT_READ = Template("format_not_read", "not read: {format}")
NO_DEVICE_CODE = Template(
    "no_device_code", "no CUDA code: expected a library, an object, an archive, a wheel, a fatbin, a cubin or PTX"
)
#: A folder of sources.
NOT_COMPILED = Template("not_compiled", "no compiled CUDA code; sources are compiled if they are named: {pattern}")
#: The cubin has no spill notes, which older compilers do not write, or it calls functions with stack frames.
SPILLS_UNLISTED = Template(
    "spills_unlisted", "the cubin does not list them, or not all; its stack frame has {stack_bytes} B"
)


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
