"""Recorded launches: a launcher of foreign CUDA code is called without a GPU, and its launches are its plan."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.build import builder, launch_plan, ninja_graph, static_facts
from flashcore.cli import build as cli_build
from flashcore.errors import Exit
from flashcore.features.recorded import launchers
from flashcore.machine.gpu import Gpu
from flashcore.machine.toolchain import Nvcc
from flashcore.model.cause import Cause
from flashcore.model.causes import (
    LAUNCH_REFUSED,
    LAUNCHES_NOTHING,
    NOT_CAPTURABLE,
    OTHER_STREAM,
    PLAN_CRASHED,
    STREAM_NOT_JOINED,
    DoesNotFit,
    NotOptedIn,
    PlanRefused,
    PlanUnknown,
)
from flashcore.model.record import Launch, Plan
from flashcore.records import lookup, store
from flashcore.suites import load
from tests.conftest import (
    IMPORTED,
    ROOT,
    SMALL_HEADER,
    TOY,
    Built,
    build_once,
    compile_one,
    flashcore,
    leased_scripts,
    no_disassembler,
)


def planned(built: Built) -> list[Plan]:
    return launch_plan.plans(built.suite, built.artifacts, list(built.suite.shapes.values()), launchers)


def test_a_recorded_launcher_sees_what_a_shape_leaves_out(update: Built) -> None:
    shapes = list(update.suite.shapes.values())
    plans = {p.shape: p for p in launch_plan.plans(update.suite, [update.of("plain")], shapes, launchers)}
    assert [x.kernel for x in plans["bare"].launches] == ["update<0>"]
    assert [x.kernel for x in plans["biased"].launches] == ["update<1>"]
    assert [x.grid for x in plans["biased"].launches] == [(8, 256, 1)]


LADDER = ROOT / "examples" / "sgemm"


@pytest.mark.skipif(
    not (LADDER / "SGEMM_CUDA").is_dir(), reason="headers: sh examples/sgemm/fetch.sh brings the headers"
)
def test_a_kernel_of_a_public_ladder_is_used_as_it_is(whole_cuda_headers: None, compiler: Nvcc, tmp_path: Path) -> None:
    built = compile_one(LADDER, tmp_path, "warp_tiles")
    assert [(a.status, a.message) for a in built.artifacts] == [("ok", "")]
    plans = {p.shape: p for p in planned(built)}
    (launch,) = plans["square"].launches
    assert launch.kernel == "sgemmWarptiling<128,128,16,64,64,4,8,4,128>"
    assert (launch.grid, launch.block) == ((32, 32, 1), (128, 1, 1))


@pytest.fixture(scope="module")
def foreign_suite(compiler: Nvcc, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Launchers that say nothing of their launches."""
    suite = load.load(TOY.with_name("foreign"))
    with no_disassembler():
        return build_once(tmp_path_factory, suite, suite.variants.values(), archs=("sm_90a",), operator=False)


@pytest.fixture(scope="module")
def foreign(foreign_suite: Built) -> dict[tuple[str, str], Plan]:
    """Their plans."""
    artifacts = foreign_suite.artifacts
    assert [a.status for a in artifacts] == ["ok"] * 2
    with no_disassembler():
        facts = {f.subject.kernel for a in artifacts if a.variant == "recorded" for f in static_facts.facts(a)}
    assert facts == {"lib::scale<128,1>", "lib::none"}  # the cubin's kernels have the names that the plan has
    return {(p.variant, p.shape): p for p in planned(foreign_suite)}


def test_a_launchers_own_launches_are_its_plan(foreign: dict[tuple[str, str], Plan]) -> None:
    first, second, third = foreign["recorded", "small"].launches
    assert first == Launch("lib::scale<128,1>", (32, 1, 1), (128, 1, 1), (1, 1, 1), 16)
    assert second == Launch("lib::none", (4, 1, 1), (64, 1, 1), (2, 1, 1), 0)  # as its source fixes it
    assert third == Launch("lib::none", (132, 1, 1), (32, 2, 1), (2, 1, 1), 0, programmatic=True)
    # A number that the shape does not name is 1: the branch on 0.5 is not taken.
    assert [x.grid[0] for x in foreign["recorded", "tail"].launches] == [8, 132]


