"""`flashcore init`: the suite that it writes builds and gates as it is."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from flashcore.errors import Exit, FlashcoreError, UsageError
from flashcore.features.init import command, source
from flashcore.machine import toolchain
from flashcore.runner.problem_file import load_problem
from flashcore.suites import load, schema
from tests.conftest import NO_TORCH, flashcore


def test_the_new_suite_loads(tmp_path: Path) -> None:
    written = command.write(tmp_path / "mine")
    assert sorted(p.name for p in written) == ["problem.py", "scale.cu", "suite.schema.json", "suite.toml"]
    committed = Path(schema.__file__).with_name("suite.schema.json").read_text(encoding="utf-8")
    assert (tmp_path / "mine" / "suite.schema.json").read_text(encoding="utf-8") == committed
    loaded = load.load(tmp_path / "mine")
    assert list(loaded.variants) == ["one_element", "four_elements"]
    problem = load_problem(tmp_path / "mine", loaded.problems["scale"].file)
    assert problem.work({"R": 2, "C": 3}) == {"flop": 6, "bytes": 48}
    assert {v.tolerance for v in loaded.variants.values()} <= set(problem.TOLERANCES)


def test_the_new_suite_builds_and_gates(compiler: toolchain.Nvcc, tmp_path: Path) -> None:
    made = flashcore("init", "mine", cwd=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.endswith("next: flashcore build --suite mine\n")
    gated = flashcore("gate", "--suite", "mine", cwd=tmp_path, env={"CUDA_ARCH": "9.0"}, start=NO_TORCH)
    # Without a disassembler one budget of the new suite cannot be judged, and the gate says so.
    assert gated.returncode == (0 if toolchain.optional_tool("nvdisasm") else 3), gated.stdout + gated.stderr
    if gated.returncode == 3:
        assert "wide_loads" in gated.stdout


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    command.write(tmp_path / "empty")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("dear", encoding="utf-8")
    with pytest.raises(UsageError, match="expected a new or empty folder, found something in it"):
        command.write(tmp_path / "mine")
    with pytest.raises(UsageError, match="expected a new or empty folder"):
        command.write(tmp_path / "mine" / "notes")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes"]
    with pytest.raises(FlashcoreError, match="cannot write"):
        command.write(tmp_path / "mine" / "notes" / "deeper")


# --- around an existing file --------------------------------------------------------------------

THEIRS = """
// a comment with kernel<<<1, 1>>> in it
#include <cuda_runtime.h>
#include "theirs.h"
#define MACRO(name)                 \\
  __global__ void name##_kernel() { \\
  }

template <typename T, int N>
__global__ void tiled(const T* x, T* y) { y[0] = x[0] * N; }

__global__ void __launch_bounds__(16 * (2 + 6)) add_kernel(const float* __restrict__ a, const float *b, float* C,
                                                          int block_size, unsigned int n = 4) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { C[i] = a[i] + b[i]; }
}

__global__ void picked(const float* x, float* y, int mode) { y[0] = x[mode]; }

static float helper(float x) { if (x > 0) { return x; } return -x; }

void add(float* out, const float* a, const float* b, float scale, int n, cudaStream_t stream) {
  add_kernel<<<(n + 127) / 128, 128, 0, stream>>>(a, b, out, 128, n);
}

