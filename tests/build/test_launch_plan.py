"""Launch plans: asked of the built library without a GPU, and what a bad one costs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.build import launch_plan
from flashcore.cli import build as cli_build
from flashcore.errors import Exit
from flashcore.machine import toolchain
from flashcore.model.causes import PlanStopped
from flashcore.model.record import Artifact
from flashcore.model.suite import ForeignLauncher, Problem, Shape
from tests.conftest import HOST_FAULTS, Built, compile_one

_ANSWERS = shutil.ignore_patterns("plans.json")


def test_plans_of_the_toy_suite(toy: Built) -> None:
    shapes = list(toy.suite.shapes.values())
    plans = {(p.variant, p.shape): p for p in launch_plan.plans(toy.suite, toy.artifacts, shapes)}
    assert len(plans) == 6 and not any(p.error for p in plans.values())
    assert [x.grid for x in plans["plain", "tail"].launches] == [(4, 1, 1)]  # 1001 elements, 256 a block
    assert [x.grid for x in plans["wide", "tail"].launches] == [(1, 1, 1)]
    two = plans["two_steps", "small"]
    assert [x.kernel for x in two.launches] == ["copy_kernel", "multiply_kernel"]
    assert two.workspace_bytes == 4 * 4096


def test_a_plan_that_crashes_or_hangs_costs_only_itself(faulty: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_plan, "TIME_LIMIT", 5.0)
    shapes = list(faulty.suite.shapes.values())
    plans = {(p.variant, p.shape): p for p in launch_plan.plans(faulty.suite, faulty.artifacts, shapes)}
    assert set(plans) == {
        (v, s) for v in ("good", *HOST_FAULTS) for s in ("tail", "small")
    }  # fmt: skip
    errors = {name: plan.error for name, plan in plans.items() if plan.error}
    assert errors.pop(("plan_refuses", "small")) == "at most 2000 elements"
    assert not plans["plan_refuses", "small"].failed
    for shape in ("tail", "small"):
        assert "signal 11" in errors.pop(("plan_null", shape))
        assert "did not return within 5 s" in errors.pop(("plan_hangs", shape))
        assert plans["plan_null", shape].failed and plans["plan_hangs", shape].failed
        # It writes an answer to every open file and exits with 0.
        assert "ended with exit code 0" in errors.pop(("plan_answers", shape))
        sizes = [plans[v, shape].launches[0].dynamic_smem for v in ("plan_shares", "plan_shares_too")]
        assert sizes[1] - sizes[0] == 1024
    assert not errors
    assert plans["plan_prints", "small"] == replace(plans["good", "small"], variant="plan_prints")


def test_variants_in_one_process_share_no_symbol(faulty: Built) -> None:
    """As the operators of several variants do."""
    libraries = [faulty.of(v).plan_library for v in ("plan_shares", "plan_shares_too")]
    code = f"""
from ctypes import CDLL, RTLD_GLOBAL, byref, c_char_p, c_int64, c_uint64
from flashcore.build.launch_plan import LaunchRecord
for library in [CDLL(path, RTLD_GLOBAL) for path in {libraries}]:
    launches = (LaunchRecord * 32)()
    assert library.flashcore_launch_plan(byref(c_int64(4096)), launches, 32, byref(c_uint64()), byref(c_char_p())) == 1
    print(launches[0].dynamic_smem)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = map(int, done.stdout.split())
    assert second - first == 1024


class Killing:
    """Has the first processes that ask a plan killed, as if memory ran out."""

    def __init__(self, folder: Path, times: int) -> None:
        self.folder, self.times = folder, times

    def recording(self, problem: Problem, shape: Shape, artifact: Artifact) -> dict[str, Any]:
        return {"by": f"{__name__}:killed", "folder": str(self.folder), "times": self.times}


