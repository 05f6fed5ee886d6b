"""Reads traces as reports: torch.profiler's Chrome trace, and Nsight Systems' SQLite export.

Both hold CUPTI's record of each launch in the program's run: times without counters. All launches of a kernel at one
configuration on GPUs of one model are one result, with their mean time. So are all launches of a graph that Nsight
Systems traced as a whole.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from flashcore.errors import RecordError
from flashcore.model.catalogue import FactSpec, Kind
from flashcore.model.groups import grouped
from flashcore.readers.ncu.results import Metric, Report, Result

TIME, COUNT = "traced_duration", "traced_launches"
SPEC = FactSpec(TIME, "ns", "timing", Kind.NONE, "mean time of launches in the traced run", "lower", group="imported")
COUNT_SPEC = FactSpec(COUNT, "1", "timing", Kind.NONE, "launches that a capture's survey saw", group="imported")
SQLITE = b"SQLite format 3\0"
_MEMORY = "launch__shared_mem_per_block"
_GPU, _SMS = "device__attribute_display_name", "device__attribute_multiprocessor_count"
_METRICS = (_GPU, _SMS, "launch__registers_per_thread", _MEMORY, f"{_MEMORY}_static", f"{_MEMORY}_dynamic")
_DEVICE = ("name", "numSms", "computeMajor", "computeMinor")  # torch.profiler's names
#: The model of each GPU, by the process and its number of the GPU: where a process has numbers of its own, where all
#: have one, and in schemas before mid 2021. A display has no compute capability.
_GPUS = (
    "SELECT pid, cudaId, name, smCount, computeMajor, computeMinor"
    " FROM TARGET_INFO_CUDA_DEVICE JOIN TARGET_INFO_GPU ON id = gpuId WHERE computeMajor > 0",
    "SELECT NULL, cuDevice, name, smCount, computeMajor, computeMinor FROM TARGET_INFO_GPU WHERE computeMajor > 0",
    "SELECT NULL, id, name, smCount, computeMajor, computeMinor FROM TARGET_INFO_GPU WHERE computeMajor > 0",
    "SELECT NULL, id, name, numMultiprocessors, computeCapabilityMajor, computeCapabilityMinor"
    " FROM TARGET_INFO_CUDA_GPU",
)
#: The launches of each table: kernels, and graphs traced as a whole.
_LAUNCHES = {
    "kernel": """SELECT {}, deviceId, IFNULL("end" - start, 0), IFNULL(CAST(value AS TEXT), 'unnamed'),
        gridX, gridY, gridZ, blockX, blockY, blockZ,
        registersPerThread, staticSharedMemory + dynamicSharedMemory, staticSharedMemory, dynamicSharedMemory
        FROM CUPTI_ACTIVITY_KIND_KERNEL LEFT JOIN StringIds ON StringIds.id = IFNULL(demangledName, shortName)""",
    "graph": """SELECT {}, deviceId, IFNULL("end" - start, 0), 'graph_' || IFNULL(graphId, 'unnamed'),
        0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE""",
}
_HINT = "trace with ProfilerActivity.CUDA, or nsys profile --trace cuda --cuda-graph-trace=node"
_WHOLE_GRAPHS = "graphs were traced as a whole: nsys profile --cuda-graph-trace=node shows their kernels"

#: A GPU model's name, multiprocessors, and compute capability, major and minor.
_UNKNOWN = (None, None, 0, 0)
#: What was launched, its grid, block, compute capability, and the values of ``_METRICS``, ``None`` if not recorded.
_Launch = tuple[Any, ...]


def read(path: Path, text: str = "") -> Report:
    """Returns the kernels of a trace, by falling time: of a Chrome trace with that text, or of an SQLite export.

    Raises:
        RecordError: it is damaged, has another form, or has no kernel.
    """
    try:
        launches = grouped(_chrome(text) if text else _nsys(path))
        ordered = sorted(launches.items(), key=lambda item: -math.fsum(item[1]))
        results = tuple(_result(i, *item) for i, item in enumerate(ordered))
    except (
        *(OSError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError),
        sqlite3.Error,
    ) as error:
        expected = "a trace of torch.profiler or an SQLite export of Nsight Systems"
        hint = (
            "trace it again, without with_stack=True: torch does not escape quotes in names; or it is damaged, or of "
            "another program or another vendor's GPU"
        )
        message = f"{path.name}: expected {expected}; {type(error).__name__}: {error}\n  hint: {hint}"
        raise RecordError(message) from error
    if not launches:
        raise RecordError(f"{path.name}: expected kernels, found none\n  hint: {_HINT}")
    notes = (_WHOLE_GRAPHS,) if any(result.workload == "graph" for result in results) else ()
    return Report(path.name, results, reader="CUPTI by its tracer", notes=notes)


def launches(text: str) -> list[Result]:
    """Each launch of a Chrome trace, in the order of the calls; kernels of one graph in the order in which they ran."""
    return [replace(_result(i, launch, [time]), averaged=0) for i, (launch, time) in enumerate(_chrome(text))]


def _result(number: int, launch: _Launch, times: list[float]) -> Result:
    """The launches' mean time; unmeasured if CUPTI lacks a launch's time, which it writes as 0."""
    workload, kernel, grid, block, cc, *values = launch
    recorded = [(name, value) for name, value in zip(_METRICS, values, strict=True) if value is not None]
    metrics = {name: Metric(value, "byte" if name.startswith(_MEMORY) else "") for name, value in recorded}
    metrics[TIME] = Metric(math.fsum(times) / len(times) if min(times) > 0 else None, "ns")
    return Result(number, kernel, workload, grid, block, cc, metrics, averaged=len(times))


#: What torch writes into JSON unescaped or unquoted: a Windows path's backslashes; what is no number.
_BARE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?|(?<=[:,\[])\s*-?(?:N/A|nan|inf)(?=\s*[,}\]])')


def _chrome(text: str) -> Iterator[tuple[_Launch, float]]:
    try:
        trace = json.loads(text, strict=False)  # with control characters in strings
    except ValueError:
        repaired = _BARE.sub(lambda m: m[0] if m[1] else r"\\" if m[0] == "\\" else "null", text)
        trace = json.loads(repaired, strict=False)
    devices = {device["id"]: [device.get(name) for name in _DEVICE] for device in trace.get("deviceProperties", ())}
    events = [e for e in trace["traceEvents"] if e.get("cat") in ("kernel", "Kernel")]  # with a capital in old traces
    for event in sorted(events, key=lambda e: (e["args"].get("correlation") or 0, e.get("ts") or 0)):
        args, kernel = event["args"], event["name"].strip() or "unnamed"
        name, sms, *cc = devices.get(args.get("device"), _UNKNOWN)
        registers = args.get("registers per thread")
        # ROCm records none, and its compute capabilities are not CUDA's.
        capability = (0, 0) if registers is None else _whole(cc, 2)
        sizes = (name, sms, registers, args.get("shared memory"), None, None)
        dims = (_whole(args[key], 3) for key in ("grid", "block"))
        yield ("kernel", kernel, *dims, capability, *sizes), 1e3 * (event.get("dur") or 0)  # µs


def _nsys(path: Path) -> Iterator[tuple[_Launch, float]]:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)) as database:
        gpus: list[Any] = []
        for query in _GPUS:
            with suppress(sqlite3.OperationalError):  # an export without that table or column
                gpus = gpus or database.execute(query).fetchall()

        @cache
        def model(pid: int | None, number: int) -> Sequence[Any]:
            """The GPU that the process calls by this number; unknown if it may be one of several models."""
            named = {tuple(gpu) for p, n, *gpu in gpus if n == number and (p == pid or None in (p, pid))}
            models = named or {tuple(gpu) for _, _, *gpu in gpus}
            return models.pop() if len(models) == 1 else _UNKNOWN

        for workload, query in _LAUNCHES.items():
            kind = f"CUPTI_ACTIVITY_KIND_{workload}%"
            tables = database.execute("SELECT sql FROM sqlite_master WHERE name LIKE ?", (kind,)).fetchall()
            pid = "globalPid >> 24 & 0xFFFFFF" if "globalPid" in str(tables) else "NULL"
            launches = database.execute(query.format(pid)) if tables else ()  # tables are made at their first row
            for pid, gpu, time, kernel, *dims, registers, memory, static, dynamic in launches:
                name, sms, *cc = model(pid, gpu)
                sizes = (name, sms, registers, memory, static, dynamic)
                yield (workload, kernel, _whole(dims[:3], 3), _whole(dims[3:], 3), _whole(cc, 2), *sizes), time


def _whole(numbers: list[Any], count: int) -> tuple[int, ...]:
    """Returns the numbers.

    Raises:
        ValueError: they are not ``count`` integers of at least 0.
    """
    if len(numbers) != count or any(type(n) is not int or n < 0 for n in numbers):
        raise ValueError(f"expected {count} whole numbers, found {numbers}")
    return tuple(numbers)
