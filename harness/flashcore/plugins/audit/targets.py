"""Tells which GPUs run a file's machine code, which compile its PTX at the first use, and which can run nothing."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping

from flashcore.chips import devices
from flashcore.errors import UsageError
from flashcore.model.causes import Cause
from flashcore.model.record import Fact, Source, Subject
from flashcore.plugins.audit.inventory import Inventory

_ARCH = re.compile(r"sm_(\d+)([af]?)")


def gpus(names: Iterable[str]) -> dict[str, int]:
    """The compute capability of each GPU, as 90, of a device in ``chips/devices.toml`` or an arch (``sm_86``).

    Raises:
        UsageError: neither has that name.
    """
    result = {}
    for name in names:
        device = next((d for d in devices.load().values() if devices.is_called(d.title, name)), None)
        arch = _ARCH.fullmatch(device.arch if device else name)
        if arch is None:
            expected = ", ".join(devices.load())
            raise UsageError(f"--for: expected GPUs ({expected}) or archs such as sm_86, found {name!r}")
        result[name] = int(arch[1])
    return result


def runs(arch: str, gpu: int, *, ptx: bool = False) -> bool:
    """Whether a GPU runs code for ``arch``, by the compatibility rules of the CUDA C++ Programming Guide: machine code
    runs on later GPUs of the same major version and PTX on all later ones, that of ``f`` archs within the major
    version, that of ``a`` archs on no other GPU."""
    number, suffix = parts(arch)
    if suffix == "a" or number >= gpu:
        return number == gpu
    return number // 10 == gpu // 10 or (ptx and not suffix)


def facts(inventory: Inventory, requested: Mapping[str, int], shape: str) -> Iterator[Fact]:
    """For each file and GPU, the number of kernels with machine code that it runs; the detail is a sentence.

    Args:
        requested: as :func:`gpus` gives them.
        shape: the only one of the record.
    """
    archs: dict[str, dict[str, set[str]]] = {variant: {} for variant in inventory.files}
    for kernel in inventory.kernels:
        archs[kernel.variant].setdefault(kernel.content.name, set()).add(kernel.arch)
    unread = {one.variant: one.cause for one in inventory.unread}
    for (variant, kernels), (gpu, number) in itertools.product(archs.items(), requested.items()):
        best = [max(usable, key=parts) for of in kernels.values() if (usable := [a for a in of if runs(a, number)])]
        later = [a for v, kind, a in inventory.later if (v, kind) == (variant, "ptx") and runs(a, number, ptx=True)]
        if best:
            result = f"machine code of {len(best)} of {len(kernels)} kernels ({_listed(best)})"
        elif later:
            result = f"no sm_{number} code: compiled at first use, from PTX for {_listed(later)}"
        else:
            result = "cannot run"
        detail = (not best and unread.get(variant)) or f"{inventory.files[variant]} on {gpu}: {result}"
        count = None if isinstance(detail, Cause) else len(best)
        yield Fact(Subject(variant, shape=shape, kernel=gpu), "native_kernels", count, "1", Source.CUBIN, detail)


def parts(arch: str) -> tuple[int, str]:
    """An arch's compute capability and suffix."""
    match = _ARCH.fullmatch(arch)
    return (int(match[1]), match[2]) if match else (0, "")


def _listed(archs: Iterable[str]) -> str:
    return ", ".join(sorted(set(archs), key=parts))
