"""The judge, end to end, on a stand-in of CUDA's driver."""

from __future__ import annotations

import shutil
import subprocess
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from extensions.judge.tests.conftest import LAUNCH, SUITE, Judge, written
from flashcore.chips import devices
from flashcore.errors import ManifestError
from flashcore.machine.toolchain import Nvcc
from flashcore.pipeline import plugins
from flashcore.runner.kernel_call import KernelCall
from flashcore.suites.load import load
from flashcore_judge.judging import _Judge, _kinds, judge_all
from flashcore_judge.measuring import PROCESSES, SAMPLES

pytestmark = pytest.mark.usefixtures("forked")


def test_an_honest_candidate_is_accepted(judge: Judge) -> None:
    verdict = judge()
    assert (verdict.status, verdict.reasons) == ("accepted", ())
    *checks, small = verdict.shapes
    assert small["first_us"] == 3.0 and not any(one["first_us"] for one in checks)
    drawn = {one["shape"]: one["drawn"] for one in checks}
    assert drawn == {"small": False, "odd": False, "drawn_0": True, "drawn_1": True}
    for one in checks:
        assert {*one["right"]} == {"random", "ones"} and one["calls_judged"] == 4 and not one["times"]
    assert small["shape"] == "small" and small["times"]["cold"]["us"] == small["times"]["isolated"]["us"] == 3.0
    assert small["calls_compared"] > small["calls_judged"] > 4
    assert verdict.rival == {"name": "library", "lacking": "it has no kernels of its own"}


def test_all_timed_calls_are_judged_if_bytes_may_differ(judge: Judge) -> None:
    verdict = judge(deterministic=False)
    timed = verdict.shapes[-1]
    assert verdict.status == "accepted"
    assert timed["calls_judged"] == timed["calls_compared"] == PROCESSES * (1 + SAMPLES), "also the first ones"


def test_inputs_are_of_several_kinds_if_one_tensor_can_be(tmp_path: Path) -> None:
    suite = Path(shutil.copytree(SUITE, tmp_path / "suite"))
    text = (SUITE / "suite.toml").read_text().replace("(Tensor x, ", "(Tensor x, Tensor weight, ")
    text = text.replace('{ x = ["N"]', '{ weight = ["N"], x = ["N"]').replace('{ "*"', '{ weight = "float32", "*"')
    (suite / "suite.toml").write_text(text)
    for root, are_mixed in ((SUITE, False), (suite, True)):
        loaded = load(root)
        shape = loaded.shapes["small"]
        kinds = _kinds(KernelCall.of(loaded, "copy", shape, variant="a", tolerance="exact"), shape, "check", 1)
        assert {"random", "ones"} <= {*kinds} and any("+" in kind for kind in kinds) == are_mixed


def test_a_candidate_that_names_all_shapes_gets_drawn_ones_too(judge: Judge) -> None:
    assert [sum(one["drawn"] for one in judge(shapes=shapes).shapes) for shapes in (["small", "odd"], ["small"])] == [
        2,
        0,
    ]


def test_each_gpu_judges_candidates_of_its_own(
    busy_host: None, gpus: Callable[..., None], made: Path, tmp_path: Path
) -> None:
    plugins.load()
    names, messages = ("GPU-a", "GPU-b"), list[str]()
    gpus(*names)
    changes: list[dict[str, Any]] = [{}, {"tolerance": "none"}, {"launches": [{**LAUNCH, "kernel": "inc_bytes"}]}, {}]
    folders = [written(tmp_path / f"c{i}", made / "k.cubin", **change) for i, change in enumerate(changes)]
    verdicts = dict(judge_all(load(SUITE), folders, messages.append))
    assert [verdicts[folder].status for folder in folders] == ["accepted", "rejected", "rejected", "accepted"]
    assert {line.split()[-1] for line in messages} == {*names}


def test_ranges_of_no_problem_are_the_suites_mistake(tmp_path: Path) -> None:
    plugins.load()
    other = Path(shutil.copytree(SUITE, tmp_path / "other"))
    (other / "suite.toml").write_text((SUITE / "suite.toml").read_text().replace("[judge.copy]", "[judge.coppy]"))
    with pytest.raises(ManifestError, match="expected one of the suite's problems, found 'coppy'"):
        load(other)


def test_a_number_may_depend_on_the_kind_of_input(judge: Judge) -> None:
    arguments: list[Any] = [[{"tensor": "x"}], [{"tensor": "y"}], [{"int32": "=N - (1 - sign) // 2"}]]
    verdict = judge(launches=[{**LAUNCH, "arguments": arguments}])  # a byte less of ones
    assert verdict.status == "rejected"
    for one in verdict.shapes:
        assert one["right"]["ones"] and not one["right"]["random"]


