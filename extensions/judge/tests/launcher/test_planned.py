"""Plans of the launches that a language recorded; on a GPU, the launcher's answers and times beside bench's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from flashcore.errors import FlashcoreError
from flashcore.machine.toolchain import Nvcc
from flashcore.model.record import Launch, Plan
from flashcore.model.suite import Argument
from flashcore.records import lookup, store
from flashcore.runner.kernel_call import KernelCall, Launched
from flashcore_judge.launcher import planned
from tests import softmax_cases
from tests.conftest import ROOT, flashcore

KERNEL = """
extern "C" __global__ void one(float* x, float* out, int n, float f, long long m, char* s) {
  *out = *x + n + f + m + *s;
}
"""


@pytest.fixture(scope="module")
def kernel(compiler: Nvcc, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "one.cu").write_text(KERNEL)
    subprocess.run([compiler.path, "-arch=sm_90a", "-cubin", "one.cu", "-o", "0.cubin"], cwd=folder, check=True)
    return folder / "0.cubin"


@pytest.fixture
def case(kernel: Path) -> Callable[..., KernelCall]:
    def case(arguments: list[str], workspace: int) -> KernelCall:
        tensors = tuple(Argument(name, "tensor", name == "out", ("N",), "float32") for name in ("x", "out"))
        launch = Launch("one<n=8>", (10, 2, 1), (64, 1, 1), (2, 1, 1), 99, True, False)
        plan = asdict(Plan("v", "s", (launch,), workspace))
        launched = Launched("a.launcher:target", {"one<n=8>": str(kernel)}, plan, ([{"arguments": arguments}],))
        return replace(softmax_cases.case("right"), params={"N": 8}, arguments=tensors, target=launched)

    return case


def test_a_recorded_launch_is_a_plan(case: Callable[..., KernelCall], tmp_path: Path) -> None:
    recorded = case(["x", "out", "3", "0.5", "-1"], 4096)
    plan = planned.planned(recorded, tmp_path)
    (launch,) = plan.launches
    assert (launch.grid, launch.block, launch.cluster, launch.dynamic_smem) == ((10, 2, 1), (64, 1, 1), (2, 1, 1), 99)
    assert launch.kernel == "one" and launch.programmatic and not launch.cooperative
    shown = [value.tensor or value.hex for (value,) in launch.arguments]
    assert shown == ["x", "out", "03000000", "0000003f", "ff" * 8, "workspace"]
    through_json = KernelCall.from_json(json.loads(json.dumps(recorded.to_json())))  # as a child gets it
    assert planned.planned(through_json, tmp_path).words() == plan.words()
    assert plan.tensors["workspace"].role == "workspace" and plan.tensors["workspace"].sizes == [4096]
    assert plan.tensors["out"].role == "output" and plan.tensors["x"].sizes == (8,)
    assert (tmp_path / launch.cubin).is_file() and plan.words().endswith("end\n")


def test_an_address_that_is_not_used_is_zero_and_a_workspace_has_its_name(
    case: Callable[..., KernelCall], tmp_path: Path
) -> None:
    plan = planned.planned(case(["None", "out", "3", "0.5", "-1"], 0), tmp_path)
    assert [*plan.tensors] == ["x", "out"]
    assert plan.launches[0].arguments[0][0].hex == plan.launches[0].arguments[5][0].hex == "00" * 8
    plan = planned.planned(case(["workspace 0", "out", "3", "0.5", "-1"], 64), tmp_path)
    assert plan.launches[0].arguments[0][0].tensor == "workspace_0"


@pytest.mark.parametrize("text", ["TensorDescriptor(x)", "'text'", "[1]", "4294967296"])
def test_what_no_plan_has_is_refused(case: Callable[..., KernelCall], tmp_path: Path, text: str) -> None:
    with pytest.raises(FlashcoreError, match="expected a tensor or a number of 4 bytes"):
        planned.planned(case(["x", "out", text, "0.5", "-1"], 0), tmp_path)


@pytest.mark.gpu
def test_bench_launches_from_plans(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    suite = ("--suite", str(ROOT / "examples" / "triton_kernels"), "--variant", "*4_warps", "--shape", "rows")
    done = flashcore("bench", *suite, "--launcher", "--samples", "10", "--repeats", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    record = store.read(lookup.find(tmp_path / "profiles", None))
    assert {(o.variant, o.stage, o.status) for o in record.outcomes} == {
        (variant, stage, "ok") for variant in ("softmax_4_warps", "torch_softmax") for stage in ("check", "bench")
    }
    done = flashcore("bench", *suite, "--launcher", "--isolate", "--samples", "10", "--repeats", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
