"""The ``build.ninja`` that compiles the variants: its targets and commands.

For each variant and arch:

    object (host arch only)  variant.o, variant.cubin   nvcc -c: the analyzed device code is exactly the loaded one
    cubin (other archs)      variant.cubin              nvcc -cubin
    of both                  variant.sass               nvdisasm, if installed
    libraries                operator.so                variant.o + the problem's binding, stable ABI
                             plan.so                    variant.o alone: the launch plan, without torch

Other archs whose preprocessed host code differs from the host arch's get an object and a plan.so too. ``steps.sh`` runs
the commands.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

from flashcore.build import binding, nvcc_command
from flashcore.build.unit import CUBIN, LINKED, OBJECT, OPERATOR, PLAN, Unit
from flashcore.errors import UsageError
from flashcore.machine import toolchain
from flashcore.model import cache
from flashcore.model.files import file_hash
from flashcore.model.suite import ForeignLauncher, Suite

STEPS = Path(__file__).with_name("steps.sh")
#: The symbols that a library exports. All others are local: the dynamic linker would merge equal symbols of several
#: libraries, such as a static variable in an inline function of a shared header.
EXPORTS = nvcc_command.HARNESS_INCLUDE / "flashcore" / "exports.map"
#: --exclude-libs hides each library's static CUDA runtime.
LINK = ("-shared", "-Wl,--gc-sections", "-Wl,--exclude-libs,ALL", "-Wl,-Bsymbolic")
_EXPORTED = f"-Wl,--version-script={EXPORTS}"
RECORDER = "recorder.o"  # replaces the runtime, for variants with recorded plans
RECORDER_SOURCE = nvcc_command.HARNESS_INCLUDE / "flashcore" / "recorder.cpp"
TORCH = "libtorch_cpu.so"  # the torch library that operators need, by its soname
BINDING = "binding.o"


class Programs(NamedTuple):
    """What a graph runs, and torch's folder for operators; ``None``: no disassembly, no operators."""

    nvcc: toolchain.Nvcc
    cxx: Path
    disassembler: Path | None
    torch_root: Path | None


def graph(suite: Suite, units: Sequence[Unit], bindings: Mapping[str, Path], programs: Programs) -> str:
    """The ninja file.

    Args:
        bindings: each problem's folder of generated files.
    """
    place = units[0].folder.parent.resolve()
    edges = [*_shared(place, bindings, programs)]
    # ninja starts what is ready in this order: the GPU's arch first, and a suite's last variants, which are usually the
    # longest and would end the build alone.
    order = sorted(units, key=lambda unit: unit.is_host)
    for unit in reversed(order):
        folder = bindings[unit.variant.problem].resolve()
        edges.append(_compiled(suite, unit, programs, folder))
        if unit.is_host:
            edges += _planned(unit, programs)
        if OPERATOR in unit.wanted:
            edges.append(_operator(unit, programs, _binding(place, folder)))
    made = dict.fromkeys(file for edge in edges for file in edge.targets)
    wanted = [file for file in made if file.name in (CUBIN, PLAN, OPERATOR)]
    lines = [
        "ninja_required_version = 1.5",
        f"builddir = {_path(place)}",  # ninja's log is removed with this folder
        "rule step",
        "  command = $words",
        "  description = $what",
        *(line for edge in edges for line in edge.lines(made.keys())),
        f"default {' '.join(map(_path, wanted))}",
    ]
    return "\n".join(lines) + "\n"


class _Edge(NamedTuple):
    """A step of the graph: ``targets`` are the file that its command names, and others that it makes. Each file among
    the words that another step makes is made before."""

    step: str
    targets: Sequence[Path]
    words: Sequence[object]
    what: str
    after: Sequence[Path] = ()

    def lines(self, made: Set[Path]) -> list[str]:
        words = shlex.join(map(str, ("sh", STEPS, self.step, self.targets[0], *self.words)))
        inputs = [*self.after, *(word for word in self.words if isinstance(word, Path) and word in made)]
        outputs, needed = (" ".join(map(_path, files)) for files in (self.targets, inputs))
        return [f"build {outputs}: step {needed}", f"  words = {words.replace('$', '$$')}", f"  what = {self.what}"]


