"""The facts of a compiled kernel that no suite needs."""

from flashcore.model.catalogue import FactSpec, Kind


def _spec(name: str, unit: str, why: str, better: str = "lower", group: str = "static") -> FactSpec:
    return FactSpec(name, unit, "static", Kind.MAXIMUM, why, better, group=group)


CODE_BYTES = _spec("code_bytes", "B", "machine code of the kernel")
CONSTANT_BYTES = _spec("constant_bytes", "B", "constant memory of the kernel, its parameters included")
OCCUPANCY_LOW = _spec("occupancy_low", "pct", "theoretical occupancy with the worst block size allowed", "higher")
OCCUPANCY_HIGH = _spec("occupancy_high", "pct", "theoretical occupancy with the best block size allowed", "higher")
NATIVE_KERNELS = _spec("native_kernels", "1", "kernels with machine code that a GPU runs", "higher", "formula")
