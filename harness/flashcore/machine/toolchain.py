"""Finds the build tools: nvcc, g++, ninja, nvdisasm, torch's headers. Compiles programs of ours with g++.

Finds torch without importing it, which takes over a second.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flashcore.errors import CapabilityError, UsageError
from flashcore.machine.capabilities import lacking
from flashcore.model import cache
from flashcore.model.files import text_hash

#: The folder of an installed toolkit.
CUDA = "/usr/local/cuda/bin"
#: Environment variables that add flags to nvcc or header folders, and others that change the compiled code.
FLAG_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "PTXAS_FLAGS", "CUDAFE_FLAGS", "NVVM_FLAGS")
FOLDER_VARIABLES = ("CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH")
OTHER_VARIABLES = ("NVCC_CCBIN", "GCC_EXEC_PREFIX", "COMPILER_PATH", "INCLUDES", "SYSTEM_INCLUDES", "SOURCE_DATE_EPOCH")
#: Environment variables that change what a build is of the same sources.
VARIABLES = (*FLAG_VARIABLES, *FOLDER_VARIABLES, *OTHER_VARIABLES, "CUDA_ARCH")


@dataclass(frozen=True, slots=True)
class Nvcc:
    """A CUDA compiler: its path, the toolkit's root, its release (``13.0``) and its full version."""

    path: Path
    root: Path
    release: str
    version: str

    @property
    def cudart_static(self) -> Path:
        """The static runtime library: in ``lib`` of pip's toolkit, in ``lib64`` of a system's.

        Raises:
            CapabilityError: the toolkit has no static runtime.
        """
        for folder in ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
            library = self.root / folder / "libcudart_static.a"
            if library.is_file():
                return library
        raise lacking("cudart", what=f"{self.root}: expected libcudart_static.a in lib64 or lib, found none")


def site_packages() -> list[Path]:
    """The site-packages folders of this Python."""
    return [Path(p) for p in sys.path if p.endswith(("site-packages", "dist-packages"))]


def program(name: str, before: Iterable[str | Path] = (), after: Iterable[str | Path] = ()) -> Path | None:
    """A program in one of the folders ``before``, else on PATH, else in one of those ``after``; ``None`` if in none.

    Its path is absolute: ``ncu`` alone, of ``./ncu``, would be looked for on PATH again.
    """
    places = map(str, (*before, os.environ.get("PATH", os.defpath), *after))
    path = shutil.which(name, path=os.pathsep.join(filter(None, places)))  # an empty PATH is not the current folder
    return Path(path).absolute() if path else None


def cuda_home() -> list[str]:
    """The programs of the toolkit that ``CUDA_HOME`` names, if it is set."""
    home = os.environ.get("CUDA_HOME")
    return [f"{home}/bin"] if home else []


def _pip_folders() -> Iterator[Path]:
    """The programs of pip's toolkits, the newest first."""
    for site in site_packages():
        yield from sorted(site.glob("nvidia/cu*/bin"), reverse=True)


def find_nvcc(cached: Path | None = None) -> Nvcc:
    """The CUDA compiler: the environment's ``NVCC``, else of pip's toolkit, ``CUDA_HOME``, PATH, ``/usr/local/cuda``.

    Args:
        cached: a folder to cache its version in, since running nvcc for it takes as long as an up-to-date build.

    Raises:
        UsageError: ``NVCC`` is not a compiler.
        CapabilityError: no compiler is installed.
    """
    named = os.environ.get("NVCC")
    if path := program(named) if named else program("nvcc", [*_pip_folders(), *cuda_home()], [CUDA]):
        return _from_cache(path.resolve(), cached)
    if named:
        raise UsageError(f"NVCC={named}: expected a compiler's path, found no program")
    raise lacking("nvcc")


def _from_cache(path: Path, folder: Path | None) -> Nvcc:
    program = _program(path) if folder is not None else None
    if folder is None or program is None or not _has_headers(program.parent.parent):
        return _nvcc(path)
    key = cache.stamp([path, program])
    if version := cache.recall(folder, "nvcc", key):
        return Nvcc(path, program.parent.parent, *version)
    nvcc = _nvcc(path)
    cache.keep(folder, "nvcc", key, (nvcc.release, nvcc.version))
    return nvcc


def _program(path: Path) -> Path | None:
    """The compiler itself: ``path``, or the program that it executes if it is a one-line wrapper script. ``None`` for
    any other script, whose version cannot be cached since it may call another compiler next time."""
    with path.open("rb") as stream:
        start = stream.read(1000)
    if start.startswith(b"\x7fELF"):
        return path
    match = re.fullmatch(rb'#!/bin/(?:ba)?sh\s+exec (/\S+) "\$@"\s*', start)
    if match is None:
        return None
    called = Path(os.fsdecode(match[1])).resolve()
    return called if called != path and called.is_file() and _program(called) == called else None


