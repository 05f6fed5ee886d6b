"""Python functions under ncu: how they come into its process, and what they leave there. A stand-in runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import flashcore as fc
from flashcore.errors import UsageError
from tests.conftest import ROOT

#: What a user's script begins with, on a machine whose GPU and ncu are stood in for.
HEAD = """
import json, os, sys
import flashcore as fc
from flashcore.machine.gpu import Gpu
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

    def start(
        body: str, *, from_stdin: bool = False, module: str = "", more: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.CompletedProcess[str]:
        for name, text in {f"{module.replace('.', '/') or 'script'}.py": HEAD + body, **more}.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        paths = f"{ROOT / 'harness'}{os.pathsep}{tmp_path}"
        what = ["-m", module] if module else ["-"] if from_stdin else ["script.py"]
        return subprocess.run(
            [sys.executable, "-P", *what], input=HEAD + body, cwd=tmp_path,
            env={**os.environ, "PATH": path, "PYTHONPATH": paths}, capture_output=True, text=True, check=False,
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


@pytest.mark.slow
def test_an_ordinary_script_captures_without_a_guard(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """The script runs again in the process under ncu, up to each capture; the code after it does not."""
    done = run(
        """
factor = 1 + len(sys.argv)
def work(n): launch(f"work/c{n - 1}_n_{n}", factor=factor)
first = fc.sweep(work, [{"n": n} for n in (1, 2)])
shown(first, "kernel_launches", "n")
import torch_like_module_made_here as made
def later(): launch("later/call"); made.check(first)
shown(fc.capture(later), "kernel_launches")
@fc.captured
def decorated(n): launch("decorated/call"); return n
shown(decorated(7), "kernel_launches")
open("ends", "a").write("x")
""",
        more={"torch_like_module_made_here.py": "def check(frame): assert {'value', 'n'} <= {*frame.columns}"},
    )
    assert done.returncode == 0, done.stderr
    sweep, later, decorated = (eval(line, {"nan": None}) for line in done.stdout.splitlines())
    assert [(row["n"], row["value"], row["note"]) for row in sweep] == [(1, 4.0, ""), (2, 4.0, "")]
    assert [row["value"] for row in (*later, *decorated)] == [4.0, 4.0]
    assert (tmp_path / "ends").read_text() == "x", "the script ends once"


@pytest.mark.gpu
def test_on_a_gpu_an_ordinary_script_sweeps_without_a_guard(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "script.py").write_text("""
import flashcore as fc, torch
def scale(n): return torch.ones(n, device="cuda") * 2
frame = fc.sweep(scale, [{"n": n} for n in (1024, 1 << 20)]).reset_index()
print([*frame[(frame["fact"] == "kernel_launches") & frame["kernel"].isna()]["value"]])
print(fc.capture(scale, 4096).reset_index()["value"].notna().sum() > 20)
""")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["[2.0, 2.0]", "True"], done.stdout + done.stderr


@pytest.mark.slow
def test_a_script_of_a_package_captures_without_a_guard(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run(
        "from .other import name\ndef work(): launch(name)\nshown(fc.capture(work), 'kernel_launches')",
        module="package.script", more={"package/other.py": "name = 'work/call'"},
    )  # fmt: skip
    assert done.returncode == 0 and "'value': 4.0" in done.stdout, done.stderr


def test_a_function_that_captures_itself_is_refused(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = run("""
def inner(): launch("inner/call")
def outer(): fc.capture(inner)
fc.capture(outer)
""")
    assert done.returncode == 1 and "expected a function that captures nothing itself" in done.stderr


@pytest.mark.slow
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
