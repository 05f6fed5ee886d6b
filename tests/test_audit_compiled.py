"""Programs that nvcc builds: what the audit reads is what cuobjdump prints for them, or unmeasured."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit, FlashcoreError
from flashcore.features.audit.inventory import inventory
from flashcore.features.audit.record import record_of
from flashcore.machine import toolchain
from flashcore.model.cause import Cause
from flashcore.model.causes import STACK_UNKNOWN, NotLinked
from flashcore.model.record import Record

Compiler = Callable[..., Path]

DEEP = """
#define ARRAY(N) int v[N]; for (int i = 0; i < N; ++i) v[(i * k) % N] = i;
extern __device__ int outer(int k);
extern "C" __global__ void calls(int* y) { y[0] = outer(y[1]); }
extern "C" __global__ void calls_nothing(int* y) { y[0] = 1; }
extern "C" __global__ void own_array(int* y, int k) { ARRAY(30) y[1] = v[k % 30]; }
__device__ __noinline__ int again(int k) { ARRAY(20) return k < 2 ? v[k] : again(k - 1) + again(k - 2) + v[k % 7]; }
extern "C" __global__ void recursive(int* y) { y[0] = again(y[1]); }
typedef int (*F)(int);
__device__ __noinline__ int one(int k) { ARRAY(40) return v[k % 40]; }
__device__ __noinline__ int two(int k) { return k * 3; }
__device__ F table[2] = {one, two};
extern "C" __global__ void by_pointer(int* y) { y[0] = table[y[1]](y[2]); }
extern "C" __global__ void by_unknown_pointer(float* y, float (*f)(double, char)) { y[0] = f(1, 'c'); }
extern "C" __global__ void on_the_stack(int* y, int n) { int* v = (int*)alloca(4 * n);
  for (int i = 0; i < n; ++i) v[(i * y[1]) % n] = i; y[1] = v[y[2] % 30]; }
