"""A variant is compiled by its owner's flags, and with the libraries and packages that it names."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.build import build, launch_plan, libraries, nvcc_command, static_facts
from flashcore.cli import build as cli_build
from flashcore.errors import CapabilityError, Exit
from flashcore.features.recorded import launchers
from flashcore.gate import judge
from flashcore.machine import toolchain
from flashcore.model.causes import CompileFailed, LibraryLaunches, LibraryMissing
from flashcore.model.record import Artifact, Environment, Facts, Plan, Record
from flashcore.model.suite import Suite
from flashcore.readers.cubin import code_of
from flashcore.suites import load
from tests import factory
from tests.conftest import compile_one

MANIFEST = """
name = "own"
title = "Somebody's own build"
nvcc = "13.0"
archs = ["sm_90"]
baseline = "plain"

[problem.scale]
file = "problem.py"
schema = "(Tensor x, Tensor(a!) out, float factor) -> ()"
dims = { x = ["N"], out = ["N"] }
dtypes = { "*" = "float32" }

[shape.small]
params = { N = 4096 }

[variant.plain]
source = "own.cu"
plan = "recorded"
technique = "a division"
roof = "fp32"
tolerance = "rounded_once"
tolerance_reason = "none"
"""
KERNEL = """
extern "C" __global__ void own(const float* x, float* out) {
  out[threadIdx.x] = expf(x[threadIdx.x]) / (x[threadIdx.x] + 1.5f);
}
"""
LAUNCHER = """
#include <flashcore/problem.h>
#include <flashcore/launcher.h>
static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, void*, cudaStream_t stream) {
  %s
  own<<<s.N / 256, 256, 0, stream>>>((const float*)a.x, (float*)a.out);
  return cudaGetLastError();
}
FLASHCORE_LAUNCHER(launch)
"""


def write(folder: Path, keys: str = "", *, before: str = "", call: str = "") -> Path:
    """A suite of one variant, with more keys at the top of its manifest."""
    folder.mkdir(exist_ok=True)
    (folder / "suite.toml").write_text(keys + MANIFEST)
    (folder / "problem.py").write_text("TOLERANCES = {'rounded_once': 'once'}\n")
    (folder / "own.cu").write_text(before + KERNEL + LAUNCHER % call)
    return folder


def compiled(folder: Path, into: Path) -> Artifact:
    return compile_one(folder, into, arch="sm_90").of("plain", "sm_90")


def numbers(artifact: Artifact) -> dict[str, object]:
    """Registers, spills and the instructions that a kernel's SASS has."""
    names = ("registers", "spill_store_bytes", "spill_load_bytes", "sass_instructions", "sass_mufu")
    return {fact.name: fact.value for fact in static_facts.facts(artifact) if fact.name in names}


def by_hand(command: str, suite: Path, folder: Path) -> Artifact:
    """What nvcc makes of a command typed in the suite's folder."""
    nvcc, *rest = shlex.split(command)
    path = toolchain.find_nvcc().path
    done = subprocess.run([path, *rest, "-o", folder / "hand.cubin"], cwd=suite, capture_output=True, text=True)
    assert (Path(nvcc).name, done.returncode) == ("nvcc", 0), done.stderr
    cubin, log = folder / "hand.cubin", folder / "hand.log"
    log.write_text(done.stdout + done.stderr)
    code = code_of(cubin.read_bytes())
    return replace(factory.artifact("plain", "sm_90"), cubin=str(cubin), code=code, log=str(log))


# --- flags --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "typed"),
    [
        ("", ["-O3", "-std=c++17"]),
        ('flags = ["-O3 --use_fast_math"]\n', ["-O3", "--use_fast_math"]),
        ('flags = ["-Xptxas", "-O1"]\n', ["-Xptxas", "-O1"]),
    ],
)
def test_machine_code_is_that_of_the_same_flags_by_hand(
    kept_folder: Path, tmp_path: Path, keys: str, typed: list[str]
) -> None:
    suite = write(tmp_path / "suite", keys)
    artifact = compiled(suite, kept_folder)
    (tmp_path / "bare.cu").write_text(KERNEL)
    command = ["nvcc", *typed, "-lineinfo", "-Xptxas", "-v", "-arch=sm_90", "-cubin", str(tmp_path / "bare.cu")]
    assert artifact.cause is None, artifact.message
    made = by_hand(shlex.join(command), suite, tmp_path)
    assert numbers(artifact) == numbers(made) and artifact.code == made.code


def test_the_shown_command_makes_what_the_build_made(kept_folder: Path, tmp_path: Path) -> None:
    suite = write(tmp_path / "suite", 'flags = ["--use_fast_math"]\n')
    artifact, declared = compiled(suite, kept_folder), load.load(suite)
    shown = build.commands(declared, kept_folder, build.Options(), declared.variants.values())
    command = dict(shown)["plain-sm_90"].replace(" -c ", " -cubin ")
    made = by_hand(command, suite, tmp_path)
    assert made.code == artifact.code


