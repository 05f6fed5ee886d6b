"""The time to build a suite, compared with the usual way: ``python -m benchmarks.build``.

1. *clean build*: every variant for one arch into an empty folder, as ``flashcore build`` does it, against
   ``torch.utils.cpp_extension.load`` of the same variants one after another, each as one ``.cu`` file:
   ``torch/extension.h``, the variant's source, and a few lines that bind it.
2. *nothing changed*: ``flashcore build`` once more, less what Python itself takes to start; the two are
   run in turns and their medians subtracted. The compiler's version and the manifest's rightness are
   remembered in the build folder by then, and Python has its bytecode.

Where torch has no CUDA, ``load`` can compile but not link (there is no ``libc10_cuda``). Then its own
compile commands are timed without the link, which makes the usual way look better than it is.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import raw
from flashcore.build import binding, build, nvcc_command
from flashcore.build.nvcc_command import HARNESS_INCLUDE
from flashcore.errors import FlashcoreError
from flashcore.machine import toolchain
from flashcore.machine.gpu import Gpu
from flashcore.model.suite import Argument, Suite, Variant
from flashcore.suites.load import load, select

_LOAD = """
import os, sys, warnings
warnings.simplefilter("ignore")
import torch.utils.cpp_extension as cpp
name, folder, home, *rest = sys.argv[1:]
flags, sources = rest[: rest.index("--")], rest[rest.index("--") + 1 :]
cpp.CUDA_HOME = home
cpp.load(name=name, sources=sources, extra_cuda_cflags=flags, build_directory=folder, with_cuda=True, verbose=True)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; gives the exit code."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", default="kernels/attention", metavar="DIR")
    parser.add_argument(
        "--variant", action="append", default=[], metavar="GLOB", help="only variants whose names match"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N variants; the table says so")
    parser.add_argument("--arch", metavar="ARCH", help="the arch to build for (default: this GPU's, or the last)")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="of the no-change build (default: 15)")
    parser.add_argument("--no-load", action="store_true", help="leave torch's own way out")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Runs both parts and gives the seconds."""
    suite = load(options.suite)
    gpu = Gpu.find()
    arch = options.arch or (gpu.arch_of(suite.archs) if gpu else None) or suite.usual_arch
    variants = [v for v in select(suite, options.variant)[0] if not v.is_reference and arch in v.where.archs]
    total = len(variants)
    variants = variants[: options.limit]
    nvcc = toolchain.find_nvcc()
    results: dict[str, Any] = {
        "machine": raw.machine(f"nvcc {nvcc.version}", f"torch {toolchain.version_of('torch')}"),
        "suite": suite.name, "arch": arch, "variants": [v.name for v in variants], "of": total,
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="bench-build-") as scratch:
        folder = Path(scratch) / "build"
        results["clean"] = _clean(suite, variants, arch, folder)
        if not options.no_load:
            results["load"], results["how"] = _torch(suite, variants, arch, nvcc, Path(scratch) / "torch")
        results["unchanged"], results["python"] = _unchanged(suite, variants, arch, folder, options.rounds)
    return results


def table(results: Mapping[str, Any]) -> list[str]:
    """The results as lines of text."""
    count, ours, load = len(results["variants"]), results["clean"], results.get("load")
    rows = [(f"flashcore, clean, {count} variants in parallel", f"{ours:.2f} s")]
    if load:
        rows.append((f"cpp_extension.load, {len(load)} variants one by one, {results['how']}", f"{sum(load):.2f} s"))
        rows.append(("  of these the slowest, the quickest", f"{max(load):.2f} s, {min(load):.2f} s"))
        rows.append(("  its time over ours", f"{sum(load) / ours:.1f} ×"))
    again, bare = statistics.median(results["unchanged"]), statistics.median(results["python"])
    rounds = len(results["unchanged"])
    rows.append((f"flashcore, nothing changed (median of {rounds}, in turns with the next)", f"{again * 1e3:.0f} ms"))
    rows.append(("python -c pass", f"{bare * 1e3:.0f} ms"))
    rows.append(("  beyond Python's start", f"{(again - bare) * 1e3:.0f} ms"))
    width = max(len(what) for what, _ in rows)
    head = [f"machine: {results['machine']}",
            f"suite:   {results['suite']}, {count} of {results['of']} variants, {results['arch']}", ""]  # fmt: skip
    return head + [f"{what.ljust(width)}  {value.rjust(16)}" for what, value in rows]


def _clean(suite: Suite, variants: Sequence[Variant], arch: str, folder: Path) -> float:
    started = time.perf_counter()
    artifacts = build.build(suite, folder, build.Options(archs=(arch,)), variants=variants)
    seconds = time.perf_counter() - started
    bad = [a for a in artifacts if a.status != "ok" or a.library is None]
    if bad:
        raise FlashcoreError(f"{bad[0].variant}: expected an operator to compare, found: {bad[0].message or 'none'}")
    return seconds


def _unchanged(
    suite: Suite, variants: Sequence[Variant], arch: str, folder: Path, rounds: int
) -> tuple[list[float], list[float]]:
    """Seconds of a build with nothing to do and of Python alone, run in turns."""
    code = (
        "import sys; from pathlib import Path\n"
        "from flashcore.build import build; from flashcore.suites.load import load\n"
        "suite = load(sys.argv[1], Path(sys.argv[2]))\n"
        "made = build.build(suite, Path(sys.argv[2]), build.Options(archs=(sys.argv[3],)), "
        "variants=[suite.variants[n] for n in sys.argv[4:]])\n"
        "assert all(a.cached for a in made), 'it was to find everything built'"
    )
    names = [v.name for v in variants]
    command = [sys.executable, "-c", code, suite.root, str(folder), arch, *names]
    # As on any machine after the first start, the modules' bytecode is there.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    _run(command, env)
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(rounds):
        ours.append(_run(command, env))
        bare.append(_run([sys.executable, "-c", "pass"], env))
    return ours, bare


def _run(command: Sequence[str], env: dict[str, str] | None = None) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


# --- the usual way ------------------------------------------------------------------------------


def _torch(
    suite: Suite, variants: Sequence[Variant], arch: str, nvcc: toolchain.Nvcc, folder: Path
) -> tuple[list[float], str]:
    """Seconds of each variant, and how they were compiled."""
    number = arch.removeprefix("sm_")
    major_minor = f"{number.rstrip('af')[:-1]}.{number.rstrip('af')[-1]}{number[len(number.rstrip('af')) :]}"
    env = {
        **os.environ,
        "TORCH_CUDA_ARCH_LIST": major_minor,
        "CUDA_HOME": str(nvcc.root),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), str(nvcc.path.parent), os.environ["PATH"]]),
    }
    seconds: list[float] = []
    linked = True
    for variant in variants:
        build_folder = folder / variant.name
        build_folder.mkdir(parents=True)
        source = _source(suite, variant, build_folder)
        flags = [*_flags(suite, variant, arch), f"-I{build_folder}", f"-I{HARNESS_INCLUDE}"]
        command = [
            sys.executable,
            "-c",
            _LOAD,
            variant.name,
            str(build_folder),
            str(nvcc.root),
            *flags,
            "--",
            str(source),
        ]
        started = time.perf_counter()
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        spent = time.perf_counter() - started
        if not list(build_folder.glob("*.o")):
            output = done.stdout + done.stderr
            words = [line for line in output.splitlines() if "error" in line.lower()] or output.splitlines()[-15:]
            raise FlashcoreError("\n".join([f"cpp_extension.load of {variant.name} did not compile:", *words[:10]]))
        linked = linked and (build_folder / f"{variant.name}.so").is_file()
        seconds.append(spent)
        print(f"  {variant.name}: {spent:.1f} s", file=sys.stderr, flush=True)
        shutil.rmtree(build_folder)
    how = "linked" if linked else "compiled only: this torch has no CUDA to link with"
    return seconds, how


def _flags(suite: Suite, variant: Variant, arch: str) -> Iterator[str]:
    """Our own flags, less the arch (torch adds it) and what it would repeat."""
    flags = nvcc_command.compile_flags(suite, variant, arch, debug=False)
    skip = {"-gencode", next(f for f in flags if f.startswith("arch=")), "-Xptxas", "-v", "-Xcompiler", "-fPIC"}
    for flag in flags:
        if flag.startswith("-I"):
            yield f"-I{(Path(suite.root) / flag[2:]).resolve()}"
        elif flag not in skip:
            yield flag


def _source(suite: Suite, variant: Variant, folder: Path) -> Path:
    """A handwritten extension: ``torch/extension.h``, the variant, and its binding in one file."""
    problem = suite.problems[variant.problem]
    source = (Path(suite.root) / variant.kind.file).resolve()
    (folder / "flashcore").mkdir()
    (folder / "flashcore" / "problem.h").write_text(binding.problem_header(problem), encoding="utf-8")
    (folder / "flashcore" / "arguments.h").write_text(binding.arguments_header(problem), encoding="utf-8")
    whole = folder / "extension.cu"
    whole.write_text(
        f'#include <torch/extension.h>\n#include "{source}"\n{_binding(problem.arguments, problem.dims)}',
        encoding="utf-8",
    )
    return whole


def _binding(arguments: Sequence[Argument], dims: Sequence[str]) -> str:
    types = {"tensor": "torch::Tensor", "int": "int64_t", "float": "double"}
    parameters = ", ".join(f"{types[a.kind]} {a.name}" for a in arguments)
    values = ", ".join(f"{a.name}.data_ptr()" if a.kind == "tensor" else a.name for a in arguments)
    owners = {d: next(a for a in arguments if d in a.dims) for d in dims}
    sizes = ", ".join(f"{a.name}.size({a.dims.index(d)})" for d, a in owners.items())
    return f"""
void call({parameters}) {{
  const int64_t dims[] = {{{sizes}}};
  const flashcore::Args arguments{{{values}}};
  const char* error = nullptr;
  const int code = flashcore_launch(&arguments, dims, nullptr, nullptr, &error);
  TORCH_CHECK(code == 0, error ? error : "launch failed");
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("call", &call); }}
"""


if __name__ == "__main__":
    sys.exit(main())
