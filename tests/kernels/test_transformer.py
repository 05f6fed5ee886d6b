"""The example's transformer gives torch's answer: eagerly, compiled, on a stream of its own and in a CUDA graph."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from flashcore.machine.gpu import Gpu
from tests.conftest import IMPORTED, ROOT, flashcore, leased_scripts

MODEL = ROOT / "examples/transformer/model.py"
SCRIPT = f"""
import pathlib, sys, torch, torch._inductor.compile_fx
sys.path.insert(0, sys.argv[1])
import model
{IMPORTED}
sys.exit(model.main(pathlib.Path(sys.argv[2])))
"""


@pytest.mark.gpu
@pytest.mark.usefixtures("whole_cuda_headers")
def test_the_operator_serves_in_a_model(tmp_path: Path) -> None:
    gpu = Gpu.find()
    if gpu is None or gpu.capability != (9, 0):
        pytest.skip("gpu: the operator is for Hopper")
    suite = str(ROOT / "kernels/attention_general")
    made = flashcore("build", "--suite", suite, "--variant", "attention", "--build-dir", str(tmp_path), cwd=tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr
    with leased_scripts({"model": (SCRIPT, str(MODEL.parent), str(tmp_path))}) as running:
        out, errors = running["model"].communicate(timeout=300)
    assert running["model"].returncode == 0, out + errors
    assert out.count("differs by") == 4


def test_without_a_library_the_example_says_how_to_build_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with pytest.raises(FileNotFoundError, match="--suite kernels/attention_general --variant attention"):
        runpy.run_path(str(MODEL))["load"](tmp_path)