def test_math_is_exact_unless_its_owner_asks_otherwise(kept_folder: Path, tmp_path: Path) -> None:
    fast, plain = (
        numbers(compiled(write(tmp_path / name, f'flags = ["{flags}"]\n'), kept_folder))
        for name, flags in (("fast", "-O3 --use_fast_math"), ("plain", "-O3"))
    )
    default = numbers(compiled(write(tmp_path / "default"), kept_folder))
    assert fast != plain == default


def test_a_variants_flags_follow_the_suites(tmp_path: Path) -> None:
    keys = 'flags = ["-O2"]\nlibraries = ["m"]\n'
    suite = write(tmp_path / "suite", keys)
    text = (suite / "suite.toml").read_text() + 'flags = ["-maxrregcount={n}"]\nsweep = { n = [32, 64] }\n'
    text = text.replace("variant.plain", 'variant."plain_{n}"').replace('"plain"', '"plain_32"')
    (suite / "suite.toml").write_text(text)
    flags = {name: v.flags for name, v in load.load(suite).variants.items()}
    assert flags == {"plain_32": ("-O2", "-maxrregcount=32"), "plain_64": ("-O2", "-maxrregcount=64")}
    variant = load.load(suite).variants["plain_64"]
    assert variant.libraries == ("m",)
    debug = nvcc_command.compile_flags(load.load(suite), variant, "sm_90", debug=True)
    assert "-G" in debug and "-DDEBUG=1" in debug and "-O2" not in debug and "-maxrregcount=64" in debug


# --- libraries ----------------------------------------------------------------------------------


def library(folder: Path, *, static: bool = False) -> str:
    """A library with one function; its path."""
    source = folder / "answer.cpp"
    source.write_text('extern "C" int answer() { return 7; }\n')
    cxx = str(toolchain.find_cxx())
    if not static:
        subprocess.run([cxx, "-shared", "-fPIC", source, "-o", folder / "libanswer.so"], check=True)
        return "./libanswer.so"
    subprocess.run([cxx, "-c", "-fPIC", source, "-o", folder / "answer.o"], check=True)
    subprocess.run(["ar", "rcs", folder / "libanswer.a", folder / "answer.o"], check=True)
    return "libanswer.a"


CALL = "if (answer() != 7) return cudaErrorUnknown;"
DECLARED = 'extern "C" int answer();\n'


def plan_of(folder: Path, artifact: Artifact) -> Plan:
    declared: Suite = load.load(folder)
    (plan,) = launch_plan.plans(declared, [artifact], [*declared.shapes.values()], launchers)
    return plan


def test_a_static_library_is_part_of_the_plan(kept_folder: Path, tmp_path: Path) -> None:
    suite = write(tmp_path / "suite", before=DECLARED, call=CALL)
    name = library(suite, static=True)
    write(suite, f'libraries = ["{name}"]\n', before=DECLARED, call=CALL)
    plan = plan_of(suite, compiled(suite, kept_folder))
    assert (plan.cause, [launch.kernel for launch in plan.launches]) == (None, ["own"])


def test_a_shared_librarys_functions_return_0_in_the_plan(kept_folder: Path, tmp_path: Path) -> None:
    """So plans need no GPU, of which a library such as cuBLAS asks, and no library of 500 MB."""
    call = "if (answer() != 0) return cudaErrorUnknown;"
    suite = write(tmp_path / "suite", before=DECLARED, call=call)
    write(suite, f'libraries = ["{library(suite)}"]\n', before=DECLARED, call=call)
    plan = plan_of(suite, compiled(suite, kept_folder))
    assert (plan.cause, [launch.kernel for launch in plan.launches]) == (None, ["own"])


def test_launches_of_libraries_alone_are_unmeasured_and_pass_the_gate(kept_folder: Path, tmp_path: Path) -> None:
    call = "if (answer() == 0) return cudaSuccess;"
    suite = write(tmp_path / "suite", before=DECLARED, call=call)
    write(suite, f'libraries = ["{library(suite)}"]\n', before=DECLARED, call=call)
    artifact = compiled(suite, kept_folder)
    plan = plan_of(suite, artifact)
    assert isinstance(plan.cause, LibraryLaunches) and plan.can_run and "libanswer" in plan.error
    declared = load.load(suite)
    environment = Environment(None, "", "", "", "", nvcc=toolchain.find_nvcc().version)
    facts_of = Facts(static_facts.facts(artifact))
    judged = judge.judge(Record("", "", declared, environment, (artifact,), (plan,), (), (), facts_of))
    (verdict,) = (v for v in judged.limits if v.budget == "as_planned" and v.subject.arch)
    assert (verdict.status, judged.exit_code) == ("unmeasured", Exit.OK)


