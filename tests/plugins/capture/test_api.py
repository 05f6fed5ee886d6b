"""Python functions under ncu: how they come into its process, and what they leave there. A stand-in runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flashcore as fc
from flashcore.errors import UsageError
from tests.conftest import ROOT

#: What a user's script begins with, on a machine whose GPU and ncu are stood in for.
HEAD = """
import json, os, sys
import flashcore as fc
from flashcore.measure.machine.gpu import Gpu
Gpu.find = staticmethod(lambda: Gpu("NVIDIA H200", (9, 0), 132, 1, 1, 1980.0, "580"))
def launch(name, **more):
    with open(os.environ["NCU_LAUNCHES"], "a") as file:
        file.write(json.dumps({"kernel": "void f<1>(int)", "range": name, "process": os.getpid(), **more}) + "\\n")
def shown(frame, fact, *more):
    found = frame.reset_index()
    print(found[(found["fact"] == fact) & found["kernel"].isna()][["shape", *more, "value", "note"]].to_dict("records"))
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a script of a user."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ncu").symlink_to(ROOT / "tests" / "standins" / "ncu_runs")

    def start(body: str, *, from_stdin: bool = False) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(HEAD + body, encoding="utf-8")
        path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            [sys.executable, "-P", *(["-"] if from_stdin else ["script.py"])], input=HEAD + body, cwd=tmp_path,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "harness")}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    return start


def test_a_sweep_calls_each_config_in_a_range_of_its_own_and_one_that_fails_is_told(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run("""
def work(n):
    if n == 2: raise ValueError("two is too many")
    launch(f"work/c{n}_n_{n}")
if __name__ == "__main__":
    shown(fc.sweep(work, [{"n": n} for n in (0, 1, 2)]), "kernel_launches", "n")
""")
    assert done.returncode == 0, done.stderr
    rows = eval(done.stdout, {"nan": None})
    # Three calls to warm up, which this stand-in does not tell from the one in the range.
    assert [(row["n"], row["value"]) for row in rows] == [(0, 4.0), (1, 4.0), (2, None)]
    assert "ValueError: two is too many" in rows[2]["note"]


def test_a_sweep_takes_tuples_and_single_values(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = run("""
def work(n, *more, scale=1):
    launch(f"work/c{(512, 3, 7, 9).index(n)}_n_{n}" + "".join(f"_more{i}_{m}" for i, m in enumerate(more)))
if __name__ == "__main__":
    shown(fc.sweep(work, [(512,), 3, (7, 8), [9]]), "kernel_launches", "n", "more0")
""")
    assert done.returncode == 0, done.stderr
    rows = eval(done.stdout, {"nan": None})
    assert [(row["n"], row["value"]) for row in rows] == [(512, 4.0), (3, 4.0), (7, 4.0), (9, 4.0)]
    assert rows[2]["more0"] == 8


@pytest.mark.parametrize(("config", "why"), [((1, 2), "too many positional"), ({"m": 1}, "missing"), ((), "missing")])
def test_a_config_that_the_function_does_not_take_is_refused_at_once(config: Any, why: str) -> None:
    def work(n: int) -> None: ...

    with pytest.raises(UsageError, match=rf"expected arguments of work\(n.*{why}"):
        fc.sweep(work, [(1,), config])


def test_a_decorated_function_gives_the_frame_and_a_failing_call_raises(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run("""
@fc.captured
def twice(n, *, more=0):
    launch("twice/call"); 1 // (n + more)
if __name__ == "__main__":
    shown(twice(1, more=1), "kernel_launches")
    try: twice(0)
    except fc.FlashcoreError as error: print(error)
""")
    assert done.returncode == 0, done.stderr
    assert "'value': 4.0" in done.stdout and "twice: expected a call that ends, found: ZeroDivisionError" in done.stdout


def test_a_script_that_captures_while_it_is_imported_is_told_how_to_guard_it(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run("def work(): launch('work/call')\nfc.capture(work)")
    assert done.returncode == 1 and 'put the capturing code below `if __name__ == "__main__":`' in done.stderr


def test_what_no_other_process_can_import_is_sent_by_cloudpickle_or_refused(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run(
        "from unittest.mock import patch\nk = 'work/call'\ndef work(): launch(k)\n"
        "shown(fc.capture(work), 'kernel_launches')\n"
        "import importlib.util\nwith patch.object(importlib.util, 'find_spec', lambda name: None):\n"
        "    try: fc.capture(lambda: 1)\n    except fc.FlashcoreError as error: print(error)\n",
        from_stdin=True,
    )
    assert done.returncode == 0, done.stderr
    assert "'value': 4.0" in done.stdout
    assert "found one of a notebook, a lambda or a function within a function" in done.stdout
