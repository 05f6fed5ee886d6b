"""NVIDIA's lists of a chip's metrics, from ``libnvperf_host``, which ncu uses too: without ncu and without a GPU.

The library comes with the pip package ``nvidia-cuda-cupti`` and with CUDA's ``extras/CUPTI``. Its lists of
AD104 and GA100 are those of ``ncu --query-metrics``, name for name (a test holds that).

The structures are those of ``nvperf_host.h`` and ``nvperf_cuda_host.h``: each begins with its own size and a
null pointer; all their members are eight bytes wide or padded to it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from flashcore.errors import CapabilityError
from flashcore.measure.machine.capabilities import lacking
from flashcore.measure.machine.toolchain import site_packages, version_of

LIBRARY = "libnvperf_host.so"
PACKAGE = "nvidia-cuda-cupti"

#: In the order of ``NVPW_MetricType``.
_KINDS = ("Counter", "Ratio", "Throughput")


class _Head(ctypes.Structure):
    _fields_: ClassVar[Sequence[tuple[str, Any]]] = (("size", ctypes.c_size_t), ("private", ctypes.c_void_p))


class _ScratchSize(_Head):
    _fields_ = (
        ("chip", ctypes.c_char_p),
        ("availability", ctypes.c_void_p),
        ("scratch_size", ctypes.c_size_t),
    )


class _Evaluator(_Head):
    _fields_ = (
        ("scratch", ctypes.c_void_p),
        ("scratch_size", ctypes.c_size_t),
        ("chip", ctypes.c_char_p),
        ("availability", ctypes.c_void_p),
        ("counter_data", ctypes.c_void_p),
        ("counter_data_size", ctypes.c_size_t),
        ("evaluator", ctypes.c_void_p),
    )


class _Names(_Head):
    _fields_ = (
        ("evaluator", ctypes.c_void_p),
        ("kind", ctypes.c_uint8),
        ("names", ctypes.c_void_p),
        ("begins", ctypes.POINTER(ctypes.c_size_t)),
        ("count", ctypes.c_size_t),
    )


def find() -> Path:
    """The library: this environment's pip package, or the toolkit's.

    Raises:
        CapabilityError: there is none.
    """
    for path in _candidates():
        if path.is_file():
            return path
    raise lacking("metric lists")


def _candidates() -> Iterator[Path]:
    for site in site_packages():
        yield from sorted(site.glob(f"nvidia/cu*/lib/{LIBRARY}"), reverse=True)
    for root in filter(None, (os.environ.get("CUDA_HOME"), "/usr/local/cuda")):
        yield Path(root) / "extras" / "CUPTI" / "lib64" / LIBRARY


def name_of(library: Path) -> str:
    """How a table names its source: the library, with its package's version where it comes from pip."""
    pip = any(library.is_relative_to(site) for site in site_packages())
    version = version_of(PACKAGE) if pip else None
    return f"{LIBRARY} of {PACKAGE} {version}" if version else f"{LIBRARY} of {library.parent}"


def metrics(library: Path, chip: str) -> dict[str, str]:
    """The chip's metrics: name → ``Counter``, ``Ratio`` or ``Throughput``.

    Args:
        chip: as ``ga102``.

    Raises:
        CapabilityError: the library does not load, or does not know the chip.
    """
    try:
        nvperf = ctypes.CDLL(str(library))
    except OSError as error:
        raise lacking("metric lists", what=f"{library}: cannot be loaded: {error}") from None
    name = chip.upper().encode()
    _call(nvperf, "NVPW_InitializeHost", _Head(), chip)
    size = _ScratchSize(chip=name)
    _call(nvperf, "NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize", size, chip)
    scratch = ctypes.create_string_buffer(size.scratch_size)  # the names lie in it: it must outlive them
    made = _Evaluator(scratch=ctypes.addressof(scratch), scratch_size=size.scratch_size, chip=name)
    _call(nvperf, "NVPW_CUDA_MetricsEvaluator_Initialize", made, chip)
    kinds: dict[str, str] = {}
    for index, kind in enumerate(_KINDS):
        listed = _Names(evaluator=made.evaluator, kind=index)
        _call(nvperf, "NVPW_MetricsEvaluator_GetMetricNames", listed, chip)
        for place in range(listed.count):
            kinds[ctypes.string_at(listed.names + listed.begins[place]).decode()] = kind
    return kinds


def _call(nvperf: ctypes.CDLL, function: str, arguments: _Head, chip: str) -> None:
    arguments.size = ctypes.sizeof(arguments)
    try:
        status = getattr(nvperf, function)(ctypes.byref(arguments))
    except AttributeError:
        raise lacking("metric lists", what=f"{nvperf._name}: expected {function}, found no such function") from None
    if status != 0:
        raise CapabilityError(
            f"{nvperf._name}: expected a list of the metrics of {chip}, found status {status} of {function}",
            "name a chip that it knows, as ga102, or install a newer one",
        )