def test_a_function_of_no_library_fails_with_its_name(compiler: toolchain.Nvcc, tmp_path: Path) -> None:
    for keys in ("", 'libraries = ["m"]\n'):
        artifact = compiled(write(tmp_path / "suite", keys, before=DECLARED, call=CALL), tmp_path / "build")
        assert isinstance(artifact.cause, CompileFailed)
        assert artifact.message.startswith("undefined reference to `answer'")


def test_a_missing_library_is_the_machines_lack(compiler: toolchain.Nvcc, tmp_path: Path) -> None:
    artifact = compiled(write(tmp_path / "suite", 'libraries = ["no_such_library"]\n'), tmp_path / "build")
    assert isinstance(artifact.cause, LibraryMissing) and "no_such_library" in artifact.message
    assert cli_build.exit_code([artifact], []) is Exit.INCAPABLE


def test_another_library_makes_measured_results_stale(compiler: toolchain.Nvcc, tmp_path: Path) -> None:
    suite = write(tmp_path / "suite", before=DECLARED)
    write(suite, f'libraries = ["{library(suite)}"]\n', before=DECLARED)
    first, again = (compiled(suite, tmp_path / "build") for _ in range(2))
    assert again.cached and first.host == again.host
    (suite / "answer.cpp").write_text('extern "C" int answer() { return 8; }\n')
    subprocess.run([toolchain.find_cxx(), "-shared", "-fPIC", suite / "answer.cpp", "-o", suite / "libanswer.so"])
    other = compiled(suite, tmp_path / "build")
    assert not other.cached and other.host != first.host


# --- packages -----------------------------------------------------------------------------------


def test_a_packages_headers_are_found_and_an_edit_is_compiled(
    compiler: toolchain.Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = tmp_path / "site" / "wheel_of_headers" / "include"
    headers.mkdir(parents=True)
    (headers.parent / "__init__.py").touch()
    (headers / "theirs.h").write_text("#define THEIRS 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    keys, before = 'packages = ["wheel_of_headers"]\n', "#include <theirs.h>\n__constant__ int theirs = THEIRS;\n"
    suite = write(tmp_path / "suite", keys, before=before)
    first, again = (compiled(suite, tmp_path / "build") for _ in range(2))
    assert not first.cached and again.cached
    (headers / "theirs.h").write_text("#define THEIRS 2\n")
    assert not compiled(suite, tmp_path / "build").cached
    monkeypatch.undo()
    assert isinstance(compiled(suite, tmp_path / "build").cause, LibraryMissing)


@pytest.mark.usefixtures("whole_cuda_headers")
def test_torchs_headers_come_with_those_of_its_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / "nvidia" / name / "include" for name in ("cu13", "cublas")]
    for folder in folders:
        folder.mkdir(parents=True)
    monkeypatch.setattr(toolchain, "site_packages", lambda: [tmp_path])
    nvcc = toolchain.Nvcc(tmp_path / "nvcc", tmp_path, "13.0", "")
    both = [libraries.find(factory.variant("plain", packages=names), tmp_path, nvcc) for names in (("torch",), ())]
    assert [[folder in x.headers for folder in folders] for x in both] == [[True, True], [False, False]]


def test_code_of_torch_is_linked_with_torch(kept_folder: Path, tmp_path: Path) -> None:
    before, call = "#include <c10/util/Exception.h>\n", 'TORCH_CHECK(s.N > 0, "empty");'
    suite = write(tmp_path / "suite", 'packages = ["torch"]\n', before=before, call=call)
    plan = plan_of(suite, compiled(suite, kept_folder))
    assert (plan.cause, [launch.kernel for launch in plan.launches]) == (None, ["own"])


@pytest.mark.usefixtures("whole_cuda_headers")
def test_cublas_builds_and_its_plan_has_the_variants_own_launches(compiler: toolchain.Nvcc, tmp_path: Path) -> None:
    before = "#include <cublas_v2.h>\nstatic cublasHandle_t handle;\n"
    call = (
        "if (cublasCreate(&handle) || cublasSetStream(handle, stream) ||\n"
        "      cublasScopy(handle, s.N, (const float*)a.x, 1, (float*)a.out, 1)) return cudaErrorUnknown;"
    )
    suite = write(tmp_path / "suite", 'libraries = ["cublas"]\n', before=before, call=call)
    try:
        libraries.find(load.load(suite).variants["plain"], suite, compiler)
    except CapabilityError as error:
        pytest.skip(f"headers: {error}")
    plan = plan_of(suite, compiled(suite, tmp_path / "build"))
    assert (plan.cause, [launch.kernel for launch in plan.launches]) == (None, ["own"])
