"""The ``build.ninja`` that compiles the variants: its targets and commands.

For each variant and arch:

    object (host arch only)  variant.o, variant.cubin   nvcc -c: the analyzed device code is exactly the loaded one
    cubin (other archs)      variant.cubin              nvcc -cubin
    sass                     variant.sass               nvdisasm, if installed
    libraries                operator.so                variant.o + the problem's binding, stable ABI
                             plan.so                    variant.o alone: the launch plan, without torch

Other archs whose preprocessed host code differs from the host arch's get an object and a plan.so too. ``steps.sh`` runs
the commands.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from flashcore.build import binding
from flashcore.build.libraries import Libraries
from flashcore.errors import UsageError
from flashcore.measure.machine import toolchain
from flashcore.model import cache
from flashcore.model.files import file_hash
from flashcore.model.suite import ForeignLauncher, Suite, Variant

STEPS = Path(__file__).with_name("steps.sh")
HARNESS_INCLUDE = Path(__file__).parent / "include"
#: The symbols that a library exports. All others are local: the dynamic linker would merge equal symbols of several
#: libraries, such as a static variable in an inline function of a shared header.
EXPORTS = HARNESS_INCLUDE / "flashcore" / "exports.map"
#: --exclude-libs hides each library's static CUDA runtime.
LINK = ("-shared", "-Wl,--gc-sections", "-Wl,--exclude-libs,ALL", "-Wl,-Bsymbolic")
_LINK = (*LINK, f"-Wl,--version-script={EXPORTS}")
#: __TIME__ would make every compilation different.
HOST_FLAGS = ("-Xcompiler", "-Werror=date-time")
LOG = "variant.log"
CUBIN = "variant.cubin"
SASS = "variant.sass"
PLAN = "plan.so"
RECORDER = "recorder.o"  # replaces the runtime, for variants with recorded plans
RECORDER_SOURCE = HARNESS_INCLUDE / "flashcore" / "recorder.cpp"
OPERATOR = "operator.so"
TORCH = "libtorch_cpu.so"  # the torch library that operators need, by its soname
OBJECT = "variant.o"
BINDING = "binding.o"
RULE = "variant.d"  # the files that the compiler read, as a make rule
HOST_TEXT = "host.ii"  # preprocessed host code, which depends on the arch through __CUDA_ARCH_LIST__
LINKED = "linked.so"  # shows that the libraries have all that a variant uses
_STRICT = "-Wl,-z,defs"


@dataclass(frozen=True, slots=True)
class Unit:
    """One (variant, arch) to compile, in a separate folder that is renamed when complete."""

    variant: Variant
    arch: str
    folder: Path
    question: str
    flags: tuple[str, ...]
    wanted: tuple[str, ...]  # names of the files to make
    libraries: Libraries = field(default_factory=Libraries)

    @property
    def name(self) -> str:
        return f"{self.variant.name}-{self.arch}"

    @property
    def is_host(self) -> bool:
        """Whether host code is compiled too."""
        return PLAN in self.wanted

    def file(self, name: str) -> Path:
        """One of its files."""
        return self.folder.resolve() / name


class Programs(NamedTuple):
    """What a graph runs, and torch's folder for operators; ``None``: no disassembly, no operators."""

    nvcc: toolchain.Nvcc
    cxx: Path
    disassembler: Path | None
    torch_root: Path | None


def command(suite: Suite, unit: Unit, nvcc: Path, problem: Path) -> list[str]:
    """nvcc's command for a unit, in the suite's folder; ``steps.sh`` adds where it puts its output.

    Args:
        problem: the folder of the problem's generated headers.
    """
    # Relative to the suite, so that __FILE__ is the same in a copy of the suite.
    top = os.path.realpath(suite.root)
    source = re.sub("^(?=[-@])", "./", os.path.relpath(os.path.realpath(Path(top, unit.variant.kind.file)), top))
    # nvcc splits -D at commas, so those in a macro's value (template arguments) are escaped.
    escaped = [flag.replace(",", "\\,") if flag.startswith("-D") else flag for flag in unit.flags]
    headers = (f"-I{problem.resolve()}", f"-I{HARNESS_INCLUDE}", *unit.libraries.flags)
    return [str(nvcc), *escaped, *HOST_FLAGS, *headers, "-c" if unit.is_host else "-cubin", source]


def graph(suite: Suite, units: Sequence[Unit], bindings: Mapping[str, Path], programs: Programs) -> str:
    """The ninja file.

    Args:
        bindings: each problem's folder of generated files.
    """
    shared = _Shared(units, bindings, programs)
    edges = [*shared.edges()]
    # ninja starts what is ready in this order: the GPU's arch first, and a suite's last variants, which are usually the
    # longest and would end the build alone.
    order = sorted(units, key=lambda unit: unit.is_host)
    for unit in reversed(order):
        edges += _compiled(suite, unit, programs, bindings[unit.variant.problem])
        if unit.is_host:
            edges += _linked(unit, shared)
    defaults = [edge.target for edge in edges if edge.target.name in (CUBIN, PLAN, OPERATOR, SASS)]
    lines = [
        "ninja_required_version = 1.5",
        f"builddir = {_path(units[0].folder.parent)}",  # ninja's log is removed with this folder
        "rule step",
        "  command = $words",
        "  description = $what",
        *(line for edge in edges for line in edge.lines()),
        f"default {' '.join(map(_path, defaults))}",
    ]
    return "\n".join(lines) + "\n"