def test_a_declared_plan_has_its_kernels_name_from_the_compiler(foreign: dict[tuple[str, str], Plan]) -> None:
    assert foreign["declared", "tail"].launches[0].kernel == "lib::scale<256,1>"


Planned = Callable[[int, str], Plan]


@pytest.fixture(scope="module")
def launchers_suite(
    whole_cuda_headers: None, compiler: Nvcc, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Built, list[Plan]]:
    """The suite with a launcher for each way to launch, and its plans by form."""
    suite = load.load(TOY.with_name("launchers"))
    with no_disassembler():
        built = build_once(tmp_path_factory, suite, suite.variants.values(), operator=False, headers="")
    assert [(a.status, a.message) for a in built.artifacts] == [("ok", "")] * 2
    source = Path(suite.root, "launchers.cu").read_text()
    plain = suite.shapes["plain"]
    shapes = [
        replace(plain, name=form, params={**plain.params, "form": int(form)})
        for form in re.findall(r"case (\d+):", source)
    ]
    return built, launch_plan.plans(suite, built.artifacts, shapes, launchers)


@pytest.fixture(scope="module")
def form(launchers_suite: tuple[Built, list[Plan]]) -> Planned:
    """The plan of a form on an arch."""
    plans = {(p.shape, p.archs[0]): p for p in launchers_suite[1]}
    return lambda form, arch: plans[str(form), arch]


@pytest.mark.parametrize(
    ("number", "on_80", "on_90"),
    [
        (0, ((32, 1, 1), 1024), ((32, 1, 1), 1024)),
        (1, ((32, 1, 1), 1024), ((32, 1, 1), 200 * 1024)),  # falls back
        (2, ((32, 1, 1), 163 * 1024), ((32, 1, 1), 227 * 1024)),
        (3, ((3 * 108, 1, 1), 48 * 1024), ((4 * 132, 1, 1), 48 * 1024)),
        (4, ((64, 1, 1), 0), ((64, 1, 1), 0)),
        (5, ((108, 1, 1), 32 * 1024), ((132, 1, 1), 32 * 1024)),
        (8, ((64, 1, 1), 8 * 1024), ((64, 1, 1), 8 * 1024)),
        (9, ((32, 1, 1), 1024), ((16, 1, 1), 0)),
        (10, ((8 * 108, 1, 1), 1024), ((8 * 132, 1, 1), 1024)),
    ],
)
def test_launches_are_those_of_the_arch(form: Planned, number: int, on_80: object, on_90: object) -> None:
    """Attributes, properties and occupancy have the arch's answers, so that a fallback is taken where it would be."""
    plans = [form(number, arch) for arch in ("sm_80", "sm_90a")]
    assert [plan.cause for plan in plans] == [None, None]
    assert [(x.grid, x.dynamic_smem) for plan in plans for x in plan.launches] == [on_80, on_90]
    assert plans[1].launches[0].cooperative == (number == 10)
    assert plans[1].launches[0].cluster == ((16, 1, 1) if number == 9 else (1, 1, 1))


def test_streams_in_order_and_one_allocation_are_fine(form: Planned) -> None:
    forked, allocated, in_order = (form(number, "sm_80") for number in (6, 7, 11))
    assert [x.kernel for x in forked.launches] == ["twice", "bounded"] and forked.cause is None
    assert [x.kernel for x in allocated.launches] == ["twice", "twice"] and allocated.cause is None
    assert [x.kernel for x in in_order.launches] == ["twice", "twice"] and in_order.cause is None


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (20, NotOptedIn("MaxDynamicSharedMemorySize", 64 << 10, 48 << 10)),
        (21, NotOptedIn("MaxDynamicSharedMemorySize", 64 << 10, 56 << 10)),
        (22, NotOptedIn("MaxDynamicSharedMemorySize", 64 << 10, 48 << 10)),
        (23, NotOptedIn("MaxDynamicSharedMemorySize", 40 << 10, 32 << 10)),
        (24, DoesNotFit("grid.x is 0; a launch has 1 to 2,147,483,647")),
        (25, DoesNotFit),
        (26, DoesNotFit("256 threads per block; the kernel's launch bounds allow 128")),
        (28, DoesNotFit),
        (29, NotOptedIn("MaxDynamicSharedMemorySize", 64 << 10, 48 << 10)),
        (30, NotOptedIn("MaxDynamicSharedMemorySize", 64 << 10, 48 << 10)),
    ],
)
def test_a_launch_that_no_gpu_of_the_arch_accepts_fails(
    form: Planned, number: int, expected: Cause | type[Cause], arch: str
) -> None:
    plan = form(number, arch)
    assert plan.failed and not plan.launches and plan.cause and plan.cause.code == LAUNCH_REFUSED.code
    because = plan.cause.data["because"]
    assert because == expected or type(because) is expected
    assert cli_build.exit_code([], [plan]) is Exit.FAILED


