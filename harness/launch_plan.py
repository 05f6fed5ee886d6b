"""Asks built variants what they would launch, without a GPU and without torch.

A plan is the variant's own host code, so it runs in a child process: one that crashes or hangs takes
nobody with it. Answers are kept beside the library, which is named by its content.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.model import Artifact, Launch, Plan, Shape, Suite
from harness.store import write_atomically

TIME_LIMIT = 20.0
_CAPACITY = 32


class _Record(ctypes.Structure):
    """``flashcore_launch_record`` of launch.h."""

    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("cluster", ctypes.c_uint32 * 3),
        ("dynamic_smem", ctypes.c_uint32),
    )


def plans(suite: Suite, artifacts: Iterable[Artifact], shapes: Sequence[Shape]) -> list[Plan]:
    """The launch plan of every variant that was built, on each of the shapes that it supports.

    A plan that the variant refuses, or that crashes, comes back with ``error`` set and no launches.
    """
    from harness.suite import runs_on

    found: list[Plan] = []
    for artifact in artifacts:
        if artifact.plan_library is None:
            continue
        variant = suite.variants[artifact.variant]
        dims = suite.problems[variant.problem].dims
        wanted = {
            s.name: [int(s.params[d]) for d in dims] for s in shapes if runs_on(variant, s)
        }
        answers = _answers(Path(artifact.plan_library), wanted)
        found += [_plan(variant.name, name, answers[_key(sizes)]) for name, sizes in wanted.items()]
    return found


def _key(sizes: Sequence[int]) -> str:
    return ",".join(map(str, sizes))


def _answers(library: Path, wanted: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    cache = library.with_name("plans.json")
    try:
        known = json.loads(cache.read_bytes())
    except (OSError, ValueError):
        known = {}
    missing = [sizes for sizes in wanted.values() if _key(sizes) not in known]
    if missing:
        known.update(_ask(library, missing))
        write_atomically(cache, json.dumps(known).encode())
    return dict(known)


def _ask(library: Path, sizes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Runs the child once for all sizes; if it dies, each size that it did not answer has the reason."""
    command = [sys.executable, "-m", "harness.launch_plan", str(library)]
    try:
        done = subprocess.run(
            command,
            input=json.dumps([list(s) for s in sizes]),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIME_LIMIT,
            cwd=Path(__file__).parent.parent,
        )
        output, reason = done.stdout, f"launch_plan ended with exit code {done.returncode} {done.stderr[-200:]}"
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode() if isinstance(error.stdout, bytes) else (error.stdout or "")
        reason = f"launch_plan gave no answer within {TIME_LIMIT:.0f} s"
    answers: dict[str, Any] = {}
    for line in output.splitlines():
        row = json.loads(line)
        answers[row["dims"]] = row["answer"]
    for size in sizes:
        answers.setdefault(_key(size), {"error": reason.strip(), "launches": [], "workspace": 0})
    return answers


def _plan(variant: str, shape: str, answer: Mapping[str, Any]) -> Plan:
    launches = tuple(
        Launch(r["kernel"], _three(r["grid"]), _three(r["block"]), _three(r["cluster"]), r["dynamic_smem"])
        for r in answer["launches"]
    )
    return Plan(variant, shape, launches, answer["workspace"], answer["error"])


def _three(values: Sequence[int]) -> tuple[int, int, int]:
    return (values[0], values[1], values[2])


def main(library_path: str) -> None:
    """The child: reads lists of dimensions, writes one answer a line."""
    library = ctypes.CDLL(library_path)
    library.flashcore_launch_plan.restype = ctypes.c_int
    for sizes in json.load(sys.stdin):
        dims = (ctypes.c_int64 * len(sizes))(*sizes)
        records = (_Record * _CAPACITY)()
        workspace = ctypes.c_uint64()
        error = ctypes.c_char_p()
        count = library.flashcore_launch_plan(
            dims, records, _CAPACITY, ctypes.byref(workspace), ctypes.byref(error)
        )
        answer = {
            "error": (error.value or b"refused").decode(errors="replace") if count < 0 else "",
            "workspace": workspace.value,
            "launches": [
                {
                    "kernel": (r.kernel or b"?").decode(errors="replace"),
                    "grid": list(r.grid),
                    "block": list(r.block),
                    "cluster": list(r.cluster),
                    "dynamic_smem": r.dynamic_smem,
                }
                for r in records[: max(count, 0)]
            ],
        }
        print(json.dumps({"dims": _key(sizes), "answer": answer}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