def killed(library: Any, recording: dict[str, Any], dims: Any) -> dict[str, Any]:
    attempt = len(list(Path(recording["folder"]).iterdir()))
    Path(recording["folder"], str(attempt)).touch()
    if attempt < recording["times"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return launch_plan.declared(library, dims)


@pytest.mark.parametrize("times", [1, 2])
def test_a_plan_that_the_machine_kills_is_asked_once_more(toy: Built, tmp_path: Path, times: int) -> None:
    variant = replace(toy.suite.variants["plain"], kind=ForeignLauncher("scale.cu"))
    suite = replace(toy.suite, variants={"plain": variant})
    (tmp_path / "attempts").mkdir()
    library = shutil.copytree(Path(toy.of("plain").plan_library or "").parent, tmp_path / "unit") / "plan.so"
    artifact = replace(toy.of("plain"), plan_library=str(library))
    recorder = Killing(tmp_path / "attempts", times)
    (plan,) = launch_plan.plans(suite, [artifact], [suite.shapes["tail"]], recorder)
    assert plan.cause == (None if times == 1 else PlanStopped(-9))
    assert cli_build.exit_code([artifact], [plan]) is (Exit.OK if times == 1 else Exit.INCAPABLE)


def test_an_edited_plan_is_asked_again(toy: Built, tmp_path: Path) -> None:
    library = shutil.copytree(Path(toy.of("plain").plan_library or "").parent, tmp_path / "unit") / "plan.so"
    artifact = replace(toy.of("plain"), plan_library=str(library))
    expected = launch_plan.plans(toy.suite, [artifact], [toy.suite.shapes["tail"]])
    (cache,) = library.parent.glob("plans*.json")
    edited = re.sub(r'("dynamic_smem": ?)0', r"\g<1>1024", cache.read_text(encoding="utf-8"))
    assert edited != cache.read_text(encoding="utf-8")
    cache.write_text(edited, encoding="utf-8")
    assert launch_plan.plans(toy.suite, [artifact], [toy.suite.shapes["tail"]]) == expected


def test_an_exchanged_library_is_asked(toy: Built, tmp_path: Path) -> None:
    grids = []
    for name in ("plain", "wide"):
        shutil.copytree(Path(toy.of(name).plan_library or "").parent, tmp_path, dirs_exist_ok=True, ignore=_ANSWERS)
        artifact = replace(toy.of("plain"), plan_library=str(tmp_path / "plan.so"))
        (plan,) = launch_plan.plans(toy.suite, [artifact], [toy.suite.shapes["tail"]])
        grids.append(plan.launches[0].grid)
    assert grids == [(4, 1, 1), (1, 1, 1)]


def test_a_plan_that_gave_no_answer_is_asked_again(faulty: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_plan, "TIME_LIMIT", 1.0)
    chosen = [a for a in faulty.artifacts if a.variant in ("good", "plan_hangs")]
    launch_plan.plans(faulty.suite, chosen, list(faulty.suite.shapes.values()))

    def kept(variant: str) -> int:
        path = faulty.of(variant).plan_library
        assert path is not None
        (cache,) = Path(path).parent.glob("plans.json")
        return len(json.loads(cache.read_bytes())["value"])

    assert (kept("good"), kept("plan_hangs")) == (2, 0)


def test_damaged_plan_answers_are_asked_again(toy: Built) -> None:
    library = toy.of("plain").plan_library
    assert library is not None
    shapes = list(toy.suite.shapes.values())
    expected = launch_plan.plans(toy.suite, [toy.of("plain")], shapes)
    (cache,) = Path(library).parent.glob("plans.json")
    for damage in ("", "{", "[1]", '{"1001": {}}', '{"1001": 7}'):
        cache.write_text(damage, encoding="utf-8")
        assert launch_plan.plans(toy.suite, [toy.of("plain")], shapes) == expected


def test_a_plan_may_depend_on_an_integer_argument(
    copy: Callable[[], Path], tmp_path: Path, compiler: toolchain.Nvcc
) -> None:
    folder = copy()
    manifest, source = Path(folder, "suite.toml"), Path(folder, "scale.cu")
    text = manifest.read_text().replace("float factor)", "float factor, int waves)")
    manifest.write_text(text.replace("{ N = 4096 }", "{ N = 4096, WAVES = 3 }"))
    text = source.read_text().replace("plan(const flashcore::Shape& s)", "plan(const flashcore::Shape& s, long waves)")
    text = text.replace(".grid = dim3(blocks)", ".grid = dim3(blocks, waves + 1)")
    text = text.replace("<flashcore/problem.h>", "<flashcore/problem.h>\n#include <flashcore/launch_by.h>")
    source.write_text(text.replace("VARIANT(plan, launch)", "VARIANT_BY(plan, launch, waves)"))
    built = compile_one(folder, tmp_path / "build", "plain")
    plans = {p.shape: p for p in launch_plan.plans(built.suite, built.artifacts, list(built.suite.shapes.values()))}
    assert plans["small"].launches[0].grid == (16, 4, 1)
    assert plans["tail"].launches[0].grid == (4, 1, 1), "a shape that does not name the argument has 0"