def _shared(place: Path, bindings: Mapping[str, Path], programs: Programs) -> Iterator[_Edge]:
    """What several units are linked with. ninja makes only what they need."""
    nvcc, cxx, _, torch_root = programs
    flags = ("-std=c++17", "-O1")
    recorder = (nvcc.path, *flags, "-Xcompiler", "-fPIC", f"-I{nvcc_command.HARNESS_INCLUDE}", "-c", RECORDER_SOURCE)
    yield _Edge("make", [place / RECORDER], recorder, "recorder of launches")
    # Operators link against an empty library of that name, since the linker would read all of torch's symbols.
    empty = (cxx, "-shared", "-nostdlib", f"-Wl,-soname,{TORCH}", "-x", "c++", "/dev/null")
    yield _Edge("make", [place / TORCH], empty, "name of torch")
    for name, folder in bindings.items():
        headers = (f"-DTORCH_TARGET_VERSION={binding.TORCH_TARGET_VERSION}", "-isystem", f"{torch_root}/include")
        source = (f"-I{folder.resolve()}", "-c", folder.resolve() / "binding.cpp")
        words = (cxx, *flags, "-fPIC", "-fvisibility=hidden", *headers, *source)
        yield _Edge("make", [place / folder.name], words, f"binding of {name}")


def _binding(place: Path, folder: Path) -> Path:
    """A problem's binding: in its folder if that is up to date, else it is made."""
    made = folder / BINDING
    return made if cache.recall(folder, BINDING, file_hash(made)) else place / folder.name


def _compiled(suite: Suite, unit: Unit, programs: Programs, problem: Path) -> _Edge:
    made = (OBJECT, CUBIN) if unit.is_host else (CUBIN,)
    words = nvcc_command.command(suite, unit, programs.nvcc.path, problem)
    words = [str(programs.disassembler or ""), os.path.realpath(suite.root), *words]
    return _Edge("compile", [*map(unit.file, made)], words, f"{unit.variant.name} {unit.arch}")


def _planned(unit: Unit, programs: Programs) -> Iterator[_Edge]:
    libraries, what = unit.libraries, f"{unit.variant.name} plan"
    parts: list[object] = [programs.cxx, *LINK, unit.file(OBJECT)]
    if isinstance(unit.variant.kind, ForeignLauncher):
        # The recorder's symbols take precedence over the runtime's, which provides the rest.
        parts += [unit.folder.parent.resolve() / RECORDER, "-Wl,-z,muldefs"]
    # A source without FLASHCORE_VARIANT, or without a library, fails here instead of when it is loaded.
    required = "-Wl,--require-defined=flashcore_launch_plan"
    extra = [required, *_files(libraries.static, libraries.of_torch), *_runtime(programs)]
    strict = [] if libraries.loose else ["-Wl,-z,defs"]
    if libraries.shared or libraries.loose:
        # A launch plan is read without a GPU and without the libraries of the variant.
        linked = [unit.file(LINKED)] if strict else []
        if linked:
            yield _Edge("make", linked, [*parts, *strict, *_files(libraries.shared), *extra], f"{what} with libraries")
        yield _Edge("stubs", [unit.file("stubs.o")], [*parts, *extra], f"{what} without libraries", linked)
        extra = [unit.file("stubs.o"), *extra]
    yield _Edge("make", [unit.file(PLAN)], [*parts, _EXPORTED, *strict, *extra], what)


def _operator(unit: Unit, programs: Programs, bound: Path) -> _Edge:
    torch = unit.folder.parent.resolve() / TORCH
    libraries = _files(unit.libraries.static, unit.libraries.shared, unit.libraries.of_torch)
    needed = ("-Wl,--push-state,--no-as-needed", torch, "-Wl,--pop-state", *libraries, *_runtime(programs))
    words = (programs.cxx, *LINK, _EXPORTED, unit.file(OBJECT), bound, *needed)
    return _Edge("make", [unit.file(OPERATOR)], words, f"{unit.variant.name} operator")


def _runtime(programs: Programs) -> tuple[object, ...]:
    return programs.nvcc.cudart_static, "-ldl", "-lrt", "-lpthread"


def has_content(path: Path) -> bool:
    """Whether a file exists and is not empty, as it may be after a power failure."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _files(*groups: Sequence[Path]) -> list[str]:
    """The linker's arguments for libraries; shared ones are found at the same place when they are loaded."""
    files = [file for group in groups for file in group]
    folders = dict.fromkeys(f"-Wl,-rpath,{file.parent}" for file in files if file.suffix != ".a")
    return [*["-Wl,--as-needed"] * bool(folders), *map(str, files), *folders]


def _path(path: Path) -> str:
    text = str(path.resolve())
    if "|" in text:
        raise UsageError(
            f"{text}: expected a path without |, which ninja does not support\n"
            "  hint: rename the folder, or give another with --build-dir"
        )
    return re.sub(r"([$ :])", r"$\1", text)