def test_a_wrong_answer_is_rejected(judge: Judge) -> None:
    verdict = judge(launches=[{**LAUNCH, "kernel": "inc_bytes"}])
    assert verdict.status == "rejected" and "y" in verdict.reasons[0]


def test_bytes_beside_a_tensor_are_noticed(judge: Judge) -> None:
    arguments: list[Any] = [[{"tensor": "x"}], [{"tensor": "y"}], [{"int32": "=N + 40"}]]
    verdict = judge(launches=[{**LAUNCH, "kernel": "inc_bytes", "arguments": arguments}])
    assert any("outside its tensors" in reason for reason in verdict.reasons)


@pytest.mark.parametrize(
    ("fails", "status"),
    [("cuStreamSynchronize:3", "rejected"), ("cuGraphLaunch:2", "rejected"), ("cuInit", "unmeasured")],
)
def test_a_failed_call_is_the_candidates_and_a_missing_gpu_is_not(judge: Judge, fails: str, status: str) -> None:
    verdict = judge(environment={"LIBCUDA_FAILS": fails})
    assert verdict.status == status and fails.partition(":")[0] in verdict.reasons[0]


def test_a_batch_may_end_while_a_verdict_starts_processes() -> None:
    one: Any = object.__new__(_Judge)
    one._answers, ended = SimpleNamespace(close=lambda: None), list[int]()

    def process(number: int) -> SimpleNamespace:
        def close() -> None:
            ended.append(number)
            if number < 3:  # as the verdict's thread does meanwhile
                one._spare.append(process(number + 1))

        return SimpleNamespace(close=close)

    one._spare = deque([process(0), process(3)])
    one.close()
    assert sorted(ended) == [0, 1, 2, 3, 3] and not one._spare


def test_a_suite_that_fails_convicts_nobody(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPIES_FAIL", "1")
    verdict = judge()
    assert verdict.status == "unmeasured" and "COPIES_FAIL" in verdict.reasons[0]


def test_times_without_a_floor_are_not_accepted(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find", lambda _: None)
    verdict = judge()
    assert (verdict.status, tuple(sorted(verdict.reasons))) == (
        "unmeasured",
        ("small: no cold floor is known", "small: no isolated floor is known"),
    )
    assert verdict.shapes[-1]["times"] and not verdict.shapes[-1]["floor"]


def test_clocks_that_disagree_are_noticed(judge: Judge) -> None:
    verdict = judge(launches=[{**LAUNCH, "kernel": "forge_copy"}])  # it moves the time of the event before it
    assert verdict.status == "rejected"
    assert "the clocks disagree: 1.00 us by events, 3.00 us by the gpu's clock" in verdict.reasons[0]


BASELINE = """
#include <flashcore/problem.h>
extern "C" __global__ void copy_bytes(const void* from, void* to, int bytes) {}
namespace {
flashcore::Plan plan(const flashcore::Shape&) { return flashcore::Plan().add({"copy_bytes", dim3(1), dim3(32)}); }
cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*,
                   cudaStream_t stream) {
  return flashcore::run(p.launches[0], copy_bytes, stream, a.x, a.y, s.N);
}
}  // namespace
FLASHCORE_VARIANT(plan, launch)
"""


def test_the_suites_baseline_is_timed_in_turns(
    judge: Judge, compiler: Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("bwrap") and subprocess.run(["unshare", "-Ur", "true"], check=False).returncode:
        pytest.skip("tool: neither bwrap nor user namespaces on this machine")
    suite = Path(shutil.copytree(SUITE, tmp_path / "suite"))
    (suite / "copy.cu").write_text(BASELINE)
    text = (suite / "suite.toml").read_text()
    variant = text.partition("[variant.library]")[2].replace('callable = "problem.py:copied"', 'source = "copy.cu"')
    text = text.replace('baseline = "library"', 'baseline = "copy"')
    (suite / "suite.toml").write_text(f"{text}\n[variant.copy]{variant}")
    monkeypatch.delenv("NVCC_PREPEND_FLAGS", raising=False)  # the sandbox does not have the small header
    verdict = judge(suite=suite)
    assert (verdict.reasons, verdict.rival) == ((), {"name": "copy", "lacking": ""})
    assert [time["speedup"]["value"] for time in verdict.shapes[-1]["times"].values()] == [1.0, 1.0]