class _Edge(NamedTuple):
    """A step of the graph; ``also`` are other files that it makes."""

    step: str
    target: Path
    words: Sequence[object]  # of its command
    inputs: Sequence[Path]
    what: str
    also: Sequence[Path] = ()

    def lines(self) -> list[str]:
        words = shlex.join(map(str, ("sh", STEPS, self.step, self.target, *self.words)))
        outputs = " ".join(map(_path, (self.target, *self.also)))
        inputs = " ".join(map(_path, self.inputs))
        return [f"build {outputs}: step {inputs}", f"  words = {words.replace('$', '$$')}", f"  what = {self.what}"]


class _Shared:
    """What several units are linked with."""

    def __init__(self, units: Sequence[Unit], bindings: Mapping[str, Path], programs: Programs) -> None:
        place = units[0].folder.parent.resolve()
        self.programs, self.bindings = programs, bindings
        self.recorder, self.torch = place / RECORDER, place / TORCH
        hosts = [unit for unit in units if unit.is_host]
        self.needs_recorder = any(isinstance(unit.variant.kind, ForeignLauncher) for unit in hosts)
        self.needs_torch = programs.torch_root is not None and bool(hosts)
        #: Those that are up to date are not made again.
        self.objects = {
            name: folder.resolve() / BINDING
            if not programs.torch_root or cache.recall(folder, BINDING, file_hash(folder / BINDING))
            else place / f"{name}.o"
            for name, folder in bindings.items()
        }

    def edges(self) -> Iterator[_Edge]:
        nvcc, cxx, _, torch_root = self.programs
        if self.needs_recorder:
            words = (nvcc.path, "-std=c++17", "-O1", "-Xcompiler", "-fPIC", f"-I{HARNESS_INCLUDE}", "-c")
            yield _Edge("make", self.recorder, (*words, RECORDER_SOURCE), (RECORDER_SOURCE,), "recorder of launches")
        if self.needs_torch:
            # Operators link against an empty library of that name, since the linker would read all of torch's symbols.
            words = (cxx, "-shared", "-nostdlib", f"-Wl,-soname,{TORCH}", "-x", "c++", "/dev/null")
            yield _Edge("make", self.torch, words, (), "torch's name")
        for name, folder in self.bindings.items():
            if self.objects[name].name == BINDING:
                continue
            source = folder.resolve() / "binding.cpp"
            headers = ("-isystem", f"{torch_root}/include", f"-I{folder.resolve()}")
            flags = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden")
            version = f"-DTORCH_TARGET_VERSION={binding.TORCH_TARGET_VERSION}"
            compiled = (cxx, *flags, version, *headers, "-c", source)
            yield _Edge("make", self.objects[name], compiled, (source,), f"binding of {name}")


def _compiled(suite: Suite, unit: Unit, programs: Programs, problem: Path) -> Iterator[_Edge]:
    cubin, what = unit.file(CUBIN), f"{unit.variant.name} {unit.arch}"
    if programs.disassembler is not None:
        yield _Edge(
            "disassemble", unit.file(SASS), (programs.disassembler, "-c", "-gi", cubin), (cubin,), f"{what} sass"
        )
    source = (Path(suite.root) / unit.variant.kind.file).resolve()
    words = (os.path.realpath(suite.root), *command(suite, unit, programs.nvcc.path, problem))
    first, *more = (unit.file(OBJECT), cubin) if unit.is_host else (cubin,)
    yield _Edge("compile", first, words, (source,), what, more)


def _linked(unit: Unit, shared: _Shared) -> Iterator[_Edge]:
    libraries, name = unit.libraries, unit.variant.name
    cxx, compiled = shared.programs.cxx, unit.file(OBJECT)
    runtime = (shared.programs.nvcc.cudart_static, "-ldl", "-lrt", "-lpthread")
    # A source without FLASHCORE_VARIANT, or without a library, fails here instead of when it is loaded.
    required = "-Wl,--require-defined=flashcore_launch_plan"
    own = [required, *_files(libraries.static, libraries.of_torch), *runtime]
    parts, first = [compiled], list[str]()
    if isinstance(unit.variant.kind, ForeignLauncher):
        # The recorder's symbols take precedence over the runtime's, which provides the rest.
        parts, first = [*parts, shared.recorder], ["-Wl,-z,muldefs"]
    if libraries.shared or libraries.loose:
        # A launch plan is read without a GPU and without the libraries of the variant.
        stubs, inputs = unit.file("stubs.o"), [*parts]
        if not libraries.loose:
            inputs.append(checked := unit.file(LINKED))
            words = [cxx, *_LINK, _STRICT, *parts, *_files(libraries.shared), *first, *own]
            yield _Edge("make", checked, words, parts, f"{name} with its libraries")
        yield _Edge("stubs", stubs, [cxx, "-shared", *parts, *first, *own], inputs, f"{name} stubs of libraries")
        parts = [*parts, stubs]
    strict = [] if libraries.loose else [_STRICT]
    yield _Edge("make", unit.file(PLAN), [cxx, *_LINK, *parts, *strict, *first, *own], parts, f"{name} plan")
    if OPERATOR in unit.wanted:
        needed = ("-Wl,--push-state,--no-as-needed", shared.torch, "-Wl,--pop-state")
        files = _files(libraries.static, libraries.shared, libraries.of_torch)
        inputs = [compiled, shared.objects[unit.variant.problem]]
        words = [cxx, *_LINK, *inputs, *needed, *files, *runtime]
        yield _Edge("make", unit.file(OPERATOR), words, [*inputs, shared.torch], f"{name} operator")


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
