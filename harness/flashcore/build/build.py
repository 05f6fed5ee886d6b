"""Compiles every variant of a suite: cubins for each arch, a torch operator for the host's.

One ``build.ninja`` holds all variants (:mod:`flashcore.build.ninja_graph` says what is made of each); ``ninja -k 0``
lets one that does not compile fail alone. What is compiled lies in a folder whose name carries a hash of
everything that went in (sources, headers, flags, config, compiler), so a second build finds it there and
starts no process at all.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flashcore.build import binding
from flashcore.build.ninja_graph import CUBIN, HARNESS_INCLUDE, LOG, OPERATOR, PLAN, Unit, graph
from flashcore.errors import UsageError
from flashcore.machine import toolchain
from flashcore.model.files import write_atomically, writing
from flashcore.model.progress import Step
from flashcore.model.record import Artifact
from flashcore.model.suite import Problem, Suite, Variant

FLAGS = ("-std=c++17", "-O3", "--use_fast_math", "-lineinfo", "-Xptxas", "-v", "-Xcompiler", "-fPIC")
DEBUG_FLAGS = ("-std=c++17", "-G", "-DDEBUG=1", "-Xptxas", "-v", "-Xcompiler", "-fPIC")
#: The headers that are written for each problem.
GENERATED = ("flashcore/problem.h", "flashcore/arguments.h")
#: What ptxas -v says of every kernel, spread over several lines; not why a compilation failed.
_CHATTER = re.compile(r"ptxas info|\s+\d+ bytes stack frame")
_COUNT = re.compile(r"\[(\d+)/(\d+) ")
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may choose about a build."""

    debug: bool = False  # -G: never timed, never gated
    verbose: bool = False  # show the commands and the compiler's words
    archs: tuple[str, ...] = ()  # empty: all of the suite

    @staticmethod
    def from_environment(suite: Suite) -> Options:
        """``DEBUG``, ``VERBOSE`` (0 or 1) and ``CUDA_ARCH`` (as ``8.9``, several with commas).

        Raises:
            UsageError: a value is none of these.
        """

        def flag(name: str) -> bool:
            value = os.environ.get(name, "0") or "0"
            if value not in ("0", "1"):
                raise UsageError(f"{name}={value}: expected 0 or 1")
            return value == "1"

        archs = []
        for text in filter(None, re.split(r"[,; ]+", os.environ.get("CUDA_ARCH", ""))):
            number = text.removeprefix("sm_").replace(".", "")
            exact = [a for a in suite.archs if a[3:] == number]
            loose = [a for a in suite.archs if a[3:].rstrip("af") == number]
            if not exact and not loose:
                known = ", ".join(suite.archs)
                raise UsageError(f"CUDA_ARCH={text}: expected one of the suite's archs ({known})")
            archs.append((exact or loose)[0])
        return Options(flag("DEBUG"), flag("VERBOSE"), tuple(dict.fromkeys(archs)))


