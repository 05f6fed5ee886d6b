"""Sources of candidates: compiled and planned in the sandbox, from an example's variants and from attackers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.build import static_facts
from flashcore.errors import UsageError
from flashcore.machine.toolchain import Nvcc
from flashcore.model.settings import Settings
from flashcore.pipeline import plugins
from flashcore.pipeline.opening import open_context
from flashcore.stages.compiling import compile_all
from flashcore.suites.load import load
from flashcore_judge import preparing, sandbox
from flashcore_judge.judging import judge_all
from flashcore_judge.verdict import Verdict
from tests.conftest import ROOT, TESTS

HERE, SUITE = Path(__file__).parent, ROOT / "examples" / "row_softmax"


@pytest.fixture(autouse=True)
def confined(monkeypatch: pytest.MonkeyPatch) -> None:
    if not shutil.which("bwrap") and subprocess.run(["unshare", "-Ur", "true"], check=False).returncode:
        pytest.skip("tool: neither bwrap nor user namespaces on this machine")
    # Compilers may read the small header there.
    monkeypatch.setenv("PYTHONPATH", f"{TESTS / 'sysroot'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def judged(folder: Path, source: Path, **config: Any) -> Verdict:
    plugins.load()
    folder.mkdir()
    text = source.read_text().replace("FLASHCORE_ATTACKED", json.dumps(preparing.__file__))
    (folder / source.name).write_text(text)
    form = {"name": "a", "problem": "rows", "tolerance": "fp32", "variant": {"source": source.name, "config": config}}
    (folder / "candidate.json").write_text(json.dumps(form))
    ((_, verdict),) = judge_all(load(SUITE), [folder], lambda _: None)
    return verdict


def test_a_source_is_compiled_and_planned(compiler: Nvcc, tmp_path: Path) -> None:
    verdict = judged(tmp_path / "c", SUITE / "warp.cu", WARPS=4)
    assert (verdict.status, len(verdict.reasons)) == ("unmeasured", 1) and "GPU" in verdict.reasons[0]
    assert [kernel["kernel"] for kernel in verdict.kernels] == ["row_softmax_warp_kernel"]


def test_a_source_that_does_not_compile_is_rejected(compiler: Nvcc, tmp_path: Path) -> None:
    (tmp_path / "bad.cu").write_text("int x = \x1b[2J;")
    verdict = judged(tmp_path / "c", tmp_path / "bad.cu")
    assert verdict.status == "rejected" and "does not compile" in verdict.reasons[0]
    assert "\x1b" not in verdict.reasons[0]


@pytest.mark.parametrize(  # see the source; none tells that it escaped
    "attack", [1, *(pytest.param(attack, marks=pytest.mark.slow) for attack in (5, 7))]
)
def test_host_code_that_attacks_gets_nowhere(
    compiler: Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: int
) -> None:
    monkeypatch.setenv("FLASHCORE_SECRET", "x")
    verdict = judged(tmp_path / "c", HERE.parent / "benchmarks" / "attacks" / "host.cu", ATTACK=attack)
    assert verdict.status in ("rejected", "unmeasured") and "ESCAPED" not in str(verdict.reasons)


def test_the_suites_baseline_is_planned_where_it_is_timed(compiler: Nvcc, tmp_path: Path) -> None:
    plugins.load()
    suite = load(SUITE)
    made = preparing.baseline(suite, "sm_90a", tmp_path / "b")
    assert {*made.shapes} == {s.name for s in suite.shapes.values() if "bench" in s.stages}
    assert all(launch["cubin"] in made.cubins for (each,) in made.shapes.values() for launch in each.launches)


def test_compilers_see_what_they_need_of_a_suite_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins.load()
    folder = Path(shutil.copytree(SUITE, tmp_path / "suite"))
    for name in (".env", ".git/config", "profiles/large", "build/x", "verdicts/a.verdict.json", "rival/candidate.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("secret")
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("problem.py")
    (folder / "none").symlink_to("nothing")
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "common.h").touch()
    (folder / "common").symlink_to("../common")
    (folder / "include" / "build").mkdir(parents=True)
    (folder / "include" / "build" / "needed.h").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "other.py").write_text((folder / "problem.py").read_text())
    text = (folder / "suite.toml").read_text()
    more = text[text.index("[problem.rows]") : text.index("[shape.main]")]
    more = more.replace("[problem.rows]", "[problem.others]").replace('"problem.py"', '"../other/other.py"')
    shape = '[shape.other]\nproblem = "others"\nparams = { R = 1, C = 1 }\n'
    (folder / "suite.toml").write_text(f"{text}\n{more}{shape}")
    shown: list[Path] = []

    def run(_: object, folders: list[Path]) -> bytes:
        shown.extend(path for each in folders for path in each.rglob("*"))
        raise UsageError("enough")

    monkeypatch.setattr(sandbox, "run", run)
    with pytest.raises(UsageError, match="enough"):
        preparing.baseline(load(folder), "sm_90a", tmp_path / "b")
    assert {"suite.toml", "problem.py", "link", "needed.h", "common.h", "other.py"} <= {path.name for path in shown}
    assert not [path for path in shown if path.is_file() and path.read_text() == "secret"]
    assert "pipe" not in {path.name for path in shown}


NUMBERED = """
#include <flashcore/problem.h>
extern "C" __global__ void scaled(const void* from, void* to, int bytes, float s) {}
namespace {
flashcore::Plan plan(const flashcore::Shape&) { return flashcore::Plan().add({"scaled", dim3(1), dim3(32)}); }
cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], scaled, stream, a.x, a.y, s.N, 2.0f * static_cast<float>(a.sign));
}
}  // namespace
FLASHCORE_VARIANT(plan, launch)
"""


def test_a_source_is_planned_for_the_numbers_of_each_kind_of_input(compiler: Nvcc, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(HERE / "suite", tmp_path / "suite"))
    (folder / "copy.cu").write_text(NUMBERED)
    text = (folder / "suite.toml").read_text().replace('callable = "problem.py:copied"', 'source = "copy.cu"')
    text = text.replace("Tensor(a!) y)", "Tensor(a!) y, float sign)").replace(
        '"*" = "uint8"', 'x = "uint8", y = "uint8"'
    )
    (folder / "suite.toml").write_text(text)
    made = preparing.baseline(load(folder), "sm_90a", tmp_path / "b")
    of_number = {one.numbers["sign"]: one.launches[0]["arguments"][-1][0]["hex"] for one in made.shapes["small"]}
    assert of_number == {1: "00000040", -1: "000000c0"}


def test_no_candidate_is_disassembled(compiler: Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(static_facts, "disassemble", lambda *_: pytest.fail("disassembled"))
    context = open_context(Settings(str(ROOT / "tests/suites/toy"), build="build", variants=("plain",), upto=None))
    built = compile_all(replace(context, options=replace(context.options, archs=("sm_90a",), plans_only=True)))
    assert [a.status for a in built.artifacts] == ["ok"] and built.plans and not built.facts