def test_a_large_cluster_needs_its_attribute(form: Planned) -> None:
    causes = [form(27, arch).cause for arch in ("sm_80", "sm_90a")]
    assert [type(c.data["because"]) for c in causes if c] == [DoesNotFit, NotOptedIn]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (40, OTHER_STREAM("twice")),
        (41, OTHER_STREAM("twice")),
        (42, OTHER_STREAM("cudaMemsetAsync")),
        (45, OTHER_STREAM("cudaMemset")),
        (43, STREAM_NOT_JOINED("twice")),
        (44, STREAM_NOT_JOINED("twice")),
        (50, LAUNCHES_NOTHING()),
        (51, NOT_CAPTURABLE("cudaMalloc")),
        (52, NOT_CAPTURABLE("cudaDeviceSynchronize")),
        (56, NOT_CAPTURABLE("a launch that fails")),
        (55, PLAN_CRASHED(3, "no such form")),
    ],
)
def test_a_launcher_that_cannot_work_fails(form: Planned, number: int, expected: Cause) -> None:
    plan = form(number, "sm_90a")
    assert plan.cause == expected and plan.failed and cli_build.exit_code([], [plan]) is Exit.FAILED


def test_a_launcher_may_refuse_a_shape(form: Planned) -> None:
    assert form(53, "sm_80").cause == PlanRefused("expected a multiple of 24")
    assert form(54, "sm_80").cause == PlanRefused("invalid argument")
    assert cli_build.exit_code([], [form(53, "sm_80")]) is Exit.OK


@pytest.mark.parametrize(
    ("number", "call"),
    [
        (60, "cudaOccupancyMaxActiveClusters"),
        (61, "a function of the CUDA runtime"),
        (62, "cudaDeviceGetAttribute of attribute 13"),
    ],
)
def test_what_only_a_gpu_can_answer_leaves_the_plan_unknown(form: Planned, number: int, call: str) -> None:
    plan = form(number, "sm_90a")
    assert plan.cause == PlanUnknown(call) and plan.can_run and not plan.failed and not plan.launches
    assert cli_build.exit_code([], [plan]) is Exit.OK


def test_a_recorded_plan_depends_on_the_kernels_of_the_arch(launchers_suite: tuple[Built, list[Plan]]) -> None:
    built, _ = launchers_suite
    problem, shape = built.suite.problems["double"], built.suite.shapes["plain"]
    recorded = [launchers.recording(problem, shape, built.of("any", arch)) for arch in ("sm_80", "sm_90a")]
    assert recorded[0]["kernels"] != recorded[1]["kernels"] and recorded[0]["attributes"] != recorded[1]["attributes"]


