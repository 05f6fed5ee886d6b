"""Finds the libraries and the Python packages that a variant names, on this machine."""

from __future__ import annotations

import importlib.util
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from flashcore.errors import CapabilityError
from flashcore.machine import toolchain
from flashcore.model.suite import Variant

_OF_TORCH = ("c10", "torch_cpu", "torch", "torch_python", "c10_cuda", "torch_cuda")


@dataclass(frozen=True, slots=True)
class Libraries:
    """Folders of headers, and library files.

    ``loose``: symbols may be missing on this machine, such as those of torch's CUDA libraries and of Python.
    """

    headers: tuple[Path, ...] = ()
    static: tuple[Path, ...] = ()
    shared: tuple[Path, ...] = ()
    of_torch: tuple[Path, ...] = ()
    loose: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """nvcc's flags for the headers."""
        return tuple(word for folder in self.headers for word in ("-isystem", str(folder)))


def find(variant: Variant, root: Path, nvcc: toolchain.Nvcc) -> Libraries:
    """The variant's libraries and packages.

    Raises:
        CapabilityError: this machine lacks one.
    """
    headers: list[Path] = []
    of_torch: list[Path] = []
    for name in variant.packages:
        folder = _package(name)
        headers.append(folder / "include")
        if name == "torch":
            headers += folder / "include/torch/csrc/api/include", Path(sysconfig.get_path("include"))
            headers += _of_nvidia("include")  # torch's headers include those of its libraries
            of_torch = [file for part in _OF_TORCH if (file := folder / "lib" / f"lib{part}.so").is_file()]
    files = [root / name if "/" in name or "." in name else _named(name, nvcc) for name in variant.libraries]
    for file in files:
        if not file.is_file():
            raise CapabilityError(f"{file}: expected a library, found no such file", "build it, or correct `libraries`")
        if any(file.is_relative_to(site) for site in toolchain.site_packages()):
            headers.append(file.parent.with_name("include"))
    static = tuple(file for file in files if file.suffix == ".a")
    shared = tuple(file for file in files if file not in static)
    return Libraries(tuple(dict.fromkeys(headers)), static, shared, tuple(of_torch), "torch" in variant.packages)


def _package(name: str) -> Path:
    """The folder of an installed package, or one in it: ``torch``, ``cutlass_library/source``."""
    package, _, inner = name.partition("/")
    spec = importlib.util.find_spec(package)
    for place in (spec and spec.submodule_search_locations) or ():
        if (folder := Path(place, inner)).joinpath("include").is_dir():
            return folder
    raise CapabilityError(
        f"packages: expected a Python package with a folder {name}/include, found none",
        f"install it: pip install {package}",
    )


def _of_nvidia(part: str) -> list[Path]:
    """That folder of each of NVIDIA's Python packages, the newest first."""
    sites = toolchain.site_packages()
    return [folder for site in sites for folder in sorted(site.glob(f"nvidia/*/{part}"), reverse=True)]


def _named(name: str, nvcc: toolchain.Nvcc) -> Path:
    """The file of a library such as ``cublas``: of a Python package, as torch loads it, the toolkit or the system."""
    folders = [*_of_nvidia("lib"), *(nvcc.root / folder for folder in ("lib64", "lib"))]
    for folder in folders:
        for file in (folder / f"lib{name}.so", *sorted(folder.glob(f"lib{name}.so.*")), folder / f"lib{name}.a"):
            if file.is_file():
                return file
    for end in ("so", "a"):  # g++ prints the name alone if it finds none
        file = Path(toolchain.ask([toolchain.find_cxx(), f"-print-file-name=lib{name}.{end}"]).stdout.strip())
        if file.is_absolute():
            return file.resolve()
    raise CapabilityError(
        f"libraries: expected {name}, found no lib{name}.so or lib{name}.a in {', '.join(map(str, folders))}",
        f"install it, for example: pip install nvidia-{name}",
    )
