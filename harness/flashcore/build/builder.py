"""What all compilations of a build share: the suite, its build folder, the tools, and generated files."""

from __future__ import annotations

import contextlib
from pathlib import Path

from flashcore.build import binding, cache_key, nvcc_command
from flashcore.build.libraries import Libraries
from flashcore.build.ninja_graph import EXPORTS, LINK, RECORDER_SOURCE, STEPS
from flashcore.build.nvcc_command import HOST_FLAGS
from flashcore.build.unit import Unit
from flashcore.machine import toolchain
from flashcore.model.files import make_folder, write_atomically
from flashcore.model.suite import ForeignLauncher, Problem, Suite, Variant


class Builder:
    """The suite, its build folder and the tools.

    Raises:
        CapabilityError: no nvcc.
    """

    def __init__(self, suite: Suite, folder: Path, torch_root: Path | None) -> None:
        self.suite, self.torch_root = suite, torch_root
        self.nvcc, self.root = toolchain.find_nvcc(folder), folder / suite.name
        torch_version = (torch_root / "version.py").read_text(encoding="utf-8") if torch_root else None
        texts = [file.read_text(encoding="utf-8") for file in (EXPORTS, STEPS)]
        release = f"nvcc {self.nvcc.version} torch {torch_root} {torch_version} {HOST_FLAGS} {LINK} {texts}"
        include = [*(Path(suite.root) / i for i in suite.include), nvcc_command.HARNESS_INCLUDE]
        tools = cache_key.CompilerTools(toolchain.compilers(self.nvcc), self.nvcc.root, release)
        self.inputs = cache_key.Inputs(suite.root, self.root, tools, include)

    def names(self, unit: Unit) -> list[Path]:
        """The folders that may contain the unit's files, compiled from its present sources."""
        return [self.name(unit, key) for key in self.inputs.keys(unit.name, unit.question)]

    def name(self, unit: Unit, key: str) -> Path:
        return self.root / f"{unit.name}-{key[:16]}"

    def linked(self, variant: Variant, libraries: Libraries) -> list[str]:
        """What a variant is linked with, in a form that compares between machines: the content of each library and of
        the recorder, and the release of each package. Empty for most variants."""
        recorder = (RECORDER_SOURCE,) if isinstance(variant.kind, ForeignLauncher) else ()
        files = (*libraries.static, *libraries.shared, *recorder)
        contents = [f"{file.name} {self.inputs.content([file], file.name)}" for file in files]
        return contents + [f"{name} {toolchain.version_of(name.partition('/')[0])}" for name in variant.packages]

    def problem_folder(self, problem: Problem) -> Path:
        """The folder of a problem's generated files, named by their content and the tools, so that the binding is
        recompiled for another torch."""
        content = cache_key.digest([self.problem_files(problem), self.inputs.tools])
        return self.root / f"{problem.name}-binding-{content[:16]}"

    def problem_files(self, problem: Problem) -> dict[str, str]:
        """A problem's generated headers and binding."""
        return {
            "flashcore/problem.h": binding.problem_header(problem),
            "flashcore/arguments.h": binding.arguments_header(problem),
            "binding.cpp": binding.binding_source(self.suite.name, problem),
        }

    def write_problem(self, problem: Problem) -> Path:
        folder = self.problem_folder(problem)
        make_folder(folder / "flashcore")
        for name, text in self.problem_files(problem).items():
            with contextlib.suppress(OSError):
                if (folder / name).read_bytes() == text.encode():
                    continue
            write_atomically(folder / name, text.encode())
        return folder