int main() { add_kernel<<<1, 1>>>(0, 0, 0, 0); }
"""


#: As in CUTLASS's examples.
CLUSTERED = """
__global__ static __launch_bounds__(decltype(size(Tiled<(2 + 6)>{}))::value) void gemm(const float* a, float* c) {}
void clustered(const float* a, float* c) { lib::launch_on_cluster(config, (void*)gemm, a, c); }
"""


def theirs(folder: Path, text: str = THEIRS) -> Path:
    (folder / "theirs.h").write_text("#include <lib/deep.h>\n#include <cublas_v2.h>\n")
    (folder / "include" / "lib").mkdir(parents=True, exist_ok=True)
    (folder / "include" / "lib" / "deep.h").touch()
    (folder / "theirs.cu").write_text(text)
    return folder / "theirs.cu"


def test_kernels_and_launchers_are_found() -> None:
    found = {
        f.name: (f.is_kernel, f.template, [p.kind for p in f.parameters]) for f in source.functions(THEIRS + CLUSTERED)
    }
    assert found == {
        "tiled": (True, ("T", "N"), ["Tensor", "Tensor"]),
        "add_kernel": (True, (), ["Tensor", "Tensor", "Tensor", "int", "int"]),
        "picked": (True, (), ["Tensor", "Tensor", "int"]),
        "add": (False, (), ["Tensor", "Tensor", "Tensor", "float", "int", "stream"]),
        "gemm": (True, (), ["Tensor", "Tensor"]),
        "clustered": (False, (), ["Tensor", "Tensor"]),
    }


@pytest.mark.parametrize("numbers", ["0x00000000u, ", "1, ", "'a', ", "f::x<1> = &y * "])
def test_a_kernel_behind_a_long_table_is_found(numbers: str, tmp_path: Path) -> None:
    table = f"unsigned table[] = {{{numbers * (200_000 // len(numbers))}0}};\n"
    (tmp_path / "table.h").write_text(table)
    kernel = "template <typename T, int N>\n__global__ void k(const T* x, T* y) {}\n"
    file = tmp_path / "k.cu"
    file.write_text(f'#include "table.h"\n{kernel}{table}__global__ void after(const float* x, float* y) {{}}\n')
    assert [(f.name, f.template) for f in source.functions(file.read_text())] == [("k", ("T", "N")), ("after", ())]
    command.write(tmp_path / "suite", file)
    assert "after<<<" in (tmp_path / "suite" / "launch.cu").read_text()


@pytest.mark.parametrize(
    ("launcher", "call", "schema"),
    [
        ("", "add((float*)a.out, (const float*)a.a,", "Tensor a, Tensor b, Tensor(a!) out, float scale, int n"),
        ("add_kernel", "add_kernel<<<", "Tensor a, Tensor b, Tensor(a!) c, int block_size, int n"),
        ("tiled<float, 2>", "(float*)a.y);", "Tensor x, Tensor(a!) y"),
        ("picked", "picked<<<", "Tensor x, Tensor(a!) y, int a_mode"),
    ],
)
def test_the_suite_calls_the_launcher(tmp_path: Path, launcher: str, call: str, schema: str) -> None:
    command.write(tmp_path / "suite", theirs(tmp_path), launcher)
    text = (tmp_path / "suite" / "launch.cu").read_text()
    assert call in text and '#include "../theirs.cu"' in text
    loaded = load.load(tmp_path / "suite")
    (variant,) = loaded.variants.values()
    assert loaded.problems[variant.problem].schema == f"({schema}) -> ()"
    assert (loaded.include, variant.libraries, variant.flags) == (("../include",), ("cublas",), ("-O3", "-std=c++17"))
    problem = load_problem(tmp_path / "suite", "problem.py")
    assert problem.work({"SIZE": 2, "n": 2}) == {"flop": 2, "bytes": 16}


#: What a build without flags of its own compiles is chosen by macros.
CHOSEN = """
#include "theirs.h"
//#define WITH_NCCL
#define WIDE
#ifdef WITH_NCCL
#include <nccl.h>
#if WIDE
__global__ void shared_out(const float* x, float* out) {}
#endif
#else
#ifdef WIDE
__global__ void wide(const float* x, float* out) {}
#else
#include <curand_kernel.h>
__global__ void narrow(const float* x, float* out) {}
#endif
#endif
#ifdef OF_HEADER
__global__ void of_header(const float* x, float* out) {}
#endif
#if 0
#ifdef WIDE
#else
#endif
__global__ void never(const float* x, float* out) {}
#elif defined(__CUDACC__)
__global__ void maybe(const float* x, float* out) {}
#endif
"""


def test_headers_of_a_neighboring_folder_are_searched_if_they_are_included_in_quotes(tmp_path: Path) -> None:
    for folder in ("kernels/gemm/basic", "kernels/gemm/tools/deep", "kernels/gemm/other"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "kernels" / "gemm" / "tools" / "deep" / "tiles.h").write_text("#include <cublas_v2.h>\n")
    (tmp_path / "kernels" / "gemm" / "other" / "string.h").touch()
    file = theirs(tmp_path / "kernels" / "gemm" / "basic", '#include "deep/tiles.h"\n#include <string.h>\n')
    command.write(tmp_path / "suite", file)
    loaded = load.load(tmp_path / "suite")
    assert loaded.include == ("../kernels/gemm/tools",)
    assert [v.libraries for v in loaded.variants.values()] == [("cublas",)]


def test_what_no_macro_compiles_is_not_called_or_linked(tmp_path: Path) -> None:
    file = theirs(tmp_path, CHOSEN)
    (tmp_path / "theirs.h").write_text("#define OF_HEADER\n#include <cublas_v2.h>\n")
    command.write(tmp_path / "suite", file)
    assert "found there: wide, of_header, maybe." in (tmp_path / "suite" / "launch.cu").read_text()
    (variant,) = load.load(tmp_path / "suite").variants.values()
    assert variant.libraries == ("cublas",)


def test_kernels_of_headers_next_to_the_file_can_be_called(tmp_path: Path) -> None:
    (tmp_path / "steps.cuh").write_text("__global__ void inner(float* y, int n) { y[n] = n; }")
    (tmp_path / "run.cu").write_text(
        '#include "steps.cuh"\nvoid outer(Model& m, int n) { inner<<<1, 32>>>(m.y, n); }\n'
        "void simple(float* y, int n) { inner<<<1, 32>>>(y, n); }\n"
    )
    folder = tmp_path / "suite"
    assert "\n  simple(" in source.suite_files(tmp_path / "run.cu", folder, "")["launch.cu"]
    assert "  inner<<<" in source.suite_files(tmp_path / "run.cu", folder, "inner")["launch.cu"]
    (tmp_path / "run.cu").write_text('#include "steps.cuh"\nvoid outer(Model& m) { inner<<<1, 32>>>(m.y, 1); }\n')
    assert "  inner<<<" in source.suite_files(tmp_path / "run.cu", folder, "")["launch.cu"]


def test_of_two_definitions_that_of_nvcc_is_called(tmp_path: Path) -> None:
    (tmp_path / "both.cpp").write_text(
        "#ifdef __CUDACC__\n__global__ void on_gpu\n#else\nvoid on_cpu\n#endif\n(float* y, int n) { y[n] = n; }\n"
        "#ifndef __CUDACC__\nvoid also(float* y) { LAUNCH(y); }\n#endif\n"
    )
    text = source.suite_files(tmp_path / "both.cpp", tmp_path / "suite", "")["launch.cu"]
    assert "  on_gpu<<<" in text and "also" not in text


@pytest.mark.parametrize(
    ("parameters", "launcher", "schema"),
    [
        ("State* const states, unsigned seed", "", "(Tensor like, Tensor(a!) states, int seed)"),
        ("const float* const x, float* const y", "", "(Tensor x, Tensor(a!) y)"),
        ("const float* x, int n", "k", "(Tensor x, Tensor(a!) out, int n)"),
        ("int out, int n", "k", "(Tensor like, Tensor(a!) out_2, int out, int n)"),
        ("float* like", "", "(Tensor like_2, Tensor(a!) like)"),
    ],
)
def test_what_a_kernel_can_write_is_its_output(parameters: str, launcher: str, schema: str, tmp_path: Path) -> None:
    file = theirs(tmp_path, f"__global__ void k({parameters}) {{}}\n")
    command.write(tmp_path / "suite", file, launcher)
    (problem,) = load.load(tmp_path / "suite").problems.values()
    assert f"{schema} -> ()" in (tmp_path / "suite" / "suite.toml").read_text() and problem.file
    assert "k<<<" in (tmp_path / "suite" / "launch.cu").read_text()


@pytest.mark.parametrize(
    ("parameters", "launcher", "given"),
    [
        ("const float* x, float* y, int n, int N", "", "(const float*)a.x, (float*)a.y, (int)a.n, (int)a.n_2"),
        ("float* y, int N, int n, int n_2", "", "(float*)a.y, (int)a.n, (int)a.n_2, (int)a.n_2_2"),
        ("const float* x, float* X, int n_", "", "(const float*)a.x, (float*)a.x_2, (int)a.n"),
        ("float* y, Params p, int n", "k", "(float*)a.y, {}, (int)a.n"),
    ],
)
def test_no_argument_is_left_out_in_silence(
    parameters: str, launcher: str, given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = theirs(tmp_path, f"__global__ void k({parameters}) {{}}\n")
    arguments = argparse.Namespace(folder=str(tmp_path / "a suite"), source=file, launcher=launcher)
    assert command.run(arguments) == Exit.OK
    printed = capsys.readouterr().out
    assert f"({given});" in (tmp_path / "a suite" / "launch.cu").read_text()
    assert load.load(tmp_path / "a suite").shapes
    assert "launch.cu:8: k<<<" in printed and "TODO: its grid and block" in printed
    assert ("TODO: pass p" in printed) == ("{}" in given)
    assert printed.endswith(f"next: flashcore build --suite '{tmp_path}/a suite'\n")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("ядро.cu", "k"),
        ("größe 2.cu", "gr_e_2"),
        ("2nd.cu", "k_2nd"),
        ("it's (new)/deep/mine.cu", "mine"),
        ("class.cu", "a_class"),
    ],
)
def test_a_suite_of_any_file_name_loads(file: str, name: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    header = (tmp_path / file).parent / "include" / "deep.h"
    header.parent.mkdir()
    header.touch()
    (tmp_path / file).write_text("#include <deep.h>\n__global__ void k(const float* größe, float* y) {}\n")
    command.write(tmp_path / "suite", tmp_path / file)
    loaded = load.load(tmp_path / "suite")
    assert (loaded.name, len(loaded.include)) == (name, 1)
    assert load_problem(tmp_path / "suite", "problem.py").work({"SIZE": 2}) == {"flop": 2, "bytes": 16}


@pytest.mark.parametrize("name", ['"mine".cu', "back\\slash.cu", "two\nlines.cu"])
def test_a_file_that_no_source_can_include_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("__global__ void k(const float* x, float* y) {}\n")
    with pytest.raises(UsageError, match="expected a path that #include can name"):
        command.write(tmp_path / "suite", tmp_path / name)
    assert not (tmp_path / "suite").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("photo.png", bytes(range(256)) * 9),
        ("notes.md", b"# A custom.html of launches\n"),
        ("host.cpp", b"#include <stdio.h>\nint main() { return 0; }\n"),
        ("empty.cu", b""),
    ],
)
def test_a_file_that_is_no_cuda_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match="expected a CUDA file with a kernel or launcher, found none"):
        command.write(tmp_path / "suite", tmp_path / name)
    assert not (tmp_path / "suite").exists()


@pytest.mark.parametrize(
    "text",
    [
        "#include <cutlass/gemm/device/gemm.h>\nint main() { Gemm()(args); }\n",
        "int main() { theirs<<<1, 32>>>(x, y); }\n",
        "#ifdef MINE\n__global__ void k(const float* x, float* y) {}\n#endif\n",
    ],
)
def test_library_code_gets_a_stub(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = theirs(tmp_path, text)
    assert command.run(argparse.Namespace(folder=str(tmp_path / "suite"), source=file, launcher="")) == Exit.OK
    assert "launch.cu calls no kernel yet" in capsys.readouterr().out
    assert load.load(tmp_path / "suite").shapes


def test_a_file_without_what_can_be_called_gets_a_stub(tmp_path: Path) -> None:
    command.write(tmp_path / "suite", theirs(tmp_path, "__global__ void none(Params p) {}\n"))
    text = (tmp_path / "suite" / "launch.cu").read_text()
    assert "init --launcher NAME" in text and text.index("#include <stdexcept>") < text.index('theirs.cu"')
    assert load.load(tmp_path / "suite").shapes


#: Launches as public code has them: in a macro, and of a template with constants of the launching function.
LAUNCHED = """
template <const int threads, const int group = -1>
__global__ void packed(const int4* x, int4* y, int* locks) {}
#define CALL_IF(GROUP) \\
  else if (group == GROUP) { \\
    packed<256, GROUP><<<1, 256, 0, stream>>>(x, y, locks); \\
  }