"""
OUTER = """
#define ARRAY(N) int v[N]; for (int i = 0; i < N; ++i) v[(i * k) % N] = i;
__shared__ int s[100];
__device__ __noinline__ int inner(int k) { ARRAY(100) return v[k % 100]; }
__device__ __noinline__ int outer(int k) { s[k] = k; __syncthreads(); ARRAY(50) return v[k % 50] + inner(k) + s[0]; }
"""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    """Compiles sources in a new folder, by their names, and gives the result."""
    try:
        nvcc = toolchain.find_nvcc().path
    except FlashcoreError as error:
        pytest.skip(f"tool: no nvcc: {error}")

    def compiled(name: str, sources: dict[str, str], *options: str) -> Path:
        folder = tmp_path_factory.mktemp("built")
        for file, text in sources.items():
            (folder / file).write_text(text)
        subprocess.run([nvcc, "-arch=sm_90", *options, "-o", name, *sources], cwd=folder, check=True)
        return folder / name

    return compiled


LINKED = ("-rdc=true", "-shared", "-Xcompiler", "-fPIC")


def audited(*files: Path) -> Record:
    return record_of("", inventory(files), name="audit", command="")


def values(record: Record, name: str) -> dict[str, object]:
    """The fact of each kernel, or the code of its cause."""
    return {
        f.subject.kernel or "": f.detail.code if isinstance(f.detail, Cause) else f.value
        for f in record.facts
        if f.name == name
    }


@pytest.fixture(scope="module")
def linked(compiler: Compiler) -> Path:
    return compiler("libdeep.so", {"a.cu": DEEP, "b.cu": OUTER}, *LINKED)


def test_the_stack_of_linked_code_includes_the_functions_that_it_calls(linked: Path) -> None:
    record = audited(linked)
    stack = values(record, "stack_bytes")
    for name, arrays in (("calls", 4 * 150), ("by_pointer", 4 * 40)):
        frames = stack.pop(name)
        assert isinstance(frames, int) and arrays <= frames < arrays + 50
    assert stack == {
        "calls_nothing": 0,
        "own_array": 120,
        "recursive": STACK_UNKNOWN.code,
        "by_unknown_pointer": STACK_UNKNOWN.code,
        "on_the_stack": STACK_UNKNOWN.code,
    }
    assert values(record, "static_smem")["calls"] == 400
    assert main(["audit", str(linked), "--max", "stack_bytes=1000"]) == Exit.UNMEASURED
    assert main(["audit", str(linked), "--max", "stack_bytes=500"]) == Exit.FAILED


def test_only_kernels_whose_functions_use_local_memory_have_unknown_spills(linked: Path) -> None:
    spills = values(audited(linked), "spill_store_bytes")
    assert spills["calls_nothing"] == 0 and isinstance(spills["calls"], str)


def test_recursion_within_one_file_has_no_known_stack(compiler: Compiler) -> None:
    source = DEEP.replace("extern __device__ int outer(int k);", "__device__ int outer(int k) { return k; }")
    stack = values(audited(compiler("deep.cubin", {"a.cu": source}, "-cubin")), "stack_bytes")
    assert (stack["recursive"], stack["on_the_stack"]) == (STACK_UNKNOWN.code, STACK_UNKNOWN.code)
    assert (stack["calls"], stack["own_array"]) == (0, 120)


def test_resources_of_an_object_are_final_only_where_it_calls_nothing(compiler: Compiler) -> None:
    record = audited(compiler("a.o", {"a.cu": DEEP}, "-dc"))
    for name in ("registers", "stack_bytes", "static_smem", "barriers", "spill_store_bytes", "occupancy_high"):
        found = values(record, name)
        assert found["calls"] == found["recursive"] == found["by_pointer"] == NotLinked.code
        assert isinstance(found["calls_nothing"], int | float)


NAMESAKES = {
    "a.cu": "namespace { __global__ void fill(float* y) { y[0] = 1; } }\nvoid a(float* y) { fill<<<1, 1>>>(y); }\n",
    "b.cu": "namespace { __global__ void fill(float* y) { y[0] = 2; } template <class T> __global__ void one(T* y) "
    "{ *y = 1; } }\nvoid b(float* y) { fill<<<1, 1>>>(y); one<<<1, 1>>>(y); }\n",
    "c.cu": "static __global__ void copy(float* y) { *y = 3; }\n__global__ void two(int* y) { *y = 1; }\n"
    "__global__ void two(float* y) { *y = 2; }\n"
    "void c(float* y) { copy<<<1, 1>>>(y); two<<<1, 1>>>(y); two<<<1, 1>>>((int*)y); }\n",
}


@pytest.mark.parametrize("options", [LINKED, LINKED[1:]], ids=["relocatable", "whole"])
def test_names_do_not_depend_on_the_folder_of_the_build(
    options: tuple[str, ...], compiler: Compiler, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = (compiler("libk.so", NAMESAKES, *options) for _ in range(2))
    names = {"fill@a.cu", "fill@b.cu", "one<float>", "copy", "two(int*)", "two(float*)"}
    assert {*values(audited(one), "registers")} == names
    baseline = tmp_path / "baseline.txt"
    assert main(["audit", str(one), "--save-baseline", str(baseline)]) == Exit.OK
    assert main(["audit", str(other), "--baseline", str(baseline)]) == Exit.OK
    excepted = [f"--except={glob}" for glob in ("fill*", "one*", "copy")]
    capsys.readouterr()
    assert main(["audit", str(other), "--max", "registers=0", "--format=json", *excepted]) == Exit.FAILED
    failed = {v["subject"]["kernel"] for v in json.loads(capsys.readouterr().out)["verdicts"] if v["status"] == "fail"}
    assert failed == {"two(int*)", "two(float*)"}


def test_a_namesake_is_selected_for_disassembly(compiler: Compiler) -> None:
    library = compiler("libk.so", NAMESAKES, *LINKED[1:])
    selected = {kernel.name for kernel in inventory([library], ["fill@a.cu"]).kernels if kernel.disassembled}
    assert "fill@a.cu" in selected and "copy" not in selected


def test_namesakes_of_files_of_one_name_keep_the_order_of_the_link(compiler: Compiler, tmp_path: Path) -> None:
    """A hash of the path must not decide which is the second."""
    sources = {"a.cu": NAMESAKES["a.cu"], "b.cu": NAMESAKES["a.cu"].replace("= 1", "= y[1] / y[2]").replace("a(", "b(")}
    libraries = []
    for folder in "one", "two", "three", "four":
        root = tmp_path / folder
        for name, text in sources.items():
            (root / name).mkdir(parents=True)
            (root / name / "k.cu").write_text(text)
        libraries.append(compiler("libk.so", {}, *LINKED, *(str(root / name / "k.cu") for name in sources)))
    first, *others = ({k.name: k.content.code_bytes for k in inventory([library]).kernels} for library in libraries)
    assert {*first} == {"fill(float*)@k.cu", "fill(float*)@k.cu@2"} and all(other == first for other in others)