def build(
    suite: Suite,
    folder: Path,
    options: Options,
    *,
    variants: Iterable[Variant],
    gpu_arch: str | None = None,
    with_operator: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> list[Artifact]:
    """Builds the variants and tells what became of each on each arch.

    Args:
        folder: where everything built is kept (``build/``).
        gpu_arch: the arch of the machine's GPU: the operator is built for it. Without one it is
            built for the last arch that a variant supports, which gives the launch plan.
        with_operator: ``False`` leaves the torch operator out where torch is not installed.

    Raises:
        CapabilityError: no nvcc, g++ or ninja.
        FlashcoreError: the build folder cannot be written.
    """
    nvcc = toolchain.find_nvcc(folder)
    torch_root = toolchain.torch_root() if with_operator else None
    root = folder / suite.name
    closures = _Closures(suite, nvcc, torch_root)
    units, artifacts = _units(suite, root, options, variants, gpu_arch, closures)
    missing = [u for u in units if not u.done]
    started = time.monotonic()
    said = ""
    if missing:
        said = _compile(suite, root, missing, nvcc, torch_root, options, closures.tools, say)
    seconds = time.monotonic() - started
    fresh = {u.folder for u in missing}
    artifacts += [_artifact(u, u.folder not in fresh, seconds, said) for u in units]
    order = {name: i for i, name in enumerate(suite.variants)}
    return sorted(artifacts, key=lambda a: (order[a.variant], suite.archs.index(a.arch)))


def in_use(suite: Suite, folder: Path) -> set[Path]:
    """Where the suite's variants are built, or would be, as they are now: for every arch, for a debugger or not.

    Raises:
        CapabilityError: no nvcc or g++, which a build is also named by.
    """
    closures = _Closures(suite, toolchain.find_nvcc(folder), toolchain.torch_root())
    root = folder / suite.name
    both = (Options(), Options(debug=True))
    found = {u.folder for o in both for u in _units(suite, root, o, suite.variants.values(), None, closures)[0]}
    tools = f"{closures.tools} {toolchain.find_cxx()}"
    return found | {_problem_files(suite, root, p, tools)[0] for p in suite.problems.values()}


def _units(
    suite: Suite,
    root: Path,
    options: Options,
    variants: Iterable[Variant],
    gpu_arch: str | None,
    closures: _Closures,
) -> tuple[list[Unit], list[Artifact]]:
    """What there is to build, and what is not supported."""
    artifacts: list[Artifact] = []
    units: list[Unit] = []
    for variant in variants:
        if variant.is_peer:
            continue
        supported = [a for a in options.archs or suite.archs if a in variant.where.archs]
        host = gpu_arch if gpu_arch in supported else (supported[-1] if supported else None)
        for arch in options.archs or suite.archs:
            if arch not in variant.where.archs:
                reason = variant.where.unsupported.get(arch, f"declared for {', '.join(variant.where.archs)}")
                artifacts.append(Artifact(variant.name, arch, "unsupported", reason))
                continue
            flags = compile_flags(suite, variant, arch, options.debug)
            closure = closures.closure(variant, flags)
            wanted: tuple[str, ...] = (CUBIN,)
            if arch == host:
                wanted = (CUBIN, PLAN, OPERATOR) if closures.torch_root else (CUBIN, PLAN)
            unit_folder = root / f"{variant.name}-{arch}-{closures.key(variant, closure)[:16]}"
            units.append(Unit(variant, arch, unit_folder, closure, flags, wanted))
    return units, artifacts


def compile_flags(suite: Suite, variant: Variant, arch: str, debug: bool) -> tuple[str, ...]:
    """nvcc's flags for a variant. Paths in them are relative to the suite, so they can be compared
    between machines."""
    number = arch.removeprefix("sm_")
    config = [f"-D{k}={_macro(v)}" for k, v in variant.config.items()]
    return (
        *(DEBUG_FLAGS if debug else FLAGS),
        "-gencode",
        f"arch=compute_{number},code={arch}",
        f"-DFLASHCORE_NAME={variant.name}",
        *config,
        *(f"-I{i}" for i in suite.include),
    )


def _macro(value: int | float | str | bool) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


class _Closures:
    """Hashes of everything that goes into an object, each file read once."""

    def __init__(self, suite: Suite, nvcc: toolchain.Nvcc, torch_root: Path | None) -> None:
        self.suite = suite
        self.nvcc = nvcc
        self.torch_root = torch_root
        torch_version = _read(torch_root / "version.py").decode() if torch_root else None
        self.tools = f"nvcc {nvcc.path} {nvcc.version} torch {torch_root} {torch_version}"
        self.generated = {
            p.name: {
                "flashcore/problem.h": binding.problem_header(p).encode(),
                "flashcore/arguments.h": binding.arguments_header(p).encode(),
                "binding.cpp": binding.binding_source(suite.name, p).encode(),
            }
            for p in suite.problems.values()
        }
        self.roots = [*(Path(suite.root) / i for i in suite.include), HARNESS_INCLUDE]
        self.file = functools.cache(self._file)

    def key(self, variant: Variant, closure: str) -> str:
        """What names a build's folder: the closure, the tools, and the binding it is linked with."""
        digest = hashlib.sha256(f"{closure} {self.tools}".encode())
        digest.update(self.generated[variant.problem]["binding.cpp"])
        return digest.hexdigest()

    def closure(self, variant: Variant, flags: Sequence[str]) -> str:
        """Of a superset of what is compiled: includes are followed even under an ``#if``. No tool's
        version is in it, so it compares across compilers."""
        digest = hashlib.sha256(json.dumps([flags, variant.name]).encode())
        generated = self.generated[variant.problem]
        assert variant.source is not None
        pending = [Path(self.suite.root) / variant.source]
        seen: set[Path] = set()
        while pending:
            path = pending.pop()
            if path in seen:
                continue
            seen.add(path)
            text, includes = self.file(path)
            digest.update(text)
            for include in includes:
                if isinstance(include, Path):
                    pending.append(include)
                else:
                    digest.update(generated[include])
        return digest.hexdigest()

    def _file(self, path: Path) -> tuple[bytes, list[Path | str]]:
        """A file, and what it includes: the names of those that are generated, the paths of the others.
        What lies nowhere here is the toolkit's."""
        text = _read(path)
        includes: list[Path | str] = []
        for name in _INCLUDE.findall(text):
            include = name.decode(errors="replace")
            if include in GENERATED:
                includes.append(include)
                continue
            places = (r / include for r in (path.parent, *self.roots))
            if (found := next((p for p in places if os.path.isfile(p)), None)) is not None:
                includes.append(found)
        return text, includes


def _read(path: Path) -> bytes:
    return path.read_bytes()


def _compile(
    suite: Suite,
    root: Path,
    units: Sequence[Unit],
    nvcc: toolchain.Nvcc,
    torch_root: Path | None,
    options: Options,
    tools: str,
    say: Callable[[str], None],
) -> str:
    """Compiles the units; gives the end of what ninja and its commands said, progress left out."""
    import subprocess  # takes as long as all else that a build with nothing to do imports

    ninja = toolchain.find_ninja()
    cxx = toolchain.find_cxx()
    with writing(root):
        for unit in units:
            unit.folder.mkdir(parents=True, exist_ok=True)
    bindings = {
        name: _write_problem(suite, root, problem, f"{tools} {cxx}")
        for name, problem in suite.problems.items()
        if any(u.variant.problem == name for u in units)
    }
    # Two builds at once do not harm each other: each has its own graph and its own temporary files
    # (named by the shell's process id), and moves what it made into place; either may be first.
    path = root / f"build-{os.getpid()}.ninja"
    text = graph(suite, units, bindings, nvcc, cxx, torch_root)
    write_atomically(path, text.encode())
    command = [str(ninja), "-f", str(path), "-k", "0"]
    if options.verbose:
        command.append("-v")
    jobs = os.environ.get("MAX_JOBS")
    if jobs:
        command += ["-j", jobs]
    environment = {**os.environ, "NINJA_STATUS": "[%f/%t %es] "}  # as _COUNT reads it
    # ptxas in pip's toolkit is found beside nvcc only if nvcc's own folder is on PATH.
    environment["PATH"] = f"{nvcc.path.parent}{os.pathsep}{environment.get('PATH', '')}"
    try:
        said: deque[str] = deque(maxlen=40)
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if count := _COUNT.match(line):
                        say(Step(line.rstrip(), int(count[1]), int(count[2])))
                    elif options.verbose:
                        say(line.rstrip())
                    if not line.startswith("["):
                        said.append(line)
            except BaseException:
                process.terminate()  # ninja ends its compilers
                raise
    finally:
        path.unlink(missing_ok=True)
    return "".join(said)


def _problem_files(suite: Suite, root: Path, problem: Problem, tools: str) -> tuple[Path, dict[str, str]]:
    """The generated headers and binding of a problem, and their folder. It is named by their content and by the
    tools, so that the binding is compiled again for another torch."""
    files = {
        "flashcore/problem.h": binding.problem_header(problem),
        "flashcore/arguments.h": binding.arguments_header(problem),
        "binding.cpp": binding.binding_source(suite.name, problem),
    }
    key = hashlib.sha256(json.dumps([files, tools]).encode()).hexdigest()[:16]
    return root / f"{problem.name}-binding-{key}", files


def _write_problem(suite: Suite, root: Path, problem: Problem, tools: str) -> Path:
    folder, files = _problem_files(suite, root, problem, tools)
    with writing(folder):
        (folder / "flashcore").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        # Rewriting an unchanged file would make ninja compile the binding again.
        if not (folder / name).is_file():
            write_atomically(folder / name, text.encode())
    return folder


def _artifact(unit: Unit, cached: bool, seconds: float, said: str) -> Artifact:
    def made(name: str) -> str | None:
        path = f"{unit.folder}{os.sep}{name}"
        return path if os.path.isfile(path) else None

    message = ""
    done = cached or unit.done  # what counts as cached was looked for a moment ago
    if not done:
        missing = next(n for n in unit.wanted if not (unit.folder / n).is_file())
        log = unit.folder / (LOG if missing == CUBIN else f"{missing}.log")
        words = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        message = "\n".join(line for line in words.splitlines() if not _CHATTER.match(line)).strip()
        if missing != CUBIN or not message:
            message = f"{missing}: not made\n{message or said.strip() or 'nobody said why (VERBOSE=1 shows more)'}"
    return Artifact(
        variant=unit.variant.name,
        arch=unit.arch,
        status="ok" if done else "failed",
        message=message,
        closure=unit.closure,
        flags=unit.flags,
        cubin=made(CUBIN),
        log=made(LOG),
        library=made(OPERATOR),
        plan_library=made(PLAN),
        seconds=None if cached else round(seconds, 3),
        cached=cached,
    )
