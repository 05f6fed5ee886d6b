"""Programs that launch kernels under a stand-in for ncu."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from flashcore.features.reports.activity import NO_CUPTI
from flashcore.features.reports.capture import Captured, CaptureSettings, capture
from tests.conftest import ROOT

NCU = ROOT / "tests" / "standins" / "ncu_runs"

#: What a command may call: ``launch(kernel, …)``. It is seen by ncu's stand-in, or by CUPTI's.
TARGET = """
import ctypes, json, os, signal, sys, time
def launch(kernel, **more):
    if library := os.environ.get("CUDA_INJECTION64_PATH"):
        ctypes.CDLL(library).InitializeInjection()  # as the driver does, once
        sizes = *more.get("grid", (1, 1, 1)), *more.get("block", (1, 1, 1)), more.get("registers", 32), 0, 0
        cupti = ctypes.CDLL(os.environ["FLASHCORE_CUPTI"])
        kept = names.setdefault(kernel, ctypes.create_string_buffer(kernel.encode()))
        cupti.launch(kept, ctypes.c_double(more.get("us", 1)), more.get("call", 0), (ctypes.c_int * 9)(*sizes))
        return
    with open(os.environ["NCU_LAUNCHES"], "a") as file:
        file.write(json.dumps({"kernel": kernel, "process": os.getpid(), **more}) + "\\n")
names = {}
"""


def command(body: str) -> list[str]:
    return [sys.executable, "-c", TARGET + body]


LOOP = """
print("begins", flush=True)
for step in range(10):
    launch("_Z3bigIfEvPf", us=50); launch("_Z5smalli", us=2); launch("tiny(int)", us=1)
"""


def run(body: str, folder: Path, **chosen: Any) -> Captured:
    return capture(
        command(body),
        folder,
        CaptureSettings(ncu=NCU, **{"recorder": NO_CUPTI(""), "top": 2, "finish_limit": 10, **chosen}),
    )


def measured(results: Captured) -> set[str]:
    return {row.kernel for ran in results.runs if ran.name.startswith("measure") for row in ran.rows}