def _has_headers(root: Path) -> bool:
    return (root / "include" / "cuda_runtime.h").is_file()


@functools.cache
def _nvcc(path: Path) -> Nvcc:
    # The toolkit's version.json would be faster to read, but pip's toolkit has none.
    result = ask([path, "--version"])
    match = re.search(r"release (\d+\.\d+), V(\S+)", result.stdout)
    if match is None:
        output = (result.stdout + result.stderr).strip()[-300:]
        raise lacking("nvcc", what=f"{path} --version: expected a CUDA release, found {output!r}")
    root = path.parent.parent
    if not _has_headers(root):
        # `nvcc` on PATH may be a script that calls the real one; a dry run prints its toolkit's root.
        dry = ask([path, "--dryrun", "-x", "cu", "-c", os.devnull, "-o", os.devnull])
        if top := re.search(r"^#\$ TOP=(.+)$", dry.stderr, re.MULTILINE):
            root = Path(top[1]).resolve()
    return Nvcc(path, root, match[1], match[2])


def ask(command: Sequence[str | Path], timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a program and returns its output."""
    return subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False, timeout=timeout
    )


def find_tool(name: str, usual: str = "") -> Path:
    """A program from this environment or PATH. ``usual``: the program to suggest if it is missing (default: ``name``).

    Raises:
        CapabilityError: it is not installed.
    """
    tool = optional_tool(name)
    if tool is None:
        raise lacking(usual or name, what=f"no {name} found")
    return tool


def optional_tool(name: str) -> Path | None:
    """Like :func:`find_tool`, but ``None`` if it is not installed."""
    of_triton = [site / "triton/backends/nvidia/bin" for site in site_packages() if name == "nvdisasm"]
    return program(name, [Path(sys.executable).parent, *_pip_folders(), *of_triton], [CUDA])


def find_cxx() -> Path:
    """The host compiler: ``CXX`` or g++."""
    return find_tool(os.environ.get("CXX", "g++"), "g++")


def compilers(nvcc: Nvcc) -> list[Path]:
    """All programs that a compilation runs: wrappers, nvcc's programs and their settings, host compilers."""
    named = os.environ.get("NVCC_CCBIN") or "g++"
    hosts = (f"{named}/g++" if os.path.isdir(named) else named, os.environ.get("CXX", "g++"))
    nvvm = ("../nvvm/bin/cicc", "../nvvm/libdevice/libdevice.10.bc")
    more = ("nvcc", "nvcc.profile", "cudafe++", "ptxas", "fatbinary", *nvvm)
    programs = [nvcc.path, _program(nvcc.path), *(nvcc.root / "bin" / name for name in more)]
    return [
        path for path in dict.fromkeys([*programs, *map(optional_tool, hosts)]) if path is not None and path.is_file()
    ]


def tool_version(program: Path | str) -> str | None:
    """The version of an NVIDIA tool, such as ``2025.3.1.0``; ``None`` if it prints none."""
    try:
        output = ask([program, "--version"], timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"Version (\d+(?:\.\d+)+)", output)
    return match[1] if match else None


def torch_root() -> Path | None:
    """torch's package folder, found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def version_of(package: str) -> str | None:
    """An installed distribution's version."""
    from importlib import metadata  # slow to import: a tenth of an up-to-date build

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def host_program(source: Path, flags: Sequence[str], name: str) -> Path:
    """A program or library of ours, compiled once per machine and source into the user's cache.

    Its headers are next to the source, and in the folders of ``-I``.

    Args:
        flags: libraries last.
        name: of the file, before the hash: ``activity``, ``launcher.so``.

    Raises:
        CapabilityError: there is no compiler, or it rejects the source.
        OSError: the cache cannot be written.
    """
    compiler = find_cxx()
    command = [str(source), *flags]
    version = ask([compiler, "--version"]).stdout
    folders = [source.parent, *(Path(flag[2:]) for flag in flags if flag.startswith("-I"))]
    headers = (path for folder in folders for path in sorted(folder.glob("*.hpp")))
    texts = [path.read_text("utf-8") for path in (source, *headers)]
    key = text_hash("\0".join([version, *command, *texts]))[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "flashcore")
    stem, dot, suffix = name.partition(".")
    made = folder / f"{stem}-{key}{dot}{suffix}"
    if not made.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            fresh = Path(place, made.name)
            done = ask([compiler, "-o", fresh, *command])
            if done.returncode:
                raise CapabilityError(f"{compiler} cannot compile {source.name}: {done.stderr.strip()[-400:]}", "")
            fresh.replace(made)
    return made