@pytest.mark.gpu
def test_on_a_gpu_the_recorded_launches_are_those_that_run(tmp_path: Path) -> None:
    folder = shutil.copytree(TOY.with_name("launchers"), tmp_path / "suite")
    lines = [f"[shape.m{form}]\nparams = {{ N = 1024, form = {form} }}\n" for form in (1, 2, 3, 4, 6, 8, 9, 10)]
    manifest = folder / "suite.toml"
    manifest.write_text(manifest.read_text().replace("[variant.any]", "\n".join([*lines, "[variant.any]"])))
    done = flashcore("profile", "--suite", str(folder), "--no-roofs", "--samples", "10", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    record = store.read(lookup.find(tmp_path / "profiles", None))
    assert {f.subject.shape: f.value for f in record.facts.named("plan_matches")} == {
        f"m{form}": 1 for form in (1, 2, 3, 4, 6, 8, 9, 10)
    } | {"plain": 1}


#: Calls a launcher with its real runtime; prints its result, and the error that nobody read.
CALL = f"""
import ctypes, sys, torch
from flashcore.features.recorded.launchers import struct
{IMPORTED}
x, out = torch.ones(8192, device="cuda"), torch.empty(8192, device="cuda")
arguments = struct([("const void*", x.data_ptr()), ("void*", out.data_ptr()), ("std::int64_t", int(sys.argv[2]))])
library, stream, error = ctypes.CDLL(sys.argv[1]), torch.cuda.Stream().cuda_stream, ctypes.c_char_p()
dims = (ctypes.c_int64 * 1)(8192)
given = ctypes.byref(arguments), dims, None, ctypes.c_void_p(stream), ctypes.byref(error)
print(library.flashcore_launch(*given), library.cudaGetLastError())
"""


@pytest.mark.gpu
def test_on_a_gpu_the_refused_launches_fail(
    launchers_suite: tuple[Built, list[Plan]], compiler: Nvcc, tmp_path: Path
) -> None:
    built, gpu = launchers_suite[0], Gpu.find()
    artifact = built.of("any", (gpu and gpu.arch_of(built.suite.archs)) or "")
    library = tmp_path / "real.so"
    code = Path(artifact.plan_library or "").with_name("variant.o")
    subprocess.run([compiler.path, "-shared", "-cudart", "shared", "-o", library, code], check=True)
    forms = (0, 20, 21, 22, 23, 24, 25, 26, 27, 28)
    with leased_scripts({form: (CALL, str(library), str(form)) for form in forms}) as running:
        results = {form: process.communicate(timeout=300)[0] for form, process in running.items()}
    failed = {form: any(map(int, result.split())) for form, result in results.items()}
    assert all(map(str.split, results.values())) and failed == {form: bool(form) for form in results}, results


def test_a_build_with_another_recorder_is_made_again(
    foreign_suite: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVCC_PREPEND_FLAGS", SMALL_HEADER)

    def again() -> list[bool]:
        return [
            a.cached for a in compile_one(Path(foreign_suite.suite.root), foreign_suite.folder, "recorded").artifacts
        ]

    assert again() == [True]
    other = tmp_path / "recorder.cpp"
    other.write_text(ninja_graph.RECORDER_SOURCE.read_text() + "\n// another release's\n")
    monkeypatch.setattr(builder, "RECORDER_SOURCE", other)
    assert again() == [False]


#: What torch's headers declare, as far as a launcher uses it.
OF_TORCH = """
#include <flashcore/problem.h>
#include <flashcore/launcher.h>
#include <exception>
namespace c10 {
struct Error : std::exception {
  const char* what() const noexcept override { return "no GPU\\nat line 3"; }
};
namespace cuda {
struct CUDAStream {
  long device, id;
  cudaStream_t stream() const;
};
CUDAStream getCurrentCUDAStream(signed char device = -1);
}  // namespace cuda
}  // namespace c10
__global__ void twice(float* out) { out[threadIdx.x] *= 2; }
static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape&, void*, cudaStream_t) {
  if (a.form == 1) throw c10::Error();
  twice<<<1, 32, 0, c10::cuda::getCurrentCUDAStream().stream()>>>(static_cast<float*>(a.out));
  return cudaGetLastError();
}
FLASHCORE_LAUNCHER(launch)
"""


def test_torchs_current_stream_is_the_given_one_and_its_errors_leave_the_plan_unknown(
    compiler: Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVCC_PREPEND_FLAGS", SMALL_HEADER)
    folder = shutil.copytree(TOY.with_name("launchers"), tmp_path / "suite")
    (folder / "launchers.cu").write_text(OF_TORCH)
    built = compile_one(folder, tmp_path / "build")
    plain = built.suite.shapes["plain"]
    shapes = [replace(plain, name=f"m{form}", params={**plain.params, "form": form}) for form in (0, 1)]
    fine, unknown = launch_plan.plans(built.suite, built.artifacts, shapes, launchers)
    assert fine.cause is None and [x.kernel for x in fine.launches] == ["twice"]
    assert unknown.cause == PlanUnknown("torch (no GPU)")
