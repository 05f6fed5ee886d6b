"""The facts of a compiled kernel that no suite needs."""

from flashcore.model.catalogue import FactSpec, Kind


def _spec(name: str, unit: str, why: str, better: str = "lower", group: str = "static") -> FactSpec:
    return FactSpec(name, unit, "static", Kind.MAXIMUM, why, better, group=group)


CODE = FactSpec("code", "text", None, Kind.NONE, "hash of the machine code")
CODE_BYTES = _spec("code_bytes", "B", "machine code of the kernel")
CONSTANT_BYTES = _spec("constant_bytes", "B", "constant memory of the kernel, its parameters included")
SASS_TENSOR = _spec("sass_tensor", "1", "tensor-core instructions of every kind in the code", "higher")
SASS_TMA = _spec("sass_tma", "1", "bulk copies, reductions and prefetches (TMA) in the code", "")
SASS_128 = _spec("sass_128", "1", "16-byte accesses to global and shared memory in the code", "higher")
OCCUPANCY_LOW = _spec("occupancy_low", "pct", "theoretical occupancy with the worst block size allowed", "higher")
OCCUPANCY_HIGH = _spec("occupancy_high", "pct", "theoretical occupancy with the best block size allowed", "higher")
NATIVE_KERNELS = _spec("native_kernels", "1", "kernels with machine code that a GPU runs", "higher", "formula")
