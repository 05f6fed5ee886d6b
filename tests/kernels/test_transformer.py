"""The example's transformer gives torch's answer: eagerly, compiled, on a stream of its own and in a CUDA graph."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from flashcore.machine.gpu import Gpu
from tests.conftest import ROOT, flashcore, gpu_lease

MODEL = ROOT / "examples/transformer/model.py"


@pytest.mark.gpu
@pytest.mark.usefixtures("whole_cuda_headers")
def test_the_operator_serves_in_a_model(tmp_path: Path) -> None:
    gpu = Gpu.find()
    if gpu is None or gpu.capability != (9, 0):
        pytest.skip("gpu: the operator is for Hopper")
    suite = str(ROOT / "kernels/attention_general")
    made = flashcore("build", "--suite", suite, "--variant", "attention", "--build-dir", str(tmp_path), cwd=tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr
    with gpu_lease():
        done = subprocess.run([sys.executable, str(MODEL), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("differs by") == 4


def test_without_a_library_the_example_says_how_to_build_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with pytest.raises(FileNotFoundError, match="--suite kernels/attention_general --variant attention"):
        runpy.run_path(str(MODEL))["load"](tmp_path)
