"""Traces as torch's profiler and Nsight Systems write them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132}

GEMM, NORM = "void cutlass::Kernel<float>(Params)", "void layer_norm<float>(float*, int)"

#: Kernel, µs, grid, registers: of a training step.
LAUNCHES = (
    (NORM, 4.0, 64, 32),
    (GEMM, 90.0, 132, 168),
    (NORM, 6.0, 64, 32),
    (GEMM, 110.0, 132, 168),
    (NORM, 1.0, 8, 32),
)


def event(name: str, us: float | None, grid: int, registers: int, **changes: Any) -> dict[str, Any]:
    args = {"device": 0, "context": 1, "stream": 7, "correlation": 3, "registers per thread": registers,
            "shared memory": 49152, "blocks per SM": 1.0, "grid": [grid, 1, 1], "block": [256, 1, 1],
            "est. achieved occupancy %": 12}  # fmt: skip
    timed = {} if us is None else {"dur": us}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 5.0, **timed, "args": args | changes}


def torch_trace(events: Sequence[dict[str, Any]], **changes: Any) -> bytes:
    others = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9, "ts": 1.0, "dur": 500.0, "args": {}},
        {
            "ph": "X",
            "cat": "gpu_memcpy",
            "name": "Memcpy HtoD",
            "pid": 0,
            "tid": 7,
            "ts": 1.0,
            "dur": 700.0,
            "args": {},
        },
        {"ph": "M", "name": "process_name", "ts": 1.0, "pid": 9, "tid": 0, "args": {"name": "python"}},
    ]
    frame = {"schemaVersion": 1, "deviceProperties": [H100], "traceEvents": [*others, *events]}
    return json.dumps(frame | changes).encode()


def nsys_export(path: Path, launches: Sequence[tuple[str, float, int, int]], gpus: int = 1) -> Path:
    """The tables of ``nsys export --type sqlite`` that hold kernels, with the columns that are read and some more."""
    names = sorted({launch[0] for launch in launches})
    with closing(sqlite3.connect(path)) as database:
        database.executescript("""
            CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, "end" INTEGER NOT NULL, deviceId INTEGER,
                streamId INTEGER, demangledName INTEGER, shortName INTEGER, registersPerThread INTEGER,
                gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER,
                staticSharedMemory INTEGER, dynamicSharedMemory INTEGER);""")
        if gpus:
            database.execute("CREATE TABLE TARGET_INFO_GPU (id, name, computeMajor, computeMinor, smCount)")
            device = [H100[key] for key in ("name", "computeMajor", "computeMinor", "numSms")]
            database.executemany(
                "INSERT INTO TARGET_INFO_GPU VALUES (?, ?, ?, ?, ?)", [(i, *device) for i in range(gpus)]
            )
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names))
        for name, us, grid, registers in launches:
            row = (
                1000,
                1000 + int(1e3 * us),
                0,
                7,
                names.index(name),
                0,
                registers,
                grid,
                1,
                1,
                256,
                1,
                1,
                1024,
                48128,
            )
            database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({','.join('?' * len(row))})", row)
        database.commit()
    return path


def with_graphs(path: Path, launches: Sequence[tuple[str, float, int, int]] = LAUNCHES) -> Path:
    nsys_export(path, launches)
    with closing(sqlite3.connect(path)) as database:
        database.executescript("""
            CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, "end" INTEGER, deviceId INTEGER,
                contextId INTEGER, streamId INTEGER, globalPid INTEGER, graphId INTEGER, graphExecId INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (0, 300000, 0, 1, 7, 1, 4, 9),
                (1, 200001, 0, 1, 7, 1, 4, 9), (5, 1005, 0, 1, 7, 1, 5, 9), (5, NULL, 0, 1, 7, 1, 6, 9);""")
    return path