int packed_host(const void* x, void* y, void* locks, int group, cudaStream_t stream = 0) {
  if (false) {}
  CALL_IF(-1)
  return 0;
}
"""
TEMPLATE = """
#define BLOCK 256
template <unsigned int block, int per_thread, typename T>
__global__ void reduced(const T* x, T* out, unsigned int n) {}
int main() {
  const int PER_THREAD = 4;
  reduced<BLOCK, PER_THREAD, float><<<1, BLOCK>>>(0, 0, 0);
}
"""


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (LAUNCHED, "packed_host((const void*)a.x,"),
        (TEMPLATE, "reduced<BLOCK, 4, float><<<"),
        (TEMPLATE.replace("BLOCK, PER_THREAD", "BLOCK, argc"), "throw "),
        ('#include "kernel.cuh"\nint main() { inner<<<1, 1>>>(0, 0); }\n', "inner<<<"),
    ],
)
def test_launches_of_the_file_say_what_to_call(tmp_path: Path, text: str, call: str) -> None:
    (tmp_path / "kernel.cuh").write_text("__global__ void inner(const float* x, float* out) {}\n")
    command.write(tmp_path / "suite", theirs(tmp_path, text))
    assert call in (tmp_path / "suite" / "launch.cu").read_text()
    assert load.load(tmp_path / "suite").shapes


def test_a_long_name_is_cut(tmp_path: Path) -> None:
    (tmp_path / f"{'tiled_' * 30}.cu").write_text(THEIRS.replace('#include "theirs.h"', ""))
    command.write(tmp_path / "suite", tmp_path / f"{'tiled_' * 30}.cu")
    name = load.load(tmp_path / "suite").name
    assert name.startswith("tiled_" * 8) and len(name) <= 60


def test_what_there_is_not_is_named(tmp_path: Path) -> None:
    (tmp_path / "bare.cu").write_text("ROWS(scale<<<1, 4>>>(x))")
    theirs(tmp_path)
    for message, file in (
        ("found tiled, add_kernel, picked, add", "theirs.cu"),
        ("found none$", "bare.cu"),
        ("expected a CUDA file", "no.cu"),
        ("found Python\n  hint: a Triton kernel", "kernel.py"),
    ):
        with pytest.raises(UsageError, match=message):
            command.write(tmp_path / "suite", tmp_path / file, "subtract")
    assert not (tmp_path / "suite").exists()


def test_a_suite_of_their_file_builds_as_it_is(compiler: toolchain.Nvcc, tmp_path: Path) -> None:
    text = THEIRS.replace('#include "theirs.h"', "")
    assert flashcore("init", "--from", str(theirs(tmp_path, text)), cwd=tmp_path).returncode == 0
    built = flashcore("build", "--suite", "theirs", cwd=tmp_path, start=NO_TORCH)
    assert built.returncode == 0, built.stderr
    assert "add_kernel" in built.stdout
    commands = flashcore("build", "--suite", "theirs", "--commands", cwd=tmp_path, start=NO_TORCH)
    assert "nvcc -O3 -std=c++17" in commands.stdout
