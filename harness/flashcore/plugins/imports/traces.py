"""Reads traces as reports: torch.profiler's Chrome trace, and Nsight Systems' SQLite export.

Both hold CUPTI's record of each launch in the program's run: times without counters. All launches of a kernel at one
configuration are one result, with their mean time.
"""

from __future__ import annotations

import gzip
import json
import math
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from flashcore.errors import RecordError
from flashcore.model.catalogue import FactSpec, Kind
from flashcore.model.groups import grouped
from flashcore.readers.ncu.results import Metric, Report, Result

TIME, COUNT = "traced_duration", "traced_launches"
SPEC = FactSpec(TIME, "ns", "timing", Kind.NONE, "mean time of launches in the traced run", "lower", group="imported")
COUNT_SPEC = FactSpec(COUNT, "1", "timing", Kind.NONE, "launches that a capture's survey saw", group="imported")
SQLITE, GZIP = b"SQLite format 3\0", b"\x1f\x8b"
_MEMORY = "launch__shared_mem_per_block"
_GPU, _SMS = "device__attribute_display_name", "device__attribute_multiprocessor_count"
_METRICS = (_GPU, _SMS, "launch__registers_per_thread", _MEMORY, f"{_MEMORY}_static", f"{_MEMORY}_dynamic")
_DEVICE = ("name", "numSms", "computeMajor", "computeMinor")  # torch.profiler's names
#: Schemas since mid 2021, and before. A display has no compute capability.
_GPUS = (
    "SELECT DISTINCT name, smCount, computeMajor, computeMinor FROM TARGET_INFO_GPU WHERE computeMajor > 0",
    "SELECT DISTINCT name, numMultiprocessors, computeCapabilityMajor, computeCapabilityMinor"
    " FROM TARGET_INFO_CUDA_GPU",
)
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_LAUNCHES = f"""SELECT IFNULL("end" - start, 0), IFNULL(value, 'unnamed'), gridX, gridY, gridZ, blockX, blockY, blockZ,
    registersPerThread, staticSharedMemory + dynamicSharedMemory, staticSharedMemory, dynamicSharedMemory
    FROM {_KERNELS} LEFT JOIN StringIds ON StringIds.id = IFNULL(demangledName, shortName)"""
_HINT = "trace with ProfilerActivity.CUDA, or nsys profile --trace cuda --cuda-graph-trace=node"

#: A kernel's name, grid, block, compute capability, and the values of ``_METRICS``, ``None`` if not recorded.
_Launch = tuple[Any, ...]


def read(path: Path, data: bytes) -> Report:
    """Returns the kernels of a trace, by falling time. ``data`` is the file's content.

    Raises:
        RecordError: it is damaged, has another form, or has no kernel.
    """
    try:
        launches = grouped(_nsys(path) if data.startswith(SQLITE) else _chrome(data))
    except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, AttributeError, sqlite3.Error) as error:
        expected = "a trace of torch.profiler or an SQLite export of Nsight Systems"
        raise RecordError(f"{path.name}: expected {expected}; {type(error).__name__}: {error}") from error
    if not launches:
        raise RecordError(f"{path.name}: expected kernels, found none\n  hint: {_HINT}")
    ordered = sorted(launches.items(), key=lambda item: -math.fsum(item[1]))
    return Report(path.name, tuple(_result(i, *item) for i, item in enumerate(ordered)), reader="CUPTI by its tracer")


def _result(number: int, launch: _Launch, times: list[float]) -> Result:
    """The launches' mean time; unmeasured if CUPTI lacks a launch's time, which it writes as 0."""
    kernel, grid, block, cc, *values = launch
    recorded = [(name, value) for name, value in zip(_METRICS, values, strict=True) if value is not None]
    metrics = {name: Metric(value, "byte" if name.startswith(_MEMORY) else "") for name, value in recorded}
    metrics[TIME] = Metric(math.fsum(times) / len(times) if min(times) > 0 else None, "ns")
    return Result(number, kernel, "kernel", grid, block, cc, metrics, averaged=len(times))


def _chrome(data: bytes) -> Iterator[tuple[_Launch, float]]:
    trace = json.loads(gzip.decompress(data) if data.startswith(GZIP) else data)
    devices = {device["id"]: [device.get(name) for name in _DEVICE] for device in trace.get("deviceProperties", ())}
    for event in trace["traceEvents"]:
        if event.get("cat") in ("kernel", "Kernel"):  # with a capital in old traces
            args = event["args"]
            name, sms, *cc = devices.get(args.get("device"), (None, None, 0, 0))
            sizes = (name, sms, args.get("registers per thread"), args.get("shared memory"), None, None)
            launch = (event["name"], *(_whole(args[key], 3) for key in ("grid", "block")), _whole(cc, 2), *sizes)
            yield launch, 1e3 * event.get("dur", 0)  # µs


def _nsys(path: Path) -> Iterator[tuple[_Launch, float]]:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (_KERNELS,)).fetchone():
            return  # tables are made at their first row
        gpus = []
        for query in _GPUS:
            with suppress(sqlite3.OperationalError):  # an export without that table
                gpus += database.execute(query).fetchall()
        name, sms, *cc = gpus[0] if len(gpus) == 1 else (None, None, 0, 0)
        for time, kernel, *dims, registers, memory, static, dynamic in database.execute(_LAUNCHES):
            sizes = (name, sms, registers, memory, static, dynamic)
            yield (kernel, _whole(dims[:3], 3), _whole(dims[3:], 3), _whole(cc, 2), *sizes), time


def _whole(numbers: list[Any], count: int) -> tuple[int, ...]:
    """Returns the numbers.

    Raises:
        ValueError: they are not ``count`` integers of at least 0.
    """
    if len(numbers) != count or any(type(n) is not int or n < 0 for n in numbers):
        raise ValueError(f"expected {count} whole numbers, found {numbers}")
    return tuple(numbers)
